"""Runs genuine Keras; a process of its own, as TensorFlow and torch in one process can crash each other.

It says which Keras it is, and answers requests until its parent is gone. A request holds one layer's settings and
arrays, and the inputs of its cases; the answer, what each call returned.
"""

import importlib.util
import os
import sys
from contextlib import suppress
from typing import Any

from ..files.child.arrays import arrays_of, blocks_of, rows_of
from ..files.child.messages import to_parent
from .keras_models import model_values

BACKENDS = ("tensorflow", "jax", "torch")


def main() -> None:
    """Answer requests until the parent is gone."""
    parent = to_parent()
    quieten()
    who = identify()
    with suppress(EOFError, BrokenPipeError):
        parent.say(who)
        while True:
            words, blocks = parent.hear()
            more = {}
            try:
                if "model" in words["request"]:
                    returned, dtype = model_values(words["request"], arrays_of(words["arrays"], blocks))
                    more = {"dtype": dtype}
                else:
                    returned = answer(words["request"], arrays_of(words["arrays"], blocks))
            except Exception as error:
                parent.say({"error": f"{type(error).__name__}: {error}"})
            else:
                parent.say({"arrays": rows_of(returned), **more}, *blocks_of(returned))


def quieten() -> None:
    """Central processor only, no banners, and the first backend that is installed."""
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("JAX_ENABLE_X64", "1")
    installed = (name for name in BACKENDS if importlib.util.find_spec(name))
    with suppress(StopIteration):
        os.environ.setdefault("KERAS_BACKEND", next(installed))


def identify() -> dict[str, str]:
    """Which Keras this is."""
    import keras

    backend = keras.backend.backend()
    module = sys.modules.get(backend)
    return {"keras": keras.__version__, "backend": backend, "backend_version": getattr(module, "__version__", "")}


def answer(request: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    """Build the layer and run its calls: what they return, by the call's number and a name."""
    calls: list[dict[str, Any]] = [{} for _ in range(request["calls"])]
    for name in [name for name in arrays if "/" in name]:
        index, _, own_name = name.partition("/")
        calls[int(index)][own_name] = arrays.pop(name)
    call = CALLS[request["call"]]
    layer = build(request, arrays, call, calls[0])
    return {
        f"{index}/{name}": as_array(tensor)
        for index, inputs in enumerate(calls)
        for name, tensor in call(layer, inputs).items()
    }


def build(request: dict[str, Any], arrays: dict[str, Any], call: Any, inputs: dict[str, Any]) -> Any:
    """A genuine layer with the saved weights; the first call makes its variables."""
    import keras

    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in request["settings"].items()}
    layer = getattr(keras.layers, request["class_name"])(dtype="float64", **settings)
    call(layer, inputs)
    for attribute, names in request["weights"].items():
        part = getattr(layer, attribute) if attribute else layer
        part.set_weights([arrays[name] for name in names])
    return layer


def call_with_three(layer: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Output with scores, and the output of a call without them (another path since Keras 3.7)."""
    masks = {} if "attends" not in inputs else {"attention_mask": inputs["attends"]}
    if "causal" in inputs:
        masks = {"use_causal_mask": True}
    arguments = (inputs["query"], inputs["value"], inputs["key"])
    output, scores = layer(*arguments, return_attention_scores=True, training=False, **masks)
    alone = layer(*arguments, training=False, **masks)
    return {"output": output, "scores": scores, "output without scores": alone}


def call_with_list(layer: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """``call_with_three`` for a layer that takes a list, and masks for positions only."""
    arguments = [inputs["query"], inputs["value"], inputs["key"]]
    options: dict[str, Any] = {"use_causal_mask": True} if "causal" in inputs else {}
    if "attends" in inputs and "causal" not in inputs:
        options["mask"] = [None, inputs["attends"][:, 0]]
    output, scores = layer(arguments, return_attention_scores=True, training=False, **options)
    return {"output": output, "scores": scores, "output without scores": layer(arguments, training=False, **options)}


def call_with_one(layer: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The output of a layer of one input."""
    return {"output": layer(inputs["inputs"], training=False)}


CALLS = {"three inputs": call_with_three, "list of inputs": call_with_list, "one input": call_with_one}


def as_array(tensor: Any) -> Any:
    """Whatever the backend returns, in NumPy."""
    import keras

    return keras.ops.convert_to_numpy(tensor) if hasattr(keras, "ops") else tensor.numpy()


if __name__ == "__main__":
    main()
