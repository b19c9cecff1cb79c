"""The process of ``fresh``: it imports a written ``model.py`` and torch, and nothing of Keras, and says what works."""

import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files.child.arrays import arrays_of
from ...files.child.messages import to_parent

if TYPE_CHECKING:
    import torch
    from torch import nn

FORBIDDEN = ("keras", "tensorflow", "jax")
ALLOW_RNN = "allow_rnn"  # a setting of torch.compile
# Of the largest number: a whole model in the stored dtype, against float64.
BOUNDS = {"torch.float64": 1e-9, "torch.float32": 2e-4, "torch.float16": 0.2, "torch.bfloat16": 1.0}


class Trial(Exception):  # noqa: N818 - what was tried, and how it went wrong
    """A use of the files that failed."""


def main() -> None:
    """Answer one request."""
    channel = to_parent()
    request, blocks = channel.hear()
    uses: list[tuple[str, str]] = []
    what = "starting"
    try:
        import numpy as np

        arrays = {name: np.array(array) for name, array in arrays_of(request["arrays"], blocks).items()}
        state: dict[str, Any] = {}
        for what, trial in TRIALS:
            uses.append((what, trial(request, arrays, state)))
    except Exception as error:
        channel.say(
            {
                "what": what,
                "error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}",
            }
        )
        return
    channel.say({"uses": uses})


def loaded(request: dict[str, Any], arrays: dict[str, Any], state: dict[str, Any]) -> str:
    """Import the class, and load the weights strictly."""
    import torch
    from safetensors.torch import load_file

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder = Path(request["folder"])
    spec = importlib.util.spec_from_file_location("written_model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["written_model"] = module
    spec.loader.exec_module(module)
    others = [name for name in FORBIDDEN if name in sys.modules]
    if others:
        raise Trial(f"{others[0]} was imported")
    tensors = load_file(folder / "model.safetensors")
    model: nn.Module = getattr(module, request["class_name"])()
    dtypes = {tensor.dtype for tensor in tensors.values()}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.float32
    model.to(dtype).load_state_dict(tensors, strict=True)
    state |= {"model": model.eval(), "dtype": dtype}
    return f"{len(tensors)} tensors, strict"


def inputs_of(arrays: dict[str, Any], number: int, dtype: "torch.dtype") -> "list[torch.Tensor]":
    """The inputs of one run, floats in the model's dtype."""
    import torch

    found: list[torch.Tensor] = []
    while f"{number}/in/{len(found)}" in arrays:
        tensor = torch.from_numpy(arrays[f"{number}/in/{len(found)}"])
        found.append(tensor.to(dtype) if tensor.is_floating_point() else tensor)
    return found


def flat(tree: Any) -> "Iterator[torch.Tensor]":
    """The tensors of an output, in Keras' order."""
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from flat(tree[key])
    elif isinstance(tree, tuple | list):
        for item in tree:
            yield from flat(item)
    else:
        yield tree


def other_sizes(request: dict[str, Any], arrays: dict[str, Any], state: dict[str, Any]) -> str:
    """Every run, with its own batch and free sizes, in the stored dtype."""
    import torch

    worst = 0.0
    for number in range(request["runs"]):
        with torch.no_grad():
            outputs = [*flat(state["model"](*inputs_of(arrays, number, state["dtype"])))]
        for n, output in enumerate(outputs):
            wanted = torch.from_numpy(arrays[f"{number}/out/{n}"])
            if tuple(output.shape) != tuple(wanted.shape):
                raise Trial(f"output {n} is of shape {tuple(output.shape)}, expected {tuple(wanted.shape)}")
            if not wanted.is_floating_point():
                continue
            largest = float(wanted.abs().max()) if wanted.numel() else 1.0
            worst = max(
                worst, float((output.double() - wanted).abs().max()) / (largest or 1.0) if wanted.numel() else 0.0
            )
    bound = BOUNDS[str(state["dtype"])]
    if not worst <= bound:
        raise Trial(f"outputs differ by {worst:.1e} of the largest number, allowed {bound:.0e}")
    dtype = str(state["dtype"]).removeprefix("torch.")
    return f"{request['runs']} batch sizes, outputs in {dtype} within {worst:.1e} of the largest number"


def exported(request: dict[str, Any], arrays: dict[str, Any], state: dict[str, Any]) -> str:
    """``torch.export`` with these inputs."""
    import torch

    torch.export.export(state["model"], tuple(inputs_of(arrays, 0, state["dtype"])))
    return "without an error"


def compiled(request: dict[str, Any], arrays: dict[str, Any], state: dict[str, Any]) -> str:
    """``torch.compile`` as one graph; no machine code is made.

    PyTorch breaks the graph at its own recurrent modules unless ``torch._dynamo.config.allow_rnn`` is set.
    """
    import torch
    import torch._dynamo

    is_recurrent = any(isinstance(module, torch.nn.RNNBase) for module in state["model"].modules())
    allows = is_recurrent and hasattr(torch._dynamo.config, ALLOW_RNN)
    if allows:
        setattr(torch._dynamo.config, ALLOW_RNN, True)
    model = torch.compile(state["model"], fullgraph=True, backend="eager")
    with torch.no_grad():
        model(*inputs_of(arrays, 0, state["dtype"]))  # type: ignore[no-untyped-call]
    return f"as one graph, with torch._dynamo.config.{ALLOW_RNN} = True" if allows else "as one graph"


def trained(request: dict[str, Any], arrays: dict[str, Any], state: dict[str, Any]) -> str:
    """A gradient for every parameter, in training mode; fewer where the model itself stops gradients."""
    import torch

    model = state["model"].train()
    outputs = [output for output in flat(model(*inputs_of(arrays, 0, state["dtype"]))) if output.requires_grad]
    if outputs:
        torch.stack([output.sum() for output in outputs]).sum().backward()
    model.eval()
    count = sum(1 for _ in model.parameters())
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    if without and not request["stops_gradients"]:
        raise Trial(f"parameter {without[0]} gets no gradient")
    if without:
        return f"{count - len(without)} of {count} parameters; operations of the model stop the gradients of the others"
    return f"{count} parameters"


TRIALS: tuple[tuple[str, Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], str]], ...] = (
    ("load_state_dict", loaded),
    ("forward", other_sizes),
    ("torch.export", exported),
    ("torch.compile", compiled),
    ("backward", trained),
)
