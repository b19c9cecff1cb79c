"""Renames: a target's keys under the names of any project, by patterns that are data.

``*`` in a pattern stands for one or more characters without a dot, ``**`` for one or more of any kind; ``{1}`` in the
new name is what the first star stands for. Each key is renamed by the first pattern that matches the whole of it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ..errors import LayoutError, ReadError
from ..files.locations import StrPath
from ..files.toml import read_toml
from ..records.plan import LayerPlan, Plan
from .patterns import Pattern, Star, compiled

TABLE = "rename"
STARS = {"*": Star(least=1, stops="."), "**": Star(least=1)}
FIELD = re.compile(r"\{(\d+)\}")
RESERVED = "__metadata__"  # of the header of .safetensors


@dataclass(frozen=True)
class Rename:
    """One rule: a pattern for whole keys, and the new name with ``{1}``, ``{2}``, … for its stars."""

    pattern: str
    new: str

    def __str__(self) -> str:
        """The rule as messages name it."""
        return f"Rename '{self.pattern}' to '{self.new}'"

    @cached_property
    def compiled(self) -> Pattern:
        """The pattern, ready to match."""
        return compiled(self.pattern, STARS)

    def apply(self, key: str) -> str | None:
        """The new name of ``key``; None where the pattern is another's."""
        stars = self.compiled.match(key)
        return None if stars is None else FIELD.sub(lambda field: stars[int(field[1]) - 1], self.new)

    def check(self) -> None:
        """Refuse a new name with fields that the pattern does not fill."""
        stars = sum(isinstance(token, Star) for token in self.compiled.tokens)
        wrong = [number for number in FIELD.findall(self.new) if not 1 <= int(number) <= stars]
        if wrong:
            raise LayoutError(f"{self} has {{{wrong[0]}}}, and the pattern has {stars} stars. Count the stars from 1.")
        if set("{}") & set(FIELD.sub("", self.new)):
            raise LayoutError(f"{self} has braces without a number. Use {{1}} for what the first star stands for.")


def rename(plan: Plan, renames: Mapping[str, str]) -> Plan:
    """The plan with other keys; modules, numbers and proof stay what they are.

    Args:
        plan: from ``plan``.
        renames: patterns and new names, in their order: ``{"block_*.**": "layers.{1}.{2}"}``. ``*`` is one part of a
            key or less, ``**`` anything. Each key is renamed by the first pattern that matches the whole of it; one
            that no pattern matches stays.

    Raises:
        LayoutError: a pattern that matches no key, or only keys that others before it have taken; two keys with one
            new name; a new name with a field that no star fills, or that PyTorch cannot have.
    """
    rules = [Rename(pattern, new) for pattern, new in renames.items()]
    for rule in rules:
        rule.check()
    keys = [item.key(row.target) for item in plan.layers for row in item.rules]
    new = dict(new_names(keys, rules))
    owners: dict[str, str] = {}
    for key, name in new.items():
        if name in owners:
            raise LayoutError(
                f"Renames: '{owners[name]}' and '{key}' would both be called '{name}'. Give each key a name of its own."
            )
        owners[name] = key
    return replace(plan, layers=tuple(with_keys(item, new) for item in plan.layers))


def new_names(keys: list[str], rules: list[Rename]) -> Iterator[tuple[str, str]]:
    """Each key with its new name; every rule must have had one."""
    matched: dict[Rename, list[str]] = {rule: [] for rule in rules}
    taken: set[Rename] = set()
    for key in keys:
        found = [(rule, name) for rule in rules if (name := rule.apply(key)) is not None]
        for rule, _ in found:
            matched[rule].append(key)
        if found:
            rule, name = found[0]
            taken.add(rule)
            check_name(rule, key, name)
        yield key, found[0][1] if found else key
    for rule in rules:
        if not matched[rule]:
            raise LayoutError(
                f"{rule} matches none of the target's {len(keys)} keys, the first of which is '{keys[0]}'. "
                "`mha-convert keys` shows them."
            )
        if rule not in taken:
            raise LayoutError(
                f"{rule}: all that it matches was renamed by rules before it, the first is "
                f"'{matched[rule][0]}'. Put it before them, or leave it out."
            )


def check_name(rule: Rename, key: str, name: str) -> None:
    """Refuse what no ``state_dict`` has as a key."""
    if not all(name.split(".")) or not name.isprintable() or name == RESERVED:
        raise LayoutError(
            f"{rule}: '{key}' would be called '{name}', which no tensor of PyTorch can be. "
            "Use parts with dots between them."
        )


def with_keys(item: LayerPlan, new: Mapping[str, str]) -> LayerPlan:
    """The layer with its whole keys, where one of them is not its own any more."""
    keys = {row.target: new[item.key(row.target)] for row in item.rules}
    own = {row.target: item.prefix + row.target for row in item.rules}
    return replace(item, renamed={} if keys == own else keys)


def read_renames(path: StrPath) -> dict[str, str]:
    """The table ``[rename]`` of a TOML file: patterns and new names, in the file's order.

    Args:
        path: a file or URL.

    Raises:
        ReadError: missing, not TOML, or something else in it.
    """
    document = read_toml(path, "docs/layouts.md")
    table = document.get(TABLE)
    if not isinstance(table, dict) or not table or len(document) > 1:
        found = ", ".join(f"'{name}'" for name in document) or "nothing"
        raise ReadError(f"{path} holds {found}, expected one table [{TABLE}] with patterns in it. Leave out the rest.")
    for pattern, new in table.items():
        if not isinstance(new, str):
            raise ReadError(
                f"{path}: '{pattern}' is {type(new).__name__}, expected text. "
                "Put patterns and names in quotes, as they have dots."
            )
    return table
