"""What a model's JSON says of its layers: plain data in, ``LayerConfig`` out. Nothing is imported by name."""

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...classes import OF_NAME, LayerClass
from ...errors import ReadError, shortened
from ...files.limits import TRUSTED
from ...files.source import Source
from ...records.source import Call, LayerConfig
from ..keras_classes import is_own, module_of, registered_name
from .json_text import Json, json_file, json_value, kind_of, mapping

MODELS = ("Functional", "Model", "Sequential")
ALWAYS_LIST_LAYERS = ("Functional", "Sequential")  # a class of a user's own may be called Model


def read_architecture(source: Source) -> Json:
    """A model's JSON from a file of its own: ``model.to_json()``, ``config.json``, or a dumped ``get_config()``.

    Raises:
        ReadError: it is not JSON, or not a model's.
    """
    text: Any = json_file(source)
    for _ in range(2):  # json.dump(model.to_json()) writes JSON in a JSON string
        text = json_value(text, f"{source}: it", "Pass what model.to_json() returned", source.limits)
        if not isinstance(text, str):
            break
    document = mapping(text)
    if isinstance(document.get("layers"), list) and "config" not in document:
        document = {"class_name": "Functional", "config": document}
    if not isinstance(document.get("class_name"), str) or "config" not in document:
        raise ReadError(
            f"{source} is not a model's architecture, expected JSON with 'class_name' and 'config'. "
            "Pass what model.to_json() returned."
        )
    return checked_model(document, source)


def checked_model(document: Json, source: Source) -> Json:
    """A model's JSON, in the form that Keras writes at every level; nothing of it is taken for absent.

    Raises:
        ReadError: a part has another form, or two layers of one model have one name.
    """
    todo = [document]
    while todo:
        entry = todo.pop()
        refuse_first(name_faults(entry), source)
        refuse_pythons_own(entry, source)
        refuse_first(entry_faults(entry), source)
        layers = listed_layers(entry)
        refuse_first(list_faults(entry, layers), source)
        todo += layers
    return document


def refuse_first(faults: Iterator[str], source: object) -> None:
    """Raise the first fault; what comes after it may rely on its absence, and is not asked for."""
    fact = next(faults, None)
    if fact is not None:
        raise malformed(source, fact)


def refuse_pythons_own(entry: Json, source: Source) -> None:
    """A class of the standard library is not a layer: loading such a file is how strangers run code."""
    name, module = entry["class_name"], str(entry.get("module") or "").partition(".")[0]
    if module in sys.stdlib_module_names and source.limits != TRUSTED:
        fact = f"a layer's class is '{shortened(module, 40)}.{shortened(name, 40)}', of Python itself and not a layer"
        raise ReadError(f"{source}: {fact}. It is not run; use --trust (trust=True) if it is a class of yours.")


def name_faults(entry: Json) -> Iterator[str]:
    """A class that is not called anything."""
    name = entry.get("class_name")
    if not isinstance(name, str) or not name:
        yield f"class_name {shortened(name, 40)} is not a name"


def entry_faults(entry: Json) -> Iterator[str]:
    """Parts of one layer's or model's entry in a form that Keras does not write."""
    name, inner = shortened(entry["class_name"], 40), entry.get("config")
    for key in ("module", "registered_name"):
        if not isinstance(entry.get(key), str | None):
            yield f"the {key} of '{name}' is {kind_of(entry[key])}, not text"
    layers = stated_layers(entry)
    if inner is not None and not isinstance(inner, dict) and layers is not inner:
        yield f"the config of '{name}' is {kind_of(inner)}, not an object"
    if is_keras_model(entry) and not isinstance(layers, list):
        yield f"the layers of '{name}' are {kind_of(layers)}, not a list"


def is_keras_model(entry: Json) -> bool:
    """Whether it is of one of Keras' own classes of models."""
    return entry["class_name"] in MODELS and not is_own(entry)


def stated_layers(entry: Json) -> Any:
    """What the entry has where models list layers; None where a class that always lists them has nothing there."""
    name, inner = entry["class_name"], entry.get("config")
    if isinstance(inner, list) and name == "Sequential":
        return inner
    return mapping(inner).get("layers", None if name in ALWAYS_LIST_LAYERS and is_keras_model(entry) else [])


def listed_layers(entry: Json) -> list[Json]:
    """The entries of a model's layers; an own class may call anything else ``layers``, which is then not read."""
    layers = stated_layers(entry)
    if not isinstance(layers, list):
        return []
    are_layers = is_keras_model(entry) or all(isinstance(layer, dict) and "class_name" in layer for layer in layers)
    return layers if are_layers else []


def list_faults(entry: Json, layers: list[Json]) -> Iterator[str]:
    """Layers of one model that Keras cannot have written, each alone or next to the others."""
    row = required_class(entry)
    if layers and row:
        yield f"{row.title} of class '{entry['class_name']}' lists layers, as models do"
    for layer in layers:
        yield from layer_faults(layer, entry["class_name"])
    names = Counter(layer_config(layer).name for layer in layers)
    yield from (f"two layers are called '{shortened(name, 40)}'" for name, times in names.items() if name and times > 1)


def layer_faults(layer: Any, model: str) -> Iterator[str]:
    """One entry of the list of layers of a ``model`` of that class."""
    if not isinstance(layer, dict):
        yield f"a layer of '{shortened(model, 40)}' is {kind_of(layer)}, not an object"
    if layer.get("config") is None:
        yield f"layer '{shortened(layer.get('name'), 40)}' has no config"
    called = mapping(layer["config"]).get("name") or layer.get("name")
    may_be_nameless = model.endswith("Sequential") and is_nameless(layer)
    has_name = (isinstance(called, str) and bool(called)) or may_be_nameless
    if isinstance(layer["config"], dict) and not has_name:
        what = "empty" if called == "" else f"{kind_of(called)}, not text"
        yield f"the name of a layer of '{shortened(model, 40)}' is {what}"
    if has_two_names(layer):
        yield f"layer '{shortened(layer['name'], 40)}' is called '{shortened(called, 40)}' in its config"


def has_two_names(layer: Json) -> bool:
    """Whether a layer of Keras' own is called otherwise in the list of layers than in its config: one is another's.

    Of classes whose weights must be in the file alone: it is their names that must be right.
    """
    own, listed = mapping(layer["config"]).get("name"), layer.get("name")
    is_required = required_class(layer) is not None
    return is_required and isinstance(own, str) and isinstance(listed, str) and own != listed


def required_class(entry: Json) -> LayerClass | None:
    """The class of Keras' own that a layer has, where a file must hold the weights of all such layers."""
    name = entry.get("class_name")
    row = OF_NAME.get(name) if isinstance(name, str) and not is_own(entry) else None
    return row if row and row.is_required else None


def is_nameless(layer: Json) -> bool:
    """Whether it is of a class of a user's own that leaves its name out; in a Sequential model, no list has it."""
    return is_own(layer) and "name" not in layer and "name" not in mapping(layer.get("config"))


def malformed(source: object, fact: str) -> ReadError:
    """The error for a configuration that Keras cannot have written."""
    return ReadError(f"{source}: its configuration is malformed: {fact}. Save the model again.")


def child_layers(config: Json) -> list[Json]:
    """Entries of a Functional or Sequential model, in Keras' order; empty for every other layer."""
    inner = config.get("config")
    layers = inner if isinstance(inner, list) else mapping(inner).get("layers")  # a list: Sequential before Keras 2.2.3
    return [entry for entry in layers if isinstance(entry, dict)] if isinstance(layers, list) else []


def layer_config(entry: Json) -> LayerConfig:
    """The facts about one layer, from its entry in ``config.layers`` (any Keras version)."""
    inner = entry.get("config")
    settings = {"layers": inner} if isinstance(inner, list) else mapping(inner)  # a list: see child_layers
    return LayerConfig(
        name=str(settings.get("name") or entry.get("name") or ""),
        class_name=str(entry.get("class_name", "")).rpartition(">")[2],
        registered_name=registered_name(entry),
        module=module_of(entry),
        is_own=is_own(entry),
        settings=settings,
        build=mapping(entry.get("build_config")),
        calls=tuple(calls_of(entry.get("inbound_nodes"))),
    )


def calls_of(nodes: Any) -> Iterator[Call]:
    """The calls of a layer in the model's graph.

    Keras 3 writes ``{"args": […], "kwargs": {…}}`` for a call, Keras 2 ``[[layer, node, tensor, {…}], …]``: its inputs,
    each with the keyword arguments or with none.
    """
    for node in nodes if isinstance(nodes, list) else ():
        if isinstance(node, list):
            given = [mapping(item[3]) for item in node if isinstance(item, list) and len(item) > 3]
            said = {name: value for each in reversed(given) for name, value in each.items() if value}
            yield Call(inputs=tuple(node), keywords=said)
        else:
            inputs, keywords = mapping(node).get("args"), mapping(mapping(node).get("kwargs"))
            yield Call(inputs=tuple(inputs) if isinstance(inputs, list) else (), keywords=keywords)


def descendants(entry: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Every layer below a model, with the path of user's layer names that leads to it."""
    for child in child_layers(entry):
        place = (*path, layer_config(child).name)
        yield place, child
        yield from descendants(child, place)


def listed_configs(model: Json) -> tuple[tuple[tuple[str, ...], LayerConfig], ...]:
    """Every layer below a model, by the names that lead to it: ``Checkpoint.listed``."""
    return tuple((path, layer_config(entry)) for path, entry in descendants(model))
