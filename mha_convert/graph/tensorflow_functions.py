"""Functions of TensorFlow, which Keras 2 writes as ``TFOpLambda``, as those of ``keras.ops``: one row each.

A function that ``keras.ops`` has not is ``tf.…``, with rules of its own. Rows were read in tf_keras 2.18 and
TensorFlow 2.21; https://www.tensorflow.org/api_docs/python/tf has every argument.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from ..records.graph import Constant, leaves
from .plain import numbers

Converted = Callable[[Any], Any]
TENSORS = ("x", "x1", "x2")  # arguments that may be arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One function of TensorFlow.

    Args:
        operation: the name in ``keras.ops``, or ``tf.…``.
        names: what its arguments are called there.
        defaults: of TensorFlow, where they are others than those there; they stand for null, too.
        values: arguments that are written otherwise.
        ignored: arguments without effect on the numbers, unless they are true.
    """

    operation: str
    names: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Converted] = field(default_factory=dict)
    ignored: tuple[str, ...] = ("name",)

    def keywords(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call as the operation takes them."""
        kept = {name: value for name, value in given.items() if not (name in self.ignored and not value)}
        kept.pop("name", None)
        named = {self.names.get(name, name): value for name, value in kept.items()}
        for name, value in self.defaults.items():
            if named.get(name) is None:
                named[name] = value
        converted = {name: self.values[name](value) if name in self.values else value for name, value in named.items()}
        return {name: array_of(value) if name in TENSORS else value for name, value in converted.items()}


def function(
    operation: str,
    names: str = "",
    *,
    ignored: str = "",
    values: Mapping[str, Converted] | None = None,
    **defaults: Any,
) -> Function:
    """A row; ``names`` are pairs such as ``"input_tensor=x"``."""
    pairs = dict(pair.split("=") for pair in names.split())
    return Function(
        operation=operation,
        names=pairs,
        defaults=defaults,
        values=values or {},
        ignored=("name", *ignored.split()),
    )


def array_of(value: Any) -> Any:
    """Lists of numbers, as which Keras 2 writes arrays, as one array; everything else as it is."""
    is_array = isinstance(value, tuple) and all(type(leaf) in (int, float, bool) for leaf in leaves(value))
    return single(Constant(numbers(value, None), None)) if is_array else value


def single(value: Any) -> Any:
    """An array of floats whose dtype the file does not say, as TensorFlow takes it: in 32 bits."""
    is_wide = isinstance(value, Constant) and value.dtype is None and value.array.dtype.kind == "f"
    return Constant(value.array.astype("float32"), None) if is_wide else value


def places(sizes: Any) -> Any:
    """Sizes of parts as the places between them; a number of parts as it is."""
    return tuple(accumulate(sizes))[:-1] if isinstance(sizes, tuple) and all(type(n) is int for n in sizes) else sizes


def lower(text: Any) -> Any:
    """``CONSTANT`` as ``constant``."""
    return text.lower() if isinstance(text, str) else text


def order_of_norm(order: Any) -> Any:
    """``euclidean`` is what no order means."""
    return None if order in ("euclidean", 2, 2.0) else order


OF_ONE = {
    "math.abs": "absolute",
    "math.ceil": "ceil",
    "math.floor": "floor",
    "math.round": "round",
    "math.sign": "sign",
    "math.negative": "negative",
    "math.reciprocal": "reciprocal",
    "math.sqrt": "sqrt",
    "math.rsqrt": "rsqrt",
    "math.square": "square",
    "math.exp": "exp",
    "math.expm1": "expm1",
    "math.log": "log",
    "math.log1p": "log1p",
    "math.sin": "sin",
    "math.cos": "cos",
    "math.tan": "tan",
    "math.sinh": "sinh",
    "math.cosh": "cosh",
    "math.tanh": "tanh",
    "math.asin": "arcsin",
    "math.acos": "arccos",
    "math.atan": "arctan",
    "math.asinh": "arcsinh",
    "math.acosh": "arccosh",
    "math.atanh": "arctanh",
    "math.erf": "erf",
    "math.erfc": "erfc",
    "math.erfinv": "erfinv",
    "math.sigmoid": "sigmoid",
    "math.log_sigmoid": "log_sigmoid",
    "math.is_nan": "isnan",
    "math.is_inf": "isinf",
    "math.is_finite": "isfinite",
    "math.logical_not": "logical_not",
}
OF_FEATURES = {
    "nn.relu": "relu",
    "nn.relu6": "relu6",
    "nn.selu": "selu",
    "nn.elu": "elu",
    "nn.softsign": "softsign",
    "math.softplus": "softplus",
    "nn.softplus": "softplus",
}
OF_TWO = {
    "__operators__.add": "add",
    "math.add": "add",
    "math.subtract": "subtract",
    "math.multiply": "multiply",
    "math.truediv": "divide",
    "math.divide": "divide",
    "math.divide_no_nan": "divide_no_nan",
    "math.floordiv": "floor_divide",
    "math.floormod": "mod",
    "math.mod": "mod",
    "math.pow": "power",
    "math.maximum": "maximum",
    "math.minimum": "minimum",
    "math.equal": "equal",
    "math.not_equal": "not_equal",
    "math.less": "less",
    "math.less_equal": "less_equal",
    "math.greater": "greater",
    "math.greater_equal": "greater_equal",
    "math.logical_and": "logical_and",
    "math.logical_or": "logical_or",
    "math.logical_xor": "logical_xor",
    "math.squared_difference": "tf.squared_difference",
}
REDUCTIONS = {
    "math.reduce_mean": "mean",
    "math.reduce_sum": "sum",
    "math.reduce_max": "max",
    "math.reduce_min": "min",
    "math.reduce_prod": "prod",
    "math.reduce_any": "any",
    "math.reduce_all": "all",
    "math.reduce_std": "std",
    "math.reduce_variance": "var",
    "math.reduce_logsumexp": "logsumexp",
    "math.reduce_euclidean_norm": "norm",
}
ACTIVATIONS = ("relu", "sigmoid", "tanh", "softmax", "softplus", "softsign", "selu", "elu", "exponential", "linear")
ROWS: Mapping[str, Function] = {
    **{symbol: function(name) for symbol, name in OF_ONE.items()},
    **{symbol: function(name, "features=x") for symbol, name in OF_FEATURES.items()},
    **{symbol: function(name, "x=x1 y=x2 a=x1 b=x2") for symbol, name in OF_TWO.items()},
    **{symbol: function(name, "input_tensor=x") for symbol, name in REDUCTIONS.items()},
    "__operators__.eq": function("equal", "self=x1 other=x2"),
    "__operators__.ne": function("not_equal", "self=x1 other=x2"),
    "compat.v1.floor_div": function("floor_divide", "x=x1 y=x2"),
    "compat.v1.shape": function("shape", "input=x", ignored="out_type"),
    "shape": function("shape", "input=x", ignored="out_type"),
    "range": function("tf.range", ignored="dtype"),
    "fill": function("tf.fill", ignored="layout"),
    "sequence_mask": function("tf.sequence_mask"),
    "__operators__.getitem": function("getitem", "slice_spec=key"),
    "math.count_nonzero": function("tf.count_nonzero", "input=x", ignored="dtype"),
    "math.argmax": function("argmax", "input=x", ignored="output_type", axis=0),
    "math.argmin": function("argmin", "input=x", ignored="output_type", axis=0),
    "math.cumsum": function("cumsum", ignored="exclusive reverse", axis=0),
    "math.cumprod": function("cumprod", ignored="exclusive reverse", axis=0),
    "math.top_k": function("top_k", "input=x", k=1, ignored="index_type"),
    "math.l2_normalize": function("tf.l2_normalize"),
    "linalg.l2_normalize": function("tf.l2_normalize"),
    "nn.l2_normalize": function("tf.l2_normalize"),
    "nn.softmax": function("softmax", "logits=x", axis=-1),
    "nn.log_softmax": function("log_softmax", "logits=x", axis=-1),
    "nn.leaky_relu": function("leaky_relu", "features=x alpha=negative_slope"),
    "nn.gelu": function("gelu", "features=x", approximate=False),
    "nn.silu": function("tf.silu", "features=x"),
    "nn.swish": function("tf.silu", "features=x"),
    "nn.bias_add": function("add", "value=x1 bias=x2", ignored="data_format"),
    "nn.moments": function("moments", ignored="shift"),
    "norm": function("norm", "tensor=x", ignored="keep_dims", values={"ord": order_of_norm}),
    "linalg.norm": function("norm", "tensor=x", ignored="keep_dims", values={"ord": order_of_norm}),
    "linalg.matmul": function(
        "tf.matmul", "a=x1 b=x2", ignored="adjoint_a adjoint_b a_is_sparse b_is_sparse output_type grad_a grad_b"
    ),
    "linalg.trace": function("tf.trace"),
    "linalg.matrix_transpose": function("tf.matrix_transpose", "a=x", ignored="conjugate"),
    "linalg.band_part": function("tf.band_part", "input=x"),
    "tensordot": function("tensordot", "a=x1 b=x2"),
    "cast": function("cast"),
    "identity": function("copy", "input=x"),
    "stop_gradient": function("stop_gradient", "input=x variable=x"),
    "convert_to_tensor": function("convert_to_tensor", "value=x", ignored="dtype_hint"),
    "reshape": function("reshape", "tensor=x shape=newshape"),
    "expand_dims": function("expand_dims", "input=x"),
    "squeeze": function("squeeze", "input=x", ignored="squeeze_dims"),
    "transpose": function("transpose", "a=x perm=axes", ignored="conjugate"),
    "concat": function("concatenate", "values=xs"),
    "stack": function("stack", "values=x", axis=0),
    "unstack": function("unstack", "value=x"),
    "split": function(
        "split",
        "value=x num_or_size_splits=indices_or_sections",
        ignored="num",
        values={"indices_or_sections": places},
    ),
    "tile": function("tile", "input=x multiples=repeats"),
    "repeat": function("repeat", "input=x"),
    "broadcast_to": function("broadcast_to", "input=x"),
    "pad": function("pad", "tensor=x paddings=pad_width", values={"mode": lower}),
    "reverse": function("flip", "tensor=x"),
    "roll": function("roll", "input=x"),
    "gather": function("tf.gather", "params=x", ignored="validate_indices batch_dims", axis=0),
    "one_hot": function("one_hot", "indices=x depth=num_classes", axis=-1, ignored="off_value"),
    "where": function("where", "x=x1 y=x2"),
    "clip_by_value": function("clip", "t=x clip_value_min=x_min clip_value_max=x_max"),
    "ones_like": function("ones_like", "input=x", ignored="layout"),
    "zeros_like": function("zeros_like", "input=x", ignored="layout"),
    "sort": function("sort", "values=x", values={"direction": lambda text: None if text == "ASCENDING" else text}),
    "math.add_n": function("tf.add_n"),
    **{f"{place}activations.{name}": function(name) for place in ("", "keras.") for name in ACTIVATIONS[:-2]},
}
# Functions of the first version of TensorFlow that have another name there, and the same meaning.
OF_VERSION_1 = ("transpose", "squeeze", "pad", "gather", "norm")
FUNCTIONS: Mapping[str, Function] = {**ROWS, **{f"compat.v1.{symbol}": ROWS[symbol] for symbol in OF_VERSION_1}}
