"""Masks made explicit: what Keras hands from layer to layer without a word becomes values and arguments of the graph.

``explicit`` returns the same graph with more calls: of the operations ``mask.…``, which make masks, in front of the
first call that uses each. A mask is True where something is kept. The rules are those of the Keras that wrote the file;
they were read in tf_keras 2.18 and Keras 3.0.5, 3.3.3, 3.4.1, 3.8.0 and 3.15.1.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ..errors import LayerError
from ..records.graph import Call, Graph, GraphLayer, Value
from ..records.layer import Layer, PlainLayer, operation
from ..records.source import Version
from .execution import in_execution_order
from .reading_order import in_reading_order

KERAS_3 = (3,)
HANDS_ON_ITS_INPUTS, HANDS_ON_WHAT_IT_USES = (3,), (3, 14)  # which mask a layer that is given one hands on
ATTENTION_TAKES_MASKS = (2, 10)
MASKS_TAKEN_AWAY = (3, 8)  # read in 3.7.0 and 3.8.0, and measured in 3.15.1
ZEROS_WITHOUT_KEY = (3, 10)
LISTS_HAVE_MASKS = (3, 4)  # in Keras 3.0 to 3.3 a layer that is called with a list hands on no mask
MASK, STEPS, TOKENS, PAIRS = "mask", "mask.steps", "mask.tokens", "mask.pairs"
BOTH, EITHER, JOINED = "mask.both", "mask.either", "mask.joined"
MASK_ARGUMENTS = (MASK, "query_mask", "value_mask", "key_mask", "attention_mask")
NAMES = {TOKENS: "keep", STEPS: "keep", PAIRS: "mask"}
OF_TWO_DIMENSIONS = 3  # axes of a sequence of features

HANDED_ON = frozenset(
    """
    Dense Dropout SpatialDropout1D SpatialDropout2D SpatialDropout3D GaussianDropout AlphaDropout GaussianNoise
    ActivityRegularization Activation ReLU LeakyReLU ELU PReLU Identity LayerNormalization RMSNormalization
    BatchNormalization UnitNormalization TimeDistributed Bidirectional LSTM GRU SimpleRNN
    """.split()  # noqa: SIM905 - one line a word would be long
)
# Layers whose output is the very tensor that they are given, at inference.
RETURNED_AS_IS = frozenset(
    """
    Dropout SpatialDropout1D SpatialDropout2D SpatialDropout3D GaussianDropout AlphaDropout GaussianNoise
    ActivityRegularization Identity
    """.split()  # noqa: SIM905 - one line a word would be long
)
HANDED_ON_BY_KERAS_3 = frozenset(("Rescaling", "Normalization"))
ELEMENTWISE = ("Add", "Subtract", "Average")
MASKED_ELEMENTWISE = ("Multiply", "Maximum", "Minimum")  # from 3.4 on they leave out what is masked
SEQUENCES_ONLY = frozenset(("LSTM", "GRU", "SimpleRNN"))
RECURRENT = SEQUENCES_ONLY | {"Bidirectional"}
TAKES_ONE = RECURRENT | {"TimeDistributed", "GlobalAveragePooling1D"}
ATTENTION = frozenset(("MultiHeadAttention", "GroupQueryAttention"))


@dataclass(frozen=True, slots=True)
class Mask:
    """A mask that nobody has made yet: which operation makes it, of which values and masks, and with what settings."""

    kind: str
    parts: tuple[tuple[str, Any], ...]
    settings: tuple[tuple[str, Any], ...] = ()


Kept = Mask | Value | None  # None keeps everything


@dataclass(slots=True)
class Masked:
    """A graph on the way: its calls so far, the mask of each value, and the masks that were made.

    ``same`` has the values that are one tensor with another in Keras, which a mask is taken away from, too.
    """

    graph: Graph
    layers: Mapping[GraphLayer, Layer]
    version: Version
    of_value: dict[Value, Kept] = field(default_factory=dict)
    same: dict[Value, Value] = field(default_factory=dict)
    made: dict[Mask, Value] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    operations: dict[str, GraphLayer] = field(default_factory=dict)
    found: dict[GraphLayer, PlainLayer] = field(default_factory=dict)

    def of(self, tree: Any) -> Kept:
        """The mask of an argument that is one tensor."""
        return self.of_value.get(self.same.get(tree, tree)) if isinstance(tree, Value) else None

    def note(self, value: Value, kept: Kept) -> None:
        """A value has this mask, or none."""
        self.of_value[self.same.get(value, value)] = kept

    def make(self, mask: Kept) -> Value | None:
        """The value of a mask, whose call is added where there is none."""
        if mask is None or isinstance(mask, Value):
            return mask
        if mask not in self.made:
            arguments = {name: self.make(part) if isinstance(part, Mask) else part for name, part in mask.parts}
            name = self.fresh(NAMES.get(mask.kind, MASK))
            layer = GraphLayer(
                name=name, class_name=mask.kind, is_operation=True, settings=dict(mask.settings), routes=((name,),)
            )
            self.operations[name] = layer
            self.found[layer] = operation(name, mask.kind, layer.settings)
            self.calls.append(Call(layer=name, number=0, keywords=MappingProxyType(arguments)))
            self.made[mask] = Value(name)
        return self.made[mask]

    def fresh(self, name: str) -> str:
        """A name that no layer has."""
        number, found = 1, name
        while found in self.graph.layers or found in self.operations:
            number += 1
            found = f"{name}_{number}"
        return found


def explicit(
    graph: Graph, layers: Mapping[GraphLayer, Layer], version: Version
) -> tuple[Graph, dict[GraphLayer, Layer]]:
    """The graph with every mask that makes a difference as a value, and the layers with the new operations.

    Args:
        graph: from ``graph_of``.
        layers: its layers, those of nested models included.
        version: of the Keras that wrote the file.

    Raises:
        LayerError: a mask goes into a nested model, or to a layer whose rule for it is not known.
    """
    graph = in_reading_order(graph)
    masked = Masked(graph, layers, version)
    nested: dict[str, GraphLayer] = {}
    found: dict[GraphLayer, Layer] = dict(layers)
    for call in in_execution_order(graph):
        layer = graph.layers[call.layer]
        if layer.graph is not None:
            refuse_into_nested(call, masked)
            if layer.name not in nested:
                inner, found = explicit(layer.graph, found, version)
                nested[call.layer] = replace(layer, graph=inner)
            masked.calls.append(call)
            continue
        masked.calls.append(with_masks(call, layers[layer], masked))
    found.update(masked.found)
    named = {**graph.layers, **nested, **masked.operations}
    # Without the calls that no output depends on: a mask that was given explicitly may not be used.
    return in_reading_order(replace(graph, calls=tuple(masked.calls), layers=MappingProxyType(named))), found


def refuse_into_nested(call: Call, masked: Masked) -> None:
    """A mask that enters a nested model acts on the layers in it."""
    if any(masked.of(value) is not None for value in call.values):
        raise LayerError(
            f"Model '{call.layer}' is called with a tensor that carries a mask, which acts on the layers inside it. "
            "This has no rule yet. Save the model without the nesting, or the nested model alone."
        )


def with_masks(call: Call, layer: Layer, masked: Masked) -> Call:
    """The call with the masks that it uses as arguments; what it hands on is noted."""
    kind = layer.kind
    rule = RULES.get(kind)
    given = dict(call.keywords)
    explicit_masks = {name: given.pop(name) for name in MASK_ARGUMENTS if name in given}
    explicit_masks = {name: value for name, value in explicit_masks.items() if value not in (None, False)}
    arguments = dict(zip(ARGUMENTS.get(kind, ("inputs",)), call.arguments, strict=False)) | given
    if kind in TAKES_ONE:
        used, passed = one_mask(layer, arguments, explicit_masks, masked)
    elif kind in ATTENTION:
        used, passed = attention_masks(kind, arguments, explicit_masks, masked)
        is_masked = used["attention_mask"] is not None or getattr(layer, "sliding_window", None) is not None
        given |= {"without_key": "zeros"} if is_masked and gives_zeros(layer, given, masked.version) else {}
    elif kind in USING:
        used, passed = USING[kind](layer, arguments, explicit_masks, masked)
    elif layer_is_operation(call, masked):
        used, passed = dict(explicit_masks), None
    else:
        refuse_unused(layer, explicit_masks)
        used, passed = {}, rule(layer, arguments, masked) if rule is not None else None
    values = {name: masked.make(mask) for name, mask in used.items()}
    new = replace(call, keywords=MappingProxyType(given | {k: v for k, v in values.items() if v is not None}))
    if kind in RETURNED_AS_IS and call.values:
        masked.same[Value(call.layer, call.number)] = masked.same.get(call.values[0], call.values[0])
    if takes_away(kind, masked.version):
        for role in ARGUMENTS[kind]:
            if isinstance(arguments.get(role), Value):
                masked.note(arguments[role], None)
    for output in range(masked_outputs(layer) if passed is not None else 0):
        masked.note(Value(call.layer, call.number, output), passed)
    return new


def masked_outputs(layer: Layer) -> int:
    """How many of the outputs have the mask that is handed on: both directions where they stay two."""
    return 2 if layer.kind == "Bidirectional" and layer.settings["merge_mode"] is None else 1


def layer_is_operation(call: Call, masked: Masked) -> bool:
    """Whether a call's masks are ordinary arguments."""
    return masked.graph.layers[call.layer].is_operation


def first_mask(layer: Layer, arguments: Mapping[str, Any], masked: Masked) -> Kept:
    """What most layers hand on: the mask of their first argument."""
    return masked.of(next(iter(arguments.values()), None))


def since_keras_3(layer: Layer, arguments: Mapping[str, Any], masked: Masked) -> Kept:
    """What some layers hand on since Keras 3."""
    return first_mask(layer, arguments, masked) if masked.version >= (3,) else None


def of_embedding(layer: PlainLayer, arguments: Mapping[str, Any], masked: Masked) -> Kept:
    """``Embedding(mask_zero=True)`` keeps every token but 0."""
    tokens = next(iter(arguments.values()))
    return Mask(TOKENS, (("inputs", tokens),)) if layer.settings["mask_zero"] else None


def of_masking(layer: PlainLayer, arguments: Mapping[str, Any], masked: Masked) -> Kept:
    """``Masking`` keeps the steps of which some feature is not the mask's value."""
    steps = next(iter(arguments.values()))
    return Mask(STEPS, (("inputs", steps),), (("mask_value", layer.settings["mask_value"]),))


def of_groups(
    layer: Layer, arguments: Mapping[str, Any], given: Mapping[str, Any], masked: Masked
) -> tuple[dict[str, Kept], Kept]:
    """``GroupNormalization`` hands a mask on; in Keras 2 it also leaves out of its mean what is masked."""
    mask = first_mask(layer, arguments, masked)
    if masked.version < (3,) and (mask is not None or MASK in given):
        raise LayerError(
            f"Layer '{layer.name}' (GroupNormalization) is called with a masked tensor, whose mean Keras 2 takes over "
            "what the mask keeps. This has no rule; port this layer by hand."
        )
    return {}, mask


def unprojected_masks(
    layer: Layer, arguments: Mapping[str, Any], given: Mapping[str, Any], masked: Masked
) -> tuple[dict[str, Kept], Kept]:
    """``Attention`` and ``AdditiveAttention`` take the masks of query and value, and hand on the query's.

    Masks that are given, as a list of both, are taken in place of all that the tensors have.
    """
    inferred = [masked.of(tensor) for tensor in next(iter(arguments.values()))]
    query, value = [*(given.get(MASK) or inferred)][:2]
    passed = inferred[0] if HANDS_ON_ITS_INPUTS <= masked.version < HANDS_ON_WHAT_IT_USES else query
    passed = None if KERAS_3 <= masked.version < LISTS_HAVE_MASKS else passed
    return {"query_mask": query, "value_mask": value}, passed


def softmax_masks(
    layer: Layer, arguments: Mapping[str, Any], given: Mapping[str, Any], masked: Masked
) -> tuple[dict[str, Kept], Kept]:
    """``Softmax`` takes a mask of scores that is given; that of a sequence would be one of features."""
    if MASK not in given and first_mask(layer, arguments, masked) is not None:
        raise LayerError(
            f"Layer '{layer.name}' (Softmax) is called with a masked sequence, whose mask Keras takes for one of its "
            f"features. This has no rule; use Activation('softmax') in its place, and save the model again."
        )
    return {MASK: given[MASK]} if MASK in given else {}, None


def refuse_unused(layer: Layer, given: Mapping[str, Any]) -> None:
    """Masks that a call is given by name, and that no rule takes; BatchNormalization uses them in training only."""
    if given and layer.kind != "BatchNormalization":
        raise LayerError(
            f"Layer '{layer.name}' ({layer.kind}) is called with {' and '.join(given)}, which has no rule. "
            "Port this layer by hand."
        )


def masking_masks(
    layer: PlainLayer, arguments: Mapping[str, Any], given: Mapping[str, Any], masked: Masked
) -> tuple[dict[str, Kept], Kept]:
    """``Masking`` sets what it masks to 0, which it is already where that is the mask's value."""
    mask = of_masking(layer, arguments, masked)
    return ({MASK: mask} if layer.settings["mask_value"] else {}), mask


def of_elementwise(layer: Layer, arguments: Mapping[str, Any], masked: Masked) -> Kept:
    """What ``Add`` and its like hand on."""
    return of_list([masked.of(value) for value in next(iter(arguments.values()))], masked.version)


def of_list(masks: list[Kept], version: Version) -> Kept:
    """In Keras 2 what all masks keep that there are; from 3.4 on what any keeps, if all inputs have one."""
    if version >= LISTS_HAVE_MASKS:
        return None if None in masks else combined(EITHER, masks)
    return combined(BOTH, [mask for mask in masks if mask is not None]) if version < KERAS_3 else None


def merging_masks(
    layer: Layer, arguments: Mapping[str, Any], given: Mapping[str, Any], masked: Masked
) -> tuple[dict[str, Kept], Kept]:
    """``Multiply``, ``Maximum`` and ``Minimum`` use the masks of their inputs from 3.4 on."""
    masks = [masked.of(value) for value in next(iter(arguments.values()))]
    used = masks if masked.version >= LISTS_HAVE_MASKS else []
    return {f"mask_{number}": mask for number, mask in enumerate(used)}, of_list(masks, masked.version)


def of_concatenate(layer: PlainLayer, arguments: Mapping[str, Any], masked: Masked) -> Kept:
    """As ``Add``, where an input without a mask is kept whole; along the length masks are joined, too."""
    values = tuple(next(iter(arguments.values())))
    masks = [masked.of(value) for value in values]
    if all(mask is None for mask in masks) or KERAS_3 <= masked.version < LISTS_HAVE_MASKS:
        return None
    if layer.settings["axis"] in (1, 1 - OF_TWO_DIMENSIONS):
        parts = tuple(
            (f"part_{n}", value if mask is None else mask)
            for n, (value, mask) in enumerate(zip(values, masks, strict=True))
        )
        return Mask(JOINED, parts, (("without", tuple(n for n, mask in enumerate(masks) if mask is None)),))
    if layer.settings["axis"] not in (-1, OF_TWO_DIMENSIONS - 1):
        raise LayerError(
            f"Layer '{layer.name}' joins masked tensors along axis {layer.settings['axis']}, which has no rule. "
            "Port this layer by hand."
        )
    return of_list(masks, masked.version)


def combined(kind: str, masks: list[Kept]) -> Kept:
    """Several masks as one."""
    different = list(dict.fromkeys(masks))
    if len(different) < 2:
        return different[0] if different else None
    return Mask(kind, tuple((f"mask_{number}", mask) for number, mask in enumerate(different)))


def one_mask(
    layer: Layer, arguments: Mapping[str, Any], given: Mapping[str, Any], masked: Masked
) -> tuple[dict[str, Kept], Kept]:
    """Of layers that skip what is masked: the mask that they use, and what they hand on."""
    inferred = first_mask(layer, arguments, masked)
    # Keras 3 looks for the mask of the only tensor that a layer is called with: one with initial states gets none.
    has_states = layer.kind in RECURRENT and bool(arguments.get("initial_state"))
    mask = given.get(MASK, None if has_states and masked.version >= KERAS_3 else inferred)
    passed = inferred if HANDS_ON_ITS_INPUTS <= masked.version < HANDS_ON_WHAT_IT_USES else given.get(MASK, inferred)
    if layer.kind == "TimeDistributed":
        refuse_step_masks(layer, mask)
        return {}, passed
    inner = (layer.inside or (layer,))[0].settings
    returns_steps = bool(inner.get("return_sequences")) and layer.kind in RECURRENT
    return {MASK: mask}, passed if returns_steps else None


def refuse_step_masks(layer: Layer, mask: Kept) -> None:
    """A layer at each step gets the mask of that step, which is one bit for each row of the batch."""
    part = layer.inside[0]
    if mask is not None and part.kind in (TAKES_ONE | ATTENTION | {"Softmax"}):
        raise LayerError(
            f"Layer '{layer.name}' calls a {part.class_name} layer at each step of a masked tensor, which has no rule. "
            "Port this layer by hand."
        )


def attention_masks(
    kind: str, arguments: Mapping[str, Any], given: Mapping[str, Any], masked: Masked
) -> tuple[dict[str, Kept], Kept]:
    """Attention joins the masks of query, value and key with the one that it is given (Keras 2.10 and later).

    Keras 2 takes a tensor's own mask, Keras 3 one that is given for it before its own. From 3.8 on
    ``MultiHeadAttention`` takes the query's own alone.
    """
    version = masked.version
    roles = ("query", "value", "key")
    inferred = {role: masked.of(arguments.get(role)) if version >= ATTENTION_TAKES_MASKS else None for role in roles}
    masks = {role: given.get(f"{role}_mask") or own for role, own in inferred.items()}
    own_alone = roles if version < KERAS_3 else roles[:1] if takes_away(kind, version) else ()
    masks |= {role: inferred[role] for role in own_alone}
    if arguments.get("key") in (None, arguments.get("value")) and masks["key"] == masks["value"]:
        masks["key"] = None
    whole = {**masks, "attention": given.get("attention_mask")}
    parts = tuple((role, mask) for role, mask in whole.items() if mask is not None)
    return {"attention_mask": Mask(PAIRS, parts) if parts else None}, inferred["query"]


def takes_away(kind: str, version: Version) -> bool:
    """Whether a call leaves its inputs without masks: whoever is called after it with one of them sees none."""
    return kind == "MultiHeadAttention" and version >= MASKS_TAKEN_AWAY


def gives_zeros(layer: Layer, given: Mapping[str, Any], version: Version) -> bool:
    """Whether a query without any key gets zeros: from Keras 3.10, with dropout, scores or more axes (measured)."""
    is_fused = not getattr(layer, "dropout", 0.0) and not given.get("return_attention_scores")
    return version >= ZEROS_WITHOUT_KEY and not (is_fused and getattr(layer, "rank", 3) == OF_TWO_DIMENSIONS)


Rule = Callable[..., Kept]
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(HANDED_ON, first_mask),
    **dict.fromkeys(HANDED_ON_BY_KERAS_3, since_keras_3),
    **dict.fromkeys(ELEMENTWISE, of_elementwise),
    "Concatenate": of_concatenate,
    "Embedding": of_embedding,
}
USING: Mapping[str, Callable[..., tuple[dict[str, Kept], Kept]]] = {
    "AdditiveAttention": unprojected_masks,
    "Attention": unprojected_masks,
    "GroupNormalization": of_groups,
    "Softmax": softmax_masks,
    **dict.fromkeys(MASKED_ELEMENTWISE, merging_masks),
    "Masking": masking_masks,
}
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(ATTENTION, ("query", "value", "key")),
    **dict.fromkeys(RECURRENT, ("sequences", "initial_state")),
}
