"""Convolution, pooling, and layers that make a sequence longer or shorter.

PyTorch's functions take channels behind the batch. What only moves along the length keeps the order that it gets.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ....graph.shapes.windows import length_axis
from ....layers.plain.activations import activation_of
from ....records.layer import PlainLayer
from ....records.model import Order, Term
from ..use import Use, Written, atom, axis_in, first, last
from .activations import activated

LONGER_THAN_ANY_WINDOW = 1 << 20


def channels_first(layer: PlainLayer, inputs: Term) -> tuple[str, Order]:
    """A tensor with channels behind the batch, and its order; Keras may have it so itself."""
    return (last(inputs), "last") if length_axis(layer) > 1 else (first(inputs), "first")


@dataclass(frozen=True, slots=True)
class Same:
    """``padding="same"`` of one call: what is added at each end, as far as the length is known.

    Args:
        length: of the input; None where it is free.
        width: of a window.
        stride: from one window to the next.
    """

    length: int | None
    width: int
    stride: int

    def lengths(self) -> Iterator[int]:
        """One length of each that differ in what is added."""
        yield from (
            [self.length]
            if self.length is not None
            else range(LONGER_THAN_ANY_WINDOW, LONGER_THAN_ANY_WINDOW + self.stride)
        )

    def windows(self, length: int) -> int:
        """How many there are."""
        return -(-length // self.stride)

    def total(self, length: int) -> int:
        """What is added at both ends together."""
        return max((self.windows(length) - 1) * self.stride + self.width - length, 0)

    @property
    def ends(self) -> tuple[int, int] | None:
        """What is added in front and behind; None where that depends on a free length."""
        totals = {self.total(length) for length in self.lengths()}
        return (min(totals) // 2, -(-min(totals) // 2)) if len(totals) == 1 else None

    @property
    def is_ceil(self) -> bool:
        """Whether ``ceil_mode`` makes the same windows: nothing in front, and no window from beyond the end."""
        return all(
            self.total(length) < 2 and self.windows(length) == self.in_ceil_mode(length) for length in self.lengths()
        )

    def in_ceil_mode(self, length: int) -> int:
        """How many windows PyTorch makes: one that would start behind the end is none."""
        count = -(-(length - self.width) // self.stride) + 1
        return count - 1 if (count - 1) * self.stride >= length else count


def same(layer: PlainLayer, inputs: Term, width: int) -> Same:
    """The padding of one call."""
    return Same((inputs.spec.shape or ())[length_axis(layer)], width, layer.settings["strides"])


def padded(use: Use, found: Same, text: str, length: str, value: str = "") -> str:
    """``F.pad`` with numbers, or with a function of the length where it is free."""
    ends: Any = found.ends
    if ends == (0, 0):
        return text
    if ends is None:
        ends = f"same_padding({length}, {found.width}, {found.stride})"
    return f"F.pad({text}, {ends}{value})"


def length_of(layer: PlainLayer, inputs: Term) -> str:
    """The length as the source says it."""
    return f"{atom(inputs.text)}.shape[{axis_in(inputs, length_axis(layer), inputs.order)}]"


def conv1d(layer: PlainLayer, use: Use, inputs: Term) -> Written:
    """The module; what it does not add itself is added before."""
    text, order = channels_first(layer, inputs)
    settings = layer.settings
    added = (settings["kernel_size"] - 1) * settings["dilation_rate"]
    found = same(layer, inputs, added + 1)
    adds_itself = bool(use.plan and "padding" in use.plan.module.arguments)
    if settings["padding"] == "causal" and added:
        text = f"F.pad({text}, ({added}, 0))"
    if settings["padding"] == "same" and not adds_itself:
        text = padded(use, found, text, length_of(layer, inputs))
    activation = activation_of(settings["activation"], layer.version)
    if settings["padding"] == "same" and found.ends is None:  # a statement of its own, for the line would be long
        result = activated(activation, f"{use.module}({{0}})", inputs, order)
        return Written("", order, (f"{{0}} = {text}",), (result,), ("padded",))
    return Written(activated(activation, f"{use.module}({text})", inputs, order), order)


def max_pooling(layer: PlainLayer, use: Use, inputs: Term) -> Written:
    """``F.max_pool1d``; what is added is never the largest."""
    text, order = channels_first(layer, inputs)
    found = same(layer, inputs, layer.settings["pool_size"])
    option = option_of(layer, found)
    if option is None:
        text, option = padded(use, found, text, length_of(layer, inputs), ", value=-torch.inf"), ""
    return Written(f"F.max_pool1d({text}, {windows(layer)}{option})", order)


def average_pooling(layer: PlainLayer, use: Use, inputs: Term) -> Written:
    """``F.avg_pool1d``; averages leave out what is added."""
    text, order = channels_first(layer, inputs)
    found = same(layer, inputs, layer.settings["pool_size"])
    option = option_of(layer, found)
    if option is None:
        return Written(f"average_of_kept({text}, {found.width}, {found.stride})", order)
    kept = ", count_include_pad=False" if "padding" in option else ""
    return Written(f"F.avg_pool1d({text}, {windows(layer)}{option}{kept})", order)


def windows(layer: PlainLayer) -> str:
    """The arguments of PyTorch's functions for windows."""
    size, stride = layer.settings["pool_size"], layer.settings["strides"]
    return f"{size}" if size == stride else f"{size}, {stride}"


def option_of(layer: PlainLayer, found: Same) -> str | None:
    """The option of PyTorch's pooling that does what Keras' padding does; None where none does."""
    if layer.settings["padding"] == "valid" or found.ends == (0, 0):
        return ""
    if found.ends is not None and found.ends[0] == found.ends[1]:
        return f", padding={found.ends[0]}"
    return ", ceil_mode=True" if found.is_ceil else None


def global_average(layer: PlainLayer, use: Use, inputs: Term, mask: Term | None = None) -> str:
    """The mean over the length, of what the mask keeps."""
    keepdim = ", keepdim=True" if layer.settings["keepdims"] else ""
    if mask is None:
        return f"{atom(inputs.text)}.mean({axis_in(inputs, length_axis(layer), inputs.order)}{keepdim})"
    axis = length_axis(layer)
    kept = f"{atom(mask.text)}[{':, :, None' if axis == 1 else ':, None'}]"
    return f"({atom(last(inputs))} * {kept}).sum({axis}{keepdim}) / {kept}.sum({axis}{keepdim})"


def global_maximum(layer: PlainLayer, use: Use, inputs: Term) -> str:
    """The largest over the length."""
    keepdim = ", keepdim=True" if layer.settings["keepdims"] else ""
    return f"{atom(inputs.text)}.amax({axis_in(inputs, length_axis(layer), inputs.order)}{keepdim})"


def kept_order(line: Any) -> Any:
    """A line whose result is in its input's order where the axis that it pools is kept."""

    def ordered(layer: PlainLayer, use: Use, inputs: Term, **masks: Term) -> Written:
        order = inputs.order if layer.settings["keepdims"] and not masks else "last"
        return Written(line(layer, use, inputs, **masks), order)

    return ordered


def along(line: Callable[[PlainLayer, str, int], str]) -> Callable[..., Written]:
    """A line that changes one axis, wherever it is."""

    def written(layer: PlainLayer, use: Use, inputs: Term) -> Written:
        return Written(line(layer, inputs.text, axis_in(inputs, length_axis(layer), inputs.order)), inputs.order)

    return written


def zero_padding(layer: PlainLayer, text: str, axis: int) -> str:
    """``F.pad`` counts axes from the end."""
    before, after = layer.settings["padding"]
    return f"F.pad({text}, ({'0, 0, ' if axis == 1 else ''}{before}, {after}))"


def cropping(layer: PlainLayer, text: str, axis: int) -> str:
    """A slice."""
    before, after = layer.settings["cropping"]
    inside = f"{before or ''}:{-after if after else ''}"
    return f"{atom(text)}[{':, ' * axis}{inside}]" if inside != ":" else text


def up_sampling(layer: PlainLayer, text: str, axis: int) -> str:
    """Every step several times."""
    return f"{atom(text)}.repeat_interleave({layer.settings['size']}, {axis})"


LINES: Mapping[str, Any] = {
    "Conv1D": conv1d,
    "MaxPooling1D": max_pooling,
    "AveragePooling1D": average_pooling,
    "GlobalAveragePooling1D": kept_order(global_average),
    "GlobalMaxPooling1D": kept_order(global_maximum),
    "ZeroPadding1D": along(zero_padding),
    "Cropping1D": along(cropping),
    "UpSampling1D": along(up_sampling),
}
