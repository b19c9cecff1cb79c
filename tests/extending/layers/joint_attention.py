"""Attention whose query, key and value kernels are one array ``(3, features, heads, head_dim)``; no biases.

An example of docs/extending.md. What the layer computes is what ``MultiHeadAttention`` computes with these kernels.
"""

from ..records.layer import AttentionLayer, NotConverted, Projection
from ..records.source import Group, Variable

ROLES = ("query", "key", "value")
JOINT, OUTPUT = "joint_kernel", "output_kernel"


def match(group: Group, ancestors: tuple[Group, ...]) -> AttentionLayer | NotConverted | None:
    """The layer in ``group``, by the names of its two variables and their shapes."""
    if set(group.variables) != {JOINT, OUTPUT}:
        return None
    joint, output = group.variables[JOINT], group.variables[OUTPUT]
    if len(joint.shape) != 4 or joint.shape[0] != 3 or output.shape[:2] != joint.shape[2:]:
        return NotConverted(
            name=group.name,
            kind="joint attention",
            reason=f"its kernels {joint.shape} and {output.shape} do not belong together",
            next_step="Save the model again",
            blocking=True,
            variables=(joint, output),
        )
    parts = {role: Projection(part(joint, index)) for index, role in enumerate(ROLES)}
    return AttentionLayer(
        name=group.name, kind="MultiHeadAttention", path=group.path, output=Projection(output), **parts
    )


def part(joint: Variable, index: int) -> Variable:
    """One of the three kernels: a view of the array, which is read when it is needed."""
    return Variable(
        path=f"{joint.path}[{index}]",
        shape=joint.shape[1:],
        dtype=joint.dtype,
        made_of=(joint,),
        storage=joint.dtype,
        read=lambda: joint.read()[index],
    )
