"""Proves a whole model: what is stored, each call alone, every value of the graph, the files as they will be used."""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ... import conversion
from ...options import ModelChoices
from ...records.layer import Layer
from ...records.model import ModelClass, ModelPlan
from ...records.source import Array, Checkpoint
from ...targets import Target
from .. import Progress, check_keys, compare_bits, source_arrays
from ..pytorch import one_thread
from .driver import FORMULA, Driver
from .expected import compared_with_expected
from .fresh import used_alone
from .genuine_model import compared_with_keras
from .inputs import FREE, free_size, model_inputs
from .written import WrittenModel

BATCHES = (2, 3)
LONGER = 2  # what is free, in the second run


Run = tuple[list[Array], list[Array]]  # inputs, and the outputs that the formulas have for them


def prove_model(
    plan: ModelPlan,
    checkpoint: Checkpoint,
    source: Path,
    target: Target,
    wanted: ModelChoices,
    on_progress: Progress | None,
) -> dict[str, Any]:
    """Prove the written files against the source, here and in a process of their own.

    Args:
        plan: that they were written from.
        checkpoint: the source.
        source: the written ``model.py``.
        target: the written weights.
        wanted: which references were asked for.
        on_progress: called with the name of each layer when a call is compared, the call's index and their number.

    Returns:
        the fields of a ``ModelReport`` that say what was shown.

    Raises:
        VerificationError: anything differs; the message names the layer and the difference.
    """
    shown, runs, driver = prove_calls(plan, source, target, counted(plan, on_progress))
    comparisons, references = [*shown["comparisons"]], [FORMULA]
    if wanted.reference == "keras":
        name, found = compared_with_keras(plan, checkpoint, runs[-1][0], driver.values)
        comparisons += found
        references.append(name)
    if wanted.expect is not None:
        comparisons += compared_with_expected(plan, driver.written, target, wanted.expect)
        references.append(str(wanted.expect))
    uses = tuple(used_alone(plan, source.parent, runs))
    return shown | {"comparisons": tuple(comparisons), "reference": " and ".join(references), "uses": uses}


def counted(plan: ModelPlan, on_progress: Progress | None) -> Callable[[str], None]:
    """Tells how many calls of all runs were begun."""
    if on_progress is None:
        return lambda name: None
    total, numbers = len(BATCHES) * number_of_calls(plan.model), itertools.count()
    return lambda name: on_progress(name, next(numbers), total)


def number_of_calls(model: ModelClass) -> int:
    """How many calls one ``forward`` makes, those inside nested models included."""
    inside = {member.name: number_of_calls(member.model) for member in model.members if member.model is not None}
    return sum(1 + inside.get(call.call.layer, 0) for call in model.calls)


def prove_calls(
    plan: ModelPlan, source: Path, target: Target, on_call: Callable[[str], None]
) -> tuple[dict[str, Any], list[Run], Driver]:
    """What is stored, each call alone, and every value of the whole graph.

    Args:
        plan: that they were written from.
        source: the written ``model.py``.
        target: the written weights.
        on_call: called with the name of each layer whose call is compared.

    Returns:
        the fields of a ``ModelReport`` that say what was shown; the runs; and the driver with the last run's values.

    Raises:
        VerificationError: anything differs; the message names the layer and the difference.
    """
    check_keys(plan.weights, target)
    stored, ledgers = [], {}
    for item in plan.weights.layers:
        ledgers[item.layer.name] = conversion.ledger(item, target.shapes)
        dtype = plan.weights.dtype or item.layer.dtype
        stored += [compare_bits(item, rule, target.read(item.key(rule.target)), dtype) for rule in item.rules]
    written = WrittenModel(source, plan.model)
    driver = Driver(written, written.make(), Arrays().of, on_call=on_call)
    with one_thread():
        runs: list[Run] = []
        graph, layers, free = plan.model.graph, plan.model.layers, FREE
        for batch in BATCHES:
            free = free_size(graph, layers, free)
            inputs = model_inputs(graph, layers, batch, free)
            free += LONGER
            runs.append((inputs, driver.run(inputs)))
            driver.each_alone = False
    shown = {
        "reference": FORMULA,
        "ledgers": ledgers,
        "stored": tuple(stored),
        "comparisons": tuple(driver.comparisons),
    }
    return shown, runs, driver


class Arrays:
    """Keras' arrays of one layer after the other, in float64; those of the last one are kept."""

    def __init__(self) -> None:
        self.layer: Layer | None = None
        self.arrays: Mapping[str, Array] = {}

    def of(self, layer: Layer) -> Mapping[str, Array]:
        """The layer's arrays."""
        if layer is not self.layer:
            self.layer, self.arrays = layer, source_arrays(layer)
        return self.arrays
