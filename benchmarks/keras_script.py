"""The usual way out of Keras, implemented fairly: ``python -m benchmarks.keras_script FILE.keras FILE.pt``.

With the TensorFlow backend the kernels are rearranged for ``nn.MultiheadAttention``; with the torch backend the model
is a PyTorch module, and its ``state_dict`` is saved as it is.
"""

import sys
from typing import Any

import keras  # before torch: in the other order the two can crash each other
import torch


def rearranged(layer: Any, prefix: str) -> dict[str, torch.Tensor]:
    """One layer's kernels as ``nn.MultiheadAttention`` has them."""
    inside = [layer.query_dense, layer.key_dense, layer.value_dense]
    kernels = [torch.from_numpy(dense.kernel.numpy()).flatten(1).T for dense in inside]
    biases = [torch.from_numpy(dense.bias.numpy()).flatten() for dense in inside]
    out = torch.from_numpy(layer.output_dense.kernel.numpy()).flatten(0, 1)
    return {
        f"{prefix}.in_proj_weight": torch.cat(kernels),
        f"{prefix}.in_proj_bias": torch.cat(biases),
        f"{prefix}.out_proj.weight": out.T.contiguous(),
        f"{prefix}.out_proj.bias": torch.from_numpy(layer.output_dense.bias.numpy()),
    }


def main(source: str, target: str) -> None:
    """Load, rearrange, save."""
    model = keras.saving.load_model(source, compile=False)
    if keras.backend.backend() == "torch":
        torch.save(model.state_dict(), target)
        return
    state: dict[str, torch.Tensor] = {}
    for layer in model.layers:
        if isinstance(layer, keras.layers.MultiHeadAttention):
            state |= rearranged(layer, layer.name)
    torch.save(state, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
