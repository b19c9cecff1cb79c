"""How is this file read? A format is one module; ``Reader`` says what it offers."""

from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

from ..errors import ReadError
from ..files.limits import limits_for
from ..files.locations import (
    CONFIG,
    SOURCE,
    STANDARD_INPUT,
    Location,
    StrPath,
    locate,
    refuse_object,
    seekable,
    standard_input,
)
from ..files.source import Source
from ..records.source import Checkpoint
from . import (
    keras_folder,
    keras_zip,
    legacy_hdf5,
    saved_model,
    sharded,
    tf_checkpoint,
    weights_hdf5,
)
from .impostors import recognise
from .keras3.json_text import Json
from .keras3.model_config import read_architecture
from .probe import Probe


class Reader(Protocol):
    """What a reader module offers."""

    @property
    def TITLE(self) -> str:  # noqa: N802 - a constant of a module
        """What people call the format; a ``Checkpoint`` with a ``format_title`` of its own keeps that."""

    @property
    def SUFFIXES(self) -> tuple[str, ...]:  # noqa: N802
        """How files of the format are usually called: lower case, each with its dot; ``()`` for a folder."""

    @property
    def FOLDERS(self) -> tuple[frozenset[str], ...]:  # noqa: N802
        """Names of files: a folder that holds all of one row is one model."""

    @property
    def BESIDE(self) -> str:  # noqa: N802
        """A glob of the files that a file with one of the suffixes lists, ``{stem}`` its name without; or ``""``."""

    def parts(self, names: Collection[str]) -> frozenset[str]:
        """Which files of a folder are not a model by themselves; ``names`` are its files', and ``folder/file``."""

    def accepts(self, probe: Probe) -> bool:
        """Whether the content is of this format."""

    def read(self, source: Source, architecture: Json | None = None) -> Checkpoint:
        """Describe the model; ``architecture`` is its JSON where that is in a file of its own."""


READERS: tuple[Reader, ...] = (
    keras_zip,
    keras_folder,
    legacy_hdf5,
    weights_hdf5,
    sharded,
    saved_model,
    tf_checkpoint,
)
SUFFIXES = tuple(suffix for reader in READERS for suffix in reader.SUFFIXES)  # of all formats


def is_model_folder(names: Collection[str]) -> bool:
    """Whether a folder with these files is one model: a SavedModel, an unzipped ``.keras``, a preset."""
    return any(row <= set(names) for reader in READERS for row in reader.FOLDERS)


def parts(names: Collection[str]) -> frozenset[str]:
    """Which of a folder's files are not a model by themselves, by all readers."""
    return frozenset[str]().union(*(reader.parts(names) for reader in READERS))


def files_beside(name: str) -> tuple[str, str] | None:
    """For a file that lists others: its name without the suffix, and the glob of those; None for any other."""
    for reader in READERS:
        for suffix in reader.SUFFIXES if reader.BESIDE else ():
            if name.endswith(suffix):
                stem = name.removesuffix(suffix)
                return stem, reader.BESIDE.format(stem=stem)
    return None


def read(path: StrPath, *, config: StrPath | None = None, trust: bool = False) -> Checkpoint:
    """Describe a saved Keras model without loading it: no array is read, nothing in the file is run.

    What the file is, is decided by its content and never by its name.

    Args:
        path: what any Keras since 2.2 wrote, or a URL of it (``s3://``, ``gs://``, ``hf://``, ``https://``, …): a
            ``.keras``, ``.h5``/``.hdf5`` or ``.weights.h5`` file; an unzipped ``.keras`` or a KerasHub preset; the
            ``.weights.json`` of sharded weights; a SavedModel; a TensorFlow checkpoint. ``"-"`` is standard input.
        config: the model's architecture (``model.to_json()``, ``config.json``), where ``path`` holds weights only.
        trust: whether the file may ask for any memory and time; by default ``limits`` says how much.

    Raises:
        ReadError: the file is missing, damaged, or something else; the message says what it really is.
    """
    refuse_object(path, SOURCE)
    if config is not None:
        refuse_object(config, CONFIG)
    if str(path) == STANDARD_INPUT == str(config):
        raise ReadError("Standard input is one file, and two inputs were asked for. Pass SOURCE or --config as a path.")
    source = Source(from_anywhere(path), limits_for(trust))
    checkpoint = described(source, path, config)
    return replace(checkpoint, files=tuple(source.seen.values()))


def described(source: Source, path: StrPath, config: StrPath | None) -> Checkpoint:
    """``read`` for a file that was found."""
    architecture = None if config is None else read_architecture(source.at(from_anywhere(config)))
    in_place = source.at(seekable(source.place)) if source.is_remote and source.is_file() else source
    probe = Probe(in_place)
    for reader in READERS:
        if reader.accepts(probe):
            checkpoint = reader.read(in_place, architecture)
            return replace(checkpoint, path=str(path), format_title=checkpoint.format_title or reader.TITLE)
    impostor = recognise(probe, SUFFIXES)
    raise ReadError(f"{path} is {impostor.what}, expected a saved Keras model. {impostor.next_step}")


def from_anywhere(place: StrPath) -> Location:
    """A path, a URL, or standard input."""
    return standard_input() if str(place) == STANDARD_INPUT else locate(place)
