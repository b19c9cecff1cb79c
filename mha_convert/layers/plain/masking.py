"""``Masking``: steps whose features all have one value are set to 0, and skipped by the layers behind it.

https://keras.io/api/layers/core_layers/masking/
"""

import math
from typing import Any

from ..companions import Companion
from ..settings import Setting, is_number


def is_finite(value: Any) -> bool:
    """Whether it is a number that a feature may have."""
    return is_number(value) and math.isfinite(value)


ROWS = (
    Companion(
        kind="Masking",
        settings=(Setting(name="mask_value", is_valid=is_finite, expected="a finite number", default=0.0),),
    ),
)
