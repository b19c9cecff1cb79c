"""Commands that are printed for pasting: every word reaches the program as it is, and nothing in it is run."""

import os
import re
import shlex
from collections.abc import Sequence

from ..errors import printable

LONGEST = 1000  # characters of a quoted word; a longer one is cut, and the command is for reading only
IN_ERRORS = 300  # the same in an error, where errors.bounded must not cut into a command
EXPANDED = 16  # characters that quoting makes of one at most
PLAIN_IN_POWERSHELL = r"[\w./\\:+=-]+"
QUOTES_OF_POWERSHELL = "['\u2018\u2019\u201a\u201b]"  # each ends a text in single quotes, and is one if there are two


def command(program: str, path: object, most: int = LONGEST) -> str:
    """A whole command, a program's fixed words and a file: for a POSIX shell, or PowerShell on Windows."""
    return f"{program} {file(path, most)}"


def option(name: str, value: object, most: int = LONGEST) -> str:
    """An option with its value, which may begin with a dash."""
    return f"{name}{'=' if str(value).startswith('-') else ' '}{quoted(value, most)}"


def file(path: object, most: int = LONGEST) -> str:
    """A path as an argument: one that begins with a dash would be an option."""
    return quoted(f"./{path}" if str(path).startswith("-") else path, most)


def quoted(word: object, most: int = LONGEST) -> str:
    """One word as a shell takes it: one line, all of it text; cut where it has more than ``most`` characters.

    Words with characters that cannot be printed are written as ``$'…'``, which bash and zsh read.
    """
    text = str(word)
    whole = quoted_whole(text[:most])
    return whole if len(text) <= most >= len(whole) else quoted_whole(text[: most // EXPANDED]) + "…"


def quoted_whole(text: str) -> str:
    """A word of any length, quoted."""
    if os.name == "nt":
        text = printable(text)
        return (
            text
            if re.fullmatch(PLAIN_IN_POWERSHELL, text)
            else "'" + re.sub(QUOTES_OF_POWERSHELL, r"\g<0>\g<0>", text) + "'"
        )
    if text.startswith("="):  # zsh looks for a program of the name after it
        return f"'='{quoted_whole(text[1:]) if text[1:] else ''}"
    return shlex.quote(text) if text.isprintable() else "$'" + "".join(map(escaped, text)) + "'"


def escaped(character: str) -> str:
    """One character inside ``$'…'``; a byte of a file's name that is no text is a lone surrogate in Python."""
    if character in "\\'":
        return "\\" + character
    if character.isprintable():
        return character
    is_byte = "\udc80" <= character <= "\udcff"
    encoded = character.encode("utf-8", "surrogateescape" if is_byte else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in encoded)


def layer_options(names: Sequence[str], most: int = 4) -> str:
    """The ``--layer`` options that name some layers, shortened where they are more than ``most``."""
    shown = [option("--layer", name, IN_ERRORS) for name in names[:most]]
    return " ".join(shown) + (f" (and {len(names) - most} more)" if len(names) > most else "")
