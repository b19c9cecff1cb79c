"""Whole models of genuine Keras: converted, proven in this process, and compared with what Keras returned."""

import zipfile

import numpy as np
import pytest
from environment import TESTS
from whole_models import difference, outputs_of, proven

GOLDEN = TESTS / "golden" / "models"
FLOAT32 = 2e-5


@pytest.mark.parametrize("name", ["mlp", "text_transformer", "translator", "lstm_classifier"])
def test_outputs_are_those_of_genuine_keras(name, tmp_path):
    proven(GOLDEN / f"{name}.keras", tmp_path)
    arrays = np.load(GOLDEN / f"{name}.npz")
    inputs = [arrays[key] for key in sorted(arrays.files) if key.startswith("x")]
    (actual,) = outputs_of(tmp_path, inputs)
    assert difference(actual, arrays["y0"]) < FLOAT32


@pytest.mark.parametrize("name", ["RNN", "ConvLSTM1D", "StackedRNNCells"])
def test_a_layer_without_a_rule_is_refused_by_name(name, tmp_path):
    import mha_convert

    changed = tmp_path / "changed.keras"
    with zipfile.ZipFile(GOLDEN / "lstm_classifier.keras") as source, zipfile.ZipFile(changed, "w") as target:
        for item in source.namelist():
            data = source.read(item)
            text = data.replace(b'"class_name": "Dense"', b'"class_name": "%s"' % name.encode())
            target.writestr(item, text if item == "config.json" else data)
    with pytest.raises(mha_convert.LayerError, match=name):
        mha_convert.convert_model(changed, tmp_path / "out")
    assert not (tmp_path / "out").exists()
