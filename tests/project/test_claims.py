"""Claims of the documentation that the code must keep (issue 12, point 15)."""

import ast
import re
import sys
from dataclasses import replace

import pytest
from environment import PROJECT

from mha_convert import MhaConvertError, plan, read, read_attention
from mha_convert.cli import app
from mha_convert.layers import survey
from mha_convert.layouts import LAYOUTS
from mha_convert.records.source import Checkpoint, Group, Variable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = PROJECT / "mha_convert"
GOLDEN = PROJECT / "tests" / "golden"
NOT_READ = ("broken/", ".npz.keras")
FILES = sorted(
    path
    for path in GOLDEN.rglob("*.*")
    if path.suffix in (".keras", ".h5") and not any(part in str(path) for part in NOT_READ)
)
PRINTS = {"cli/screen.py", "cli/verbs.py", "signals.py", "streams.py"}


def watched(group: Group, seen: list[str]) -> Group:
    """The same tree, which notes the path of every array that is read."""

    def noting(variable: Variable) -> Variable:
        return replace(variable, read=lambda: seen.append(variable.path) or variable.read())

    return replace(
        group,
        variables={name: noting(variable) for name, variable in group.variables.items()},
        children={name: watched(child, seen) for name, child in group.children.items()},
    )


def arrays_read(checkpoint: Checkpoint) -> list[str]:
    """What finding and planning reads."""
    seen: list[str] = []
    found = survey(replace(checkpoint, root=watched(checkpoint.root, seen)))
    for layout in LAYOUTS:
        try:
            plan(found.layers, layout=layout.NAME)
        except MhaConvertError:
            continue
    return seen


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(GOLDEN)))
def test_arrays_are_read_before_the_conversion_in_two_cases_only(path):
    """docs/python.md, docs/architecture.md: layers that a .h5 may hold twice, and quantized kernels in doubt."""
    checkpoint = read(path)
    quantized = {variable.path for variable in checkpoint.variables if variable.dtype in ("int8", "uint8")}
    assert set(arrays_read(checkpoint)) <= quantized


def test_the_two_cases_do_read(samples):
    assert arrays_read(read(GOLDEN / "keras-3.12.4-quantized" / "int4-odd" / "model.weights.h5"))
    checkpoint = read(samples / "translator.h5")
    assert checkpoint.repeats_shared_layers and not arrays_read(checkpoint)
    layer = checkpoint.root.children["self_attention"]
    again = Group(path="outer", name="outer", children={"x": replace(layer, name="outer/self_attention")})
    root = replace(checkpoint.root, children={**checkpoint.root.children, "outer": again})
    assert set(arrays_read(replace(checkpoint, root=root))) <= {
        v.path for g in layer.walk() for v in g.variables.values()
    }
    assert arrays_read(replace(checkpoint, root=root))


def test_only_the_command_prints():
    """CONTRIBUTING.md, rule 9."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and re.search(
                r"^(print|typer\.echo|sys\.(__)?std(out|err)(__)?\.write|os\.write)$", ast.unparse(node.func)
            ):
                found.add(str(path.relative_to(PACKAGE)))
    assert found == PRINTS


def test_the_readme_names_every_verb():
    text = (PROJECT / "README.md").read_text().partition("## Use")[2].partition("## Why")[0]
    verbs = [command.name or command.callback.__name__ for command in app.registered_commands]
    assert len(verbs) == 9
    for verb in verbs:
        assert f"`{verb}`" in text, verb


def test_examples_of_settings_are_read():
    """The TOML on the pages; rows of --attention must be such rows."""
    found = 0
    for page in (PROJECT / "docs").glob("*.md"):
        for text in re.findall(r"^```toml\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
            document = tomllib.loads(text)
            assert read_attention(document["attention"])
            found += 1
    assert found == 2


@pytest.mark.parametrize("part", ["packages", "hostile"])
def test_numbers_of_things_are_right(part):
    """Ten packages; as many hostile files as the table has."""
    if part == "packages":
        needed = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
        assert len([line for line in needed if "python_version" not in line]) == 10
        return
    table = (PROJECT / "docs" / "security.md").read_text().partition("<!-- cases")[2]
    (number,) = re.findall(r"^(\d+) files: ", table, re.MULTILINE)
    rows = re.findall(r"^\| \S+ \| .* \| .* \| .* \|$", table, re.MULTILINE)
    assert f"with {number} hostile and broken files" in (PROJECT / "SECURITY.md").read_text()
    assert len(rows) >= int(number)
