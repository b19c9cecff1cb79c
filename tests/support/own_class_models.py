"""Genuine files with users' own classes, and what a live layer of such a class becomes. ``OUT`` is a folder.

Run in a process of its own, as TensorFlow stays loaded.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers

random = np.random.default_rng(12)


class MultiHeadAttention(layers.MultiHeadAttention):
    """Other mathematics under Keras' name."""

    def call(self, query, value, key=None, **kwargs):
        return 2.0 * super().call(query, value, key, **kwargs)


class GroupedQueryAttention(layers.GroupQueryAttention):
    """The same of grouped heads."""

    def call(self, query, value, key=None, **kwargs):
        return 2.0 * super().call(query, value, key, **kwargs)


class Attention(layers.Attention):
    """The same without projections, with a scale."""

    def call(self, inputs, **kwargs):
        return 2.0 * super().call(inputs, **kwargs)


class Bare(layers.Layer):
    """Does not call Keras' get_config, so its name is in no Sequential model's configuration."""

    def get_config(self):
        return {}


class Positions(Bare):
    """One variable."""

    def build(self, shape):
        self.table = self.add_weight(name="table", shape=shape[1:])

    def call(self, x):
        return x + self.table


class SelfAttention(Bare):
    """Keras' own attention in it."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.att = layers.MultiHeadAttention(2, 4, name="att")

    def build(self, shape):
        self.att.build(shape, shape)

    def call(self, x):
        return self.att(x, x)


class Scaled(MultiHeadAttention):
    """Calls itself MultiHeadAttention, and leaves its name out, too."""

    def build(self, shape):
        super().build(shape, shape)

    def call(self, x):
        return super().call(x, x)

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)

    def get_config(self):
        return {"num_heads": 2, "key_dim": 4}


Scaled.__name__ = Scaled.__qualname__ = "MultiHeadAttention"
INSIDE = ("early", "late")
OWN = {
    "multi_head": (MultiHeadAttention, {"num_heads": 2, "key_dim": 4}),
    "grouped": (GroupedQueryAttention, {"num_query_heads": 4, "num_key_value_heads": 2, "head_dim": 4}),
    "unprojected": (Attention, {"use_scale": True}),
}


def called(kind, options, name):
    """A model with one layer of the class."""
    layer, x = kind(**options, name=name), keras.Input((5, 8))
    return keras.Model(x, layer([x, x]) if "use_scale" in options else layer(x, x))


def nameless(*, nested):
    """A Sequential model, within another model if ``nested``, of layers that leave their names out, and of others."""
    inner = keras.Sequential(
        [
            keras.Input((5, 8)),
            Positions(name="first_table"),
            SelfAttention(name="early"),
            Positions(name="second_table"),
            layers.Dense(8, name="dense"),
            SelfAttention(name="late"),
        ],
        name="inner",
    )
    x = keras.Input((5, 8))
    y = layers.MultiHeadAttention(2, 4, name="top")(x, x)
    return keras.Model(x, inner(y), name="outer") if nested else inner


def save(model, path):
    """With numbers of its own for every weight, in each form."""
    for weight in model.weights:
        weight.assign(random.normal(size=weight.shape))
    for suffix in (".keras", ".h5"):
        model.save(f"{path}{suffix}")
    model.save_weights(f"{path}.weights.h5")
    Path(f"{path}.json").write_text(model.to_json())


def loads_again(model, path):
    """Genuine Keras makes the same model of what it wrote, so the files are not damaged."""
    classes = {kind.__name__: kind for kind in (Positions, SelfAttention)}
    x = random.normal(size=(2, 5, 8))
    for suffix in (".keras", ".h5"):
        again = keras.saving.load_model(f"{path}{suffix}", custom_objects=classes)
        np.testing.assert_allclose(again(x), model(x), rtol=1e-6)


def main(folder):
    """Every class as a module's (``mymod``) and as a program's own (``__main__``, which Keras writes as null)."""
    for module in ("mymod", "__main__"):
        for name, (kind, options) in OWN.items():
            kind.__module__ = module
            save(called(kind, options, name), folder / f"{name}_{module.strip('_')}")
    save(keras.Sequential([keras.Input((5, 8)), Scaled(2, 4, name="scaled")]), folder / "nameless_scaled")
    kernels = {}
    for name in ("nameless", "nameless_nested"):
        model = nameless(nested=name != "nameless")
        save(model, folder / name)
        loads_again(model, folder / name)
        inner = model if name == "nameless" else model.get_layer("inner")
        kernels |= {f"{name}/{layer}": np.asarray(inner.get_layer(layer).att._query_dense.kernel) for layer in INSIDE}
    np.savez(folder / "kernels.npz", **kernels)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
