"""TimeDistributed: the layer inside, at one step after the other."""

from collections.abc import Mapping

import numpy as np

from ....records.layer import PlainLayer
from ....records.source import Array


def time_distributed(layer: PlainLayer, arrays: Mapping[str, Array], inputs: Array) -> Array:
    """https://keras.io/api/layers/recurrent_layers/time_distributed/"""
    from . import FORMULAS

    (part,) = layer.inside
    steps = [FORMULAS[part.kind](part, arrays, inputs[:, step]) for step in range(inputs.shape[1])]
    return np.stack(steps, axis=1)


FORMULAS = {"TimeDistributed": time_distributed}
