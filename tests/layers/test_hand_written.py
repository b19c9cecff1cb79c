"""Hand-written attention: outputs of genuine layers, from every format; and every mistake in a row, word for word."""

import json
import os
import runpy
import shlex
import subprocess
import sys

import numpy as np
import pytest
import torch
from command_line import run
from environment import SUPPORT
from safetensors.torch import load_file

import mha_convert
from mha_convert.layers import survey
from mha_convert.layers.descriptions import read_attention
from mha_convert.pipeline import explain_file

TUTORIAL = "num_heads=3,query=wq,key=wk,value=wv,output=dense"
DENSE = "num_heads={},query=dense_{},key=dense_{},value=dense_{},output=dense_{}"
RAW = "num_heads=4,num_key_value_heads=2,query=w_q,key=w_k,value=w_v,output=w_o,query_bias=b_q,key_bias=b_k,value_bias=b_v"
NUMBERED = "num_heads=4,num_key_value_heads=2,query=0,key=2,value=4,output=6,query_bias=1,key_bias=3,value_bias=5"
FLAT = "num_heads=2,query=first_q,key=first_k,value=first_v,output=first_o"
BERT = "num_heads=2,query=inner/query,key=inner/key,value=inner/value,output=out"
V3 = {
    "tutorial": (f"block_*/mha:{TUTORIAL}", f"cross:{TUTORIAL.replace('3', '4')}"),
    "bert": (f"attention:{BERT}",),
    "raw": (f"raw:{NUMBERED},output_bias=7",),
    "flat": (f".:{FLAT}",),
}
ROWS = {(model, file): rows for model, rows in V3.items() for file in ("model.keras", "model.weights.h5")} | {
    ("tutorial", "ck"): (f"**/mha:{TUTORIAL}", f"model/cross:{TUTORIAL.replace('3', '4')}"),
    ("bert", "ck"): (f"*/attention:{BERT}",),
    ("raw", "ck"): (f"model/raw:{RAW},output_bias=b_o",),
    ("flat", "ck"): (f"model:{FLAT},name=model/attention",),
    ("raw", "model.h5"): (f"raw:{RAW},output_bias=b_o",),
    ("flat", "model.h5"): (f".:{FLAT}",),
    ("tutorial", "model.h5"): (f"cross:{DENSE.format(4, 10, 11, 12, 13)}",),
}


@pytest.fixture(scope="session")
def hand_written(keras_installed, tmp_path_factory, starts_processes):
    """What the installed Keras writes now."""
    folder = tmp_path_factory.mktemp("hand_written")
    command = [sys.executable, SUPPORT / "hand_written_models.py", folder]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, check=True, capture_output=True, timeout=300, env=environment)
    return folder


@pytest.mark.parametrize("layout", ["mha", "linear"])
@pytest.mark.parametrize(("model", "file"), ROWS)
def test_outputs_are_those_of_the_hand_written_layers(hand_written, tmp_path, model, file, layout):
    source, target = hand_written / model / file, tmp_path / "x.safetensors"
    report = mha_convert.convert_file(source, target, attention=ROWS[model, file], layout=layout)
    assert report.proven and mha_convert.verify_file(source, target).proven
    expected = np.load(hand_written / model / "expected.npz")
    modules = mha_convert.load_modules(target)
    for name, module in modules.items():
        inputs = torch.from_numpy(expected[f"{name.removeprefix('model/')}:inputs"])
        output, _ = module(inputs, inputs, inputs)
        np.testing.assert_allclose(
            output.detach().numpy(), expected[f"{name.removeprefix('model/')}:output"], atol=2e-5, rtol=0
        )
    if (model, file) != ("tutorial", "model.h5"):
        assert len(modules) == len(expected.files) // 2
        assert report.not_converted == ()


def test_a_caution_says_what_is_not_proven_and_strict_refuses(hand_written, tmp_path):
    source = hand_written / "bert/model.keras"
    (layer,) = mha_convert.find_layers(mha_convert.read(source), read_attention(V3["bert"]))
    assert layer.cautions == (
        "its kernels do not show its heads: num_heads=2 and the roles of its kernels were given, and softmax(q · k / "
        "sqrt(4)) · v over one time axis, with heads as consecutive blocks of columns, is assumed, which nothing in the file "
        "proves; compare with your own code's outputs",
        "its query, key, value have no bias, and zeros are put in its place, which the ledger counts as parameters",
    )
    with pytest.raises(mha_convert.LayerError, match="nothing in the file proves"):
        mha_convert.convert_file(source, tmp_path / "x.pt", attention=V3["bert"], strict=True)
    assert explain_file(source, attention=V3["bert"]).plans[0].layer.key_dim == 4


def test_the_candidate_gives_the_row(hand_written):
    findings = survey(mha_convert.read(hand_written / "tutorial/model.keras"))
    assert [item.next_step for item in findings.not_converted][2] == (
        "If it is, use --attention cross:num_heads=4,query=wq,key=wk,value=wv,output=dense"
    )


def test_rows_in_a_file_and_on_the_command_line(hand_written, tmp_path):
    rows = tmp_path / "rows.toml"
    row = read_attention(V3["flat"])[0].fields
    rows.write_text("[[attention]]\n" + "\n".join(f"{name} = {json.dumps(value)}" for name, value in row.items()))
    assert read_attention(rows) == read_attention(str(rows)) == read_attention(row) == read_attention(V3["flat"])
    command = [sys.executable, "-m", "mha_convert", "inspect", str(hand_written / "flat/model.keras"), "--json"]
    found = json.loads(subprocess.run([*command, "--attention", str(rows)], check=True, capture_output=True).stdout)
    assert [layer["name"] for layer in found["layers"]] == ["attention"]
    assert found["variables"]["attention"]["count"] == 8 and found["variables"]["other"]["count"] == 0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("nowhere/*:" + TUTORIAL, "Attention row 'nowhere/*' matches none of the 22 groups of the file: "),
        ("cross:" + TUTORIAL.replace("wq", "q"), "'cross' has no query kernel 'q': nothing in it has this name. Its kernels are: 'dense' (16, 16), 'wk' (12, 16), 'wq' (12, 16), 'wv' (12, 16)."),
        ("cross:" + TUTORIAL, "query kernel (12, 16) has 16 columns, not a multiple of num_heads=3"),
        ("cross:" + TUTORIAL.replace("3", "4") + ",num_key_value_heads=2", "key kernel (12, 16) has 16 columns, expected heads × key_dim = 2 × 4 = 8"),
        ("cross:" + TUTORIAL.replace("3", "4").replace("wk", "wq"), "for its key kernel, which is the query kernel of layer 'cross' already. Name each kernel once."),
        ("cross:num_heads=4", "Attention row 'cross:num_heads=4' has no query, no key, no value, no output."),
        ("cross:" + TUTORIAL.replace("3", "x"), "num_heads is x, expected a number from 1"),
        ("cross:" + TUTORIAL + ",dropout=2", "has dropout, expected some of num_heads, num_key_value_heads, scale, "),
        ("cross:" + TUTORIAL + ",scale=none", "scale is none, expected a number above 0, 1/sqrt(key_dim) or 1/sqrt(width)"),
        ("cross", "Attention row 'cross' has no path with a colon after it."),
    ],
)  # fmt: skip
def test_what_a_row_can_get_wrong(hand_written, row, message):
    checkpoint = mha_convert.read(hand_written / "tutorial/model.keras")
    with pytest.raises(mha_convert.LayerError) as error:
        survey(checkpoint, read_attention(row))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_bias_that_was_forgotten_is_named(hand_written):
    checkpoint = mha_convert.read(hand_written / "raw/model.keras")
    (layer,) = mha_convert.find_layers(checkpoint, read_attention(f"raw:{NUMBERED}"))
    assert (
        layer.cautions[1]
        == "besides its kernels the layer holds variable 7 (7,), which no field names and nothing converts"
    )
    (layer,) = mha_convert.find_layers(checkpoint, read_attention(f"raw:{NUMBERED},output_bias=7"))
    assert len(layer.cautions) == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (f"cross:{TUTORIAL.replace('3', '4')},query_bias=wk/1", "Attention row 'cross': 'cross': 'wq' has a bias of its own, and query_bias is 'wk/1'. Leave query_bias out."),
        ("cross:num_heads=4,query=wq/0,key=wk,value=wv,output=dense,query_bias=wk/1", "Attention row 'cross': layer 'cross' takes layers/multi_head_attention/wk/vars/1 for its key bias, which is the query bias of layer 'cross' already. Name each bias once."),
    ],
)  # fmt: skip
def test_a_bias_belongs_to_one_kernel(hand_written, row, message):
    checkpoint = mha_convert.read(hand_written / "tutorial/model.keras")
    with pytest.raises(mha_convert.LayerError) as error:
        survey(checkpoint, read_attention(row))
    assert str(error.value) == message
    mha_convert.find_layers(checkpoint, read_attention(f"cross:{TUTORIAL.replace('3', '4')},query_bias=wq/1"))


def test_module_like_and_rename_with_rows(hand_written, tmp_path):
    """The rows go with every other option, and into the command that match gives."""
    source, row = hand_written / "tutorial/model.keras", V3["tutorial"][0]
    model = torch.nn.ModuleList([torch.nn.MultiheadAttention(12, 3, batch_first=True) for _ in range(2)])
    torch.save(model.state_dict(), tmp_path / "model.pt")
    like = ("--attention", row, "--like", "model.pt")
    text = run("match", source, "model.pt", "--attention", row, "--rules", "rules.toml", cwd=tmp_path).stdout
    command = next(line for line in text.splitlines() if "mha-convert convert" in line)
    words = shlex.split(command.partition("mha-convert ")[2].replace("TARGET", "by_rules.safetensors"))
    run(*words, "--module", "attention.py", cwd=tmp_path)
    run("convert", source, "x.safetensors", *like, cwd=tmp_path)
    assert (tmp_path / "x.safetensors").read_bytes() == (tmp_path / "by_rules.safetensors").read_bytes()
    assert mha_convert.verify_file(source, tmp_path / "x.safetensors").proven
    state = load_file(tmp_path / "x.safetensors")
    model.load_state_dict(state)
    written = runpy.run_path(str(tmp_path / "attention.py"))
    built = written["build"]()
    built.load_state_dict(written["own_keys"](state))
    expected = np.load(source.parent / "expected.npz")
    for number in (0, 1):
        inputs = torch.from_numpy(expected[f"block_{number}/mha:inputs"])
        for module in (model[number], built.get_submodule(f"block_{number}.mha")):
            output = module.eval()(inputs, inputs, inputs)[0].detach().numpy()
            np.testing.assert_allclose(output, expected[f"block_{number}/mha:output"], atol=2e-5, rtol=0)


@pytest.mark.parametrize("text", ["x = 1", "[[attention", "attention = 1"])
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "rows.toml"
    path.write_text(text)
    with pytest.raises(mha_convert.ReadError, match=r"is not TOML|expected tables \[\[attention\]\]"):
        read_attention(path)
