"""What no plain ``nn.MultiheadAttention`` computes: rows of test, fact and next step."""

from collections.abc import Callable
from dataclasses import dataclass

from ..datatypes import AttentionLayer


@dataclass(frozen=True, slots=True)
class Refusal:
    """A property of a layer that a layout cannot hold."""

    applies: Callable[[AttentionLayer], bool]
    fact: str
    next_step: str

    def text(self, layer: AttentionLayer) -> str:
        """The fact with this layer's own numbers."""
        return self.fact.format(layer=layer)


TIME_AXIS = ((1,), None)

GROUPED = Refusal(
    lambda layer: layer.num_key_value_heads != layer.num_heads,
    "has grouped heads: {layer.num_heads} query heads share {layer.num_key_value_heads} key and value heads",
    "Grouped heads are not converted yet; repeat the key and value heads by hand",
)
GATED = Refusal(
    lambda layer: layer.gate is not None,
    "has a gate (use_gate=True): its output is multiplied by a sigmoid that PyTorch's attention does not have",
    "A gate is not converted yet; port the layer by hand",
)
WINDOWED = Refusal(
    lambda layer: layer.sliding_window is not None,
    "has sliding_window={layer.sliding_window}: each query sees a band of keys only",
    "A window is not converted yet; port the layer by hand, with the band as attn_mask",
)
OTHER_AXES = Refusal(
    lambda layer: layer.attention_axes not in TIME_AXIS or layer.input_rank not in (3, None),
    "attends over axes {layer.attention_axes} of an input of rank {layer.input_rank}, not over the one time axis (1,) "
    "of rank 3",
    "Other axes are not converted yet; bring the attended axis to the middle by a reshape in your own code",
)

PLAIN_ONLY: tuple[Refusal, ...] = (GROUPED, GATED, WINDOWED, OTHER_AXES)
