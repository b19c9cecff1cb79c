"""The entries of a model's configuration as a tree: which are models with a graph of their own, and what is in them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..readers.keras_classes import is_own
from .plain import MalformedError

DEEPEST_MODEL = 100  # models in one another
MOST_LAYERS = 200_000  # in all models together
GRAPH_KEYS = ("layers", "input_layers", "output_layers")
Json = Mapping[str, Any]
# Which of Keras' own classes are models with a graph, and whether it is a mere list of layers.
IS_SEQUENTIAL = {"Functional": False, "Model": False, "Sequential": True}


@dataclass(slots=True, eq=False)
class Entry:
    """One layer's place in the configuration; of a model with the entries of its layers, by name.

    ``stands_for`` is the first entry of the same layer: the entry itself, or one of a model that shares it.
    """

    name: str
    config: Json
    route: tuple[str, ...] = ()
    is_model: bool = False
    is_sequential: bool = False
    layers: dict[str, "Entry"] = field(default_factory=dict)
    stands_for: "Entry" = field(init=False)

    def __post_init__(self) -> None:
        """An entry stands for itself until another one is found to be the same layer."""
        self.stands_for = self

    @property
    def settings(self) -> Json:
        """What ``get_config()`` returned."""
        found = self.config.get("config")
        return found if isinstance(found, dict) else {}

    @property
    def class_name(self) -> str:
        """Without the package."""
        return str(self.config.get("class_name", "")).rpartition(">")[2]

    @property
    def nodes(self) -> list[Any]:
        """The calls, as they are written."""
        found = self.config.get("inbound_nodes")
        if found is not None and not isinstance(found, list):
            raise MalformedError(f"the calls of layer '{self.name}' are not a list")
        return found or []


def has_graph(config: Json) -> bool:
    """Whether an entry is a model that lists its layers and, unless it is a chain, what they are called with.

    A class of somebody's own is one where it is written as ``Functional`` is: it was made with inputs and outputs.
    """
    inner = config.get("config")
    own = is_own(config)
    if str(config.get("class_name")) in IS_SEQUENTIAL and not own:
        return isinstance(inner, list) or (isinstance(inner, dict) and isinstance(inner.get("layers"), list))
    return isinstance(inner, dict) and all(isinstance(inner.get(key), list | dict) for key in GRAPH_KEYS)


def tree_of(config: Json) -> list[Entry]:
    """The root's entry, and those of all layers below it, in the order of the file.

    Raises:
        MalformedError: an entry is not one, two layers of a model have one name, or there are too many.
    """
    root = Entry(name=name_of(config) or "model", config=config)
    found, todo = [], [root]
    while todo:
        entry = todo.pop()
        found.append(entry)
        entry.is_model = has_graph(entry.config)
        if not entry.is_model:
            continue
        own = is_own(entry.config)
        entry.is_sequential = IS_SEQUENTIAL.get(entry.class_name, False) and not own
        if len(entry.route) == DEEPEST_MODEL:
            raise MalformedError(f"models are nested more than {DEEPEST_MODEL} deep")
        inner = entry.config["config"]
        listed = inner if isinstance(inner, list) else inner["layers"]
        if len(found) + len(todo) + len(listed) > MOST_LAYERS:
            raise MalformedError(f"it has more than {MOST_LAYERS:,} layers")
        entry.layers = named(listed, entry)
        todo += reversed(entry.layers.values())
    return found


def named(listed: Any, model: Entry) -> dict[str, Entry]:
    """The layers of a model by name."""
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise MalformedError(f"the layers of '{model.name}' are not a list of objects")
    names = [name_of(item) or nameless(item, number) for number, item in enumerate(listed)]
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise MalformedError(f"{times} layers of one model are called '{name}'")
    return {
        name: Entry(name=name, config=item, route=(*model.route, name))
        for name, item in zip(names, listed, strict=True)
    }


def name_of(config: Json) -> str:
    """The name by which other layers refer to it."""
    inner = config.get("config")
    names = (config.get("name"), inner.get("name") if isinstance(inner, dict) else None)
    return next((name for name in names if isinstance(name, str) and name), "")


def nameless(config: Json, number: int) -> str:
    """A name for a layer whose class leaves it out of its settings, as classes of somebody's own may."""
    return f"{str(config.get('class_name', 'layer')).rpartition('>')[2]}_{number}"
