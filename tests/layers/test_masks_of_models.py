"""The masks that a model uses are not weights; what the file shows of them is reported."""

import pytest

import mha_convert

CALLS = {
    "keras-2.10/causal_decoder.h5": [("use_causal_mask=True",), ()],
    "keras-2.15/causal_plain.keras": [("use_causal_mask=True",)],
    "keras-3.3.3/causal_decoder.keras": [("use_causal_mask=True", "query_mask", "value_mask"), ("query_mask",)],
    "keras-3.15.1/causal_plain.keras": [("use_causal_mask=True",)],
    "keras-3.15.1/attn_mask_input.keras": [("attention_mask",)],
    "keras-2.15/attn_mask_input.keras": [("attention_mask",)],
    "keras-3.15.1/square.keras": [()],
}


@pytest.mark.parametrize("file", CALLS)
def test_masks_of_the_graph_are_read(corpus, file):
    layers = mha_convert.find_layers(mha_convert.read(corpus / file))
    assert [layer.call_options for layer in layers] == CALLS[file]


def test_the_report_says_so(samples, tmp_path):
    report = mha_convert.convert_file(samples / "translator.h5", tmp_path / "x.pt")
    assert report.notes == (
        "Embedding 'embedding' makes a padding mask, which Keras hands on to the layers after it: as query_mask and "
        "value_mask of attention. Pass PyTorch the same (mha_convert.to_attn_mask).",
        "Layer 'self_attention': the model calls it with use_causal_mask=True. Pass PyTorch the same mask.",
    )


@pytest.mark.parametrize(
    ("tag", "said"), [("keras-2.4", False), ("keras-2.8", False), ("keras-2.10", True), ("keras-3.15.1", True)]
)
def test_keras_before_2_10_ignored_hidden_masks(corpus, tag, said):
    notes = mha_convert.inspect_file(corpus / tag / "mask_zero.h5").findings.notes
    assert any("makes a padding mask" in note for note in notes) == said
