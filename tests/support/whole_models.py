"""Whole models written by genuine Keras, converted and compared with what Keras returned."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mha_convert.conversion import convert
from mha_convert.models import SOURCE_FILE, WEIGHTS, load_model, plan_model
from mha_convert.options import ModelChoices
from mha_convert.readers import read
from mha_convert.records.model import ModelPlan
from mha_convert.targets import open_target, safetensors_file
from mha_convert.verification.whole import prove_calls


def written(source: Path, folder: Path, **options: Any) -> ModelPlan:
    """Plan a model and write source and weights into a folder, without any proof."""
    folder.mkdir(parents=True, exist_ok=True)
    choices = ModelChoices(**options)
    plan = plan_model(read(source, config=choices.config), choices)
    (folder / SOURCE_FILE).write_text(plan.source, encoding="utf-8")
    safetensors_file.write(folder / WEIGHTS, convert(plan.weights), "")
    return plan


def proven(source: Path, folder: Path, **options: Any) -> ModelPlan:
    """``written``, and proven in this process: what is stored, each call alone, every value of the graph."""
    plan = written(source, folder, **options)
    prove_calls(plan, folder / SOURCE_FILE, open_target(folder / WEIGHTS), lambda name: None)
    return plan


def outputs_of(folder: Path, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What the written model returns, flat and in Keras' order: in float64 where inputs are, else as it is stored."""
    import torch

    model = load_model(folder)
    tensors = [torch.from_numpy(array) for array in inputs]
    if any(tensor.dtype == torch.float64 for tensor in tensors):
        model = model.double()
    dtypes = [tensor.dtype for tensor in model.state_dict().values() if tensor.is_floating_point()]
    if dtypes:
        tensors = [tensor.to(dtypes[0]) if tensor.is_floating_point() else tensor for tensor in tensors]
    with torch.no_grad():
        outputs = [*flat(model(*tensors))]
    return [(tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy() for tensor in outputs]


def flat(tree: Any) -> Iterator[Any]:
    """The leaves of tuples and dicts, dicts by their sorted keys."""
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from flat(tree[key])
    elif isinstance(tree, tuple | list):
        for item in tree:
            yield from flat(item)
    else:
        yield tree


def difference(actual: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, of the largest wanted number; infinite for another shape."""
    if actual.shape != wanted.shape:
        return float("inf")
    largest = float(np.abs(wanted).max(initial=0.0)) or 1.0
    return float(np.abs(actual.astype(np.float64) - wanted).max(initial=0.0)) / largest


def of_layer_case(place: Path, name: str, folder: Path) -> float:
    """Convert and prove one case of ``../shared/model_layers``; how far the outputs are from genuine Keras' own."""
    proven(place / f"{name}.keras", folder)
    arrays = np.load(place / f"{name}.npz")
    inputs = [arrays[key] for key in sorted(arrays.files) if key.startswith("x")]
    wanted = [arrays[key] for key in sorted(arrays.files) if key.startswith("y")]
    actual = outputs_of(folder, inputs)
    assert len(actual) == len(wanted)
    return max(difference(*pair) for pair in zip(actual, wanted, strict=True))
