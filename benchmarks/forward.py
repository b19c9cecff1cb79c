"""One call of each module, compared with plain attention of the same sizes, in turns."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .timing import seconds

if TYPE_CHECKING:
    import torch
    from torch import nn

PLAIN, PLAIN_FUSED, FUSED, STOCK = "plain", "plain, one matrix", "layout qkv", "nn.MultiheadAttention"
MASKS = ("none", "causal", "padding")
Call = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Size:
    """Self-attention of ``(batch, length, features)``."""

    name: str
    batch: int
    length: int
    features: int
    num_heads: int
    key_dim: int


SIZES = (
    Size(name="ViT-B: 8 × 197 × 768, 12 heads", batch=8, length=197, features=768, num_heads=12, key_dim=64),
    Size(name="long: 1 × 2048 × 1024, 16 heads", batch=1, length=2048, features=1024, num_heads=16, key_dim=64),
    Size(name="small: 32 × 32 × 128, 4 heads", batch=32, length=32, features=128, num_heads=4, key_dim=32),
    Size(name="narrow: 8 × 197 × 768, 12 heads of 32", batch=8, length=197, features=768, num_heads=12, key_dim=32),
)
QUICK = (Size(name="tiny: 2 × 8 × 16, 2 heads", batch=2, length=8, features=16, num_heads=2, key_dim=8),)


def measure(sizes: tuple[Size, ...], runs: int, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """A row for every size and mask without gradients, and training without a mask."""
    import torch

    torch.manual_seed(0)
    with ExitStack() as stack:
        genuine = {
            "Keras on TensorFlow": stack.enter_context(KerasLayer("tensorflow")),
            "Keras on torch": stack.enter_context(KerasLayer("torch")),
        }
        for size in sizes:
            modules = modules_of(size)
            for mask in MASKS:
                with torch.inference_mode():
                    clocks = {name: clock(call_of(module, size, mask)) for name, module in modules.items()}
                    clocks |= {name: layer.clock(size, mask) for name, layer in genuine.items()}
                    measured = row(size, f"mask: {mask}", clocks, runs)
                say(f"{size.name}, mask: {mask}: done")
                yield measured
            yield row(size, "training", {name: clock(step_of(m, size)) for name, m in modules.items()}, runs)
            say(f"{size.name}, training: done")


def modules_of(size: Size) -> "dict[str, nn.Module]":
    """The modules of ``mha_convert.modules``, PyTorch's own if it supports such sizes, and plain attention."""
    from torch import nn

    from mha_convert import modules as ours

    from .plain_attention import PlainAttention, PlainFusedAttention

    features, heads, key_dim = size.features, size.num_heads, size.key_dim
    sizes: dict[str, Any] = {"num_heads": heads, "key_dim": key_dim, "value_dim": key_dim, "output_shape": [features]}
    sizes |= {"query_features": features, "key_features": features, "value_features": features}
    bert = {"q_proj": "self.query", "k_proj": "self.key", "v_proj": "self.value", "out_proj": "output.dense"}
    found: dict[str, nn.Module] = {
        PLAIN: PlainAttention(features, heads, key_dim),
        PLAIN_FUSED: PlainFusedAttention(features, heads, key_dim),
        "layout linear": ours.KerasMultiheadAttention(**sizes),
        "layout bert": ours.NamedMultiheadAttention(names=bert, **sizes),
        FUSED: ours.FusedMultiheadAttention(heads, key_dim, features=features, output_features=features),
        "layout mha": ours.ProjectedMultiheadAttention(
            heads * key_dim, heads, query_features=features, output_shape=[features], kdim=features, vdim=features
        ),
    }
    if heads * key_dim == features:
        found[STOCK] = nn.MultiheadAttention(features, heads, batch_first=True)
    return found


def call_of(module: "nn.Module", size: Size, mask: str) -> Call:
    """The module's call without weights; each has its own arguments for the mask."""
    import torch
    from torch import nn

    from .plain_attention import PlainAttention, PlainFusedAttention

    x = torch.randn(size.batch, size.length, size.features)
    padding = (torch.arange(size.length) >= size.length - size.length // 4).expand(size.batch, -1)
    if isinstance(module, (PlainAttention, PlainFusedAttention)):
        if mask == "padding":
            return lambda: module(x, ~padding[:, None, None, :])
        return lambda: module(x, is_causal=mask == "causal")
    options: dict[str, Any] = {"need_weights": False}
    if mask == "causal":
        options["is_causal"] = True
    if mask == "causal" and isinstance(module, nn.MultiheadAttention):
        options["attn_mask"] = torch.ones(size.length, size.length, dtype=torch.bool).triu(1)
    if mask == "padding":
        options["key_padding_mask"] = padding
    return lambda: module(x, x, x, **options)


def step_of(module: "nn.Module", size: Size) -> Call:
    """Forward and backward without a mask."""
    call = call_of(module.train(), size, "none")

    def step() -> None:
        output = call()
        whole: torch.Tensor = output[0] if isinstance(output, tuple) else output  # type: ignore[assignment]
        whole.sum().backward()
        module.zero_grad(set_to_none=True)

    return step


def clock(call: Call) -> Callable[[], float]:
    """Seconds of a call that was already made once."""
    call()
    return lambda: seconds(call)


def row(size: Size, mode: str, clocks: dict[str, Callable[[], float]], runs: int) -> dict[str, Any]:
    """Medians over the rounds; a ratio is computed within each round."""
    times: dict[str, list[float]] = {name: [] for name in clocks}
    names = list(clocks)
    for number in range(runs):
        first = number % len(names)  # so that nothing follows the same neighbour every time
        for name in names[first:] + names[:first]:
            times[name].append(clocks[name]())
    ratios = {
        name: median(a / b for a, b in zip(found, times[PLAIN_FUSED if name == FUSED else PLAIN], strict=True))
        for name, found in times.items()
    }
    del ratios[PLAIN]
    return {"size": size.name, "mode": mode, "plain_seconds": median(times[PLAIN]), "times_plain": ratios}


class KerasLayer:
    """A Keras process on one backend, which measures its own calls."""

    def __init__(self, backend: str) -> None:
        environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.keras_layer"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> "KerasLayer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        self.process.communicate()

    def clock(self, size: Size, mask: str) -> Callable[[], float]:
        """Seconds of the layer's call; the first request builds it."""
        sizes = {name: value for name, value in asdict(size).items() if name != "name"}
        request = json.dumps(sizes | {"mask": mask})

        def measured() -> float:
            assert self.process.stdin and self.process.stdout
            self.process.stdin.write(f"{request}\n")
            self.process.stdin.flush()
            return float(self.process.stdout.readline())

        measured()
        return measured
