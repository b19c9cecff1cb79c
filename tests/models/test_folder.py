"""The verb ``model`` and ``convert_model``: the folder, its options, and what is refused before anything is written."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from command_line import run
from environment import PROJECT, TESTS
from jsonschema import Draft202012Validator
from safetensors.torch import load_file, save_file

import mha_convert
from mha_convert.errors import LayerError, LayoutError, ReadError, VerificationError, WriteError
from mha_convert.records.graph import leaves

GOLDEN = TESTS / "golden" / "models"
FILES = {"model.py", "model.safetensors", "report.json", "README.md"}
SCHEMA = json.loads((PROJECT / "mha_convert" / "schemas" / "model.json").read_text())


def arrays_of(name):
    """The inputs of a golden model, and what Keras returned."""
    stored = np.load(GOLDEN / f"{name}.npz")
    return [stored[key] for key in sorted(stored.files) if key.startswith("x")], stored["y0"]


def imported(folder):
    """The folder's module, as a user's program imports it."""
    spec = importlib.util.spec_from_file_location("model", folder / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def mlp(tmp_path_factory, starts_processes):
    """What the command writes of the smallest golden model, and what it prints."""
    folder = tmp_path_factory.mktemp("models") / "mlp"
    done = run("model", GOLDEN / "mlp.keras", folder, "--json")
    return folder, json.loads(done.stdout)


def test_the_folder_holds_four_files_and_the_report_is_what_is_printed(mlp):
    folder, printed = mlp
    assert {file.name for file in folder.iterdir()} == FILES
    stored = json.loads((folder / "report.json").read_text())
    assert stored == printed
    Draft202012Validator(SCHEMA).validate(printed)
    assert printed["proven"] and printed["class_name"] == "Mlp"
    assert printed["inputs"] == [{"name": "features", "shape": [None, 8]}]
    assert {item["key"] for item in printed["tensors"]} == load_file(folder / "model.safetensors").keys()


def test_the_lines_of_docstring_and_card_load_the_model(mlp, tmp_path):
    folder, _ = mlp
    (given,), wanted = arrays_of("mlp")
    np.save(tmp_path / "x.npy", given)
    lines = imported(folder).__doc__.split("Load it with:")[1]
    program = "\n".join(line.removeprefix("    ") for line in lines.splitlines())
    assert program.strip() in (folder / "README.md").read_text()
    program += f"\nimport numpy, torch\nx = torch.from_numpy(numpy.load({str(tmp_path / 'x.npy')!r}))"
    program += "\nprint(model(x).tolist())"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    np.testing.assert_allclose(json.loads(done.stdout), wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ["mlp", "text_transformer", "translator", "lstm_classifier", "conv_free"])
def test_the_lines_of_the_card_call_the_model(name, tmp_path, monkeypatch):
    """As they stand: with inputs of the model's shapes and dtypes, and names that its ``forward`` has."""
    folder = tmp_path / "model"
    plan = mha_convert.convert_model(GOLDEN / f"{name}.keras", folder, dtype="float64", reference="none").plan
    (program,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "model", raising=False)
    found = {}
    exec(compile(program, "README.md", "exec"), found)
    outputs = found["outputs"] if isinstance(found["outputs"], tuple) else (found["outputs"],)
    sizes = [plan.model.facts[value].shape[1:] for value in leaves(plan.model.graph.outputs)]
    assert [list(each.shape) for each in outputs] == [[1, *(size or 16 for size in each)] for each in sizes]
    assert all(each.dtype == torch.float64 for each in outputs)
    monkeypatch.delitem(sys.modules, "model")


def test_the_file_is_lint_clean_and_needs_torch_alone(mlp):
    folder, _ = mlp
    options = ["--isolated", "--line-length=100", str(folder / "model.py")]
    ruff = [sys.executable, "-m", "ruff"]
    assert subprocess.run([*ruff, "check", "--select=E,F,W,I,UP,B,C4,SIM", *options]).returncode == 0
    assert subprocess.run([*ruff, "format", "--check", *options]).returncode == 0
    found = [line for line in (folder / "model.py").read_text().splitlines() if line.startswith(("import", "from"))]
    assert all(line.split()[1].split(".")[0] in ("torch", "math") for line in found)


def test_an_older_folder_is_replaced_only_when_asked_and_only_if_it_is_one_of_ours(mlp, tmp_path):
    folder = shutil.copytree(mlp[0], tmp_path / "model")
    before = (folder / "model.py").stat().st_ino
    with pytest.raises(WriteError, match="exists already.*--overwrite"):
        mha_convert.convert_model(GOLDEN / "mlp.keras", folder, reference="none")
    mha_convert.convert_model(GOLDEN / "mlp.keras", folder, reference="none", overwrite=True)
    assert (folder / "model.py").stat().st_ino != before
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(WriteError, match="holds 'notes.txt', which mha-convert did not write"):
        mha_convert.convert_model(GOLDEN / "mlp.keras", folder, reference="none", overwrite=True)
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("place", "words"),
    [("a_file", "is a file"), ("nowhere/model", "there is no folder"), ("s3://bucket/model", "is a URL")],
)
def test_places_that_cannot_be_a_folder(place, words, tmp_path):
    (tmp_path / "a_file").write_text("")
    where = place if "://" in place else tmp_path / place
    with pytest.raises(WriteError, match=words):
        mha_convert.convert_model(GOLDEN / "mlp.keras", where)


def test_nothing_is_left_of_a_conversion_that_is_refused(tmp_path, monkeypatch):
    from mha_convert.verification import whole

    def refuse(*arguments):
        raise VerificationError("Layer 'x': not the same.")

    monkeypatch.setattr(whole, "used_alone", refuse)
    with pytest.raises(VerificationError):
        mha_convert.convert_model(GOLDEN / "mlp.keras", tmp_path / "model")
    assert [*tmp_path.iterdir()] == []


def test_load_model_gives_the_class_with_its_weights_in_evaluation_mode(mlp):
    (given,), wanted = arrays_of("mlp")
    model = mha_convert.load_model(mlp[0])
    assert not model.training
    np.testing.assert_allclose(model(torch.from_numpy(given)).detach(), wanted, rtol=0, atol=2e-6)


def test_load_model_takes_the_class_that_the_report_names_wherever_the_user_moved_it(mlp, tmp_path):
    folder = shutil.copytree(mlp[0], tmp_path / "model")
    with (folder / "model.py").open("a") as file:
        file.write("\n\nclass MineTooLater(nn.Module):\n    pass\n")
    assert type(mha_convert.load_model(folder)).__name__ == "Mlp"


def test_load_model_says_what_is_missing_or_does_not_fit(mlp, tmp_path):
    with pytest.raises(ReadError, match="there is no model.py in it"):
        mha_convert.load_model(tmp_path)
    folder = shutil.copytree(mlp[0], tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    save_file({key: tensor for key, tensor in tensors.items() if key != "hidden.bias"}, folder / "model.safetensors")
    with pytest.raises(ReadError, match="do not fit each other"):
        mha_convert.load_model(folder)


@pytest.mark.process
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtype_is_that_of_every_tensor(dtype, tmp_path):
    report = mha_convert.convert_model(GOLDEN / "mlp.keras", tmp_path / "model", dtype=dtype)
    assert report.proven
    assert {str(t.dtype) for t in load_file(tmp_path / "model" / "model.safetensors").values()} == {f"torch.{dtype}"}
    assert f".to(torch.{dtype})" in (tmp_path / "model" / "model.py").read_text()
    model = mha_convert.load_model(tmp_path / "model")
    (given,), wanted = arrays_of("mlp")
    returned = model(torch.from_numpy(given).to(getattr(torch, dtype)))
    np.testing.assert_allclose(returned.double().detach(), wanted, rtol=0, atol=0.02)


def test_a_class_name_of_ones_own_and_words_that_are_none(tmp_path):
    mha_convert.convert_model(GOLDEN / "mlp.keras", tmp_path / "model", class_name="Digits", reference="none")
    assert hasattr(imported(tmp_path / "model"), "Digits")
    for name in ("two words", "x'); import os", "é"):
        with pytest.raises(LayoutError, match="is not a name for a class"):
            mha_convert.convert_model(GOLDEN / "mlp.keras", tmp_path / "other", class_name=name)
    for name in ("class", "Tensor", "torch"):  # names that Python or the file itself needs
        mha_convert.convert_model(GOLDEN / "mlp.keras", tmp_path / name, class_name=name, reference="none")
        assert hasattr(imported(tmp_path / name), f"{name}_2")


def test_until_ends_the_model_at_a_layer(tmp_path):
    mha_convert.convert_model(GOLDEN / "mlp.keras", tmp_path / "part", until="bottleneck", reference="none")
    mha_convert.convert_model(GOLDEN / "mlp.keras", tmp_path / "whole", reference="none")
    (given,), _ = arrays_of("mlp")
    part, whole = mha_convert.load_model(tmp_path / "part"), mha_convert.load_model(tmp_path / "whole")
    features = part(torch.from_numpy(given))
    assert features.shape == (3, 8) and not hasattr(part, "classes")
    torch.testing.assert_close(whole.classes(features).softmax(-1), whole(torch.from_numpy(given)))
    with pytest.raises(LayerError, match="does not call a layer 'nowhere'. Its layers are: 'hidden', 'dropout'"):
        mha_convert.convert_model(GOLDEN / "mlp.keras", tmp_path / "other", until="nowhere")


def test_logits_leave_out_the_last_softmax(tmp_path):
    mha_convert.convert_model(GOLDEN / "mlp.keras", tmp_path / "model", logits=True, reference="none")
    (given,), wanted = arrays_of("mlp")
    logits = mha_convert.load_model(tmp_path / "model")(torch.from_numpy(given))
    assert not torch.allclose(logits.sum(-1), torch.ones(3))
    np.testing.assert_allclose(logits.softmax(-1).detach(), wanted, rtol=0, atol=2e-6)
    with pytest.raises(LayerError, match="ends in a softmax or sigmoid"):
        mha_convert.convert_model(GOLDEN / "mlp.keras", tmp_path / "other", until="hidden", logits=True)


@pytest.mark.process
def test_expected_arrays_are_compared(tmp_path):
    (given,), wanted = arrays_of("mlp")
    report = mha_convert.convert_model(GOLDEN / "mlp.keras", tmp_path / "model", expect=GOLDEN / "mlp.npz")
    assert report.reference.endswith(f"and {GOLDEN / 'mlp.npz'}")
    for name, arrays in {
        "other": {"x0": given, "y0": wanted + 1e-3},
        "rolled": {"x0": given, "y0": np.roll(wanted, 1, -1)},
    }.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
        with pytest.raises(VerificationError, match=name):
            mha_convert.convert_model(GOLDEN / "mlp.keras", tmp_path / name, expect=tmp_path / f"{name}.npz")
    for name, arrays in {"empty": {}, "two": {"x0": given, "x1": given, "y0": wanted}}.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
        with pytest.raises(ReadError, match="docs/models.md"):
            mha_convert.convert_model(GOLDEN / "mlp.keras", tmp_path / name, expect=tmp_path / f"{name}.npz")


@pytest.mark.process
def test_genuine_keras_is_asked_when_wanted(tmp_path, keras_installed):
    source = GOLDEN / "translator.keras"
    report = mha_convert.convert_model(source, tmp_path / "model", reference="keras")
    assert " on tensorflow " in report.reference
    assert {item.layer for item in report.comparisons if "tensorflow" in item.reference} >= {
        "source_embedding", "encoder_attention", "cross_attention", "decoder_norm_2", "next_token",
    }  # fmt: skip


@pytest.mark.process
def test_progress_counts_the_calls_of_all_runs(tmp_path):
    seen = []
    mha_convert.convert_model(GOLDEN / "mlp.keras", tmp_path / "model", on_progress=lambda *told: seen.append(told))
    assert [number for _, number, _ in seen] == [*range(len(seen))]
    assert {total for *_, total in seen} == {len(seen)}


@pytest.mark.process
def test_weights_alone_need_the_architecture(tmp_path, keras_installed):
    import zipfile

    with zipfile.ZipFile(GOLDEN / "mlp.keras") as file:
        file.extract("model.weights.h5", tmp_path)
        file.extract("config.json", tmp_path)
    weights = (tmp_path / "model.weights.h5").rename(tmp_path / "w.weights.h5")
    config = (tmp_path / "config.json").rename(tmp_path / "architecture.json")
    done = run("model", weights, tmp_path / "model", code=1)
    assert "--config" in done.stderr
    run("model", weights, tmp_path / "model", "--config", config)
    (given,), wanted = arrays_of("mlp")
    model = mha_convert.load_model(tmp_path / "model")
    np.testing.assert_allclose(model(torch.from_numpy(given)).detach(), wanted, rtol=0, atol=2e-6)
