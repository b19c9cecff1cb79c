"""Operations on single numbers in NumPy. https://keras.io/api/ops/numpy/, https://keras.io/api/ops/nn/"""

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from .....records.source import Array
from ..activations import FUNCTIONS, erf, relu, sigmoid, softmax, softplus
from .arguments import converted, plain


def unary(function: Callable[..., Any]) -> Callable[..., Array]:
    """A formula of one argument and perhaps options."""

    def formula(layer: Any, arrays: Mapping[str, Array], x: Any, *given: Any, **options: Any) -> Array:
        return function(plain(x), *map(plain, given), **options)

    return formula


def binary(function: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    """A formula of two arguments, of which one may be a number."""

    def formula(layer: Any, arrays: Mapping[str, Array], x1: Any, x2: Any) -> Array:
        return function(plain(x1), plain(x2))

    return formula


def where(layer: Any, arrays: Mapping[str, Array], condition: Any, x1: Any, x2: Any) -> Array:
    """One or the other."""
    return np.where(plain(condition) != 0, plain(x1), plain(x2))


def divide_no_nan(first: Any, second: Any) -> Array:
    """0 where the second is 0."""
    second = np.asarray(second)
    return np.where(second == 0, 0.0, np.divide(first, np.where(second == 0, 1, second)))


def erfc(x: Array) -> Array:
    """What is left of 1."""
    flat = np.fromiter((math.erfc(value) for value in np.asarray(x, np.float64).ravel()), np.float64, np.size(x))
    return flat.reshape(np.shape(x))


def erfinv(x: Array) -> Array:
    """By the quantiles of the normal distribution."""
    normal = NormalDist(0.0, math.sqrt(0.5))
    ends = {-1.0: -math.inf, 1.0: math.inf}
    values = (
        normal.inv_cdf((value + 1) / 2) if abs(value) < 1 else ends.get(value, math.nan)
        for value in np.ravel(x).tolist()
    )
    flat = np.fromiter(values, np.float64, np.size(x))
    return flat.reshape(np.shape(x))


def gelu(x: Array, approximate: bool = True) -> Array:
    """The form with tanh by default, other than as an activation."""
    if not approximate:
        return FUNCTIONS["gelu"](x)
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def log_softmax(x: Array, axis: Any = -1) -> Array:
    """The logarithm of softmax."""
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def over_all(function: Callable[..., Array]) -> Callable[..., Array]:
    """Softmax over all numbers where no axis is named."""
    return lambda x, axis=-1: function(x, list(range(x.ndim)) if axis == () else axis)


def celu(x: Array, alpha: float = 1.0) -> Array:
    """``alpha (exp(x / alpha) - 1)`` below 0."""
    return np.maximum(x, 0.0) + np.minimum(0.0, alpha * np.expm1(np.minimum(x, 0.0) / alpha))


def on_floats(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function that NumPy gives whole numbers back of whole numbers."""
    return lambda x, *given, **options: function(np.asarray(x, np.float64), *given, **options)


UNARY: Mapping[str, Callable[..., Any]] = {
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "arcsin": np.arcsin,
    "arccos": np.arccos,
    "arctan": np.arctan,
    "arcsinh": np.arcsinh,
    "arccosh": np.arccosh,
    "arctanh": np.arctanh,
    "erf": erf,
    "erfc": erfc,
    "erfinv": erfinv,
    "sigmoid": sigmoid,
    "softplus": softplus,
    "softsign": FUNCTIONS["softsign"],
    "silu": FUNCTIONS["silu"],
    "log_sigmoid": lambda x: -np.logaddexp(0.0, -x),
    "hard_sigmoid": FUNCTIONS["hard_sigmoid"],
    "hard_silu": FUNCTIONS["hard_silu"],
    "selu": FUNCTIONS["selu"],
    "mish": FUNCTIONS["mish"],
    "reciprocal": lambda x: 1.0 / np.asarray(x, np.float64),
    "cbrt": np.cbrt,
    "deg2rad": np.deg2rad,
    "rad2deg": np.rad2deg,
    "sinc": np.sinc,
    "tanh_shrink": lambda x: x - np.tanh(x),
    "hard_tanh": lambda x: np.clip(x, -1.0, 1.0),
    "relu": on_floats(relu),
    "relu6": on_floats(FUNCTIONS["relu6"]),
    "floor": on_floats(np.floor),
    "ceil": on_floats(np.ceil),
    "round": np.round,
    "trunc": np.trunc,
    "absolute": np.absolute,
    "sign": np.sign,
    "negative": np.negative,
    "conjugate": np.asarray,
    "copy": np.asarray,
    "stop_gradient": np.asarray,
    "square": np.square,
    "logical_not": np.logical_not,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "isposinf": np.isposinf,
    "isneginf": np.isneginf,
    "signbit": np.signbit,
    "clip": lambda x, x_min, x_max: np.clip(x, x_min, x_max),
    "leaky_relu": FUNCTIONS["leaky_relu"],
    "elu": FUNCTIONS["elu"],
    "celu": celu,
    "gelu": gelu,
    "softmax": over_all(softmax),
    "log_softmax": over_all(log_softmax),
    "hard_shrink": lambda x, threshold=0.5: np.where(np.abs(x) > threshold, x, 0.0),
    "soft_shrink": lambda x, threshold=0.5: np.sign(x) * np.maximum(np.abs(x) - threshold, 0.0),
    "cast": converted,
    "saturate_cast": converted,
    "convert_to_tensor": lambda x, dtype=None, sparse=None, ragged=None: converted(x, dtype),
    "ones_like": lambda x, dtype=None: converted(np.ones_like(x), dtype),
    "zeros_like": lambda x, dtype=None: converted(np.zeros_like(x), dtype),
    "full_like": lambda x, fill_value, dtype=None: converted(np.full_like(x, fill_value), dtype),
}
BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.true_divide,
    "divide_no_nan": divide_no_nan,
    "floor_divide": np.floor_divide,
    "mod": np.mod,
    "fmod": np.fmod,
    "power": lambda x1, x2: np.power(np.asarray(x1), np.asarray(x2)),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "arctan2": np.arctan2,
    "logaddexp": np.logaddexp,
    "hypot": np.hypot,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
FORMULAS: Mapping[str, Any] = {
    **{f"ops.{name}": unary(function) for name, function in UNARY.items()},
    **{f"ops.{name}": binary(function) for name, function in BINARY.items()},
    "ops.where": where,
}
