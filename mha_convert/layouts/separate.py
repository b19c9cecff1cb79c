"""Layout ``separate``: layout ``linear`` under the names that models elsewhere give their four ``nn.Linear``."""

import math
from dataclasses import dataclass, replace

from ..datatypes import AttentionLayer, LayerPlan, ModuleSpec, Rule
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
    item = linear.lay_out(layer, placement, prefix)
    return replace(
        item,
        placement=NAME,
        rules=tuple(renamed(rule, family, layer.key_dim) for rule in item.rules),
        module=ModuleSpec(
            class_name="NamedMultiheadAttention",
            arguments={
                **item.module.arguments,
                "names": family.places,
                "divides_scores": family.divides_scores,
            },
        ),
    )


def renamed(rule: Rule, family: Names, key_dim: int) -> Rule:
    """One row under the family's name; the query carries the factor that the family's attention leaves out."""
    projection, kind = rule.target.split(".")
    pieces = rule.pieces
    if projection == "q_proj" and not family.divides_scores:
        pieces = tuple(replace(piece, factor=math.sqrt(1 / key_dim)) for piece in pieces)
    return Rule(f"{family.places.get(projection, projection)}.{kind}", pieces)
