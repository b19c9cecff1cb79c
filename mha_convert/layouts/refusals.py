"""What no plain ``nn.MultiheadAttention`` computes: rows of test, fact and next step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import shortened
from ..files.limits import RANK
from ..records.layer import Layer

LONGEST = 400  # characters: a file may list any number of axes


@dataclass(frozen=True, slots=True)
class Refusal:
    """A property of a layer that a layout cannot hold."""

    applies: Callable[[Any], bool]
    fact: str
    next_step: str

    def text(self, layer: Layer) -> str:
        """The fact with this layer's own numbers."""
        return shortened(self.fact.format(layer=layer), LONGEST)


def has_several_widths(layer: Any) -> bool:
    """Whether query, key and value have inputs of different widths."""
    return not layer.query_features == layer.key_features == layer.value_features


LINEAR = "Use --layout linear, whose module computes it"

GROUPED = Refusal(
    lambda layer: layer.num_key_value_heads != layer.num_heads,
    "has grouped heads: {layer.num_heads} query heads share {layer.num_key_value_heads} key and value heads",
    LINEAR,
)
GATED = Refusal(
    lambda layer: layer.gate is not None,
    "has a gate (use_gate=True): its output is multiplied by a sigmoid that plain attention does not have",
    LINEAR,
)
WINDOWED = Refusal(
    lambda layer: layer.sliding_window is not None,
    "has sliding_window={layer.sliding_window}: each query sees a band of keys only, which plain attention does "
    "not do by itself",
    LINEAR,
)
HIGH_RANK = Refusal(
    lambda layer: layer.rank > RANK,
    f"has inputs of rank {{layer.rank}}, and attention over inputs of rank {RANK} at most is converted",
    "Port this layer by hand",
)
BATCH_AXIS = Refusal(
    lambda layer: layer.rank <= RANK and 0 in layer.counted_axes,
    "attends over axis 0, which is the batch: each sample looks at the others",
    "If time was meant, the axis is 1: build the model with attention_axes=1 and save it again",
)
TWICE = Refusal(
    lambda layer: layer.rank <= RANK and len(set(layer.counted_axes)) < len(layer.counted_axes),
    "attends over axes {layer.attention_axes} of an input of rank {layer.rank}, which name an axis twice",
    "Save the model again with positive attention_axes",
)
OTHER_AXES = Refusal(
    lambda layer: not any(row.applies(layer) for row in (HIGH_RANK, BATCH_AXIS, TWICE)) and layer.attended_axes is None,
    "attends over axes {layer.attention_axes} of an input of rank {layer.rank}, which are not between the batch "
    "and the features: before Keras 3.12 -2 is the axis of the heads",
    "Save the model again with positive attention_axes, if that is what was meant",
)
UNKNOWN_AXES = (HIGH_RANK, BATCH_AXIS, TWICE, OTHER_AXES)  # of no layout
REORDERED = Refusal(
    lambda layer: (
        not any(row.applies(layer) for row in UNKNOWN_AXES) and (layer.attended_axes, layer.rank) != ((1,), 3)
    ),
    "attends over axes {layer.attention_axes} of an input of rank {layer.rank}, not over the one time axis (1,) of "
    "rank 3",
    LINEAR,
)
