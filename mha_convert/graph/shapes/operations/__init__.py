"""Operations: functions of ``keras.ops``, one file a family. Arguments may be numbers and arrays, too."""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from ....records.graph import leaves
from ..sizes import ShapeError
from . import arrangement, elementwise, products, reductions, tensorflow
from .arguments import refuse_unless

# Texts are written into the source: each is one of a few words, or an equation.
WORD, EQUATION = re.compile(r"[a-z_]+[0-9]*"), re.compile(r"[a-zA-Z., ]+->[a-zA-Z. ]*")


def checked(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that refuses what no operation takes: other texts, and data of the wrong sort."""

    @functools.wraps(rule)
    def shape(layer: Any, *given: Any, **options: Any) -> Any:
        texts = [leaf for leaf in leaves((given, options)) if isinstance(leaf, str | bytes)]
        are_known = all(isinstance(text, str) and (WORD.fullmatch(text) or EQUATION.fullmatch(text)) for text in texts)
        refuse_unless(are_known, layer, "is called with a text that no operation takes")
        try:
            return rule(layer, *given, **options)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise ShapeError(f"is called with arguments that do not fit it ({error})") from None

    return shape


FAMILIES = (elementwise, reductions, arrangement, products, tensorflow)
SHAPES: Mapping[str, Callable[..., Any]] = {
    kind: checked(rule) for family in FAMILIES for kind, rule in family.SHAPES.items()
}
