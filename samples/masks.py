"""A Keras decoder's masks in PyTorch: the padding mask of its embedding, and the causal mask of its first layer.

Keras silently passes the mask of ``Embedding(mask_zero=True)`` on, as the mask of the query and of the value.
``to_attn_mask`` turns all masks into the one ``attn_mask`` that gives Keras' result, in padded rows as well.
"""

import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch

import mha_convert

HERE = Path(__file__).parent


def main() -> None:
    """Rebuild the decoder around the two converted layers and compare with Keras' output."""
    keras = np.load(HERE / "expected.npz")
    tokens, memory = (torch.from_numpy(keras[f"translator/in/{i}"]) for i in (0, 1))
    with h5py.File(HERE / "translator.h5") as file:
        weights = file["model_weights"]
        embeddings = torch.from_numpy(weights["embedding/embedding/embeddings"][()])
        gamma, beta = (torch.from_numpy(weights[f"norm/norm/{name}"][()]) for name in ("gamma", "beta"))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "translator.safetensors"
        mha_convert.convert_file(HERE / "translator.h5", target)
        layers = mha_convert.load_modules(target)

    kept = tokens != 0
    causal = mha_convert.to_attn_mask(query_mask=kept, value_mask=kept, causal=True, num_heads=2)
    padded = mha_convert.to_attn_mask(query_mask=kept, num_heads=2, key_length=memory.shape[1])
    with torch.no_grad():
        x = embeddings[tokens]
        x, _ = layers["self_attention"](x, x, x, attn_mask=causal, need_weights=False)
        x = torch.nn.functional.layer_norm(x, (16,), gamma, beta, eps=1e-3)
        output, _ = layers["cross_attention"](x, memory, memory, attn_mask=padded, need_weights=False)
    difference = float(np.abs(output.numpy() - keras["translator/out/0"]).max())
    print(f"largest difference to Keras, padded rows included: {difference:.1e}")
    assert difference < 2e-5


if __name__ == "__main__":
    main()
