"""Pythons of our own, started so that they import what this one imports, and nothing from the current folder.

``python -m`` and ``python -c`` look for modules in the current folder first: a ``json.py`` next to a downloaded model
would run. A child is isolated (``-I``: no current folder, no ``PYTHON…`` variables) and is given its folders by name.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from {module} import main; main()"


def python(module: str, *, folders: Sequence[str] | None = None, site: bool = True) -> list[str]:
    """The command of a child that runs ``main()`` of a module of this package.

    Args:
        module: its full name.
        folders: where it finds modules, after its own Python's library; None for those of this process.
        site: whether it has installed packages by itself, which editable installations need.
    """
    # Names of files are decoded, and .pyc files written, as here: -I does not look at PYTHON… variables.
    own = ["-I", "-X", f"utf8={sys.flags.utf8_mode}", *(["-B"] if sys.dont_write_bytecode else [])]
    own += [] if site else ["-S"]
    if folders is None:
        return [sys.executable, *own, "-c", PROGRAM.format(module=module), *importable()]
    program = PROGRAM.replace("sys.path[:] =", "sys.path +=").format(module=module)
    return [sys.executable, *own, "-c", program, *folders]


def importable() -> list[str]:
    """The folders of this process, without those that are relative to the current one; the package's own last."""
    named = [place for place in sys.path if Path(place).is_absolute()]
    return list(dict.fromkeys([*named, str(Path(__file__).parents[3])]))
