"""Runs of the command during which something goes wrong, for ``test_faults``."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

SECONDS = 120  # nothing here takes so long
PROGRAM = ("-m", "mha_convert")


def as_in_a_terminal() -> None:
    """Shells start what runs in the background, perhaps these tests, with Ctrl-C ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*arguments: object, cwd: Path, program: Sequence[str] = PROGRAM, before: Callable[[], None] | None = None):
    """The command in a process group of its own, as a terminal starts it."""

    def prepare() -> None:
        as_in_a_terminal()
        if before is not None:
            before()

    return subprocess.Popen(
        [sys.executable, "-B", *program, *map(str, arguments)],  # a limit of sizes would cut off Python's .pyc files
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=prepare,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def run(*arguments: object, cwd: Path, **options) -> tuple[int, str, str]:
    """From beginning to end."""
    return finish(start(*arguments, cwd=cwd, **options))


def prepared(prelude: str) -> tuple[str, str]:
    """The command in a Python that runs ``prelude`` first: for faults that no machine makes at will."""
    begin = "import sys\nsys.argv = ['mha-convert', *sys.argv[1:]]\nfrom mha_convert.__main__ import main"
    return "-c", f"{begin}\n{prelude}\nmain()"


def one_line(result: tuple[int, str, str], *parts: str) -> None:
    """The run ended with exit code 1, and says why in one line."""
    code, out, err = result
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert err.startswith("error: ") and all(part in err for part in parts), err


def names(folder: Path) -> list[str]:
    """What is in a folder, hidden files too."""
    return sorted(path.name for path in Path(folder).iterdir())


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Until it holds, or the process has ended."""
    while process.poll() is None and not condition():
        time.sleep(0.001)


def group_is_gone(leader: int) -> bool:
    """Whether no process of the group is left within a moment."""
    for _ in range(500):
        try:
            os.killpg(leader, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    os.killpg(leader, signal.SIGKILL)
    return False
