"""Inputs of our own choice: random, of a fixed seed, in the ranges that the model's layers take."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...errors import LayerError
from ...graph.facts import facts
from ...graph.shapes.windows import length_axis
from ...records.graph import Graph, GraphLayer, TensorSpec, Value, leaves
from ...records.layer import Layer
from ...records.source import Array
from .domains import numbers

SEED = 20262
BATCH, FREE = 2, 5
KEPT = 0.7  # of a mask
PASSED_ON = ("ops.cast", "mask.tokens", "Dropout", "Identity")  # calls that hand tokens on
LENGTHENED = frozenset(
    (
        "LSTM",
        "GRU",
        "SimpleRNN",
        "CuDNNLSTM",
        "CuDNNGRU",
        "Bidirectional",
        "TimeDistributed",
        "MultiHeadAttention",
        "GroupQueryAttention",
        "Attention",
        "AdditiveAttention",
    )
)
LEAST_LENGTH = 3
SKIPPING = ("Masking", "mask.steps")  # skip the steps that hold a value of their settings and nothing else
# They divide by a number that is bounded below, which only small numbers show.
BOUNDED = ("UnitNormalization", "ops.normalize", "ops.tf.l2_normalize")
SMALL = 1e-9
OPERATION = "ops."
RECURRENT = frozenset(("LSTM", "GRU", "SimpleRNN", "Bidirectional"))  # kinds for which masked steps are not there
# Masks of one row each, by the step and the length: holes, padding at the end and the start, all kept, none kept.
OVER_KEYS = frozenset(("Softmax", "MultiHeadAttention", "GroupQueryAttention"))  # one query has no key left
KEPT_STEPS: Sequence[Callable[[int, int], bool]] = (
    lambda step, length: step % 2 == 1,
    lambda step, length: step <= length // 2,
    lambda step, length: step >= length // 2,
    lambda step, length: True,
    lambda step, length: False,
)
# How many steps one window of a layer sees, for kinds that have windows or take steps away.
WINDOWS: Mapping[str, Callable[[Layer], int]] = {
    "Conv1D": lambda item: int((item.settings["kernel_size"] - 1) * item.settings["dilation_rate"] + 1),
    "MaxPooling1D": lambda item: int(item.settings["pool_size"]),
    "AveragePooling1D": lambda item: int(item.settings["pool_size"]),
    "Cropping1D": lambda item: int(sum(item.settings["cropping"])),
}
MOST_FREE = 1 << 17


def sizes_of(spec: TensorSpec, batch: int = BATCH, free: int = FREE) -> tuple[int, ...]:
    """A shape without free sizes."""
    if spec.shape == ():
        return ()
    first, *others = spec.shape or (None,)
    return (batch if first is None else first, *(free if size is None else size for size in others))


def model_inputs(graph: Graph, layers: Mapping[GraphLayer, Layer], batch: int = BATCH, free: int = FREE) -> list[Array]:
    """One array for each input of the model, in the order of ``leaves(graph.inputs)``."""
    vocabularies, skipped = vocabulary_sizes(graph, layers), skipped_values(graph, layers)
    found = {
        value: tensor(graph.specs[value], generator(value.layer, batch, free), vocabularies.get(value), batch, free)
        for value in leaves(graph.inputs)
    }
    return [with_skipped_steps(array, skipped[value]) if value in skipped else array for value, array in found.items()]


def skipped_values(graph: Graph, layers: Mapping[GraphLayer, Layer]) -> dict[Value, float]:
    """The value of the steps that are skipped, for each input of a graph that a layer masks, here or inside it."""
    found: dict[Value, float] = {}
    for call in graph.calls:
        layer = graph.layers[call.layer]
        if layer.graph is not None:
            inside = skipped_values(layer.graph, layers)
            pairs = zip(call.values, leaves(layer.graph.inputs), strict=False)
            found |= {value: inside[inner] for value, inner in pairs if inner in inside}
        elif layers[layer].kind in SKIPPING:
            found[call.values[0]] = layers[layer].settings["mask_value"]
    return found


def with_skipped_steps(array: Array, value: float) -> Array:
    """The last step of every other sample is skipped, the first never; some features have that value elsewhere, too."""
    array = array.copy()
    array[:, 0, 0] = value
    array[::2, -1] = value
    return array


def tensor(
    spec: TensorSpec, random: np.random.Generator, vocabulary: int | None = None, batch: int = BATCH, free: int = FREE
) -> Array:
    """Normal numbers; tokens below a vocabulary's size, of which the last ones are 0; bits of which most are True."""
    shape = sizes_of(spec, batch, free)
    if vocabulary is not None:
        tokens = random.integers(0, vocabulary, shape)
        if len(shape) > 1 and shape[1] > 1:
            tokens[: max(1, shape[0] // 2), -1] = 0
            tokens[:, 0] = np.maximum(tokens[:, 0], min(1, vocabulary - 1))
        return tokens
    if spec.dtype == "bool":
        return bits(random, shape)
    if (spec.dtype or "").startswith(("int", "uint")):
        return random.integers(0, 2, shape)
    return random.standard_normal(shape)


def bits(random: np.random.Generator, shape: Sequence[int]) -> Array:
    """Most are True, and the first along the last axis always."""
    found = random.random(shape) < KEPT
    if found.ndim > 1:
        found[..., 0] = True
    return found


def generator(name: str, *more: int) -> np.random.Generator:
    """Random numbers of a name's own, the same in every run."""
    return np.random.default_rng([SEED, zlib.crc32(name.encode("utf-8", "replace")), *more])


def vocabulary_sizes(graph: Graph, layers: Mapping[GraphLayer, Layer]) -> dict[Value, int]:
    """How many tokens there are for each value that an embedding looks up, in this graph or in one inside it."""
    sources: dict[Value, Value] = {}
    found: dict[Value, int] = {}
    for call in graph.calls:
        layer = graph.layers[call.layer]
        for value, size in looked_up(call.values, layer, layers):
            origin = sources.get(value, value)
            found[origin] = min(size, found.get(origin, size))
        kind = layers[layer].kind if layer in layers else ""
        if kind in PASSED_ON and call.values:
            sources[Value(call.layer, call.number)] = sources.get(call.values[0], call.values[0])
    return found


def looked_up(
    values: Sequence[Value], layer: GraphLayer, layers: Mapping[GraphLayer, Layer]
) -> Iterator[tuple[Value, int]]:
    """What a call looks up in a table, and the size of the table."""
    if layer.graph is not None:
        inside = vocabulary_sizes(layer.graph, layers)
        for value, inner in zip(values, leaves(layer.graph.inputs), strict=False):
            if inner in inside:
                yield value, inside[inner]
        return
    item = layers[layer]
    size = table_size(item)
    if size is not None and values:
        yield values[0], size


def table_size(item: Layer) -> int | None:
    """How many rows an embedding has, also one inside a wrapper; None for all other layers."""
    inner = item.inside[0] if item.inside else item
    return int(inner.settings["input_dim"]) if inner.kind == "Embedding" else None


def alone(name: str, item: Layer, specs: Sequence[TensorSpec]) -> list[Array]:
    """Inputs of one call alone: of length 3 at least, where the layer takes any; every row of an embedding."""
    random = generator(name, len(specs))
    rows = table_size(item)
    if rows is not None:
        shape = sizes_of(specs[0])
        width = max(1, int(np.prod(shape[1:])))
        tokens = np.resize(random.permutation(rows), (max(1, -(-rows // width)), *shape[1:]))
        return [tokens]
    if item.kind in LENGTHENED:
        specs = [lengthened(spec) for spec in specs]
    if item.kind in RECURRENT and any(is_mask_of_steps(spec) for spec in specs):
        return with_masks(specs, random)
    if item.kind in WINDOWS:
        specs = [with_windows(item, spec) for spec in specs]
    arrays = [tensor(spec, random) for spec in specs]
    if item.kind.startswith(OPERATION):
        own = [numbers(item.kind, n, spec, specs, sizes_of(spec), random) for n, spec in enumerate(specs)]
        arrays = [array if found is None else found for array, found in zip(arrays, own, strict=True)]
    if item.kind in SKIPPING:
        arrays[0] = with_skipped_steps(arrays[0], item.settings["mask_value"])
    if item.kind in BOUNDED:
        arrays[0][0] *= SMALL
    if item.kind in OVER_KEYS:
        for mask in (array for array in arrays if array.dtype == bool):
            mask[(-1,) * (mask.ndim - 1)] = False
    return arrays


def with_masks(specs: Sequence[TensorSpec], random: np.random.Generator) -> list[Array]:
    """Inputs of a layer that skips masked steps: every sort of mask, a row each."""
    batch, rows = sizes_of(specs[0], len(KEPT_STEPS)), len(KEPT_STEPS)
    mask = np.array([[KEPT_STEPS[n % rows](step, batch[1]) for step in range(batch[1])] for n in range(batch[0])])
    return [mask.astype(spec.dtype) if is_mask_of_steps(spec) else tensor(spec, random, batch=rows) for spec in specs]


def is_mask_of_steps(spec: TensorSpec) -> bool:
    """Whether it is a bit, or a whole number, for each step; states are of another dtype."""
    return (spec.dtype or "").startswith(("bool", "int", "uint")) and len(spec.shape or ()) == len(("batch", "length"))


def with_windows(item: Layer, spec: TensorSpec) -> TensorSpec:
    """A sequence that is longer than two windows; what is left of it behind the last stride stays as it is.

    What ``padding="same"`` adds depends on that rest, and the source of a call may hold it as a number.
    """
    if spec.shape is None:
        return spec
    shape, axis, stride = [*spec.shape], length_axis(item), item.settings.get("strides", 1)
    length = shape[axis] or FREE
    short = max(2 * WINDOWS[item.kind](item) + 1 - length, 0)
    shape[axis] = length + -(-short // stride) * stride
    return TensorSpec(tuple(shape), spec.dtype)


def free_size(graph: Graph, layers: Mapping[GraphLayer, Layer], least: int = FREE) -> int:
    """The smallest of some sizes that every layer of a model can take where a size is free.

    Raises:
        LayerError: of the last size that was tried.
    """
    sizes = [*range(least, least + 60)]
    while sizes[-1] < MOST_FREE:
        sizes.append(2 * sizes[-1])
    for size in sizes[:-1]:
        try:
            facts(sized(graph, size), layers)
        except LayerError:
            continue
        return size
    facts(sized(graph, sizes[-1]), layers)
    return sizes[-1]


def sized(graph: Graph, free: int) -> Graph:
    """The graph with a size in each free one's place, except the batch's."""
    inputs = {
        value: TensorSpec((spec.shape[0], *sizes_of(spec, free=free)[1:]), spec.dtype)
        for value in leaves(graph.inputs)
        if (spec := graph.specs[value]).shape
    }
    return replace(graph, specs={**graph.specs, **inputs})


def lengthened(spec: TensorSpec) -> TensorSpec:
    """A sequence of 3 steps at least."""
    shape = spec.shape or ()
    if spec.dtype == "bool":  # a mask of one row is for all rows
        return spec
    if len(shape) < LEAST_LENGTH or shape[1] is None or shape[1] >= LEAST_LENGTH:
        return spec
    return TensorSpec((shape[0], LEAST_LENGTH, *shape[2:]), spec.dtype)
