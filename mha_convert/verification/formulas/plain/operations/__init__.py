"""Operations: functions of ``keras.ops`` in NumPy, one file a family. https://keras.io/api/ops/"""

from collections.abc import Mapping
from typing import Any

from . import arrangement, elementwise, products, reductions, tensorflow

FAMILIES = (elementwise, reductions, arrangement, products, tensorflow)
FORMULAS: Mapping[str, Any] = {kind: formula for family in FAMILIES for kind, formula in family.FORMULAS.items()}
