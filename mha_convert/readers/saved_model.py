"""SavedModel folders: ``saved_model.pb`` and a checkpoint ``variables/variables``.

Written by ``model.save(folder)`` of Keras 2, which adds the layers' configurations (``keras_metadata.pb``; before 2.6
in ``saved_model.pb``), and by ``model.export(folder)`` of Keras 3, which keeps variables and functions only. Graphs and
functions are read as data, for the names of operations in them; none is executed.
https://www.tensorflow.org/guide/saved_model
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..classes import COMPOSITE, part_names
from ..errors import ReadError
from ..files.limits import PROTOBUF
from ..files.source import Source
from ..records.source import Checkpoint, version_of
from .keras3.consistency import check_fits, refuse_architecture
from .keras3.json_text import Json, mapping
from .keras3.losses import lost_by_optimizer
from .keras3.model_config import listed_configs
from .links import refuse_links_out
from .probe import Probe
from .tensorflow.bundle import has_index, open_bundle
from .tensorflow.graph_names import Namer
from .tensorflow.listed_variables import Names
from .tensorflow.object_graph import Object, arrange, read_objects
from .tensorflow.protobuf import parse

FORMAT, TITLE = "saved-model", "TensorFlow SavedModel"
GRAPH_FILE, METADATA_FILE, TEXT_FILE = "saved_model.pb", "keras_metadata.pb", "saved_model.pbtxt"
PARTS = (GRAPH_FILE, METADATA_FILE, "fingerprint.pb")
VARIABLES = ("variables", "variables")
SUFFIXES, FOLDERS, BESIDE = (), (frozenset({GRAPH_FILE}),), ""
KERAS_PREFIX = "_tf_keras"
PART = re.compile(rf"({'|'.join(part_names(COMPOSITE))})(_\d+)?")
EINSUM = re.compile(r"einsum(_\d+)?/Einsum")  # an operation of two names, in front of ReadVariableOp
COUNTER = re.compile(r"_\d+$")


def parts(names: Collection[str]) -> frozenset[str]:
    """The checkpoint below the graph."""
    if GRAPH_FILE not in names:
        return frozenset()
    return frozenset(name for name in names if name.startswith(f"{VARIABLES[0]}/"))


def accepts(probe: Probe) -> bool:
    """The folder, or a file of it that has its name in every SavedModel."""
    source = probe.source
    if probe.head:
        return source.name in PARTS and source.beside(GRAPH_FILE).is_file()
    return probe.is_folder and any(source.child(name).is_file() for name in (GRAPH_FILE, TEXT_FILE))


def read(source: Source, architecture: Json | None = None) -> Checkpoint:
    """Describe the model; raises ``ReadError`` for missing or damaged parts."""
    folder = source if source.is_folder() else source.folder
    if not folder.child(GRAPH_FILE).is_file():
        raise ReadError(
            f"{folder} holds {TEXT_FILE}, a SavedModel as text, which is not read. Save it as {GRAPH_FILE}."
        )
    prefix = folder.child(*VARIABLES)
    if not has_index(prefix):
        raise ReadError(
            f"{folder}: a SavedModel without 'variables/variables.index': it holds no weights, or they were not "
            "copied. Copy the whole folder."
        )
    graph = first_graph(folder)
    bundle = open_bundle(prefix)
    objects = read_objects(bundle)
    same = dict(same_objects(graph.object_graph_def.nodes, objects))
    configs = dict(configurations(folder, graph, objects, same))
    arrangement = arrange(bundle, objects, operations_that_read(graph, objects, same))
    if configs:
        refuse_architecture(architecture, source)
    model = configs.get(0, architecture or {})
    root = Namer(arrangement, configs, architecture).tree()
    check_fits(root, architecture, source, by_name=False)
    version = keras_version(graph.meta_info_def.tensorflow_version) if configs else None
    others = tuple(arrangement.others)
    return Checkpoint(
        path=str(source),
        format=FORMAT,
        keras_version=version,
        backend="tensorflow" if configs else None,  # Keras 3 exports from any backend
        has_config=bool(configs) or architecture is not None,
        has_layer_names=True,
        root=root,
        others=others,
        listed=listed_configs(model),
        omits_empty_layers=True,
        notes=tuple(lost_by_optimizer(root, others)),
    )


def content(source: Source) -> bytes:
    """A protobuf file, bounded."""
    size = source.size()
    if not size:
        raise ReadError(f"{source} is empty. Copy or download the folder again.")
    if size >= PROTOBUF:  # no option lifts what is protobuf's own
        raise ReadError(f"{source} is {size} bytes, and TensorFlow writes less than {PROTOBUF}. Copy the folder again.")
    return source.fetch(0, size).tobytes()


def first_graph(folder: Source) -> Any:
    """The model's graph; SavedModels of Keras hold exactly one."""
    file = folder.child(GRAPH_FILE)
    refuse_links_out(folder, file, folder.child(METADATA_FILE))
    message = parse("SavedModel", content(file), file, "the SavedModel")
    if not message.meta_graphs or not message.meta_graphs[0].HasField("meta_info_def"):
        raise ReadError(f"{file} holds no graph. The file is damaged; copy or download it again.")
    return message.meta_graphs[0]


def keras_version(tensorflow_version: str) -> str | None:
    """Keras 2 shares its minor version with the TensorFlow that it is made for."""
    version = version_of(tensorflow_version)
    return f"2.{version[1]}" if len(version) > 1 and version[0] == 2 else None


def configurations(
    folder: Source, graph: Any, objects: Sequence[Object], same: Mapping[int, int]
) -> Iterator[tuple[int, Json]]:
    """Each layer's JSON by its object in the checkpoint."""
    file = folder.child(METADATA_FILE)
    if file.is_file():
        for node in parse("KerasMetadata", content(file), file, "Keras' metadata").nodes:
            number = follow(objects, node.node_path)
            if number is not None and node.identifier.startswith(KERAS_PREFIX):
                yield number, layer_json(node.metadata)
        return
    for saved, number in same.items():
        found = graph.object_graph_def.nodes[saved].user_object
        if found.identifier.startswith(KERAS_PREFIX) and found.metadata:
            yield number, layer_json(found.metadata)


def layer_json(text: str) -> Json:
    """A layer's entry; damage to it costs the configuration only."""
    try:
        return mapping(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def follow(objects: Sequence[Object], path: str) -> int | None:
    """The object at ``root.layer_with_weights-0.cell``."""
    number = 0
    for part in path.split(".")[1:]:
        found = next((child for name, child in objects[number].children if name == part), None) if objects else None
        if found is None:
            return None
        number = found
    return number


def same_objects(saved: Sequence[Any], objects: Sequence[Object]) -> Iterator[tuple[int, int]]:
    """Objects of saved_model.pb with those of the checkpoint, along equal edges from the root."""
    stack = [(0, 0)] if saved and objects else []
    passed = set(stack)
    while stack:
        ours, theirs = stack.pop()
        yield ours, theirs
        children = dict(objects[theirs].children)
        for child in saved[ours].children:
            pair = (child.node_id, children.get(child.local_name, -1))
            if pair[1] >= 0 and 0 <= pair[0] < len(saved) and pair not in passed:
                passed.add(pair)
                stack.append(pair)


def operations_that_read(graph: Any, objects: Sequence[Object], same: Mapping[int, int]) -> dict[int, Names]:
    """Where the operation is that reads a variable, by object: ``attn/query`` of ``model/attn/query/Cast/Read…``.

    Keras 3 does not make variables' names unique; those of operations are. Of several (a layer that is called twice)
    the first by name is taken, so that all variables of a layer agree.
    """
    functions = {function.signature.name: function for function in graph.graph_def.library.function}
    found: dict[int, set[Names]] = {}
    for item in graph.object_graph_def.concrete_functions:
        function, captured = functions.get(item.key), list(item.value.bound_inputs)
        if function is None or not captured:
            continue
        arguments = [argument.name for argument in function.signature.input_arg][-len(captured) :]
        objects_by_name = dict(zip(arguments, captured, strict=False))
        for operation in function.node_def:
            number = same.get(objects_by_name.get(operation.input[0] if operation.input else "", -1), -1)
            place = layer_of(operation.name, objects[number].full_name) if number >= 0 else ()
            if place and objects[number].key is not None:
                found.setdefault(number, set()).add(place)
    return {number: min(places, key=lambda place: (len(place), place)) for number, places in found.items()}


def layer_of(operation: str, full_name: str) -> Names:
    """The layer's place in the name of an operation, without the model in front and the operation after.

    A part of a layer is the innermost layer: layers and models around it may be called like one. After it is what
    reads the variable, a name or two, or three of an einsum.
    """
    parts = operation.split("/")[1:-1]
    own = full_name.split("/")[-2:-1]
    for layers in (parts, parts[:-1], parts[:-2] if EINSUM.fullmatch("/".join(parts[-2:])) else []):
        if part := PART.fullmatch(layers[-1] if layers else ""):
            return (*layers[:-1], part[1])  # operations are numbered, parts of layers are not
        if layers and own == [COUNTER.sub("", layers[-1])]:
            return tuple(layers)
    return tuple(parts[:-1])
