"""Files of neighbouring formats are identified, with the way back to a Keras file (issue 12, point 14)."""

import pytest

import mha_convert
from mha_convert.errors import LayoutError, ReadError

MAKERS = ("10_slots", "11_foreign_files", "12_batch_axis")
KERAS_FILE = "Look for the Keras file that it was made from."
BACK = "convert it back with `tensorflowjs_converter --input_format tfjs_layers_model --output_format keras "
MODEL = b'{"format": "layers-model", "generatedBy": "keras v2.15.0", "modelTopology": {"keras_version": "2.15.0"}}'
NETWORK = b'{"modelTopology":{"class_name":"Sequential"},"format":"layers-model","weightsManifest":[]}'
GRAPH = b'{"format": "graph-model", "generatedBy": "2.15.0", "modelTopology": {"node": []}}'
BINARY = b"\x00\x01\xff\xfe" * 200
FILES = {  # name, content, what it is
    "layers model": ("model.json", MODEL, f"a TensorFlow.js layers model, .*{BACK}"),
    "layers model of a browser": ("model.json", NETWORK, f"a TensorFlow.js layers model, .*{BACK}"),
    "graph model": ("model.json", GRAPH, f"a TensorFlow.js graph model, whose layers are fused, .*{KERAS_FILE}"),
    "shard": ("group1-shard2of11.bin", b"<" + BINARY, f"a shard of a TensorFlow.js model, .*{BACK}"),
    "shard without suffix": ("group1-shard1of1", BINARY, f"a shard of a TensorFlow.js model, .*{BACK}"),
    "lite": ("x.tflite", b"\x1c\0\0\0TFL3" + BINARY, f"a TensorFlow Lite model, whose layers are fused, .*{KERAS_FILE}"),
    "lite of another name": ("x.keras", b"<\0\0\0TFL3" + BINARY, "a TensorFlow Lite model"),
    "frozen": ("frozen.pb", b"\n\x10\n\x01a\x12\x05Const" + BINARY, f"a frozen graph of TensorFlow, .*{KERAS_FILE}"),
    "renamed graph": ("model.pb", b"\x08\x01\x12" + BINARY, "the graph of a SavedModel under another name, .*saved_model.pb"),
    "fingerprint": ("fingerprint.pb", b"\x08\x01\x12" + BINARY, "a part of a TensorFlow SavedModel, .*Pass the folder"),
    "meta": ("m.ckpt-7.meta", b"\n\xe2\x06\x12" + BINARY, "the graph of a TensorFlow checkpoint, .*Give m.ckpt-7, the checkpoint"),
    "binary like a page": ("x.bin", b"<\0\1\xff", "not in a format that Keras writes"),
    "numbers like a page": ("x.bin", b"<" + BINARY, "not in a format that Keras writes"),
    "binary like JSON": ("x.bin", b"{\0\1\xff", "not in a format that Keras writes"),
    "a page": ("x.keras", b"\xef\xbb\xbf \n<!DOCTYPE html>\n<html>", "a web page or XML text"),
    "a page in another encoding": ("x.keras", b"<html><title>caf\xe9</title>", "a web page or XML text"),
    "a page that is cut within a letter": ("x.keras", b"<a>" + "é".encode() * 300, "a web page or XML text"),
    "XML": ("x.keras", b'<svg width="1"/>', "a web page or XML text"),
    "JSON": ("x.json", b'{"class_name": "Functional"}', "JSON text: an architecture without weights"),
    "a text of one letter": ("x.keras", b"x", "a text file"),
    "a note": ("x.keras", "Größe: 3 µm\tx\r\n".encode(), "a text file"),
    "JSON about a graph model": ("x.json", b'{"note": "format: graph-model"}', "JSON text: an architecture"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_each_is_called_what_it_is(tmp_path, name):
    file, content, pattern = FILES[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ReadError, match=f"is {pattern}") as error:
        mha_convert.read(tmp_path / file)
    assert str(error.value).endswith(".") and "expected a saved Keras model" in str(error.value)


def test_a_folder_of_a_browser_is_called_so(tmp_path):
    (tmp_path / "group1-shard1of1.bin").write_bytes(BINARY)
    for content, pattern in ((MODEL, "layers model"), (GRAPH, "graph model")):
        (tmp_path / "model.json").write_bytes(content)
        with pytest.raises(ReadError, match=f"is a TensorFlow.js {pattern}"):
            mha_convert.read(tmp_path)
    (tmp_path / "model.json").write_bytes(b'{"class_name": "Functional"}')
    with pytest.raises(ReadError, match="is a folder without a saved model"):
        mha_convert.read(tmp_path)


@pytest.fixture(scope="module")
def made(written_cases, starts_processes):
    """What the makers of ../shared/cases write, by the first two letters of their names."""
    return written_cases(*MAKERS)


GENUINE = {
    "11/tfjs": f"a TensorFlow.js layers model, .*{BACK}",
    "11/tfjs/model.json": f"a TensorFlow.js layers model, .*{BACK}",
    "11/tfjs/group1-shard1of1.bin": f"a shard of a TensorFlow.js model, .*{BACK}",
    "11/model.tflite": f"a TensorFlow Lite model, whose layers are fused, .*{KERAS_FILE}",
    "11/weights.pkl": "a Python pickle, which could run code",
    "10/slots/model.ckpt-100.meta": "the graph of a TensorFlow checkpoint, .*Give model.ckpt-100, the checkpoint next to it",
}


def test_genuine_foreign_files_are_called_what_they_are(made):
    for file, pattern in GENUINE.items():
        with pytest.raises(ReadError, match=f"is {pattern}"):
            mha_convert.read(made / file)


def test_slots_of_a_genuine_checkpoint_are_the_optimizers(made):
    """Point 14 of issue 12: 192 slots and the count of steps; kernels and biases stay layers'."""
    roles = [variable.role for variable in mha_convert.read(made / "10/slots/model.ckpt-100").variables]
    assert {role: roles.count(role) for role in set(roles)} == {"layer": 96, "optimizer": 192, "counter": 1}


@pytest.mark.parametrize("name", ["rank2", "rank3"])
@pytest.mark.parametrize("layout", ["mha", "linear", "qkv", "bart"])
def test_attention_over_the_batch_is_explained_by_its_own_cause(made, tmp_path, name, layout):
    """Point 14 of issue 12: 0 is no negative axis, and saving again changes nothing."""
    with pytest.raises(LayoutError) as error:
        mha_convert.convert_file(made / "12" / f"{name}.keras", tmp_path / "x.pt", layout=layout)
    assert (
        "layer 'mha' attends over axis 0, which is the batch: each sample looks at the others. "
        "If time was meant, the axis is 1: build the model with attention_axes=1 and save it again."
    ) in str(error.value)
    assert "3.12" not in str(error.value)
