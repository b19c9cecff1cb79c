"""``explain``: for people, how one layer's arrays become PyTorch tensors, with the layer's own numbers."""

from collections.abc import Iterable, Sequence

from ..errors import printable
from ..records.plan import LayerPlan
from .kinds import OF_KIND


def explanation(items: Sequence[LayerPlan], source: str) -> str:
    """The text for layers of one kind, with the first one's numbers; ``source`` is how a command names the file."""
    item = items[0]
    return "\n".join((headline(items), *OF_KIND[item.layer.kind].explained(item, source)))


def alike(items: Iterable[LayerPlan]) -> list[list[LayerPlan]]:
    """Layers that differ in name and numbers only, together."""
    groups: dict[str, list[LayerPlan]] = {}
    for item in items:
        layer = item.layer
        facts = (item.module, layer.sizes, layer.call_options, layer.cautions)
        groups.setdefault(repr(facts), []).append(item)
    return list(groups.values())


def headline(items: Sequence[LayerPlan]) -> str:
    """The first layer's name, underlined, and those that are like it."""
    names = [printable(item.layer.name) for item in items]
    also = f"\n(the same for {', '.join(names[1:])})" if names[1:] else ""
    text = f"Layer {names[0]}"
    return f"{text}\n{'=' * len(text)}{also}\n"
