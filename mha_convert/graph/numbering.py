"""From which number are the calls of a nested model counted? From 0 or from 1, and not the same everywhere.

Building a model counts as its first call where Keras 2 writes references to a nested model that has an input, and
where Keras 3 writes the outputs of the outer model, if the nested one is ``Functional``; but not in the arguments of
calls in Keras 3. The references themselves decide where they can: none may lead beyond the calls, and Keras writes no
call that nothing refers to.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Start(NamedTuple):
    """The number of the first call, in the arguments of other calls, and in the model's list of outputs."""

    arguments: int
    outputs: int


# What can be, the usual first.
KERAS_2_WITH_INPUT = (Start(1, 1), Start(0, 0))
KERAS_2_WITHOUT = (Start(0, 0), Start(1, 1))
KERAS_3_FUNCTIONAL = (Start(0, 1), Start(0, 0), Start(1, 1))
KERAS_3_SEQUENTIAL = (Start(0, 0), Start(0, 1), Start(1, 1))


def start_of(
    candidates: Sequence[Start], calls: int, arguments: Collection[int], outputs: Collection[int]
) -> Start | None:
    """The first candidate by which every reference leads to a call, and every call has one; else to a call only.

    None where there is no such candidate, or where calls are dead and several can be.
    """
    fitting = [
        start
        for start in candidates
        if all(0 <= number - start.arguments < calls for number in arguments)
        and all(0 <= number - start.outputs < calls for number in outputs)
    ]
    whole = [
        start
        for start in fitting
        if len({number - start.arguments for number in arguments} | {number - start.outputs for number in outputs})
        == calls
    ]
    if whole:
        return whole[0]
    distinct = {
        (start.arguments if arguments else 0, start.outputs if outputs else 0) for start in fitting
    }  # a part without references says nothing
    return fitting[0] if len(distinct) == 1 else None
