"""Targets are read by the official libraries, reproducible, and either complete or absent."""

import itertools
import json
import os
import stat

import numpy as np
import pytest
import torch
from layer_cases import CASES, ids, make_layer
from safetensors import safe_open
from safetensors.torch import load_file

import mha_convert
from mha_convert.conversion import numpy_dtype
from mha_convert.errors import WriteError
from mha_convert.targets import draft


def target_of(layer, path, **options):
    plan = mha_convert.plan([layer], **options)
    mha_convert.write(path, mha_convert.convert(plan), "a description")
    return plan


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("case", CASES[:3] + CASES[-3:], ids=ids)
def test_what_is_written_is_read_by_the_official_libraries(case, suffix, dtype, tmp_path):
    path = tmp_path / f"x{suffix}"
    plan = target_of(make_layer(case, dtype=numpy_dtype(dtype)), path)
    state = load_file(path) if suffix == ".safetensors" else torch.load(path, weights_only=True)
    stored = mha_convert.open_target(path)
    assert stored.description == "a description"
    for tensor in mha_convert.convert(plan):
        array, read = tensor.read(), state[tensor.key]
        assert read.view(torch.uint8).numpy().tobytes() == array.tobytes()
        assert str(read.dtype) == f"torch.{dtype}"
        assert stored.shapes[tensor.key] == array.shape and stored.dtypes[tensor.key] == dtype
        assert torch.equal(stored.read(tensor.key), read)
    assert state.keys() == {tensor.key for tensor in mha_convert.convert(plan)}


def test_a_pt_file_is_a_plain_state_dict(tmp_path):
    target_of(make_layer(CASES[0]), tmp_path / "x.pt", prefix="")
    state = torch.load(tmp_path / "x.pt", weights_only=True)
    stock = torch.nn.MultiheadAttention(8, 4, batch_first=True)
    assert list(state) == list(stock.state_dict())
    assert not stock.load_state_dict(state, strict=True).missing_keys


def test_the_safetensors_header_is_as_the_format_asks(tmp_path):
    mixed = [make_layer(CASES[0], dtype=dtype, name=dtype) for dtype in ("float16", "float64", "float32")]
    mha_convert.write(tmp_path / "x.safetensors", mha_convert.convert(mha_convert.plan(mixed)), "text with \x1b and ü")
    data = (tmp_path / "x.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    metadata = header.pop("__metadata__")
    assert metadata == {"format": "pt", "mha_convert": "text with \x1b and ü"}
    places = sorted(entry["data_offsets"] for entry in header.values())
    assert places[0][0] == 0 and places[-1][1] == len(data) - 8 - length
    assert all(a[1] == b[0] for a, b in itertools.pairwise(places))
    sizes = {"F64": 8, "F32": 4, "F16": 2}
    assert all(entry["data_offsets"][0] % sizes[entry["dtype"]] == 0 for entry in header.values())
    with safe_open(tmp_path / "x.safetensors", "np") as file:
        assert file.metadata() == metadata


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_targets_are_reproducible_byte_for_byte(samples, tmp_path, suffix):
    paths = [tmp_path / f"{name}{suffix}" for name in ("a", "other-name")]
    for path in paths:
        mha_convert.convert_file(samples / "translator.h5", path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
@pytest.mark.parametrize("existing", [None, "old"])
def test_a_failure_leaves_nothing_behind_and_the_old_file_alone(tmp_path, error, existing):
    target = tmp_path / "x.pt"
    if existing:
        target.write_text(existing)
    with pytest.raises(WriteError if error is OSError else error), draft(target, overwrite=True) as path:
        path.write_text("half")
        raise error("stop")
    assert [item.read_text() for item in tmp_path.iterdir()] == ([existing] if existing else [])


def test_a_target_that_appears_meanwhile_is_not_replaced(tmp_path):
    target = tmp_path / "x.pt"
    with (
        pytest.raises(WriteError, match="was made by another process meanwhile"),
        draft(target, overwrite=False) as path,
    ):
        path.write_text("mine")
        target.write_text("theirs")
    assert [item.read_text() for item in tmp_path.iterdir()] == ["theirs"]


def test_the_file_has_the_users_ordinary_rights_and_a_link_stays_one(samples, tmp_path):
    real = tmp_path / "real.pt"
    link = tmp_path / "link.pt"
    link.symlink_to(real)
    old = os.umask(0o027)
    try:
        mha_convert.convert_file(samples / "six_heads.keras", link)
    finally:
        os.umask(old)
    assert link.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o640


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("content", [b"", b"not a target at all, only text", b"\x80\x04\x95"])
def test_damaged_targets_are_refused(tmp_path, suffix, content):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)
    with pytest.raises(mha_convert.ReadError, match="Convert again"):
        mha_convert.open_target(path)


def test_the_form_of_a_target_is_told_by_its_content(tmp_path):
    """A safetensors header of 128, 384, … bytes begins as a pickle does."""
    lengths = set()
    for number in range(300):
        path = tmp_path / "x.pt"
        mha_convert.write(tmp_path / "x.safetensors", [], "x" * number, overwrite=True)
        (tmp_path / "x.safetensors").replace(path)
        lengths.add(path.read_bytes()[0])
        assert mha_convert.open_target(path).description == ("x" * number or None)
    assert 0x80 in lengths


def test_a_pickle_with_code_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "ran"),))

    torch.save({"a": Evil()}, tmp_path / "x.pt")
    with pytest.raises(mha_convert.ReadError, match=r"holds 'a', which is an object of posix.mkdir, expected a plain"):
        mha_convert.load_modules(tmp_path / "x.pt")
    assert not (tmp_path / "ran").exists()


def test_a_description_that_names_another_class_is_refused(samples, tmp_path):
    plan = mha_convert.plan(mha_convert.find_layers(mha_convert.read(samples / "six_heads.keras")))
    evil = json.dumps(
        {
            "form": 2,
            "source": "x",
            "layout": "mha",
            "dtype": None,
            "layers": [{"name": "a", "prefix": "", "class": "Linear", "arguments": {}}],
        }
    )
    mha_convert.write(tmp_path / "x.safetensors", mha_convert.convert(plan), evil)
    with pytest.raises(mha_convert.ReadError, match="layer 'a' does not load: there is no class 'Linear'"):
        mha_convert.load_modules(tmp_path / "x.safetensors")


def test_modules_of_a_target_compute_what_the_stages_do(samples, tmp_path):
    mha_convert.convert_file(samples / "six_heads.keras", tmp_path / "a.pt")
    mha_convert.convert_file(samples / "six_heads.keras", tmp_path / "b.safetensors", layout="linear")
    x = torch.randn(2, 9, 4)
    first, second = (
        mha_convert.load_modules(tmp_path / name)["attention"](x, x, x)[0] for name in ("a.pt", "b.safetensors")
    )
    np.testing.assert_allclose(first.detach(), second.detach(), atol=1e-5)
