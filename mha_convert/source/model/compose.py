"""From a graph to classes: which attributes, which lines, which names. Nothing is read from the file's arrays.

``x`` is the value that only the next call takes; every other value has the name of the layer that makes it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import LayerError, shortened
from ...graph.facts import applied, facts, nested_inputs
from ...graph.masks import MASK
from ...layers.of_model import ATTENTION
from ...layouts.plain import BY_INPUT, BY_MASK, LAY_OUT
from ...layouts.plain.attention import how_called
from ...layouts.plain.attention import lay_out as attention_plan
from ...layouts.plain.constants import buffer
from ...records.graph import Call, Constant, Graph, GraphLayer, TensorSpec, Value, leaves
from ...records.layer import AttentionLayer, Layer
from ...records.model import Member, ModelClass, Term, WrittenCall
from ...records.plan import LayerPlan
from ..attention import defined_names
from .lines import LINES
from .names import Names, attributes, class_identifier, identifier
from .use import Use, Written, last

CHAIN = "x"


@dataclass(slots=True)
class Composer:
    """What all classes of one model share."""

    layers: Mapping[GraphLayer, Layer]
    layout: str | None
    classes: Names
    finished: dict[int, ModelClass] = field(default_factory=dict)
    paths: dict[GraphLayer, str] = field(default_factory=dict)

    def compose(self, graph: Graph, name: str, prefix: str) -> ModelClass:
        """One graph as a class; ``prefix`` is what stands before the keys of its modules."""
        return Body(self, graph, prefix).model_class(self.classes.fresh(name))


@dataclass(slots=True)
class Body:
    """One class on the way."""

    composer: Composer
    graph: Graph
    prefix: str
    attributes: Names = field(default_factory=attributes)
    locals: Names = field(default_factory=lambda: Names((CHAIN, *defined_names())))
    members: dict[GraphLayer, Member] = field(default_factory=dict)
    terms: dict[Value, Term] = field(default_factory=dict)
    facts: dict[Value, TensorSpec] = field(default_factory=dict)
    constants: dict[Constant, Member] = field(default_factory=dict)

    def model_class(self, name: str) -> ModelClass:
        """The whole class."""
        self.facts = facts(self.graph, self.composer.layers)
        parameters = tuple(self.parameters())
        self.terms = dict(zip(leaves(self.graph.inputs), parameters, strict=True))
        chained = set(self.chained())
        calls = tuple(self.written(call, chained) for call in self.graph.calls)
        return ModelClass(
            name=name,
            graph=self.graph,
            layers=self.composer.layers,
            facts=self.facts,
            members=(*self.members.values(), *self.constants.values()),
            parameters=parameters,
            calls=calls,
            returned=self.returned(self.graph.outputs),
        )

    def parameters(self) -> Iterator[Term]:
        """The arguments of ``forward``, called after the input layers, or the keys that the user passes."""
        tree = self.graph.inputs
        keys = (
            {value: key for key, value in tree.items() if isinstance(value, Value)} if isinstance(tree, Mapping) else {}
        )
        for value in leaves(tree):
            yield Term(self.locals.fresh(identifier(keys.get(value, value.layer), "inputs")), self.facts[value])

    def chained(self) -> Iterator[Value]:
        """Values that the next call alone takes, or ``forward`` returns right after they are made."""
        used: dict[Value, list[int]] = {}
        for number, call in enumerate(self.graph.calls):
            for value in call.values:
                used.setdefault(value, []).append(number)
        for value in leaves(self.graph.outputs):
            used.setdefault(value, []).append(len(self.graph.calls))
        for number, call in enumerate(self.graph.calls):
            own = [value for value in used if (value.layer, value.call) == (call.layer, call.number)]
            is_chained = len(own) == 1 and set(used[own[0]]) == {number + 1}
            if is_chained and self.facts[own[0]].dtype != "bool":  # a mask has a name
                yield own[0]

    def written(self, call: Call, chained: set[Value]) -> WrittenCall:
        """The statements of one call."""
        layer = self.graph.layers[call.layer]
        arguments = {value: self.terms[value] for value in call.values}
        outputs = [value for value in self.facts if (value.layer, value.call) == (call.layer, call.number)]
        found = self.line(layer, call) if layer.graph is None else self.nested_call(layer, call)
        statements, results = self.bound(found, outputs, chained)
        self.terms.update(results)
        return WrittenCall(call=call, statements=statements, arguments=arguments, results=results)

    def line(self, layer: GraphLayer, call: Call) -> Written:
        """The expression of a call, by the row of its kind."""
        item = self.composer.layers[layer]
        use = Use(*self.module(layer, item, call), constant=self.constant)
        result = applied(LINES, item, call, self.terms.__getitem__, use)
        return result if isinstance(result, Written) else Written(result)

    def module(self, layer: GraphLayer, item: Layer, call: Call) -> tuple[str, LayerPlan | None]:
        """How the class reaches a layer's module, which it makes the first time; nothing for an expression."""
        if layer in self.composer.paths:  # made by a model inside this one, or by an earlier call
            return self.reached(layer), self.plan_of(layer)
        if layer not in self.members:
            is_attention = item.kind in ATTENTION
            if item.kind not in LAY_OUT and not is_attention:
                return "", None
            own: Any = item
            attribute = self.attributes.fresh(identifier(layer.name.rpartition("/")[2] or layer.name, "layer"))
            prefix = f"{self.prefix}{attribute}."
            options: dict[str, Any] = {"spec": self.facts[call.values[0]]} if item.kind in BY_INPUT else {}
            options |= {"is_masked": self.has_mask(layer)} if item.kind in BY_MASK else {}
            plan = self.attention(layer, own, prefix) if is_attention else LAY_OUT[item.kind](own, prefix, **options)
            if plan is None:
                return "", None
            self.members[layer] = Member(attribute=attribute, name=layer.name, plan=plan)
            self.composer.paths[layer] = f"{self.prefix}{attribute}"
        return f"self.{self.members[layer].attribute}", self.members[layer].plan

    def reached(self, layer: GraphLayer) -> str:
        """The way from this class to a module that was made before, here or in a model inside it."""
        path = self.composer.paths[layer]
        if not path.startswith(self.prefix):
            raise LayerError(
                f"Layer '{shortened(layer.name, 80)}' is shared by models of which none is inside the other. "
                "This has no rule yet; build one model without the nesting from the same layers, and save it."
            )
        return f"self.{path.removeprefix(self.prefix)}"

    def plan_of(self, layer: GraphLayer) -> LayerPlan | None:
        """The plan of a module that was made before."""
        if layer in self.members:
            return self.members[layer].plan
        classes = [found for each in self.composer.finished.values() for found in each.walk()]
        by_path = {f"{m.plan.prefix}": m.plan for each in classes for m in each.members if m.plan is not None}
        return by_path.get(f"{self.composer.paths[layer]}.")

    def constant(self, constant: Constant) -> str:
        """An array that stands in the graph: a number as it is, more as a buffer that is stored with the weights."""
        if constant.array.ndim == 0:
            return repr(constant.array.item())
        if constant in self.constants:
            return f"self.{self.constants[constant].attribute}"
        attribute = self.attributes.fresh("constant")
        prefix = f"{self.prefix}{attribute}"
        self.constants[constant] = Member(attribute=attribute, name=attribute, plan=buffer(constant, prefix))
        return f"self.{attribute}"

    def attention(self, layer: GraphLayer, item: AttentionLayer, prefix: str) -> LayerPlan:
        """Attention's module depends on how it is called, too."""
        calls = [call.keywords for call in self.graph.calls if call.layer == layer.name]
        return attention_plan(item, prefix, self.composer.layout, how_called(item, calls))

    def has_mask(self, layer: GraphLayer) -> bool:
        """Whether some call of the layer has a mask."""
        return any(call.layer == layer.name and MASK in call.keywords for call in self.graph.calls)

    def nested_call(self, layer: GraphLayer, call: Call) -> Written:
        """A call of a model inside this one."""
        graph: Any = layer.graph
        if layer not in self.members:
            attribute = self.attributes.fresh(identifier(layer.name.rpartition("/")[2] or layer.name, "model"))
            known = self.composer.finished.get(id(graph))
            if known is None:
                name = class_identifier(layer.name.rpartition("/")[2], "Model")
                known = self.composer.compose(graph, name, f"{self.prefix}{attribute}.")
                self.composer.finished[id(graph)] = known
            self.members[layer] = Member(attribute=attribute, name=layer.name, model=known)
        arguments = ", ".join(self.terms[value].text for value in nested_inputs(call, graph))
        text = f"self.{self.members[layer].attribute}({arguments})"
        several = isinstance(graph.outputs, Mapping) and len(list(leaves(graph.outputs))) > 1
        single = isinstance(graph.outputs, tuple | Mapping) and len(list(leaves(graph.outputs))) == 1
        text = f"{text}.values()" if several else text
        return Written(
            f"next(iter({text}.values()))"
            if isinstance(graph.outputs, Mapping) and single
            else f"{text}[0]"
            if single
            else text
        )

    def bound(
        self, found: Written, outputs: Sequence[Value], chained: set[Value]
    ) -> tuple[tuple[str, ...], dict[Value, Term]]:
        """The statements that give each output a name, and the names."""
        is_input = not found.outputs and len(outputs) == 1 and found.text.isidentifier()
        if is_input and (found.text != CHAIN or outputs[0] in chained):
            return (), {outputs[0]: Term(found.text, self.facts[outputs[0]], found.order)}
        temporary = [self.locals.fresh(name) for name in found.locals]
        names = [CHAIN if value in chained else self.local(value, outputs) for value in outputs]
        results = {
            value: Term(name, self.facts[value], found.order) for value, name in zip(outputs, names, strict=True)
        }
        statements = tuple(text.format(*temporary) for text in found.statements)
        rights = [text.format(*temporary) for text in found.outputs] or [found.text]
        if statements and len(names) > 1:  # what the statements bind has names of its own, so the order is free
            return (*statements, *(f"{name} = {part}" for name, part in zip(names, rights, strict=True))), results
        return (*statements, f"{', '.join(names)} = {', '.join(rights)}"), results

    def local(self, value: Value, outputs: Sequence[Value]) -> str:
        """A name of its own for a value."""
        name = identifier(value.layer.rpartition("/")[2] or value.layer, "value")
        return self.locals.fresh(f"{name}_{value.output}" if len(outputs) > 1 and value.output else name)

    def returned(self, tree: Any, *, is_inside: bool = False) -> str:
        """What ``forward`` returns: the tree of the outputs, in Keras' order of axes."""
        if isinstance(tree, Value):
            return last(self.terms[tree])
        if isinstance(tree, Mapping):
            items = (f"{key!r}: {self.returned(tree[key], is_inside=True)}" for key in sorted(tree))
            return f"{{{', '.join(items)}}}"
        parts = [self.returned(item, is_inside=True) for item in tree]
        text = f"{parts[0]}," if len(parts) == 1 else ", ".join(parts)
        return f"({text})" if is_inside or not parts else text
