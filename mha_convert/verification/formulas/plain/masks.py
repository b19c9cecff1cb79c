"""The masks that ``graph.masks`` made explicit."""

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np

from ....records.layer import PlainLayer
from ....records.source import Array


def tokens(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Every token but 0."""
    return inputs != 0


def steps(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """Steps of which some feature is not the mask's value."""
    return np.any(inputs != layer.settings["mask_value"], axis=-1)


def pairs(
    layer: PlainLayer,
    arrays: Mapping[str, Array],
    query: Array | None = None,
    value: Array | None = None,
    key: Array | None = None,
    attention: Array | None = None,
) -> Array:
    """Which query may attend to which key: all masks agree."""
    given = [
        None if query is None else query[:, :, None],
        *(None if m is None else m[:, None, :] for m in (value, key)),
    ]
    if attention is not None:
        given.append(attention.astype(bool).reshape(-1, *attention.shape[-2:]))
    return reduce(np.logical_and, [mask for mask in given if mask is not None])


def both(layer: PlainLayer, arrays: Mapping[str, Array], **masks: Array) -> Array:
    """What all keep."""
    return reduce(np.logical_and, masks.values())


def either(layer: PlainLayer, arrays: Mapping[str, Array], **masks: Array) -> Array:
    """What any keeps."""
    return reduce(np.logical_or, masks.values())


def joined(layer: PlainLayer, arrays: Mapping[str, Array], **parts: Array) -> Array:
    """Masks one behind the other along the length; an input without one is kept whole."""
    without = layer.settings["without"]
    masks = [np.ones(part.shape[:2], bool) if n in without else part for n, part in enumerate(parts.values())]
    return np.concatenate(masks, axis=1)


FORMULAS: Mapping[str, Any] = {
    "mask.tokens": tokens,
    "mask.steps": steps,
    "mask.pairs": pairs,
    "mask.both": both,
    "mask.either": either,
    "mask.joined": joined,
}
