"""Graphs of genuine Keras as source: branches, shared layers, nested models, trees of inputs and outputs."""

import json
import subprocess
import sys

import h5py
import numpy as np
import pytest
from environment import PROJECT, SUPPORT
from whole_models import difference, outputs_of, proven, written

from mha_convert.errors import LayerError

FLOAT32 = 2e-6
NAMES = (
    "branches", "shared_layer", "siamese", "siamese_sequential", "shared_in_h5", "dictionaries", "nested_dictionary",
    "chain", "chain_without_input", "twins",
)  # fmt: skip


@pytest.fixture(scope="module")
def files(keras_installed, tmp_path_factory, starts_processes):
    """Models of the installed Keras, with inputs and outputs."""
    folder = tmp_path_factory.mktemp("graphs")
    done = subprocess.run([sys.executable, SUPPORT / "graph_models.py", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def arrays_of(files, name):
    """Inputs and outputs, in Keras' order."""
    stored = np.load(files / f"{name}.npz")
    return [[stored[f"{letter}{n}"] for n in range(len([k for k in stored if k[0] == letter]))] for letter in "xy"]


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_genuine_keras(name, suffix, files, tmp_path):
    proven(files / f"{name}{suffix}", tmp_path)
    given, wanted = arrays_of(files, name)
    returned = outputs_of(tmp_path, given)
    assert len(returned) == len(wanted)
    assert max(difference(*pair) for pair in zip(returned, wanted, strict=True)) < FLOAT32


def test_a_nested_model_is_a_class_that_is_made_once(files, tmp_path):
    source = written(files / "siamese.keras", tmp_path).source
    assert source.count("class Encoder(nn.Module)") == 1
    assert source.count("self.encoder = Encoder()") == 1
    assert source.count("self.encoder(") == 4


def test_models_that_look_the_same_are_two_classes(files, tmp_path):
    source = written(files / "twins.keras", tmp_path).source
    assert "class Left(nn.Module)" in source and "class Right(nn.Module)" in source


def test_a_shared_layer_is_one_module(files, tmp_path):
    plan = written(files / "shared_layer.keras", tmp_path)
    assert [member.attribute for member in plan.model.members] == ["a", "b"]
    assert len(plan.weights.layers) == 2


def test_dictionaries_stay_dictionaries(files, tmp_path):
    import torch

    from mha_convert.models import load_model

    written(files / "dictionaries.keras", tmp_path)
    given, _ = arrays_of(files, "dictionaries")
    model = load_model(tmp_path)
    returned = model(a=torch.from_numpy(given[0]), z=torch.from_numpy(given[1]))
    assert set(returned) == {"first", "second"} and isinstance(returned["first"], tuple)


def test_a_layer_that_models_beside_one_another_share_is_refused_or_right(files, tmp_path):
    try:
        proven(files / "shared_with_nested.keras", tmp_path)
    except LayerError as error:
        assert "is shared by models of which none is inside the other" in str(error)
        return
    given, wanted = arrays_of(files, "shared_with_nested")
    assert difference(outputs_of(tmp_path, given)[0], wanted[0]) < FLOAT32


def test_copies_of_a_shared_layer_that_differ_are_two_layers(files, tmp_path):
    """``.h5`` of Keras 3 stores a layer that two models share with each, and does not say that it is one."""
    path = tmp_path / "model.h5"
    path.write_bytes((files / "shared_in_h5.h5").read_bytes())
    assert len(proven(path, tmp_path / "one").weights.layers) == 2
    with h5py.File(path, "r+") as file:
        file["model_weights/shared/shared/kernel"][0, 0] += 1e-3
    assert len(proven(path, tmp_path / "two").weights.layers) == 3


def test_copies_of_a_layer_that_the_file_calls_one_must_agree(files, tmp_path):
    """Keras 2.5 and later number the objects that they write several times."""
    path = tmp_path / "model.h5"
    path.write_bytes((files / "shared_in_h5.h5").read_bytes())
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        for layer in walk(config):
            if layer.get("name") == "shared" and "class_name" in layer:
                layer["shared_object_id"] = 1
        file.attrs["model_config"] = json.dumps(config)
    assert len(proven(path, tmp_path / "one").weights.layers) == 2
    with h5py.File(path, "r+") as file:
        file["model_weights/shared/shared/kernel"][0, 0] += 1e-3
    with pytest.raises(LayerError, match="'shared' is stored more than once.*differ"):
        written(path, tmp_path / "out")


def walk(data):
    """Every mapping in plain data."""
    if isinstance(data, dict):
        yield data
    for item in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from walk(item)


def test_a_mask_is_made_once(tmp_path):
    """Keras 3 writes the operations by which it made masks into the graph, as well as handing them on."""
    source = written(PROJECT / "samples" / "text_classifier.keras", tmp_path).source.partition("class TextClassifier")[
        2
    ]
    assert source.count("tokens != 0") == 1 and "logical_or" not in source and " | " not in source
