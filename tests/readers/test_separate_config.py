"""Architecture in one file and weights in another; and KerasHub presets, which are folders of both."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import pytest
from corpus_files import CorpusFile, rows
from environment import SHARED

import mha_convert
from mha_convert.errors import ReadError

ROOT = SHARED / "corpus" / "files"
WEIGHTS = ("weights.h5", "weightsonly.h5", "sharded", "tfckpt")


def pairs() -> list[tuple[CorpusFile, CorpusFile]]:
    """Weights, and the whole model that the same Keras saved."""
    files = rows(ROOT) if ROOT.is_dir() else []
    whole = {(file.tag, file.model): file for file in files if file.format in ("h5", "keras") and not file.subclass}
    with_model = [(file, whole.get((file.tag, file.model))) for file in files if file.format in WEIGHTS]
    return [(file, model) for file, model in with_model if model and not (file.refusal or model.refusal)]


def architecture(model: CorpusFile) -> dict:
    """What `model.to_json()` gave: Keras 2 says its version there, Keras 3 does not."""
    if model.format == "h5":
        with h5py.File(model.path) as file:
            document, version = json.loads(file.attrs["model_config"]), file.attrs["keras_version"]
    else:
        with zipfile.ZipFile(model.path) as archive:
            document = json.loads(archive.read("config.json"))
            version = json.loads(archive.read("metadata.json"))["keras_version"]
    return document | ({"keras_version": version} if version.startswith("2.") else {})


def test_the_pairs_are_there(corpus):
    assert len(pairs()) > 60


@pytest.mark.parametrize("weights, model", pairs(), ids=lambda file: file.id)
def test_names_and_configuration_are_those_of_the_whole_model(weights, model, tmp_path):
    (tmp_path / "model.json").write_text(json.dumps(architecture(model)))
    checkpoint = mha_convert.read(weights.path, config=tmp_path / "model.json")
    found = mha_convert.find_layers(checkpoint)
    expected = mha_convert.find_layers(mha_convert.read(model.path))
    custom = weights.model in ("block", "hub_encoder")  # inside custom layers each format has names of its own
    own = [layer.name.split("/")[0] if custom else layer.name for layer in found]
    assert sorted(own) == sorted(layer.name.split("/")[0] if custom else layer.name for layer in expected)
    assert checkpoint.has_config
    assert custom or all(layer.has_config for layer in found)
    report = mha_convert.convert_file(
        weights.path, tmp_path / "x.safetensors", config=tmp_path / "model.json", layout="linear"
    )
    assert report.proven


@pytest.fixture
def weights(golden) -> Path:
    """A `.weights.h5` of a functional model with one layer, `attn`."""
    return golden / "keras-3.15.1" / "square.weights.h5"


@pytest.fixture
def config(golden, tmp_path) -> Path:
    """Its architecture."""
    path = tmp_path / "model.json"
    with zipfile.ZipFile(golden / "keras-3.15.1" / "square.keras") as archive:
        path.write_bytes(archive.read("config.json"))
    return path


def test_an_architecture_comes_in_several_dresses(weights, config):
    document = json.loads(config.read_text())
    for text in (json.dumps(json.dumps(document)), json.dumps(document["config"])):
        config.write_text(text)
        (layer,) = mha_convert.find_layers(mha_convert.read(weights, config=config))
        assert (layer.name, layer.class_name, layer.dropout) == ("attn", "MultiHeadAttention", 0.0)


@pytest.mark.parametrize(
    "content, fact",
    [
        ("{", "is not valid JSON"),
        ("[]", "is not a model's architecture"),
        ('{"class_name": "Functional"}', "is not a model's architecture"),
        ('{"class_name": "Custom", "config": {}}', "the given architecture lists no layers"),
        ('{"class_name": "Sequential", "config": {"layers": [{"class_name": "Dense", "config": {"name": "d"}}]}}',
         "holds layer 'attn', which that architecture does not name .it has 'd'.. It is another model's"),
    ],
)  # fmt: skip
def test_what_is_no_architecture_of_this_file_is_refused(weights, config, content, fact):
    config.write_text(content)
    with pytest.raises(ReadError, match=fact):
        mha_convert.read(weights, config=config)


def test_a_missing_architecture_is_named(weights, tmp_path):
    with pytest.raises(ReadError, match="nope.json cannot be read: there is no such file"):
        mha_convert.read(weights, config=tmp_path / "nope.json")


@pytest.mark.parametrize("source", ["keras-3.15.1/square.keras", "keras-2.4/square.h5", "keras-2.15/square.savedmodel"])
def test_a_second_configuration_is_refused(golden, config, source):
    with pytest.raises(ReadError, match="has its own configuration.*Leave --config out"):
        mha_convert.read(golden / source, config=config)


def test_sizes_of_another_model_are_a_contradiction(weights, config, tmp_path):
    document = config.read_text()
    config.write_text(document.replace('"num_heads": 4', '"num_heads": 2'))
    with pytest.raises(mha_convert.LayerError, match="num_heads"):
        mha_convert.convert_file(weights, tmp_path / "x.safetensors", config=config)


def test_doubled_numbering_is_not_guessed(corpus, tmp_path):
    """Keras 2.12 numbers groups by two; without a version in the JSON two layers could exchange their names."""
    model = next(f for f in rows(corpus) if f.id == "keras-2.12/classifier_adam.keras")
    document = architecture(model)
    with zipfile.ZipFile(model.path) as archive:
        (tmp_path / "x.weights.h5").write_bytes(archive.read("model.weights.h5"))
    (tmp_path / "model.json").write_text(json.dumps(document))
    found = mha_convert.find_layers(mha_convert.read(tmp_path / "x.weights.h5", config=tmp_path / "model.json"))
    assert sorted(layer.name for layer in found) == sorted(
        layer.name for layer in mha_convert.find_layers(mha_convert.read(model.path))
    )
    del document["keras_version"], document["module"]
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(ReadError, match='use other numbers than the rest.*Add "keras_version"'):
        mha_convert.read(tmp_path / "x.weights.h5", config=tmp_path / "model.json")


def test_counting_needs_the_very_model(corpus, tmp_path):
    """One layer more in the JSON would move all names by one."""
    model = next(f for f in rows(corpus) if f.id == "keras-2.12/classifier_adam.keras")
    with zipfile.ZipFile(model.path) as archive:
        (tmp_path / "x.weights.h5").write_bytes(archive.read("model.weights.h5"))
    document = architecture(model)
    entries = document["config"]["layers"]
    attention = next(entry for entry in entries if entry["class_name"] == "MultiHeadAttention")
    entries.insert(0, json.loads(json.dumps(attention).replace(attention["config"]["name"], "another")))
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(ReadError, match="holds 2 layers 'multi_head_attention', 3 in the architecture"):
        mha_convert.read(tmp_path / "x.weights.h5", config=tmp_path / "model.json")
    entries.pop(0)
    (tmp_path / "model.json").write_text(json.dumps(document))
    notes = mha_convert.read(tmp_path / "x.weights.h5", config=tmp_path / "model.json").notes
    assert any("does not hold the layers' names: they are the architecture's" in note for note in notes)


@pytest.mark.process
def test_the_command_line_takes_it_in_every_verb(weights, config, tmp_path):
    def run(*arguments):
        command = [sys.executable, "-m", "mha_convert", *map(str, arguments), "--config", str(config)]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert "configuration" not in run("inspect", weights)
    assert f"convert {weights} --config {config} attention.safetensors" in run("explain", weights, "attn")
    run("convert", weights, "x.safetensors")
    assert "proven" in run("verify", weights, "x.safetensors").lower()


def as_preset(folder: Path, *, sharded: bool, golden: Path, corpus: Path) -> Path:
    """The folder that KerasHub's `save_to_preset` writes: more files than an unzipped `.keras`."""
    shutil.copytree(corpus / "keras-3.15.1/square.dir", folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    metadata = {"keras_version": "3.15.1", "keras_hub_version": "0.26.0", "parameter_count": 4224}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    (folder / "task.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    if sharded:
        (folder / "model.weights.h5").unlink()
        for path in (corpus / "keras-3.15.1/square.sharded").iterdir():
            shutil.copyfile(path, folder / path.name)
    return folder


@pytest.mark.parametrize("sharded", [False, True])
def test_presets_are_read_whole_and_in_shards(golden, corpus, tmp_path, sharded):
    folder = as_preset(tmp_path / "preset", sharded=sharded, golden=golden, corpus=corpus)
    checkpoint = mha_convert.read(folder)
    assert (checkpoint.format, checkpoint.keras_version, checkpoint.has_config) == ("preset", "3.15.1", True)
    assert [layer.name for layer in mha_convert.find_layers(checkpoint)] == ["attn"]
    assert mha_convert.convert_file(folder, tmp_path / "x.safetensors").proven
    if sharded:
        (folder / "model_00002.weights.h5").unlink()
        with pytest.raises(ReadError, match=re.escape("its shard 'model_00002.weights.h5' is not next to it")):
            mha_convert.read(folder)


def test_checkpoints_of_training_may_have_any_suffix(golden, tmp_path):
    """`ModelCheckpoint` writes what its path says; what the file is, its content says."""
    for source, name in (
        ("keras-3.15.1/square.weights.h5", "weights.03-0.21"),
        ("keras-2.4/square.weightsonly.h5", "cp-0001.ckpt"),
        ("keras-2.4/square.h5", "best_model"),
        ("keras-3.15.1/square.keras", "epoch=3.model"),
    ):
        shutil.copyfile(golden / source, tmp_path / name)
        assert mha_convert.convert_file(tmp_path / name, tmp_path / "x.safetensors", overwrite=True).proven
    for part in ("index", "data-00000-of-00001"):
        shutil.copyfile(golden / f"keras-2.12/square.tfckpt/ckpt.{part}", tmp_path / f"cp-0001.h5.{part}")
    assert mha_convert.convert_file(tmp_path / "cp-0001.h5", tmp_path / "x.safetensors", overwrite=True).proven
