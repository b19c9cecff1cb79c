"""Attention, as the module that holds it is called; axes that are not attended over are part of its batch."""

from dataclasses import dataclass

from ....layouts.plain.attention import CAUSAL, OF_MODELS, RETURN_SCORES
from ....records.layer import AttentionLayer
from ....records.model import Term
from ..use import Use, Written, atom, last


def multi_head(
    layer: AttentionLayer,
    use: Use,
    query: Term,
    value: Term,
    key: Term | None = None,
    attention_mask: Term | None = None,
    return_attention_scores: bool = False,
    use_causal_mask: bool = False,
    without_key: str = "average",
) -> Written:
    """``nn.MultiheadAttention``, or one of the small modules."""
    terms = (query, key or value, value)
    form = use.plan.module.class_name if use.plan else ""
    axes = Axes.of(layer, query)
    if form not in OF_MODELS:
        texts = [last(term) for term in terms]
        options = options_of_torch(use, texts, query, attention_mask, use_causal_mask)
        options += ["average_attn_weights=False"] if return_attention_scores else ["need_weights=False"]
        text = f"{use.module}({', '.join((*texts, *options))})"
        return Written(text if return_attention_scores else f"{text}[0]")
    different = list(dict.fromkeys(last(term) for term in terms))
    names = {text: f"{{{place}}}" for place, text in enumerate(different)} if axes.are_others else {}
    texts = [names.get(last(term), last(term)) for term in terms]
    masks = [attention_mask.text] if attention_mask else []
    masks += [f"causal({texts[0]}, {texts[1]})"] if use_causal_mask and form != CAUSAL else []
    if layer.sliding_window is not None:
        masks.append(f"within({layer.sliding_window}, {texts[0]}, {texts[1]})")
    mask = [f"mask={' & '.join(map(atom, masks)) if len(masks) > 1 else masks[0]}"] if masks else []
    text = f"{use.module}({', '.join((*texts, *mask))})"
    statements = tuple(f"{name} = {axes.flat(text)}" for text, name in names.items())
    locals_ = tuple("rows" for _ in names)
    if not return_attention_scores:
        output = axes.back(f"{text}[0]" if form in RETURN_SCORES else text, query, layer.output_shape)
        return Written(output, statements=statements, outputs=(output,) if names else (), locals=locals_)
    if not names and len(layer.output_shape) == 1:
        return Written(text)
    both = (f"{{{len(names)}}}", f"{{{len(names) + 1}}}")
    return Written(
        statements=(*statements, f"{', '.join(both)} = {text}"),
        outputs=(
            axes.back(both[0], query, layer.output_shape),
            axes.scores_back(both[1], query, key or value),
        ),
        locals=(*locals_, "output", "scores"),
    )


@dataclass(frozen=True, slots=True)
class Axes:
    """Of the inputs: those that are attended over, and the others, which go with the batch."""

    attended: tuple[int, ...]
    others: tuple[int, ...]

    @classmethod
    def of(cls, layer: AttentionLayer, query: Term) -> "Axes":
        """Of a call with such a query."""
        attended = tuple(layer.attended_axes or (1,))
        return cls(attended, tuple(axis for axis in range(1, query.rank - 1) if axis not in attended))

    @property
    def are_others(self) -> bool:
        """Whether the inputs are not ``(batch, length, features)`` as they are."""
        return bool(self.others) or len(self.attended) > 1

    @property
    def order(self) -> list[int]:
        """The axes as the module needs them."""
        return [0, *self.others, *self.attended, len(self.others) + len(self.attended) + 1]

    def flat(self, text: str) -> str:
        """``(batch, *axes, features)`` as ``(batch and others, positions, features)``."""
        order = self.order
        text = atom(text) if order == sorted(order) else f"{atom(text)}.permute({', '.join(map(str, order))})"
        first, end = 1 + len(self.others), len(order) - 2
        text = f"{text}.flatten({first}, {end})" if len(self.attended) > 1 else text
        return f"{text}.flatten(0, {len(self.others)})" if self.others else text

    def back(self, text: str, query: Term, output_shape: tuple[int, ...]) -> str:
        """The inverse of ``flat``, for what the module returns; features of several axes get theirs."""
        text += f".unflatten(1, {sizes(query, self.attended)})" if len(self.attended) > 1 else ""
        text += f".unflatten(0, {sizes(query, self.others, first='-1')})" if self.others else ""
        order = self.order
        if order != sorted(order):
            text += f".permute({', '.join(str(order.index(axis)) for axis in range(len(order)))})"
        return text if len(output_shape) == 1 else f"{text}.unflatten(-1, {tuple(output_shape)})"

    def scores_back(self, text: str, query: Term, key: Term) -> str:
        """Scores with an axis for each of the query's and of the key's, and the other axes in front of the heads."""
        if len(self.attended) > 1:
            text += f".unflatten(3, {sizes(key, self.attended)}).unflatten(2, {sizes(query, self.attended)})"
        return text + (f".unflatten(0, {sizes(query, self.others, first='-1')})" if self.others else "")


def sizes(term: Term, axes: tuple[int, ...], first: str = "") -> str:
    """Sizes of some axes, as numbers where they are known."""
    known = term.spec.shape or ()
    found = [f"{atom(last(term))}.shape[{axis}]" if known[axis] is None else str(known[axis]) for axis in axes]
    return f"({', '.join([*filter(None, (first,)), *found])})"


def options_of_torch(
    use: Use, texts: list[str], query: Term, attention_mask: Term | None, use_causal_mask: bool
) -> list[str]:
    """Masks as ``nn.MultiheadAttention`` takes them."""
    causal = f"causal({texts[0]}, {texts[1]})" if use_causal_mask else ""
    if attention_mask is None:
        return [f"attn_mask=~{causal}[0]"] if causal else []
    mask = f"{atom(attention_mask.text)} & {causal}" if causal else attention_mask.text
    return [f"attn_mask=added_to_scores({mask}, {atom(query.text)}.dtype)[:, None]"]


LINES = dict.fromkeys(("MultiHeadAttention", "GroupQueryAttention"), multi_head)
