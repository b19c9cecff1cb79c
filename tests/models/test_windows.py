"""Convolution and pooling along a length: genuine Keras' outputs, the source, and damages that the proof refuses."""

import dataclasses
import itertools
import json
import re
import zipfile

import numpy as np
import pytest
import torch
from environment import TESTS
from whole_models import difference, outputs_of, proven, written

from mha_convert import LayerError, VerificationError
from mha_convert.layers.of_model import plain_layer
from mha_convert.layouts.plain import LAY_OUT
from mha_convert.models import SOURCE_FILE
from mha_convert.modules.windows import average_of_kept, same_padding
from mha_convert.source.model.lines import LINES as LINES_OF_KINDS
from mha_convert.source.model.lines import windows as lines
from mha_convert.verification.whole import driver
from mha_convert.verification.whole.inputs import free_size

GOLDEN = TESTS / "golden" / "models"
NAMES = ("conv_free", "conv_fixed", "conv_deep", "conv_first")
FLOAT32 = 2e-5
NO_VERSION = ()


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_genuine_keras(name, tmp_path):
    plan = proven(GOLDEN / f"{name}.keras", tmp_path)
    arrays = np.load(GOLDEN / f"{name}.npz")
    (actual,) = outputs_of(tmp_path, [arrays["x0"]])
    assert difference(actual, arrays["y0"]) < FLOAT32
    assert max(len(line) for line in plan.source.splitlines()) <= 100


LINES = {
    "conv_free": (
        "padded = F.pad(series.transpose(1, 2), same_padding(series.shape[1], 7, 2))",
        "x = torch.relu(self.strided(padded))",
        "x = F.max_pool1d(F.pad(x, same_padding(x.shape[2], 3, 2), value=-torch.inf), 3, 2)",
        "x = average_of_kept(x, 5, 3)",
        "x = self.even(F.pad(x, (0, 1)))",
        "x = F.avg_pool1d(x, 3, 1, padding=1, count_include_pad=False)",
        "x = F.avg_pool1d(x, 2, ceil_mode=True)",
        "x = F.max_pool1d(F.pad(x, (0, 1), value=-torch.inf), 2, 1)",
        "x = F.max_pool1d(x, 2, ceil_mode=True)",
        "self.grouped = nn.Conv1d(6, 4, 4, padding=3, dilation=2, groups=2)",
    ),
    "conv_fixed": (
        "strided = torch.tanh(self.strided(F.pad(series.transpose(1, 2), (2, 3))))",
        "x = self.causal(F.pad(strided, (4, 0)))",
        "x = F.pad(x, (1, 2))",
        "x = F.max_pool1d(F.pad(x, (1, 2), value=-torch.inf), 4, 2)",
        "x = F.avg_pool1d(x, 4, 3, ceil_mode=True)",
        "x = x.repeat_interleave(3, 2)",
        "x = x[:, :, 1:]",
        "x = x.transpose(1, 2).flatten(1)",
    ),
    "conv_deep": ("x = x.transpose(1, 2).reshape(x.shape[0], 2, 2)", "x = self.first(samples.transpose(1, 2)).softmax(1)"),
    "conv_first": ("averages = F.avg_pool1d(x, 2, 1)", "x = self.strided(F.pad(series, (1, 2))).softmax(-1)"),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_source_stays_in_one_order_of_axes(name, tmp_path):
    source = written(GOLDEN / f"{name}.keras", tmp_path).source
    plain = re.sub(r"\s+", " ", source).replace("( ", "(").replace(", )", ")").replace(" )", ")")
    assert [line for line in LINES[name] if line not in plain] == []
    transposes = sum("transpose" in line for line in (tmp_path / SOURCE_FILE).read_text().splitlines())
    assert transposes == {"conv_free": 1, "conv_fixed": 2, "conv_deep": 2, "conv_first": 1}[name]


def test_a_free_length_is_long_enough_for_every_window(tmp_path):
    model = written(GOLDEN / "conv_deep.keras", tmp_path).model
    assert free_size(model.graph, model.layers) == 44  # 9 + 3 steps of 4 windows of 9 numbers each
    assert free_size(model.graph, model.layers, 46) == 46


def changed_numbers(change):
    def damage(monkeypatch):
        exact = driver.exact
        monkeypatch.setattr(
            driver, "exact", lambda plan, rule: change(exact(plan, rule)) if rule.target == "weight" else exact(plan, rule)
        )  # fmt: skip

    return damage


def changed_module(**changes):
    def damage(monkeypatch):
        lay_out = LAY_OUT["Conv1D"]

        def wrong(layer, prefix):
            plan = lay_out(layer, prefix)
            arguments = {**plan.module.arguments, **{k: v for k, v in changes.items() if k in plan.module.arguments}}
            return dataclasses.replace(plan, module=dataclasses.replace(plan.module, arguments=arguments))

        monkeypatch.setitem(LAY_OUT, "Conv1D", wrong)

    return damage


def changed_line(name, value):
    return lambda monkeypatch: monkeypatch.setattr(lines.Same, name, property(value))


def changed_pooling(old, new):
    def damage(monkeypatch):
        for kind, line in (("MaxPooling1D", lines.max_pooling), ("AveragePooling1D", lines.average_pooling)):
            monkeypatch.setitem(
                LINES_OF_KINDS,
                kind,
                lambda *a, line=line: dataclasses.replace(line(*a), text=line(*a).text.replace(old, new)),
            )

    return damage


ENDS = lines.Same.ends.fget
DAMAGES = {
    "kernels reversed": ("conv_free", changed_numbers(lambda w: np.flip(w, -1) if w.ndim == 3 else w)),
    "channels reversed": ("conv_free", changed_numbers(lambda w: np.flip(w, 1) if w.ndim == 3 else w)),
    "groups exchanged": (
        "conv_free",
        changed_numbers(lambda w: np.roll(w, len(w) // 2, 0) if w.shape[1:] == (3, 4) else w),
    ),
    "one number": ("conv_deep", changed_numbers(lambda w: w + 1e-8 * (np.arange(w.size) == w.size - 1).reshape(w.shape))),
    "padding in front": ("conv_fixed", changed_line("ends", lambda self: (ENDS(self) or (0, 0))[::-1])),
    "no padding": ("conv_fixed", changed_line("ends", lambda self: (0, 0))),
    "padding of another rest": ("conv_free", changed_line("ends", lambda self: ENDS(self) or (2, 2))),
    "ceil_mode everywhere": ("conv_free", changed_line("is_ceil", lambda self: True)),
    "averages of what was added": ("conv_free", changed_pooling(", count_include_pad=False", "")),
    "zeros instead of nothing": ("conv_free", changed_pooling(", value=-torch.inf", "")),
    "stride": ("conv_fixed", changed_module(stride=3)),
    "dilation": ("conv_free", changed_module(dilation=1, padding=1)),
    "width of the causal window": ("conv_fixed", changed_module(dilation=1)),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damage_is_refused(damage, tmp_path, monkeypatch):
    name, change = DAMAGES[damage]
    change(monkeypatch)
    with pytest.raises(VerificationError, match="differ by|are of shapes|PyTorch refuses"):
        proven(GOLDEN / f"{name}.keras", tmp_path)


CONV = {"filters": 4, "kernel_size": [3]}
REFUSED = {
    "a padding of TensorFlow": (CONV | {"padding": "full"}, "padding is 'full', expected valid or same or causal"),
    "two sizes": (CONV | {"kernel_size": [3, 3]}, "kernel_size is [3, 3], expected a whole number from 1"),
    "a setting of another class": (CONV | {"depth_multiplier": 2}, "depth_multiplier"),
    "a format": (CONV | {"data_format": "NCHW"}, "data_format is 'NCHW'"),
    "a width of nothing": (CONV | {"kernel_size": 0}, "kernel_size is 0, expected a whole number from 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_without_a_meaning_are_refused(case):
    settings, message = REFUSED[case]
    found = plain_layer("Conv1D", "c", settings, None, NO_VERSION)
    assert isinstance(found, list)
    assert message in " ".join(found)


@pytest.mark.parametrize(("name", "kind"), [("MaxPool1D", "MaxPooling1D"), ("AvgPool1D", "AveragePooling1D")])
def test_other_names_of_a_class_and_settings_that_are_left_out(name, kind):
    layer = plain_layer(name, "p", {"pool_size": [3], "strides": None}, None, NO_VERSION)
    assert (layer.kind, layer.settings["strides"], layer.settings["padding"]) == (kind, 3, "valid")


GEOMETRIES = list(itertools.product(range(1, 14), range(1, 7), range(1, 5)))


def test_same_padding_has_the_windows_that_keras_has():
    """https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2"""
    for length, width, stride in GEOMETRIES:
        before, after = same_padding(length, width, stride)
        assert after - before in (0, 1)
        assert (length + before + after - width) // stride + 1 == -(-length // stride)
        assert before + after == max(width - (length % stride or stride), 0)


def test_options_of_pytorch_are_chosen_only_where_they_are_right():
    """Every geometry by the lines that are written for it, with a length that is known and with one that is free."""
    for (length, width, stride), is_free in itertools.product(GEOMETRIES, (False, True)):
        if length < width and is_free:
            continue  # a free length is longer than a window
        x = torch.from_numpy(np.random.default_rng(length).standard_normal((1, 2, length)))
        padded = torch.nn.functional.pad(x, same_padding(length, width, stride), value=-torch.inf)
        wanted = torch.nn.functional.max_pool1d(padded, width, stride)
        found = lines.Same(None if is_free else length, width, stride)
        if found.is_ceil:
            ceil = torch.nn.functional.max_pool1d(x, width, stride, ceil_mode=True)
            assert torch.equal(ceil, wanted), (length, width, stride)
        if found.ends is not None:
            assert found.ends == same_padding(length, width, stride)


def test_averages_leave_out_what_was_added():
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0]]])
    assert average_of_kept(x, 4, 2).tolist() == [[[2.0, 3.5, 4.5]]]


def test_a_length_that_is_too_short_is_refused(tmp_path):
    short = tmp_path / "short.keras"
    with zipfile.ZipFile(GOLDEN / "conv_deep.keras") as old, zipfile.ZipFile(short, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "config.json":
                config = json.loads(data)
                config["config"]["layers"][0]["config"]["batch_shape"] = [None, 5, 2]
                data = json.dumps(config).encode()
            new.writestr(name, data)
    with pytest.raises(LayerError, match=r"'first' \(Conv1D\) has windows of 9, and its input is of length 5"):
        written(short, tmp_path / "out")
