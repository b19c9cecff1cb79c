"""``.pt``: a plain ``state_dict`` that ``torch.load(weights_only=True)`` reads and ``load_state_dict`` takes.

PyTorch keeps a ``_metadata`` next to every state_dict; the target's own description is an entry in it, and
``load_state_dict`` passes it over. ``torch.save`` needs all tensors in memory once.
"""

import pickle
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ReadError
from ..records.plan import TargetTensor
from ..records.source import Array
from .pickled import FAULTS, DamageError, Named, SavedTensor, Table, Unknown, read_saved
from .stored import Target

if TYPE_CHECKING:
    import torch

SUFFIX = ".pt"
DESCRIPTION = "mha_convert"
KINDS = {
    Table: "a dict",
    type(None): "None",
    bool: "a bool",
    int: "an int",
    float: "a float",
    str: "text",
    bytes: "bytes",
    list: "a list",
    tuple: "a tuple",
}


def accepts(head: bytes, path: Path) -> bool:
    """A zip with PyTorch's member, or the pickle of PyTorch before 1.6."""
    if head.startswith(b"PK\x03\x04"):
        try:
            with zipfile.ZipFile(path) as archive:
                return any(name.endswith("data.pkl") for name in archive.namelist())
        except (OSError, zipfile.BadZipFile):
            return False
    return head.startswith(b"\x80") and head[8:9] != b"{"


def write(path: Path, tensors: Sequence[TargetTensor], description: str) -> None:
    """Write the state_dict; the same plan gives the same bytes, as the stream has no name of its own."""
    import torch

    state = OrderedDict((tensor.key, as_tensor(tensor.read())) for tensor in tensors)
    own = {DESCRIPTION: {"text": description}} if description else {}
    state._metadata = OrderedDict({"": {"version": 1}} | own)  # type: ignore[attr-defined]
    with path.open("wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:  # torch ends its zip nevertheless, and that error hides the disk's
            raise first_of(error) from error


def first_of(error: BaseException) -> BaseException:
    """The operating system's error that this one came from, or itself."""
    before: BaseException | None = error
    while before is not None and not isinstance(before, OSError):
        before = before.__context__
    return before or error


def as_tensor(array: Array) -> "torch.Tensor":
    """The array as a tensor; torch takes bfloat16 from NumPy only as bits, and no views of a read-only file."""
    import numpy as np
    import torch

    array = array if array.flags.writeable else array.copy()
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def open_target(path: Path) -> Target:
    """Describe the file without running anything in it; ``torch.load(weights_only=True)`` reads at the first tensor."""

    try:
        state = read_saved(path)
    except DamageError as error:
        raise ReadError(
            f"{path} is not a state_dict that torch.load(weights_only=True) reads: {error}. Convert again."
        ) from error
    wrong = fault_of(state)
    if wrong:
        raise ReadError(f"{path} {wrong}, expected a plain state_dict of tensors. Convert again.")

    @cache
    def numbers() -> "dict[str, torch.Tensor]":
        return load(path, state)

    return Target(
        path=path,
        description=description_of(state.metadata),
        shapes={key: tensor.shape for key, tensor in state.items()},
        dtypes={key: tensor.dtype for key, tensor in state.items()},
        read=lambda key: numbers()[key],
    )


def fault_of(state: Any) -> str | None:
    """What keeps something saved from being a plain ``state_dict``, as a fact; None for one."""
    if isinstance(state, Unknown | Named):
        return f"holds a whole pickled object, {state.name}"
    if not isinstance(state, Table):
        return f"holds {kind_of(state)}"
    for key, value in state.items():
        if not isinstance(key, str):
            return f"holds the key {key}, which is {kind_of(key)}"
        if not isinstance(value, SavedTensor):
            return f"holds '{key}', which is {kind_of(value)}"
        if value.odd:
            return f"holds '{key}', which is {value.odd}"
    if not isinstance(state.metadata, dict | None):
        return f"holds a _metadata that is {kind_of(state.metadata)}"
    return None


def kind_of(value: Any) -> str:
    """What people call something in a pickle."""
    if isinstance(value, Unknown | Named):
        return f"an object of {value.name}"
    if isinstance(value, SavedTensor):
        return "one tensor"
    return KINDS.get(type(value), f"of type {type(value).__name__}")


def description_of(metadata: Any) -> str | None:
    """The target's own text, an entry in what PyTorch keeps next to a ``state_dict``."""
    entry = (metadata or {}).get(DESCRIPTION)
    text = entry.get("text") if isinstance(entry, dict) else None
    return text if isinstance(text, str) else None


def load(path: Path, described: "Mapping[str, SavedTensor]") -> "dict[str, torch.Tensor]":
    """The tensors by PyTorch's own reader, so that its checks hold; they are those that were described."""
    import torch

    try:
        with (
            path.open("rb") as file,
            warnings.catch_warnings(),
        ):  # torch warns of pickles that it did not write; we refuse them
            warnings.simplefilter("ignore")
            state = torch.load(file, map_location="cpu", weights_only=True)
        found = {key: (tuple(tensor.shape), name_of_dtype(tensor)) for key, tensor in state.items()}
    except (*FAULTS, pickle.UnpicklingError) as error:
        raise ReadError(
            f"{path} is not a state_dict that torch.load(weights_only=True) reads ({type(error).__name__}). "
            "Convert again."
        ) from error
    if found != {key: (tensor.shape, tensor.dtype) for key, tensor in described.items()}:
        raise ReadError(f"{path}: torch.load reads other tensors than the file describes. Convert again.")
    return dict(state)


def name_of_dtype(tensor: "torch.Tensor") -> str:
    """The dtype of plain numbers; other kinds of tensors are none."""
    import torch

    is_plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    plain = is_plain and not tensor.is_neg() and not tensor.is_conj()
    return str(tensor.dtype).removeprefix("torch.") if plain else "none"
