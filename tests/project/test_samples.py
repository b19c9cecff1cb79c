"""The samples run, and contain what genuine Keras wrote."""

import subprocess
import sys

import pytest
from environment import PROJECT

SCRIPTS = sorted(path.name for path in (PROJECT / "samples").glob("*.py") if path.name != "make_samples.py")


@pytest.mark.process
@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_run(samples, tmp_path, script):
    result = subprocess.run(
        [sys.executable, samples / script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "largest difference" in result.stdout
    assert not list(tmp_path.iterdir())


def test_the_two_seeds_of_the_project_are_samples():
    assert {"textbook.py", "six_heads.py"} <= set(SCRIPTS)


def test_samples_are_small(samples):
    assert sum(path.stat().st_size for path in samples.iterdir() if path.is_file()) < 300_000
