"""Which layers are converted: those that were asked for, or all; never fewer silently."""

from collections.abc import Sequence

from ..errors import LayerError, NoAttentionError, listed
from ..files.shell import layer_options
from ..records.layer import Findings, Layer, NotConverted
from ..records.source import Checkpoint
from . import told_once

MOST_TOLD = 2  # layers in one refusal; inspect lists them all
MOST_HELD = 4
MOST_STEPS = 4
OWN_CODE = "Attention of your own code is described with --attention (docs/layers.md)"


def convertible(checkpoint: Checkpoint, findings: Findings, names: Sequence[str] | None) -> tuple[Layer, ...]:
    """The layers that were asked for; an error where attention would be left out silently."""
    blocking = [item for item in findings.not_converted if item.blocking]
    if isinstance(names, str):
        names = [names]
    if names is not None:
        asked = [item for item in (*blocking, *findings.unfit) if item.name in names]
        if asked:
            raise LayerError(refusal(asked, findings.layers))
        return select(findings.layers, tuple(names), findings.companions)
    if blocking:
        raise LayerError(refusal(blocking, findings.layers))
    if not findings.layers:
        raise (LayerError if findings.not_converted else NoAttentionError)(nothing_found(checkpoint, findings))
    assumed = [layer for layer in findings.layers if layer.doubt]
    if assumed:
        raise LayerError(unproven_roles(assumed, findings.layers))
    return findings.layers


def refuse_more(wanted: Sequence[Layer]) -> None:
    """With ``strict`` only what is attention and nothing else is converted."""
    told = told_once((layer.name, layer.beyond) for layer in wanted if layer.beyond)
    facts = [f"{subject}: {fact}" for subject, fact in told]
    if facts:
        plain = [layer.name for layer in wanted if not layer.beyond]
        rest = f", or name the others: {layer_options(plain)}" if plain else ""
        text = "; ".join(facts)
        raise LayerError(
            f"{text[0].upper()}{text[1:]}. Leave --strict (strict=True) out to convert them all the same{rest}."
        )


def unproven_roles(assumed: Sequence[Layer], layers: Sequence[Layer]) -> str:
    """Layers that the file does not prove are converted where the user knows them."""
    others = [layer for layer in layers if not layer.doubt]
    every = layer_options([layer.name for layer in (*assumed, *others)])
    steps = [f"If you know that they are right, name all layers that you want: {every}"]
    sure = [layer.name for layer in others]
    if sure:
        steps.append(f"To convert only what the file shows, use {layer_options(sure)}")
    return f"Layer {listed((layer.name for layer in assumed), 4)}: {assumed[0].doubt}. {'. '.join(steps)}."


def refusal(items: Sequence[NotConverted], others: Sequence[Layer]) -> str:
    """Each layer that cannot be converted, why, and how to convert the rest."""
    told = items[:MOST_TOLD]
    facts = "; ".join(f"layer '{item.name}' ({item.kind}) is not converted: {item.reason}" for item in told)
    facts += f"; and {len(items) - len(told)} more layers" if len(items) > len(told) else ""
    steps = list(dict.fromkeys(item.next_step for item in items))[:MOST_STEPS]
    if others:
        steps.append(f"To convert the rest, use {layer_options([layer.name for layer in others])}")
    return f"{facts[0].upper()}{facts[1:]}. {'. '.join(steps)}."


def nothing_found(checkpoint: Checkpoint, findings: Findings) -> str:
    """A file without attention says what it does hold, and how hand-written attention is converted."""
    told = findings.not_converted[:MOST_HELD]
    holds = [f"{item.kind} '{item.name}': {item.reason}" for item in told]
    left = len(findings.not_converted) - len(told)
    rest = f"; and {left} more" if left else ""
    steps = ". ".join(ways_on(findings.not_converted, told))
    groups = [group for group in checkpoint.root.walk() if group.variables]
    names = ", ".join(group.name or "the model itself" for group in groups[:6])
    more = f" and {len(groups) - 6} more" if len(groups) > 6 else ""
    facts = (
        f"{len(checkpoint.variables)} variables in {len(groups)} layers ({names}{more})" if groups else "no variables"
    )
    also = f". It also holds {'; '.join(holds)}{rest}" if holds else ""
    return (
        f"{checkpoint.path} holds no attention with weights of its own, expected at least one; it holds "
        f"{facts}{also}. {steps}. "
        "`mha-convert inspect` lists everything."
    )


def ways_on(every: Sequence[NotConverted], told: Sequence[NotConverted]) -> list[str]:
    """One row of ``--attention``, or the hint that there are rows, where one can help; and what else can be done."""
    row = next((item.next_step for item in every if item.described == "row"), None)
    needs_hint = not every or any(item.described == "perhaps" for item in every)
    own = [row] if row else [OWN_CODE] if needs_hint else []
    return list(dict.fromkeys((*own, *(item.next_step for item in told if item.described == "never"))))


def select(layers: Sequence[Layer], names: Sequence[str] | None, others: Sequence[Layer] = ()) -> tuple[Layer, ...]:
    """The layers called ``names``, in that order, from either list; all of ``layers`` for None.

    Raises:
        LayerError: a name is not among them, and the message lists those that are; or there is no name at all.
    """
    if names is None:
        return tuple(layers)
    if not names:
        raise LayerError(
            "The list of layers is empty, expected at least one name. Name one, or leave --layer (layers=) out for all."
        )
    by_name = {layer.name: layer for layer in (*others, *layers)}
    unknown = [name for name in names if not isinstance(name, str) or name not in by_name]
    if unknown:
        known = ", ".join(layer.name for layer in layers) or "none"
        rest = f"{len(others)} other layer{'s' * (len(others) > 1)}"
        more = f"; `mha-convert inspect` lists {rest}" if others else ""
        raise LayerError(f"Layer '{unknown[0]}' is not in the file. Its attention layers are: {known}{more}.")
    return tuple(by_name[name] for name in dict.fromkeys(names))
