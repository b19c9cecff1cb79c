"""Bounds of the dependencies: the lower ones are those that ``lowest.txt`` tests, and all have an upper one."""

import re
import sys

import pytest
from environment import PROJECT, TESTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEPENDENCIES = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
BOUNDS = {
    match[1]: (match[2], match[3])
    for text in DEPENDENCIES
    if "python_version" not in text and (match := re.fullmatch(r"([\w-]+)>=([\d.]+),<(\d+)", text))
}


def test_every_dependency_has_both_bounds():
    plain = [text for text in DEPENDENCIES if "python_version" not in text]
    assert len(BOUNDS) == len(plain) == 10


def test_the_lower_bounds_are_those_that_are_tested():
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (TESTS / "lowest.txt").read_text(), re.MULTILINE))
    lower = {name: bound for name, (bound, _) in BOUNDS.items() if name != "torch"}
    assert {name: numbers(version) for name, version in pinned.items()} == {
        name: numbers(bound) for name, bound in lower.items()
    }


def test_the_ci_installs_the_newest_of_everything_but_torch():
    """Point 10 of issue 12: README's commands pin nothing, and `.ci/run` nothing but torch, in a new environment."""
    readme = re.findall(r"^\$ (.*pip install.*)$", (PROJECT / "README.md").read_text(), re.MULTILINE)
    run = (PROJECT / ".ci" / "run").read_text()
    assert len(readme) == 2 and not [command for command in readme if re.search(r"==|<|--constraint| -c ", command)]
    assert re.findall(r"([\w.-]+)==", run) == ["torch"] and "rm -rf .venv\n" in run
    assert not re.search(r"--constraint| -c \S*\.txt|--find-links|--no-index", run)


def numbers(version: str) -> tuple[int, ...]:
    """A version's three numbers."""
    found = [int(part) for part in re.findall(r"\d+", version.partition("+")[0])]
    return (*found, 0, 0)[:3]


@pytest.mark.parametrize("name", BOUNDS)
def test_what_is_installed_lies_between_them(name):
    from importlib.metadata import version

    lower, upper = map(numbers, BOUNDS[name])
    assert lower <= numbers(version(name)) < upper
