"""The user's own arrays: inputs, and what Keras returned for them."""

import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ReadError, VerificationError, listed, reason
from ...records.model import ModelPlan
from ...records.proof import Comparison
from ...records.source import Array
from ...targets import Target
from .written import WrittenModel

if TYPE_CHECKING:
    import torch

NAMES = re.compile(r"(x|in/|y|out/)(\d*)")
# Of the largest number of an output: what a whole model may differ from genuine Keras in this dtype.
BOUNDS = {"float64": 1e-6, "float32": 2e-5, "float16": 3e-2, "bfloat16": 0.2}
SAVE = "Save them with numpy.savez('io.npz', x0=first_input, y0=first_output) (docs/models.md)"


def read_expected(path: Any) -> tuple[list[Array], list[Array]]:
    """Inputs and outputs of an ``.npz``: ``x0, x1, …`` (or ``x``), ``y0, y1, …`` (or ``y``); or ``in/0``, ``out/0``.

    Raises:
        ReadError: it is not such a file.
    """
    try:
        with np.load(Path(path), allow_pickle=False) as file:
            found = {name: np.asarray(file[name]) for name in file.files if NAMES.fullmatch(name)}
            others = [name for name in file.files if name not in found]
    except OSError as error:
        raise ReadError(f"{path} cannot be read: {reason(error)}. {SAVE}.") from error
    except (ValueError, zipfile.BadZipFile, AttributeError) as error:
        raise ReadError(f"{path} is not an .npz of plain arrays. {SAVE}.") from error
    inputs, outputs = (in_order(found, letters) for letters in (("x", "in/"), ("y", "out/")))
    if not inputs or not outputs:
        held = listed([*found, *others], 4) or "nothing"
        raise ReadError(f"{path} holds {held}, expected x0, x1, … and y0, y1, …. {SAVE}.")
    return inputs, outputs


def in_order(found: dict[str, Array], letters: tuple[str, ...]) -> list[Array]:
    """The arrays of one sort by their numbers."""
    own = {name: array for name, array in found.items() if NAMES.fullmatch(name)[1] in letters}  # type: ignore[index]
    return [own[name] for name in sorted(own, key=lambda name: int(NAMES.fullmatch(name)[2] or 0))]  # type: ignore[index]


def compared_with_expected(plan: ModelPlan, written: WrittenModel, target: Target, path: Any) -> list[Comparison]:
    """The written model with its stored weights, compared with the user's arrays.

    Raises:
        ReadError: the file does not hold arrays for this model.
        VerificationError: an output differs.
    """
    import torch

    inputs, outputs = read_expected(path)
    parameters = plan.model.parameters
    if len(inputs) != len(parameters):
        names = ", ".join(term.text for term in parameters)
        raise ReadError(f"{path} holds {len(inputs)} inputs, and the model takes {len(parameters)}: {names}. {SAVE}.")
    model = written.make()
    tensors = {key: target.read(key) for key in target.shapes}
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()}
    dtype = dtypes.pop() if len(dtypes) == 1 else "float32"
    model.load_state_dict(
        {key: tensor.to(getattr(torch, dtype)) for key, tensor in tensors.items()}, strict=True, assign=True
    )
    try:
        with torch.no_grad():
            returned = [*flat(model(*(as_input(array, getattr(torch, dtype)) for array in inputs)))]
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        first = str(error).strip().partition("\n")[0]
        raise VerificationError(f"{path}: PyTorch refuses its inputs: {first}. {SAVE}.") from error
    if len(returned) != len(outputs):
        raise ReadError(f"{path} holds {len(outputs)} outputs, and the model returns {len(returned)}. {SAVE}.")
    pairs = zip(returned, outputs, strict=True)
    found = [
        of_output(number, mine.double().numpy(), theirs, dtype, path) for number, (mine, theirs) in enumerate(pairs)
    ]
    for comparison in found:
        if not comparison.passed:
            raise VerificationError(
                f"{path}: {comparison.what} of the written model differs by {comparison.relative:.3g} of the largest "
                f"number, allowed {comparison.bound:.3g}. They are another model's, or were saved in training mode."
            )
    return found


def as_input(array: Array, dtype: "torch.dtype") -> "torch.Tensor":
    """An input as a tensor, floats in the model's dtype."""
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def flat(tree: Any) -> "list[torch.Tensor]":
    """The tensors of an output, in Keras' order."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in flat(tree[key])]
    return [leaf for item in tree for leaf in flat(item)] if isinstance(tree, tuple | list) else [tree]


def of_output(number: int, actual: Array, wanted: Array, dtype: str, path: Any) -> Comparison:
    """One output."""
    wanted = wanted.astype(np.float64)
    largest = float(np.abs(wanted).max(initial=0.0)) or 1.0
    error = float(np.abs(actual - wanted).max(initial=0.0)) if actual.shape == wanted.shape else np.inf
    return Comparison(
        layer="the whole model",
        case="your inputs",
        what=f"output {number}",
        weights="stored",
        reference=str(path),
        error=error,
        relative=error / largest,
        bound=BOUNDS[dtype],
    )
