"""The command line as a user has it: a process of its own."""

import os
import subprocess
import sys


def run(*arguments, cwd=None, code=0, shown=False, **environment):
    """Run the command; check its exit code, and that no error is a traceback or more than a line.

    ``shown`` says that something is printed before the error; with ``--json`` it is the error's document.
    """
    result = subprocess.run(
        [sys.executable, "-m", "mha_convert", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"COLUMNS": "120"} | environment,
    )
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    if code == 1:
        assert bool(result.stdout) == (shown or "--json" in arguments)
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    return result


def run_cli(*arguments, env, cwd, code=0, **options):
    """Run the command with a store's environment; check its exit code."""
    command = [sys.executable, "-m", "mha_convert", *map(str, arguments)]
    result = subprocess.run(
        command, env=os.environ | env, cwd=cwd, capture_output=True, text=True, timeout=120, **options
    )
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    return result
