"""Text from a file is escaped once, where it is raised or printed; see docs/security.md."""

import ast
import json
import pickle
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from command_line import run, run_cli
from environment import PROJECT

import mha_convert
from mha_convert.errors import LONGEST, MhaConvertError, ReadError
from mha_convert.files.shell import IN_ERRORS, layer_options, option
from mha_convert.words.conversion import report_as_json, report_as_text
from mha_convert.words.table import as_plain_text, safe

NAME = "evil\n\x1b[31m\u202e\u2028'; touch PWNED #"
SHOWN = r"evil\n\x1b[31m\u202e\u2028'; touch PWNED #"
ESCAPING = {
    "errors.py",  # the functions, and the base of all errors
    "words/table.py",  # whatever is printed as a document
    "signals.py",  # the line of an interrupted command
    "batch/summary.py",  # finds a source's name in an error, where it is escaped
    "keys/matching.py",  # comments of a file of rules
    "files/shell.py",  # PowerShell has no escapes
    "words/faces.py",  # the repr of a record
    "batch/record.py",  # the same of a report's line; finds a source's name in an error
}
FAST = "--reference=none"


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A file whose layer has a hostile name."""
    path = tmp_path_factory.mktemp("hostile") / "x.h5"
    weights = {f"{NAME}/{role}/kernel:0": (4, 3, 5) for role in ("query", "key", "value")}
    weights[f"{NAME}/attention_output/kernel:0"] = (3, 5, 7)
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [NAME]
        group = file.create_group(NAME)
        for weight, shape in weights.items():
            group[weight] = np.ones(shape, "f4")
        group.attrs["weight_names"] = list(weights)
    return path


def is_safe(text: str) -> bool:
    """Whether nothing in it but line ends controls a terminal, and the name is in it, escaped."""
    return text.replace("\n", "").isprintable() and SHOWN in text


def test_nothing_else_escapes():
    package = PROJECT / "mha_convert"
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "printable"
    }
    assert found == ESCAPING


@pytest.mark.process
@pytest.mark.parametrize("verb", ["inspect", "explain"])
def test_documents(source, verb):
    result = run(verb, source)
    assert is_safe(result.stdout) and not result.stderr
    assert json.loads(run(verb, source, "--json").stdout)["layers"][0]["name"] == NAME  # JSON escapes for itself


@pytest.mark.process
def test_an_error(source, tmp_path):
    result = run("convert", source, tmp_path / "x.pt", FAST, code=1)
    assert is_safe(result.stderr) and result.stderr.count("\n") == 1 and not result.stdout


def test_a_note_and_a_report(source, tmp_path):
    report = mha_convert.convert_file(source, tmp_path / "x.pt", layers=[NAME], prefix="p", reference="none")
    report = replace(report, notes=(f"Layer '{NAME}' is odd.",))
    text = as_plain_text(report_as_text(report))
    assert is_safe(text) and f"Note: Layer '{SHOWN}' is odd." in text.splitlines()
    assert as_plain_text(safe(report_as_text(report))) == text  # as a terminal draws it
    assert report_as_json(report)["notes"] == [f"Layer '{NAME}' is odd."]


@pytest.mark.process
def test_a_batch_and_its_summary(source, tmp_path):
    command = ["batch", source, "--out", tmp_path / "out", FAST, "--jobs", "1"]
    result = run_cli(*command, env={}, cwd=tmp_path, code=1)
    assert is_safe(result.stdout) and is_safe(result.stderr)
    assert is_safe(run("report", tmp_path / "out" / "report.jsonl").stdout)


def test_an_error_is_escaped_once():
    error = ReadError(f"{NAME} is a folder.")
    assert str(error) == f"{SHOWN} is a folder."
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), str(MhaConvertError(str(error)))) == (ReadError, str(error), str(error))


def test_of_a_long_error_the_middle_gives_way():
    for name, longest in (("a" * 64_000, 300), ("a " * 32_000, LONGEST + 40)):
        text = str(ReadError(f"x.h5: layer '{name}' is a folder. Use --layer b."))
        assert text.startswith("x.h5: layer 'a") and text.endswith("' is a folder. Use --layer b.")
        assert re.search(r"… \(64,0\d\d characters\) …", text) and len(text) < longest
        assert str(ReadError(text)) == text


@pytest.mark.process
def test_commands_in_a_long_error_stay_whole(tmp_path):
    """Cut inside a quoted word, a name would run when the line is pasted."""
    names = [f"{number}'; touch PWNED #" * 1000 for number in range(4)]
    rows = " ".join(option("--attention", name, IN_ERRORS) for name in names)
    commands = f"{rows} {layer_options(names)}"
    text = str(ReadError(f"{'x' * 64_000}: some fact. Use {commands}"))
    assert text.endswith(commands)
    subprocess.run(["bash", "-c", f": {commands}"], cwd=tmp_path, check=True)
    assert not list(tmp_path.iterdir())
