"""Mutations of a model's JSON: values replaced by odd ones, members deleted, layers reordered, renamed, duplicated."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

ODD = (
    None, True, False, -1, 0, 1, 2, 3, 1 << 31, 1 << 63, 1 << 200, -(1 << 63), 0.5, -0.5, 1e308, float("nan"),
    float("inf"), "", "a", "\x1b[31m\n", "\ud800", "x" * 5000, "query", "../../x", "a/b", "{name}", [], [1], [[[]]],
    {}, {"class_name": "x"}, {"items": [1]}, [None], "MultiHeadAttention", "Lambda", "Functional", {"config": {}},
)  # fmt: skip
SETTINGS = (
    "num_heads", "key_dim", "value_dim", "dropout", "use_bias", "output_shape", "attention_axes", "query_shape",
    "key_shape", "value_shape", "num_query_heads", "num_key_value_heads", "head_dim", "use_gate", "sliding_window",
    "flash_attention", "dtype", "name", "seed", "kernel_initializer", "layers", "units", "score_mode", "use_scale",
)  # fmt: skip
CLASSES = (
    "MultiHeadAttention", "GroupQueryAttention", "GroupedQueryAttention", "Dense", "InputLayer", "Functional",
    "Sequential", "Model", "Attention", "AdditiveAttention", "MyPackage>MyMHA", "Lambda", "TFOpLambda",
)  # fmt: skip
Place = tuple[Any, Any]  # a container and a key in it


def mutate_json(rng: Random, text: bytes) -> tuple[bytes, str]:
    """Change one to three things in a JSON document."""
    document = json.loads(text)
    told = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        change = rng.choice(CHANGES)
        told.append(f"{change.__name__} {change(rng, document)}")
    return json.dumps(document).encode(), "JSON: " + "; ".join(told)


def places(value: Any) -> Iterator[Place]:
    """Every member of every object and list."""
    todo = [value]
    while todo:
        item = todo.pop()
        members = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        for key, inner in members:
            yield item, key
            todo.append(inner)


def layers(document: Any) -> list[dict[str, Any]]:
    """Every object that is a layer's entry."""
    entries = (item[key] for item, key in [*places(document), ([document], 0)])
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("config"), dict)]


def attention(document: Any) -> list[dict[str, Any]]:
    """Entries of attention, or of all layers where there is none."""
    found = layers(document)
    return [entry for entry in found if "Attention" in str(entry.get("class_name"))] or found


def lists_of_layers(document: Any) -> list[list[Any]]:
    """The lists that hold the layers of a model."""
    return [item[key] for item, key in places(document) if key == "layers" and isinstance(item[key], list)]


def any_value(rng: Random, document: Any) -> str:
    """One value anywhere becomes an odd one."""
    found = list(places(document))
    if not found:
        return "nothing"
    item, key = rng.choice(found)
    item[key] = deepcopy(rng.choice(ODD))
    return f"{key!r} = {item[key]!r:.40}"


def setting(rng: Random, document: Any) -> str:
    """One setting of an attention layer becomes an odd one, or one of the others' values."""
    found = attention(document)
    if not found:
        return "nothing"
    config = rng.choice(found)["config"]
    present = [key for key in config if key in SETTINGS]
    key = rng.choice(present) if present and rng.random() < 0.7 else rng.choice(SETTINGS)
    old = config.get(key)
    near = [old + 1, old - 1, old * 2] if type(old) is int else [not old] if type(old) is bool else []
    config[key] = deepcopy(rng.choice([*ODD, *near * 8]))
    return f"{key!r} from {old!r:.40} to {config[key]!r:.40}"


def delete(rng: Random, document: Any) -> str:
    """A member of the attention's entry, or of any object, is gone."""
    if not isinstance(document, dict) or not document:  # an earlier change left nothing else
        return "nothing"
    chosen = rng.choice(attention(document) or [document])
    item = rng.choice(
        [chosen, chosen.get("config", chosen), *(place[0] for place in [rng.choice(list(places(document)))])]
    )
    if not item or not isinstance(item, (dict, list)):
        return "nothing"
    key = rng.choice(list(item)) if isinstance(item, dict) else rng.randrange(len(item))
    del item[key]
    return repr(key)


def exchange(rng: Random, document: Any) -> str:
    """Two layers exchange one of their members."""
    found = attention(document) if rng.random() < 0.5 else layers(document)
    if len(found) < 2:
        return "nothing"
    one, other = rng.sample(found, 2)
    key = rng.choice(("class_name", "config", "name", "registered_name", "module", "build_config", "inbound_nodes"))
    inside = rng.random() < 0.3
    if inside:
        one, other, key = one["config"], other["config"], "name"
    one[key], other[key] = other.get(key), one.get(key)
    return f"{key!r} inside" if inside else repr(key)


def reorder(rng: Random, document: Any) -> str:
    """The layers of a model stand in another order."""
    found = [entries for entries in lists_of_layers(document) if len(entries) > 1]
    if not found:
        return "nothing"
    entries = rng.choice(found)
    one, other = rng.sample(range(len(entries)), 2)
    entries[one], entries[other] = entries[other], entries[one]
    return f"{one} and {other}"


def drop_layer(rng: Random, document: Any) -> str:
    """A layer is gone."""
    found = [entries for entries in lists_of_layers(document) if entries]
    if not found:
        return "nothing"
    entries = rng.choice(found)
    number = rng.randrange(len(entries))
    del entries[number]
    return str(number)


def double_layer(rng: Random, document: Any) -> str:
    """A layer stands there a second time, as it is or under another name."""
    found = [entries for entries in lists_of_layers(document) if entries]
    if not found:
        return "nothing"
    entries = rng.choice(found)
    copy = deepcopy(rng.choice(entries))
    if rng.random() < 0.7 and isinstance(copy, dict):
        copy["name"] = "second"
        if isinstance(copy.get("config"), dict):
            copy["config"]["name"] = "second"
    entries.insert(rng.randrange(len(entries) + 1), copy)
    return "under another name" if isinstance(copy, dict) and copy.get("name") == "second" else "as it is"


def rename(rng: Random, document: Any) -> str:
    """A layer has another name, perhaps that of another layer."""
    found = attention(document) if rng.random() < 0.6 else layers(document)
    if not found:
        return "nothing"
    entry = rng.choice(found)
    others = [str(item["config"].get("name")) for item in layers(document)]
    name = rng.choice([*others, "renamed", "a/b", "..", "ü", ""])
    entry["config"]["name"] = name
    if rng.random() < 0.5:
        entry["name"] = name
    return repr(name)


def other_class(rng: Random, document: Any) -> str:
    """A layer is of another class."""
    found = attention(document) if rng.random() < 0.6 else layers(document)
    if not found:
        return "nothing"
    entry = rng.choice(found)
    entry["class_name"] = rng.choice(CLASSES)
    if rng.random() < 0.3:
        entry["registered_name"] = rng.choice(CLASSES)
    return repr(entry["class_name"])


def nest(rng: Random, document: Any) -> str:
    """A value lies deep in lists."""
    found = list(places(document))
    if not found:
        return "nothing"
    item, key = rng.choice(found)
    depth = rng.choice((1, 2, 100, 250))
    for _ in range(depth):
        item[key] = [item[key]]
    return f"{key!r} {depth} deep"


Change = Callable[[Random, Any], str]
CHANGES: tuple[Change, ...] = (
    any_value, any_value, setting, setting, setting, setting, delete, exchange, reorder, drop_layer, double_layer,
    rename, rename, other_class, nest,
)  # fmt: skip
