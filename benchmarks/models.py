"""The models that are converted: genuine ``.keras`` files of attention layers with random weights."""

import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

UNITS = {"MB": 10**6, "GB": 10**9}
HEAD = 64


@dataclass(frozen=True, kw_only=True)
class Model:
    """Sizes of one model: ``layers`` attention layers, each followed by a perceptron of ``mlp`` if that is not 0."""

    name: str
    layers: int
    features: int
    mlp: int = 0


VIT = Model(name="ViT-B", layers=12, features=768, mlp=3072)


def parse(text: str) -> Model:
    """``100MB`` or ``1.26GB`` of attention, or ``ViT-B``; otherwise ValueError."""
    if text == VIT.name:
        return VIT
    match = re.fullmatch(r"([\d.]+)([MG]B)", text)
    if not match:
        raise ValueError(f"{text}: no size. Give one as 100MB or 1.26GB, or ViT-B.")
    size = float(match[1]) * UNITS[match[2]]
    features = 256 if size <= 20e6 else 512 if size <= 200e6 else 1024
    layer = 4 * 4 * (features * features + features)
    return Model(name=text, layers=max(1, round(size / layer)), features=features)


def make(model: Model, folder: Path) -> Path:
    """The model's file; genuine Keras writes it, in a process of its own."""
    path = folder / f"{model.name}.keras"
    if not path.exists():
        numbers = [str(asdict(model)[name]) for name in ("layers", "features", "mlp")]
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        subprocess.run(
            [sys.executable, "-m", "benchmarks.keras_model", path, *numbers],
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return path
