"""Variables that no attribute leads to: where do they belong?

Keras 3 exports, and checkpoints of its optimizer, list the model's variables without its layers. What is left are the
operations that read them (in a SavedModel), their full names (``attn/query/kernel``), which Keras 3 does not make
unique (``block/kernel`` for all of a custom layer), and their order. Operations and unique names decide. Order only
proposes: all parts of a layer in a row become that layer with a doubt, and kernels that it does not place become a
group with a doubt, which no conversion passes over silently.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count

from ...classes import COMPOSITE, LayerClass, composite_with, part_names
from ...records.source import Variable
from ..tree import Node

Names = tuple[str, ...]
Parts = dict[str, list[Variable]]  # kernel and bias by the part's name
FORMS = tuple({row.parts: row for row in reversed(COMPOSITE)}.values())  # the first class of each
PARTS = part_names(COMPOSITE)
LEAST_RANK = min(len(part.axes) for row in COMPOSITE for part in row.constant_parts)
FIRST_AXES = " or ".join(dict.fromkeys(row.parts[0].outputs[0] for row in COMPOSITE))
NARROWED = re.compile(r"lora_kernel_[ab]|kernel_(scale|zero)|quantized_kernel|g_idx")
INTEGERS = ("int8", "uint8")
ASSUMED = "nothing in this file says which of its kernels is {parts}: their order and shapes are those of Keras' {name}"
UNCLEAR = (
    "{count} kernels with a {axes} axis share names here, and their order does not show which layer each belongs to"
)
PARTIAL = "the file holds no {parts} kernel next to {others}: frozen and so not listed, or lost"
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
    def part(self) -> str | None:
        """Which part of a layer it says that it belongs to."""
        return self.scope[-1] if self.scope and self.scope[-1] in PARTS else None

    @property
    def owner(self) -> Names:
        """The layer that it says that it belongs to."""
        return self.scope[:-1] if self.part else self.scope

    @property
    def is_kernel(self) -> bool:
        """Whether it can be the kernel of a part."""
        return len(self.variable.shape) >= LEAST_RANK and self.name in ("kernel", "variable")

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
        places = [(place, PARTS.index(item.part)) for place, item in found if item.part]
        numbers, parts = [place for place, _ in places], [part for _, part in places]
        in_a_row = not places or (numbers[-1] - numbers[0] == len(numbers) - 1 and parts == sorted(parts))
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
            put(node.at([item.part] if item.part else []), item.name, item.variable)
        node.doubt = doubt
        return
    # Names that repeat: layers by the order of their variables, and a doubt for kernels that it does not place.
    layers, rest = split(items)
    kernels = sum(item.is_kernel for item in rest)
    detached = any(item.is_narrowed or item.part for item in rest)
    node = root.at(owner or ((NO_LAYER,) if kernels or detached else ()))
    for item in rest:
        put(node, item.name, item.variable)
    node.doubt = UNCLEAR.format(count=kernels, axes=FIRST_AXES) if kernels else DETACHED if detached else None
    for number, (row, layer) in enumerate(layers):
        own = node.at([f"{row.noun}_{number}" if number else row.noun])
        own.doubt = ASSUMED.format(parts=enumerated([part.role for part in row.constant_parts]), name=row.name)
        for part, variables in layer.items():
            for kind, variable in zip(("kernel", "bias"), variables, strict=False):
                own.at([part]).variables[kind] = variable


def enumerated(words: Sequence[str]) -> str:
    """``"query, key and value"``, for example."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def incomplete(items: Iterable[Listed]) -> str | None:
    """What is missing of a layer that names some of the parts of its class."""
    present = {item.part for item in items if item.is_kernel and item.part}
    row = composite_with(min(present)) if present else None
    missing = [name for name in part_names([row] if row else []) if name not in present]
    if missing:
        return PARTIAL.format(parts=" and no ".join(missing), others=", ".join(sorted(present)))
    detached = any(item.is_narrowed and not (item.part and present) for item in items)
    return DETACHED if detached else None


def split(items: Sequence[Listed]) -> tuple[list[tuple[LayerClass, Parts]], list[Listed]]:
    """Layers in a row, and the variables between them; no layers at all where some kernel would be left over."""
    layers: list[tuple[LayerClass, Parts]] = []
    rest: list[Listed] = []
    at = 0
    while at < len(items):
        layer = next(((row, found) for row in FORMS if (found := parts_at(items[at:], row))), None)
        if layer:
            layers.append(layer)
            at += sum(map(len, layer[1].values()))
        elif items[at].is_kernel or items[at].is_narrowed or items[at].part:
            return [], list(items)
        else:
            rest.append(items[at])
            at += 1
    return layers, rest


def parts_at(items: Sequence[Listed], row: LayerClass) -> Parts:
    """The parts of a layer that ``items`` begin with, all with biases or all without; empty where they do not."""
    at = 0
    found: Parts = {}
    for part in row.constant_parts:
        if at == len(items) or not items[at].is_kernel or items[at].part not in (None, part.name):
            return {}
        kernel = items[at].variable
        following = items[at + 1] if at + 1 < len(items) else None
        has_bias = (
            following is not None
            and following.name in ("bias", "variable")
            and following.variable.shape == kernel.shape[len(part.inputs) :]
            and following.part in (None, part.name)
        )
        found[part.name] = [kernel, following.variable] if has_bias and following else [kernel]
        at += len(found[part.name])
    with_bias = {len(variables) for variables in found.values()}
    return found if len(with_bias) == 1 and row.agree(kernel.shape for kernel, *_ in found.values()) else {}
