"""A whole model in genuine Keras: part of the process of ``keras_worker``."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HDF5 = b"\x89HDF\r\n\x1a\n"
WIDE, USUAL = "float64", "float32"


def model_values(request: Mapping[str, Any], arrays: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """What every layer returns, by the value's number, and the dtype that Keras computed in.

    The model is computed in float64 where it can be rebuilt so, so that a difference is one of mathematics.

    Args:
        request: ``model``, the file's path, and ``values``: name of the layer, number of the call, of the output.
        arrays: the inputs ``x0``, ``x1``, ….
    """
    import keras
    import numpy as np

    model = in_float64(loaded(request["model"]))
    tensors = {
        number: tensor for number, row in enumerate(request["values"]) if (tensor := symbolic(model, *row)) is not None
    }
    whole = keras.Model(model.inputs, list(tensors.values()))
    inputs = [np.asarray(arrays[f"x{n}"]) for n in range(len(arrays))]
    inputs = [array.astype(tensor.dtype) for array, tensor in zip(inputs, model.inputs, strict=True)]
    returned = whole(inputs if len(inputs) > 1 else inputs[0], training=False)
    listed = returned if isinstance(returned, list | tuple) else [returned]  # Keras unpacks a list of one
    found = [keras.ops.convert_to_numpy(tensor) for tensor in listed]
    dtypes = {str(array.dtype) for array in found if array.dtype.kind == "f" or str(array.dtype) == "bfloat16"}
    dtype = dtypes.pop() if len(dtypes) == 1 else USUAL
    return {str(number): array for number, array in zip(tensors, found, strict=True)}, dtype


def loaded(path: str) -> Any:
    """The file's model; HDF5 that is called ``.keras`` gets a name by which Keras 3 knows it for HDF5."""
    import keras

    place = Path(path)
    if not (place.suffix == ".keras" and place.is_file() and starts_with(place, HDF5)):
        return keras.models.load_model(path, compile=False)
    with TemporaryDirectory() as folder:
        link = Path(folder) / "model.h5"
        link.symlink_to(place.resolve())
        return keras.models.load_model(str(link), compile=False)


def starts_with(place: Path, mark: bytes) -> bool:
    """Whether these are a file's first bytes."""
    with place.open("rb") as file:
        return file.read(len(mark)) == mark


def in_float64(model: Any) -> Any:
    """The same model with float64 layers where all of it is float32; else as it is."""
    with suppress(Exception):  # a class that cannot be rebuilt is used as it is
        text = json.dumps(model.get_config(), default=str)
        if "mixed_" in text or "float16" in text:
            return model
        wide = type(model).from_config(json.loads(text.replace(f'"{USUAL}"', f'"{WIDE}"')))
        wide.set_weights(model.get_weights())
        return wide
    return model


def symbolic(model: Any, layer: str, call: int, output: int) -> Any:
    """The symbolic tensor of a value; None where Keras has it under no such name."""
    with suppress(Exception):
        nodes = operations(model)[layer]
        return nodes[min(call, len(nodes) - 1)][output]
    return None


def operations(model: Any) -> dict[str, Sequence[Sequence[Any]]]:
    """The outputs of each call of each layer or operation, by name, of the calls that are this model's."""
    import keras

    functional = getattr(model, "_functional", None) or model
    inside = {id(node) for nodes in functional._nodes_by_depth.values() for node in nodes}
    return {
        operation.name: [node.output_tensors for node in operation._inbound_nodes if id(node) in inside]
        for operation in functional.operations
        if isinstance(operation, keras.Operation)
    }
