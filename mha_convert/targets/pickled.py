"""What a file of ``torch.save`` holds, as plain data: nothing in it is run, no number is read, no size is believed.

A pickle is a program for a stack machine. Here is such a machine that knows PyTorch's few functions as rows of a table;
whatever else a pickle calls becomes an ``Unknown`` with its name. So a checkpoint with an optimizer, arguments or a
whole pickled model in it can be described, although nobody would want to load it.

https://docs.python.org/3/library/pickletools.html
"""

import math
import pickletools
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

MOST_STEPS = 1_000_000  # some 40 make a tensor; each makes 100 bytes at most, besides the text in the file
MOST_BYTES = 32 << 20  # of the pickle
MOST_AXES = 64
LONGEST_NAME = 1000  # characters of a module, or of a name in it
LEGACY_MAGIC, LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
LEGACY_COUNT = 8  # bytes before the numbers of a storage: how many they are
ITEM_SIZES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "bool": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}
STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "BoolStorage": "bool",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "UntypedStorage": "uint8",
    "QInt8Storage": "int8",
    "QUInt8Storage": "uint8",
    "QInt32Storage": "int32",
}


FAULTS = (
    zipfile.BadZipFile,
    OSError,
    RuntimeError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    EOFError,
)


class DamageError(ValueError):
    """What no ``torch.save`` writes; the text is a fact about the file."""


@dataclass(frozen=True, eq=False)
class Named:
    """A function or class that the pickle names, ``module.name``; it is not imported."""

    name: str


@dataclass(frozen=True, eq=False)
class Unknown:
    """What some function or class that we do not know would have made."""

    name: str


@dataclass(frozen=True, eq=False)
class Storage:
    """Numbers in the file: their key, dtype and how many they are."""

    key: str
    dtype: str
    count: int


@dataclass(frozen=True, eq=False)
class SavedTensor:
    """A tensor of the file, described. ``odd`` is empty, or says what it is besides plain numbers in a file."""

    shape: tuple[int, ...]
    dtype: str
    storage: Storage | None = None
    odd: str = ""


class Table(dict[Any, Any]):
    """A dict of the pickle, with what PyTorch keeps next to a ``state_dict``."""

    metadata: Any = None


def read_saved(path: Path) -> Any:
    """What was saved: tensors as ``SavedTensor``, dicts as ``Table``, what we do not know as ``Unknown``.

    Raises:
        DamageError: it is not a file of ``torch.save``, or a size in it is not that of its numbers.
    """
    try:
        with path.open("rb") as file:
            is_zip = file.read(2) == b"PK"
            file.seek(0)
            return in_zip(file) if is_zip else in_legacy(file, path.stat().st_size)
    except DamageError:
        raise
    except FAULTS as error:  # a hostile pickle can make any step of ours fail, and none of them does harm
        raise DamageError("it is damaged") from error


def in_zip(file: IO[bytes]) -> Any:
    """PyTorch since 1.6: ``…/data.pkl``, and each storage as a member ``…/data/<key>``, none of them compressed."""
    size = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        names = {member.filename: member for member in members}
        if len(names) != len(members):
            raise DamageError("its zip holds a name twice")
        if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members):
            raise DamageError("its zip is compressed, which torch.save never does")
        if sum(member.file_size for member in members) > size:
            raise DamageError(f"its zip declares more than the {size} bytes of the file")
        name = next((name for name in names if name.split("/")[1:] == ["data.pkl"]), None)
        if name is None:
            raise DamageError("its zip holds no data.pkl")
        if names[name].file_size > MOST_BYTES:
            raise DamageError(
                f"it describes its tensors in {names[name].file_size} bytes, expected {MOST_BYTES} at most"
            )
        machine = Machine()
        content = machine.run(BytesIO(archive.read(name)))
    root = name.removesuffix("data.pkl")
    for storage in machine.storages.values():
        member = names.get(f"{root}data/{storage.key}")
        refuse_wrong_size(storage, None if member is None else member.file_size)
    return content


def in_legacy(file: IO[bytes], size: int) -> Any:
    """PyTorch before 1.6: five pickles, then the numbers of each storage after their count."""
    head = BytesIO(file.read(MOST_BYTES))
    if (Machine().run(head), Machine().run(head)) != (LEGACY_MAGIC, LEGACY_PROTOCOL):
        raise DamageError("it is a pickle of something else than torch.save")
    Machine().run(head)  # facts of the machine that wrote it
    machine = Machine()
    content = machine.run(head)
    keys = Machine().run(head)
    if not isinstance(keys, list) or {key for key in keys if isinstance(key, str)} != machine.storages.keys():
        raise DamageError("its list of storages differs from that of its tensors")
    place = head.tell()
    for key in keys:
        storage = machine.storages[key]
        file.seek(place)
        count = int.from_bytes(file.read(LEGACY_COUNT), "little")
        place += LEGACY_COUNT + count * ITEM_SIZES[storage.dtype]
        refuse_wrong_size(storage, count * ITEM_SIZES[storage.dtype] if place <= size else None)
    return content


def refuse_wrong_size(storage: Storage, found: int | None) -> None:
    """A storage has the bytes that its tensors take their numbers from: PyTorch does not look."""
    wanted = storage.count * ITEM_SIZES[storage.dtype]
    if found != wanted:
        there = "are not in the file" if found is None else f"are {found} bytes"
        raise DamageError(f"the numbers '{storage.key}' {there}, expected {wanted}")


class Machine:
    """A stack machine for one pickle; ``storages`` are those that it asked for."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, Storage] = {}

    def run(self, program: IO[bytes]) -> Any:
        """What the pickle makes; ``program`` is positioned after it."""
        for number, (opcode, argument, _) in enumerate(pickletools.genops(program)):
            if number > MOST_STEPS:
                raise DamageError(f"its pickle has more than {MOST_STEPS} steps")
            if opcode.name == "STOP":
                break
            STEPS[opcode.name](self, argument)
        (result,) = self.stack
        return result

    def from_mark(self) -> list[Any]:
        """Everything on the stack since the last mark, taken off."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def take(self, count: int) -> list[Any]:
        """The last few values, taken off."""
        if len(self.stack) < count:
            raise IndexError(count)
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return items

    def reduce(self) -> None:
        """Call a function: one of ours, by its name."""
        function, arguments = self.take(2)
        self.stack.append(called(function, arguments))

    def build(self) -> None:
        """Give an object its state: of a dict the attributes, of which PyTorch's is kept."""
        (state,) = self.take(1)
        if isinstance(self.stack[-1], Table) and isinstance(state, dict):
            self.stack[-1].metadata = state.get("_metadata")

    def load_storage(self) -> None:
        """A persistent id is PyTorch's way to speak of a storage; before 1.6 also of a class, with its source."""
        (identifier,) = self.take(1)
        if identifier[0] == "module":
            self.stack.append(identifier[1])
            return
        kind, name, key, _, count = identifier[:5]
        dtype = STORAGES.get(name.name.rpartition(".")[2])
        if kind != "storage" or dtype is None or not is_size(count) or not isinstance(key, str):
            raise DamageError(f"it has numbers of an unknown kind, {name.name}")
        known = self.storages.setdefault(key, Storage(key, dtype, count))
        if (known.dtype, known.count) != (dtype, count):
            raise DamageError(f"the numbers '{key}' are described in two ways")
        self.stack.append(known)

    def set_items(self, items: list[Any]) -> None:
        """Put keys and values into a dict; into an unknown object nothing."""
        table = self.stack[-1]
        if isinstance(table, Unknown):
            return
        table.update(keyed(pairs_of(items)))

    def append_items(self, items: list[Any]) -> None:
        """Put values into a list; into an unknown object nothing."""
        if not isinstance(self.stack[-1], Unknown):
            self.stack[-1].extend(items)


Step = Callable[[Machine, Any], None]


def push(make: Callable[[Any], Any]) -> Step:
    """A step that puts one value on the stack, made of its argument."""
    return lambda machine, argument: machine.stack.append(make(argument))


def replace_last(count: int, make: Callable[[list[Any]], Any]) -> Step:
    """A step that turns the last few values into one."""
    return lambda machine, _: machine.stack.append(make(machine.take(count)))


def replace_marked(make: Callable[[list[Any]], Any]) -> Step:
    """A step that turns everything since the mark into one value."""
    return lambda machine, _: machine.stack.append(make(machine.from_mark()))


def keep(machine: Machine, index: int | None) -> None:
    """Remember the last value, by a number or by the next one."""
    machine.memo[len(machine.memo) if index is None else index] = machine.stack[-1]


def as_value(argument: Any) -> Any:
    """The argument itself."""
    return argument


def pairs_of(items: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Keys and values in turn."""
    return zip(items[::2], items[1::2], strict=True)


def keyed(pairs: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """The pairs of a dict; a key that holds others is not looked into: it may take for ever to hash."""
    return (
        (key if isinstance(key, str | int | float | bytes | None) else Unknown("key"), value) for key, value in pairs
    )


def made(items: list[Any]) -> Any:
    """A class and its arguments; the class is not ours to call."""
    return called(items[0], items[1] if len(items) > 1 else ())


def named(parts: list[Any]) -> Named:
    """A module and a name in it, joined; longer texts than names are not copied."""
    if not all(isinstance(part, str) and len(part) <= LONGEST_NAME for part in parts):
        raise DamageError("it names a function by something else than a name")
    return Named(".".join(parts))


VALUES = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
)
STEPS: dict[str, Step] = {
    **{name: push(as_value) for name in VALUES},
    "NONE": push(lambda _: None),
    "NEWTRUE": push(lambda _: True),
    "NEWFALSE": push(lambda _: False),
    "EMPTY_DICT": push(lambda _: Table()),
    "EMPTY_LIST": push(lambda _: []),
    "EMPTY_TUPLE": push(lambda _: ()),
    "EMPTY_SET": push(lambda _: Unknown("set")),
    "GLOBAL": push(lambda name: Named(name.replace(" ", "."))),
    "STACK_GLOBAL": replace_last(2, named),
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "POP": lambda machine, _: machine.take(1).clear(),
    "POP_MARK": lambda machine, _: machine.from_mark().clear(),
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), keep),
    **{
        name: lambda machine, index: machine.stack.append(machine.memo[index])
        for name in ("GET", "BINGET", "LONG_BINGET")
    },
    "TUPLE": replace_marked(tuple),
    "TUPLE1": replace_last(1, tuple),
    "TUPLE2": replace_last(2, tuple),
    "TUPLE3": replace_last(3, tuple),
    "LIST": replace_marked(list),
    "DICT": replace_marked(lambda items: Table(keyed(pairs_of(items)))),
    "FROZENSET": replace_marked(lambda _: Unknown("frozenset")),
    "APPEND": lambda machine, _: machine.append_items(machine.take(1)),
    "APPENDS": lambda machine, _: machine.append_items(machine.from_mark()),
    "ADDITEMS": lambda machine, _: machine.from_mark().clear(),
    "SETITEM": lambda machine, _: machine.set_items(machine.take(2)),
    "SETITEMS": lambda machine, _: machine.set_items(machine.from_mark()),
    "REDUCE": lambda machine, _: machine.reduce(),
    "NEWOBJ": replace_last(2, made),
    "NEWOBJ_EX": replace_last(3, made),
    "OBJ": replace_marked(made),
    "INST": lambda machine, name: machine.stack.append(made([Named(name.replace(" ", ".")), machine.from_mark()])),
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, _: machine.load_storage(),
}


def called(function: Any, arguments: Any) -> Any:
    """What a function makes: PyTorch's few that make state_dicts are known, any other gives an ``Unknown``."""
    name = function.name if isinstance(function, Named | Unknown) else type(function).__name__
    if isinstance(function, Named) and name in FUNCTIONS:
        return FUNCTIONS[name](*arguments)
    return Unknown(name)


def is_size(value: Any) -> bool:
    """Whether a value counts something."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def plain(storage: Storage, offset: int, shape: Any, stride: Any, *more: Any, dtype: str | None = None) -> SavedTensor:
    """A view of a storage, in its bounds; ``more`` may end in the bits of a view."""
    if not isinstance(storage, Storage):
        return SavedTensor(shape=(), dtype="unknown", odd="of numbers that are not in the file")
    shape, stride = lengths_of(shape), lengths_of(stride)
    if len(shape) != len(stride) or not all(map(is_size, [offset, *shape, *stride])):
        raise DamageError("a tensor has a shape that no tensor has")
    size, bytes_each = math.prod(shape), ITEM_SIZES[dtype or storage.dtype]
    count = storage.count * ITEM_SIZES[storage.dtype] // bytes_each
    last = offset + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))
    if size and last >= count:
        raise DamageError(f"a tensor of shape {shape} has its last number at {last} of {count}")
    bits = next((item for item in more if isinstance(item, dict) and ({"neg", "conj"} & item.keys())), {})
    odd = "a negated or conjugated view" if any(bits.values()) else ""
    odd = odd or ("a view that repeats its numbers" if size > count else "")
    return SavedTensor(shape=shape, dtype=dtype or storage.dtype, storage=storage, odd=odd)


def with_dtype(
    storage: Storage, offset: int, shape: Any, stride: Any, _: Any, hooks: Any, dtype: Named, *more: Any
) -> SavedTensor:
    """A view of a storage without a type of its own."""
    word = dtype.name.rpartition(".")[2]
    if word not in ITEM_SIZES:
        return SavedTensor(shape=lengths_of(shape), dtype=word, odd=f"of dtype {word}")
    return plain(storage, offset, shape, stride, *more, dtype=word)


def of_type(function: Any, kind: Any, arguments: Any, *state: Any) -> Any:
    """A subclass, or a tensor with attributes."""
    return called(function, arguments)


def odd(word: str, shape: Callable[..., Any] = lambda *_: ()) -> Callable[..., SavedTensor]:
    """A kind of tensor that is more, or less, than numbers in a file; ``shape`` finds it among its arguments."""

    def describe(*arguments: Any) -> SavedTensor:
        found = shape(*arguments)
        lengths = lengths_of(found)
        return SavedTensor(shape=lengths if all(map(is_size, lengths)) else (), dtype=word, odd=word)

    return describe


def ordered(pairs: Any = (), *more: Any) -> Table:
    """A dict of pairs, which are taken out of their list: a pickle may name one list any number of times."""
    if pairs == ():
        return Table()
    if type(pairs) is not list:
        raise DamageError("it makes a dict of something else than a list of pairs")
    table = Table(keyed(pairs))
    pairs.clear()
    return table


def lengths_of(value: Any = ()) -> tuple[Any, ...]:
    """The lengths of axes, as a tuple; what has more of them than a tensor has axes is not copied."""
    if not isinstance(value, tuple | list) or len(value) > MOST_AXES:
        raise DamageError("a tensor has a shape that no tensor has")
    return tuple(value)


def first(value: Any, *more: Any) -> Any:
    """A parameter is its tensor."""
    return value


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "collections.OrderedDict": ordered,
    "torch.Size": lengths_of,
    "torch._utils._rebuild_tensor": plain,
    "torch._utils._rebuild_tensor_v2": plain,
    "torch._utils._rebuild_tensor_v3": with_dtype,
    "torch._utils._rebuild_parameter": first,
    "torch._utils._rebuild_parameter_with_state": first,
    "torch._tensor._rebuild_from_type_v2": of_type,
    "torch._utils._rebuild_sparse_tensor": odd("sparse", lambda _, parts: parts[2] if len(parts) < 5 else parts[3]),
    "torch._utils._rebuild_qtensor": odd("quantized", lambda _, offset, shape, *more: shape),
    "torch._utils._rebuild_nested_tensor": odd("nested"),
    "torch._utils._rebuild_meta_tensor_no_storage": odd(
        "on the meta device, without numbers", lambda _, shape, *more: shape
    ),
    "torch._utils._rebuild_wrapper_subclass": odd("of a subclass of torch.Tensor"),
    "torch._utils._rebuild_device_tensor_from_numpy": odd("of a device that is not this one"),
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": odd("of a device that is not this one"),
}
