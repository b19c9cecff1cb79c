"""Writes ``norm_sequences`` and ``norm_images``: every normalization of genuine Keras, with what it returns.

``python make_normalizations.py``. Keras 3.15.1 on TensorFlow; each output is one layer's own.
"""

import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers

HERE = Path(__file__).parent
MEANS, VARIANCES = [0.5, -1.0, 0.25, 2.0, 0.0, 1.0], [1.0, 4.0, 0.3, 0.1, 2.0, 1e-20]


def norm_sequences() -> keras.Model:
    """Of ``(batch, 5, 6)``, the length known as some layers keep it."""
    x = keras.Input((5, 6), name="steps")
    made = [
        layers.LayerNormalization(axis=[1, 2], epsilon=1e-5, name="ln_two"),
        layers.LayerNormalization(axis=1, name="ln_length"),
        layers.LayerNormalization(rms_scaling=True, name="ln_deviation"),
        layers.LayerNormalization(center=False, scale=False, name="ln_bare"),
        layers.RMSNormalization(name="rms"),
        layers.RMSNormalization(axis=(1, 2), epsilon=1e-4, name="rms_two"),
        layers.BatchNormalization(momentum=0.9, name="bn"),
        layers.BatchNormalization(axis=1, epsilon=1e-5, name="bn_length"),
        layers.BatchNormalization(center=False, name="bn_scale"),
        layers.BatchNormalization(scale=False, name="bn_center"),
        layers.BatchNormalization(center=False, scale=False, name="bn_bare"),
        layers.GroupNormalization(groups=3, name="gn"),
        layers.GroupNormalization(groups=-1, axis=1, epsilon=1e-4, name="gn_each"),
        layers.GroupNormalization(groups=2, center=False, scale=False, name="gn_bare"),
        layers.UnitNormalization(name="unit"),
        layers.UnitNormalization(axis=[1, 2], name="unit_two"),
        layers.Rescaling(1 / 255, offset=-0.5, name="rescaled"),
        layers.Rescaling([0.1, 1, 2, 3, 4, 5], offset=[1, 0, 0, 0, 0, -1.3], name="rescaled_each"),
        layers.Normalization(name="adapted"),
        layers.Normalization(axis=1, name="adapted_length"),
        layers.Normalization(axis=None, invert=True, name="adapted_whole"),
        layers.Normalization(mean=MEANS, variance=VARIANCES, name="given"),
        layers.Normalization(axis=None, mean=0.3, variance=2.5, invert=True, name="given_whole"),
    ]
    pooled = layers.GlobalAveragePooling1D(name="mean")(layers.Masking(mask_value=-1.0, name="masking")(x))
    vector = layers.BatchNormalization(name="bn_vector")(pooled)
    return keras.Model(x, [*(layer(x) for layer in made), vector], name="norm_sequences")


def norm_images() -> keras.Model:
    """Of ``(batch, 4, 3, 6)``, two of them free."""
    x, known = keras.Input((None, None, 6), name="image"), keras.Input((4, 3, 6), name="known")
    y = layers.BatchNormalization(name="bn_image")(x)
    y = layers.ReLU(name="relu")(y)
    y = layers.BatchNormalization(name="bn_again")(y)
    y = layers.GroupNormalization(groups=2, name="gn_image")(y)
    y = layers.Dense(5, name="dense")(y)
    made = [
        layers.BatchNormalization(axis=2, name="bn_width"),
        layers.GroupNormalization(axis=2, groups=3, name="gn_width"),
        layers.LayerNormalization(axis=[1, 2], name="ln_positions"),
        layers.Normalization(axis=[1, 2], name="adapted_positions"),
    ]
    volume = layers.BatchNormalization(name="bn_volume")(layers.Reshape((2, 2, 3, 6), name="volume")(known))
    return keras.Model([x, known], [y, *(layer(known) for layer in made), volume], name="norm_images")


def main() -> None:
    """Write both."""
    for number, make in enumerate((norm_sequences, norm_images)):
        keras.utils.clear_session()
        random = np.random.default_rng(number)
        model = make()
        given = [
            random.standard_normal([3, *(4 if size is None else size for size in tensor.shape[1:])]).astype("float32")
            for tensor in model.inputs
        ]
        if make is norm_sequences:
            given[0][1, -2:] = -1.0
            given[0][0, 0] *= 1e-9
        for layer in model.layers:
            if isinstance(layer, layers.Normalization) and layer.input_mean is None:
                layer.adapt(3 * random.standard_normal((50, *layer.input.shape[1:])).astype("float32") + 1)
            else:
                layer.set_weights([random.standard_normal(w.shape) * 0.5 + 0.6 for w in layer.get_weights()])
            if isinstance(layer, layers.BatchNormalization):
                layer.moving_variance.assign(np.abs(layer.moving_variance.numpy()) + 0.1)
        model.save(HERE / f"{make.__name__}.keras")
        returned = model(given if len(given) > 1 else given[0])
        arrays = {f"x{n}": array for n, array in enumerate(given)}
        arrays |= {f"y{n:02}": np.asarray(array) for n, array in enumerate(returned)}
        np.savez_compressed(HERE / f"{make.__name__}.npz", **arrays)


if __name__ == "__main__":
    main()
