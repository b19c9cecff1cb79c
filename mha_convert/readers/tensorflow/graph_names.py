"""Names for the layers of TensorFlow's object graph.

An attribute's name is a layer's name. Members of a model have numbers instead (``layer_with_weights-3``): they are
called what the file's JSON says, or what is in front of their variables' full names.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...classes import stores_nothing
from ...records.source import Group
from ..keras3.json_text import Json
from ..keras3.model_config import child_layers, layer_config
from ..tree import Node
from .listed_variables import Names
from .object_graph import CONTAINERS, Arrangement

MEMBER = re.compile(rf"layer(_with_weights)?-\d+|({'|'.join(CONTAINERS)})/(.*/)?\d+")
KERAS_2_MEMBER = "layer_with_weights-"


@dataclass(frozen=True)
class Namer:
    """Turns the tree into named groups.

    ``configs`` are entries by object; ``architecture`` is the model's, from a file of its own.
    """

    arrangement: Arrangement
    configs: Mapping[int, Json]
    architecture: Json | None = None

    def tree(self) -> Group:
        """The whole tree; the architecture is that of the root, or of the only model below it."""
        root = self.arrangement.root
        models = [child for child in root.children.values() if is_model(child)]
        owner = root if is_model(root) or len(models) != 1 else models[0]
        if self.architecture is not None and id(owner) in self.arrangement.ids:
            own = {self.arrangement.ids[id(owner)]: self.architecture}
            return Namer(self.arrangement, {**own, **self.configs}).tree()
        return self.group(root, (), "", self.config(root))

    def group(self, node: Node, path: Names, name: str, entry: Json) -> Group:
        """The group at ``path``; ``entry`` is its own JSON (empty where unknown)."""
        children: dict[str, Group] = {}
        members = dict(flattened(node, self.is_named))
        labels = {key: self.label(key, child) for key, child in members.items()}
        times = Counter(labels.values())
        entries = {layer_config(child).name: child for child in child_layers(entry)}
        for key, child in members.items():
            own = labels[key] if times[labels[key]] == 1 else key
            own_entry = self.config(child) or entries.get(own, {})
            if not own_entry and MEMBER.fullmatch(key) and own == labels[key] == self.number(key):
                own_entry = self.nested_model(child, entries.values())
                own = layer_config(own_entry).name if own_entry else own
            children[key] = self.group(child, (*path, key), f"{name}/{own}".lstrip("/"), own_entry)
        config = layer_config(entry) if entry else None
        return Group(
            path="/".join(path), name=name, config=config, variables=node.variables, children=children, doubt=node.doubt
        )

    def is_named(self, node: Node) -> bool:
        """Whether the node is a layer that people should hear of: it holds variables, or has none by its settings."""
        return node.has_variables() or stores_nothing(layer_config(self.config(node)))

    def config(self, node: Node) -> Json:
        """What the file's JSON says of the object."""
        return self.configs.get(self.arrangement.ids.get(id(node), -1), {})

    def nested_model(self, node: Node, entries: Iterable[Json]) -> Json:
        """The entry of a nested model, which has no name in the file: the only one that has the named layers."""
        labels = {self.label(key, child) for key, child in flattened(node)}
        inside = {label for label in labels if not MEMBER.fullmatch(label)}
        models = [(entry, {layer_config(child).name for child in child_layers(entry)}) for entry in entries]
        found = [entry for entry, names in models if names and inside <= names]
        return found[0] if len(found) == 1 else {}

    def label(self, key: str, node: Node) -> str:
        """A layer's own name: the attribute's, or for members of a model the user's."""
        if not MEMBER.fullmatch(key):
            return key
        config = self.config(node)
        known = (layer_config(config).name if config else "", *self.scope(node)[-1:])
        return next(filter(None, known), self.number(key))

    @staticmethod
    def number(key: str) -> str:
        """What a member of a model is called that has no name."""
        return re.sub(r".*/(?=\d+$)", "layer-", key)

    def scope(self, node: Node) -> Names:
        """The layers' names in front of the variables' own, as far as all variables below agree.

        Variables that ``quantize`` and ``enable_lora`` add later lack the outer names: ``query/kernel_scale`` next to
        ``attn/query/bias``.
        """
        if any(key.startswith(KERAS_2_MEMBER) for key in node.children):
            return ()  # layers of Keras 2's models do not carry the model's name
        own = [self.arrangement.full_names.get(item.path, "").split("/")[:-1] for item in node.variables.values()]
        if own:
            longest = max(own, key=len)
            return tuple(longest) if all(parts and longest[-len(parts) :] == parts for parts in own) else ()
        inner = [scope for child in node.children.values() if child.has_variables() and (scope := self.scope(child))]
        if len(inner) == 1:  # of two names the second is the inner layer's own
            is_model = any(key in CONTAINERS for key in node.children)
            return inner[0][:-1] or (() if is_model else inner[0])
        shared: list[str] = []
        for parts in zip(*inner, strict=False):
            if len(set(parts)) > 1:
                break
            shared.append(parts[0])
        return tuple(shared)


def is_model(node: Node) -> bool:
    """Whether its layers are members of a model, and not attributes."""
    return any(MEMBER.fullmatch(key) for key, _ in flattened(node))


def flattened(node: Node, keeps: Callable[[Node], bool] = Node.has_variables) -> Iterator[tuple[str, Node]]:
    """Children, with Keras' own containers left out."""
    for key, child in node.children.items():
        if key in CONTAINERS:
            yield from ((f"{key}/{inner}", member) for inner, member in flattened(child, keeps))
        elif keeps(child):
            yield key, child
