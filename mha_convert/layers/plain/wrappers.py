"""Layers around other layers: Bidirectional and TimeDistributed.

https://keras.io/api/layers/recurrent_layers/bidirectional/
https://keras.io/api/layers/recurrent_layers/time_distributed/
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ...records.layer import PlainLayer
from ...records.source import Group
from ..companions import Companion, Settings
from ..settings import Setting
from .recurrent import GATES

MERGE_MODES = ("concat", "sum", "mul", "ave", None)
FORWARD, BACKWARD = "forward.", "backward."
KERAS_3 = (3,)
SHARED = ("return_sequences", "return_state")


def is_layer(value: Any) -> bool:
    """Whether it is a layer with its configuration."""
    return isinstance(value, Mapping) and isinstance(value.get("config"), Mapping)


def is_merge_mode(value: Any) -> bool:
    """Whether it says how two directions become one tensor, or that they stay two."""
    return value in MERGE_MODES


def layer(name: str, *, may_be_null: bool = False) -> Setting:
    """A setting that is a layer."""
    return Setting(name=name, is_valid=is_layer, expected="a layer with its settings", may_be_null=may_be_null)


def both_directions(settings: Settings, group: Group | None) -> Iterator[tuple[Settings, Group | None]]:
    """The two layers, whose settings Keras changes: outputs at masked steps are 0 where all steps are returned."""
    first = settings["layer"]
    second = settings["backward_layer"] or turned(first)
    places = directions(group, first["config"], second["config"])
    for part, place in zip((first, second), places, strict=True):
        config = part["config"]
        yield {**part, "config": {**config, "zero_output_for_mask": bool(config.get("return_sequences"))}}, place


def turned(part: Settings) -> Settings:
    """The same layer in the other direction."""
    config = part["config"]
    return {**part, "config": {**config, "go_backwards": not config.get("go_backwards")}}


def directions(group: Group | None, first: Settings, second: Settings) -> tuple[Group | None, Group | None]:
    """The places of both directions; the v3 layout names the attributes, ``.h5`` the layers."""
    children = [child for child in (group.children.values() if group else ()) if holds_variables(child)]
    forward = [child for child in children if last_name(child) in names("forward", first)]
    backward = [child for child in children if last_name(child) in names("backward", second)]
    if len(children) != 2 or len(forward) != 1 or len(backward) != 1 or forward == backward:
        return None, None
    return forward[0], backward[0]


def names(direction: str, config: Settings) -> tuple[str, ...]:
    """What the place of one direction may be called."""
    own = str(config.get("name"))
    return f"{direction}_layer", f"{direction}_{own}", f"{direction}_{own.removeprefix(f'{direction}_')}", own


def last_name(group: Group) -> str:
    """The name without the way to it."""
    return group.path.rpartition("/")[2]


def holds_variables(group: Group) -> bool:
    """Whether it, or a part of it, has some."""
    return any(part.variables for part in group.walk())


def direction_faults(layer: PlainLayer, group: Group | None) -> Iterator[str]:
    """Keras' own rules for the two layers, and one of ours."""
    forward, backward = layer.inside
    for part in layer.inside:
        if part.kind.removeprefix("CuDNN") not in GATES:
            yield f"it wraps a layer of class {part.class_name}, expected LSTM, GRU or SimpleRNN"
            return
    if forward.settings["go_backwards"] or not backward.settings["go_backwards"]:
        yield "its first layer goes backwards, or its second one does not, which has no rule"
    for name in SHARED:
        if forward.settings[name] != backward.settings[name]:
            yield f"its two layers have different {name}"
    if (
        layer.settings["merge_mode"] in ("sum", "mul", "ave")
        and len({part.settings["units"] for part in layer.inside}) > 1
    ):
        yield f"its two layers have different units, which {layer.settings['merge_mode']} cannot merge"


def distributed(settings: Settings, group: Group | None) -> Iterator[tuple[Settings, Group | None]]:
    """The layer that is called at each step, whose place may be the wrapper's own."""
    children = [child for child in (group.children.values() if group else ()) if holds_variables(child)]
    is_within = group is not None and not group.variables and len(children) == 1
    yield settings["layer"], children[0] if is_within else group


def distributed_faults(layer: PlainLayer, group: Group | None) -> Iterator[str]:
    """Keras 2 lets some layers make a mask for each step."""
    (part,) = layer.inside
    makes_masks = part.kind == "Masking" or part.settings.get("mask_zero")
    if makes_masks and layer.version < KERAS_3:
        yield f"its {part.class_name} layer makes a mask for each step, which has no rule"
    if part.settings.get("return_state"):
        yield "its layer returns states, which has no rule"


ROWS = (
    Companion(
        kind="Bidirectional",
        settings=(
            layer("layer"),
            layer("backward_layer", may_be_null=True),
            Setting(
                name="merge_mode", is_valid=is_merge_mode, expected="concat, sum, mul, ave or null", default="concat"
            ),
        ),
        without_effect=("weights", "num_constants"),
        faults=direction_faults,
        inside=both_directions,
        prefixes=(FORWARD, BACKWARD),
    ),
    Companion(
        kind="TimeDistributed",
        settings=(layer("layer"),),
        faults=distributed_faults,
        inside=distributed,
    ),
)
