"""``.npz``: weights by their paths, ``encoder/attn/query_dense/kernel``. An example of docs/extending.md."""

from collections.abc import Collection
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np

from ..errors import ReadError
from ..files.source import Source
from ..records.source import Array, Checkpoint, Group, Variable
from .keras3.consistency import refuse_architecture
from .keras3.json_text import Json
from .probe import Probe

FORMAT, TITLE, END = "numpy-archive", "NumPy archive", ".npy"
SUFFIXES, FOLDERS, BESIDE = (".npz",), (), ""
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def parts(names: Collection[str]) -> frozenset[str]:
    """None: an archive is a model by itself."""
    return frozenset()


def accepts(probe: Probe) -> bool:
    """A zip of arrays that are called like Keras' sub-layers."""
    names = probe.members or ()
    return all(name.endswith(END) for name in names) and any("/query_dense/" in name for name in names)


def read(source: Source, architecture: Json | None = None) -> Checkpoint:
    """Describe the arrays; raises ``ReadError`` for a damaged file."""
    refuse_architecture(architecture, source)
    tree: dict[str, Any] = {}
    try:
        with source.open() as file, ZipFile(file) as archive:
            for member in archive.infolist():
                *parents, name = member.filename.removesuffix(END).split("/")
                inside = tree
                for parent in parents:
                    inside = inside.setdefault(parent, {})
                inside[name] = described(source, archive, member)
    except (BadZipFile, ValueError) as error:
        raise ReadError(f"{source} is not an intact .npz file: {error}. Copy it again.") from error
    return Checkpoint(path=str(source), format=FORMAT, has_config=False, root=group("", tree))


def described(source: Source, archive: ZipFile, member: ZipInfo) -> Variable:
    """One array; its header must fit the member's size, and that the stored bytes."""
    with archive.open(member) as stream:
        shape, _, dtype = HEADERS[np.lib.format.read_magic(stream)](stream)
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if dtype.hasobject or size != member.file_size - stream.tell():
            raise ValueError(f"'{member.filename}' does not hold what its header says")
    if member.file_size > source.limits.ratio * member.compress_size:
        raise ValueError(f"'{member.filename}' would become too large")

    def read_array() -> Array:
        with source.open() as file, ZipFile(file) as archive, archive.open(member.filename) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)

    return Variable(path=member.filename.removesuffix(END), shape=shape, dtype=dtype.name, read=read_array)


def group(path: str, tree: dict[str, Any]) -> Group:
    """A level of the tree, and all below it."""
    below = {name: item for name, item in tree.items() if isinstance(item, dict)}
    return Group(
        path=path,
        name=path,
        variables={name: item for name, item in tree.items() if isinstance(item, Variable)},
        children={name: group(f"{path}/{name}".lstrip("/"), item) for name, item in below.items()},
    )
