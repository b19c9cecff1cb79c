"""A Keras layer in memory instead of in a file: the same records, made of its ``weights`` and ``get_config()``."""

from typing import Any

import numpy as np

from ..datatypes import Array, Checkpoint, Group, LayerConfig, Variable
from ..errors import LayerError, printable
from ._config import layer_config

KERAS_MODULES = ("keras", "tf_keras", "tensorflow", "keras_hub", "keras_nlp")


def read_layer(layer: Any) -> Checkpoint:
    """Describe a built layer.

    Raises:
        LayerError: no Keras layer, or one without weights.
    """
    weights = list(getattr(layer, "weights", ()))
    if not weights:
        raise LayerError(
            f"{printable(type(layer).__name__)}: has no weights, expected a built keras.layers.MultiHeadAttention. "
            "Call the layer once on inputs of the right widths."
        )
    children: dict[str, dict[str, Variable]] = {}
    own: dict[str, Variable] = {}
    for weight in weights:
        path = str(getattr(weight, "path", weight.name)).removesuffix(":0")
        *_, role, name = ["", *path.split("/")]
        array = as_array(weight)
        variable = Variable(path=path, shape=array.shape, dtype=array.dtype.name, read=lambda array=array: array)  # type: ignore[misc]
        (children.setdefault(role, {}) if role and role != layer.name else own)[name] = variable
    groups = {role: Group(path=role, name=role, variables=variables) for role, variables in children.items()}
    root = Group(path=layer.name, name=layer.name, config=live_config(layer), variables=own, children=groups)
    return Checkpoint(path=f"layer '{layer.name}'", format="live layer", has_config=True, root=root)


def as_array(weight: Any) -> Array:
    """The numbers of a Keras variable, on any backend and device."""
    value = getattr(weight, "value", weight)
    value = value() if callable(value) else value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def live_config(layer: Any) -> LayerConfig:
    """The layer's configuration, as a file would hold it."""
    kind = type(layer)
    home = kind.__module__.split(".")[0]
    build: dict[str, Any] = getattr(layer, "get_build_config", dict)() or {}
    entry = {
        "class_name": kind.__name__,
        "config": layer.get_config(),
        "registered_name": None if home in KERAS_MODULES else f"{kind.__module__}>{kind.__name__}",
        "build_config": build,
    }
    return layer_config(entry)
