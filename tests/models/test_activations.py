"""Every activation, as a layer and as a setting: genuine Keras' outputs, and functions in each other's place."""

import json
import zipfile

import numpy as np
import pytest
from environment import TESTS
from model_damages import prove, rewritten
from whole_models import difference, outputs_of, proven, written

from mha_convert import LayerError, VerificationError
from mha_convert.layers.plain.activations import NAMES

SOURCE = TESTS / "golden" / "models" / "activations.keras"
FLOAT32 = 2e-5
# What a rule of ours might write for another, or with another setting.
WRONG = [
    ("gelu_alone", "F.gelu(steps)", 'F.gelu(steps, approximate="tanh")'),
    ("leaky_relu_alone", "F.leaky_relu(steps, 0.2)", "F.leaky_relu(steps, 0.01)"),
    ("leaky", "leaky = F.leaky_relu(steps, 0.3)", "leaky = F.leaky_relu(steps, 0.2)"),
    ("elu_alpha", "F.elu(steps, 0.7)", "F.elu(steps)"),
    ("relu_most", "clamp(0.0, 1.5)", "clamp(0.0, 6.0)"),
    ("relu_threshold", "0.2 * (steps - 0.5)", "0.2 * steps"),
    ("relu_threshold", "steps > 0.5", "steps > 0.0"),
    ("softmax_steps", "steps.softmax(1)", "steps.softmax(-1)"),
    ("softmax_both", "(1, 2), keepdim=True", "(1,), keepdim=True"),
    ("hard_silu_alone", "F.hardswish(steps)", "F.silu(steps)"),
    ("hard_shrink_alone", "F.hardshrink(steps)", "F.softshrink(steps)"),
    ("celu_alone", "F.celu(steps)", "F.selu(steps)"),
    ("squareplus_alone", "squareplus(steps)", "F.softplus(steps)"),
    ("sparse_plus_alone", "sparse_plus(steps)", "F.relu(steps)"),
    ("sparse_sigmoid_alone", "sparse_sigmoid(steps)", "F.hardsigmoid(steps)"),
    ("sparsemax_alone", "keras_sparsemax(steps, -1)", "keras_sparsemax(steps, 1)"),
    ("sparsemax_of_conv", "keras_sparsemax(self.sparsemax_of_conv(steps.transpose(1, 2)), 1)", "keras_sparsemax(self.sparsemax_of_conv(steps.transpose(1, 2)), 2)"),
    ("gru", "recurrent_activation=F.hardsigmoid", "recurrent_activation=torch.sigmoid"),
]  # fmt: skip


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """The model as it is written, and its folder."""
    folder = tmp_path_factory.mktemp("activations")
    return written(SOURCE, folder), folder


def test_outputs_are_those_of_genuine_keras(tmp_path):
    proven(SOURCE, tmp_path)
    arrays = np.load(SOURCE.with_suffix(".npz"))
    wanted = [arrays[key] for key in sorted(arrays.files) if key.startswith("y")]
    for actual, expected in zip(outputs_of(tmp_path, [arrays["x0"]]), wanted, strict=True):
        assert difference(actual, expected) < FLOAT32


def test_every_activation_is_in_the_model():
    with zipfile.ZipFile(SOURCE) as stored:
        layers = json.loads(stored.read("config.json"))["config"]["layers"]
    found = {(layer["class_name"], layer["config"].get("activation")) for layer in layers}
    assert {(kind, name) for kind in ("Activation", "Dense") for name in NAMES} <= found


@pytest.mark.parametrize(("layer", "old", "new"), WRONG)
def test_another_function_is_caught(layer, old, new, plan):
    with pytest.raises(VerificationError, match=f"Layer '{layer}': with inputs of its own"):
        prove(rewritten(plan[0], old, new), plan[1])


def test_what_changes_shapes_is_refused(tmp_path):
    source = tmp_path / "glu.keras"
    with zipfile.ZipFile(SOURCE) as old, zipfile.ZipFile(source, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b'"activation": "gelu"', b'"activation": "glu"'))
    with pytest.raises(LayerError, match="activation is 'glu', expected an activation of Keras that keeps shapes"):
        written(source, tmp_path)
