"""``Attention`` and ``AdditiveAttention``: no projections, at most a scale and a weight of the score.

https://keras.io/api/layers/attention_layers/attention/
https://keras.io/api/layers/attention_layers/additive_attention/
"""

from collections.abc import Iterator
from typing import Any

from ...records.layer import PlainLayer
from ...records.source import Group
from ..companions import Companion
from ..settings import DROPOUT, Setting, switch


def is_score(value: Any) -> bool:
    """Whether it names a way to score a query and a key."""
    return value in ("dot", "concat")


def size_faults(layer: PlainLayer, group: Group | None) -> Iterator[str]:
    """One number each, but for the scale of an additive score."""
    for name, variable in layer.arrays.items():
        rank = int(layer.kind == "AdditiveAttention")
        if len(variable.shape) != rank or 0 in variable.shape:
            yield f"its {name} is {variable.shape}, expected {'(features,)' if rank else '()'}"


# Keras 2 has use_causal_mask as a setting, causal, too.
SETTINGS = (switch("causal"), DROPOUT)
ROWS = (
    Companion(
        kind="Attention",
        settings=(
            switch("use_scale"),
            Setting(name="score_mode", is_valid=is_score, expected="'dot' or 'concat'", default="dot"),
            *SETTINGS,
        ),
        without_effect=("seed",),
        faults=size_faults,
    ),
    Companion(
        kind="AdditiveAttention",
        settings=(switch("use_scale", True), *SETTINGS),
        without_effect=("seed",),
        faults=size_faults,
    ),
)
