"""``keras.layers.MultiHeadAttention`` and ``GroupQueryAttention``: four ``EinsumDense`` with kernels of rank 3.

https://keras.io/api/layers/attention_layers/multi_head_attention/
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..classes import OF_NAME
from ..errors import LayerError, shortened
from ..records.layer import AttentionLayer, NotConverted, Projection
from ..records.source import Group, LayerConfig, Variable
from .absent_bias import KEY_CAUTION, no_bias
from .attention_kernels import Restoration, restore
from .calls import call_options, input_rank, input_widths
from .other_mathematics import NEXT_STEP, computes_more
from .settings import DROPOUT, Setting, compute_dtype, faults, is_count, switch, values

MHA, GQA = "MultiHeadAttention", "GroupQueryAttention"
# Names of the sub-layers: Keras 3.0.3 and later; before, and in grouped attention; legacy HDF5.
ROLES = {part.role: part.spellings for part in sorted(OF_NAME[GQA].parts, key=lambda part: part.setting is not None)}
INNER = ("query", "key", "value")
WITHOUT_WEIGHTS = ("_softmax", "_dropout_layer", "softmax", "dropout")
KERNEL = ("kernel", "0", "quantized_kernel")
PLAIN_CLASSES = (*OF_NAME[MHA].names, "CachedMultiHeadAttention")  # the latter KerasHub's, the same formula
GROUPED_CLASSES = OF_NAME[GQA].names
# Keras' own classes that a swapped name or configuration could put in the place of attention.
OTHER_CLASSES = (
    "Dense",
    "EinsumDense",
    "InputLayer",
    "Embedding",
    "LayerNormalization",
    "Dropout",
    "Add",
    "Activation",
)
WIDEST = (1 << 63) - 1
MOST_FACTS = 3  # in one message
REQUIRED = ("num_heads", "num_query_heads", "num_key_value_heads", "key_dim", "head_dim")  # never null
# What the configuration calls each size, for both classes.
CONFIG_SIZES = {
    "num_heads": ("num_heads", "num_query_heads"),
    "num_key_value_heads": ("num_key_value_heads",),
    "key_dim": ("key_dim", "head_dim"),
    "value_dim": ("value_dim",),
    "use_bias": ("use_bias",),
}


def axes(value: Any) -> tuple[int, ...] | None:
    """``attention_axes`` as a tuple, from any form that Keras wrote."""
    if isinstance(value, dict):
        value = value.get("items")
    if type(value) is int:
        value = [value]
    return tuple(value) if isinstance(value, (list, tuple)) and all(type(axis) is int for axis in value) else None


def is_window(value: Any) -> bool:
    """Whether it is a number of positions."""
    return is_count(value) and value <= WIDEST


# What is checked by itself; what must be as the arrays are is in CONFIG_SIZES. A file of an older version, or of the
# other class, does not have some of them, and null stands for that.
SETTINGS = (
    Setting(
        name="attention_axes",
        is_valid=lambda value: axes(value) is not None,
        expected="a list of integers",
        may_be_null=True,
    ),
    Setting(name="sliding_window", is_valid=is_window, expected="a positive integer of 64 bits", may_be_null=True),
    DROPOUT,
    switch("use_gate", may_be_null=True),
    switch("use_bias", may_be_null=True),
)


def match(group: Group, ancestors: tuple[Group, ...]) -> AttentionLayer | NotConverted | None:
    """The layer in ``group``; a ``NotConverted`` where it cannot be described exactly; None where it is none.

    Raises:
        LayerError: the configuration contradicts the shapes of the arrays.
    """
    parts = {} if group.is_model else sublayers(group)
    if not all(role in parts for role in INNER) or not any(is_kernel(parts[role]) for role in INNER):
        return without_kernels(group)
    kind = GQA if group.config and group.config.class_name in GROUPED_CLASSES else MHA
    problem = renamed(group, parts) or twice(group) or misplaced(group) or incomplete(parts)
    found = Restoration(problem=problem) if problem else restore(parts, group.config)
    more = computes_more(group, ancestors, known_children())
    if not more:  # a rotated key's bias, for one, would make a difference
        found = with_key_bias(found)
    problem = found.problem or disagreement(found.projections)
    if problem:
        reason, next_step = problem
        inside = tuple(variable for part in group.walk() for variable in part.variables.values())
        return NotConverted(
            name=group.name, kind=kind, reason=reason, next_step=next_step, blocking=True, variables=inside
        )
    if found.projections["key"].kernel.shape[1] != found.projections["query"].kernel.shape[1]:
        kind = GQA
    layer = describe(group, kind, found, more)
    check_config(layer, group.config)
    return layer


def without_kernels(group: Group) -> NotConverted | None:
    """What is Keras' own class by its configuration, and holds no kernels, or one alone; None for all else."""
    config = group.config
    if config is None or config.is_own or config.class_name not in PLAIN_CLASSES + GROUPED_CLASSES:
        return None
    kernels = [variable for part in group.walk() for variable in part.variables.values() if len(variable.shape) > 1]
    if len(kernels) > 1 or (kernels and group.children):
        return None
    held = "one kernel" if kernels else "no kernel"
    reason = f"it is {config.title} by its configuration, and the file holds {held} of it"
    next_step = "Save the model again; this file lost weights, or was put together from two models"
    return NotConverted(name=group.name, kind=MHA, reason=reason, next_step=next_step, blocking=True, variables=())


def known_children() -> set[str]:
    """Names of the groups that a plain layer has."""
    return {alias for aliases in ROLES.values() for alias in aliases} | set(WITHOUT_WEIGHTS)


def sublayers(group: Group) -> dict[str, Group]:
    """The projections' groups by role."""
    found: dict[str, Group] = {}
    for role, aliases in ROLES.items():
        present = [group.children[alias] for alias in aliases if alias in group.children]
        if present:
            found[role] = max(present, key=lambda child: len(child.variables))
    return found


def pick(group: Group, aliases: tuple[str, ...]) -> Variable | None:
    """The variable that goes by one of the names."""
    return next((group.variables[alias] for alias in aliases if alias in group.variables), None)


def is_kernel(part: Group) -> bool:
    """Whether the group holds a kernel with a heads axis, or what quantization made of one."""
    return any(len(variable.shape) >= 3 or variable.dtype in ("int8", "uint8") for variable in part.variables.values())


def renamed(group: Group, parts: Mapping[str, Group]) -> tuple[str, str] | None:
    """In the v3 layout (variables by number) Keras' own sub-layers are never called just ``query``."""
    plain = [role for role in INNER if role in group.children and parts[role] is group.children[role]]
    if not plain or all("kernel" in parts[role].variables for role in plain):
        return None
    return (
        f"its projections are called {', '.join(plain)}, not {ROLES['query'][0]} as in Keras' own class: it is another "
        "class, and what it computes cannot be seen",
        NEXT_STEP,
    )


def misplaced(group: Group) -> tuple[str, str] | None:
    """Kernels where Keras has a layer without any would be left out silently."""
    for name in WITHOUT_WEIGHTS:
        inside = group.children[name].walk() if name in group.children else ()
        if any(len(variable.shape) > 1 for part in inside for variable in part.variables.values()):
            return f"its {name} holds kernels, which Keras' own class never has there", "Save the model again"
    return None


def twice(group: Group) -> tuple[str, str] | None:
    """Two groups that could be one projection."""
    for role, aliases in ROLES.items():
        present = [alias for alias in aliases if alias in group.children and is_kernel(group.children[alias])]
        if len(present) > 1:
            return f"it holds its {role} kernel under two names, {' and '.join(present)}", NEXT_STEP
    return None


def incomplete(parts: Mapping[str, Group]) -> tuple[str, str] | None:
    """Projections that this file does not hold."""
    expected = dict.fromkeys((*INNER, "output", *parts))  # a gate, too, where there is one
    missing = [role for role in expected if role not in parts or pick(parts[role], KERNEL) is None]
    if not missing:
        return None
    return f"the file holds no {' and no '.join(missing)} kernel", "Save the model again; this file lost weights"


def with_key_bias(found: Restoration) -> Restoration:
    """The projections, with a bias of zeros where the key alone has none."""
    if [role for role, projection in found.projections.items() if projection.bias is None] != ["key"]:
        return found
    kernel = found.projections["key"].kernel
    key = Projection(kernel, no_bias(kernel, kernel.shape[1:]))
    return replace(found, projections={**found.projections, "key": key}, cautions=(*found.cautions, KEY_CAUTION))


def disagreement(projections: Mapping[str, Projection]) -> tuple[str, str] | None:
    """Shapes that four ``EinsumDense`` of one attention layer cannot have."""
    shapes = {role: item.kernel.shape for role, item in projections.items()}
    facts = list(shape_faults(shapes)) or list(bias_faults(projections))
    if not facts:
        return None
    return f"its arrays are not those of {MHA}: {'; '.join(facts[:MOST_FACTS])}", "Port this layer by hand"


def shape_faults(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """What is wrong, each fact as expected against actual."""
    query, key, value, output = (shapes[role] for role in (*INNER, "output"))
    if not all(len(shapes[role]) == 3 for role in INNER) or len(output) < 3 or not all(map(all, shapes.values())):
        yield f"kernels of rank 3 without empty axes expected, found {dict(shapes)}"
        return
    if key[1] != value[1]:
        yield f"key kernel {key} and value kernel {value} have different heads"
    if query[1] % key[1]:
        yield f"query kernel {query} does not have a multiple of the heads of key kernel {key}"
    if key[2] != query[2]:
        yield f"query kernel {query} and key kernel {key} have different head sizes"
    if output[:2] != (query[1], value[2]):
        yield f"output kernel {output} does not begin with (heads, value_dim) = {(query[1], value[2])}"
    gate = shapes.get("gate")
    if gate is not None and gate != (query[0], query[1], value[2]):
        yield f"gate kernel {gate} is not {(query[0], query[1], value[2])}"


def bias_faults(projections: Mapping[str, Projection]) -> Iterator[str]:
    """All projections or none have a bias, with the kernel's output axes."""
    without = [role for role, item in projections.items() if item.bias is None]
    if without and len(without) < len(projections):
        yield f"{', '.join(without)} without bias, the other projections with one"
    for role, item in projections.items():
        expected = item.kernel.shape[2:] if role == "output" else item.kernel.shape[1:]
        if item.bias is not None and item.bias.shape != expected:
            yield f"{role} bias {item.bias.shape} is not {expected}"


def describe(group: Group, kind: str, found: Restoration, more: str | None) -> AttentionLayer:
    """The record, with what only the configuration can tell."""
    config = group.config
    settings: Mapping[str, Any] = config.settings if config else {}
    given = values(SETTINGS, settings)
    return AttentionLayer(
        name=group.name,
        kind=kind,
        path=group.path,
        **dict[str, Any](found.projections),
        class_name=config.title if config else None,
        has_config=config is not None,
        attention_axes=axes(given["attention_axes"]),
        input_rank=input_rank(config),
        dropout=float(given["dropout"]) if config else None,
        sliding_window=given["sliding_window"],
        compute_dtype=compute_dtype(settings.get("dtype")),
        call_options=call_options(config),
        cautions=(
            *([more] if more else subclass_caution(config, kind)),
            *found.cautions,
            *([group.doubt] if group.doubt else []),
        ),
        doubt=group.doubt or found.doubt,
        beyond=more or next(subclass_caution(config, kind), None),
    )


def subclass_caution(config: LayerConfig | None, kind: str) -> Iterator[str]:
    """A user's subclass may override ``call``; its arrays are those of the base class."""
    if config and (config.class_name not in PLAIN_CLASSES + GROUPED_CLASSES or config.is_own):
        yield (
            f"its class is {config.title}, not keras.layers.{kind}: the four projections are converted and proven by "
            f"{kind}'s formula; what the class adds in its own code is not"
        )


def check_config(layer: AttentionLayer, config: LayerConfig | None) -> None:
    """Refuse a layer whose configuration and arrays differ: one of them is not this layer's."""
    if config is None:
        return
    facts = [
        *contradictions(layer, config.settings),
        *map(str, faults(SETTINGS, config.settings)),
        *wrong_axes(config.settings, layer.input_rank),
        *wrong_widths(layer, config),
    ]
    if config.class_name in OTHER_CLASSES and not config.is_own:
        facts.append(f"its class is {config.class_name} in the configuration, but the arrays are those of {layer.kind}")
    if facts:
        raise LayerError(
            f"Layer '{layer.name}': {'; '.join(facts)}. "
            "The file was changed or put together from two models; save the model again."
        )


def contradictions(layer: AttentionLayer, settings: Mapping[str, Any]) -> Iterator[str]:
    """Sizes of which configuration and arrays say different things."""
    for name, keys in CONFIG_SIZES.items():
        for key in keys:
            stated = settings.get(key, getattr(layer, name))
            absent = stated is None and key not in REQUIRED
            if not absent and (stated, type(stated)) != (getattr(layer, name), type(getattr(layer, name))):
                found = getattr(layer, name)
                yield f"{name} is {shortened(repr(settings[key]))} in the configuration, {found} in the arrays"
    gate = settings.get("use_gate", layer.gate is not None)
    if bool(gate) != (layer.gate is not None):
        found = "no gate kernel" if gate else "a gate kernel"
        yield f"use_gate is {shortened(repr(gate), 40)} in the configuration, but the arrays have {found}"
    shape = settings.get("output_shape")
    shape = [shape] if isinstance(shape, int) else shape.get("items") if isinstance(shape, dict) else shape
    if shape and (not isinstance(shape, (list, tuple)) or list(shape) != list(layer.output_shape)):
        yield f"output_shape is {shortened(shape)} in the configuration, {list(layer.output_shape)} in the arrays"


def wrong_axes(settings: Mapping[str, Any], rank: int | None) -> Iterator[str]:
    """Axes that inputs of this rank do not have, or that are listed twice."""
    listed = axes(settings.get("attention_axes")) or ()
    subject = f"attention_axes {shortened(settings.get('attention_axes'))}"
    if len(set(listed)) < len(listed):
        yield f"{subject} names an axis twice"
    if rank and not all(-rank <= axis < rank for axis in listed):
        yield f"{subject} are not axes of inputs of rank {rank}"


def wrong_widths(layer: AttentionLayer, config: LayerConfig) -> Iterator[str]:
    """Widths of the inputs that the layer was built for, against the kernels'."""
    for role, width in input_widths(config).items():
        if width != getattr(layer, f"{role}_features"):
            actual = getattr(layer, f"{role}_features")
            yield f"the {role} input is {width} wide in the configuration, {actual} in the arrays"
