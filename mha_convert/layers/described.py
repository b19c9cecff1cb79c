"""Attention that people wrote themselves: named, with what it holds, and never guessed at.

Kernels of rank 2 do not show the number of heads: ``hand_written_rows`` converts them where the user tells it.
"""

from ..files.shell import IN_ERRORS, option
from ..records.layer import ROLES, NotConverted
from ..records.source import Group, Variable
from .described_settings import heads_said, places_of

TRIPLES = (
    ("query", "key", "value"),
    ("query_dense", "key_dense", "value_dense"),
    ("query_proj", "key_proj", "value_proj"),
    ("q_proj", "k_proj", "v_proj"),
    ("q_dense", "k_dense", "v_dense"),
    ("q_linear", "k_linear", "v_linear"),
    ("q_lin", "k_lin", "v_lin"),
    ("query_projector", "key_projector", "value_projector"),
    ("wq", "wk", "wv"),
    ("w_q", "w_k", "w_v"),
    ("q", "k", "v"),
)
PLAIN_VARIABLES = (("kernel", "bias"), ("0", "1"))


def match(group: Group, ancestors: tuple[Group, ...]) -> NotConverted | None:
    """A query, a key and a value kernel of rank 2 side by side."""
    if group.is_model:
        return None
    kernels = {name.lower().lstrip("_"): variable for name, variable in matrices(group).items()}
    for triple in TRIPLES:
        if all(name in kernels for name in triple):
            shapes = ", ".join(f"{name} {kernels[name].shape}" for name in triple)
            said = heads_said(places_of(group, ancestors, {}))
            heads = said.value if said and all(kernels[name].shape[1] % said.value == 0 for name in triple) else "N"
            by = f"; {said}" if said and heads != "N" else ""
            row = f"{group.name}:num_heads={heads},{roles(group, triple)}"
            return NotConverted(
                name=group.name,
                kind="perhaps hand-written attention",
                reason=f"its kernels are of rank 2 ({shapes}), which does not show the number of heads{by}",
                next_step=f"If it is, use {option('--attention', row, IN_ERRORS)}",
                blocking=False,
                described="row",
                variables=inside(group),
            )
    return None


def roles(group: Group, triple: tuple[str, ...]) -> str:
    """The fields of ``--attention``, as far as the names tell them."""
    stored = {name.lower().lstrip("_"): name for name in matrices(group)}
    named = dict(zip(ROLES, (stored[name] for name in triple), strict=False))
    left = [name for name in matrices(group) if name not in named.values()]
    named["output"] = left[0] if len(left) == 1 else "NAME"
    return ",".join(f"{role}={name}" for role, name in named.items())


def matrices(group: Group) -> dict[str, Variable]:
    """Variables of rank 2: the group's own, and the only one of each child."""
    own = {name: variable for name, variable in group.variables.items() if len(variable.shape) == 2}
    for name, child in group.children.items():
        found = [variable for variable in child.variables.values() if len(variable.shape) == 2]
        if len(found) == 1:
            own[name] = found[0]
    return own


def match_by_name(group: Group) -> NotConverted | None:
    """A group of which class or name says attention, that holds arrays, and is none of the kinds that are known."""
    config, variables = group.config, inside(group)
    if not variables or not (is_attention_by_class(group) or is_attention_by_name(group)):
        return None
    shapes = ", ".join(f"{short(v.path)} {v.shape}" for v in variables[:4])
    more = f" and {len(variables) - 4} more" if len(variables) > 4 else ""
    return NotConverted(
        name=group.name,
        kind=config.title if config else "attention by name",
        reason=f"its arrays are not the four kernels of MultiHeadAttention: {shapes}{more}",
        next_step="Port this layer by hand",
        blocking=config is not None and config.class_name == "MultiHeadAttention" and not config.is_own,
        described="perhaps",
        variables=variables,
    )


def is_attention_by_class(group: Group) -> bool:
    """Whether the configuration says so."""
    return group.config is not None and says_attention(group.config.class_name)


def is_attention_by_name(group: Group) -> bool:
    """Whether the layer's name says so, of what may be attention: no other class of Keras' own, and no ``Dense``.

    The same for a file with a configuration and without one, as far as both can tell.
    """
    config = group.config
    is_other_class = config is not None and not config.is_own and not config.is_model
    holds_matrix = any(len(variable.shape) > 1 for variable in inside(group))
    return says_attention(group.name.rpartition("/")[2]) and holds_matrix and not is_other_class and not is_plain(group)


def says_attention(name: str) -> bool:
    """Whether the word is in it."""
    return "attention" in name.lower()


def is_plain(group: Group) -> bool:
    """Whether it can be one Dense, EinsumDense or convolution: a kernel, and a bias with the kernel's last axes."""
    names = next((names for names in PLAIN_VARIABLES if set(group.variables) <= set(names)), None)
    if names is None or len(inside(group)) > len(group.variables) or names[0] not in group.variables:
        return False
    kernel, bias = (group.variables[name].shape if name in group.variables else () for name in names)
    return len(bias) < len(kernel) and kernel[len(kernel) - len(bias) :] == bias


def inside(group: Group) -> tuple[Variable, ...]:
    """Every variable at and below the group."""
    return tuple(variable for part in group.walk() for variable in part.variables.values())


def short(path: str) -> str:
    """The end of a path, as far as it says something."""
    return "/".join(part for part in path.split("/")[-3:] if part != "vars").removesuffix(":0")
