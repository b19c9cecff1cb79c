"""What every writer returns for a target that it opened. In a file of its own, so that writers can import it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A written target: its own description, the shapes and dtypes in it, and ``read(key)`` for each tensor."""

    path: Path
    description: str | None
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    read: Callable[[str], "torch.Tensor"]
