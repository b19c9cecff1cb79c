"""The tree of a file's groups while it is being read; mutable here, frozen into ``Group`` afterwards."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..records.source import Variable


@dataclass
class Node:
    """A group as it is in the file.

    ``label`` is the layer's name where the file holds it; ``doubt`` says why its arrays may not be what they
    seem.
    """

    label: str | None = None
    doubt: str | None = None
    variables: dict[str, Variable] = field(default_factory=dict)
    children: dict[str, "Node"] = field(default_factory=dict)

    def at(self, path: Iterable[str]) -> "Node":
        """The node at ``path`` below this one, made where it is missing."""
        node = self
        for part in path:
            node = node.children.setdefault(part, Node())
        return node

    def walk(self) -> Iterator["Node"]:
        """This node and all below it."""
        yield self
        for child in self.children.values():
            yield from child.walk()

    def has_variables(self) -> bool:
        """Whether any variable is here or below."""
        return any(node.variables for node in self.walk())
