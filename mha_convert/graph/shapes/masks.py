"""The masks that ``graph.masks`` made explicit: True where something is kept."""

from dataclasses import replace
from typing import Any

from ...records.graph import TensorSpec
from .sizes import ShapeError, Sizes, sizes, together


def of_bits(spec: TensorSpec, shape: Sizes) -> TensorSpec:
    """A mask of this shape."""
    return replace(spec, shape=shape, dtype="bool")


def tokens(layer: Any, inputs: TensorSpec) -> TensorSpec:
    """``(batch, length)``."""
    return of_bits(inputs, sizes(inputs))


def steps(layer: Any, inputs: TensorSpec) -> TensorSpec:
    """``(batch, length)`` of ``(batch, length, features)``."""
    return of_bits(inputs, sizes(inputs)[:-1])


def pairs(
    layer: Any,
    query: TensorSpec | None = None,
    value: TensorSpec | None = None,
    key: TensorSpec | None = None,
    attention: TensorSpec | None = None,
) -> TensorSpec:
    """``(batch, query length, key length)``, or 1 for a length that makes no difference."""
    given = [spec for spec in (query, value, key, attention) if spec is not None]
    shape: Sizes = (1, 1, 1)
    for spec, place in ((query, 2), (value, 1), (key, 1)):
        if spec is not None:
            batch, length = sizes(spec)
            shape = together(shape, (batch, length, 1) if place == 2 else (batch, 1, length))
    if attention is not None:
        if len(sizes(attention)) not in (len(shape) - 1, len(shape)):
            raise ShapeError(
                f"is given an attention mask of {len(sizes(attention))} axes, and a rule is there for 2, which are "
                "query and key, and for 3, the batch in front of them"
            )
        shape = together(shape, sizes(attention))
    return of_bits(given[0], shape)


def combined(layer: Any, **masks: TensorSpec) -> TensorSpec:
    """Masks of one shape."""
    first, *others = masks.values()
    shape = sizes(first)
    for spec in others:
        shape = together(shape, sizes(spec))
    return of_bits(first, shape)


def joined(layer: Any, **parts: TensorSpec) -> TensorSpec:
    """Masks, or what has none, one behind the other."""
    lengths = [sizes(spec)[1] for spec in parts.values()]
    first = next(iter(parts.values()))
    return of_bits(first, (sizes(first)[0], None if None in lengths else sum(size or 0 for size in lengths)))


SHAPES = {
    "mask.tokens": tokens,
    "mask.steps": steps,
    "mask.pairs": pairs,
    "mask.both": combined,
    "mask.either": combined,
    "mask.joined": joined,
}
