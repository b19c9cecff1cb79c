"""Every example in README.md, docs/ and samples/ runs and prints what is shown, and links lead somewhere.

Every verb, option, key and signature is documented.
"""

import ast
import importlib.util
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from environment import IN_CI, PROJECT, SUPPORT

import mha_convert

PAGES = [
    PROJECT / "README.md",
    PROJECT / "CONTRIBUTING.md",
    PROJECT / "CHANGELOG.md",
    *sorted((PROJECT / "docs").glob("*.md")),
    PROJECT / "samples" / "README.md",
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
LEFT_OUT = "…"  # in a shown output: a part of a line, or any number of lines where it stands alone
HAS_KERAS = importlib.util.find_spec("keras") is not None
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    return BLOCK.findall(page.read_text())


def commands(text: str) -> list[tuple[str, str]]:
    """The commands of a block that are run, each with the output that is shown below it.

    Installation is run by .ci/run, word for word. Genuine Keras is not asked where there is none, but in CI.
    """
    found = [(command, shown) for command, shown in COMMAND.findall(text) if "pip install" not in command]
    return [(command, shown) for command, shown in found if HAS_KERAS or IN_CI or "--reference keras" not in command]


def steps(page: Path, printed: Path) -> tuple[list[list[str]], list[str]]:
    """What ``page_runner`` does for a page, and what the page shows of each command's output.

    What command number N prints goes to the file N in ``printed``.
    """
    found, shown = [], []
    for language, text in blocks(page):
        if language == "python":
            found.append([language, text])
        if language == "console":
            for command, output in commands(text):
                found.append([language, command, str(printed / str(len(shown)))])
                shown.append(output)
    return found, shown


def agrees(shown: str, printed: str) -> bool:
    """Whether a command printed what is shown, but for what ``…`` leaves out; blanks at the ends do not count."""
    pattern = ""
    for line in shown.strip().splitlines():
        parts = (re.escape(part) for part in line.rstrip().split(LEFT_OUT))
        pattern += r"(?:.*\n)*" if line.strip() == LEFT_OUT else ".*".join(parts) + r"\n"
    lines = "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())
    return re.fullmatch(pattern, lines) is not None


@pytest.mark.process
@pages
def test_examples_run(page, samples, tmp_path):
    """Point 15 of issue 12: they also print what is shown."""
    folder, printed = tmp_path / "page", tmp_path / "printed"
    folder.mkdir()
    printed.mkdir()
    for pattern in ("*.keras", "*.h5", "expected.npz"):
        for path in samples.glob(pattern):
            shutil.copyfile(path, folder / path.name)
    (folder / "samples").symlink_to(samples)  # the README stands beside it
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    found, shown = steps(page, printed)
    result = subprocess.run(
        [sys.executable, SUPPORT / "page_runner.py"],
        input=json.dumps(found),
        cwd=folder,
        env=os.environ | {"PATH": path, "COLUMNS": "120", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for number, output in enumerate(shown):
        text = (printed / str(number)).read_text()
        assert not output.strip() or agrees(output, text), f"{page.name} shows:\n{output}\nPrinted was:\n{text}"


def test_outputs_are_shown_and_compared():
    """Point 15 of issue 12: the comparison of outputs sees those of the pages."""
    shown = {page.name: sum(bool(output.strip()) for output in steps(page, Path())[1]) for page in PAGES}
    assert {"batch.md", "cli.md", "formats.md", "layouts.md", "proof.md"} <= {name for name in shown if shown[name]}


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("one\ntwo\n", True),
        ("one\n", False),
        ("one\ntwo\nthree\n", False),
        ("one\ntw\n", False),
        ("…ne\nt…o\n", True),
        ("…\n", True),
        ("one\n…\n", True),
        ("one\n…\ntwo\n", True),
        ("…\none\n", False),
        ("…\nthree\n…\n", False),
        ("o.e\ntwo\n", False),
    ],
)
def test_an_output_that_is_not_printed_is_noticed(shown, expected):
    assert agrees(shown, "one  \ntwo\n\n") is expected


MESSAGE = re.compile(r'(?<![\w(=`])"([^"]+ [^"]+)"')
QUOTE = re.compile(r"(?:^> .*\n)+", re.MULTILINE)
# What a message says of one file: names in quotes, code, sizes, files, numbers, classes, arrays.
VALUE = re.compile(r"'[^']*'|`[^`]*`|\([^)]*\)|\S*\.\w+|\b\d+\b|\b[A-Z]\w*[A-Z]\w*|\b\w+_\w+")


def messages(text: str) -> list[str]:
    """The messages that a page quotes in its tables and in block quotes."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    cells = [message for line in prose.splitlines() if line.startswith("|") for message in MESSAGE.findall(line)]
    return cells + [" ".join(line[2:] for line in quote.splitlines()) for quote in QUOTE.findall(prose)]


@cache
def literals() -> str:
    """Every string of the package and of the other tests, which compare messages; of an f-string, its fixed parts."""
    files = {*(PROJECT / "mha_convert").rglob("*.py"), *(PROJECT / "tests").rglob("*.py")} - {Path(__file__)}
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text()))]
    return "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def is_said(words: str) -> bool:
    """Whether a string has these words; of more than four, the last or the first two may be from elsewhere."""
    every = words.split()
    parts = [every, every[:-1], every[2:]] if len(every) > 4 else [every]
    return any(" ".join(part) in literals() for part in parts)


def not_said(message: str) -> list[str]:
    """Words of a quoted message that no string has; ``…`` and values separate them."""
    parts = [part.strip(" .()") for part in message.split(LEFT_OUT)]
    runs = [run.strip(" .,:;()") for part in parts if part not in literals() for run in VALUE.split(part)]
    return [run for run in runs if " " in run and not is_said(run)]


@pytest.mark.parametrize("page", ["formats.md", "layers.md"])
def test_quoted_messages_are_those_of_the_code(page):
    found = messages((PROJECT / "docs" / page).read_text())
    assert len(found) > 10
    assert not [(message, missing) for message in found if (missing := not_said(message))]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("the file holds no value kernel", True),
        ("the file has no value kernel", False),
        ("attends over axes (-7,) of an input of rank 9, which are not between …", True),
        ("attends along axes (-7,) of an input of rank 9, which are not between …", False),
    ],
)
def test_a_message_that_the_code_does_not_have_is_noticed(message, expected):
    assert (not not_said(message)) is expected


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pages
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        if not target.startswith("http"):
            place = page.parent / target if target else page
            assert place.exists(), target
            assert not anchor or anchor in anchors(place), (target, anchor)


def test_every_page_is_reachable_from_the_readme():
    text = (PROJECT / "README.md").read_text() + (PROJECT / "docs" / "README.md").read_text()
    for page in (PROJECT / "docs").glob("*.md"):
        assert page.name in text


def test_the_tree_of_the_package_is_the_real_one():
    """docs/architecture.md names every file and folder of the package; a name with its slash is a folder."""
    text = (PROJECT / "docs" / "architecture.md").read_text()
    (tree,) = re.findall(r"^mha_convert/\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    package = PROJECT / "mha_convert"
    real = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in package.iterdir()
        if path.is_file() or [*path.glob("*.*")]
    }
    assert set(re.findall(r"^    (\w\S*)", tree, re.MULTILINE)) == real - {"__pycache__/", "py.typed"}


@pytest.mark.process
@pytest.mark.parametrize(
    "verb", ["inspect", "convert", "model", "keys", "match", "verify", "explain", "batch", "report"]
)
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


CALL = re.compile(r"^(?:\| )?`(\w+)\((.*?)\)`", re.MULTILINE)


def signature_shown(arguments: str) -> list[tuple[str, str, str]]:
    """Name, kind and default of each argument, as a page writes them."""
    found = ast.parse(f"def f({arguments}): ...").body[0].args
    required = len(found.args) - len(found.defaults)
    plain = zip(found.args, [None] * required + found.defaults, strict=True)
    rows = [(item, "POSITIONAL_OR_KEYWORD", default) for item, default in plain]
    rows += [(item, "KEYWORD_ONLY", default) for item, default in zip(found.kwonlyargs, found.kw_defaults, strict=True)]
    rows += [(found.kwarg, "VAR_KEYWORD", None)] if found.kwarg else []
    return [(item.arg, kind, "" if default is None else ast.unparse(default)) for item, kind, default in rows]


def signature_of(function) -> list[tuple[str, str, str]]:
    """The same of a function."""
    return [
        (item.name, item.kind.name, "" if item.default is item.empty else repr(item.default))
        for item in inspect.signature(function).parameters.values()
    ]


def test_signatures_are_those_of_the_functions():
    """Point 15 of issue 12."""
    calls = CALL.findall((PROJECT / "docs" / "python.md").read_text())
    functions = {name for name in mha_convert.__all__ if inspect.isfunction(getattr(mha_convert, name))}
    shown = [(name, arguments) for name, arguments in calls if name in functions and "..." not in arguments]
    assert {name for name, _ in shown} == functions
    for name, arguments in shown:
        assert signature_shown(arguments) == signature_of(getattr(mha_convert, name)), name


@pytest.mark.process
def test_the_json_keys_are_described(samples):
    text = (PROJECT / "docs" / "cli.md").read_text()
    run = [sys.executable, "-m", "mha_convert"]
    inspected = json.loads(
        subprocess.run(
            [*run, "inspect", samples / "translator.h5", "--json"], capture_output=True, text=True, check=True
        ).stdout
    )
    for key in [*inspected, *inspected["layers"][0], *inspected["layers"][0]["layouts"]["mha"]]:
        assert f"`{key}`" in text, key


def test_ci_runs_the_readmes_commands():
    readme = (PROJECT / "README.md").read_text()
    installing = [command for command, _ in COMMAND.findall(readme) if "pip install" in command]
    assert len(installing) == 2
    assert "README.md" in (PROJECT / ".ci" / "run").read_text()


def test_help_is_complete():
    """Every option of every verb says what it is for."""
    from mha_convert.cli import app

    for command in app.registered_commands:
        assert command.callback.__doc__ and command.epilog
