"""``report.jsonl``: a line for each source, written when it ends, whatever happens to this process afterwards.

A source that was done again has several lines; the last one counts.
"""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ..errors import ReadError, WriteError, reason
from ..files.locations import (
    Location,
    StrPath,
    exists,
    is_endless,
    locate,
    open_binary,
    publish,
    scratch_file,
    store_errors,
)
from ..files.small_files import lines_of
from .record import SourceReport, is_a_record

NAME = "report.jsonl"
SEND_EVERY = 30  # seconds: an object in a store is replaced whole


def read_report(place: StrPath) -> Iterator[SourceReport]:
    """The lines of a report; the last one may be half written, and is left out then.

    Raises:
        ReadError: missing, or no such report.
    """
    path = locate(place)
    try:
        with store_errors(path), open_binary(path) as file:
            for number, line in enumerate(lines_of(file, path), 1):
                if line.endswith(b"\n"):
                    yield parse(line, number, path)
    except OSError as error:
        raise ReadError(f"{path} cannot be opened: {reason(error)}. Check the path.") from error


def parse(line: bytes, number: int, path: Location) -> SourceReport:
    """One line."""
    try:
        report = SourceReport(**json.loads(line))
        if not is_a_record(report):
            raise ValueError
    except (ValueError, TypeError, RecursionError) as error:
        raise ReadError(
            f"{path}: line {number} is not a line of a report, expected what batch writes. "
            f"Pass a {NAME} of mha-convert."
        ) from error
    return report


@dataclass
class Journal:
    """The report of a run that is under way; ``local`` is the file, or a copy of it that is sent to its store."""

    place: Location
    local: Path
    file: IO[bytes] = field(repr=False)
    sent: float = 0.0

    def write(self, report: SourceReport) -> None:
        """One line, on its way to the disk before the next source is looked at."""
        try:
            self.file.write(json.dumps(report.to_dict()).encode() + b"\n")
            self.file.flush()
        except OSError as error:
            raise WriteError(f"{self.place} cannot be written: {reason(error)}. Free space, and --resume.") from error
        if self.local is not self.place and time.monotonic() - self.sent > SEND_EVERY:
            self.send()

    def send(self) -> None:
        """Bring the copy to its store."""
        if self.local is not self.place:
            publish(self.local, self.place)
            self.sent = time.monotonic()

    def close(self) -> None:
        """Close the report at the end of the run, and send it to its store."""
        self.file.close()
        self.send()


def open_journal(folder: Location, *, keep: bool) -> Journal:
    """The report in ``folder``: a new one, or the one that is there without what a killed run half wrote.

    Raises:
        WriteError: the folder cannot be written to, or another run writes to it.
    """
    place = folder / NAME
    try:
        if not isinstance(folder, Path) or not isinstance(place, Path):
            local = scratch_file(NAME)
            local.write_bytes(whole_lines(place) if keep else b"")
            return Journal(place, local, local.open("ab"))
        if is_endless(place):
            raise WriteError(f"{place} is a device, pipe or socket, expected a file. Remove it, or use another --out.")
        folder.mkdir(parents=True, exist_ok=True)
        file = place.open("ab")
        lock(file, place)
        file.truncate(len(whole_lines(place)) if keep else 0)
    except OSError as error:
        raise WriteError(f"{place} cannot be written: {reason(error)}. Use another --out.") from error
    return Journal(place, place, file)


def whole_lines(place: Location) -> bytes:
    """What is in the report, up to its last line end."""
    with store_errors(place):
        if not exists(place):
            return b""
        with open_binary(place) as file:
            content = file.read()
    return content[: content.rfind(b"\n") + 1]


def lock(file: IO[bytes], place: Path) -> None:
    """Let no second run into the folder; the system opens the lock when this process ends. Windows has no such lock."""
    with suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise WriteError(
                f"{place.parent}: another run of batch is writing to it. Wait until it has ended, or use another --out."
            ) from error
