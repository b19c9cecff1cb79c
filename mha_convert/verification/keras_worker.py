"""Runs genuine Keras; a process of its own, as TensorFlow and torch in one process can crash each other.

Reads a line with the path of a request (``.npz``), writes the answer beside it and prints its path; ends with the
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


def answer(request: Path) -> Path:
    """Build the layer, run its cases, store the results."""
    import numpy as np

    with np.load(request) as archive:
        data = {name: archive[name] for name in archive.files}
    sizes = json.loads(str(data.pop("sizes")))
    layer = build(sizes, data)
    results: dict[str, Any] = {}
    ask = call if "roles" in sizes else call_unprojected
    for index in range(sizes["cases"]):
        output, scores, alone = ask(
            layer, {key.split("/")[1]: data[key] for key in data if key.startswith(f"{index}/")}
        )
        results |= {f"{index}/output": output, f"{index}/scores": scores, f"{index}/alone": alone}
    path = request.with_suffix(".answer.npz")
    np.savez(path, **results)
    return path


def build(sizes: dict[str, Any], data: dict[str, Any]) -> Any:
    """A genuine layer with the saved kernels."""
    import keras

    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in sizes["settings"].items()}
    layer = getattr(keras.layers, sizes["class_name"])(dtype="float64", **settings)
    if "weights" in sizes:
        layer([data["0/query"], data["0/value"], data["0/key"]])
        layer.set_weights([data[name] for name in sizes["weights"]])
        return layer
    layer(data["0/query"], data["0/value"], data["0/key"])
    for role in sizes["roles"]:
        arrays = (data.get(f"{role}.{kind}") for kind in ("kernel", "bias"))
        getattr(layer, f"_{role}_dense").set_weights([array for array in arrays if array is not None])
    return layer


def call(layer: Any, inputs: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Output with scores, and the output of a call without them (another path since Keras 3.7)."""
    masks = {} if "attends" not in inputs else {"attention_mask": inputs["attends"]}
    if "causal" in inputs:
        masks = {"use_causal_mask": True}
    arguments = (inputs["query"], inputs["value"], inputs["key"])
    output, scores = layer(*arguments, return_attention_scores=True, training=False, **masks)
    alone = layer(*arguments, training=False, **masks)
    return as_arrays(output, scores, alone)


def call_unprojected(layer: Any, inputs: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The same of a layer that takes a list, and masks for positions only."""
    arguments = [inputs["query"], inputs["value"], inputs["key"]]
    options: dict[str, Any] = {"use_causal_mask": True} if "causal" in inputs else {}
    if "attends" in inputs and "causal" not in inputs:
        options["mask"] = [None, inputs["attends"][:, 0]]
    output, scores = layer(arguments, return_attention_scores=True, training=False, **options)
    return as_arrays(output, scores, layer(arguments, training=False, **options))


def as_arrays(*tensors: Any) -> tuple[Any, Any, Any]:
    """Whatever the backend returns, in NumPy."""
    import keras

    convert = keras.ops.convert_to_numpy if hasattr(keras, "ops") else lambda tensor: tensor.numpy()
    first, second, third = (convert(tensor) for tensor in tensors)
    return first, second, third


if __name__ == "__main__":
    main()
