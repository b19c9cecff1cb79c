"""Hand-written attention that the user describes: kernels of rank 2 with the heads that ``--attention`` gives them.

The kernels that layers get are views of the stored ones, with Keras' axes; nothing after this file asks who wrote
them.
"""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile

from ..errors import LayerError, shortened
from ..keys.patterns import Star, compiled
from ..records.layer import ROLES, AttentionLayer, AttentionRow, Projection
from ..records.source import Array, Group, Variable
from . import described_settings as settings
from .absent_bias import no_bias
from .encodings import FLOATS, in_sequence
from .multi_head_attention import GQA, MHA

Stored = tuple[Variable, Variable | None]
STARS = {"**/": Star(levels="/"), "**": Star(), "*": Star(stops="/")}
MODEL, UNNAMED = ".", "attention"
MOST_LEFT = 6  # in one caution
SEEDS = ("seed_generator", "seed_generator_state")  # of dropout


def find(root: Group, rows: Sequence[AttentionRow]) -> dict[int, list[AttentionLayer]]:
    """The layers that rows describe, by ``id`` of their group.

    Raises:
        LayerError: a row that no group fits, a field that names no kernel, sizes that do not fit each other, or a
            kernel or bias that two fields name.
    """
    found: dict[int, list[AttentionLayer]] = {}
    uses: dict[str, str] = {}
    names: set[tuple[str, str]] = set()
    around = dict(lineages(root)) if rows else {}
    for row in rows:
        for group in chosen(root, row):
            layer = describe(group, row, around[id(group)])
            subject = f"{subject_of(row)}: layer '{layer.name}'"
            for what, path in fillings(layer):
                if path in uses:
                    raise LayerError(
                        f"{subject} takes {path} for its {what}, which is {uses[path]} already. "
                        f"Name each {what.rpartition(' ')[2]} once."
                    )
                uses[path] = f"the {what} of layer '{layer.name}'"
            if (layer.name, layer.path) in names:
                raise LayerError(f"{subject} is described twice. Give one of the two a name of its own: name=NAME.")
            names.add((layer.name, layer.path))
            found.setdefault(id(group), []).append(layer)
    return found


def lineages(group: Group, ancestors: tuple[Group, ...] = ()) -> Iterator[tuple[int, tuple[Group, ...]]]:
    """What is around each group, outermost first, by the group's ``id``."""
    yield id(group), ancestors
    for child in group.children.values():
        yield from lineages(child, (*ancestors, group))


def fillings(layer: AttentionLayer) -> Iterator[tuple[str, str]]:
    """What each stored array is taken for, with its path; zeros in a bias's place are not stored."""
    for role, projection in layer.projections.items():
        yield f"{role} kernel", projection.kernel.path
        if projection.bias is not None and projection.bias.path == projection.bias.made_of[0].path:
            yield f"{role} bias", projection.bias.path


def subject_of(row: AttentionRow) -> str:
    """The row as messages name it."""
    return f"Attention row '{row.path}'"


def chosen(root: Group, row: AttentionRow) -> list[Group]:
    """The groups that a row's path matches; of those that stars match, the ones that hold any of its kernels."""
    pattern = compiled(row.path, STARS)
    groups = [group for group in root.walk() if group.name and pattern.fits(group.name)]
    if row.path == MODEL:
        groups = [root]
    if not groups:
        known = list(dict.fromkeys(group.name for group in root.walk() if group.name))
        names = ", ".join(f"'{name}'" for name in known[:8])
        more = f" and {len(known) - 8} more" if len(known) > 8 else ""
        raise LayerError(
            f"{subject_of(row)} matches none of the {len(known)} groups of the file: {names}{more}. "
            "* stands for a part of one level, ** for any levels, and a single dot for the model itself."
        )
    holding = [group for group in groups if any(name in parts(group) for name in row.kernels.values())]
    return holding if "*" in row.path and holding else groups[:1] if "*" in row.path else groups


def parts(group: Group) -> dict[str, Group | Variable]:
    """What is in a group, by the names that people know, below the group's own."""
    found: dict[str, Group | Variable] = {}
    for part in group.walk():
        name = part.name.removeprefix(f"{group.name}/" if group.name else "")
        inner = "" if part is group else f"{name}/"
        found |= {} if part is group else {name: part}
        found |= {f"{inner}{own}": variable for own, variable in part.variables.items()}
    return found


def describe(group: Group, row: AttentionRow, ancestors: Sequence[Group]) -> AttentionLayer:
    """The layer, with kernels of rank 3."""
    subject = f"{subject_of(row)}: '{group.name or MODEL}'"
    # The arrays that the row names, and whether its heads fit them.
    known = parts(group)
    stored = stored_arrays(known, row, subject)
    shared = row.num_key_value_heads or row.num_heads
    heads = {"query": row.num_heads, "key": shared, "value": shared, "output": row.num_heads}
    facts = list(size_faults({role: kernel.shape for role, (kernel, _) in stored.items()}, heads))
    facts = facts or list(bias_faults(stored))
    if facts:
        raise LayerError(
            f"{subject} does not fit: {'; '.join(facts)}. Pass the sizes and names of the model's own code."
        )
    width = stored["query"][0].shape[1]
    key_dim = width // row.num_heads
    scale = scale_of(row, key_dim, width)
    # What the file's configuration says of them: contradictions are refused, everything else becomes a caution.
    places = settings.places_of(group, ancestors, containers(known, row))
    dense_layers = {role: part for role, name in row.kernels.items() if isinstance(part := known[name], Group)}
    refuse_contradictions(subject, row, places, width, dense_layers, stored)
    bare = [role for role, (_, bias) in stored.items() if bias is None]
    has_bias = len(bare) < len(stored)
    said = list(settings.remarks(places))
    changing = (
        *settings.projection_remarks(dense_layers),
        *(fact for fact, changes in said if changes),
        *settings.bias_remarks(places, len(stored) - len(bare), len(stored)),
        *other_scale(row, places, key_dim, scale),
    )
    caution = taken_for_granted(row, places, key_dim, scale)
    zeros = (
        f"its {', '.join(bare)} {'has' if len(bare) == 1 else 'have'} no bias, and zeros are put in its place, which "
        "the ledger counts as parameters"
    )
    # The kernels with an axis for heads.
    doubt = group.doubt
    made = {role: projection(role, *stored[role], heads[role], has_bias) for role in ROLES}
    return AttentionLayer(
        name=row.name or group.name or UNNAMED,
        kind=MHA if shared == row.num_heads else GQA,
        path=group.path,
        query=made["query"],
        key=made["key"],
        value=made["value"],
        output=made["output"],
        class_name=group.config.title if group.config else None,
        has_config=group.config is not None and not group.is_model,
        cautions=(
            caution,
            *changing,
            *(fact for fact, changes in said if not changes),
            *([zeros] if has_bias and bare else []),
            *([doubt] if doubt else []),
        ),
        doubt=doubt,
        beyond="; ".join((*changing, caution)),
        row=row,
        scale=scale,
    )


def scale_of(row: AttentionRow, key_dim: int, width: int) -> float | None:
    """What scores are multiplied by, where that is not ``1/sqrt(key_dim)``."""
    usual, words = key_dim**-0.5, {"1/sqrt(key_dim)": key_dim**-0.5, "1/sqrt(width)": width**-0.5}
    scale = usual if row.scale is None else words[row.scale] if isinstance(row.scale, str) else float(row.scale)
    return None if math.isclose(scale, usual) else scale


def taken_for_granted(row: AttentionRow, places: Sequence[settings.Place], key_dim: int, scale: float | None) -> str:
    """What the user's row says, and nothing in the file proves."""
    said = settings.heads_said(places)
    is_said = said is not None and said.value == row.num_heads
    heads = f"num_heads={row.num_heads}{f', as {said.whose} says,' if said and is_said else ''}"
    factor = f" / sqrt({key_dim})" if scale is None else "" if scale == 1 else f" × {scale:.6g}"
    return (
        f"its kernels do not show its heads: {heads} and the roles of its kernels were given, and "
        f"softmax(q · k{factor}) · v over one time axis, with heads as consecutive blocks of columns, is assumed, "
        "which nothing in the file proves; compare with your own code's outputs"
    )


def containers(known: Mapping[str, Group | Variable], row: AttentionRow) -> dict[str, Group]:
    """The groups between the row's own and the projections, innermost first."""
    names = dict.fromkeys(
        "/".join(levels[:size])
        for name in row.kernels.values()
        for levels in [name.split("/")]
        for size in range(len(levels) - 1, 0, -1)
    )
    ordered = sorted(names, key=lambda name: -name.count("/"))
    return {name: part for name in ordered if isinstance(part := known.get(name), Group)}


def refuse_contradictions(
    subject: str,
    row: AttentionRow,
    places: Sequence[settings.Place],
    width: int,
    dense_layers: Mapping[str, Group],
    stored: Mapping[str, Stored],
) -> None:
    """What the same file's configuration says otherwise, and a scale that it has and the row has not.

    Raises:
        LayerError: with both numbers, or with the scale to give.
    """
    facts = list(settings.contradictions(row, places, width))
    if facts:
        raise LayerError(f"{subject} contradicts the file: {'; '.join(facts)}. Pass the configuration's number.")
    has_bias = {role: bias is not None for role, (_, bias) in stored.items()}
    facts = list(settings.projection_faults(dense_layers, has_bias))
    if facts:
        raise LayerError(f"{subject}: {'; '.join(facts)}. The file was changed; save the model again.")
    said = settings.scale_said(places, width // row.num_heads)
    if said and row.scale is None:
        raise LayerError(
            f"{subject}: {said}, and the row has no scale, so 1/sqrt({width // row.num_heads}) would be used. "
            "Pass what the code multiplies scores by: scale=1 where it does not divide them, scale=NUMBER, or "
            "scale=1/sqrt(key_dim)."
        )


def other_scale(
    row: AttentionRow, places: Sequence[settings.Place], key_dim: int, scale: float | None
) -> Iterator[str]:
    """A scale of the configuration that is not the one that the user gave."""
    said = settings.scale_said(places, key_dim)
    if said and not settings.agrees(said, scale):
        yield f"{said}, and scale={row.scale} was given"
    if row.has_names_of_t5:
        yield "its kernels are called as in T5, which does not divide its scores: use scale=1 if it is one"


def with_leftovers(layer: AttentionLayer, group: Group, taken: Container[str]) -> tuple[AttentionLayer, set[str]]:
    """The layer with a caution for what else is where its row leads, and the paths of that.

    Args:
        layer: from ``find``.
        group: that the row's path leads to.
        taken: paths of all variables that some layer converts.
    """
    assert layer.row is not None
    found = [item for name, part in scopes(group, layer.row) for item in left_in(part, name, taken)]
    if not found:
        return layer, set()
    texts = [text for text, _ in found]
    more = f" and {len(texts) - MOST_LEFT} more" if len(texts) > MOST_LEFT else ""
    caution = (
        f"besides its kernels the layer holds {', '.join(texts[:MOST_LEFT])}{more}, which no field names and nothing "
        "converts"
    )
    first, *others = layer.cautions
    paths = {variable.path for _, variables in found for variable in variables}
    return replace(layer, cautions=(first, caution, *others), beyond=f"{caution}; {layer.beyond}"), paths


def scopes(group: Group, row: AttentionRow) -> list[tuple[str, Group]]:
    """Where what a row's kernels are used with may be: its group; of a model, the layers in it that hold them.

    The other layers of a model are no part of the attention, be it the row's group or a model in that.
    """
    if not group.is_model:
        return [("", group)]
    known = {"": group} | parts(group)
    homes = [name.rpartition("/")[0] for name in row.kernels.values()]
    levels = zip(*(home.split("/") for home in homes), strict=False)
    shared = "/".join(level[0] for level in takewhile(lambda level: len(set(level)) == 1, levels))
    around = known.get(shared)
    if isinstance(around, Group) and not around.is_model:
        return [(shared, around)]
    found: dict[str, Group] = {}
    for home, name in zip(homes, row.kernels.values(), strict=True):
        part = known.get(home)
        if isinstance(part, Group) and not part.is_model:
            found[home] = part
        elif isinstance(part, Group) and isinstance(known.get(name), Variable):
            found[home] = replace(part, children={})
    return list(found.items())


def left_in(group: Group, name: str, taken: Container[str]) -> Iterator[tuple[str, list[Variable]]]:
    """What of a group no layer converts: single variables, and whole layers with their number of arrays."""
    prefix = f"{name}/" if name else ""
    for own, variable in group.variables.items():
        if variable.path not in taken and not own.startswith(SEEDS):
            number = "variable " if own.isdecimal() else ""
            yield f"{number}{shortened(prefix + own, 80)} {variable.shape}", [variable]
    for child in group.children.values():
        inner = child.name.removeprefix(f"{group.name}/" if group.name else "")
        held = [] if inner.rpartition("/")[2] in SEEDS else [*inside(child)]
        left = [variable for variable in held if variable.path not in taken]
        if left and len(left) == len(held) and len(left) > 1:
            yield f"{shortened(prefix + inner, 80)} ({len(left)} arrays)", left
        elif left:
            yield from left_in(child, prefix + inner, taken)


def inside(group: Group) -> Iterator[Variable]:
    """Every variable at and below the group, but the state of random generators."""
    for part in group.walk():
        if part.name.rpartition("/")[2] not in SEEDS:
            yield from (item for own, item in part.variables.items() if not own.startswith(SEEDS))


def stored_arrays(known: Mapping[str, Group | Variable], row: AttentionRow, subject: str) -> dict[str, Stored]:
    """Kernel and bias of each role, as they are stored.

    Raises:
        LayerError: a name is no kernel's, or no bias's.
    """
    found: dict[str, Stored] = {}
    for role, name in row.kernels.items():
        kernel, bias = dense(known.get(name))
        if kernel is None:
            raise LayerError(f"{subject} has no {role} kernel '{name}': {what_is(name, known)}.")
        if role in row.biases:
            other = row.biases[role]
            named = known.get(other)
            if not isinstance(named, Variable) or len(named.shape) != 1:
                raise LayerError(f"{subject} has no {role} bias '{other}': {what_is(other, known)}.")
            if bias is not None and bias.path != named.path:
                raise LayerError(
                    f"{subject}: '{name}' has a bias of its own, and {role}_bias is '{other}'. Leave {role}_bias out."
                )
            bias = named
        found[role] = kernel, bias
    return found


def dense(part: Group | Variable | None) -> tuple[Variable | None, Variable | None]:
    """Kernel and bias of a ``Dense``, or a single variable; no kernel where it is something else."""
    variables = [part] if isinstance(part, Variable) else [*part.variables.values()] if part else []
    kernels = [variable for variable in variables if len(variable.shape) == 2 and variable.dtype in FLOATS]
    biases = [variable for variable in variables if len(variable.shape) == 1 and variable.dtype in FLOATS]
    if len(kernels) != 1 or len(biases) > 1 or len(variables) != len(kernels) + len(biases):
        return None, None
    if isinstance(part, Group) and has_gap(part):
        return None, None  # a variable is missing, or another one is in its place
    return kernels[0], biases[0] if biases else None


def has_gap(part: Group) -> bool:
    """Whether its variables are numbered, but not from 0 on."""
    return any(map(str.isdecimal, part.variables)) and not in_sequence(part.variables)


def what_is(name: str, known: Mapping[str, Group | Variable]) -> str:
    """What is there instead, and what could have been meant."""
    part = known.get(name)
    if isinstance(part, Group) and has_gap(part):
        return f"its variables are numbered {', '.join(part.variables)}, expected 0, 1, … Name another"
    if part is not None:
        variables = [part] if isinstance(part, Variable) else [*part.variables.values()]
        holds = ", ".join(f"{variable.dtype} {variable.shape}" for variable in variables) or "no array of its own"
        return f"it holds {holds}, expected one float kernel of rank 2 and at most one bias. Name another"
    own = [
        f"'{other}' {kernel.shape}"
        for other, item in known.items()
        if (isinstance(item, Group) or "/" not in other) and (kernel := dense(item)[0]) is not None
    ]
    more = f" and {len(own) - 12} more" if len(own) > 12 else ""
    return f"nothing in it has this name. Its kernels are: {', '.join(own[:12]) or 'none'}{more}"


def size_faults(shapes: Mapping[str, tuple[int, ...]], heads: Mapping[str, int]) -> Iterator[str]:
    """Kernels that these heads cannot have."""
    if not all(map(all, shapes.values())):
        yield f"kernels without empty axes expected, found {dict(shapes)}"
        return
    if heads["query"] % heads["key"]:
        yield f"num_heads={heads['query']} is not a multiple of num_key_value_heads={heads['key']}"
    for role, title in (("query", "num_heads"), ("key", "key heads"), ("value", "value heads")):
        if shapes[role][1] % heads[role]:
            yield f"{role} kernel {shapes[role]} has {shapes[role][1]} columns, not a multiple of {title}={heads[role]}"
    key_dim, value_dim = (shapes[role][1] // heads[role] for role in ("query", "value"))
    if shapes["key"][1] != heads["key"] * key_dim:
        expected = f"{heads['key']} × {key_dim} = {heads['key'] * key_dim}"
        yield f"key kernel {shapes['key']} has {shapes['key'][1]} columns, expected heads × key_dim = {expected}"
    if shapes["output"][0] != heads["query"] * value_dim:
        expected = f"heads × value_dim = {heads['query']} × {value_dim} = {heads['query'] * value_dim}"
        yield f"output kernel {shapes['output']} has {shapes['output'][0]} rows, expected {expected}"


def bias_faults(stored: Mapping[str, Stored]) -> Iterator[str]:
    """Biases of another size than their kernel's columns."""
    for role, (kernel, bias) in stored.items():
        if bias is not None and bias.shape != kernel.shape[1:]:
            yield f"{role} bias {bias.shape} is not {kernel.shape[1:]}"


def projection(role: str, kernel: Variable, bias: Variable | None, heads: int, has_bias: bool) -> Projection:
    """Kernel and bias with the heads' axis; zeros for a bias that only the other projections have."""
    rows, columns = kernel.shape
    inputs: tuple[int, ...] = (rows,)
    outputs: tuple[int, ...] = (heads, columns // heads)
    if role == "output":
        inputs, outputs = (heads, rows // heads), (columns,)
    shape, bias_shape = inputs + outputs, outputs
    if bias is None:
        return Projection(viewed(kernel, shape), no_bias(kernel, bias_shape) if has_bias else None)
    return Projection(viewed(kernel, shape), viewed(bias, bias_shape))


def viewed(variable: Variable, shape: tuple[int, ...]) -> Variable:
    """The same numbers in another shape."""
    read = partial(reshaped, variable, shape)
    return Variable(
        path=variable.path, shape=shape, dtype=variable.dtype, role=variable.role, made_of=(variable,), read=read
    )


def reshaped(variable: Variable, shape: tuple[int, ...]) -> Array:
    """Read the variable, and return its numbers in ``shape``."""
    return variable.read().reshape(shape)
