"""The finished files in a fresh process with PyTorch alone: import, strict loading, other sizes, export, gradients."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ...errors import VerificationError, shortened
from ...files.child.arrays import blocks_of, rows_of
from ...files.child.command import python
from ...files.child.process import Child, Ended
from ...records.graph import TensorSpec, leaves
from ...records.model import ModelClass, ModelPlan, UseOfFiles
from ...records.source import Array

MODULE = "mha_convert.verification.whole.fresh_worker"
SECONDS = 600.0
DETACHED = ".detach()"
NEXT_STEP = "Do not use this model; report it with the output of inspect --graph --json"


def used_alone(
    plan: ModelPlan, folder: Path, runs: Sequence[tuple[Sequence[Array], Sequence[Array]]]
) -> list[UseOfFiles]:
    """Try the files of a folder in a process of their own.

    Args:
        plan: that they were written from.
        folder: with ``model.py`` and ``model.safetensors``.
        runs: inputs, and the outputs that the formulas have for them.

    Raises:
        VerificationError: something failed; the message says what, and with which error.
    """
    arrays: dict[str, Array] = {}
    for number, (inputs, outputs) in enumerate(runs):
        arrays |= {f"{number}/in/{n}": array for n, array in enumerate(inputs)}
        arrays |= {f"{number}/out/{n}": np.asarray(array) for n, array in enumerate(outputs)}
    request = {
        "folder": str(folder),
        "class_name": plan.model.name,
        "runs": len(runs),
        "free": [list(map(free_axes, (plan.model.graph.specs[v].shape for v in leaves(plan.model.graph.inputs))))][0],
        "stops_gradients": any(map(stops_gradients, plan.model.walk())),
        "arrays": rows_of(arrays),
    }
    with tempfile.TemporaryFile() as errors:
        child = Child(python(MODULE), errors=errors)
        try:
            with child.exchange(SECONDS):
                child.say(request, *blocks_of(arrays))
                answer = child.hear().words
        except Ended as ended:
            raise VerificationError(
                f"The written model was run in a process of its own, which ended: {ended.said[-400:] or ended.code}. "
                f"{NEXT_STEP}."
            ) from ended
        child.dismiss()
    if "error" in answer:
        raise VerificationError(
            f"The written model, in a fresh process: {answer['what']} failed: {shortened(answer['error'], 400)}. "
            f"{NEXT_STEP}."
        )
    return list(uses(answer["uses"]))


def uses(found: Sequence[Sequence[str]]) -> Iterator[UseOfFiles]:
    """What the process tried."""
    return (UseOfFiles(what=what, fact=fact) for what, fact in found)


def stops_gradients(model: ModelClass) -> bool:
    """Whether a line stops them, or some call of what is computed returns other than floats."""
    graph, facts = model.graph, model.facts
    computed = {(call.layer, call.number) for call in graph.calls}
    without = {(value.layer, value.call) for value, spec in facts.items() if not is_float(spec)}
    return any(DETACHED in text for call in model.calls for text in call.statements) or any(
        (call.layer, call.number) in without
        and any((value.layer, value.call) in computed and is_float(facts[value]) for value in call.values)
        for call in graph.calls
    )


def is_float(spec: TensorSpec) -> bool:
    """Whether a tensor can have a gradient."""
    return "float" in (spec.dtype or "float32")


def free_axes(shape: tuple[int | None, ...] | None) -> list[int]:
    """The axes whose size is free, the batch left out."""
    return [axis for axis, size in enumerate(shape or ()) if size is None and axis]
