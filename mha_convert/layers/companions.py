"""Layers other than attention: each kind is a row of settings, matched by the layer's configuration.

A kind is a file of this folder with a ``ROW``, and a line in ``COMPANIONS``. Without a configuration such a layer is
not found: its settings (epsilon, axes, activation) are nowhere else in a file, and are never assumed.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ..classes import OF_NAME
from ..errors import shortened
from ..records.layer import NotConverted, PlainLayer
from ..records.source import Group, Variable
from .settings import Setting, compute_dtype, faults, strangers, values

Settings = dict[str, Any]
FLOATS = ("float16", "bfloat16", "float32", "float64")
NEXT_STEP = "Port this layer by hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """One kind of layer; its variables are a row of ``classes``.

    Args:
        kind: Keras' class.
        public_names: other names of the class, which a configuration may have.
        settings: that make a difference.
        without_effect: names of those that make none.
        normalized: the settings in one form, whatever the version wrote.
        faults: what cannot be converted, in words; of the layer and its place in the file.
        cautions: what the user should know.
        inside: of a wrapper: the configuration of each layer that it wraps, with its place in the file.
        prefixes: of a wrapper: what stands before the names of the arrays of each layer that it wraps.
    """

    kind: str
    public_names: tuple[str, ...] = ()
    settings: tuple[Setting, ...]
    without_effect: tuple[str, ...] = ()
    normalized: Callable[[Settings], Settings] = field(default=lambda settings: settings)
    faults: Callable[[PlainLayer, Any], Iterable[str]] = field(default=lambda layer, group: ())
    cautions: Callable[[PlainLayer, Group], Iterable[str]] = field(default=lambda layer, group: ())
    inside: Callable[[Settings, Group | None], Iterable[tuple[Settings, Group | None]]] = field(
        default=lambda settings, group: ()
    )
    prefixes: tuple[str, ...] = ("",)

    def match(self, group: Group) -> PlainLayer | NotConverted | None:
        """The layer in ``group``; a ``NotConverted`` with the reason where it cannot be converted; None else."""
        config = group.config
        if config is None or config.class_name != self.kind or config.is_own:
            return None
        said = config.settings
        problems = [*map(str, faults(self.settings, said)), *strangers(self.settings, self.without_effect, said)]
        if problems:
            return named(group, self.kind, problems)
        settings = self.normalized(values(self.settings, said))
        roles = [weight.name for weight in OF_NAME[self.kind].made(settings)]
        arrays = by_role(roles, group)
        if arrays is None:
            held = ", ".join(f"{shortened(name, 40)} {found.shape}" for name, found in group.variables.items())
            return named(group, self.kind, [f"it holds {held or 'no variables'}, expected {' and '.join(roles)}"])
        layer = PlainLayer(
            name=group.name,
            kind=self.kind,
            path=group.path,
            arrays=arrays,
            settings=settings,
            class_name=config.title,
            compute_dtype=compute_dtype(config.settings.get("dtype")),
            doubt=group.doubt,
        )
        problems = list(self.faults(layer, group))
        return named(group, self.kind, problems) if problems else with_cautions(layer, self.cautions(layer, group))


def named(group: Group, kind: str, problems: list[str]) -> NotConverted:
    """A ``NotConverted`` that blocks nothing: such layers are converted only where they are named."""
    return NotConverted(
        name=group.name,
        kind=kind,
        reason="; ".join(problems),
        next_step=NEXT_STEP,
        blocking=False,
        variables=tuple(group.variables.values()),
    )


def with_cautions(layer: PlainLayer, cautions: Iterable[str]) -> PlainLayer:
    """The layer and what should be known of it."""
    return replace(layer, cautions=tuple(cautions))


def by_role(roles: list[str], group: Group) -> dict[str, Variable] | None:
    """The variables by Keras' names; None where the group holds others, or parts of its own."""
    variables = group.variables
    for stored in (roles, [str(number) for number in range(len(roles))]):
        if set(stored) == set(variables) and not group.children:
            found = {role: variables[place] for role, place in zip(roles, stored, strict=True)}
            return found if all(variable.dtype in FLOATS for variable in found.values()) else None
    return None


def find(root: Group, rows: Iterable[Companion]) -> Iterator[PlainLayer | NotConverted]:
    """Every layer of these kinds, in the file's order."""
    kinds = {row.kind: row for row in rows}
    for group in root.walk():
        row = kinds.get(group.config.class_name) if group.config else None
        found = row.match(group) if row else None
        if found is not None:
            yield found
