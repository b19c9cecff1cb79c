"""Writes the models ``conv_*`` of this folder with genuine Keras, each with inputs and outputs.

TensorFlow computes no convolution with channels first on a CPU, so there are two runs:
``KERAS_BACKEND=tensorflow python make_windows.py last`` and ``KERAS_BACKEND=torch python make_windows.py first``.
"""

import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
from keras import layers

HERE = Path(__file__).parent


def conv_free() -> keras.Model:
    """Every padding that depends on a length that is free."""
    inputs = keras.Input((None, 4), name="series")
    x = layers.Conv1D(6, 7, strides=2, padding="same", activation="relu", name="strided")(inputs)
    x = layers.MaxPooling1D(3, 2, padding="same", name="largest")(x)
    x = layers.AveragePooling1D(5, 3, padding="same", name="averages")(x)
    x = layers.Conv1D(4, 4, padding="same", groups=2, dilation_rate=2, name="grouped")(x)
    x = layers.Conv1D(4, 2, padding="same", name="even")(x)
    x = layers.AveragePooling1D(3, 1, padding="same", name="symmetric")(x)
    x = layers.AveragePooling1D(2, padding="same", name="pairs_averaged")(x)
    x = layers.MaxPooling1D(2, 1, padding="same", name="right_only")(x)
    x = layers.MaxPooling1D(2, padding="same", name="pairs")(x)
    return keras.Model(inputs, layers.GlobalAveragePooling1D(name="pooled")(x), name="conv_free")


def conv_fixed() -> keras.Model:
    """A fixed length, branches, and Flatten behind the convolutions."""
    inputs = keras.Input((40, 4), name="series")
    x = layers.Conv1D(6, 7, strides=2, padding="same", activation="tanh", name="strided")(inputs)
    causal = layers.Conv1D(6, 3, padding="causal", dilation_rate=2, use_bias=False, name="causal")(x)
    x = layers.Add(name="sum")([x, causal])
    x = layers.ZeroPadding1D((1, 2), name="longer")(x)
    x = layers.MaxPooling1D(4, 2, padding="same", name="largest")(x)
    x = layers.AveragePooling1D(4, 3, padding="same", name="averages")(x)
    x = layers.UpSampling1D(3, name="repeated")(x)
    x = layers.Cropping1D((1, 0), name="shorter")(x)
    x = layers.Dropout(0.2, name="dropout")(x)
    x = layers.Dense(3, activation="softmax", name="classes")(layers.Flatten(name="flat")(x))
    return keras.Model(inputs, x, name="conv_fixed")


def conv_deep() -> keras.Model:
    """Valid windows that need a long input."""
    return keras.Sequential(
        [
            keras.Input((None, 2), name="samples"),
            layers.Conv1D(4, 9, activation="softmax", name="first"),
            layers.MaxPooling1D(4, name="quarter"),
            layers.Conv1D(4, 9, strides=2, name="second"),
            layers.GlobalMaxPooling1D(keepdims=True, name="largest"),
            layers.Reshape((2, 2), name="reshaped"),
        ],
        name="conv_deep",
    )


def conv_first() -> keras.Model:
    """Channels first."""
    first = {"data_format": "channels_first"}
    inputs = keras.Input((4, 23), name="series")
    x = layers.Conv1D(6, 4, strides=2, padding="same", activation="softmax", name="strided", **first)(inputs)
    x = layers.Conv1D(4, 3, padding="same", groups=2, name="grouped", **first)(x)
    x = layers.MaxPooling1D(3, 2, padding="same", name="largest", **first)(x)
    x = layers.ZeroPadding1D((0, 2), name="longer", **first)(x)
    x = layers.AveragePooling1D(2, 1, name="averages", **first)(x)
    flat = layers.Flatten(name="flat", **first)(x)
    pooled = layers.GlobalMaxPooling1D(name="pooled", **first)(x)
    return keras.Model(inputs, layers.Concatenate(name="both")([flat, pooled]), name="conv_first")


MODELS = {"last": (conv_free, conv_fixed, conv_deep), "first": (conv_first,)}


def main(which: str) -> None:
    """Write the models of one run."""
    for number, make in enumerate(MODELS[which]):
        keras.utils.clear_session()
        random = np.random.default_rng(number)
        model = make()
        model.set_weights([0.3 * random.standard_normal(w.shape) + (w.ndim == 1) * 0.7 for w in model.get_weights()])
        model.save(HERE / f"{make.__name__}.keras")
        x0 = random.standard_normal([3, *(65 if size is None else size for size in model.inputs[0].shape[1:])])
        y0 = keras.ops.convert_to_numpy(model(x0.astype("float32")))
        np.savez_compressed(HERE / f"{make.__name__}.npz", x0=x0.astype("float32"), y0=y0)


if __name__ == "__main__":
    main(sys.argv[1])
