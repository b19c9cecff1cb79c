"""Genuine files to be mutated: small ones of every format and of many versions of Keras."""

import os
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from random import Random

PROJECT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("MHA_CONVERT_SHARED", PROJECT.parent / "shared"))
GOLDEN, SAMPLES, CORPUS = PROJECT / "tests" / "golden", PROJECT / "samples", SHARED / "corpus" / "files"
LARGEST = 200_000  # bytes
ENDINGS = (".weightsonly.h5", ".weights.h5", ".npz.keras", ".ext.keras", ".keras", ".h5")
FOLDERS = {".savedmodel": "", ".tfckpt": "", ".dir": "", ".sharded": "model.weights.json", "checkpoint": ""}
NAME = "model"  # of a seed that is one file: the name says nothing of the content
PER_FORMAT = {"keras": 14, "h5": 12, "weights.h5": 6, "config": 6, "weightsonly.h5": 4}  # of the corpus; else 3
CONFIG = "config.json"


@dataclass(frozen=True)
class Seed:
    """A genuine file, or the files of a folder, in memory.

    ``name`` says where it lies; ``main`` is what is converted, within ``files``; ``config`` whether a file of that name
    is the model's JSON, to be given beside the weights.
    """

    name: str
    format: str
    main: str
    files: dict[str, bytes] = field(repr=False)
    config: bool = False

    @cached_property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(map(len, self.files.values()))


def project_seeds() -> list[Seed]:
    """Those in the project itself: the golden files and the samples."""
    return [*found_in(GOLDEN, "golden"), *found_in(SAMPLES, "samples")]


def all_seeds() -> list[Seed]:
    """Those of the project, and a spread of the corpus where it is present."""
    return [*project_seeds(), *corpus_seeds()]


def corpus_seeds() -> list[Seed]:
    """So many of each format, of as many models as there are; always the same ones."""
    taken: list[Seed] = []
    counted: Counter[str] = Counter()
    models: set[tuple[str, str]] = set()
    if not CORPUS.is_dir():
        return []
    for seed in shuffled(found_in(CORPUS, "corpus")):
        model = (seed.format, Path(seed.name).name.partition(".")[0])
        if model not in models and counted[seed.format] < PER_FORMAT.get(seed.format, 3):
            models.add(model)
            counted[seed.format] += 1
            taken.append(seed)
    return taken


def shuffled(seeds: list[Seed]) -> list[Seed]:
    """In an order that has nothing to do with the names, and does not change."""
    return Random(1).sample(seeds, len(seeds))


def found_in(root: Path, title: str) -> list[Seed]:
    """Every file and folder below ``root`` that is small enough."""
    seeds = []
    for path in sorted(root.rglob("*")):
        name = f"{title}/{path.relative_to(root).as_posix()}"
        if path.is_dir():
            ending = next((end for end in FOLDERS if path.name.endswith(end)), None)
            seeds += [] if ending is None else [folder_seed(path, name, ending)]
        elif not any(part.endswith(tuple(FOLDERS)) for part in path.relative_to(root).parts[:-1]):
            ending = next((end for end in ENDINGS if path.name.endswith(end)), None)
            seeds += [] if ending is None else [Seed(name, ending[1:], NAME, {NAME: path.read_bytes()})]
            seeds += with_config(path, name) if ending == ".weights.h5" else []
    return [seed for seed in seeds if seed.size <= LARGEST]


def folder_seed(path: Path, name: str, ending: str) -> Seed:
    """The files of a folder."""
    inner = {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
    return Seed(name, ending.lstrip("."), FOLDERS[ending], inner)


def with_config(path: Path, name: str) -> list[Seed]:
    """Weights beside the JSON of their model, where the same model is there as ``.keras``."""
    whole = path.with_name(path.name.removesuffix(".weights.h5") + ".keras")
    if not whole.is_file():
        return []
    with zipfile.ZipFile(BytesIO(whole.read_bytes())) as archive:
        config = archive.read(CONFIG)
    return [Seed(f"{name}+{CONFIG}", "config", NAME, {NAME: path.read_bytes(), CONFIG: config}, config=True)]
