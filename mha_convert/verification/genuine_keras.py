"""Genuine Keras as a reference: the layer is rebuilt with the saved kernels, in a process of its own."""

import importlib.util
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ..child import python
from ..datatypes import AnyAttention, Array, AttentionLayer, UnprojectedAttention
from ..errors import VerificationError, printable
from .cases import TIME_AXIS, Case
from .formula import Result

INSTALL = "Install it with `pip install keras tensorflow`, or take --reference numpy"


class GenuineKeras:
    """A Keras process, started when first used. ``name`` says which Keras and backend it is."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.folder = tempfile.TemporaryDirectory(prefix="mha-convert-")
        self.messages = (Path(self.folder.name) / "messages").open("w+")
        self.name = "genuine Keras"

    def __enter__(self) -> "GenuineKeras":
        """Look for Keras before any work is done."""
        if importlib.util.find_spec("keras") is None:
            self.__exit__(None, None, None)
            raise VerificationError(f"Reference keras: Keras is not installed in this Python. {INSTALL}.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process and remove its files; after an error or an interruption nobody waits for its answer."""
        if self.process and self.process.stdin and self.process.stdout:
            if kind is not None:
                self.process.kill()
            with suppress(OSError):  # it may be gone
                self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()
        self.messages.close()
        self.folder.cleanup()

    def start(self) -> subprocess.Popen[str]:
        """The running process."""
        if self.process is None:
            self.process = subprocess.Popen(
                python("mha_convert.verification.keras_worker"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.messages,
                encoding="utf-8",
            )
            who = self.hear(self.process)
            self.name = f"Keras {who['keras']} on {who['backend']} {who['backend_version']} (float64)"
        return self.process

    def hear(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """One line from the process; its end is an error that tells what it said last."""
        assert process.stdout
        line = process.stdout.readline()
        if not line:
            self.messages.seek(0)
            said = [text.strip() for text in self.messages if re.match(r"\w*(\.\w+)*(Error|Exception)\b", text)]
            raise VerificationError(
                f"Reference keras: the Keras process ended: {printable(said[-1] if said else process.wait())}. "
                f"{INSTALL}."
            )
        heard: dict[str, Any] = json.loads(line)
        return heard

    def results(
        self, layer: AnyAttention, arrays: Mapping[str, Array], cases: Sequence[Case]
    ) -> list[tuple[Result, Array]]:
        """Output and scores of every case, and the output of the call without scores."""
        process = self.start()
        request = Path(self.folder.name) / "request.npz"
        np.savez(request, **payload(layer, arrays, cases))
        assert process.stdin
        process.stdin.write(f"{request}\n")
        process.stdin.flush()
        heard = self.hear(process)
        if "error" in heard:
            raise VerificationError(
                f"Layer '{printable(layer.name)}': {self.name} cannot run it: {printable(heard['error'], 400)}. "
                "Take --reference numpy, or another Keras version."
            )
        with np.load(heard["answer"]) as found:
            return [
                (Result(output=found[f"{i}/output"], scores=found[f"{i}/scores"]), found[f"{i}/alone"])
                for i in range(len(cases))
            ]


def payload(layer: AnyAttention, arrays: Mapping[str, Array], cases: Sequence[Case]) -> dict[str, Any]:
    """What the process needs to know of one layer."""
    told = weights_of(layer) if isinstance(layer, UnprojectedAttention) else projections_of(layer)
    data: dict[str, Any] = {"sizes": json.dumps({**told, "cases": len(cases)}), **arrays, **with_scale(layer, arrays)}
    for index, case in enumerate(cases):
        data |= {f"{index}/{name}": getattr(case.call, name) for name in ("query", "key", "value")}
        if case.call.attends is not None:
            data[f"{index}/attends"] = case.call.attends
        if case.mask == "causal mask":
            data[f"{index}/causal"] = np.array(True)
    return data


def with_scale(layer: AnyAttention, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The query's arrays for a layer of another scale than Keras': they carry the factor."""
    if isinstance(layer, UnprojectedAttention) or layer.scale is None:
        return {}
    factor = layer.query_factor(layer.key_dim)
    return {name: array * factor for name, array in arrays.items() if name.startswith("query.")}


def weights_of(layer: UnprojectedAttention) -> dict[str, Any]:
    """Class, constructor's arguments, and the weights in Keras' order."""
    return {"class_name": layer.kind, "settings": layer.sizes, "weights": [*layer.arrays]}


def projections_of(layer: AttentionLayer) -> dict[str, Any]:
    """Class, constructor's arguments, and the projections that have weights."""
    settings: dict[str, Any] = {"use_bias": layer.use_bias}
    if layer.num_key_value_heads == layer.num_heads:
        class_name = "MultiHeadAttention"
        settings |= {"num_heads": layer.num_heads, "key_dim": layer.key_dim, "value_dim": layer.value_dim}
        settings |= {"output_shape": layer.output_shape}
        plain = layer.rank == 3 and layer.attended_axes in (None, TIME_AXIS)
        settings |= {} if plain else {"attention_axes": layer.attended_axes}
    else:
        class_name = "GroupQueryAttention"
        settings |= {"head_dim": layer.key_dim, "num_query_heads": layer.num_heads}
        settings |= {"num_key_value_heads": layer.num_key_value_heads}
    settings |= {"use_gate": True} if layer.gate else {}
    settings |= {"sliding_window": layer.sliding_window} if layer.sliding_window else {}
    return {"class_name": class_name, "settings": settings, "roles": [*layer.projections]}
