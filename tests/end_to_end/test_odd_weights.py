"""Odd numbers are carried over bit for bit, or refused with the layer and the array named; never proven by accident."""

import shutil

import h5py
import ml_dtypes
import numpy as np
import pytest
import torch
from damages import in_memory
from layer_cases import CASES, make_layer

import mha_convert
from mha_convert.targets.torch_file import as_tensor
from mha_convert.verification import verify

SQUARE = "keras-3.15.1/square.weights.h5"
LAYOUTS = {
    "mha": {"layout": "mha"},
    "linear": {"layout": "linear"},
    "qkv": {"layout": "qkv"},
    "separate": {"layout": "bert"},
}
STORED = ("<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "bfloat16")
SUFFIXES = (".safetensors", ".pt")


def odd_numbers(shape, dtype):
    """Ordinary numbers, and in between -0.0, 0, subnormals and the smallest normal number."""
    dtype = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    limits = ml_dtypes.finfo(dtype.newbyteorder("="))
    numbers = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    flat = numbers.reshape(-1)
    flat[:6] = np.array([-0.0, 0.0, 1, -1, 3, 1]) * np.array(
        [1, 1] + [float(limits.smallest_subnormal)] * 3 + [float(limits.tiny)]
    )
    return numbers


def rewritten(source, path, change):
    """A copy of a file with every array changed."""
    shutil.copyfile(source, path)
    with h5py.File(path, "a") as file:
        names = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        for name in names:
            array = change(name, file[name][()])
            del file[name]
            file[name] = array.view("V2") if array.dtype == ml_dtypes.bfloat16 else array
    return path


def bits_of(array):
    """Every number's bits in this machine's order, sorted: a layout moves numbers, and loses and makes none."""
    native = array if array.dtype == ml_dtypes.bfloat16 else array.astype(array.dtype.newbyteorder("="))
    return native.reshape(-1).view(f"u{native.itemsize}")


def written_bits(path):
    """The same of all tensors of a target."""
    stored = mha_convert.open_target(path)
    parts = [stored.read(key).contiguous().view(-1).numpy(force=True) if stored.dtypes[key] != "bfloat16"
             else stored.read(key).contiguous().view(-1).view(torch.int16).numpy() for key in stored.shapes]  # fmt: skip
    return np.sort(np.concatenate([part.view(f"u{part.itemsize}") for part in parts]))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", STORED)
def test_subnormals_and_signed_zeros_keep_their_bits(golden, tmp_path, dtype, layout, suffix):
    arrays = []
    source = rewritten(
        golden / SQUARE,
        tmp_path / "odd.weights.h5",
        lambda _, a: arrays.append(odd_numbers(a.shape, dtype)) or arrays[-1],
    )
    target = tmp_path / f"x{suffix}"
    assert mha_convert.convert_file(source, target, **LAYOUTS[layout]).proven
    expected = np.sort(np.concatenate([bits_of(array) for array in arrays]))
    np.testing.assert_array_equal(written_bits(target), expected)
    assert mha_convert.verify_file(source, target).proven


NOT_NUMBERS = {"<f4": (0x7F800001, 0xFFC12345, 0x7F800000), ">f4": (0x7F800001, 0xFFC12345, 0xFF800000), "<f2": (0x7C01, 0xFE12, 0x7C00), "bfloat16": (0x7F81, 0xFFC1, 0x7F80)}  # fmt: skip


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", NOT_NUMBERS)
def test_nan_is_refused_with_a_proof_and_keeps_its_payload_without(golden, tmp_path, dtype, layout, suffix):
    """Signalling ones, too."""
    arrays = []

    def change(name, array):
        kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
        numbers = array.astype(kind)
        if name.endswith("key_dense/vars/1"):
            order = ">" if dtype.startswith(">") else "<"
            numbers.reshape(-1).view(f"{order}u{kind.itemsize}")[:3] = NOT_NUMBERS[dtype]
        arrays.append(numbers)
        return numbers

    source, target = rewritten(golden / SQUARE, tmp_path / "odd.weights.h5", change), tmp_path / f"x{suffix}"
    message = "its key bias holds 3 NaN or infinite numbers of 32, so equality means nothing. Use --reference none to convert it unproven.$"
    with pytest.raises(mha_convert.VerificationError, match=message):
        mha_convert.convert_file(source, target, **LAYOUTS[layout])
    assert not target.exists()
    assert not mha_convert.convert_file(source, target, reference="none", **LAYOUTS[layout]).proven
    np.testing.assert_array_equal(written_bits(target), np.sort(np.concatenate([bits_of(array) for array in arrays])))
    with pytest.raises(mha_convert.VerificationError, match=message):
        mha_convert.verify_file(source, target)


def proof_of(*layers, change=None, **options):
    """The proof of layers in memory, one tensor changed on the way."""
    plan = mha_convert.plan(layers, **options)
    tensors = {tensor.key: as_tensor(tensor.read()).clone() for tensor in mha_convert.convert(plan)}
    return verify(plan, in_memory(tensors | (change(tensors) if change else {})))


def test_a_layer_with_nan_can_be_left_out():
    bad, good = make_layer(CASES[0], name="bad"), make_layer(CASES[0], name="good")
    bad.query.bias.read()[0, 0] = np.nan
    with pytest.raises(
        mha_convert.VerificationError,
        match="^Layer 'bad': its query bias .* unproven, or the names of the other layers with --layer.$",
    ):
        proof_of(good, bad)
    assert proof_of(good).comparisons


def huge(*roles, factor=1e30, dtype="float32"):
    layer = make_layer(CASES[0], dtype)
    for role in roles:
        getattr(layer, role).kernel.read()[...] *= np.asarray(factor, dtype)
    return layer


@pytest.mark.parametrize(
    "roles", [("query", "key"), ("value",), ("value", "output"), ("query", "key", "value", "output")]
)
def test_huge_numbers_are_proven_tightly(roles):
    assert max(comparison.bound for comparison in proof_of(huge(*roles)).comparisons) < 1e-6


@pytest.mark.parametrize(
    "roles, dtype, factor",
    [(("query",), "float32", 1e30), (("value", "output"), "float64", 1e300), (("query", "key"), "float64", 1e300)],
)
def test_numbers_too_large_for_a_proof_are_refused(roles, dtype, factor):
    with pytest.raises(
        mha_convert.VerificationError,
        match=r"^Layer 'layer': its \w+ kernel holds numbers as large as .*, so that float64 cannot tell",
    ):
        proof_of(huge(*roles, dtype=dtype, factor=factor))


def test_damage_is_found_beside_huge_numbers():
    def change(tensors):
        damaged = tensors["layer.out_proj.bias"].clone()
        damaged[0] += 1e-3
        return {"layer.out_proj.bias": damaged}

    with pytest.raises(
        mha_convert.VerificationError, match="tensor 'layer.out_proj.bias' differs from Keras in 1 of 8"
    ):
        proof_of(huge("query", "key", "value", "output"), change=change)


def test_exchanged_tensors_of_a_layer_of_zeros_are_found():
    layer = huge("query", "key", "value", factor=0)
    assert proof_of(layer, layout="linear").comparisons
    names = ("layer.v_proj.weight", "layer.out_proj.weight")

    def swap(tensors):
        return dict(zip(names, (tensors[name] for name in reversed(names)), strict=True))

    with pytest.raises(mha_convert.VerificationError, match="tensor 'layer.v_proj.weight' differs from Keras"):
        proof_of(layer, layout="linear", change=swap)


def test_numbers_that_become_zero_are_counted():
    proof = proof_of(huge("value", factor=1e-12), dtype="float16", layout="linear")
    assert {tensor.key: tensor.vanished for tensor in proof.stored if tensor.vanished} == {"layer.v_proj.weight": 64}
    assert not any(tensor.vanished for tensor in proof_of(huge("value", factor=1e-12)).stored)


@pytest.mark.parametrize(
    "dtype, value, advice", [("float16", 1e5, "float32 or bfloat16 or float64"), ("float32", 1e300, "float64")]
)
def test_overflow_names_the_array_and_a_dtype_that_holds_it(dtype, value, advice):
    layer = make_layer(CASES[0], "float64")
    layer.key.kernel.read()[0, 0, 0] = value
    with pytest.raises(
        mha_convert.LayoutError,
        match=f"^Layer 'layer': its key kernel holds .*, which is too large for {dtype}. Choose --dtype {advice}.$",
    ):
        proof_of(layer, dtype=dtype)
