"""Proves a target: PyTorch's real modules against the Keras formula, and every stored bit against the conversion.

Two statements per layer. The conversion, carried out in float64, agrees with Keras to 1e-10. Each stored tensor is
that result rounded once to its dtype, bit for bit; where it was rounded, the effect on the output is measured and
must stay below a bound that is computed from the dtype.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import conversion
from ..errors import VerificationError
from ..records.layer import Layer
from ..records.plan import LayerPlan, Plan, Rule
from ..records.proof import CheckedTensor, Comparison, Ledger
from ..records.source import Array
from ..targets import Target
from .formulas.multi_head_attention import holds_exactly
from .genuine_keras import GenuineKeras
from .kinds import OF_KIND
from .mathematics import Mathematics, Values
from .pytorch import module_in_float64, one_thread

if TYPE_CHECKING:
    import torch

REFERENCES = ("numpy", "keras")
NUMPY = "the Keras formula in NumPy (float64)"
BOUND = 1e-10
VAGUE = 1e-3  # of the largest value: a comparison that allows more says nothing
UNPROVEN = "Use --reference none to convert it unproven"
OTHERS = ", or the names of the other layers with --layer"
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was measured; its making raises where anything differs."""

    reference: str
    stored: tuple[CheckedTensor, ...]
    comparisons: tuple[Comparison, ...]
    ledgers: Mapping[str, Ledger]


def verify(plan: Plan, target: Target, *, reference: str = "numpy", on_progress: Progress | None = None) -> Proof:
    """Prove that ``target`` is what ``plan`` makes of its source, and that PyTorch computes with it what Keras does.

    Args:
        plan: from ``plan``; its layers are read from the source again.
        target: from ``open_target``.
        reference: ``"numpy"``, or ``"keras"`` for genuine Keras as well.
        on_progress: called with each layer's name, its index and the number of layers.

    Raises:
        VerificationError: anything differs; the message names the layer, the tensor or case, and the difference.
    """
    if reference not in REFERENCES:
        raise VerificationError(f"There is no reference '{reference}'. Choose one of: {', '.join(REFERENCES)}.")
    if not plan.layers:
        raise VerificationError(f"{target.path}: there is no layer to prove. Convert again.")
    check_keys(plan, target)
    stored: list[CheckedTensor] = []
    comparisons: list[Comparison] = []
    ledgers: dict[str, Ledger] = {}
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        keras = stack.enter_context(GenuineKeras()) if reference == "keras" else None
        for index, item in enumerate(plan.layers):
            if on_progress:
                on_progress(item.layer.name, index, len(plan.layers))
            ledgers[item.layer.name] = conversion.ledger(item, target.shapes)
            layer_proof = LayerProof.begin(item, plan, target)
            stored += layer_proof.stored
            for comparison in layer_proof.comparisons(keras):
                refuse_failure(comparison)
                comparisons.append(comparison)
        name = NUMPY if keras is None else f"{NUMPY} and {keras.name}"
    return Proof(reference=name, stored=tuple(stored), comparisons=tuple(comparisons), ledgers=ledgers)


def check_keys(plan: Plan, target: Target) -> None:
    """The target holds the plan's tensors, in their shapes and dtypes, and nothing else."""
    expected = {tensor.key: tensor for tensor in conversion.convert(plan)}
    missing, surplus = expected.keys() - target.shapes.keys(), target.shapes.keys() - expected.keys()
    if missing or surplus:
        facts = [
            f"{word} {', '.join(sorted(keys)[:4])}"
            for word, keys in (("missing", missing), ("unexpected", surplus))
            if keys
        ]
        raise VerificationError(f"{target.path}: tensors differ from the source's: {'; '.join(facts)}. Convert again.")
    for key, tensor in expected.items():
        found = (target.shapes[key], target.dtypes[key])
        if found != (tensor.shape, tensor.dtype):
            raise VerificationError(
                f"{target.path}: '{key}' is {found[1]} {found[0]}, expected {tensor.dtype} {tensor.shape}. "
                "Convert again."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the formula says of each call: the result, and how far arithmetic and the target's rounding may move it."""

    results: Sequence[Values]
    honest: Sequence[Values]
    rounding: Sequence[Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProof:
    """One layer in hand: Keras' arrays in float64, the tensors of the target, and the exact ones where they differ."""

    item: LayerPlan
    arrays: Mapping[str, Array]
    exact: Mapping[str, Array]
    found: Mapping[str, "torch.Tensor"]
    stored: tuple[CheckedTensor, ...]
    rounded: Mapping[str, str]

    @classmethod
    def begin(cls, item: LayerPlan, plan: Plan, target: Target) -> "LayerProof":
        """Read both files again and make the bit-for-bit statement."""
        arrays = source_arrays(item.layer, alone=len(plan.layers) == 1)
        dtype = plan.dtype or item.layer.dtype
        exact, found, stored = {}, {}, []
        for rule in item.rules:
            tensor = found[rule.target] = target.read(item.key(rule.target))
            stored.append(compare_bits(item, rule, tensor, dtype))
            if stored[-1].rounded:
                exact[rule.target] = conversion.apply(rule, item, "float64")
        return cls(
            item=item,
            arrays=arrays,
            exact=exact,
            found=found,
            stored=tuple(stored),
            rounded=rounded_arrays(item, dtype) if exact else {},
        )

    def comparisons(self, keras: GenuineKeras | None) -> Iterator[Comparison]:
        """Every measured difference."""
        from ..targets.torch_file import as_tensor

        layer, maths = self.item.layer, OF_KIND[self.item.layer.kind]
        with np.errstate(over="ignore", invalid="ignore"):
            calls = maths.cases(layer, self.arrays)
        exact = {**self.found, **{key: as_tensor(array) for key, array in self.exact.items()}}
        module = module_in_float64(self.item.module, exact)
        genuine = keras.results(maths.keras_request(layer, calls), layer, self.arrays) if keras else []
        with ThreadPoolExecutor(1) as pool:  # one processor for NumPy, one for PyTorch
            by_formula = pool.submit(self.expected, maths, calls)
            results = [maths.run(module, layer, case) for case in calls]
            expected = by_formula.result()
        self.refuse_vague(expected, maths.telling)
        for case, result, ours, slack in zip(calls, results, expected.results, expected.honest, strict=True):
            yield from self.compare(case.name, result, ours, NUMPY, slack)
        if keras:
            with np.errstate(over="ignore", invalid="ignore"):
                allowed = maths.arithmetic(self.arrays, calls, of_keras=True)
            for case, result, theirs, slack in zip(calls, results, genuine, allowed, strict=True):
                yield from self.compare(case.name, result, theirs, keras.name, slack)
        if self.rounded:
            module = module_in_float64(self.item.module, self.found)
            for case, ours, slack, effect in zip(
                calls, expected.results, expected.honest, expected.rounding, strict=True
            ):
                room = {what: effect[what] + slack[what] for what in effect}
                result = maths.run(module, layer, case)
                yield from self.compare(case.name, result, ours, NUMPY, room, weights="stored")

    def refuse_vague(self, expected: Expected, telling: Sequence[str]) -> None:
        """An error where numbers are so large that float64 cannot tell a right result from a wrong one."""
        results = zip(expected.results, expected.honest, strict=True)
        if all(
            all(room[what].max() <= VAGUE * (np.abs(ours[what]).max() or 1.0) for what in telling)
            and all(np.isfinite([np.abs(ours[what]).max(), room[what].max()]).all() for what in ours)  # may cancel to 0
            for ours, room in results
        ):
            return
        sizes = {name: float(np.abs(array).max(initial=0.0)) for name, array in self.arrays.items()}
        name = max(sizes, key=sizes.__getitem__)
        raise VerificationError(
            f"Layer '{self.item.layer.name}': its {name.replace('.', ' ')} holds numbers as large as "
            f"{sizes[name]:.3g}, so that float64 cannot tell a right result from a wrong one. {UNPROVEN}."
        )

    @np.errstate(over="ignore", invalid="ignore")
    def expected(self, maths: Mathematics, calls: Sequence[Any]) -> Expected:
        """What the formula says of the calls."""
        return Expected(
            results=maths.formula(self.arrays, calls),
            honest=maths.arithmetic(self.arrays, calls, of_keras=False),
            rounding=maths.rounding(self.arrays, calls, self.rounded) if self.rounded else [],
        )

    def compare(
        self, case: str, result: Values, expected: Values, reference: str, allowed: Values, weights: str = "float64"
    ) -> Iterator[Comparison]:
        """Every value that the call returns."""
        for what, wanted in expected.items():
            largest = float(np.abs(wanted).max()) or 1.0
            actual = result[what]
            error = float(np.abs(actual - wanted).max()) if actual.shape == wanted.shape else np.inf
            yield Comparison(
                layer=self.item.layer.name,
                case=case,
                what=what,
                weights=weights,
                reference=reference,
                error=error,
                relative=error / largest,
                bound=max(BOUND, float(allowed[what].max()) / largest),
            )


def source_arrays(layer: Layer, *, alone: bool = True) -> dict[str, Array]:
    """Keras' arrays in float64, read again; NaN and infinity cannot be proven and are refused.

    A layer that is not ``alone`` can be left out.
    """
    arrays = {}
    for name, variable in layer.arrays.items():
        with np.errstate(invalid="ignore"):  # a signalling NaN, which is refused below
            array = arrays[name] = np.asarray(variable.read(), np.float64)
        odd = int(array.size - np.isfinite(array).sum())
        if odd:
            raise VerificationError(
                f"Layer '{layer.name}': its {name.replace('.', ' ')} holds {odd} NaN or infinite numbers of "
                f"{array.size}, so equality means nothing. {UNPROVEN}{'' if alone else OTHERS}."
            )
    return arrays


def rounded_arrays(item: LayerPlan, dtype: str) -> dict[str, str]:
    """Keras' arrays that are rounded on their way to the target, with the dtype that they are rounded to."""
    return {
        piece.source: dtype
        for rule in item.rules
        for piece in rule.pieces
        if piece.source is not None
        and (conversion.is_rescaled(piece) or not holds_exactly(conversion.source_variable(piece, item).dtype, dtype))
    }


def compare_bits(item: LayerPlan, rule: Rule, found: "torch.Tensor", dtype: str) -> CheckedTensor:
    """The stored tensor is the float64 conversion, rounded once: every bit, block by block."""
    import torch

    subject = f"Layer '{item.layer.name}': its tensor '{item.key(rule.target)}'"
    bits = np.dtype(f"i{conversion.numpy_dtype(dtype).itemsize}")
    actual = found.contiguous().view(getattr(torch, bits.name)).numpy().reshape(-1)
    start, different, first, rounded, vanished = 0, 0, None, False, 0
    for exact in conversion.blocks(rule, item, "float64"):
        wanted = conversion.round_once(exact, dtype, subject).reshape(-1)
        differs = actual[start : start + wanted.size] != wanted.view(bits)
        if differs.any():
            place = int(differs.argmax())
            first = first or (start + place, float(wanted[place]))
            different += int(differs.sum())
        changed = wanted.astype(np.float64) != exact.reshape(-1)
        rounded = rounded or bool(changed.any())
        vanished += int((changed & (wanted == 0)).sum())
        start += wanted.size
    if first:
        index = tuple(int(i) for i in np.unravel_index(first[0], found.shape))
        raise VerificationError(
            f"Layer '{item.layer.name}': tensor '{item.key(rule.target)}' differs from Keras in "
            f"{different} of {actual.size} numbers, first at {list(index)}: {float(found[index]):.9g}, "
            f"expected {first[1]:.9g}. Do not use this target; convert again."
        )
    return CheckedTensor(
        layer=item.layer.name, key=item.key(rule.target), dtype=dtype, rounded=rounded, vanished=vanished
    )


def refuse_failure(comparison: Comparison) -> None:
    """Turn a failed comparison into an error with its figures."""
    if not comparison.passed:
        raise VerificationError(
            f"Layer '{comparison.layer}': with {comparison.case}, {comparison.what} of PyTorch "
            f"({comparison.weights} weights) and {comparison.reference} differ by {comparison.relative:.3g} of the "
            f"largest value, allowed {comparison.bound:.3g}. "
            "Do not use this target; report it with the output of inspect --json."
        )
