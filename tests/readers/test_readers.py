"""A file is identified by its content; impostors are named; nothing but the file is opened."""

import io
import json
import os
import pickle
import shutil
import tarfile
import warnings
import zipfile

import h5py
import numpy as np
import pytest
import torch

import mha_convert
from mha_convert.errors import ReadError


def refusal(path):
    with pytest.raises(ReadError) as error:
        mha_convert.read(path)
    assert "\n" not in str(error.value) and str(error.value).endswith(".")
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", ["model", "model.h5", "model.weights.h5", "model.keras", "model.txt"])
@pytest.mark.parametrize(
    ("file", "format"),
    [
        ("keras-2.15/square.keras", "keras"), ("keras-2.4/square.h5", "h5"), ("keras-2.4/square.weightsonly.h5", "h5-weights"),
        ("keras-3.15.1/square.weights.h5", "weights.h5"), ("keras-2.10/square.ext.keras", "h5"),
    ],
)  # fmt: skip
def test_the_suffix_says_nothing(golden, tmp_path, name, file, format):
    shutil.copyfile(golden / file, tmp_path / name)
    checkpoint = mha_convert.read(tmp_path / name)
    assert checkpoint.format == format
    assert [layer.num_heads for layer in mha_convert.find_layers(checkpoint)] == [4]


@pytest.mark.parametrize("file", ["keras-2.15/square.keras", "keras-2.4/square.h5", "keras-3.15.1/square.weights.h5"])
def test_arrays_are_views_of_the_file_and_cannot_be_written(golden, file):
    for variable in mha_convert.read(golden / file).variables:
        assert not variable.read().flags.writeable


def test_a_compressed_zip_gives_the_same_arrays(golden, tmp_path):
    source, packed = golden / "keras-3.15.1/square.keras", tmp_path / "x.keras"
    with zipfile.ZipFile(source) as a, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as b:
        for name in a.namelist():
            b.writestr(name, a.read(name))
    for ours, theirs in zip(mha_convert.read(packed).variables, mha_convert.read(source).variables, strict=True):
        np.testing.assert_array_equal(ours.read(), theirs.read())


@pytest.mark.parametrize("options", [{"chunks": True}, {"compression": "gzip"}, {"dtype": ">f4"}])
def test_other_storage_than_keras_own_is_read(golden, tmp_path, options):
    source, other = golden / "keras-3.15.1/square.weights.h5", tmp_path / "x.h5"

    def copy(name, item):
        if isinstance(item, h5py.Dataset):
            target.create_dataset(name, data=item[()], **options)
        else:
            target.require_group(name).attrs.update(item.attrs)

    with h5py.File(source) as keras, h5py.File(other, "w") as target:
        keras.visititems(copy)
    for ours, theirs in zip(mha_convert.read(other).variables, mha_convert.read(source).variables, strict=True):
        np.testing.assert_array_equal(ours.read(), theirs.read())
        assert ours.dtype == theirs.dtype and ours.read().dtype.isnative


def write(path, content):
    path.write_bytes(content)
    return path


def zip_of(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return buffer.getvalue()


def tar_of(mode: str, *names: str) -> bytes:
    """An archive of members with one byte each."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=mode) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
    return content.getvalue()


IMPOSTORS = {
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "a Git LFS pointer.*git lfs pull"),
    "html": (b"<!DOCTYPE html><html><body>404</body></html>", "a web page"),
    "html with space": (b"\n\n  <html>", "a web page"),
    "pickle": (pickle.dumps({"a": 1}), "a Python pickle, which could run code"),
    "zip in zip": (zip_of(inner__zip=b"PK"), "a zip in a zip archive: 'inner.zip'.*Unpack it .`unzip "),
    "keras in zip": (zip_of(model__keras=b"PK"), "a zip archive that holds the .keras file 'model.keras'.*Unpack it .`unzip "),
    "h5 in zip": (zip_of(model__h5=b"x"), "a zip archive that holds the HDF5 file 'model.h5'"),
    "saved model in zip": (zip_of(saved__model=b"", **{"saved_model.pb": b"x"}), "a zip archive of a SavedModel, 'saved_model.pb'.*pass the folder"),
    "keras in tar": (tar_of("w", "a/model.keras"), "a tar archive that holds the .keras file 'a/model.keras'.*`tar xf "),
    "h5 in tar.gz": (tar_of("w:gz", "a/x.txt", "a/model.h5"), "a tar archive that holds the HDF5 file 'a/model.h5'"),
    "checkpoint in tar.bz2": (tar_of("w:bz2", "m/ckpt.index"), "holds the TensorFlow checkpoint 'm/ckpt.index'"),
    "saved model in tar.xz": (tar_of("w:xz", "m/saved_model.pb"), "a tar archive of a SavedModel, 'm/saved_model.pb'"),
    "other tar": (tar_of("w:gz", "x.txt"), "a tar archive without a Keras file"),
    "cut tar.gz": (tar_of("w:gz", "x.txt")[:30], "a gzip archive"),
    "npz": (zip_of(kernel__npy=b"x"), "a NumPy .npz archive"),
    "other zip": (zip_of(readme__txt=b"x"), "a zip archive without Keras' config.json"),
    "broken zip": (zip_of(config__json=b"{}")[:-30], "a zip archive that ends too early"),
    "gzip": (b"\x1f\x8b\x08\x00", "a gzip archive"),
    "numpy": (b"\x93NUMPY\x01\x00", "a NumPy array"),
    "json": (b'{"class_name": "Functional"}', "JSON text: an architecture without weights"),
    "empty": (b"", "is empty"),
    "text": (b"hello, this is a note\n", "a text file"),
    "noise": (bytes(range(128, 256)) * 3, "not in a format that Keras writes"),
}  # fmt: skip


@pytest.mark.parametrize("name", IMPOSTORS)
def test_impostors_are_named(tmp_path, name):
    content, pattern = IMPOSTORS[name]
    message = refusal(write(tmp_path / "model.keras", content))
    import re

    assert re.search(pattern, message), message
    assert "expected a saved Keras model" in message


def test_pytorch_and_safetensors_files_are_named(tmp_path):
    from safetensors.torch import save_file

    torch.save({"a": torch.zeros(1)}, tmp_path / "x.h5")
    assert "a PyTorch file already" in refusal(tmp_path / "x.h5")
    save_file({"a": torch.zeros(1)}, tmp_path / "y.keras")
    assert "a safetensors file, already in PyTorch's form" in refusal(tmp_path / "y.keras")


def test_folders_and_other_things(tmp_path, corpus):
    assert "a folder without a saved model" in refusal(tmp_path)
    (tmp_path / "b.keras").touch()
    (tmp_path / "a.h5").touch()
    assert "a folder that holds a.h5, b.keras" in refusal(tmp_path)
    (tmp_path / "x.index").write_bytes(b"of a book" * 9)
    assert "a part of a TensorFlow checkpoint, damaged or of a save that did" in refusal(tmp_path / "x.index")
    assert "there is no such file" in refusal(tmp_path / "missing.keras")
    os.mkfifo(tmp_path / "pipe.keras")
    assert "a device, pipe or socket" in refusal(tmp_path / "pipe.keras")


def test_an_hdf5_file_of_somebody_else_is_named(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["data"] = [1.0]
    assert "an HDF5 file, but not one of Keras" in refusal(tmp_path / "x.h5")


@pytest.mark.parametrize("file", ["keras-2.4/square.h5", "keras-3.15.1/square.weights.h5", "keras-2.15/square.keras"])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_truncated_files_are_refused_and_nothing_is_guessed(golden, tmp_path, file, part):
    content = (golden / file).read_bytes()
    message = refusal(write(tmp_path / "x", content[: int(len(content) * part)]))
    assert "damaged" in message or "ends too early" in message or "truncated" in message


def test_an_aborted_save_is_told(golden):
    message = refusal(golden / "keras-3.0.5/broken/square.h5")
    assert "lists the weight 'kernel' 4 times, expected once: an aborted save (Keras 3.0 to 3.2" in message


def test_pickled_weights_are_refused(golden):
    assert "needs unpickling, and that could run code" in refusal(golden / "keras-3.15.1/square.npz.keras")


def test_nothing_is_imported_by_name_from_a_configuration(golden, tmp_path):
    """A hostile class name in the JSON is text and stays text."""
    source = golden / "keras-3.15.1/square.keras"
    with zipfile.ZipFile(source) as a, zipfile.ZipFile(tmp_path / "x.keras", "w") as b:
        config = json.loads(a.read("config.json"))
        for layer in config["config"]["layers"]:
            layer["module"], layer["registered_name"] = "mine", "os>system"
        b.writestr("config.json", json.dumps(config))
        b.writestr("metadata.json", a.read("metadata.json"))
        b.writestr("model.weights.h5", a.read("model.weights.h5"))
    (layer,) = mha_convert.find_layers(mha_convert.read(tmp_path / "x.keras"))
    assert "its class is os>system" in layer.cautions[0]


@pytest.mark.parametrize("link", [h5py.SoftLink("/elsewhere"), h5py.ExternalLink("other.h5", "/")])
def test_links_out_of_the_tree_are_refused_unfollowed(golden, tmp_path, link):
    shutil.copyfile(golden / "keras-3.15.1/square.weights.h5", tmp_path / "x.weights.h5")
    with h5py.File(tmp_path / "x.weights.h5", "a") as file:
        del file["layers/multi_head_attention/query_dense"]
        file["layers/multi_head_attention/query_dense"] = link
    assert "is a link to another place or file" in refusal(tmp_path / "x.weights.h5")


def test_external_storage_is_refused(golden, tmp_path):
    (tmp_path / "secret.bin").write_bytes(b"\x01" * 4096)
    shutil.copyfile(golden / "keras-3.15.1/square.weights.h5", tmp_path / "x.weights.h5")
    with h5py.File(tmp_path / "x.weights.h5", "a") as file:
        path = "layers/multi_head_attention/query_dense/vars/0"
        del file[path]
        file.create_dataset(path, (32, 4, 8), "f4", external=[(str(tmp_path / "secret.bin"), 0, 4096)])
    assert "keeps its numbers in another file" in refusal(tmp_path / "x.weights.h5")


def test_json_that_is_none_is_refused(golden, tmp_path):
    for content, fact in ((b"{", "is not valid JSON"), (b"[]", "holds a list, not an object")):
        with (
            zipfile.ZipFile(golden / "keras-3.15.1/square.keras") as a,
            zipfile.ZipFile(tmp_path / "x.keras", "w") as b,
        ):
            b.writestr("config.json", content)
            b.writestr("model.weights.h5", a.read("model.weights.h5"))
        assert fact in refusal(tmp_path / "x.keras")


def test_a_flipped_bit_in_a_keras_file_is_noticed_before_anything_is_written(golden, tmp_path):
    """The zip has a checksum; a memory map does not look at it."""
    data = bytearray((golden / "keras-3.15.1/square.keras").read_bytes())
    kernel = mha_convert.find_layers(mha_convert.read(golden / "keras-3.15.1/square.keras"))[0].query.kernel.read()
    data[data.index(kernel.tobytes()) + 5] ^= 1
    (tmp_path / "x.keras").write_bytes(data)
    with pytest.raises(ReadError, match="model.weights.h5 has checksum .*, the zip says"):
        mha_convert.convert_file(tmp_path / "x.keras", tmp_path / "x.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["x.keras"]


def test_verification_notices_a_source_that_was_damaged_since(golden, tmp_path):
    """The proof would say that the target is wrong; it is the source."""
    source, target = tmp_path / "x.keras", tmp_path / "x.pt"
    shutil.copyfile(golden / "keras-3.15.1/square.keras", source)
    mha_convert.convert_file(source, target)
    data = bytearray(source.read_bytes())
    kernel = mha_convert.find_layers(mha_convert.read(source))[0].query.kernel.read().tobytes()
    data[data.index(kernel) + 5] ^= 1
    source.write_bytes(data)
    with pytest.raises(ReadError, match="model.weights.h5 has checksum"):
        mha_convert.verify_file(source, target)


@pytest.mark.parametrize(
    ("file", "optimizer", "metric"),
    [
        ("keras-2.12/classifier_adam.h5", 73, 0),
        ("keras-2.12/classifier_adam.keras", 73, 4),
        ("keras-2.12/classifier_adam.weights.h5", 73, 4),
        ("keras-3.15.1/classifier_adam.keras", 74, 0),
        ("keras-3.15.1/classifier_adam.weights.h5", 74, 0),
    ],
)
def test_optimizer_and_metrics_are_no_layers(corpus, file, optimizer, metric):
    checkpoint = mha_convert.read(corpus / file)
    roles = [variable.role for variable in checkpoint.variables]
    assert (roles.count("optimizer"), roles.count("metric"), roles.count("layer")) == (optimizer, metric, 36)
    assert len(mha_convert.find_layers(checkpoint)) == 2


def test_two_configurations_in_one_file_are_refused(golden, tmp_path):
    with zipfile.ZipFile(golden / "keras-3.15.1/square.keras") as a, zipfile.ZipFile(tmp_path / "x.keras", "w") as b:
        for name in a.namelist():
            b.writestr(name, a.read(name))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zipfile's, of the second one
            b.writestr("config.json", a.read("config.json"))
    assert "holds 'config.json' 2 times, expected once" in refusal(tmp_path / "x.keras")


def shards(corpus, tmp_path):
    """A copy of the sharded weights that can be spoilt."""
    folder = tmp_path / "shards"
    shutil.copytree(corpus / "keras-3.15.1/square.sharded", folder)
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    return folder


def test_sharded_weights_are_read_from_their_index_and_from_their_folder(corpus, golden):
    whole = mha_convert.read(golden / "keras-3.15.1/square.weights.h5")
    for source in ("square.sharded", "square.sharded/model.weights.json"):
        checkpoint = mha_convert.read(corpus / "keras-3.15.1" / source)
        assert checkpoint.format == "sharded"
        arrays = {variable.path: variable.read().tobytes() for variable in checkpoint.variables}
        assert arrays == {variable.path: variable.read().tobytes() for variable in whole.variables}
        assert [layer.name for layer in mha_convert.find_layers(checkpoint)] == ["attn"]


def test_a_missing_shard_is_named(corpus, tmp_path):
    folder = shards(corpus, tmp_path)
    (folder / "model_00002.weights.h5").unlink()
    with pytest.raises(ReadError, match="its shard 'model_00002.weights.h5' is not next to it"):
        mha_convert.read(folder)


def test_shards_of_another_save_are_noticed(corpus, tmp_path):
    folder = shards(corpus, tmp_path)
    shutil.copyfile(folder / "model_00001.weights.h5", folder / "model_00002.weights.h5")
    with pytest.raises(ReadError, match="a second time. The shards are not of one save"):
        mha_convert.read(folder)
    with h5py.File(folder / "model_00002.weights.h5", "w") as file:
        file.create_group("vars")
    with pytest.raises(ReadError, match="which none of its 4 shards holds. The shards are not of one save"):
        mha_convert.read(folder)


@pytest.mark.parametrize("name", ["../model_00000.weights.h5", "/etc/passwd", "", "..", 3, ["a", "b/c"]])
def test_an_index_leads_nowhere_else(corpus, tmp_path, name):
    folder = shards(corpus, tmp_path)
    index = json.loads((folder / "model.weights.json").read_text())
    index["weight_map"]["/layers/multi_head_attention/key_dense/vars"] = name
    (folder / "model.weights.json").write_text(json.dumps(index))
    with pytest.raises(ReadError, match="names the shard .*, expected a file next to it"):
        mha_convert.read(folder)


def test_an_unzipped_keras_folder_is_read(corpus, tmp_path):
    checkpoint = mha_convert.read(corpus / "keras-3.15.1/square.dir")
    assert (checkpoint.format, checkpoint.keras_version, checkpoint.has_config) == ("keras-folder", "3.15.1", True)
    (tmp_path / "x").mkdir()
    shutil.copyfile(corpus / "keras-3.15.1/square.dir/model.weights.h5", tmp_path / "x/model.weights.h5")
    assert "a folder with weights, without the config.json" in refusal(tmp_path / "x")
    (tmp_path / "x/config.json").write_text("[")
    assert "config.json is not valid JSON" in refusal(tmp_path / "x")


@pytest.mark.parametrize("place", [2, 10**9])
def test_a_directory_that_points_elsewhere_is_damage(golden, tmp_path, place):
    """The central directory of the zip says where the weights begin; the local header must be there."""
    data = bytearray((golden / "keras-3.15.1/square.keras").read_bytes())
    entry = data.rindex(b"PK\x01\x02", 0, data.rindex(b"model.weights.h5"))
    data[entry + 42 : entry + 46] = place.to_bytes(4, "little")
    assert "its zip archive is damaged: " in refusal(write(tmp_path / "x.keras", bytes(data)))


def test_one_shard_alone_leads_to_its_index(corpus, tmp_path):
    folder = shards(corpus, tmp_path)
    with pytest.raises(ReadError, match="is one shard of 'model.weights.json' next to it"):
        mha_convert.read(folder / "model_00001.weights.h5")
