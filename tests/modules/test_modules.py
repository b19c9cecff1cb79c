"""The modules can replace one another and the stock class; masks as in Keras; trainable; exportable."""

import copy
import itertools

import numpy as np
import pytest
import torch
from layer_cases import CASES, arrays_of, ids, make_layer

import mha_convert
from mha_convert.modules import KerasMultiheadAttention, ProjectedMultiheadAttention, to_attn_mask
from mha_convert.modules.masks import causal_mask
from mha_convert.targets.loading import build_module
from mha_convert.targets.torch_file import as_tensor
from mha_convert.verification.formulas.multi_head_attention import Inputs, attention

LAYOUTS = ["mha", "padded", "linear"]
BATCH, QUERY, KEY = 2, 5, 7


def module_of(layer, layout="mha"):
    plan = mha_convert.plan([layer], layout=layout, prefix="")
    return build_module(plan.layers[0].module, {t.key: as_tensor(t.read()) for t in mha_convert.convert(plan)})


def inputs_for(case, dtype=torch.float64):
    random = torch.Generator().manual_seed(0)
    widths = (QUERY, case.query_features), (KEY, case.key_features), (KEY, case.value_features)
    return [torch.randn(BATCH, *shape, generator=random, dtype=dtype) for shape in widths]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_layouts_are_called_alike_and_return_alike(case):
    layer = make_layer(case, dtype="float64")
    modules = [module_of(layer, layout) for layout in LAYOUTS]
    query, key, value = inputs_for(case)
    blocked = torch.rand(QUERY, KEY, generator=torch.Generator().manual_seed(1)) < 0.4
    blocked[:, 0] = False
    per_head = torch.randn(
        BATCH * case.num_heads, QUERY, KEY, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
    )
    padding = torch.zeros(BATCH, KEY, dtype=torch.bool)
    padding[1, -3:] = True
    masks = [
        {},
        {"attn_mask": blocked},
        {"attn_mask": per_head},
        {"key_padding_mask": padding},
        {"attn_mask": blocked, "key_padding_mask": padding},
    ]
    masks += [
        {
            "attn_mask": per_head,
            "key_padding_mask": torch.zeros(BATCH, KEY, dtype=torch.float64).masked_fill(padding, -1e30),
        }
    ]
    for mask, needed, averaged in itertools.product(masks, (True, False), (True, False)):
        results = [m(query, key, value, need_weights=needed, average_attn_weights=averaged, **mask) for m in modules]
        shape = (BATCH, QUERY, KEY) if averaged else (BATCH, case.num_heads, QUERY, KEY)
        for output, weights in results:
            assert (weights is None) if not needed else weights.shape == shape
            torch.testing.assert_close(output, results[0][0], rtol=0, atol=1e-11)
            if needed:
                torch.testing.assert_close(weights, results[0][1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", CASES[:3] + CASES[-2:], ids=ids)
def test_inputs_without_batch_work_as_in_the_stock_class(case):
    layer = make_layer(case, dtype="float64")
    query, key, value = inputs_for(case)
    padding = torch.zeros(KEY, dtype=torch.bool)
    padding[-2:] = True
    for layout in LAYOUTS:
        module = module_of(layer, layout)
        whole, whole_weights = module(query, key, value, key_padding_mask=padding.expand(BATCH, KEY))
        output, weights = module(query[0], key[0], value[0], key_padding_mask=padding)
        torch.testing.assert_close(output, whole[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(weights, whole_weights[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("needed", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_is_causal_alone_is_enough_for_our_modules(layout, needed, padded):
    case = next(case for case in CASES if case.id == "everything differs")
    module = module_of(make_layer(case, dtype="float64"), layout)
    query, key, value = inputs_for(case)
    padding = torch.zeros(BATCH, KEY, dtype=torch.bool)
    padding[1, -3:] = True
    options = {"need_weights": needed, "key_padding_mask": padding if padded else None}
    output, _ = module(query, key, value, is_causal=True, **options)
    expected, _ = module(query, key, value, attn_mask=causal_mask(QUERY, KEY, query.device), **options)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


def test_a_layer_without_projections_is_the_stock_class_itself():
    for case in CASES:
        module = module_of(make_layer(case))
        embed = case.num_heads * max(case.key_dim, case.value_dim)
        fits = case.query_features == embed and case.output_shape == (embed,)
        assert (type(module) is torch.nn.MultiheadAttention) == fits, case.id
        if not fits:
            assert type(module) is ProjectedMultiheadAttention
            assert type(module.attention) is torch.nn.MultiheadAttention


def test_the_users_own_plain_module_takes_drop_in_keys():
    """A plain nn.MultiheadAttention(width, heads), made by the user, no class of ours."""
    case = next(case for case in CASES if case.id == "narrow: heads * key_dim < width")
    plan = mha_convert.plan([make_layer(case, dtype="float64")], layout="padded", prefix="")
    mine = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    mine.load_state_dict({t.key: as_tensor(t.read()) for t in mha_convert.convert(plan)}, strict=True)
    query, key, value = inputs_for(case)
    expected = attention(
        arrays_of(make_layer(case, dtype="float64")), Inputs(query=query.numpy(), key=key.numpy(), value=value.numpy())
    )
    output, weights = mine.eval()(query, key, value, average_attn_weights=False)
    np.testing.assert_allclose(output.detach().numpy(), expected.output, atol=1e-13)
    np.testing.assert_allclose(weights.detach().numpy(), expected.scores, atol=1e-13)


def every_mask():
    """Keras' masks in every combination, some rows without a key."""
    random = torch.Generator().manual_seed(3)
    choices = {
        "attention_mask": [
            None,
            torch.rand(BATCH, QUERY, KEY, generator=random) < 0.5,
            torch.rand(QUERY, KEY, generator=random) < 0.5,
        ],
        "query_mask": [None, torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])],
        "value_mask": [None, torch.tensor([[1] * 7, [1] * 4 + [0] * 3])],
        "key_mask": [None, torch.tensor([[1] * 6 + [0], [0] + [1] * 6])],
        "causal": [False, True],
    }
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def keras_rule(attention_mask, query_mask, value_mask, key_mask, causal):
    """Who attends, by the documentation of keras.layers.MultiHeadAttention; independent of to_attn_mask."""
    attends = np.ones((BATCH, QUERY, KEY), bool)
    if attention_mask is not None:
        attends &= attention_mask.numpy()
    if query_mask is not None:
        attends &= query_mask.bool().numpy()[:, :, None]
    for mask in (value_mask, key_mask):
        if mask is not None:
            attends &= mask.bool().numpy()[:, None, :]
    return attends & np.tril(np.ones((QUERY, KEY), bool)) if causal else attends


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_masks_give_keras_result_in_rows_without_keys_too(layout, dtype):
    case = next(case for case in CASES if case.id == "value larger, fits padded")
    layer = make_layer(case, dtype="float64")
    module = module_of(layer, layout).to(dtype)
    query, key, value = inputs_for(case)
    inputs = Inputs(query=query.numpy(), key=key.numpy(), value=value.numpy())
    empty_rows = 0
    for masks in every_mask():
        attends = keras_rule(**masks)
        empty_rows += int((~attends.any(-1)).sum())
        mask = to_attn_mask(**masks, num_heads=case.num_heads, query_length=QUERY, key_length=KEY, dtype=dtype)
        expected = attention(
            arrays_of(layer), Inputs(query=inputs.query, key=inputs.key, value=inputs.value, attends=attends)
        )
        tolerance = 1e-12 if dtype == torch.float64 else 3e-5
        for needed in (True, False):
            output, weights = module(
                query.to(dtype),
                key.to(dtype),
                value.to(dtype),
                attn_mask=mask,
                need_weights=needed,
                average_attn_weights=False,
            )
            np.testing.assert_allclose(output.detach().double().numpy(), expected.output, atol=tolerance)
            if needed:
                np.testing.assert_allclose(weights.detach().double().numpy(), expected.scores, atol=tolerance)
    assert empty_rows > 50


def test_masks_without_batch_stay_small():
    assert to_attn_mask(num_heads=2) is None
    assert to_attn_mask(causal=True, num_heads=2, query_length=3, key_length=4).shape == (3, 4)
    assert to_attn_mask(torch.ones(3, 4), num_heads=2).shape == (3, 4)
    assert to_attn_mask(torch.ones(2, 3, 4), num_heads=2).shape == (4, 3, 4)
    assert to_attn_mask(torch.ones(2, 2, 3, 4), num_heads=2).shape == (4, 3, 4)
    assert to_attn_mask(torch.ones(3, 4), causal=True, num_heads=2).dtype == torch.float32


def test_masks_per_head_keep_their_heads():
    mask = torch.rand(2, 3, 4, 5) < 0.5
    blocked = to_attn_mask(mask, num_heads=3) != 0
    assert torch.equal(blocked.unflatten(0, (2, 3)), ~mask)


@pytest.mark.parametrize(
    "masks",
    [
        {"causal": True},
        {"query_mask": torch.ones(2, 3)},
        {"value_mask": torch.ones(2, 3)},
        {"query_mask": torch.ones(2, 3), "causal": True},
    ],
)
def test_an_unknown_length_is_asked_for(masks):
    with pytest.raises(ValueError, match="_length is not shown by a mask; pass it"):
        to_attn_mask(**masks, num_heads=2)


def test_a_row_without_any_key_is_finite_with_the_additive_mask():
    """The reason for to_attn_mask: what stock PyTorch makes of a boolean mask here is its own affair."""
    module = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 3, 8)
    blocked = torch.zeros(3, 3, dtype=torch.bool)
    blocked[1] = True
    mask = to_attn_mask(~blocked, num_heads=2)
    output, weights = module(x, x, x, attn_mask=mask)
    assert not output.isnan().any()
    torch.testing.assert_close(weights[0, 1], torch.full((3,), 1 / 3))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", [CASES[0], CASES[4], CASES[-1]], ids=ids)
def test_modules_train(layout, case):
    module = module_of(make_layer(case), layout).train()
    assert all(
        parameter.requires_grad and isinstance(parameter, torch.nn.Parameter) for parameter in module.parameters()
    )
    before = copy.deepcopy(module.state_dict())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    output, _ = module(*inputs_for(case, torch.float32), need_weights=False)
    output.square().mean().backward()
    optimizer.step()
    assert any(not torch.equal(before[key], value) for key, value in module.state_dict().items())


@pytest.mark.parametrize("needed", [True, False])
def test_dropout_is_the_layers_and_only_while_training(needed):
    for layout in LAYOUTS:
        case = next(case for case in CASES if case.id == "value larger, fits padded")
        module = module_of(make_layer(case, dropout=0.5), layout)
        inputs = inputs_for(case, torch.float32)
        first, second = (module(*inputs, need_weights=needed)[0] for _ in range(2))
        assert torch.equal(first, second)
        module.train()
        first, second = (module(*inputs, need_weights=needed)[0] for _ in range(2))
        assert not torch.equal(first, second)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("needed", [True, False])
def test_modules_export(layout, needed):
    case = next(case for case in CASES if case.id == "everything differs")
    module = module_of(make_layer(case), layout)
    inputs = tuple(inputs_for(case, torch.float32))
    exported = torch.export.export(module, inputs, {"need_weights": needed}).module()
    torch.testing.assert_close(exported(*inputs, need_weights=needed)[0], module(*inputs, need_weights=needed)[0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_modules_compile_without_graph_breaks(layout):
    case = next(case for case in CASES if case.id == "everything differs")
    module = module_of(make_layer(case), layout)
    inputs = inputs_for(case, torch.float32)
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*inputs, need_weights=False)[0], module(*inputs, need_weights=False)[0])


def test_layout_linear_has_no_parameter_more_than_keras():
    for case in CASES:
        module = module_of(make_layer(case), "linear")
        assert type(module) is KerasMultiheadAttention
        assert sum(parameter.numel() for parameter in module.parameters()) == make_layer(case).parameters


@pytest.mark.parametrize("needed", [True, False])
def test_in_float16_nothing_becomes_infinite_or_nan(needed):
    """Large scores in rows without keys: adding them to the lowest number of float16 would overflow."""
    module = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        module.in_proj_weight.mul_(10)
    x = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0))
    kept = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0]])
    mask = to_attn_mask(query_mask=kept, value_mask=kept, num_heads=2, dtype=torch.float16)
    output, weights = module.half()(x.half(), x.half(), x.half(), attn_mask=mask, need_weights=needed)
    assert output.isfinite().all()
    if needed:
        assert weights.isfinite().all() and (weights[0, :3, 3] == 0).all()


def test_no_mask_is_infinite_for_any_score():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        mask = to_attn_mask(torch.tensor([[False, True]]), num_heads=1, dtype=dtype)
        assert (mask + torch.tensor(-30.0, dtype=dtype)).isfinite().all()
