"""Runs the written statements beside the formulas: each call alone with inputs of our choice, and the whole graph.

Numbers are in float64 on both sides. A module gets its numbers for its own call and gives them back, so that memory
holds one layer beside the values.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import conversion
from ...errors import VerificationError
from ...graph.facts import applied, nested_inputs
from ...layouts.plain.constants import KIND as CONSTANT
from ...records.graph import Value, leaves
from ...records.layer import Layer
from ...records.model import Member, ModelClass, Term, WrittenCall
from ...records.plan import LayerPlan
from ...records.proof import Comparison
from ...records.source import Array
from ..formulas.plain import FORMULAS
from .inputs import alone
from .written import WrittenModel

if TYPE_CHECKING:
    import torch
    from torch import nn

ALONE, WHOLE = 1e-10, 1e-9  # of the largest number
FORMULA = "the Keras formulas in NumPy (float64)"
OF_ONE_CALL, OF_THE_GRAPH = "inputs of its own", "the whole graph"
NO_NUMBERS = "meta"
REPORT_IT = "Do not use this model; report it with the output of inspect --graph --json"


@dataclass(slots=True)
class Driver:
    """One model in hand.

    Args:
        written: the file.
        module: its outermost class, without numbers.
        arrays: Keras' arrays of a layer in float64.
        each_alone: whether each call is compared alone, too.
    """

    written: WrittenModel
    module: "nn.Module"
    arrays: Callable[[Layer], Mapping[str, Array]]
    each_alone: bool = True
    comparisons: list[Comparison] = field(default_factory=list)
    seen: set[tuple[int, str, int]] = field(default_factory=set)
    on_call: Callable[[str], None] = field(default=lambda name: None)
    values: Mapping[Value, Array] = field(default_factory=dict)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Every value of the graph for these inputs; returns the outputs that the formulas have."""
        import torch

        model = self.written.model
        with torch.no_grad(), np.errstate(all="ignore"):  # what is no number is compared, too
            tensors = [as_tensor(array) for array in inputs]
            _, expected = self.body(model, self.module, tensors, list(inputs), "")
        return expected

    def body(
        self,
        model: ModelClass,
        module: "nn.Module",
        tensors: "Sequence[torch.Tensor]",
        inputs: Sequence[Array],
        path: str,
    ) -> tuple[Any, list[Array]]:
        """One ``forward``: what it returns, and what the formulas say of its outputs."""
        import torch

        forward = self.written.forwards[id(model)]
        stand_in = SimpleNamespace(dtype=torch.float64)
        names: dict[str, Any] = {**self.written.names, "self": stand_in}
        names |= dict(zip(forward.parameters, tensors, strict=True))
        values = dict(zip(leaves(model.graph.inputs), inputs, strict=True))
        by_name = {member.name: member for member in model.members}
        for call in model.calls:
            layer = model.graph.layers[call.call.layer]
            place = f"{path}{call.call.layer}"
            code = forward.calls[call.call.layer, call.call.number]
            self.on_call(place)
            if layer.graph is not None:
                member = by_name[layer.name]
                returned = self.nested(
                    member, module, values, call, place, stand_in, partial(run, call, code, names, place)
                )
            else:
                item = model.layers[layer]
                with self.filled(model, module, call, stand_in):
                    if self.each_alone and (id(model), *key(call)) not in self.seen:
                        self.alone(call, item, code, model, place, stand_in)
                    run(call, code, names, place)
                returned = [*leaves(applied(FORMULAS, item, call.call, values.__getitem__, self.arrays(item)))]
            values.update(zip(call.results, returned, strict=True))
            self.compare(call, names, values, place, OF_THE_GRAPH, WHOLE)
        self.values = values  # those of the outermost graph are the last ones
        result = eval(forward.returned, names)
        return result, [values[value] for value in leaves(model.graph.outputs)]

    def nested(
        self,
        member: Member,
        module: "nn.Module",
        values: Mapping[Value, Array],
        call: WrittenCall,
        place: str,
        stand_in: Any,
        execute: Callable[[], None],
    ) -> list[Array]:
        """Let the statement of a nested model run that model's own statements; returns what the formulas say."""
        inner = member.model
        assert inner is not None
        given = [values[value] for value in nested_inputs(call.call, inner.graph)]
        expected: list[Array] = []

        def run(*tensors: "torch.Tensor") -> Any:
            returned, outputs = self.body(inner, getattr(module, member.attribute), tensors, given, f"{place}/")
            expected[:] = outputs
            return returned

        setattr(stand_in, member.attribute, run)
        execute()
        return expected

    @contextmanager
    def filled(self, model: ModelClass, module: "nn.Module", call: WrittenCall, stand_in: Any) -> Iterator[None]:
        """The modules that a call's statements reach, with their numbers while it runs."""
        wanted = [member for member in members_of(model) if is_reached(member[0], call)]
        made = []
        for path, member in wanted:
            inside = module.get_submodule(path) if member.plan and member.plan.layer.kind != CONSTANT else None
            if inside is None:
                set_path(stand_in, path, as_tensor(exact(member.plan, next(iter(member.plan.rules)))))  # type: ignore
                continue
            inside.load_state_dict(tensors_of(member.plan), strict=False, assign=True)  # type: ignore[arg-type]
            set_path(stand_in, path, inside)
            made.append(inside)
        yield
        for inside in made:
            inside.to(NO_NUMBERS)

    def alone(self, call: WrittenCall, item: Layer, code: Any, model: ModelClass, place: str, stand_in: Any) -> None:
        """A call with inputs that reach every number of its layer."""
        self.seen.add((id(model), *key(call)))
        arrays = alone(place, item, [term.spec for term in call.arguments.values()])
        of_names: dict[str, Array] = {}  # a layer without a line has the name of its input, so two values may have one
        values = {
            value: of_names.setdefault(term.text, array)
            for (value, term), array in zip(call.arguments.items(), arrays, strict=True)
        }
        names: dict[str, Any] = {**self.written.names, "self": stand_in}
        for value, term in call.arguments.items():
            names[term.text] = in_order(as_tensor(values[value]), term)
        run(call, code, names, place)
        returned = leaves(applied(FORMULAS, item, call.call, values.__getitem__, self.arrays(item)))
        values.update(zip(call.results, returned, strict=True))
        self.compare(call, names, values, place, OF_ONE_CALL, ALONE)

    def compare(
        self,
        call: WrittenCall,
        names: Mapping[str, Any],
        values: Mapping[Value, Array],
        place: str,
        case: str,
        bound: float,
    ) -> None:
        """Every output of a call."""
        for value, term in call.results.items():
            found = eval(term.text, dict(names))
            actual, wanted = in_keras_order(found, term).numpy(), np.asarray(values[value])
            self.comparisons.append(compared(place, value, actual, wanted, case, bound))
            refuse_failure(self.comparisons[-1], call, actual, wanted)


def compared(place: str, value: Value, actual: Array, wanted: Array, case: str, bound: float) -> Comparison:
    """One difference."""
    finite = np.isfinite(wanted)
    largest = float(np.abs(wanted, where=finite, out=np.zeros(wanted.shape)).max(initial=0.0)) or 1.0
    error = difference(actual.astype(np.float64), wanted, finite) if actual.shape == wanted.shape else np.inf
    return Comparison(
        layer=place,
        case=case,
        what=f"output {value.output}" if value.output else "output",
        weights="float64",
        reference=FORMULA,
        error=error,
        relative=error / largest,
        bound=bound,
    )


def difference(actual: Array, wanted: Array, finite: Array) -> float:
    """The largest; infinite where one is no number, or endless, and the other is not the same."""
    if not np.array_equal(actual[~finite], wanted[~finite], equal_nan=True):
        return np.inf
    return float(np.abs(actual[finite] - wanted[finite]).max(initial=0.0))


def refuse_failure(comparison: Comparison, call: WrittenCall, actual: Array, wanted: Array) -> None:
    """A failed comparison as an error with its figures."""
    if comparison.passed:
        return
    fact = (
        f"differ by {comparison.relative:.3g} of the largest value, allowed {comparison.bound:.3g}"
        if actual.shape == wanted.shape
        else f"are of shapes {actual.shape} and {wanted.shape}"
    )
    raise VerificationError(
        f"Layer '{comparison.layer}': with {comparison.case}, PyTorch ({'; '.join(call.statements)}) and "
        f"{comparison.reference} {fact}. {REPORT_IT}."
    )


def run(call: WrittenCall, code: CodeType, names: dict[str, Any], place: str) -> None:
    """Execute a call's statements.

    Raises:
        VerificationError: PyTorch refuses them.
    """
    try:
        exec(code, names)  # our own text
    except VerificationError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise VerificationError(
            f"Layer '{place}': PyTorch refuses {'; '.join(call.statements)} ({type(error).__name__}: {first}). "
            f"{REPORT_IT}."
        ) from error


def key(call: WrittenCall) -> tuple[str, int]:
    """Which call it is."""
    return call.call.layer, call.call.number


def members_of(model: ModelClass, path: str = "") -> Iterator[tuple[str, Member]]:
    """Every module with a plan of a class and of those inside it, by the way to it."""
    for member in model.members:
        if member.model is not None:
            yield from members_of(member.model, f"{path}{member.attribute}.")
        else:
            yield f"{path}{member.attribute}", member


def is_reached(path: str, call: WrittenCall) -> bool:
    """Whether a call's statements name a module."""
    return any(re.search(rf"\bself\.{re.escape(path)}\b(?!\.\w*\.)", text) for text in call.statements)


def set_path(stand_in: Any, path: str, module: Any) -> None:
    """Put a module where the statements look for it."""
    *containers, name = path.split(".")
    for container in containers:
        if not isinstance(getattr(stand_in, container, None), SimpleNamespace):
            setattr(stand_in, container, SimpleNamespace())
        stand_in = getattr(stand_in, container)
    setattr(stand_in, name, module)


def tensors_of(plan: LayerPlan) -> "dict[str, torch.Tensor]":
    """A module's tensors in float64, exactly as the conversion makes them."""
    return {rule.target: as_tensor(exact(plan, rule)) for rule in plan.rules}


def exact(plan: LayerPlan, rule: Any) -> Array:
    """One tensor in float64."""
    return conversion.apply(rule, plan, "float64")


def as_tensor(array: Array) -> "torch.Tensor":
    """The array as a tensor; tokens are whole numbers."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(array).reshape(np.shape(array)))


def in_order(tensor: "torch.Tensor", term: Term) -> "torch.Tensor":
    """A tensor in Keras' axes in the order that the source has it."""
    return tensor.movedim(-1, 1) if term.order == "first" and tensor.dim() > len(("batch", "size")) else tensor


def in_keras_order(tensor: "torch.Tensor", term: Term) -> "torch.Tensor":
    """A tensor of the source in Keras' axes."""
    return tensor.movedim(1, -1) if term.order == "first" and tensor.dim() > len(("batch", "size")) else tensor
