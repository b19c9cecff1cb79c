"""Variables that no attribute leads to: where do they belong?

Keras 3 exports, and checkpoints of its optimizer, list the model's variables without its layers. What is left are the
operations that read them (in a SavedModel), their full names (``attn/query/kernel``), which Keras 3 does not make
unique (``block/kernel`` for all of a custom layer), and their order. Operations and unique names decide. Order only
proposes: four projections in a row become a layer with a doubt, and kernels that it does not place become a group with
a doubt, which no conversion passes over silently.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count

from ...records.source import Variable
from ..tree import Node

Names = tuple[str, ...]
Shape = tuple[int, ...]
ROLES = ("query", "key", "value", "attention_output")
NARROWED = re.compile(r"lora_kernel_[ab]|kernel_(scale|zero)|quantized_kernel|g_idx")
INTEGERS = ("int8", "uint8")
ASSUMED = (
    "nothing in this file says which of its kernels is query, key, value and output: their order and shapes are those "
    "of Keras' MultiHeadAttention"
)
UNCLEAR = (
    "{count} kernels with a heads axis share names here, and their order does not show which layer each belongs to"
)
PARTIAL = "the file holds no {roles} kernel next to {others}: frozen and so not listed, or lost"
NO_LAYER = "(variables without a layer)"
SCATTERED = "its variables are not listed in Keras' order and in a row, so they may be of two layers with one name"
DETACHED = "it holds a LoRA adapter or a quantized kernel, and nothing says of which layer"


@dataclass(frozen=True)
class Listed:
    """One variable of a list: its full name, and the operation that reads it, without the model in front."""

    variable: Variable
    full_name: str
    operation: Names = ()

    @property
    def scope(self) -> Names:
        """What is in front of the variable's own name."""
        return tuple(filter(None, self.full_name.split("/")[:-1]))

    @property
    def name(self) -> str:
        """The variable's own name: ``kernel``, ``bias``."""
        return self.full_name.rpartition("/")[2] or "variable"

    @property
    def role(self) -> str | None:
        """Which projection it says that it belongs to."""
        return self.scope[-1] if self.scope and self.scope[-1] in ROLES else None

    @property
    def owner(self) -> Names:
        """The layer that it says that it belongs to."""
        return self.scope[:-1] if self.role else self.scope

    @property
    def is_kernel(self) -> bool:
        """Whether it has a heads axis."""
        return len(self.variable.shape) >= 3 and self.name in ("kernel", "variable")

    @property
    def is_narrowed(self) -> bool:
        """Whether it belongs to a kernel that is not the whole truth."""
        integer = self.variable.dtype in INTEGERS and len(self.variable.shape) > 1
        return integer or NARROWED.fullmatch(self.name) is not None


def tree_of(listed: Sequence[Listed]) -> Node:
    """The layers as a tree."""
    root = Node()
    by_operation = [item for item in listed if item.operation]
    better = names_of_operations(by_operation)
    for item in by_operation:
        put(root.at(better[item.operation]), item.name, item.variable)
    by_name: dict[Names, list[tuple[int, Listed]]] = {}
    for place, item in enumerate(listed):
        if not item.operation:
            by_name.setdefault(item.owner, []).append((place, item))
    others = Node()
    for owner, found in by_name.items():
        places = [(place, ROLES.index(item.role)) for place, item in found if item.role]
        numbers, roles = [place for place, _ in places], [role for _, role in places]
        in_a_row = not places or (numbers[-1] - numbers[0] == len(numbers) - 1 and roles == sorted(roles))
        place_owner(others, owner, [item for _, item in found], in_a_row=in_a_row)
    graft(root, others)
    return root


def graft(root: Node, tree: Node) -> None:
    """Put another tree next to the layers that are known already; none of its layers becomes a part of theirs."""
    for name, variable in tree.variables.items():
        put(root, name, variable)
    for name, node in tree.children.items():
        free = (other for other in chain([name], (f"{name} ({n})" for n in count(2))) if other not in root.children)
        root.children[next(free)] = node


def put(node: Node, name: str, variable: Variable) -> None:
    """Add a variable; one whose name is taken keeps its key in the checkpoint next to it."""
    node.variables[name if name not in node.variables else f"{name} of {variable.path}"] = variable


def names_of_operations(items: Sequence[Listed]) -> dict[Names, Names]:
    """Each operation's place, in the words of the variables' full names where the two belong to each other alone.

    Operations are numbered when a model is traced (``attn_1/query``); where ``attn/query`` is the only scope of their
    variables, and theirs alone, that is the layer's name.
    """
    theirs: dict[Names, set[Names]] = {}
    ours: dict[Names, set[Names]] = {}
    for item in items:
        for size in range(1, len(item.operation) + 1):
            scope = item.scope[:size] if len(item.scope) == len(item.operation) else ()
            theirs.setdefault(item.operation[:size], set()).add(scope)
            ours.setdefault(scope, set()).add(item.operation[:size])

    def name(operation: Names) -> Names:
        scopes = theirs[operation]
        scope = next(iter(scopes))
        return scope if len(scopes) == 1 and scope and len(ours[scope]) == 1 else operation

    return {item.operation: merged(item.operation, name) for item in items}


def merged(operation: Names, name: Callable[[Names], Names]) -> Names:
    """Level by level the better name."""
    return tuple(name(operation[:size])[-1] for size in range(1, len(operation) + 1))


def place_owner(root: Node, owner: Names, items: Sequence[Listed], *, in_a_row: bool) -> None:
    """The variables that name one layer, or several of one name; those of one layer are listed in a row."""
    # Unique names: one layer, whole or with a doubt.
    times = Counter(item.full_name for item in items)
    if all(times[item.full_name] == 1 and item.full_name for item in items):
        doubt = incomplete(items) or (None if in_a_row else SCATTERED)
        node = root.at(owner or ((NO_LAYER,) if doubt else ()))
        for item in items:
            put(node.at([item.role] if item.role else []), item.name, item.variable)
        node.doubt = doubt
        return
    # Names that repeat: layers by the order of their variables, and a doubt for kernels that it does not place.
    layers, rest = split(items)
    kernels = sum(item.is_kernel for item in rest)
    detached = any(item.is_narrowed or item.role for item in rest)
    node = root.at(owner or ((NO_LAYER,) if kernels or detached else ()))
    for item in rest:
        put(node, item.name, item.variable)
    node.doubt = UNCLEAR.format(count=kernels) if kernels else DETACHED if detached else None
    for number, layer in enumerate(layers):
        own = node.at([f"attention_{number}" if number else "attention"])
        own.doubt = ASSUMED
        for role, variables in layer.items():
            for kind, variable in zip(("kernel", "bias"), variables, strict=False):
                own.at([role]).variables[kind] = variable


def incomplete(items: Iterable[Listed]) -> str | None:
    """What is missing of a layer that names some of the four projections."""
    present = {item.role for item in items if item.is_kernel and item.role}
    missing = [role for role in ROLES if role not in present]
    if present and missing:
        return PARTIAL.format(roles=" and no ".join(missing), others=", ".join(sorted(present)))
    detached = any(item.is_narrowed and not (item.role and present) for item in items)
    return DETACHED if detached else None


def split(items: Sequence[Listed]) -> tuple[list[dict[str, list[Variable]]], list[Listed]]:
    """Layers in a row, and the variables between them; no layers at all where some kernel would be left over."""
    layers: list[dict[str, list[Variable]]] = []
    rest: list[Listed] = []
    at = 0
    while at < len(items):
        layer = attention_at(items[at:])
        if layer:
            layers.append(layer)
            at += sum(map(len, layer.values()))
        elif items[at].is_kernel or items[at].is_narrowed or items[at].role:
            return [], list(items)
        else:
            rest.append(items[at])
            at += 1
    return layers, rest


def attention_at(items: Sequence[Listed]) -> dict[str, list[Variable]]:
    """The four projections that ``items`` begin with, all with biases or all without; empty where they do not."""
    at = 0
    found: dict[str, list[Variable]] = {}
    for role in ROLES:
        if at == len(items) or not items[at].is_kernel or items[at].role not in (None, role):
            return {}
        kernel = items[at].variable
        own = kernel.shape[2:] if role == ROLES[-1] else kernel.shape[1:]
        following = items[at + 1] if at + 1 < len(items) else None
        has_bias = (
            following is not None
            and following.name in ("bias", "variable")
            and following.variable.shape == own
            and following.role in (None, role)
        )
        found[role] = [kernel, following.variable] if has_bias and following else [kernel]
        at += len(found[role])
    shapes = [found[role][0].shape for role in ROLES]
    with_bias = {len(variables) for variables in found.values()}
    return found if len(with_bias) == 1 and are_projections(*shapes) else {}


def are_projections(query: Shape, key: Shape, value: Shape, output: Shape) -> bool:
    """Whether kernels of these shapes make one layer, grouped heads included."""
    ranks = len(query) == len(key) == len(value) == 3
    return (
        ranks
        and key[1] == value[1]
        and query[1] % key[1] == 0
        and query[2] == key[2]
        and ((query[1], value[2]) == tuple(output[:2]))
    )
