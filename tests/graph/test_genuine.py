"""Issue 14, point 2: genuine files. The order of Keras itself, and every whole model of the corpus and of the public."""

import json
import subprocess
import sys
import zipfile

import pytest
from command_line import run
from corpus_files import rows
from environment import SHARED, SUPPORT, TESTS, require

from mha_convert import Graph, LayerError, graph_of, inspect_graph, read
from mha_convert.records.graph import leaves
from mha_convert.records.source import Checkpoint

NAMES = (
    "branches", "shared_layer", "siamese", "siamese_sequential", "shared_with_nested", "shared_in_h5", "twins", "dictionaries",
    "nested_dictionary", "operations", "masks", "chain", "chain_without_input",
)  # fmt: skip
NOT_H5 = ("shared_with_nested",)
WITHOUT_GRAPH = ("subclassed", "nested_containers", "hub_bert_tiny", "hub_llama_tiny")


@pytest.fixture(scope="module")
def written(keras_installed, tmp_path_factory, starts_processes):
    """Files of the installed Keras, and what it knows of their calls."""
    folder = tmp_path_factory.mktemp("graphs")
    command = [sys.executable, SUPPORT / "graph_models.py", folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def as_keras_has_it(graph: Graph, route=()):
    """The graph as ``graph_models.calls_of`` writes it."""

    def shown(value):
        return [value.layer, value.call, value.output]

    calls = [
        [call.layer, graph.layers[call.layer].class_name, call.number, [shown(value) for value in call.values]]
        for call in graph.calls
    ]
    yield "/".join(route), calls, *([shown(value) for value in leaves(end)] for end in (graph.inputs, graph.outputs))
    for name, layer in graph.layers.items():
        if layer.graph is not None:
            yield from as_keras_has_it(layer.graph, (*route, name))


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("name", NAMES)
def test_the_calls_are_those_of_keras_in_its_order(name, suffix, written):
    if suffix == ".h5" and name in NOT_H5:
        return
    graph = graph_of(read(written / f"{name}{suffix}"))
    expected = {route: facts for route, *facts in json.loads((written / f"{name}.json").read_text())}
    assert {route: facts for route, *facts in as_keras_has_it(graph)} == expected


def shared(graph):
    """The routes of every layer that lies in several models, by its name."""
    layers = {layer for each in graph.walk() for layer in each.layers.values() if len(layer.routes) > 1}
    return {layer.name: {"/".join(route) for route in layer.routes} for layer in layers if not layer.is_input}


def test_a_shared_layer_is_one_layer(written):
    graph = graph_of(read(written / "shared_with_nested.keras"))
    assert shared(graph) == {
        "sub": {"sub", "outer/sub"},
        "own": {"sub/own", "outer/sub/own"},
        "shared": {"sub/shared", "outer/sub/shared", "shared"},
    }
    nested = graph.layers["sub"].graph
    assert nested.layers["shared"] is graph.layers["shared"]
    assert graph.layers["outer"].graph.layers["own"] is not nested.layers["own"]
    for name in ("shared_in_h5.keras", "shared_in_h5.h5"):
        assert shared(graph_of(read(written / name))) == {"shared": {"sub/shared", "shared"}}
    assert shared(graph_of(read(written / "twins.keras"))) == shared(graph_of(read(written / "twins.h5"))) == {}


def test_layers_and_operations_of_one_name(written):
    for suffix in (".keras", ".h5"):
        layers = graph_of(read(written / f"operations{suffix}")).layers
        assert layers["subtract"].is_operation and not layers["subtract_1"].is_operation
        assert graph_of(read(written / f"siamese{suffix}")).layers["encoder"].graph.layers["add"].is_operation


def test_the_architecture_of_weights_may_lie_beside_them(written, tmp_path):
    with zipfile.ZipFile(written / "branches.keras") as archive:
        (tmp_path / "config.json").write_bytes(archive.read("config.json"))
        (tmp_path / "x.weights.h5").write_bytes(archive.read("model.weights.h5"))
    whole = inspect_graph(written / "branches.keras").graph
    found = inspect_graph(tmp_path / "x.weights.h5", config=tmp_path / "config.json").graph
    assert list(as_keras_has_it(found)) == list(as_keras_has_it(whole))
    text = run("inspect", "--graph", "x.weights.h5", cwd=tmp_path, code=1).stderr
    assert text.startswith("error: x.weights.h5 has no configuration, so its graph is unknown. Pass ")


def test_a_sequential_model_whose_configuration_is_a_list(written, tmp_path):
    """As Keras wrote it before 2.2.3."""
    with zipfile.ZipFile(written / "chain.keras") as archive:
        config = json.loads(archive.read("config.json"))
        (tmp_path / "x.weights.h5").write_bytes(archive.read("model.weights.h5"))
    whole = inspect_graph(written / "chain.keras").graph
    (tmp_path / "config.json").write_text(
        json.dumps({"class_name": "Sequential", "config": config["config"]["layers"]})
    )
    found = inspect_graph(tmp_path / "x.weights.h5", config=tmp_path / "config.json").graph
    assert [call.layer for call in found.calls] == [call.layer for call in whole.calls]
    assert len(list(found.walk())) == 2


@pytest.mark.process
def test_attention_options_do_not_go_with_a_graph(samples):
    result = run("inspect", "--graph", str(samples / "translator.h5"), "--attention", "a:num_heads=1", code=2)
    assert "leave out --attention" in result.stderr


def checked(found: Checkpoint, graph: Graph):
    """What holds for every graph."""
    assert graph.keras_version == found.keras_version and graph.calls
    for each in graph.walk():
        assert not each.dead, "Keras writes no call that no output depends on"
        made = set()
        for call in each.calls:
            assert all(each.layers[value.layer].is_input or (value.layer, value.call) in made for value in call.values)
            made.add((call.layer, call.number))
        for value in leaves(each.inputs):
            assert each.layers[value.layer].is_input


def whole_models(root):
    """Files with a graph, and those that have a configuration without one."""
    for file in rows(root):
        if file.format in ("keras", "ext_keras", "h5", "dir", "savedmodel"):
            yield file


def check_all(root, least):
    count = 0
    for file in whole_models(root):
        if file.model in WITHOUT_GRAPH:
            found = read(file.path)
            if found.root.config is not None:
                with pytest.raises(LayerError, match="Build it with keras.Model"):
                    graph_of(found)
            continue
        found = read(file.path)
        if found.has_config:
            checked(found, graph_of(found))
            count += 1
    assert count >= least


def test_every_whole_model_of_golden_files_has_a_graph():
    check_all(TESTS / "golden", 25)


def test_every_whole_model_of_the_corpus_has_a_graph():
    require((SHARED / "corpus").is_dir(), "../shared/corpus")
    check_all(SHARED / "corpus" / "files", 690)


def test_every_public_model_has_a_graph():
    root = SHARED / "real"
    require(root.is_dir(), "../shared/real")
    count = 0
    for path in sorted(root.rglob("*")):
        is_model = path.suffix in (".h5", ".keras") or (path.is_dir() and (path / "saved_model.pb").exists())
        if is_model and (found := read(path)).has_config:
            checked(found, graph_of(found))
            count += 1
    assert count == 17


def test_a_public_model_with_functions_of_tensorflow_and_its_own_layers():
    path = SHARED / "real" / "neg-basic-pitch" / "nmp"
    require(path.is_dir(), "../shared/real")
    graph = inspect_graph(path).graph
    assert set(graph.outputs) == {"onset", "contour", "note"}
    expand = graph.layers["tf.expand_dims_1"]
    assert expand.is_operation and expand.settings["function"] == "expand_dims"
    (call,) = [call for call in graph.calls if call.layer == "tf.expand_dims_1"]
    assert dict(call.keywords) == {"axis": -1}
