"""Operations on single numbers as one writes them with torch."""

from collections.abc import Callable, Mapping
from typing import Any

from .....graph.shapes.dtypes import BITS, is_float, result_type
from .....records.graph import Constant
from .....records.layer import PlainLayer
from .....records.model import Term
from ...use import Use, Written, atom, axis_in
from .arguments import MODEL_DTYPE, as_bits, as_float, as_whole, called, dtype_of, is_tensor, number, text_of, together

# With {} for the argument; it needs no parentheses where it stands in some.
OF_FLOATS = {
    "sqrt": "torch.sqrt({})",
    "rsqrt": "torch.rsqrt({})",
    "exp": "torch.exp({})",
    "exp2": "torch.exp2({})",
    "expm1": "torch.expm1({})",
    "log": "torch.log({})",
    "log2": "torch.log2({})",
    "log10": "torch.log10({})",
    "log1p": "torch.log1p({})",
    "sin": "torch.sin({})",
    "cos": "torch.cos({})",
    "tan": "torch.tan({})",
    "sinh": "torch.sinh({})",
    "cosh": "torch.cosh({})",
    "tanh": "torch.tanh({})",
    "arcsin": "torch.asin({})",
    "arccos": "torch.acos({})",
    "arctan": "torch.atan({})",
    "arcsinh": "torch.asinh({})",
    "arccosh": "torch.acosh({})",
    "arctanh": "torch.atanh({})",
    "erf": "torch.erf({})",
    "erfc": "torch.erfc({})",
    "erfinv": "torch.erfinv({})",
    "sigmoid": "torch.sigmoid({})",
    "softplus": "F.softplus({})",
    "softsign": "F.softsign({})",
    "silu": "F.silu({})",
    "log_sigmoid": "F.logsigmoid({})",
    "hard_sigmoid": "F.hardsigmoid({})",
    "hard_silu": "F.hardswish({})",
    "selu": "F.selu({})",
    "mish": "F.mish({})",
    "reciprocal": "torch.reciprocal({})",
    "deg2rad": "torch.deg2rad({})",
    "rad2deg": "torch.rad2deg({})",
    "sinc": "torch.sinc({})",
    "tanh_shrink": "F.tanhshrink({})",
    "hard_tanh": "F.hardtanh({})",
    "floor": "torch.floor({})",
    "ceil": "torch.ceil({})",
}
OF_ANY = {
    "relu": "torch.relu({})",
    "relu6": "F.relu6({})",
    "isnan": "torch.isnan({})",
    "isinf": "torch.isinf({})",
    "isfinite": "torch.isfinite({})",
    "isposinf": "torch.isposinf({})",
    "isneginf": "torch.isneginf({})",
    "signbit": "torch.signbit({})",
    "absolute": "torch.abs({})",
    "sign": "torch.sign({})",
    "square": "torch.square({})",
    "trunc": "torch.trunc({})",
    "conjugate": "{}",
    "copy": "{}",
    "stop_gradient": "{}.detach()",
}
OPERATORS = {"add": "+", "subtract": "-", "multiply": "*", "mod": "%", "power": "**", "floor_divide": "//"}
COMPARISONS = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
LOGIC = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
OF_TWO = {
    "arctan2": "torch.atan2",
    "logaddexp": "torch.logaddexp",
    "hypot": "torch.hypot",
    "fmod": "torch.fmod",
    "fmax": "torch.fmax",
    "fmin": "torch.fmin",
}
OF_TWO_FLOATS = ("arctan2", "logaddexp", "hypot")


def of_floats(template: str) -> Callable[..., Written]:
    """A function of floats; whole numbers become such."""

    def line(layer: PlainLayer, use: Use, x: Term) -> Written:
        return Written(template.format(as_float(x.text, x.spec.dtype)), x.order)

    return line


def of_any(template: str) -> Callable[..., Written]:
    """A function of any numbers."""

    def line(layer: PlainLayer, use: Use, x: Term) -> Written:
        return Written(template.format(atom(x.text) if template.startswith("{}.") else x.text), x.order)

    return line


def cube_root(layer: PlainLayer, use: Use, x: Term) -> Written:
    """PyTorch has none."""
    text = as_float(x.text, x.spec.dtype)
    return Written(f"torch.sign({text}) * {atom(text)}.abs() ** (1 / 3)", x.order)


def negative(layer: PlainLayer, use: Use, x: Term) -> Written:
    """A sign in front."""
    return Written(f"-{atom(x.text)}", x.order)


def logical_not(layer: PlainLayer, use: Use, x: Term) -> Written:
    """``~``."""
    return Written(f"~{atom(as_bits(x.text, x.spec.dtype))}", x.order)


def operator(sign: str, needs_float: bool | None = None) -> Callable[..., Written]:
    """An operator between two arguments."""

    def line(layer: PlainLayer, use: Use, x1: Any, x2: Any) -> Written:
        texts, order = together(use, (x1, x2), needs_float)
        return Written(f" {sign} ".join(map(atom, texts)), order)

    return line


def logic(sign: str) -> Callable[..., Written]:
    """An operator between bits."""

    def line(layer: PlainLayer, use: Use, x1: Any, x2: Any) -> Written:
        items = (x1, x2)
        texts, order = together(use, items, needs_float=False)
        bits = [
            as_bits(text, dtype_of(item)) if is_tensor(item) else repr(bool(item))
            for text, item in zip(texts, items, strict=True)
        ]
        return Written(f" {sign} ".join(map(atom, bits)), order)

    return line


def function(name: str, needs_float: bool | None = None) -> Callable[..., Written]:
    """A function of two tensors; a number is made one of the other's shape."""

    def line(layer: PlainLayer, use: Use, x1: Any, x2: Any) -> Written:
        items = (x1, x2)
        texts, order = together(use, items, needs_float)
        other = next(text for text, item in zip(texts, items, strict=True) if is_tensor(item))
        tensors = [
            text if is_tensor(item) else f"torch.full_like({other}, {text})"
            for text, item in zip(texts, items, strict=True)
        ]
        return Written(f"{name}({', '.join(tensors)})", order)

    return line


def extreme(name: str, bound: str) -> Callable[..., Written]:
    """The larger or smaller of two; of a number, a bound."""

    def line(layer: PlainLayer, use: Use, x1: Any, x2: Any) -> Written:
        items = (x1, x2)
        texts, order = together(use, items)
        if all(map(is_tensor, items)):
            return Written(f"{name}({', '.join(texts)})", order)
        tensor, limit = texts if is_tensor(x1) else texts[::-1]
        return Written(called(tensor, "clamp", f"{bound}={limit}"), order)

    return line


def divide_no_nan(layer: PlainLayer, use: Use, x1: Any, x2: Any) -> Written:
    """0 where the second is 0."""
    (above, below), order = together(use, (x1, x2), needs_float=True)
    if not is_tensor(x2):
        return Written(f"{atom(above)} / {below}" if x2 else f"torch.zeros_like({above})", order)
    return Written(f"torch.where({atom(below)} == 0, 0.0, {atom(above)} / {atom(below)})", order)


def clip(layer: PlainLayer, use: Use, x: Term, x_min: Any, x_max: Any) -> Written:
    """``clamp``; bounds do not change the dtype."""
    if is_tensor(x_min) or is_tensor(x_max):
        texts, order = together(use, (x, x_min, x_max))
        return Written(called(texts[0], "clamp", *texts[1:]), order)
    bounds = [number(type_like(x, bound)) for bound in (x_min, x_max)]
    return Written(called(x.text, "clamp", *bounds), x.order)


def type_like(x: Term, bound: Any) -> Any:
    """A bound as the tensor's dtype has it."""
    value = bound.array.item() if isinstance(bound, Constant) else bound
    return value if is_float(x.spec.dtype) else int(value)


def where(layer: PlainLayer, use: Use, condition: Any, x1: Any, x2: Any) -> Written:
    """``torch.where``; of two numbers in the model's dtype."""
    needs_float = is_float(result_type((dtype_of(x1), dtype_of(x2))))
    texts, order = together(use, (x1, x2, condition), counted=2)
    if needs_float and not is_tensor(x1) and not is_tensor(x2):
        texts[0] = f"torch.tensor({texts[0]}, dtype={MODEL_DTYPE})"
    return Written(f"torch.where({', '.join((as_bits(texts[2], dtype_of(condition)), *texts[:2]))})", order)


def cast(layer: PlainLayer, use: Use, x: Any, dtype: str | None = None, *rest: Any, **others: Any) -> Written:
    """Floats are of the model's dtype, whichever that is; whole numbers are of 64 bits."""
    order = x.order if isinstance(x, Term) else "last"
    text = x.text if isinstance(x, Term) else text_of(use, x)
    own = dtype_of(x)
    if dtype is None:
        return Written(text, order)
    if dtype == BITS:
        return Written(as_bits(text, own), order)
    return Written((as_float if is_float(dtype) else as_whole)(text, own), order)


def like(value: str) -> Callable[..., Written]:
    """``torch.ones_like`` and its like."""

    def line(layer: PlainLayer, use: Use, x: Term, *given: Any, **options: Any) -> Written:
        fill = [text_of(use, given[0] if given else options["fill_value"])] if value == "full" else []
        wanted = options.get("dtype") or x.spec.dtype
        if not same_sort(wanted, x.spec.dtype):
            fill.append(f"dtype={torch_dtype(wanted)}")
        return Written(f"torch.{value}_like({', '.join((x.text, *fill))})", x.order)

    return line


def same_sort(first: str | None, second: str | None) -> bool:
    """Whether two dtypes are both of floats, of whole numbers, or of bits."""
    return (is_float(first), first == BITS) == (is_float(second), second == BITS)


def torch_dtype(dtype: str | None) -> str:
    """Of this sort."""
    return "self.dtype" if is_float(dtype) else "torch.bool" if dtype == BITS else "torch.long"


def rounded(layer: PlainLayer, use: Use, x: Term, decimals: int = 0) -> Written:
    """To a number of decimals."""
    return Written(f"torch.round({x.text}{f', decimals={decimals}' if decimals else ''})", x.order)


def softmax(name: str) -> Callable[..., Written]:
    """Over one axis, several, or all."""

    def line(layer: PlainLayer, use: Use, x: Term, axis: Any = -1) -> Written:
        axes = tuple(range(x.rank)) if axis == () else axis if isinstance(axis, tuple) else (axis,)
        text = as_float(x.text, x.spec.dtype)
        places = tuple(axis_in(x, one, x.order) for one in axes)
        if len(places) == 1:
            return Written(called(text, name, repr(places[0])), x.order)
        total = f"{atom(text)}.logsumexp({places}, keepdim=True)"
        found = f"{atom(text)} - {total}"
        return Written(found if name == "log_softmax" else f"({found}).exp()", x.order)

    return line


def with_numbers(name: str, **names: str) -> Callable[..., Written]:
    """A function whose options are numbers, which are called otherwise."""

    def line(layer: PlainLayer, use: Use, x: Term, *given: Any, **options: Any) -> Written:
        found = dict(zip(names, given, strict=False)) | options
        texts = [f"{names[key]}={number(value)}" for key, value in found.items()]
        return Written(f"{name}({', '.join((as_float(x.text, x.spec.dtype), *texts))})", x.order)

    return line


def leaky_relu(layer: PlainLayer, use: Use, x: Term, negative_slope: float = 0.2) -> Written:
    """Keras' slope is 0.2 by default, PyTorch's 0.01."""
    return Written(f"F.leaky_relu({as_float(x.text, x.spec.dtype)}, {number(negative_slope)})", x.order)


def gelu(layer: PlainLayer, use: Use, x: Term, approximate: bool = True) -> Written:
    """The form with tanh by default, other than as an activation."""
    form = ', approximate="tanh"' if approximate else ""
    return Written(f"F.gelu({as_float(x.text, x.spec.dtype)}{form})", x.order)


LINES: Mapping[str, Any] = {
    **{f"ops.{name}": of_floats(template) for name, template in OF_FLOATS.items()},
    **{f"ops.{name}": of_any(template) for name, template in OF_ANY.items()},
    **{f"ops.{name}": operator(sign) for name, sign in OPERATORS.items()},
    **{f"ops.{name}": operator(sign) for name, sign in COMPARISONS.items()},
    **{f"ops.{name}": logic(sign) for name, sign in LOGIC.items()},
    **{f"ops.{name}": function(text, name in OF_TWO_FLOATS or None) for name, text in OF_TWO.items()},
    "ops.divide": operator("/", needs_float=True),
    "ops.divide_no_nan": divide_no_nan,
    "ops.maximum": extreme("torch.maximum", "min"),
    "ops.minimum": extreme("torch.minimum", "max"),
    "ops.negative": negative,
    "ops.logical_not": logical_not,
    "ops.cbrt": cube_root,
    "ops.round": rounded,
    "ops.clip": clip,
    "ops.where": where,
    "ops.cast": cast,
    "ops.saturate_cast": cast,
    "ops.convert_to_tensor": cast,
    "ops.ones_like": like("ones"),
    "ops.zeros_like": like("zeros"),
    "ops.full_like": like("full"),
    "ops.softmax": softmax("softmax"),
    "ops.log_softmax": softmax("log_softmax"),
    "ops.leaky_relu": leaky_relu,
    "ops.elu": with_numbers("F.elu", alpha="alpha"),
    "ops.celu": with_numbers("F.celu", alpha="alpha"),
    "ops.hard_shrink": with_numbers("F.hardshrink", threshold="lambd"),
    "ops.soft_shrink": with_numbers("F.softshrink", threshold="lambd"),
    "ops.gelu": gelu,
}
