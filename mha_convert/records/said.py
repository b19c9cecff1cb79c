"""What the verbs answer with: an inspection, a graph, an explanation, a list of keys."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .face import Face
from .graph import Graph
from .layer import Findings
from .plan import LayerPlan, Plan
from .source import Checkpoint

if TYPE_CHECKING:
    from ..options import Options


@dataclass(frozen=True, slots=True, repr=False)
class Inspection(Face):
    """What is in a file: the checkpoint, and the layers that were found in it."""

    source: Checkpoint
    findings: Findings


@dataclass(frozen=True, slots=True, repr=False)
class GraphInspection(Face):
    """Which layer of a model is called with what."""

    source: Checkpoint
    graph: Graph


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation(Face):
    """How layers of a source are laid out; ``options`` are those that were asked for."""

    source: Checkpoint
    options: "Options"
    plans: tuple[LayerPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeyList(Face):
    """Every tensor that a conversion of the source would write."""

    source: Checkpoint
    plan: Plan
