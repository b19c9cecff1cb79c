"""The masks that ``graph.masks`` made explicit: True where something is kept."""

from collections.abc import Mapping
from typing import Any

from ....records.layer import PlainLayer
from ....records.model import Term
from ..use import Use, atom, last


def tokens(layer: PlainLayer, use: Use, inputs: Term) -> str:
    """Every token but 0."""
    return f"{atom(inputs.text)} != 0"


def steps(layer: PlainLayer, use: Use, inputs: Term) -> str:
    """Steps of which some feature is not the mask's value."""
    return f"({atom(last(inputs))} != {layer.settings['mask_value']}).any(-1)"


def pairs(
    layer: PlainLayer,
    use: Use,
    query: Term | None = None,
    value: Term | None = None,
    key: Term | None = None,
    attention: Term | None = None,
) -> str:
    """Which query may attend to which key."""
    parts = [f"{atom(query.text)}[:, :, None]"] if query else []
    parts += [f"{atom(mask.text)}[:, None]" for mask in (value, key) if mask]
    if attention:
        text = attention.text if attention.spec.dtype == "bool" else f"{atom(attention.text)}.bool()"
        parts.append(f"{atom(text)}[None]" if attention.rank == len(("query", "key")) else text)
    return " & ".join(parts)


def both(layer: PlainLayer, use: Use, **masks: Term) -> str:
    """What all keep."""
    return " & ".join(atom(mask.text) for mask in masks.values())


def either(layer: PlainLayer, use: Use, **masks: Term) -> str:
    """What any keeps."""
    return " | ".join(atom(mask.text) for mask in masks.values())


def joined(layer: PlainLayer, use: Use, **parts: Term) -> str:
    """Masks one behind the other; an input without one is kept whole."""
    without = layer.settings["without"]
    masks = [
        f"torch.ones_like({atom(last(part))}[..., 0], dtype=torch.bool)" if number in without else part.text
        for number, part in enumerate(parts.values())
    ]
    return f"torch.cat([{', '.join(masks)}], dim=1)"


LINES: Mapping[str, Any] = {
    "mask.tokens": tokens,
    "mask.steps": steps,
    "mask.pairs": pairs,
    "mask.both": both,
    "mask.either": either,
    "mask.joined": joined,
}
