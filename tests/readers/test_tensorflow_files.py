"""TensorFlow checkpoints and SavedModels, read without TensorFlow; TensorFlow itself is the oracle, in a subprocess."""

import json
import shutil
import struct
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from environment import SHARED, SUPPORT, TESTS
from hypothesis import given, settings
from hypothesis import strategies as st

import mha_convert
from mha_convert.files.source import Source
from mha_convert.layers import survey
from mha_convert.readers.tensorflow.bundle import DTYPES, STRING, checksum, open_bundle
from mha_convert.readers.tensorflow.protobuf import MESSAGES, REPEATED, message_classes

CORPUS = SHARED / "corpus" / "files"
INDICES = [path for root in (CORPUS, SHARED / "real") for path in sorted(root.rglob("*.index"))]
PREFIXES = [path.with_suffix("") for path in INDICES if path.parent.name != "ckpt-index-only"]
FRESH = {
    "trained": "trained",
    "optimizer": "optimizer/only",
    "exported": "exported",
    "saved": "saved",
    "model": "model/weights",
    "subclassed": "subclassed/weights",
    "subclassed-export": "subclassed-export",
    "by-name": "by-name/model.ckpt",
    "shards": "shards/two",
    "many": "many/x",
    "mixed-bias": "mixed-bias/ck",
    "grouped": "grouped/ck",
    "normed": "normed/ck",
    "same-name": "same-name/ck",
    "twins-export": "twins-export",
    "iter": "iter/ck",
}
ASSUMED = {  # layers whose roles only their order tells
    "trained": ["blk/attention"],
    "optimizer": ["blk/attention", "blk/attention_1"],
    "mixed-bias": ["attn/attention", "attn/attention_1"],
    "grouped": ["in_lists/attention", "in_lists/attention_1", "in_lists/attention_2"],
    "normed": ["in_lists/attention", "in_lists/attention_1"],
    "same-name": ["in_lists (2)/attention"],
}
DOUBTFUL = {  # what no order tells, and is therefore refused
    "frozen-value/ck": "7 kernels with a heads axis share names here",
    "frozen-query/ck": "7 kernels with a heads axis share names here",
    "cube/ck": "9 kernels with a heads axis share names here",
    "lora-list/ck": "it holds a LoRA adapter or a quantized kernel, and nothing says of which layer",
}
NAMES = {
    "trained": ["model/self_attn", "model/cross", "model/layer-4/inner", "model/blk/att", "blk/attention"],
    "optimizer": ["self_attn", "cross", "inner", "blk/attention", "blk/attention_1"],
    "exported": [
        "self_attn",
        "cross",
        "encoder_1/inner_1",
        "blk_1/multi_head_attention_1",
        "blk_1/multi_head_attention_1_2",
    ],
    "saved": ["self_attn", "cross", "layer-4/inner", "blk/att", "blk/stack/0"],
    "model": ["self_attn", "cross", "layer-4/inner", "blk/att"],
    "subclassed": ["model/zz_cross"],
    "by-name": ["enc/attn"],
    "shards": ["enc/attn"],
}


@pytest.fixture(scope="session")
def tensorflow_models(keras_installed, tmp_path_factory, starts_processes) -> Path:
    """What the installed Keras and TensorFlow write now, and how TensorFlow reads every checkpoint that there is."""
    folder = tmp_path_factory.mktemp("tensorflow")
    command = [sys.executable, SUPPORT / "tensorflow_models.py", folder, *PREFIXES]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return folder


def arrays_of(layer) -> dict[str, np.ndarray]:
    """A found layer's arrays, in the names of `expected.npz`."""
    return {
        f"{role}_{kind}": variable.read()
        for role, projection in layer.projections.items()
        for kind, variable in (("kernel", projection.kernel), ("bias", projection.bias))
        if variable is not None
    }


def as_set(layers) -> list:
    """Layers as something to compare, whatever their order."""
    return sorted(sorted((name, array.tobytes()) for name, array in layer.items()) for layer in layers)


@pytest.mark.parametrize("name", FRESH)
def test_every_layer_that_keras_saved_is_found_with_each_array_in_its_role(tensorflow_models, name):
    expected = defaultdict(dict)
    with np.load(tensorflow_models / "expected.npz") as archive:
        for key in archive.files:
            file, number, role = key.split("|")
            if file == name:
                expected[number][role] = archive[key]
    found = mha_convert.find_layers(mha_convert.read(tensorflow_models / FRESH[name]))
    assert expected
    assert as_set(map(arrays_of, found)) == as_set(expected.values())
    if name in NAMES:
        assert [layer.name for layer in found] == NAMES[name]


@pytest.mark.parametrize("name", FRESH)
def test_they_convert_with_a_proof(tensorflow_models, name, tmp_path):
    source, target = tensorflow_models / FRESH[name], tmp_path / "x.safetensors"
    layers = [
        layer for layer in mha_convert.find_layers(mha_convert.read(source)) if layer.kind == "MultiHeadAttention"
    ]
    assumed = [layer.name for layer in layers if layer.doubt]
    if assumed:
        with pytest.raises(
            mha_convert.LayerError, match="nothing in this file says which of its kernels is query, key"
        ):
            mha_convert.convert_file(source, target, layout="linear")
        assert not target.exists()
    names = [layer.name for layer in layers] if assumed else None
    report = mha_convert.convert_file(source, target, layers=names)
    assert report.proven
    notes = [note for note in report.notes if "nothing in this file says which" in note]
    assert all(any(f"'{name}'" in note for note in notes) for name in assumed) and bool(notes) == bool(assumed)
    assert mha_convert.verify_file(source, target).proven


@pytest.mark.parametrize("name", FRESH)
def test_roles_that_only_order_tells_are_assumed_and_no_others(tensorflow_models, name):
    found = mha_convert.find_layers(mha_convert.read(tensorflow_models / FRESH[name]))
    assert [layer.name for layer in found if layer.doubt] == ASSUMED.get(name, [])


@pytest.mark.parametrize("name", DOUBTFUL)
def test_what_order_does_not_tell_is_refused_by_name(tensorflow_models, tmp_path, name):
    findings = survey(mha_convert.read(tensorflow_models / name))
    assert not findings.layers
    assert any(item.blocking and DOUBTFUL[name] in item.reason for item in findings.not_converted)
    with pytest.raises(mha_convert.LayerError, match=DOUBTFUL[name]):
        mha_convert.convert_file(tensorflow_models / name, tmp_path / "x.pt")


@pytest.mark.parametrize("name", ["own-order/ck", "complement/ck"])
def test_what_order_tells_wrongly_is_not_converted_unasked(tensorflow_models, tmp_path, name):
    (layer,) = mha_convert.find_layers(mha_convert.read(tensorflow_models / name))
    with pytest.raises(
        mha_convert.LayerError,
        match=f"Layer '{layer.name}': .*If you know that they are right, .*--layer {layer.name}",
    ):
        mha_convert.convert_file(tensorflow_models / name, tmp_path / "x.pt")


def test_a_chain_without_end_is_refused(tensorflow_models):
    with pytest.raises(mha_convert.ReadError, match="its objects are nested more than 100 deep"):
        mha_convert.read(tensorflow_models / "deep" / "ck")


def test_every_tensor_is_what_tensorflow_reads(tensorflow_models, corpus, real):
    assert len(PREFIXES) >= 40
    for number, prefix in enumerate(PREFIXES):
        bundle = open_bundle(Source(prefix))
        with np.load(tensorflow_models / "oracle" / f"{number}.npz") as oracle:
            ours = {key for key, entry in bundle.entries.items() if entry.dtype != STRING}
            assert ours == set(oracle.files), prefix
            for key in ours:
                array = bundle.variable(key).read()
                bits = array.view(np.uint16) if bundle.entries[key].dtype == 14 else array
                assert bits.dtype == oracle[key].dtype
                assert bits.shape == oracle[key].shape
                assert bits.tobytes() == oracle[key].tobytes(), f"{prefix}: {key}"


def test_every_variable_of_a_checkpoint_has_one_place(tensorflow_models):
    for name, path in FRESH.items():
        place = tensorflow_models / path
        if place.is_dir() and not (place / "variables").is_dir() and name != "trained":
            continue
        prefix = place / "variables/variables" if (place / "variables").is_dir() else place
        prefix = place / "ckpt-1" if name == "trained" else prefix
        keys = [key for key, entry in open_bundle(Source(prefix)).entries.items() if entry.dtype in DTYPES]
        placed = [variable.path for variable in mha_convert.read(place).variables]
        assert sorted(placed) == sorted(keys), name


def test_optimizer_state_and_second_copies_are_told_apart(tensorflow_models):
    roles = defaultdict(list)
    for variable in mha_convert.read(tensorflow_models / "trained").variables:
        roles[variable.role].append(variable.path)
    # iteration, learning rate, and two slots for each of the model's variables
    assert len(roles["optimizer"]) == 2 + 2 * len([path for path in roles["layer"] if "save_counter" not in path])
    assert not [path for path in roles["optimizer"] if "_trainable_variables/" in path]
    copies = [v for v in mha_convert.read(tensorflow_models / "exported").variables if v.role == "copy"]
    assert copies
    assert all(variable.path.startswith("_all_variables/") for variable in copies)


def test_our_rows_of_protobuf_messages_are_tensorflows(tensorflow_models):
    told = json.loads((tensorflow_models / "messages.json").read_text())
    kinds = {"int32": (5, 14), "int64": (3,), "fixed32": (7,), "string": (9, 12), "bytes": (12, 11)}  # enums are int32
    pairs = list(told["starts"].items())
    compared = set()
    while pairs:
        ours, theirs = pairs.pop()
        compared.add(ours)
        for name, (number, written) in MESSAGES[ours].items():
            kind = written.removeprefix(REPEATED)
            their_number, their_type, inner, repeated = told["messages"][theirs][name]
            assert number == their_number, (ours, name)
            assert repeated == (kind != written), (ours, name)
            assert their_type in kinds.get(kind, (11,)), (ours, name)
            if kind in MESSAGES:
                pairs.append((kind, inner))
    assert compared == set(MESSAGES)
    assert set(message_classes()) == compared


@pytest.mark.process
def test_nothing_of_tensorflow_is_imported(samples, golden):
    code = """
import sys
class Forbidden:
    def find_spec(self, name, *rest):
        if name.split(".")[0] in ("tensorflow", "keras", "tf_keras", "torch", "jax"):
            raise AssertionError(f"{name} was imported")
sys.meta_path.insert(0, Forbidden())
import mha_convert
for path in sys.argv[1:]:
    checkpoint = mha_convert.read(path)
    layers = mha_convert.find_layers(checkpoint)
    sums = [variable.read().astype("float64").sum() for layer in layers for variable in layer.variables]
    print(checkpoint.format, len(layers), len(sums))
"""
    files = [*(TESTS / "golden").rglob("*.tfckpt"), *(TESTS / "golden").rglob("*.savedmodel")]
    files += [*CORPUS.glob("*/*.tfckpt"), *CORPUS.glob("*/*.savedmodel")]
    result = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == len(files) > 0
    empty = [file.name for file, line in zip(files, lines, strict=True) if line.split()[1] == "0"]
    assert empty == ["luong.savedmodel"]  # its attention has no weights


@pytest.fixture
def checkpoint(golden, tmp_path) -> Path:
    """A genuine checkpoint of Keras 2, to be damaged."""
    copy = tmp_path / "checkpoint"
    shutil.copytree(golden / "keras-2.12" / "square.tfckpt", copy)
    return copy


@pytest.fixture
def saved_model(golden, tmp_path) -> Path:
    """A genuine SavedModel of Keras 2, to be damaged."""
    copy = tmp_path / "model"
    shutil.copytree(golden / "keras-2.15" / "square.savedmodel", copy)
    return copy


def test_any_part_of_a_checkpoint_leads_to_it(checkpoint):
    parts = ("", "ckpt", "ckpt.index", "ckpt.data-00000-of-00001", "checkpoint")
    found = [mha_convert.find_layers(mha_convert.read(checkpoint / part)) for part in parts]
    assert [[layer.name for layer in layers] for layers in found] == [["attn"]] * len(parts)


def test_any_part_of_a_saved_model_leads_to_it(saved_model):
    parts = ("", "saved_model.pb", "keras_metadata.pb")
    for part in parts:
        (layer,) = mha_convert.find_layers(mha_convert.read(saved_model / part))
        assert (layer.name, layer.class_name, layer.dropout) == ("attn", "MultiHeadAttention", 0.0)


def test_a_folder_of_checkpoints_gives_its_latest_and_says_so(checkpoint):
    for part in ("index", "data-00000-of-00001"):
        shutil.copy(checkpoint / f"ckpt.{part}", checkpoint / f"older.{part}")
    notes = mha_convert.read(checkpoint).notes
    assert "The folder holds 2 checkpoints (ckpt, older); 'ckpt' is the latest." in notes
    (checkpoint / "checkpoint").write_text('model_checkpoint_path: "/home/somebody/run/older"\n')
    assert any(
        "names '/home/somebody/run/older'; 'older' next to it" in note for note in mha_convert.read(checkpoint).notes
    )
    (checkpoint / "checkpoint").unlink()
    with pytest.raises(mha_convert.ReadError, match="holds 2 checkpoints .ckpt, older., and no file 'checkpoint'"):
        mha_convert.read(checkpoint)
    assert mha_convert.find_layers(mha_convert.read(checkpoint / "older"))


def test_a_checkpoint_file_is_never_followed_out_of_its_folder(checkpoint, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    for part in ("index", "data-00000-of-00001"):
        (checkpoint / f"ckpt.{part}").rename(outside / f"ckpt.{part}")
    for path in (f"{outside}/ckpt", "../outside/ckpt"):
        (checkpoint / "checkpoint").write_text(f'model_checkpoint_path: "{path}"\n')
        with pytest.raises(mha_convert.ReadError, match="expected a checkpoint next to it; the folder holds none"):
            mha_convert.read(checkpoint)


def test_missing_parts_have_messages_of_their_own(checkpoint):
    data = checkpoint / "ckpt.data-00000-of-00001"
    content = data.read_bytes()
    data.write_bytes(content[:100])
    with pytest.raises(
        mha_convert.ReadError, match="of 'ckpt.data-00000-of-00001', which has 100. The copy was interr"
    ):
        mha_convert.read(checkpoint)
    data.unlink()
    with pytest.raises(
        mha_convert.ReadError, match="the index of a TensorFlow checkpoint without its data: 'ckpt.data-"
    ):
        mha_convert.read(checkpoint)
    data.write_bytes(content)
    (checkpoint / "ckpt.index").unlink()
    with pytest.raises(mha_convert.ReadError, match="a TensorFlow checkpoint without its index 'ckpt.index'"):
        mha_convert.read(data)


def test_a_missing_shard_is_named(tensorflow_models, tmp_path):
    shutil.copytree(tensorflow_models / "shards", tmp_path / "shards")
    (tmp_path / "shards" / "two.data-00001-of-00002").unlink()
    with pytest.raises(mha_convert.ReadError, match="it is partial: 'two.data-00001-of-00002' not next to it"):
        mha_convert.read(tmp_path / "shards" / "two")


def test_saved_models_without_parts(saved_model):
    shutil.rmtree(saved_model / "variables")
    with pytest.raises(mha_convert.ReadError, match="a SavedModel without 'variables/variables.index'"):
        mha_convert.read(saved_model)
    (saved_model / "saved_model.pb").rename(saved_model / "saved_model.pbtxt")
    with pytest.raises(mha_convert.ReadError, match="a SavedModel as text, which is not read"):
        mha_convert.read(saved_model)


def test_a_damaged_saved_model_is_named(saved_model):
    for content, fact in (
        (b"", "is empty"),
        (b"\xff" * 500, "is not a protobuf message"),
        (b"\x08\x01", "holds no graph"),
    ):
        (saved_model / "saved_model.pb").write_bytes(content)
        with pytest.raises(mha_convert.ReadError, match=fact):
            mha_convert.read(saved_model)


def test_damage_to_the_numbers_is_found_when_they_are_read(checkpoint, tmp_path):
    data = checkpoint / "ckpt.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[0] ^= 1
    data.write_bytes(content)
    assert mha_convert.find_layers(mha_convert.read(checkpoint))
    with pytest.raises(mha_convert.ReadError, match="bytes do not have the checksum that the index says"):
        mha_convert.convert_file(checkpoint, tmp_path / "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()


def test_damage_to_the_object_graph_is_found(checkpoint):
    data = checkpoint / "ckpt.data-00000-of-00001"
    graph = open_bundle(Source(checkpoint / "ckpt")).entries["_CHECKPOINTABLE_OBJECT_GRAPH"]
    content = data.read_bytes()
    for position in range(graph.offset, graph.offset + graph.size):
        damaged = bytearray(content)
        damaged[position] ^= 1
        data.write_bytes(damaged)
        with pytest.raises(mha_convert.ReadError, match="checksum|runs over the end"):
            mha_convert.read(checkpoint)


def test_every_damaged_byte_of_an_index_is_found(checkpoint):
    index = checkpoint / "ckpt.index"
    content = index.read_bytes()
    first = sorted(mha_convert.read(checkpoint).variables, key=lambda variable: variable.path)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        index.write_bytes(damaged)
        try:  # bytes that nothing depends on: padding, and the block of filters, which is empty
            assert sorted(mha_convert.read(checkpoint).variables, key=lambda variable: variable.path) == first
        except mha_convert.ReadError as error:
            assert str(error).startswith(str(checkpoint))


def test_a_shortened_index_is_refused(checkpoint):
    index = checkpoint / "ckpt.index"
    content = index.read_bytes()
    for length in range(len(content)):
        index.write_bytes(content[:length])
        with pytest.raises(mha_convert.ReadError):
            mha_convert.read(checkpoint / "ckpt")


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_before_a_footer_are_refused_clearly(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("index")
    footer = bytes(40) + struct.pack("<Q", 0xDB4775248B80FB57)
    (folder / "x.index").write_bytes(content + footer)
    with pytest.raises(mha_convert.ReadError):
        mha_convert.read(folder / "x.index")


def test_checksums_are_those_of_the_standard():
    assert checksum(b"123456789") == 0xE3069283  # RFC 3720, B.4
    assert checksum(np.frombuffer(b"123456789", np.uint8)) == 0xE3069283


def test_inspect_shows_what_a_checkpoint_cannot_tell(checkpoint, saved_model):
    from mha_convert.words.inspection import inspection_as_json

    documents = [
        inspection_as_json(mha_convert.Inspection(c, survey(c)))
        for c in map(mha_convert.read, (checkpoint, saved_model))
    ]
    assert documents[0]["unknown"] == ["keras_version", "backend", "config"]
    assert documents[1]["unknown"] == []
    assert (documents[1]["keras_version"], documents[1]["backend"]) == ("2.15", "tensorflow")
