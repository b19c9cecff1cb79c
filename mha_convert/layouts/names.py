"""Layout ``linear`` under the names that models elsewhere give their four ``nn.Linear``: one layout for each family."""

from dataclasses import dataclass, replace

from ..records.layer import AttentionLayer
from ..records.plan import LayerPlan, ModuleSpec, Rule
from . import linear
from .refusals import Refusal


@dataclass(frozen=True, slots=True)
class Names:
    """A layout: what one family of models calls the projections, and whether it divides scores by ``sqrt(key_dim)``."""

    NAME: str
    query: str
    key: str
    value: str
    output: str
    divides_scores: bool = True
    REFUSALS: tuple[Refusal, ...] = linear.REFUSALS

    @property
    def places(self) -> dict[str, str]:
        """The family's names by those of layout ``linear``."""
        return {"q_proj": self.query, "k_proj": self.key, "v_proj": self.value, "out_proj": self.output}

    def lay_out(self, layer: AttentionLayer, prefix: str) -> LayerPlan:
        """The rules of layout ``linear`` with the family's targets."""
        item = linear.lay_out(layer, prefix, divides_scores=self.divides_scores)
        named = {"names": self.places, "divides_scores": self.divides_scores}
        return replace(
            item,
            layout=self.NAME,
            rules=tuple(self.renamed(rule) for rule in item.rules),
            module=ModuleSpec(class_name="NamedMultiheadAttention", arguments={**item.module.arguments, **named}),
        )

    def renamed(self, rule: Rule) -> Rule:
        """One row under the family's name."""
        projection, kind = rule.target.split(".")
        return Rule(f"{self.places.get(projection, projection)}.{kind}", rule.pieces)


# A layer that a user described, with T5's names on both sides: nobody has said whether its scores are divided.
UNSAID_SCALE = Refusal(
    lambda layer: layer.row is not None and layer.row.has_names_of_t5,
    "has the names of T5, whose scores are not divided by sqrt(key_dim), and this layout takes that factor out of the "
    "query where they are",
    "Say which it is, in the layer's row of --attention: scale=1 for a T5, scale=1/sqrt(key_dim) for attention that "
    "divides",
)

BERT = Names("bert", "self.query", "self.key", "self.value", "output.dense")
VIT = Names("vit", "attention.query", "attention.key", "attention.value", "output.dense")
DISTILBERT = Names("distilbert", "q_lin", "k_lin", "v_lin", "out_lin")
LLAMA = Names("llama", "q_proj", "k_proj", "v_proj", "o_proj")
BART = Names("bart", "q_proj", "k_proj", "v_proj", "out_proj")
T5 = Names("t5", "q", "k", "v", "o", divides_scores=False, REFUSALS=(*linear.REFUSALS, UNSAID_SCALE))
FAMILIES = (BERT, VIT, DISTILBERT, LLAMA, BART, T5)
