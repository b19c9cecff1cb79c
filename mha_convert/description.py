"""What a target says of itself: JSON in its metadata, enough to build its modules and to verify it again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .datatypes import Checkpoint, LayerPlan, ModuleSpec, Plan
from .errors import ReadError, printable
from .locations import name_of

FORM = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDescription:
    """One layer of a target: its Keras name, where its keys are, and the module that takes them.

    ``keys`` has the whole key of each tensor of the module where they were renamed, and is empty otherwise.
    ``attention`` is the row that a hand-written layer was described by, as plain data.
    """

    name: str
    prefix: str
    keys: Mapping[str, str]
    module: ModuleSpec
    attention: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDescription:
    """A target's own account of itself."""

    source: str
    layout: str
    placement: str
    names: str | None
    dtype: str | None
    layers: tuple[LayerDescription, ...]


def describe_plan(plan: Plan, source: Checkpoint) -> str:
    """What a target made by ``plan`` says of itself, as JSON; the same plan gives the same text.

    Args:
        plan: from ``plan``.
        source: from ``read``.
    """
    document = {
        "form": FORM,
        "source": name_of(source.path),
        "keras_version": source.keras_version,
        "layout": plan.layout,
        "placement": plan.placement,
        "names": plan.names,
        "dtype": plan.dtype,
        "layers": [describe_layer(item) for item in plan.layers],
    }
    return json.dumps(document, separators=(",", ":"))


def describe_layer(item: LayerPlan) -> dict[str, Any]:
    """One layer, with the Keras sizes for whoever reads the file without us."""
    layer = item.layer
    return {
        "name": layer.name,
        "prefix": item.prefix,
        **({"keys": dict(item.renamed)} if item.renamed else {}),
        "class": item.module.class_name,
        "arguments": dict(item.module.arguments),
        **({"attention": layer.row.fields} if layer.row else {}),
        "keras": {
            **layer.sizes,
            "class": layer.class_name or layer.kind,
        },
    }


def parse_description(text: str | None, path: Path) -> TargetDescription:
    """Read the JSON back; anything that we did not write is refused.

    Raises:
        ReadError: no description, or one of another form.
    """
    if not text:
        raise ReadError(
            f"{path}: has no description of mha-convert in it. Give a file that `mha-convert convert` wrote."
        )
    try:
        document = json.loads(text)
        if document["form"] != FORM:
            raise ReadError(f"{path}: its description has form {document['form']}, expected {FORM}. Convert again.")
        return TargetDescription(
            source=str(document["source"]),
            layout=str(document["layout"]),
            placement=str(document["placement"]),
            names=document.get("names"),
            dtype=document["dtype"],
            layers=tuple(parse_layer(entry) for entry in document["layers"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ReadError(f"{path}: its description is damaged: {printable(error)}. Convert again.") from error


def parse_layer(entry: Mapping[str, Any]) -> LayerDescription:
    """One layer."""
    spec = ModuleSpec(class_name=str(entry["class"]), arguments=dict(entry["arguments"]))
    keys = {str(own): str(key) for own, key in entry.get("keys", {}).items()}
    row = dict(entry["attention"]) if "attention" in entry else None
    return LayerDescription(name=str(entry["name"]), prefix=str(entry["prefix"]), keys=keys, module=spec, attention=row)
