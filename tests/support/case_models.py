"""Runs scripts of ../shared/cases in one process: ``OUT CASES_FOLDER NAME...``; writes ``OUT/NN`` for each.

What each attention layer of the models of ``15_role_names`` computes goes into ``OUT/outputs.npz``.
"""

import os
import runpy
import sys
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np


def attention(model, place=""):
    """Every attention layer by its place, ``model/layer``."""
    for layer in model.layers:
        if isinstance(layer, keras.layers.MultiHeadAttention):
            yield f"{place}{layer.name}", layer
        elif isinstance(layer, keras.Model):
            yield from attention(layer, f"{place}{layer.name}/")


def outputs(folder):
    """What the layers of the models in ``folder`` compute of one input, ``x``."""
    x = np.random.default_rng(15).normal(size=(2, 5, 16)).astype("float32")
    found = {"x": x}
    for path in sorted(folder.glob("*.keras")):
        for name, layer in attention(keras.saving.load_model(path)):
            found[f"{path.stem}/{name}"] = np.asarray(layer(x, x))
    return found


def main(out, cases, *names):
    """Each maker as the program that it is."""
    sys.path.insert(0, cases)
    for name in names:
        keras.backend.clear_session()
        sys.argv = [name, str(Path(out, name[:2]).absolute())]
        here = Path.cwd()
        runpy.run_path(str(Path(cases, f"{name}.py")), run_name="__main__")
        os.chdir(here)
    if Path(out, "15").is_dir():
        np.savez(Path(out, "outputs.npz"), **outputs(Path(out, "15")))


if __name__ == "__main__":
    main(*sys.argv[1:])
