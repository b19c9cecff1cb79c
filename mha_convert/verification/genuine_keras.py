"""Genuine Keras as a reference: the layer is rebuilt with the saved kernels, in a process of its own."""

import importlib.util
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ..errors import VerificationError, shortened
from ..files.child import python
from ..records.layer import Layer
from ..records.source import Array

INSTALL = "Install it with `pip install keras tensorflow`, or use --reference numpy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """How genuine Keras makes a layer, and how it is called.

    Args:
        class_name: in ``keras.layers``.
        settings: the constructor's arguments, as plain data.
        weights: names of the layer's arrays in Keras' order, by the attribute of the sub-layer that has them; ``""``
            is the layer itself.
        call: a word of ``keras_worker.CALLS``.
        inputs: the arrays of each call, by names that ``call`` knows.
        factors: what arrays are multiplied by first, as Keras' layer cannot be told another scale.
    """

    class_name: str
    settings: Mapping[str, Any]
    weights: Mapping[str, Sequence[str]]
    call: str
    inputs: Sequence[Mapping[str, Array]]
    factors: Mapping[str, float] = field(default_factory=dict)


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
        """One line from the process; its end is an error that says what it said last."""
        assert process.stdout
        line = process.stdout.readline()
        if not line:
            self.messages.seek(0)
            said = [text.strip() for text in self.messages if re.match(r"\w*(\.\w+)*(Error|Exception)\b", text)]
            raise VerificationError(
                f"Reference keras: the Keras process ended: {said[-1] if said else process.wait()}. {INSTALL}."
            )
        heard: dict[str, Any] = json.loads(line)
        return heard

    def results(self, request: Request, layer: Layer, arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
        """What each call of the request returns, by name; ``arrays`` are the layer's own."""
        process = self.start()
        path = Path(self.folder.name) / "request.npz"
        np.savez(path, **payload(request, arrays))
        assert process.stdin
        process.stdin.write(f"{path}\n")
        process.stdin.flush()
        heard = self.hear(process)
        if "error" in heard:
            raise VerificationError(
                f"Layer '{layer.name}': {self.name} cannot run it: {shortened(heard['error'], 400)}. "
                "Use --reference numpy, or another Keras version."
            )
        with np.load(heard["answer"]) as found:
            names = dict.fromkeys(name.partition("/")[2] for name in found.files)
            return [{name: found[f"{i}/{name}"] for name in names} for i in range(len(request.inputs))]


def payload(request: Request, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """The request as arrays, and what is none as JSON."""
    told = {
        "class_name": request.class_name,
        "settings": request.settings,
        "weights": request.weights,
        "call": request.call,
        "calls": len(request.inputs),
    }
    scaled = {name: arrays[name] * factor for name, factor in request.factors.items()}
    data: dict[str, Any] = {"request": json.dumps(told), **arrays, **scaled}
    return data | {f"{i}/{name}": array for i, given in enumerate(request.inputs) for name, array in given.items()}
