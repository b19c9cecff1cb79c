"""Functional models of operations, saved by the installed Keras with its outputs: `python operation_models.py FOLDER`.

Each model has many operations of the same inputs, and an output for each.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import ops

FREE = 6
TABLE = np.arange(20, dtype="float32").reshape(4, 5) / 7
PLACES = np.arange(4, dtype="int32")


def called(names, *given, **options):
    """One case for each of some functions that take the same arguments."""
    return {name: lambda *tensors, name=name: getattr(ops, name)(*tensors, *given, **options) for name in names.split()}


def reductions(names):
    """Over one axis, several, all, and with axes that stay."""
    found = {}
    for name in names.split():
        function = getattr(ops, name)
        found |= {
            f"{name}_of_one": lambda a, f=function: f(a, axis=1),
            f"{name}_kept": lambda a, f=function: f(a, axis=-1, keepdims=True),
            f"{name}_of_two": lambda a, f=function: f(a, axis=(1, 2)),
            f"{name}_of_all": lambda a, f=function: f(a, axis=None),
        }
    return found


OF_ONE = {
    **called("exp exp2 expm1 sin cos tan sinh cosh tanh arctan arcsinh erf sigmoid softplus softsign silu selu sign"),
    **called("log_sigmoid hard_sigmoid hard_silu relu relu6 floor ceil absolute negative square round trunc isnan"),
    **called("isinf isfinite conj copy leaky_relu elu celu gelu softmax log_softmax stop_gradient tanh_shrink"),
    **called("hard_tanh hard_shrink soft_shrink ones_like zeros_like convert_to_tensor reciprocal sort cumsum"),
    "add_number": lambda a: a + 1.5,
    "number_minus": lambda a: 2 - a,
    "remainder": lambda a: a % 0.7,
    "floor_of_quotient": lambda a: a // 0.7,
    "square_by_power": lambda a: a**2,
    "power_of_number": lambda a: 2.0**a,
    "larger": lambda a: ops.maximum(a, 0.1),
    "smaller": lambda a: ops.minimum(0.1, a),
    "clip": lambda a: ops.clip(a, -0.5, 0.7),
    "greater": lambda a: a > 0.3,
    "where_numbers": lambda a: ops.where(a > 0, 1.0, 0.3),
    "where_number": lambda a: ops.where(a > 0, a, 0.0),
    "to_whole": lambda a: ops.cast(a, "int32"),
    "full_like": lambda a: ops.full_like(a, 2.5),
    "zeros_like_whole": lambda a: ops.zeros_like(a, dtype="int32"),
    "softmax_of_axis": lambda a: ops.softmax(a, axis=1),
    "log_softmax_of_axis": lambda a: ops.log_softmax(a, axis=1),
    "gelu_exact": lambda a: ops.gelu(a, approximate=False),
    "leaky_relu_of": lambda a: ops.leaky_relu(a, negative_slope=0.3),
    "elu_of": lambda a: ops.elu(a, alpha=0.7),
    "add_array": lambda a: a + np.arange(4, dtype="float32"),
    **reductions("mean sum max min prod std var logsumexp any"),
    "argmax": lambda a: ops.argmax(a, axis=-1),
    "argmin_kept": lambda a: ops.argmin(a, axis=1, keepdims=True),
    "argmax_of_all": lambda a: ops.argmax(a),
    "cumprod": lambda a: ops.cumprod(a, axis=-1),
    "moments": lambda a: ops.moments(a, axes=[1]),
    "norm": lambda a: ops.norm(a, axis=-1),
    "norm_1": lambda a: ops.norm(a, ord=1, axis=1, keepdims=True),
    "normalize": lambda a: ops.normalize(a),
    "normalize_1": lambda a: ops.normalize(a, axis=1, order=1),
    "sort_of_axis": lambda a: ops.sort(a, axis=1),
    "argsort": lambda a: ops.argsort(a),
    "top_k": lambda a: ops.top_k(a, 2),
    "quantile": lambda a: ops.quantile(a, 0.3, axis=1),
    "median": lambda a: ops.median(a, axis=-1),
    "reshape": lambda a: ops.reshape(a, (-1, 20)),
    "reshape_more": lambda a: ops.reshape(a, (-1, 2, 10)),
    "expand_dims": lambda a: ops.expand_dims(a, 1),
    "expand_dims_last": lambda a: ops.expand_dims(a, -1),
    "squeeze": lambda a: ops.squeeze(a[:, :1], axis=1),
    "squeeze_all": lambda a: ops.squeeze(a[:, :1, :1]),
    "transpose": lambda a: ops.transpose(a, (0, 2, 1)),
    "transpose_all": lambda a: ops.transpose(a),
    "swapaxes": lambda a: ops.swapaxes(a, 1, -1),
    "moveaxis": lambda a: ops.moveaxis(a, 1, -1),
    "ravel": lambda a: ops.ravel(a),
    "flip": lambda a: ops.flip(a, axis=1),
    "roll": lambda a: ops.roll(a, 2, axis=1),
    "split": lambda a: ops.split(a, 2, axis=-1),
    "split_at": lambda a: ops.split(a, [1, 3], axis=1),
    "unstack": lambda a: ops.unstack(a, axis=1),
    "tile": lambda a: ops.tile(a, (1, 2, 3)),
    "repeat": lambda a: ops.repeat(a, 3, axis=1),
    "pad": lambda a: ops.pad(a, [[0, 0], [1, 2], [0, 1]], constant_values=2.5),
    "item": lambda a: a[:, 0],
    "item_last": lambda a: a[:, -1, :],
    "items_of_ellipsis": lambda a: a[..., :2],
    "item_new": lambda a: a[:, None],
    "items_with_steps": lambda a: a[:, 1:4:2, 1],
    "items_backwards": lambda a: a[:, ::-1],
    "take": lambda a: ops.take(a, [0, 2], axis=1),
    "take_one": lambda a: ops.take(a, 1, axis=-1),
    "tril": lambda a: ops.tril(a),
    "triu": lambda a: ops.triu(a, 1),
    "diagonal": lambda a: ops.diagonal(a, axis1=1, axis2=2),
    "trace": lambda a: ops.trace(a, axis1=1, axis2=2),
    "diff": lambda a: ops.diff(a, axis=1),
    "slice": lambda a: ops.slice(a, (0, 1, 1), (2, 2, 3)),
    "matmul_of_array": lambda a: a @ TABLE,
    "dot": lambda a: ops.dot(a, TABLE),
    "einsum_with_ellipsis": lambda a: ops.einsum("...d,de->...e", a, TABLE),
    "tensordot": lambda a: ops.tensordot(a, TABLE, axes=[[2], [0]]),
    "tensordot_of_one": lambda a: ops.tensordot(a, TABLE, axes=1),
}
OF_TWO = {
    **called("add subtract multiply divide maximum minimum arctan2 logaddexp equal not_equal less less_equal greater"),
    **called("greater_equal"),
    "concatenate": lambda a, b: ops.concatenate([a, b], axis=-1),
    "append": lambda a, b: ops.append(a, b, axis=1),
    "stack": lambda a, b: ops.stack([a, b], axis=1),
    "hstack": lambda a, b: ops.hstack([a, b]),
    "vstack": lambda a, b: ops.vstack([a, b]),
    "select": lambda a, b: ops.select([a > 0, b > 0], [a, b], default=0.5),
    "matmul": lambda a, b: ops.matmul(a, ops.transpose(b, (0, 2, 1))),
    "einsum": lambda a, b: ops.einsum("bld,bmd->blm", a, b),
    "where": lambda a, b: ops.where(a > b, a, b),
}
OF_POSITIVE = {**called("sqrt log log2 log10 log1p rsqrt"), "root_by_power": lambda a: a**0.5}
OF_SMALL = called("arcsin arccos arctanh erfinv")
OF_WHOLE = {
    "divided": lambda a: a / 3,
    "times_fraction": lambda a: a * 0.3,
    "plus_array": lambda a: a + PLACES,
    "plus": lambda a: a + 1,
    "floor_divided": lambda a: a // 2,
    "remainder_whole": lambda a: a % 3,
    "square_whole": lambda a: a**2,
    "larger_whole": lambda a: ops.maximum(a, 1),
    "larger_fraction": lambda a: ops.maximum(a, 1.5),
    "mean_whole": lambda a: ops.mean(a, axis=1),
    "sum_whole": lambda a: ops.sum(a, axis=1),
    "sqrt_whole": lambda a: ops.sqrt(a),
    "log_whole": lambda a: ops.log(a + 1),
    "exp_whole": lambda a: ops.exp(a),
    "clip_whole": lambda a: ops.clip(a, 1, 2),
    "to_float": lambda a: ops.cast(a, "float32"),
    "to_float16": lambda a: ops.cast(ops.cast(a, "float16"), "float32"),
    "to_bits": lambda a: ops.cast(a, "bool"),
    "one_hot": lambda a: ops.one_hot(a, 4),
    "one_hot_of_axis": lambda a: ops.one_hot(a, 3, axis=1),
    "take_of_array": lambda a: ops.take(TABLE, a, axis=0),
    "times_array": lambda a: ops.matmul(a, TABLE),
    "count_nonzero": lambda a: ops.count_nonzero(a, axis=1),
    "ones_like_half": lambda a: ops.ones_like(a) * 0.5,
    "equal_whole": lambda a: ops.equal(a, 1),
    "any_whole": lambda a: ops.any(a, axis=-1),
    "where_whole": lambda a: ops.where(a > 0, 0.5, a),
}
OF_BITS = {
    **called("logical_and logical_or logical_xor"),
    "logical_not": lambda a, b: ops.logical_not(a),
    "all": lambda a, b: ops.all(a, axis=-1),
    "any_kept": lambda a, b: ops.any(a, axis=(1, 2), keepdims=True),
    "mean_of_bits": lambda a, b: ops.mean(a, axis=1),
    "sum_of_bits": lambda a, b: ops.sum(b, axis=1),
    "one_minus": lambda a, b: 1.0 - ops.cast(a, "float32"),
    "cumsum_of_bits": lambda a, b: ops.cumsum(a, axis=1),
}
OF_SORTS = {
    "float_times_whole": lambda a, b: a * b,
    "divide_no_nan": lambda a, b: ops.divide_no_nan(a, b),
    "take_along_axis": lambda a, b: ops.take_along_axis(a, b, axis=1),
    "concatenate_sorts": lambda a, b: ops.concatenate([a, b], axis=1),
    "stack_sorts": lambda a, b: ops.stack([a, b], axis=-1),
}
OF_FREE = {
    "reshape_free": lambda a: ops.reshape(a, (-1, 4)),
    "first_three": lambda a: a[:, :3],
    "last_two": lambda a: a[:, -2:],
    "mean_free": lambda a: ops.mean(a, axis=1),
    "transpose_free": lambda a: ops.transpose(a, (0, 2, 1)),
    "tile_free": lambda a: ops.tile(a, (1, 2, 1)),
    "attention": lambda a: ops.matmul(ops.softmax(ops.matmul(a, ops.transpose(a, (0, 2, 1))) / 2.0), a),
}
STEPS = (None, 5, 4)
# Of each model: its operations, and the sort and shape of each input.
MODELS = {
    "of_one": (OF_ONE, [("float", STEPS)]),
    "of_two": (OF_TWO, [("float", STEPS)] * 2),
    "of_positive": (OF_POSITIVE, [("positive", STEPS)]),
    "of_small": (OF_SMALL, [("small", STEPS)]),
    "of_whole": (OF_WHOLE, [("whole", STEPS)]),
    "of_bits": (OF_BITS, [("bits", STEPS)] * 2),
    "of_sorts": (OF_SORTS, [("float", STEPS), ("whole", STEPS)]),
    "of_free": (OF_FREE, [("float", (None, None, 4))]),
}
DTYPES = {"whole": "int32", "bits": "bool"}


def numbers(sort, shape, seed):
    """Numbers of a sort."""
    random = np.random.default_rng(seed)
    sizes = (3, *(FREE if size is None else size for size in shape[1:]))
    if sort == "whole":
        return random.integers(0, 4, sizes).astype("int32")
    if sort == "bits":
        return random.random(sizes) > 0.4
    found = {"positive": random.uniform(0.3, 2, sizes), "small": random.uniform(-0.9, 0.9, sizes)}
    return found.get(sort, random.standard_normal(sizes)).astype("float32")


def main(folder):
    """Write every model in both formats, with inputs, outputs, and how many outputs each operation has."""
    for name, (cases, inputs) in MODELS.items():
        tensors = [keras.Input(shape[1:], dtype=DTYPES.get(sort, "float32")) for sort, shape in inputs]
        outputs = [keras.tree.flatten(function(*tensors)) for function in cases.values()]
        model = keras.Model(tensors, [tensor for group in outputs for tensor in group], name=name)
        arrays = [numbers(sort, shape, seed) for seed, (sort, shape) in enumerate(inputs)]
        found = keras.tree.flatten(model(arrays))
        flat = [tensor for group in outputs for tensor in group]
        np.savez(
            folder / f"{name}.npz",
            names=[case for case, group in zip(cases, outputs, strict=True) for _ in group],
            dtypes=[tensor.dtype for tensor in flat],
            shapes=[repr(tuple(tensor.shape)) for tensor in flat],
            **{f"x{number}": array for number, array in enumerate(arrays)},
            **{f"y{number}": np.asarray(array) for number, array in enumerate(found)},
        )
        model.save(folder / f"{name}.keras")
        model.save(folder / f"{name}.h5")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
