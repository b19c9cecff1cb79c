"""A whole model as PyTorch source: its classes, the lines of each ``forward``, and what was shown of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from .face import Face
from .graph import Call, Graph, GraphLayer, TensorSpec, Value
from .layer import Layer
from .plan import LayerPlan, Plan
from .proof import CheckedTensor, Comparison, Ledger
from .source import Checkpoint

Order = Literal["last", "first"]  # where the channels are: behind the other axes, as in Keras, or behind the batch


@dataclass(frozen=True, slots=True)
class Term:
    """A tensor in the source: an expression, what it is in Keras' axes, and the order that its axes are in."""

    text: str
    spec: TensorSpec
    order: Order = "last"

    @property
    def rank(self) -> int:
        """How many axes it has, batch included."""
        return len(self.spec.shape or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCall:
    """One call as statements of ``forward``; none where its output is its input.

    ``arguments`` is the call's tensors as the statements name them, ``results`` what holds each output after them.
    """

    call: Call
    statements: tuple[str, ...]
    arguments: Mapping[Value, Term]
    results: Mapping[Value, Term]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A module that a class makes in its constructor: an attribute, and what it is made of.

    Exactly one of ``plan`` and ``model`` is there; ``name`` is the layer's own.
    """

    attribute: str
    name: str
    plan: LayerPlan | None = None
    model: "ModelClass | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelClass:
    """One graph as a class.

    Args:
        name: of the class.
        graph: with its masks explicit.
        layers: of the graph and of those nested in it.
        facts: of every value of the graph.
        members: in the order of the calls.
        parameters: of ``forward``: the inputs in the order of ``leaves(graph.inputs)``.
        calls: in the order of the graph.
        returned: the expression of what ``forward`` returns.
    """

    name: str
    graph: Graph
    layers: Mapping[GraphLayer, Layer]
    facts: Mapping[Value, TensorSpec]
    members: tuple[Member, ...]
    parameters: tuple[Term, ...]
    calls: tuple[WrittenCall, ...]
    returned: str

    def walk(self) -> Iterator["ModelClass"]:
        """This class after those that it uses, each once."""
        seen: set[int] = set()
        for member in self.members:
            for inner in member.model.walk() if member.model is not None else ():
                if id(inner) not in seen:
                    seen.add(id(inner))
                    yield inner
        yield self


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """A whole model before any array is read: its classes, the tensors of its ``state_dict``, and the source.

    ``is_changed`` says whether its outputs are others than Keras': without a last softmax or sigmoid.
    """

    model: ModelClass
    weights: Plan
    source: str
    is_changed: bool = False
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class UseOfFiles:
    """One thing that was tried with the finished files in a fresh process with PyTorch alone; ``fact`` says how."""

    what: str
    fact: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelReport(Face):
    """What the conversion of a whole model did. ``reference`` is what it was compared with, or None.

    Args:
        source: that was read.
        folder: that was written.
        plan: classes, tensors and source.
        reference: in words.
        ledgers: where each layer's numbers went.
        stored: the statement on each tensor, bit for bit.
        comparisons: each call alone, and every value of the whole graph.
        uses: what was tried with the files.
        notes: what the user should know.
    """

    source: Checkpoint
    folder: str
    plan: ModelPlan
    reference: str | None
    ledgers: Mapping[str, Ledger]
    stored: tuple[CheckedTensor, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    uses: tuple[UseOfFiles, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def proven(self) -> bool:
        """True where something was compared, everything passed, and the files were tried."""
        return bool(self.comparisons) and bool(self.uses) and all(item.passed for item in self.comparisons)
