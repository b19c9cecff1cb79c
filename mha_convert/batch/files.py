"""What tells one state of a source from another: its files, their sizes and times, their SHA-256."""

import json
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from ..files.locations import Location, is_file, is_folder, is_remote, locate, open_binary, store_errors
from ..readers import files_beside

CHUNK = 1 << 20
TAGS = ("ETag", "etag", "md5Hash", "content_md5", "blob_id")
TIMES = ("LastModified", "last_modified", "updated", "mtime", "created")


def files_of(place: str) -> list[Path]:
    """The local files of a source: itself, a folder's, or an index with what it lists."""
    path = Path(place)
    if is_folder(path):
        return sorted(item for item in path.rglob("*") if is_file(item))
    if several := files_beside(path.name):
        return [path, *sorted(path.parent.glob(several[1]))]
    return [path]


def state_of(place: str) -> str | None:
    """Changes when the source does, and when it is copied; None where it cannot be told."""
    path = locate(place)
    try:
        if is_remote(path):
            with store_errors(path):
                return remote_state(path)
        seen = [(item, item.stat()) for item in files_of(place)]
    except Exception:  # whoever converts it will say what is wrong
        return None
    facts = [[str(item), at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino] for item, at in seen]
    return sha256(json.dumps(facts).encode()).hexdigest()[:32]


def remote_state(path: Location) -> str:
    """What the store says of the files of a source; a listing and a question for one file give the same."""
    store: Any = path
    parent, _, name = store.path.rpartition("/")
    if store.fs.isdir(store.path):
        found = store.fs.find(store.path, detail=True)
    elif several := files_beside(name):
        listing = store.fs.find(parent, maxdepth=1, detail=True)
        found = {key: at for key, at in listing.items() if is_beside(key, several[0])}
    else:
        found = {store.path: store.fs.info(store.path)}
    facts = [[key, at.get("size"), identity(at)] for key, at in sorted(found.items())]
    return sha256(json.dumps(facts, default=str).encode()).hexdigest()[:32]


def is_beside(key: str, start: str) -> bool:
    """Whether a file belongs to the index with this name, or is it."""
    return key.rpartition("/")[2].startswith((f"{start}.", f"{start}_"))


def identity(at: Mapping[str, Any]) -> Any:
    """What tells a file's content in a store: its tag, else its time, else whatever the store says."""
    tag = next((at[name] for name in TAGS if at.get(name)), None)
    if tag is None:
        tag = next((at[name] for name in TIMES if at.get(name)), None)
    if isinstance(tag, datetime):
        return tag.timestamp()
    return tag if tag is not None else {name: str(value) for name, value in sorted(at.items())}


def forget_listings(place: str) -> None:
    """Ask the store again: a process that is kept would go by what it was told long ago."""
    path = locate(place)
    if is_remote(path):
        store: Any = path
        store.fs.invalidate_cache()


def sha256_of(place: str) -> str | None:
    """SHA-256 of a local file; of several, of the lines that ``sha256sum`` prints of them; None at a URL."""
    if is_remote(locate(place)):
        return None
    files = files_of(place)
    if files == [Path(place)]:
        return file_sha256(files[0])
    home = Path(place) if is_folder(Path(place)) else Path(place).parent
    lines = (f"{file_sha256(item)}  {item.relative_to(home).as_posix()}\n" for item in files)
    return sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def file_sha256(path: Location) -> str:
    """SHA-256 of a file's content."""
    with open_binary(path) as file:
        return stream_sha256(file)


def stream_sha256(file: IO[bytes]) -> str:
    """SHA-256 of what is left of a file, read piece by piece."""
    found = sha256()
    while part := file.read(CHUNK):
        found.update(part)
    return found.hexdigest()
