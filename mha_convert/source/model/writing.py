"""Classes as the text of ``model.py``, which needs torch alone."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...layers.plain.activations import Activation
from ...layouts.plain.attention import OF_MODELS
from ...layouts.plain.constants import KIND as CONSTANT
from ...records.graph import leaves
from ...records.model import Member, ModelClass, Term
from ...records.plan import ModuleSpec
from ..attention import defined_names, docstring, imports, needed, text_literal, used_names
from .fitting import WIDTH, fitted
from .lines.activations import function_of
from .names import DTYPE
from .shape_words import shape_text

# The arguments that one writes without their names.
POSITIONAL: Mapping[str, int] = {
    "Linear": 2,
    "Embedding": 2,
    "LayerNorm": 1,
    "RMSNorm": 1,
    "Dropout": 1,
    "AlphaDropout": 1,
    "Conv1d": 3,
    "BatchNorm1d": 1,
    "BatchNorm2d": 1,
    "BatchNorm3d": 1,
    "GroupNorm": 2,
    "LSTM": 2,
    "GRU": 2,
    "RNN": 2,
    "KerasRNN": 2,
    "KerasLSTM": 2,
    "KerasGRU": 2,
    "KerasGRUResetBefore": 2,
    "Bidirectional": 2,
    "MultiheadAttention": 2,
    **dict.fromkeys(OF_MODELS, 1),
    "EinsumDense": 1,
    "AdditiveScores": 1,
    "DeviationNorm": 1,
    "Normalization": 1,
    "Denormalization": 1,
    "Rescaling": 1,
}
MOST_LISTED = 6  # tensors that are annotated one by one
OF_DTYPE = re.compile(rf"\bself\.{DTYPE}\b")
OMITTED: Mapping[str, Mapping[str, Any]] = {"MultiheadAttention": {"dropout": 0.0, "bias": True}}


def model_source(model: ModelClass, heading: str) -> str:
    """The whole file.

    Args:
        model: the outermost class.
        heading: the text of the module's docstring.
    """
    classes = [class_text(each) for each in model.walk()]
    # No name of the file's is that of a class or function of ``modules``: what is called so is copied.
    copied = used_names(ast.parse("\n\n".join(classes))) & defined_names()
    code = "\n\n\n".join(text.rstrip() for text in (*needed(copied), *classes))
    return f"{docstring(heading)}\n\n{imports(code)}\n\n\n{code}\n"


def class_text(model: ModelClass) -> str:
    """One class: its modules, and ``forward``."""
    lines = [f"class {model.name}(nn.Module):", f"    {docstring(summary(model))}", ""]
    if model.members:
        lines += ["    def __init__(self) -> None:", "        super().__init__()"]
        lines += [line for member in model.members for line in fitted(construction(member), 2)]
        lines.append("")
    lines += [*dtype_property(model)] if uses_dtype(model) else []
    lines += [*signature(model), f"        {docstring(arguments(model))}"]
    lines += [line for call in model.calls for statement in call.statements for line in fitted(statement, 2)]
    return "\n".join([*lines, *fitted(f"return {model.returned}", 2)])


def uses_dtype(model: ModelClass) -> bool:
    """Whether a statement makes floats of other numbers."""
    return any(OF_DTYPE.search(statement) for call in model.calls for statement in call.statements)


def dtype_property(model: ModelClass) -> Iterator[str]:
    """The dtype of the first tensor that the class has."""
    first = next(first_tensors(model), None)
    yield "    @property"
    yield f"    def {DTYPE}(self) -> torch.dtype:"
    yield '        """What the numbers are computed in."""'
    yield f"        return {f'self.{first}.dtype' if first else 'torch.get_default_dtype()'}"
    yield ""


def first_tensors(model: ModelClass) -> Iterator[str]:
    """The way to each module's first tensor."""
    for member in model.members:
        if member.model is not None:
            yield from (f"{member.attribute}.{path}" for path in first_tensors(member.model))
        elif member.plan is not None and member.plan.rules:
            target = member.plan.rules[0].target
            yield f"{member.attribute}.{target}" if target else member.attribute


def summary(model: ModelClass) -> str:
    """The first line of the class's docstring."""
    graph = model.graph
    return shortened_line(f"Keras' {graph.class_name} model {text_literal(graph.name[:60])}.")


def shortened_line(text: str) -> str:
    """No longer than a line may be."""
    return text if len(text) < WIDTH - 12 else f"{text[: WIDTH - 16]}..."


def construction(member: Member) -> str:
    """``self.dense = nn.Linear(64, 10)``."""
    if member.model is not None:
        return f"self.{member.attribute} = {member.model.name}()"
    assert member.plan is not None
    if member.plan.layer.kind == CONSTANT:
        sizes = ", ".join(map(str, member.plan.layer.arrays["value"].shape))
        return f'self.register_buffer("{member.attribute}", torch.zeros({sizes}))'
    return f"self.{member.attribute} = {constructor(member.plan.module)}"


def constructor(spec: ModuleSpec) -> str:
    """A call of the module's class."""
    count = POSITIONAL.get(spec.class_name, 0)
    usual = OMITTED.get(spec.class_name, {})
    given = {name: value for name, value in spec.arguments.items() if name not in usual or usual[name] != value}
    literal = literal_of_torch if spec.is_stock else literal_of_own
    texts = [
        literal(value) if place < count else f"{name}={literal(value)}"
        for place, (name, value) in enumerate(given.items())
    ]
    return f"{'nn.' if spec.is_stock else ''}{spec.class_name}({', '.join(texts)})"


def literal_of_torch(value: Any) -> str:
    """A value as one writes it for ``torch.nn``: a shape of one axis is its size."""
    return literal_of_own(value[0] if isinstance(value, list) and len(value) == 1 else value)


def literal_of_own(value: Any) -> str:
    """A value as one writes it: a small number is ``1e-6``."""
    if isinstance(value, ModuleSpec):
        return constructor(value)
    if isinstance(value, Activation):
        return function_of(value)
    if isinstance(value, float):
        return re.sub(r"e([+-])0+", r"e\1", repr(value))
    return text_literal(value) if isinstance(value, str) else repr(value)


def signature(model: ModelClass) -> list[str]:
    """The first line of ``forward``."""
    names = ", ".join(f"{term.text}: Tensor" for term in model.parameters)
    return fitted(f"def forward(self, {names}) -> {returned_type(model.graph.outputs)}:", 1)


def returned_type(tree: Any) -> str:
    """The annotation of what ``forward`` returns."""
    if isinstance(tree, tuple):
        if len(tree) > MOST_LISTED and not any(isinstance(item, tuple | Mapping) for item in tree):
            return "tuple[Tensor, ...]"
        return f"tuple[{', '.join(returned_type(item) for item in tree)}]"
    return "dict[str, Tensor]" if isinstance(tree, Mapping) else "Tensor"


def arguments(model: ModelClass) -> str:
    """What ``forward`` takes and returns, with shapes."""
    taken = ", ".join(f"{term.text} {shape_text(term.spec)}" for term in model.parameters)
    given = ", ".join(shape_text(model.facts[value]) for value in leaves(model.graph.outputs))
    text = f"Take {taken}; return {given}."
    if len(text) < WIDTH - 14:
        return text
    return "\n".join(
        [
            "Take and return tensors of these shapes.",
            "",
            *block("Args", argument_lines(model.parameters)),
            "",
            *block("Returns", [shape_text(model.facts[value]) for value in leaves(model.graph.outputs)]),
            "        ",
        ]
    )


def block(title: str, lines: list[str]) -> Iterator[str]:
    """A part of a docstring."""
    yield f"        {title}:"
    yield from (f"            {line}" for line in lines)


def argument_lines(terms: tuple[Term, ...]) -> list[str]:
    """A line for each argument."""
    return [f"{term.text}: {shape_text(term.spec)}" for term in terms]
