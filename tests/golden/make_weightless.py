"""Wrote ``tf_keras-2.21/luong.*``: ``python make_weightless.py OUT`` in a Python with ``tf_keras``, for SavedModels of Keras 2.

One model in three forms, with ``Attention`` that stores nothing: in the model, and in a model inside it.
"""

import sys
from pathlib import Path

import tf_keras as keras
from tf_keras import layers


def make() -> keras.Model:
    """The model."""
    inside, x = keras.Input((5, 8)), keras.Input((5, 8))
    inner = keras.Model(inside, layers.Attention(name="inner_luong")([inside, inside]), name="inner")
    return keras.Model(x, inner(layers.Attention(name="luong")([layers.Dense(8, name="dense")(x), x])))


def main(folder: Path) -> None:
    """Save it in every form."""
    model = make()
    model.save(folder / "luong.keras")
    model.save(folder / "luong.h5")
    model.save(folder / "luong.savedmodel", save_traces=False, include_optimizer=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
