"""What cannot be a model is refused in one clear line: contradictions, strangers' settings, shapes and arrays."""

import json
import re
import time
import zipfile

import pytest
from environment import TESTS
from graph_configs import call, chain, checkpoint, tensor
from whole_models import proven, written

from mha_convert.errors import MhaConvertError
from mha_convert.models import plan_model
from mha_convert.options import ModelChoices

GOLDEN = TESTS / "golden" / "models"


def edited(folder, change, name="mlp"):
    """A golden model whose configuration says something else."""
    path = folder / "model.keras"
    with zipfile.ZipFile(GOLDEN / f"{name}.keras") as old, zipfile.ZipFile(path, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if member == "config.json":
                config = json.loads(content)
                change(config["config"]["layers"])
                content = json.dumps(config)
            new.writestr(member, content)
    return path


def with_settings(name, **settings):
    """Changes the settings of one layer."""

    def change(layers):
        next(layer for layer in layers if layer["config"]["name"] == name)["config"].update(settings)

    return change


def refusal(path, folder):
    """What is said of a file, in one line."""
    with pytest.raises(MhaConvertError) as error:
        written(path, folder)
    text = str(error.value)
    assert "\n" not in text and text.endswith(".")
    return text


@pytest.mark.parametrize(
    ("name", "layer", "settings", "words"),
    [
        ("mlp", "hidden", {"units": 17}, "has 17 units there, its kernel has 16"),
        ("mlp", "hidden", {"units": -1}, "units"),
        ("mlp", "hidden", {"units": "16"}, "units"),
        ("mlp", "hidden", {"use_bias": False}, r"it holds 0 \(8, 16\), 1 \(16,\), expected kernel"),
        ("mlp", "hidden", {"activation": "swoosh"}, "activation"),
        ("mlp", "hidden", {"activation": {"class_name": "Own", "config": {}}}, "activation"),
        ("mlp", "hidden", {"temperature": 2.0}, "temperature"),
        ("mlp", "dropout", {"rate": 2.0}, "rate"),
        ("mlp", "features", {"batch_shape": [None, 9]}, "'hidden'.*9.*8"),
        ("text_transformer", "norm_1", {"epsilon": "small"}, "epsilon"),
        ("text_transformer", "norm_1", {"axis": [5]}, "'norm_1'"),
        ("text_transformer", "token_embedding", {"input_dim": 49}, r"\(50, 16\), expected \(49, 16\)"),
        ("text_transformer", "attention", {"num_heads": 4}, "attention"),
        ("text_transformer", "attention", {"key_dim": 16}, "attention"),
    ],
)  # fmt: skip
def test_settings_that_contradict_arrays_or_are_strangers(name, layer, settings, words, tmp_path):
    text = refusal(edited(tmp_path, with_settings(layer, **settings), name), tmp_path / "out")
    assert re.search(words, text), text


def test_a_layer_that_the_file_lists_and_does_not_hold(tmp_path):
    def change(layers):
        layers.append(json.loads(json.dumps(layers[-1]).replace("classes", "more")))

    assert "more" in refusal(edited(tmp_path, change), tmp_path / "out")


def planned(settings, **facts):
    """What is said of a configuration without arrays."""
    with pytest.raises(MhaConvertError) as error:
        plan_model(checkpoint(settings, **facts), ModelChoices())
    return str(error.value)


def test_classes_without_a_rule_are_named_all_at_once():
    settings = chain(4)
    for entry, name in zip(settings["layers"][1:], ("Swirl", "Whirl", "Twirl", "Whirl"), strict=True):
        entry |= {"class_name": name, "module": "mine", "registered_name": f"mine>{name}"}
    text = planned(settings)
    assert text.startswith(
        "4 of 4 layers cannot be converted: mine>Swirl ('1'); mine>Whirl ('2' and 1 more); mine>Twirl ('3'). Reason:"
    )
    assert "mha-convert convert" in text and "inspect --graph" in text


def test_a_model_without_a_graph():
    assert "graph" in planned({"name": "mine"}, class_name="Mine", module="mine")


def test_tens_of_thousands_of_calls_are_told_within_seconds():
    """A tenth of a millisecond each; ``tests/graph`` reads a hundred thousand."""
    began = time.process_time()
    text = planned(chain(30_000))
    assert time.process_time() - began < 20
    assert len(text) < 1000


def test_a_cycle_and_a_reference_that_leads_nowhere():
    settings = chain(3)
    settings["layers"][1]["inbound_nodes"] = [call(tensor("3"))]
    assert "depends on itself" in planned(settings)
    settings["layers"][1]["inbound_nodes"] = [call(tensor("nowhere"))]
    assert "nowhere" in planned(settings)


def test_an_array_of_no_layer_is_never_left_behind(tmp_path):
    def change(layers):
        del layers[2:4]  # dropout and bottleneck

    assert "bottleneck" in refusal(edited(tmp_path, change), tmp_path / "out")


def test_zero_in_no_dimension_of_an_input(tmp_path):
    for shape in ([None, 0], [None, -8], [None, "8"], [None, 8.0], [None, 10**12], "8"):
        refusal(edited(tmp_path, with_settings("features", batch_shape=shape)), tmp_path / "out")


def test_a_free_batch_size_and_a_fixed_one(tmp_path):
    plan = proven(edited(tmp_path, with_settings("features", batch_shape=[4, 8])), tmp_path / "fixed")
    assert plan.model.parameters[0].spec.shape == (4, 8)
