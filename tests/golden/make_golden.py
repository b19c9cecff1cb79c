"""Copies a small part of the corpus here: `python tests/golden/make_golden.py ../shared/corpus/files`.

The files were written by the Keras versions that their folders name, and the `.golden.npz` hold the outputs of that
Keras. `manifest.json` keeps the corpus' facts about the attention layers of these files.
"""

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
FILES = {
    "keras-2.4": ["square.h5", "nested.h5", "square.weightsonly.h5"],
    "keras-2.10": ["square.ext.keras", "slash_names.h5"],
    "keras-2.12": ["square.keras", "nested.keras", "square.tfckpt"],
    "keras-2.15": ["square.keras", "nested.keras", "square.savedmodel"],
    "keras-3.0.5": ["square.keras", "broken/square.h5"],
    "keras-3.3.3": ["square.h5", "block.keras"],
    "keras-3.6.0": ["pure_bfloat16.weights.h5"],
    "keras-3.14.1-jax": ["grid_in_layer.keras"],
    "keras-3.15.1": [
        "seed1.keras", "seed2.keras", "square.keras", "square.weights.h5", "cross.keras", "vdim_large.keras",
        "outshape_tuple2.keras", "shared.keras", "gqa.keras", "gate.keras", "sliding.keras",
        "axes2.keras", "q_int8.keras", "lora.h5", "luong_bahdanau.keras", "pure_float16.keras", "float64.keras",
        "mha_subclass.keras", "square.npz.keras", "mask_dropout.keras",
    ],
}  # fmt: skip


def main(corpus: Path) -> None:
    """Copy the files and the part of the manifest that speaks of them."""
    manifest = {}
    for tag, names in FILES.items():
        facts = json.loads((corpus / tag / "manifest.json").read_text())
        for name in names:
            (HERE / tag / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (corpus / tag / name).is_dir() else shutil.copyfile
            copy(corpus / tag / name, HERE / tag / name)
        paths = {f"{tag}/{name}" for name in names}
        entries = [entry for entry in facts["entries"] if entry["path"] in paths]
        models = {entry["model"]: facts["models"][entry["model"]] for entry in entries}
        for model in models:
            shutil.copyfile(corpus / tag / f"{model}.golden.npz", HERE / tag / f"{model}.golden.npz")
        manifest[tag] = {"entries": entries, "models": models}
    (HERE / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":"), sort_keys=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
