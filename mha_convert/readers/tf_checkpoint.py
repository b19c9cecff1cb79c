"""TensorFlow checkpoints: ``x.index`` and ``x.data-00000-of-00001``, often in a folder with a file ``checkpoint``.

Written by ``save_weights("x")`` and ``ModelCheckpoint`` of Keras 2, and by ``tf.train.Checkpoint`` with any Keras.
https://www.tensorflow.org/guide/checkpoint
"""

import re
from collections.abc import Collection

from ..classes import REQUIRED, nouns
from ..errors import ReadError
from ..files.limits import STATE
from ..files.locations import store_errors
from ..files.source import Source
from ..records.source import Checkpoint
from .keras3.consistency import check_fits
from .keras3.json_text import Json
from .keras3.losses import lost_by_optimizer
from .keras3.model_config import listed_configs
from .probe import Probe
from .tensorflow.bundle import INDEX_END, Bundle, has_index, is_table, open_bundle
from .tensorflow.graph_names import Namer
from .tensorflow.object_graph import KERAS_3, Object, arrange, read_objects

FORMAT, TITLE = "tf-checkpoint", "TensorFlow checkpoint"
SUFFIXES, FOLDERS, BESIDE = (INDEX_END,), (), "{stem}.data-*-of-*"
STATE_FILE = "checkpoint"
FIRST_DATA = ".data-00000-of-"
DATA_FILE = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")
LATEST = re.compile(r'^model_checkpoint_path: "((?:[^"\\]|\\.)*)"', re.MULTILINE)
KERAS_3_LOSES_LISTS = (
    "Keras 3 leaves layers that a model holds in lists or dictionaries out of such a checkpoint, without a word. "
    f"Compare the number of {nouns(REQUIRED)} with your model's."
)


def parts(names: Collection[str]) -> frozenset[str]:
    """An index without its data is not a model."""
    indices = [name for name in names if name.endswith(INDEX_END)]
    first = {name: name.removesuffix(INDEX_END) + FIRST_DATA for name in indices}
    return frozenset(name for name in indices if not any(other.startswith(first[name]) for other in names))


def accepts(probe: Probe) -> bool:
    """An index, a data file, a prefix of both, the file ``checkpoint``, or a folder of these."""
    source = probe.source
    if not probe.head:
        return not source.is_file() and (has_index(source) or is_checkpoint_folder(probe))
    if source.name == STATE_FILE and LATEST.search(probe.head.decode("utf-8", "replace")):
        return True
    return bool(DATA_FILE.fullmatch(source.name)) or (source.name.endswith(INDEX_END) and is_table(source))


def is_checkpoint_folder(probe: Probe) -> bool:
    """Whether it is a folder that holds checkpoints, and not a SavedModel."""
    source = probe.source
    return probe.is_folder and (source.child(STATE_FILE).is_file() or bool(source.children(f"*{INDEX_END}")))


def read(source: Source, architecture: Json | None = None) -> Checkpoint:
    """Describe the checkpoint; raises ``ReadError`` for missing or damaged parts."""
    prefix, notes = find_prefix(source)
    if not has_index(prefix):
        raise ReadError(
            f"{prefix}: a TensorFlow checkpoint without its index '{prefix.name}{INDEX_END}'. "
            "Copy all files of the checkpoint into one folder."
        )
    bundle = open_bundle(prefix)
    objects = read_objects(bundle)
    return describe(bundle, objects, source, architecture, notes)


def describe(
    bundle: Bundle, objects: list[Object], source: Source, architecture: Json | None, notes: tuple[str, ...]
) -> Checkpoint:
    """The records of an opened checkpoint."""
    arrangement = arrange(bundle, objects, {})
    root = Namer(arrangement, {}, architecture).tree()
    check_fits(root, architecture, source, by_name=False)
    others = tuple(arrangement.others)
    by_keras_3 = any(name in KERAS_3 for item in objects for name, _ in item.children)
    return Checkpoint(
        path=str(source),
        format=FORMAT,
        has_config=architecture is not None,
        has_layer_names=bool(objects),
        root=root,
        others=others,
        listed=listed_configs(architecture or {}),
        omits_empty_layers=True,
        notes=(
            *notes,
            *lost_by_optimizer(root, others),
            *((KERAS_3_LOSES_LISTS,) if by_keras_3 else ()),
        ),
    )


def find_prefix(source: Source) -> tuple[Source, tuple[str, ...]]:
    """The checkpoint that ``source`` means, and a note where there was a choice.

    The file ``checkpoint`` may name any path; only a file next to it is ever opened.
    """
    if source.is_folder() and not has_index(source):
        return latest(source)
    if source.name == STATE_FILE and not has_index(source):
        return latest(source.folder)
    if match := DATA_FILE.fullmatch(source.name):
        return source.beside(match[1]), ()
    is_index = source.name.endswith(INDEX_END) and source.is_file()
    return (source.beside(source.name.removesuffix(INDEX_END)) if is_index else source), ()


def latest(folder: Source) -> tuple[Source, tuple[str, ...]]:
    """The newest checkpoint of a folder by its file ``checkpoint``, or its only one."""
    present = sorted(item.name.removesuffix(INDEX_END) for item in folder.children(f"*{INDEX_END}"))
    listed = ", ".join(present[:4]) + (", …" if len(present) > 4 else "")
    state = folder.child(STATE_FILE)
    if not state.is_file():
        if len(present) == 1:
            return folder.child(present[0]), ()
        raise ReadError(
            f"{folder} holds {len(present)} checkpoints ({listed}), and no file '{STATE_FILE}' says which is the "
            f"latest. Pass one of them, as {folder}/NAME."
        )
    named = named_in(state)
    name = re.split(r"[/\\]", named)[-1]
    if not named:
        raise ReadError(f"{state} names no checkpoint. Pass the checkpoint itself, as {folder}/NAME.")
    if name not in present:
        raise ReadError(
            f"{state} names '{named}', expected a checkpoint next to it; the folder holds "
            f"{listed or 'none'}. Pass the checkpoint itself, as {folder}/NAME."
        )
    notes = [f"The folder holds {len(present)} checkpoints ({listed}); '{name}' is the latest."] if present[1:] else []
    if name != named:
        notes.append(f"The file '{STATE_FILE}' names '{named}'; '{name}' next to it was used.")
    return folder.child(name), tuple(notes)


def named_in(state: Source) -> str:
    """The path in a file ``checkpoint``."""
    with store_errors(state.place), state.open() as file:
        text = file.read(STATE).decode("utf-8", "replace")
    match = LATEST.search(text)
    return re.sub(r"\\(.)", r"\1", match[1]) if match else ""
