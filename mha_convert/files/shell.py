"""Commands that are printed for pasting: every word reaches the program as it is, and nothing in it is run."""

import os
import re
import shlex
from collections.abc import Sequence

from ..errors import printable

LONGEST = 1000  # characters of a word; a longer one is cut, and the command is for reading only
PLAIN_IN_POWERSHELL = r"[\w./\\:+=-]+"
QUOTES_OF_POWERSHELL = "['\u2018\u2019\u201a\u201b]"  # each ends a text in single quotes, and is one if there are two


def command(program: str, path: object) -> str:
    """A whole command, a program's fixed words and a file: for a POSIX shell, or PowerShell on Windows."""
    return f"{program} {file(path)}"


def option(name: str, value: object) -> str:
    """An option with its value, which may begin with a dash."""
    return f"{name}={quoted(value)}" if str(value).startswith("-") else f"{name} {quoted(value)}"


def file(path: object) -> str:
    """A path as an argument: one that begins with a dash would be an option."""
    return quoted(f"./{path}" if str(path).startswith("-") else path)


def quoted(word: object) -> str:
    """One word as a shell takes it: one line, and whatever is in it is text.

    Words with characters that cannot be printed are written as ``$'…'``, which bash and zsh read.
    """
    text = str(word)
    if len(text) > LONGEST:
        return quoted(text[:LONGEST]) + "…"
    if os.name == "nt":
        text = printable(text, LONGEST)
        return (
            text
            if re.fullmatch(PLAIN_IN_POWERSHELL, text)
            else "'" + re.sub(QUOTES_OF_POWERSHELL, r"\g<0>\g<0>", text) + "'"
        )
    if text.startswith("="):  # zsh looks for a program of the name behind it
        return f"'='{quoted(text[1:]) if text[1:] else ''}"
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
    shown = [option("--layer", name) for name in names[:most]]
    return " ".join(shown) + (f" (and {len(names) - most} more)" if len(names) > most else "")
