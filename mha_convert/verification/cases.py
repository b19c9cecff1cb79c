"""The calls that a proof makes: random inputs of a fixed seed, different lengths, and every kind of mask.

Keras attends over ``attention_axes`` and treats the other axes like the batch. The formula knows one axis: inputs with
more are flattened for it, and its results are brought into Keras' axes again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..records.layer import AttentionLayer
from ..records.source import Array
from .formulas.multi_head_attention import Inputs, Result, projected, raw_scores

SEED = 20260
BATCH = 2
LENGTHS = ((5, 7), (3, 4), (2, 2))  # of the query and the key: the only attended axis; the first of several; others
OTHER_LENGTH = 2
WANTED_SCORE = 4.0
TIME_AXIS = (1,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call. ``mask`` says how it is given to PyTorch and to Keras: none, attention, padding or causal.

    ``axes`` are those that are attended over, none where the formula's results are in Keras' axes as they are. ``call``
    holds the inputs in Keras' axes, and the mask that is handed over, ``(batch, *query axes, *key axes)``;
    ``inputs`` the same for the formula, ``(batch and other axes, length, features)``, and who may attend to whom,
    window included.
    """

    name: str
    mask: str
    axes: tuple[int, ...]
    call: Inputs
    inputs: Inputs

    def in_keras_axes(self, result: Result) -> Result:
        """The formula's result with the axes that Keras gives it."""
        if not self.axes:
            return result
        shape, key_shape, axes = self.call.query.shape[:-1], self.call.key.shape[:-1], self.axes
        others = [axis for axis in range(len(shape)) if axis not in axes]
        outer, queries = [shape[axis] for axis in others], [shape[axis] for axis in axes]
        output = result.output.reshape(*outer, *queries, *result.output.shape[2:])
        heads = result.scores.shape[1]
        return Result(
            output=np.moveaxis(output, range(len(shape)), [*others, *axes]),
            scores=result.scores.reshape(*outer, heads, *queries, *(key_shape[axis] for axis in axes)),
        )


def cases(layer: AttentionLayer, arrays: Mapping[str, Array]) -> tuple[Case, ...]:
    """The calls for one layer.

    Inputs of query and key are scaled by a power of two so that the largest score is near 4: neither a softmax that
    is one-hot (it would hide errors of the query and the key) nor one that is flat.
    """
    random = np.random.default_rng(SEED)
    axes = layer.attended_axes or TIME_AXIS
    shapes = [lengths(layer.rank, axes, which) for which in (0, 1)]
    query = random.standard_normal((BATCH, *shapes[0], layer.query_features))
    key = random.standard_normal((BATCH, *shapes[1], layer.key_features))
    value = random.standard_normal((BATCH, *shapes[1], layer.value_features))
    inputs = Inputs(query=query, key=key, value=value, scale=layer.scale)
    factor = balance(arrays, flattened(inputs, axes))
    call = replace(inputs, query=query * factor, key=key * factor)
    attended = [[shape[axis - 1] for axis in axes] for shape in shapes]
    return tuple(
        Case(
            name=name,
            mask=name,
            axes=axes,
            call=replace(call, attends=attends),
            inputs=windowed(flattened(replace(call, attends=attends), axes), layer.sliding_window),
        )
        for name, attends in masks(random, attended[0], attended[1], layer.sliding_window, axes).items()
    )


def together(calls: Sequence[Case]) -> Inputs:
    """The formula's inputs of all calls at once: they differ in their masks alone, so kernels are read once."""
    every = [call.inputs for call in calls]
    shape = (len(every[0].query), every[0].query.shape[1], every[0].key.shape[1])
    masks = [np.ones(shape, bool) if inputs.attends is None else inputs.attends for inputs in every]
    return replace(every[0], attends=np.concatenate(masks), calls=len(calls))


def apart(result: Result, calls: Sequence[Case]) -> list[Result]:
    """Each call's part of the result for all of them together."""
    outputs, scores = np.split(result.output, len(calls)), np.split(result.scores, len(calls))
    return [Result(output=one, scores=other) for one, other in zip(outputs, scores, strict=True)]


def lengths(rank: int, axes: Sequence[int], which: int) -> list[int]:
    """Sizes between batch and features, of the query (0) or the key (1)."""
    sizes = [OTHER_LENGTH] * (rank - 2)
    for place, axis in enumerate(axes):
        sizes[axis - 1] = LENGTHS[min(place + (len(axes) > 1), 2)][which]
    return sizes


def flattened(inputs: Inputs, axes: Sequence[int]) -> Inputs:
    """Inputs with one attended axis; everything else is batch."""
    query, key, value = (flat(array, axes) for array in (inputs.query, inputs.key, inputs.value))
    attends = inputs.attends
    if attends is not None:
        once = attends.reshape(len(attends), query.shape[1], key.shape[1])
        attends = np.repeat(once, len(query) // len(attends), axis=0)
    return replace(inputs, query=query, key=key, value=value, attends=attends)


def flat(array: Array, axes: Sequence[int]) -> Array:
    """``(batch, *axes, features)`` as ``(batch and other axes, attended axes, features)``."""
    others = [axis for axis in range(array.ndim - 1) if axis not in axes]
    moved = array.transpose(*others, *axes, array.ndim - 1)
    length = int(np.prod([array.shape[axis] for axis in axes]))
    return moved.reshape(-1, length, array.shape[-1])


def windowed(inputs: Inputs, window: int | None) -> Inputs:
    """Who may attend under Keras' ``sliding_window``: keys less than ``window`` positions away, on either side."""
    if window is None:
        return inputs
    rows, columns = inputs.query.shape[1], inputs.key.shape[1]
    band = np.abs(np.arange(rows)[:, None] - np.arange(columns)) < window
    seen = np.broadcast_to(band, (len(inputs.query), rows, columns))
    return replace(inputs, attends=seen if inputs.attends is None else inputs.attends & seen)


def balance(arrays: Mapping[str, Array], inputs: Inputs) -> float:
    """The power of two by which query and key are multiplied."""
    heads = projected(arrays, inputs)
    largest = float(np.abs(raw_scores(heads[0], heads[1], inputs.scale)).max())
    if not 0 < largest < np.inf:
        return 1.0
    return float(2.0 ** np.round(np.log2(WANTED_SCORE / largest) / 2))


def masks(
    random: np.random.Generator, queries: Sequence[int], keys: Sequence[int], window: int | None, axes: Sequence[int]
) -> dict[str, Array | None]:
    """Every kind of mask, each row with at least one key (rows without are version-dependent in Keras).

    Keras has padding masks for one attended axis, and makes the causal mask from axis 1.
    """
    shape = (BATCH, *queries, *keys)
    rows, columns = int(np.prod(queries)), int(np.prod(keys))
    attention = random.random((BATCH, rows, columns)) < 0.6
    if window is None:
        attention[..., 0] |= ~attention.any(-1)
    else:
        attention |= np.eye(rows, columns, dtype=bool)  # itself is what every query sees through a window
    found: dict[str, Array | None] = {"no mask": None, "attention mask": attention.reshape(shape)}
    if len(axes) == 1:
        unpadded = np.array([columns, max(columns - 3, rows if window else 1)])
        padding = np.arange(columns) < unpadded[:, None]
        found["padding mask"] = np.broadcast_to(padding[:, None], attention.shape)
    if tuple(axes) == TIME_AXIS:
        found["causal mask"] = np.broadcast_to(np.tril(np.ones((rows, columns), bool)), attention.shape)
    return found
