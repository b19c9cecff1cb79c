"""Every model of the corpus as a whole: converted, proven and compared with its golden outputs, or refused as listed."""

import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from corpus_files import CorpusFile, rows
from whole_models import outputs_of, proven

from mha_convert.errors import MhaConvertError
from mha_convert.records.model import ModelPlan

TOLERANCES = {"float32": 2e-5, "float64": 1e-6, "float16": 3e-2, "bfloat16": 0.2}
WITHOUT_CONFIGURATION = ("weights.h5", "weightsonly.h5", "sharded", "tfckpt")


@dataclass(frozen=True)
class Reason:
    """Why some models cannot be converted, and what the refusal says."""

    models: str
    says: str
    formats: str = ".*"

    def is_of(self, file: CorpusFile) -> bool:
        """Whether it is this file's."""
        return bool(re.fullmatch(self.models, file.model) and re.fullmatch(self.formats, file.format))


REASONS = (
    Reason(".*", "needs unpickling", formats="npz.keras"),
    Reason("block|mha_subclass|grid_in_layer", "a class of somebody's own|which that architecture does not name"),
    Reason("subclassed|nested_containers", "a class whose own code says|lists no layers|has no configuration"),
    Reason("hub_.*", r"keras_hub>\w+ .*no rule|settings and no graph"),
    Reason("(q_|lora_)(int8|int4|float8)", "'dense' .*it holds .*expected kernel and bias"),  # quantized Dense
    Reason("lora", "lora_kernel_a", formats="h5"),  # other formats hold the sum
    Reason("axes_neg", "attends over axes .*not axes between batch and features"),
    Reason("causal_axes2", "under a mask, which has a rule for one time axis only"),
    # Keras counted the layers of both models of one session, so the names of the configuration are others.
    Reason("classifier_adam", "which that architecture does not name", formats="weights.h5"),
)


@dataclass(frozen=True)
class Outcome:
    """What became of one file: how far its outputs are from Keras', or the refusal."""

    file: CorpusFile
    difference: float = np.inf
    allowed: float = 0.0
    refusal: str = ""

    @property
    def problem(self) -> str | None:
        """What should not be, in words."""
        reasons = [reason for reason in REASONS if reason.is_of(self.file)]
        if self.refusal:
            listed = any(re.search(reason.says, self.refusal) for reason in reasons) or is_without_model(self)
            return None if listed else f"{self.file.id}: {self.refusal}"
        if not self.difference <= self.allowed:
            return f"{self.file.id}: {self.difference:.2g} from Keras, allowed {self.allowed:.2g}"
        return None


def is_without_model(outcome: Outcome) -> bool:
    """Whether a file of weights has no model beside it that could tell its configuration."""
    return "has no configuration" in outcome.refusal and beside(outcome.file) is None


def by_tag(root: Path) -> dict[str, list[CorpusFile]]:
    """The files of each Keras."""
    found = defaultdict(list)
    for file in rows(root):
        found[file.tag].append(file)
    return dict(found)


def beside(file: CorpusFile) -> Path | None:
    """The model of the same architecture that the same Keras wrote beside a file of weights."""
    has_none = file.format in WITHOUT_CONFIGURATION or (file.format == "savedmodel" and file.tag.startswith("keras-3"))
    place = file.golden.parent / f"{file.model}.keras"
    return place if has_none and zipfile.is_zipfile(place) else None


def outcome(file: CorpusFile, folder: Path) -> Outcome:
    """Convert and prove one file, with the configuration of the model beside it where it has none."""
    options = {}
    model = beside(file)
    if model is not None:
        folder.mkdir(parents=True, exist_ok=True)
        options["config"] = folder / "config.json"
        with zipfile.ZipFile(model) as archive:
            options["config"].write_bytes(archive.read("config.json"))
    try:
        plan = proven(file.path, folder, **options)
    except MhaConvertError as error:
        return Outcome(file, refusal=str(error))
    return Outcome(file, difference=from_golden(file, folder), allowed=tolerance(plan))


def tolerance(plan: ModelPlan) -> float:
    """Of the coarsest dtype that a layer computes in."""
    dtypes = {layer.compute_dtype or "float32" for layer in plan.model.layers.values()} & TOLERANCES.keys()
    return max(TOLERANCES[dtype] for dtype in dtypes)


def from_golden(file: CorpusFile, folder: Path) -> float:
    """The largest difference from genuine Keras' outputs."""
    with np.load(file.golden) as golden:
        inputs, wanted = [*arrays(golden, "in")], [*arrays(golden, "out")]
    actual = outputs_of(folder, inputs)
    if [array.shape for array in actual] != [array.shape for array in wanted]:
        return np.inf
    pairs = zip(actual, wanted, strict=True)
    return max(float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max()) for a, b in pairs)


def arrays(golden: np.lib.npyio.NpzFile, kind: str) -> Iterator[np.ndarray]:
    """The arrays of a kind, in their order."""
    number = 0
    while f"{kind}/{number}" in golden.files:
        yield golden[f"{kind}/{number}"]
        number += 1
