"""Runs genuine Keras; a process of its own, as TensorFlow and torch in one process can crash each other.

Reads a line with the path of a request (``.npz``), writes the answer next to it and prints its path; ends with the
input. A request holds one layer's sizes and arrays, and the inputs of its cases.
"""

import contextlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

BACKENDS = ("tensorflow", "jax", "torch")


def main() -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever Keras and its backend print
    quieten()
    print(json.dumps(identify()), file=answers)
    for line in sys.stdin:
        try:
            print(json.dumps({"answer": str(answer(Path(line.strip())))}), file=answers)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers)


def quieten() -> None:
    """Central processor only, no banners, and the first backend that is installed."""
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("JAX_ENABLE_X64", "1")
    installed = (name for name in BACKENDS if importlib.util.find_spec(name))
    with contextlib.suppress(StopIteration):
        os.environ.setdefault("KERAS_BACKEND", next(installed))


def identify() -> dict[str, str]:
    """Which Keras this is."""
    import keras

    backend = keras.backend.backend()
    module = sys.modules.get(backend)
    return {"keras": keras.__version__, "backend": backend, "backend_version": getattr(module, "__version__", "")}


def answer(path: Path) -> Path:
    """Build the layer, run its calls, store what they return."""
    import numpy as np

    with np.load(path) as archive:
        data = {name: archive[name] for name in archive.files}
    request = json.loads(str(data.pop("request")))
    calls: list[dict[str, Any]] = [{} for _ in range(request["calls"])]
    for name in [name for name in data if "/" in name]:
        index, _, own_name = name.partition("/")
        calls[int(index)][own_name] = data.pop(name)
    call = CALLS[request["call"]]
    layer = build(request, data, call, calls[0])
    returned = {
        f"{index}/{name}": as_array(tensor)
        for index, inputs in enumerate(calls)
        for name, tensor in call(layer, inputs).items()
    }
    result = path.with_suffix(".answer.npz")
    np.savez(result, **returned)
    return result


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
