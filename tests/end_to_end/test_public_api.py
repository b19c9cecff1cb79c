"""The public API is sorted, complete, documented and typed; and the stages work one by one."""

import inspect
import subprocess
import sys

import numpy as np
import pytest
import torch

import mha_convert


def test_all_is_sorted_and_complete():
    assert mha_convert.__all__ == sorted(mha_convert.__all__)
    assert set(mha_convert.__all__) == set(mha_convert._HOMES)
    assert all(hasattr(mha_convert, name) for name in mha_convert.__all__)
    assert set(mha_convert.__all__) <= set(dir(mha_convert))


@pytest.mark.parametrize("name", mha_convert.__all__)
def test_every_public_name_is_documented(name):
    thing = getattr(mha_convert, name)
    assert inspect.getdoc(thing)
    if inspect.isfunction(thing):
        assert "return" in thing.__annotations__
        assert "Raises:" in thing.__doc__ or name in ("convert", "describe_plan")


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'mha_convert' has no attribute 'nonsense'"):
        mha_convert.nonsense  # noqa: B018


@pytest.mark.process
def test_public_functions_are_not_shadowed_by_modules(samples, tmp_path):
    """`mha_convert.convert` stays a function, whatever was imported before."""
    code = "import mha_convert, mha_convert.pipeline, mha_convert.verification\nassert callable(mha_convert.convert) and callable(mha_convert.verify) and callable(mha_convert.plan)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_the_stages_one_by_one(samples, tmp_path, suffix):
    checkpoint = mha_convert.read(samples / "translator.h5")
    layers = mha_convert.find_layers(checkpoint)
    plan = mha_convert.plan(layers, layout="padded")
    target = tmp_path / f"x{suffix}"
    mha_convert.write(target, mha_convert.convert(plan))
    proof = mha_convert.verify(plan, mha_convert.open_target(target))
    assert set(proof.ledgers) == {"self_attention", "cross_attention"}
    assert all(comparison.passed for comparison in proof.comparisons)


def test_a_target_without_description_cannot_be_loaded_or_verified(samples, tmp_path):
    plan = mha_convert.plan(mha_convert.find_layers(mha_convert.read(samples / "six_heads.keras")))
    mha_convert.write(tmp_path / "x.safetensors", mha_convert.convert(plan))
    for call in (
        lambda: mha_convert.load_modules(tmp_path / "x.safetensors"),
        lambda: mha_convert.verify_file(samples / "six_heads.keras", tmp_path / "x.safetensors"),
    ):
        with pytest.raises(mha_convert.ReadError, match="has no description of mha-convert in it"):
            call()


def test_report_tells_everything(samples, tmp_path):
    seen = []
    report = mha_convert.convert_file(
        samples / "translator.h5", tmp_path / "x.pt", on_progress=lambda *facts: seen.append(facts)
    )
    assert seen == [("self_attention", 0, 2), ("cross_attention", 1, 2)]
    assert report.proven and report.reference == "the Keras formula in NumPy (float64)"
    assert [item.layer.name for item in report.plan.layers] == ["self_attention", "cross_attention"]
    assert report.ledgers["cross_attention"].source == 960


def test_select_layers_in_the_users_order(samples, tmp_path):
    report = mha_convert.convert_file(
        samples / "translator.h5", tmp_path / "x.pt", layers=["cross_attention", "self_attention", "cross_attention"]
    )
    assert [item.layer.name for item in report.plan.layers] == ["cross_attention", "self_attention"]


class LiveLayer:
    """As much of a Keras layer as is used; tests/verification/test_genuine_keras.py has real ones."""

    name = "live"

    def __init__(self, weights, **config):
        self.weights = weights
        self.config = config

    def get_config(self):
        """As Keras'."""
        return {"name": "live", **self.config}


class Weight:
    """A variable with a path, as in Keras 3, or a name, as in Keras 2."""

    def __init__(self, name, value):
        self.name, self.array = name, value

    def numpy(self):
        """As Keras'."""
        return self.array


LiveLayer.__module__, LiveLayer.__qualname__, LiveLayer.__name__ = (
    "keras.fake",
    "MultiHeadAttention",
    "MultiHeadAttention",
)


def live(scopes=("live",), end=":0"):
    random = np.random.default_rng(0)
    shapes = {f"{role}/kernel": (8, 2, 4) for role in ("query", "key", "value")} | {
        "attention_output/kernel": (2, 4, 8)
    }
    weights = [
        Weight("/".join((*scopes, name)) + end, random.standard_normal(shape).astype("f4"))
        for name, shape in shapes.items()
    ]
    return LiveLayer(weights, num_heads=2, key_dim=4, use_bias=False)


@pytest.mark.parametrize("layout", ["mha", "linear"])
def test_a_live_layer_becomes_a_module(layout):
    layer = live()
    module = mha_convert.from_keras_layer(layer, layout=layout)
    assert not module.training
    first = next(iter(module.parameters())).detach()
    np.testing.assert_array_equal(first[:8].numpy(), layer.weights[0].array.reshape(8, 8).T)
    assert module(torch.zeros(1, 3, 8), torch.zeros(1, 3, 8), torch.zeros(1, 3, 8))[0].shape == (1, 3, 8)


def test_names_of_keras_2_scopes_do_not_matter():
    assert mha_convert.from_keras_layer(live(("model", "block", "live"))) is not None


@pytest.mark.parametrize("name", ["query", "key", "value", "attention_output"])
def test_a_layer_may_have_any_name(name):
    layer = live((name,))
    layer.name = name
    assert mha_convert.from_keras_layer(layer) is not None


def test_a_block_of_two_layers_is_not_taken_for_one():
    block = live(("block", "first"))
    block.weights += live(("block", "second")).weights
    with pytest.raises(
        mha_convert.LayerError, match="holds several layers, 'block/first' and 'block/second', expected one"
    ):
        mha_convert.from_keras_layer(block)
    twice = live(("block", "attn"))
    twice.weights += live(("block", "attn")).weights
    with pytest.raises(mha_convert.LayerError, match="two of its weights have one path"):
        mha_convert.from_keras_layer(twice)


def test_a_model_is_not_taken_for_a_layer():
    model = live()
    model.layers = [model]
    with pytest.raises(mha_convert.LayerError, match="is a model, expected one layer"):
        mha_convert.from_keras_layer(model)


def test_step_by_step_targets_load(samples, tmp_path):
    checkpoint = mha_convert.read(samples / "six_heads.keras")
    plan = mha_convert.plan(mha_convert.survey(checkpoint).layers)
    mha_convert.write(tmp_path / "x.pt", mha_convert.convert(plan), mha_convert.describe_plan(plan, checkpoint))
    assert set(mha_convert.load_modules(tmp_path / "x.pt")) == {"attention"}


def test_things_that_are_no_layers_are_refused():
    with pytest.raises(
        mha_convert.LayerError, match=r"object is not a layer of Keras \(builtins.object\). Pass a built keras.layers"
    ):
        mha_convert.from_keras_layer(object())
    with pytest.raises(mha_convert.LayerError, match="num_heads is 3 in the configuration, 2 in the arrays"):
        broken = live()
        broken.config["num_heads"] = 3
        mha_convert.from_keras_layer(broken)


NO_PATHS = (None, 5, b"x.keras", ["x.keras"], {"a": 1}, np.ones(3), torch.nn.Linear(1, 1))


@pytest.mark.parametrize("thing", NO_PATHS, ids=lambda thing: type(thing).__name__)
def test_what_is_no_path_is_an_error_of_ours(samples, tmp_path, thing):
    """Point 13 of issue 12: wherever a path belongs, with the next step."""
    source, target = samples / "textbook.keras", tmp_path / "x.pt"
    calls = (
        lambda: mha_convert.read(thing),
        lambda: mha_convert.convert_file(thing, target),
        lambda: mha_convert.convert_file(source, thing),
        lambda: mha_convert.verify_file(thing, target),
        lambda: mha_convert.verify_file(source, thing),
        lambda: mha_convert.match_file(thing, target),
        lambda: mha_convert.match_file(source, thing),
        lambda: mha_convert.load_modules(thing),
        lambda: mha_convert.open_target(thing),
        lambda: mha_convert.write(thing, []),
        *([] if thing is None else [lambda: mha_convert.read(source, config=thing)]),
        *([] if thing is None else [lambda: mha_convert.convert_file(source, target, module=thing)]),
        *([] if thing is None else [lambda: mha_convert.convert_file(source, target, like=thing)]),
    )
    for call in calls:
        with pytest.raises(
            mha_convert.ReadError, match=r"(None|An object of class \w+): expected (a|the) path.*\. \w+"
        ):
            call()
    assert not list(tmp_path.iterdir())
