"""``.safetensors``: eight bytes of length, a JSON header, the tensors one after another.

Written here and not by the safetensors library, which needs all tensors in memory at once; read back by it.
https://huggingface.co/docs/safetensors/index#format
"""

import json
import math
import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import FileIO
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ReadError
from ..records.plan import TargetTensor
from .stored import Target

if TYPE_CHECKING:
    import torch

SUFFIX = ".safetensors"
CODES = {"float64": ("F64", 8), "float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2)}
NAMES = {code: name for name, (code, _) in CODES.items()}
METADATA, DESCRIPTION = "__metadata__", "mha_convert"
ALIGNMENT = 8
WORKERS = 2  # one makes the next tensor while the other is written; more would only need more memory


def accepts(head: bytes, path: Path) -> bool:
    """Eight bytes of length, then JSON."""
    return head[8:9] == b"{"


def write(path: Path, tensors: Sequence[TargetTensor], description: str) -> None:
    """Write block by block; the same plan gives the same bytes."""
    ordered = sorted(tensors, key=lambda tensor: -CODES[tensor.dtype][1])  # stable; keeps every tensor aligned
    header = json.dumps(layout(ordered, description), separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % ALIGNMENT)
    start = path.write_bytes(struct.pack("<Q", len(header)) + header)
    places = accumulate((size_of(tensor) for tensor in ordered), initial=start)
    with ThreadPoolExecutor(WORKERS) as pool:
        for _ in pool.map(partial(put, path), ordered, places):
            pass


def put(path: Path, tensor: TargetTensor, place: int) -> None:
    """Write one tensor to its place in the file."""
    with path.open("r+b", buffering=0) as file:
        file.seek(place)
        for block in tensor.blocks():
            little = block if block.dtype.kind == "V" else block.astype(block.dtype.newbyteorder("<"), copy=False)
            write_all(file, little.reshape(-1).view(np.uint8).data)
        start_writeback(file, place, size_of(tensor))


def write_all(file: FileIO, content: memoryview) -> None:
    """Write all of it; one call of the operating system may write less."""
    while content:
        content = content[file.write(content) :]


def start_writeback(file: FileIO, place: int, size: int) -> None:
    """Let the disk begin while the next tensors are made, so that the wait at the end is short.

    Linux starts to write the dirty pages of a range that it is told is not needed, and keeps them till they are clean.
    """
    if hasattr(os, "posix_fadvise") and size:
        os.posix_fadvise(file.fileno(), place, size, os.POSIX_FADV_DONTNEED)


def size_of(tensor: TargetTensor) -> int:
    """Bytes of a tensor in the file."""
    return math.prod(tensor.shape) * CODES[tensor.dtype][1]


def layout(tensors: Sequence[TargetTensor], description: str) -> dict[str, object]:
    """The header: metadata, then each tensor's dtype, shape and place."""
    metadata = {"format": "pt"} | ({DESCRIPTION: description} if description else {})
    header: dict[str, object] = {METADATA: metadata}
    end = 0
    for tensor in tensors:
        begin, end = end, end + size_of(tensor)
        header[tensor.key] = {
            "dtype": CODES[tensor.dtype][0],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    return header


def open_target(path: Path, next_step: str = "Convert again") -> Target:
    """Read with the safetensors library, so that its own checks hold; ``next_step`` is for a damaged file."""
    from safetensors import SafetensorError, safe_open

    try:
        file = safe_open(path, framework="pt")
        metadata = file.metadata() or {}
        slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - safe_open is no mapping
    except (SafetensorError, OSError) as error:
        raise ReadError(f"{path} is not an intact safetensors file: {error}. {next_step}.") from error

    def read(key: str) -> "torch.Tensor":
        tensor: torch.Tensor = file.get_tensor(key)
        return tensor

    return Target(
        path=path,
        description=metadata.get(DESCRIPTION),
        shapes={key: tuple(part.get_shape()) for key, part in slices.items()},
        dtypes={key: NAMES.get(part.get_dtype(), part.get_dtype()) for key, part in slices.items()},
        read=read,
    )
