"""Where everything is on this machine, and what happens if a part of it is missing."""

import os
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent
TESTS = SUPPORT.parent
PROJECT = TESTS.parent
SHARED = Path(os.environ.get("MHA_CONVERT_SHARED", PROJECT.parent / "shared"))
IN_CI = bool(os.environ.get("CI"))


def require(present: bool, what: str) -> None:
    """In CI a missing part of the machine is a failure; elsewhere the test is skipped."""
    if present:
        return
    if IN_CI:
        pytest.fail(f"{what} is missing, and CI is set")
    pytest.skip(f"{what} is missing")
