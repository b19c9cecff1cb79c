"""``MultiHeadAttention(num_heads=6, key_dim=4)`` on inputs of width 4 becomes ``nn.MultiheadAttention(24, 6)``.

Six heads of four numbers are 24, and the inputs are 4 wide: PyTorch alone refuses ``nn.MultiheadAttention(4, 6)``.
A linear layer before it and one after it carry Keras' kernels, and the output has four features again.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

import mha_convert

HERE = Path(__file__).parent


def main() -> None:
    """Convert, load, call, compare."""
    keras = np.load(HERE / "expected.npz")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "six_heads.safetensors"
        report = mha_convert.convert_file(HERE / "six_heads.keras", target)
        module = mha_convert.load_modules(target)["attention"]
    print(module.attention)
    assert (module.attention.embed_dim, module.attention.num_heads, module.attention.batch_first) == (24, 6, True)

    x = torch.from_numpy(keras["six_heads/in/0"])
    with torch.no_grad():
        output, _ = module(x, x, x, need_weights=False)
    difference = float(np.abs(output.numpy() - keras["six_heads/out/0"]).max())
    print(f"proven: {report.proven}; output {tuple(output.shape)}; largest difference to Keras {difference:.1e}")
    assert difference < 2e-5


if __name__ == "__main__":
    main()
