"""``keras.layers.Attention`` and ``AdditiveAttention``: found by configuration, converted, equal to genuine Keras."""

import importlib.util
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from corpus_files import UNPROJECTED, arrays, rows
from damages import in_memory
from environment import SHARED, SUPPORT

import mha_convert
from mha_convert import conversion
from mha_convert.layers import survey
from mha_convert.modules import AdditiveAttention, DotProductAttention, to_attn_mask
from mha_convert.pipeline import explain_file
from mha_convert.records.layer import UnprojectedAttention
from mha_convert.records.source import Variable
from mha_convert.targets.torch_file import as_tensor
from mha_convert.verification import verify
from mha_convert.verification.formulas import attention as unprojected
from mha_convert.verification.formulas.multi_head_attention import Inputs

LAYOUTS = ("mha", "padded", "linear", "qkv", "bart")
ROOT = SHARED / "corpus" / "files"
FILES = [
    pytest.param(file, id=file.id)
    for file in (rows(ROOT) if ROOT.is_dir() else [])
    if file.format in ("keras", "h5") and any(layer["cls"] in UNPROJECTED for layer in file.layers)
]
NAMES = ("dot", "dot_dropout", "concat", "concat_scaled", "nested/additive", "additive_dropout", "half")


@pytest.fixture(scope="session")
def made(keras_installed, tmp_path_factory, starts_processes) -> Path:
    """Models that the installed Keras saves now."""
    folder = tmp_path_factory.mktemp("unprojected")
    subprocess.run(
        [sys.executable, SUPPORT / "unprojected_models.py", folder], check=True, capture_output=True, timeout=300
    )
    return folder


def test_the_corpus_is_there(corpus):
    assert len(FILES) > 30


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("file", FILES)
def test_every_weight_is_at_its_place_and_outputs_are_those_of_keras(file, layout, tmp_path):
    target = tmp_path / "target.safetensors"
    report = mha_convert.convert_file(file.path, target, layout=layout)
    assert report.proven
    stored = [layer for layer in file.layers if layer["cls"] in UNPROJECTED and layer["paths"]]
    items = [item for item in report.plan.layers if isinstance(item.layer, UnprojectedAttention)]
    found = {frozenset(v.path.replace("\\", "/") for v in item.layer.variables): item for item in items}
    assert len(found) == len(stored) >= 1
    modules = mha_convert.load_modules(target)
    for facts in stored:
        paths = {role.removeprefix("self/"): path for role, path in facts["paths"].items()}
        item = found[frozenset(place for places in paths.values() for place in places)]
        assert {name: {v.path.replace("\\", "/")} for name, v in item.layer.arrays.items()} == paths
        keras = arrays(file, facts["index"])
        inputs = (torch.from_numpy(keras[name]) for name in ("query", "key", "value"))
        output, scores = modules[item.layer.name](*inputs)
        np.testing.assert_allclose(output.detach(), keras["plain_out_s"], atol=2e-6)
        np.testing.assert_allclose(scores.detach(), keras["plain_scores"], atol=2e-6)


@pytest.mark.parametrize("name", ["every.keras", "every.h5", "every.weights.h5"])
@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_fresh_models_with_masks(made, name, suffix, tmp_path):
    target = tmp_path / f"target.{suffix}"
    config = made / "every.json" if name == "every.weights.h5" else None
    assert mha_convert.convert_file(made / name, target, config=config).proven
    assert mha_convert.verify_file(made / name, target, config=config).proven
    modules = mha_convert.load_modules(target)
    assert set(modules) == {*NAMES, "mha"}
    assert [modules[name].dropout for name in ("dot_dropout", "additive_dropout", "dot")] == [0.3, 0.1, 0.0]
    with np.load(made / "outputs.npz") as keras:
        inputs = [torch.from_numpy(keras[role]) for role in ("query", "key", "value")]
        padding = torch.from_numpy(~keras["mask"])
        calls = {"plain": {}, "causal": {"is_causal": True}, "padding": {"key_padding_mask": padding}}
        for layer in NAMES:
            dtype, tolerance = (torch.float16, 4e-3) if layer == "half" else (torch.float32, 3e-6)
            own = layer.removeprefix("nested/")
            for what, options in calls.items():
                typed = [tensor.to(dtype) for tensor in inputs]
                output, scores = modules[layer](*typed, **options)
                alone, nothing = modules[layer](*typed, need_weights=False, **options)
                assert nothing is None
                for ours, theirs in ((output, "output"), (alone, "output"), (scores, "scores")):
                    expected = keras[f"{own}/{what}/{theirs}"]
                    np.testing.assert_allclose(
                        ours.detach().float(), expected, atol=tolerance, err_msg=f"{layer} {what}"
                    )


def test_genuine_keras_agrees_to_the_last_digits(made, tmp_path):
    report = mha_convert.convert_file(made / "every.keras", tmp_path / "x.safetensors", reference="keras")
    theirs = [c for c in report.comparisons if c.reference.startswith("Keras") and c.layer in NAMES]
    assert {c.layer for c in theirs} == set(NAMES)
    assert max(c.relative for c in theirs) < 1e-12
    assert max(c.bound for c in theirs) < 1e-9


def test_dropout_and_mixed_precision_are_said(made):
    layers = {layer.name: layer for layer in mha_convert.find_layers(mha_convert.read(made / "every.keras"))}
    assert layers["dot_dropout"].dropout == 0.3
    assert (layers["half"].dtype, layers["half"].storage, layers["half"].features) == ("float16", "float16", 6)
    assert (layers["concat"].score, layers["concat"].use_scale, layers["concat"].features) == ("concat", False, None)
    assert isinstance(layers["dot"], UnprojectedAttention)


def test_weights_alone_are_named(golden, tmp_path):
    source = tmp_path / "model.weights.h5"
    with zipfile.ZipFile(golden / "keras-3.15.1/luong_bahdanau.keras") as archive:
        source.write_bytes(archive.read("model.weights.h5"))
    findings = survey(mha_convert.read(source))
    assert not findings.layers
    named = {item.name: item for item in findings.not_converted}
    assert set(named) == {"attention", "additive_attention", "attention_1", "attention_2"}  # as in the .keras
    assert "has no variables here" in named["attention_1"].reason
    assert not any(item.blocking for item in named.values())
    assert named["additive_attention"].reason == (
        "keras.layers.AdditiveAttention is what its name and a scale look like, and no configuration shows what it "
        "computes"
    )
    assert named["additive_attention"].next_step == "Pass the model's configuration with --config, if you have it"


def changed(source: Path, target: Path, *, config=None, weights=None) -> Path:
    """A copy with other settings of layers, or after a change of its HDF5 file."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w") as copy:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "config.json" and config:
                document = json.loads(content)
                for entry in document["config"]["layers"]:
                    entry["config"] |= config.get(entry["config"]["name"], {})
                content = json.dumps(document).encode()
            if name == "model.weights.h5" and weights:
                place = target.with_suffix(".tmp")
                place.write_bytes(content)
                with h5py.File(place, "r+") as file:
                    weights(file)
                content = place.read_bytes()
                place.unlink()
            copy.writestr(name, content)
    return target


def lose_scale(file):
    del file["layers/attention/vars/0"]


def add_weight(file):
    file["layers/attention/vars/1"] = np.float32(1)


def widen_scale(file):
    del file["layers/attention/vars/0"]
    file["layers/attention/vars/0"] = np.ones(6, np.float32)


@pytest.mark.parametrize(
    ("config", "weights", "fact"),
    [
        (None, lose_scale, "has scale by its configuration, and the file holds none"),
        (None, add_weight, "has scale by its configuration, and the file holds 0, 1"),
        ({"attention": {"use_scale": False}}, None, "has no weights by its configuration, and the file holds 0"),
        (None, widen_scale, "has a scale of shape (6,), expected ()"),
    ],
)
def test_weights_that_contradict_the_configuration_are_refused(golden, tmp_path, config, weights, fact):
    source = changed(golden / "keras-3.15.1/luong_bahdanau.keras", tmp_path / "x.keras", config=config, weights=weights)
    with pytest.raises(mha_convert.LayerError) as error:
        mha_convert.convert_file(source, tmp_path / "x.safetensors")
    assert str(error.value) == (
        f"Layer 'attention' (Attention) is not converted: keras.layers.Attention {fact}. Save the model again. "
        "To convert the rest, use --layer additive_attention --layer attention_2."
    )
    assert mha_convert.convert_file(source, tmp_path / "x.pt", layers=["additive_attention", "attention_2"]).proven


def test_an_unknown_score_is_refused(golden, tmp_path):
    source = golden / "keras-3.15.1/luong_bahdanau.keras"
    source = changed(source, tmp_path / "x.keras", config={"attention": {"score_mode": "cosine"}})
    with pytest.raises(mha_convert.LayerError) as error:
        mha_convert.convert_file(source, tmp_path / "x.safetensors", layers=["attention"])
    assert str(error.value).startswith(
        "Layer 'attention' (Attention) is not converted: keras.layers.Attention has score_mode='cosine', expected 'dot' "
        "or 'concat'. Port this layer by hand."
    )


def test_causal_in_the_constructor_is_said(golden, tmp_path):
    source = golden / "keras-3.15.1/luong_bahdanau.keras"
    source = changed(source, tmp_path / "x.keras", config={"attention": {"causal": True}})
    report = mha_convert.convert_file(source, tmp_path / "x.pt")
    assert "Layer 'attention': the model calls it with causal=True. Pass PyTorch the same mask." in report.notes


def test_a_class_of_the_same_name_is_another(golden, tmp_path):
    source = golden / "keras-3.15.1/luong_bahdanau.keras"

    def foreign(document):
        for entry in document["config"]["layers"]:
            entry["registered_name"] = "mine>Attention" if entry["class_name"] == "Attention" else None

    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(tmp_path / "x.keras", "w") as copy:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "config.json":
                document = json.loads(content)
                foreign(document)
                content = json.dumps(document).encode()
            copy.writestr(name, content)
    found = mha_convert.find_layers(mha_convert.read(tmp_path / "x.keras"))
    assert [layer.name for layer in found] == ["additive_attention"]


def layer_of(score, dtype="float32", **weights):
    """A layer in memory."""
    numbers = {name: np.asarray(value, dtype) for name, value in weights.items()}
    variables = {
        name: Variable(path=name, shape=array.shape, dtype=dtype, read=lambda array=array: array)
        for name, array in numbers.items()
    }
    kind = "AdditiveAttention" if score == "additive" else "Attention"
    return UnprojectedAttention(name="layer", kind=kind, path="layer", score=score, arrays=variables, class_name=kind)


SCALES = np.random.default_rng(3).uniform(-2, 2, 6)
EVERY = {
    "dot": layer_of("dot", scale=0.37),
    "concat": layer_of("concat", concat_score_weight=-0.8),
    "concat scaled": layer_of("concat", scale=1.7, concat_score_weight=0.6),
    "additive": layer_of("additive", scale=SCALES),
}


def tensors_of(plan):
    """The tensors of a plan, by key."""
    return {tensor.key: as_tensor(tensor.read()).clone() for tensor in mha_convert.convert(plan)}


@pytest.mark.parametrize("layer", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("dtype", [None, "float64", "float16", "bfloat16"])
def test_every_score_is_proven_in_every_dtype(layer, dtype):
    plan = mha_convert.plan([layer], dtype=dtype)
    proof = verify(plan, in_memory(tensors_of(plan)))
    exact = [comparison for comparison in proof.comparisons if comparison.weights == "float64"]
    assert len(exact) == 9
    assert max(comparison.relative for comparison in exact) < 1e-10
    if dtype in ("float16", "bfloat16"):
        stored = [comparison for comparison in proof.comparisons if comparison.weights == "stored"]
        assert 0 < max(comparison.relative / comparison.bound for comparison in stored) <= 1
        assert max(comparison.bound for comparison in stored) < 0.5


@pytest.mark.parametrize("layer", EVERY.values(), ids=EVERY)
def test_every_damaged_weight_is_caught(layer):
    plan = mha_convert.plan([layer])
    tensors = tensors_of(plan)
    for key, tensor in tensors.items():
        last_bit = tensor.clone()
        last_bit.view(torch.int32).view(-1)[-1] ^= 1
        for damaged in (last_bit, -tensor, tensor.flip(0) if tensor.dim() else tensor * 2):
            with pytest.raises(mha_convert.VerificationError, match=f"tensor '{key}' differs from Keras in"):
                verify(plan, in_memory(tensors | {key: damaged}))


@pytest.mark.parametrize("layer", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("which", ["scale", "concat_score_weight"])
@pytest.mark.parametrize("damage", [lambda a: -a, lambda a: a * (1 + 1e-6)], ids=["negated", "a millionth more"])
def test_a_wrong_conversion_is_caught_by_the_formula_alone(layer, which, damage, monkeypatch):
    if which not in layer.arrays:
        return
    honest = conversion.source_array
    monkeypatch.setattr(
        conversion,
        "source_array",
        lambda piece, item: np.asarray(damage(honest(piece, item))) if piece.source == which else honest(piece, item),
    )
    plan = mha_convert.plan([replace(layer)], dtype="float64")
    with pytest.raises(mha_convert.VerificationError, match=r"of PyTorch \(float64 weights\) and the Keras formula"):
        verify(plan, in_memory(tensors_of(plan)))


def test_an_exchange_of_the_two_weights_is_caught_by_the_formula(monkeypatch):
    honest, other = conversion.source_array, {"scale": "concat_score_weight", "concat_score_weight": "scale"}
    monkeypatch.setattr(
        conversion, "source_array", lambda piece, item: honest(replace(piece, source=other[piece.source]), item)
    )
    plan = mha_convert.plan([EVERY["concat scaled"]])
    with pytest.raises(mha_convert.VerificationError, match="the Keras formula"):
        verify(plan, in_memory(tensors_of(plan)))


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("score", EVERY)
def test_scores_neither_vanish_nor_saturate(score, factor):
    numbers = {name: v.read().astype(np.float64) * factor for name, v in EVERY[score].arrays.items()}
    layer = layer_of(EVERY[score].score, "float64", **numbers)
    calls = unprojected.cases(layer, numbers)
    largest = np.abs(unprojected.raw_scores(numbers, calls[0].inputs.query, calls[0].inputs.key)).max()
    assert largest < 16
    if factor >= 1 or score == "dot":
        assert largest > 0.5
    plan = mha_convert.plan([layer])
    verify(plan, in_memory(tensors_of(plan)))


def test_a_scale_of_zero_and_numbers_that_are_none():
    plan = mha_convert.plan([layer_of("dot", scale=0.0)])
    verify(plan, in_memory(tensors_of(plan)))
    plan = mha_convert.plan([layer_of("additive", scale=[1.0, np.nan])])
    with pytest.raises(mha_convert.VerificationError) as error:
        verify(plan, in_memory(tensors_of(plan)))
    assert str(error.value) == (
        "Layer 'layer': its scale holds 1 NaN or infinite numbers of 2, so equality means nothing. "
        "Use --reference none to convert it unproven."
    )


def test_the_formula_is_the_textbook():
    query, key, value = np.array([[[1.0, 2.0]]]), np.array([[[3.0, 1.0], [0.0, -1.0]]]), np.array([[[1.0], [0.0]]])
    inputs = Inputs(query=query, key=key, value=value)
    for weights, scores in (
        ({"scale": np.array(0.5)}, [2.5, -1.0]),
        ({"concat_score_weight": np.array(2.0)}, [2 * (np.tanh(4) + np.tanh(3)), 2 * (np.tanh(1) + np.tanh(1))]),
        ({"scale": np.array([1.0, -1.0])}, [np.tanh(4) - np.tanh(3), np.tanh(1) - np.tanh(1)]),
    ):
        expected = np.exp(scores[0]) / np.exp(scores).sum()
        result = unprojected.attention(weights, inputs)
        np.testing.assert_allclose(result.output, [[[expected]]], rtol=1e-14)
        np.testing.assert_allclose(result.scores, [[[expected, 1 - expected]]], rtol=1e-13)


MODULES = {
    "dot": lambda: DotProductAttention(use_scale=True),
    "dot without scale": lambda: DotProductAttention(),
    "concat": lambda: DotProductAttention(use_scale=True, score_mode="concat"),
    "additive": lambda: AdditiveAttention(6),
    "additive without scale": lambda: AdditiveAttention(),
}


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_modules_take_the_masks_of_the_others(make):
    torch.manual_seed(0)
    module = make().eval()
    query, key, value = torch.randn(2, 5, 6), torch.randn(2, 7, 6), torch.randn(2, 7, 3)
    attends = torch.rand(2, 5, 7) < 0.6
    attends[..., 0] = True
    padding = torch.arange(7) >= torch.tensor([[7], [4]])
    expected, weights = module(query, key, value, attn_mask=~attends, key_padding_mask=padding)
    assert not weights[~attends | padding[:, None]].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5))
    both = to_attn_mask(attends, value_mask=~padding, num_heads=1)
    for options in ({"attn_mask": both}, {"attn_mask": ~attends, "key_padding_mask": padding}):
        for need_weights in (True, False):
            output, _ = module(query, key, value, need_weights=need_weights, **options)
            torch.testing.assert_close(output, expected)
    alone, alone_weights = module(query[1], key[1], value[1], attn_mask=~attends[1], key_padding_mask=padding[1])
    torch.testing.assert_close(alone, expected[1])
    torch.testing.assert_close(alone_weights, weights[1])


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_modules_compile_export_and_drop_while_training(make):
    module = make().eval()
    inputs = (torch.randn(2, 5, 6), torch.randn(2, 7, 6), torch.randn(2, 7, 3))
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*inputs, need_weights=False)[0], module(*inputs)[0])
    exported = torch.export.export(module, inputs).module()
    torch.testing.assert_close(exported(*inputs)[0], module(*inputs)[0])
    module.dropout = 0.5
    assert (module.train()(*inputs)[1] == 0).any()


def test_a_wrong_score_mode_is_refused():
    with pytest.raises(ValueError, match="score_mode is 'cosine', expected 'dot' or 'concat'"):
        DotProductAttention(score_mode="cosine")


def test_the_module_file_needs_torch_alone(made, tmp_path):
    target, module = tmp_path / "x.safetensors", tmp_path / "attention.py"
    mha_convert.convert_file(made / "every.keras", target, module=module)
    code = (
        "import sys; sys.modules['mha_convert'] = None\n"
        "from safetensors.torch import load_file\nfrom attention import build\n"
        f"build().load_state_dict(load_file({str(target)!r}), strict=True)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_explain_and_inspect_tell_the_formula(made):
    from mha_convert.words.explanation import explanation
    from mha_convert.words.inspection import inspection_as_json, inspection_as_text

    text = "\n".join(explanation(explain_file(made / "every.keras", "concat_scaled").plans, "x.keras"))
    assert "scores = concat_score_weight × sum(tanh(scale × (query + key))), over the features" in text
    assert "mha_convert.modules.DotProductAttention(use_scale=True, score_mode='concat', dropout=0.0)" in text
    checkpoint = mha_convert.read(made / "every.keras")
    findings = survey(checkpoint)
    document = inspection_as_json(mha_convert.Inspection(checkpoint, findings))
    assert [layer["name"] for layer in document["layers"]] == ["mha"]
    assert {layer["name"] for layer in document["unprojected"]} == set(NAMES)
    tables = [
        part for part in inspection_as_text(mha_convert.Inspection(checkpoint, findings)) if not isinstance(part, str)
    ]
    assert [len(table.rows) for table in tables] == [1, len(NAMES)]


def test_like_says_that_they_have_no_place(made, tmp_path):
    torch.save(torch.nn.MultiheadAttention(6, 2).state_dict(), tmp_path / "like.pt")
    alignment = mha_convert.match_file(made / "every.keras", tmp_path / "like.pt")
    assert {name for name, why in alignment.left_layers if "only attention with projections" in why} == set(NAMES)


@pytest.mark.process
@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="Keras is missing")
def test_a_live_layer(tmp_path):
    code = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy as np, torch, mha_convert
for layer in (keras.layers.Attention(use_scale=True, dropout=0.1), keras.layers.AdditiveAttention()):
    q, v = (np.random.default_rng(n).standard_normal((2, n, 6)).astype("float32") for n in (4, 5))
    layer([q, v])
    layer.set_weights([np.random.default_rng(1).uniform(0.3, 2, w.shape) for w in layer.get_weights()
        if w.dtype != np.uint32] + [w for w in layer.get_weights() if w.dtype == np.uint32])
    module = mha_convert.from_keras_layer(layer)
    ours = module(torch.from_numpy(q), torch.from_numpy(v), torch.from_numpy(v))[0]
    np.testing.assert_allclose(ours.detach(), keras.ops.convert_to_numpy(layer([q, v])), atol=1e-6)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
