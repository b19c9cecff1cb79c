"""Grouped heads, gates, windows and attention axes: every layout that supports them, the formula, and genuine Keras."""

import json
import zipfile

import numpy as np
import pytest
import torch
from layer_cases import CASES, GROUPED_OR_AXES, ONLY_LINEAR, ids, make_layer
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import mha_convert
from mha_convert.conversion import convert, ledger
from mha_convert.modules import KerasMultiheadAttention, ProjectedMultiheadAttention
from mha_convert.targets.loading import build_module
from mha_convert.targets.torch_file import as_tensor
from mha_convert.verification import verify
from mha_convert.verification.attention_calls import projections_request
from mha_convert.verification.cases import Case, cases, windowed
from mha_convert.verification.formulas.multi_head_attention import Inputs, attention
from mha_convert.verification.genuine_keras import GenuineKeras
from mha_convert.verification.pytorch import masks_for

LAYOUTS = [("mha", case) for case in GROUPED_OR_AXES] + [("linear", case) for case in (*GROUPED_OR_AXES, *ONLY_LINEAR)]
EVERY = [pytest.param(layout, case, id=f"{layout}: {case.id}") for layout, case in LAYOUTS]


def proven(layer, folder, layout, reference="numpy", **options):
    """A written target and its proof."""
    plan = mha_convert.plan([layer], layout=layout, **options)
    target = folder / "target.safetensors"
    mha_convert.write(target, convert(plan), mha_convert.describe_plan(plan, source()), overwrite=True)
    return plan, verify(plan, mha_convert.open_target(target), reference=reference)


def source():
    """What a target says that it was made from."""
    from mha_convert.records.source import Checkpoint, Group

    return Checkpoint(path="x.keras", format="keras", has_config=True, root=Group(path="", name=""))


def module_of(layer, layout, **options):
    """The module with the layer's numbers, in their own dtype."""
    plan = mha_convert.plan([layer], layout=layout, prefix="", **options)
    return build_module(plan.layers[0].module, {tensor.key: as_tensor(tensor.read()) for tensor in convert(plan)})


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("layout, case", EVERY)
def test_every_case_is_proven_and_loads(layout, case, dtype, tmp_path):
    _, proof = proven(make_layer(case), tmp_path, layout, dtype=dtype)
    assert all(comparison.passed for comparison in proof.comparisons)
    exact = [comparison for comparison in proof.comparisons if comparison.weights == "float64"]
    assert max(comparison.relative for comparison in exact) < 1e-10
    assert set(mha_convert.load_modules(tmp_path / "target.safetensors")) == {"layer"}


@pytest.mark.process
@pytest.mark.parametrize("layout", ["mha", "linear"])
def test_genuine_keras_agrees(keras_installed, layout, tmp_path):
    """One process for all; Keras has no grouped heads with sizes of their own, nor an output shape for them."""
    known = [case for name, case in LAYOUTS if name == layout and case.id not in OURS_ALONE]
    layers = [make_layer(case, "float64", name=f"layer{number}") for number, case in enumerate(known)]
    plan = mha_convert.plan(layers, layout=layout)
    mha_convert.write(tmp_path / "x.safetensors", convert(plan), "")
    proof = verify(plan, mha_convert.open_target(tmp_path / "x.safetensors"), reference="keras")
    against = {comparison.layer for comparison in proof.comparisons if "genuine" not in comparison.reference}
    assert against == {layer.name for layer in layers}
    assert len([c for c in proof.comparisons if c.reference.startswith("Keras")]) >= 6 * len(layers)


OURS_ALONE = {
    "grouped, wide, cross",  # Keras' GroupQueryAttention has one width for key and value
    "grouped, value smaller, output wider",
    "axis -3 of rank 4: the second",  # Keras since 3.12 counts it otherwise, and writes the result
}


@pytest.mark.parametrize("layout, case", EVERY)
def test_damage_to_any_tensor_is_found(layout, case, tmp_path):
    layer = make_layer(case)
    plan = mha_convert.plan([layer], layout=layout)
    tensors = {tensor.key: as_tensor(tensor.read()) for tensor in convert(plan)}
    module = plan.layers[0].module
    calls = cases(layer, {k: v.astype("float64") for k, v in arrays(layer).items()})
    right = outputs(module, tensors, plan, calls, layer)
    for key, tensor in tensors.items():
        damaged = tensor.clone()
        damaged.view(-1)[0] += 0.25
        changed = outputs(module, tensors | {key: damaged}, plan, calls, layer)
        softens = key.endswith(("k_proj.bias", "in_proj_bias"))  # a key bias moves all scores of a query alike
        alone = layer.sliding_window == 1 and key.split(".")[-2] in (
            "q_proj",
            "k_proj",
        )  # with one key there is no choice
        assert (
            softens or alone or any(not torch.allclose(a, b, atol=1e-5) for a, b in zip(right, changed, strict=True))
        ), key


def arrays(layer):
    """Keras' arrays by name."""
    from layer_cases import arrays_of

    return arrays_of(layer)


def outputs(module, tensors, plan, calls, layer):
    """What the module gives for each case."""
    prefix = plan.layers[0].prefix
    built = build_module(module, {key.removeprefix(prefix): tensor.double() for key, tensor in tensors.items()})
    found = []
    for case in calls:
        inputs = (torch.from_numpy(array) for array in (case.call.query, case.call.key, case.call.value))
        found.append(built(*inputs, **masks_for(case, layer.num_heads))[0].detach())
    return found


@pytest.mark.parametrize("case", GROUPED_OR_AXES, ids=ids)
def test_both_layouts_return_the_same(case):
    layer = make_layer(case, "float64")
    ours, stock = module_of(layer, "linear"), module_of(layer, "mha")
    calls = cases(layer, arrays(layer))
    for call in calls:
        inputs = [torch.from_numpy(array) for array in (call.call.query, call.call.key, call.call.value)]
        masks = masks_for(call, layer.num_heads)
        for options in ({}, {"average_attn_weights": False}, {"need_weights": False}):
            (a, scores_a), (b, scores_b) = (module(*inputs, **masks, **options) for module in (ours, stock))
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
            assert (scores_a is None) == (scores_b is None) == ("need_weights" in options)
            if scores_a is not None:
                torch.testing.assert_close(scores_a, scores_b, rtol=0, atol=1e-12)
    if layer.attended_axes == (1,) and not isinstance(stock, nn.MultiheadAttention):  # which needs the mask, too
        (a, _), (b, _) = (module(*inputs, is_causal=True) for module in (ours, stock))
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_a_mask_of_three_axes_counts_batch_other_axes_and_heads():
    layer = make_layer(GROUPED_OR_AXES[5], "float64")
    call = cases(layer, arrays(layer))[1]
    inputs = [torch.from_numpy(array) for array in (call.call.query, call.call.key, call.call.value)]
    wide = masks_for(call, layer.num_heads)["attn_mask"]
    narrow = wide.expand(2, 2, 2, *wide.shape[-2:]).flatten(0, 2)
    for layout in ("mha", "linear"):
        module = module_of(layer, layout)
        torch.testing.assert_close(module(*inputs, attn_mask=wide)[0], module(*inputs, attn_mask=narrow)[0])


def test_grouped_heads_are_those_of_pytorch():
    """``enable_gqa`` of PyTorch, with and without weights."""
    layer = make_layer(GROUPED_OR_AXES[0], "float64")
    module = module_of(layer, "linear")
    assert module.k_proj.weight.shape == (4, 8)
    x, y = torch.randn(2, 5, 8).double(), torch.randn(2, 7, 8).double()
    q, k, v = (
        projection(features).unflatten(-1, (-1, 2)).transpose(1, 2)
        for projection, features in ((module.q_proj, x), (module.k_proj, y), (module.v_proj, y))
    )
    expected = scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2)
    for options in ({}, {"need_weights": False}):
        torch.testing.assert_close(module(x, y, y, **options)[0], module.out_proj(expected))


@pytest.mark.parametrize("window", [1, 2, 4])
def test_a_window_is_a_band(window):
    layer = make_layer(CASES[0], "float64", sliding_window=window)
    plain = module_of(make_layer(CASES[0], "float64"), "linear")
    module = module_of(layer, "linear")
    x = torch.randn(2, 6, 8).double()
    far = (torch.arange(6)[:, None] - torch.arange(6)).abs() >= window
    for options in ({}, {"need_weights": False}):
        torch.testing.assert_close(module(x, x, x, **options)[0], plain(x, x, x, attn_mask=far, **options)[0])
        causal = far | torch.ones(6, 6, dtype=torch.bool).triu(1)
        torch.testing.assert_close(
            module(x, x, x, is_causal=True, **options)[0], plain(x, x, x, attn_mask=causal, **options)[0]
        )


def test_a_query_beyond_the_window_is_no_nan():
    module = module_of(make_layer(CASES[0], "float64", sliding_window=1), "linear")
    output, weights = module(torch.randn(1, 6, 8).double(), *[torch.randn(1, 3, 8).double()] * 2)
    assert output.isfinite().all()
    torch.testing.assert_close(weights[0, 5], torch.full((3,), 1 / 3).double())


WINDOWED = [case for case in ONLY_LINEAR if case.sliding_window]
LENGTH = 6
PADDED = np.arange(LENGTH) >= np.array(
    [[LENGTH], [2]]
)  # the second of the batch is short: its last queries see padding
BLOCKED = np.zeros((LENGTH, LENGTH), bool)
BLOCKED[[1, 3]] = True  # two queries see nothing
LATER = np.triu(np.ones((LENGTH, LENGTH), bool), 1)


def torch_masks(layer, padded, blocked, causal):
    """The ways to give the same masks to a module: True blocks, or Keras' masks by ``to_attn_mask``."""
    padding = {} if padded is None else {"key_padding_mask": torch.from_numpy(padded)}
    blocks = {} if blocked is None else {"attn_mask": torch.from_numpy(blocked | LATER if causal else blocked)}
    yield {**padding, **(blocks or {"is_causal": causal})}
    keras = {
        "attention_mask": None if blocked is None else torch.from_numpy(~blocked),
        "value_mask": None if padded is None else torch.from_numpy(~padded),
    }
    sizes = {"num_heads": layer.num_heads, "query_length": LENGTH, "key_length": LENGTH, "dtype": torch.float64}
    merged = mha_convert.to_attn_mask(**keras, causal=causal, **sizes)
    yield {} if merged is None else {"attn_mask": merged}
    if blocked is not None:
        for dtype in (torch.float32, torch.float64):
            merged = mha_convert.to_attn_mask(torch.from_numpy(~blocked), causal=causal, **sizes | {"dtype": dtype})
            yield {**padding, "attn_mask": merged}


ROWS_WITHOUT_KEYS = {
    "padding": (PADDED, None, False),
    "padding, causal": (PADDED, None, True),
    "blocked": (None, BLOCKED, False),
    "blocked, causal": (None, BLOCKED, True),
    "padding, blocked": (PADDED, BLOCKED, False),
    "padding, blocked, causal": (PADDED, BLOCKED, True),
}


def call_with(layer, attends):
    """One call whose mask is handed to Keras as it is."""
    random = np.random.default_rng(1)
    inputs = [random.standard_normal((2, LENGTH, width)) for width in (layer.query_features, layer.key_features, layer.value_features)]  # fmt: skip
    call = Inputs(**dict(zip(("query", "key", "value"), inputs, strict=True)), attends=attends)
    return Case(name="x", mask="attention mask", axes=(1,), call=call, inputs=windowed(call, layer.sliding_window))


def merged_for_keras(padded, blocked, causal):
    """True where a query may attend, window aside."""
    nothing = np.zeros((2, LENGTH, LENGTH), bool)
    return ~(nothing | (False if padded is None else padded[:, None]) | (False if blocked is None else blocked) | (LATER & causal))  # fmt: skip


@pytest.mark.parametrize("masks", ROWS_WITHOUT_KEYS)
@pytest.mark.parametrize("case", WINDOWED, ids=ids)
def test_a_key_blocked_by_mask_and_window_is_blocked_once(case, masks):
    """A query without any key left gets the average of all, whichever of the two blocked each."""
    layer = make_layer(case, "float64")
    call = call_with(layer, merged_for_keras(*ROWS_WITHOUT_KEYS[masks]))
    assert not call.inputs.attends.any(-1).all()
    expected = attention(arrays(layer), call.inputs)
    module = module_of(layer, "linear")
    inputs = [torch.from_numpy(array) for array in (call.call.query, call.call.key, call.call.value)]
    for given in torch_masks(layer, *ROWS_WITHOUT_KEYS[masks]):
        output, weights = module(*inputs, average_attn_weights=False, **given)
        np.testing.assert_allclose(weights.detach(), expected.scores, rtol=0, atol=1e-12)
        np.testing.assert_allclose(output.detach(), expected.output, rtol=0, atol=1e-12)
        output, _ = module(*inputs, need_weights=False, **given)
        np.testing.assert_allclose(output.detach(), expected.output, rtol=0, atol=1e-12)


@pytest.mark.process
def test_genuine_keras_agrees_on_rows_without_any_key(keras_installed):
    """Without scores: with them, Keras gives zeros for such rows since 3.10. Its scale is a float32 there."""
    with GenuineKeras() as keras:
        for case in WINDOWED:
            layer = make_layer(case, "float64")
            calls = [call_with(layer, merged_for_keras(*masks)) for masks in ROWS_WITHOUT_KEYS.values()]
            found = keras.results(projections_request(layer, calls), layer, arrays(layer))
            for call, theirs in zip(calls, found, strict=True):
                ours = attention(arrays(layer), call.inputs).output
                np.testing.assert_allclose(ours, theirs["output without scores"], rtol=0, atol=1e-6)


def test_a_float_mask_is_added_inside_a_window():
    """Biases of either sign, and what is minus infinity stays out altogether."""
    layer = make_layer(WINDOWED[1], "float64")
    module, plain = module_of(layer, "linear"), module_of(make_layer(CASES[0], "float64"), "linear")
    x, bias = torch.randn(2, LENGTH, 8).double(), torch.randn(LENGTH, LENGTH).double() * 3
    bias[4] = -torch.inf
    bias[4, 3] = 1.0
    far = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs() >= layer.sliding_window
    for options in ({}, {"need_weights": False}):
        expected = plain(x, x, x, attn_mask=bias.masked_fill(far, -torch.inf), **options)[0]
        torch.testing.assert_close(module(x, x, x, attn_mask=bias, **options)[0], expected)
    bias[2, :4] = -torch.inf  # all that the window shows
    _, weights = module(x, x, x, attn_mask=bias)
    torch.testing.assert_close(weights[:, 2], torch.tensor([0, 0, 0, 0, 0.5, 0.5]).double().expand(2, -1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rows_without_any_key_are_finite_in_every_dtype(dtype):
    """Float16 counts in steps of 16 near the number that blocks: scores of 8 and more would show in the average."""
    module = module_of(make_layer(WINDOWED[1]), "linear").to(dtype)
    x = torch.randn(2, LENGTH, 8, generator=torch.Generator().manual_seed(0)).mul(0.1).to(dtype)
    sizes = {"num_heads": 4, "query_length": LENGTH, "dtype": dtype}
    given = {"attn_mask": mha_convert.to_attn_mask(value_mask=torch.from_numpy(~PADDED), causal=True, **sizes)}
    for masks in (given, {"key_padding_mask": torch.from_numpy(PADDED), "is_causal": True}):
        _, weights = module(x, x, x, **masks)
        torch.testing.assert_close(weights[1, 5], torch.full((LENGTH,), 1 / LENGTH).to(dtype), rtol=0, atol=0.02)


@pytest.mark.parametrize("case", [*GROUPED_OR_AXES, *ONLY_LINEAR], ids=ids)
def test_modules_train_compile_and_export(case):
    layer = make_layer(case)
    for layout in ("linear",) if case in ONLY_LINEAR else ("mha", "linear"):
        module = module_of(layer, layout)
        call = cases(layer, {k: v.astype("float64") for k, v in arrays(layer).items()})[0].call
        inputs = tuple(torch.from_numpy(array).float() for array in (call.query, call.key, call.value))
        module.train()
        module(*inputs)[0].sum().backward()
        assert all(parameter.grad is not None for parameter in module.parameters())
        module.eval()
        expected = module(*inputs, need_weights=False)[0]
        exported = torch.export.export(module, inputs, {"need_weights": False}).module()
        torch.testing.assert_close(exported(*inputs, need_weights=False)[0], expected)


@pytest.mark.parametrize("case", [ONLY_LINEAR[5], GROUPED_OR_AXES[6]], ids=ids)
def test_modules_compile_without_graph_breaks(case):
    layer = make_layer(case)
    module = module_of(layer, "linear")
    call = cases(layer, {k: v.astype("float64") for k, v in arrays(layer).items()})[0].call
    inputs = tuple(torch.from_numpy(array).float() for array in (call.query, call.key, call.value))
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*inputs)[0], module(*inputs)[0])


def test_the_ledger_counts_repeated_heads(tmp_path):
    layer = make_layer(GROUPED_OR_AXES[1])
    _, proof = proven(layer, tmp_path, "mha")
    entry = proof.ledgers["layer"]
    assert entry.repeated == 3 * (layer.key.kernel.size + layer.value.kernel.size)
    assert entry.target == entry.moved + entry.rescaled + entry.repeated + entry.padding + entry.identity
    linear = mha_convert.plan([layer], layout="linear")
    entry = ledger(linear.layers[0], {tensor.key: tensor.shape for tensor in convert(linear)})
    assert (entry.repeated, entry.target) == (0, entry.source)


def test_repeated_heads_stand_beside_each_other():
    """Key head j serves query heads j * groups and those behind it, as Keras repeats them."""
    layer = make_layer(GROUPED_OR_AXES[0], "float64")
    plan = mha_convert.plan([layer], prefix="")
    weight = {tensor.key: tensor.read() for tensor in convert(plan)}["in_proj_weight"]
    heads = weight[8:16].reshape(4, 2, 8)
    np.testing.assert_array_equal(heads[0], heads[1])
    np.testing.assert_array_equal(heads[2], heads[3])
    np.testing.assert_array_equal(heads[2], layer.key.kernel.read()[:, 1].T)


@pytest.mark.parametrize(
    "case, fact",
    [
        (ONLY_LINEAR[0], "has a gate (use_gate=True): its output is multiplied by a sigmoid that plain attention does not have"),
        (ONLY_LINEAR[3], "has sliding_window=2: each query sees a band of keys only, which plain attention does not do by itself"),
    ],
    ids=["gate", "window"],
)  # fmt: skip
def test_layout_mha_refuses_with_the_command_that_works(case, fact):
    with pytest.raises(mha_convert.LayoutError) as error:
        mha_convert.plan([make_layer(case)])
    assert str(error.value) == (
        f"Layout 'mha' cannot hold this: layer 'layer' {fact}. Use --layout linear, whose module computes it."
    )


@pytest.mark.parametrize("axes, rank", [((-2,), 3), ((-1,), 4), ((3,), 4), ((-6,), 4)])
def test_axes_that_are_none_of_the_inputs_are_refused(axes, rank):
    layer = make_layer(CASES[0], attention_axes=axes, input_rank=rank)
    for layout in ("mha", "linear"):
        with pytest.raises(mha_convert.LayoutError, match="which are not between the batch and the features"):
            mha_convert.plan([layer], layout=layout)


def test_padded_says_why_axes_do_not_fit():
    (item,) = mha_convert.plan([make_layer(GROUPED_OR_AXES[5])], layout="padded").layers
    assert item.misfit == "padded does not fit: it attends over axes (2,); laid out as mha instead"
    assert item.module.class_name == "ProjectedMultiheadAttention"


def test_a_gate_is_found_without_configuration_and_a_window_is_not(golden, tmp_path):
    for model in ("gate", "sliding"):
        with zipfile.ZipFile(golden / f"keras-3.15.1/{model}.keras") as archive:
            (tmp_path / f"{model}.weights.h5").write_bytes(archive.read("model.weights.h5"))
    (gated,) = mha_convert.find_layers(mha_convert.read(tmp_path / "gate.weights.h5"))
    assert gated.gate is not None
    report = mha_convert.convert_file(tmp_path / "sliding.weights.h5", tmp_path / "x.pt")
    assert any("a sliding window cannot be seen" in note for note in report.notes)


@pytest.mark.process
def test_the_module_file_needs_torch_alone(tmp_path):
    import subprocess
    import sys

    layers = [make_layer(case, name=f"layer{i}") for i, case in enumerate((*ONLY_LINEAR, *GROUPED_OR_AXES))]
    from mha_convert.source.attention import module_source

    plan = mha_convert.plan(layers, layout="linear")
    (tmp_path / "built.py").write_text(module_source(plan, "x.keras", "x.pt"))
    mha_convert.write(tmp_path / "x.pt", convert(plan), "")
    code = (
        "import sys, torch, built\n"
        "model = built.build()\n"
        "print(model.load_state_dict(torch.load('x.pt', weights_only=True), strict=True))\n"
        "assert 'mha_convert' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "All keys matched" in result.stdout, result.stderr


def test_descriptions_stay_as_they_were_for_plain_layers():
    """Targets of plain layers do not name arguments that they do not need."""
    (item,) = mha_convert.plan([make_layer(CASES[0])], layout="linear").layers
    assert not {"num_key_value_heads", "gate", "sliding_window", "attention_axes"} & set(item.module.arguments)
    json.dumps(item.module.arguments)
    assert isinstance(module_of(make_layer(CASES[0]), "linear"), KerasMultiheadAttention)
    assert isinstance(module_of(make_layer(GROUPED_OR_AXES[5]), "mha"), ProjectedMultiheadAttention)
