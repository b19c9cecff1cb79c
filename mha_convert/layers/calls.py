"""What a layer was built for, and how the model calls it: ranks and widths of inputs, and masks.

The configuration has the facts as Keras wrote them: in ``settings``, ``build`` and ``calls``. Here is what they mean.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ..records.source import Checkpoint, LayerConfig

ARGUMENTS = ("query", "value", "key")  # of attention, in the order of its call
MASK_ARGUMENTS = ("use_causal_mask", "attention_mask", "query_mask", "value_mask", "key_mask")
MASKS_ARE_HANDED_ON = (2, 10)  # the first Keras whose attention takes the masks of the layers before it


def mapping(value: Any) -> Mapping[str, Any]:
    """A JSON object; an empty one for whatever else stands in its place."""
    return value if isinstance(value, Mapping) else {}


def input_rank(config: LayerConfig | None) -> int | None:
    """Rank of the (query) input, wherever this Keras version wrote a shape; None where it wrote none."""
    if config is None:
        return None
    shapes = (
        config.settings.get("query_shape"),
        mapping(config.build.get("shapes_dict")).get("query_shape"),
        config.build.get("input_shape"),
        first_tensor_shape(config),
    )
    return next((len(shape) for shape in map(as_shape, shapes) if shape is not None), None)


def input_widths(config: LayerConfig) -> dict[str, int]:
    """Last axis of the query, key and value inputs that attention was built for, or is called with."""
    built = mapping(config.build.get("shapes_dict"))
    called = called_shapes(config) if not built else {}
    found = {
        role: as_shape(config.settings.get(f"{role}_shape") or built.get(f"{role}_shape") or called.get(role))
        for role in ("query", "key", "value")
    }
    found["key"] = found["key"] or found["value"]  # a layer that is given no key takes the value
    return {role: shape[-1] for role, shape in found.items() if shape and shape[-1] is not None}


def as_shape(shape: Any) -> list[int | None] | None:
    """A shape in any form that Keras wrote: a list, or ``{"class_name": "TensorShape" or "__tuple__", "items": …}``."""
    if isinstance(shape, dict):
        shape = shape.get("items")
    if isinstance(shape, (list, tuple)) and all(size is None or isinstance(size, int) for size in shape):
        return list(shape)
    return None


def called_shapes(config: LayerConfig) -> dict[str, Any]:
    """Shapes of the tensors of the first call, by argument of attention; Keras 3 writes them."""
    if not config.calls:
        return {}
    call = config.calls[0]
    arguments = {**dict(zip(ARGUMENTS, call.inputs, strict=False)), **call.keywords}
    return {name: tensor_shape(tensor) for name, tensor in arguments.items()}


def first_tensor_shape(config: LayerConfig) -> Any:
    """Shape of the first argument of the first call; Keras 3 writes it, Keras 2 does not."""
    tensor: Any = config.calls[0].inputs if config.calls else ()
    while isinstance(tensor, (list, tuple)) and tensor:
        tensor = tensor[0]
    return tensor_shape(tensor)


def tensor_shape(tensor: Any) -> Any:
    """As it stands in an argument of a call."""
    return mapping(mapping(tensor).get("config")).get("shape")


def call_options(config: LayerConfig | None) -> tuple[str, ...]:
    """Masks that some call of the layer in the graph is given, as written in Keras."""
    calls = config.calls if config else ()
    found = [name for call in calls for name in MASK_ARGUMENTS if call.keywords.get(name)]
    return tuple(dict.fromkeys(name if name != "use_causal_mask" else "use_causal_mask=True" for name in found))


def hidden_masks(checkpoint: Checkpoint) -> Iterator[str]:
    """A note where the model makes masks that Keras hands from layer to layer without a word (2.10 and later)."""
    if checkpoint.version and checkpoint.version < MASKS_ARE_HANDED_ON:
        return
    makers = [
        f"{layer.title} '{layer.name}'{' (perhaps)' if layer.is_own else ''}"
        for _, layer in checkpoint.listed
        if makes_mask(layer)
    ]
    if makers:
        yield (
            f"{', '.join(makers[:3])} makes a padding mask, which Keras hands on to the layers after it: as "
            "query_mask and value_mask of attention. Pass PyTorch the same (mha_convert.to_attn_mask)."
        )


def makes_mask(layer: LayerConfig) -> bool:
    """Whether a layer marks positions as padding, for all layers after it."""
    is_embedding = layer.class_name == "Embedding" and layer.settings.get("mask_zero") is True
    return layer.class_name == "Masking" or is_embedding
