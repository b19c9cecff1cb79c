"""Which numbers do operations take? Those of which the function is defined, by the operation and the argument."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...records.graph import TensorSpec
from ...records.source import Array

Shape = Sequence[int]
Numbers = Callable[[np.random.Generator, Shape], Array]
WHOLE_BELOW = 4  # whole numbers that are counted with


def between(low: float, high: float) -> Numbers:
    """Numbers of a range."""
    return lambda random, shape: random.uniform(low, high, shape)


def away_from_zero(random: np.random.Generator, shape: Shape) -> Array:
    """Divisors."""
    return random.uniform(0.3, 2.0, shape) * random.choice([-1.0, 1.0], shape)


POSITIVE, WITHIN_ONE, ABOVE_ONE = between(0.1, 3.0), between(-0.95, 0.95), between(1.05, 4.0)
# For each argument in turn; the last one is for all that follow. None is the usual choice.
OF_FLOATS: Mapping[str, tuple[Numbers | None, ...]] = {
    **{f"ops.{name}": (POSITIVE,) for name in ("sqrt", "rsqrt", "log", "log2", "log10", "log1p", "cumprod")},
    **{f"ops.{name}": (WITHIN_ONE,) for name in ("arcsin", "arccos", "arctanh", "erfinv")},
    "ops.arccosh": (ABOVE_ONE,),
    "ops.power": (POSITIVE, None),
    **{f"ops.{name}": (None, away_from_zero) for name in ("divide", "mod", "fmod", "floor_divide")},
    "ops.reciprocal": (away_from_zero,),
}
FROM_ONE = frozenset(
    ("ops.divide", "ops.mod", "ops.fmod", "ops.floor_divide", "ops.reciprocal", "ops.log", "ops.rsqrt")
)
PLACES = frozenset(("ops.take", "ops.tf.gather", "ops.take_along_axis", "ops.getitem"))


def numbers(
    kind: str, place: int, spec: TensorSpec, specs: Sequence[TensorSpec], shape: Shape, random: np.random.Generator
) -> Array | None:
    """The numbers for one argument of an operation; None where the usual ones are right.

    Args:
        kind: ``ops.…``.
        place: of the argument among the tensors of the call.
        spec: what it is.
        specs: what all tensors of the call are.
        shape: its sizes.
        random: of the call's own.
    """
    dtype = spec.dtype or "float32"
    if "int" in dtype and kind in PLACES:
        sizes = [size for size in specs[0].shape or () if size is not None]
        return random.integers(0, min(sizes, default=2) if len(specs) > 1 else 2, shape)
    if "int" in dtype:
        return random.integers(1 if kind in FROM_ONE else 0, WHOLE_BELOW, shape)
    found = OF_FLOATS.get(kind, (None,))
    wanted = found[min(place, len(found) - 1)]
    return wanted(random, shape) if wanted is not None and "float" in dtype else None
