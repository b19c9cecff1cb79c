"""Times genuine Keras' layer in a process that answers requests line by line, to keep TensorFlow away from torch.

A request is one JSON object: batch, length, features, num_heads, key_dim, mask.
"""

import json
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import keras
import numpy as np

from .timing import seconds


@cache
def call_of(batch: int, length: int, features: int, num_heads: int, key_dim: int, mask: str) -> Callable[[], object]:
    """The layer's call on random inputs, as a user runs it: compiled in TensorFlow, without gradients in PyTorch."""
    layer = keras.layers.MultiHeadAttention(num_heads, key_dim)
    x = keras.ops.convert_to_tensor(np.random.default_rng(0).standard_normal((batch, length, features), "float32"))
    options: dict[str, Any] = {"use_causal_mask": True} if mask == "causal" else {}
    if mask == "padding":
        seen = np.arange(length) < length - length // 4
        options["attention_mask"] = keras.ops.convert_to_tensor(np.tile(seen, (batch, 1, 1)))

    def plain() -> object:
        return layer(x, x, training=False, **options)

    plain()
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        compiled: Callable[[], object] = tf.function(plain)
        compiled()
        return compiled
    import torch

    inference: Callable[[], object] = torch.inference_mode()(plain)
    inference()
    return inference


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        answers.write(f"{seconds(call_of(**json.loads(line)))}\n")


if __name__ == "__main__":
    main()
