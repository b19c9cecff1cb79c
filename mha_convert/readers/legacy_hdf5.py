"""Legacy HDF5: ``model.save("x.h5")`` and ``save_weights("x.h5")`` of every Keras up to today.

``[model_weights/]<layer>/<weight name>``: the root (or ``model_weights``) lists its layers in ``layer_names``, each
layer lists its arrays in ``weight_names`` (``attn/query/kernel:0``; without ``:0`` since Keras 3.3). Names may
hold ``/`` themselves, so the lists are followed and the tree is not walked.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..classes import COMPOSITE
from ..errors import ReadError, shortened
from ..files.source import Source
from ..records.source import Checkpoint, Group, LayerConfig, Variable
from .hdf5.image import Hdf5Array, Hdf5Group, Hdf5Image
from .keras3.consistency import check_fits, check_holds_required, check_names_all, check_sizes, refuse_architecture
from .keras3.json_text import Json, kind_of, parse_json
from .keras3.model_config import (
    checked_model,
    child_layers,
    descendants,
    is_nameless,
    layer_config,
    listed_configs,
)
from .order import Listed, exchanged_weights, listed_otherwise, nested_otherwise, refuse_or_tell
from .probe import Probe
from .tree import Node

WHOLE_MODEL, TITLE = "h5", "legacy HDF5, whole model"
WEIGHTS_ONLY, WEIGHTS_ONLY_TITLE = "h5-weights", "legacy HDF5, weights only"
SUFFIXES, FOLDERS, BESIDE = (".h5", ".hdf5"), (), ""
OPTIMIZER = "optimizer_weights"
TOP_LEVEL = "top_level_model_weights"  # weights that the model itself owns; Keras 2.8 and later
KNOWN = [set(row.known_by) for row in COMPOSITE]
LayerPath = tuple[str, ...]
Following = dict[LayerPath, set[str | None]]


def parts(names: Collection[str]) -> frozenset[str]:
    """None: an ``.h5`` file is a model by itself."""
    return frozenset()


def accepts(probe: Probe) -> bool:
    """HDF5 with Keras' list of layers."""
    root = probe.root
    return root is not None and (root.holds("model_weights") or root.attribute("layer_names") is not None)


def read(source: Source, architecture: Json | None = None) -> Checkpoint:
    """Describe the model; raises ``ReadError`` for damage, and for what an aborted save left behind."""
    file = contents(source, architecture)
    model = None if file.model is None else with_names(file.model, file.layer_names)
    sorter = Tree(model or {}, file.weights)
    owners = [sorter.owner(item) for item in file.weights]
    tree = sorter.build(file.weights, owners)
    check(tree, model or {}, architecture, source)
    conflicts = [*listed_otherwise(file.weights, model or {}), *nested_otherwise(file.weights, owners, sorter.entries)]
    return Checkpoint(
        path=str(source),
        format=WHOLE_MODEL if file.is_whole else WEIGHTS_ONLY,
        format_title=TITLE if file.is_whole else WEIGHTS_ONLY_TITLE,
        keras_version=file.keras_version,
        backend=file.backend,
        has_config=model is not None,
        root=tree if model is not None else with_empty(tree, file.layer_names),
        others=(*file.optimizer, *file.strays),
        listed=listed_configs(model or {}),
        omits_empty_layers=True,
        repeats_shared_layers=True,
        notes=(
            *refuse_or_tell(conflicts, source, is_separate=architecture is not None),
            *exchanged_weights(file.weights, owners, sorter.entries, source),
            *left_unlisted(file.strays),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a file holds, before it is sorted into layers; ``model`` is its own JSON, or else the one that was given."""

    is_whole: bool
    model: Json | None
    keras_version: str | None
    backend: str | None
    layer_names: list[str]
    weights: list[Listed]
    optimizer: tuple[Variable, ...]
    strays: tuple[Variable, ...]


def contents(source: Source, architecture: Json | None) -> Contents:
    """Everything that is asked of the file, in one go."""
    with Hdf5Image(source).open() as root:
        is_whole = root.holds("model_weights")
        top = as_group(root, "model_weights") if is_whole else root
        config = root.attribute("model_config")
        model = architecture if config is None else own_model(config, source)
        if config is not None:
            refuse_architecture(architecture, source)
        version, backend = (root.attribute(name) or top.attribute(name) for name in ("keras_version", "backend"))
        weights = list(layer_variables(top))
        slots = as_group(root, OPTIMIZER).arrays() if root.holds(OPTIMIZER) else ()
        return Contents(
            is_whole=is_whole,
            model=model,
            keras_version=version if isinstance(version, str) else None,
            backend=backend if isinstance(backend, str) else None,
            layer_names=names_in(top, "layer_names") or [],
            weights=weights,
            optimizer=tuple(array.variable("optimizer") for array in slots),
            strays=tuple(array.variable("unlisted") for array in unlisted(root, weights)),
        )


def check(tree: Group, model: Json, architecture: Json | None, source: Source) -> None:
    """Refuse a file that is not of the model whose configuration it has, or was given."""
    own = replace(tree, children={name: group for name, group in tree.children.items() if name != TOP_LEVEL})
    # Whether JSON and arrays are of the same model.
    check_fits(own, architecture, source)
    check_holds_required(own, model, source, repeats_shared_layers=True)
    if architecture is None:
        holding = [group for group in own.children.values() if any(inner.variables for inner in group.walk())]
        check_names_all(model, [group.name for group in holding if group.config is None], source)
    check_sizes(own, source)


def with_empty(tree: Group, names: list[str]) -> Group:
    """The tree with layers that hold nothing, of which a file without configuration tells the names alone."""
    empty = {name: Group(path=name, name=name) for name in names if name not in tree.children}
    return replace(tree, children={**tree.children, **empty})


def with_names(model: Json, listed: Sequence[str]) -> Json:
    """The model's JSON, in which layers without a name have the ones that the file lists besides all others."""
    layers = child_layers(model)
    nameless = [number for number, layer in enumerate(layers) if is_nameless(layer)]
    known = {layer_config(layer).name for layer in layers}
    others = [name for name in listed if name not in known]
    if not nameless or len(others) != len(nameless):
        return model
    for number, name in zip(nameless, others, strict=True):
        layers[number] = {**layers[number], "name": name}
    inner = model["config"]
    return {**model, "config": layers if isinstance(inner, list) else {**inner, "layers": layers}}


def own_model(config: object, source: Source) -> Json:
    """The model's JSON in the attribute ``model_config``."""
    if not isinstance(config, str):
        raise ReadError(f"{source}: its model_config is {kind_of(config)}, not text. Save the model again.")
    if not config.isascii() and config != config.encode("utf-8", "replace").decode():
        raise ReadError(
            f"{source}: its model_config is not UTF-8 text. The file is damaged; copy or download it again."
        )
    return checked_model(parse_json(config, source, "attribute model_config"), source)


def layer_variables(top: Hdf5Group) -> Iterator[Listed]:
    """Every weight that a layer lists, in Keras' order."""
    layers = names_in(top, "layer_names")
    if layers is None:
        raise ReadError(
            f"{top.place} has no attribute layer_names. The file was not written to its end; save the model again."
        )
    layers = [*layers, *([TOP_LEVEL] if top.holds(TOP_LEVEL) else [])]
    refuse_aborted_save(top, layers)
    for layer in layers:
        group = as_group(top, layer)
        for weight in names_in(group, "weight_names") or []:
            array = group.follow(weight)
            if not isinstance(array, Hdf5Array):
                raise ReadError(
                    f"{group.place}: '{weight}' is a group, expected an array. "
                    "The file is damaged; save the model again."
                )
            yield Listed(layer, weight, array.variable(), array.node.get("offset"))


def unlisted(root: Hdf5Group, found: Sequence[Listed]) -> Iterator[Hdf5Array]:
    """Arrays that no layer lists; those of the optimizer have a place of their own."""
    listed = {item.variable.path for item in found}
    for name, item in root.members():
        if name != OPTIMIZER:
            arrays = item.arrays() if isinstance(item, Hdf5Group) else [item]
            yield from (array for array in arrays if array.path not in listed)


def left_unlisted(strays: Sequence[Variable]) -> Iterator[str]:
    """A note on arrays that are in the file, and in no layer."""
    if strays:
        names = ", ".join(f"'{shortened(variable.path, 60)}'" for variable in strays[:4])
        more = f" and {len(strays) - 4} more" if len(strays) > 4 else ""
        are = "arrays are" if len(strays) > 1 else "array is"
        yield (
            f"{len(strays)} {are} in the file that no layer lists: {names}{more}. Keras ignores such arrays, and they "
            "are not converted; Keras itself never writes them."
        )


def names_in(group: Hdf5Group, attribute: str) -> list[str] | None:
    """A list of names that Keras wrote as an attribute; an empty one may be of numbers."""
    names = group.attribute(attribute)
    if names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        return names
    raise ReadError(f"{group.place}: its {attribute} is not a list of names. The file is damaged; copy it again.")


def as_group(group: Hdf5Group, path: str) -> Hdf5Group:
    """The group at ``path``."""
    found = group.follow(path)
    if not isinstance(found, Hdf5Group):
        raise ReadError(
            f"{group.place}: '{path}' is an array, expected a group. The file is damaged; save the model again."
        )
    return found


def refuse_aborted_save(top: Hdf5Group, layers: list[str]) -> None:
    """Keras 3.0 to 3.2 stopped in the middle of saving layers with parts as HDF5, and left the file on the disk."""
    kinds = " and ".join(dict.fromkeys(row.noun for row in COMPOSITE))
    for layer in layers:
        weights = (names_in(as_group(top, layer), "weight_names") or []) if top.holds(layer) else []
        name, times = Counter(weights).most_common(1)[0] if weights else ("", 0)
        if times > 1:
            raise ReadError(
                f"{top.image.source}: layer '{layer}' lists the weight '{name}' {times} times, "
                f"expected once: an aborted save (Keras 3.0 to 3.2 cannot write {kinds} as .h5), most weights are not "
                "in the file. Save the model again as .keras or .weights.h5."
            )


class Tree:
    """The layers as a tree of groups, named by the model's configuration where there is one."""

    def __init__(self, model: Json, found: Iterable[Listed]) -> None:
        self.model = model
        self.following = names_behind(found)
        self.entries = dict(descendants(model))
        self.inside: dict[str, set[str | None]] = {}  # names of all layers below each layer of the model itself
        for first, *below in self.entries:
            self.inside.setdefault(first, set()).update(below)
        self.lists = {first for first, inside in self.inside.items() if inside and "" not in inside}
        self.listed: dict[tuple[str, LayerPath], bool] = {}
        self.called: dict[str, list[LayerPath]] = {}  # places of layers by their own name
        for path, entry in self.entries.items():
            if entry.get("class_name") != "InputLayer":
                self.called.setdefault(path[-1], []).append(path)

    def owner(self, item: Listed) -> LayerPath:
        """Names of the layers that own a weight, outermost first.

        Keras 2 put names of enclosing scopes in front (``sub_model/cross_attn/query``): they are cut off up to the
        layer's own name. Layers of nested models are flat under the outermost layer: the configuration says where
        they belong.
        """
        scopes = tuple(item.weight.split("/")[:-1])
        return self.nested((item.layer,), scopes[self.own_name_ends(item.layer, scopes) :])

    def build(self, found: Sequence[Listed], owners: Sequence[LayerPath]) -> Group:
        """Sort the variables into groups, each below its owner. The root's configuration is the model's own."""
        root = Node()
        for item, owner in zip(found, owners, strict=True):
            variables, variable = root.at(owner).variables, item.variable
            name = item.weight.rpartition("/")[2].removesuffix(":0")
            variables[name if name not in variables else f"{name} of {variable.path}"] = variable
        return self.group(root, ())

    def group(self, node: Node, owner: LayerPath) -> Group:
        """The group named ``owner``, with everything below it."""
        children = {name: self.group(child, (*owner, name)) for name, child in node.children.items()}
        inside = [variable.path.rpartition("/")[0] for variable in node.variables.values()]
        path = inside[0] if inside else common_place([child.path for child in children.values()])
        return Group(
            path=path, name="/".join(owner), config=self.config(owner), variables=node.variables, children=children
        )

    def config(self, owner: LayerPath) -> LayerConfig | None:
        """The configuration of the layer at ``owner``; of the model itself for the root."""
        entry = self.entries.get(owner) if owner else self.model
        return layer_config(entry) if entry else None

    def own_name_ends(self, layer: str, scopes: LayerPath) -> int:
        """How many scopes are the layer's own name and those around it, and not what is in the layer.

        A layer in a model may have the model's name, and so may a part of a layer in it (a model ``query`` that holds
        ``attn/query`` and ``attn/key``).
        """
        parts = layer.split("/")
        starts = range(len(scopes) - len(parts) + 1)
        start = next((start for start in starts if [*scopes[start : start + len(parts)]] == parts), None)
        if start is None:
            return 0
        end = start + len(parts)
        following = self.following[layer]
        behind = following[scopes[:end]]
        is_around = all(len(following[scopes[:size]]) == 1 for size in range(1, end)) if start else True
        holds_parts = not start and len(following[()]) > 1 and any(behind >= names for names in KNOWN)  # next to layers
        return end if is_around and not holds_parts and self.has_all(layer, scopes[:end]) else 0

    def has_all(self, layer: str, front: LayerPath) -> bool:
        """Whether all names after ``front`` are layers of the model ``layer``, where it lists layers."""
        if layer not in self.lists:
            return True
        if (layer, front) not in self.listed:
            self.listed[layer, front] = self.following[layer][front] - {None} <= self.inside[layer]
        return self.listed[layer, front]

    def nested(self, base: LayerPath, inner: LayerPath) -> LayerPath:
        """``(*base, *models on the way, *inner)``: the layer called ``inner[0]`` somewhere below ``base``."""
        if not inner:
            return base
        called = self.called.get(inner[0], [])
        found = [path for path in called if path[: len(base)] == base and path != base]
        if len(found) != 1:
            return (*base, *inner)
        is_model = bool(child_layers(self.entries[found[0]]))
        return self.nested(found[0], inner[1:]) if is_model else (*found[0], *inner[1:])


def names_behind(found: Iterable[Listed]) -> dict[str, Following]:
    """By layer and by names in front: the names that follow in those of its weights; None where nothing does."""
    result: dict[str, Following] = {}
    for item in found:
        scopes = tuple(item.weight.split("/")[:-1])
        for size in range(len(scopes) + 1):
            following = result.setdefault(item.layer, {}).setdefault(scopes[:size], set())
            following.add(scopes[size] if size < len(scopes) else None)
    return result


def common_place(paths: list[str]) -> str:
    """The path in the file that all ``paths`` share; of a single one, its parent."""
    shared = []
    for parts in zip(*(path.split("/") for path in paths), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "/".join(shared[:-1] if len(paths) == 1 else shared)
