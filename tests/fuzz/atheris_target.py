"""``python -m tests.fuzz.atheris_target CORPUS_FOLDER -max_total_time=60``: coverage-guided fuzzing of the readers.

Needs ``pip install atheris``, which is not a dependency of the project. Only ``mha_convert`` is instrumented. The first
byte of an input chooses what the rest is:

0. JSON: a model's configuration, checked, with the facts of every layer;
1. a ``.keras`` zip, with the HDF5 of the golden file whatever the zip holds: directory, members, configuration → layers;
2. the index of a TensorFlow checkpoint with the golden data, without checksums: table, entries, object graph → layers;
3. the object graph of that checkpoint alone;
4. ``saved_model.pb`` in the golden SavedModel: functions, configurations, names → layers.

The process that parses HDF5 is not covered: it is the HDF5 library, and ``tests.fuzz`` mutates its files. The folder is
filled with genuine inputs if it is empty. Any exception that is not a ``MhaConvertError`` ends the run.
"""

import sys
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["mha_convert"]):
    import mha_convert.readers
    from mha_convert.errors import MhaConvertError
    from mha_convert.files.child.messages import Message
    from mha_convert.files.source import Source
    from mha_convert.layers import survey
    from mha_convert.readers.hdf5 import image as _hdf5
    from mha_convert.readers.keras3 import json_text as _json_text
    from mha_convert.readers.keras3 import model_config as _config
    from mha_convert.readers.tensorflow import bundle as _bundle
    from mha_convert.readers.tensorflow import object_graph as _object_graph

from .seeds import Seed, project_seeds
from .trial import scratch

KERAS, CHECKPOINT, SAVED = (
    "golden/keras-3.15.1/gqa.keras",
    "golden/keras-2.12/square.tfckpt",
    "golden/keras-2.15/square.savedmodel",
)
SEEDS = {seed.name: seed for seed in project_seeds()}
FOLDER = scratch()
PLACE = Source(Path("fuzzed"))
INDEX, GRAPH, MODEL = "ckpt.index", _object_graph.GRAPH_KEY, "saved_model.pb"


def written(seed: Seed, name: str) -> Path:
    """The seed's files in a folder of this process; the one called ``name`` is replaced for every input."""
    folder = FOLDER / name
    for file, content in seed.files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    return folder


def described(source: Path) -> None:
    """Read and survey."""
    survey(mha_convert.readers.read(source))


def fuzz_json(data: bytes) -> None:
    """A configuration."""
    document = _config.checked_model(_json_text.parse_json(data, PLACE, "JSON"), PLACE)
    for _, entry in _config.descendants(document):
        _config.layer_config(entry)
    list(_config.hidden_masks(document, ()))


def fuzz_zip(data: bytes) -> None:
    """A ``.keras`` file."""
    source = FOLDER / "x.keras"
    source.write_bytes(data)
    described(source)


def fuzz_index(data: bytes) -> None:
    """A checkpoint's index."""
    (FOLDER / INDEX / INDEX).write_bytes(data)
    described(FOLDER / INDEX)


def fuzz_graph(data: bytes) -> None:
    """A checkpoint's object graph."""
    bundle = _bundle.open_bundle(Source(FOLDER / "graph" / "ckpt"))
    object.__setattr__(bundle, "text", lambda key: data)
    objects = _object_graph.read_objects(bundle)
    _object_graph.arrange(bundle, objects, {})


def fuzz_saved_model(data: bytes) -> None:
    """A SavedModel's graph."""
    (FOLDER / MODEL / MODEL).write_bytes(data)
    described(FOLDER / MODEL)


TARGETS: tuple[Callable[[bytes], None], ...] = (fuzz_json, fuzz_zip, fuzz_index, fuzz_graph, fuzz_saved_model)


def one_input(data: bytes) -> None:
    """What atheris calls."""
    if data:
        try:
            TARGETS[data[0] % len(TARGETS)](data[1:])
        except MhaConvertError as error:
            assert str(error).isprintable(), str(error)


def prepare() -> None:
    """Genuine folders, checksums that always hold, and one answer of the HDF5 process for all inputs."""
    for name, seed in ((INDEX, CHECKPOINT), ("graph", CHECKPOINT), (MODEL, SAVED)):
        written(SEEDS[seed], name)
    genuine = FOLDER / "genuine.keras"
    genuine.write_bytes(SEEDS[KERAS].files["model"])
    with zipfile.ZipFile(genuine) as archive:
        (FOLDER / "genuine.weights.h5").write_bytes(archive.read("model.weights.h5"))
    answers: list[Message] = []
    ask = _hdf5.ask
    _hdf5.ask = lambda *request: answers.append(ask(*request)) or answers[-1]  # type: ignore[func-returns-value]
    with _hdf5.Hdf5Image(Source(FOLDER / "genuine.weights.h5")).open():
        pass
    _hdf5.ask = lambda *request: answers[0]
    _bundle.checksum = lambda data: 0
    _bundle.unmasked = lambda stored: 0


def genuine_inputs() -> list[bytes]:
    """What the corpus begins with."""
    with zipfile.ZipFile(BytesIO(SEEDS[KERAS].files["model"])) as archive:
        config = archive.read("config.json")
    graph = _bundle.open_bundle(Source(FOLDER / "graph" / "ckpt")).text(GRAPH)
    files = (config, SEEDS[KERAS].files["model"], SEEDS[CHECKPOINT].files[INDEX], graph, SEEDS[SAVED].files[MODEL])
    return [bytes([number]) + content for number, content in enumerate(files)]


def main() -> None:
    """Fill the corpus, and fuzz."""
    prepare()
    corpus = Path(next(argument for argument in sys.argv[1:] if not argument.startswith("-")))
    corpus.mkdir(exist_ok=True)
    if not any(corpus.iterdir()):
        for number, content in enumerate(genuine_inputs()):
            (corpus / f"genuine-{number}").write_bytes(content)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
