"""The stages in order. Read this first.

read ─▶ survey ─▶ plan ─▶ convert ─▶ write a draft ─▶ verify the draft ─▶ give it its name
"""

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import layouts
from .conversion import convert, ledger
from .errors import (
    LayerError,
    LayoutError,
    NoAttentionError,
    ReadError,
    VerificationError,
    WriteError,
    listed,
    printable,
)
from .files.locations import (
    SOURCE,
    STANDARD_INPUT,
    StrPath,
    is_one_of,
    is_remote,
    is_url,
    local_copy,
    locate,
    name_of,
    refuse_changed,
    refuse_object,
    state_of,
)
from .files.shell import file, option
from .keys.matching import align, as_toml, renames_of
from .keys.renaming import read_renames, rename
from .layers import Findings, select, survey, told_once
from .layers.descriptions import Attention, read_attention
from .readers import read
from .records.layer import Layer, NotConverted
from .records.plan import Alignment, LayerPlan, Plan
from .records.proof import Conversion
from .records.source import Checkpoint
from .source.attention import module_source
from .targets import Target, check_target, draft, open_model, open_target, writer_for
from .targets.metadata import TargetDescription, describe_plan, differences, parse_description

if TYPE_CHECKING:
    from torch import nn

    from .verification import Progress

Renames = Mapping[str, str] | StrPath | None
UNPROVEN = "none"
MOST_FACTS = 4  # in one refusal of a description
MOST_TOLD = 2  # layers in one refusal; inspect lists them all
MOST_HELD = 4
OWN_CODE = "Attention of your own code is described with --attention (docs/layers.md)"
KERAS_SUFFIXES = (".weights.h5", ".weights.json", ".keras", ".h5", ".hdf5", ".index")


def convert_file(
    source: StrPath,
    target: StrPath,
    *,
    config: StrPath | None = None,
    trust: bool = False,
    attention: Attention = None,
    layout: str = "mha",
    placement: str = "projected",
    names: str | None = None,
    layers: Sequence[str] | None = None,
    prefix: str | None = None,
    renames: Renames = None,
    like: StrPath | None = None,
    dtype: str | None = None,
    module: StrPath | None = None,
    reference: str = "numpy",
    strict: bool = False,
    overwrite: bool = False,
    on_progress: "Progress | None" = None,
) -> Conversion:
    """Convert the attention layers of a saved Keras model to a PyTorch ``state_dict``, and prove the result.

    Args:
        source: whatever ``read`` takes: a file, a folder or a URL.
        target: ends in ``.safetensors`` or ``.pt``; exists afterwards only if it was proven. May be a URL.
        config: the model's JSON, where the source holds weights only.
        trust: whether the source may ask for any memory and time, see ``docs/security.md``.
        attention: hand-written attention: rows as text or mappings, or TOML files with them, see ``read_attention``.
        layout: ``"mha"``, ``"linear"``, ``"qkv"`` or ``"separate"``, see ``docs/layouts.md``.
        placement: ``"projected"`` or ``"drop-in"``.
        names: whose names layout ``separate`` takes, see ``plan``.
        layers: names of the layers to convert; None for all.
        prefix: what stands before a layer's keys, with ``{name}`` for its name; ``""`` for bare keys.
        renames: patterns for whole keys and their new names, see ``rename``; or a TOML file with them.
        like: a ``state_dict`` of your own model, whose attention the layers are matched with (``align_file``): it
            decides layout, placement and keys, and every layer must have a place.
        dtype: ``"float32"``, ``"float16"``, ``"bfloat16"``, ``"float64"``; None keeps each layer's own.
        module: where to write the modules that load the target, as source that needs torch alone; None for nowhere.
        reference: ``"numpy"``, ``"keras"`` (genuine Keras as well, in a subprocess), or ``"none"``.
        strict: whether a layer whose class computes more than attention with its projections is an error.
        overwrite: whether an existing target is replaced.
        on_progress: called with a layer's name, its index and the number of layers.

    Raises:
        ReadError, LayerError, LayoutError, WriteError, VerificationError: nothing was written.
    """
    refuse_object(source, SOURCE)
    path, writer = locate(target), writer_for(target)
    check_target(path, overwrite=overwrite)
    refuse_source_as_target(source, path)
    if module is not None:
        refuse_object(module)
        if Path(module).suffix != ".py" or not Path(module).stem.isidentifier():
            raise WriteError(f"{module}: is no name of a Python module. Name it like attention.py.")
        check_target(Path(module), overwrite=overwrite)
        refuse_source_as_target(source, Path(module))
        if Path(module).resolve() == path.resolve():
            raise WriteError(f"{path}: is to be the target and the module's source at once. Give two names.")
    checkpoint, findings, chosen = plan_file(
        source,
        config=config,
        trust=trust,
        attention=attention,
        layout=layout,
        placement=placement,
        names=names,
        layers=layers,
        prefix=prefix,
        renames=renames,
        like=like,
        dtype=dtype,
    )
    for place in (path, *(() if module is None else (Path(module),))):
        refuse_part_as_target(place, checkpoint, like)
    if strict:
        refuse_more([item.layer for item in chosen.layers])
    with ExitStack() as stack:  # left in reverse: the target appears first, the module's source after it
        if module is not None:
            text = module_source(chosen, name_of(source), path.name)
            stack.enter_context(draft(Path(module), overwrite=overwrite)).write_text(text, encoding="utf-8")
        drafted = stack.enter_context(draft(path, overwrite=overwrite))
        stack.enter_context(unchanged(checkpoint))
        with checked(checkpoint):
            writer.write(drafted, convert(chosen), describe_plan(chosen, checkpoint))
        return prove(checkpoint, findings, chosen, drafted, path, reference, on_progress)


@contextmanager
def unchanged(checkpoint: Checkpoint) -> Iterator[None]:
    """Refuse a source that was written to during the block, also where the block failed: that is why, then."""
    try:
        yield
    except Exception:
        refuse_changed(checkpoint.files)
        raise
    refuse_changed(checkpoint.files)


@contextmanager
def checked(checkpoint: Checkpoint) -> Iterator[None]:
    """Compare the source with its checksums in a thread beside the block; the block ends when both have ended.

    A block that fails on a damaged source fails with what is wrong with the source.
    """
    check = in_background(checkpoint.check)
    try:
        yield
    except Exception:
        check.result()
        raise
    check.result()


def in_background(action: Callable[[], None]) -> "Future[None]":
    """Start it in a thread that nobody waits for at the end of an interrupted command."""
    result: Future[None] = Future()

    def run() -> None:
        try:
            action()
        except BaseException as error:
            result.set_exception(error)
        else:
            result.set_result(None)

    threading.Thread(target=run, daemon=True).start()
    return result


def plan_file(
    source: StrPath,
    *,
    config: StrPath | None = None,
    trust: bool = False,
    attention: Attention = None,
    layout: str = "mha",
    placement: str = "projected",
    names: str | None = None,
    layers: Sequence[str] | None = None,
    prefix: str | None = None,
    renames: Renames = None,
    like: StrPath | None = None,
    dtype: str | None = None,
) -> tuple[Checkpoint, Findings, Plan]:
    """The first stages of ``convert_file``: what is in the source, and where each number would go.

    Arrays are read only where a layer cannot be told without, see ``find_layers``.
    """
    rules = read_renames(renames) if isinstance(renames, str | PathLike) else renames
    if like is not None and (prefix is not None or names or rules):
        raise LayoutError(f"{like}: finds the names itself. Leave out prefix, names and renames.")
    rows = read_attention(attention)
    checkpoint = read(source, config=config, trust=trust)
    findings = survey(checkpoint, rows)
    found = convertible(checkpoint, findings, layers)
    if like is not None:
        alignment = all_matched(aligned(checkpoint, found, like), like)
        found, rules = tuple(pair.layer for pair in alignment.pairs), renames_of(alignment)
        checkpoint = replace(checkpoint, notes=(*checkpoint.notes, *map(printable, alignment.notes)))
        layout, placement = alignment.layout, alignment.placement
    chosen = layouts.plan(found, layout=layout, placement=placement, names=names, prefix=prefix, dtype=dtype)
    return checkpoint, findings, rename(chosen, rules) if rules else chosen


def align_file(
    source: StrPath,
    like: StrPath,
    *,
    config: StrPath | None = None,
    trust: bool = False,
    attention: Attention = None,
    layers: Sequence[str] | None = None,
) -> Alignment:
    """Which of the source's layers belongs to which attention of a PyTorch model; ``convert_file(like=)`` applies it.

    Args:
        source: whatever ``read`` takes.
        like: the model's ``state_dict``, ``.safetensors`` or ``.pt``.
        config: the model's JSON, where the source holds weights only.
        trust: whether the source may ask for any memory and time, see ``docs/security.md``.
        attention: hand-written attention, as in ``convert_file``.
        layers: names of the layers to match; None for all.

    Returns:
        the pairs, told by shapes and order, and what stays on either side.

    Raises:
        ReadError, LayerError: as ``convert_file``.
        LayoutError: the pairs need two layouts.
    """
    return align_source(source, like, config=config, trust=trust, attention=attention, layers=layers)[1]


def align_source(
    source: StrPath,
    like: StrPath,
    *,
    config: StrPath | None = None,
    trust: bool = False,
    attention: Attention = None,
    layers: Sequence[str] | None = None,
) -> tuple[Checkpoint, Alignment]:
    """``align_file``, with the source."""
    rows = read_attention(attention)
    checkpoint = read(source, config=config, trust=trust)
    found = convertible(checkpoint, survey(checkpoint, rows), layers)
    return checkpoint, aligned(checkpoint, found, like)


def aligned(checkpoint: Checkpoint, layers: Sequence[Layer], like: StrPath) -> Alignment:
    """The layers matched with the model's tensors.

    Raises:
        ReadError: the model's attention holds something else than plain numbers, which no target replaces.
    """
    model = open_model(like)
    found = align(layers, model.shapes, in_order=checkpoint.has_config)
    for place in (*(pair.place for pair in found.pairs), *found.left_places):
        for key in place.keys.values():
            if model.dtypes[key] not in layouts.DTYPES:
                raise ReadError(
                    f"{like}: '{printable(key)}' in its attention is {printable(model.dtypes[key])}, expected plain "
                    f"{', '.join(layouts.DTYPES)}. Save the state_dict of the model as it was before."
                )
    return replace(found, notes=tuple(f"{like}: {note}" for note in model.notes))


def write_rules(
    alignment: Alignment, source: StrPath, like: StrPath, path: Path, *, attention: Sequence[str] = (), overwrite: bool
) -> str:
    """Write the pairs as rules for ``--rename``, to be edited; returns the command that takes them."""
    chosen = layouts.selection([pair.layer.name for pair in alignment.pairs], most=len(alignment.pairs))
    options = f"--layout {alignment.layout} --placement {alignment.placement} {chosen}"
    rows = "".join(f" {option('--attention', row)}" for row in attention)
    command = f"mha-convert convert {file(source)} TARGET {options}{rows} {option('--rename', path)}"
    heading = [f"Attention of {source} under the names of {like}.", command]
    heading += [f"Without a place: layer '{name}': {why}." for name, why in alignment.left_layers]
    heading += [f"Without a layer: {place.prefix}*" for place in alignment.left_places]
    text = as_toml(renames_of(alignment), heading)
    with draft(path, overwrite=overwrite) as drafted:
        drafted.write_text(text, encoding="utf-8")
    return command


def rules_beside(target: StrPath) -> Path:
    """Where the rules for a target are written: ``model.rename.toml`` beside ``model.safetensors``."""
    path = Path(name_of(target)) if is_url(target) else Path(target)
    return path.with_suffix(".rename.toml")


def all_matched(alignment: Alignment, like: StrPath) -> Alignment:
    """The same, or an error that names every layer which has no place for sure."""
    if alignment.left_layers:
        facts = "; ".join(f"layer '{printable(name)}': {why}" for name, why in alignment.left_layers)
        steps = ["Edit the rules that --like writes without --yes"] if alignment.pairs else []
        if alignment.pairs:
            steps.append(f"or match the rest with {layouts.selection([pair.layer.name for pair in alignment.pairs])}")
        raise LayoutError(
            f"{like}: does not take every layer: {facts}. {', '.join(steps) or 'Write rules for --rename'}."
        )
    return alignment


def verify_file(
    source: StrPath,
    target: StrPath,
    *,
    config: StrPath | None = None,
    trust: bool = False,
    reference: str = "numpy",
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
        LayerError, LayoutError: the source does not have the target's layers.
        VerificationError: the target is not what the source's layers compute.
    """
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


def prove(
    checkpoint: Checkpoint,
    findings: Findings,
    chosen: Plan,
    written: Path,
    target: Path,
    reference: str,
    on_progress: "Progress | None",
) -> Conversion:
    """Read the target back and verify it; only count it for reference ``none``."""
    facts: dict[str, Any] = {
        "source": checkpoint,
        "target": str(target),
        "plan": chosen,
        "not_converted": findings.not_converted,
        "notes": (*checkpoint.notes, *layer_notes(chosen), *unseen(checkpoint, chosen)),
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


def refuse_other_words(stored: Target, chosen: Plan, checkpoint: Checkpoint, target: Path) -> None:
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
    step = "Give the file that it was made from, or its configuration with --config" if blind else "Convert again"
    raise VerificationError(
        f"{target}: its description differs from what the source tells: {'; '.join(facts[:MOST_FACTS])}{more}. {step}."
    )


def convertible(checkpoint: Checkpoint, findings: Findings, names: Sequence[str] | None) -> tuple[Layer, ...]:
    """The layers that were asked for; an error where attention would be left out in silence."""
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
        rest = f", or name the others: {layouts.selection(plain)}" if plain else ""
        text = "; ".join(facts)
        raise LayerError(
            f"{text[0].upper()}{text[1:]}. Leave --strict (strict=True) out to convert them all the same{rest}."
        )


def unproven_roles(assumed: Sequence[Layer], layers: Sequence[Layer]) -> str:
    """Layers that the file does not prove are converted where the user knows them."""
    others = [layer for layer in layers if not layer.doubt]
    every = layouts.selection([layer.name for layer in (*assumed, *others)])
    steps = [f"If you know that they are right, name all layers that you want: {every}"]
    sure = [layer.name for layer in others]
    if sure:
        steps.append(f"To convert only what the file tells, give {layouts.selection(sure)}")
    return f"Layer {listed((layer.name for layer in assumed), 4)}: {assumed[0].doubt}. {'. '.join(steps)}."


def refusal(items: Sequence[NotConverted], others: Sequence[Layer]) -> str:
    """Each layer that cannot be converted, why, and how to convert the rest."""
    told = items[:MOST_TOLD]
    facts = "; ".join(f"layer '{printable(item.name)}' ({item.kind}) is not converted: {item.reason}" for item in told)
    facts += f"; and {len(items) - len(told)} more layers" if len(items) > len(told) else ""
    steps = list(dict.fromkeys(item.next_step for item in items))
    if others:
        steps.append(f"To convert the rest, give {layouts.selection([layer.name for layer in others])}")
    return f"{facts[0].upper()}{facts[1:]}. {'. '.join(steps)}."


def nothing_found(checkpoint: Checkpoint, findings: Findings) -> str:
    """A file without attention says what it does hold, and how hand-written attention is converted."""
    told = findings.not_converted[:MOST_HELD]
    holds = [f"{item.kind} '{printable(item.name)}': {item.reason}" for item in told]
    left = len(findings.not_converted) - len(told)
    rest = f"; and {left} more" if left else ""
    steps = ". ".join(ways_on(findings.not_converted, told))
    groups = [group for group in checkpoint.root.walk() if group.variables]
    names = ", ".join(printable(group.name or "the model itself") for group in groups[:6])
    more = f" and {len(groups) - 6} more" if len(groups) > 6 else ""
    facts = (
        f"{len(checkpoint.variables)} variables in {len(groups)} layers ({names}{more})" if groups else "no variables"
    )
    also = f". It also holds {'; '.join(holds)}{rest}" if holds else ""
    return (
        f"{checkpoint.path}: no attention with weights of its own in it, expected at least one; it holds "
        f"{facts}{also}. {steps}. "
        "`mha-convert inspect` lists everything."
    )


def ways_on(every: Sequence[NotConverted], told: Sequence[NotConverted]) -> list[str]:
    """One row of ``--attention``, or the hint that there are rows, where one can help; and what else can be done."""
    row = next((item.next_step for item in every if item.described == "row"), None)
    needs_hint = not every or any(item.described == "perhaps" for item in every)
    own = [row] if row else [OWN_CODE] if needs_hint else []
    return list(dict.fromkeys((*own, *(item.next_step for item in told if item.described == "never"))))


def plan_again(findings: Findings, described: TargetDescription, source: StrPath, target: StrPath) -> Plan:
    """The plan that the target was made by, from the source's own layers."""
    if not described.layers:
        raise VerificationError(f"{target}: describes no layer, so there is nothing to prove. Convert again.")
    known = {layer.name for layer in (*findings.layers, *findings.companions)}
    missing = [layer.name for layer in described.layers if layer.name not in known]
    if missing:
        raise VerificationError(
            f"{target}: holds layer '{printable(missing[0])}', which is not in {source}; it was made from "
            f"'{printable(described.source)}'. Give that file (names can differ between formats, see docs/formats.md)."
        )
    chosen = select(findings.layers, tuple(layer.name for layer in described.layers), findings.companions)
    places = {layer.name: layer for layer in described.layers}
    asked: dict[str, Any] = {name: getattr(described, name) for name in ("layout", "placement", "names", "dtype")}
    try:
        bare = [layouts.plan([layer], prefix="", **asked) for layer in chosen]
    except LayoutError as error:
        raise VerificationError(
            f"{target}: its description asks for what cannot be made from {source}: {error} Convert again."
        ) from error
    # The prefixes are taken as they stand: one may hold a brace that came from a layer's name.
    plans = tuple(
        replace(item, prefix=places[item.layer.name].prefix, renamed=places[item.layer.name].keys)
        for plan in bare
        for item in plan.layers
    )
    return Plan(**asked, layers=plans)


def layer_notes(chosen: Plan) -> tuple[str, ...]:
    """What a user should know of single layers."""
    notes = []
    if chosen.layout != "mha" and chosen.placement == "drop-in":
        notes.append(f"Layout '{chosen.layout}' keeps Keras' own sizes; the placement makes no difference.")
    facts = told_once((item.layer.name, fact) for item in chosen.layers for fact in layer_facts(item))
    return (*notes, *(f"{subject[0].upper()}{subject[1:]}: {fact}." for subject, fact in facts))


def layer_facts(item: LayerPlan) -> Iterator[str]:
    """The same of one layer, as sentences without their end."""
    yield from item.layer.cautions
    if item.misfit:
        yield item.misfit
    if item.layer.call_options:
        yield f"the model calls it with {', '.join(item.layer.call_options)}. Give PyTorch the same mask"
    computes, stores = item.layer.compute_dtype, item.layer.dtype
    if computes and computes != stores:
        yield f"Keras stores {stores} and computes in {computes}; the proof is in float64"


def unseen(checkpoint: Checkpoint, chosen: Plan) -> tuple[str, ...]:
    """What this file cannot tell; of layers that a user described, their own cautions say what was taken."""
    blind = [item.layer for item in chosen.layers if not item.layer.has_config and item.layer.row is None]
    if not blind:
        return ()
    which = (
        "this file has no configuration"
        if not checkpoint.has_config
        else "inside custom layers the file has no configuration"
    )
    return (
        f"{len(blind)} of {len(chosen.layers)} layers: {which}, so the layer's class, dropout, attention axes, masks "
        "and a sliding window cannot be seen; MultiHeadAttention with one time axis and without dropout is taken.",
    )


def explain_file(
    source: StrPath,
    layer: str | None = None,
    *,
    config: StrPath | None = None,
    trust: bool = False,
    attention: Attention = None,
    layout: str = "mha",
    placement: str = "projected",
    names: str | None = None,
) -> tuple[LayerPlan, ...]:
    """The plans of one layer or of all, for ``explain``."""
    rows = read_attention(attention)
    checkpoint = read(source, config=config, trust=trust)
    chosen = convertible(checkpoint, survey(checkpoint, rows), None if layer is None else [layer])
    plans = (layouts.plan([item], layout=layout, placement=placement, names=names, prefix="") for item in chosen)
    return tuple(plan.layers[0] for plan in plans)


def default_target(source: StrPath) -> Path:
    """``<source's name>.safetensors`` in the current folder."""
    name = name_of(source)
    if not name or str(source) == STANDARD_INPUT:
        raise WriteError(f"{source}: has no name to call the target after. Give TARGET.")
    return Path(f"{without_suffix(name)}.safetensors")


def without_suffix(name: str) -> str:
    """A file's name without the suffix that Keras gave it; other dots are part of the name."""
    suffix = next((end for end in KERAS_SUFFIXES if name.lower().endswith(end) and name.lower() != end), "")
    return name[: len(name) - len(suffix)]


def refuse_source_as_target(source: StrPath, target: Path) -> None:
    """The source is never written to."""
    place = Path(source) if not is_url(source) else None
    is_same = (
        str(target) == str(source)
        if place is None or is_remote(target)
        else target.exists() and place.exists() and target.samefile(place)
    )
    if is_same:
        raise WriteError(f"{target}: is the source itself. Give another name.")


def refuse_part_as_target(target: Path, checkpoint: Checkpoint, like: StrPath | None) -> None:
    """No file that was read is written to: shards, a folder's files, ``config``; nor ``like``."""
    if is_remote(target):
        return
    if is_one_of(target, checkpoint.files):
        raise WriteError(f"{target}: is the source itself, or a part of it. Give another name.")
    if like is not None and not is_url(like) and is_one_of(target, [state_of(Path(like))]):
        raise WriteError(f"{target}: is the model of --like (like=). Give another name.")


def from_keras_layer(
    layer: Any,
    *,
    layout: str = "mha",
    placement: str = "projected",
    names: str | None = None,
    dtype: str | None = None,
    strict: bool = False,
) -> "nn.Module":
    """A live ``keras.layers.MultiHeadAttention`` as a PyTorch module in evaluation mode, proven by the formula.

    Neither Keras nor TensorFlow is imported here: the layer's own ``weights`` and ``get_config()`` are read. What a
    report would say of the layer (a class that computes more, a subclass under Keras' name) is a ``UserWarning``.

    Args:
        layer: a built layer of Keras 2 or 3, on any backend.
        layout: ``"mha"``, ``"linear"``, ``"qkv"`` or ``"separate"``.
        placement: ``"projected"`` or ``"drop-in"``.
        names: whose names layout ``separate`` takes, see ``plan``.
        dtype: of the module; None keeps the layer's own.
        strict: whether a class that computes more than attention with its projections is an error.

    Returns:
        ``torch.nn.MultiheadAttention`` where it fits alone, else a module of ``mha_convert.modules``; called alike,
        batch first.

    Raises:
        LayerError: not an attention layer, or not built.
        LayoutError: the layer does not fit the layout.
        VerificationError: PyTorch does not reproduce the formula.
    """
    from .readers.live_layer import read_layer

    checkpoint = read_layer(layer)
    findings = survey(checkpoint)
    if not findings.layers and not any(item.blocking for item in findings.not_converted):
        raise LayerError(
            f"{checkpoint.path}: its class is {printable(type(layer).__name__)}, expected attention with weights of "
            "its own. Give a keras.layers.MultiHeadAttention."
        )
    found = convertible(checkpoint, findings, None)
    if strict:
        refuse_more(found)
    chosen = layouts.plan(found, layout=layout, placement=placement, names=names, prefix="", dtype=dtype)
    module = prove_in_memory(chosen)
    for item in found:
        for caution in item.cautions:
            warnings.warn(f"{checkpoint.path}: {caution}", stacklevel=2)
    return module


def prove_in_memory(chosen: Plan) -> "nn.Module":
    """Make the tensors, prove them as if they had been read from a file, and load them."""
    from .targets.loading import build_module
    from .targets.torch_file import as_tensor
    from .verification import verify

    tensors = {tensor.key: as_tensor(tensor.read()) for tensor in convert(chosen)}
    target = Target(
        path=Path("memory"),
        description=None,
        shapes={key: tuple(tensor.shape) for key, tensor in tensors.items()},
        dtypes={key: str(tensor.dtype).removeprefix("torch.") for key, tensor in tensors.items()},
        read=tensors.__getitem__,
    )
    verify(chosen, target)
    return build_module(chosen.layers[0].module, tensors)
