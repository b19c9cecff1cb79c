"""The process that reads HDF5.

The HDF5 library ends the whole process, or never returns, on some damaged files. So it runs in a Python
of its own, with limits on memory and processor time, and unable to open any file: it asks its
parent for ranges of bytes, and answers with JSON and the bytes of arrays. ``process`` is the other end.
"""

import codecs
import math
import os
import re
from collections import OrderedDict
from contextlib import suppress
from io import RawIOBase
from pathlib import Path
from typing import IO, Any

import h5py

from ..child.messages import Channel, to_parent
from .structure import DAMAGED, Refusal, array, refused, tree

PAGE, PAGES_KEPT = 8 << 10, 1024  # of the file's structure, which is scattered between the arrays
CODECS = ("ascii", "latin-1", "utf-8")  # that h5py uses
OPEN_FOR_WRITING = b"\1"


class Image(RawIOBase):
    """The HDF5 file as the parent gives it, range by range; small ranges are kept."""

    def __init__(self, parent: Channel, size: int) -> None:
        self.parent, self.size, self.position = parent, size, 0
        self.pages: OrderedDict[int, bytes] = OrderedDict()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move within the file."""
        self.position = {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.size}[whence] + offset
        return self.position

    def tell(self) -> int:
        """Position within the file."""
        return self.position

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer``; h5py calls this."""
        part = memoryview(buffer).cast("B")[: max(0, self.size - self.position)]
        start, stop = self.position, self.position + len(part)
        if len(part) > PAGE:
            part[:] = self.fetch(start, len(part))
        elif len(part):
            pages = range(start // PAGE, (stop - 1) // PAGE + 1)
            joined = b"".join(map(self.page, pages))
            part[:] = joined[start - pages[0] * PAGE : stop - pages[0] * PAGE]
        self.position = stop
        return len(part)

    def page(self, number: int) -> bytes:
        """One page of the file."""
        if number not in self.pages:
            self.pages[number] = self.fetch(number * PAGE, min(PAGE, self.size - number * PAGE))
            if len(self.pages) > PAGES_KEPT:
                self.pages.popitem(last=False)
        return self.pages[number]

    def fetch(self, start: int, size: int) -> bytes:
        """Bytes from the parent."""
        self.parent.say({"start": start, "size": size})
        (content,) = self.parent.hear().blocks
        return content


def answer(image: Image, request: dict[str, Any]) -> tuple[dict[str, Any], list[memoryview]]:
    """What is asked for, or what is wrong with the file."""
    try:
        with open_file(image) as file:
            if request["do"] == "tree":
                return {"tree": tree(file, request)}, []
            return {}, [array(file, request["path"])]
    except Refusal as refusal:
        return {"refused": refusal.answer}, []
    except MemoryError:
        return {"memory": True}, []
    except EOFError:
        raise
    except Exception:
        return {"refused": {**refused(DAMAGED, "has a damaged structure"), "place": ""}}, []


def open_file(image: Image) -> Any:
    """The file, open; how a writer or a copy that was interrupted shows is said."""
    image.seek(0)
    head = image.read(12)
    if head[8:9] >= b"\3" and head[11:] == OPEN_FOR_WRITING:  # from version 3 of the header on
        raise Refusal(DAMAGED, "was not closed by the program that wrote it, which may have crashed")
    image.seek(0)
    try:
        return h5py.File(image, "r")
    except OSError as error:
        cut = re.search(r"truncated file: eof = (\d+).*stored_eof = (\d+)", str(error))
        if cut:
            raise Refusal(DAMAGED, f"has {cut[1]} bytes of HDF5, its header says {cut[2]}: it was cut off") from error
        raise Refusal(DAMAGED, "has a damaged header") from error


def close_files() -> IO[str] | None:
    """From here on no file can be opened; returns where Linux says how much memory is in use, open."""
    statm = Path("/proc/self/statm").open() if Path("/proc/self/statm").exists() else None  # noqa: SIM115
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    return statm


def limit(memory: int, seconds: float, statm: IO[str] | None) -> None:
    """Bound what the next request may take beyond what is in use; 0 is no bound. Windows knows no such limits."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        until = math.ceil(used.ru_utime + used.ru_stime + seconds) if seconds else hard
        resource.setrlimit(resource.RLIMIT_CPU, (until, hard))
        if statm:
            statm.seek(0)
            in_use = int(statm.read().split()[0]) * resource.getpagesize()
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (in_use + memory if memory else hard, hard))


def main() -> None:
    """Answer until the parent is gone."""
    parent = to_parent()
    for name in CODECS:
        codecs.lookup(name)  # loaded while files can be opened
    statm = close_files()
    with suppress(EOFError, BrokenPipeError):
        while True:
            request = parent.hear().words
            limit(request["memory"], request["seconds"], statm)
            words, blocks = answer(Image(parent, request["size"]), request)
            parent.say(words, *blocks)
