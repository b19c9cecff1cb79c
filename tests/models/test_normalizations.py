"""Normalizations in whole models: genuine Keras' outputs, the source, and damages that the proof refuses."""

import json
import shutil
import zipfile

import numpy as np
import pytest
from environment import TESTS
from model_damages import prove, refused
from whole_models import difference, outputs_of, proven, written

from mha_convert import LayerError, VerificationError
from mha_convert.layers.of_model import plain_layer
from mha_convert.records.plan import Piece, Rule
from mha_convert.verification.whole import driver

GOLDEN = TESTS / "golden" / "models"
NAMES = ("norm_sequences", "norm_images")
FLOAT32 = 2e-5
LINES = {
    "norm_sequences": (
        "self.ln_two = nn.LayerNorm([5, 6], eps=1e-5)",
        "self.ln_bare = nn.LayerNorm(6, eps=0.001, elementwise_affine=False)",
        "self.rms = nn.RMSNorm(6, eps=1e-6)",
        "self.bn = nn.BatchNorm1d(6, eps=0.001, momentum=0.1)",
        "self.bn_length = nn.BatchNorm1d(5, eps=1e-5, momentum=0.01)",
        "self.bn_bare = nn.BatchNorm1d(6, eps=0.001, momentum=0.01, affine=False)",
        "self.gn = nn.GroupNorm(3, 6, eps=0.001)",
        "self.gn_each = nn.GroupNorm(5, 5, eps=0.0001)",
        "ln_length = self.ln_length(steps.movedim(1, -1)).movedim(-1, 1)",
        "bn = self.bn(steps.transpose(1, 2))",
        "bn_length = self.bn_length(steps)",
        "unit = F.normalize(steps, dim=-1)",
        "unit_two = F.normalize(steps, dim=(1, 2))",
        "rescaled = steps * (1 / 255) - 0.5",
        "masking = steps * keep[..., None]",
    ),
    "norm_images": (
        "x = self.bn_image(image.movedim(-1, 1))",
        "x = torch.relu(x)",
        "x = self.bn_again(x)",
        "dense = self.dense(x.movedim(1, -1))",
        "self.bn_volume = nn.BatchNorm3d(6, eps=0.001, momentum=0.01)",
        "gn_width = self.gn_width(known.movedim(2, 1)).movedim(1, 2)",
    ),
}
# Of norm_sequences: the layer that must be named, and a line as a wrong rule of ours would write it.
WRONG = [
    ("ln_two", "nn.LayerNorm([5, 6], eps=1e-5", "nn.LayerNorm([5, 6], eps=1e-3"),
    ("ln_length", "self.ln_length(steps.movedim(1, -1)).movedim(-1, 1)", "self.ln_length(steps.flip(1).movedim(1, -1)).movedim(-1, 1)"),
    ("ln_deviation", "correction=0", "correction=1"),
    ("rms", "nn.RMSNorm(6, eps=1e-6", "nn.RMSNorm(6, eps=1e-5"),
    ("rms", "rms = self.rms(steps)", "rms = self.rms(steps - steps.mean(-1, keepdim=True))"),
    ("bn_length", "nn.BatchNorm1d(5, eps=1e-5", "nn.BatchNorm1d(5, eps=1e-3"),
    ("bn", "bn = self.bn(steps.transpose(1, 2))", "bn = self.bn(steps.transpose(1, 2).flip(1))"),
    ("gn", "nn.GroupNorm(3, 6", "nn.GroupNorm(2, 6"),
    ("gn_each", "nn.GroupNorm(5, 5, eps=0.0001", "nn.GroupNorm(5, 5, eps=0.001"),
    ("gn_each", "nn.GroupNorm(5, 5", "nn.GroupNorm(1, 5"),
    ("unit", "F.normalize(steps, dim=-1)", "F.normalize(steps, dim=-1, eps=1e-6)"),
    ("unit", "F.normalize(steps, dim=-1)", "F.normalize(steps, dim=1)"),
    ("rescaled", "(1 / 255) - 0.5", "(1 / 256) - 0.5"),
    ("rescaled", "(1 / 255) - 0.5", "(1 / 255) + 0.5"),
    ("given", "clamp_min(1e-7)", "clamp_min(1e-12)"),
    ("adapted_whole", "Denormalization(()", "Normalization(()"),
    ("keep", "!= -1.0).any(-1)", "!= -1.0).all(-1)"),
    ("keep", "!= -1.0).any(-1)", "!= 0.0).any(-1)"),
    ("masking", "masking = steps * keep[..., None]", "masking = steps"),
]  # fmt: skip
SWAPPED = [
    ("ln_two", "gamma", "beta"),
    ("bn", "gamma", "beta"),
    ("bn", "moving_mean", "moving_variance"),
    ("bn_scale", "gamma", "moving_mean"),
    ("bn_vector", "beta", "moving_mean"),
    ("gn", "gamma", "beta"),
    ("adapted", "mean", "variance"),
    ("rescaled_each", "scale", "offset"),
]


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_genuine_keras(name, tmp_path):
    plan = proven(GOLDEN / f"{name}.keras", tmp_path)
    arrays = np.load(GOLDEN / f"{name}.npz")
    inputs = [arrays[key] for key in sorted(arrays.files) if key.startswith("x")]
    wanted = [arrays[key] for key in sorted(arrays.files) if key.startswith("y")]
    for actual, expected in zip(outputs_of(tmp_path, inputs), wanted, strict=True):
        assert difference(actual, expected) < FLOAT32
    assert [line for line in LINES[name] if line not in plan.source] == []


@pytest.mark.parametrize(("layer", "old", "new"), WRONG)
def test_a_wrong_line_is_caught(layer, old, new, tmp_path):
    assert refused(GOLDEN / "norm_sequences.keras", tmp_path, old, new).startswith(f"Layer '{layer}'")


@pytest.mark.parametrize(("layer", "one", "other"), SWAPPED)
def test_arrays_in_each_others_place_are_caught(layer, one, other, tmp_path, monkeypatch):
    plan = written(GOLDEN / "norm_sequences.keras", tmp_path)
    exact, names = driver.exact, {one: other, other: one}

    def swapped(item, rule):
        if item.prefix != f"{layer}.":
            return exact(item, rule)
        pieces = tuple(Piece(names.get(piece.source, piece.source), piece.pattern) for piece in rule.pieces)
        return exact(item, Rule(rule.target, pieces) if rule.pieces[0].source else rule)

    monkeypatch.setattr(driver, "exact", swapped)
    with pytest.raises(VerificationError, match=f"Layer '{layer}': with inputs of its own"):
        prove(plan, tmp_path)


def changed(folder, **settings):
    """``norm_sequences`` with other settings of some layers."""
    source = folder / "changed.keras"
    shutil.copyfile(GOLDEN / "norm_sequences.keras", source)
    with zipfile.ZipFile(source) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    config = json.loads(parts["config.json"])
    for layer in config["config"]["layers"]:
        layer["config"] |= settings.get(layer["name"], {})
    parts["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(source, "w") as new:
        for name, content in parts.items():
            new.writestr(name, content)
    return source


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bn": {"renorm": True}}, r"Layer 'bn' \(BatchNormalization\): renorm is True, expected false"),
        ({"bn": {"virtual_batch_size": 4}}, "virtual_batch_size is 4, expected null"),
        ({"bn": {"axis": [1, 2]}}, r"axis is \[1, 2\], expected one axis"),
        ({"bn": {"axis": 1}}, r"is called with \(5,\) numbers along its axes, and its gamma has \(6,\)"),
        ({"bn": {"epsilon": 0}}, "epsilon is 0, expected a positive number"),
        ({"ln_two": {"axis": [-1, 1]}}, "some count from the front and some from the end"),
        ({"rms": {"axis": [0]}}, r"is called with \(None,\)|divides along axis"),
        ({"gn": {"groups": 4}}, "it has 6 channels in 4 groups"),
        ({"gn": {"groups": -2}}, "groups is -2, expected a whole number from 1, or -1"),
        ({"adapted": {"axis": [0, 1]}}, "expected one axis or several behind the batch"),
        ({"given": {"variance": None}}, "it has a mean or a variance, and not both"),
        ({"given": {"mean": [[1.0]]}}, "its mean is of shape"),
        ({"rescaled": {"scale": "x"}}, "scale is 'x', expected a number or a list of numbers"),
        ({"rescaled": {"scale": [1, [2, 3]]}}, "expected a number or a list of numbers"),
        ({"masking": {"mask_value": None}}, "mask_value is None, expected a finite number"),
        ({"unit": {"order": 1}}, "it has the setting order, which this class does not have"),
    ],
)
def test_what_cannot_be_converted_is_refused_in_words(settings, message, tmp_path):
    with pytest.raises(LayerError, match=message):
        written(changed(tmp_path, **settings), tmp_path / "out")


def test_settings_of_one_axis_may_be_lists(tmp_path):
    for name, axis in (("bn", [2]), ("gn", [-1]), ("unit", [2])):
        proven(changed(tmp_path, **{name: {"axis": axis}}), tmp_path / name)


def test_a_short_vector_is_bounded_by_the_version_that_wrote_the_file():
    from mha_convert.records.graph import TensorSpec
    from mha_convert.records.model import Term
    from mha_convert.source.model.lines import LINES as WRITTEN
    from mha_convert.source.model.use import Use
    from mha_convert.verification.formulas.plain import FORMULAS

    short = np.full((1, 4), 1e-9)
    for version, length, line in (
        ((3, 5), 2e-3, "F.normalize(x, dim=-1, eps=1e-6)"),
        ((3, 6), 1, "F.normalize(x, dim=-1)"),
    ):
        layer = plain_layer("UnitNormalization", "unit", {}, None, version)
        assert np.linalg.norm(FORMULAS["UnitNormalization"](layer, {}, short)) == pytest.approx(length)
        assert WRITTEN["UnitNormalization"](layer, Use(""), Term("x", TensorSpec((None, 4)))).text == line
