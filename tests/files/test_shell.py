"""A command that is printed for pasting passes names on and runs nothing in them (issue 12, point 2)."""

import contextlib
import shutil
import subprocess
from dataclasses import replace

import pytest
from layer_cases import CASES, make_layer
from strangers import NAMES

import mha_convert
from mha_convert.cli import app
from mha_convert.errors import printable
from mha_convert.files.shell import LONGEST, command, layer_options, option, quoted
from mha_convert.keys import matching, proposal


def words_of(text, folder):
    """The words that bash makes of a command, which it does not run."""
    shown = subprocess.run(
        ["bash", "-c", f"show() {{ printf '%s\\0' \"$@\"; }}; show {text}"], cwd=folder, capture_output=True, check=True
    )
    return [word.decode("utf-8", "surrogateescape") for word in shown.stdout.split(b"\0")[:-1]]


def as_file(name):
    """A path that no program takes for an option."""
    return f"./{name}" if name.startswith("-") else name


@pytest.mark.process
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_is_one_word_and_nothing_runs(name, tmp_path):
    text = command("mha-convert inspect", name) + " " + option("--layer", name)
    found = words_of(text, tmp_path)
    assert found[:3] == ["mha-convert", "inspect", as_file(name)]
    assert found[3:] == ([f"--layer={name}"] if name.startswith("-") else ["--layer", name])
    assert not list(tmp_path.iterdir())
    assert printable(text) == text  # one line as it stands: an error does not change it


def test_ordinary_names_are_not_quoted():
    assert command("mha-convert explain", "models/a-b.keras") == "mha-convert explain models/a-b.keras"


@pytest.mark.process
def test_a_word_of_a_megabyte_is_cut_and_stays_text(tmp_path):
    text = quoted("a'; touch PWNED #" * 60_000)
    assert len(text) < 8 * LONGEST
    words_of(text, tmp_path)
    assert not list(tmp_path.iterdir())


def test_windows_has_powershells_quotes(monkeypatch):
    monkeypatch.setattr("mha_convert.files.shell.os.name", "nt")
    assert quoted(r"C:\Nets\x.keras") == r"C:\Nets\x.keras"
    assert quoted("a'; calc #") == "'a''; calc #'"
    assert quoted("$(calc)") == "'$(calc)'"
    assert quoted("a\u2019; calc #") == "'a\u2019\u2019; calc #'"  # there, curly quotes are quotes
    assert quoted("@args") == "'@args'"


def test_zsh_looks_for_no_program():
    assert quoted("=ls") == "'='ls" and option("--layer", "=a b") == "--layer '=''a b'"


@pytest.mark.process
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_every_command_that_is_printed(name, tmp_path, monkeypatch, capsys):
    """The lines of ``explain``, the rules of ``--like``, the layers that an error proposes, and what a report ends with."""
    monkeypatch.chdir(tmp_path)
    source = f"{name}.keras"
    shutil.copy(mha_convert_samples() / "six_heads.keras", source)
    layer = replace(make_layer(CASES[0]), name=name)
    assert words_of(layer_options([name]), tmp_path)[-1].removeprefix("--layer=") == name
    with contextlib.suppress(SystemExit):
        app(["explain", "--", source, "attention"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  $ mha-convert convert")]
    assert words_of(line.removeprefix("  $ "), tmp_path)[:3] == ["mha-convert", "convert", as_file(source)]
    report = mha_convert.convert_file(source, "x.pt", overwrite=True)
    from mha_convert.words.conversion import report_as_text

    more = report_as_text(report)[-1].partition("More: ")[2]
    assert words_of(more, tmp_path) == ["mha-convert", "explain", as_file(source)]
    alignment = matching.align([layer], {"a." + key: tensor.shape for key, tensor in tensors_of(layer).items()})
    assert len(alignment.pairs) == 1
    rows, rules = [f"{name}:x=1"], tmp_path / "rules.toml"
    if not name.isprintable() or set("{}*") & set(name):  # no key of a rule
        with pytest.raises(
            mha_convert.LayoutError, match="which rules cannot hold|which no module of PyTorch can be called"
        ):
            proposal.write_rules(alignment, source, rules, attention=rows, overwrite=True)
    else:
        found = words_of(proposal.write_rules(alignment, source, rules, attention=rows, overwrite=True), tmp_path)
        assert as_file(source) in found and any(word.removeprefix("--layer=") == name for word in found)
        assert any(word.removeprefix("--attention=") == rows[0] for word in found)
    assert not (tmp_path / "PWNED").exists()


def mha_convert_samples():
    from environment import PROJECT

    return PROJECT / "samples"


def tensors_of(layer):
    return {
        tensor.key.partition(".")[2] or tensor.key: tensor
        for tensor in mha_convert.convert(mha_convert.plan([layer], prefix="x"))
    }
