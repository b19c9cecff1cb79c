"""A Keras layer in memory instead of in a file: the same records, made of its ``weights`` and ``get_config()``."""

from typing import Any

import numpy as np

from ..errors import LayerError
from ..records.source import Array, Checkpoint, Group, LayerConfig, Variable
from .keras3.model_config import layer_config


def read_layer(layer: Any) -> Checkpoint:
    """Describe a built layer that has weights.

    Raises:
        LayerError: it holds several layers.
    """
    title = type(layer).__name__
    weights = {weight_path(weight): weight for weight in layer.weights}
    parents = {path[:-1] for path in weights}
    owner = parents.pop() if len(parents) == 1 else max(weights, key=len)[:-2]  # of one without layers inside
    own: dict[str, Variable] = {}
    children: dict[str, dict[str, Variable]] = {}
    for path, weight in weights.items():
        if path[:-2] == owner:
            children.setdefault(path[-2], {})[path[-1]] = as_variable(path, weight)
        elif path[:-1] == owner:
            own[path[-1]] = as_variable(path, weight)
        else:
            places = f"'{'/'.join(owner)}' and '{'/'.join(path[:-2])}'"
            raise LayerError(f"{title} holds several layers, {places}, expected one. Pass one of them.")
    if len(weights) != len(layer.weights):
        raise LayerError(f"{title}: two of its weights have one path, expected one layer. Pass one of its layers.")
    groups = {
        name: Group(path=name, name=name, config=adapter_config(layer, name), variables=variables)
        for name, variables in children.items()
    }
    root = Group(path=layer.name, name=layer.name, config=live_config(layer), variables=own, children=groups)
    return Checkpoint(path=f"layer '{layer.name}'", format="live layer", has_config=True, root=root)


def weight_path(weight: Any) -> tuple[str, ...]:
    """Names of the scopes, the part and the variable: Keras 3 has a path, Keras 2 a name that holds it."""
    return tuple(str(getattr(weight, "path", weight.name)).removesuffix(":0").split("/"))


def as_variable(path: tuple[str, ...], weight: Any) -> Variable:
    """One weight, copied from wherever its backend keeps it."""
    array = as_array(weight)
    return Variable(path="/".join(path), shape=array.shape, dtype=array.dtype.name, read=lambda: array)


def as_array(weight: Any) -> Array:
    """The numbers of a Keras variable, on any backend and device."""
    value = getattr(weight, "value", weight)
    value = value() if callable(value) else value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def adapter_config(layer: Any, name: str) -> LayerConfig | None:
    """What a part knows of its LoRA adapters; the layer's own configuration does not say their alpha."""
    part = next((part for part in getattr(layer, "_layers", ()) if part.name == name), None)
    alpha, kind = getattr(part, "lora_alpha", None), type(part).__name__
    return None if alpha is None else LayerConfig(name=name, class_name=kind, settings={"lora_alpha": alpha})


def live_config(layer: Any) -> LayerConfig:
    """The layer's configuration, as a file would hold it."""
    kind = type(layer)
    build: dict[str, Any] = getattr(layer, "get_build_config", dict)() or {}
    entry = {
        "class_name": kind.__name__,
        "config": layer.get_config(),
        "module": kind.__module__,
        "build_config": build,
    }
    return layer_config(entry)
