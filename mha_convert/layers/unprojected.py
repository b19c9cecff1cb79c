"""``keras.layers.Attention`` and ``AdditiveAttention``: no projections, at most a scale. Named, not converted yet."""

import re

from ..datatypes import Group, Lookalike

KINDS = {"Attention": r"attention(_\d+)?", "AdditiveAttention": r"additive_attention(_\d+)?"}
SCALES = {"scale", "0", "concat_score_weight", "1"}


def match(group: Group, ancestors: tuple[Group, ...]) -> Lookalike | None:
    """By class where the file knows it, else by its name and a scale of rank 0 or 1."""
    kind = kind_of(group)
    if kind is None or group.children or not all(is_scale(name, v.shape) for name, v in group.variables.items()):
        return None
    return Lookalike(
        name=group.name,
        kind=kind,
        reason=f"keras.layers.{kind} has no projections" + (", only a scale" if group.variables else ""),
        next_step="With score_mode='dot' it is scaled_dot_product_attention with scale=1.0, or with the learned scale"
        if kind == "Attention"
        else "Port this layer by hand",
        blocking=False,
        variables=tuple(group.variables.values()),
    )


def kind_of(group: Group) -> str | None:
    """Name of the class; None for everything else."""
    if group.config:
        return (
            group.config.class_name if group.config.class_name in KINDS and not group.config.registered_name else None
        )
    last = group.name.rpartition("/")[2]
    return next((kind for kind, name in KINDS.items() if re.fullmatch(name, last) and group.variables), None)


def is_scale(name: str, shape: tuple[int, ...]) -> bool:
    """Whether the variable is one of the two that these classes can have."""
    return name in SCALES and len(shape) <= 1
