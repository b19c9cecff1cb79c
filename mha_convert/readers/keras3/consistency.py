"""Whether a model's configuration agrees with the arrays of a file; if not, one of the two is another model's."""

from collections.abc import Iterator, Sequence

from ...classes import REQUIRED, LayerClass, class_of
from ...errors import ReadError, shortened
from ...records.source import Group
from .json_text import Json
from .model_config import child_layers, descendants, layer_config, malformed

FLOATS = ("float", "bfloat")


def check_sizes(root: Group, source: object) -> None:
    """Layers have the arrays that their configuration says; else one of the two is another model's.

    Only where a setting is the size of an axis as it is stored, and only for numbers that are not quantized.
    """
    for group in root.walk():
        row, settings = class_of(group.config), group.config.settings if group.config else {}
        for count in (count for count in (row.counts if row else ()) if count in settings):
            stated, title = settings[count], f"layer '{group.name}'"
            if type(stated) is not int or stated < 1:
                raise malformed(source, f"{count} of {title} is {shortened(stated, 40)}")
            for name, actual in sizes_of(count, row, group):
                if actual != stated:
                    raise malformed(source, f"{title} has {stated} {count} there, its {name} has {actual}")


def sizes_of(axis: str, row: LayerClass | None, group: Group) -> Iterator[tuple[str, int]]:
    """The size of an axis in each variable that has it, with the variable's name."""
    for number, weight in enumerate(row.made(group.config.settings) if row and group.config else ()):
        stored = next((group.variables[key] for key in (str(number), weight.name) if key in group.variables), None)
        is_plain = stored is not None and stored.dtype.startswith(FLOATS) and len(stored.shape) == len(weight.axes)
        if stored is not None and is_plain and axis in weight.axes:
            yield weight.name, stored.shape[weight.axes.index(axis)]


def refuse_architecture(architecture: Json | None, source: object) -> None:
    """A file with a configuration of its own needs no second one."""
    if architecture is not None:
        raise ReadError(f"{source} has its own configuration, and another one would contradict it. Leave --config out.")


def check_fits(root: Group, architecture: Json | None, source: object, *, by_name: bool = True) -> None:
    """A separate architecture must know the file's layers.

    Args:
        root: the file's tree, with the architecture's configurations.
        architecture: None where there is none.
        source: the file.
        by_name: whether the file names every layer; else one that fits is enough.
    """
    if architecture is None:
        return
    named = next((group for group in root.walk() if group.config and group.config.is_model), root)
    layers = [group for group in named.children.values() if any(inner.variables for inner in group.walk())]
    strangers = [group.name for group in layers if group.config is None]
    if strangers and (by_name or len(strangers) == len(layers)):
        if not child_layers(architecture):
            raise ReadError(
                f"{source}: the given architecture lists no layers: a model of a class of its own does not describe "
                "its insides, so it says nothing here. Leave --config out."
            )
        known = ", ".join(f"'{layer_config(entry).name}'" for entry in child_layers(architecture)[:6])
        raise ReadError(
            f"{source} holds layer '{strangers[0]}', which that architecture does not name "
            f"(it has {known}). It is another model's; pass this model's."
        )


def check_names_all(model: Json, strangers: Sequence[str], source: object) -> None:
    """A file's own configuration lists every layer whose weights the file holds; what it says of one must not be lost.

    Args:
        model: the model's JSON; one that lists no layers tells nothing.
        strangers: what the layers with weights are called that it does not list.
        source: the file.
    """
    if strangers and child_layers(model):
        known = ", ".join(f"'{shortened(layer_config(entry).name, 40)}'" for entry in child_layers(model)[:6])
        raise ReadError(
            f"{source} holds layer '{strangers[0]}', which its configuration does not name "
            f"(it has {known}). The file was changed or put together from two models; save the model again."
        )


def check_holds_required(
    root: Group, model: Json, source: object, *, may_be_unnamed: bool = False, repeats_shared_layers: bool = False
) -> None:
    """Layers that must have weights are in the file if the configuration names them; shared ones are there once.

    Args:
        root: what the file holds.
        model: the model's JSON.
        source: the file.
        may_be_unnamed: whether some layers may be in groups that no entry of the JSON was found for.
        repeats_shared_layers: whether shared layers are there as often as the JSON names them.
    """
    layers = [group for group in root.walk() if not (group.config and group.config.is_model)]
    held = [f"/{group.name}" for group in layers if any(part.variables for part in group.walk())]
    missing: dict[str, LayerClass] = {}
    for place, entry in descendants(model):
        layer, last = layer_config(entry), f"/{layer_config(entry).name}"
        row = class_of(layer)
        if row is None or not row.is_required:
            continue
        is_exact = repeats_shared_layers and len(place) == 1
        if not (last in held if is_exact else any(name.endswith(last) for name in held)):
            missing[layer.name] = row
    if len(missing) > (unnamed(root) if may_be_unnamed else 0):
        first = min(missing)
        raise ReadError(
            f"{source}: its configuration names the {missing[first].noun} layer '{first}', of which it "
            "holds no weights. The file was changed or put together from two models; save the model again."
        )


def unnamed(root: Group) -> int:
    """At most so many groups without an entry are layers that must have weights: one has a kernel in each part."""
    least = min(len(row.constant_parts) or 1 for row in REQUIRED)
    arrays = [sum(len(part.variables) for part in group.walk()) for group in root.walk() if group.config is None]
    return sum(count >= least for count in arrays)
