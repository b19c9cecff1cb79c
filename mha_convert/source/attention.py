"""``--module``: the classes that a target needs, with the layers' sizes filled in, as one file that needs torch alone.

Classes are copied out of the folder ``modules`` with whatever of it they use. Names of files and layers are a
stranger's text: each is written as a literal (``text_literal``), or into a docstring that it cannot end
(``docstring``).
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources

from ..records.plan import LayerPlan, Plan

IMPORTS = {
    "math": "import math",
    "Any": "from typing import Any",
    "torch": "import torch",
    "Tensor": "Tensor",
    "nn": "nn",
    "F": "from torch.nn import functional as F",
}

Definition = ast.ClassDef | ast.FunctionDef

PLACE = '''\
def place(model: nn.Module, path: str, module: nn.Module) -> None:
    """Put ``module`` where its keys are, in containers of the names on the way; a name may be that of a method."""
    *containers, name = path.split(".")
    for container in containers:
        model = model._modules.setdefault(container, nn.Module())
    inside = model._modules.get(name, nn.Module())
    module._modules.update(inside._modules)
    model._modules[name] = module
'''


def module_source(plan: Plan, source: str, target: str) -> str:
    """The file's text.

    ``build()`` in it returns an ``nn.Module`` whose ``load_state_dict(strict=True)`` takes the target; each layer is
    in it under its key. Of a renamed target it takes ``own_keys(target)``: a new name need not be one that a module
    can have where the layer is.
    """
    classes = {item.module.class_name for item in plan.layers if not item.module.is_stock}
    masks = {"to_attn_mask"} if any(takes_masks(item) for item in plan.layers) else set()
    definitions = needed(classes | masks)
    bare = [item for item in plan.layers if not item.prefix]
    body = [build_bare(bare[0])] if bare else [PLACE, build_tree(plan)]
    is_renamed = any(item.renamed for item in plan.layers)
    body += [own_keys(plan)] if is_renamed else []
    code = "\n\n".join(text.rstrip() + "\n" for text in [*definitions, *body])
    return f"{heading(source, target, is_renamed)}\n\n{imports(code)}\n\n\n{code}"


def takes_masks(item: LayerPlan) -> bool:
    """Whether the layer is attention, whatever its class."""
    return item.module.class_name.endswith("Attention")


def heading(source: str, target: str, is_renamed: bool) -> str:
    """The docstring."""
    is_torch = target.lower().endswith(".pt")
    load = "torch.load" if is_torch else "safetensors.torch.load_file"
    safe = ", weights_only=True" if is_torch else ""
    state = f"{load}({text_literal(target)}{safe})"
    state = f"own_keys({state})" if is_renamed else state
    return docstring(
        f"Layers of {text_literal(source)}, written by mha-convert.\n\n"
        "Load the weights that were converted with it:\n\n"
        f"    model = build()\n    model.load_state_dict({state})\n    model.eval()\n"
    )


def docstring(text: str) -> str:
    """The text as a docstring, whatever is in it: backslashes and three quotes are escaped."""
    escaped = re.sub(r'\\|"""', lambda found: "".join(f"\\{character}" for character in found[0]), text)
    return f'"""{escaped}"""'


def text_literal(text: str) -> str:
    """The text as a string of Python in double quotes, as ruff writes it, or in single ones where it holds double."""
    return repr(text) if '"' in text else f'"{repr(chr(39) + text)[2:]}'


def needed(names: set[str]) -> list[str]:
    """The definitions of the folder ``modules`` that these use: classes, each after its bases, then functions."""
    texts = {name: (node, text) for text in module_texts() for name, node in defined(text)}
    nodes = {name: node for name, (node, _) in texts.items()}
    wanted, found = set(names), set[str]()
    while wanted - found:
        name = (wanted - found).pop()
        found.add(name)
        wanted |= used_names(nodes[name]) & nodes.keys()
    functions = [name for name, node in nodes.items() if isinstance(node, ast.FunctionDef)]
    classes = [name for name in nodes if name not in functions]
    order = [*sorted(classes, key=lambda name: generation(name, nodes)), *functions]
    return [str(ast.get_source_segment(texts[name][1], nodes[name])) for name in order if name in found]


def module_texts() -> Iterator[str]:
    """The files of the folder ``modules``, by name."""
    folder = resources.files(__package__.partition(".")[0]).joinpath("modules")
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".py"):
            yield file.read_text(encoding="utf-8")


def defined(text: str) -> Iterator[tuple[str, Definition]]:
    """The classes and functions of a file, by name."""
    for node in ast.parse(text).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name, node


@cache
def defined_names() -> frozenset[str]:
    """What the folder ``modules`` calls its classes and functions, any of which may be copied into a source."""
    return frozenset(name for text in module_texts() for name, _ in defined(text))


def generation(name: str, nodes: Mapping[str, Definition]) -> int:
    """How many classes of the folder a class comes from, one after the other."""
    node = nodes[name]
    bases = used_names(ast.Tuple(elts=node.bases)) & nodes.keys() if isinstance(node, ast.ClassDef) else ()
    return max((1 + generation(base, nodes) for base in bases), default=0)


def used_names(node: ast.AST) -> set[str]:
    """Every plain name in a piece of code."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def imports(code: str) -> str:
    """The import lines that the code uses."""
    names = used_names(ast.parse(code))
    from_torch = ", ".join(name for name in ("Tensor", "nn") if name in names)
    from_abc = ", ".join(name for name in ("Callable", "Iterator", "Mapping", "Sequence") if name in names)
    plain = [IMPORTS["math"]] if "math" in names else []
    plain += [f"from collections.abc import {from_abc}"] if from_abc else []
    plain += [IMPORTS["Any"]] if "Any" in names else []
    torch = [IMPORTS["torch"]] if "torch" in names else []
    torch += [f"from torch import {from_torch}"] if from_torch else []
    torch += [IMPORTS["F"]] if "F" in names else []
    return "\n".join([*plain, *([""] if plain else []), *torch])


def build_bare(item: LayerPlan) -> str:
    """``build`` for a target that holds the keys of one module."""
    told = docstring(f"The layer {text_literal(item.layer.name)}.")
    return f"def build() -> nn.Module:\n    {told}\n    return {call(item, 1)}\n"


def build_tree(plan: Plan) -> str:
    """``build`` for a target with a prefix before every layer's keys."""
    lines = ["def build() -> nn.Module:", '    """Every layer, under its key."""', "    model = nn.Module()"]
    for item in plan.layers:
        path = text_literal(item.prefix.rstrip("."))
        lines += ["    place(", "        model,", f"        {path},", f"        {call(item, 2)},", "    )"]
    return "\n".join([*lines, "    return model", ""])


def own_keys(plan: Plan) -> str:
    """``own_keys`` for a target whose keys were renamed."""
    keys = {item.key(rule.target): item.prefix + rule.target for item in plan.layers for rule in item.rules}
    return (
        f"KEYS = {literal(keys, 0)}\n\n\n"
        "def own_keys(state: dict[str, Tensor]) -> dict[str, Tensor]:\n"
        '    """The target\'s tensors by the names that they have in ``build()``; another key is a KeyError."""\n'
        "    return {KEYS[key]: tensor for key, tensor in state.items()}\n"
    )


def call(item: LayerPlan, depth: int) -> str:
    """The constructor's call, one argument a line."""
    name = item.module.class_name
    indent = "    " * depth
    lines = [f"{indent}    {key}={literal(value, depth + 1)}," for key, value in item.module.arguments.items()]
    return "\n".join([f"{'nn.' if item.module.is_stock else ''}{name}(", *lines, f"{indent})"])


def literal(value: object, depth: int) -> str:
    """A value as ruff formats it; a mapping of texts has one entry a line."""
    if isinstance(value, str):
        return text_literal(value)
    if not isinstance(value, dict):
        return repr(value)
    indent = "    " * depth
    lines = [f"{indent}    {text_literal(key)}: {text_literal(item)}," for key, item in value.items()]
    return "\n".join(["{", *lines, f"{indent}}}"])
