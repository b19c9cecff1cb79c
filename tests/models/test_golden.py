"""Whole models of genuine Keras: converted, proven in this process, and compared with what Keras returned."""

import subprocess
import sys
import zipfile

import numpy as np
import pytest
from environment import TESTS
from whole_models import difference, outputs_of, proven, written

GOLDEN = TESTS / "golden" / "models"
FLOAT32 = 2e-5
NAMES = ("mlp", "time_series_transformer", "text_transformer", "translator", "lstm_classifier")


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_genuine_keras(name, tmp_path):
    proven(GOLDEN / f"{name}.keras", tmp_path)
    arrays = np.load(GOLDEN / f"{name}.npz")
    inputs = [arrays[key] for key in sorted(arrays.files) if key.startswith("x")]
    (actual,) = outputs_of(tmp_path, inputs)
    assert difference(actual, arrays["y0"]) < FLOAT32


@pytest.mark.parametrize("name", NAMES)
def test_the_source_is_the_one_that_was_read_and_kept(name, tmp_path):
    """``tests/golden/models/make_sources.py`` writes them anew."""
    assert written(GOLDEN / f"{name}.keras", tmp_path).source == (GOLDEN / "sources" / f"{name}.py").read_text()


@pytest.mark.process
def test_sources_are_as_ruff_writes_them():
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--isolated", "--no-cache", "--line-length=100", GOLDEN / "sources"]
    for command in (["check", "--select=E,F,W,I,UP,B,C4,SIM"], ["format", "--check", "--diff"]):
        done = subprocess.run([*ruff, *command, *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


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
