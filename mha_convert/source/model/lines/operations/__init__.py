"""Operations: functions of ``keras.ops`` as one writes them with torch, one file a family."""

from collections.abc import Mapping
from typing import Any

from . import arrangement, elementwise, products, reductions, tensorflow

FAMILIES = (elementwise, reductions, arrangement, products, tensorflow)
LINES: Mapping[str, Any] = {kind: line for family in FAMILIES for kind, line in family.LINES.items()}
