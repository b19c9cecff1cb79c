"""What a file may ask for. Where the bytes in the file bound a size, they do, and no number here.

``--trust`` (``trust=True``) lifts these limits, for files whose author is known. Bounds that belong to one format (of
TensorFlow's index and graph, of what is looked for in an archive) are constants of its reader.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

RAISE = "If you trust the file's author, give --trust (trust=True), which lifts this limit"
ENDLESS = 1 << 62


@dataclass(frozen=True)
class Limits:
    """The most that is read of one file.

    Args:
        json: bytes of a model's JSON.
        json_depth: objects and lists in one another.
        objects: groups and arrays.
        depth: groups in one another.
        name: bytes of a name.
        attribute: bytes of an HDF5 attribute.
        ratio: of inflated to stored bytes; deflate cannot do better than 1032:1.
        memory: bytes beyond the arrays themselves that reading HDF5 may take; 0 for any.
        seconds: of a processor that reading an HDF5 file's structure, or one of its arrays, may take; 0 for any.
        speed: bytes of an array that are read in a second, at least.
    """

    json: int = 32 << 20
    json_depth: int = 200
    objects: int = 200_000
    depth: int = 64
    name: int = 64 << 10
    attribute: int = 64 << 20
    ratio: int = 1100
    memory: int = 256 << 20
    seconds: int = 2
    speed: int = 10 << 20


STRANGER = Limits()
TRUSTED = Limits(
    json=ENDLESS,
    json_depth=ENDLESS,
    objects=ENDLESS,
    depth=ENDLESS,
    name=ENDLESS,
    attribute=ENDLESS,
    ratio=ENDLESS,
    memory=0,
    seconds=0,
)
_chosen: ContextVar[Limits] = ContextVar("limits", default=STRANGER)


def limits() -> Limits:
    """Those of the file that is being read."""
    return _chosen.get()


@contextmanager
def trusting(trust: bool) -> Iterator[None]:
    """Read with the limits for a stranger's file, or with none."""
    token = _chosen.set(TRUSTED if trust else STRANGER)
    try:
        yield
    finally:
        _chosen.reset(token)
