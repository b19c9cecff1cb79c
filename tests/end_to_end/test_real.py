"""Public model files: every layer that their index lists is found, and none in the files without attention."""

import json

import pytest
from environment import SHARED

import mha_convert
from mha_convert.layers import survey

INDEX = SHARED / "real" / "index.json"
ROWS = json.loads(INDEX.read_text()) if INDEX.exists() else []
READ = [row for row in ROWS if row["file"].endswith((".h5", ".keras"))]
SAVED_MODELS = {  # folder: attention layers that the index of files does not list
    "gspc-savedmodel/models/transformer_model": [
        "transformer_block/att",
        "transformer_block_1/att",
        "transformer_block_2/att",
    ],
    "neg-basic-pitch/nmp": [],
    "neg-savedmodel-lstm/models/lstm_model": [],
    "neg-spatial-transformer/models/transformer_model": [],
}
REFUSED = {
    "ckpt-index-only": "the index of a TensorFlow checkpoint without its data: 'transformer.data-00000-of-00001' not",
    "ckpt-index-only/transformer.index": "the index of a TensorFlow checkpoint without its data",
    "odd-zip-in-zip/ws-gru-mesa.zip": "a zip archive that holds the .keras file 'classifier.keras'",
}


def test_the_real_files_are_there(real):
    assert len(READ) >= 15


@pytest.mark.parametrize("row", READ, ids=lambda row: row["file"])
def test_every_layer_is_found_converted_and_proven(real, tmp_path, row):
    findings = survey(mha_convert.read(real / row["file"]))
    expected = [layer for layer in row["attention_layers"] if "query" in layer]
    shapes = [
        [list(getattr(layer, role).kernel.shape) for role in ("query", "key", "value", "output")]
        for layer in findings.layers
    ]
    assert sorted(shapes) == sorted([layer[role] for role in ("query", "key", "value", "output")] for layer in expected)
    if not expected:
        with pytest.raises(mha_convert.LayerError, match="holds no attention with weights of its own"):
            mha_convert.convert_file(real / row["file"], tmp_path / "x.pt")
        return
    for layout in ("mha", "padded", "linear"):
        report = mha_convert.convert_file(real / row["file"], tmp_path / f"{layout}.safetensors", layout=layout)
        assert report.proven
        assert not [item for item in report.not_converted if item.blocking]


@pytest.mark.parametrize("folder", SAVED_MODELS)
def test_saved_models_are_read_from_any_of_their_files(real, tmp_path, folder):
    names = SAVED_MODELS[folder]
    for source in (real / folder, real / folder / "saved_model.pb"):
        assert [layer.name for layer in mha_convert.find_layers(mha_convert.read(source))] == names
    for layout in ("mha", "linear"):
        if names:
            assert mha_convert.convert_file(real / folder, tmp_path / f"{layout}.pt", layout=layout).proven
        else:
            with pytest.raises(mha_convert.LayerError, match="holds no attention with weights of its own"):
                mha_convert.convert_file(real / folder, tmp_path / "x.pt")


@pytest.mark.parametrize("source", REFUSED)
def test_everything_odd_is_named(real, source):
    with pytest.raises(mha_convert.ReadError, match=REFUSED[source]):
        mha_convert.read(real / source)


def test_every_file_of_the_index_is_tried_here():
    tried = [row["file"] for row in READ] + list(REFUSED)
    assert all(row["file"] in tried or row["file"].startswith(tuple(SAVED_MODELS)) for row in ROWS)


def test_false_friends_are_named_and_not_taken(real):
    for file, kind in (
        ("dm3loc/weights_fold_0.h5", "Attention_mask"),
        ("video-qoe/gru_basic.h5", "SelfAttention"),
        ("vol-attn/lstm_attention_model.keras", "AttentionLayer"),
    ):
        not_converted = survey(mha_convert.read(real / file)).not_converted
        assert any(kind in item.kind for item in not_converted)
