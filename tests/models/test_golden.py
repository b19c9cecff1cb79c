"""Whole models of genuine Keras: converted, proven in this process, and compared with what Keras returned."""

import numpy as np
import pytest
from environment import TESTS
from whole_models import difference, outputs_of, proven

GOLDEN = TESTS / "golden" / "models"
FLOAT32 = 2e-5


@pytest.mark.parametrize("name", ["mlp", "text_transformer", "translator"])
def test_outputs_are_those_of_genuine_keras(name, tmp_path):
    proven(GOLDEN / f"{name}.keras", tmp_path)
    arrays = np.load(GOLDEN / f"{name}.npz")
    inputs = [arrays[key] for key in sorted(arrays.files) if key.startswith("x")]
    (actual,) = outputs_of(tmp_path, inputs)
    assert difference(actual, arrays["y0"]) < FLOAT32


def test_a_layer_without_a_rule_is_refused_by_name(tmp_path):
    import mha_convert

    with pytest.raises(mha_convert.LayerError, match="LSTM"):
        mha_convert.convert_model(GOLDEN / "lstm_classifier.keras", tmp_path / "out")
    assert not (tmp_path / "out").exists()
