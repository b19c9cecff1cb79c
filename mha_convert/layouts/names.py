"""Layout ``separate``: layout ``linear`` under the names that models elsewhere give their four ``nn.Linear``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import LayoutError, listed
from ..records.layer import AttentionLayer
from ..records.plan import LayerPlan, ModuleSpec, Rule
from . import linear

NAME = "separate"
REFUSALS = linear.REFUSALS


@dataclass(frozen=True, slots=True)
class Names:
    """What one family of models calls the projections, and whether its attention divides scores by sqrt(key_dim)."""

    name: str
    query: str
    key: str
    value: str
    output: str
    divides_scores: bool = True

    @property
    def places(self) -> dict[str, str]:
        """The family's names by those of layout ``linear``."""
        return {"q_proj": self.query, "k_proj": self.key, "v_proj": self.value, "out_proj": self.output}


NAMES = (
    Names("bart", "q_proj", "k_proj", "v_proj", "out_proj"),
    Names("llama", "q_proj", "k_proj", "v_proj", "o_proj"),
    Names("bert", "self.query", "self.key", "self.value", "output.dense"),
    Names("vit", "attention.query", "attention.key", "attention.value", "output.dense"),
    Names("distilbert", "q_lin", "k_lin", "v_lin", "out_lin"),
    Names("t5", "q", "k", "v", "o", divides_scores=False),
)
WORDS = tuple(names.name for names in NAMES)
DEFAULT = WORDS[0]


def lay_out(layer: AttentionLayer, placement: str, prefix: str, names: str = DEFAULT) -> LayerPlan:
    """The rules of layout ``linear`` with the targets of the family ``names``, a word of ``WORDS``."""
    (family,) = (row for row in NAMES if row.name == names)
    item = linear.lay_out(layer, placement, prefix, divides_scores=family.divides_scores)
    return replace(
        item,
        placement=NAME,
        rules=tuple(renamed(rule, family) for rule in item.rules),
        module=ModuleSpec(
            class_name="NamedMultiheadAttention",
            arguments={
                **item.module.arguments,
                "names": family.places,
                "divides_scores": family.divides_scores,
            },
        ),
    )


def renamed(rule: Rule, family: Names) -> Rule:
    """One row under the family's name."""
    projection, kind = rule.target.split(".")
    return Rule(f"{family.places.get(projection, projection)}.{kind}", rule.pieces)


def refuse_unsaid_scale(layers: Sequence[Any], names: str) -> None:
    """A layer that a user described, with T5's names on both sides: nobody has said whether its scores are divided.

    Raises:
        LayoutError: the row has no scale.
    """
    (family,) = (row for row in NAMES if row.name == names)
    unsaid = [layer for layer in layers if (row := getattr(layer, "row", None)) and row.has_names_of_t5]
    if family.divides_scores or not unsaid:
        return
    raise LayoutError(
        f"Layer {listed((layer.name for layer in unsaid), 4)}: has the names of T5, whose scores are not divided by "
        f"sqrt(key_dim), and --names {names} takes that factor out of the query where they are. Say which it is, in "
        "its row of --attention: scale=1 for a T5, scale=1/sqrt(key_dim) for attention that divides."
    )
