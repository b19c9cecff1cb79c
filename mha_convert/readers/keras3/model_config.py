"""What a model's JSON says of its layers: plain data in, ``LayerConfig`` out. Nothing is imported by name."""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...errors import ReadError, printable
from ...files.limits import TRUSTED
from ...files.source import Source
from ...records.source import Group, LayerConfig
from ..keras_classes import is_own, module_of, registered_name
from .json_text import Json, json_file, json_value, kind_of, mapping

Version = tuple[int, ...]
ATTENTION_TAKES_MASKS = (2, 10)
MODELS = ("Functional", "Model", "Sequential")
ALWAYS_LIST_LAYERS = ("Functional", "Sequential")  # a class of a user's own may be called Model
HOLD_WEIGHTS = ("MultiHeadAttention", "GroupQueryAttention", "GroupedQueryAttention")  # always; of four projections
MASK_ARGUMENTS = ("use_causal_mask", "attention_mask", "query_mask", "value_mask", "key_mask")


def version_of(text: str | None) -> Version:
    """``"3.15.1"`` as ``(3, 15, 1)``; () where unknown."""
    return tuple(int(number) for number in re.findall(r"\d{1,9}", text or "")[:3])


def read_architecture(source: Source) -> Json:
    """A model's JSON from a file of its own: ``model.to_json()``, ``config.json``, or a dumped ``get_config()``.

    Raises:
        ReadError: it is no JSON, or no model's.
    """
    text: Any = json_file(source)
    for _ in range(2):  # json.dump(model.to_json()) writes JSON in a JSON string
        text = json_value(text, f"{source}: it", "Give what model.to_json() returned", source.limits)
        if not isinstance(text, str):
            break
    document = mapping(text)
    if isinstance(document.get("layers"), list) and "config" not in document:
        document = {"class_name": "Functional", "config": document}
    if not isinstance(document.get("class_name"), str) or "config" not in document:
        raise ReadError(
            f"{source}: is no model's architecture, expected JSON with 'class_name' and 'config'. "
            "Give what model.to_json() returned."
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
        fact = f"a layer's class is '{printable(module, 40)}.{printable(name, 40)}', of Python itself and no layer"
        raise ReadError(f"{source}: {fact}. It is not run; give --trust (trust=True) if it is a class of yours.")


def name_faults(entry: Json) -> Iterator[str]:
    """A class that is not called anything."""
    name = entry.get("class_name")
    if not isinstance(name, str) or not name:
        yield f"class_name {printable(name, 40)} is no name"


def entry_faults(entry: Json) -> Iterator[str]:
    """Parts of one layer's or model's entry in a form that Keras does not write."""
    name, inner = printable(entry["class_name"], 40), entry.get("config")
    for key in ("module", "registered_name"):
        if not isinstance(entry.get(key), str | None):
            yield f"the {key} of '{name}' is {kind_of(entry[key])}, no text"
    layers = stated_layers(entry)
    if inner is not None and not isinstance(inner, dict) and layers is not inner:
        yield f"the config of '{name}' is {kind_of(inner)}, no object"
    if is_keras_model(entry) and not isinstance(layers, list):
        yield f"the layers of '{name}' are {kind_of(layers)}, no list"


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
    """Layers of one model that Keras cannot have written, each alone or beside the others."""
    if layers and entry["class_name"] in HOLD_WEIGHTS and not is_own(entry):
        yield f"an attention layer of class '{entry['class_name']}' lists layers, as models do"
    for layer in layers:
        yield from layer_faults(layer, entry["class_name"])
    names = Counter(layer_config(layer).name for layer in layers)
    yield from (f"two layers are called '{printable(name, 40)}'" for name, times in names.items() if name and times > 1)


def layer_faults(layer: Any, model: str) -> Iterator[str]:
    """One entry of the list of layers of a ``model`` of that class."""
    if not isinstance(layer, dict):
        yield f"a layer of '{printable(model, 40)}' is {kind_of(layer)}, no object"
    if layer.get("config") is None:
        yield f"layer '{printable(layer.get('name'), 40)}' has no config"
    called = mapping(layer["config"]).get("name") or layer.get("name")
    may_be_nameless = model.endswith("Sequential") and is_nameless(layer)
    has_name = (isinstance(called, str) and bool(called)) or may_be_nameless
    if isinstance(layer["config"], dict) and not has_name:
        what = "empty" if called == "" else f"{kind_of(called)}, no text"
        yield f"the name of a layer of '{printable(model, 40)}' is {what}"
    if has_two_names(layer):
        yield f"layer '{printable(layer['name'], 40)}' is called '{printable(called, 40)}' in its config"


def has_two_names(layer: Json) -> bool:
    """Whether Keras' own attention is called otherwise in the list of layers than in its config: one is another's."""
    own, listed = mapping(layer["config"]).get("name"), layer.get("name")
    is_keras = isinstance(layer.get("class_name"), str) and layer["class_name"] in HOLD_WEIGHTS
    return is_keras and not is_own(layer) and isinstance(own, str) and isinstance(listed, str) and own != listed


def is_nameless(layer: Json) -> bool:
    """Whether it is of a class of a user's own that leaves its name out; in a Sequential model, no list has it."""
    return is_own(layer) and "name" not in layer and "name" not in mapping(layer.get("config"))


def malformed(source: object, fact: str) -> ReadError:
    """The error for a configuration that Keras cannot have written."""
    return ReadError(f"{source}: its configuration is malformed: {fact}. Save the model again.")


def has_no_weights(entry: Json) -> bool:
    """Whether it is ``keras.layers.Attention`` or ``AdditiveAttention`` without a scale, which stores nothing."""
    settings = mapping(entry.get("config"))
    is_keras = entry.get("class_name") in ("Attention", "AdditiveAttention") and not is_own(entry)
    return is_keras and settings.get("use_scale") is False and settings.get("score_mode", "dot") == "dot"


def with_weightless_attention(root: Group, model: Json) -> Group:
    """The tree with a group for each attention layer that stores nothing, where the format has no place for one."""
    known = {group.name for group in root.walk()}
    missing = {
        f"{name} (no weights)": Group(path=name, name=name, config=layer_config(entry))
        for place, entry in descendants(model)
        if has_no_weights(entry) and (name := "/".join(place)) not in known
    }
    return replace(root, children={**root.children, **missing})


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
        input_rank=input_rank(entry),
        input_widths=input_widths(entry),
        call_options=call_options(entry.get("inbound_nodes")),
    )


def input_rank(entry: Json) -> int | None:
    """Rank of the (query) input, wherever this Keras version wrote a shape; None where it wrote none."""
    settings, build = mapping(entry.get("config")), mapping(entry.get("build_config"))
    shapes = (
        settings.get("query_shape"),
        mapping(build.get("shapes_dict")).get("query_shape"),
        build.get("input_shape"),
        first_tensor_shape(entry.get("inbound_nodes")),
    )
    return next((len(shape) for shape in map(as_shape, shapes) if shape is not None), None)


def as_shape(shape: Any) -> list[int | None] | None:
    """A shape in any form that Keras wrote: a list, or ``{"class_name": "TensorShape" or "__tuple__", "items": …}``."""
    if isinstance(shape, dict):
        shape = shape.get("items")
    if isinstance(shape, (list, tuple)) and all(size is None or isinstance(size, int) for size in shape):
        return list(shape)
    return None


def input_widths(entry: Json) -> dict[str, int]:
    """Last axis of the query, key and value inputs that attention was built for, or is called with."""
    settings = mapping(entry.get("config"))
    built = mapping(mapping(entry.get("build_config")).get("shapes_dict"))
    called = called_shapes(entry.get("inbound_nodes")) if not built else {}
    found = {
        role: as_shape(settings.get(f"{role}_shape") or built.get(f"{role}_shape") or called.get(role))
        for role in ("query", "key", "value")
    }
    found["key"] = found["key"] or found["value"]  # a layer that is given no key takes the value
    return {role: shape[-1] for role, shape in found.items() if shape and shape[-1] is not None}


def called_shapes(nodes: Any) -> dict[str, Any]:
    """Shapes of the tensors of the first call, by argument of attention; Keras 3 writes them."""
    node = mapping(nodes[0]) if isinstance(nodes, list) and nodes else {}
    positional = node.get("args")
    arguments = dict(zip(("query", "value", "key"), positional if isinstance(positional, list) else (), strict=False))
    arguments |= mapping(node.get("kwargs"))
    return {name: mapping(mapping(tensor).get("config")).get("shape") for name, tensor in arguments.items()}


def first_tensor_shape(nodes: Any) -> Any:
    """Shape of the first argument of the first call; Keras 3 writes it, Keras 2 does not."""
    node = mapping(nodes[0]) if isinstance(nodes, list) and nodes else {}
    arguments = node.get("args")
    while isinstance(arguments, list) and arguments:
        arguments = arguments[0]
    return mapping(mapping(arguments).get("config")).get("shape")


def call_options(nodes: Any) -> tuple[str, ...]:
    """Masks that some call of the layer in the graph is given, as written in Keras."""
    found = [name for arguments in call_arguments(nodes) for name in MASK_ARGUMENTS if arguments.get(name)]
    return tuple(dict.fromkeys(name if name != "use_causal_mask" else "use_causal_mask=True" for name in found))


def call_arguments(nodes: Any) -> Iterator[Json]:
    """Keyword arguments of each call.

    Keras 3 writes ``{"args": …, "kwargs": {…}}`` for a call, Keras 2 ``[[name, 0, 0, {…}], …]``.
    """
    for node in nodes if isinstance(nodes, list) else ():
        yield mapping(mapping(node).get("kwargs"))
        for call in node if isinstance(node, list) else ():
            yield mapping(call[3]) if isinstance(call, list) and len(call) > 3 else {}


def hidden_masks(model: Json, version: Version) -> Iterator[str]:
    """A note where the model makes masks that Keras hands from layer to layer without a word (2.10 and later)."""
    if version and version < ATTENTION_TAKES_MASKS:
        return
    layers = [layer_config(entry) for _, entry in descendants(model)]
    makers = [
        f"{printable(layer.title)} '{printable(layer.name)}'{' (perhaps)' if layer.is_own else ''}"
        for layer in layers
        if layer.class_name == "Masking"
        or (layer.class_name == "Embedding" and layer.settings.get("mask_zero") is True)
    ]
    if makers:
        yield (
            f"{', '.join(makers[:3])} makes a padding mask, which Keras hands on to the layers behind it: as "
            "query_mask and value_mask of attention. Give PyTorch the same (mha_convert.to_attn_mask)."
        )


def descendants(entry: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Every layer below a model, with the path of user's layer names that leads to it."""
    for child in child_layers(entry):
        place = (*path, layer_config(child).name)
        yield place, child
        yield from descendants(child, place)
