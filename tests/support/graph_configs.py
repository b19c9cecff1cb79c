"""Configurations of models, written by hand, as checkpoints."""

from mha_convert.records.source import Checkpoint, Group, LayerConfig


def checkpoint(settings, class_name="Functional", version="3.15.1", **facts):
    """A file that holds this configuration and no arrays."""
    config = LayerConfig(name="model", class_name=class_name, settings=settings, **facts)
    return Checkpoint(
        path="x", format="h5", keras_version=version, has_config=True, root=Group(path="", name="", config=config)
    )


def model(layers, inputs, outputs, name="model"):
    """A Functional model's settings."""
    return {"name": name, "layers": layers, "input_layers": inputs, "output_layers": outputs}


def layer(class_name, name, nodes=(), **config):
    """An entry of a list of layers; with the settings that every layer has."""
    config = {"name": name, "trainable": True, "dtype": "float32", **config}
    return {"class_name": class_name, "name": name, "config": config, "inbound_nodes": list(nodes)}


def operation(class_name, name, nodes=(), **config):
    """An operation of Keras 3, as .h5 has it."""
    return {"class_name": class_name, "name": name, "config": {"name": name, **config}, "inbound_nodes": list(nodes)}


def source(name="x", shape=(None, 4)):
    """An input."""
    return layer("InputLayer", name, batch_shape=list(shape))


def nested(name, settings, nodes, class_name="Functional"):
    """A model among the layers of another."""
    return {"class_name": class_name, "name": name, "config": {**settings, "name": name}, "inbound_nodes": list(nodes)}


def tensor(name, call=0, output=0, shape=(None, 4), dtype="float32"):
    """A tensor as Keras 3 writes it."""
    history = {"shape": list(shape), "dtype": dtype, "keras_history": [name, call, output]}
    return {"class_name": "__keras_tensor__", "config": history}


def call(*arguments, **keywords):
    """A call as Keras 3 writes it."""
    return {"args": list(arguments), "kwargs": keywords}


def chain(length, form=3):
    """So many Dense layers in a row."""
    layers = [source("0")]
    for number in range(1, length + 1):
        before = str(number - 1)
        node = call(tensor(before)) if form == 3 else [[before, 0, 0, {}]]
        layers.append(layer("Dense", str(number), [node]))
    return model(layers, [["0", 0, 0]], [[str(length), 0, 0]])
