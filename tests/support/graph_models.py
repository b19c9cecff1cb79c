"""Saves models with the installed Keras, with what Keras itself knows of their graphs: `python graph_models.py FOLDER`.

Of each model: the files, and the calls in the order in which Keras makes them once it has loaded the .keras again.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers, ops, tree


def encoder(name="encoder", width=8):
    """A nested model."""
    x = keras.Input((5, 8))
    return keras.Model(x, layers.Dense(width)(layers.LayerNormalization()(x) + x), name=name)


def branches():
    """Branches of unequal length, so that the order is not that of the file."""
    x = keras.Input((4,), name="x")
    long = layers.Dense(4)(layers.Dense(4)(layers.Dense(4)(x)))
    short = layers.Dense(4)(x)
    return keras.Model(x, [layers.Add()([short, long]), layers.Concatenate()([x, short])])


def shared_layer():
    """One layer at three depths: A(B(A(B(A(x)))))."""
    x = keras.Input((4,), name="x")
    a, b = layers.Dense(4, name="a"), layers.Dense(4, name="b")
    return keras.Model(x, a(b(a(b(a(x))))))


def siamese():
    """A nested model called four times, whose outputs are those of the model and arguments of a call."""
    a, b = keras.Input((5, 8), name="a"), keras.Input((5, 8), name="b")
    inside = encoder()
    first = inside(a)
    both = layers.Dot(axes=(1, 1))([inside(a), inside(b)])
    return keras.Model([a, b], [first, both, inside(b)])


def siamese_sequential():
    """The same with a Sequential model."""
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    inside = keras.Sequential([keras.Input((4,)), layers.Dense(3)], name="tower")
    return keras.Model([a, b], [inside(a), layers.Add()([inside(a), inside(b)])])


def shared_with_nested():
    """A layer and a model, each in a model and in one inside it."""
    x, shared = keras.Input((5, 8)), layers.Dense(8, name="shared")
    i = keras.Input((5, 8))
    sub = keras.Model(i, layers.Dense(8, name="own")(shared(i)), name="sub")
    j = keras.Input((5, 8))
    outer = keras.Model(j, layers.Dense(8, name="own")(sub(j)), name="outer")
    return keras.Model(x, shared(outer(sub(layers.Dense(8, name="first")(x)))))


def shared_in_h5():
    """A layer that a model shares with one inside it, in a form that Keras can write as .h5."""
    x, shared = keras.Input((5, 8)), layers.Dense(8, name="shared")
    i = keras.Input((5, 8))
    sub = keras.Model(i, shared(i), name="sub")
    return keras.Model(x, layers.Add()([sub(x), shared(layers.Dense(8, name="first")(x))]))


def twins():
    """Two nested models that look the same, and are not."""
    x = h = keras.Input((5, 8))
    for name in ("left", "right"):
        i = keras.Input((5, 8))
        h = keras.Model(i, layers.Dense(8, name="own")(i), name=name)(h)
    return keras.Model(x, h)


def dictionaries():
    """Inputs and outputs as dicts, nested and in an order that is not the alphabet's."""
    inputs = {"z": keras.Input((4,), name="z"), "a": keras.Input((4,), name="a")}
    h = layers.Dense(4)(inputs["z"])
    return keras.Model(inputs, {"second": h, "first": [layers.Dense(2)(h), layers.Add()([h, inputs["a"]])]})


def nested_dictionary():
    """A nested model that returns a dict."""
    x = keras.Input((4,), name="x")
    i = keras.Input((4,))
    inside = keras.Model(i, {"b": layers.Dense(2)(i), "a": layers.Dense(3)(i)}, name="inside")
    found = inside(x)
    return keras.Model(x, [layers.Dense(1)(found["b"]), layers.Dense(1)(found["a"])])


def operations():
    """Operations with slices, constants, keywords, and more than one output."""
    x = keras.Input((5, 4), name="x")
    y = ops.concatenate([x[:, :2], x[..., 1:3, :]], axis=1)
    y = ops.transpose(ops.cast(y, "float32"), (0, 2, 1)) + ops.ones((4, 4))
    y = ops.expand_dims(ops.mean(y, axis=1, keepdims=True), -1)
    y = ops.where(ops.reshape(y, (-1, 4)) > 0, 1.0, 2.0)
    first, second = ops.split(y, 2, axis=-1)
    return keras.Model(x, [second - first, layers.Subtract()([first, second])])


def masks():
    """Masks that Keras writes into the graph, and one of the user."""
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    h = layers.Embedding(9, 8, mask_zero=True)(tokens)
    h = layers.MultiHeadAttention(2, 4)(h, h, attention_mask=ops.ones((6, 6), dtype="bool"), use_causal_mask=True)
    h = layers.LSTM(4, return_sequences=True)(h)
    h, *state = layers.LSTM(4, return_state=True)(layers.Masking()(h))
    return keras.Model(tokens, layers.LSTM(4)(layers.Dense(3)(h[:, None]), initial_state=state))


def chain():
    """Sequential, with an input."""
    return keras.Sequential([keras.Input((5, 4)), layers.Dense(3), encoder_of(3), layers.Flatten(), layers.Dense(2)])


def chain_without_input():
    """Sequential that was built by a call."""
    model = keras.Sequential([layers.Dense(3, name="first"), layers.Dense(2)])
    model.build((None, 4))
    return model


def encoder_of(width):
    """A nested chain."""
    return keras.Sequential([keras.Input((5, width)), layers.LayerNormalization(), layers.Dense(width)], name="inner")


MODELS = (
    branches, shared_layer, siamese, siamese_sequential, shared_with_nested, shared_in_h5, twins, dictionaries, nested_dictionary,
    operations, masks, chain, chain_without_input,
)  # fmt: skip
NOT_H5 = ("shared_with_nested",)  # Keras 3.15 writes two arrays of one name


def calls_of(model, route=()):
    """Layer, class and inputs of each call, in the order in which Keras makes them; then those of nested models."""
    found, inside = [], []
    functional = getattr(model, "_functional", None) or model
    numbers = {}
    for operation in functional.operations:
        kept = [
            node
            for index, node in enumerate(operation._inbound_nodes)
            if f"{id(operation)}_ib-{index}" in functional._nodes
        ]
        numbers |= {id(node): number for number, node in enumerate(kept)}
        if isinstance(operation, keras.Model):
            inside += calls_of(operation, (*route, operation.name))

    def value(tensor):
        operation, index, output = tensor._keras_history
        return [operation.name, numbers[id(operation._inbound_nodes[index])], output]

    for depth in sorted(functional._nodes_by_depth, reverse=True):
        for node in functional._nodes_by_depth[depth]:
            if not node.is_input:
                inputs = [value(tensor) for tensor in node.input_tensors]
                found.append([node.operation.name, type(node.operation).__name__, numbers[id(node)], inputs])
    ends = [
        [value(tensor) for tensor in tree.flatten(end)]
        for end in (functional._inputs_struct, functional._outputs_struct)
    ]
    return [["/".join(route), found, *ends], *inside]


def inputs_of(model):
    """The tree of a model's inputs."""
    return (getattr(model, "_functional", None) or model)._inputs_struct


def with_numbers(model):
    """Give a model weights of which none is idle; returns inputs for it, as many as ``tree.flatten`` finds."""
    random = np.random.default_rng(len(model.layers))
    model.set_weights([0.5 * random.standard_normal(weight.shape) for weight in model.get_weights()])
    tensors = tree.flatten(inputs_of(model))
    return [
        random.integers(0, 9, (3, *tensor.shape[1:])).astype("int32")
        if "int" in tensor.dtype
        else random.standard_normal((3, *tensor.shape[1:])).astype("float32")
        for tensor in tensors
    ]


def main(folder):
    """Every model in both formats. Keras itself cannot load all of the .h5: it reads the operation Add as a layer."""
    for make in MODELS:
        keras.utils.clear_session()
        model, path = make(), Path(folder) / f"{make.__name__}.keras"
        given = with_numbers(model)
        model.save(path)
        if make.__name__ not in NOT_H5:
            model.save(path.with_suffix(".h5"))
        try:
            again = keras.models.load_model(path)
        except ValueError:  # Keras 3.15 loses count of the calls of a layer that a model shares with one inside it
            again = model
        path.with_suffix(".json").write_text(json.dumps(calls_of(again)))
        returned = tree.flatten(model(tree.pack_sequence_as(inputs_of(model), given)))
        arrays = {f"x{n}": array for n, array in enumerate(given)}
        np.savez(path.with_suffix(".npz"), **arrays, **{f"y{n}": y.numpy() for n, y in enumerate(returned)})


if __name__ == "__main__":
    main(sys.argv[1])
