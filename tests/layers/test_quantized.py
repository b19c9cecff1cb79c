"""Quantized kernels and LoRA adapters: Keras' own numbers, from every format; what is ambiguous is refused.

`quantized_models.py` makes the files with the installed Keras; `golden/keras-3.12.4-quantized` was made by it under
Keras 3.12.4, whose int4 is packed along another axis.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pytest
import torch
from corpus_files import CorpusFile, arrays, rows
from environment import PROJECT, SHARED, SUPPORT, TESTS
from layer_cases import make_variable

import mha_convert
from mha_convert.layers import multi_head_attention, survey
from mha_convert.layers.encodings import merged, unpacked
from mha_convert.records.source import Group, LayerConfig
from mha_convert.words.inspection import inspection_as_json, inspection_as_text
from mha_convert.words.table import Table

OLD = TESTS / "golden" / "keras-3.12.4-quantized"
FORMATS = ("model.keras", "folder", "model.weights.h5", "model.h5", "checkpoint/ck", "export")
MERGED = FORMATS[:3]  # the formats in which Keras merges LoRA adapters, and quantizes again
MODELS = {
    "int8": "int8",
    "int8-without-bias": "int8",
    "int8-one-head": "int8",
    "int8-bfloat16": "int8",
    "int4": "int4",
    "int4-odd": "int4",
    "int4-without-bias": "int4",
    "int4-one-head": "int4",
    "int4-blocks": "int4",
    "int4-channels": "int4",
    "int4-float16": "int4",
    "float8": "float8",
    "lora": "float32 + LoRA",
    "lora-alpha": "float32 + LoRA",
    "lora-float64": "float64 + LoRA",
    "lora-bfloat16": "bfloat16 + LoRA",
    "int8-lora": "int8 + LoRA",
    "int4-lora": "int4 + LoRA",
    "int8-some": "int8, float32",
    "lora-some": "float32 + LoRA, float32",
    "int8-grouped": "int8",
    "int4-grouped": "int4",
}
DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "float64": "float64"}  # by the end of a model's name
# How far a projection's answer to an identity is from its kernel: some steps of the dtype that Keras computes in.
ANSWERS = {"float32": 1e-6, "float64": 1e-7, "float16": 2e-3, "bfloat16": 2e-2}
# How far Keras' outputs are from those of the same weights: its inputs are rounded, too, or its dtype is short.
OUTPUTS = {"int8": 0.1, "float8": 1.0, "int4": 5e-6, "lora": 5e-6, "bfloat16": 0.2, "float16": 2e-2}
WITHOUT_SIZES = {
    (model, format)
    for model, formats in {
        "int4-without-bias": ("model.weights.h5", "checkpoint/ck", "export"),
        "int4-lora": ("model.weights.h5",),
    }.items()
    for format in formats
}
EVERY = [(model, format) for model in MODELS for format in FORMATS if (model, format) not in WITHOUT_SIZES]


@pytest.fixture(scope="session")
def quantized(keras_installed, tmp_path_factory, starts_processes) -> Path:
    """What the installed Keras writes now."""
    folder = tmp_path_factory.mktemp("quantized")
    subprocess.run(
        [sys.executable, SUPPORT / "quantized_models.py", folder], check=True, capture_output=True, timeout=600
    )
    return folder


def only_layer(path, config=None):
    """The one attention layer of a file."""
    (layer,) = mha_convert.find_layers(mha_convert.read(path, config=config))
    return layer


def expected_of(folder: Path, model: str) -> dict[str, np.ndarray]:
    """What Keras computed."""
    with np.load(folder / "expected.npz") as archive:
        return {key.split("|")[1]: archive[key] for key in archive.files if key.startswith(f"{model}|")}


def dtype_of(model: str) -> str:
    """Of the kernels that are made."""
    return DTYPES.get(model.rpartition("-")[2], "float32")


def check_kernels(layer, expected, model: str, format: str) -> None:
    """Keras' own kernels, bit for bit; of LoRA to the last bit, as backends add in different orders."""
    for role, projection in layer.projections.items():
        kernel, theirs = projection.kernel.read(), expected[f"{role}_kernel"]
        assert (kernel.shape, kernel.dtype.name) == (projection.kernel.shape, projection.kernel.dtype)
        assert projection.kernel.dtype == dtype_of(model)
        off = np.abs(kernel.astype("float64") - theirs)
        if model == "lora-alpha" and format not in MERGED:
            assert off.max() > 0.1  # the file does not tell alpha; the layer's cautions say so
        elif model in ("int8-lora", "int4-lora") and format in MERGED:
            assert off.max() < {"int8-lora": 0.01, "int4-lora": 0.2}[model]  # half a step: Keras quantized again
        elif "lora" in model:
            assert off.max() <= 2**-23 * np.abs(theirs).max()
        else:
            assert not off.any()
        if f"{role}_answer" in expected and off.max() < 1e-6:
            np.testing.assert_allclose(
                kernel.astype("float64"), expected[f"{role}_answer"], rtol=0, atol=ANSWERS[dtype_of(model)]
            )


@pytest.mark.parametrize(("model", "format"), EVERY)
def test_kernels_are_those_that_genuine_keras_computes_with(quantized, model, format):
    layer = only_layer(quantized / model / format)
    plain = "lora" in model and format in MERGED
    assert layer.storage == (MODELS[model].split(" + ")[0] if plain else MODELS[model])
    assert layer.dtype == dtype_of(model)
    check_kernels(layer, expected_of(quantized, model), model, format)


@pytest.mark.parametrize(("model", "format"), EVERY)
def test_conversions_are_proven_and_account_for_every_array(quantized, tmp_path, model, format):
    from mha_convert.words.conversion import report_as_json

    report = convert_by_name(quantized / model / format, tmp_path / "x.safetensors")
    assert report.proven
    (item,) = report.plan.layers
    ledger = report.ledgers[item.layer.name]
    assert ledger.source == item.layer.parameters == ledger.moved + ledger.rescaled
    variables = report_as_json(report)["variables"]
    assert variables["other"] == [] and len(variables["attention"]) == len(item.layer.stored_variables)
    if model == "lora-alpha" and format not in MERGED:
        return
    expected = expected_of(quantized, model)
    module = mha_convert.load_modules(tmp_path / "x.safetensors")[item.layer.name].double()
    with torch.no_grad():
        output, scores = module(
            *(torch.from_numpy(expected[name]) for name in ("query", "key", "value")), average_attn_weights=False
        )
    kind = next((kind for kind in ("bfloat16", "float16", "float8", "int8") if kind in model), model.split("-")[0])
    allowed = 1.0 if model == "int4-lora" and format in MERGED else OUTPUTS[kind]
    np.testing.assert_allclose(
        output.numpy().reshape(expected["output"].shape), expected["output"], rtol=0, atol=allowed
    )
    np.testing.assert_allclose(scores.numpy(), expected["scores"], rtol=0, atol=allowed)


@pytest.mark.parametrize("model", MODELS)
def test_one_model_gives_the_same_tensors_from_every_format(quantized, model):
    seen = {}
    for format in FORMATS:
        if (model, format) in WITHOUT_SIZES:
            continue
        plan = mha_convert.plan([only_layer(quantized / model / format)], prefix="")
        tensors = {tensor.key: tensor.read().tobytes() for tensor in mha_convert.convert(plan)}
        assert tensors == {tensor.key: tensor.read().tobytes() for tensor in mha_convert.convert(plan)}
        assert seen.setdefault("lora" in model and format in MERGED, tensors) == tensors, format


@pytest.mark.parametrize(
    ("model", "format"),
    [
        ("int4-odd", "model.keras"),
        ("int4-odd", "model.h5"),
        ("int4-one-head", "model.weights.h5"),
        ("int4-lora", "checkpoint/ck"),
    ],
)
def test_int4_of_keras_3_12_is_packed_along_the_first_axis(tmp_path, model, format):
    check_kernels(only_layer(OLD / model / format), expected_of(OLD, model), model, format)
    assert convert_by_name(OLD / model / format, tmp_path / "x.pt").proven


def architecture(path: Path, source: Path) -> Path:
    """`model.to_json()` of the same model."""
    import zipfile

    with zipfile.ZipFile(source) as archive:
        path.write_bytes(archive.read("config.json"))
    return path


@pytest.mark.parametrize("format", ["model.weights.h5", "checkpoint/ck"])
def test_odd_widths_of_pairs_are_told_by_the_architecture_only(tmp_path, format):
    source = OLD / "int4-odd" / format
    with pytest.raises(mha_convert.LayerError) as error:
        mha_convert.convert_file(source, tmp_path / "x.pt")
    assert str(error.value) == (
        "Layer 'attn' (MultiHeadAttention) is not converted: its query kernel (4, 3, 5) holds int4 numbers in pairs, the "
        "last of which may be padding: its input is 7 or 8 wide, and nothing shows which. Pass the model's architecture "
        "with --config, or save the model before model.quantize()."
    )
    config = architecture(tmp_path / "model.json", OLD / "int4-odd/model.keras")
    check_kernels(only_layer(source, config), expected_of(OLD, "int4-odd"), "int4-odd", format)


def test_heads_of_a_matrix_without_bias_are_told_by_the_architecture_only(quantized, tmp_path):
    model, format = "int4-without-bias", "model.weights.h5"
    with pytest.raises(mha_convert.LayerError) as error:
        mha_convert.convert_file(quantized / model / format, tmp_path / "x.pt")
    assert str(error.value) == (
        "Layer 'attn' (MultiHeadAttention) is not converted: its query kernel is stored as a matrix (kernel int8 (7, 8), "
        "kernel_scale float32 (1, 15), kernel_zero int8 (1, 15), g_idx float32 (7,)), and no bias and no configuration "
        "shows its heads. Pass the model's architecture with --config, or save the model before model.quantize()."
    )
    config = architecture(tmp_path / "model.json", quantized / model / "model.keras")
    check_kernels(only_layer(quantized / model / format, config), expected_of(quantized, model), model, format)


def convert_by_name(source, target):
    """A conversion of every layer; those whose alpha the file does not hold must be named."""
    layers = mha_convert.find_layers(mha_convert.read(source))
    assumed = [layer.name for layer in layers if layer.doubt]
    if assumed:
        with pytest.raises(
            mha_convert.LayerError, match="the file does not hold alpha.*If you know that they are right"
        ):
            mha_convert.convert_file(source, target)
    return mha_convert.convert_file(source, target, layers=[layer.name for layer in layers] if assumed else None)


def test_cautions_word_for_word(quantized):
    divided = (
        "its kernels are stored as int8 and made of it as Keras does, kernel / scale in float32; these weights are what "
        "is proven. Keras' own output differs (measured: by 0.014 to 0.04), because it rounds the projections' inputs "
        "to int8, too"
    )
    lora = (
        "its kernels are merged with LoRA adapters of rank 3, kernel + alpha / 3 × A · B; the file does not hold alpha, "
        "and Keras' default is used, alpha = 3. Where lora_alpha was another, save the model as .keras, which merges "
        "with it"
    )
    said = {
        "int8/model.keras": (divided,),
        "lora/model.h5": (lora,),
        "lora/model.keras": (),
        "int8-lora/model.h5": (divided, lora),
        "int4/model.keras": (
            "its kernels are stored as int4 in groups and made of it as Keras does, (kernel - zero) × scale in float32; "
            "these weights are what is proven. Keras computes with the same (outputs measured in float32: 3e-7 apart)",
        ),
        "int4-channels/model.keras": (
            "its kernels are stored as int4 and made of it as Keras does, kernel / scale in float32; these weights are "
            "what is proven. Keras computes with the same, unless an activation quantizer was configured",
        ),
        "float8/model.keras": (
            "its kernels are trained for float8: they are stored in float32 and converted as they are. Keras' own "
            "output differs (measured: by up to 0.33), because it rounds kernels and inputs to float8",
        ),
    }
    assert {path: only_layer(quantized / path).cautions for path in said} == said


def test_inspect_shows_what_is_stored_and_what_it_becomes(golden, tmp_path):
    source = golden / "keras-3.15.1/q_int8.keras"
    checkpoint = mha_convert.read(source)
    findings = survey(checkpoint)
    table = next(
        part for part in inspection_as_text(mha_convert.Inspection(checkpoint, findings)) if isinstance(part, Table)
    )
    assert dict(zip(table.headings, table.rows[0], strict=True))["dtype"] == "int8 → float32"
    document = inspection_as_json(mha_convert.Inspection(checkpoint, findings))
    assert (document["layers"][0]["storage"], document["layers"][0]["dtype"]) == ("int8", "float32")
    assert document["layers"][0]["parameters"] == 288
    # Four int8 kernels of 64 numbers, biases and scales of 8 each; the Dense layer has 3 arrays.
    assert document["variables"]["attention"] == {"count": 12, "parameters": 4 * (64 + 8 + 8)}
    assert document["variables"]["other"]["count"] == 3


def changed(source: Path, target: Path, place: str, change) -> Path:
    """A copy of a .weights.h5 with one array changed."""
    shutil.copyfile(source, target)
    with h5py.File(target, "a") as file:
        array = file[f"layers/multi_head_attention/{place}"]
        array[...] = change(array[...])
    return target


@pytest.mark.parametrize(
    ("model", "place", "change", "fact"),
    [
        ("int8", "query_dense/vars/2", lambda scale: np.nextafter(scale, np.inf, dtype="f4"), "differs from Keras in"),
        ("int8", "output_dense/vars/0", lambda kernel: -kernel, "differs from Keras in"),
        ("int4", "value_dense/vars/2", lambda scale: scale * 2, "differs from Keras in"),
        ("int4", "value_dense/vars/3", lambda zero: zero + 1, "differs from Keras in"),
        ("int4", "key_dense/vars/0", lambda kernel: kernel ^ 1, "differs from Keras in 32 of 64 numbers"),
    ],
)
def test_a_damaged_scale_zero_or_kernel_is_caught_by_verify(quantized, tmp_path, model, place, change, fact):
    source = quantized / model / "model.weights.h5"
    mha_convert.convert_file(source, tmp_path / "x.safetensors", layout="linear")
    assert mha_convert.verify_file(source, tmp_path / "x.safetensors").proven
    damaged = changed(source, tmp_path / "damaged.weights.h5", place, change)
    with pytest.raises(mha_convert.VerificationError, match=fact):
        mha_convert.verify_file(damaged, tmp_path / "x.safetensors")


def test_a_damaged_adapter_is_caught_by_verify(quantized, tmp_path):
    convert_by_name(quantized / "lora/model.h5", tmp_path / "x.safetensors")
    shutil.copyfile(quantized / "lora/model.h5", tmp_path / "damaged.h5")
    with h5py.File(tmp_path / "damaged.h5", "a") as file:
        found = []
        file.visit(lambda name: found.append(name) if re.search(r"query/lora_kernel_b", name) else None)
        file[found[0]][0, 0] += 0.5
    with pytest.raises(mha_convert.VerificationError, match="differs from Keras in"):
        mha_convert.verify_file(tmp_path / "damaged.h5", tmp_path / "x.safetensors")


def test_a_scale_of_zero_is_no_number(quantized, tmp_path):
    damaged = changed(quantized / "int8/model.weights.h5", tmp_path / "x.weights.h5", "key_dense/vars/2", np.zeros_like)
    with pytest.raises(mha_convert.VerificationError, match=r"its key kernel holds \d+ NaN or infinite numbers"):
        mha_convert.convert_file(damaged, tmp_path / "x.pt")


@pytest.mark.parametrize("value", [1.0, -1.0, np.nan, np.inf])
def test_groups_that_are_not_there_are_one_line(quantized, tmp_path, value):
    place = "key_dense/vars/4"
    damaged = changed(
        quantized / "int4/model.weights.h5", tmp_path / "x.weights.h5", place, lambda a: np.full_like(a, value)
    )
    with pytest.raises(mha_convert.LayerError) as error:
        mha_convert.convert_file(damaged, tmp_path / "x.pt")
    assert str(error.value) == (
        f"layers/multi_head_attention/key_dense/vars/0 has a row of group {value:g}, expected 0 to 0. The file is "
        "damaged; save the model again."
    )
    assert not (tmp_path / "x.pt").exists()


def rounded_inputs(inputs: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """What `AbsMaxQuantizer` makes of a projection's inputs, back in float."""
    scale = np.float32(127) / (np.abs(inputs).max(axes, keepdims=True) + np.float32(1e-7))
    return np.clip(np.round(inputs * scale), -127, 127) / scale


def float8(array: np.ndarray) -> np.ndarray:
    """Rounded to float8 with a scale of 1, as an untrained layer does."""
    return np.clip(array, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


CORPUS_ROOT = SHARED / "corpus" / "files"
ROUNDED = [
    file
    for file in (rows(CORPUS_ROOT) if CORPUS_ROOT.is_dir() else [])
    if file.model in ("q_int8", "q_int4", "q_float8") and not file.tag.startswith("keras-3.7")
]


@pytest.mark.parametrize("file", ROUNDED, ids=lambda file: file.id)
def test_rounded_inputs_explain_all_of_the_difference_to_genuine_keras(file: CorpusFile):
    """With Keras' rounding of the inputs our kernels give Keras' outputs, to the last bits of float32."""
    layer = only_layer(file.path)
    golden = arrays(file, 0)
    weights_only = layer.storage == "int4" and file.tolerance("float32") < 1e-5
    kernels = {role: projection.kernel.read() for role, projection in layer.projections.items()}
    biases = {role: projection.bias.read() for role, projection in layer.projections.items()}

    def rounded(inputs, axes=(-1,)):
        if weights_only:
            return inputs
        return float8(inputs) if layer.storage == "float8" else rounded_inputs(inputs, axes)

    if layer.storage == "float8":
        kernels = {role: float8(kernel) for role, kernel in kernels.items()}
        biases = {role: bias.astype(ml_dtypes.bfloat16).astype("f4") for role, bias in biases.items()}
    query, key, value = (
        np.einsum("btf,fhd->bthd", rounded(golden[role]), kernels[role]) + biases[role]
        for role in ("query", "key", "value")
    )
    scores = np.einsum("bthd,bshd->bhts", query / np.sqrt(np.float32(layer.key_dim)), key)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    context = rounded(np.einsum("bhts,bshv->bthv", scores, value), (-2, -1))
    output = np.einsum("bthv,hvd->btd", context, kernels["output"]) + biases["output"]
    np.testing.assert_allclose(scores, golden["plain_scores"], rtol=0, atol=5e-6)
    np.testing.assert_allclose(output, golden["plain_out_s"], rtol=0, atol=5e-6)


def test_the_corpus_has_quantized_files(corpus):
    assert len(ROUNDED) > 25


def attention(role_variables, config=None, **others) -> Group:
    """A layer of 2 heads in memory, as numbered variables or by name; `others` take the place of a role's."""
    children = {
        name: Group(
            path=name,
            name=f"attn/{name}",
            variables={
                key: make_variable(f"{name}/{key}", array) for key, array in others.get(name, variables).items()
            },
        )
        for name, variables in role_variables.items()
    }
    return Group(path="attn", name="attn", children=children, config=config)


def float_parts(heads=2, size=3, features=4) -> dict[str, dict[str, np.ndarray]]:
    """Plain kernels without biases."""
    inner, output = np.ones((features, heads, size), "f4"), np.ones((heads, size, features), "f4")
    return {
        "query": {"kernel": inner},
        "key": {"kernel": inner},
        "value": {"kernel": inner},
        "attention_output": {"kernel": output},
    }


def int8(shape, scale, peak=127):
    """A kernel with one largest number for each output."""
    kernel = np.random.default_rng(0).integers(-abs(peak), abs(peak), shape, "i1")
    kernel[(0,) * (len(shape) - len(scale))] = peak
    return {"kernel": kernel, "kernel_scale": np.ones((1, 1, *scale), "f4")}


GPTQ = {
    "kernel": np.zeros((3, 4), "u1"),
    "kernel_scale": np.ones((6, 1), "f4"),
    "zero_point": np.zeros((6, 1), "u1"),
    "g_idx": np.zeros(4, "f4"),
}


@pytest.mark.parametrize(
    ("variables", "reason", "step"),
    [
        (
            GPTQ,
            "its query is quantized with GPTQ or AWQ (kernel uint8 (3, 4), kernel_scale float32 (6, 1), zero_point uint8 "
            "(6, 1), g_idx float32 (4,)), which is not converted yet",
            "Save the model before model.quantize()",
        ),
        (
            {"kernel": np.zeros((4, 2, 3), "i1")},
            "its query is quantized in an unknown form (kernel int8 (4, 2, 3))",
            "Save the model before model.quantize()",
        ),
        (
            {"kernel": np.zeros((4, 2, 3), "f4"), "lora_kernel_a": np.zeros((4, 2, 1), "f4")},
            "its query is stored as kernel float32 (4, 2, 3), lora_kernel_a float32 (4, 2, 1), not as kernel and bias",
            "Save the model with float weights",
        ),
        (
            {
                "kernel": np.zeros((4, 2, 3), "f4"),
                "lora_kernel_a": np.zeros((4, 2, 1), "f4"),
                "lora_kernel_b": np.zeros((1, 4), "f4"),
            },
            "its query is stored in arrays that do not fit each other: kernel float32 (4, 2, 3), lora_kernel_a float32 "
            "(4, 2, 1), lora_kernel_b float32 (1, 4)",
            "Save the model again",
        ),
        (
            int8((4, 2, 3), (2, 5)),
            "its query is stored in arrays that do not fit each other: kernel int8 (4, 2, 3), kernel_scale float32 "
            "(1, 1, 2, 5)",
            "Save the model again",
        ),
        (
            {
                "kernel": np.zeros((4, 3), "i1"),
                "bias": np.zeros((2, 3), "f4"),
                "kernel_scale": np.ones((1, 6), "f4"),
                "kernel_zero": np.zeros((1, 6), "i1"),
                "g_idx": np.zeros((1, 4), "f4"),
            },
            "its query is stored in arrays that do not fit each other: kernel int8 (4, 3), bias float32 (2, 3), "
            "kernel_scale float32 (1, 6), kernel_zero int8 (1, 6), g_idx float32 (1, 4)",
            "Save the model again",
        ),
        (
            int8((4, 2, 3), (2, 3), peak=100),
            "its query kernel (4, 2, 3) may hold int8 numbers or pairs of int4, and nothing shows which",
            "Pass the model's architecture with --config, or save the model before model.quantize()",
        ),
    ],
)
def test_what_is_not_known_is_refused(variables, reason, step):
    found = multi_head_attention.match(attention(float_parts(), query=variables), ())
    assert isinstance(found, mha_convert.NotConverted)
    assert (found.reason, found.next_step, found.blocking) == (reason, step, True)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (np.ones((4, 6), "f4"), "kernels of rank 3 without empty axes expected"),
        (np.ones((0, 2, 3), "f4"), "kernels of rank 3 without empty axes expected"),
        (np.float32(1), "its query is stored in arrays that do not fit each other: kernel float32 ()"),
    ],
    ids=["a matrix", "empty", "no axes"],
)
def test_a_kernel_of_another_rank_is_no_error(kernel, reason):
    found = multi_head_attention.match(attention(float_parts(), query={"kernel": kernel}), ())
    assert reason in found.reason


def test_only_some_kernels_quantized():
    """`quantize` has filters: the largest numbers tell what the other projections do not."""
    layer = multi_head_attention.match(attention(float_parts(), query=int8((4, 2, 3), (2, 3))), ())
    assert layer.storage == "int8, float32"
    assert layer.cautions[0].startswith("its query kernel is stored as int8 and made of it as Keras does")
    assert layer.query.kernel.shape == (4, 2, 3) and layer.query.kernel.read()[0, 0, 0] == 127
    numbers = np.random.default_rng(0).integers(-7, 7, (4, 2, 3), "i1")
    numbers[0] = 7
    pairs = int8((2, 2, 3), (2, 3)) | {"kernel": (numbers[::2] & 15) | (numbers[1::2] << 4)}
    layer = multi_head_attention.match(attention(float_parts(), query=pairs, key=pairs), ())
    assert (layer.query.kernel.read() == numbers).all()
    assert layer.cautions[0].startswith("its query and key kernels are stored as int4 and made of it")


def test_int8_and_int4_in_one_layer_are_refused():
    parts = float_parts(heads=2) | {"attention_output": int8((1, 3, 4), (4,), peak=0x77)}
    config = LayerConfig(name="attn", class_name="MultiHeadAttention", settings={"query_shape": [None, 5, 4]})
    found = multi_head_attention.match(attention(parts, config, query=int8((4, 2, 3), (2, 3))), ())
    assert found.reason == "some of its kernels have shapes of int8 and some of int4"


def test_keras_3_1_numbers_the_bias_first_and_without_one_the_kernel():
    inner, output = int8((4, 2, 3), (2, 3)), int8((2, 3, 4), (4,))
    names = ("query_dense", "key_dense", "value_dense", "output_dense")
    for with_bias in (True, False):
        parts = {}
        for name in names:
            stored = output if name == "output_dense" else inner
            bias = [np.ones((4,) if name == "output_dense" else (2, 3), "f4")] if with_bias else []
            in_order = [*bias, stored["kernel"], stored["kernel_scale"]]
            parts[name] = {str(number): array for number, array in enumerate(in_order)}
        layer = multi_head_attention.match(attention(parts), ())
        assert (layer.storage, layer.use_bias, layer.dtype) == ("int8", with_bias, "float32")
        assert layer.query.kernel.shape == (4, 2, 3)


def test_unpacking_is_that_of_keras():
    """From the example in `keras.quantizers.unpack_int4`, and every byte there is."""
    numbers = np.array([[-3, 7, 2], [-8, 1, 0]], "i1")
    packed = (numbers[0] & 15) | (numbers[1] << 4)
    assert (unpacked(packed[None].astype("i1"), 0) == numbers).all()
    every = np.arange(-128, 128, dtype="i1")[:, None]
    low, high = unpacked(every, 1).T
    assert set(low) == set(high) == set(range(-8, 8))
    assert ((low & 15) | (high << 4) == every[:, 0]).all()


def test_alpha_over_rank_is_multiplied_in_float32():
    kernel = np.zeros((1, 1), "f4")
    down, up = np.full((1, 3), 0.1, "f4"), np.full((3, 1), 0.1, "f4")
    product = np.float32(0.1) * np.float32(0.1)
    assert merged(kernel, down, up, 7 / 3)[0, 0] == np.float32(7 / 3) * (product + product + product)


LIVE = """
import os, sys
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy as np, torch, mha_convert
x = np.random.default_rng(0).standard_normal((2, 5, 8)).astype("float32")
for mode, alpha, allowed in (("int4", None, 1e-5), (None, 7, 1e-5), ("int8", None, 0.1), ("int8", 7, 0.1)):
    layer = keras.layers.MultiHeadAttention(2, 4, name="attn")
    layer(x, x)
    for weight in layer.weights:
        weight.assign(0.4 * np.random.default_rng(1).standard_normal(weight.shape))
    for part in (layer._query_dense, layer._key_dense, layer._value_dense, layer._output_dense):
        if alpha:
            part.enable_lora(3, lora_alpha=alpha)
            part.lora_kernel_b.assign(0.3 * np.random.default_rng(2).standard_normal(part.lora_kernel_b.shape))
        if mode:
            part.quantize(mode)
    module = mha_convert.from_keras_layer(layer)
    ours = module(*[torch.from_numpy(x)] * 3)[0]
    theirs = layer(x, x)
    difference = float((ours - theirs).abs().max())
    assert difference < allowed, (mode, alpha, difference)
"""


@pytest.mark.process
def test_live_layers_are_quantized_too_and_know_their_alpha(keras_installed):
    subprocess.run([sys.executable, "-c", LIVE], check=True, cwd=PROJECT, timeout=300)


@pytest.mark.parametrize(
    ("policy", "computes"),
    [
        ("int8_from_mixed_bfloat16", "bfloat16"),
        ("int4/128_from_float32", "float32"),
        ({"class_name": "QuantizedDTypePolicy", "config": {"mode": "int8", "source_name": "mixed_float16"}}, "float16"),
        ({"class_name": "DTypePolicy", "config": {"name": "mixed_float16"}}, "float16"),
    ],
)
def test_policies_of_quantization_name_the_one_that_they_were_made_from(policy, computes):
    assert multi_head_attention.compute_dtype(policy) == computes
