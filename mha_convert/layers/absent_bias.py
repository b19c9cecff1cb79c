"""Zeros in the place of a bias that a layer does not have, where its other projections have one.

PyTorch's layouts have biases for all projections or for none.
"""

from functools import partial

import numpy as np

from ..records.source import Array, Variable

KEY_CAUTION = (
    "its key has no bias (as in Whisper), and zeros are put in its place, which the ledger counts as parameters; "
    "a bias of the key adds one number to all scores of a query, so that none changes a result"
)


def no_bias(kernel: Variable, shape: tuple[int, ...]) -> Variable:
    """A bias that adds nothing, in the kernel's dtype."""
    path = f"zeros, as there is no bias next to {kernel.path}"
    read = partial(zeros, kernel.dtype, shape)
    return Variable(path=path, shape=shape, dtype=kernel.dtype, made_of=kernel.made_of or (kernel,), read=read)


def zeros(dtype: str, shape: tuple[int, ...]) -> Array:
    """An array of zeros; ``dtype`` may be bfloat16."""
    if dtype == "bfloat16":
        import ml_dtypes  # only where bfloat16 occurs: it costs start-up time

        return np.zeros(shape, ml_dtypes.bfloat16)
    return np.zeros(shape, dtype)
