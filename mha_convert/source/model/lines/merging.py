"""Layers that make one tensor of several. Keras aligns tensors of different rank at the batch, PyTorch at the end."""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

from ....records.layer import PlainLayer
from ....records.model import Term
from ..use import Use, Written, atom, axis_in, in_one_order, last


def aligned(inputs: tuple[Term, ...]) -> tuple[list[str], Any]:
    """All in one order, and with the rank of the largest."""
    rank = max(term.rank for term in inputs)
    if all(term.rank == rank for term in inputs):
        return in_one_order(inputs)
    return [behind_the_batch(last(term), rank - term.rank) for term in inputs], "last"


def behind_the_batch(text: str, count: int) -> str:
    """New axes of size 1 behind the batch."""
    return f"{atom(text)}[:, {', '.join(['None'] * count)}]" if count else text


def operator(sign: str) -> Callable[..., Written]:
    """An operator between all tensors."""

    def line(layer: PlainLayer, use: Use, inputs: tuple[Term, ...]) -> Written:
        texts, order = aligned(inputs)
        return Written(f" {sign} ".join(map(atom, texts)), order)

    return line


def of_kept(line: Callable[..., Written], helper: str, *before: str) -> Callable[..., Written]:
    """A line, or a call of a helper where masks say what is left out of some of the tensors."""

    def written(layer: PlainLayer, use: Use, inputs: tuple[Term, ...], **masks: Term) -> Written:
        if not masks:
            return line(layer, use, inputs)
        keep = [masks[name].text if (name := f"mask_{number}") in masks else "None" for number in range(len(inputs))]
        return Written(f"{helper}({', '.join((*before, tuple_of(map(last, inputs)), tuple_of(keep)))})")

    return written


def tuple_of(texts: Iterable[str]) -> str:
    """Two expressions or more as a tuple."""
    return f"({', '.join(texts)})"


def average(layer: PlainLayer, use: Use, inputs: tuple[Term, ...]) -> Written:
    """The sum, divided."""
    texts, order = aligned(inputs)
    return Written(f"({' + '.join(map(atom, texts))}) / {len(texts)}", order)


def function(name: str) -> Callable[..., Written]:
    """A function of two tensors, applied one after the other."""

    def line(layer: PlainLayer, use: Use, inputs: tuple[Term, ...]) -> Written:
        texts, order = aligned(inputs)
        return Written(reduce(lambda first, second: f"{name}({first}, {second})", texts), order)

    return line


def concatenate(layer: PlainLayer, use: Use, inputs: tuple[Term, ...]) -> Written:
    """``torch.cat`` along the axis as the tensors have it."""
    texts, order = in_one_order(inputs)
    axis = axis_in(inputs[0], layer.settings["axis"], order)
    return Written(f"torch.cat([{', '.join(texts)}], dim={axis})", order)


def dot(layer: PlainLayer, use: Use, inputs: tuple[Term, ...]) -> str:
    """A product of matrices, or a sum where both are vectors."""
    first, second = inputs
    axes = layer.settings["axes"]
    a, b = axes if isinstance(axes, list) else (axes, axes)
    a, b = a % first.rank, b % second.rank
    texts = [last(term) for term in inputs]
    if layer.settings["normalize"]:
        texts = [f"F.normalize({text}, dim={axis}, eps=1e-6)" for text, axis in zip(texts, (a, b), strict=True)]
    left, right = "bcdefgh"[: first.rank - 1], "opqrst"[: second.rank - 1]
    left = f"{left[: a - 1]}z{left[a:]}"
    right = f"{right[: b - 1]}z{right[b:]}"
    made = (left + right).replace("z", "")
    text = f'torch.einsum("a{left},a{right}->a{made}", {texts[0]}, {texts[1]})'
    return text if made else f"{text}[:, None]"


LINES: Mapping[str, Any] = {
    "Add": operator("+"),
    "Subtract": operator("-"),
    "Multiply": of_kept(operator("*"), "product_of_kept"),
    "Maximum": of_kept(function("torch.maximum"), "extreme_of_kept", "torch.maximum"),
    "Minimum": of_kept(function("torch.minimum"), "extreme_of_kept", "torch.minimum"),
    "Average": average,
    "Concatenate": concatenate,
    "Dot": dot,
}
