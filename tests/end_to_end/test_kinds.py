"""Every stage knows every kind of layer, and no stage asks which record a layer is (issue 13, point 1)."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from environment import PROJECT, SUPPORT
from normalization_models import FORMS

import mha_convert
from mha_convert import layers, layouts
from mha_convert.records.layer import Layer
from mha_convert.verification import kinds as verification
from mha_convert.words import kinds as words

PACKAGE = PROJECT / "mha_convert"
PAGE = PROJECT / "docs" / "extending.md"
RECORDS = {"AttentionLayer", "UnprojectedAttention", "PlainLayer", "AnyAttention"}
FILES = ("layers", "layouts", "verification/formulas")
STAGES = {"layouts": layouts.OF_KIND, "verification": verification.OF_KIND, "words": words.OF_KIND}


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_knows_every_kind(stage):
    assert set(STAGES[stage]) == set(layers.KINDS)


def test_kinds_are_asked_of_records_in_layers_alone():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                names = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
                found |= {path.relative_to(PACKAGE).parts[0]} if names & RECORDS else set()
    assert found == {"layers"}


def rows_of_the_page() -> dict[str, str]:
    """Files and the row that each has for LayerNormalization, as docs/extending.md lists them."""
    (block,) = (
        text
        for text in re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if "OF_KIND" in text or "other(plain" in text
    )
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in block.strip().splitlines())


def without_the_kind(folder: Path) -> Path:
    """A copy of the package without the three files and the rows that the page names, and nothing else changed."""
    package = folder / "mha_convert"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for stage in FILES:
        (package / stage / "layer_normalization.py").unlink()
    for name, row in rows_of_the_page().items():
        path = folder / name
        text = path.read_text()
        assert text.count(row) == 1, (name, row)
        text = text.replace(row, row.replace("(layer_normalization.ROW,)", "()") if "ROW" in row else "")
        text = re.sub(r"\blayer_normalization, |, layer_normalization\b|\n    layer_normalization,(?=\n)", "", text)
        path.write_text(text.replace('    "LayerNormalization",\n', ""))
    return package


@pytest.mark.process
def test_the_kind_is_the_pages_files_and_rows(keras_installed, tmp_path):
    """Without them the package works, and does not know the kind: adding one costs that much, and no more."""
    models = tmp_path / "models"
    models.mkdir()
    script = SUPPORT / "normalization_models.py"
    subprocess.run([sys.executable, script, models], check=True, capture_output=True, timeout=300)
    without_the_kind(tmp_path)
    told = {}
    for name, place in (("with", PROJECT), ("without", tmp_path)):
        code = (
            f"import sys; sys.path.insert(0, {str(place)!r}); sys.argv = ['mha-convert', 'inspect', "
            f"{str(models / 'norm.keras')!r}, '--json']; from mha_convert.__main__ import main; main()"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        told[name] = json.loads(done.stdout)
    assert [layer["name"] for layer in told["with"]["other_layers"]] == [*FORMS, "half"]
    assert "other_layers" not in told["without"] and told["without"]["layers"] == told["with"]["layers"]
    assert not told["without"]["not_converted"] and told["with"]["not_converted"]


def test_the_shared_interface_is_written_down():
    """What stages ask of a layer stands in the protocol, and every record has it."""
    asked = {name for name in vars(Layer) if not name.startswith("_")}
    for record in (mha_convert.AttentionLayer, mha_convert.UnprojectedAttention, mha_convert.PlainLayer):
        fields = set(record.__dataclass_fields__) | set(dir(record))
        assert asked <= fields, record
