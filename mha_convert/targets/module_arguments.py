"""What a description may say of a module, before it is built: the arguments of each class, as rows of checks.

A target comes from anywhere, and a module is built of what it says. So each argument has its kind, and each size is at
most the longest axis of the layer's stored tensors: nothing that is built of them can be larger than the file is.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .metadata import shown

MOST_AXES = 64
MOST_STEPS = 1 << 62
MOST_PARTS = 8  # of a name in NamedMultiheadAttention
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
PATH = re.compile(r"[A-Za-z_]\w{0,99}(\.\w{1,100})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Kind:
    """What an argument must be, in words, and the test for it: of the value and of the longest stored axis."""

    words: str
    test: Callable[[Any, int], bool]


def is_whole(value: Any) -> bool:
    """Whether it is a whole number, which ``True`` is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_size(value: Any, longest: int) -> bool:
    """Whether tensors of this length are there."""
    return is_whole(value) and 1 <= value <= max(longest, 1)


def is_shape(value: Any, longest: int) -> bool:
    """Whether the numbers multiply to a length that is there."""
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_AXES:
        return False
    product = 1
    for size in value:
        if not is_size(size, longest):
            return False
        product *= size
    return product <= longest


def are_sizes(value: Any, longest: int) -> bool:
    """Whether each number is a length that is there."""
    return isinstance(value, list) and 1 <= len(value) <= MOST_AXES and all(is_size(size, longest) for size in value)


def is_axes(value: Any, longest: int) -> bool:
    """Whether the numbers are different axes after the batch."""
    return (
        isinstance(value, list)
        and 1 <= len(value) <= MOST_AXES
        and all(is_whole(axis) and 1 <= axis <= MOST_AXES for axis in value)
        and len(set(value)) == len(value)
    )


def is_names(value: Any, longest: int) -> bool:
    """Whether every projection has a place of its own, of a few parts."""
    return (
        isinstance(value, dict)
        and set(value) == set(PROJECTIONS)
        and all(isinstance(name, str) and PATH.fullmatch(name) is not None for name in value.values())
        and all(name.count(".") < MOST_PARTS for name in value.values())
        and len(set(value.values())) == len(value)
    )


SIZE = Kind("a length of the stored tensors or less", is_size)
SIZE_OR_NONE = Kind(
    "null or a length of the stored tensors", lambda value, longest: value is None or is_size(value, longest)
)
SHAPE = Kind("the lengths of an axis of the stored tensors", is_shape)
SIZES = Kind("lengths of the stored tensors", are_sizes)
AXES = Kind(f"different axes from 1 to {MOST_AXES}", is_axes)
NAMES = Kind("one name for each of q_proj, k_proj, v_proj and out_proj", is_names)
FLAG = Kind("true or false", lambda value, longest: isinstance(value, bool))
TRUE = Kind("true", lambda value, longest: value is True)
RATE = Kind(
    "a number from 0 to 1", lambda value, longest: (is_whole(value) or isinstance(value, float)) and 0 <= value <= 1
)
POSITIVE = Kind("a number above 0", lambda value, longest: isinstance(value, float | int) and 0 < value < MOST_STEPS)
WINDOW = Kind("a number from 1", lambda value, longest: is_whole(value) and 1 <= value <= MOST_STEPS)
MODE = Kind("'dot' or 'concat'", lambda value, longest: value in ("dot", "concat"))


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one class: those that must be there, and those that may."""

    required: Mapping[str, Kind]
    optional: Mapping[str, Kind]


COMMON = {"dropout": RATE, "bias": FLAG}
OF_KERAS = Arguments(
    required={
        "num_heads": SIZE,
        "key_dim": SIZE,
        "value_dim": SIZE,
        "query_features": SIZE,
        "key_features": SIZE,
        "value_features": SIZE,
        "output_shape": SHAPE,
        **COMMON,
    },
    optional={"num_key_value_heads": SIZE, "gate": FLAG, "sliding_window": WINDOW, "attention_axes": AXES},
)
ARGUMENTS: Mapping[str, Arguments] = {
    "MultiheadAttention": Arguments(
        required={"embed_dim": SIZE, "num_heads": SIZE, "batch_first": TRUE, **COMMON},
        optional={"kdim": SIZE, "vdim": SIZE},
    ),
    "ProjectedMultiheadAttention": Arguments(
        required={"embed_dim": SIZE, "num_heads": SIZE, "query_features": SIZE, "output_shape": SHAPE, **COMMON},
        optional={"kdim": SIZE, "vdim": SIZE, "attention_axes": AXES},
    ),
    "KerasMultiheadAttention": OF_KERAS,
    "NamedMultiheadAttention": Arguments(
        required={**OF_KERAS.required, "names": NAMES, "divides_scores": FLAG}, optional=OF_KERAS.optional
    ),
    "FusedMultiheadAttention": Arguments(
        required={"num_heads": SIZE, "key_dim": SIZE, "features": SIZE, "output_features": SIZE, **COMMON}, optional={}
    ),
    "DotProductAttention": Arguments(required={"use_scale": FLAG, "score_mode": MODE, "dropout": RATE}, optional={}),
    "LayerNorm": Arguments(required={"normalized_shape": SIZES, "eps": POSITIVE}, optional={"bias": FLAG}),
    "AdditiveAttention": Arguments(required={"features": SIZE_OR_NONE, "dropout": RATE}, optional={}),
}


def faults_of(class_name: str, arguments: Mapping[str, Any], shapes: Sequence[tuple[int, ...]]) -> Iterator[str]:
    """Each thing that is wrong with a module's arguments, as expected against actual.

    Args:
        class_name: of the module.
        arguments: as the description has them.
        shapes: of the layer's stored tensors.
    """
    rows = ARGUMENTS.get(class_name)
    if rows is None:
        yield f"there is no class '{class_name}'"
        return
    known = {**rows.required, **rows.optional}
    longest = max((length for shape in shapes if all(shape) for length in shape), default=1)
    missing = [name for name in rows.required if name not in arguments]
    if missing:
        yield f"{class_name} has no {', no '.join(missing)}"
    for name, value in arguments.items():
        if name not in known:
            yield f"{class_name} has no argument '{name}'"
        elif not known[name].test(value, longest):
            yield f"its {name} is {shown(value)}, expected {known[name].words}"
