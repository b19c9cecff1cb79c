"""Issue 14, point 2: every form in which a graph is written, by hand."""

import numpy as np
import pytest
from graph_configs import call, checkpoint, layer, model, nested, operation, source, tensor

from mha_convert import Call, Constant, LayerError, ReadError, Value, graph_of
from mha_convert.records.graph import TensorSpec, leaves


def graph(layers, outputs, inputs=(("x", 0, 0),), **facts):
    settings = model(layers, [list(item) for item in inputs] if isinstance(inputs, tuple) else inputs, outputs)
    return graph_of(checkpoint(settings, **facts))


def only(found):
    (one,) = found.calls
    return one


def test_keras_2_one_tensor_and_arguments_by_name():
    node = [["x", 0, 0, {"value": ["x", 0, 0], "training": None}]]
    found = graph(
        [source(), layer("MultiHeadAttention", "mha", [node])], [["mha", 0, 0], ["mha", 0, 1]], version="2.10.0"
    )
    one = only(found)
    assert (one.layer, one.number, one.arguments) == ("mha", 0, (Value("x"),))
    assert dict(one.keywords) == {"value": Value("x"), "training": None}
    assert found.inputs == Value("x") and found.outputs == (Value("mha"), Value("mha", 0, 1))
    assert found.specs[Value("x")] == TensorSpec((None, 4), "float32") and found.keras_version == "2.10.0"


def test_keras_2_a_list_is_one_argument_and_keras_1_has_no_keywords():
    found = graph([source(), layer("Add", "add", [[["x", 0, 0], ["x", 0, 0]]])], [["add", 0, 0]], class_name="Model")
    assert only(found).arguments == ((Value("x"), Value("x")),) and not found.layers["add"].is_operation


def test_keras_2_dictionaries_and_constants():
    nodes = [{"b": ["x", 0, 0, {}], "a": ["_CONSTANT_VALUE", -1, [[1.0, 2.0]], {}]}]
    (one,) = graph([source(), layer("Own", "own", nodes)], {"out": ["own", 0, 0]}).calls
    constant = one.arguments[0]["a"]
    assert one.values == (Value("x"),) and isinstance(constant, Constant) and constant.dtype is None
    assert constant.array.tolist() == [[1.0, 2.0]] and not constant.array.flags.writeable


def test_functions_of_tensorflow_keep_the_structure_of_their_argument():
    add = layer("TFOpLambda", "add", [["x", 0, 0, {"y": ["x", 0, 0], "name": None}]], function="__operators__.add")
    concat = layer("TFOpLambda", "cat", [[["add", 0, 0, {"axis": -1}]]], function="concat")
    minus = layer("TFOpLambda", "minus", [["_CONSTANT_VALUE", -1, 1, {"y": ["cat", 0, 0]}]], function="math.subtract")
    part = [{"start": None, "stop": 2, "step": None}, {"class_name": "__ellipsis__"}]
    item = layer("SlicingOpLambda", "item", [["minus", 0, 0, {"slice_spec": part}]], function="__operators__.getitem")
    found = graph([source(), add, concat, minus, item], [["item", 0, 0]])
    assert [one.arguments for one in found.calls] == [(Value("x"),), ((Value("add"),),), (1,), (Value("minus"),)]
    assert found.calls[0].values == (Value("x"), Value("x"))
    assert found.calls[3].keywords["slice_spec"] == (slice(None, 2, None), Ellipsis)
    assert all(found.layers[one.layer].is_operation for one in found.calls)
    assert found.layers["add"].settings["function"] == "__operators__.add"


def test_keras_3_wrappers():
    table = {"class_name": "__tensor__", "config": {"value": [[1, 2], [3, 4]], "dtype": "float32"}}
    half = {"class_name": "__numpy__", "config": {"value": [1.5], "dtype": "bfloat16"}}
    cut = {"class_name": "__slice__", "config": {"start": tensor("x"), "stop": None, "step": None}}
    pair = {"class_name": "__tuple__", "items": [tensor("x"), {"class_name": "__bytes__", "config": {"value": "é"}}]}
    policy = {"class_name": "DTypePolicy", "config": {"name": "mixed_float16"}}
    shape = {"class_name": "TensorShape", "items": [None, 4]}
    node = call(
        tensor("x"), table, half, [cut, {"class_name": "__ellipsis__", "config": {}}], pair, to=policy, shape=shape
    )
    found = graph([source(), operation("Any", "own", [node])], ["own", 0, 0])
    one = only(found)
    value, first, second, parts, two = one.arguments
    assert (value, parts, two) == (Value("x"), (slice(Value("x"), None, None), ...), (Value("x"), "é".encode()))
    assert first.array.dtype == np.float32 and first.array.tolist() == [[1, 2], [3, 4]]
    assert (second.dtype, second.array.dtype.name, float(second.array[0])) == ("bfloat16", "bfloat16", 1.5)
    assert dict(one.keywords) == {"to": "mixed_float16", "shape": (None, 4)} and one.values == (Value("x"),) * 3
    with pytest.raises(TypeError):
        one.keywords["to"] = 1


@pytest.mark.parametrize(
    ("ends", "tree"),
    [
        (["x", 0, 0], Value("x")),
        ([["x", 0, 0]], Value("x")),
        ([["x", 0, 0], ["y", 0, 0]], (Value("x"), Value("y"))),
        ({"b": ["x", 0, 0], "a": ["y", 0, 0]}, {"b": Value("x"), "a": Value("y")}),
        ([[["x", 0, 0]], {"k": ["y", 0, 0]}], ((Value("x"),), {"k": Value("y")})),
        ({"class_name": "__tuple__", "items": [["x", 0, 0], ["y", 0, 0]]}, (Value("x"), Value("y"))),
    ],
)
def test_inputs_and_outputs_keep_their_structure(ends, tree):
    found = graph([source(), source("y")], ends, inputs=ends)
    assert found.inputs == tree and found.outputs == tree and not found.calls


def test_explicit_masks_stay_arguments():
    equal = operation("NotEqual", "kept", [call(tensor("x"), 0)])
    lstm = layer("LSTM", "lstm", [call(tensor("x"), mask=tensor("kept"), training=False)])
    attention = layer(
        "MultiHeadAttention", "mha", [call(tensor("x"), tensor("x"), query_mask=None, use_causal_mask=True)]
    )
    found = graph([source(), equal, lstm, attention], [["lstm", 0, 0], ["mha", 0, 0]])
    masks = {one.layer: dict(one.masks) for one in found.calls}
    assert masks == {"kept": {}, "lstm": {"mask": Value("kept")}, "mha": {"use_causal_mask": True}}
    assert found.layers["kept"].is_operation and not found.layers["kept"].is_own


@pytest.mark.parametrize("name", ["Add", "Subtract", "Multiply", "Maximum", "Minimum", "Dot"])
def test_add_is_a_layer_or_an_operation_by_settings_and_arguments(name):
    def found(make, *arguments):
        return graph([source(), make(name, "add", [call(*arguments)])], ["add", 0, 0]).layers["add"].is_operation

    two = (tensor("x"), tensor("x"))
    assert found(operation, *two) and not found(layer, list(two))
    for make, arguments in ((layer, two), (operation, (list(two),))):
        with pytest.raises(ReadError, match=rf"'{name}' 'add' has the settings of an? .* and the arguments of an? "):
            found(make, *arguments)


def test_a_module_says_what_is_an_operation():
    add = operation("Add", "add", [call([tensor("x"), tensor("x")])]) | {"module": "keras.layers"}
    plus = operation("Add", "plus", [call(tensor("add"), 1)]) | {"module": "keras.src.ops.numpy"}
    found = graph([source(), add, plus], ["plus", 0, 0])
    assert [found.layers[name].is_operation for name in ("add", "plus")] == [False, True]


def encoder(first=True):
    inside = [source("i")] if first else []
    return model([*inside, layer("Dense", "d", [call(tensor("i"))])], ["i", 0, 0], ["d", 0, 0])


def many(nodes, outputs, first=0, form=3):
    """``enc`` called by these, and its calls used as numbered."""

    def read(number):
        return call(tensor("enc", number)) if form == 3 else [["enc", number, 0, {}]]

    used = [layer("Dense", f"use{number}", [read(number)]) for number in nodes]
    calls = len(
        {number - first for number in nodes} | {number - (outputs[0] if outputs else 0) for number in outputs[1:]}
    )
    takes = [call(tensor("x")) if form == 3 else [["x", 0, 0, {}]]] * calls
    ends = [*([f"use{number}", 0, 0] for number in nodes), *(["enc", number, 0] for number in outputs[1:])]
    found = graph([source(), nested("enc", encoder(), takes), *used], ends)
    by_layer = sorted((one.layer, one.values[0].call) for one in found.calls if one.layer != "enc")
    return [number for _, number in by_layer], [value.call for value in leaves(found.outputs) if value.layer == "enc"]


@pytest.mark.parametrize("form", [2, 3])
@pytest.mark.parametrize("first", [0, 1])
def test_calls_of_nested_models_are_counted_from_0_or_1(form, first):
    assert many([first, first + 1, first + 2], [], first, form) == ([0, 1, 2], [])


def test_keras_3_counts_arguments_from_0_and_outputs_from_1():
    """What the installed Keras wrote: [enc(a), Dot([enc(a), enc(b)]), enc(b)]."""
    assert many([1, 2], [1, 1, 4]) == ([1, 2], [0, 3])


def test_a_number_that_fits_no_call_is_refused():
    layers = [source(), nested("enc", encoder(), [call(tensor("x"))]), layer("Dense", "d", [call(tensor("enc", 2))])]
    with pytest.raises(ReadError, match="model 'enc' is called 1 times, which does not fit the calls .*2"):
        graph(layers, ["d", 0, 0])


def test_nested_outputs_are_counted_by_sorted_keys():
    inside = model(
        [source("i"), layer("Dense", "p", [call(tensor("i"))])], ["i", 0, 0], {"b": ["p", 0, 0], "a": ["i", 0, 0]}
    )
    use = layer("Dense", "d", [call(tensor("enc", 0, 1))])
    found = graph([source(), nested("enc", inside, [call(tensor("x"))]), use], ["d", 0, 0])
    assert list(leaves(found.layers["enc"].graph.outputs)) == [Value("i"), Value("p")]
    with pytest.raises(ReadError, match="output 2 of layer 'enc', which has 2 outputs"):
        graph(
            [source(), nested("enc", inside, [call(tensor("x"))]), layer("Dense", "d", [call(tensor("enc", 0, 2))])],
            ["d", 0, 0],
        )


SEQUENTIAL = [layer("Dense", "a"), layer("Dense", "b")]


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({"name": "s", "layers": [source("in"), *SEQUENTIAL]}, (None, 4)),
        ({"name": "s", "layers": [layer("Dense", "a", batch_input_shape=[None, 7]), SEQUENTIAL[1]]}, (None, 7)),
        ({"name": "s", "layers": SEQUENTIAL, "build_input_shape": [None, 5]}, (None, 5)),
        ({"name": "s", "layers": [SEQUENTIAL[0] | {"build_config": {"input_shape": [2, 3]}}, SEQUENTIAL[1]]}, (2, 3)),
        ({"name": "s", "layers": SEQUENTIAL}, None),
        ({"layers": SEQUENTIAL}, None),
    ],
    ids=["InputLayer", "batch_input_shape", "build_input_shape", "build_config", "nowhere", "list"],
)
def test_sequential(settings, shape):
    found = graph_of(checkpoint(settings, "Sequential"))
    assert [(one.layer, one.arguments) for one in found.calls] == [("a", (found.inputs,)), ("b", (Value("a"),))]
    assert found.outputs == Value("b") and found.layers[found.inputs.layer].is_input
    assert (found.specs[found.inputs].shape if found.inputs in found.specs else None) == shape


def test_a_list_is_a_sequential_model_before_keras_2_2_3_nested_too():
    inside = {"class_name": "Sequential", "name": "s", "config": SEQUENTIAL, "inbound_nodes": [[["x", 0, 0]]]}
    found = graph([source(), inside], [["s", 1, 0]])
    assert [one.layer for one in found.layers["s"].graph.calls] == ["a", "b"]


def test_a_sequential_model_that_begins_with_a_model():
    first = nested("enc", encoder(), [])
    found = graph_of(checkpoint({"name": "s", "layers": [first, SEQUENTIAL[1]]}, "Sequential"))
    assert [one.layer for one in found.calls] == ["enc", "b"] and found.specs[found.inputs].shape == (None, 4)


def test_layers_without_a_name_in_a_sequential_model():
    own = {"class_name": "Mine", "config": {"units": 3}}
    found = graph_of(checkpoint({"name": "s", "layers": [own, own]}, "Sequential"))
    assert [one.layer for one in found.calls] == ["Mine_0", "Mine_1"]


def test_tuples_are_unwrapped_in_settings_too():
    wrapped = {"class_name": "__tuple__", "items": [1, {"class_name": "__tuple__", "items": [2]}]}
    found = graph([source(), layer("Reshape", "r", [call(tensor("x"))], target_shape=wrapped)], ["r", 0, 0])
    assert found.layers["r"].settings["target_shape"] == (1, (2,))


def test_a_class_of_somebodys_own_with_a_graph_is_a_model_and_says_so():
    settings = model([source(), layer("Dense", "d", [call(tensor("x"))])], ["x", 0, 0], ["d", 0, 0])
    found = graph_of(checkpoint(settings, "Mine", is_own=True, registered_name="pack>Mine", module="me"))
    assert found.is_own and found.class_name == "Mine" and len(found.calls) == 1


def test_what_has_no_graph_is_named_with_the_next_step():
    with pytest.raises(LayerError, match=r"is a 'pack>Mine', a class whose own code .* Build it with keras.Model"):
        graph_of(checkpoint({}, "Mine", is_own=True, registered_name="pack>Mine", module="me"))
    with pytest.raises(
        LayerError, match="is a 'keras_hub>BertBackbone', of which the file holds settings and no graph"
    ):
        graph_of(checkpoint({"n": 1}, "BertBackbone", registered_name="keras_hub>BertBackbone", module="keras_hub.m"))
    bare = checkpoint({})
    with pytest.raises(ReadError, match=r"has no configuration.* --config FILE.json \(config=\)\."):
        graph_of(type(bare)(path="x", format="h5", has_config=False, root=type(bare.root)(path="", name="")))


def test_dead_calls_are_listed_and_not_run():
    layers = [source(), layer("Dense", "d", [call(tensor("x"))]), layer("Dense", "dead", [call(tensor("d"))])]
    found = graph(layers, ["d", 0, 0])
    assert [one.layer for one in found.calls] == ["d"] and [one.layer for one in found.dead] == ["dead"]
    assert isinstance(found.dead[0], Call)


def test_the_shape_that_a_layer_was_built_with_is_that_of_its_input():
    built = layer("Dense", "b", [[["a", 0, 0, {}]]]) | {"build_config": {"input_shape": [None, 9]}}
    found = graph([source(), layer("Dense", "a", [[["x", 0, 0, {}]]]), built], [["b", 0, 0]])
    assert found.specs[Value("a")] == TensorSpec((None, 9))
