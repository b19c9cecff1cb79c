"""Users' own classes that have Keras' names, and what depended on the format (issue 12, points 4 and 7).

The files come from genuine Keras: scripts 13 and 14 of ../shared/cases, ``own_class_models.py``, and
``golden/tf_keras-2.21``.
"""

import json
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import h5py
import numpy as np
import pytest
from environment import PROJECT, SUPPORT

import mha_convert
from mha_convert.errors import LayerError, ReadError
from mha_convert.files.source import Source
from mha_convert.layers import survey
from mha_convert.readers.keras3.model_config import checked_model, layer_config
from mha_convert.readers.keras_classes import is_own

MAKERS = ("13_attention_class", "14_own_class_keras_name")
MODULES = ("mymod", "main")  # null in the file
CLASSES = {"multi_head": "MultiHeadAttention", "grouped": "GroupedQueryAttention"}
CAUTION = "its class is {}.{}, not keras.layers.MultiHeadAttention"
BY_HAND = "Port this layer by hand"
WEIGHTLESS = "keras.layers.Attention has no variables here (use_scale=False), so there is nothing to convert"
LOST = "Keras before 3.15 does not save layers that sit in lists of lists"


@pytest.fixture(scope="module")
def cases(written_cases, starts_processes) -> Path:
    """What the makers of ../shared/cases write, in folders 13 and 14."""
    return written_cases(*MAKERS)


@pytest.fixture(scope="module")
def own(keras_installed, tmp_path_factory, starts_processes) -> Path:
    """Own classes in a module and in the program itself, and layers that leave their names out."""
    folder = tmp_path_factory.mktemp("own")
    command = [sys.executable, SUPPORT / "own_class_models.py", folder]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return folder


def run(*arguments: object, code: int = 0) -> str:
    """What the command prints, and its errors."""
    command = [sys.executable, "-m", "mha_convert", *map(str, arguments)]
    result = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout + result.stderr


def not_converted(path: Path) -> dict[str, tuple[str, str]]:
    """Kind and next step of what is named and not converted, by its name."""
    return {item.name: (item.kind, item.next_step) for item in survey(mha_convert.read(path)).not_converted}


def rezipped(source: Path, target: Path, *, version: str, drop: str) -> Path:
    """The same `.keras` by another version, without one group of its weights."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "metadata.json":
                content = json.dumps(json.loads(content) | {"keras_version": version}).encode()
            if name.endswith(".h5"):
                image = BytesIO(content)
                with h5py.File(image, "r+") as file:
                    del file[drop]
                content = image.getvalue()
            new.writestr(name, content)
    return target


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("name", CLASSES)
def test_a_subclass_of_keras_name_is_told_and_strict_refuses_it(own, tmp_path, name, module):
    """Point 4 of issue 12: it was converted without a word, with ``--strict`` too."""
    path, target = own / f"{name}_{module}.keras", tmp_path / "o.safetensors"
    caution = CAUTION.format({"main": "__main__"}.get(module, module), CLASSES[name])
    assert f"Note: Layer '{name}': {caution}" in run("inspect", path)
    (layer,) = json.loads(run("inspect", path, "--json"))["layers"]
    assert any(caution in told for told in layer["cautions"])
    report = mha_convert.convert_file(path, target, layout="linear")
    assert report.proven
    assert any(caution in told for told in report.plan.layers[0].layer.cautions)
    with pytest.raises(LayerError, match="not keras.layers.MultiHeadAttention"):
        mha_convert.convert_file(path, tmp_path / "strict.pt", layout="linear", strict=True)
    said = run("convert", path, tmp_path / "strict.pt", "--layout", "linear", "--strict", code=1)
    assert "not keras.layers.MultiHeadAttention" in said
    assert not (tmp_path / "strict.pt").exists()


def test_genuine_keras_on_these_weights_does_not_clear_the_class(cases, tmp_path):
    """Point 4 of issue 12: genuine Keras' own layer agrees with ours, and the user's layer with neither."""
    path = cases / "14" / "sub.keras"
    report = mha_convert.convert_file(path, tmp_path / "o.pt", reference="keras")
    assert any("not keras.layers.MultiHeadAttention" in told for told in report.plan.layers[0].layer.cautions)
    with pytest.raises(LayerError):
        mha_convert.convert_file(path, tmp_path / "strict.pt", reference="keras", strict=True)
    import torch

    with np.load(cases / "14" / "sub.npz") as genuine:
        x = torch.from_numpy(genuine["x"])
        ours = mha_convert.load_modules(tmp_path / "o.pt")["attn"](x, x, x)[0].detach().numpy()
        assert np.abs(ours - genuine["y"]).max() > 0.1 * np.abs(genuine["y"]).max(), "else the caution would be idle"


@pytest.mark.parametrize("module", MODULES)
def test_a_separate_configuration_tells_whose_class_it_is(own, module):
    """Point 4 of issue 12: weights alone tell no class, and ``model.to_json()`` does."""
    path = own / f"multi_head_{module}"
    (layer,) = mha_convert.find_layers(mha_convert.read(f"{path}.weights.h5", config=f"{path}.json"))
    assert any("not keras.layers.MultiHeadAttention" in told for told in layer.cautions)
    (alone,) = mha_convert.find_layers(mha_convert.read(f"{path}.weights.h5"))
    assert not alone.has_config


def test_legacy_hdf5_holds_no_module(cases, own):
    """Point 4 of issue 12: ``docs/formats.md`` says so; a caution would be one on every file."""
    for path in (cases / "14" / "sub.h5", own / "multi_head_mymod.h5"):
        (layer,) = mha_convert.find_layers(mha_convert.read(path))
        assert not layer.cautions
    assert "no module" in (PROJECT / "docs" / "formats.md").read_text()


def test_own_attention_without_projections_is_not_keras(cases, own, tmp_path):
    """Point 4 of issue 12: a scale under the name ``Attention`` was converted as ``keras.layers.Attention``."""
    for path, name, title in (
        (cases / "14" / "att.keras", "attention", "__main__.Attention"),
        (own / "unprojected_mymod.keras", "unprojected", "mymod.Attention"),
        (own / "unprojected_main.keras", "unprojected", "__main__.Attention"),
    ):
        assert not_converted(path) == {name: (title, BY_HAND)}
        with pytest.raises(LayerError, match=name):
            mha_convert.convert_file(path, tmp_path / "o.pt")


def test_an_own_fused_class_of_keras_name_blocks_nothing(cases, tmp_path):
    """Point 4 of issue 12: the whole file was refused because of it."""
    report = mha_convert.convert_file(cases / "14" / "fused.keras", tmp_path / "o.pt", strict=True)
    assert report.proven
    assert [item.layer.name for item in report.plan.layers] == ["genuine"]
    assert [(item.name, item.kind) for item in report.not_converted] == [("fused", "__main__.MultiHeadAttention")]


LIVE = """
import os, sys
os.environ["KERAS_BACKEND"] = "torch"
sys.path.insert(0, sys.argv[1])
import warnings
import keras, numpy as np, mha_convert
import own_class_models as own
x = np.ones((2, 5, 8), "float32")
for kind, options, title in (
    (own.MultiHeadAttention, dict(num_heads=2, key_dim=4), "own_class_models.MultiHeadAttention"),
    (own.GroupedQueryAttention, dict(num_query_heads=4, num_key_value_heads=2, head_dim=4),
     "own_class_models.GroupedQueryAttention"),
):
    layer = kind(**options)
    layer(x, x)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        mha_convert.from_keras_layer(layer, layout="linear")
    assert any(f"its class is {title}, not keras.layers" in str(item.message) for item in told), told
    try:
        mha_convert.from_keras_layer(layer, layout="linear", strict=True)
    except mha_convert.LayerError as error:
        assert "not keras.layers.MultiHeadAttention" in str(error)
    else:
        raise AssertionError(title)
scaled = own.Attention(use_scale=True)
scaled([x, x])
try:
    mha_convert.from_keras_layer(scaled)
except mha_convert.LayerError as error:
    assert "expected attention with weights of its own" in str(error), error
else:
    raise AssertionError("an own Attention was taken for Keras'")
warnings.simplefilter("error", UserWarning)
genuine = keras.layers.MultiHeadAttention(2, 4)
genuine(x, x)
mha_convert.from_keras_layer(genuine, strict=True)
"""


@pytest.mark.process
def test_a_live_subclass_of_keras_name(keras_installed):
    """Point 4 of issue 12: in memory the class itself tells where it lives."""
    found = subprocess.run([sys.executable, "-c", LIVE, SUPPORT], cwd=PROJECT, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    ("entry", "own_class"),
    [
        ({"class_name": "MultiHeadAttention", "module": "keras.layers", "registered_name": None}, False),
        ({"class_name": "MultiHeadAttention", "module": "tf_keras.layers"}, False),
        ({"class_name": "MultiHeadAttention", "module": "keras.src.layers.attention.multi_head_attention"}, False),
        ({"class_name": "MultiHeadAttention", "module": "tensorflow.python.keras.layers"}, False),
        ({"class_name": "MultiHeadAttention"}, False),  # legacy HDF5, SavedModels
        ({"class_name": "MultiHeadAttention", "module": None, "registered_name": "MultiHeadAttention"}, True),
        ({"class_name": "MultiHeadAttention", "module": "mymod", "registered_name": "MultiHeadAttention"}, True),
        ({"class_name": "MultiHeadAttention", "module": "keras_tools.layers"}, True),
        ({"class_name": "MultiHeadAttention", "module": "keras.layers", "registered_name": "mine>Other"}, True),
        ({"class_name": "Addons>MultiHeadAttention"}, True),
        ({"class_name": "mine>MultiHeadAttention"}, True),
        ({"class_name": "CachedMultiHeadAttention", "module": "keras_hub.src.layers.modeling.cached",
          "registered_name": "keras_hub>CachedMultiHeadAttention"}, False),
        ({"class_name": "keras_hub>TransformerEncoder"}, False),
        ({"class_name": "keras_nlp>TransformerEncoder"}, False),
        ({"class_name": "TransformerEncoder", "module": "keras_nlp.layers",
          "registered_name": "keras_nlp>TransformerEncoder"}, False),
        ({"class_name": "SelfAttention"}, True),
        ({"class_name": "Bidirectional"}, False),
    ],
)  # fmt: skip
def test_whose_class_it_is(entry, own_class):
    """Point 4 of issue 12: the module decides, then the package that it was registered in, then the name."""
    assert is_own(entry) is own_class
    assert layer_config({**entry, "config": {"name": "x"}}).is_own is own_class


SHIPPED = """
import importlib, inspect, json, pkgutil, sys
import keras, keras.src.layers as layers
for module in pkgutil.walk_packages(layers.__path__, layers.__name__ + "."):
    try:
        "_test" in module.name or importlib.import_module(module.name)
    except ImportError:
        pass
found = {}
def visit(kind):
    for sub in kind.__subclasses__():
        if sub.__module__.partition(".")[0] == "keras":
            found[sub.__name__] = sub.__module__
            visit(sub)
visit(keras.layers.Layer)
public = [name for name in dir(keras.layers) if inspect.isclass(getattr(keras.layers, name))]
print(json.dumps([found, public]))
"""


@pytest.mark.process
def test_every_class_that_the_installed_keras_ships_is_keras(keras_installed):
    """Point 4 of issue 12: by its module, and where a format holds the name alone, by the name."""
    found = subprocess.run([sys.executable, "-c", SHIPPED], capture_output=True, text=True, check=True, timeout=300)
    shipped, public = json.loads(found.stdout.splitlines()[-1])
    assert len(shipped) > 100
    assert [name for name, module in shipped.items() if is_own({"class_name": name, "module": module})] == []
    aliases = set(public) - set(shipped)  # MaxPool2D is MaxPooling2D in every file
    assert [name for name in public if name not in aliases and is_own({"class_name": name})] == []


@pytest.mark.parametrize("name", ["lists_unregistered", "lists_registered"])
def test_lists_of_lists_are_told_of_every_own_class(cases, tmp_path, name):
    """Point 7 of issue 12: only registered classes were; the file is as Keras 3.12 leaves it."""
    assert LOST not in run("inspect", cases / "14" / f"{name}.keras")  # Keras 3.15 saves them
    old = rezipped(cases / "14" / f"{name}.keras", tmp_path / "old.keras", version="3.12.4", drop="layers/block/rows")
    assert LOST in run("inspect", old)
    report = mha_convert.convert_file(old, tmp_path / "o.pt")
    assert [item.layer.name for item in report.plan.layers] == ["block/last"]
    assert any(LOST in note for note in report.notes)


def test_lists_of_lists_are_not_told_of_keras_own_classes(golden, own, tmp_path):
    """Point 7 of issue 12: a note on every file would be none."""
    for path in ("keras-2.15/nested.keras", "keras-2.12/nested.keras", "keras-3.0.5/square.keras"):
        assert not any(LOST in note for note in mha_convert.read(golden / path).notes), path


@pytest.mark.process
@pytest.mark.parametrize("name", ["luong.keras", "luong.h5", "luong.savedmodel"])
def test_attention_without_weights_is_named_alike(golden, tmp_path, name):
    """Point 7 of issue 12: in `.keras` only. The files are one model of `tf_keras` 2.21."""
    path = golden / "tf_keras-2.21" / name
    found = survey(mha_convert.read(path)).not_converted
    assert {(item.name, item.kind, item.reason) for item in found} == {
        ("luong", "Attention", WEIGHTLESS),
        ("inner/inner_luong", "Attention", WEIGHTLESS),
    }
    assert len(found) == 2
    printed = run("inspect", path)
    assert f"Not converted: 'luong' (Attention): {WEIGHTLESS}. In PyTorch it is scaled_dot_product_att" in printed
    with pytest.raises(LayerError, match="luong"):
        mha_convert.convert_file(path, tmp_path / "o.pt")


def test_attention_without_weights_in_files_of_keras_3(cases):
    """Point 7 of issue 12: the same of the maker's files."""
    (in_keras,) = survey(mha_convert.read(cases / "14" / "luong.keras")).not_converted
    (in_h5,) = survey(mha_convert.read(cases / "14" / "luong.h5")).not_converted
    assert (in_keras.name, in_keras.reason, in_keras.next_step) == (in_h5.name, in_h5.reason, in_h5.next_step)
    assert (in_keras.name, in_keras.reason) == ("luong", WEIGHTLESS)


@pytest.mark.parametrize("tag", ["keras-2.4", "keras-2.10", "keras-2.15", "keras-3.3.3", "keras-3.15.1"])
def test_attention_without_weights_in_h5_of_every_keras(corpus, tag):
    """Point 7 of issue 12: `.h5` lists the layer, and nothing was said of it."""
    path = corpus / tag / "luong_bahdanau.h5"
    checkpoint = mha_convert.read(path)
    with h5py.File(path) as file:
        layers = json.loads(file.attrs["model_config"])["config"]["layers"]
    weightless = {
        layer["config"]["name"]
        for layer in layers
        if layer["class_name"] == "Attention" and not layer["config"]["use_scale"]
    }
    assert {item.name for item in survey(checkpoint).not_converted if item.reason == WEIGHTLESS} == weightless


def batch_words(files: list[Path], out: Path) -> set[tuple[str, str]]:
    """Outcome and kind of error that ``batch`` has for each file."""
    command = [sys.executable, "-m", "mha_convert", "batch", *files, "--out", out, "--keep-suffix", "--jobs", "1"]
    subprocess.run([str(part) for part in command], cwd=PROJECT, capture_output=True, check=False, timeout=120)
    lines = [json.loads(line) for line in (out / "report.jsonl").read_text().splitlines()]
    assert len(lines) == len(files)
    return {(line["outcome"], line["error"]["kind"]) for line in lines}


def test_batch_has_one_word_for_one_case(cases, golden, tmp_path):
    """Point 7 of issue 12: it said *refused* of one format and *no attention* of the other."""
    word = {("refused", "LayerError")}  # attention is there, and stays behind
    weightless = [
        *sorted((golden / "tf_keras-2.21").glob("luong.*")),
        *(cases / "14" / name for name in ("luong.keras", "luong.h5")),
    ]
    assert {path.suffix for path in weightless} == {".keras", ".h5", ".savedmodel"}
    assert batch_words(weightless, tmp_path / "weightless") == word
    assert batch_words(sorted((cases / "13").glob("m.*")), tmp_path / "own") == word


def test_an_own_attention_is_named_in_every_format(cases):
    """Point 7 of issue 12: in `.h5` only. Weights alone hold the layer's name, and no class."""
    found = {path.name: not_converted(path) for path in sorted((cases / "13").glob("m.*"))}
    assert found == {
        "m.h5": {"attention": ("own>Attention", BY_HAND)},
        "m.keras": {"attention": ("own>Attention", BY_HAND)},
        "m.weights.h5": {"attention": ("attention by name", BY_HAND)},
    }


@pytest.mark.parametrize("form", [".keras", ".h5", ".weights.h5", ".weights.h5 with its configuration"])
@pytest.mark.parametrize("name", ["nameless", "nameless_nested"])
def test_layers_that_leave_their_names_out(own, tmp_path, name, form):
    """Point 4 of issue 12: own classes without ``super().get_config()``; genuine Keras loads these files."""
    config = own / f"{name}.json" if "with" in form else None
    path = own / f"{name}{form.split()[0]}"
    layers = {layer.name: layer for layer in mha_convert.find_layers(mha_convert.read(path, config=config))}
    inner = "inner/" if name == "nameless_nested" else ""
    assert set(layers) == {f"{inner}early/att", f"{inner}late/att"} | ({"top"} if inner else set())
    with np.load(own / "kernels.npz") as kernels:
        for layer in ("early", "late"):
            ours = layers[f"{inner}{layer}/att"].query.kernel.read()
            np.testing.assert_array_equal(ours, kernels[f"{name}/{layer}"])
    assert mha_convert.convert_file(path, tmp_path / "o.pt", config=config).proven


def test_an_own_class_of_keras_name_may_leave_its_name_out(own):
    """Point 4 of issue 12: the caution does not depend on it."""
    (layer,) = mha_convert.find_layers(mha_convert.read(own / "nameless_scaled.keras"))
    assert layer.name == "scaled"
    assert any("its class is __main__.MultiHeadAttention" in told for told in layer.cautions)


def test_a_functional_model_has_every_name():
    """Point 4 of issue 12: its list has the names that a class leaves out, so one without a name was changed."""
    layer = {"class_name": "Bare", "module": "mymod", "config": {}}
    for kind in ("Functional", "Sequential"):
        model = {"class_name": kind, "module": "keras", "config": {"name": "m", "layers": [layer]}}
        if kind == "Sequential":
            assert checked_model(model, Source(Path("x"))) == model
        else:
            with pytest.raises(ReadError, match="the name of a layer of 'Functional' is null"):
                checked_model(model, Source(Path("x")))


@pytest.mark.parametrize("name", ["", None, 7])
def test_names_of_another_form_are_still_refused(own, tmp_path, name):
    """Point 4 of issue 12: Keras never writes them; and no class of Keras' own leaves its name out."""
    for change in (
        lambda config: config | {"name": name},
        lambda config: {k: config[k] for k in config if k != "name"},
    ):
        path = tmp_path / "changed.keras"
        shutil.copyfile(own / "nameless.keras", path)
        with zipfile.ZipFile(path) as archive:
            members = {member: archive.read(member) for member in archive.namelist()}
        config = json.loads(members["config.json"])
        (dense,) = [layer for layer in config["config"]["layers"] if layer["class_name"] == "Dense"]
        dense["config"] = change(dense["config"])
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in (members | {"config.json": json.dumps(config).encode()}).items():
                archive.writestr(member, content)
        with pytest.raises(ReadError, match="the name of a layer of 'Sequential' is"):
            mha_convert.read(path)
