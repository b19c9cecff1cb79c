"""The command line as users run it: a process of its own, exit codes, and what is written to which stream."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
from command_line import run
from safetensors.torch import load_file

import mha_convert
from mha_convert.words.inspection import cost_note

pytestmark = pytest.mark.process
VERBS = ("inspect", "convert", "verify", "explain")


def test_version_and_help():
    assert run("--version").stdout == f"mha-convert {mha_convert.__version__}\n"
    help_text = run("--help").stdout
    for verb in VERBS:
        assert verb in help_text
        assert "Example: mha-convert " + verb in run(verb, "--help").stdout


def test_wrong_usage_is_two():
    assert "--nonsense" in run("inspect", "--nonsense", code=2).stderr
    assert "SOURCE" in run("convert", code=2).stderr
    run("convert", "x.keras", "--layout", "packed", code=2)


def test_inspect_says_what_is_there(samples):
    text = run("inspect", samples / "six_heads.keras").stdout
    assert ".keras, Keras 3.15.1" in text
    row = next(line for line in text.splitlines() if line.startswith("attention "))
    expected = "attention MultiHeadAttention 6 4 4 4 4 yes float32 460 q, out +1,200 does not fit +0"
    assert row.split() == expected.split()
    assert "Variables: 8 of attention (460 parameters), 0 of other layers" in text


def test_inspect_json_is_one_document_of_the_documented_form(samples):
    document = json.loads(run("inspect", samples / "translator.h5", "--json").stdout)
    assert list(document) == [
        "source",
        "format",
        "keras_version",
        "backend",
        "unknown",
        "layers",
        "unprojected",
        "other_layers",
        "not_converted",
        "variables",
        "notes",
    ]
    assert (document["format"], document["keras_version"], document["backend"]) == ("h5", "3.15.1", "tensorflow")
    cross = document["layers"][1]
    assert list(cross) == [
        "name", "kind", "class_name", "path", "num_heads", "num_key_value_heads", "key_dim", "value_dim",
        "query_features", "key_features", "value_features", "output_features", "output_shape", "use_bias", "use_gate",
        "dtype", "storage", "compute_dtype", "parameters", "has_config", "attention_axes", "sliding_window", "dropout", "scale",
        "call_options", "layouts", "refusals", "cautions", "doubt", "beyond",
    ]  # fmt: skip
    assert (cross["name"], cross["query_features"], cross["key_features"], cross["parameters"]) == (
        "cross_attention",
        16,
        12,
        960,
    )
    assert cross["layouts"]["mha"] == {
        "module": "MultiheadAttention", "embed_dim": 16, "head_size": 8, "projections": [], "added_parameters": 0, "misfit": None,
    }  # fmt: skip
    assert document["variables"] == {
        "attention": {"count": 16, "parameters": 2048},
        "other": {"count": 3, "parameters": 352},
        "optimizer": {"count": 0, "parameters": 0},
        "metric": {"count": 0, "parameters": 0},
        "counter": {"count": 0, "parameters": 0},
        "copy": {"count": 0, "parameters": 0},
        "unlisted": {"count": 0, "parameters": 0},
    }


def test_optimizer_slots_are_counted_and_are_no_layers(corpus):
    document = json.loads(run("inspect", corpus / "keras-2.12/classifier_adam.h5", "--json").stdout)
    assert len(document["layers"]) == 2
    assert document["variables"]["optimizer"]["count"] == 73


def test_convert_verify_and_load(samples, tmp_path):
    text = run("convert", samples / "six_heads.keras", "six.safetensors", cwd=tmp_path).stdout
    assert "12 comparisons with the Keras formula in NumPy (float64): largest difference " in text
    assert "every bit as converted, nothing rounded" in text
    assert "Ledger: 460 parameters in = 460 moved + 0 rescaled; 1,660 out with 1,200 identity." in text
    assert [path.name for path in tmp_path.iterdir()] == ["six.safetensors"]
    assert "Proven, " in run("verify", samples / "six_heads.keras", "six.safetensors", cwd=tmp_path).stdout
    assert set(mha_convert.load_modules(tmp_path / "six.safetensors")) == {"attention"}


def test_the_target_has_the_sources_name_by_default(samples, golden, tmp_path):
    run("convert", samples / "six_heads.keras", cwd=tmp_path)
    run("convert", golden / "keras-3.15.1/square.weights.h5", cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["six_heads.safetensors", "square.safetensors"]


def test_one_layer_with_bare_keys_loads_into_the_stock_class(samples, tmp_path):
    run("convert", samples / "translator.h5", "one.pt", "--layer", "self_attention", "--prefix", "", cwd=tmp_path)
    stock = torch.nn.MultiheadAttention(16, 2, batch_first=True)
    state = torch.load(tmp_path / "one.pt", weights_only=True)
    assert list(state) == ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
    stock.load_state_dict(state, strict=True)


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("decoder", "decoder.in_proj_weight"),
        ("decoder.", "decoder.in_proj_weight"),
        ("x.{name}.y", "x.self_attention.y.in_proj_weight"),
    ],
)
def test_prefixes(samples, tmp_path, prefix, expected):
    target = tmp_path / "one.safetensors"
    run("convert", samples / "translator.h5", target, "--layer", "self_attention", "--prefix", prefix)
    assert expected in load_file(target)
    run("verify", samples / "translator.h5", target)


def test_bare_keys_of_two_layers_are_refused(samples, tmp_path):
    error = run("convert", samples / "encoder.weights.h5", tmp_path / "x.pt", "--prefix", "", code=1).stderr
    assert "both would write 'query_projection.weight'. Convert one of them with --layer" in error
    assert not list(tmp_path.iterdir())


def test_json_report_lists_every_variable(corpus, tmp_path):
    source = corpus / "keras-2.12/classifier_adam.h5"
    document = json.loads(run("convert", source, "x.safetensors", "--json", cwd=tmp_path).stdout)
    listed = [path for paths in document["variables"].values() for path in paths]
    assert len(listed) == len(set(listed)) == len(mha_convert.read(source).variables) == 109
    assert document["proven"] is True and document["reference"].startswith("the Keras formula in NumPy")
    assert len(document["comparisons"]) == 2 * 4 * 3
    assert all(comparison["passed"] for comparison in document["comparisons"])


COST = "Note: layout mha adds {} numbers to {}; --layout linear adds none, and its modules are called in the same way."


def test_a_high_cost_is_told_with_the_way_out(real, tmp_path):
    """Point 14 of issue 12: ``inspect`` did not say it, though the README did."""
    source = real / "juangtz/transformer_classifier.keras"
    text = run("convert", source, "x.safetensors", cwd=tmp_path).stdout
    (note,) = re.findall(COST.format("([\\d,]+)", "([\\d,]+)"), text)
    added, held = (int(number.replace(",", "")) for number in note)
    assert round(added / held) == 293
    assert COST.format(*note) in run("inspect", source).stdout.splitlines()
    assert "Note: layout" not in run("convert", source, "y.safetensors", "--layout", "linear", cwd=tmp_path).stdout


def test_the_cost_is_exact_and_told_only_where_it_outweighs(samples, tmp_path):
    """Point 14 of issue 12: 1.5 times was called "1 times as many"."""
    for file, numbers in (("six_heads.keras", ("1,200", "460")), ("textbook.keras", None), ("translator.h5", None)):
        shown = run("inspect", samples / file).stdout, run("convert", samples / file, cwd=tmp_path).stdout
        for text in shown:
            assert ("Note: layout" in text) == bool(numbers), file
            assert not numbers or COST.format(*numbers) in text.splitlines()
    assert cost_note("mha", 1000, 1500) == [COST.format("1,500", "1,000")]
    assert cost_note("mha", 1000, 1000) == []


@pytest.mark.parametrize("prefix", ["{layer}", "enc.{name", "{name}}"])
def test_braces_that_mean_nothing_are_refused(samples, tmp_path, prefix):
    error = run("convert", samples / "six_heads.keras", tmp_path / "x.pt", "--prefix", prefix, code=1).stderr
    assert "has braces other than {name}" in error


def test_a_layer_with_braces_in_its_name_is_verified_again(golden, tmp_path):
    import shutil

    import h5py

    source = tmp_path / "x.weights.h5"
    shutil.copyfile(golden / "keras-3.15.1/square.weights.h5", source)
    with h5py.File(source, "a") as file:
        file["layers/multi_head_attention/vars"].attrs["name"] = "a{b}{name}"
    run("convert", source, tmp_path / "x.pt")
    run("verify", source, tmp_path / "x.pt")


@pytest.mark.parametrize("name", ["m.txt", "class.y.py", "my-mod.py"])
def test_module_files_are_python_modules(samples, tmp_path, name):
    error = run("convert", samples / "six_heads.keras", tmp_path / "x.pt", "--module", tmp_path / name, code=1).stderr
    assert "is not a name that Python can import" in error and not list(tmp_path.iterdir())


def test_unproven_is_said_loudly(samples, tmp_path):
    text = run("convert", samples / "six_heads.keras", "x.safetensors", "--reference", "none", cwd=tmp_path).stdout
    assert "NOT PROVEN" in text
    document = json.loads(
        run(
            "convert", samples / "six_heads.keras", "y.safetensors", "--reference", "none", "--json", cwd=tmp_path
        ).stdout
    )
    assert document["proven"] is False and document["reference"] is None


def test_an_existing_target_stays(samples, tmp_path):
    target = tmp_path / "x.safetensors"
    target.write_text("mine")
    error = run("convert", samples / "six_heads.keras", target, code=1).stderr
    assert "exists already. Use --overwrite" in error
    assert target.read_text() == "mine"
    run("convert", samples / "six_heads.keras", target, "--overwrite")
    assert len(load_file(target)) == 10


def test_a_failing_conversion_leaves_an_existing_target_alone(golden, tmp_path):
    target = tmp_path / "x.safetensors"
    target.write_text("mine")
    run("convert", golden / "keras-3.15.1/gate.keras", target, "--overwrite", code=1)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_verify_refuses_another_models_target(samples, golden, tmp_path):
    target = tmp_path / "x.safetensors"
    run("convert", golden / "keras-2.15/square.keras", target)
    run("verify", golden / "keras-2.12/square.keras", target)  # the same weights, written by another Keras
    assert "holds layer 'attn', which is not in" in run("verify", samples / "six_heads.keras", target, code=1).stderr


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_verify_notices_one_wrong_number_in_a_file(samples, tmp_path, suffix):
    target = tmp_path / f"x{suffix}"
    run("convert", samples / "six_heads.keras", target)
    data = bytearray(target.read_bytes())
    key = (
        load_file(target)["attention.output_projection.weight"]
        if suffix == ".safetensors"
        else torch.load(target, weights_only=True)["attention.output_projection.weight"]
    )
    place = data.index(key.numpy().tobytes()[:64])
    data[place + 2] ^= 1
    target.write_bytes(data)
    error = run("verify", samples / "six_heads.keras", target, code=1).stderr
    assert "differs from Keras in 1 of 96 numbers, first at [0, 0]" in error or "not a state_dict" in error


def test_explain_answers_with_the_layers_own_numbers(samples):
    text = run("explain", samples / "encoder.weights.h5", "first/attention").stdout
    for part in (
        "MultiHeadAttention(num_heads=3, key_dim=4, value_dim=5), 479 parameters",
        "num_heads × key_dim = 12 is not the query's width 8. Keras allows any",
        "nn.MultiheadAttention(15, 3), with nn.Linear around it",
        "multiplied by sqrt(5 / 4) = 1.11803",
        "True attends. PyTorch: True blocks",
        "layer(query, value, key=None)",
        "average_attn_weights=False",
        "batch first",
        "(8, 3, 4)",
        "attention/query_dense/vars/0",
    ):
        assert part in text, part
    assert "second/attention" not in text
    whole = run("explain", samples / "encoder.weights.h5").stdout
    assert "Layer first/attention" in whole and "(the same for second/attention)" in whole
    assert run("explain", samples / "translator.h5").stdout.count("Traps:") == 2


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("textbook.keras", []), ("six_heads.keras", []), ("encoder.weights.h5", []), ("translator.h5", ["--layout", "linear"]),
        ("encoder.weights.h5", ["--layout", "padded"]), ("translator.h5", ["--layout", "encoder"]),
    ],
)  # fmt: skip
def test_the_lines_that_explain_prints_run(samples, tmp_path, file, options):
    name = mha_convert.find_layers(mha_convert.read(samples / file))[0].name
    lines = run("explain", samples / file, name, *options).stdout.split("Convert, load and call:\n")[1].splitlines()
    (command,) = [line.strip().removeprefix("$ mha-convert ") for line in lines if line.strip().startswith("$")]
    code = "\n".join(line[2:] for line in lines if not line.strip().startswith("$"))
    # strict=False takes a file of other keys, too: whatever was converted must be what the module holds.
    code += (
        "\nfrom safetensors.torch import load_file\nheld = [tensor.sum() for tensor in attention.state_dict().values()]"
    )
    code += "\nassert held == [tensor.sum() for tensor in load_file('attention.safetensors').values()]"
    subprocess.run(
        f"{sys.executable} -m mha_convert {command}", shell=True, cwd=tmp_path, check=True, capture_output=True
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_a_closed_pipe_is_no_traceback(samples):
    command = f"{sys.executable} -m mha_convert explain {samples / 'translator.h5'} | head -n 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert result.stdout == "Layer self_attention\n" and result.stderr == ""


def test_names_from_files_cannot_control_the_terminal(tmp_path):
    import h5py
    import numpy as np

    with h5py.File(tmp_path / "x.h5", "w") as file:
        name = "evil\x1b[31m"
        file.attrs["layer_names"] = [name]
        group = file.create_group(name)
        weights = {f"{name}/{role}/kernel:0": (4, 1, 4) for role in ("query", "key", "value")} | {
            f"{name}/attention_output/kernel:0": (1, 4, 4)
        }
        for weight, shape in weights.items():
            group[weight] = np.ones(shape, "f4")
        group.attrs["weight_names"] = list(weights)
    for verb in ("inspect", "explain"):
        text = run(verb, tmp_path / "x.h5").stdout
        assert "\x1b" not in text and "evil\\x1b[31m" in text
    assert "\x1b" not in run("convert", tmp_path / "x.h5", tmp_path / "x.pt", code=1).stderr


def test_paths_cannot_break_the_one_line(tmp_path):
    assert "no\\nfile" in run("inspect", "no\nfile", code=1).stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_behind_standard_output_is_one_line(samples):
    command = f"{sys.executable} -m mha_convert explain {samples / 'six_heads.keras'} > /dev/full"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1) and "no space left" in result.stderr


def test_an_old_console_is_no_traceback(samples, tmp_path):
    text = run("convert", samples / "six_heads.keras", tmp_path / "x.pt", PYTHONIOENCODING="cp1252").stdout
    assert "Proven" in text


def test_a_terminated_conversion_leaves_no_draft(real, tmp_path):
    import signal
    import time

    command = [
        sys.executable,
        "-m",
        "mha_convert",
        "convert",
        str(real / "juangtz/transformer_classifier.keras"),
        "x.pt",
    ]
    process = subprocess.Popen(command, cwd=tmp_path)
    while process.poll() is None and not list(tmp_path.iterdir()):
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    assert process.wait() in (143, 0)
    assert [path.name for path in tmp_path.iterdir()] in ([], ["x.pt"])


def test_on_a_terminal_tables_are_drawn_and_a_bar_moves(samples, tmp_path):
    """A pseudo-terminal: colours and a bar; the same words as in a pipe."""
    import pty

    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mha_convert", "convert", str(samples / "translator.h5"), "x.safetensors"],
        cwd=tmp_path, stdout=follower, stderr=follower, env=os.environ | {"COLUMNS": "150", "TERM": "xterm"},
    )  # fmt: skip
    os.close(follower)
    text = b""
    while True:
        try:
            chunk = os.read(leader, 4096)
        except OSError:
            break
        if not chunk:
            break
        text += chunk
    os.close(leader)
    assert process.wait() == 0
    assert b"\x1b[" in text and b"cross_attention" in text and b"Proven, outputs" in text
