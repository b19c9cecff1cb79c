"""What a file is recognised by: its beginning, the names in a zip, the root of an HDF5 file; each is read once."""

import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass
from functools import cached_property

from ..errors import ReadError, reason
from ..files.locations import store_errors
from ..files.source import Source
from .hdf5.image import MAGIC as HDF5
from .hdf5.image import Hdf5Group, Hdf5Image
from .tensorflow.bundle import has_index

HEAD_SIZE = 512
ZIP = b"PK\x03\x04"
# What zipfile raises for a damaged archive.
DAMAGED_ZIP = (zipfile.BadZipFile, EOFError, zlib.error, struct.error, ValueError, UnicodeError)


@dataclass(frozen=True)
class Probe:
    """A file or folder as readers look at it before one of them reads it."""

    source: Source

    @cached_property
    def head(self) -> bytes:
        """The first 512 bytes; none of a folder, and none of a checkpoint that is given without a suffix.

        Raises:
            ReadError: there is no such file, or it cannot be opened, or is not a regular file.
        """
        return first_bytes(self.source)

    @cached_property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return not self.head and self.source.is_folder()

    @property
    def is_zip(self) -> bool:
        """Whether it begins as a zip archive does."""
        return self.head.startswith(ZIP)

    @cached_property
    def members(self) -> tuple[str, ...] | None:
        """The names in a zip archive; None for a damaged one, and for any other file."""
        if not self.is_zip:
            return None
        try:
            with self.source.open() as file, zipfile.ZipFile(file) as archive:
                return tuple(archive.namelist())
        except (OSError, NotImplementedError, *DAMAGED_ZIP):
            return None

    @cached_property
    def root(self) -> Hdf5Group | None:
        """The root of an HDF5 file with the names in it; None for any other file.

        Raises:
            ReadError: the HDF5 file is damaged.
        """
        if not self.head.startswith(HDF5):
            return None
        with Hdf5Image(self.source).open(depth=1) as root:
            return root


def first_bytes(source: Source) -> bytes:
    """The beginning of the file, none of a folder; what is no regular file is refused, unopened."""
    try:
        with store_errors(source.place):
            if source.is_remote and not source.is_file() and has_index(source):
                return b""
            mode = source.place.stat().st_mode
            if stat.S_ISDIR(mode):
                return b""
            if not stat.S_ISREG(mode):
                raise ReadError(
                    f"{source} is a device, pipe or socket, expected a file. Pass a file on a disk, or `-` to "
                    "read standard input."
                )
            with source.open() as file:
                return file.read(HEAD_SIZE)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and has_index(source):
            return b""
        raise ReadError(f"{source} cannot be opened: {reason(error)}. Check the path and its permissions.") from error
    except ValueError as error:  # a NUL in the path
        raise ReadError(f"{source.place!r} is not a path ({error}). Check the path.") from error
