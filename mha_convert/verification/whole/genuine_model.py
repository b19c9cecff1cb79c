"""Genuine Keras as a second opinion on a whole model: it loads the file in a process of its own.

What each of its layers returns is compared with the formulas.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ...errors import VerificationError, shortened
from ...files.child.arrays import arrays_of
from ...records.graph import Value, leaves
from ...records.model import ModelPlan
from ...records.proof import Comparison
from ...records.source import Array, Checkpoint
from ..genuine_keras import GenuineKeras
from .driver import REPORT_IT

# Of the largest number of a value. Keras on TensorFlow rounds Python's constants to float32 also in float64.
BOUNDS = {"float64": 1e-6, "float32": 2e-5, "float16": 3e-2, "bfloat16": 0.2}


def compared_with_keras(
    plan: ModelPlan, checkpoint: Checkpoint, inputs: Sequence[Array], values: Mapping[Value, Array]
) -> tuple[str, list[Comparison]]:
    """What Keras' own layers return for the same inputs, beside what the formulas say.

    Args:
        plan: of the model.
        checkpoint: the source, which Keras must be able to load.
        inputs: of the model.
        values: of its graph by the formulas, for these inputs.

    Returns:
        which Keras it is, and a comparison for each value of the outermost graph.

    Raises:
        VerificationError: Keras cannot load the file, or a value differs.
    """
    wanted = [value for value in values if is_of_keras(plan, value)]
    with GenuineKeras() as keras:
        request = {
            "model": checkpoint.path,
            "values": [[value.layer, value.call, value.output] for value in wanted],
        }
        answer, blocks = keras.ask(request, {f"x{number}": array for number, array in enumerate(inputs)})
        name = keras.name.partition(" (")[0]
    if "error" in answer:
        raise VerificationError(
            f"{checkpoint.path}: {name} cannot run it: {shortened(answer['error'], 400)}. Use --reference numpy, or "
            "another Keras version."
        )
    found = arrays_of(answer["arrays"], blocks)
    dtype = answer["dtype"]
    comparisons = [*pairs(wanted, values, found, f"{name} ({dtype})", BOUNDS[dtype])]
    refuse_failures(comparisons)
    return f"{name} ({dtype})", comparisons


def is_of_keras(plan: ModelPlan, value: Value) -> bool:
    """Whether Keras has a value under this name: not inputs, masks that we made, and what --logits changed."""
    graph = plan.model.graph
    layer = graph.layers[value.layer]
    made = layer.is_input or layer.class_name.startswith("mask.")
    return not made and not (plan.is_changed and value in [*leaves(graph.outputs)])


def pairs(
    wanted: Sequence[Value], values: Mapping[Value, Array], found: Mapping[str, Array], reference: str, bound: float
) -> Iterator[Comparison]:
    """One comparison for each value that Keras returned."""
    for number, value in enumerate(wanted):
        theirs, ours = found.get(str(number)), values[value]
        if theirs is None:
            continue
        largest = float(np.abs(ours).max(initial=0.0)) or 1.0
        same = theirs.shape == ours.shape
        error = float(np.abs(theirs.astype(np.float64) - ours).max(initial=0.0)) if same else np.inf
        yield Comparison(
            layer=value.layer,
            case="the whole graph",
            what=f"output {value.output}" if value.output else "output",
            weights="float64",
            reference=reference,
            error=error,
            relative=error / largest,
            bound=bound,
        )


def refuse_failures(comparisons: Sequence[Comparison]) -> None:
    """An error for the first value, in the order of the graph, that differs."""
    for item in comparisons:
        if not item.passed:
            raise VerificationError(
                f"Layer '{item.layer}': {item.what} of {item.reference} differs from the Keras formulas by "
                f"{item.relative:.3g} of the largest number, allowed {item.bound:.3g}. {REPORT_IT}."
            )
    if not comparisons:
        raise VerificationError("Genuine Keras returned no value to compare. Use --reference numpy.")
