"""``--like``: which tensors a PyTorch model of the user's has, from the file that they happen to have of it.

Only names, shapes and dtypes are read; no number, and nothing is run.
"""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ReadError, shortened
from . import safetensors_file, torch_file
from .pickled import DamageError, Named, SavedTensor, Table, Unknown, read_saved

WRAPPERS = ("state_dict", "model_state_dict", "model", "module")  # what trainers call the model in a checkpoint
PREFIXES = {"module.": "DataParallel", "_orig_mod.": "torch.compile"}  # what wrappers of a model put before all keys
EXTRA = "_extra_state"  # PyTorch's own entry for what is no tensor
SAVE = "Save your PyTorch model with torch.save(model.state_dict(), 'model.pt') and pass that"
INDEX = ".index.json"
MOST_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class UserModel:
    """The tensors of a model, by its own keys, and what was taken off to find them. A dtype may say what a tensor is
    instead of plain numbers (``sparse``)."""

    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    notes: tuple[str, ...] = ()


# What people give instead, by how it begins.
KERAS = "is a saved Keras model, and --like (like=) takes a PyTorch model"
BY_HEAD: tuple[tuple[bytes, str], ...] = (
    (b"\x89HDF\r\n\x1a\n", KERAS),
    (b"versionhttps://", "is a Git LFS pointer, not the file itself: run `git lfs pull`"),
    (b"<", "is a web page or XML text: the download failed"),
    (b"{", "is JSON text, without tensors"),
    (b"", "is not a state_dict (.safetensors, .pt)"),
)
KERAS_MEMBERS = {"config.json", "metadata.json", "model.weights.h5"}


def read_model(path: Path, head: bytes) -> UserModel:
    """The model in a local file whose first bytes are ``head``.

    Raises:
        ReadError: it holds no ``state_dict``; the message says what it is.
    """
    if safetensors_file.accepts(head, path):
        return from_safetensors(path)
    if torch_file.accepts(head, path):
        return from_torch(path)
    raise ReadError(f"{path} {what_else(path, head)}. {SAVE}.")


def what_else(path: Path, head: bytes) -> str:
    """What the file is instead of a ``state_dict``."""
    if not head:
        return "is empty"
    if path.name.endswith(INDEX):
        return "is the index of a model in several files, without tensors"
    if head.startswith(b"PK"):
        return KERAS if members_of(path) & KERAS_MEMBERS else "is a zip archive that torch.save did not write"
    dense = b"".join(head.split())
    return next(fact for magic, fact in BY_HEAD if head.startswith(magic) or dense.startswith(magic))


def members_of(path: Path) -> set[str]:
    """Names in a zip; none in a damaged one."""
    try:
        with zipfile.ZipFile(path) as archive:
            return set(archive.namelist())
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile):
        return set()


def from_safetensors(path: Path) -> UserModel:
    """All of the file."""
    stored = safetensors_file.open_target(path, SAVE)
    return own_keys(stored.shapes, stored.dtypes, ())


def from_torch(path: Path) -> UserModel:
    """The ``state_dict`` in a file of ``torch.save``, which may be in a trainer's checkpoint."""
    try:
        saved = read_saved(path)
    except DamageError as error:
        raise ReadError(f"{path} cannot be read as a file of torch.save: {error}. {SAVE}.") from error
    state, notes = saved, []
    if not is_state(state) and isinstance(state, Table):
        held = [name for name in WRAPPERS if is_state(state.get(name))]
        if len(held) == 1:
            state, notes = state[held[0]], [f"its state_dict is the entry '{held[0]}' of the file."]
    if not is_state(state):
        raise ReadError(f"{path} {what_saved(saved)}. {next_step(saved)}.")
    tensors = {key: value for key, value in state.items() if isinstance(value, SavedTensor)}
    shapes = {key: tensor.shape for key, tensor in tensors.items()}
    return own_keys(shapes, {key: tensor.odd or tensor.dtype for key, tensor in tensors.items()}, tuple(notes))


def is_state(saved: Any) -> bool:
    """Whether something is a ``state_dict``: tensors under names, and next to them only what PyTorch puts there."""
    return (
        isinstance(saved, Table)
        and any(isinstance(value, SavedTensor) for value in saved.values())
        and all(
            isinstance(key, str) and (isinstance(value, SavedTensor) or key.endswith(EXTRA))
            for key, value in saved.items()
        )
    )


def what_saved(saved: Any) -> str:
    """What a file of ``torch.save`` holds instead of a ``state_dict``."""
    if isinstance(saved, Unknown | Named):
        return f"holds a whole pickled model, {saved.name}, which could run code and is not loaded"
    if not isinstance(saved, Table):
        return f"holds {torch_file.kind_of(saved)}, expected a state_dict"
    whole = [name for name in WRAPPERS if isinstance(saved.get(name), Unknown)]
    if whole:
        return f"holds a whole pickled model as '{whole[0]}', {saved[whole[0]].name}, which is not loaded"
    states = states_in(saved)
    if states:
        return f"holds {len(states)} state_dict{'s' * (len(states) > 1)}, {shown(states)}, and not one that is sure"
    return f"holds a dict of {shown(list(saved)) or 'nothing'}, expected a state_dict: tensors under names"


def next_step(saved: Any) -> str:
    """How to save what was meant."""
    states = states_in(saved) if isinstance(saved, Table) else []
    if not states:
        return SAVE
    entry = f"torch.load(path, weights_only=True)[{states[0]!r}]"
    return f"Save the one that you mean, torch.save({entry}, 'model.pt'), and pass that"


def states_in(saved: Mapping[Any, Any]) -> list[str]:
    """The entries of a checkpoint that are ``state_dict``s."""
    return [key for key, value in saved.items() if isinstance(key, str) and is_state(value)]


def shown(keys: list[Any]) -> str:
    """The first few keys."""
    more = f" and {len(keys) - MOST_SHOWN} more" if len(keys) > MOST_SHOWN else ""
    return ", ".join(f"'{shortened(key, 60)}'" for key in keys[:MOST_SHOWN]) + more


def own_keys(shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str], notes: tuple[str, ...]) -> UserModel:
    """The keys without what a wrapper of the model put before all of them."""
    for prefix, wrapper in PREFIXES.items():
        if shapes and all(key.startswith(prefix) and key != prefix for key in shapes):
            note = f"all its keys begin with '{prefix}', which {wrapper} puts there; it is left out of the names."
            return own_keys(
                {key.removeprefix(prefix): shape for key, shape in shapes.items()},
                {key.removeprefix(prefix): dtype for key, dtype in dtypes.items()},
                (*notes, note),
            )
    return UserModel(shapes=shapes, dtypes=dtypes, notes=notes)
