"""Every example in README.md and docs/ is run; links lead somewhere; every verb and option is described."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PROJECT

import mha_convert

PAGES = [
    PROJECT / "README.md",
    PROJECT / "CONTRIBUTING.md",
    PROJECT / "CHANGELOG.md",
    *sorted((PROJECT / "docs").glob("*.md")),
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*)$", re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    return BLOCK.findall(page.read_text())


def script(page: Path) -> str:
    """A shell script that runs the page's blocks in order; Python blocks share one namespace by growing."""
    lines, python = ["set -e"], ""
    for number, (language, text) in enumerate(blocks(page)):
        if language == "python":
            python += text
            lines.append(f"cat > page{number}.py <<'END_OF_BLOCK'\n{python}\nEND_OF_BLOCK\npython page{number}.py")
        if language == "console":
            # Installation is run by .ci/run, word for word.
            lines += [command for command in COMMAND.findall(text) if "pip install" not in command]
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page, samples, tmp_path):
    for pattern in ("*.keras", "*.h5", "expected.npz"):
        for path in samples.glob(pattern):
            shutil.copyfile(path, tmp_path / path.name)
    (tmp_path / "samples").symlink_to(samples)  # the README stands beside it
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    result = subprocess.run(
        ["bash", "-c", script(page)],
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_every_page_is_reachable_from_the_readme():
    text = (PROJECT / "README.md").read_text() + (PROJECT / "docs" / "README.md").read_text()
    for page in (PROJECT / "docs").glob("*.md"):
        assert page.name in text


@pytest.mark.parametrize("verb", ["inspect", "convert", "verify", "explain", "batch", "report"])
def test_every_verb_and_option_is_described(verb):
    text = (PROJECT / "docs" / "cli.md").read_text()
    environment = os.environ | {"COLUMNS": "200"}
    help_text = subprocess.run(
        [sys.executable, "-m", "mha_convert", verb, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    ).stdout
    assert f"mha-convert {verb}" in text
    for option in set(re.findall(r"--[a-z][a-z-]+", help_text)) - {"--help"}:
        assert f"`{option}" in text or f" {option}" in text, option


@pytest.mark.parametrize("name", mha_convert.__all__)
def test_every_public_name_is_described(name):
    assert f"`{name}" in (PROJECT / "docs" / "python.md").read_text()


def test_the_json_keys_are_described(samples):
    import json

    text = (PROJECT / "docs" / "cli.md").read_text()
    run = [sys.executable, "-m", "mha_convert"]
    inspected = json.loads(
        subprocess.run(
            [*run, "inspect", samples / "translator.h5", "--json"], capture_output=True, text=True, check=True
        ).stdout
    )
    for key in [*inspected, *inspected["layers"][0], *inspected["layers"][0]["placements"]["projected"]]:
        assert f"`{key}`" in text, key


def test_ci_runs_the_readmes_commands():
    readme = (PROJECT / "README.md").read_text()
    commands = [command for command in COMMAND.findall(readme) if "pip install" in command]
    assert len(commands) == 2
    assert "README.md" in (PROJECT / ".ci" / "run").read_text()
