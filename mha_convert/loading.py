"""From a target to modules that are ready to call."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from .datatypes import ModuleSpec
from .description import LayerDescription, parse_description
from .errors import ReadError, printable
from .writers import StoredTarget, open_target

if TYPE_CHECKING:
    import torch
    from torch import nn


STOCK = ("MultiheadAttention", "LayerNorm")  # classes of torch.nn that a target can name


def load_modules(target: str | os.PathLike[str]) -> "dict[str, nn.Module]":
    """Every layer of a target as a module in evaluation mode, by its Keras name; needs the target alone.

    A layer that fits the stock class is a ``torch.nn.MultiheadAttention``; the others are of ``mha_convert.modules``
    and are called alike, batch first: ``output, weights = module(query, key, value)``.

    Raises:
        ReadError: the target is missing, damaged, or not one of ours.
    """
    stored = open_target(target)
    description = parse_description(stored.description, Path(target))
    return {layer.name: load_layer(layer, stored) for layer in description.layers}


def load_layer(layer: LayerDescription, stored: StoredTarget) -> "nn.Module":
    """One module, with the tensors under its prefix."""
    try:
        module = empty_module(layer.module)
        own = {name: layer.keys.get(name, layer.prefix + name) for name in module.state_dict()}
        return filled(module, {name: stored.read(key) for name, key in own.items() if key in stored.shapes})
    except (RuntimeError, TypeError, ValueError, KeyError, AttributeError, AssertionError) as error:
        raise ReadError(
            f"{stored.path}: layer '{printable(layer.name)}' does not load: {printable(error)}. Convert again."
        ) from error


def build_module(spec: ModuleSpec, tensors: "Mapping[str, torch.Tensor]") -> "nn.Module":
    """The module with these tensors as its parameters (they are not copied), in evaluation mode."""
    return filled(empty_module(spec), tensors)


def empty_module(spec: ModuleSpec) -> "nn.Module":
    """The module on the meta device: nothing is allocated or initialised only to be replaced."""
    import torch

    with torch.device("meta"):
        return module_class(spec.class_name)(**spec.arguments)


def module_class(name: str) -> "type[nn.Module]":
    """PyTorch's class, or one of ``mha_convert.modules``; a target can name no other."""
    import torch

    from . import modules

    own = {key: item for key, item in vars(modules).items() if getattr(item, "__module__", "") == modules.__name__}
    found = {name: getattr(torch.nn, name) for name in STOCK} | own
    if not isinstance(found.get(name), type):
        raise ValueError(f"there is no class '{printable(name)}'")
    return cast("type[nn.Module]", found[name])


def filled(module: "nn.Module", tensors: "Mapping[str, torch.Tensor]") -> "nn.Module":
    """The module with all its parameters; a missing or surplus one is a ``RuntimeError`` of PyTorch."""
    module.load_state_dict(tensors, strict=True, assign=True)
    return module.eval()
