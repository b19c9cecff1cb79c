"""What a reader gets: a place, the limits that hold for it, and a note of every file that is looked into."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from ..records.source import Array, FileState
from . import locations
from .limits import STRANGER, Limits
from .locations import Location, store_errors


@dataclass(frozen=True, slots=True)
class Source:
    """A file or folder, here or behind a URL. What is derived from one shares its limits and its note.

    Args:
        place: where it is.
        limits: the most that is read of it.
        seen: the state of every local file, as it was before it was read; the first one counts.
    """

    place: Location
    limits: Limits = STRANGER
    seen: dict[Path, FileState] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        """The path or URL, for messages."""
        return str(self.place)

    @property
    def name(self) -> str:
        """Its last part."""
        return self.place.name

    @property
    def is_remote(self) -> bool:
        """Whether the bytes are in a store, and not on a disk of this machine."""
        return locations.is_remote(self.place)

    def at(self, place: Location) -> "Source":
        """Another place, read as this one is."""
        return replace(self, place=place)

    def child(self, *names: str) -> "Source":
        """What is called so in this folder."""
        return self.at(self.place.joinpath(*names))

    def beside(self, name: str) -> "Source":
        """What is called so in the same folder."""
        return self.at(self.place.with_name(name))

    @property
    def folder(self) -> "Source":
        """The folder that it is in."""
        return self.at(self.place.parent)

    def children(self, pattern: str | None = None) -> "list[Source]":
        """What is in this folder, or as much of it as is called like the pattern."""
        with store_errors(self.place):
            return [self.at(place) for place in (self.place.glob(pattern) if pattern else self.place.iterdir())]

    def exists(self) -> bool:
        """Whether there is anything."""
        return locations.exists(self.place)

    def is_file(self) -> bool:
        """Whether there is a file; a web server is asked for its header only."""
        return locations.is_file(self.place)

    def is_folder(self) -> bool:
        """Whether there is a folder."""
        with store_errors(self.place):
            return locations.is_folder(self.place)

    def size(self) -> int:
        """Bytes in the file; a store that does not say has none until it is read."""
        self.note()
        return locations.size_of(self.place)

    def open(self) -> IO[bytes]:
        """The file, open for reading; of one in a store only what is asked for is fetched, and kept.

        Raises:
            ReadError: it is a device, pipe or socket.
            OSError: it cannot be opened.
        """
        self.note()
        return locations.open_binary(self.place)

    def fetch(self, start: int, size: int) -> Array:
        """``size`` bytes from ``start`` on, read-only: a view of a local file, a range from a store."""
        self.note()
        return locations.fetch(self.place, start, size)

    def note(self) -> None:
        """Remember the state of a local file before it is read."""
        if isinstance(self.place, Path) and self.place not in self.seen:
            with suppress(OSError):  # whoever opens it says what is wrong
                self.seen[self.place] = locations.state_of(self.place)
