"""A whole Keras model as a PyTorch project: converted, proven, loaded, and compared with what Keras returned."""

import tempfile
from pathlib import Path

import numpy as np
import torch

import mha_convert

HERE = Path(__file__).parent


def main() -> None:
    """Convert the model, print its ``forward``, and compare."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "text_classifier"
        report = mha_convert.convert_model(HERE / "text_classifier.keras", folder)
        print(report.to_text())
        print((folder / "model.py").read_text().partition("    def forward(self, tokens")[2])
        model = mha_convert.load_model(folder)

    keras = np.load(HERE / "text_classifier.npz")
    with torch.no_grad():
        probabilities = model(torch.from_numpy(keras["x0"]))
    difference = float(np.abs(probabilities.numpy() - keras["y0"]).max())
    print(f"probabilities: Keras and PyTorch: largest difference {difference:.1e}")
    assert difference < 1e-6


if __name__ == "__main__":
    main()
