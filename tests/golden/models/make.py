"""Writes the models of this folder with genuine Keras, each with inputs and outputs: ``python make.py``.

Weights are random, biases and statistics included, so that no number is idle.
"""

import os
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
from keras import layers

HERE = Path(__file__).parent


def mlp() -> keras.Model:
    """Three Dense layers, as every first model."""
    return keras.Sequential(
        [
            keras.Input((8,), name="features"),
            layers.Dense(16, activation="relu", name="hidden"),
            layers.Dropout(0.5, name="dropout"),
            layers.Dense(8, activation="gelu", name="bottleneck"),
            layers.Dense(3, activation="softmax", name="classes"),
        ],
        name="mlp",
    )


def time_series_transformer() -> keras.Model:
    """https://keras.io/examples/timeseries/timeseries_classification_transformer/, smaller."""
    inputs = x = keras.Input((48, 1), name="series")
    for _ in range(2):
        attended = layers.MultiHeadAttention(key_dim=8, num_heads=2, dropout=0.25)(x, x)
        attended = layers.Dropout(0.25)(attended)
        attended = layers.LayerNormalization(epsilon=1e-6)(attended)
        residual = attended + x
        x = layers.Conv1D(filters=4, kernel_size=1, activation="relu")(residual)
        x = layers.Dropout(0.25)(x)
        x = layers.Conv1D(filters=1, kernel_size=1)(x)
        x = layers.LayerNormalization(epsilon=1e-6)(x) + residual
    x = layers.GlobalAveragePooling1D(data_format="channels_last")(x)
    x = layers.Dense(16, activation="relu")(x)
    x = layers.Dropout(0.4)(x)
    return keras.Model(inputs, layers.Dense(2, activation="softmax")(x), name="time_series_transformer")


def text_transformer() -> keras.Model:
    """https://keras.io/examples/nlp/text_classification_with_transformer/, of layers that Keras has."""
    tokens = keras.Input((20,), dtype="int32", name="tokens")
    positions = keras.Input((20,), dtype="int32", name="positions")
    x = layers.Add(name="embedded")(
        [
            layers.Embedding(50, 16, name="token_embedding")(tokens),
            layers.Embedding(20, 16, name="position_embedding")(positions),
        ]
    )
    attended = layers.MultiHeadAttention(2, 8, name="attention")(x, x)
    x = layers.LayerNormalization(epsilon=1e-6, name="norm_1")(layers.Add(name="sum_1")([x, attended]))
    hidden = layers.Dense(16, name="ffn_2")(layers.Dense(32, activation="relu", name="ffn_1")(x))
    x = layers.LayerNormalization(epsilon=1e-6, name="norm_2")(layers.Add(name="sum_2")([x, hidden]))
    x = layers.GlobalAveragePooling1D(name="pooled")(x)
    x = layers.Dense(20, activation="relu", name="head")(layers.Dropout(0.1, name="dropout")(x))
    return keras.Model(
        [tokens, positions], layers.Dense(2, activation="softmax", name="classes")(x), name="text_transformer"
    )


def translator() -> keras.Model:
    """An encoder and a decoder with cross attention; padding is masked."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(30, 16, mask_zero=True, name="source_embedding")(source)
    memory = layers.MultiHeadAttention(4, 4, name="encoder_attention")(memory, memory)
    memory = layers.LayerNormalization(name="encoder_norm")(memory)
    x = layers.Embedding(40, 16, mask_zero=True, name="target_embedding")(target)
    x = layers.LayerNormalization(name="decoder_norm_1")(
        layers.MultiHeadAttention(4, 4, name="decoder_attention")(x, x, use_causal_mask=True) + x
    )
    x = layers.LayerNormalization(name="decoder_norm_2")(
        layers.MultiHeadAttention(4, 4, name="cross_attention")(x, memory) + x
    )
    return keras.Model(
        [source, target], layers.Dense(40, activation="softmax", name="next_token")(x), name="translator"
    )


def lstm_classifier() -> keras.Model:
    """Two LSTMs and a Dense layer."""
    return keras.Sequential(
        [
            keras.Input((12, 6), name="steps"),
            layers.LSTM(10, return_sequences=True, name="lstm_1"),
            layers.BatchNormalization(name="norm"),
            layers.Bidirectional(layers.LSTM(5), name="lstm_2"),
            layers.Dense(1, activation="sigmoid", name="probability"),
        ],
        name="lstm_classifier",
    )


MODELS = (mlp, time_series_transformer, text_transformer, translator, lstm_classifier)


def inputs_of(model: keras.Model, random: np.random.Generator) -> list[np.ndarray]:
    """Normal numbers, or tokens of which the last are padding."""
    found = []
    for tensor in model.inputs:
        shape = [3, *(9 if size is None else size for size in tensor.shape[1:])]
        if "int" in tensor.dtype:
            tokens = random.integers(1, 20, shape)
            tokens[0, -3:] = 0 if tensor.shape[1] is None else 1
            found.append(tokens.astype("int32"))
        else:
            found.append(random.standard_normal(shape).astype("float32"))
    return found


def main() -> None:
    """Write every model."""
    for number, make in enumerate(MODELS):
        keras.utils.clear_session()
        random = np.random.default_rng(number)
        model = make()
        model.set_weights([0.3 * random.standard_normal(w.shape) + (w.ndim == 1) * 0.7 for w in model.get_weights()])
        for layer in model.layers:
            if isinstance(layer, layers.BatchNormalization):
                layer.moving_variance.assign(np.abs(layer.moving_variance.numpy()) + 0.1)
        model.save(HERE / f"{make.__name__}.keras")
        given = inputs_of(model, random)
        arrays = {f"x{n}": array for n, array in enumerate(given)}
        np.savez_compressed(
            HERE / f"{make.__name__}.npz", **arrays, y0=model(given if len(given) > 1 else given[0]).numpy()
        )


if __name__ == "__main__":
    main()
