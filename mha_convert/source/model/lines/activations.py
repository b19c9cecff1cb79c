"""Activations as expressions of torch, with ``{}`` for the argument.

https://docs.pytorch.org/docs/stable/nn.functional.html#non-linear-activation-functions
"""

from collections.abc import Callable, Mapping
from typing import Any

from ....layers.plain.activations import Activation
from ....records.model import Order, Term
from ..use import atom, axis_in

PLAIN = {
    "relu": "torch.relu({})",
    "relu6": "F.relu6({})",
    "selu": "F.selu({})",
    "gelu": "F.gelu({})",
    "silu": "F.silu({})",
    "mish": "F.mish({})",
    "sigmoid": "torch.sigmoid({})",
    "tanh": "torch.tanh({})",
    "softplus": "F.softplus({})",
    "softsign": "F.softsign({})",
    "exponential": "torch.exp({})",
    "hard_silu": "F.hardswish({})",
    "hard_tanh": "F.hardtanh({})",
    "hard_shrink": "F.hardshrink({})",
    "soft_shrink": "F.softshrink({})",
    "tanh_shrink": "F.tanhshrink({})",
    "celu": "F.celu({})",
    "log_sigmoid": "F.logsigmoid({})",
    "squareplus": "squareplus({})",
    "sparse_plus": "sparse_plus({})",
    "sparse_sigmoid": "sparse_sigmoid({})",
}
OVER_AN_AXIS = ("softmax", "log_softmax", "sparsemax")


def relu(text: str, options: Mapping[str, Any]) -> str:
    """With a slope, a largest value and a threshold."""
    slope, largest, threshold = (options.get(name) for name in ("negative_slope", "max_value", "threshold"))
    if threshold:
        below = f"{slope} * ({text} - {threshold})" if slope else "0.0"
        kept = f"torch.where({atom(text)} > {threshold}, {text}, {below})"
    elif slope:
        kept = f"F.leaky_relu({text}, {slope})"
    else:
        kept = f"torch.relu({text})"
    if largest is None:
        return kept
    return f"{atom(text)}.clamp(0.0, {largest})" if not threshold and not slope else f"{kept}.clamp(max={largest})"


def hard_sigmoid(text: str, options: Mapping[str, Any]) -> str:
    """Keras 2's has a slope of its own."""
    return f"({options['slope']} * {atom(text)} + 0.5).clamp(0.0, 1.0)" if options else f"F.hardsigmoid({text})"


WITH_OPTIONS: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    "relu": relu,
    "hard_sigmoid": hard_sigmoid,
    "leaky_relu": lambda text, options: f"F.leaky_relu({text}, {options.get('negative_slope', 0.2)})",
    "elu": lambda text, options: (
        f"F.elu({text}, {options['alpha']})" if options.get("alpha", 1.0) != 1 else f"F.elu({text})"
    ),
}


def activated(activation: Activation | None, text: str, term: Term | None = None, order: Order = "last") -> str:
    """An activation applied to an expression; ``term`` tells the rank where an axis counts."""
    found: Any = activation
    if found.name == "linear":
        return text
    if found.name in OVER_AN_AXIS:
        return over_axes(found, text, term, order)
    if found.name in WITH_OPTIONS:
        return WITH_OPTIONS[found.name](text, found.options)
    return PLAIN[found.name].format(text)


def function_of(activation: Activation) -> str:
    """An activation as a function: torch's own, or a lambda."""
    text = activated(activation, "x")
    name = text.removesuffix("(x)")
    return name if name != text and name.replace(".", "").isidentifier() else f"lambda x: {text}"


def over_axes(activation: Activation, text: str, term: Term | None, order: Order) -> str:
    """Over the last axis, another, or several."""
    axis = activation.options.get("axis", -1)
    axes = [axis_in(term, one, order) if term else one for one in (axis if isinstance(axis, list) else [axis])]
    if activation.name == "sparsemax":
        return f"keras_sparsemax({text}, {axes[0]})"
    if len(axes) == 1:
        return f"{atom(text)}.{activation.name}({axes[0]})"
    powers = f"({text} - {atom(text)}.amax({tuple(axes)}, keepdim=True)).exp()"
    return f"{powers} / {powers}.sum({tuple(axes)}, keepdim=True)"
