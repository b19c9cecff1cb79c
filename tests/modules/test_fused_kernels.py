"""Without weights, every module runs on PyTorch's fused kernels, and nothing is copied for them unnecessarily."""

import math
import warnings

import pytest
import torch
from layer_cases import CASES, GROUPED_OR_AXES, ONLY_LINEAR, ids, make_layer
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import mha_convert
from mha_convert.modules import FusedMultiheadAttention, KerasMultiheadAttention, ProjectedMultiheadAttention
from mha_convert.targets.loading import build_module
from mha_convert.targets.torch_file import as_tensor

FLAT = [case for case in (*CASES, *GROUPED_OR_AXES, *ONLY_LINEAR) if case.input_rank is None]
BATCH, QUERY, KEY = 2, 5, 7
BLOCKED = torch.ones(QUERY, KEY, dtype=torch.bool).triu(2)
PADDING = torch.tensor([[False] * KEY, [False] * 4 + [True] * 3])
MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "blocked": {"attn_mask": BLOCKED},
    "added": {"attn_mask": torch.zeros(QUERY, KEY).masked_fill(BLOCKED, -1e30)},
    "padding": {"key_padding_mask": PADDING},
    "padding and causal": {"key_padding_mask": PADDING, "is_causal": True},
    "padding and blocked": {"key_padding_mask": PADDING, "attn_mask": BLOCKED},
}


def modules_of(case):
    """The modules that a layer's tensors load into, by layout; a stock class is PyTorch's own."""
    layer = make_layer(case)
    layouts = {"linear": {}} if case in ONLY_LINEAR else {"linear": {}, "mha": {}}
    for name, options in layouts.items():
        plan = mha_convert.plan([layer], layout=name, prefix="", **options)
        module = build_module(plan.layers[0].module, {t.key: as_tensor(t.read()) for t in mha_convert.convert(plan)})
        if type(module) is not nn.MultiheadAttention:
            yield module.eval()


def inputs_for(case, rank=3):
    random = torch.Generator().manual_seed(0)
    axes = [3] * (rank - 3)
    widths = (QUERY, case.query_features), (KEY, case.key_features), (KEY, case.value_features)
    return [torch.randn(BATCH, length, *axes, width, generator=random) for length, width in widths]


@pytest.fixture
def calls(monkeypatch):
    """What ``scaled_dot_product_attention`` is called with."""
    heard = []
    genuine = nn.functional.scaled_dot_product_attention

    def spy(q, k, v, mask=None, dropout=0.0, is_causal=False, **options):
        heard.append({"q": q, "k": k, "v": v, "mask": mask, "is_causal": is_causal, **options})
        return genuine(q, k, v, mask, dropout, is_causal, **options)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", spy)
    return heard


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("case", FLAT, ids=ids)
def test_a_fused_kernel_takes_every_mask_and_size(case, mask):
    for module in modules_of(case):
        expected, weights = module(*inputs_for(case), **MASKS[mask])
        assert weights is not None
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
            output, weights = module(*inputs_for(case), need_weights=False, **MASKS[mask])
        assert weights is None
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("case", [case for case in GROUPED_OR_AXES if case.input_rank == 4], ids=ids)
def test_a_fused_kernel_takes_other_axes(case):
    query, key, value = inputs_for(case, rank=4)
    for module in modules_of(case):
        if case.attention_axes != (1,):  # the other axes must agree
            key, value = key[:, :QUERY], value[:, :QUERY]
        expected, weights = module(query, key, value)
        seen = torch.ones(BATCH, *[1] * weights.dim(), dtype=torch.bool)  # weights are averaged: one axis less
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
            for masks in ({}, {"attn_mask": ~seen}, {"attn_mask": torch.zeros(seen.shape)}):
                output, _ = module(query, key, value, need_weights=False, **masks)
                torch.testing.assert_close(output, expected, rtol=0, atol=1e-4)


def test_the_test_above_can_fail():
    """With kernels that a processor does not have, there is none left."""
    q = torch.randn(1, 2, 3, 4)
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.CUDNN_ATTENTION), pytest.raises(RuntimeError):
        warnings.simplefilter("ignore")  # about what it did not take
        nn.functional.scaled_dot_product_attention(q, q, q)


@pytest.mark.parametrize("case", FLAT, ids=ids)
def test_no_mask_is_made_that_is_not_needed(case, calls):
    for module in modules_of(case):
        if getattr(module, "sliding_window", None) is not None:
            continue
        for masks in MASKS.values():
            module(*inputs_for(case), need_weights=False, **masks)
        none, causal, blocked, added, padding, both, _ = calls
        calls.clear()
        assert none["mask"] is None and not none["is_causal"]
        assert causal["mask"] is None and causal["is_causal"]
        assert blocked["mask"].dtype == torch.bool and blocked["mask"].shape == (QUERY, KEY)
        assert added["mask"].data_ptr() == MASKS["added"]["attn_mask"].data_ptr()
        assert padding["mask"].dtype == torch.bool and padding["mask"].shape == (BATCH, 1, 1, KEY)
        assert both["mask"].dtype == torch.bool and both["mask"].shape == (BATCH, 1, QUERY, KEY)
        assert not any(
            call["mask"] is not None and call["is_causal"] for call in (none, causal, blocked, padding, both)
        )


@pytest.mark.parametrize("case", FLAT, ids=ids)
def test_queries_keys_and_values_are_views_of_the_projections(case, calls):
    for module in modules_of(case):
        module(*inputs_for(case), need_weights=False)
        (call,) = calls
        calls.clear()
        same_sizes = case.key_dim == case.value_dim
        heads = {"q": case.num_heads, "k": call["k"].shape[1], "v": call["k"].shape[1]}
        if isinstance(module, KerasMultiheadAttention):
            assert call["k"].shape[1] == (case.num_key_value_heads or case.num_heads)  # not repeated
        assert call["enable_gqa"] == (call["k"].shape[1] != case.num_heads)
        size = max(case.key_dim, case.value_dim)
        for name, length in (("q", QUERY), ("k", KEY), ("v", KEY)):
            assert call[name].shape == (BATCH, heads[name], length, size)
            if same_sizes:
                row = heads[name] * size
                assert call[name].stride() == (length * row, size, row, 1)


def test_one_matrix_product_makes_query_key_and_value_of_one_input():
    module = FusedMultiheadAttention(2, 4, features=8, output_features=8).eval()
    x, y = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    seen = []
    hook = module.qkv.register_forward_hook(lambda *_: seen.append(True))
    output, _ = module(x, x, x, need_weights=False)
    assert seen == [True]
    torch.testing.assert_close(module(x, x.clone(), x.clone(), need_weights=False)[0], output)
    assert seen == [True]
    hook.remove()
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, x, x, need_weights=False)[0], output)
    torch.testing.assert_close(compiled(x, y, y, need_weights=False)[0], module(x, y, y)[0])
    torch.testing.assert_close(compiled(x, x, -x, need_weights=False)[0], module(x, x, -x)[0])


@pytest.mark.parametrize("mask", ["none", "causal", "padding", "padding and causal"])
@pytest.mark.parametrize("case", [CASES[3], CASES[8], GROUPED_OR_AXES[0], ONLY_LINEAR[5]], ids=ids)
def test_one_graph_without_breaks_for_every_length(case, mask):
    """Compiled once with dynamic shapes, called with three batches and lengths."""
    for module in modules_of(case):
        torch.compiler.reset()
        counter = Counter()
        compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=counter)
        for batch, query, key in ((2, 5, 7), (3, 9, 6), (4, 8, 11)):
            inputs = [
                torch.randn(batch, length, width)
                for length, width in (
                    (query, case.query_features),
                    (key, case.key_features),
                    (key, case.value_features),
                )
            ]
            options = {"need_weights": False, "is_causal": "causal" in mask}
            if "padding" in mask:
                options["key_padding_mask"] = torch.arange(key).expand(batch, key) > 4
            torch.testing.assert_close(compiled(*inputs, **options)[0], module(*inputs, **options)[0])
        assert counter.graphs == 1
    torch.compiler.reset()


class Counter:
    """A backend that runs a graph as it is, and counts graphs."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph.forward


@pytest.mark.parametrize("case", [CASES[3], CASES[8], GROUPED_OR_AXES[0]], ids=ids)
def test_export_takes_other_batches_and_lengths(case):
    auto = torch.export.Dim.AUTO
    for module in modules_of(case):
        shapes = [{0: auto, 1: auto}] * 3
        exported = torch.export.export(
            module,
            tuple(inputs_for(case)),
            {"need_weights": False},
            dynamic_shapes={"query": shapes[0], "key": shapes[1], "value": shapes[2], "need_weights": None},
        ).module()
        longer = [torch.cat([x, x], 1) for x in inputs_for(case)]
        longer = [torch.cat([x, x]) for x in longer]
        expected = module(*longer, need_weights=False)[0]
        torch.testing.assert_close(exported(*longer, need_weights=False)[0], expected)


@pytest.mark.parametrize("needed", [True, False])
def test_rows_without_any_key(needed):
    """As PyTorch itself has it, whatever that is in its version."""
    x = torch.randn(1, 3, 8)
    blocked = torch.zeros(3, 3, dtype=torch.bool)
    blocked[1] = True
    for mask in (blocked, torch.zeros(3, 3).masked_fill(blocked, -math.inf)):
        stock = nn.MultiheadAttention(8, 2, batch_first=True)
        expected = stock(x, x, x, attn_mask=mask, need_weights=needed)[0]
        ours = ProjectedMultiheadAttention(8, 2, query_features=8, output_shape=[8])
        ours.attention.load_state_dict(stock.state_dict())
        fused = FusedMultiheadAttention(2, 4, features=8, output_features=8)
        names = {"in_proj_weight": "qkv.weight", "in_proj_bias": "qkv.bias"}
        fused.load_state_dict(
            {names.get(k, k.replace("out_proj", "proj")): value for k, value in stock.state_dict().items()}
        )
        for module in (ours, fused):
            output, _ = module(x, x, x, attn_mask=mask, need_weights=needed)
            torch.testing.assert_close(output, expected, equal_nan=True)
