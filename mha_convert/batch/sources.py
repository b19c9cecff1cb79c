"""Which saved models are meant by what a user names: files, folders, globs, lists and URLs."""

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import ReadError, reason
from ..files.limits import LIST as LONGEST_LIST
from ..files.locations import (
    STANDARD_INPUT,
    StrPath,
    exists,
    is_folder,
    is_remote,
    is_url,
    locate,
    store_errors,
    without_query,
)
from ..files.small_files import read_small
from ..files.source import Source as FileSource
from ..readers import SUFFIXES, is_model_folder, parts

LIST = "@"
MAGIC, URL_MAGIC = re.compile(r"[*?[]"), re.compile(r"[*[]")  # a question mark in a URL begins its query
SETTINGS = "mha-convert.toml"


@dataclass(frozen=True, slots=True)
class Source:
    """A saved model: its path or URL, its place in the tree of the sources, and the settings that are nearest to it."""

    place: str
    tree: str
    settings: str | None = None


def find(sources: Sequence[StrPath], pattern: str | None = None) -> tuple[Source, ...]:
    """Every saved model that is meant, once, in the order given.

    Args:
        sources: files; folders, which are searched; globs (``**`` is any depth); ``@list.txt`` with one of these in
            each line; URLs of these.
        pattern: which files of a folder are models, by their name or path in it; None for those with Keras' suffixes.

    Raises:
        ReadError: a list or a folder cannot be read, or there is no model at all.
    """
    found: dict[str, Source] = {}
    alone: list[str] = []
    for place in listed(map(str, sources)):
        for item in matches(place):
            if is_searched(item):
                for source in search(item, pattern):
                    found.setdefault(source.place, source)
            else:
                alone.append(item)
                found.setdefault(item, Source(item, item))
    for source in with_common_folder(alone):
        if found[source.place].tree == source.place:
            found[source.place] = source
    if not found:
        what = f"files like {pattern!r}" if pattern else f"saved models ({', '.join(SUFFIXES)}, SavedModels)"
        raise ReadError(f"{', '.join(map(str, sources))} holds no {what}. Check the path, or use --pattern.")
    return tuple(found.values())


def listed(places: Iterable[str]) -> Iterator[str]:
    """The places, with the lines of lists in their stead."""
    for place in places:
        if place == STANDARD_INPUT:
            raise ReadError("Standard input is one file, and a batch takes the places of many. Pass it to convert.")
        if not place.startswith(LIST):
            yield place
            continue
        path = locate(place.removeprefix(LIST))
        try:
            text = read_small(FileSource(path), LONGEST_LIST, "places", "Split it into several lists")
            lines = text.decode("utf-8").splitlines()
        except (OSError, ValueError) as error:
            why = reason(error) if isinstance(error, OSError) else "it is not text in UTF-8"
            raise ReadError(f"{path}: the list cannot be read: {why}. Check the path.") from error
        yield from (line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))


def matches(place: str) -> list[str]:
    """What a glob matches, sorted; a place without stars is itself."""
    if not (URL_MAGIC if is_url(place) else MAGIC).search(place) or (not is_url(place) and exists(Path(place))):
        return [place]
    if not is_url(place):
        return globbed(place)
    folder = locate(fixed_part(place))
    if not is_remote(folder):
        return globbed(str(locate(place)))
    with store_errors(folder):
        store: Any = folder
        scheme = place.partition("://")[0]
        return sorted(f"{scheme}://{found}" for found in store.fs.glob(place.partition("://")[2]))


def globbed(pattern: str) -> list[str]:
    """What a glob matches on this machine's disks."""
    return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - a pattern of several parts, absolute or not


def fixed_part(place: str) -> str:
    """The folder before the first part with a star."""
    parts = place.split("/")
    first = next(number for number, part in enumerate(parts) if URL_MAGIC.search(part))
    return "/".join(parts[:first])


def is_searched(place: str) -> bool:
    """Whether it is a folder of models, and not a model itself."""
    path = locate(place)
    with store_errors(path):
        return is_folder(path) and not is_model_folder({item.name for item in path.iterdir()})


def search(folder: str, pattern: str | None) -> Iterator[Source]:
    """The models below a folder."""
    names = sorted(listing(folder))
    folders = {str(PurePosixPath(name).parent): name for name in names if PurePosixPath(name).name == SETTINGS}
    for name in models(names, pattern):
        near = next((str(up) for up in [*PurePosixPath(name).parents] if str(up) in folders), None)
        settings = None if near is None else joined(folder, folders[near])
        yield Source(joined(folder, name), str(PurePosixPath(name.lstrip("/"))), settings)


def joined(folder: str, name: str) -> str:
    """A path or URL below a folder."""
    return f"{folder.rstrip('/')}/{name}" if is_url(folder) else str(Path(folder, name))


def listing(folder: str) -> Iterator[str]:
    """Every file below a folder, as a path in it with slashes; links to folders are not followed."""
    path = locate(folder)
    if not isinstance(path, Path):
        store: Any = path
        with store_errors(path):
            for name in store.fs.find(store.path):
                yield name.removeprefix(store.path.rstrip("/")).removeprefix("/")  # keys may hold // and /./
        return

    def refuse(error: OSError) -> None:
        raise ReadError(f"{error.filename} cannot be searched: {reason(error)}. Check its permissions.") from error

    for place, _, files in os.walk(path, onerror=refuse):
        for name in files:
            yield Path(place, name).relative_to(path).as_posix()


def models(names: Sequence[str], pattern: str | None) -> list[str]:
    """Which of a tree's files are models, and which of its folders."""
    folders = by_folder(names)
    below = {folder: parts(members) for folder, members in folders.items()}
    wholes = [folder for folder, members in folders.items() if is_model_folder(members)]
    found = [name for name in names if is_wanted(name, pattern) and not is_part(name, below)]
    return sorted(found + [folder for folder in wholes if pattern is None or like(folder, pattern)])


def is_wanted(name: str, pattern: str | None) -> bool:
    """Whether a file's name is that of a model."""
    return name.lower().endswith(SUFFIXES) if pattern is None else like(name, pattern)


def like(name: str, pattern: str) -> bool:
    """Whether the pattern describes the whole path, or its last part."""
    return fnmatchcase(name, pattern) or fnmatchcase(PurePosixPath(name).name, pattern)


def by_folder(names: Iterable[str]) -> dict[str, set[str]]:
    """The files of each folder, and those of the folders in it as ``folder/file``."""
    found: dict[str, set[str]] = {}
    for name in names:
        for folder, member in places_of(name):
            found.setdefault(folder, set()).add(member)
    return found


def places_of(name: str) -> Iterator[tuple[str, str]]:
    """A file as a member of its folder, and of the folder above."""
    path = PurePosixPath(name)
    yield str(path.parent), path.name
    if path.parent.name:
        yield str(path.parent.parent), f"{path.parent.name}/{path.name}"


def is_part(name: str, below: Mapping[str, frozenset[str]]) -> bool:
    """Whether a file belongs to a model that is found by another of its files; ``below`` are such files by folder."""
    return any(member in below[folder] for folder, member in places_of(name))


def with_common_folder(places: Sequence[str]) -> Iterator[Source]:
    """Files that were named one by one: their tree is what is below the deepest folder that holds all of them."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for place in places:
        whole = without_query(place) if is_url(place) else Path(os.path.normpath(Path(place).absolute())).as_posix()
        kinds.setdefault(place.partition("://")[0] if is_url(place) else "", []).append((place, whole))
    for items in kinds.values():
        folder = os.path.commonpath([str(PurePosixPath(whole).parent) for _, whole in items])
        for place, whole in items:
            tree = PurePosixPath(whole).relative_to(PurePosixPath(folder)).as_posix()
            yield Source(place, tree, settings_beside(place))


def settings_beside(place: str) -> str | None:
    """The settings in a named file's own folder."""
    path = locate(place)
    beside = path.parent / SETTINGS
    with store_errors(path):
        return str(beside) if exists(beside) else None
