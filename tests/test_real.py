"""Public model files: every layer that their index knows, and none in the files without attention."""

import json

import pytest
from conftest import SHARED

import mha_convert
from mha_convert.layers import survey

INDEX = SHARED / "real" / "index.json"
ROWS = json.loads(INDEX.read_text()) if INDEX.exists() else []
READ = [row for row in ROWS if row["file"].endswith((".h5", ".keras"))]
OTHERS = [row for row in ROWS if not row["file"].endswith((".h5", ".keras"))]


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
        with pytest.raises(mha_convert.LayerError, match="no MultiHeadAttention in it"):
            mha_convert.convert_file(real / row["file"], tmp_path / "x.pt")
        return
    for layout, placement in (("mha", "projected"), ("mha", "drop-in"), ("linear", "projected")):
        report = mha_convert.convert_file(
            real / row["file"], tmp_path / f"{layout}-{placement}.safetensors", layout=layout, placement=placement
        )
        assert report.proven
        assert not [item for item in report.lookalikes if item.blocking]


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row["file"])
def test_everything_else_is_named(real, row):
    path = real / row["file"]
    if path.exists():
        with pytest.raises(mha_convert.ReadError, match="this is .*, expected a saved Keras model"):
            mha_convert.read(path)


def test_false_friends_are_named_and_not_taken(real):
    for file, kind in (
        ("dm3loc/weights_fold_0.h5", "Attention_mask"),
        ("video-qoe/gru_basic.h5", "SelfAttention"),
        ("vol-attn/lstm_attention_model.keras", "AttentionLayer"),
    ):
        lookalikes = survey(mha_convert.read(real / file)).lookalikes
        assert any(kind in item.kind for item in lookalikes)
