"""Saves models whose order is unusual, with the installed Keras: `python order_models.py FOLDER`.

Each is saved as `.keras`, `.weights.h5` and, if Keras can, `.h5`; `kernels.npz` has the query kernels by layer.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers


def attention(name, **options):
    """A small layer; all of one shape, so that an exchange would not be noticed."""
    return layers.MultiHeadAttention(2, 4, name=name, **options)


def chain(names, name=None):
    """Attention layers one after another."""
    x = h = keras.Input((5, 8))
    for each in names:
        h = attention(each)(h, h)
    return keras.Model(x, h, name=name)


def made_otherwise():
    """Layers that were made in another order than they are called, beside layers without weights."""
    late, early = attention("late"), attention("early")
    x = keras.Input((5, 8))
    h = layers.Dropout(0.1)(early(x, x))
    return keras.Model(x, late(layers.Activation("relu")(h), h))


def branches():
    """Two branches of different depth, in which names sort otherwise than layers."""
    a, b = keras.Input((5, 8), name="z_input"), keras.Input((5, 8), name="a_input")
    left = attention("b")(layers.Dense(8)(layers.Dense(8)(a)), a)
    right = attention("a")(b, b)
    return keras.Model([b, a], layers.Dense(3)(attention("c")(left, right) + right))


def sequential():
    """Custom layers hold attention; a Sequential lists its InputLayer."""
    return keras.Sequential([keras.Input((5, 8)), Block(name="two"), layers.Dropout(0.1), Block(name="one")])


@keras.saving.register_keras_serializable("order")
class Block(layers.Layer):
    """Attention in an attribute."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.att = attention("att")

    def build(self, shape):
        """The layer below."""
        self.att.build(shape, shape)

    def call(self, x):
        """Self-attention."""
        return self.att(x, x)


@keras.saving.register_keras_serializable("order")
class Own(keras.Model):
    """A class of a user's own that is made of inputs and outputs, with layers as attributes, too."""


def own_class():
    """The configuration is a functional model's, the class is not."""
    x = keras.Input((5, 8))
    second, first = attention("second"), attention("first")
    h = first(x, x)
    model = Own(inputs=x, outputs=second(h, h))
    model.a_second, model.z_first = second, first
    return model


def nested():
    """Two models in one, each of two layers; the first one is made last."""
    second, first = chain("dc", "second"), chain("ba", "first")
    x = keras.Input((5, 8))
    return keras.Model(x, attention("top")(second(first(x)), x))


def shared():
    """A layer that is called in the model, in a nested one, and again behind."""
    both, x, inside = attention("both"), keras.Input((5, 8)), keras.Input((5, 8))
    inner = keras.Model(inside, both(attention("inner")(inside, inside), inside), name="model")
    h = inner(both(x, x))
    return keras.Model(x, attention("last")(both(h, x), h))


def frozen_layer():
    """Keras lists what is frozen behind what is trained."""
    model = nested()
    model.get_layer("first").get_layer("b").trainable = False
    model.get_layer("top").trainable = False
    return model


def frozen_model():
    """All of a nested model."""
    model = nested()
    model.get_layer("second").trainable = False
    return model


def adapted():
    """LoRA in one projection of one nested layer."""
    model = nested()
    model.get_layer("first").get_layer("b")._query_dense.enable_lora(2)
    return model


def quantized():
    """Kernels of int8 in one nested layer."""
    model = nested()
    layer = model.get_layer("first").get_layer("b")
    for role in ("query", "key", "value", "output"):
        getattr(layer, f"_{role}_dense").quantize("int8")
    return model


def plain():
    """Two layers, x and y."""
    return chain("xy")


def grouped():
    """Grouped heads with a gate, which Keras makes between key and value; a score with two weights."""
    x = keras.Input((5, 8))
    h = layers.GroupQueryAttention(4, 4, 2, use_gate=True, name="grouped")(x, x)
    return keras.Model(x, layers.Attention(use_scale=True, score_mode="concat", name="luong")([h, x]))


def frozen_query():
    """One projection is frozen, which no configuration says."""
    model = plain()
    model.get_layer("x")._query_dense.trainable = False
    return model


def frozen_rest():
    """All projections but the key's."""
    model = plain()
    for name in ("query", "value", "output"):
        getattr(model.get_layer("x"), f"_{name}_dense").trainable = False
    return model


AS_EVER = (
    plain, made_otherwise, branches, sequential, own_class, nested, shared, frozen_layer, frozen_model, adapted,
    quantized, grouped,
)  # fmt: skip
FROZEN_INSIDE = (frozen_query, frozen_rest)


def numbered(model):
    """Every weight gets numbers of its own: biases would be zeros, and equal."""
    random = np.random.default_rng(1)
    for weight in model.weights:
        if "float" in str(weight.dtype) and "lora" not in weight.path:
            weight.assign(random.normal(size=weight.shape))


def query_kernels(model):
    """By the layer's name; of a layer in several places once."""
    flat = model._flatten_layers(include_self=False)
    return {
        layer.name: np.asarray(layer._query_dense.kernel)
        for layer in flat
        if isinstance(layer, layers.MultiHeadAttention) and not layer._query_dense.quantization_mode
    }


def main(folder):
    """Save all."""
    kernels = {}
    for make in (*AS_EVER, *FROZEN_INSIDE):
        keras.backend.clear_session()
        model = make()
        numbered(model)
        kernels |= {f"{make.__name__}/{name}": kernel for name, kernel in query_kernels(model).items()}
        for suffix in (".keras", ".weights.h5", ".h5"):
            path = str(folder / f"{make.__name__}{suffix}")
            model.save_weights(path) if suffix == ".weights.h5" else model.save(path)
        (folder / f"{make.__name__}.json").write_text(model.to_json())
    np.savez(folder / "kernels.npz", **kernels)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
