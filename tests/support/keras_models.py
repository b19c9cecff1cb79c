"""Saves models with the installed Keras, in every format, with its outputs: `python keras_models.py FOLDER`.

The models are of kinds that the corpus lacks: a layer shared with a nested model, a tied nested encoder, the same user
name twice, lists and dicts of layers, names that need care in keys.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers


def attention(*arguments, **options):
    """A layer with short spelling."""
    return layers.MultiHeadAttention(*arguments, **options)


def shared_nested():
    """One layer at the top and inside a nested model."""
    x, shared = keras.Input((5, 8)), attention(2, 4, name="shared_mha")
    inside = keras.Input((5, 8))
    nested = keras.Model(inside, shared(inside, inside), name="sub")
    return keras.Model(x, nested(x) + shared(layers.Dense(8)(x), x))


def shared_nested_then_another():
    """As before, and a layer of its own behind, so that counters differ."""
    x, shared = keras.Input((5, 8)), attention(2, 4, name="shared_mha")
    inside = keras.Input((5, 8))
    nested = keras.Model(inside, shared(inside, inside), name="sub")
    y = nested(x) + shared(layers.Dense(8)(x), x)
    return keras.Model(x, attention(2, 4, name="own")(y, y))


def tied_submodel():
    """A nested encoder that is called twice."""
    inside = keras.Input((5, 8))
    encoder = keras.Model(inside, attention(2, 4)(inside, inside), name="encoder")
    a, b = keras.Input((5, 8), name="a"), keras.Input((5, 8), name="b")
    return keras.Model([a, b], attention(1, 4)(encoder(a), encoder(b)))


def vit():
    """Convolution, attention with dropout, flatten."""
    x = keras.Input((8, 8, 3))
    h = layers.Reshape((4, 8))(layers.Conv2D(8, 4, strides=4)(x))
    h = layers.LayerNormalization()(h)
    return keras.Model(x, layers.Dense(2)(layers.Flatten()(h + attention(2, 4, dropout=0.1)(h, h))))


def same_name_in_two_models():
    """Two layers of one name and one configuration, in two nested models."""
    x = h = keras.Input((5, 8))
    for name in ("left", "right"):
        inside = keras.Input((5, 8))
        h = keras.Model(inside, attention(2, 4, name="attn")(inside, inside), name=name)(h)
    return keras.Model(x, h)


def odd_names():
    """Dots in names, and one name that contains another's key."""
    x = keras.Input((5, 8))
    h = attention(2, 4, name="block.0.attn")(x, x)
    return keras.Model(x, attention(2, 4, name="block")(h, h))


@keras.saving.register_keras_serializable("tests")
class Pair(layers.Layer):
    """Two layers with the same user name, a list and a dict of layers."""

    def __init__(self, **options):
        super().__init__(**options)
        self.first, self.second = attention(2, 4, name="attn"), attention(2, 4, name="attn")
        self.stack = [attention(1, 3), attention(1, 2)]
        self.table = {"b": attention(1, 4), "a": attention(1, 5)}

    def call(self, x):
        """Everything once."""
        for layer in (self.first, self.second, *self.stack, *self.table.values()):
            x = x + layer(x, x)
        return x

    def compute_output_shape(self, shape):
        """As the input."""
        return shape


def pair():
    """The custom layer in a functional model."""
    x = keras.Input((5, 8))
    return keras.Model(x, Pair(name="pair")(x))


def twins():
    """Two nested models of one architecture, with the same weights: two layers, not one."""
    x = keras.Input((5, 8))
    nested = []
    for name in ("online", "target"):
        inside = keras.Input((5, 8))
        nested.append(keras.Model(inside, attention(2, 4, name="attn")(inside, inside), name=name))
    return keras.Model(x, nested[0](x) + nested[1](x))


def nested_inputs():
    """A nested model whose inputs are called query, key and value, and a Dense called query."""
    query, key, value = (keras.Input((5, 8), name=name) for name in ("query", "key", "value"))
    h = attention(2, 4, name="attn")(layers.Dense(8, name="query_dense")(query), value, key)
    nested = keras.Model([query, key, value], h, name="enc")
    x = keras.Input((5, 8))
    return keras.Model(x, attention(2, 4, name="top")(nested([x, x, x]), x))


def dense_query_key_value():
    """Layers of the model itself with the names of projections."""
    x = keras.Input((5, 8))
    query, key, value = (layers.Dense(8, name=name)(x) for name in ("query", "key", "value"))
    return keras.Model(x, attention(2, 4, name="attn")(query, value, key))


def einsum_query_key_value():
    """As before, with kernels of rank 3."""
    x = keras.Input((5, 8))
    query, key, value = (
        layers.EinsumDense("btf,fhd->bthd", (None, 2, 4), name=name)(x) for name in ("query", "key", "value")
    )
    query, key, value = (layers.Reshape((5, 8))(item) for item in (query, key, value))
    return keras.Model(x, attention(2, 4, name="attn")(query, value, key))


@keras.saving.register_keras_serializable("tests")
class DenseBlock(layers.Layer):
    """Dense layers called query, key and value beside a genuine attention layer."""

    def __init__(self, **options):
        super().__init__(**options)
        self.query, self.key, self.value = layers.Dense(8), layers.Dense(8), layers.Dense(8)
        self.mha = attention(2, 4)

    def call(self, x):
        """As people write it."""
        return self.mha(self.query(x), self.value(x), self.key(x))


def dense_block():
    """The block in a functional model."""
    x = keras.Input((5, 8))
    return keras.Model(x, DenseBlock(name="block")(x))


@keras.saving.register_keras_serializable("tests")
class Sigmoid(layers.Layer):
    """Four EinsumDense with the names of projections, and another formula."""

    def __init__(self, **options):
        super().__init__(**options)
        for name in ("query", "key", "value"):
            setattr(self, name, layers.EinsumDense("btf,fhd->bthd", (None, 2, 4), bias_axes="hd", name=name))
        self.attention_output = layers.EinsumDense("bthd,hdf->btf", (None, 8), bias_axes="f", name="attention_output")

    def call(self, x):
        """No softmax, no scale."""
        scores = keras.ops.sigmoid(keras.ops.einsum("bthd,bshd->bhts", self.query(x), self.key(x)))
        return self.attention_output(keras.ops.einsum("bhts,bshd->bthd", scores, self.value(x)))


def sigmoid():
    """The custom layer in a functional model."""
    x = keras.Input((5, 8))
    return keras.Model(x, Sigmoid(name="mine")(x))


MODELS = (
    twins, nested_inputs, dense_query_key_value, einsum_query_key_value, dense_block, sigmoid, shared_nested, shared_nested_then_another, tied_submodel, vit, same_name_in_two_models, odd_names, pair,
)  # fmt: skip


def main(folder: Path) -> None:
    """Save each model as .keras, .weights.h5 and, where Keras can, .h5."""
    counts = {}
    for number, make in enumerate(MODELS):
        keras.utils.clear_session()
        model = make()
        random = np.random.default_rng(number)
        for weight in model.weights:
            weight.assign(0.4 * random.standard_normal(weight.shape))
        if make is twins:
            model.get_layer("target").set_weights(model.get_layer("online").get_weights())
        model.save(folder / f"{make.__name__}.keras")
        model.save_weights(folder / f"{make.__name__}.weights.h5")
        try:
            model.save(folder / f"{make.__name__}.h5")
        except ValueError as error:  # Keras cannot save two layers of one name in a custom layer as HDF5
            (folder / f"{make.__name__}.h5").unlink(missing_ok=True)
            assert "name already exists" in str(error)
        kernels = [layer for layer in model._flatten_layers() if isinstance(layer, layers.MultiHeadAttention)]
        counts[make.__name__] = np.array([np.sort(layer.get_weights()[0].ravel())[0] for layer in kernels])
    np.savez(folder / "kernels.npz", **counts)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
