"""Numbers flow in blocks: memory is bounded whatever a tensor's size, and an error midway leaves nothing behind."""

import errno
import tracemalloc
import zipfile

import numpy as np
import pytest
from hdf5_weights import hdf5_model
from layer_cases import CASES, case, ids, make_layer

import mha_convert
from mha_convert import conversion
from mha_convert.errors import LayoutError, ReadError, WriteError
from mha_convert.readers import keras_zip
from mha_convert.readers.hdf5 import deflated as _deflated
from mha_convert.targets import safetensors_file

WIDE = case("wide enough for several blocks", 8, 64, 48, features=512)
VARIANTS = [
    ("mha", None),
    ("padded", None),
    ("linear", None),
    ("linear", "bfloat16"),
    ("qkv", "float16"),
    ("bart", "float64"),
]


def tensors_of(layers, layout="mha", dtype=None):
    return mha_convert.convert(mha_convert.plan(layers, layout=layout, dtype=dtype))


def peak_of(action) -> int:
    """Most bytes that Python and NumPy held at once, beside what they held before."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("layout", "dtype"), VARIANTS)
@pytest.mark.parametrize("geometry", [*CASES[:6], WIDE], ids=ids)
def test_blocks_are_the_tensor_whatever_their_size(geometry, layout, dtype, monkeypatch):
    """Blocks of one row are the same bytes as one block, and as the shape and dtype that were told before."""
    layer = make_layer(geometry)
    if layout == "qkv" and geometry.key_dim != geometry.value_dim:
        layout = "linear"
    found = {}
    for rows, size in ((1, 1), (64, 256 << 10), (10**6, 1 << 40)):
        monkeypatch.setattr(conversion, "ROWS", rows)
        monkeypatch.setattr(conversion, "BLOCK", size)
        for tensor in tensors_of([layer], layout, dtype):
            blocks = list(tensor.blocks())
            assert all(block.flags.c_contiguous and block.dtype.name == tensor.dtype for block in blocks)
            whole = tensor.read()
            assert whole.shape == tensor.shape and whole.flags.c_contiguous
            content = b"".join(block.tobytes() for block in blocks)
            assert content == whole.tobytes() == found.setdefault(tensor.key, content)
            assert rows > 1 or len(blocks) == tensor.shape[0]


@pytest.mark.parametrize(
    ("layout", "dtype"), [("mha", None), ("linear", "float16"), ("qkv", "bfloat16"), ("mha", "float64")]
)
def test_writing_needs_no_copy_of_a_tensor(layout, dtype, tmp_path):
    layer = make_layer(case("large", 16, 64, features=1024, use_bias=False))
    tensors = tensors_of([layer], layout, dtype=dtype)
    smallest = min(tensor.read().nbytes for tensor in tensors if len(tensor.shape) == 2)
    largest = max(tensor.read().nbytes for tensor in tensors)
    blocks = safetensors_file.WORKERS * 64 * 1024 * (4 + 4 + 8 + 8 + 8)  # gathered, in order, and in float64
    assert blocks < 6 << 20 < largest or dtype in ("float16", "bfloat16")
    peak = peak_of(lambda: mha_convert.write(tmp_path / "x.safetensors", tensors))
    assert peak < blocks + (1 << 20)
    assert peak_of(lambda: [tensor.read() for tensor in tensors]) > smallest + largest  # the measure can fail


def test_compressed_datasets_are_read_one_at_a_time(tmp_path):
    plain = hdf5_model(tmp_path / "plain.weights.h5")
    packed = hdf5_model(tmp_path / "packed.weights.h5", chunks=True, compression="gzip", shuffle=True)
    mha_convert.convert_file(plain, tmp_path / "a.safetensors", reference="none", prefix="{name}")
    written = []
    peak = peak_of(
        lambda: written.append(mha_convert.convert_file(packed, tmp_path / "b.safetensors", reference="none"))
    )
    kernel, everything = 256 * 256 * 4, 8 * 4 * 256 * 256 * 4
    assert peak < 2 * safetensors_file.WORKERS * kernel + (3 << 20) < everything
    first, second = (mha_convert.open_target(tmp_path / f"{name}.safetensors") for name in "ab")
    assert all(np.array_equal(first.read(key).numpy(), second.read(key).numpy()) for key in first.shapes)


def packed_again(source, path, compression):
    """The same ``.keras`` with other compression."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_damaged_source_leaves_no_target(golden, tmp_path, suffix):
    """The checksum is computed beside the conversion, and known before the target gets its name."""
    data = bytearray((golden / "keras-3.15.1/square.keras").read_bytes())
    data[data.index(kernel_of(golden / "keras-3.15.1/square.keras")) + 5] ^= 1
    (tmp_path / "x.keras").write_bytes(data)
    for reference in ("none", "numpy"):
        with pytest.raises(ReadError, match="model.weights.h5 has checksum .*, the zip says"):
            mha_convert.convert_file(tmp_path / "x.keras", tmp_path / f"x{suffix}", reference=reference)
    assert [path.name for path in tmp_path.iterdir()] == ["x.keras"]


def test_where_damage_stops_the_conversion_the_damage_is_what_is_said(golden, tmp_path):
    """One number becomes 1e38, too large for float16: true, but not what is wrong."""
    source = tmp_path / "x.keras"
    data = bytearray((golden / "keras-3.15.1/square.keras").read_bytes())
    place = data.index(kernel_of(golden / "keras-3.15.1/square.keras"))
    data[place : place + 4] = np.float32(1e38).tobytes()
    source.write_bytes(data)
    with pytest.raises(ReadError, match="has checksum"):
        mha_convert.convert_file(source, tmp_path / "x.safetensors", dtype="float16", reference="none")
    assert [path.name for path in tmp_path.iterdir()] == ["x.keras"]


def kernel_of(source):
    return mha_convert.find_layers(mha_convert.read(source))[0].query.kernel.read().tobytes()


def test_an_error_in_a_thread_is_the_same_error(tmp_path, monkeypatch):
    """Whichever thread meets it: the first tensor's, in the target's order, and nothing is left behind."""
    layer = make_layer(WIDE)
    layer.query.kernel.read()[-1, -1, -1] = 1e9
    layer.output.kernel.read()[0, 0, 0] = 1e8
    with pytest.raises(
        LayoutError, match=r"^Layer .layer.: its query kernel holds 1e\+09, which is too large for float16"
    ):
        mha_convert.write(tmp_path / "x.safetensors", tensors_of([layer], "linear", dtype="float16"))

    def full(file, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(safetensors_file, "write_all", full)
    with pytest.raises(WriteError, match="x.safetensors cannot be written: .*[Nn]o space left"):
        mha_convert.write(tmp_path / "x.safetensors", tensors_of([layer]))
    assert not list(tmp_path.iterdir())


def test_targets_are_the_same_bytes_with_any_number_of_threads(tmp_path, monkeypatch):
    layers = [make_layer(geometry, name=f"layer{index}", seed=index) for index, geometry in enumerate(CASES[:6])]
    found = set()
    for workers in (1, 2, 5):
        monkeypatch.setattr(safetensors_file, "WORKERS", workers)
        path = tmp_path / f"{workers}.safetensors"
        mha_convert.write(path, tensors_of(layers), "a description")
        found.add(path.read_bytes())
    assert len(found) == 1


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_inflates_without_bound_is_refused(golden, tmp_path, compression):
    packed_again(golden / "keras-3.15.1/square.keras", tmp_path / "x.keras", compression)
    with pytest.raises(ReadError, match=f"method {compression} .*, expected none or deflate"):
        mha_convert.read(tmp_path / "x.keras")


def test_a_deflated_keras_file_gives_the_same_target(golden, tmp_path, monkeypatch):
    """Also where a page of the inflated content is smaller than what is read at once."""
    source = golden / "keras-3.15.1/square.keras"
    packed_again(source, tmp_path / "x.keras", zipfile.ZIP_DEFLATED)
    targets = []
    for page in (_deflated.PAGE, 1000, None):
        monkeypatch.setattr(_deflated, "PAGE", page or 1000)
        monkeypatch.setattr(_deflated, "PIECE", 100)
        target = tmp_path / f"{page}.safetensors"
        mha_convert.convert_file(tmp_path / "x.keras" if page else source, target)
        stored = mha_convert.open_target(target)
        targets.append({key: stored.read(key).numpy().tobytes() for key in stored.shapes})
    assert targets[0] == targets[1] == targets[2]


def test_a_deflated_keras_file_is_never_in_memory_as_a_whole(golden, tmp_path, monkeypatch):
    monkeypatch.setattr(_deflated, "PAGE", 256 << 10)
    monkeypatch.setattr(keras_zip, "CHUNK", 256 << 10)
    weights = hdf5_model(tmp_path / "x.weights.h5", layers=12)
    with zipfile.ZipFile(tmp_path / "x.keras", "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr("config.json", '{"class_name": "Functional", "config": {"layers": []}}')
        new.write(weights, "model.weights.h5")
    source, target = tmp_path / "x.keras", tmp_path / "x.safetensors"
    # What is imported at the first conversion is no part of the second one's memory.
    mha_convert.convert_file(golden / "keras-3.15.1/square.keras", tmp_path / "y.safetensors", reference="none")
    peak = peak_of(lambda: mha_convert.convert_file(source, target, reference="none"))
    assert peak < 7 << 20 < weights.stat().st_size // 1.5


def test_damage_inside_a_deflated_member_is_an_error(golden, tmp_path):
    source = packed_again(golden / "keras-3.15.1/square.keras", tmp_path / "whole.keras", zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(source) as archive:
        place = archive.getinfo("model.weights.h5").header_offset + 2000
    for flip in range(0, 6000, 500):
        data = bytearray(source.read_bytes())
        data[place + flip] ^= 0x55
        (tmp_path / "x.keras").write_bytes(data)
        with pytest.raises(ReadError, match="damaged"):
            mha_convert.convert_file(tmp_path / "x.keras", tmp_path / "x.safetensors", reference="none")
        assert not (tmp_path / "x.safetensors").exists()
