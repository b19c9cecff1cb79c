"""Names are unique, the same on every run, and the same from every format as far as the file contains them."""

import json
import zipfile

import numpy as np
import pytest

import mha_convert
from mha_convert.layers import with_unique_names

FUNCTIONAL = {
    "shared_nested": ["sub/shared_mha"],
    "shared_nested_then_another": ["sub/shared_mha", "own"],
    "tied_submodel": ["encoder/multi_head_attention", "multi_head_attention_1"],
    "vit": ["multi_head_attention"],
    "same_name_in_two_models": ["left/attn", "right/attn"],
    "odd_names": ["block.0.attn", "block"],
    "twins": ["online/attn", "target/attn"],
    "nested_inputs": ["enc/attn", "top"],
    "dense_query_key_value": ["attn"],
}


def names(path):
    return [layer.name for layer in mha_convert.find_layers(mha_convert.read(path))]


@pytest.mark.parametrize("model", FUNCTIONAL)
@pytest.mark.parametrize("suffix", [".keras", ".h5", ".weights.h5"])
def test_every_format_gives_the_users_names(fresh_models, model, suffix):
    assert names(fresh_models / f"{model}{suffix}") == FUNCTIONAL[model]


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_custom_layers_give_attribute_paths_even_where_user_names_repeat(fresh_models, suffix):
    found = names(fresh_models / f"pair{suffix}")
    assert found[:2] == ["pair/first", "pair/second"]
    assert len(set(found)) == 6


@pytest.mark.parametrize("model", [*FUNCTIONAL, "pair", "dense_block"])
def test_a_shared_layer_appears_once_and_no_layer_is_lost(fresh_models, model):
    with np.load(fresh_models / "kernels.npz") as kernels:
        expected = sorted(kernels[model].tolist())
    layers = mha_convert.find_layers(mha_convert.read(fresh_models / f"{model}.keras"))
    assert sorted(float(layer.query.kernel.read().min()) for layer in layers) == expected


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5", ".h5"])
def test_attention_beside_dense_layers_of_its_projections_names_is_found(fresh_models, suffix):
    if suffix == ".h5":
        assert len(names(fresh_models / "dense_block.h5")) == 1
    else:
        assert names(fresh_models / f"dense_block{suffix}") == ["block/mha"]


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_another_formula_with_four_kernels_is_refused(fresh_models, tmp_path, suffix):
    with pytest.raises(mha_convert.LayerError, match="its projections are called query, key, value, not query_dense"):
        mha_convert.convert_file(fresh_models / f"sigmoid{suffix}", tmp_path / "x.pt")


def test_in_legacy_files_another_formula_is_a_caution(fresh_models, tmp_path):
    """Their names are those of Keras' own class; the configuration says whose they are."""
    report = mha_convert.convert_file(fresh_models / "sigmoid.h5", tmp_path / "x.pt")
    assert any("its class is tests>Sigmoid, not keras.layers.MultiHeadAttention" in note for note in report.notes)


def test_what_files_without_configuration_cannot_show_is_said(samples, tmp_path):
    (note,) = mha_convert.convert_file(samples / "encoder.weights.h5", tmp_path / "x.pt").notes
    assert "2 of 2 layers: this file has no configuration, so the layer's class, dropout, attention axes" in note


def test_layers_of_a_model_are_not_the_parts_of_one(fresh_models, tmp_path):
    """EinsumDense layers called query, key and value in the model itself, beside an attention layer."""
    for suffix in (".keras", ".h5", ".weights.h5"):
        assert names(fresh_models / f"einsum_query_key_value{suffix}") == ["attn"]


def entry(class_name, name):
    return {"class_name": class_name, "config": {"name": name}}


def test_counting_gives_up_where_it_could_exchange_names():
    """Keras 2.15: a layer that is an attribute of the model as well is stored there, and counted nowhere else."""
    from mha_convert.readers.keras3.layer_names import by_counting

    entries = [entry("MultiHeadAttention", "first"), entry("MultiHeadAttention", "second"), entry("Dense", "d")]
    groups = {"multi_head_attention": None, "dense": None}
    assert by_counting(entries, groups, set(groups), (2, 15)) == {"dense": entries[2]}
    assert by_counting(entries, {**groups, "multi_head_attention_1": None}, set(groups), (2, 15)) == {
        "multi_head_attention": entries[0], "multi_head_attention_1": entries[1], "dense": entries[2],
    }  # fmt: skip


def test_counting_goes_by_two_in_keras_2_12_and_2_13():
    from mha_convert.readers.keras3.layer_names import by_counting

    entries = [entry("Dense", "a"), entry("Dropout", "b"), entry("Dense", "c"), entry("Dropout", "e")]
    groups = dict.fromkeys(("dense", "dense_2", "dropout", "dropout_1"))
    found = by_counting(entries, groups, {"dense", "dense_2"}, (2, 13))
    assert {group: item["config"]["name"] for group, item in found.items()} == {
        "dense": "a", "dense_2": "c", "dropout": "b", "dropout_1": "e",
    }  # fmt: skip


def test_names_do_not_change_from_run_to_run(fresh_models):
    assert len({tuple(names(fresh_models / "pair.keras")) for _ in range(3)}) == 1


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("keras-2.12/nested.keras", ["seq/wrap/encoder/mha", "mha"]),  # counters go by two
        ("keras-2.15/nested.keras", ["seq/wrap/encoder/mha", "mha"]),
        ("keras-2.4/nested.h5", ["seq/wrap/encoder/mha", "mha"]),
        ("keras-2.10/slash_names.h5", ["enc/block1/mha"]),
        ("keras-2.15/square.savedmodel", ["attn"]),
        ("keras-2.12/square.tfckpt", ["attn"]),
    ],
)
def test_names_of_the_golden_files(golden, file, expected):
    assert names(golden / file) == expected


def test_two_layers_of_one_name_go_by_their_place_and_say_so(golden):
    (layer,) = mha_convert.find_layers(mha_convert.read(golden / "keras-3.15.1/square.keras"))
    from dataclasses import replace

    first, second = with_unique_names([replace(layer, path="layers/a"), replace(layer, path="layers/b")])
    assert (first.name, second.name) == ("layers/a", "layers/b")
    assert first.cautions == ("2 layers are called 'attn'; this one is identified by its place in the file",)


def test_two_names_with_one_key_are_refused():
    from layer_cases import CASES, make_layer

    layers = [make_layer(CASES[0], name=name) for name in ("a/b", "a.b")]
    with pytest.raises(
        mha_convert.LayoutError, match=r"Layers 'a/b' and 'a\.b': both would write 'a\.b\.in_proj_weight'"
    ):
        mha_convert.plan(layers)


def test_windows_backslashes_separate(real):
    assert names(real / "fiit-remote/transformer.keras") == [
        "multi_head_attention", "multi_head_attention_1", "multi_head_attention_2", "multi_head_attention_3",
    ]  # fmt: skip


def test_lost_layers_are_noticed(golden):
    (note,) = mha_convert.read(golden / "keras-3.14.1-jax/grid_in_layer.keras").notes
    assert "corpus>GridBlock" in note
    assert "the automatic names in this file skip multi_head_attention, multi_head_attention_1" in note


def test_lost_layers_are_said_where_the_file_shows_no_trace(corpus):
    (note,) = mha_convert.read(corpus / "tf_keras-2.21/grid_in_layer.keras").notes
    assert "corpus>GridBlock" in note and "such a file does not show it" in note


def test_a_users_attention_class_is_no_reason_to_speak_of_lists(corpus):
    assert not mha_convert.read(corpus / "keras-3.12.4/mha_subclass.keras").notes


def test_grouped_heads_have_their_configuration_in_every_version(corpus):
    for tag in ("keras-3.0.5", "keras-3.1.1", "keras-3.5.0", "keras-3.15.1"):
        (layer,) = mha_convert.find_layers(mha_convert.read(corpus / tag / "gqa.keras"))
        assert (layer.kind, layer.num_heads, layer.num_key_value_heads, layer.has_config) == (
            "GroupQueryAttention",
            4,
            2,
            True,
        )


def test_nothing_is_said_of_files_that_cannot_have_lost_layers(corpus):
    assert not mha_convert.read(corpus / "keras-3.15.1/grid_in_layer.keras").notes
    assert not mha_convert.read(corpus / "keras-3.6.0/nobias_names.keras").notes


def test_names_in_a_weights_file_are_the_users_since_keras_3_6(corpus):
    assert names(corpus / "keras-3.15.1/nested.weights.h5") == ["mha", "seq/wrap/encoder/mha"]


def test_only_a_layer_of_the_same_configuration_is_a_shared_one(golden, tmp_path):
    """Outer and inner attention have one name here; an entry more makes counts unequal, and excuses no guess."""
    with zipfile.ZipFile(golden / "keras-2.15/nested.keras") as old, zipfile.ZipFile(tmp_path / "x.keras", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "config.json":
                model = json.loads(content)
                layers = model["config"]["layers"]
                again = json.loads(json.dumps(next(e for e in layers if e["class_name"] == "MultiHeadAttention")))
                again["name"] = again["config"]["name"] = "second"
                content = json.dumps({**model, "config": {**model["config"], "layers": [again, *layers]}})
            new.writestr(name, content)
    names = {layer.name for layer in mha_convert.find_layers(mha_convert.read(tmp_path / "x.keras"))}
    assert names == {"multi_head_attention", "seq/wrap/encoder/mha"}
