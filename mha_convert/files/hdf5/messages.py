"""A message between the two processes: its length (4 bytes), JSON, and as many bytes as its ``payload`` says."""

import json
import struct
from typing import IO, Any

LENGTH = struct.Struct(">I")


def send(out: IO[bytes], message: dict[str, Any], payload: Any = b"") -> None:
    """Send one message."""
    text = json.dumps({**message, "payload": len(payload)}).encode()
    out.write(LENGTH.pack(len(text)) + text)
    out.write(payload)
    out.flush()


def receive(source: IO[bytes], most: int) -> dict[str, Any]:
    """One message without its payload; ``EOFError`` where the other end is gone."""
    head = source.read(LENGTH.size)
    size = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else most + 1
    text = source.read(size) if size <= most else b""
    if len(text) < size:
        raise EOFError
    message: dict[str, Any] = json.loads(text)
    return message
