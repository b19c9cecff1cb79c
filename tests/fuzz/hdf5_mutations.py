"""Mutations of an HDF5 file's contents, by h5py on a copy: another valid file, which Keras would not have written."""

from collections.abc import Callable
from io import BytesIO
from random import Random
from typing import Any

import h5py
import numpy as np

from .json_mutations import mutate_json

DTYPES = ("<f2", ">f4", "<f8", "<f4", "<i4", "|i1", "|u1", "<c8", "|b1", "<i8", "|V2", "|V3", "|S4", ">f8")
NAMES = (
    "x", "0", "1", "2", "vars", "layers", "query", "key", "value", "query_dense", "_key_dense", "value_dense", "kernel:0",
    "output_dense", "attention_output", "gate_dense", "optimizer", "multi_head_attention", "multi_head_attention_1",
    "model_weights", "_layer_checkpoint_dependencies", "a\\b", "ü", "\x1b[1m", "lora_a", "kernel_scale",
)  # fmt: skip
TEXTS = ("", "x", "é", "\x1b[1m\n", "multi_head_attention", "a/b", "2.15.0", "3.15.1", "9" * 5000)
REFUSALS = (OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError)
Change = Callable[[Random, h5py.File], str]


def mutate_hdf5(rng: Random, content: bytes) -> tuple[bytes, str]:
    """Change one or two things in the tree."""
    told = []
    memory = BytesIO(content)
    with h5py.File(memory, "r+") as file:
        for _ in range(rng.choice((1, 1, 2))):
            change = rng.choice(CHANGES)
            try:
                told.append(f"{change.__name__} {change(rng, file)}")
            except REFUSALS:
                told.append(f"{change.__name__} refused by h5py")
    return memory.getvalue(), "HDF5: " + "; ".join(told)


def objects(file: h5py.File, kind: type) -> list[Any]:
    """All groups or arrays below the root."""
    found: list[Any] = []
    file.visititems(lambda _, item: found.append(item) if isinstance(item, kind) else None)
    return sorted(found, key=lambda item: item.name)


def chosen(rng: Random, file: h5py.File, kind: type) -> Any:
    """One of them, more often one of attention."""
    found = objects(file, kind)
    near = [
        item for item in found if any(word in item.name for word in ("query", "key", "value", "output", "attention"))
    ]
    return rng.choice(near if near and rng.random() < 0.7 else found) if found else None


def swap_attributes(rng: Random, file: h5py.File) -> str:
    """Two groups exchange an attribute."""
    owners = [group for group in [file, *objects(file, h5py.Group)] if len(group.attrs)]
    if len(owners) < 2:
        return "nothing"
    one, other = rng.sample(owners, 2)
    shared = sorted(set(one.attrs) & set(other.attrs))
    if not shared:
        return "nothing"
    key = rng.choice(shared)
    values = [owner.attrs[key] for owner in (one, other)]
    del one.attrs[key], other.attrs[key]
    other.attrs[key], one.attrs[key] = values
    return f"{key} of {one.name} and {other.name}"


def swap_members(rng: Random, file: h5py.File) -> str:
    """Two groups or arrays exchange their places."""
    kind = rng.choice((h5py.Group, h5py.Dataset))
    one, other = chosen(rng, file, kind), chosen(rng, file, kind)
    if one is None or one.name in other.name or other.name in one.name:
        return "nothing"
    first, second = one.name, other.name
    file.move(first, "/between")
    file.move(second, first)
    file.move("/between", second)
    return f"{first} and {second}"


def rename(rng: Random, file: h5py.File) -> str:
    """A group or array has another name."""
    item = chosen(rng, file, rng.choice((h5py.Group, h5py.Dataset)))
    if item is None:
        return "nothing"
    old = item.name
    new = f"{item.parent.name}/{rng.choice(NAMES)}"
    if new in file:
        return "nothing"
    file.move(old, new)
    return f"{old} to {new!r}"


def delete(rng: Random, file: h5py.File) -> str:
    """A group, array or attribute is gone."""
    item = chosen(rng, file, rng.choice((h5py.Group, h5py.Dataset)))
    if item is None:
        return "nothing"
    if rng.random() < 0.4:
        owner = rng.choice([file, item, item.parent])
        if len(owner.attrs):
            key = rng.choice(sorted(owner.attrs))
            del owner.attrs[key]
            return f"attribute {key} of {owner.name}"
    name = item.name
    del file[name]
    return name


def replaced(file: h5py.File, item: h5py.Dataset, array: Any, **options: Any) -> None:
    """Write an array in the place of another one."""
    name = item.name
    del file[name]
    file.create_dataset(name, data=array, **options)


def reshape(rng: Random, file: h5py.File) -> str:
    """An array has another shape: its axes exchanged, split or joined, one taken away or added."""
    item = chosen(rng, file, h5py.Dataset)
    if item is None or item.dtype.kind in "OSV":
        return "nothing"
    array, name = item[()], item.name
    shape = list(array.shape)
    options = [array.T, array.reshape(-1), array.reshape(shape[::-1]), array[None], array[..., None], array.ravel()[:0]]
    if len(shape) > 1:
        options += [array.reshape(shape[0] * shape[1], *shape[2:]), array.swapaxes(0, 1), array.swapaxes(-1, -2)]
        options += [array[:-1], array[..., :-1], np.concatenate([array, array])]
        options += [array.reshape(shape[0], shape[2], shape[1], *shape[3:])] if len(shape) > 2 else []
    new = rng.choice(options)
    replaced(file, item, np.ascontiguousarray(new))
    return f"{name} from {tuple(shape)} to {new.shape}"


def retype(rng: Random, file: h5py.File) -> str:
    """An array has another dtype, converted or reinterpreted."""
    item = chosen(rng, file, h5py.Dataset)
    if item is None or item.dtype.kind in "OSV":
        return "nothing"
    array, name, dtype = np.ascontiguousarray(item[()]), item.name, np.dtype(rng.choice(DTYPES))
    fits = array.nbytes == array.size * dtype.itemsize
    with np.errstate(all="ignore"):
        new = (
            array.view(dtype)
            if fits and array.ndim
            else np.zeros(array.shape, dtype)
            if dtype.kind in "SV"
            else array.astype(dtype)
        )
    replaced(file, item, new)
    return f"{name} to {dtype}"


def renumber(rng: Random, file: h5py.File) -> str:
    """An array has other numbers."""
    item = chosen(rng, file, h5py.Dataset)
    if item is None or item.dtype.kind != "f" or not item.size:
        return "nothing"
    array, value = item[()], rng.choice((0.0, -0.0, np.nan, np.inf, 1e-45, 3e38, 1e-300, 65000.0))
    with np.errstate(all="ignore"):
        array.reshape(-1)[rng.randrange(array.size) :: rng.choice((1, 7, array.size))] = value
    item[...] = array
    return f"{item.name} to {value}"


def pack(rng: Random, file: h5py.File) -> str:
    """An array is stored in chunks, packed: the same numbers."""
    item = chosen(rng, file, h5py.Dataset)
    if item is None or not item.shape or not item.size or item.dtype.kind in "O":
        return "nothing"
    options = rng.choice(
        ({"compression": "gzip"}, {"shuffle": True}, {"fletcher32": True}, {"chunks": True}, {"compression": "lzf"})
    )
    name = item.name
    replaced(file, item, item[()], **options)
    return f"{name} {options}"


def link(rng: Random, file: h5py.File) -> str:
    """Something is a link, or is there under a second name."""
    item = chosen(rng, file, rng.choice((h5py.Group, h5py.Dataset)))
    if item is None:
        return "nothing"
    name = item.name
    target = chosen(rng, file, type(item)).name
    links = {"soft": h5py.SoftLink(target), "external": h5py.ExternalLink("other.h5", target), "hard": file[target]}
    kind = rng.choice(("soft", "external", "hard", "hard"))
    if rng.random() < 0.6:
        del file[name]
    else:
        name += "_2"
    if kind == "hard" and target not in file:
        return "nothing"
    file[name] = links[kind]
    return f"{name} {kind} to {target}"


def double(rng: Random, file: h5py.File) -> str:
    """A group or an array is there a second time."""
    item = chosen(rng, file, rng.choice((h5py.Group, h5py.Group, h5py.Dataset)))
    if item is None:
        return "nothing"
    name = f"{item.parent.name}/{rng.choice((*NAMES, item.name.rpartition('/')[2] + '_1', item.name.rpartition('/')[2] + '_2'))}"
    if name in file:
        return "nothing"
    file.copy(item, file, name)
    return f"{item.name} as {name!r}"


def attribute(rng: Random, file: h5py.File) -> str:
    """An attribute has another value: its list reordered, cut, doubled; or something odd."""
    owners = [group for group in [file, *objects(file, h5py.Group)] if len(group.attrs)]
    if not owners:
        return "nothing"
    owner = rng.choice(owners)
    key = rng.choice(sorted(owner.attrs))
    value = owner.attrs[key]
    options = [0, -1, 1.5, h5py.Empty("S1"), np.zeros((2, 2)), np.array([b"x", b"query/kernel:0"]), *TEXTS]
    if isinstance(value, np.ndarray) and value.size > 1:
        items = [item.encode() if isinstance(item, str) else item for item in value]
        one, other = rng.sample(range(len(items)), 2)
        swapped = [items[other] if i == one else items[one] if i == other else item for i, item in enumerate(items)]
        value = np.array(items)
        options += [
            value[:-1],
            value[1:],
            np.concatenate([value, value[:1]]),
            np.array(swapped),
            value[::-1].copy(),
        ] * 3
    new = rng.choice(options)
    del owner.attrs[key]
    owner.attrs[key] = new
    return f"{key} of {owner.name} to {new!r:.60}"


def configuration(rng: Random, file: h5py.File) -> str:
    """The model's JSON says something else."""
    if not isinstance(file.attrs.get("model_config"), (str, bytes)):
        return "nothing"
    text = file.attrs["model_config"]
    new, told = mutate_json(rng, text if isinstance(text, bytes) else text.encode())
    if len(new) > 64_000:
        return "nothing"
    del file.attrs["model_config"]
    file.attrs["model_config"] = new
    return told


CHANGES: tuple[Change, ...] = (
    swap_attributes, swap_members, swap_members, rename, rename, delete, reshape, reshape, retype, renumber, pack, link,
    double, attribute, attribute, configuration, configuration, configuration,
)  # fmt: skip
