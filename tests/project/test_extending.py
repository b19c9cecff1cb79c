"""What docs/extending.md says is true (issue 12, point 15).

A copy of the package gets an additional reader, layer type, layout and writer, as the page describes, and all verbs
then use them. The writer is the page's own text; the others are the files in ``extending`` that the page names.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from environment import PROJECT

from mha_convert import find_layers, plan, read
from mha_convert.words.explanation import explanation
from mha_convert.words.kinds import OF_KIND

EXAMPLES = PROJECT / "tests" / "extending"
PAGE = PROJECT / "docs" / "extending.md"
LAYER = "decoder/attn"
# Runs the verbs in one process, as torch need not be loaded for each; what a verb prints, and how it ended.
VERBS = """
import contextlib, io, json, sys, traceback
from mha_convert import __file__ as place
from mha_convert.cli import app

def run(words):
    printed, ended = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(printed):
            app(words, standalone_mode=False)
    except BaseException:
        ended = traceback.format_exc()
    return printed.getvalue(), ended

print(json.dumps([place, *map(run, json.load(sys.stdin))]))
"""


def page_writer() -> str:
    """The module that the page shows."""
    (text,) = (text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "SUFFIX =" in text)
    return text


def add(package: Path, folder: str, name: str, text: str, table: str) -> None:
    """What the page says for every part: one file, one import, one entry of the tuple."""
    (package / folder / f"{name}.py").write_text(text)
    home = package / folder / "__init__.py"
    before = home.read_text()
    imported = re.sub(r"^from \. import ", f"from . import {name}\nfrom . import ", before, count=1, flags=re.MULTILINE)
    listed = re.sub(rf"^({table}: [^=]*= \([^)]*?),?(\s*)\)", rf"\1, {name}\2)", imported, count=1, flags=re.MULTILINE)
    assert before != imported != listed
    home.write_text(listed)


def edit(package: Path, file: str, old: str, new: str) -> None:
    """One of the page's other lines."""
    path = package / file
    assert path.read_text().count(old) == 1, (file, old)
    path.write_text(path.read_text().replace(old, new))


def extended(folder: Path) -> Path:
    """A copy of the package with one more of each."""
    package = folder / "mha_convert"
    shutil.copytree(PROJECT / "mha_convert", package, ignore=shutil.ignore_patterns("__pycache__"))
    for part, name, table in (
        ("readers", "numpy_archive", "READERS"),
        ("layers", "joint_attention", "LAYER_TYPES"),
        ("layouts", "key_value", "LAYOUTS"),
    ):
        add(package, part, name, (EXAMPLES / part / f"{name}.py").read_text(), table)
    add(package, "targets", "numpy_file", page_writer(), "WRITERS")
    text = (EXAMPLES / "modules.py").read_text().replace("from mha_convert.modules import", "from .attention import")
    (package / "modules/key_value.py").write_text(text)
    own = "modules/__init__.py"
    edit(package, own, "from .masks", "from .key_value import KeyValueMultiheadAttention\nfrom .masks")
    edit(package, own, "__all__ = [", '__all__ = [\n    "KeyValueMultiheadAttention",')
    edit(package, "options.py", 'Layout = Literal["mha", ', 'Layout = Literal["key-value", "mha", ')
    return package


def also(package: Path) -> None:
    """The lines that the page calls *Also*."""
    edit(package, "options.py", 'Literal["safetensors", "pt"]', 'Literal["safetensors", "pt", "npz"]')
    edit(package, "words/multi_head_attention.py", "LINEARS = {", 'LINEARS = {\n    "key-value": "three nn.Linear",')


def make_source(path: Path) -> None:
    """Two layers: one in Keras' four kernels, one that only the new layer type knows."""
    random = np.random.default_rng(0)
    projections = {f"{role}_dense/kernel": (8, 2, 3) for role in ("query", "key", "value")}
    projections |= {f"{role}_dense/bias": (2, 3) for role in ("query", "key", "value")}
    projections |= {"output_dense/kernel": (2, 3, 8), "output_dense/bias": (8,)}
    shapes = {f"encoder/attn/{name}": shape for name, shape in projections.items()}
    shapes |= {f"{LAYER}/joint_kernel": (3, 8, 2, 4), f"{LAYER}/output_kernel": (2, 4, 8)}
    np.savez(path, **{name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()})


def verbs(folder: Path, *commands: list[str]) -> tuple[str, list[list[str]]]:
    """Where the package is, and what each command printed and how it ended."""
    result = subprocess.run(
        [sys.executable, "-c", VERBS],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    place, *results = json.loads(result.stdout)
    return place, results


COMMANDS = {
    "inspect": ["inspect", "model.npz"],
    "json": ["inspect", "model.npz", "--json"],
    "keys": ["keys", "model.npz", "--layout", "key-value"],
    "explain": ["explain", "model.npz", "--layout", "key-value"],
    "convert": ["convert", "model.npz", "out.npz", "--layout", "key-value"],
    "verify": ["verify", "model.npz", "out.npz"],
    "again": ["convert", "model.npz", "again.npz", "--layout", "key-value"],
    "safetensors": ["convert", "model.npz", "out.safetensors", "--layout", "key-value", "--module", "out.py"],
    "mha": ["convert", "model.npz", "plain.npz"],
    "bfloat16": ["convert", "model.npz", "short.npz", "--dtype", "bfloat16"],
    "batch": ["batch", "model.npz", "--out", "many", "--layout", "key-value", "--jobs", "1"],
}


@pytest.fixture(scope="module", params=[False, True], ids=["the file and the tuple", "also"])
def used(request, tmp_path_factory, starts_processes):
    """The extended package's folder, whether it has the page's other lines, and what the verbs printed."""
    folder = tmp_path_factory.mktemp("extended")
    package = extended(folder)
    if request.param:
        also(package)
    make_source(folder / "model.npz")
    place, results = verbs(folder, *COMMANDS.values())
    assert Path(place).parent == package
    return folder, request.param, dict(zip(COMMANDS, results, strict=True))


def test_every_verb_takes_the_new_parts(used):
    folder, _, results = used
    assert {name: ended for name, (_, ended) in results.items() if ended and name != "bfloat16"} == {}
    for name in ("convert", "verify", "safetensors", "mha"):
        assert "Proven" in results[name][0], name
    assert len(list((folder / "many").glob("*.safetensors"))) == 1
    assert results["bfloat16"][1].endswith(
        "A .npz target cannot hold bfloat16. Use --dtype float32, or another suffix.\n"
    )


def test_inspect_shows_the_new_format_and_layer(used):
    _, _, results = used
    assert results["inspect"][0].startswith("model.npz: NumPy archive\n")
    document = json.loads(results["json"][0])
    assert document["format"] == "numpy-archive" and document["not_converted"] == []
    assert {layer["name"]: (layer["kind"], layer["num_heads"]) for layer in document["layers"]} == {
        "encoder/attn": ("MultiHeadAttention", 2),
        LAYER: ("MultiHeadAttention", 2),
    }
    assert document["variables"]["other"] == {"count": 0, "parameters": 0}


def test_explain_shows_the_new_layout(used):
    _, complete, results = used
    text = results["explain"][0]
    words = "three nn.Linear and scaled" if complete else "KeyValueMultiheadAttention(num_heads=2, key_dim=4, "
    assert f"In PyTorch (layout key-value): {words}" in text
    assert "= rows of W(key kernel), then W(value kernel)" in text and "--layout key-value" in text
    assert "decoder.attn.kv_proj.weight" in results["keys"][0]
    assert "KeyValueMultiheadAttention(2, 4, 4)" in results["convert"][0]


def test_the_new_target_is_reproducible_and_holds_no_draft(used):
    folder, _, _ = used
    assert (folder / "out.npz").read_bytes() == (folder / "again.npz").read_bytes()
    assert not list(folder.glob(".*")) and not (folder / "short.npz").exists()
    with np.load(folder / "out.npz") as target, np.load(folder / "model.npz") as source:
        expected = source[f"{LAYER}/joint_kernel"][1:].reshape(2, 8, 8).swapaxes(1, 2).reshape(16, 8)
        assert np.array_equal(target["decoder.attn.kv_proj.weight"], expected)


def test_the_new_module_is_copied_out(used):
    folder, _, _ = used
    code = "import out, safetensors.torch as s; out.build().load_state_dict(s.load_file('out.safetensors'))"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, timeout=120)


def test_a_changed_target_is_refused(used):
    folder, _, _ = used
    with np.load(folder / "out.npz") as archive:
        arrays = dict(archive)
    arrays["decoder.attn.kv_proj.weight"][3, 5] += 1
    np.savez(folder / "changed.npz", **arrays)
    _, ((_, ended),) = verbs(folder, ["verify", "model.npz", "changed.npz"])
    assert "VerificationError: Layer 'decoder/attn': tensor 'decoder.attn.kv_proj.weight' differs" in ended


def test_no_layout_is_unknown_to_explain(samples):
    """Point 15 of issue 12: a new layout crashed ``explain``; one with padded heads was called nn.MultiheadAttention."""
    (item,) = plan(find_layers(read(samples / "six_heads.keras")), prefix="").layers
    item = replace(item, layout="new", module=replace(item.module, class_name="New"))
    text = "\n".join(explanation([item], "'x.keras'"))
    assert "In PyTorch (layout new): New(embed_dim=24, " in text and "--layout new" in text
    assert OF_KIND[item.layer.kind].module_call(item) == "New(6, 4, 4)"
