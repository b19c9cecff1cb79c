"""Writes the models ``masks-VERSION`` of this folder with the Keras that is installed, each with inputs and outputs.

What Keras hands on as a mask changed with its versions: from 3.3 to 3.4 for layers that merge, with 3.8 for attention.
Run it with each of ``VERSIONS``: ``pip install --no-deps --target DIR keras==3.3.3``, and ``PYTHONPATH=DIR``. Keras 2 is
``tf_keras``, of which the file is a ``.h5``.
"""

import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np

if "tf_keras" in sys.argv:
    import tf_keras as keras

    layers = keras.layers
else:
    import keras
    from keras import layers

HERE = Path(__file__).parent
VERSIONS = ("2.21", "3.0.5", "3.3.3", "3.4.1", "3.7.0", "3.8.0", "3.15.1")
LENGTH, WIDTH = 6, 4
# What a version of Keras itself cannot compute.
FAILS = {
    **dict.fromkeys(("dot", "additive"), ("3.0.5", "3.3.3", "3.4.1", "3.7.0", "3.8.0")),
    **dict.fromkeys(("concatenate_two", "concatenate_plain", "along"), ("3.4.1", "3.7.0", "3.8.0")),
    "along_plain": ("2.21", "3.4.1", "3.7.0", "3.8.0"),
}


def version() -> str:
    """Of Keras, as in the files' names."""
    return ".".join(keras.__version__.split(".")[: 2 if "tf_keras" in sys.argv else 3])


def works(name: str) -> bool:
    """Whether this version can compute a case."""
    return version() not in FAILS.get(name, ())


def merged(first, second, plain) -> dict:
    """Of two masked tensors and one without a mask: a mean over the length shows the mask that is handed on."""
    kinds = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")
    pairs = {
        f"{kind.lower()}_two": getattr(layers, kind)(name=f"{kind.lower()}_two")([first, second])
        for kind in kinds
        if works(f"{kind.lower()}_two")
    }
    pairs |= {
        f"{kind.lower()}_plain": getattr(layers, kind)(name=f"{kind.lower()}_plain")([first, plain])
        for kind in ("Add", "Multiply", "Concatenate")
        if works(f"{kind.lower()}_plain")
    }
    pairs["maximum_three"] = layers.Maximum(name="maximum_three")([first, second, plain])
    pairs["minimum_three"] = layers.Minimum(name="minimum_three")([plain, first, second])
    pairs["of_three"] = layers.Add(name="of_three")([first, plain, second])
    if works("along"):
        pairs["along"] = layers.Concatenate(axis=1, name="along")([first, second])
    if works("along_plain"):
        pairs["along_plain"] = layers.Concatenate(axis=1, name="along_plain")([plain, first])
    return pairs


def attended(first, second, plain) -> dict:
    """Attention with masks of its inputs."""
    found = {}

    def attention(name, *tensors, **options):
        layer = layers.MultiHeadAttention(2, 3, name=name)
        found[name] = layer(*tensors, **options)

    attention("self", first, first)
    attention("cross", first, second)
    attention("query_plain", plain, second)
    attention("value_plain", first, plain)
    attention("causal", second, second, use_causal_mask=True)
    if works("dot"):
        found["dot"] = layers.Attention(name="dot")([first, second])
    if works("additive"):
        found["additive"] = layers.AdditiveAttention(name="additive")([second, first])
    return found


def handed_on(first) -> dict:
    """Layers that hand on the mask of their input, or not."""
    made = {
        "dense": layers.Dense(4, activation="relu", name="dense"),
        "norm": layers.LayerNormalization(name="norm"),
        "dropped": layers.Dropout(0.5, name="dropped"),
        "activation": layers.Activation("sigmoid", name="activation"),
        "convolved": layers.Conv1D(4, 3, padding="same", name="convolved"),
        "each_step": layers.TimeDistributed(layers.Dense(3), name="each_step"),
        "rescaled": layers.Rescaling(0.5, 1.0, name="rescaled"),
        "steps": layers.LSTM(3, return_sequences=True, name="steps"),
        "both_ways": layers.Bidirectional(layers.GRU(3, return_sequences=True), name="both_ways"),
        "reshaped": layers.Reshape((LENGTH, 2, 2), name="reshaped"),
    }
    found = {name: layer(first) for name, layer in made.items()}
    found["reshaped"] = layers.Reshape((LENGTH, 4), name="back")(found["reshaped"])
    return found


def recurrent(first, second, plain) -> dict:
    """Recurrent layers: masked, called with states, and behind a layer that keeps a mask or not."""
    _, *states = layers.LSTM(3, return_state=True, name="encoder")(first)
    return {
        "last": layers.GRU(3, name="last")(first),
        "backwards": layers.LSTM(3, go_backwards=True, name="backwards")(second),
        "decoder": layers.LSTM(3, name="decoder")(second, initial_state=states),
        "simple": layers.SimpleRNN(3, name="simple")(layers.Add(name="before_simple")([first, second])),
        "of_masking": layers.LSTM(3, name="of_masking")(layers.Masking(1.0, name="masking")(plain)),
    }


def model():
    """One output for each rule."""
    one, other = keras.Input((LENGTH,), name="one"), keras.Input((LENGTH,), name="other")
    plain = keras.Input((LENGTH, WIDTH), name="plain")
    attends = keras.Input((LENGTH, LENGTH), name="attends", dtype="bool")
    first = layers.Embedding(7, WIDTH, mask_zero=True, name="first")(one)
    second = layers.Embedding(7, WIDTH, mask_zero=True, name="second")(other)
    # Attention takes masks away from its inputs from 3.8 on: what merges has inputs of its own.
    pair = [layers.Embedding(7, WIDTH, mask_zero=True, name=f"{each.name}_merged")(each) for each in (one, other)]
    sequences = merged(*pair, plain) | attended(first, second, plain) | handed_on(first)
    sequences["first_again"] = layers.Activation("linear", name="again")(first)  # after the calls of attention
    pooled = {
        name: layers.GlobalAveragePooling1D(name=f"mean_{name}")(sequence) for name, sequence in sequences.items()
    }
    scores = layers.Softmax(name="softmax")(layers.Dense(LENGTH, name="scores")(plain), mask=attends)
    outputs = [*pooled.values(), *recurrent(first, second, plain).values(), layers.Flatten(name="flat")(scores)]
    return keras.Model([one, other, plain, attends], outputs, name="masks")


def main() -> None:
    """Write the model, its inputs and what it returns."""
    random = np.random.default_rng(0)
    written = model()
    written.set_weights([0.7 * random.standard_normal(w.shape) for w in written.get_weights()])
    tokens = random.integers(1, 7, (2, 5, LENGTH))
    tokens[0][random.random((5, LENGTH)) < 0.4] = 0
    tokens[1][random.random((5, LENGTH)) < 0.4] = 0
    tokens[:, :, 2] = [[3], [4]]  # every row keeps a step in both
    plain = random.standard_normal((5, LENGTH, WIDTH)).astype("float32")
    plain[:, 4] = 1.0
    attends = random.random((5, LENGTH, LENGTH)) < 0.5
    attends[:, 1] = False
    inputs = [tokens[0].astype("float32"), tokens[1].astype("float32"), plain, attends]
    outputs = [np.asarray(each) for each in written(inputs)]
    written.save(HERE / f"masks-{version()}{'.h5' if version() < '3' else '.keras'}")
    stored = {f"x{n}": each for n, each in enumerate(inputs)} | {f"y{n:03}": each for n, each in enumerate(outputs)}
    np.savez_compressed(HERE / f"masks-{version()}.npz", **stored)


if __name__ == "__main__":
    main()
