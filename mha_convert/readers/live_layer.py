"""A Keras layer in memory instead of in a file: the same records, made of its ``weights`` and ``get_config()``."""

import os
from typing import Any

import numpy as np

from ..errors import LayerError
from ..records.source import KERAS_MODULES, Array, Checkpoint, Group, LayerConfig, Variable
from .keras3.model_config import layer_config

WORD = "Attention"  # in the name of every attention class of Keras


def read_layer(layer: Any) -> Checkpoint:
    """Describe a built layer.

    Raises:
        LayerError: not one layer of Keras, or one without weights.
    """
    title = type(layer).__name__
    refuse_others(layer, title)
    weights = {weight_path(weight): weight for weight in layer.weights}
    if not weights:
        raise LayerError(no_weights(layer, title))
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
        role: Group(path=role, name=role, config=adapter_config(layer, role), variables=variables)
        for role, variables in children.items()
    }
    root = Group(path=layer.name, name=layer.name, config=live_config(layer), variables=own, children=groups)
    return Checkpoint(path=f"layer '{layer.name}'", format="live layer", has_config=True, root=root)


def refuse_others(layer: Any, title: str) -> None:
    """Whatever is no single layer of Keras is named, with the way on."""
    if isinstance(layer, str | os.PathLike):
        raise LayerError(
            f"'{layer}' is a path, expected a layer in memory. Pass it to convert_file, or a layer of "
            "the loaded model here."
        )
    if not is_of_keras(layer):
        raise LayerError(
            f"{title} is not a layer of Keras ({type(layer).__module__}.{title}). "
            "Pass a built keras.layers.MultiHeadAttention."
        )
    if isinstance(layer, type):
        raise LayerError(f"{layer.__name__} is the class, expected a built layer. Pass the layer itself.")
    if hasattr(layer, "layers"):
        raise LayerError(f"{title} is a model, expected one layer. Pass one of its layers, model.get_layer(name).")
    if not hasattr(layer, "weights"):
        raise LayerError(f"{title} is not a layer. Pass a built keras.layers.MultiHeadAttention.")


def is_of_keras(layer: Any) -> bool:
    """Whether an object, or a class, comes from Keras, by itself or by a class that it extends."""
    kind = layer if isinstance(layer, type) else type(layer)
    return any(base.__module__.split(".")[0] in KERAS_MODULES for base in kind.__mro__)


def no_weights(layer: Any, title: str) -> str:
    """Why a layer has none, and the next step: only attention that is not built yet is to be called."""
    if not any(WORD in base.__name__ for base in type(layer).__mro__):
        return f"{title} is not an attention layer, and has no weights. Pass a built keras.layers.MultiHeadAttention."
    if getattr(layer, "built", False):
        return (
            f"{title} has no weights of its own, so there is nothing to convert. "
            "Call torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=1.0) instead."
        )
    return (
        f"{title} has no weights, expected a built keras.layers.MultiHeadAttention. "
        "Call the layer once on inputs of the right widths."
    )


def weight_path(weight: Any) -> tuple[str, ...]:
    """Names of the scopes, the projection and the variable: Keras 3 has a path, Keras 2 a name that holds it."""
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


def adapter_config(layer: Any, role: str) -> LayerConfig | None:
    """What a projection knows of its LoRA adapters; the layer's own configuration does not say their alpha."""
    part = next((part for part in getattr(layer, "_layers", ()) if part.name == role), None)
    alpha = getattr(part, "lora_alpha", None)
    return None if alpha is None else LayerConfig(name=role, class_name="EinsumDense", settings={"lora_alpha": alpha})


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
