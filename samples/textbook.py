"""Textbook self-attention, a Keras layer and a PyTorch module give the same numbers, once the differences are known.

Textbook self-attention has no parameters: softmax(x xᵀ / sqrt(4)) x. A Keras layer computes the same if its four
kernels are identities, and the converted PyTorch module computes what that Keras layer computes.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

import mha_convert

HERE = Path(__file__).parent


def textbook_attention(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Output and scores of parameter-free self-attention; ``x`` is ``(batch, length, width)``."""
    scores = np.exp(x @ x.swapaxes(1, 2) / np.sqrt(x.shape[-1]))
    scores /= scores.sum(-1, keepdims=True)
    return scores @ x, scores


def main() -> None:
    """Compare the three."""
    keras = np.load(HERE / "expected.npz")
    x = keras["textbook/in/0"]
    output, scores = textbook_attention(x.astype("float64"))

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "textbook.safetensors"
        mha_convert.convert_file(HERE / "textbook.keras", target)
        attention = mha_convert.load_modules(target)["textbook"]
        inputs = torch.from_numpy(x)
        with torch.no_grad():
            torch_output, torch_scores = attention(inputs, inputs, inputs, average_attn_weights=False)

    for name, ours, theirs in (
        ("output: textbook and Keras", output, keras["textbook/out/0"]),
        ("output: Keras and PyTorch", keras["textbook/out/0"], torch_output.numpy()),
        ("scores: textbook and Keras", scores[:, None], keras["textbook/out/1"]),
        ("scores: Keras and PyTorch", keras["textbook/out/1"], torch_scores.numpy()),
    ):
        difference = float(np.abs(ours - theirs).max())
        print(f"{name}: largest difference {difference:.1e}")
        assert difference < 1e-6, name


if __name__ == "__main__":
    main()
