"""Tests are where what they test is: the folders of ``tests`` are those of the package, and a few more."""

from environment import PROJECT, TESTS

MORE = {
    "end_to_end": "what a user does, and modules of the package that have no folder",
    "models": "whole models, and models.py of the package",
    "project": "the project itself: imports, docs, samples, the tests",
    "support": "what tests share",
    "golden": "files and outputs of genuine Keras",
    "fuzz": "the fuzzer, which is also a command",
    "extending": "the examples of docs/extending.md",
}
NOT_ALONE = {"records"}  # made by readers, layers and the plan, and tested with them


def folders(root):
    """Folders with Python files, at any depth."""
    return {path.relative_to(root).parts[0] for path in root.glob("*/**/*.py")}


def test_every_folder_of_the_package_has_one_of_tests_and_there_are_few_others():
    assert folders(TESTS) == folders(PROJECT / "mha_convert") - NOT_ALONE | MORE.keys()


def test_every_test_is_in_a_folder():
    assert [path.name for path in TESTS.glob("*.py")] == ["conftest.py"]
    for folder in folders(TESTS) - {"support", "golden", "extending"}:
        assert list((TESTS / folder).glob("test_*.py")), folder
