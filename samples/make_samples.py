"""Writes the sample models and the outputs that Keras computes with them. Needs `pip install -e ".[keras]"`.

textbook.keras        the parameter-free self-attention of textbooks, as a Keras layer with identity kernels
six_heads.keras       MultiHeadAttention(num_heads=6, key_dim=4) on inputs of width 4
translator.h5         a decoder: embedding with padding mask, causal self-attention, cross attention; legacy HDF5
encoder.weights.h5    two custom blocks; weights only
expected.npz          inputs, and the outputs and scores that Keras computed from them
text_classifier.keras a whole model: embedding with padding mask, one transformer block, average, two Dense layers
text_classifier.npz   tokens for it, and the probabilities that Keras computed
"""

import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
from keras import layers

HERE = Path(__file__).parent


def randomise(model, seed):
    """Set every weight, including biases, to random values (around 1 for gamma)."""
    random = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(0.4 * random.standard_normal(weight.shape) + (1 if weight.name == "gamma" else 0))


def textbook():
    """Scores of the inputs with themselves: every projection is an identity."""
    x = keras.Input((3, 4))
    attention = layers.MultiHeadAttention(num_heads=1, key_dim=4, use_bias=False, attention_axes=(1,), name="textbook")
    model = keras.Model(x, attention(x, x, return_attention_scores=True))
    for weight in model.weights:
        weight.assign(np.eye(4).reshape(weight.shape))
    return model, [np.random.default_rng(1).standard_normal((2, 3, 4)).astype("float32")]


def six_heads():
    """Six heads of four numbers on inputs of width four: num_heads * key_dim is 24, not 4."""
    x = keras.Input((136, 4))
    model = keras.Model(x, layers.MultiHeadAttention(num_heads=6, key_dim=4, name="attention")(x, x))
    randomise(model, 2)
    return model, [np.random.default_rng(2).standard_normal((32, 136, 4)).astype("float32")]


def translator():
    """Padding mask from the embedding, causal mask, and a memory of another width."""
    tokens, memory = keras.Input((6,), dtype="int32", name="tokens"), keras.Input((5, 12), name="memory")
    x = layers.Embedding(20, 16, mask_zero=True, name="embedding")(tokens)
    x = layers.MultiHeadAttention(2, 8, name="self_attention")(x, x, use_causal_mask=True)
    x = layers.LayerNormalization(name="norm")(x)
    x = layers.MultiHeadAttention(2, 8, name="cross_attention")(x, memory)
    model = keras.Model([tokens, memory], x)
    randomise(model, 3)
    ids = np.array([[4, 7, 2, 9, 3, 1], [5, 8, 6, 2, 0, 0]], "int32")
    return model, [ids, np.random.default_rng(3).standard_normal((2, 5, 12)).astype("float32")]


@keras.saving.register_keras_serializable("samples")
class Block(layers.Layer):
    """A custom layer, as people write them."""

    def __init__(self, **options):
        super().__init__(**options)
        self.attention = layers.MultiHeadAttention(num_heads=3, key_dim=4, value_dim=5)
        self.norm = layers.LayerNormalization()

    def call(self, x):
        """Attention and a residual."""
        return self.norm(x + self.attention(x, x))


def encoder():
    """Attention inside custom layers, in a file without configuration."""
    x = keras.Input((7, 8))
    model = keras.Model(x, Block(name="second")(Block(name="first")(x)))
    randomise(model, 4)
    return model, [np.random.default_rng(4).standard_normal((2, 7, 8)).astype("float32")]


def text_classifier():
    """One transformer block between an embedding and two Dense layers; padding is masked from end to end."""
    tokens = keras.Input((12,), dtype="int32", name="tokens")
    x = layers.Embedding(50, 16, mask_zero=True, name="embedding")(tokens)
    attended = layers.MultiHeadAttention(num_heads=2, key_dim=8, dropout=0.1, name="attention")(x, x)
    x = layers.LayerNormalization(epsilon=1e-6, name="norm_1")(layers.Add(name="sum_1")([x, attended]))
    hidden = layers.Dense(16, name="ffn_2")(layers.Dense(32, activation="gelu", name="ffn_1")(x))
    x = layers.LayerNormalization(epsilon=1e-6, name="norm_2")(layers.Add(name="sum_2")([x, hidden]))
    x = layers.Dropout(0.1, name="dropout")(layers.GlobalAveragePooling1D(name="average")(x))
    x = layers.Dense(3, activation="softmax", name="classes")(layers.Dense(16, activation="relu", name="head")(x))
    model = keras.Model(tokens, x, name="text_classifier")
    randomise(model, 5)
    ids = np.random.default_rng(5).integers(1, 50, (4, 12)).astype("int32")
    ids[1, 7:] = ids[2, 3:] = 0
    return model, [ids]


def main():
    """Write everything."""
    expected = {}
    for make, name in (
        (textbook, "textbook.keras"),
        (six_heads, "six_heads.keras"),
        (translator, "translator.h5"),
        (encoder, "encoder.weights.h5"),
    ):
        keras.utils.clear_session()
        model, inputs = make()
        outputs = keras.tree.flatten(model(inputs if len(inputs) > 1 else inputs[0], training=False))
        if name.endswith(".weights.h5"):
            model.save_weights(HERE / name)
        else:
            model.save(HERE / name)
        stem = name.split(".")[0]
        keep = 2 if stem == "six_heads" else 32
        expected |= {f"{stem}/in/{i}": array[:keep] for i, array in enumerate(inputs)}
        expected |= {f"{stem}/out/{i}": np.asarray(output)[:keep] for i, output in enumerate(outputs)}
    np.savez_compressed(HERE / "expected.npz", **expected)
    keras.utils.clear_session()
    model, (tokens,) = text_classifier()
    model.save(HERE / "text_classifier.keras")
    np.savez_compressed(HERE / "text_classifier.npz", x0=tokens, y0=np.asarray(model(tokens, training=False)))


if __name__ == "__main__":
    main()
