"""The executor: shapes without reading, bits kept, one rounding, rules that can be read backwards."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import CASES, LayerCase, arrays_of, ids, make_layer, make_variable
from rows_backwards import backwards, blocks_of

import mha_convert
from mha_convert.conversion import apply, ledger, numpy_dtype, padded_shape, round_once, taken, via_odd_float32
from mha_convert.records.plan import LayerPlan, ModuleSpec, Piece, Rule

LAYOUTS = ["mha", "padded", "linear"]


@pytest.mark.parametrize("case", CASES, ids=ids)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_shapes_are_known_before_anything_is_read(case, layout):
    plan = mha_convert.plan([make_layer(case)], layout=layout)
    for tensor in mha_convert.convert(plan):
        array = tensor.read()
        assert (array.shape, array.dtype.name, array.flags.c_contiguous) == (tensor.shape, tensor.dtype, True)


@pytest.mark.parametrize("case", CASES, ids=ids)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_rule_can_be_read_backwards(case, layout):
    """What is in the target is all of Keras' numbers: each array comes back bit for bit (rescaled: to one rounding)."""
    layer = make_layer(case, dtype="float64")
    (item,) = mha_convert.plan([layer], layout=layout).layers
    tensors = {tensor.key: tensor.read() for tensor in mha_convert.convert(mha_convert.plan([layer], layout=layout))}
    seen = set()
    for rule in item.rules:
        rows = blocks_of(rule, item, tensors[item.prefix + rule.target])
        for piece, block in rows:
            if piece.made:
                expected = np.eye(*piece.shape) if piece.made == "identity" else np.zeros(piece.shape)
                np.testing.assert_array_equal(block, expected)
                continue
            role, kind = piece.source.split(".")
            original = getattr(layer.projections[role], kind).read()
            padded = backwards(block, piece, padded_shape(original.shape, piece))
            inner = tuple(slice(size) for size in original.shape)
            np.testing.assert_array_equal(padded[inner], original * piece.factor)
            padded[inner] = 0
            assert not padded.any()
            seen.add(piece.source)
    assert seen == {
        f"{role}.{kind}"
        for role in layer.projections
        for kind in ("kernel", "bias")
        if kind == "kernel" or case.use_bias
    }


GATES = 3  # of a GRU: Keras stores z, r, h, PyTorch r, z, n
GRU_ROWS = (
    Rule(
        "weight_ih_l0",
        tuple(
            Piece("kernel", "features units -> units features", parts={"units": part})
            for part in [(4, 8), (0, 4), (8, 12)]
        ),
    ),
    Rule(
        "bias_ih_l0",
        tuple(
            Piece("bias", "kind units -> (kind units)", parts={"kind": (0, 1), "units": part})
            for part in [(4, 8), (0, 4), (8, 12)]
        ),
    ),
    Rule("bias_hh_l0", (Piece("bias", "kind units -> (kind units)", parts={"kind": (1, 2)}),)),
    Rule("heads", (Piece("fused", "features (kinds heads) -> kinds (heads features)", sizes={"kinds": 3}),)),
)


def test_a_row_takes_parts_of_an_array_and_splits_axes():
    """What other kinds of layers need: gates in another order, one of two biases, fused kernels."""
    random = np.random.default_rng(0)
    arrays = {
        "kernel": random.standard_normal((5, 12)),
        "bias": random.standard_normal((2, 12)),
        "fused": random.standard_normal((2, 6)),
    }
    layer = SimpleNamespace(
        name="gru",
        dtype="float64",
        parameters=sum(array.size for array in arrays.values()),
        arrays={name: make_variable(name, array) for name, array in arrays.items()},
    )
    item = LayerPlan(layer=layer, prefix="", rules=GRU_ROWS, module=ModuleSpec(class_name="", arguments={}))
    made = {rule.target: apply(rule, item, "float64") for rule in GRU_ROWS}
    z, r, h = np.split(arrays["kernel"].T, GATES)
    np.testing.assert_array_equal(made["weight_ih_l0"], np.concatenate([r, z, h]))
    z, r, h = np.split(arrays["bias"][0], GATES)
    np.testing.assert_array_equal(made["bias_ih_l0"], np.concatenate([r, z, h]))
    np.testing.assert_array_equal(made["bias_hh_l0"], arrays["bias"][1])
    np.testing.assert_array_equal(made["heads"], arrays["fused"].T.reshape(3, 4))
    entry = ledger(item, {key: array.shape for key, array in made.items()})
    assert (entry.source, entry.moved, entry.target, entry.padding, entry.repeated) == (96, 96, 96, 0, 0)
    found = {name: np.full_like(array, np.nan) for name, array in arrays.items()}
    for rule in GRU_ROWS:
        for piece, block in blocks_of(rule, item, made[rule.target]):
            part = taken(found[piece.source], piece)
            part[...] = backwards(block, piece, part.shape)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("case", CASES, ids=ids)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_parameters_in_are_parameters_out(case, layout):
    plan = mha_convert.plan([make_layer(case)], layout=layout)
    shapes = {tensor.key: tensor.shape for tensor in mha_convert.convert(plan)}
    entry = ledger(plan.layers[0], shapes)
    assert entry.source == make_layer(case).parameters == entry.moved + entry.rescaled
    assert entry.target == sum(int(np.prod(shape)) for shape in shapes.values())
    if layout == "linear":
        assert (entry.rescaled, entry.padding, entry.identity) == (0, 0, 0)


def test_a_lost_number_is_noticed_by_the_ledger():
    plan = mha_convert.plan([make_layer(CASES[0])])
    shapes = {tensor.key: tensor.shape for tensor in mha_convert.convert(plan)}
    shapes["layer.in_proj_bias"] = (23,)
    with pytest.raises(mha_convert.LayoutError, match="288 parameters in the source, 287 in the target"):
        ledger(plan.layers[0], shapes)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_moved_numbers_keep_their_bits(dtype):
    layer = make_layer(CASES[0], dtype=numpy_dtype(dtype))
    (tensor,) = [t for t in mha_convert.convert(mha_convert.plan([layer])) if t.key == "layer.out_proj.weight"]
    kernel = layer.output.kernel.read()
    assert tensor.read().tobytes() == np.ascontiguousarray(kernel.reshape(8, 8).T).tobytes()


SMALLEST = {"bfloat16": -133, "float16": -24, "float32": -149}  # exponent of the smallest number above zero


def nearest_even(value: float, bits: int, smallest: int = -1074) -> Fraction:
    """``value`` rounded to ``bits`` significant bits, ties to even, in exact arithmetic (no overflow)."""
    exact = Fraction(value)
    if not exact:
        return exact
    exponent = max(int(np.frexp(value)[1]) - bits, smallest)
    unit = Fraction(2) ** int(exponent)
    return round(exact / unit) * unit  # Fraction rounds half to even


@settings(max_examples=500, deadline=None)
@given(
    st.floats(-1e4, 1e4).filter(lambda x: abs(x) > 1e-3 or x == 0),
    st.sampled_from([("bfloat16", 8), ("float16", 11), ("float32", 24)]),
)
def test_rounding_happens_once(value, target):
    dtype, bits = target
    assert Fraction(float(round_once(np.array(value), dtype, "x"))) == nearest_even(value, bits)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(-(2**8), 2**8),
    st.sampled_from([0.0, 0.5, -0.5, 0.25]),
    st.sampled_from([0.0, 2.0**-40, -(2.0**-40)]),
    st.sampled_from([("bfloat16", 8), ("float16", 11), ("float32", 24)]),
)
def test_the_smallest_numbers_are_rounded_once_too(steps, between, little, target):
    """Point 10 of issue 12: our rounding against exact arithmetic, where the dtype's numbers are subnormal."""
    dtype, bits = target
    value = (steps + between + little) * 2.0 ** SMALLEST[dtype]
    assert Fraction(float(round_once(np.array(value), dtype, "x"))) == nearest_even(value, bits, SMALLEST[dtype])


HALFWAY = [
    1 + 2**-8 + 2**-40,
    1 + 3 * 2**-8 - 2**-40,
    -(1 + 2**-8 + 2**-40),
    (1 + 2**-8 + 2**-40) * 2.0**-126,
    (2**-1 + 2**-30) * 2.0**-133,  # a subnormal of float32, too
]


@pytest.mark.parametrize("value", [*HALFWAY, 1 + 2**-8 - 2**-40, 1 + 2**-8, 1 + 3 * 2**-8])
def test_halfway_cases_are_not_rounded_twice(value):
    """float64 to float32 to bfloat16 would lose the last bits that decide."""
    rounded = float(round_once(np.array(value), "bfloat16", "x"))
    assert Fraction(rounded) == nearest_even(value, 8, SMALLEST["bfloat16"])


@pytest.mark.parametrize("value", HALFWAY)
def test_the_step_by_float32_keeps_what_decides(value):
    """Point 10 of issue 12: our step is right whoever rounds after it; the nearest float32 would not be."""
    smallest = SMALLEST["bfloat16"]
    once = nearest_even(value, 8, smallest)
    assert nearest_even(float(via_odd_float32(np.array(value))), 8, smallest) == once
    assert nearest_even(float(np.float32(value)), 8, smallest) != once


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(
        mha_convert.LayoutError,
        match=r"^Layer 'a': its key bias holds 70000, which is too large for float16. Choose --dtype float32 or bfloat16 or float64.$",
    ):
        round_once(np.array([1.0, 7e4]), "float16", "Layer 'a': its key bias")


def test_infinities_stay_infinite():
    assert np.isinf(round_once(np.array([np.inf], "float32"), "float16", "x")).all()


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.fixed_dictionaries(
        {
            name: st.integers(1, 6)
            for name in ("num_heads", "key_dim", "value_dim", "query_features", "key_features", "value_features")
        }
    ),
    output=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    bias=st.booleans(),
    layout=st.sampled_from(LAYOUTS),
)
def test_any_sizes_agree_with_the_formula(sizes, output, bias, layout):
    """Any geometry, any layout: float64 equality of the real module with the NumPy formula."""
    from mha_convert.targets.torch_file import as_tensor
    from mha_convert.verification.cases import cases
    from mha_convert.verification.formulas.multi_head_attention import attention
    from mha_convert.verification.pytorch import module_in_float64, run

    layer = make_layer(LayerCase(id="", output_shape=tuple(output), use_bias=bias, **sizes), dtype="float64")
    plan = mha_convert.plan([layer], layout=layout, prefix="")
    module = module_in_float64(plan.layers[0].module, {t.key: as_tensor(t.read()) for t in mha_convert.convert(plan)})
    arrays = arrays_of(layer)
    for case in cases(layer, arrays):
        expected, (result, alone) = attention(arrays, case.inputs), run(module, case, layer.num_heads)
        for ours, theirs in (
            (result.output, expected.output),
            (result.scores, expected.scores),
            (alone, expected.output),
        ):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11 * max(1.0, np.abs(theirs).max()))
