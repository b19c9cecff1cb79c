"""Where a file is: on a disk of this machine, or at a URL of a store that fsspec knows.

A URL becomes a ``UPath``, which has ``pathlib``'s methods, so the readers do not tell the two apart. Only what the two
do differently is here: opening, reading a range of bytes, and bringing a file here or there. Both libraries are
imported when the first URL is met.
"""

import atexit
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol
from urllib.parse import urlsplit

import numpy as np

from ..errors import ReadError, WriteError, reason
from ..records.source import KERAS_MODULES, Array, FileState

StrPath = str | os.PathLike[str]
STANDARD_INPUT = "-"
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # two letters at least: C:// is a drive
QUERY, VERSION = r"[?#]", r"\?versionId="
SMALL = 4 << 20  # a file of this size is fetched whole, with one request
BLOCK = 64 << 10  # Keras scatters the descriptions of arrays between the arrays: larger blocks fetch mostly weights
BLOCKS_KEPT = 512
CHUNK = 16 << 20
BLOBS = "blobs"  # the Hugging Face cache keeps contents there, and links to them in snapshots/<commit>
WHOLE_OBJECTS = {
    "s3",
    "s3a",
    "gs",
    "gcs",
    "hf",
    "abfs",
    "abfss",
    "az",
    "adl",
    "memory",
}  # appear complete or not at all
EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "hf": "hf", "http": "http", "https": "http"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a path is to lead to, and what people give instead of it, by the packages that its class comes from."""

    what: str
    instead: Mapping[str, str]
    otherwise: str

    def next_step(self, thing: object) -> str:
        """The way on, by the first class of ``thing`` that is known."""
        homes = [base.__module__.split(".")[0] for base in type(thing).__mro__]
        return next((step for home, step in self.instead.items() if home in homes), self.otherwise)


SAVE_KERAS = (
    "Save the model with model.save('model.keras') and pass that path; for one layer in memory use from_keras_layer"
)
SAVE_TORCH = "Save your PyTorch model with torch.save(model.state_dict(), 'model.pt') and pass that path"
IN_KERAS = dict.fromkeys(KERAS_MODULES, SAVE_KERAS)
SOURCE = Wanted("the path or URL of a saved Keras model", IN_KERAS, "Pass it as text, 'model.keras'")
CONFIG = Wanted("the path of a file with the model's JSON", {}, "Write model.to_json() to a file and pass its path")
MODEL = Wanted("the path of a state_dict", {}, SAVE_TORCH)
FILE = Wanted("a path or URL", {}, "Pass it as text, 'attention.safetensors'")


class Location(Protocol):
    """What ``pathlib.Path`` and ``UPath`` share, as far as it is used of a place that may be either."""

    @property
    def name(self) -> str:
        """The last part."""

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""

    @property
    def parent(self) -> "Location":
        """The folder that it is in."""

    def __truediv__(self, name: str, /) -> "Location":
        """What is called so in this folder."""

    def joinpath(self, *names: str) -> "Location":
        """The same, of several folders."""

    def with_name(self, name: str, /) -> "Location":
        """What is called so in the same folder."""

    def glob(self, pattern: str, /) -> "Iterable[Location]":
        """What is in this folder and called like the pattern."""

    def iterdir(self) -> "Iterable[Location]":
        """What is in this folder."""

    def stat(self) -> os.stat_result:
        """Its kind and size."""

    def exists(self) -> bool:
        """Whether there is anything."""

    def is_file(self) -> bool:
        """Whether there is a file."""

    def is_dir(self) -> bool:
        """Whether there is a folder."""

    def open(self, mode: Any, /) -> IO[Any]:
        """The file, open."""


def refuse_object(place: object, wanted: Wanted = FILE) -> None:
    """Refuse what is not a path: a live model, None, a number, an array.

    Raises:
        ReadError: with what was given, and the next step.
    """
    if isinstance(place, str | os.PathLike) or hasattr(place, "fs"):  # a URL of fsspec is no PathLike
        return
    title = "None" if place is None else f"an object of class {type(place).__name__}"
    raise ReadError(f"{title[0].upper()}{title[1:]}: expected {wanted.what}. {wanted.next_step(place)}.")


def is_url(place: StrPath) -> bool:
    """Whether ``place`` is written as a URL."""
    return bool(URL.match(str(place)))


def is_remote(path: Location) -> bool:
    """Whether the bytes are in a store, and not on a disk of this machine."""
    return not isinstance(path, Path)


def name_of(place: StrPath) -> str:
    """The last part of a path or URL, without a URL's query."""
    return PurePosixPath(without_query(str(place))).name if is_url(place) else Path(place).name


def without_query(url: str) -> str:
    """A web server's address without ``?…`` and ``#…``; in other stores these are letters of a name."""
    return re.split(QUERY if url.lower().startswith(("http://", "https://")) else VERSION, url)[0]


def locate(place: StrPath) -> Location:
    """The path, or the URL as an object with the same methods.

    Raises:
        ReadError: a URL of a kind that needs a package which is not installed, or of an unknown kind.
    """
    refuse_object(place)
    if not is_url(place):
        return Path(place)
    scheme, _, rest = str(place).partition("://")
    scheme = scheme.lower()
    text = f"{scheme}://{rest}"
    if scheme == "file":
        return local_path(text)
    try:
        located: Location = import_module("upath").UPath(text)
        store: Any = located
        store.fs  # noqa: B018 - the store's own package is imported here
    except ImportError as error:
        extra = EXTRAS.get(scheme, "remote")
        raise ReadError(
            f"{text}: reading {scheme}:// needs a package that is not installed: {error}. "
            f'Run `pip install "mha-convert[{extra}]"`.'
        ) from error
    except Exception as error:  # every store has errors of its own
        raise ReadError(f"{text} is not an address that can be read: {cause(error)}. Check it.") from error
    if not store.path.strip("/"):
        raise ReadError(f"{text} names no file. Pass it with its path: {scheme}://…/model.keras.")
    return located


def local_path(url: str) -> Path:
    """The path in a ``file://`` URL, which escapes what URLs do not allow."""
    from urllib.request import url2pathname  # with all of HTTP: only where such a URL is met

    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise ReadError(f"{url} names the machine '{parts.netloc}'. Write file:///path.")
    return Path(url2pathname(parts.path))


def cause(error: BaseException) -> str:
    """What a store's error says, in one line."""
    if isinstance(error, FileNotFoundError):  # web servers: whatever they answered, fsspec says that there is none
        answered = error.__cause__ if getattr(error.__cause__, "status", 404) != 404 else None
        return str(answered) if answered else "there is no such file"
    return reason(error) if isinstance(error, OSError) else str(error) or type(error).__name__


@contextmanager
def store_errors(path: Location) -> Iterator[None]:
    """Errors of a store, which are of its own classes, as ``ReadError``; a local file's pass unchanged."""
    try:
        yield
    except (ReadError, WriteError):
        raise
    except Exception as error:
        if not is_remote(path):
            raise
        raise ReadError(
            f"{path}: the store does not return it: {cause(error)}. "
            "Check the address, the network and your credentials."
        ) from error


def state_of(path: Path) -> FileState:
    """Which file it is, and what changes when it is written to."""
    now = path.stat()
    return FileState(path=str(path), device=now.st_dev, inode=now.st_ino, size=now.st_size, modified=now.st_mtime_ns)


def refuse_changed(files: Iterable[FileState]) -> None:
    """Files that were read are still the same.

    Raises:
        ReadError: one was written to, replaced or removed.
    """
    for file in files:
        try:
            is_same = state_of(Path(file.path)) == file
        except OSError:
            is_same = False
        if not is_same:
            raise ReadError(
                f"{file.path} changed while it was read. Wait until it is complete, or copy it, and convert again."
            )


def is_one_of(path: Location, files: Iterable[FileState]) -> bool:
    """Whether a path leads to one of the files, by whatever links."""
    try:
        now = path.stat()
    except OSError:
        return False
    return any((now.st_dev, now.st_ino) == (file.device, file.inode) for file in files)


def open_binary(path: Location) -> IO[bytes]:
    """The file, open for reading. From a store only the blocks that are asked for are fetched, and kept.

    Raises:
        ReadError: it is a device, pipe or socket, or a link to one, which may have no end.
        OSError: it cannot be opened.
    """
    if not is_remote(path):
        refuse_endless(path)
        return path.open("rb")
    with store_errors(path):
        store: Any = path
        if size_of(path) <= SMALL:
            return store.open("rb", cache_type="all")
        options = {"maxblocks": BLOCKS_KEPT}
        return store.open("rb", cache_type="blockcache", block_size=BLOCK, cache_options=options)


def refuse_endless(path: Location) -> None:
    """Refuse what is neither a file nor a folder; the system itself says what is wrong with a folder.

    Raises:
        ReadError: it is a device, pipe or socket.
    """
    if is_endless(path):
        raise ReadError(f"{path} is a device, pipe or socket, expected a file. Pass a file on a disk.")


def is_endless(path: Location) -> bool:
    """Whether a local path leads to a device, pipe or socket."""
    with suppress(OSError):  # whoever opens it says what is wrong
        mode = path.stat().st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return False


def size_of(path: Location) -> int:
    """Bytes in the file; a store that does not say has none until it is read."""
    with store_errors(path):
        return path.stat().st_size or 0


def exists(path: Location) -> bool:
    """Whether there is anything; a name that no file can have, or a folder that may not be looked into, has nothing."""
    if is_remote(path):
        return path.exists()
    with suppress(OSError):
        return path.exists()
    return False


def is_folder(path: Location) -> bool:
    """Whether there is a folder, in the same way."""
    if is_remote(path):
        return path.is_dir()
    with suppress(OSError):
        return path.is_dir()
    return False


def is_link_out(folder: Location, file: Location) -> bool:
    """Whether a file is elsewhere than in ``folder``, by whatever links, or in the cache that the folder is of.

    A store has no links.
    """
    if not isinstance(folder, Path) or not isinstance(file, Path):
        return False
    home = folder.resolve()
    homes = (home, home.parent.parent / BLOBS) if home.parent.name == "snapshots" else (home,)
    return not any(file.resolve().is_relative_to(place) for place in homes)


def is_file(path: Location) -> bool:
    """Whether there is a file; a web server is asked for its header only."""
    if not is_remote(path):
        with suppress(OSError):  # a name that no file can have
            return path.is_file()
        return False
    with store_errors(path):
        try:
            return stat.S_ISREG(path.stat().st_mode)
        except FileNotFoundError:
            return False


def fetch(path: Location, start: int, size: int) -> Array:
    """``size`` bytes from ``start`` on, as a read-only array: a view of a local file, a range from a store."""
    if not size:
        return np.empty(0, np.uint8)
    if isinstance(path, Path):
        return np.memmap(path, np.uint8, "r", start, (size,))
    with store_errors(path):
        store: Any = path
        content = store.fs.cat_file(store.path, start=start, end=start + size)
        if len(content) > size and len(content) == size_of(path):  # a web server that knows no ranges
            content = content[start : start + size]
    if len(content) != size:
        raise ReadError(f"{path} gave {len(content)} bytes at {start}, expected {size}. It changed or is damaged.")
    return np.frombuffer(content, np.uint8)


@cache
def scratch() -> Path:
    """A folder for copies of what cannot be read in place; removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="mha-convert-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def scratch_file(name: str) -> Path:
    """A new name in a folder of its own, so that messages show the file's own name."""
    return Path(tempfile.mkdtemp(dir=scratch())) / (name or "file")


def local_copy(path: Location) -> Path:
    """``path`` itself where it is local; else a copy of it in the scratch folder."""
    if isinstance(path, Path):
        return path
    copy = scratch_file(name_of(str(path)))
    store: Any = path
    with store_errors(path):
        store.fs.get_file(store.path, str(copy))
    return copy


def seekable(path: Location) -> Location:
    """``path``, or a copy of it where the store only gives it from beginning to end."""
    if not is_remote(path):
        return path
    if size_of(path) == 0 or (size_of(path) > SMALL and not gives_ranges(path)):
        return local_copy(path)
    return path


def gives_ranges(path: Location) -> bool:
    """Whether the store gives one byte when it is asked for one; some web servers give all, or refuse."""
    store: Any = path
    try:
        return len(store.fs.cat_file(store.path, start=1, end=2)) == 1
    except Exception:  # whatever is wrong, reading all of it will tell
        return False


def standard_input() -> Path:
    """A copy of what comes in through the pipe."""
    if sys.stdin.isatty():
        raise ReadError("Standard input is a terminal, expected a file through a pipe. Pass a path or a URL.")
    copy = scratch_file("standard-input")
    spool(sys.stdin.buffer, copy)
    return copy


def spool(source: IO[bytes], copy: Path) -> None:
    """Write everything that ``source`` gives to ``copy``."""
    try:
        with copy.open("wb") as file:
            shutil.copyfileobj(source, file, CHUNK)
    except OSError as error:
        raise ReadError(
            f"{copy.name} cannot be copied to {copy.parent}: {reason(error)}. "
            "Free space, or set TMPDIR to a larger disk."
        ) from error


def publish(copy: Path, target: Location) -> None:
    """Bring a finished local file to a store, and make sure that it arrived byte for byte.

    Raises:
        WriteError: the store refuses, or gives back something else.
    """
    store: Any = target
    at_once = store.protocol in WHOLE_OBJECTS
    draft = store if at_once else store.with_name(f".{store.name}.draft")
    try:
        store.fs.put_file(str(copy), draft.path)
        arrived = same_bytes(copy, draft)
        if not arrived:
            store.fs.rm_file(draft.path)
        elif not at_once:
            store.fs.mv(draft.path, store.path)
    except Exception as error:  # every store has errors of its own
        raise WriteError(
            f"{target}: the store does not accept it: {cause(error)}. Check the address and your permissions."
        ) from error
    if not arrived:
        raise WriteError(f"{target} came back from the store with other bytes, and was removed. Try again.")


def same_bytes(copy: Path, store: Any) -> bool:
    """Whether the store gives the bytes of ``copy``."""
    store.fs.invalidate_cache()
    with copy.open("rb") as ours, store.open("rb", cache_type="readahead", block_size=CHUNK) as theirs:
        while part := ours.read(CHUNK):
            if theirs.read(len(part)) != part:
                return False
        return not theirs.read(1)
