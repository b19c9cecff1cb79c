"""Files whose names and order disagree; arrays of a `.h5` that no layer lists (issue 12, point 9)."""

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
from environment import SHARED, SUPPORT, require

import mha_convert
from mha_convert.errors import ReadError

AS_EVER = {  # in Keras' order, as `.h5` lists them
    "plain": ["x", "y"],
    "made_otherwise": ["early", "late"],
    "branches": ["b", "a", "c"],
    "own_class": ["first", "second"],
    "nested": ["first/b", "first/a", "second/d", "second/c", "top"],
    "shared": ["both", "model/inner", "last"],
    "frozen_layer": ["first/a", "first/b", "second/d", "second/c", "top"],
    "frozen_model": ["first/b", "first/a", "second/d", "second/c", "top"],
    "quantized": ["first/b", "first/a", "second/d", "second/c", "top"],
    "grouped": ["grouped", "luong"],
}
ORDER = "configuration's order says that .* is '{}', the name in the file says '{}'"
CHANGED = "The file was changed or put together from two models; save the model again."


def run(script: Path, folder: Path) -> Path:
    """What a script with Keras writes; never in this process."""
    subprocess.run([sys.executable, script, folder], check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def cases(keras_installed, tmp_path_factory, starts_processes) -> Path:
    """The six forms of the issue."""
    script = SHARED / "cases" / "16_names_against_order.py"
    require(script.is_file(), "../shared/cases")
    return run(script, tmp_path_factory.mktemp("cases"))


@pytest.fixture(scope="module")
def models(keras_installed, tmp_path_factory, starts_processes) -> Path:
    """Genuine files whose order is unusual."""
    return run(SUPPORT / "order_models.py", tmp_path_factory.mktemp("order"))


def names(path: Path, config: Path | None = None) -> list[str]:
    return [layer.name for layer in mha_convert.find_layers(mha_convert.read(path, config=config))]


def notes_on_order(path: Path, config: Path | None = None) -> list[str]:
    return [note for note in mha_convert.read(path, config=config).notes if "order" in note]


def config_of(path: Path) -> dict:
    """The configuration of a `.keras`."""
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("config.json"))


def rezipped(source: Path, target: Path, *, config: dict | None = None, change=None) -> Path:
    """A `.keras` with another configuration, or with changed weights."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "config.json" and config:
                content = json.dumps(config).encode()
            if name.endswith(".h5") and change:
                image = BytesIO(content)
                with h5py.File(image, "r+") as file:
                    change(file)
                content = image.getvalue()
            new.writestr(name, content)
    return target


def exchange(layers: list, first: str, second: str) -> None:
    """Two entries of a configuration, where they stand."""
    at = {layer["config"]["name"]: number for number, layer in enumerate(layers)}
    layers[at[first]], layers[at[second]] = layers[at[second]], layers[at[first]]


def inner(model: dict, name: str) -> list:
    """The layers of a nested model."""
    return next(each for each in model["config"]["layers"] if each["config"]["name"] == name)["config"]["layers"]


def swap_labels(file: h5py.File, first: str, second: str) -> None:
    one, two = file[f"{first}/vars"], file[f"{second}/vars"]
    one.attrs["name"], two.attrs["name"] = two.attrs["name"], one.attrs["name"]


@pytest.mark.parametrize(
    ("file", "fact"),
    [
        ("mix.keras", ORDER.format("x", "y")),
        ("labels.keras", ORDER.format("x", "y")),
        ("layers.h5", ORDER.format("x", "y")),
        ("config.h5", ORDER.format("y", "x")),
        ("weights.h5", "layer 'x' lists the weights of 'key' where Keras makes those of 'query'"),
    ],
)
def test_a_file_that_says_two_things_is_refused_with_both(cases, tmp_path, file, fact):
    for path in (cases / file, shutil.copy(cases / file, tmp_path / "x")):
        with pytest.raises(ReadError, match=fact) as error:
            mha_convert.convert_file(path, tmp_path / "x.pt")
        assert "Keras loads by order and would use" in str(error.value) and str(error.value).endswith(CHANGED)
        assert "\n" not in str(error.value) and not (tmp_path / "x.pt").exists()


def test_weights_of_a_model_that_lists_its_layers_otherwise_have_a_note(cases, tmp_path):
    """Both files are as Keras wrote them, so the names are right, and are what is converted."""
    report = mha_convert.convert_file(cases / "b.weights.h5", tmp_path / "x.pt", config=cases / "a.json")
    (note,) = [note for note in report.notes if "order" in note]
    assert "'layers/multi_head_attention' is 'y' in the file, 'x' by the order" in note
    assert "Keras' own load_weights loads by order and would swap them" in note
    own = mha_convert.find_layers(mha_convert.read(cases / "b.keras"))
    expected = {layer.name: layer.query.kernel.read() for layer in own}
    for item in report.plan.layers:
        np.testing.assert_array_equal(item.layer.query.kernel.read(), expected[item.layer.name])


def test_the_models_themselves_are_read_without_a_word(cases):
    for name in "ab":
        for path in (cases / f"{name}.keras", cases / f"{name}.h5", cases / f"{name}.weights.h5"):
            config = cases / f"{name}.json" if path.name.endswith(".weights.h5") else None
            assert sorted(names(path, config)) == ["x", "y"] and not notes_on_order(path, config)


@pytest.mark.parametrize("model", AS_EVER)
def test_genuine_files_of_unusual_order_are_read_as_ever(models, model):
    """Made in another order than called, branches, own classes, shared, frozen, quantized: one reading, no word."""
    with np.load(models / "kernels.npz") as archive:
        kernels = {name.partition("/")[2]: archive[name] for name in archive if name.startswith(f"{model}/")}
    for path, config in (
        (models / f"{model}.keras", None),
        (models / f"{model}.h5", None),
        (models / f"{model}.weights.h5", models / f"{model}.json"),
    ):
        assert sorted(names(path, config)) == sorted(AS_EVER[model])
        assert not notes_on_order(path, config)
        for layer in mha_convert.find_layers(mha_convert.read(path, config=config)):
            own = layer.name.rpartition("/")[2]
            if own in kernels:
                np.testing.assert_array_equal(layer.query.kernel.read(), kernels[own])
    assert names(models / f"{model}.h5") == AS_EVER[model]


def test_a_sequential_model_of_custom_layers_is_read_as_ever(models):
    for suffix in (".keras", ".weights.h5"):
        assert names(models / f"sequential{suffix}") == ["two/att", "one/att"]
    assert len(names(models / "sequential.h5")) == 2


@pytest.mark.parametrize(("model", "layer"), [("frozen_query", "x"), ("frozen_rest", "x"), ("adapted", "first/b")])
def test_frozen_projections_are_told_of_and_converted_by_name(models, model, layer):
    """A `.h5` lists what is trained first, and Keras itself loads it by position; no configuration says it."""
    (note,) = notes_on_order(models / f"{model}.h5")
    assert note.startswith(f"Layer '{layer}' lists the weights of 'key' where Keras makes those of 'query'")
    assert "Keras itself loads a .h5 by order, and would swap or refuse them" in note
    assert not notes_on_order(models / f"{model}.keras")
    with np.load(models / "kernels.npz") as archive:
        expected = archive[f"{model}/{layer.rpartition('/')[2]}"]
    if model != "adapted":  # there the kernel is made of three arrays
        found = next(each for each in mha_convert.find_layers(mha_convert.read(models / f"{model}.h5")))
        np.testing.assert_array_equal(found.query.kernel.read(), expected)


def test_keras_does_exchange_what_the_note_says(models, tmp_path):
    code = (
        "import keras, sys; m = keras.models.load_model(sys.argv[1], compile=False)\n"
        "import numpy; numpy.save(sys.argv[2], m.get_layer('x')._query_dense.kernel)"
    )
    command = [sys.executable, "-c", code, models / "frozen_rest.h5", tmp_path / "x.npy"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    layer = mha_convert.find_layers(mha_convert.read(models / "frozen_rest.h5"))[0]
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), layer.key.kernel.read())


@pytest.mark.parametrize(
    ("how", "fact"),
    [
        ("labels", ORDER.format("b", "a")),
        ("configuration", ORDER.format("a", "b")),
        ("models", "holds layer 'd', which its configuration does not name"),
    ],
)
def test_nested_models_are_compared_too(models, tmp_path, how, fact):
    config = config_of(models / "nested.keras")
    change = None
    if how == "labels":
        at = "layers/functional/layers/multi_head_attention"
        change = lambda file: swap_labels(file, at, f"{at}_1")  # noqa: E731
    elif how == "configuration":
        exchange(inner(config, "first"), "a", "b")
    else:
        change = lambda file: swap_labels(file, "layers/functional", "layers/functional_1")  # noqa: E731
    path = rezipped(models / "nested.keras", tmp_path / "x.keras", config=config, change=change)
    with pytest.raises(ReadError, match=fact):
        mha_convert.read(path)


def test_folders_and_shards_are_compared_too(models, tmp_path):
    folder = tmp_path / "model"
    with zipfile.ZipFile(models / "plain.keras") as archive:
        archive.extractall(folder)
    assert names(folder) == ["x", "y"]
    config = json.loads((folder / "config.json").read_text())
    exchange(config["config"]["layers"], "x", "y")
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ReadError, match=ORDER.format("y", "x")):
        mha_convert.read(folder)
    for name in ("model.weights.h5", "metadata.json"):
        (folder / name).rename(tmp_path / name)
    (folder / "config.json").rename(tmp_path / "config.json")
    index = {"metadata": {}, "weight_map": {"/layers/multi_head_attention/query_dense/vars": ["model.weights.h5"]}}
    (tmp_path / "model.weights.json").write_text(json.dumps(index))
    (note,) = notes_on_order(tmp_path / "model.weights.json", tmp_path / "config.json")
    assert "'x' in the file, 'y' by the order" in note


def changed(source: Path, target: Path, change) -> Path:
    """A copy of a `.h5`, changed in place."""
    shutil.copyfile(source, target)
    with h5py.File(target, "r+") as file:
        change(file)
    return target


def reorder(group: h5py.Group, attribute: str, order) -> None:
    """A list of names in another order."""
    group.attrs[attribute] = order(list(group.attrs[attribute]))


def test_nested_configuration_in_another_order_is_refused_in_h5(models, tmp_path):
    def change(file):
        model = json.loads(file.attrs["model_config"])
        exchange(inner(model, "first"), "a", "b")
        file.attrs["model_config"] = json.dumps(model)

    with pytest.raises(
        ReadError, match="attention layers in 'first' is 'first/a', the name in the file says 'first/b'"
    ):
        mha_convert.read(changed(models / "nested.h5", tmp_path / "x.h5", change))


def test_nested_weights_in_another_order_are_refused_in_h5(models, tmp_path):
    def change(file):
        reorder(file["model_weights/first"], "weight_names", lambda found: found[8:] + found[:8])

    with pytest.raises(ReadError, match="is 'first/b', the name in the file says 'first/a'"):
        mha_convert.read(changed(models / "nested.h5", tmp_path / "x.h5", change))


@pytest.mark.parametrize(
    ("order", "fact"),
    [
        (lambda w: [*w[4:6], *w[:4], *w[6:]], "'value' where Keras makes those of 'query'"),
        (lambda w: [*w[6:], *w[4:6], *w[2:4], *w[:2]], "'attention_output' where Keras makes those of 'query'"),
        (lambda w: [w[2], w[1], w[0], *w[3:]], "'key' where Keras makes those of 'query'"),  # kernels alone
        (lambda w: [w[0], w[3], w[2], w[1], *w[4:]], "'key' where Keras makes those of 'query'"),  # biases alone
    ],
)
def test_weights_of_one_layer_in_any_other_order_are_refused(models, tmp_path, order, fact):
    def change(file):
        reorder(file["model_weights/x"], "weight_names", order)

    with pytest.raises(ReadError, match=f"layer 'x' lists the weights of {fact}"):
        mha_convert.read(changed(models / "plain.h5", tmp_path / "x.h5", change))


def test_weights_of_attention_without_projections_are_compared(models, tmp_path):
    def change(file):
        reorder(file["model_weights/luong"], "weight_names", lambda found: found[::-1])

    with pytest.raises(ReadError, match="layer 'luong' lists the weights of 'concat_score_weight' where .* 'scale'"):
        mha_convert.read(changed(models / "grouped.h5", tmp_path / "x.h5", change))


def weights_only(source: Path, target: Path) -> Path:
    """What `save_weights` of Keras 2 wrote: the lists at the root."""
    with h5py.File(source) as old, h5py.File(target, "w") as new:
        for name in old["model_weights"]:
            old.copy(f"model_weights/{name}", new)
        for name, value in old["model_weights"].attrs.items():
            new.attrs[name] = value
    return target


def test_a_separate_configuration_of_another_order_is_a_note_for_h5_too(cases, tmp_path):
    path = weights_only(cases / "b.h5", tmp_path / "b.h5")
    (note,) = notes_on_order(path, cases / "a.json")
    assert "number 1 of the layers with weights in layer_names is 'y' in the file, 'x' by the order" in note
    assert not notes_on_order(path, cases / "b.json") and not notes_on_order(path)


def test_without_a_configuration_the_order_of_weights_is_told(models, tmp_path):
    path = weights_only(models / "plain.h5", tmp_path / "x.h5")
    with h5py.File(path, "r+") as file:
        reorder(file["x"], "weight_names", lambda found: [*found[2:4], *found[:2], *found[4:]])
    (note,) = notes_on_order(path)
    assert note.startswith("Layer 'x' lists the weights of 'key' where Keras makes those of 'query'")


@pytest.mark.parametrize("whole", [True, False])
def test_arrays_that_no_layer_lists_are_named_and_counted(models, tmp_path, whole):
    """They were dropped, and the report said that nothing else was in the file."""

    def change(file):
        top = file["model_weights"] if whole else file
        top["x/x/extra"] = np.zeros((2, 3))
        top["ghost/query/kernel"] = np.zeros(4)
        file["stray"] = np.zeros(1)

    source = models / "plain.h5" if whole else weights_only(models / "plain.h5", tmp_path / "w.h5")
    path, front = changed(source, tmp_path / "x.h5", change), "model_weights/" if whole else ""
    report = mha_convert.convert_file(path, tmp_path / "x.safetensors")
    (note,) = [note for note in report.notes if "no layer lists" in note]
    assert note.startswith("3 arrays are in the file that no layer lists: ")
    assert all(f"'{name}'" in note for name in (f"{front}ghost/query/kernel", f"{front}x/x/extra", "stray"))
    command = [sys.executable, "-m", "mha_convert", "verify", path, tmp_path / "x.safetensors"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    assert "Variables not in the target: 3 that no layer lists." in said and "Nothing else is in the file" not in said
    command[3:] = ["inspect", path]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    assert "3 that no layer lists (11 parameters)" in said


def test_one_array_too_many_is_one(models, tmp_path):
    def change(file):
        file["model_weights/x/x/extra"] = np.zeros(1)

    checkpoint = mha_convert.read(changed(models / "plain.h5", tmp_path / "x.h5", change))
    assert checkpoint.notes[-1].startswith("1 array is in the file that no layer lists: 'model_weights/x/x/extra'.")
