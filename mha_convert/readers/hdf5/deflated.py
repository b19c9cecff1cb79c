"""A deflated member of a zip, inflated where it is read: neither to disk nor into memory as a whole.

Keras stores its weights uncompressed; a ``.keras`` that was zipped again by other tools may not.
"""

import zlib
from collections import OrderedDict
from threading import Lock
from typing import Any

from ...errors import ReadError
from ...files.source import Source

PAGE = 8 << 20
PAGES_KEPT = 4
PIECE = 64 << 10


class Deflated:
    """The member's content as ``len()`` and slices. Between pages the decompressor's state is kept (about 40 kB).

    So going back costs one page. Each of the three passes (names and shapes, checksum, numbers) inflates every page.
    """

    def __init__(self, source: Source, start: int, compressed_size: int, size: int) -> None:
        self.source, self.start, self.compressed_size, self.size = source, start, compressed_size, size
        self.states: list[tuple[Any, int]] = [(zlib.decompressobj(-zlib.MAX_WBITS), 0)]
        self.pages: OrderedDict[int, bytes] = OrderedDict()
        self.lock = Lock()

    def __len__(self) -> int:
        """Bytes in the content, as the zip says."""
        return self.size

    def __getitem__(self, part: slice) -> bytes:
        """A range of bytes; ``ReadError`` where the data is damaged."""
        start, stop, _ = part.indices(self.size)
        pages = range(start // PAGE, -(-stop // PAGE)) if stop > start else ()
        return b"".join(
            memoryview(self.page(index))[max(start - index * PAGE, 0) : stop - index * PAGE] for index in pages
        )

    def page(self, index: int) -> bytes:
        """One page, and on the first way to it all before it."""
        with self.lock:
            if index not in self.pages:
                for number in range(min(index, len(self.states) - 1), index + 1):
                    content = self.inflated(number)
                self.pages[index] = content
                if len(self.pages) > PAGES_KEPT:
                    self.pages.popitem(last=False)
            self.pages.move_to_end(index)
            return self.pages[index]

    def inflated(self, index: int) -> bytes:
        """Inflate one page from the state at its beginning."""
        kept, fed = self.states[index]
        state, parts, missing = kept.copy(), [], min(PAGE, self.size - index * PAGE)
        try:
            with self.source.open() as file:
                file.seek(self.start + fed)
                while missing:
                    data = state.unconsumed_tail or file.read(min(PIECE, self.compressed_size - fed))
                    fed += 0 if state.unconsumed_tail else len(data)
                    parts.append(state.decompress(data, missing))
                    missing -= len(parts[-1])
                    if not data and not parts[-1]:
                        raise zlib.error(f"it ends {missing} bytes early")
        except zlib.error as error:
            raise ReadError(
                f"{self.source}: its compressed weights cannot be inflated: {error}. "
                "The file is damaged; copy or download it again."
            ) from error
        if len(self.states) == index + 1:
            self.states.append((state, fed))
        return b"".join(parts)
