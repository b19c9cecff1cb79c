"""How axes move from a Keras kernel to a PyTorch weight: einops patterns, and the pieces that layouts share.

Keras puts the input axis first, PyTorch the output axis. ``...`` is the output's shape: one axis, or several where
the layer has an ``output_shape`` tuple. ``groups`` repeats a key or value head for the query heads that share it.
"""

from dataclasses import replace

from ..records.plan import Piece, Rule

WEIGHT = "features heads head_dim -> (heads head_dim) features"
BIAS = "heads head_dim -> (heads head_dim)"
OUTPUT_WEIGHT = "heads head_dim ... -> (...) (heads head_dim)"
OUTPUT_BIAS = "... -> (...)"

# Each key or value head once for every query head that shares it
REPEATED = {
    WEIGHT: "features heads head_dim -> (heads groups head_dim) features",
    BIAS: "heads head_dim -> (heads groups head_dim)",
}
SHARED = ("key", "value")

QUERY, QUERY_BIAS = Piece("query.kernel", WEIGHT), Piece("query.bias", BIAS)
KEY, KEY_BIAS = Piece("key.kernel", WEIGHT), Piece("key.bias", BIAS)
VALUE, VALUE_BIAS = Piece("value.kernel", WEIGHT), Piece("value.bias", BIAS)
OUTPUT, OUTPUT_BIAS_PIECE = Piece("output.kernel", OUTPUT_WEIGHT), Piece("output.bias", OUTPUT_BIAS)


def with_factor(rules: tuple[Rule, ...], factor: float) -> tuple[Rule, ...]:
    """The rules with the query multiplied by ``factor``, which makes the module's scale the layer's own."""
    return tuple(
        replace(
            rule,
            pieces=tuple(
                replace(piece, factor=factor) if str(piece.source).startswith("query.") else piece
                for piece in rule.pieces
            ),
        )
        for rule in rules
    )
