"""Kernels of attention whose layer the file does not say: named, so that no conversion loses them silently."""

from ..records.layer import AttentionLayer, NotConverted
from ..records.source import Group
from .multi_head_attention import INNER, sublayers

NEXT_STEP = (
    "Save the model itself, where it was made: as .keras or .weights.h5, or with tf.saved_model.save(model, folder)"
)


def match(group: Group, ancestors: tuple[Group, ...]) -> AttentionLayer | NotConverted | None:
    """A group in doubt that is no whole layer."""
    parts = sublayers(group)
    if group.doubt is None or all(role in parts for role in (*INNER, "output")):
        return None
    inside = tuple(variable for part in group.walk() for variable in part.variables.values())
    return NotConverted(
        name=group.name, kind="attention", reason=group.doubt, next_step=NEXT_STEP, blocking=True, variables=inside
    )
