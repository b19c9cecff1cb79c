"""Hypothesis strategies: JSON of models and HDF5 trees that look roughly like Keras', with odd values everywhere."""

import json
import math
import zipfile
from io import BytesIO
from typing import Any

import h5py
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from .json_mutations import CLASSES, SETTINGS

WORDS = st.sampled_from(
    ("attn", "multi_head_attention", "multi_head_attention_1", "query_dense", "_key_dense", "value_dense", "output_dense",
     "query", "key", "value", "attention_output", "layers", "vars", "0", "1", "kernel:0", "bias", "model_weights", "a/b", "²")
)  # fmt: skip
NAMES = WORDS | st.text(max_size=6)
SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 8) | st.integers() | st.floats() | NAMES | st.sampled_from(CLASSES)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
SETTING = st.dictionaries(st.sampled_from(SETTINGS), VALUES, max_size=5)
ENTRY = ("class_name", "config", "registered_name", "module", "name", "build_config", "inbound_nodes")


@st.composite
def layers(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    """One layer's entry, which may hold others."""
    config: Any = {"name": draw(NAMES), **draw(SETTING)}
    if draw(st.booleans()):
        config["layers"] = draw(st.lists(inner, max_size=3) | VALUES)
    odd = draw(st.dictionaries(st.sampled_from(ENTRY), VALUES, max_size=1))
    return {"class_name": draw(st.sampled_from(CLASSES)), "config": config, **odd}


MODELS = st.recursive(SETTING, layers, max_leaves=5)
DTYPES = st.sampled_from(("<f4", "<f2", "<f8", ">f4", "<i4", "|i1", "|u1", "|V2", "|S3", "|b1", "<c8"))
LEGACY_ROLES = ("query", "key", "value", "attention_output")
SHAPES = of_numpy.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)
KEPT = st.sampled_from(
    ("layer_names", "weight_names", "keras_version", "backend", "name", "model_config", "layer_names0")
)
ATTRIBUTES = st.dictionaries(
    KEPT,
    st.lists(st.sampled_from((b"attn", b"attn/query/kernel:0", b"..", b"", b"\xff")), max_size=3)
    | st.integers(-1, 2)
    | st.sampled_from(("attn", "3.5.0", "{}", '{"class_name": "x"}')),
    max_size=2,
)
TREES = st.recursive(
    st.tuples(DTYPES, SHAPES),
    lambda inner: st.tuples(ATTRIBUTES, st.dictionaries(WORDS.filter(lambda name: "/" not in name), inner, max_size=5)),
    max_leaves=12,
)


@st.composite
def attention(draw: st.DrawFn) -> Any:
    """A group as of attention, with one thing perhaps wrong."""
    shapes = {"query": (4, 2, 3), "key": (4, 2, 3), "value": (4, 2, 3), "output": (2, 3, 4)}
    members: dict[str, Any] = {}
    odd = draw(st.sampled_from((*shapes, "none", "none")))
    for role, shape in shapes.items():
        kernel = (draw(DTYPES), draw(SHAPES)) if role == odd else ("<f4", shape)
        bias = ("<f4", shape[2:] if role == "output" else shape[1:])
        members[f"{role}_dense"] = ({}, {"vars": ({}, {"0": kernel, "1": bias})})
    members["vars"] = (draw(ATTRIBUTES), {})
    return {}, members


@st.composite
def weights(draw: st.DrawFn) -> bytes:
    """An HDF5 file."""
    attributes, members = draw(
        st.tuples(ATTRIBUTES, st.dictionaries(WORDS.filter(lambda name: "/" not in name), TREES, max_size=4))
    )
    if draw(st.booleans()):
        members["layers"] = ({}, {"multi_head_attention": draw(attention())})
    if draw(st.booleans()):
        members.setdefault("vars", ({}, {}))
    memory = BytesIO()
    with h5py.File(memory, "w") as file:
        fill(file, attributes, members)
    return memory.getvalue()


def fill(group: h5py.Group, attributes: dict[str, Any], members: dict[str, Any]) -> None:
    """Write a tree."""
    for name, value in attributes.items():
        group.attrs[name] = np.array(value, "S30") if isinstance(value, list) else value
    for name, (first, second) in members.items():
        if isinstance(first, str):
            group.create_dataset(name, data=numbers(second, first))
        else:
            fill(group.create_group(name), first, second)


def numbers(shape: tuple[int, ...], dtype: str) -> Any:
    """An array in which no number is its neighbour's, as far as the dtype has numbers."""
    if np.dtype(dtype).kind in "SV":
        return np.zeros(shape, dtype)
    return (np.arange(math.prod(shape)) % 101).reshape(shape).astype(dtype)


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """A ``.keras`` file."""
    memory = BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        archive.writestr("config.json", json.dumps(draw(layers(MODELS)) if draw(st.booleans()) else draw(VALUES)))
        archive.writestr(
            "metadata.json",
            json.dumps({"keras_version": draw(st.sampled_from(("3.15.1", "2.12.0", "2.15.0", "3.5")) | VALUES)}),
        )
        archive.writestr("model.weights.h5", draw(weights()))
    return memory.getvalue()


@st.composite
def legacy(draw: st.DrawFn) -> bytes:
    """A legacy ``.h5`` file: anything that has such lists, or a layer in which one thing may be odd."""
    memory = BytesIO(draw(weights()) if draw(st.booleans()) else b"")
    with h5py.File(memory, "r+" if memory.getvalue() else "w") as file:
        entry = {"class_name": "MultiHeadAttention", "config": {"name": "attn", **draw(attention_of_lists(file))}}
        entry["config"] |= draw(SETTING) if draw(st.integers(0, 2)) == 2 else {}
        model = {"class_name": "Functional", "config": {"name": "model", "layers": [entry]}}
        model = draw(layers(MODELS)) if draw(st.integers(0, 3)) == 3 else model
        file.attrs["model_config"] = json.dumps(model)[:60_000]
        file.attrs["layer_names"] = np.array(["attn"], "S4")
    return memory.getvalue()


LEGACY_CHANGES = st.sampled_from(
    ("nothing", "nothing", "nothing", "left out", "twice", "other shape", "other dtype", "name")
)


@st.composite
def attention_of_lists(draw: st.DrawFn, file: h5py.File) -> dict[str, Any]:
    """Write one layer; gives the settings that it was made with."""
    heads, size, features = (draw(st.integers(1, 3)) for _ in range(3))
    inner, outer = (features, heads, size), (heads, size, features)
    shapes = {role: outer if role == "attention_output" else inner for role in LEGACY_ROLES}
    has_bias, change, odd = draw(st.booleans()), draw(LEGACY_CHANGES), draw(st.sampled_from(LEGACY_ROLES))
    if isinstance(file.get("attn"), h5py.Dataset):
        del file["attn"]
    group, listed = file.require_group("attn"), []
    for role, kernel in shapes.items():
        biases = {"bias:0": kernel[2:] if role == "attention_output" else kernel[1:]} if has_bias else {}
        for name, shape in {"kernel:0": kernel, **biases}.items():
            is_odd = role == odd and name == "kernel:0"
            if is_odd and change == "left out":
                continue
            shape = draw(SHAPES) if is_odd and change == "other shape" else shape
            dtype = draw(DTYPES) if is_odd and change == "other dtype" else "<f4"
            place = f"attn/{draw(WORDS) if is_odd and change == 'name' else role}/{name}"
            listed += [place] * (2 if is_odd and change == "twice" else 1)
            if place not in group:
                group.create_dataset(place, data=numbers(shape, dtype))
    group.attrs["weight_names"] = np.array(listed, "S80")
    return {"num_heads": heads, "key_dim": size, "value_dim": size, "use_bias": has_bias, "dropout": 0.0}
