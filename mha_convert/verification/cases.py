"""The calls that a proof makes: random inputs of a fixed seed, different lengths, and every kind of mask."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..datatypes import Array, AttentionLayer
from .formula import Inputs, projected, raw_scores

SEED = 20260
BATCH, QUERY_LENGTH, KEY_LENGTH = 2, 5, 7
WANTED_SCORE = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call. ``mask`` says how it is given to PyTorch and to Keras: none, attention, padding or causal."""

    name: str
    mask: str
    inputs: Inputs


def cases(layer: AttentionLayer, arrays: Mapping[str, Array]) -> tuple[Case, ...]:
    """The calls for one layer.

    Inputs of query and key are scaled by a power of two so that the largest score is near 4: neither a softmax that
    is one-hot (it would hide errors of the query and the key) nor one that is flat.
    """
    random = np.random.default_rng(SEED)
    query = random.standard_normal((BATCH, QUERY_LENGTH, layer.query_features))
    key = random.standard_normal((BATCH, KEY_LENGTH, layer.key_features))
    value = random.standard_normal((BATCH, KEY_LENGTH, layer.value_features))
    factor = balance(arrays, Inputs(query=query, key=key, value=value))
    query, key = query * factor, key * factor
    return tuple(
        Case(name=name, mask=name, inputs=Inputs(query=query, key=key, value=value, attends=attends))
        for name, attends in masks(random).items()
    )


def balance(arrays: Mapping[str, Array], inputs: Inputs) -> float:
    """The power of two by which query and key are multiplied."""
    heads = projected(arrays, inputs)
    largest = float(np.abs(raw_scores(heads[0], heads[1])).max())
    if not 0 < largest < np.inf:
        return 1.0
    return float(2.0 ** np.clip(np.round(np.log2(WANTED_SCORE / largest) / 2), -30, 30))


def masks(random: np.random.Generator) -> dict[str, Array | None]:
    """Every kind of mask, each row with at least one key (rows without are version-dependent in Keras)."""
    attention = random.random((BATCH, QUERY_LENGTH, KEY_LENGTH)) < 0.6
    attention[..., 0] |= ~attention.any(-1)
    lengths = np.array([KEY_LENGTH, KEY_LENGTH - 3])
    padding = np.arange(KEY_LENGTH) < lengths[:, None]
    causal = np.tril(np.ones((QUERY_LENGTH, KEY_LENGTH), bool))
    return {
        "no mask": None,
        "attention mask": attention,
        "padding mask": np.broadcast_to(padding[:, None], attention.shape),
        "causal mask": np.broadcast_to(causal, attention.shape),
    }
