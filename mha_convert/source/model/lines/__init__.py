"""How is a call written? One function for each kind: an expression, as one would write it in ``forward``.

Each takes the layer, a ``Use``, and then what Keras' layer takes, with ``Term`` in each tensor's place; it returns the
expression's text, or a ``Written``.
"""

from collections.abc import Callable, Mapping
from typing import Any

from . import (
    attention,
    elementwise,
    linear,
    masks,
    merging,
    normalization,
    operations,
    recurrent,
    reshaping,
    unprojected,
    windows,
    wrappers,
)

FAMILIES = (
    linear,
    elementwise,
    merging,
    reshaping,
    normalization,
    attention,
    masks,
    operations,
    recurrent,
    wrappers,
    windows,
    unprojected,
)
LINES: Mapping[str, Callable[..., Any]] = {kind: line for family in FAMILIES for kind, line in family.LINES.items()}
