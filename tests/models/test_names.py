"""Texts of a file in the written source: every name is a stranger's, and the file's classes stay the same."""

import ast
import io
import json
import zipfile
from dataclasses import dataclass

import h5py
import numpy as np
import pytest
import torch
from environment import TESTS
from torch import nn
from whole_models import outputs_of, written

from mha_convert.models import load_model
from mha_convert.source.model.names import OF_MODULES, identifier

GOLDEN = TESTS / "golden" / "models"
LAYERS = ("hidden", "bottleneck", "classes")
HOSTILE = {
    "quotes": ("it's", 'a "name"', "'''"),
    "the end of a docstring": ('"""', '"""\nimport os', '\\"""'),
    "new lines": ("a\nb", "a\r\nimport os", "a\u2028b"),
    "code": ("x = 1; import os", "__import__('os').system('true')", "{0}{locals}"),
    "keywords": ("class", "def", "lambda"),
    "soft keywords and built-ins": ("match", "print", "int"),
    "dunders": ("__init__", "__class__", "__dict__"),
    "attributes of modules": ("forward", "training", "state_dict"),
    "names that the file imports": ("torch", "nn", "F"),
    "what forward itself needs": ("self", "x", "Tensor"),
    "astral and composed letters": ("𝒙𝓎", "é", "ﬁ"),
    "no letter at all": ("…", "层", "🙂"),
    "digits": ("1", "2nd", "3.5"),
    "long names": ("a" * 10_000, "a" * 9_999 + "b", "a" * 61),
    "names that become equal": ("a b", "a-b", "a_b"),
    "names that number themselves": ("a", "a_2", "a 2"),
    "paths": ("..", ".", "~"),
    "control characters": ("\x01", "\x1b[31m", "\u202e"),
    "almost nothing": ("__", " ", "_"),
}


def renamed(folder, names, model="mlp"):
    """The smallest golden model with other names."""
    path = folder / "model.keras"
    with zipfile.ZipFile(GOLDEN / "mlp.keras") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "config.json":
                config = json.loads(content)
                config["config"]["name"] = model
                new_names = dict(zip(LAYERS, names, strict=True))
                for layer in config["config"]["layers"]:
                    layer["config"]["name"] = new_names.get(layer["config"]["name"], layer["config"]["name"])
                content = json.dumps(config)
            if name == "model.weights.h5":
                content = with_names(content, dict(zip(LAYERS, names, strict=True)))
            new.writestr(name, content)
    return path


def with_names(content, names):
    """The weights, whose groups say the layers' names, too."""
    file = io.BytesIO(content)
    with h5py.File(file, "r+") as weights:

        def rename(path, item):
            if item.attrs.get("name") in names:
                item.attrs["name"] = names[item.attrs["name"]]

        weights.visititems(rename)
    return file.getvalue()


@dataclass
class Anonymous(ast.NodeTransformer):
    """Takes names and texts out of a file, and leaves what it does."""

    known: frozenset = frozenset(("self", "nn", "torch", "Tensor", "F", "x", "features"))

    def visit_Name(self, node):
        return node if node.id in self.known else ast.Name("name", node.ctx)

    def visit_Attribute(self, node):
        self.generic_visit(node)
        is_member = isinstance(node.value, ast.Name) and node.value.id == "self"
        return ast.Attribute(node.value, "member", node.ctx) if is_member else node

    def visit_Constant(self, node):
        return ast.Constant("text") if isinstance(node.value, str) else node

    def visit_ClassDef(self, node):
        self.generic_visit(node)
        node.name = "Model"
        return node


def bare(text):
    """What a file does, without its names."""
    return ast.dump(Anonymous().visit(ast.parse(text)))


@pytest.mark.parametrize("names", HOSTILE.values(), ids=HOSTILE)
def test_names_change_nothing_but_names(names, tmp_path):
    plain = written(GOLDEN / "mlp.keras", tmp_path / "plain").source
    found = written(renamed(tmp_path, names), tmp_path / "found").source
    assert bare(found) == bare(plain)
    assert max(map(len, found.splitlines())) <= 100
    arrays = np.load(GOLDEN / "mlp.npz")
    (returned,) = outputs_of(tmp_path / "found", [arrays["x0"]])
    np.testing.assert_allclose(returned, arrays["y0"], rtol=0, atol=2e-6)


@pytest.mark.parametrize("names", HOSTILE.values(), ids=HOSTILE)
def test_names_of_models_change_nothing_but_names(names, tmp_path):
    for number, name in enumerate(names):
        (tmp_path / str(number)).mkdir()
        path = renamed(tmp_path / str(number), LAYERS, model=name)
        found = written(path, tmp_path / str(number) / "found").source
        assert bare(found) == bare(written(GOLDEN / "mlp.keras", tmp_path / "plain").source)
        assert isinstance(load_model(tmp_path / str(number) / "found"), nn.Module)


def test_a_file_s_name_is_in_the_docstring_and_nowhere_else(tmp_path):
    for name in ('"""; import os; """', "a\nb", "é\\", "'"):
        path = tmp_path / f"{name}.keras"
        path.write_bytes((GOLDEN / "mlp.keras").read_bytes())
        found = written(path, tmp_path / "found").source
        assert bare(found) == bare(written(GOLDEN / "mlp.keras", tmp_path / "plain").source)


def test_the_attributes_of_modules_are_those_of_torch():
    own = {name for name in dir(nn.Module()) if not name.startswith("_")}
    assert own <= OF_MODULES | {"training"}, own - OF_MODULES


@pytest.mark.parametrize("text", [text for names in HOSTILE.values() for text in names])
def test_an_identifier_is_one_and_never_private(text):
    found = identifier(text, "layer")
    assert found.isidentifier() and found.isascii() and not found.startswith("_") and len(found) <= 80


def test_a_name_is_never_an_attribute_that_torch_sets(tmp_path):
    model = written(renamed(tmp_path, ("training", "forward", "buffers")), tmp_path / "found").model
    assert [member.attribute for member in model.members] == ["training_2", "dropout", "forward_2", "buffers_2"]
    assert load_model(tmp_path / "found").training is False
    assert torch.is_tensor(load_model(tmp_path / "found").training_2.weight)


def test_a_layer_inside_a_path_has_the_path_s_last_part(tmp_path):
    """Keras 2.10 allowed ``enc/block1/proj``; ``.h5`` has folders then."""
    model = written(TESTS / "golden" / "keras-2.10" / "slash_names.h5", tmp_path / "found").model
    assert {member.name: member.attribute for member in model.members} == {
        "enc/block1/proj": "proj",
        "enc/block1/mha": "mha",
    }
