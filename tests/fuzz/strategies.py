"""Hypothesis strategies: models' JSON and HDF5 trees that look like Keras' from afar, with odd values everywhere."""

import json
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
            group.create_dataset(name, data=np.zeros(second, first))
        else:
            fill(group.create_group(name), first, second)


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
    """A legacy ``.h5`` file with a model's JSON."""
    memory = BytesIO(draw(weights()))
    with h5py.File(memory, "r+") as file:
        file.attrs["layer_names"] = np.array(["attn"], "S4")
        top = file.require_group("attn") if "attn" not in file or isinstance(file["attn"], h5py.Group) else None
        if top is not None:
            top.attrs["weight_names"] = np.array(
                draw(st.lists(st.sampled_from(("q/kernel:0", "query/kernel:0", "0")), max_size=3)), "S20"
            )
        file.attrs["model_config"] = json.dumps(draw(layers(MODELS)))[:60_000]
    return memory.getvalue()
