"""Calls as Keras 1 and 2 write them: nested lists, in which ``[layer, call, output, keywords]`` is a tensor.

The first argument is written as a tree of tensors, and every tensor of it carries the other arguments, by name. One
tensor is written as a list of one, except for the layers that call a function of TensorFlow.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..records.graph import Call, Constant, Value
from .operations import OF_TENSORFLOW
from .plain import MalformedError, numbers, plain

CONSTANT = "_CONSTANT_VALUE"
SLICE = frozenset(("start", "stop", "step"))
OF_SLICES = "SlicingOpLambda"


def accepts(node: Any) -> bool:
    """Whether a call is written in this form."""
    return isinstance(node, list | dict) and bool(node)


def is_tensor(data: Any) -> bool:
    """Whether a list stands for a tensor, or for a constant in its place."""
    if not isinstance(data, list | tuple) or len(data) not in (3, 4):
        return False
    return isinstance(data[0], str) and type(data[1]) is int and (data[0] == CONSTANT or type(data[2]) is int)


def tensor(data: Any) -> Value | None:
    """The value of such a list."""
    return Value(data[0], data[1], data[2]) if is_tensor(data) and data[0] != CONSTANT else None


def read(node: Any, layer: str, number: int, class_name: str) -> tuple[Call, dict[Value, Any]]:
    """One call, and what it says of the tensors: in this form nothing."""
    keywords: list[Mapping[str, Any]] = []
    tree = first_argument(node, keywords)
    if any(other != keywords[0] for other in keywords[1:]):
        raise MalformedError("the tensors of one call carry different arguments")
    alone = isinstance(tree, tuple) and len(tree) == 1 and not (class_name in OF_TENSORFLOW and not is_tensor(node))
    given = plain(with_slices(keywords[0]) if class_name == OF_SLICES else keywords[0], tensor) if keywords else {}
    return Call(layer, number, (tree[0] if alone else tree,), MappingProxyType(dict(given))), {}


def first_argument(node: Any, keywords: list[Mapping[str, Any]], depth: int = 0) -> Any:
    """The tree of tensors; what each carries is added to ``keywords``."""
    if depth > 10:
        raise MalformedError("the first argument of a call is nested more than 10 deep")
    if is_tensor(node):
        carried = node[3] if len(node) == 4 else {}
        if not isinstance(carried, dict):
            raise MalformedError("the arguments of a call are not an object")
        keywords.append(carried)
        return constant(node[2]) if node[0] == CONSTANT else tensor(node)
    if isinstance(node, dict):
        return MappingProxyType({key: first_argument(part, keywords, depth + 1) for key, part in node.items()})
    if isinstance(node, list | tuple) and node:
        return tuple([first_argument(part, keywords, depth + 1) for part in node])
    raise MalformedError("a call is neither a list of tensors nor an object with arguments")


def constant(value: Any) -> Any:
    """A number as it is, lists of numbers as an array whose dtype the file does not say."""
    return Constant(numbers(value, None), None) if isinstance(value, list) else plain(value)


def with_slices(keywords: Mapping[str, Any]) -> Mapping[str, Any]:
    """Slices, which ``SlicingOpLambda`` writes as bare objects, under the name that Keras 3 gives them."""

    def marked(data: Any) -> Any:
        is_slice = isinstance(data, dict) and data.keys() == SLICE
        return {"class_name": "__slice__", "config": data} if is_slice else data

    found = dict(keywords)
    for name, data in keywords.items():
        found[name] = (
            [marked(item) for item in data] if isinstance(data, list) and not is_tensor(data) else marked(data)
        )
    return found
