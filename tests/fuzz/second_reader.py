"""A second, tiny reader of HDF5 formats: which kernels are where, and what the model's JSON says. It shares no code.

It does not judge: it says what a successful conversion must agree with. ``disagreements`` lists where it does not.
"""

import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import h5py
import numpy as np

V3_ROLE = re.compile(r"(?:^|/)(?:_?(query|key|value|output|gate)_dense|(attention_)output)/vars/([01])$")
LEGACY_ROLE = re.compile(r"(?:^|/)(query|key|value|attention_output|gate)/(kernel|bias)(?::0)?$")
CLASSES = ("MultiHeadAttention", "GroupQueryAttention", "GroupedQueryAttention")
ROLES = ("query", "key", "value", "output")
MADE_IN_ORDER = ("query", "key", "gate", "value", "output")
MODELS_OWN = "top_level_model_weights/"
DOUBLE_COUNT = ("2.12", "2.13")
MAY_STAND_ELSEWHERE = ("2.14", "2.15")  # attributes of the model; layers of that class keep the groups' names
Json = dict[str, Any]


@dataclass(frozen=True)
class Facts:
    """One converted layer, as the report has it: arrays by role, and what the configuration decides."""

    name: str
    arrays: dict[str, bytes] = field(repr=False)
    paths: dict[str, str] = field(repr=False)
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    settings: Json
    made: bool = False

    def array(self, role: str) -> Any:
        """The numbers of a role."""
        return np.frombuffer(self.arrays[role], self.dtypes[role]).reshape(self.shapes[role])


@dataclass
class Stored:
    """The arrays of one layer as they lie in the file, and the name that stands beside them."""

    label: str | None = None
    arrays: dict[str, tuple[str, bytes]] = field(default_factory=dict)


@dataclass
class Content:
    """Everything that the second reader found; ``whole`` is whether the JSON is of the same save as the weights."""

    stored: dict[str, Stored] = field(default_factory=dict)
    config: Json | None = None
    groups: list[str] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)
    version: str = ""
    whole: bool = False


def content_of(files: dict[str, bytes], main: str) -> Content:
    """Read all files of a mutant."""
    found = Content()
    for name, content in files.items():
        if content.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(BytesIO(content)) as archive:
                for member in ("metadata.json", "config.json", "model.weights.h5"):
                    if member in archive.namelist():
                        note(found, member, archive.read(member))
        else:
            note(found, PurePath(name).name, content)
    return found


def note(found: Content, name: str, content: bytes) -> None:
    """One file: HDF5, or JSON by its name."""
    if content.startswith(b"\x89HDF"):
        with h5py.File(BytesIO(content), "r") as file:
            legacy(file, found) if is_legacy(file) else v3(file, found)
    elif name == "config.json":
        found.config = json.loads(content)
    elif name == "metadata.json":
        found.version, found.whole = str(json.loads(content).get("keras_version")), True


def is_legacy(file: h5py.File) -> bool:
    """Whether it lists its layers."""
    return "model_weights" in file or any(key.startswith("layer_names") for key in file.attrs)


def v3(file: h5py.File, found: Content) -> None:
    """Numbered variables in groups called after attributes."""

    def visit(place: str, item: Any) -> None:
        match = V3_ROLE.search(place)
        if isinstance(item, h5py.Group):
            found.groups.append(place)
        elif match and not place.startswith("optimizer"):
            owner = place[: match.start()]
            kind = "kernel" if match[3] == "0" else "bias"
            layer = found.stored.setdefault(owner, Stored())
            layer.arrays[f"{match[1] or 'output'}.{kind}"] = place, native(item)
            own = file[owner] if owner else file
            label = own["vars"].attrs.get("name") if isinstance(own.get("vars"), h5py.Group) else None
            layer.label = label if isinstance(label, str) else None

    visit_all(file, "", visit)


def visit_all(group: h5py.Group, place: str, visit: Any, depth: int = 0) -> None:
    """Every object by every name; ``visititems`` tells only one name of an array that has two."""
    for name in group:
        if isinstance(group.get(name, getlink=True), h5py.HardLink) and depth < 60:
            inner = f"{place}/{name}".lstrip("/")
            visit(inner, group[name])
            if isinstance(group[name], h5py.Group):
                visit_all(group[name], inner, visit, depth + 1)


def legacy(file: h5py.File, found: Content) -> None:
    """Layers and their weights by lists."""
    top = file.get("model_weights", file)
    config = file.attrs.get("model_config")
    if config is not None:
        found.config, found.whole = json.loads(config), True
    for layer in texts(top, "layer_names"):
        group = top[layer]
        weights = texts(group, "weight_names")
        found.layers += [layer] if weights else []
        for weight in weights:
            match = LEGACY_ROLE.search(weight)
            if match:
                role = match[1].replace("attention_output", "output")
                owner = found.stored.setdefault(f"{layer}|{weight[: match.start()]}", Stored())
                item = group[weight]
                owner.arrays[f"{role}.{match[2]}"] = item.name.lstrip("/"), native(item)


def texts(group: Any, name: str) -> list[str]:
    """A list of names, in one attribute or in parts."""
    parts = [group.attrs[name]] if name in group.attrs else []
    while not parts or (name not in group.attrs and f"{name}{len(parts)}" in group.attrs):
        if f"{name}{len(parts)}" not in group.attrs:
            break
        parts.append(group.attrs[f"{name}{len(parts)}"])
    items = [item for part in parts if not isinstance(part, h5py.Empty) for item in np.atleast_1d(part)]
    return [item.decode() if isinstance(item, bytes) else str(item) for item in items]


def native(item: h5py.Dataset) -> bytes:
    """The numbers in this machine's byte order."""
    array = item[()]
    array = np.asarray(array)
    return array.astype(array.dtype.newbyteorder("="), copy=False).tobytes()


def disagreements(facts: list[Facts], content: Content) -> Iterator[str]:
    """Where a conversion is not what the second reader would expect."""
    by_query = {}
    for owner, stored in content.stored.items():
        if "query.kernel" in stored.arrays:
            by_query.setdefault(stored.arrays["query.kernel"][0].replace("\\", "/"), (owner, stored))
    entries = dict(named_entries(content.config)) if content.config else {}
    for layer in facts:
        yield from configured(layer, entries, content)
        if layer.made:
            continue
        place = layer.paths["query.kernel"].replace("\\", "/")
        if place.startswith(MODELS_OWN):
            continue  # a group that was given this name; nothing tells which layer it was
        if place not in by_query:
            yield f"{layer.name}: its query kernel is {place}, which is none"
            continue
        owner, stored = by_query[place]
        yield from other_arrays(layer, stored)
        yield from other_name(layer, owner, stored, entries, content, {other.name for other in facts})
    yield from left_out(facts, content)
    yield from other_order(facts, entries, content)


def other_order(facts: list[Facts], entries: dict[str, Json], content: Content) -> Iterator[str]:
    """Keras goes by position in legacy HDF5; where the names give another model, nothing should be converted."""
    if content.whole and content.layers:
        known = [name for name in entries if name in content.layers]
        if known != [name for name in content.layers if name in known]:
            yield f"the JSON lists {known[:4]}, the weights {content.layers[:4]}"
    converted = {layer.paths["query.kernel"] for layer in facts if not layer.made}
    for owner, stored in content.stored.items():
        made = [MADE_IN_ORDER.index(role.partition(".")[0]) for role in stored.arrays if role.endswith(".kernel")]
        steps_back = sum(after < before for before, after in pairwise(made))
        is_ours = "query.kernel" in stored.arrays and stored.arrays["query.kernel"][0] in converted
        entry = entries.get(owner.partition("|")[0], {})
        if (
            "|" in owner and entry.get("class_name") in CLASSES and is_ours and steps_back > 1
        ):  # one: what is trained, then what is frozen
            yield f"{owner}: its kernels come in the order {made}"


def other_arrays(layer: Facts, stored: Stored) -> Iterator[str]:
    """Each role has the array of that role."""
    for role, array in layer.arrays.items():
        if role not in stored.arrays:
            if role == "key.bias" and not any(array):
                continue  # of zeros, where the key alone has none
            yield f"{layer.name}: has a {role}, the file none"
        elif stored.arrays[role][1] != array:
            yield f"{layer.name}: its {role} ({layer.paths[role]}) is not {stored.arrays[role][0]}"
    for role in stored.arrays.keys() - layer.arrays.keys():
        yield f"{layer.name}: has no {role}, the file has one"


def left_out(facts: list[Facts], content: Content) -> Iterator[str]:
    """Complete attention that was not converted; legacy HDF5 holds shared layers twice."""
    converted = Counter(layer.arrays["query.kernel"] for layer in facts if not layer.made)
    names = {layer.name.rpartition("/")[2] for layer in facts}
    unnamed = content.version.startswith(MAY_STAND_ELSEWHERE) and any(
        layer.settings["dropout"] is None for layer in facts
    )
    for name, entry in named_entries(content.config) if content.config and not unnamed else ():
        if str(entry.get("class_name")).rpartition(">")[2] in CLASSES and name.rpartition("/")[2] not in names:
            yield f"{name}: is attention in the JSON, and is not in the target"
    for owner, stored in content.stored.items():
        complete = all(f"{role}.kernel" in stored.arrays for role in ROLES)
        if complete and stored.arrays["query.kernel"][1] not in converted and not any(layer.made for layer in facts):
            yield f"{owner}: is complete attention, and is not in the target"


def named_entries(model: Json, above: str = "") -> Iterator[tuple[str, Json]]:
    """Every layer's entry by its full name."""
    config = model.get("config")
    inner = config if isinstance(config, list) else config.get("layers") if isinstance(config, dict) else None
    for entry in inner if isinstance(inner, list) else ():
        if isinstance(entry, dict):
            settings = entry.get("config")
            name = (settings.get("name") if isinstance(settings, dict) else None) or entry.get("name")
            full = f"{above}/{name}".lstrip("/")
            yield full, entry
            yield from named_entries(entry, full)


def other_name(
    layer: Facts, owner: str, stored: Stored, entries: dict[str, Json], content: Content, names: set[str]
) -> Iterator[str]:
    """The name is the one that stands beside the arrays, or the one that counting gives."""
    last = layer.name.rpartition("/")[2]
    if "|" in owner:
        if last not in owner.replace("|", "/").split("/"):
            yield f"{layer.name}: its arrays are of {owner}"
    elif stored.label is not None:
        is_copy = layer.name not in entries and stored.label in names  # in a group that no configuration knows
        if stored.label != last and stored.label in entries and not is_copy:
            yield f"{layer.name}: its arrays are of {stored.label}"
        elif content.whole:
            yield from otherwise_counted(layer, owner, entries)
    elif entries and not content.version.startswith(DOUBLE_COUNT):
        yield from miscounted(layer, owner, entries, content)


def otherwise_counted(layer: Facts, owner: str, entries: dict[str, Json]) -> Iterator[str]:
    """Keras does not read the names beside the arrays: it counts, since 3.6 every layer once."""
    match = re.fullmatch(r"layers/multi_head_attention(?:_(\d+))?", owner)
    names = [
        name
        for name, entry in entries.items()
        if "/" not in name and str(entry.get("class_name")).rpartition(">")[2] == "MultiHeadAttention"
    ]
    number = int(match[1] or 0) if match else len(names)
    if number < len(names) and layer.name in names and names[number] != layer.name:
        yield f"{layer.name}: counting gives {names[number]}"


def miscounted(layer: Facts, owner: str, entries: dict[str, Json], content: Content) -> Iterator[str]:
    """In the outermost container, the n-th group of a class is its n-th layer."""
    match = re.fullmatch(r"((?:layers|_layer_checkpoint_dependencies)/multi_head_attention)(?:_(\d+))?", owner)
    if not match or layer.name not in entries:
        return
    top = {name for name, entry in entries.items() if name == (entry["config"].get("name") or entry.get("name"))}
    names = [
        name
        for name, entry in entries.items()
        if name in top and str(entry.get("class_name")).rpartition(">")[2] == "MultiHeadAttention"
    ]
    if content.version.startswith(MAY_STAND_ELSEWHERE) and layer.name == owner.rpartition("/")[2]:
        return
    groups = [group for group in content.groups if re.fullmatch(rf"{match[1]}(_\d+)?", group)]
    if len(groups) != len(names):
        yield f"{layer.name}: is named by counting, but the file has {len(groups)} and the JSON {len(names)}"
    elif names[int(match[2] or 0)] != layer.name:
        yield f"{layer.name}: counting gives {names[int(match[2] or 0)]}"


SIZES = {
    "num_heads": ("num_heads", "num_query_heads"),
    "num_key_value_heads": ("num_key_value_heads",),
    "key_dim": ("key_dim", "head_dim"),
    "value_dim": ("value_dim",),
    "use_bias": ("use_bias",),
    "use_gate": ("use_gate",),
    "sliding_window": ("sliding_window",),
    "dropout": ("dropout",),
    "attention_axes": ("attention_axes",),
}


def configured(layer: Facts, entries: dict[str, Json], content: Content) -> Iterator[str]:
    """What the JSON says of the layer of that name is what was converted."""
    entry = entries.get(layer.name)
    may_stand_elsewhere = content.version.startswith(MAY_STAND_ELSEWHERE) and layer.settings["dropout"] is None
    if may_stand_elsewhere and "multi_head_attention" in layer.name:
        return
    if entry is None or not isinstance(entry.get("config"), dict):
        if entries and "/" not in layer.name and not may_stand_elsewhere:
            yield f"{layer.name}: is not in the JSON"
        return
    settings = entry["config"]
    for fact, keys in SIZES.items():
        for key in keys:
            if fact in layer.settings and key in settings and not agrees(settings[key], layer.settings.get(fact), fact):
                yield f"{layer.name}: {key} is {settings[key]!r:.60} in the JSON, {layer.settings.get(fact)!r} converted"


def agrees(said: Any, done: Any, fact: str) -> bool:
    """Whether a setting was followed; Keras' null stands for the usual."""
    if fact == "attention_axes":
        said = said.get("items") if isinstance(said, dict) else [said] if type(said) is int else said
        done = None if done is None else list(done)
    if said is None:
        return fact not in ("num_heads", "key_dim") and (fact != "sliding_window" or done is None)
    if fact == "use_gate":
        return isinstance(said, bool) and said == done
    if fact == "dropout":
        return type(said) in (int, float) and float(said) == done
    return type(said) is type(done) and bool(said == done)
