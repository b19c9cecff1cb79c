"""The classes of a written ``model.py``, and the statements of each ``forward``, taken from its text.

The text is our own: every name in it went through an identifier filter. It is run as it stands in the file.
"""

import ast
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import VerificationError
from ...records.model import ModelClass, WrittenCall

if TYPE_CHECKING:
    from torch import nn

NAME = "model"


@dataclass(frozen=True, slots=True)
class Statements:
    """One ``forward``: code for each call's statements, and for the expression that is returned."""

    calls: Mapping[tuple[str, int], types.CodeType]
    returned: types.CodeType
    parameters: tuple[str, ...]


class WrittenModel:
    """A written file, in hand.

    Args:
        path: of ``model.py``.
        model: what it was written from.

    Raises:
        VerificationError: a ``forward`` is not made of the statements that it was planned with.
    """

    def __init__(self, path: Path, model: ModelClass) -> None:
        self.text = path.read_text(encoding="utf-8")
        tree = ast.parse(self.text)
        self.names: dict[str, Any] = {"__name__": NAME}
        exec(compile(tree, str(path), "exec"), self.names)
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.forwards = {id(each): statements(classes[each.name], each) for each in model.walk()}
        self.model = model

    def make(self) -> "nn.Module":
        """The outermost class without numbers, in evaluation mode."""
        import torch

        with torch.device("meta"):
            made: nn.Module = self.names[self.model.name]()
        return made.eval()


def statements(node: ast.ClassDef, model: ModelClass) -> Statements:
    """The statements of a class's ``forward``, call by call, as they are in the file."""
    forward = next(part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "forward")
    *body, last = forward.body[1:]  # after the docstring
    found: dict[tuple[str, int], types.CodeType] = {}
    left = iter(body)
    for call in model.calls:
        own = [next(left, None) for _ in call.statements]
        if [ast.unparse(part) if part else "" for part in own] != [as_python(text) for text in call.statements]:
            raise changed(model, call)
        module = ast.Module(body=[part for part in own if part], type_ignores=[])
        found[call.call.layer, call.call.number] = compile(module, f"<{call.call.layer}>", "exec")
    if next(left, None) is not None or not isinstance(last, ast.Return) or last.value is None:
        raise VerificationError(f"Class {model.name}: its forward does more than the graph. Convert again.")
    return Statements(
        calls=found,
        returned=compile(ast.Expression(last.value), "<return>", "eval"),
        parameters=tuple(argument.arg for argument in forward.args.args[1:]),
    )


def as_python(text: str) -> str:
    """A statement in Python's own spelling."""
    return ast.unparse(ast.parse(text))


def changed(model: ModelClass, call: WrittenCall) -> VerificationError:
    """A statement that is not the planned one."""
    return VerificationError(
        f"Class {model.name}: the statement of layer '{call.call.layer}' is not as it was planned. Convert again."
    )
