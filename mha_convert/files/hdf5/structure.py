"""What an HDF5 file holds, as plain data; runs in the worker's process only.

Nothing is read before its size is known, and no link is followed.
"""

import math
from functools import partial
from itertools import count, takewhile
from operator import itemgetter
from typing import Any, NamedTuple

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5l, h5o, h5s, h5t

ATTRIBUTES = (b"name", b"backend", b"keras_version", b"model_config", b"layer_names", b"weight_names")
FILTERS = {1, 2, 3}  # deflate, shuffle, fletcher32
SMALL_CHUNK = 1 << 20  # may be larger than its array
OPAQUE_BFLOAT16 = 2  # bytes
DAMAGED, FOREIGN, LIMIT = "damaged", "foreign", "limit"
LIBRARY_ERRORS = (OSError, RuntimeError, ValueError, KeyError, TypeError, NotImplementedError)


class Refusal(Exception):  # noqa: N818 - an answer to the parent, not an error of ours
    """What is wrong with the file, and of which kind that is."""

    def __init__(self, kind: str, fact: str, place: str = "") -> None:
        super().__init__(fact)
        self.answer = {"kind": kind, "fact": fact, "place": place}


def tree(file: Any, request: dict[str, Any]) -> dict[str, Any]:
    """All groups and arrays, as plain data, down to ``depth`` groups.

    A group is ``{"attributes": …, "members": {name: …}}``; a link to elsewhere ``{"link": true}``; arrays see
    ``described``. What is wrong with one object is in its ``refused``, and does no harm if nobody needs it.
    """
    limits, seen, objects = request["limits"], set(), 0
    root: dict[str, Any] = {}
    pieces: list[Piece] = []
    stack = [(h5o.open(file.id, b"/"), "/", root, 1)]
    while stack:
        group, place, node, depth = stack.pop()
        address = h5o.get_info(group).addr
        if address in seen:
            raise Refusal(FOREIGN, "is a group with two names, or holds itself", place)
        if depth > limits["depth"]:
            raise Refusal(LIMIT, f"is nested more than {limits['depth']} groups deep", place)
        seen.add(address)
        names = names_in(group, place, limits["name"])
        objects += len(names)
        if objects > limits["objects"]:
            raise Refusal(LIMIT, f"holds more than {limits['objects']} groups and arrays")
        node["attributes"] = attributes(group, request["size"], limits["attribute"])
        node["members"] = {}
        for name in names:
            text = name.decode("utf-8", "surrogateescape")
            item, found = member(group, name, request)
            node["members"][text] = found
            if "offset" in found:
                start = found["offset"]
                pieces.append(Piece(start, start + found["size"], found.pop("address"), found))
            if item is not None and depth < request["depth"]:
                stack.append((item, f"{place.rstrip('/')}/{text}", found, depth + 1))
    refuse_shared_bytes(pieces)
    return root


class Piece(NamedTuple):
    """Where the numbers of an array are; ``address`` is its description's, the same for all names of one array."""

    start: int
    end: int
    address: int
    node: dict[str, Any]


def refuse_shared_bytes(pieces: list[Piece]) -> None:
    """Arrays that overlap are refused; one array under two names is what h5py calls a hard link."""
    shared: set[int] = set()
    last: Piece | None = None
    for piece in sorted(pieces, key=itemgetter(0, 1)):
        if last and piece.start < last.end and piece.address != last.address:
            shared |= {piece.address, last.address}
        last = piece if last is None or piece.end > last.end else last
    for piece in pieces:
        if piece.address in shared:
            piece.node["refused"] = refused(DAMAGED, "shares bytes of the file with another array")


def member(group: Any, name: bytes, request: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What is called ``name``: a group to be walked, or None, and what can be said of it now."""
    try:
        if group.links.get_info(name).type != h5l.TYPE_HARD:
            return None, {"link": True}
        item = h5o.open(group, name)
    except LIBRARY_ERRORS:
        return None, {"refused": refused(DAMAGED, "has a damaged description")}
    if isinstance(item, h5d.DatasetID):
        return None, described(item, request)
    if isinstance(item, h5g.GroupID):
        return item, {"attributes": {}, "members": {}}
    return None, {"refused": refused(FOREIGN, "is neither a group nor an array")}


def refused(kind: str, fact: str) -> dict[str, str]:
    """What is wrong with an object."""
    return {"kind": kind, "fact": fact}


def names_in(group: Any, place: str, most: int) -> list[bytes]:
    """What is in a group, in the file's order."""
    try:
        names = list(group)
    except LIBRARY_ERRORS as error:
        raise Refusal(DAMAGED, "has a damaged list of members", place) from error
    longest = max(map(len, names), default=0)
    if longest > most:
        raise Refusal(LIMIT, f"holds a name of {longest} bytes, expected at most {most}", place)
    return names


def attributes(group: Any, size: int, most: int) -> dict[str, dict[str, Any]]:
    """The attributes that Keras writes, and the parts of one that it split."""
    found = {}
    for base in ATTRIBUTES:
        parts = takewhile(partial(exists, group), (base + str(number).encode() for number in count()))
        for name in [base] if exists(group, base) else parts:
            found[name.decode()] = attribute(group, name, size, most)
    return found


def exists(group: Any, name: bytes) -> bool:
    """Whether there is such an attribute; none where the list of them is damaged, as it names nothing."""
    try:
        return bool(h5a.exists(group, name))
    except LIBRARY_ERRORS:
        return False


def attribute(group: Any, name: bytes, size: int, most: int) -> dict[str, Any]:
    """``{"value": …}``; its type and size are known before it is read."""
    try:
        opened = h5a.open(group, name)
        kind, space = opened.get_type(), opened.get_space()
        if kind.get_class() not in (h5t.STRING, h5t.INTEGER, h5t.FLOAT):
            return {"refused": refused(DAMAGED, "has no type that Keras writes")}
        if space.get_simple_extent_type() == h5s.NULL:
            return {"value": []}
        stored = space.get_simple_extent_npoints() * kind.get_size()
        if stored > min(size, most):
            return {"refused": refused(DAMAGED, f"says that it has {stored} bytes, more than can be in the file")}
        value = as_text(h5py.AttributeManager(h5py.Group(group))[name.decode()])
    except MemoryError:
        raise
    except Exception as error:
        if "alloc" in str(error):  # HDF5 says so, and goes on
            raise MemoryError from error
        return {"refused": refused(DAMAGED, "is damaged")}
    long = sum(map(len, filter(is_text, value))) if isinstance(value, list) else 0
    if long > size:  # texts that are in one place of the file
        return {"refused": refused(FOREIGN, f"is {long} characters of text in a file of {size} bytes")}
    return {"value": value}


def is_text(value: Any) -> bool:
    """Whether it is a ``str``."""
    return isinstance(value, str)


def as_text(value: Any) -> Any:
    """Bytes to ``str``, NumPy's arrays and numbers to Python's, element by element."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [as_text(item) for item in value]
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def described(dataset: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Shape, dtype and place of an array: ``offset`` where its bytes are in one piece, as they are."""
    try:
        return facts(dataset, request)
    except Refusal as refusal:
        return {"refused": {key: refusal.answer[key] for key in ("kind", "fact")}}
    except MemoryError:
        raise
    except Exception:
        return {"refused": refused(DAMAGED, "has a damaged description")}


def facts(dataset: Any, request: dict[str, Any]) -> dict[str, Any]:
    """``described``; raises ``Refusal`` for what Keras never writes and what cannot be."""
    creation = dataset.get_create_plist()
    layout, space = creation.get_layout(), dataset.get_space()
    if layout == h5d.VIRTUAL or creation.get_external_count():
        raise Refusal(FOREIGN, "keeps its numbers in another file")
    if space.get_simple_extent_type() == h5s.NULL:
        raise Refusal(FOREIGN, "has no shape")
    shape = [int(size) for size in space.get_simple_extent_dims()]
    kind = dataset.get_type()
    dtype, numbers = numpy_type(kind)
    size, stored = math.prod(shape) * kind.get_size(), dataset.get_storage_size()
    filters = [creation.get_filter(index)[0] for index in range(creation.get_nfilters())]
    if size and not stored:
        raise Refusal(DAMAGED, f"has a shape {tuple(shape)} but no data; the file was not written to its end")
    found = {"shape": shape, "dtype": dtype, "numbers": numbers, "size": size}
    if layout == h5d.CONTIGUOUS and size:
        if stored != size or filters or dataset.get_offset() is None:
            raise Refusal(DAMAGED, f"has {stored} bytes, expected {size} for its shape {tuple(shape)}")
        if dataset.get_offset() + size > request["size"]:
            end = dataset.get_offset() + size
            raise Refusal(DAMAGED, f"would end at byte {end}, but the file has {request['size']}")
        return {**found, "offset": dataset.get_offset(), "address": h5o.get_info(dataset).addr}
    if not set(filters) <= FILTERS or len(set(filters)) < len(filters):
        names = ", ".join(map(str, filters))
        raise Refusal(FOREIGN, f"is stored with the filters {names}, expected gzip (1), shuffle (2), fletcher32 (3)")
    if layout == h5d.CHUNKED and size:
        return {**found, "work": chunks(dataset, creation.get_chunk(), shape, size, filters, kind.get_size(), request)}
    if size > request["size"]:
        raise Refusal(DAMAGED, f"has {size} bytes, more than the file")
    return {**found, "work": size}


def numpy_type(kind: Any) -> tuple[str, bool]:
    """NumPy's name of a type, and whether it is one of numbers, bit for bit."""
    klass = kind.get_class()
    if klass == h5t.OPAQUE:
        return f"|V{kind.get_size()}", kind.get_size() == OPAQUE_BFLOAT16
    if klass in (h5t.INTEGER, h5t.FLOAT):
        dtype = kind.dtype
        if not kind.equal(h5t.py_create(dtype)):
            raise Refusal(FOREIGN, "has numbers of a form that Keras never writes")
        return dtype.str, True
    if klass == h5t.ENUM and kind.dtype.kind == "b":
        return "|b1", True
    names = {h5t.STRING: "text", h5t.COMPOUND: "records", h5t.ARRAY: "arrays", h5t.ENUM: "an enumeration"}
    return names.get(klass, "no numbers"), False


def chunks(dataset: Any, chunk: Any, shape: Any, size: int, filters: Any, item: int, request: Any) -> int:
    """The bytes that reading takes; every chunk is there, and says no more than can be."""
    nominal, limits = math.prod(chunk) * item, request["limits"]
    if nominal > max(size, SMALL_CHUNK):
        raise Refusal(LIMIT, f"has chunks of {nominal} bytes, more than its {size} bytes of numbers")
    expected = math.prod(-(-length // part) for length, part in zip(shape, chunk, strict=True))
    stored = dataset.get_storage_size()
    if size > limits["ratio"] * stored:
        raise Refusal(LIMIT, f"says that {stored} bytes inflate to {size}, more than compression can do")
    if expected * 8 > request["size"]:
        raise Refusal(DAMAGED, f"says that it has {expected} chunks, more than can be in the file")
    found = dataset.get_num_chunks()
    if found != expected:
        raise Refusal(DAMAGED, f"has {found} of its {expected} chunks; the file was not written to its end")
    for index in range(expected):
        info = dataset.get_chunk_info(index)
        if info.byte_offset is None or info.byte_offset + info.size > request["size"]:
            raise Refusal(DAMAGED, "has a chunk beyond the end of the file")
        if info.size > nominal * 1.01 + 4096 or (not filters and info.size != nominal):
            raise Refusal(DAMAGED, f"has a chunk of {info.size} bytes, expected at most {nominal}")
    return size + nominal


def array(file: Any, path: str) -> Any:
    """The numbers of one array; it was described before."""
    dataset = h5py.Dataset(h5o.open(file.id, path.encode("utf-8", "surrogateescape")))
    kind, _ = numpy_type(dataset.id.get_type())
    try:
        content = dataset[()]
    except MemoryError:
        raise
    except Exception as error:
        raise Refusal(DAMAGED, "has damaged numbers: they do not unpack, or not to its checksum") from error
    return np.ascontiguousarray(content).astype(np.dtype(kind), copy=False).view(np.uint8).reshape(-1).data
