"""``.safetensors``: eight bytes of length, a JSON header, the tensors one after another.

Written here and not by the safetensors library, which needs all tensors in memory at once; read back by it.
https://huggingface.co/docs/safetensors/index#format
"""

import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..datatypes import Tensor
from ..errors import ReadError, printable

if TYPE_CHECKING:
    import torch

    from . import StoredTarget

SUFFIX = ".safetensors"
CODES = {"float64": ("F64", 8), "float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2)}
NAMES = {code: name for name, (code, _) in CODES.items()}
METADATA, DESCRIPTION = "__metadata__", "mha_convert"
ALIGNMENT = 8


def accepts(head: bytes, path: Path) -> bool:
    """Eight bytes of length, then JSON."""
    return head[8:9] == b"{"


def write(path: Path, tensors: Sequence[Tensor], description: str) -> None:
    """Write block by block; the same plan gives the same bytes."""
    ordered = sorted(tensors, key=lambda tensor: -CODES[tensor.dtype][1])  # stable; keeps every tensor aligned
    header = json.dumps(layout(ordered, description), separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for tensor in ordered:
            for block in tensor.blocks():
                little = block if block.dtype.kind == "V" else block.astype(block.dtype.newbyteorder("<"), copy=False)
                file.write(little.reshape(-1).view(np.uint8).data)


def layout(tensors: Sequence[Tensor], description: str) -> dict[str, object]:
    """The header: metadata, then each tensor's dtype, shape and place."""
    metadata = {"format": "pt"} | ({DESCRIPTION: description} if description else {})
    header: dict[str, object] = {METADATA: metadata}
    end = 0
    for tensor in tensors:
        code, itemsize = CODES[tensor.dtype]
        begin, end = end, end + math.prod(tensor.shape) * itemsize
        header[tensor.key] = {"dtype": code, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    return header


def open_target(path: Path) -> "StoredTarget":
    """Read with the safetensors library, so that its own checks hold."""
    from safetensors import SafetensorError, safe_open

    from . import StoredTarget

    try:
        file = safe_open(path, framework="pt")
        metadata = file.metadata() or {}
        slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - safe_open is no mapping
    except (SafetensorError, OSError) as error:
        raise ReadError(f"{path}: is no intact safetensors file: {printable(error)}. Convert again.") from error

    def read(key: str) -> "torch.Tensor":
        tensor: torch.Tensor = file.get_tensor(key)
        return tensor

    return StoredTarget(
        path=path,
        description=metadata.get(DESCRIPTION),
        shapes={key: tuple(part.get_shape()) for key, part in slices.items()},
        dtypes={key: NAMES.get(part.get_dtype(), part.get_dtype()) for key, part in slices.items()},
        read=read,
    )
