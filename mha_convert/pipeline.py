"""The stages in order. Read this first.

read ─▶ survey ─▶ plan ─▶ convert ─▶ write a draft ─▶ verify the draft ─▶ give it its name
"""

from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from . import layouts
from .conversion import convert, ledger
from .errors import LayoutError, VerificationError
from .files.locations import SOURCE, Location, StrPath, local_copy, locate, name_of, refuse_object
from .files.watch import checked, unchanged
from .inspection import found_in
from .keys.matching import renames_of
from .keys.proposal import aligned, all_matched
from .keys.renaming import read_renames, rename
from .layers import survey
from .layers.descriptions import read_attention
from .layers.selection import convertible, refuse_more, select
from .options import (
    ConvertOptions,
    LayoutOptions,
    MatchOptions,
    Options,
    PlanOptions,
    asked,
    check_word,
)
from .readers import read
from .records.layer import Findings
from .records.plan import Alignment, Plan
from .records.proof import Conversion
from .records.said import Explanation, KeyList
from .records.source import Checkpoint
from .source.attention import module_source
from .targets import Target, check_target, draft, open_target, writer_for
from .targets.metadata import TargetDescription, describe_plan, differences, parse_description
from .targets.names import refuse_as_module, refuse_part_as_target, refuse_source_as_target
from .words.notes import layer_notes, unseen

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .verification import Progress

UNPROVEN = "none"
REFERENCES = ("numpy", "keras")  # that prove something
MOST_FACTS = 4  # in one refusal of a description


def explain_file(source: StrPath, layer: str | None = None, **options: "Unpack[LayoutOptions]") -> Explanation:
    """How the arrays of a layer become PyTorch tensors: formula, shapes, traps, and the lines to load and call it.

    Args:
        source: whatever ``read`` takes.
        layer: its name; None for all layers.
        options: ``config``, ``trust``, ``attention`` and ``layout``, see ``Options``.

    Raises:
        ReadError, LayerError, LayoutError: as ``convert_file``.
    """
    wanted = asked(LayoutOptions, options)
    checkpoint, findings = found_in(source, wanted)
    chosen = convertible(checkpoint, findings, None if layer is None else [layer])
    plans = (layouts.plan([item], layout=wanted.layout, prefix="") for item in chosen)
    return Explanation(source=checkpoint, options=wanted, plans=tuple(plan.layers[0] for plan in plans))


def plan_file(source: StrPath, **options: "Unpack[PlanOptions]") -> KeyList:
    """What ``keys`` shows: every tensor that a conversion would write, and what it would be made of.

    Args:
        source: whatever ``read`` takes.
        options: those of ``convert_file`` but ``reference`` and ``strict``, see ``Options``.

    Raises:
        ReadError, LayerError, LayoutError: as ``convert_file``.
    """
    checkpoint, _, chosen = planned(source, asked(PlanOptions, options))
    return KeyList(source=checkpoint, plan=chosen)


def match_file(source: StrPath, like: StrPath, **options: "Unpack[MatchOptions]") -> Alignment:
    """Which of the source's layers belongs to which attention of a PyTorch model; ``convert_file(like=)`` applies it.

    Args:
        source: whatever ``read`` takes.
        like: the model's ``state_dict``, ``.safetensors`` or ``.pt``.
        options: ``config``, ``trust``, ``attention`` and ``layers``, see ``Options``.

    Returns:
        the pairs, shown by shapes and order, and what stays on either side.

    Raises:
        ReadError, LayerError: as ``convert_file``.
        LayoutError: the pairs need two layouts.
    """
    wanted = asked(MatchOptions, options)
    checkpoint, findings = found_in(source, wanted)
    return aligned(checkpoint, convertible(checkpoint, findings, wanted.layers), like)


def convert_file(
    source: StrPath,
    target: StrPath,
    *,
    module: StrPath | None = None,
    overwrite: bool = False,
    on_progress: "Progress | None" = None,
    **options: "Unpack[ConvertOptions]",
) -> Conversion:
    """Convert the attention layers of a saved Keras model to a PyTorch ``state_dict``, and prove the result.

    Args:
        source: whatever ``read`` takes: a file, a folder or a URL.
        target: ends in ``.safetensors`` or ``.pt``; exists afterwards only if it was proven. May be a URL.
        module: where to write the modules that load the target, as source that needs torch alone; None for nowhere.
        overwrite: whether an existing target is replaced.
        on_progress: called with a layer's name, its index and the number of layers.
        options: ``config``, ``trust``, ``attention``, ``layout``, ``layers``, ``prefix``, ``renames``, ``like``,
            ``dtype``, ``reference`` and ``strict``, see ``Options``.

    Raises:
        ReadError, LayerError, LayoutError, WriteError, VerificationError: nothing was written.
    """
    wanted = asked(ConvertOptions, options)
    refuse_object(source, SOURCE)

    # Names first: what cannot be written is not worth reading a file for.
    path, writer = locate(target), writer_for(target)
    check_target(path, overwrite=overwrite)
    refuse_source_as_target(source, path)
    if module is not None:
        refuse_as_module(module, source, path)
        check_target(Path(module), overwrite=overwrite)

    # What is in the source, and where each number goes.
    checkpoint, findings, chosen = planned(source, wanted)
    for place in (path, *(() if module is None else (Path(module),))):
        refuse_part_as_target(place, checkpoint, wanted.like)
    if wanted.strict:
        refuse_more([item.layer for item in chosen.layers])

    # The stack is left in reverse: the target appears first, the module's source after it.
    with ExitStack() as stack:
        if module is not None:
            text = module_source(chosen, name_of(source), path.name)
            stack.enter_context(draft(Path(module), overwrite=overwrite)).write_text(text, encoding="utf-8")
        drafted = stack.enter_context(draft(path, overwrite=overwrite))
        stack.enter_context(unchanged(checkpoint))
        with checked(checkpoint):
            writer.write(drafted, convert(chosen), describe_plan(chosen, checkpoint))
        return prove(checkpoint, findings, chosen, drafted, path, wanted.reference, on_progress)


def verify_file(
    source: StrPath,
    target: StrPath,
    *,
    config: StrPath | None = None,
    trust: bool = False,
    reference: Literal["numpy", "keras"] = "numpy",
    on_progress: "Progress | None" = None,
) -> Conversion:
    """Prove an existing target against the source, by reading both files again.

    Args:
        source: whatever ``read`` takes.
        target: a file or URL that ``convert_file`` wrote; it says itself which layers it holds, and how; of
            hand-written ones, the rows that described them, too.
        config: the model's JSON, where the source holds weights only.
        trust: whether the source may ask for any memory and time, see ``docs/security.md``.
        reference: ``"numpy"`` or ``"keras"``.
        on_progress: called with a layer's name, its index and the number of layers.

    Raises:
        ReadError: a file is missing, damaged, or the target not one of ours.
        LayerError, LayoutError: the source does not have the target's layers; no such reference.
        VerificationError: the target is not what the source's layers compute.
    """
    check_word("reference", reference, REFERENCES)
    checkpoint = read(source, config=config, trust=trust)
    path = locate(target)
    written = local_copy(path)
    described = parse_description(open_target(written).description, path)
    rows = list({repr(row): row for layer in described.layers if (row := layer.attention) is not None}.values())
    findings = survey(checkpoint, read_attention(rows))
    chosen = plan_again(findings, described, source, target)
    with unchanged(checkpoint):
        checkpoint.check()
        return prove(checkpoint, findings, chosen, written, path, reference, on_progress)


def planned(source: StrPath, wanted: Options) -> tuple[Checkpoint, Findings, Plan]:
    """The first three stages: what is in the source, and where each number would go."""
    rules = read_renames(wanted.renames) if isinstance(wanted.renames, str | PathLike) else wanted.renames
    if wanted.like is not None and (wanted.prefix is not None or rules):
        raise LayoutError(f"{wanted.like} gives the names itself. Leave out prefix and renames.")
    checkpoint, findings = found_in(source, wanted)
    found, layout = convertible(checkpoint, findings, wanted.layers), wanted.layout
    if wanted.like is not None:
        alignment = all_matched(aligned(checkpoint, found, wanted.like), wanted.like)
        found, rules = tuple(pair.layer for pair in alignment.pairs), renames_of(alignment)
        checkpoint = replace(checkpoint, notes=(*checkpoint.notes, *alignment.notes))
        layout = alignment.layout
    chosen = layouts.plan(found, layout=layout, prefix=wanted.prefix, dtype=wanted.dtype)
    return checkpoint, findings, rename(chosen, rules) if rules else chosen


def prove(
    checkpoint: Checkpoint,
    findings: Findings,
    chosen: Plan,
    written: Path,
    target: Location,
    reference: str,
    on_progress: "Progress | None",
) -> Conversion:
    """Read the target back and verify it; only count it for reference ``none``."""
    facts: dict[str, Any] = {
        "source": checkpoint,
        "target": str(target),
        "plan": chosen,
        "not_converted": findings.not_converted,
        "notes": (*checkpoint.notes, *findings.notes, *layer_notes(chosen), *unseen(checkpoint, chosen)),
    }
    if reference == UNPROVEN:
        shapes = {tensor.key: tensor.shape for tensor in convert(chosen)}
        return Conversion(
            reference=None, ledgers={item.layer.name: ledger(item, shapes) for item in chosen.layers}, **facts
        )
    from .verification import verify  # imports torch

    stored = open_target(written)
    refuse_other_words(stored, chosen, checkpoint, target)
    proof = verify(chosen, stored, reference=reference, on_progress=on_progress)
    return Conversion(
        reference=proof.reference, ledgers=proof.ledgers, stored=proof.stored, comparisons=proof.comparisons, **facts
    )


def refuse_other_words(stored: Target, chosen: Plan, checkpoint: Checkpoint, target: Location) -> None:
    """What a target says of itself is proven like its numbers: modules are built of it.

    Raises:
        VerificationError: it says something else than the plan that was made from the source.
    """
    parse_description(stored.description, target)
    facts = list(differences(stored.description or "", chosen, checkpoint))
    if not facts:
        return
    more = f"; and {len(facts) - MOST_FACTS} more" if len(facts) > MOST_FACTS else ""
    blind = not all(item.layer.has_config for item in chosen.layers)
    step = "Pass the file that it was made from, or its configuration with --config" if blind else "Convert again"
    raise VerificationError(
        f"{target}: its description differs from what the source says: {'; '.join(facts[:MOST_FACTS])}{more}. {step}."
    )


def plan_again(findings: Findings, described: TargetDescription, source: StrPath, target: StrPath) -> Plan:
    """The plan that the target was made by, from the source's own layers."""
    if not described.layers:
        raise VerificationError(f"{target} describes no layer, so there is nothing to prove. Convert again.")
    known = {layer.name for layer in (*findings.layers, *findings.companions)}
    missing = [layer.name for layer in described.layers if layer.name not in known]
    if missing:
        raise VerificationError(
            f"{target} holds layer '{missing[0]}', which is not in {source}; it was made from "
            f"'{described.source}'. Pass that file (names can differ between formats, see docs/formats.md)."
        )
    chosen = select(findings.layers, tuple(layer.name for layer in described.layers), findings.companions)
    places = {layer.name: layer for layer in described.layers}
    words: dict[str, Any] = {name: getattr(described, name) for name in ("layout", "dtype")}
    try:
        bare = [layouts.plan([layer], prefix="", **words) for layer in chosen]
    except LayoutError as error:
        raise VerificationError(
            f"{target}: its description asks for what cannot be made from {source}: {error} Convert again."
        ) from error
    # The prefixes are taken as they are: one may hold a brace that came from a layer's name.
    plans = tuple(
        replace(item, prefix=places[item.layer.name].prefix, renamed=places[item.layer.name].keys)
        for plan in bare
        for item in plan.layers
    )
    return Plan(**words, layers=plans)
