"""Layouts ``qkv``, ``bert``, ``llama`` and similar: the keys of timm and Hugging Face, the proof, what does not fit."""

import copy
import json
import pickle
import typing

import numpy as np
import pytest
import torch
from damages import DAMAGES, in_memory
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import CASES, LayerCase, arrays_of, case, ids, make_layer
from rows_backwards import backwards, blocks_of
from torch import nn

import mha_convert
from mha_convert.conversion import ledger, padded_shape
from mha_convert.layouts import FAMILIES, LAYOUTS, qkv
from mha_convert.targets.loading import build_module
from mha_convert.targets.torch_file import as_tensor
from mha_convert.verification import verify
from mha_convert.verification.cases import cases
from mha_convert.verification.formulas.multi_head_attention import Inputs, attention
from mha_convert.verification.pytorch import module_in_float64, run

FUSED = tuple(case for case in CASES if not any(refusal.applies(make_layer(case)) for refusal in qkv.REFUSALS))
PAIRS = [
    *[pytest.param(case, {"layout": "qkv"}, id=f"{case.id}, qkv") for case in FUSED],
    *[pytest.param(case, {"layout": names}, id=f"{case.id}, {names}") for case in CASES for names in FAMILIES],
]


def tensors_of(layer, **options):
    return {
        tensor.key: as_tensor(tensor.read()).clone()
        for tensor in mha_convert.convert(mha_convert.plan([layer], **options))
    }


@pytest.mark.parametrize(("case", "options"), PAIRS)
def test_every_rule_can_be_read_backwards(case, options):
    layer = make_layer(case, dtype="float64")
    plan = mha_convert.plan([layer], **options)
    (item,), tensors = plan.layers, {tensor.key: tensor for tensor in mha_convert.convert(plan)}
    seen = set()
    for rule in item.rules:
        tensor = tensors[item.prefix + rule.target]
        array = tensor.read()
        assert (array.shape, array.dtype.name, array.flags.c_contiguous) == (tensor.shape, tensor.dtype, True)
        for piece, block in blocks_of(rule, item, array):
            role, kind = piece.source.split(".")
            original = getattr(layer.projections[role], kind).read()
            found = backwards(block, piece, padded_shape(original.shape, piece))
            np.testing.assert_array_equal(found, original * piece.factor)
            seen.add(piece.source)
    assert seen == set(arrays_of(layer))
    entry = ledger(item, {key: tensor.shape for key, tensor in tensors.items()})
    assert (entry.source, entry.padding, entry.identity) == (entry.target, 0, 0)
    assert bool(entry.rescaled) == (options["layout"] == "t5" and case.key_dim > 1)


@pytest.mark.parametrize(("case", "options"), PAIRS)
def test_every_damaged_tensor_is_caught(case, options):
    plan, tensors = mha_convert.plan([make_layer(case)], **options), tensors_of(make_layer(case), **options)
    assert all(comparison.passed for comparison in verify(plan, in_memory(tensors)).comparisons)
    for key, tensor in tensors.items():
        for damage in DAMAGES:
            damaged = damage(tensor, case.num_heads)
            if torch.equal(damaged.view(torch.int32), tensor.view(torch.int32)):
                continue
            with pytest.raises(mha_convert.VerificationError, match=f"tensor '{key}' differs from Keras in"):
                verify(plan, in_memory(tensors | {key: damaged}))


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 6)] * 6),
    output=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    bias=st.booleans(),
    names=st.sampled_from((*FAMILIES, None)),
)
def test_any_sizes_agree_with_the_formula(sizes, output, bias, names):
    heads, key_dim, value_dim, *widths = sizes
    if names is None:  # fused: one width, one head size, one output axis
        value_dim, widths, output = key_dim, widths[:1] * 3, output[:1]
    fields = ("num_heads", "key_dim", "value_dim", "query_features", "key_features", "value_features")
    facts = dict(zip(fields, (heads, key_dim, value_dim, *widths), strict=True))
    layer = make_layer(LayerCase(id="", output_shape=tuple(output), use_bias=bias, **facts), dtype="float64")
    options = {"layout": names} if names else {"layout": "qkv"}
    (item,) = mha_convert.plan([layer], prefix="", **options).layers
    module = module_in_float64(item.module, tensors_of(layer, prefix="", **options))
    arrays = arrays_of(layer)
    for call in cases(layer, arrays):
        expected, (result, alone) = attention(arrays, call.inputs), run(module, call, heads)
        for ours, theirs in (
            (result.output, expected.output),
            (result.scores, expected.scores),
            (alone, expected.output),
        ):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11 * max(1.0, np.abs(theirs).max()))


class FusedSelfAttention(nn.Module):
    """What timm's ``Attention`` computes of ``qkv`` and ``proj``, in the order of axes that it has."""

    def __init__(self, dim, num_heads, head_dim, dim_out, bias):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        self.qkv = nn.Linear(dim, 3 * num_heads * head_dim, bias=bias)
        self.proj = nn.Linear(num_heads * head_dim, dim_out, bias=bias)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        return self.proj(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, -1))


@pytest.mark.parametrize("case", FUSED, ids=ids)
def test_timms_attention_takes_layout_qkv(case):
    layer = make_layer(case, dtype="float64")
    module = FusedSelfAttention(case.query_features, case.num_heads, case.key_dim, *case.output_shape, case.use_bias)
    module.double().load_state_dict(tensors_of(layer, layout="qkv", prefix=""), strict=True)
    x = np.random.default_rng(1).standard_normal((2, 5, case.query_features))
    expected = attention(arrays_of(layer), Inputs(query=x, key=x, value=x)).output
    np.testing.assert_allclose(module(torch.from_numpy(x)).detach(), expected, rtol=0, atol=1e-12)


class SeparateSelfAttention(nn.Module):
    """What attention of the families computes of four ``nn.Linear``; T5 does not divide scores."""

    def __init__(self, tensors, names, num_heads, scale):
        super().__init__()
        self.tensors, self.names, self.num_heads, self.scale = tensors, names, num_heads, scale

    def project(self, x, place):
        return nn.functional.linear(x, self.tensors[f"{place}.weight"], self.tensors.get(f"{place}.bias"))

    def forward(self, x):
        *inside, out = self.names
        q, k, v = (self.project(x, place).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for place in inside)
        weights = (q @ k.transpose(-2, -1) * self.scale).softmax(-1)
        return self.project((weights @ v).transpose(1, 2).flatten(2), out)


KEYS = {
    "bart": ("q_proj", "k_proj", "v_proj", "out_proj"),
    "llama": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "bert": ("self.query", "self.key", "self.value", "output.dense"),
    "vit": ("attention.query", "attention.key", "attention.value", "output.dense"),
    "distilbert": ("q_lin", "k_lin", "v_lin", "out_lin"),
    "t5": ("q", "k", "v", "o"),
}


@pytest.mark.parametrize("names", KEYS)
def test_the_families_names_and_their_scale(names):
    layer = make_layer(case("", 4, 3, use_bias=names != "t5"), dtype="float64")
    tensors = tensors_of(layer, layout=names, prefix="")
    kinds = ("weight",) if names == "t5" else ("weight", "bias")
    assert list(tensors) == [f"{place}.{kind}" for place in KEYS[names] for kind in kinds]
    module = SeparateSelfAttention(tensors, KEYS[names], 4, 1.0 if names == "t5" else 3**-0.5)
    x = np.random.default_rng(1).standard_normal((2, 5, 8))
    expected = attention(arrays_of(layer), Inputs(query=x, key=x, value=x)).output
    np.testing.assert_allclose(module(torch.from_numpy(x)), expected, rtol=0, atol=1e-12)


def test_every_family_is_tested_and_offered():
    from mha_convert.options import Layout

    assert set(KEYS) == set(FAMILIES) < set(typing.get_args(Layout))
    assert typing.get_args(Layout) == tuple(layout.NAME for layout in LAYOUTS)


@pytest.mark.parametrize("names", FAMILIES)
def test_a_factor_that_is_one_rounds_nothing(names):
    plan = mha_convert.plan([make_layer(case("", 4, 1))], layout=names)
    tensors = {tensor.key: as_tensor(tensor.read()) for tensor in mha_convert.convert(plan)}
    assert not any(tensor.rounded for tensor in verify(plan, in_memory(tensors)).stored)


@pytest.mark.parametrize(
    ("case", "fact"),
    [
        (case("", 2, 4, kv=(6, 10)), "has inputs of widths 8, 6 and 10, and one fused weight takes one input"),
        (case("", 2, 4, 3), "has key_dim=4 and value_dim=3, and a fused weight has heads of one size"),
        (case("", 2, 4, output=(3, 5)), r"has output_shape=\(3, 5\), and proj gives one axis"),
    ],
)
def test_what_one_fused_weight_cannot_hold(case, fact):
    message = f"^Layout 'qkv' cannot hold this: layer 'layer' {fact}. Use --layout linear, which takes any sizes.$"
    with pytest.raises(mha_convert.LayoutError, match=message):
        mha_convert.plan([make_layer(case)], layout="qkv")
    mha_convert.plan([make_layer(case)], layout="linear")


def test_a_family_that_there_is_not_is_refused_with_those_that_there_are():
    with pytest.raises(mha_convert.LayoutError, match=r"^There is no layout 'gpt'. Choose one of: mha, .*, bart, t5.$"):
        mha_convert.plan([make_layer(CASES[0])], layout="gpt")


@pytest.mark.parametrize("options", [{"layout": "qkv"}, *[{"layout": name} for name in FAMILIES]])
def test_modules_are_copied_compiled_and_exported(options):
    layer = make_layer(case("", 4, 3))
    (item,) = mha_convert.plan([layer], prefix="", **options).layers
    module = build_module(item.module, tensors_of(layer, prefix="", **options))
    x = torch.randn(2, 5, 8)
    expected = module(x, x, x)[0]
    assert torch.equal(pickle.loads(pickle.dumps(copy.deepcopy(module)))(x, x, x)[0], expected)
    torch.compiler.reset()  # one forward is compiled for a few modules only
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, x, x)[0], expected)
    torch.testing.assert_close(torch.export.export(module, (x, x, x)).module()(x, x, x)[0], expected)
    with pytest.raises(AttributeError, match="nonsense"):
        module.nonsense  # noqa: B018


@pytest.mark.parametrize("options", [{"layout": "qkv"}, {"layout": "t5"}])
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_file_is_converted_verified_and_loaded(samples, tmp_path, options, suffix):
    source, target = samples / "six_heads.keras", tmp_path / f"x{suffix}"
    assert mha_convert.convert_file(source, target, **options).proven
    assert mha_convert.verify_file(source, target).proven
    description = json.loads(mha_convert.open_target(target).description)
    assert description["layout"] == options["layout"]
    module = mha_convert.load_modules(target)["attention"]
    linear = tmp_path / "linear.pt"
    mha_convert.convert_file(source, linear, layout="linear")
    x = torch.randn(2, 5, 4)
    expected = mha_convert.load_modules(linear)["attention"](x, x, x)
    for ours, theirs in zip(module(x, x, x), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    "names", [{"q_proj": "forward"}, {"nonsense": "q"}, {"q_proj": "self..query"}, {"q_proj": 5}, 3]
)
def test_a_description_with_impossible_names_is_a_read_error(samples, tmp_path, names):
    from mha_convert.targets import writer_for

    plan = mha_convert.plan(mha_convert.find_layers(mha_convert.read(samples / "textbook.keras")), layout="bert")
    description = json.loads(mha_convert.describe_plan(plan, mha_convert.read(samples / "textbook.keras")))
    description["layers"][0]["arguments"]["names"] = names
    target = tmp_path / "x.safetensors"
    writer_for(target).write(target, mha_convert.convert(plan), json.dumps(description))
    with pytest.raises(mha_convert.ReadError, match=r"layer '.*' does not load: .*Convert again"):
        mha_convert.load_modules(target)
