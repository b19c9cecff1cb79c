"""A whole model: from a saved file to a folder of PyTorch source and weights, proven.

read ─▶ graph ─▶ layers ─▶ masks ─▶ compose ─▶ write a draft of the folder ─▶ prove it ─▶ give it its name
"""

import importlib.util
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import layouts
from .conversion import convert, ledger
from .errors import ReadError
from .files.locations import SOURCE, StrPath, refuse_object
from .files.watch import checked, unchanged
from .graph import cuts, graph_of
from .graph.canonical import canonical
from .graph.masks import explicit
from .graph.reading_order import in_reading_order
from .graph.same_masks import once
from .graph.shapes import SHAPES
from .graph.sizes_in_calls import sizes_in_calls
from .layers import survey
from .layers.of_model import model_layers
from .options import ModelChoices, ModelOptions, asked, dtype_name
from .readers import read
from .records.graph import GraphLayer
from .records.layer import Layer
from .records.model import ModelClass, ModelPlan, ModelReport
from .records.plan import LayerPlan, Plan
from .records.source import Checkpoint
from .source.attention import defined_names
from .source.model.compose import Composer
from .source.model.names import Names, class_identifier
from .source.model.writing import model_source
from .targets import open_target, safetensors_file
from .targets.folder import check_folder, draft_folder
from .words.model import card, heading, notes_of, report_text

if TYPE_CHECKING:
    from torch import nn
    from typing_extensions import Unpack

    from .verification import Progress

SOURCE_FILE, WEIGHTS, REPORT, CARD = "model.py", "model.safetensors", "report.json", "README.md"
GENERIC = frozenset(("model", "functional", "sequential"))


def convert_model(
    source: StrPath,
    folder: StrPath,
    *,
    overwrite: bool = False,
    on_progress: "Progress | None" = None,
    **options: "Unpack[ModelOptions]",
) -> ModelReport:
    """Convert a whole saved Keras model to a folder of PyTorch source and weights, and prove the result.

    The folder holds ``model.py`` (needs torch alone), ``model.safetensors``, ``report.json`` and ``README.md``; it
    appears as a whole, and only if it was proven.

    Args:
        source: whatever ``read`` takes, with a configuration.
        folder: a new name, or with ``overwrite`` a folder that an earlier conversion wrote.
        overwrite: whether an existing folder is replaced.
        on_progress: called with the name of each layer when a call is compared, the call's index and their number.
        options: ``config``, ``trust``, ``attention_layout``, ``dtype``, ``class_name`` and ``reference``.

    Raises:
        ReadError, LayerError, LayoutError, WriteError, VerificationError: nothing was written.
    """
    wanted: ModelChoices = asked(ModelOptions, options, ModelChoices)
    refuse_object(source, SOURCE)
    check_folder(folder, overwrite=overwrite)
    checkpoint = read(source, config=wanted.config, trust=wanted.trust)
    plan = plan_model(checkpoint, wanted)
    with ExitStack() as stack:
        drafted = stack.enter_context(draft_folder(folder, overwrite=overwrite))
        stack.enter_context(unchanged(checkpoint))
        (drafted / SOURCE_FILE).write_text(plan.source, encoding="utf-8")
        with checked(checkpoint):
            safetensors_file.write(drafted / WEIGHTS, convert(plan.weights), "")
        report = prove(checkpoint, plan, drafted, folder, wanted, on_progress)
        (drafted / REPORT).write_text(report_text(report), encoding="utf-8")
        (drafted / CARD).write_text(card(report), encoding="utf-8")
    return report


def plan_model(checkpoint: Checkpoint, wanted: ModelChoices) -> ModelPlan:
    """The classes, the tensors and the source of a model; no array is read.

    Raises:
        LayerError: layers have no kind, or settings, shapes and arrays do not fit each other.
    """
    whole = in_reading_order(sizes_in_calls(canonical(graph_of(checkpoint))))
    graph = whole if wanted.until is None else cuts.until(whole, wanted.until)
    layers: Mapping[GraphLayer, Layer] = model_layers(graph, checkpoint, survey(checkpoint), SHAPES, whole)
    if wanted.logits:
        graph, layers = cuts.logits(graph, layers)
    graph, layers = explicit(graph, layers, checkpoint.version)
    graph = once(graph)
    composer = Composer(layers, wanted.attention_layout, Names(defined_names()))
    model = composer.compose(graph, wanted.class_name or class_name(graph.name, checkpoint.path), "")
    plans = tuple(in_state_dict(model))
    layouts.check_unique(plans)
    weights = Plan(layout="mha", dtype=dtype_name(wanted.dtype), layers=plans)
    text = model_source(model, heading(checkpoint, model, weights))
    return ModelPlan(
        model=model, weights=weights, source=text, is_changed=wanted.logits, notes=tuple(notes_of(checkpoint, model))
    )


def in_state_dict(model: ModelClass) -> list[LayerPlan]:
    """The plans of all modules that store something, in the order of the classes' members."""
    found = [
        plan
        for member in model.members
        for plan in (in_state_dict(member.model) if member.model is not None else [member.plan])
        if plan is not None and plan.rules
    ]
    return [replace(plan, layer=named(plan)) for plan in found]


def named(plan: LayerPlan) -> Any:
    """The layer under its place in the model, which no other has."""
    return replace(plan.layer, name=plan.prefix.rstrip(".") or plan.layer.name)  # type: ignore[type-var]


def class_name(name: str, path: str) -> str:
    """A class for the model: after its own name, or after the file where Keras made the name up."""
    plain = name.rstrip("0123456789").rstrip("_").lower()
    return class_identifier(Path(path).stem if plain in GENERIC else name, "Model")


def prove(
    checkpoint: Checkpoint,
    plan: ModelPlan,
    drafted: Path,
    folder: StrPath,
    wanted: ModelChoices,
    on_progress: "Progress | None",
) -> ModelReport:
    """Read the draft back and verify it; only count it for reference ``none``."""
    facts: dict[str, Any] = {
        "source": checkpoint,
        "folder": str(folder),
        "plan": plan,
        "notes": (*checkpoint.notes, *plan.notes),
    }
    if wanted.reference == "none":
        shapes = {tensor.key: tensor.shape for tensor in convert(plan.weights)}
        ledgers = {item.layer.name: ledger(item, shapes) for item in plan.weights.layers}
        return ModelReport(reference=None, ledgers=ledgers, **facts)
    from .verification.whole import prove_model  # imports torch

    target = open_target(drafted / WEIGHTS)
    shown = prove_model(plan, checkpoint, drafted / SOURCE_FILE, target, wanted, on_progress)
    return ModelReport(**shown, **facts)


def load_model(folder: StrPath) -> "nn.Module":
    """The model of a folder that ``convert_model`` wrote, with its weights, in evaluation mode.

    It is called with tensors in Keras' shapes and order. The folder's ``model.py`` is run, as any module is that is
    imported.

    Raises:
        ReadError: the folder, its source or its weights are missing, or do not fit each other.
    """
    import torch

    place = Path(folder)
    for name in (SOURCE_FILE, WEIGHTS):
        if not (place / name).is_file():
            raise ReadError(f"{place}: there is no {name} in it. Pass a folder that mha-convert model wrote.")
    stored = open_target(place / WEIGHTS)
    spec = importlib.util.spec_from_file_location("model", place / SOURCE_FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    classes = {name: item for name, item in vars(module).items() if getattr(item, "__module__", "") == "model"}
    own = classes.get(named_class(place), [*classes.values()][-1])
    try:
        with torch.device(NO_NUMBERS):
            model: nn.Module = own()
        model.load_state_dict({key: stored.read(key) for key in stored.shapes}, strict=True, assign=True)
    except (RuntimeError, AttributeError, TypeError) as error:
        raise ReadError(
            f"{place}: {SOURCE_FILE} and {WEIGHTS} do not fit each other: {error}. Convert again."
        ) from error
    return model.eval()


def named_class(folder: Path) -> str:
    """The class that the folder's report names; nothing where somebody removed the report."""
    try:
        return str(json.loads((folder / REPORT).read_text(encoding="utf-8"))["class_name"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


NO_NUMBERS = "meta"
