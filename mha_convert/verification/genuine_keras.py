"""Genuine Keras as a reference: the layer is rebuilt with the saved kernels, in a process of its own."""

import importlib.util
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from ..errors import VerificationError, shortened
from ..files.child.arrays import arrays_of, blocks_of, rows_of
from ..files.child.command import python
from ..files.child.messages import Message
from ..files.child.process import Child, Ended
from ..records.layer import Layer
from ..records.source import Array

MODULE = "mha_convert.verification.keras_worker"
ERROR = re.compile(r"\w*(\.\w+)*(Error|Exception)\b")  # the last line of a traceback
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
        self.child: Child | None = None
        self.name = "genuine Keras"

    def __enter__(self) -> "GenuineKeras":
        """Look for Keras before any work is done."""
        if importlib.util.find_spec("keras") is None:
            raise VerificationError(f"Reference keras: Keras is not installed in this Python. {INSTALL}.")
        self.errors = tempfile.TemporaryFile()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process; after an error or an interruption nobody waits for its answer."""
        if self.child:
            self.child.dismiss() if kind is None else self.child.end()
        self.errors.close()

    def start(self) -> Child:
        """The process, which says first which Keras it runs."""
        child = self.child = Child(python(MODULE), errors=self.errors)
        with child.exchange():
            who = child.hear().words
        self.name = f"Keras {who['keras']} on {who['backend']} {who['backend_version']} (float64)"
        return child

    def ask(self, request: Mapping[str, Any], arrays: Mapping[str, Array]) -> Message:
        """The answer of the process; its end is an error that shows what it said last."""
        try:
            child = self.child or self.start()
            with child.exchange():
                child.say({"request": request, "arrays": rows_of(arrays)}, *blocks_of(arrays))
                return child.hear()
        except Ended as ended:
            said = [line.strip() for line in ended.said.splitlines() if ERROR.match(line)]
            raise VerificationError(
                f"Reference keras: the Keras process ended: {said[-1] if said else ended.code}. {INSTALL}."
            ) from ended

    def results(self, request: Request, layer: Layer, arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
        """What each call of the request returns, by name; ``arrays`` are the layer's own."""
        answer, blocks = self.ask(described(request), arrays_with_inputs(request, arrays))
        if "error" in answer:
            raise VerificationError(
                f"Layer '{layer.name}': {self.name} cannot run it: {shortened(answer['error'], 400)}. "
                "Use --reference numpy, or another Keras version."
            )
        found = arrays_of(answer["arrays"], blocks)
        names = dict.fromkeys(name.partition("/")[2] for name in found)
        return [{name: found[f"{i}/{name}"] for name in names} for i in range(len(request.inputs))]


def described(request: Request) -> dict[str, Any]:
    """What the request says in words."""
    return {
        "class_name": request.class_name,
        "settings": request.settings,
        "weights": request.weights,
        "call": request.call,
        "calls": len(request.inputs),
    }


def arrays_with_inputs(request: Request, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The layer's arrays as Keras is to have them, and the inputs of each call: ``"0/query"``."""
    scaled = {name: arrays[name] * factor for name, factor in request.factors.items()}
    inputs = {f"{i}/{name}": array for i, given in enumerate(request.inputs) for name, array in given.items()}
    return {**arrays, **scaled, **inputs}
