"""``.pt``: a plain ``state_dict`` that ``torch.load(weights_only=True)`` reads and ``load_state_dict`` takes.

PyTorch keeps a ``_metadata`` beside every state_dict; the target's own description is an entry in it, and
``load_state_dict`` passes it over. ``torch.save`` needs all tensors in memory once.
"""

import pickle
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..datatypes import Array, Tensor
from ..errors import ReadError
from ._stored import StoredTarget

if TYPE_CHECKING:
    import torch

SUFFIX = ".pt"
DESCRIPTION = "mha_convert"


def accepts(head: bytes, path: Path) -> bool:
    """A zip with PyTorch's member, or the pickle of PyTorch before 1.6."""
    if head.startswith(b"PK\x03\x04"):
        try:
            with zipfile.ZipFile(path) as archive:
                return any(name.endswith("data.pkl") for name in archive.namelist())
        except (OSError, zipfile.BadZipFile):
            return False
    return head.startswith(b"\x80") and head[8:9] != b"{"


def write(path: Path, tensors: Sequence[Tensor], description: str) -> None:
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


def open_target(path: Path) -> StoredTarget:
    """Read with ``torch.load(weights_only=True)``: nothing in the file is run."""
    import torch

    try:
        with (
            path.open("rb") as file,
            warnings.catch_warnings(),
        ):  # torch warns of pickles that it did not write; we refuse them
            warnings.simplefilter("ignore")
            state = torch.load(file, map_location="cpu", weights_only=True)
    except (RuntimeError, OSError, ValueError, KeyError, EOFError, pickle.UnpicklingError) as error:
        raise ReadError(
            f"{path}: is no state_dict that torch.load(weights_only=True) reads ({type(error).__name__}): it holds a "
            "whole pickled module, or is damaged. Convert again."
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ReadError(f"{path}: holds {type(state).__name__}, expected a plain state_dict of tensors. Convert again.")
    entry = getattr(state, "_metadata", {}).get(DESCRIPTION, {})
    return StoredTarget(
        path=path,
        description=entry.get("text") if isinstance(entry, dict) else None,
        shapes={key: tuple(tensor.shape) for key, tensor in state.items()},
        dtypes={key: str(tensor.dtype).removeprefix("torch.") for key, tensor in state.items()},
        read=state.__getitem__,
    )
