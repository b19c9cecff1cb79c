"""What a process and its child say to each other, in both directions: words, and blocks of bytes as they are.

A message is the length of its JSON (4 bytes), the JSON ``[words, sizes]``, and a block for each of ``sizes``.
"""

import json
import os
import signal
import struct
from collections.abc import Mapping
from typing import IO, Any, NamedTuple

LENGTH = struct.Struct(">I")
MOST = 1 << 30  # bytes of JSON


class Message(NamedTuple):
    """Words, and what goes with them."""

    words: dict[str, Any]
    blocks: list[bytes]


class Channel:
    """Two pipes: messages come out of ``source`` and go into ``out``."""

    def __init__(self, source: IO[bytes], out: IO[bytes]) -> None:
        self.source, self.out = source, out

    def say(self, words: Mapping[str, Any], *blocks: bytes | memoryview) -> None:
        """Send one message; the blocks are written from where they are."""
        text = json.dumps([words, [memoryview(block).nbytes for block in blocks]]).encode()
        self.out.write(LENGTH.pack(len(text)) + text)
        for block in blocks:
            self.out.write(block)
        self.out.flush()

    def hear(self) -> Message:
        """Wait for one message.

        Raises:
            EOFError: the other end is gone.
            ValueError: what it wrote is not a message.
        """
        (size,) = LENGTH.unpack(self.exactly(LENGTH.size))
        if size > MOST:
            raise ValueError(size)
        words, sizes = json.loads(self.exactly(size))
        return Message(words, [self.exactly(size) for size in sizes])

    def exactly(self, size: int) -> bytes:
        """``size`` bytes."""
        content = self.source.read(size)
        if len(content) < size:
            raise EOFError
        return content


def to_parent() -> Channel:
    """The child's end. From here on whatever prints goes to stderr, and Ctrl-C is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")  # Python cannot end while a thread reads stdin
    os.dup2(2, 1)
    return Channel(source, out)
