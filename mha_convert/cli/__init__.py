"""The command line: the verbs, their options, and what is printed.

Nothing else in the package prints, but ``signals`` and ``streams`` one line each.
"""

import errno
import io
import os
import sys

from ..errors import MhaConvertError
from . import batch
from .screen import fail, print_error, wants_json
from .verbs import app

__all__ = ["app", "batch", "main"]
WRONG_USAGE = 2


def main() -> None:
    """Run the command line; errors of ours become one line, everything else is a bug and keeps its traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old console without our arrows must not end in a traceback
    # Read when NumPy is imported. The proof's matrices are thin; threads take longer to start, and to wait for, than to
    # use (measured: 60 of 140 ms of NumPy's import; several seconds of a proof where others use the machine, too).
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app()
    except MhaConvertError as error:
        fail(type(error).__name__, str(error))
    except SystemExit as end:
        wrong = end.__context__  # typer has printed what is wrong with the command, and ends with 2
        if end.code == WRONG_USAGE and wrong is not None and wants_json():
            print_error("UsageError", getattr(wrong, "format_message", wrong.__str__)())
        raise
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise  # a broken pipe is not our business: __main__ ends silently
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - what is left of the output has nowhere to go
        fail("OSError", "Standard output: no space left on the device. Free space or print elsewhere.")
    except MemoryError:
        fail(
            "MemoryError",
            "There is not enough memory for this layer. Use --layout linear, or one layer at a time with --layer.",
        )
