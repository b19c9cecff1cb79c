"""Recurrent layers that PyTorch has no module for: with masks, or with other activations than its own.

Gates are in Keras' order.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


class KerasRNN(nn.Module):
    """A recurrent layer, step by step.

    Where ``mask`` is False, the states stay as they are, and the output is that of the step
    before, or zero.
    """

    gates, states = 1, 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] = torch.tanh,
        zero_where_masked: bool = False,
    ) -> None:
        super().__init__()
        self.hidden_size, self.zero_where_masked = hidden_size, zero_where_masked
        self.activation = activation
        self.input = nn.Linear(input_size, self.gates * hidden_size, bias)
        self.recurrent = nn.Linear(hidden_size, self.gates * hidden_size, bias=False)

    def step(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """The states after one step, of which the first is its output."""
        return (self.activation(x + self.recurrent(states[0])),)

    def forward(
        self, x: Tensor, states: Sequence[Tensor] | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Take ``(batch, length, features)``; return the outputs of all steps, and the states."""
        zeros = x.new_zeros(x.shape[0], self.hidden_size)
        current = (zeros,) * self.states if states is None else tuple(states)
        output, outputs = zeros, []
        for number, inputs in enumerate(self.input(x).unbind(1)):
            new = self.step(inputs, *current)
            if mask is None:
                output, current = new[0], new
            else:
                keep = mask[:, number, None]
                output = torch.where(keep, new[0], zeros if self.zero_where_masked else output)
                current = tuple(torch.where(keep, *pair) for pair in zip(new, current, strict=True))
            outputs.append(output)
        return torch.stack(outputs, 1), current


class KerasGatedRNN(KerasRNN):
    """A recurrent layer with gates, which have an activation of their own."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] = torch.tanh,
        recurrent_activation: Callable[[Tensor], Tensor] = torch.sigmoid,
        zero_where_masked: bool = False,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, activation, zero_where_masked)
        self.recurrent_activation = recurrent_activation


class KerasLSTM(KerasGatedRNN):
    """``nn.LSTM`` with masks and other activations."""

    gates, states = 4, 2

    def step(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """The output, and the cell's state."""
        h, c = states
        i, f, g, o = (x + self.recurrent(h)).chunk(4, -1)
        kept = self.recurrent_activation(f) * c
        c = kept + self.recurrent_activation(i) * self.activation(g)
        return self.recurrent_activation(o) * self.activation(c), c


class KerasGRU(KerasGatedRNN):
    """``nn.GRU`` with masks and other activations."""

    gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] = torch.tanh,
        recurrent_activation: Callable[[Tensor], Tensor] = torch.sigmoid,
        zero_where_masked: bool = False,
    ) -> None:
        activations = activation, recurrent_activation
        super().__init__(input_size, hidden_size, bias, *activations, zero_where_masked)
        self.recurrent = nn.Linear(hidden_size, 3 * hidden_size, bias)

    def step(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """The state is reset after its product with the kernel."""
        (h,) = states
        x_z, x_r, x_n = x.chunk(3, -1)
        h_z, h_r, h_n = self.recurrent(h).chunk(3, -1)
        z = self.recurrent_activation(x_z + h_z)
        r = self.recurrent_activation(x_r + h_r)
        return (z * h + (1 - z) * self.activation(x_n + r * h_n),)


class KerasGRUResetBefore(KerasGatedRNN):
    """GRU whose state is reset before its product with the kernel: Keras' ``reset_after=False``."""

    gates = 3

    def step(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """As in the first form of GRU (Cho et al., 2014)."""
        (h,) = states
        x_z, x_r, x_n = x.chunk(3, -1)
        of_z, of_r, of_n = self.recurrent.weight.chunk(3)
        z = self.recurrent_activation(x_z + h @ of_z.T)
        r = self.recurrent_activation(x_r + h @ of_r.T)
        return (z * h + (1 - z) * self.activation(x_n + (r * h) @ of_n.T),)


class Bidirectional(nn.Module):
    """Two recurrent layers, of which the second one goes backwards."""

    def __init__(self, forward_layer: KerasRNN, backward_layer: KerasRNN) -> None:
        super().__init__()
        self.forward_layer, self.backward_layer = forward_layer, backward_layer

    def forward(
        self, x: Tensor, states: Sequence[Tensor] | None = None, mask: Tensor | None = None
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, ...]]:
        """Return the outputs of each direction, in the order of time, and the states of both."""
        first = None if states is None else states[: self.forward_layer.states]
        second = None if states is None else states[self.forward_layer.states :]
        turned = None if mask is None else mask.flip(1)
        outputs, after = self.forward_layer(x, first, mask)
        backwards, after_backwards = self.backward_layer(x.flip(1), second, turned)
        return (outputs, backwards.flip(1)), (*after, *after_backwards)
