"""The genuine attention modules of transformers and timm accept the targets. Skipped if they are not installed."""

import numpy as np
import pytest
import torch
from layer_cases import arrays_of, case, make_layer

import mha_convert
from mha_convert.targets.torch_file import as_tensor
from mha_convert.verification.formulas.multi_head_attention import Inputs, attention

SQUARE, WIDE = case("", 4, 2), case("", 4, 3, use_bias=False)


def compare(module, case, call, missing=(), unexpected=(), **options):
    """Load all keys but those that are told, call with one input, compare with the Keras formula."""
    layer = make_layer(case, dtype="float64")
    plan = mha_convert.plan([layer], prefix="", **options)
    state = {tensor.key: as_tensor(tensor.read()) for tensor in mha_convert.convert(plan)}
    found = module.double().eval().load_state_dict(state, strict=False)
    assert (tuple(found.missing_keys), tuple(found.unexpected_keys)) == (missing, unexpected)
    x = np.random.default_rng(1).standard_normal((2, 5, 8))
    with torch.no_grad():
        output = call(module, torch.from_numpy(x))
    expected = attention(arrays_of(layer), Inputs(query=x, key=x, value=x)).output
    np.testing.assert_allclose(output, expected, rtol=0, atol=2e-6)  # some have their softmax in float32


def first(module, x):
    return module(x)[0]


def eager(transformers, name, **settings):
    config = getattr(transformers, name)(**settings)
    config._attn_implementation = "eager"
    return config


def test_bert():
    transformers = pytest.importorskip("transformers")
    from transformers.models.bert.modeling_bert import BertAttention

    config = eager(transformers, "BertConfig", hidden_size=8, num_attention_heads=4)
    norm = ("output.LayerNorm.weight", "output.LayerNorm.bias")
    call = lambda module, x: module.output.dense(module.self(x)[0])  # noqa: E731
    compare(BertAttention(config), SQUARE, call, norm, layout="bert")


def test_bart_and_whisper():
    transformers = pytest.importorskip("transformers")
    from transformers.models.bart.modeling_bart import BartAttention
    from transformers.models.whisper.modeling_whisper import WhisperAttention

    bart = BartAttention(8, 4, config=eager(transformers, "BartConfig"))
    compare(bart, SQUARE, first, layout="bart")
    whisper = WhisperAttention(8, 4, config=eager(transformers, "WhisperConfig"))
    compare(whisper, SQUARE, first, unexpected=("k_proj.bias",), layout="bart")


def test_clip_and_distilbert():
    transformers = pytest.importorskip("transformers")
    from transformers.models.clip.modeling_clip import CLIPAttention
    from transformers.models.distilbert import modeling_distilbert

    clip = CLIPAttention(eager(transformers, "CLIPVisionConfig", hidden_size=8, num_attention_heads=4))
    compare(clip, SQUARE, first, layout="bart")
    config = eager(transformers, "DistilBertConfig", dim=8, n_heads=4)
    module = getattr(modeling_distilbert, "DistilBertSelfAttention")(config)  # noqa: B009 - of transformers 5
    compare(module, SQUARE, first, layout="distilbert")


def test_t5_and_llama():
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaAttention
    from transformers.models.t5.modeling_t5 import T5Attention

    t5 = T5Attention(transformers.T5Config(d_model=8, d_kv=3, num_heads=4), has_relative_attention_bias=False)
    compare(t5, WIDE, first, layout="t5")
    sizes = {"hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 3}
    llama = LlamaAttention(eager(transformers, "LlamaConfig", **sizes), 0)
    no_rotation = torch.ones(1, 5, 3, dtype=torch.float64), torch.zeros(1, 5, 3, dtype=torch.float64)
    compare(llama, WIDE, lambda module, x: module(x, no_rotation, None)[0], layout="llama")


@pytest.mark.parametrize("bias", [True, False])
def test_timm(bias):
    attention_of = pytest.importorskip("timm.layers.attention").Attention
    sizes = case("", 4, 3, output=(10,), use_bias=bias)
    module = attention_of(8, 4, attn_head_dim=3, dim_out=10, qkv_bias=bias, proj_bias=bias)
    compare(module, sizes, lambda module, x: module(x), layout="qkv")
