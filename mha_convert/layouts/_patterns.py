"""How axes move from a Keras kernel to a PyTorch weight: einops patterns, shared by the layouts.

Keras puts the input axis first, PyTorch the output axis. ``...`` is the output's shape: one axis, or several where
the layer has an ``output_shape`` tuple.
"""

from ..datatypes import Piece

WEIGHT = "features heads head_dim -> (heads head_dim) features"
BIAS = "heads head_dim -> (heads head_dim)"
OUTPUT_WEIGHT = "heads head_dim ... -> (...) (heads head_dim)"
OUTPUT_BIAS = "... -> (...)"

KEY, KEY_BIAS = Piece("key.kernel", WEIGHT), Piece("key.bias", BIAS)
VALUE, VALUE_BIAS = Piece("value.kernel", WEIGHT), Piece("value.bias", BIAS)
OUTPUT, OUTPUT_BIAS_PIECE = Piece("output.kernel", OUTPUT_WEIGHT), Piece("output.bias", OUTPUT_BIAS)
