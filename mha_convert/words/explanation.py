"""``explain``: for people, how one layer's arrays become PyTorch tensors, with the layer's own numbers."""

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import shortened
from ..files.shell import file, option
from ..options import OPTIONS
from ..records.plan import LayerPlan
from ..records.said import Explanation
from .conversion import key_row
from .kinds import OF_KIND
from .table import Document, as_plain_text


def explanation_as_text(explained: Explanation) -> Document:
    """What ``explain`` says, layers that are the same once."""
    return [line for items in alike(explained.plans) for line in explanation(items, arguments(explained))]


def explanation_as_json(explained: Explanation) -> dict[str, Any]:
    """The stable form of ``explain --json``: each layer with its tensors, and the text for people."""
    return {
        "source": explained.source.path,
        "layers": [
            {
                "name": item.layer.name,
                "kind": item.layer.kind,
                "layout": item.layout,
                "module": item.module.class_name,
                "arguments": dict(item.module.arguments),
                "keys": [key_row(rule, item, item.layer.dtype) for rule in item.rules],
                "text": as_plain_text(explanation([item], arguments(explained))),
            }
            for item in explained.plans
        ],
    }


def arguments(explained: Explanation) -> str:
    """The source, and the options that show what is in it, as a command of convert takes them."""
    asked = explained.options
    rows = (
        asked.attention if isinstance(asked.attention, list | tuple) else [asked.attention] if asked.attention else []
    )
    texts = [row for row in rows if not isinstance(row, dict)]
    return " ".join(
        (
            file(explained.source.path),
            *([option(OPTIONS["config"].flag, asked.config)] if asked.config else []),
            *(option(OPTIONS["attention"].flag, row) for row in texts),
        )
    )


def explanation(items: Sequence[LayerPlan], source: str) -> list[str]:
    """The lines for layers of one kind, with the first one's numbers; ``source`` is how a command names the file."""
    item = items[0]
    return [*headline(items), *OF_KIND[item.layer.kind].explained(item, source)]


def alike(items: Iterable[LayerPlan]) -> list[list[LayerPlan]]:
    """Layers that differ in name and numbers only, together."""
    groups: dict[str, list[LayerPlan]] = {}
    for item in items:
        layer = item.layer
        facts = (item.module, layer.sizes, layer.call_options, layer.cautions)
        groups.setdefault(repr(facts), []).append(item)
    return list(groups.values())


def headline(items: Sequence[LayerPlan]) -> list[str]:
    """The first layer's name, underlined, and those that are like it."""
    names = [shortened(item.layer.name) for item in items]
    also = [f"(the same for {', '.join(names[1:])})"] if names[1:] else []
    text = f"Layer {names[0]}"
    return [text, "=" * len(text), *also, ""]
