"""The proof must fail when anything is wrong: each tensor of each layout, damaged in each way."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from damages import DAMAGES, in_memory
from layer_cases import CASES, arrays_of, ids, make_layer

import mha_convert
from mha_convert.errors import VerificationError
from mha_convert.targets.torch_file import as_tensor
from mha_convert.verification import verify
from mha_convert.verification.cases import cases
from mha_convert.verification.formulas.multi_head_attention import (
    FLOAT32,
    FLOAT64,
    Inputs,
    arithmetic_effect,
    attention,
    rounding_effect,
)

LAYOUTS = ["mha", "padded", "linear"]


def make(case, layout, **options):
    """A plan and its tensors."""
    plan = mha_convert.plan([make_layer(case)], layout=layout, **options)
    return plan, {tensor.key: as_tensor(tensor.read()).clone() for tensor in mha_convert.convert(plan)}


@pytest.mark.parametrize("case", CASES, ids=ids)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damaged_tensor_is_caught(case, layout, damage):
    plan, tensors = make(case, layout)
    verify(plan, in_memory(tensors))
    damaged_any = False
    for key, tensor in tensors.items():
        damaged = damage(tensor, case.num_heads)
        if torch.equal(damaged.view(torch.int32), tensor.view(torch.int32)):
            continue  # an identity transposed, zeros rolled
        damaged_any = True
        with pytest.raises(VerificationError, match=f"tensor '{key}' differs from Keras in"):
            verify(plan, in_memory(tensors | {key: damaged}))
    assert damaged_any


@pytest.mark.parametrize(
    ("first", "second"),
    [("q_proj", "k_proj"), ("k_proj", "v_proj"), ("q_proj", "v_proj"), ("v_proj", "out_proj")],
)
def test_swapped_matrices_are_caught(first, second):
    plan, tensors = make(CASES[0], "linear")
    swapped = dict(tensors)
    for kind in ("weight", "bias"):
        a, b = f"layer.{first}.{kind}", f"layer.{second}.{kind}"
        swapped[a], swapped[b] = tensors[b], tensors[a]
    with pytest.raises(VerificationError, match="differs from Keras"):
        verify(plan, in_memory(swapped))


REVERSIBLE = [
    pytest.param(case, role, id=f"{case.id}-{role}")
    for case in CASES
    for role in ("query", "key", "value", "output")
    if getattr(make_layer(case), role).kernel.shape[0] > 1
]


@pytest.mark.parametrize(("case", "role"), REVERSIBLE)
def test_a_wrong_rule_is_caught_by_the_formula_alone(case, role, monkeypatch):
    """Were the conversion itself wrong, the stored bits would agree with it: the comparison must see it."""
    from mha_convert import conversion

    honest = conversion.source_array
    monkeypatch.setattr(
        conversion,
        "source_array",
        lambda piece, item: (
            honest(piece, item)[::-1].copy() if piece.source == f"{role}.kernel" else honest(piece, item)
        ),
    )
    plan, tensors = make(case, "mha")
    with pytest.raises(VerificationError, match=r"of PyTorch \((float64|stored) weights\) and the Keras formula"):
        verify(plan, in_memory(tensors))


def test_a_forgotten_scale_is_caught(monkeypatch):
    from mha_convert import conversion

    monkeypatch.setattr(conversion, "is_rescaled", lambda piece: False)
    case = next(case for case in CASES if case.id == "value larger")
    plan, tensors = make(case, "mha")
    with pytest.raises(VerificationError, match="the Keras formula"):
        verify(plan, in_memory(tensors))


@pytest.mark.parametrize("change", ["missing", "surplus", "shape", "dtype"])
def test_other_keys_shapes_and_dtypes_are_caught(change):
    plan, tensors = make(CASES[0], "mha")
    key = "layer.in_proj_bias"
    if change == "missing":
        del tensors[key]
        expected = "missing layer.in_proj_bias"
    elif change == "surplus":
        tensors["layer.beyond"] = tensors[key]
        expected = "unexpected layer.beyond"
    elif change == "shape":
        tensors[key] = tensors[key][:-1]
        expected = r"'layer.in_proj_bias' is float32 \(23,\), expected float32 \(24,\)"
    else:
        tensors[key] = tensors[key].double()
        expected = r"'layer.in_proj_bias' is float64 \(24,\), expected float32 \(24,\)"
    with pytest.raises(VerificationError, match=expected):
        verify(plan, in_memory(tensors))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_not_proven_by_accident(odd):
    layer = make_layer(CASES[0])
    layer.key.kernel.read()[0, 0, 0] = odd
    plan = mha_convert.plan([layer])
    tensors = {tensor.key: as_tensor(tensor.read()) for tensor in mha_convert.convert(plan)}
    with pytest.raises(VerificationError, match="its key kernel holds 1 NaN or infinite numbers of 64"):
        verify(plan, in_memory(tensors))


@pytest.mark.parametrize("case", CASES, ids=ids)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_rounding_bound_holds_and_is_not_idle(case, dtype):
    """Rounded weights stay within the bound that is computed from the dtype, and use some of it."""
    layer = make_layer(case, dtype="float64")
    plan = mha_convert.plan([layer], dtype=dtype)
    tensors = {tensor.key: as_tensor(tensor.read()) for tensor in mha_convert.convert(plan)}
    proof = verify(plan, in_memory(tensors))
    stored = [comparison for comparison in proof.comparisons if comparison.weights == "stored"]
    assert len(stored) == 12 and all(comparison.passed for comparison in stored)
    assert max(comparison.error for comparison in stored) > 0
    worst = max(comparison.relative / comparison.bound for comparison in stored)
    assert 1e-4 < worst < 1


def test_the_bound_of_worst_roundings_is_reached_within_a_factor():
    """All roundings against us: the bound must hold, and must not be a thousand times too large."""
    random = np.random.default_rng(0)
    layer = make_layer(CASES[0], dtype="float64")
    arrays = arrays_of(layer)
    inputs = cases(layer, arrays)[0].inputs
    exact, allowed = attention(arrays, inputs), rounding_effect(arrays, inputs, dict.fromkeys(arrays, "bfloat16"))
    worst = 0.0
    for _ in range(200):
        moved = {name: array * (1 + 2.0**-8 * random.choice([-1, 1], array.shape)) for name, array in arrays.items()}
        difference = np.abs(attention(moved, inputs).output - exact.output)
        assert (difference <= allowed.output).all()
        worst = max(worst, float((difference / allowed.output).max()))
    assert worst > 1e-2


def test_the_formula_is_the_textbook_for_identities():
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    eye = np.eye(4)
    arrays = {name: eye.reshape(4, 1, 4) for name in ("query.kernel", "key.kernel", "value.kernel")}
    arrays["output.kernel"] = eye.reshape(1, 4, 4)
    scores = np.exp(x @ x.swapaxes(1, 2) / 2)
    scores /= scores.sum(-1, keepdims=True)
    result = attention(arrays, Inputs(query=x, key=x, value=x))
    np.testing.assert_allclose(result.output, scores @ x, atol=1e-14)
    np.testing.assert_allclose(result.scores[:, 0], scores, atol=1e-15)


def test_a_row_without_keys_is_the_uniform_average():
    layer = make_layer(CASES[0], dtype="float64")
    arrays = arrays_of(layer)
    inputs = cases(layer, arrays)[0].inputs
    result = attention(arrays, replace(inputs, attends=np.zeros((2, 5, 7), bool)))
    np.testing.assert_allclose(result.scores, 1 / 7)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_inputs_make_scores_that_neither_saturate_nor_vanish(scale):
    layer = make_layer(CASES[0], dtype="float64")
    arrays = {
        f"{role}.{kind}": getattr(p, kind).read() * (scale if kind == "kernel" else 0)
        for role, p in layer.projections.items()
        for kind in ("kernel", "bias")
    }
    scores = attention(arrays, cases(layer, arrays)[0].inputs).scores
    assert scores.max() - scores.min() > 0.2
    assert np.median(scores) > 1e-3


def test_no_row_of_any_mask_is_empty():
    layer = make_layer(CASES[0], dtype="float64")
    arrays = arrays_of(layer)
    calls = cases(layer, arrays)
    assert [call.name for call in calls] == ["no mask", "attention mask", "padding mask", "causal mask"]
    for call in calls[1:]:
        assert call.inputs.attends.any(-1).all()
        assert not call.inputs.attends.all()
    assert calls[0].inputs.query.shape[1] != calls[0].inputs.key.shape[1]


@pytest.mark.parametrize(("unit", "low", "high"), [(FLOAT32, 1e-8, 1e-4), (FLOAT64, 1e-17, 1e-12)])
def test_the_room_for_honest_arithmetic_is_small_but_not_nothing(unit, low, high):
    layer = make_layer(CASES[0], dtype="float64")
    arrays = arrays_of(layer)
    inputs = cases(layer, arrays)[0].inputs
    effect = arithmetic_effect(arrays, inputs, inside=unit, outside=FLOAT64).output.max()
    assert low < effect / np.abs(attention(arrays, inputs).output).max() < high


def proven(layer, **options):
    plan = mha_convert.plan([layer], **options)
    return verify(plan, in_memory({t.key: as_tensor(t.read()) for t in mha_convert.convert(plan)}))


def scaled(layer, **factors):
    """The layer with some arrays multiplied."""
    for name, factor in factors.items():
        role, kind = name.split("_")
        getattr(getattr(layer, role), kind).read()[...] *= factor
    return layer


@pytest.mark.parametrize(
    ("factors", "options"),
    [
        ({"query_bias": 1e3, "key_bias": 1e3}, {}),
        ({"query_bias": 1e4, "key_bias": 1e4}, {}),
        ({"query_bias": 300, "key_bias": 300}, {"dtype": "bfloat16"}),
        ({"query_kernel": 1e6, "key_kernel": 1e6, "value_kernel": 1e6, "output_kernel": 1e6}, {}),
        ({"query_kernel": 1e-12, "key_kernel": 1e-12, "query_bias": 1e-12}, {"dtype": "float16"}),
        ({"query_kernel": 0, "key_kernel": 0, "query_bias": 0, "key_bias": 0}, {}),
        ({"value_kernel": 0, "value_bias": 0, "output_bias": 0}, {}),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_odd_weights_are_proven_and_never_by_an_infinite_bound(factors, options, dtype):
    case = next(case for case in CASES if case.id == "value larger")  # rescaled, so that something is rounded
    proof = proven(scaled(make_layer(case, dtype=dtype), **factors), **options)
    assert all(np.isfinite(comparison.bound) for comparison in proof.comparisons)


def test_heads_that_cancel_are_proven():
    """The true output is zero: no relative error can be asked for."""
    layer = make_layer(CASES[0], dtype="float64")
    for role in ("query", "key", "value"):
        for array in (getattr(layer, role).kernel.read(), getattr(layer, role).bias.read()):
            array[..., 1::2, :] = array[..., ::2, :]
    kernel = layer.output.kernel.read()
    kernel[1::2] = -kernel[::2]
    layer.output.bias.read()[...] = 0
    assert all(comparison.passed for comparison in proven(layer).comparisons)


def test_a_layer_of_mixed_dtypes_loses_nothing():
    layer = make_layer(CASES[0])
    half = make_layer(CASES[0], dtype="float16")
    mixed = replace(layer, query=half.query)
    assert mixed.dtype == "float32"
    assert not any(tensor.rounded for tensor in proven(mixed).stored)
    assert any(tensor.rounded for tensor in proven(mixed, dtype="float16").stored)
