"""Every error this package raises on purpose.

    MhaConvertError
    ├── ReadError            missing, damaged, hostile or unknown input
    ├── LayerError           no attention, or one that cannot be described
    │   └── NoAttentionError no attention of any kind
    ├── LayoutError          the layer does not fit the layout, or no such layout
    ├── WriteError           target exists, unknown suffix, disk full
    └── VerificationError    PyTorch does not reproduce Keras

A message reads ``<subject with its name or path>: <fact, expected against actual>. <next step>.``
"""

import errno
from collections.abc import Iterable


class MhaConvertError(Exception):
    """Base of all errors of this package; its text is one line, meant for people."""


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


def printable(text: object, limit: int = 200) -> str:
    """Text that came from a file, safe to print: one line, escaped, cut to ``limit`` characters."""
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))
    return escaped if len(escaped) <= limit else f"{escaped[:limit]}… ({len(escaped)} characters)"


def listed(names: Iterable[object], most: int) -> str:
    """Names from a file in quotes, at most so many of them, and how many more there are."""
    every = [f"'{printable(name)}'" for name in names]
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def reason(error: OSError) -> str:
    """What the operating system says of ``error``, without the path that it repeats."""
    if error.errno == errno.ENOENT:
        return "there is no such file"
    return (error.strerror or str(error)).lower() if error.strerror else str(error)
