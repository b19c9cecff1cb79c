"""Files of words next to the weights: configurations, rules, settings, lists. Any of them may come from a stranger.

Such a file is opened only where it is one (a pipe would never end, and neither would a link to a device), and read no
further than a bound that the caller gives.
"""

from collections.abc import Iterator
from io import BufferedReader, RawIOBase
from typing import IO, cast

from ..errors import ReadError
from .limits import LINE
from .locations import CHUNK, Location, store_errors
from .source import Source


def read_small(source: Source, most: int, holds: str, next_step: str) -> bytes:
    """The whole content.

    Args:
        source: a file, or one in a store.
        most: bytes that it may have.
        holds: what it is, for the message: "JSON".
        next_step: of somebody whose file is larger.

    Raises:
        ReadError: it is larger, or no file.
        OSError: it cannot be opened; the caller says what it was for.
    """
    with store_errors(source.place):
        size, content = source.size(), b""
        if size <= most:
            with source.open() as file:
                content = b"".join(pieces(file, most + 1))
        if max(size, len(content)) > most:
            found = f"{size}" if size > most else f"more than {most}"  # some stores do not tell, and files may grow
            raise ReadError(f"{source} is {found} bytes of {holds}, expected at most {most}. {next_step}.")
    return content


def pieces(file: IO[bytes], most: int) -> Iterator[bytes]:
    """The content up to ``most`` bytes, without asking for so much memory at once."""
    while most > 0 and (piece := file.read(min(most, CHUNK))):
        most -= len(piece)
        yield piece


def lines_of(file: IO[bytes], path: Location) -> Iterator[bytes]:
    """The lines of an open file, each with its end.

    Raises:
        ReadError: a line without an end in sight.
    """
    number = 0
    buffered = BufferedReader(cast(RawIOBase, file))  # files of a store read lines of any length only
    while line := buffered.readline(LINE + 1):
        number += 1
        if len(line) > LINE:
            raise ReadError(f"{path}: line {number} is longer than {LINE} bytes. Look at what wrote it.")
        yield line
    buffered.detach()
