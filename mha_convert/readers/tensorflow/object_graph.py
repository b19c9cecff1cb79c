"""From TensorFlow's object graph to the tree of layers.

A checkpoint stores each variable once, under a key that is only one shortest path to it (``variables/4``,
``optimizer/_trainable_variables/4``). What belongs to which layer is in the graph of objects: it
is walked from the model along its attributes, and lists that merely name variables again come last. A variable's full
name (``attn/query/kernel``) gives the user's name of a layer, and the place of variables that no attribute leads to.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...classes import COMPOSITE
from ...errors import ReadError
from ...files.limits import way_on
from ...records.source import Role, Variable
from ..tree import Node
from .bundle import DTYPES, Bundle
from .listed_variables import Listed, Names, graft, tree_of
from .protobuf import parse

GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE = "VARIABLE_VALUE"
KEY_END = f"/.ATTRIBUTES/{VALUE}"
SLOT = "/.OPTIMIZER_SLOT/"
# Edges that name variables which belong to some layer; the second kind repeats their bytes (Keras 3 exports).
LISTINGS = ("variables", "trainable_variables", "_trainable_variables", "non_trainable_variables")
COPIES = ("_all_variables",)
METRICS = ("keras_api",)  # of Keras 2's SavedModels and checkpoints: its lists name layers, too
METRICS_OF = "metrics"
# TensorFlow's own, of whole numbers and without a layer; those of an optimizer go by their place.
MOST_OF_A_METRIC = 2  # axes: a table of confusions
COUNTERS = ("save_counter", "global_step")
# What an optimizer has, of Keras 2 and 3: one of each row, or state in the form of slots.
OPTIMIZER_ATTRIBUTES = (
    {"iter", "_iterations"},
    {"learning_rate", "_learning_rate", "decay", "_variables", "_trainable_variables", "hyper"},
)
OF_LAYERS = {"kernel", "_kernel", *(f"_{row.known_attribute}" for row in COMPOSITE)}
# Edges of Keras' own bookkeeping: a layer that has an attribute of the user's, too, goes by that.
CONTAINERS = ("_operations", "_functional", "_layers", "_self_tracked_trackables")
KERAS_3 = ("_operations", "_tracked", "_inbound_nodes", "_kernel", "_trainable_variables_indices")
# What is after a variable's name: of TensorFlow 1's optimizers and averages, of BERT's, of Mesh TensorFlow's.
SLOT_NAME = re.compile(
    r"(.+)(?:/(?:adam_[mv]|(?:Adam|AdamW\w*|AdaMax|RMSProp|Ftrl|Momentum|Adagrad|Adadelta|LAMB\w*|LARS"
    r"|ExponentialMovingAverage)(?:_\d+)?)|_slot_(?:m|v|vr|vc))"
)
OPTIMIZER_SCOPE = re.compile(r"(\w*adam\w*|sgd|rmsprop|adagrad|adadelta|ftrl|lamb|optimizer)(_\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Object:
    """One node of the graph; ``key`` and ``full_name`` where it is a variable."""

    children: tuple[tuple[str, int], ...]
    slots: tuple[int, ...] = ()
    key: str | None = None
    full_name: str = ""


def is_optimizer(item: Object, objects: Sequence[Object]) -> bool:
    """Whether the object keeps state of other variables, and is not a layer with an attribute of such a name."""
    names = {name for name, _ in item.children}
    has_layers = any(OF_LAYERS & {name for name, _ in objects[child].children} for _, child in item.children)
    return bool(item.slots) or (all(names & row for row in OPTIMIZER_ATTRIBUTES) and not has_layers)


@dataclass
class Arrangement:
    """The tree being built, and the variables outside it."""

    root: Node = field(default_factory=Node)
    others: list[Variable] = field(default_factory=list)
    full_names: dict[str, str] = field(default_factory=dict)  # by key
    ids: dict[int, int] = field(default_factory=dict)  # object of each Node, by id()


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
                f"{place}: its object graph names '{item.key}', which the index does not hold: the "
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


def arrange(bundle: Bundle, objects: Sequence[Object], operations: Mapping[int, Names]) -> Arrangement:
    """Every array of the checkpoint at its layer.

    Args:
        bundle: the checkpoint.
        objects: its graph.
        operations: where the operations are that read a variable, by object; a SavedModel's functions say.
    """
    result, limits = Arrangement(), bundle.prefix.limits
    result.full_names = {item.key: item.full_name for item in objects if item.key is not None}
    seen: set[str] = set()

    def describe(numbers: Iterable[int], role: Role) -> Iterator[tuple[int, Variable]]:
        for number in numbers:
            key = objects[number].key
            if key is not None and key not in seen and bundle.entries[key].dtype in DTYPES:
                seen.add(key)
                yield number, bundle.variable(key, role)

    # Along the model's attributes: each object is a node, each variable is in the node of its owner.
    slots = {number for item in objects for number in item.slots}
    metrics = state_of_metrics(objects, bundle)
    depths = {0: 0}
    nodes = {0: result.root} if objects else {}
    for parent, name, number in walk(objects, slots):
        if objects[number].key is None:
            depths[number] = depths[parent] + 1
            if depths[number] > limits.chain:
                most = limits.chain
                raise ReadError(f"{bundle.prefix}: its objects are nested more than {most} deep. {way_on(limits)}.")
            nodes[number] = nodes[parent].children.setdefault(name, Node())
        if parent == 0 and is_counter(name, objects[number].key, bundle):
            result.others += [variable for _, variable in describe([number], "counter")]
        for _, variable in describe([number], "layer"):
            own = name.removeprefix("_")  # Keras 3 keeps a kernel as "_kernel"
            nodes[parent].variables[name if own in nodes[parent].variables else own] = variable
    result.ids = {id(node): number for number, node in nodes.items()}
    result.others += [variable for _, variable in describe(metrics, "metric")]
    # Variables that only lists of the model lead to.
    listed = [
        Listed(variable, objects[number].full_name, operations.get(number, ()))
        for number, variable in describe((n for n in entries_of(objects, LISTINGS) if n not in slots), "layer")
    ]
    graft(result.root, tree_of(listed))
    # What belongs to no layer; the order decides, as each variable is described once.
    result.others += [variable for _, variable in describe(slots, "optimizer")]
    result.others += [variable for _, variable in describe(below(objects, edge_ends(objects, METRICS)), "metric")]
    result.others += [variable for _, variable in describe(entries_of(objects, COPIES), "copy")]
    result.others += [variable for _, variable in describe(range(len(objects)), "optimizer")]
    place_by_key(result, bundle, [key for key in bundle.entries if key not in seen])
    return result


def walk(objects: Sequence[Object], slots: set[int]) -> Iterator[tuple[int, str, int]]:
    """Parent, edge and object along the model's attributes, nearest first; each object once."""
    passed = {0} | slots | {number for number, item in enumerate(objects) if is_optimizer(item, objects)}
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


def state_of_metrics(objects: Sequence[Object], bundle: Bundle) -> list[int]:
    """Sums and counts of the model's metrics, which lists of Keras 2 name next to the variables of layers.

    A metric may be a model itself; its kernels are told like those of any other layer.
    """
    keras = edge_ends(objects, METRICS)
    metrics = [child for number in keras for name, child in objects[number].children if name == METRICS_OF]
    entries = [(number, bundle.entries.get(objects[number].key or "")) for number in below(objects, metrics)]
    return [number for number, entry in entries if entry is not None and len(entry.shape) <= MOST_OF_A_METRIC]


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


def is_slot(key: str, bundle: Bundle) -> bool:
    """Whether an optimizer's scope is before the name of a variable here, or a slot's name after it."""
    return has_scope(key, bundle) or follows_variable(key, bundle)


def is_counter(name: str, key: str | None, bundle: Bundle) -> bool:
    """Whether it is a whole number that TensorFlow keeps next to a model, and called like one."""
    entry = bundle.entries.get(key or "")
    return name in COUNTERS and entry is not None and not entry.shape and DTYPES.get(entry.dtype, "").startswith("int")


def follows_variable(key: str, bundle: Bundle) -> bool:
    """Whether it is called like a variable here and a slot of it: ``attn/query/kernel/adam_m``, ``q_slot_v``."""
    match = SLOT_NAME.fullmatch(key)
    owner = bundle.entries.get(match[1]) if match else None
    shape = bundle.entries[key].shape
    return owner is not None and (shape == owner.shape or len(shape) <= 1)


def has_scope(key: str, bundle: Bundle) -> bool:
    """Whether it is called like ``Adam/m/attn/query/kernel``."""
    first, *rest = key.split("/")
    variables = ("/".join(rest[start:]) for start in range(len(rest)))
    return OPTIMIZER_SCOPE.fullmatch(first) is not None and any(name in bundle.entries for name in variables)


def place_by_key(result: Arrangement, bundle: Bundle, keys: Iterable[str]) -> None:
    """Arrays that no object owns: their keys are their names (TensorFlow 1, and checkpoints without a graph)."""
    limits = bundle.prefix.limits
    for key in keys:
        if bundle.entries[key].dtype not in DTYPES:
            continue
        if SLOT in key or is_slot(key, bundle):
            result.others.append(bundle.variable(key, "optimizer"))
            continue
        if is_counter(key.removesuffix(KEY_END), key, bundle):
            result.others.append(bundle.variable(key, "counter"))
            continue
        *path, name = key.removesuffix(KEY_END).split("/")
        if len(path) > limits.chain:
            most = limits.chain
            raise ReadError(f"{bundle.prefix}: '{key}' has more than {most} levels. {way_on(limits)}.")
        variables = result.root.at(path).variables
        variables[name if name not in variables else key] = bundle.variable(key)
