"""What a file lets one see of layers that were not saved into it."""

from collections import Counter
from collections.abc import Iterator

from ...records.source import Group, Variable


def lost_by_optimizer(tree: Group, others: tuple[Variable, ...]) -> Iterator[str]:
    """An optimizer keeps state in the shape of every trained variable: a shape without variable was lost."""
    kept = {variable.shape for group in tree.walk() for variable in group.variables.values()}
    slots = Counter(variable.shape for variable in others if variable.role == "optimizer" and len(variable.shape) > 1)
    lost = sorted(shape for shape in slots if shape not in kept)
    if lost:
        shapes = ", ".join(str(shape) for shape in lost[:5])
        yield (
            f"The optimizer holds state for variables of shape {shapes}, which the file does not hold: these layers "
            "were not saved. Save the weights of those layers on their own."
        )
