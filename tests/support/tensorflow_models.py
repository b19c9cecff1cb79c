"""Checkpoints and SavedModels of the installed Keras and TensorFlow, and TensorFlow's own reading of others.

`python tensorflow_models.py FOLDER PREFIX...` writes into FOLDER the models, `expected.npz` with the weights of every
attention layer that a file holds, `oracle/<i>.npz` with the tensors of each PREFIX as `tf.train.load_checkpoint` reads
them, and `messages.json` with the fields of TensorFlow's protobuf messages.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

PROJECTIONS = ("query", "key", "value", "output")
MHA = layers.MultiHeadAttention


class ListsLost:
    """Lists and dictionaries of layers are not in checkpoints, as with every Keras 3 so far; here with any to come."""

    held_in = ("stack", "blocks", "heads", "inside", "_layers")

    def _trackable_children(self, save_type="checkpoint", **options):
        """What TensorFlow asks for what belongs to a checkpoint."""
        children = super()._trackable_children(save_type, **options)
        lost = self.held_in if save_type == "checkpoint" else ()
        return {name: child for name, child in children.items() if name not in lost}


class Block(ListsLost, layers.Layer):
    """Attention as an attribute, and in a list."""

    def __init__(self, **options):
        super().__init__(**options)
        self.att = MHA(2, 4)
        self.stack = [MHA(2, 3, use_bias=False), layers.Dense(8)]

    def call(self, x):
        """One after the other."""
        return self.stack[1](self.stack[0](self.att(x, x), x))


class Subclassed(ListsLost, keras.Model):
    """Attributes, a list, a dictionary, an alias, a nested Sequential."""

    def __init__(self):
        super().__init__()
        self.emb = layers.Dense(8)
        self.blocks = [MHA(2, 4) for _ in range(2)]
        self.zz_cross = MHA(2, 3)
        self.alias = self.zz_cross
        self.heads = {"a": MHA(1, 3)}
        self.ffn = keras.Sequential([layers.Dense(8), layers.Dense(8)])

    def call(self, x):
        """Everything once."""
        x = self.emb(x)
        for block in self.blocks:
            x = block(x, x)
        return self.ffn(self.heads["a"](self.zz_cross(x, x), x))


def functional():
    """Two layers of the model, a nested model with one, a custom block with two."""
    x, memory = keras.Input((5, 8)), keras.Input((4, 8))
    h = MHA(2, 4, name="self_attn")(x, x)
    h = MHA(4, 2, name="cross")(h, memory)
    inside = keras.Input((5, 8))
    h = keras.Model(inside, MHA(2, 4, name="inner")(inside, inside), name="encoder")(h)
    h = keras.Sequential([layers.Dense(8, name="d"), layers.Dense(8)], name="ffn")(h)
    return keras.Model([x, memory], Block(name="blk")(h))


def attention_layers(layer):
    """All of them, in the order of the model's variables."""
    found = [inner for inner in layer._flatten_layers(include_self=False) if isinstance(inner, MHA)]
    return list({id(inner): inner for inner in found}.values())


def randomize(model, seed):
    """Kernels and biases that are all different."""
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=weight.shape).astype("float32") for weight in model.get_weights()])


def weights_of(name, found):
    """Arrays by file, layer and projection."""
    return {
        f"{name}|{number}|{role}_{variable.name}": np.asarray(variable)
        for number, layer in enumerate(found)
        for role in PROJECTIONS
        for variable in getattr(layer, f"_{role}_dense").weights
    }


def save_all(folder: Path):
    """Every way that writes a checkpoint or a SavedModel."""
    expected = {}
    model = functional()
    model.compile("adam", "mse")
    model.fit([np.ones((2, 5, 8)), np.ones((2, 4, 8))], np.zeros((2, 5, 8)), verbose=0)
    randomize(model, 1)
    every = attention_layers(model)
    in_lists = [layer for layer in every if layer in next(x for x in model.layers if x.name == "blk").stack]
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(folder / "trained" / "ckpt"))
    tf.train.Checkpoint(optimizer=model.optimizer).write(str(folder / "optimizer" / "only"))
    model.export(folder / "exported", verbose=False)
    tf.saved_model.save(model, str(folder / "saved"))
    for name in ("trained", "optimizer", "exported", "saved"):
        expected |= weights_of(name, every)
    fresh = functional()
    randomize(fresh, 2)
    tf.train.Checkpoint(fresh).write(str(folder / "model" / "weights"))
    kept = attention_layers(fresh)
    expected |= weights_of("model", [layer for layer, twin in zip(kept, every, strict=True) if twin not in in_lists])
    subclassed = Subclassed()
    subclassed(np.zeros((1, 5, 8), "float32"))
    randomize(subclassed, 3)
    subclassed.export(folder / "subclassed-export", verbose=False)
    expected |= weights_of("subclassed-export", attention_layers(subclassed))
    tf.train.Checkpoint(model=subclassed).write(str(folder / "subclassed" / "weights"))
    expected |= weights_of("subclassed", [subclassed.zz_cross])
    by_name = {f"enc/attn/{role}/{part}": value for role, part, value in named(every[0])}
    slots = {f"Adam/{slot}/{name}": value * 0 for slot in "mv" for name, value in by_name.items()}
    save_by_name(folder / "by-name" / "model.ckpt", by_name | slots)
    save_in_shards(folder / "shards" / "two", by_name)
    for name in ("by-name", "shards"):
        expected |= weights_of(name, every[:1])
    many = {f"layer_{number:05d}/some/long/scope/kernel": np.float32(number) for number in range(3000)}
    save_by_name(folder / "many" / "x", many | by_name)
    expected |= weights_of("many", every[:1])
    expected |= save_doubtful(folder)
    np.savez(folder / "expected.npz", **expected)


class OwnOrder(layers.Layer):
    """Four projections of its own, made in another order than Keras makes them."""

    def __init__(self, **options):
        super().__init__(**options)
        dense = lambda equation, shape, bias: layers.EinsumDense(equation, shape, bias_axes=bias)  # noqa: E731
        self._value_dense = dense("abc,cde->abde", (None, 2, 4), "de")
        self._query_dense = dense("abc,cde->abde", (None, 2, 4), "de")
        self._key_dense = dense("abc,cde->abde", (None, 2, 4), "de")
        self._output_dense = dense("abcd,cde->abe", (None, 8), "e")

    def call(self, x):
        """Something with all of them."""
        return self._output_dense(self._query_dense(x) * self._key_dense(x) * self._value_dense(x))


class InLists(ListsLost, keras.Model):
    """Layers that only a list holds: a checkpoint has them in the optimizer's list alone."""

    def __init__(self, inside, **options):
        super().__init__(**options)
        self.inside = inside

    def call(self, x):
        """One after the other."""
        for layer in self.inside:
            x = layer(x, x) if isinstance(layer, MHA | layers.GroupQueryAttention) else layer(x)
        return x


def encoder(*arguments, **options):
    """A model with one attention, always of the same name."""
    x = keras.Input((5, 8))
    return keras.Model(x, MHA(*arguments, name="attn", **options)(x, x))


def trained_in_lists(folder, seed, inside, features=8):
    """A checkpoint of a trained model: what is in lists is in the optimizer's list alone."""
    model = InLists(inside, name="in_lists")
    model.compile("adam", "mse")
    model.fit(np.ones((2, 5, features)), np.zeros((2, 5, features)), verbose=0)
    randomize(model, seed)
    tf.train.Checkpoint(net=model, opt=model.optimizer).write(str(folder / "ck"))
    return model


def save_doubtful(folder: Path):
    """What order and names alone do not tell, or tell wrongly."""
    expected = {}
    frozen, whole = encoder(2, 4), encoder(2, 4)
    frozen.layers[1]._value_dense.trainable = False
    trained_in_lists(folder / "frozen-value", 10, [frozen, whole])
    frozen, whole = encoder(2, 4), encoder(2, 4)
    frozen.layers[1]._query_dense.trainable = False
    trained_in_lists(folder / "frozen-query", 11, [frozen, whole])
    first, second = encoder(2, 4), encoder(2, 4)
    first.layers[1]._value_dense.trainable = False
    for role in ("query", "key", "output"):
        getattr(second.layers[1], f"_{role}_dense").trainable = False
    trained_in_lists(folder / "complement", 12, [first, second])
    trained_in_lists(folder / "own-order", 13, [OwnOrder()])
    cube = [layers.EinsumDense("abc,cde->abde", (None, 4, 4)), layers.Reshape((5, 16)), layers.Dense(4)]
    trained_in_lists(folder / "cube", 14, [*cube, MHA(4, 4, use_bias=False), MHA(4, 4, use_bias=False)], features=4)
    with_bias, without = encoder(2, 4), encoder(2, 4, use_bias=False)
    trained_in_lists(folder / "mixed-bias", 15, [with_bias, without])
    expected |= weights_of("mixed-bias", [with_bias.layers[1], without.layers[1]])
    grouped = [layers.GroupQueryAttention(4, 4, 2), layers.GroupQueryAttention(4, 4, 2), MHA(2, 4)]
    trained_in_lists(folder / "grouped", 16, grouped)
    expected |= weights_of("grouped", grouped)
    normed = [
        MHA(2, 4, use_bias=False),
        layers.LayerNormalization(),
        MHA(2, 4, use_bias=False),
        layers.LayerNormalization(),
    ]
    trained_in_lists(folder / "normed", 17, normed)
    expected |= weights_of("normed", normed[::2])
    same = InLists([MHA(2, 4)], name="in_lists")
    same.attention = MHA(2, 4)
    same.call = lambda x: same.attention(same.inside[0](x, x), x)
    same.compile("adam", "mse")
    same.fit(np.ones((2, 5, 8)), np.zeros((2, 5, 8)), verbose=0)
    randomize(same, 18)
    tf.train.Checkpoint(in_lists=same, opt=same.optimizer).write(str(folder / "same-name" / "ck"))
    expected |= weights_of("same-name", [same.attention, same.inside[0]])
    twins = keras.Sequential([keras.Input((5, 8)), encoder(2, 4, use_bias=False), encoder(2, 4)])
    randomize(twins, 19)
    twins.export(folder / "twins-export", verbose=False)
    expected |= weights_of("twins-export", [model.layers[1] for model in twins.layers])
    x = keras.Input((5, 8))
    adapted = MHA(2, 4, name="adapted")
    model = keras.Model(x, adapted(x, x))
    adapted._query_dense.enable_lora(2)
    randomize(model, 20)
    trained_in_lists(folder / "lora-list", 21, [adapted])
    counting = Subclassed()
    counting.iter = tf.Variable(3)
    counting(np.zeros((1, 5, 8), "float32"))
    randomize(counting, 22)
    tf.train.Checkpoint(model=counting).write(str(folder / "iter" / "ck"))
    expected |= weights_of("iter", [counting.zz_cross])
    chain = tf.Module()
    top = chain
    for _ in range(1500):
        chain.next = tf.Module()
        chain = chain.next
    chain.v = tf.Variable(1.0)
    tf.train.Checkpoint(top=top).write(str(folder / "deep" / "ck"))
    return expected


def named(layer):
    """Role as TensorFlow 1 would have named it, part, value."""
    names = dict(zip(PROJECTIONS, ("query", "key", "value", "attention_output"), strict=True))
    for role in PROJECTIONS:
        for variable in getattr(layer, f"_{role}_dense").weights:
            yield names[role], variable.name, np.asarray(variable)


def save_by_name(prefix: Path, tensors):
    """A checkpoint without an object graph, as TensorFlow 1 wrote it; `Adam` slots are among the names."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(value) for value in tensors.values()],
    )


def save_in_shards(prefix: Path, tensors):
    """Two data files."""
    names = list(tensors)
    parts = [str(prefix) + f"-part{number}" for number in range(2)]
    for number, part in enumerate(parts):
        save_by_name(Path(part), {name: tensors[name] for name in names[number::2]})
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(prefix), delete_old_dirs=False)


def read_all(folder: Path, prefixes):
    """TensorFlow's reading, bfloat16 as its bits."""
    folder.mkdir()
    for number, prefix in enumerate(prefixes):
        reader = tf.train.load_checkpoint(prefix)
        tensors = {}
        for key, dtype in reader.get_variable_to_dtype_map().items():
            if dtype != tf.string:
                value = np.asarray(reader.get_tensor(key))
                tensors[key] = value.view(np.uint16) if dtype == tf.bfloat16 else value
        np.savez(folder / f"{number}.npz", **tensors)


def messages():
    """Number and type of each field of the messages that we read, by TensorFlow's own names."""
    from tensorflow.core.framework import function_pb2, op_def_pb2, tensor_shape_pb2  # noqa: F401
    from tensorflow.core.protobuf import saved_model_pb2, tensor_bundle_pb2, trackable_object_graph_pb2
    from tensorflow.python.keras.protobuf import saved_metadata_pb2

    starts = {
        "BundleHeader": tensor_bundle_pb2.BundleHeaderProto,
        "BundleEntry": tensor_bundle_pb2.BundleEntryProto,
        "ObjectGraph": trackable_object_graph_pb2.TrackableObjectGraph,
        "SavedModel": saved_model_pb2.SavedModel,
        "KerasMetadata": saved_metadata_pb2.SavedMetadata,
    }
    found, stack = {}, [message.DESCRIPTOR for message in starts.values()]
    while stack:
        descriptor = stack.pop()
        if descriptor.full_name in found:
            continue
        fields = {}
        for field in descriptor.fields:
            inner = field.message_type
            fields[field.name] = [field.number, field.type, inner.full_name if inner else None, field.is_repeated]
            stack += [inner] if inner else []
        found[descriptor.full_name] = fields
    return {"starts": {name: message.DESCRIPTOR.full_name for name, message in starts.items()}, "messages": found}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    save_all(place)
    read_all(place / "oracle", sys.argv[2:])
    (place / "messages.json").write_text(json.dumps(messages()))
