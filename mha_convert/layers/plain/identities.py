"""Layers that do something in training only: at inference they return what they are given.

https://keras.io/api/layers/regularization_layers/
"""

from ..companions import Companion
from ..settings import Setting, is_rate

RATE = Setting(name="rate", is_valid=is_rate, expected="a number between 0 and 1", default=0.0)


def unused(*names: str) -> tuple[str, ...]:
    """Settings that make no difference at inference."""
    return names


SPATIAL = ("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")
ROWS = (
    Companion(kind="Dropout", settings=(RATE,), without_effect=unused("seed", "noise_shape")),
    *(
        Companion(kind=kind, settings=(RATE,), without_effect=unused("seed", "noise_shape", "data_format"))
        for kind in SPATIAL
    ),
    Companion(kind="GaussianDropout", settings=(RATE,), without_effect=unused("seed")),
    Companion(kind="AlphaDropout", settings=(RATE,), without_effect=unused("seed", "noise_shape")),
    Companion(kind="GaussianNoise", settings=(), without_effect=unused("stddev", "seed")),
    Companion(kind="ActivityRegularization", settings=(), without_effect=unused("l1", "l2")),
)
