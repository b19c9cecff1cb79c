"""The corpus as rows: which file holds which attention layers, and what Keras computed with them."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

OURS = ("MultiHeadAttention", "CachedMultiHeadAttention", "MyMHA", "GroupedQueryAttention", "GroupQueryAttention")
UNPROJECTED = ("Attention", "AdditiveAttention")
READ = ("keras", "ext_keras", "h5", "weightsonly.h5", "weights.h5", "dir", "sharded", "tfckpt", "savedmodel")
MORE = {"hub_llama_tiny": "rotary"}  # the projections convert, and Keras computes more with them
LINEAR_ONLY = {  # what nn.MultiheadAttention does not compute
    "gqa_gate": "gate",
    "gate": "gate",
    "sliding": "sliding_window",
    "sliding_causal": "sliding_window",
}
TOLERANCES = {"float32": 2e-5, "float64": 1e-9, "float16": 3e-2, "bfloat16": 0.2}
# Keras rounds the projections' inputs, too: all of int8 and float8, and of int4 before Keras 3.14.
ROUNDED_INPUTS = {"q_int8": 0.02, "lora_int8": 0.041, "q_int4": 0.04, "q_float8": 0.34}
QUANTIZED = (*ROUNDED_INPUTS, "lora")


@dataclass(frozen=True)
class CorpusFile:
    """One file and the corpus' facts about it."""

    path: Path
    tag: str
    model: str
    format: str
    golden: Path
    layers: tuple[dict, ...]
    subclass: bool

    @property
    def is_unprojected(self) -> bool:
        """Whether all its attention is without projections."""
        return all(layer["cls"] in UNPROJECTED for layer in self.layers) and bool(self.layers)

    @property
    def id(self) -> str:
        """For pytest."""
        return f"{self.tag}/{self.path.name}"

    @property
    def refusal(self) -> str | None:
        """The word that the refusal must say, or None where the file converts."""
        if self.model == "axes_neg":
            return None if all(layer["config"]["attention_axes"] == [1] for layer in self.layers) else "axes"
        return None

    def refused_by(self, layout: str) -> str | None:
        """The same for one layout."""
        return self.refusal or (LINEAR_ONLY.get(self.model) if layout == "mha" else None)

    def tolerance(self, compute_dtype: str) -> float:
        """How far genuine Keras' outputs may be from those of the same weights."""
        weights_only = self.model == "q_int4" and self.tag.startswith(("keras-3.14", "keras-3.15"))
        return 1e-6 if weights_only else ROUNDED_INPUTS.get(self.model, TOLERANCES[compute_dtype])


def kernel_path(paths: list[str]) -> set[str]:
    """Places of an array, without the name of the zip's member."""
    return {path.rpartition("::")[2].replace("\\", "/") for path in paths}


def rows(root: Path) -> list[CorpusFile]:
    """Every file below ``root`` of a format that is read."""
    manifest = root / "manifest.json"
    document = json.loads(manifest.read_text())
    by_tag = document if "files" not in document else {tag: load(root, tag) for tag in document["tags"]}
    return [row(root, tag, entry, facts["models"]) for tag, facts in by_tag.items() for entry in facts["entries"]]


def load(root: Path, tag: str) -> dict:
    """The manifest of one Keras."""
    return json.loads((root / tag / "manifest.json").read_text())


def row(root: Path, tag: str, entry: dict, models: dict) -> CorpusFile:
    """One entry of a manifest."""
    model = models[entry["model"]]
    layers = tuple(
        layer | {"paths": {role: kernel_path(paths) for role, paths in found["paths"].items()}}
        for layer, found in zip(model["attention"], entry["attention_paths"], strict=True)
    )
    return CorpusFile(
        path=root / entry["path"],
        tag=tag,
        model=entry["model"],
        format=entry["format"],
        golden=root / entry["golden"],
        layers=layers,
        subclass=model["subclass"],
    )


def arrays(file: CorpusFile, index: int) -> dict[str, np.ndarray]:
    """Keras' inputs and results of layer ``index``."""
    with np.load(file.golden) as archive:
        prefix = f"att{index}/"
        return {name.removeprefix(prefix): archive[name] for name in archive.files if name.startswith(prefix)}
