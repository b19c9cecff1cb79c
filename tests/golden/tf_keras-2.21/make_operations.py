"""Writes models of TensorFlow's functions with tf_keras 2.21, each with inputs and outputs: `python make_operations.py`.

Each has many functions of the same inputs, and an output for each.
"""

import os
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
import tf_keras as keras

HERE = Path(__file__).parent
STEPS = (5, 4)
TABLE = np.arange(20, dtype="float32").reshape(4, 5) / 7


def each(module, names):
    """One case for each of some functions of a module."""
    return {name: getattr(module, name) for name in names.split()}


def reductions(names, axes):
    """Over some axes, with axes that stay, over all."""
    found = {}
    for name in names.split():
        function = getattr(tf.math, f"reduce_{name}")
        found[f"{name}_of_one"] = lambda a, f=function: f(a, axis=1)
        found[f"{name}_kept"] = lambda a, f=function: f(a, axis=axes, keepdims=True)
        found[f"{name}_of_all"] = lambda a, f=function: f(a)
    return found


OF_ONE = {
    **each(tf.math, "abs ceil floor round sign negative square exp expm1 sin cos sinh cosh tanh asinh atan erf"),
    **each(tf.math, "sigmoid log_sigmoid is_nan"),
    **each(tf.nn, "relu relu6 selu elu softsign softmax log_softmax leaky_relu gelu silu softplus"),
    **reductions("mean sum max min prod std variance logsumexp euclidean_norm", [1, 2]),
    "gelu_with_tanh": lambda a: tf.nn.gelu(a, approximate=True),
    "slope": lambda a: tf.nn.leaky_relu(a, alpha=0.3),
    "softmax_of_axis": lambda a: tf.nn.softmax(a, axis=1),
    "plus": lambda a: a + 1.0,
    "number_minus": lambda a: 2.0 - a,
    "times": lambda a: a * 0.5,
    "over": lambda a: a / 3.0,
    "to_the": lambda a: a**2,
    "quotient": lambda a: a // 0.7,
    "remainder": lambda a: a % 0.7,
    "below": lambda a: ~(a > 0.2),
    "of_array": lambda a: a @ TABLE,
    "plus_array": lambda a: a + TABLE[:, 0],
    "argmax": lambda a: tf.argmax(a, axis=-1),
    "argmax_of_first": lambda a: tf.math.argmax(a),
    "cumsum": lambda a: tf.cumsum(a, axis=1),
    "top_k": lambda a: tf.math.top_k(a, k=2),
    "l2_normalize": lambda a: tf.math.l2_normalize(a, axis=-1),
    "norm": lambda a: tf.norm(a, axis=-1),
    "norm_1": lambda a: tf.norm(a, ord=1, axis=1, keepdims=True),
    "to_whole": lambda a: tf.cast(a, "int32"),
    "bits_to_floats": lambda a: tf.cast(a > 0, tf.float32) * 2.0,
    "reshape": lambda a: tf.reshape(a, [-1, 20]),
    "reshape_by_size": lambda a: tf.reshape(a, (tf.shape(a)[0], -1, 2)),
    "places": lambda a: a[0, :, 0] * tf.cast(tf.range(tf.shape(a)[1]), tf.float32),
    "fill": lambda a: a * tf.fill([tf.shape(a)[0], 1, 1], 2.5),
    "broadcast": lambda a: tf.broadcast_to(tf.reduce_mean(a, axis=0, keepdims=True), [tf.shape(a)[0], 5, 4]),
    "expand_dims": lambda a: tf.expand_dims(a, 1),
    "squeeze": lambda a: tf.squeeze(a[:, :1], [1]),
    "transpose": lambda a: tf.transpose(a, [0, 2, 1]),
    "band_part": lambda a: tf.linalg.band_part(a, 1, 2),
    "unstack": lambda a: tf.unstack(a, axis=1),
    "split": lambda a: tf.split(a, [1, 3], axis=2),
    "tile": lambda a: tf.tile(a, [1, 2, 1]),
    "repeat": lambda a: tf.repeat(a, 2, axis=1),
    "pad": lambda a: tf.pad(a, [[0, 0], [1, 2], [0, 0]], constant_values=1.5),
    "reverse": lambda a: tf.reverse(a, axis=[1]),
    "roll": lambda a: tf.roll(a, shift=1, axis=1),
    "gather": lambda a: tf.gather(a, [0, 2], axis=1),
    "where": lambda a: tf.where(a > 0, a, tf.zeros_like(a)),
    "clip": lambda a: tf.clip_by_value(a, -0.5, 0.7),
    "sort": lambda a: tf.sort(a, axis=1),
    "tensordot": lambda a: tf.tensordot(a, TABLE, axes=[[2], [0]]),
    "count_nonzero": lambda a: tf.math.count_nonzero(a, axis=1),
    "moments": lambda a: tf.nn.moments(a, axes=[1]),
    "item": lambda a: a[:, 0],
    "items_of_ellipsis": lambda a: a[..., :2],
    "items_in_steps": lambda a: a[:, 1:4:2],
    "item_new": lambda a: a[:, tf.newaxis],
    "backend": lambda a: keras.backend.permute_dimensions(keras.backend.l2_normalize(a, axis=1), (0, 2, 1)),
}
OF_TWO = {
    **each(tf.math, "add subtract multiply divide truediv pow maximum minimum less greater_equal equal not_equal"),
    "squared_difference": tf.math.squared_difference,
    "matmul": lambda a, b: tf.matmul(a, b, transpose_b=True),
    "concat": lambda a, b: tf.concat([a, b], axis=-1),
    "stack": lambda a, b: tf.stack([a, b], axis=1),
    "add_n": lambda a, b: tf.add_n([a, b]),
    "batch_dot": lambda a, b: keras.backend.batch_dot(a, b, axes=[2, 2]),
}
OF_WHOLE = {
    "cast": lambda a: tf.cast(a, tf.float32),
    "one_hot": lambda a: tf.one_hot(a, depth=4),
    "rows": lambda a: tf.gather(TABLE, a),
    "plus": lambda a: a + 1,
    "over": lambda a: a / 2,
    "lengths": lambda a: tf.sequence_mask(a, maxlen=5, dtype=tf.float32),
}
OF_BITS = {**reductions("any all", [1, 2]), "logical_not": tf.math.logical_not}
MODELS = {
    "functions_of_one": (OF_ONE, 1, "float32"),
    "functions_of_two": (OF_TWO, 2, "float32"),
    "functions_of_whole": (OF_WHOLE, 1, "int32"),
    "functions_of_bits": (OF_BITS, 1, "bool"),
}


def numbers(dtype, seed):
    """Positive where a power is taken of them: the first of two."""
    random = np.random.default_rng(seed)
    if dtype == "int32":
        return random.integers(0, 4, (3, *STEPS)).astype(dtype)
    return random.random((3, *STEPS)) > 0.4 if dtype == "bool" else random.normal(size=(3, *STEPS)).astype(dtype)


def main():
    """Write every model."""
    for name, (cases, count, dtype) in MODELS.items():
        tensors = [keras.Input(STEPS, dtype=dtype, name=f"in{number}") for number in range(count)]
        outputs = [tf.nest.flatten(function(*tensors)) for function in cases.values()]
        model = keras.Model(tensors, [tensor for group in outputs for tensor in group], name=name)
        arrays = [numbers(dtype, seed) for seed in range(count)]
        if count > 1:
            arrays[0] = np.abs(arrays[0])
        found = tf.nest.flatten(model(arrays))
        np.savez_compressed(
            HERE / f"{name}.npz",
            names=[case for case, group in zip(cases, outputs, strict=True) for _ in group],
            **{f"x{number}": array for number, array in enumerate(arrays)},
            **{f"y{number}": np.asarray(array) for number, array in enumerate(found)},
        )
        model.save(HERE / f"{name}.h5")  # .keras cannot hold an Ellipsis


if __name__ == "__main__":
    main()
