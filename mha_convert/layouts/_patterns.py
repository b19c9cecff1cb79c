"""How axes move from a Keras kernel to a PyTorch weight: einops patterns, shared by the layouts.

Keras puts the input axis first, PyTorch the output axis. ``...`` is the output's shape: one axis, or several where
the layer has an ``output_shape`` tuple. ``groups`` repeats a key or value head for the query heads that share it.
"""

from ..datatypes import Piece

WEIGHT = "features heads head_dim -> (heads head_dim) features"
BIAS = "heads head_dim -> (heads head_dim)"
OUTPUT_WEIGHT = "heads head_dim ... -> (...) (heads head_dim)"
OUTPUT_BIAS = "... -> (...)"

REPEATED_WEIGHT = "features heads head_dim -> (heads groups head_dim) features"
REPEATED_BIAS = "heads head_dim -> (heads groups head_dim)"

QUERY, QUERY_BIAS = Piece("query.kernel", WEIGHT, "rescale"), Piece("query.bias", BIAS, "rescale")
KEY, KEY_BIAS = Piece("key.kernel", WEIGHT), Piece("key.bias", BIAS)
VALUE, VALUE_BIAS = Piece("value.kernel", WEIGHT), Piece("value.bias", BIAS)
OUTPUT, OUTPUT_BIAS_PIECE = Piece("output.kernel", OUTPUT_WEIGHT), Piece("output.bias", OUTPUT_BIAS)
REPEATED = {
    KEY: Piece("key.kernel", REPEATED_WEIGHT),
    KEY_BIAS: Piece("key.bias", REPEATED_BIAS),
    VALUE: Piece("value.kernel", REPEATED_WEIGHT),
    VALUE_BIAS: Piece("value.bias", REPEATED_BIAS),
}
