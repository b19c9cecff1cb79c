"""From a target to modules that are ready to call."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ..errors import ReadError
from ..records.plan import STOCK, ModuleSpec
from . import Target, open_target
from .metadata import LayerDescription, TargetDescription, parse_description, shown
from .module_arguments import faults_of

if TYPE_CHECKING:
    import torch
    from torch import nn


DTYPES = frozenset(("float64", "float32", "float16", "bfloat16"))
LOADING = (RuntimeError, TypeError, ValueError, KeyError, AttributeError, AssertionError, ArithmeticError)
MOST_TOLD = 4


def load_modules(target: str | os.PathLike[str]) -> "dict[str, nn.Module]":
    """Every layer of a target as a module in evaluation mode, by its Keras name; needs the target alone.

    A layer that fits the stock class is a ``torch.nn.MultiheadAttention``; the others are of ``mha_convert.modules``
    and are called in the same way, batch first: ``output, weights = module(query, key, value)``.

    Raises:
        ReadError: the target is missing, damaged, not one of ours, or its description does not fit its tensors.
    """
    stored = open_target(target)
    description = parse_description(stored.description, Path(target))
    modules = {layer.name: layer_module(layer, stored) for layer in description.layers}
    keys = {layer.name: own_keys(layer, modules[layer.name]) for layer in description.layers}
    refuse_shared(stored, keys)
    refuse_unowned(stored, description, keys)
    return {name: load_layer(name, module, keys[name], stored) for name, module in modules.items()}


def layer_module(layer: LayerDescription, stored: Target) -> "nn.Module":
    """The layer's module without numbers, once all that the target says of it fits the tensors that are there."""
    facts = list(faults_of(layer.module.class_name, layer.module.arguments, near(layer, stored)))
    facts += [
        f"its {name} is {shown(value)}, and {shown(layer.keras[name])} in Keras"
        for name, value in layer.module.arguments.items()
        if name in layer.keras and layer.keras[name] != value
    ]
    if facts:
        raise refusal(stored, layer.name, "; ".join(facts))
    try:
        module = empty_module(layer.module)
    except LOADING as error:
        raise refusal(stored, layer.name, str(error)) from error
    facts = list(faults_of_tensors(layer, own_keys(layer, module), module, stored))
    if facts:
        raise refusal(stored, layer.name, "; ".join(facts[:MOST_TOLD]))
    return module


def near(layer: LayerDescription, stored: Target) -> list[tuple[int, ...]]:
    """Shapes of the tensors that may be the layer's."""
    if layer.keys:
        return [stored.shapes[key] for key in layer.keys.values() if key in stored.shapes]
    return [shape for key, shape in stored.shapes.items() if key.startswith(layer.prefix)]


def own_keys(layer: LayerDescription, module: "nn.Module") -> dict[str, str]:
    """Where each tensor of the module is in the target."""
    return {name: layer.keys.get(name, layer.prefix + name) for name in module.state_dict()}


def faults_of_tensors(
    layer: LayerDescription, keys: Mapping[str, str], module: "nn.Module", stored: Target
) -> Iterator[str]:
    """Where the stored tensors are not those of the module: exactly its shapes, and one dtype that a target has."""
    surplus = [name for name in layer.keys if name not in keys]
    if surplus:
        yield f"it has a key for '{surplus[0]}', which its module does not have"
    dtypes = set()
    for name, tensor in module.state_dict().items():
        key, shape = keys[name], tuple(tensor.shape)
        if key not in stored.shapes:
            yield f"'{key}' is not there"
        elif tuple(stored.shapes[key]) != shape:
            yield f"'{key}' has the shape {tuple(stored.shapes[key])}, expected {shape}"
        else:
            dtypes.add(stored.dtypes[key])
    if not dtypes <= DTYPES:
        found = ", ".join(sorted(dtypes))
        yield f"its tensors are {found}, expected one of {', '.join(sorted(DTYPES))}"
    elif len(dtypes) > 1:
        yield f"its tensors are {' and '.join(sorted(dtypes))}, expected one dtype"


def refuse_shared(stored: Target, keys: Mapping[str, Mapping[str, str]]) -> None:
    """Two layers do not have one tensor."""
    owners: dict[str, str] = {}
    for name, own in keys.items():
        for key in own.values():
            if key in owners:
                raise refusal(stored, name, f"'{key}' is a tensor of '{owners[key]}', too")
            owners[key] = name


def refuse_unowned(stored: Target, description: TargetDescription, keys: Mapping[str, Mapping[str, str]]) -> None:
    """A tensor among a layer's own that its module does not take would be left out silently.

    Tensors elsewhere are another's: a target may be merged into a larger state_dict.
    """
    owned = {key for own in keys.values() for key in own.values()}
    left = [key for key in stored.shapes if key not in owned]
    for layer in description.layers:
        found = [] if layer.keys else [key for key in left if key.startswith(layer.prefix)]
        if found:
            raise refusal(stored, layer.name, f"among its tensors is '{found[0]}', which its module does not have")


def load_layer(name: str, module: "nn.Module", keys: Mapping[str, str], stored: Target) -> "nn.Module":
    """The module with its tensors."""
    try:
        return filled(module, {own: stored.read(key) for own, key in keys.items()})
    except LOADING as error:
        raise refusal(stored, name, str(error)) from error


def refusal(stored: Target, name: str, fact: str) -> ReadError:
    """A layer that is not what the target says."""
    return ReadError(f"{stored.path}: layer '{name}' does not load: {fact}. Convert again.")


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

    from .. import modules

    stock = {key: getattr(torch.nn, key) for key in STOCK}
    found = stock | {key: getattr(modules, key) for key in modules.__all__}
    if not isinstance(found.get(name), type):
        raise ValueError(f"there is no class '{name}'")
    return cast("type[nn.Module]", found[name])


def filled(module: "nn.Module", tensors: "Mapping[str, torch.Tensor]") -> "nn.Module":
    """The module with all its parameters; a missing or surplus one is a ``RuntimeError`` of PyTorch."""
    module.load_state_dict(tensors, strict=True, assign=True)
    return module.eval()
