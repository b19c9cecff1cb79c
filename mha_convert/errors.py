"""Every error this package raises on purpose.

    MhaConvertError
    ├── ReadError            missing, damaged, hostile or unknown input
    ├── LayerError           no attention, or one that cannot be described
    │   └── NoAttentionError no attention of any kind
    ├── LayoutError          the layer does not fit the layout, or no such layout
    ├── WriteError           target exists, unknown suffix, disk full
    └── VerificationError    PyTorch does not reproduce Keras

A message reads ``<subject with its name or path> <fact, expected against actual>. <next step>.``

Names and values from a file are put into a message as they are: ``MhaConvertError`` escapes its text once, as a whole.
Records and JSON hold them as they are, too; ``words.table`` escapes what it prints.
"""

import errno
import re
from collections.abc import Iterable

LONGEST = 4_000  # characters of a message
HEAD = 1_000  # of them that stay at the start of a longer one; the 3,000 at its end hold the next step's commands whole
WORD = 400  # characters without a blank, such as a name; files.shell keeps words of commands shorter
CUT, ROOM = "… ({:,} characters) …", 50  # what stands for the middle, and more characters than it has
LONG_WORD = re.compile(rf"\S{{{WORD + 1},}}")


class MhaConvertError(Exception):
    """Base of all errors of this package; its text is one line, meant for people.

    Args:
        text: the message. Control characters, line breaks and the like are escaped; of a very long word, and of a
            text longer than ``LONGEST``, the middle gives way, so that subject and next step stay.
    """

    def __init__(self, text: str) -> None:
        super().__init__(bounded(text))


class ReadError(MhaConvertError):
    """The source is missing, damaged, hostile, or not a saved Keras model."""


class LayerError(MhaConvertError):
    """The source holds no attention layer, or one whose arrays contradict each other."""


class NoAttentionError(LayerError):
    """The source holds no attention at all: nothing was refused, there is nothing to convert."""


class LayoutError(MhaConvertError):
    """An attention layer cannot be laid out as asked."""


class WriteError(MhaConvertError):
    """The target cannot be written; nothing was left behind."""


class VerificationError(MhaConvertError):
    """The target does not do what the Keras layer does."""


def printable(text: object) -> str:
    """The text in one line without control characters: what cannot be printed is escaped, as in ``\\n``."""
    line = str(text)
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)


def bounded(text: object) -> str:
    """The text as ``printable``, without the middle of very long words, and about ``LONGEST`` characters at most."""
    line = LONG_WORD.sub(lambda word: word[0][:120] + CUT.format(len(word[0])) + word[0][-80:], printable(text))
    if len(line) <= LONGEST + ROOM:
        return line
    return line[:HEAD] + CUT.format(len(line)) + line[HEAD - LONGEST :]


def shortened(value: object, limit: int = 200) -> str:
    """A value that can be long, for the middle of a text: as ``printable``, and cut to ``limit`` characters."""
    line = printable(value)
    return line if len(line) <= limit else f"{line[:limit]}… ({len(line)} characters)"


def listed(names: Iterable[object], most: int) -> str:
    """Names from a file in quotes, at most so many of them, and how many more there are."""
    every = [f"'{shortened(name)}'" for name in names]
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def reason(error: OSError) -> str:
    """What the operating system says of ``error``, without the path that it repeats."""
    if error.errno == errno.ENOENT:
        return "there is no such file"
    return (error.strerror or str(error)).lower() if error.strerror else str(error)
