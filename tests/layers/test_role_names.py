"""Layers and sub-models that have the name of a projection, or of the attention in them (issue 12, point 8).

The files were written by genuine Keras, with the script ``15_role_names`` of ../shared/cases: five models in five forms.
"""

import time
from pathlib import Path

import numpy as np
import pytest
import torch

import mha_convert
from mha_convert.readers.legacy_hdf5 import Listed, Tree
from mha_convert.readers.saved_model import layer_of

LAYERS = {
    "towers": ["stem", "query/attn", "key/attn"],
    "same_name": ["stem", "attention/attention", "other/attn"],
    "layer_query": ["self_attention", "query"],
    "layer_value": ["self_attention", "value", "attention_output"],
    "layer_query_1": ["self_attention", "query_1"],
}
OTHERWISE = {  # an export has the names of operations, a checkpoint numbers nested models
    ("towers", "_export"): ["stem", "query_1/attn_1", "key_1/attn_1"],
    ("same_name", "_export"): ["stem", "attention_1/attention_1", "other_1/attn_1"],
    ("towers", "_checkpoint"): ["stem", "layer-3/attn", "layer-4/attn"],
    ("same_name", "_checkpoint"): ["stem", "layer-3/attention", "layer-4/attn"],
}
FORMS = (".keras", ".h5", ".weights.h5", "_export", "_checkpoint")
KINDS = ("kernel", "bias")
EVERY = [(model, form) for model in LAYERS for form in FORMS]


@pytest.fixture(scope="module")
def made(written_cases, starts_processes) -> Path:
    """The files, and what genuine Keras computes with each layer."""
    return written_cases("15_role_names")


def in_keras(model: str, form: str) -> dict[str, str]:
    """What a layer is called in the model, by what it is called in this form."""
    return dict(zip(OTHERWISE.get((model, form), LAYERS[model]), LAYERS[model], strict=True))


def arrays_of(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Every array of every layer."""
    layers = mha_convert.find_layers(mha_convert.read(path))
    return {layer.name: {role: array.read() for role, array in layer.arrays.items()} for layer in layers}


@pytest.mark.parametrize(("model", "form"), EVERY, ids="".join)
def test_every_form_has_all_layers_with_their_own_numbers(made, model, form):
    expected, found = arrays_of(made / "15" / f"{model}.keras"), arrays_of(made / "15" / f"{model}{form}")
    names = in_keras(model, form)
    assert sorted(found) == sorted(names)
    for name, arrays in found.items():
        assert set(arrays) == {f"{role}.{kind}" for role in ("query", "key", "value", "output") for kind in KINDS}
        for role, array in arrays.items():
            np.testing.assert_array_equal(array, expected[names[name]][role], err_msg=f"{name} {role}")
    all_arrays = [array.tobytes() for arrays in expected.values() for array in arrays.values()]
    assert len(set(all_arrays)) == len(all_arrays), "exchanged arrays would be equal"


@pytest.mark.parametrize(("model", "form"), EVERY, ids="".join)
def test_all_are_converted_and_compute_what_keras_computes(made, tmp_path, model, form):
    report = mha_convert.convert_file(made / "15" / f"{model}{form}", tmp_path / "o.safetensors")
    assert report.proven
    assert not report.not_converted
    modules, names = mha_convert.load_modules(tmp_path / "o.safetensors"), in_keras(model, form)
    assert sorted(modules) == sorted(names)
    with np.load(made / "outputs.npz") as outputs:
        x = torch.from_numpy(outputs["x"])
        for name, module in modules.items():
            ours = module(x, x, x)[0].detach().numpy()
            np.testing.assert_allclose(ours, outputs[f"{model}/{names[name]}"], atol=2e-5)


@pytest.mark.parametrize(
    ("operation", "full_name", "expected"),
    [
        ("model/query_1/attn_1/key_1/einsum/Einsum/ReadVariableOp", "query/attn/key/kernel", "query_1/attn_1/key"),
        ("model/query_1/attn_1/query_1/add/ReadVariableOp", "query/attn/query/bias", "query_1/attn_1/query"),
        ("model/value_1/attention_output_1/Cast/ReadVariableOp", "value/attention_output/kernel", "value_1/attention_output"),
        ("model/query/attention_output/einsum/Einsum/ReadVariableOp", "query/attention_output/kernel", "query/attention_output"),
        ("model/key_1/dense_1/Cast/ReadVariableOp", "key/dense/kernel", "key_1/dense_1"),
        ("model/dense_1/MatMul/ReadVariableOp", "dense/kernel", "dense_1"),
    ],
)  # fmt: skip
def test_the_innermost_name_of_an_operation_is_the_projection(operation, full_name, expected):
    """Point 8 of issue 12: the first name that looked like a projection was taken."""
    assert "/".join(layer_of(operation, full_name)) == expected


def model_of(tree: dict) -> dict:
    """A model's JSON: nested models are dictionaries, attention layers None."""
    return {"class_name": "Functional", "config": {"layers": list(map(entry_of, tree, tree.values()))}}


def entry_of(name: str, inner: dict | None) -> dict:
    """One layer's."""
    if inner is None:
        return {"class_name": "MultiHeadAttention", "name": name, "config": {"name": name}}
    return {**model_of(inner), "name": name, "config": {**model_of(inner)["config"], "name": name}}


@pytest.mark.parametrize(
    ("tree", "layer", "in_front"),
    [
        ({"query": {"attn": None}}, "query", ["attn"]),  # as Keras 3 writes it
        ({"query": {"attn": None}}, "query", ["query", "attn"]),  # and Keras 2, at times
        ({"attn": {"attn": None}}, "attn", ["attn"]),
        ({"attn": {"attn": None}}, "attn", ["attn", "attn"]),
        ({"query": {"query": None, "other": None}}, "query", ["query"]),
        ({"query": {"query": None, "other": None}}, "query", ["other"]),
        ({"key": {"value": {"key": None}}}, "key", ["key"]),
        ({"query": None}, "query", ["query"]),
        ({"query": None}, "query", ["functional", "query"]),
    ],
)
def test_projections_in_h5_are_below_the_layer_they_belong_to(tree, layer, in_front):
    """Point 8 of issue 12: names in front were cut off up to the first one that is the outermost layer's."""
    inner = tree[layer]
    alike = [["other"]] if inner and "other" in inner and in_front != ["other"] else []
    fronts = [in_front, *alike]
    weights = [[*front, role] for front in fronts for role in ("query", "key", "value", "attention_output")]
    found = [Listed(layer, "/".join([*names, "kernel:0"]), variable("/".join(names))) for names in weights]
    tree_of = Tree(model_of(tree), found)
    own = [place for place in tree_of.entries if tree_of.entries[place]["class_name"] == "MultiHeadAttention"]
    own = [place for place in own if place[-1] == in_front[-1]]
    assert [tree_of.owner(item)[:-1] for item in found[:4]] == own * 4
    assert [tree_of.owner(item)[-1] for item in found[:4]] == ["query", "key", "value", "attention_output"]


def variable(path: str) -> mha_convert.Variable:
    """An array that nobody reads."""
    return mha_convert.Variable(path=path, shape=(2, 2, 2), dtype="float32", read=lambda: np.zeros((2, 2, 2), "f4"))


def test_a_large_model_takes_time_that_grows_with_its_layers():
    """Point 8 of issue 12: telling owners apart looked at every layer of the model for every weight."""
    count = 5_000
    tree = {"query": {f"attn_{number}": None for number in range(count)}}
    found = [
        Listed("query", f"query/attn_{number}/{role}/kernel:0", variable(f"{number}/{role}"))
        for number in range(count)
        for role in ("query", "key", "value", "attention_output")
    ]
    sorter, start = Tree(model_of(tree), found), time.process_time()
    owners = [sorter.owner(item) for item in found]
    assert owners[-1] == ("query", f"attn_{count - 1}", "attention_output")
    assert time.process_time() - start < 5  # 0.1 s; 20,000 weights times 5,000 layers took half a minute
