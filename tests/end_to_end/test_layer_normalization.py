"""LayerNormalization is a kind like any other, in every verb, and equal to genuine Keras (issue 13, point 1)."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from command_line import run
from environment import SUPPORT
from normalization_models import FORMS, REFUSED
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import mha_convert
from mha_convert.layers import survey
from mha_convert.layers.layer_normalization import ROW
from mha_convert.words.inspection import inspection_as_json

NAMES = [*FORMS, "half"]
FILES = {"keras": ("norm.keras", None), "h5": ("norm.h5", None), "weights": ("norm.weights.h5", "norm.json")}


@pytest.fixture(scope="module")
def made(keras_installed, tmp_path_factory, starts_processes):
    """The files, and what genuine Keras computes with each layer."""
    folder = tmp_path_factory.mktemp("normalization")
    subprocess.run(
        [sys.executable, SUPPORT / "normalization_models.py", folder], check=True, capture_output=True, timeout=300
    )
    return folder


def config_of(made, config):
    return None if config is None else made / config


@pytest.mark.parametrize("form", FILES)
def test_every_form_is_proven_and_computes_what_keras_computed(made, form, tmp_path):
    name, config = FILES[form]
    target = tmp_path / "x.safetensors"
    report = mha_convert.convert_file(
        made / name, target, config=config_of(made, config), layers=NAMES, reference="keras", module=tmp_path / "m.py"
    )
    assert report.proven and {item.module.class_name for item in report.plan.layers} == {"LayerNorm"}
    assert {comparison.what for comparison in report.comparisons} == {"output"}
    assert mha_convert.verify_file(made / name, target, config=config_of(made, config)).proven
    data = np.load(made / "outputs.npz")
    modules = mha_convert.load_modules(target)
    for layer in NAMES:
        dtype = torch.float16 if layer == "half" else torch.float32
        with torch.no_grad():
            found = modules[layer](torch.from_numpy(data["x"]).to(dtype)).float().numpy()
        bound = 2e-2 if layer == "half" else 3e-6
        assert np.abs(found - data[layer]).max() <= bound * np.abs(data[layer]).max(), layer
    code = "import m, safetensors.torch as s; m.build().load_state_dict(s.load_file('x.safetensors'))"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120)


def test_a_wrong_epsilon_is_seen_in_the_genuine_outputs(made):
    """The test above can fail: PyTorch's own epsilon is off by more than its bound."""
    data = np.load(made / "outputs.npz")
    (layer,) = [found for found in survey(mha_convert.read(made / "norm.keras")).companions if found.name == "usual"]
    weights = {name: torch.tensor(variable.read().copy()) for name, variable in layer.arrays.items()}
    wrong = torch.nn.functional.layer_norm(torch.from_numpy(data["x"]), (6,), weights["gamma"], weights["beta"], 1e-5)
    assert np.abs(wrong.numpy() - data["usual"]).max() > 1e-2


def test_inspect_lists_them_and_says_why_others_are_not_converted(made):
    checkpoint = mha_convert.read(made / "norm.keras")
    document = inspection_as_json(mha_convert.Inspection(checkpoint, survey(checkpoint)))
    assert [layer["name"] for layer in document["other_layers"]] == NAMES
    assert document["other_layers"][1]["settings"]["epsilon"] == 1e-6
    assert [layer["name"] for layer in document["layers"]] == ["attention"]
    reasons = {item["name"]: item["reason"] for item in document["not_converted"]}
    assert set(reasons) == set(REFUSED)
    assert "normalizes axis [1]" in reasons["first_axis"] and "no variables" in reasons["bare"]
    text = run("inspect", made / "norm.keras").stdout
    assert "LayerNormalization  axis=[-1], epsilon=1e-06" in text and "Other layers that can be converted" in text


def test_without_a_configuration_nothing_is_assumed(made):
    assert not survey(mha_convert.read(made / "norm.weights.h5")).companions


def test_attention_alone_is_converted_unless_they_are_named(made, tmp_path):
    report = mha_convert.convert_file(made / "norm.keras", tmp_path / "x.pt")
    assert [item.layer.name for item in report.plan.layers] == ["attention"]
    both = mha_convert.convert_file(made / "norm.keras", tmp_path / "y.pt", layers=["attention", "usual"])
    assert both.proven and {comparison.what for comparison in both.comparisons} > {"output", "scores"}
    with pytest.raises(mha_convert.LayerError, match=r"Layer 'first_axis' \(LayerNormalization\) is not converted"):
        mha_convert.convert_file(made / "norm.keras", tmp_path / "z.pt", layers=["first_axis"])


def test_explain_and_batch_take_them(made, tmp_path):
    text = run("explain", made / "norm.keras", "small_epsilon").stdout
    assert "torch.nn.LayerNorm(normalized_shape=[6], eps=1e-06)" in text and "= gamma" in text
    result = run("batch", made / "norm.keras", "--out", tmp_path / "out", "--layer", "usual", "--json")
    assert result.returncode == 0, result.stderr
    (record,) = [json.loads(line) for line in (tmp_path / "out" / "report.jsonl").read_text().splitlines()]
    assert record["proven"] and [layer["name"] for layer in record["layers"]] == ["usual"]


@pytest.mark.parametrize("damage", ["numbers", "epsilon", "exchanged"])
def test_damage_is_found(made, tmp_path, damage):
    target = tmp_path / "x.safetensors"
    mha_convert.convert_file(made / "norm.keras", target, layers=["usual"])
    state = load_file(target)
    with safe_open(target, framework="pt") as file:
        metadata = file.metadata()
    told = dict(metadata)
    if damage == "numbers":
        state["usual.weight"][3] += 1e-3
    elif damage == "exchanged":
        state = {"usual.weight": state["usual.bias"], "usual.bias": state["usual.weight"]}
    else:
        told = {name: text.replace("0.001", "1e-05") for name, text in told.items()}
        assert told != metadata
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, target, told)
    with pytest.raises(mha_convert.VerificationError):
        mha_convert.verify_file(made / "norm.keras", target)


def test_the_proof_sees_wrong_settings(made, tmp_path):
    """A plan with another epsilon fails against the formula, without genuine Keras."""
    layers = [found for found in survey(mha_convert.read(made / "norm.keras")).companions if found.name == "usual"]
    plan = mha_convert.plan(layers, prefix="")
    (item,) = plan.layers
    module = replace(item.module, arguments={**item.module.arguments, "eps": 1e-5})
    wrong = replace(plan, layers=(replace(item, module=module),))
    for tried, name in ((plan, "right.pt"), (wrong, "wrong.pt")):
        mha_convert.write(tmp_path / name, list(mha_convert.convert(tried)))
    assert mha_convert.verify(plan, mha_convert.open_target(tmp_path / "right.pt"))
    with pytest.raises(mha_convert.VerificationError):
        mha_convert.verify(wrong, mha_convert.open_target(tmp_path / "wrong.pt"))


@pytest.mark.parametrize(
    ("axis", "rank", "fact"),
    [
        ([5], 3, "it normalizes axis [5] of an input of rank 3"),
        ([0], 3, "it normalizes axis [0] of an input of rank 3"),
        ([-1, -1], 3, "axis is [-1, -1], expected an axis or a list of axes"),
        ([[1], 2], 3, "axis is [[1], 2], expected an axis or a list of axes"),
        (True, 3, "axis is True, expected an axis or a list of axes"),
    ],
)
def test_axes_that_no_input_has_are_refused(made, axis, rank, fact):
    """A number of an axis beyond the rank must not come round to the last one."""
    group = next(group for group in mha_convert.read(made / "norm.keras").root.walk() if group.name == "usual")
    config = replace(group.config, settings={**group.config.settings, "axis": axis}, build={"input_shape": [1] * rank})
    assert fact in ROW.match(replace(group, config=config)).reason
