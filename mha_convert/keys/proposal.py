"""``match``: a source's layers matched with a model of the user's, and the match written as rules for ``--rename``."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .. import layouts
from ..errors import LayoutError, ReadError
from ..files.locations import StrPath
from ..files.shell import file, layer_options, option
from ..records.layer import Layer
from ..records.plan import Alignment
from ..records.source import Checkpoint
from ..targets import draft, open_model
from .matching import align, as_toml, renames_of


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
                    f"{like}: '{key}' in its attention is {model.dtypes[key]}, expected plain "
                    f"{', '.join(layouts.DTYPES)}. Save the state_dict of the model as it was before."
                )
    notes = tuple(f"{like}: {note}" for note in model.notes)
    return replace(found, notes=notes, source=checkpoint, like=str(like))


def write_rules(
    alignment: Alignment, source: StrPath, path: Path, *, attention: Sequence[str] = (), overwrite: bool = False
) -> str:
    """Write the pairs as rules for ``--rename``, to be edited; returns the command that takes them."""
    chosen = layer_options([pair.layer.name for pair in alignment.pairs], most=len(alignment.pairs))
    options = f"--layout {alignment.layout} {chosen}"
    rows = "".join(f" {option('--attention', row)}" for row in attention)
    command = f"mha-convert convert {file(source)} TARGET {options}{rows} {option('--rename', path)}"
    heading = [f"Attention of {source} under the names of {alignment.like}.", command]
    heading += [f"Without a place: layer '{name}': {why}." for name, why in alignment.left_layers]
    heading += [f"Without a layer: {place.prefix}*" for place in alignment.left_places]
    text = as_toml(renames_of(alignment), heading)
    with draft(path, overwrite=overwrite) as drafted:
        drafted.write_text(text, encoding="utf-8")
    return command


def all_matched(alignment: Alignment, like: StrPath) -> Alignment:
    """The alignment itself, or an error that names every layer without a sure place."""
    if alignment.left_layers:
        facts = "; ".join(f"layer '{name}': {why}" for name, why in alignment.left_layers)
        steps = ["Edit the rules that `mha-convert match` writes"] if alignment.pairs else []
        if alignment.pairs:
            steps.append(f"or match the rest with {layer_options([pair.layer.name for pair in alignment.pairs])}")
        raise LayoutError(
            f"{like} does not take every layer: {facts}. {', '.join(steps) or 'Write rules for --rename'}."
        )
    return alignment
