"""Whether a model's configuration agrees with the arrays of a file; if not, one of the two is another model's."""

from collections.abc import Sequence
from pathlib import Path

from ...errors import ReadError, shortened
from ...records.source import Group
from .json_text import Json
from .model_config import HOLD_WEIGHTS, child_layers, descendants, layer_config, malformed

KERNELS = 4  # of attention
FLOATS = ("float", "bfloat")


def check_units(root: Group, source: object) -> None:
    """``Dense`` layers have the arrays that their configuration says; else one of the two is another model's."""
    for group in root.walk():
        if group.config is None or group.config.class_name != "Dense" or group.config.is_own:
            continue
        if "units" not in group.config.settings:
            continue
        units = group.config.settings["units"]
        kernel = next((group.variables[key] for key in ("0", "kernel") if key in group.variables), None)
        if type(units) is not int or units < 1:
            raise malformed(source, f"units of layer '{group.name}' is {shortened(units, 40)}")
        if kernel and len(kernel.shape) == 2 and kernel.dtype.startswith(FLOATS) and kernel.shape[1] != units:
            raise malformed(source, f"layer '{group.name}' has {units} units there, its kernel has {kernel.shape[1]}")


def refuse_architecture(architecture: Json | None, path: Path) -> None:
    """A file with a configuration of its own needs no second one."""
    if architecture is not None:
        raise ReadError(f"{path} has its own configuration, and another one would contradict it. Leave --config out.")


def check_fits(root: Group, architecture: Json | None, path: Path, *, by_name: bool = True) -> None:
    """A separate architecture must know the file's layers.

    Args:
        root: the file's tree, with the architecture's configurations.
        architecture: None where there is none.
        path: the file.
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
                f"{path}: the given architecture lists no layers: a model of a class of its own does not describe "
                "its insides, so it says nothing here. Leave --config out."
            )
        known = ", ".join(f"'{layer_config(entry).name}'" for entry in child_layers(architecture)[:6])
        raise ReadError(
            f"{path} holds layer '{strangers[0]}', which that architecture does not name "
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


def check_holds_attention(
    root: Group, model: Json, source: object, *, may_be_unnamed: bool = False, repeats_shared_layers: bool = False
) -> None:
    """Attention that the configuration names is in the file; layers that two models share are there once.

    Args:
        root: what the file holds.
        model: the model's JSON.
        source: the file.
        may_be_unnamed: whether some layers may be in groups that no entry of the JSON was found for.
        repeats_shared_layers: whether shared layers are there as often as the JSON names them.
    """
    layers = [group for group in root.walk() if not (group.config and group.config.is_model)]
    held = [f"/{group.name}" for group in layers if any(part.variables for part in group.walk())]
    missing = set()
    for place, entry in descendants(model):
        layer, last = layer_config(entry), f"/{layer_config(entry).name}"
        if layer.class_name in HOLD_WEIGHTS and not layer.is_own:
            is_exact = repeats_shared_layers and len(place) == 1
            is_held = last in held if is_exact else any(name.endswith(last) for name in held)
            missing |= set() if is_held else {layer.name}
    if len(missing) > (unnamed_attention(root) if may_be_unnamed else 0):
        first = min(missing)
        raise ReadError(
            f"{source}: its configuration names the attention layer '{first}', of which it holds no weights. "
            "The file was changed or put together from two models; save the model again."
        )


def unnamed_attention(root: Group) -> int:
    """At most so many groups without an entry are attention: one has four kernels."""
    arrays = [sum(len(part.variables) for part in group.walk()) for group in root.walk() if group.config is None]
    return sum(count >= KERNELS for count in arrays)
