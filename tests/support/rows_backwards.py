"""Rows read backwards: from a tensor of the target to the part of Keras' array that it came from."""

import re

import numpy as np
from einops import rearrange

from mha_convert.conversion import target_shape


def blocks_of(rule, item, array):
    """Each piece of a rule with its rows of the target's tensor."""
    start = 0
    for piece in rule.pieces:
        size = target_shape(piece, item)[0]
        yield piece, array[start : start + size]
        start += size
    assert start == len(array)


def backwards(block, piece, shape):
    """The block in the axes of the array, whose ``shape`` is with its padding; nothing is repeated in it."""
    left, right = piece.pattern.split(" -> ")
    axes = re.findall(r"\([^)]*\)|\S+", left)
    sizes = {axis: size for axis, size in zip(axes, shape, strict=False) if not axis.startswith("(")} | piece.sizes
    if "..." in axes:
        tail = shape[axes.index("...") :]
        names = [f"output{i}" for i in range(len(tail))]
        sizes = {axis: size for axis, size in sizes.items() if axis != "..."} | dict(zip(names, tail, strict=True))
        left, right = left.replace("...", " ".join(names)), right.replace("...", " ".join(names))
    return np.array(rearrange(block, f"{right} -> {left}", **sizes))
