"""What a target says of itself: JSON in its metadata, enough to build its modules and to verify it again."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import ReadError, listed, shortened
from ..files.locations import Location, name_of
from ..records.plan import LayerPlan, ModuleSpec, Plan
from ..records.source import Checkpoint

FORM = 2
MOST_TEXT = 32 << 20  # characters; a layer has some 500
MOST_PARTS = 1_000_000  # objects, lists and values; a layer has some 25
# Where a target came from: another file of the same model proves it as well.
ORIGIN = ("source", "keras_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDescription:
    """One layer of a target: its Keras name, where its keys are, and the module that takes them.

    ``keys`` has the whole key of each tensor of the module where they were renamed, and is empty otherwise.
    ``attention`` is the row that a hand-written layer was described by, as plain data. ``keras`` has Keras' own sizes.
    """

    name: str
    prefix: str
    keys: Mapping[str, str]
    module: ModuleSpec
    attention: Mapping[str, Any] | None = None
    keras: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDescription:
    """A target's own account of itself."""

    source: str
    layout: str
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


def parse_description(text: str | None, path: Location) -> TargetDescription:
    """Read the JSON back; anything that we did not write is refused.

    Raises:
        ReadError: no description, or one of another form.
    """
    if not text:
        raise ReadError(
            f"{path} has no description of mha-convert in it. Pass a file that `mha-convert convert` wrote."
        )
    if len(text) > MOST_TEXT or sum(map(text.count, "[{,")) > MOST_PARTS:
        raise ReadError(
            f"{path}: its description has {len(text)} characters, more than any that `mha-convert convert` writes. "
            "Convert again, in parts."
        )
    try:
        document = json.loads(text, object_pairs_hook=unique, parse_constant=refuse_constant)
        if document["form"] != FORM:
            raise ReadError(
                f"{path}: its description has form {shown(document['form'])}, expected {FORM}. Convert again."
            )
        described = TargetDescription(
            source=word(document, "source"),
            layout=word(document, "layout"),
            dtype=word_or_none(document, "dtype"),
            layers=tuple(map(parse_layer, document["layers"])),
        )
        refuse_twice("layer", [layer.name for layer in described.layers])
        return described
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        fact = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ReadError(f"{path}: its description is damaged: {fact}. Convert again.") from error


def parse_layer(entry: Mapping[str, Any]) -> LayerDescription:
    """One layer."""
    keys = table(entry, "keys") if "keys" in entry else {}
    if not all(isinstance(key, str) for key in keys.values()):
        raise ValueError("a layer's keys are not all text")
    refuse_twice("key", list(keys.values()))
    return LayerDescription(
        name=word(entry, "name"),
        prefix=word(entry, "prefix"),
        keys=keys,
        module=ModuleSpec(class_name=word(entry, "class"), arguments=table(entry, "arguments")),
        attention=table(entry, "attention") if "attention" in entry else None,
        keras=table(entry, "keras") if "keras" in entry else {},
    )


def word(entry: Mapping[str, Any], name: str) -> str:
    """A field that is text."""
    if not isinstance(entry[name], str):
        raise ValueError(f"its {name} is {shown(entry[name])}, expected text")
    return str(entry[name])


def word_or_none(entry: Mapping[str, Any], name: str) -> str | None:
    """A field that is text or null."""
    return None if entry.get(name) is None else word(entry, name)


def table(entry: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A field that is an object."""
    if not isinstance(entry[name], dict):
        raise ValueError(f"its {name} is {shown(entry[name])}, expected an object")
    return dict(entry[name])


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are all different: readers do not agree on which of two counts."""
    refuse_twice("name", [name for name, _ in pairs])
    return dict(pairs)


def refuse_constant(name: str) -> None:
    """NaN and Infinity are no JSON."""
    raise ValueError(f"it holds {name}, which is not JSON")


def refuse_twice(what: str, words: Sequence[str]) -> None:
    """Raise for the first word that is in the list twice."""
    seen: set[str] = set()
    for item in words:
        if item in seen:
            raise ValueError(f"it has the {what} '{item}' twice")
        seen.add(item)


def differences(text: str, plan: Plan, source: Checkpoint) -> Iterator[str]:
    """Where a target says of itself something else than ``plan`` does, each as actual against expected.

    The whole text counts but ``ORIGIN``, and Keras' class where the source does not say it. That prefixes and keys are
    the target's is shown by the tensors that are there.

    Args:
        text: of the target, which ``parse_description`` has accepted.
        plan: from the source; prefixes and keys are the target's.
        source: from ``read``.
    """
    said, expected = json.loads(text), json.loads(describe_plan(plan, source))
    layers = {entry["name"]: entry for entry in said.pop("layers")}
    entries = {entry["name"]: entry for entry in expected.pop("layers")}
    for name in ORIGIN:
        said.pop(name, None)
        expected.pop(name, None)
    yield from unlike("", said, expected)
    for item in plan.layers:
        name = item.layer.name
        entry, wanted = layers[name], entries[name]
        sizes = entry.get("keras")
        if not item.layer.has_config and isinstance(sizes, dict) and isinstance(sizes.get("class"), str):
            wanted["keras"]["class"] = sizes["class"]
        yield from unlike(f"layer '{name}': ", entry, wanted)
        targets = [rule.target for rule in item.rules]
        if item.renamed and item.renamed.keys() != set(targets):
            held, wanted_keys = listed(sorted(item.renamed), 4), listed(sorted(targets), 4)
            yield f"layer '{name}': keys are of {held}, expected of {wanted_keys}"


def unlike(place: str, actual: Any, expected: Any) -> Iterator[str]:
    """Where two values of JSON differ, at the innermost place; True is not 1, and 1 is not 1.0."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        for name in {**expected, **actual}:
            inner = f"{place}{shortened(name, 60)} "
            if name not in actual:
                yield f"{inner}is not there, expected {shown(expected[name])}"
            elif name not in expected:
                yield f"{inner}is {shown(actual[name])}, expected none"
            else:
                yield from unlike(inner, actual[name], expected[name])
    elif json.dumps(actual) != json.dumps(expected):
        yield f"{place}is {shown(actual)}, expected {shown(expected)}"


def shown(value: Any) -> str:
    """A value of a description, short: one of millions of numbers is not written out."""
    if isinstance(value, list):
        inner = ", ".join("…" if isinstance(item, list | dict) else shown(item) for item in value[:4])
        return f"[{inner}{', …' if len(value) > 4 else ''}]"
    if isinstance(value, dict):
        return "an object"
    return shortened(json.dumps(value, ensure_ascii=False), 60)
