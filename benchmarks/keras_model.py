"""Writes one model with genuine Keras: ``python -m benchmarks.keras_model FILE LAYERS FEATURES MLP``."""

import sys

import keras


def build(layers: int, features: int, mlp: int) -> keras.Model:
    """A stack of layers with random kernels; with perceptrons, normalisation and a head if ``mlp`` is not 0."""
    inputs = keras.Input((196, 768) if mlp else (8, features))
    x = keras.layers.Dense(features)(inputs) if mlp else inputs
    for number in range(layers):
        y = keras.layers.LayerNormalization()(x) if mlp else x
        y = keras.layers.MultiHeadAttention(features // 64, 64, name=f"attention_{number}")(y, y)
        x = keras.layers.Add()([x, y])
        if mlp:
            y = keras.layers.Dense(mlp, activation="gelu")(keras.layers.LayerNormalization()(x))
            x = keras.layers.Add()([x, keras.layers.Dense(features)(y)])
    return keras.Model(inputs, keras.layers.Dense(1000)(x) if mlp else x)


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    build(*map(int, sys.argv[2:])).save(sys.argv[1])
