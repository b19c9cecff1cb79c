"""From TensorFlow's object graph to the tree of layers.

A checkpoint stores each variable once, under a key that is only one shortest path to it (``variables/4``,
``optimizer/_trainable_variables/4``). What belongs to which layer stands in the graph of objects behind the keys: it
is walked from the model along its attributes, and lists that merely name variables again come last. A variable's full
name (``attn/query/kernel``) gives the user's name of a layer, and the place of variables that no attribute leads to.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..datatypes import Group, Role, Variable
from ..errors import ReadError, printable
from ._bundle import DTYPES, Bundle
from ._config import Json, child_layers, layer_config
from ._protobuf import parse
from ._tree import Node

GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE = "VARIABLE_VALUE"
KEY_END = f"/.ATTRIBUTES/{VALUE}"
SLOT = "/.OPTIMIZER_SLOT/"
# Edges that name variables which belong to some layer; the second kind repeats their bytes (Keras 3 exports).
LISTINGS = ("variables", "trainable_variables", "_trainable_variables", "non_trainable_variables")
COPIES = ("_all_variables",)
METRICS = ("keras_api",)
OPTIMIZER_ATTRIBUTES = {"iter", "_iterations", "_trainable_variables_indices"}
# Edges of Keras' own bookkeeping: a layer that has an attribute of the user's, too, goes by that.
CONTAINERS = ("_operations", "_functional", "_layers", "_self_tracked_trackables")
MEMBER = re.compile(rf"layer(_with_weights)?-\d+|({'|'.join(CONTAINERS)})/(.*/)?\d+")
KERAS_2_MEMBER = "layer_with_weights-"
KERAS_3 = ("_operations", "_tracked", "_inbound_nodes")
ROLES_IN_ORDER = ("query", "key", "value", "attention_output")
Names = tuple[str, ...]


@dataclass(frozen=True)
class Object:
    """One node of the graph; ``key`` and ``full_name`` where it is a variable."""

    children: tuple[tuple[str, int], ...]
    slots: tuple[int, ...] = ()
    key: str | None = None
    full_name: str = ""

    @property
    def is_optimizer(self) -> bool:
        """Whether it keeps state of other variables."""
        return bool(self.slots) or any(name in OPTIMIZER_ATTRIBUTES for name, _ in self.children)


@dataclass
class Arrangement:
    """The tree being built, the variables outside it, and what a user must know."""

    root: Node = field(default_factory=Node)
    others: list[Variable] = field(default_factory=list)
    full_names: dict[str, str] = field(default_factory=dict)  # by key
    ids: dict[int, int] = field(default_factory=dict)  # object of each Node, by id()
    notes: list[str] = field(default_factory=list)


def read_objects(bundle: Bundle) -> list[Object]:
    """The graph of a checkpoint; empty for one that has none (TensorFlow 1, hand-made).

    Raises:
        ReadError: an edge leads nowhere, or a variable is not in the index.
    """
    if GRAPH_KEY not in bundle.entries:
        return []
    place = bundle.prefix
    message = parse("ObjectGraph", bundle.text(GRAPH_KEY), place, "the object graph")
    objects = [as_object(node) for node in message.nodes]
    for item in objects:
        if any(not 0 <= number < len(objects) for number in (*item.slots, *(number for _, number in item.children))):
            raise ReadError(f"{place}: its object graph leads out of its {len(objects)} objects. Copy it again.")
        if item.key is not None and item.key not in bundle.entries:
            raise ReadError(
                f"{place}: its object graph names '{printable(item.key)}', which the index does not hold: the "
                "checkpoint is partial. Save it again, or copy all of its files."
            )
    return objects


def as_object(node: Any) -> Object:
    """One message as a record."""
    value = next((attribute for attribute in node.attributes if attribute.name == VALUE), None)
    return Object(
        children=tuple((child.local_name, child.node_id) for child in node.children),
        slots=tuple(slot.slot_variable_node_id for slot in node.slot_variables),
        key=value.checkpoint_key if value else None,
        full_name=value.full_name if value else "",
    )


def arrange(bundle: Bundle, objects: Sequence[Object], scopes: Mapping[int, str]) -> Arrangement:
    """Every array of the checkpoint at its layer.

    Args:
        bundle: the checkpoint.
        objects: its graph.
        scopes: names of variables by object, where a SavedModel's functions tell better ones than the checkpoint.
    """
    result = Arrangement()
    result.full_names = {item.key: item.full_name for item in objects if item.key is not None}
    seen: set[str] = set()

    def describe(number: int, role: Role) -> Variable | None:
        key = objects[number].key
        if key is None or key in seen or bundle.entries[key].dtype not in DTYPES:
            return None
        seen.add(key)
        return bundle.variable(key, role)

    slots = {number for item in objects for number in item.slots}
    nodes = {0: result.root} if objects else {}
    for parent, name, number in walk(objects, slots):
        if objects[number].key is None:
            nodes[number] = nodes[parent].children.setdefault(name, Node())
        elif variable := describe(number, "layer"):
            own = name.removeprefix("_")  # Keras 3 keeps a kernel as "_kernel"
            nodes[parent].variables[name if own in nodes[parent].variables else own] = variable
    result.ids = {id(node): number for number, node in nodes.items()}
    listed = [
        (number, variable)
        for number in entries_of(objects, LISTINGS)
        if number not in slots and (variable := describe(number, "layer"))
    ]
    times = Counter(objects[number].full_name for number, _ in listed)
    better = {
        number: scopes[number] for number, _ in listed if times[objects[number].full_name] > 1 and number in scopes
    }
    place_by_name(result, [(better.get(number, objects[number].full_name), item) for number, item in listed])
    for number in slots:
        result.others += [variable] if (variable := describe(number, "optimizer")) else []
    for number in below(objects, edge_ends(objects, METRICS)):
        result.others += [variable] if (variable := describe(number, "metric")) else []
    for number in entries_of(objects, COPIES):
        result.others += [variable] if (variable := describe(number, "copy")) else []
    for number in range(len(objects)):
        result.others += [variable] if (variable := describe(number, "optimizer")) else []
    place_by_key(result, bundle, [key for key in bundle.entries if key not in seen])
    return result


def walk(objects: Sequence[Object], slots: set[int]) -> Iterator[tuple[int, str, int]]:
    """Parent, edge and object along the model's attributes, nearest first; each object once."""
    passed = {0} | slots | {number for number, item in enumerate(objects) if item.is_optimizer}
    first, later = deque([0]), deque[tuple[int, str, int]]()
    while first or later:
        if not first:
            parent, name, number = later.popleft()
            if number in passed:
                continue
            passed.add(number)
            yield parent, name, number
            first.append(number)
        parent = first.popleft()
        if parent >= len(objects) or objects[parent].key is not None:
            continue
        for name, number in objects[parent].children:
            if number in passed or name in (*LISTINGS, *COPIES, *METRICS):
                continue
            if name in CONTAINERS:
                later.append((parent, name, number))
                continue
            passed.add(number)
            yield parent, name, number
            first.append(number)


def edge_ends(objects: Iterable[Object], edges: Iterable[str]) -> list[int]:
    """Objects that an edge of one of these names leads to."""
    return list(
        dict.fromkeys(number for edge in edges for item in objects for name, number in item.children if name == edge)
    )


def entries_of(objects: Sequence[Object], edges: Iterable[str]) -> list[int]:
    """Members of the lists that the edges lead to, in their order."""
    ends = edge_ends(objects, edges)
    return list(dict.fromkeys(number for end in ends for _, number in objects[end].children))


def below(objects: Sequence[Object], starts: Iterable[int]) -> Iterator[int]:
    """The objects and everything that they lead to."""
    stack, passed = list(starts), set[int]()
    while stack:
        number = stack.pop()
        if number not in passed:
            passed.add(number)
            yield number
            stack += [child for name, child in objects[number].children if name not in LISTINGS]


def place_by_name(result: Arrangement, listed: Sequence[tuple[str, Variable]]) -> None:
    """Variables that no attribute leads to, by their full names; a name that returns begins the next layer.

    Lists follow ``model.variables``, layer by layer. Keras 3 gives the variables inside custom layers one name for
    all (``block/kernel``); four projections of attention among them are known by their order and shapes.
    """
    times = Counter(name for name, _ in listed)
    unclear = [(name, variable) for name, variable in listed if times[name] > 1 or not name]
    clear = [(name, variable) for name, variable in listed if times[name] == 1 and name]
    for name, variable in clear:
        put(result.root, tuple(name.split("/")), variable)
    if not unclear:
        return
    rest, count = list(unclear), Counter[str]()
    found = 0
    while rest:
        name, variable = rest[0]
        scope = name.rpartition("/")[0]
        run = attention_run([variable for _, variable in rest])
        if not run:
            put(result.root, (*filter(None, scope.split("/")), name.rpartition("/")[2] or "variable"), variable)
            rest.pop(0)
            continue
        number = count[scope]
        count[scope] += 1
        found += 1
        layer = f"attention_{number}" if number else "attention"
        for role, variables in run.items():
            for kind, member in zip(("kernel", "bias"), variables, strict=False):
                put(result.root, (*filter(None, scope.split("/")), layer, role, kind), member)
        rest = rest[sum(map(len, run.values())) :]
    if found:
        result.notes.append(
            f"{'One attention layer was' if found == 1 else f'{found} attention layers were'} told by the order and "
            f"the shapes of variables that share one name ('{printable(unclear[0][0])}'): query, key, value, output, "
            "as Keras' MultiHeadAttention lists them. If your model has other layers with such kernels, compare with "
            "its summary."
        )


def put(root: Node, path: Names, variable: Variable) -> None:
    """Place a variable; a name that is taken begins the next copy of its outermost layer."""
    *scope, name = path
    if not scope:
        root.variables[name if name not in root.variables else f"{name} of {variable.path}"] = variable
        return
    copies = [scope[0], *(f"{scope[0]} ({number})" for number in range(2, 2 + len(root.children)))]
    last = max((number for number, copy in enumerate(copies) if copy in root.children), default=0)
    node = root.at((copies[last], *scope[1:]))
    if name in node.variables:
        node = root.at((f"{scope[0]} ({last + 2})", *scope[1:]))
    node.variables[name] = variable


def attention_run(variables: Sequence[Variable]) -> dict[str, list[Variable]]:
    """The four projections at the beginning of ``variables``, with or without biases; empty where there are none."""
    at = 0
    found: dict[str, list[Variable]] = {}
    for role in ROLES_IN_ORDER:
        if at == len(variables) or len(variables[at].shape) < 3:
            return {}
        kernel = variables[at]
        own = kernel.shape[2:] if role == "attention_output" else kernel.shape[1:]
        following = variables[at + 1] if at + 1 < len(variables) else None
        has_bias = following is not None and following.shape == own and len(own) < len(kernel.shape)
        found[role] = [kernel, following] if has_bias and following else [kernel]
        at += len(found[role])
    query, key, value, output = (found[role][0].shape for role in ROLES_IN_ORDER)
    fits = len(query) == len(key) == len(value) == 3 and query[1:] == key[1:] and value[1:] == output[:2]
    return found if fits and query[1] == value[1] else {}


def place_by_key(result: Arrangement, bundle: Bundle, keys: Iterable[str]) -> None:
    """Arrays that no object owns: their keys are their names (TensorFlow 1, and checkpoints without a graph)."""
    for key in keys:
        if bundle.entries[key].dtype not in DTYPES:
            continue
        if SLOT in key:
            result.others.append(bundle.variable(key, "optimizer"))
            continue
        *path, name = key.removesuffix(KEY_END).split("/")
        variables = result.root.at(path).variables
        variables[name if name not in variables else key] = bundle.variable(key)


@dataclass(frozen=True)
class Namer:
    """Turns the tree into named groups; ``configs`` are entries by object."""

    arrangement: Arrangement
    configs: Mapping[int, Json]

    def group(self, node: Node, path: Names, name: str, entry: Json) -> Group:
        """The group at ``path``; ``entry`` is its own JSON (empty where unknown)."""
        children: dict[str, Group] = {}
        members = dict(flattened(node))
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
        return Group(path="/".join(path), name=name, config=config, variables=node.variables, children=children)

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
        """The layers' names in front of the variables' own, as far as all variables below agree."""
        if any(key.startswith(KERAS_2_MEMBER) for key in node.children):
            return ()  # layers of Keras 2's models do not carry the model's name
        own = [self.arrangement.full_names.get(item.path, "").split("/")[:-1] for item in node.variables.values()]
        if own:
            return tuple(own[0]) if all(parts == own[0] for parts in own) else ()
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


def flattened(node: Node) -> Iterator[tuple[str, Node]]:
    """Children, with Keras' own containers left out."""
    for key, child in node.children.items():
        if key in CONTAINERS:
            yield from ((f"{key}/{inner}", member) for inner, member in flattened(child))
        elif child.has_variables():
            yield key, child
