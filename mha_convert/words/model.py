"""What is said of a whole model: its docstring, its card, its report, and the lines on the screen."""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import shortened
from ..records.graph import TensorSpec, leaves
from ..records.model import ModelClass, ModelReport
from ..records.plan import Plan
from ..records.source import Checkpoint
from ..source.model.fitting import WIDTH
from ..source.model.shape_words import shape_text
from .documents import document
from .table import count

QUOTES = '"""'
INDENT = "    "
OF_TRAINING = (
    (
        frozenset(("BatchNormalization",)),
        "In training, PyTorch updates running_var with the unbiased variance of a batch, and Keras with the biased one",
    ),
    (
        frozenset(
            ("GaussianNoise", "GaussianDropout", "ActivityRegularization", *(f"SpatialDropout{n}D" for n in (1, 2, 3)))
        ),
        "Noise, penalties and dropout of whole channels, which act in training only, are left out",
    ),
)
RECURRENT = ("LSTM", "GRU", "SimpleRNN")
OF_ONE_CALL = "inputs of its own"
LOAD = """\
from safetensors.torch import load_file

from model import {name}

model = {name}(){dtype}
model.load_state_dict(load_file("model.safetensors"))
model.eval()"""
MOST_TOLD = 6  # inputs or outputs
OF_FREE_SIZES = 16  # in the example of a call


def dtype_of(weights: Plan) -> str:
    """The one dtype of all tensors; float32 where they have several."""
    found = {weights.dtype or item.layer.dtype for item in weights.layers}
    return found.pop() if len(found) == 1 else "float32"


def loading(model: ModelClass, weights: Plan) -> str:
    """The lines that load a model."""
    dtype = dtype_of(weights)
    return LOAD.format(name=model.name, dtype="" if dtype == "float32" else f".to(torch.{dtype})")


def calling(model: ModelClass, weights: Plan) -> str:
    """The lines that call a model with zeros, to show shapes and dtypes."""
    given = [f"{term.text}={zeros(term.spec, dtype_of(weights))}" for term in model.parameters]
    call = f"outputs = model({', '.join(given)})"
    if len(call) + len(INDENT) > WIDTH:
        call = f"\n{INDENT}".join(["outputs = model(", *(f"{INDENT}{each}," for each in given), ")"])
    return f"with torch.inference_mode():\n{INDENT}{call}"


def zeros(spec: TensorSpec, dtype: str) -> str:
    """A tensor of zeros for one example: ``torch.zeros(1, 12, dtype=torch.int32)``."""
    wanted = dtype if spec.dtype is None or "float" in spec.dtype else spec.dtype
    sizes = [1, *(OF_FREE_SIZES if size is None else size for size in (spec.shape or ())[1:])]
    said = "" if wanted == "float32" else f", dtype=torch.{wanted}"
    return f"torch.zeros({', '.join(map(str, sizes))}{said})"


def keras_words(checkpoint: Checkpoint) -> str:
    """``Keras 3.15.1``."""
    return f"Keras {checkpoint.keras_version}" if checkpoint.keras_version else "an unknown version of Keras"


def heading(checkpoint: Checkpoint, model: ModelClass, weights: Plan) -> str:
    """The docstring of ``model.py``."""
    source = f"{shortened(ascii(Path(checkpoint.path).name), 60)} ({keras_words(checkpoint)})."
    first = f"{model.name}, written by mha-convert from {source}"
    lines = (
        [first]
        if len(first) + len(QUOTES) <= WIDTH
        else [f"{model.name}, written by mha-convert.", "", f"From {source}"]
    )
    lines += ["", *textwrap.wrap(f"Takes {taken(model)}; returns {returned(model)}.", WIDTH), ""]
    lines += ["Load it with:", ""]
    lines += [f"    {line}".rstrip() for line in loading(model, weights).splitlines()]
    return "\n".join([*lines, ""])


def notes_of(checkpoint: Checkpoint, model: ModelClass) -> Iterator[str]:
    """What the user should know of a model."""
    masks = [
        call.call.layer for each in model.walk() for call in each.calls if call.call.layer.startswith(("keep", "mask"))
    ]
    if masks:
        yield "Masks are variables of forward, by the rules of the Keras that wrote the file; True is what is kept"
    called = {each.layers[call.layer] for each in model.graph.walk() for call in each.calls}
    parts = [part for layer in called for part in with_wrapped(layer.class_name, layer.settings)]
    kinds = {class_name for class_name, _ in parts}
    yield from (note for of_kinds, note in OF_TRAINING if kinds & of_kinds)
    if any(name in RECURRENT and (said.get("dropout") or said.get("recurrent_dropout")) for name, said in parts):
        yield "Dropout inside recurrent layers, which acts in training only, is left out"


def with_wrapped(class_name: Any, settings: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The class and settings of a layer, and of the one that it wraps."""
    while isinstance(settings, Mapping):
        yield str(class_name), settings
        inner = settings.get("layer")
        class_name, settings = (
            (inner.get("class_name"), inner.get("config")) if isinstance(inner, Mapping) else ("", None)
        )


def taken(model: ModelClass) -> str:
    """The arguments of ``forward``, with their shapes."""
    return first_of([f"{term.text} {shape_text(term.spec)}" for term in model.parameters])


def returned(model: ModelClass) -> str:
    """The shapes of what ``forward`` returns."""
    return first_of([shape_text(model.facts[value]) for value in leaves(model.graph.outputs)])


def first_of(texts: Sequence[str]) -> str:
    """A list, of which the end is only counted if it is long; ``forward`` has all of it."""
    more = len(texts) - MOST_TOLD
    return ", ".join(texts) if more < 2 else f"{', '.join(texts[:MOST_TOLD])} and {more} more"


def verdict(report: ModelReport) -> str:
    """One sentence."""
    if report.reference is None:
        return "NOT PROVEN: nothing was compared (--reference none)"
    first, *others = references(report)
    return f"Proven with {first}" + "".join(f"; with {other}" for other in others)


def references(report: ModelReport) -> Iterator[str]:
    """What was compared with what, and how near it came."""
    for name in dict.fromkeys(item.reference for item in report.comparisons):
        own = [item for item in report.comparisons if item.reference == name]
        worst = f"{max(item.relative for item in own):.1e}"
        alone = {item.layer for item in own if item.case == OF_ONE_CALL}
        what = f"{len(alone)} calls alone and " if alone else ""
        yield f"{name}: {what}{count(len(own) - sum(item.case == OF_ONE_CALL for item in own), 'value')} within {worst}"


def model_as_text(report: ModelReport) -> list[Any]:
    """What people read."""
    model = report.plan.model
    count = sum(len(each.calls) for each in model.walk())
    tensors = sum(len(item.rules) for item in report.plan.weights.layers)
    numbers = sum(ledger.source for ledger in report.ledgers.values())
    return [
        f"{report.folder}: class {model.name}, {count} calls, {tensors} tensors, {numbers:,} numbers",
        f"Takes {taken(model)}; returns {returned(model)}",
        f"{verdict(report)}.",
        *(f"  {use.what}: {use.fact}" for use in report.uses),
        *(f"Note: {note}." for note in report.notes),
    ]


def model_as_json(report: ModelReport) -> dict[str, Any]:
    """The report as plain data."""
    model = report.plan.model
    return {
        "source": report.source.path,
        "keras_version": report.source.keras_version,
        "folder": report.folder,
        "class_name": model.name,
        "proven": report.proven,
        "reference": report.reference,
        "inputs": [{"name": term.text, "shape": list(term.spec.shape or ())} for term in model.parameters],
        "outputs": [{"shape": list(model.facts[value].shape or ())} for value in leaves(model.graph.outputs)],
        "tensors": [
            {"key": item.key(rule.target), "layer": item.layer.path, "class_name": item.layer.class_name}
            for item in report.plan.weights.layers
            for rule in item.rules
        ],
        "stored": [
            {"key": item.key, "dtype": item.dtype, "rounded": item.rounded, "vanished": item.vanished}
            for item in report.stored
        ],
        "comparisons": [
            {
                "layer": item.layer,
                "case": item.case,
                "what": item.what,
                "reference": item.reference,
                "relative": item.relative,
                "bound": item.bound,
            }
            for item in report.comparisons
        ],
        "uses": [{"what": use.what, "fact": use.fact} for use in report.uses],
        "notes": list(report.notes),
    }


def report_text(report: ModelReport) -> str:
    """``report.json``."""
    return json.dumps(document("model", model_as_json(report)), indent=2, allow_nan=False) + "\n"


def card(report: ModelReport) -> str:
    """``README.md``: what the model is, where it is from, what was shown, and how it is loaded."""
    model = report.plan.model
    rows = [f"* {use.what}: {use.fact}" for use in report.uses]
    notes = [f"* {note}." for note in report.notes]
    return "\n".join(
        [
            f"# {model.name}",
            "",
            f"Written by mha-convert from `{Path(report.source.path).name!a}` ({keras_words(report.source)}).",
            "",
            f"Takes {taken(model)}; returns {returned(model)}.",
            "",
            "```python",
            "import torch",
            loading(model, report.plan.weights),
            "",
            calling(model, report.plan.weights),
            "```",
            "",
            "## Proof",
            "",
            f"{verdict(report)}.",
            "",
            *rows,
            "",
            *(["## Notes", "", *notes, ""] if notes else []),
        ]
    )
