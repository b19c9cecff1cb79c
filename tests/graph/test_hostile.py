"""Issue 14, point 8: graphs that nobody's Keras wrote are refused in one line, or read in a moment."""

import time

import pytest
from graph_configs import call, chain, checkpoint, layer, model, nested, source, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from mha_convert import MhaConvertError, ReadError, Value, graph_of
from mha_convert.records.said import GraphInspection

SOON = 20  # seconds on a busy machine, of what takes two


def refusal(layers, outputs=("d", 0, 0), inputs=("x", 0, 0), **facts):
    with pytest.raises(ReadError) as found:
        graph_of(checkpoint(model(layers, list(inputs), list(outputs)), **facts))
    text = str(found.value)
    assert (
        "\n" not in text and text.startswith("x: its graph is malformed: ") and text.endswith("Save the model again.")
    )
    assert len(text) < 600
    return text


def test_a_cycle():
    layers = [source(), layer("Add", "a", [call([tensor("x"), tensor("b")])]), layer("Dense", "b", [call(tensor("a"))])]
    assert "the output of layer 'b' depends on itself" in refusal([*layers, layer("Dense", "d", [call(tensor("b"))])])
    assert "depends on itself" in refusal([*layers, layer("Dense", "d", [call(tensor("x"))])]), "of dead calls"
    assert "depends on itself" in refusal([source(), layer("Dense", "d", [call(tensor("d"))])])
    assert "depends on itself" in refusal([source(), layer("Dense", "d", [[["d", 0, 0, {}]]])])


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (call(tensor("nobody")), "is called with an output of 'nobody', which is not among the layers"),
        ([["nobody", 0, 0, {}]], "is called with an output of 'nobody'"),
        ([["x", 0, 0, {"y": ["nobody", 0, 0]}]], "is called with an output of 'nobody'"),
        (call(tensor("x", 1)), "the output of call 1 of layer 'x', which is not called so often"),
        (call(tensor("x", -1)), "the output of call -1 of layer 'x'"),
        (call(tensor("x", 0, 1)), "output 1 of layer 'x', which has 1 outputs"),
        (call(tensor("d", 0, -1)), "output -1 of layer 'd', which has no such outputs"),
        ([], "call 0 of layer 'd' has no form that Keras writes"),
        ({}, "call 0 of layer 'd' has no form that Keras writes"),
        ("x", "call 0 of layer 'd' has no form that Keras writes"),
        ([[]], "a call is neither a list of tensors nor an object"),
        ([["x", 0, 0, 5]], "the arguments of a call are not an object"),
        ([["x", 0, 0, {"a": 1}], ["x", 0, 0, {"a": 2}]], "the tensors of one call carry different arguments"),
        ({"args": 5, "kwargs": {}}, "the positional arguments of a call are not a list"),
        (call({"class_name": "__keras_tensor__", "config": {}}), "is not the output of any layer"),
        (call({"class_name": "__keras_tensor__"}), "is not the output of any layer"),
        (call(tensor("x", True)), "is not the output of any layer"),
        (call(tensor("x"), tensor("x", shape=(1,))), "one call has two shapes for the output of layer 'x'"),
        (call({"class_name": "__tensor__", "config": {"value": [[1], [1, 2]], "dtype": "float32"}}), "rows of unequal"),
        (call({"class_name": "__tensor__", "config": {"value": ["a"], "dtype": "float32"}}), "what is not a number"),
        (call({"class_name": "__tensor__", "config": {"value": [300], "dtype": "uint8"}}), "that uint8 does not have"),
        (call({"class_name": "__tensor__", "config": {"value": [1e300], "dtype": "float32"}}), "that float32 does not"),
        (
            call({"class_name": "__tensor__", "config": {"value": [1e300], "dtype": "bfloat16"}}),
            "that bfloat16 does not",
        ),
        (call({"class_name": "__tensor__", "config": {"value": [1], "dtype": "object"}}), "the dtype object"),
        (call({"class_name": "__tensor__", "config": {"value": [1], "dtype": []}}), "the dtype \\[]".replace("\\", "")),
        (call({"class_name": "__tuple__"}), "a __tuple__ holds no list of items"),
        (call({"class_name": "__bytes__", "config": {"value": 5}}), "bytes in the graph are not written as text"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_calls_that_lead_nowhere_or_have_no_form(node, words):
    assert words in refusal([source(), layer("Dense", "d", [node])])


def test_ends_that_lead_nowhere():
    dense = layer("Dense", "d", [call(tensor("x"))])
    assert "the model returns an output of 'e', which is not among" in refusal([source(), dense], ("e", 0, 0))
    assert "the model takes an output of 'e', which is not among" in refusal([source(), dense], inputs=("e", 0, 0))
    assert "the outputs of the model are not a list of tensors" in refusal([source(), dense], ())
    assert "the inputs of the model are not a list of tensors" in refusal([source(), dense], inputs=("x", "x", 0))
    assert "the input 'd' of the model is not an InputLayer" in refusal([source(), dense], inputs=("d", 0, 0))
    unused = layer("Dense", "d", [call(tensor("y"))])
    assert "the input 'y' is used, and is not one of the model's" in refusal([source(), source("y"), unused])


def test_two_layers_of_one_name_and_what_is_no_layer():
    dense = layer("Dense", "d", [call(tensor("x"))])
    assert "2 layers of one model are called 'd'" in refusal([source(), dense, dense])
    assert "the layers of 'model' are not a list of objects" in refusal([source(), 5])
    assert "the calls of layer 'd' are not a list" in refusal([source(), dense | {"inbound_nodes": 5}])


def test_a_nested_model_with_other_inputs():
    inside = model([source("i"), source("j")], [["i", 0, 0], ["j", 0, 0]], [["i", 0, 0]])
    text = refusal([source(), nested("d", inside, [call(tensor("x"))])], ("d", 1, 0))
    assert "model 'd' is called with 1 tensors, and has 2 inputs" in text


def test_faults_in_a_nested_model_name_it():
    inside = model([source("i"), layer("Dense", "e", [call(tensor("f"))])], ["i", 0, 0], ["e", 0, 0])
    assert "in model 'd' layer 'e' is called with an output of 'f'" in refusal(
        [source(), nested("d", inside, [call(tensor("x"))])], ("d", 1, 0)
    )


def test_an_empty_sequential_model_and_one_with_an_input_inside():
    for layers, words in (
        ([], "has no layers"),
        ([layer("Dense", "a"), source("i")], "'i' of a Sequential model is not"),
    ):
        with pytest.raises(ReadError, match=words):
            graph_of(checkpoint({"name": "s", "layers": layers}, "Sequential"))


@pytest.mark.parametrize("form", [2, 3])
def test_a_hundred_thousand_calls(form):
    began = time.process_time()
    found = graph_of(checkpoint(chain(100_000, form)))
    assert len(found.calls) == 100_000 and found.calls[-1].layer == "100000"
    assert len(GraphInspection(checkpoint({}), found).to_text().splitlines()) > 100_000
    assert time.process_time() - began < SOON


def test_a_hundred_thousand_calls_of_one_layer_and_of_one_with_as_many_tensors():
    many = 100_000
    began = time.process_time()
    nodes = [call(tensor("x"))] + [call(tensor("d", number)) for number in range(many - 1)]
    assert (
        len(graph_of(checkpoint(model([source(), layer("Dense", "d", nodes)], ["x", 0, 0], ["d", many - 1, 0]))).calls)
        == many
    )
    wide = layer("Add", "d", [call([tensor("x")] * many)])
    assert len(graph_of(checkpoint(model([source(), wide], ["x", 0, 0], ["d", 0, 0]))).calls[0].values) == many
    assert time.process_time() - began < SOON


def test_a_nested_model_with_many_outputs_called_often():
    began = time.process_time()
    inside = model([source("i")], ["i", 0, 0], [["i", 0, 0]] * 20_000)
    nodes = [call(tensor("x")) for _ in range(20_000)]
    wide = layer("Add", "d", [call([tensor("m", number, number) for number in range(20_000)])])
    settings = model([source(), nested("m", inside, nodes), wide], ["x", 0, 0], ["d", 0, 0])
    assert len(graph_of(checkpoint(settings)).calls) == 20_001
    many = {f"mask_{number}_mask": tensor("x") for number in range(20_000)}
    found = graph_of(
        checkpoint(model([source(), layer("Dense", "d", [call(tensor("x"), **many)])], ["x", 0, 0], ["d", 0, 0]))
    )
    assert len(found.calls[0].masks) == 20_000 and GraphInspection(checkpoint({}), found).to_text()
    assert time.process_time() - began < SOON


def deep(levels, times=1):
    """Models in one another, each called so many times by the one around it."""
    inside = model([source("i"), layer("Dense", "d", [call(tensor("i"))])], ["i", 0, 0], ["d", 0, 0])
    for _ in range(levels):
        nodes = [call(tensor("i")), *(call(tensor("m", number)) for number in range(times - 1))]
        inside = model([source("i"), nested("m", inside, nodes)], ["i", 0, 0], ["m", times, 0])
    return inside


def test_models_in_one_another():
    found = graph_of(checkpoint(deep(99)))
    assert len(list(found.walk())) == 100
    with pytest.raises(ReadError, match="models are nested more than 100 deep"):
        graph_of(checkpoint(deep(1000)))


def test_models_that_are_called_twice_at_every_level_stay_as_small_as_the_file():
    began = time.process_time()
    found = graph_of(checkpoint(deep(60, times=2)))  # 2 ** 60 calls of the innermost layer
    assert sum(len(each.calls) for each in found.walk()) == 121
    assert len(GraphInspection(checkpoint({}), found).to_text()) < 100_000
    assert time.process_time() - began < SOON


def test_aliases_that_json_does_not_have():
    inside = model([source("i")], ["i", 0, 0], ["i", 0, 0])
    for _ in range(40):
        pair = [nested("a", inside, [call(tensor("i"))]), nested("b", inside, [call(tensor("a"))])]
        inside = model([source("i"), *pair], ["i", 0, 0], ["b", 1, 0])
    with pytest.raises(ReadError, match="it has more than 200,000 layers"):
        graph_of(checkpoint(inside))


def test_arguments_and_settings_in_one_another():
    value = 1
    for _ in range(500):
        value = [value]
    assert "nested more than 100 deep" in refusal([source(), layer("Dense", "d", [call(tensor("x"), value)])])
    assert "nested more than 100 deep" in refusal([source(), layer("Dense", "d", [call(tensor("x"))], units=value)])
    assert "nested more than 10 deep" in refusal([source(), layer("Dense", "d", [[value]])])
    assert "nested more than 100 deep" in refusal([source(), layer("Dense", "d", [call(tensor("x"))])], value)


@pytest.mark.parametrize(
    "name", ["two\nlines", "\x1b[31m", "a'b\"c", "_CONSTANT_VALUE", "x" * 10_000, "None", "𝕏", "a, b=c"]
)
def test_names_with_anything(name):
    layers = [source(), layer("Dense", name, [call(tensor("x"))]), layer("Dense", "d", [call(tensor(name))])]
    found = graph_of(checkpoint(model(layers, ["x", 0, 0], ["d", 0, 0])))
    assert found.calls[1].values == (Value(name),)
    shown = GraphInspection(checkpoint({}), found).to_text()
    assert all(line.isprintable() and len(line) < 400 for line in shown.splitlines())
    assert found.calls[0].to_dict()["layer"] == name


def test_a_class_called_anything():
    for kind in ("__keras_tensor__", "", "a>b>c", "\n"):
        found = graph_of(checkpoint(model([source(), layer(kind, "d", [call(tensor("x"))])], ["x", 0, 0], ["d", 0, 0])))
        assert GraphInspection(checkpoint({}), found).to_text()


NAMES = st.sampled_from(["x", "a", "b", "c", "_CONSTANT_VALUE"])
NUMBERS = st.integers(-1, 2)
TENSORS = st.builds(tensor, NAMES, NUMBERS, NUMBERS) | st.builds(lambda *t: list(t), NAMES, NUMBERS, NUMBERS)
DATA = st.recursive(
    TENSORS | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["class_name", "config", "items", "value", "start", "args"]), inner, max_size=3
        )
        | st.builds(
            lambda kind, config: {"class_name": kind, "config": config},
            st.sampled_from(["__tuple__", "__slice__", "__tensor__", "__numpy__", "__bytes__", "DTypePolicy", "Dense"]),
            inner,
        )
    ),
    max_leaves=8,
)
NODES = st.lists(st.builds(lambda *a: call(*a), DATA) | DATA, max_size=3) | DATA
CLASSES = st.sampled_from(
    ["Dense", "Add", "TFOpLambda", "SlicingOpLambda", "InputLayer", "Functional", "Sequential", "GetItem"]
)
LAYERS = st.lists(st.builds(layer, CLASSES, NAMES, st.lists(DATA, max_size=2)) | st.just(source()), max_size=4)
ENDS = DATA | st.builds(lambda *t: list(t), NAMES, st.just(0), st.just(0))


@settings(max_examples=300, deadline=None)
@given(LAYERS, NODES, ENDS, ENDS, st.sampled_from(["Functional", "Sequential", "Model"]))
def test_anything_is_a_graph_or_one_line(layers, nodes, inputs, outputs, kind):
    config = model(
        [*layers, {"class_name": "Dense", "name": "z", "config": {"name": "z"}, "inbound_nodes": nodes}],
        inputs,
        outputs,
    )
    try:
        found = graph_of(checkpoint(config, kind))
    except MhaConvertError as error:
        assert "\n" not in str(error)
        return
    inspection = GraphInspection(checkpoint({}), found)
    assert inspection.to_text() and inspection.to_dict()
    seen = {value for value in found.specs if found.layers[value.layer].is_input}
    seen |= {Value(name) for name, each in found.layers.items() if each.is_input}
    for one in found.calls:  # a valid order: what is taken was made before
        assert all(value in seen or Value(value.layer, value.call) in seen for value in one.values)
        seen.add(Value(one.layer, one.number))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_every_acyclic_graph_is_read_in_a_valid_order(data):
    count = data.draw(st.integers(1, 12))
    layers = [source("0")]
    for number in range(1, count):
        takes = data.draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=3))
        layers.append(layer("Add", str(number), [call([tensor(str(one)) for one in takes])]))
    layers = data.draw(st.permutations(layers))
    ends = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3))
    found = graph_of(checkpoint(model(layers, [["0", 0, 0]], [[str(one), 0, 0] for one in ends])))
    assert {one.layer for one in (*found.calls, *found.dead)} == {str(number) for number in range(1, count)}
    done = {"0"}
    for one in found.calls:
        assert {value.layer for value in one.values} <= done
        done.add(one.layer)
    assert {str(end) for end in ends} <= done
