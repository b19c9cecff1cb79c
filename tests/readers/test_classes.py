"""Point H7 of the review: what a class stores is a row of ``classes``, and readers know no class themselves."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from environment import PROJECT

import mha_convert
from mha_convert import classes
from mha_convert.classes import COMPOSITE, OF_NAME, LayerClass, Weight
from mha_convert.errors import ReadError

READERS = PROJECT / "mha_convert" / "readers"
# Of attention and of other classes, in any name or text; and what the table calls a class, a part or an attribute, but
# for the words of any mapping.
WORDS = re.compile(
    r"attention|attn|quer(y|ies)|projection|heads|causal|mask|score|softmax|embedding|normaliz", re.IGNORECASE
)
NAMES = {name for row in classes.CLASSES for name in row.names}
NAMES |= {spelling for row in COMPOSITE for part in row.parts for spelling in part.spellings} - {"key", "value"}
ALLOWED = {
    ("keras_classes.py", "KERAS_CLASSES"): "every class of Keras by its name alone: whose class is one of such a name",
    ("tensorflow/bundle.py", "MASK_DELTA"): "LevelDB's word for what it adds to checksums",
    ("tensorflow/bundle.py", "unmasked"): "the same",
}


def words_of(node: ast.AST, described: set[int]) -> Iterator[str]:
    """Names and texts of one node of a syntax tree; docstrings are none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
        yield node.value
    for field in ("id", "attr", "arg", "name", "asname"):
        if isinstance(found := getattr(node, field, None), str):
            yield found


def findings(source: str) -> set[str]:
    """Top-level names, or the words themselves, under which a file speaks of a class or of what is in it."""
    found = set()
    for statement in ast.parse(source).body:
        nodes = list(ast.walk(statement))
        bodies = [node.body for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)] + [[statement]]
        described = {id(body[0].value) for body in bodies if isinstance(body[0], ast.Expr)}
        for word in (word for node in nodes for word in words_of(node, described)):
            if WORDS.search(word) or word in NAMES:
                is_named = isinstance(statement, ast.Assign | ast.AnnAssign)
                targets = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
                found.add(targets[0] if is_named and targets else word)
    return found


def test_readers_speak_of_no_class():
    found = {
        (str(path.relative_to(READERS)), word) for path in READERS.rglob("*.py") for word in findings(path.read_text())
    }
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    "bad",
    [
        'WORD = "MultiHeadAttention"',
        'def f(group):\n    return group.children["query_dense"]',
        "def is_projection(x):\n    return x",
        'print(f"{name} is no attention layer")',
        "from .x import hidden_masks",
        'def f(layer):\n    return layer == "Dense"',
    ],
)
def test_the_test_of_words_can_fail(bad):
    assert findings(bad)
    assert not findings(
        '"""Attention, heads and masks."""\n\n\ndef f():\n    """Of attention."""\n    return "kernel"  # of heads'
    )


def layer(class_name: str, name: str, **settings: Any) -> dict[str, Any]:
    """A layer's entry in a model's configuration."""
    return {"class_name": class_name, "module": "keras.layers", "config": {"name": name, **settings}, "name": name}


def write_h5(path: Path, entry: dict[str, Any], weights: Mapping[str, tuple[int, ...]], *listed: str) -> Path:
    """A model of one layer as ``.h5``, with its weights written in this order, and ``listed`` in that or the same."""
    name = entry["name"]
    model = {"class_name": "Sequential", "config": {"name": "sequential", "layers": [entry]}}
    with h5py.File(path, "w", track_order=True) as file:
        file.attrs["model_config"] = json.dumps(model)
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [name]
        own = group.create_group(name)
        own.attrs["weight_names"] = [f"{name}/{weight}" for weight in listed or weights]
        for number, (weight, shape) in enumerate(weights.items()):
            own[f"{name}/{weight}"] = np.full(shape, number, "float32")
    return path


def test_variables_of_one_form_are_exchanged_in_no_class(tmp_path):
    """Genuine Keras loads a ``.h5`` by the order; both of a LayerNormalization have one shape."""
    norm = layer("LayerNormalization", "norm", axis=[-1], epsilon=0.001, center=True, scale=True)
    mha_convert.read(write_h5(tmp_path / "x.h5", norm, {"gamma": (4,), "beta": (4,)}))
    mha_convert.read(
        write_h5(tmp_path / "beta.h5", {**norm, "config": {**norm["config"], "scale": False}}, {"beta": (4,)})
    )
    with pytest.raises(ReadError, match="lists the weights of 'beta' where Keras makes those of 'gamma'"):
        mha_convert.read(write_h5(tmp_path / "y.h5", norm, {"gamma": (4,), "beta": (4,)}, "beta", "gamma"))


def test_variables_that_cannot_be_taken_for_one_another_may_come_in_any_order(tmp_path):
    dense = layer("Dense", "dense", units=3, use_bias=True)
    assert not mha_convert.read(write_h5(tmp_path / "x.h5", dense, {"bias": (3,), "kernel": (2, 3)})).notes


@pytest.mark.parametrize(("variable", "shape"), [("kernel", (2, 4)), ("bias", (4,))])
def test_sizes_of_the_configuration_are_those_of_the_arrays(tmp_path, variable, shape):
    path = write_h5(
        tmp_path / "x.h5", layer("Dense", "dense", units=3), {"kernel": (2, 3), "bias": (3,), variable: shape}
    )
    with pytest.raises(ReadError, match=f"layer 'dense' has 3 units there, its {variable} has 4"):
        mha_convert.read(path)


def test_one_more_class_is_one_more_row(tmp_path, monkeypatch):
    """No reader is edited: the checks of sizes and of order take the row from the table."""
    for name in ("Embedding", "BatchNormalization"):
        monkeypatch.delitem(OF_NAME, name)
    embedding = layer("Embedding", "words", input_dim=5, output_dim=3)
    path = write_h5(tmp_path / "x.h5", embedding, {"embeddings": (5, 4)})
    assert mha_convert.read(path).has_config
    row = LayerClass("Embedding", (Weight("embeddings", axes=("input_dim", "output_dim")),), counts=("output_dim",))
    monkeypatch.setitem(OF_NAME, "Embedding", row)
    with pytest.raises(ReadError, match="layer 'words' has 3 output_dim there, its embeddings has 4"):
        mha_convert.read(path)
    norm = layer("BatchNormalization", "norm")
    path = write_h5(tmp_path / "y.h5", norm, {"gamma": (4,), "beta": (4,)}, "beta", "gamma")
    assert mha_convert.read(path).has_config
    monkeypatch.setitem(
        OF_NAME, "BatchNormalization", LayerClass("BatchNormalization", (Weight("gamma"), Weight("beta")))
    )
    with pytest.raises(ReadError, match="lists the weights of 'beta' where Keras makes those of 'gamma'"):
        mha_convert.read(path)


@pytest.mark.parametrize(
    ("name", "settings", "variables"),
    [
        ("Attention", {"use_scale": True, "score_mode": "concat"}, ["scale", "concat_score_weight"]),
        ("Attention", {"use_scale": True}, ["scale"]),
        ("Attention", {"use_scale": False, "score_mode": "dot"}, []),
        ("Attention", {}, ["scale"]),
        ("Attention", {"use_scale": 0}, ["scale"]),
        ("LayerNormalization", {"center": False}, ["gamma"]),
        ("Dense", {"use_bias": False}, ["kernel"]),
        ("MultiHeadAttention", {}, []),
    ],
)
def test_settings_say_which_variables_there_are(name, settings, variables):
    """What a setting does not say for sure is assumed to be there."""
    assert [weight.name for weight in OF_NAME[name].made(settings)] == variables


def test_a_layer_that_stores_nothing_is_listed_where_its_format_leaves_it_out(tmp_path):
    norm = layer("LayerNormalization", "norm", axis=[-1], center=False, scale=False)
    path = write_h5(tmp_path / "x.h5", norm, {})
    (unfit,) = mha_convert.inspect_file(path).findings.unfit
    assert unfit.name == "norm" and "it has no variables" in unfit.reason


HEADS = ((6, 4, 3), (6, 2, 3), (6, 2, 5), (4, 5, 6))


@pytest.mark.parametrize(
    ("shapes", "agree"),
    [
        (HEADS, True),
        ((*HEADS[:3], (4, 5, 2, 3)), True),
        ((*HEADS[:3], (4, 3, 6)), False),
        ((HEADS[0], (6, 3, 3), *HEADS[2:]), False),
        ((HEADS[0], (6, 3, 3), (6, 3, 5), HEADS[3]), False),
        ((HEADS[0], (6, 0, 3), (6, 0, 5), HEADS[3]), False),
        (((6, 4), *HEADS[1:]), False),
        (((6, 4, 3, 1), *HEADS[1:]), False),
    ],
)
def test_kernels_of_one_layer_agree_in_their_axes(shapes, agree):
    assert all(row.agree(shapes) is agree for row in COMPOSITE)
