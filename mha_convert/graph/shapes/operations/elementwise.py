"""Operations on single numbers, of one, two or three tensors that broadcast."""

from collections.abc import Callable, Mapping
from typing import Any

from ....records.graph import TensorSpec
from ..dtypes import BITS, FLOAT, WEAK_FLOAT, as_float, as_number, result_type
from ..sizes import sizes
from .arguments import all_together, as_spec, dtype_of, of_dtype

Dtype = Callable[[str | None], str]


def own(dtype: str | None) -> str:
    """The input's dtype."""
    return dtype or FLOAT


def bits(dtype: str | None) -> str:
    """True or false."""
    return BITS


def unary(rule: Dtype) -> Callable[..., TensorSpec]:
    """The input's shape."""

    def shape(layer: Any, x: Any) -> TensorSpec:
        spec = as_spec(x)
        return TensorSpec(sizes(spec), rule(spec.dtype))

    return shape


def binary(rule: Dtype) -> Callable[..., TensorSpec]:
    """Both broadcast."""

    def shape(layer: Any, x1: Any, x2: Any) -> TensorSpec:
        return TensorSpec(all_together((x1, x2)), rule(dtype_of((x1, x2))))

    return shape


def divided(layer: Any, x1: Any, x2: Any) -> TensorSpec:
    """Whole numbers become floats."""
    dtypes = (as_spec(x1).dtype, as_spec(x2).dtype, WEAK_FLOAT)
    return TensorSpec(all_together((x1, x2)), result_type(dtypes))


def clip(layer: Any, x: Any, x_min: Any, x_max: Any) -> TensorSpec:
    """The input's shape; numbers do not change its dtype."""
    spec = as_spec(x)
    return TensorSpec(all_together((x, x_min, x_max)), as_number(spec.dtype))


def where(layer: Any, condition: Any, x1: Any, x2: Any) -> TensorSpec:
    """All three broadcast."""
    return TensorSpec(all_together((condition, x1, x2)), dtype_of((x1, x2)))


def rounded(layer: Any, x: TensorSpec, decimals: int = 0) -> TensorSpec:
    """The input's shape."""
    return of_dtype(x, as_number(x.dtype))


def cast(layer: Any, x: Any, dtype: str) -> TensorSpec:
    """Another dtype."""
    return TensorSpec(sizes(as_spec(x)), dtype)


def converted(layer: Any, x: Any, dtype: str | None = None, sparse: Any = None, ragged: Any = None) -> TensorSpec:
    """Perhaps another dtype."""
    spec = as_spec(x)
    return TensorSpec(sizes(spec), dtype or result_type((spec.dtype,)))


def like(layer: Any, x: TensorSpec, dtype: str | None = None) -> TensorSpec:
    """The input's shape."""
    return of_dtype(x, dtype or own(x.dtype))


def filled(layer: Any, x: TensorSpec, fill_value: Any, dtype: str | None = None) -> TensorSpec:
    """The input's shape."""
    return of_dtype(x, dtype or own(x.dtype))


def with_option(rule: Dtype, *names: str) -> Callable[..., TensorSpec]:
    """The input's shape, whatever the options are."""

    def shape(layer: Any, x: TensorSpec, *given: Any, **options: Any) -> TensorSpec:
        return of_dtype(x, rule(x.dtype))

    return shape


def kept_or_float(dtype: str | None) -> str:
    """Whole numbers stay, bits become floats."""
    return FLOAT if dtype is None or dtype == BITS else dtype


TO_FLOAT = """
    sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh
    arctanh erf erfc erfinv sigmoid softplus softsign silu log_sigmoid hard_sigmoid hard_silu selu reciprocal
    cbrt deg2rad rad2deg sinc tanh_shrink hard_tanh floor ceil mish
""".split()  # noqa: SIM905 - one line a word would be long
TO_BITS = ("logical_not", "isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit")
ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum", "mod", "power", "floor_divide", "fmax", "fmin")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
LOGIC = ("logical_and", "logical_or", "logical_xor")
SHAPES: Mapping[str, Callable[..., Any]] = {
    **{f"ops.{name}": unary(as_float) for name in TO_FLOAT},
    **{f"ops.{name}": unary(bits) for name in TO_BITS},
    **{
        f"ops.{name}": unary(own)
        for name in ("absolute", "sign", "negative", "conjugate", "copy", "stop_gradient", "relu", "relu6")
    },
    **{f"ops.{name}": unary(as_number) for name in ("square", "trunc")},
    "ops.round": rounded,
    **{f"ops.{name}": binary(own) for name in ARITHMETIC},
    **{f"ops.{name}": binary(bits) for name in (*COMPARISONS, *LOGIC)},
    **{f"ops.{name}": binary(as_float) for name in ("arctan2", "logaddexp", "hypot", "fmod")},
    **{f"ops.{name}": divided for name in ("divide", "divide_no_nan")},
    "ops.clip": clip,
    "ops.where": where,
    "ops.cast": cast,
    "ops.saturate_cast": cast,
    "ops.convert_to_tensor": converted,
    "ops.ones_like": like,
    "ops.zeros_like": like,
    "ops.full_like": filled,
    **{
        f"ops.{name}": with_option(as_float)
        for name in ("softmax", "log_softmax", "leaky_relu", "elu", "celu", "gelu", "hard_shrink", "soft_shrink")
    },
}
