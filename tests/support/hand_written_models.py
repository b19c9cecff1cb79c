"""Attention as people write it themselves, saved by the installed Keras: `python hand_written_models.py FOLDER`.

Each model is saved in every format, with inputs and outputs of its attention layers in ``<model>.npz``.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def attend(q, k, v, num_heads, num_key_value_heads=None):
    """TensorFlow's tutorial, from projected query, key and value to the heads side by side."""

    def split_heads(x, heads):
        x = tf.reshape(x, (tf.shape(x)[0], -1, heads, x.shape[-1] // heads))
        return tf.transpose(x, perm=[0, 2, 1, 3])

    shared = num_key_value_heads or num_heads
    q, k, v = split_heads(q, num_heads), split_heads(k, shared), split_heads(v, shared)
    k, v = (tf.repeat(x, num_heads // shared, axis=1) for x in (k, v))
    logits = tf.matmul(q, k, transpose_b=True) / tf.math.sqrt(tf.cast(tf.shape(k)[-1], q.dtype))
    heads = tf.transpose(tf.matmul(tf.nn.softmax(logits, axis=-1), v), perm=[0, 2, 1, 3])
    return tf.reshape(heads, (tf.shape(heads)[0], -1, heads.shape[2] * heads.shape[3]))


@keras.saving.register_keras_serializable("tutorial")
class MultiHeadAttention(layers.Layer):
    """The layer of TensorFlow's transformer tutorial, which has the name of Keras' own."""

    def __init__(self, d_model=12, num_heads=3, **options):
        super().__init__(**options)
        self.num_heads = num_heads
        self.wq, self.wk, self.wv = layers.Dense(d_model), layers.Dense(d_model), layers.Dense(d_model)
        self.dense = layers.Dense(d_model)

    def call(self, v, k=None, q=None):
        """In the tutorial's order."""
        k, q = v if k is None else k, v if q is None else q
        return self.dense(attend(self.wq(q), self.wk(k), self.wv(v), self.num_heads))


@keras.saving.register_keras_serializable("tutorial")
class EncoderLayer(layers.Layer):
    """Attention, a feed-forward network, and sums."""

    def __init__(self, **options):
        super().__init__(**options)
        self.mha, self.ffn, self.norm = MultiHeadAttention(), layers.Dense(12), layers.LayerNormalization()

    def call(self, x):
        """As in the tutorial."""
        x = self.norm(x + self.mha(x))
        return x + self.ffn(x)


@keras.saving.register_keras_serializable("bert")
class SelfAttention(layers.Layer):
    """Three projections, of which none has a bias."""

    def __init__(self, **options):
        super().__init__(**options)
        self.query, self.key, self.value = (layers.Dense(8, use_bias=False) for _ in range(3))

    def call(self, x):
        """The heads side by side."""
        return attend(self.query(x), self.key(x), self.value(x), 2)


@keras.saving.register_keras_serializable("bert")
class BertAttention(layers.Layer):
    """As in BERT from scratch: the output projection is elsewhere, and wider."""

    def __init__(self, **options):
        super().__init__(**options)
        self.inner, self.out = SelfAttention(), layers.Dense(10)

    def call(self, x):
        """Projections with and without bias."""
        return self.out(self.inner(x))


@keras.saving.register_keras_serializable("raw")
class RawAttention(layers.Layer):
    """Variables instead of layers; two query heads share a key head."""

    def build(self, shape):
        """Heads of 3 for query and key, of 2 for value."""
        sizes = {"q": (10, 12), "k": (10, 6), "v": (10, 4), "o": (8, 7)}
        for name, size in sizes.items():
            setattr(self, f"w_{name}", self.add_weight(name=f"w_{name}", shape=size))
            setattr(self, f"b_{name}", self.add_weight(name=f"b_{name}", shape=size[1:]))
        super().build(shape)

    def call(self, x):
        """Grouped."""
        q, k, v = x @ self.w_q + self.b_q, x @ self.w_k + self.b_k, x @ self.w_v + self.b_v
        return attend(q, k, v, 4, 2) @ self.w_o + self.b_o


@keras.saving.register_keras_serializable("flat")
class Attend(layers.Layer):
    """What stands between the Dense layers of a functional model."""

    def call(self, q, k, v):
        """Two heads."""
        return attend(q, k, v, 2)


def tutorial():
    """Two blocks, and attention over another sequence."""
    x = keras.Input((5, 12))
    memory = EncoderLayer(name="block_1")(EncoderLayer(name="block_0")(x))
    return keras.Model(x, MultiHeadAttention(16, 4, name="cross")(memory, q=x, k=memory), name="tutorial")


def bert():
    """One layer."""
    x = keras.Input((5, 8))
    return keras.Model(x, BertAttention(name="attention")(x), name="bert")


def raw():
    """One layer."""
    x = keras.Input((5, 10))
    return keras.Model(x, RawAttention(name="raw")(x), name="raw")


def flat():
    """Four Dense layers of the model itself."""
    x = keras.Input((5, 6))
    heads = Attend(name="attend")(*(layers.Dense(8, name=f"first_{name}")(x) for name in "qkv"))
    return keras.Model(x, layers.Dense(6, name="first_o")(heads), name="flat")


def parts(name, model):
    """The attention of a model by the name that it gets from us: what computes it, and the widths of its inputs."""
    if name == "flat":
        return {"attention": (model, 6)}
    if name == "tutorial":
        found = {f"block_{number}/mha": (model.get_layer(f"block_{number}").mha, 12) for number in (0, 1)}
        return found | {"cross": (model.get_layer("cross"), 12)}
    (layer,) = model.layers[1:]
    return {layer.name: (layer, model.inputs[0].shape[-1])}


def main(folder: Path) -> None:
    """Save each model in every format."""
    for seed, make in enumerate((tutorial, bert, raw, flat)):
        keras.utils.clear_session()
        model, random = make(), np.random.default_rng(seed)
        for weight in model.weights:
            weight.assign(0.4 * random.standard_normal(weight.shape))
        place = folder / make.__name__
        place.mkdir()
        model.save(place / "model.keras")
        model.save_weights(place / "model.weights.h5")
        model.save(place / "model.h5")
        tf.train.Checkpoint(model=model).write(str(place / "ck"))
        arrays = {}
        for name, (layer, width) in parts(make.__name__, model).items():
            inputs = random.standard_normal((2, 5, width)).astype("float32")
            arrays |= {f"{name}:inputs": inputs, f"{name}:output": np.asarray(layer(inputs))}
        np.savez(place / "expected.npz", **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
