"""Targets without a file, and ways to damage a tensor of one."""

import torch

from mha_convert.targets import Target


def in_memory(tensors: dict[str, torch.Tensor]) -> Target:
    """A target without a file."""
    return Target(
        path="memory",
        description=None,
        shapes={key: tuple(tensor.shape) for key, tensor in tensors.items()},
        dtypes={key: str(tensor.dtype).removeprefix("torch.") for key, tensor in tensors.items()},
        read=tensors.__getitem__,
    )


def one_element(tensor, heads):
    damaged = tensor.clone()
    damaged.view(-1)[tensor.numel() // 2] += 1e-3
    return damaged


def last_bit(tensor, heads):
    damaged = tensor.clone()
    damaged.view(torch.int32).view(-1)[-1] ^= 1
    return damaged


def transposed(tensor, heads):
    square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]
    return tensor.T.contiguous() if square else tensor.flip(0) if tensor.dim() == 1 else tensor.T.reshape(tensor.shape)


def heads_permuted(tensor, heads):
    """The first axis in blocks of one head each, rolled by one block."""
    return tensor.roll(max(tensor.shape[0] // (3 * heads), 1), 0)


def negated(tensor, heads):
    return -tensor


def rows_swapped(tensor, heads):
    damaged = tensor.clone()
    damaged[[0, -1]] = tensor[[-1, 0]]
    return damaged


DAMAGES = (one_element, last_bit, transposed, heads_permuted, negated, rows_swapped)
