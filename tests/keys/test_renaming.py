"""``--rename`` and ``keys``: any project's names as data; what cannot be meant is refused."""

import json
import subprocess
import sys

import pytest
import torch
from command_line import run
from layer_cases import CASES, make_layer

import mha_convert
from mha_convert.keys.renaming import read_renames, rename

LAYERS = [make_layer(CASES[0], name=f"block_{number}/attn", seed=number) for number in (0, 1)]
KEYS = ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
SWAP = {
    "first.attention.**": "swap.{1}",
    "second.attention.attention.**": "first.attention.attention.{1}",
    "second.**": "third.{1}",
}


def keys(renames, layers=LAYERS, **options):
    plan = rename(mha_convert.plan(layers, **options), renames)
    return [tensor.key for tensor in mha_convert.convert(plan)]


def test_stars_stand_for_parts_and_two_stars_for_anything():
    assert keys({"block_*.attn.**": "layers.{1}.self_attn.{2}"}) == [
        f"layers.{number}.self_attn.{key}" for number in (0, 1) for key in KEYS
    ]
    assert keys({"block_*.attn.*": "{1}-{2}"})[:4] == ["0-in_proj_weight", "0-in_proj_bias", *[f"block_0.attn.{key}" for key in KEYS[2:]]]  # fmt: skip
    assert keys({"**.weight": "{1}.kernel", "**.*_weight": "{1}.{2}.kernel"})[:3] == [
        "block_0.attn.in_proj.kernel", "block_0.attn.in_proj_bias", "block_0.attn.out_proj.kernel",
    ]  # fmt: skip


def test_the_first_rule_that_matches_counts():
    renames = {"block_0.**.out_proj.*": "a.{2}", "block_0.**": "b.{1}", "block_1.attn.**": "c.{1}"}
    assert keys(renames)[:4] == ["b.attn.in_proj_weight", "b.attn.in_proj_bias", "a.weight", "a.bias"]


def test_whole_keys_are_matched_after_the_prefix_and_dots_are_dots():
    assert keys({"m.block_0.attn.in_proj_weight": "w"}, prefix="m.{name}")[0] == "w"
    for pattern in ("in_proj_weight", "block_0", "m?block_0.**", "block_0-attn.**"):
        with pytest.raises(mha_convert.LayoutError, match="matches none of the target's 8 keys"):
            keys({pattern: "x"}, prefix="m.{name}")


def test_a_rule_may_keep_a_key_from_those_after_it():
    found = keys({"block_0.**": "block_0.{1}", "block_*.**": "x.{1}.{2}"})
    assert found[:4] == [f"block_0.attn.{key}" for key in KEYS] and found[4] == "x.1.attn.in_proj_weight"
    plan = rename(mha_convert.plan(LAYERS), {"block_0.**": "block_0.{1}"})
    assert [item.renamed for item in plan.layers] == [{}, {}]


@pytest.mark.parametrize(
    ("renames", "message"),
    [
        (
            {"block_2.**": "x.{1}"},
            "Rename 'block_2.**' to 'x.{1}' matches none of the target's 8 keys, the first of which is "
            "'block_0.attn.in_proj_weight'. `mha-convert keys` shows them.",
        ),
        (
            {"block_*.**": "x.{1}.{2}", "block_0.**": "y.{1}"},
            "Rename 'block_0.**' to 'y.{1}': all that it matches was renamed by rules before it, the first is "
            "'block_0.attn.in_proj_weight'. Put it before them, or leave it out.",
        ),
        (
            {"block_*.attn.**": "x.{2}"},
            "Renames: 'block_0.attn.in_proj_weight' and 'block_1.attn.in_proj_weight' would both be called "
            "'x.in_proj_weight'. Give each key a name of its own.",
        ),
        (
            {"block_0.attn.in_proj_weight": "block_1.attn.in_proj_weight"},
            "Renames: 'block_0.attn.in_proj_weight' and 'block_1.attn.in_proj_weight' would both be called "
            "'block_1.attn.in_proj_weight'. Give each key a name of its own.",
        ),
        (
            {"block_*.**": "x.{3}"},
            "Rename 'block_*.**' to 'x.{3}' has {3}, and the pattern has 2 stars. Count the stars from 1.",
        ),
        (
            {"block_*.**": "x.{0}"},
            "Rename 'block_*.**' to 'x.{0}' has {0}, and the pattern has 2 stars. Count the stars from 1.",
        ),
        (
            {"block_*.**": "x.{name}"},
            "Rename 'block_*.**' to 'x.{name}' has braces without a number. Pass {1} for what the first star stands "
            "for.",
        ),
        *[
            (
                {"block_0.attn.in_proj_weight": name},
                f"Rename 'block_0.attn.in_proj_weight' to '{shown}': 'block_0.attn.in_proj_weight' would be called "
                f"'{shown}', which no tensor of PyTorch can be. Use parts with dots between them.",
            )
            for name, shown in (("", ""), ("a..b", "a..b"), (".a", ".a"), ("a\n", "a\\n"), ("__metadata__", "__metadata__"))
        ],
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(renames, message):
    with pytest.raises(mha_convert.LayoutError) as caught:
        keys(renames)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("[rename", "is not TOML: "),
        (b"\xff", "is not TOML: "),
        ('[rename]\n"a" = "b"\n"a" = "c"', "is not TOML: "),
        ("", "holds nothing, expected one table [rename] with patterns in it. Leave out the rest."),
        ("[rename]", "holds 'rename', expected one table [rename] with patterns in it. Leave out the rest."),
        ('[renames]\n"a" = "b"', "holds 'renames', expected one table [rename] with"),
        ('[rename]\n"a" = "b"\n[other]', "holds 'rename', 'other', expected one table [rename] with"),
        ("[rename]\na.b = 'c'", "'a' is dict, expected text. Put patterns and names in quotes, as they have dots."),
        ('[rename]\n"a" = 3', "'a' is int, expected text."),
    ],
)
def test_files_that_are_no_rules(tmp_path, text, fact):
    path = tmp_path / "rules.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(mha_convert.ReadError) as caught:
        read_renames(path)
    assert str(caught.value).startswith(f"{path}: {fact}") and "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(
        mha_convert.ReadError, match="rules.toml cannot be opened: there is no such file. Check the path.$"
    ):
        read_renames(tmp_path / "rules.toml")


@pytest.mark.process
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_renamed_target_is_proven_verified_loaded_and_has_a_module(samples, tmp_path, suffix):
    """The new names take those of other tensors, and some keys stay."""
    source, target = samples / "encoder.weights.h5", tmp_path / f"x{suffix}"
    report = mha_convert.convert_file(source, target, renames=SWAP, module=tmp_path / "modules.py")
    assert report.proven and mha_convert.verify_file(source, target).proven
    stored = mha_convert.open_target(target)
    assert {key.split(".")[0] for key in stored.shapes} == {"swap", "first", "third"}
    plain = tmp_path / "plain.pt"
    mha_convert.convert_file(source, plain)
    x = torch.randn(2, 5, 8)
    ours, theirs = mha_convert.load_modules(target), mha_convert.load_modules(plain)
    for name in ("first/attention", "second/attention"):
        assert torch.equal(ours[name](x, x, x)[0], theirs[name](x, x, x)[0])
    code = (
        "import torch, modules, safetensors.torch as st\n"
        f"state = {'st.load_file' if suffix == '.safetensors' else 'torch.load'}('x{suffix}')\n"
        "model = modules.build()\nassert not any(model.load_state_dict(modules.own_keys(state), strict=True))\n"
        "plain = torch.load('plain.pt')\n"
        "assert all(torch.equal(plain[key], tensor) for key, tensor in model.state_dict().items())\n"
        "try:\n    modules.own_keys({'x': 1})\nexcept KeyError:\n    print('refused')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["format", "--check"], ["check", "--select", "E,F,W,I,B"]):
        subprocess.run([*ruff, *command, "--isolated", "--line-length", "120", "modules.py"], cwd=tmp_path, check=True)


def test_a_renamed_target_that_is_damaged_is_told_by_its_new_keys(samples, tmp_path):
    from safetensors.torch import load_file, save_file

    source, target = samples / "six_heads.keras", tmp_path / "x.safetensors"
    mha_convert.convert_file(source, target, renames={"attention.query_projection.*": "q.{1}"})
    text = mha_convert.open_target(target).description
    tensors = load_file(target)
    tensors["q.weight"][0, 0] += 1
    save_file(tensors, target, {"mha_convert": text})
    with pytest.raises(
        mha_convert.VerificationError, match=r"tensor 'q\.weight' differs from Keras in 1 of 96 numbers"
    ):
        mha_convert.verify_file(source, target)
    description = json.loads(text)
    description["layers"][0]["keys"] = {"query_projection.weight": "q.bias", "query_projection.bias": "q.weight"}
    save_file(tensors, target, {"mha_convert": json.dumps(description)})
    with pytest.raises(
        mha_convert.VerificationError, match=r"keys are of 'query_projection\.bias', 'query_projection\.w"
    ):
        mha_convert.verify_file(source, target)
    own = json.loads(text)["layers"][0]["keys"]
    description["layers"][0]["keys"] = own | description["layers"][0]["keys"]
    save_file(tensors, target, {"mha_convert": json.dumps(description)})
    with pytest.raises(mha_convert.VerificationError, match=r"'q\.(bias|weight)' is float32 \("):
        mha_convert.verify_file(source, target)
    description["layers"][0]["keys"] = ["q"]
    save_file(tensors, target, {"mha_convert": json.dumps(description)})
    with pytest.raises(mha_convert.ReadError, match="has a damaged description"):
        mha_convert.load_modules(target)


@pytest.mark.process
def test_the_command_takes_a_file_of_rules(samples, tmp_path):
    (tmp_path / "rules.toml").write_text('[rename]\n"*.attention.**" = "encoder.{1}.mha.{2}"\n')
    text = run("convert", samples / "encoder.weights.h5", "x.pt", "--rename", "rules.toml", cwd=tmp_path).stdout
    assert "encoder.first.mha.*" in text and "encoder.second.mha.*" in text
    assert "Proven" in run("verify", samples / "encoder.weights.h5", "x.pt", cwd=tmp_path).stdout
    (tmp_path / "rules.toml").write_text('[rename]\n"nothing" = "x"\n')
    error = run(
        "convert", samples / "encoder.weights.h5", "y.pt", "--rename", "rules.toml", cwd=tmp_path, code=1
    ).stderr
    assert error.startswith("error: Rename 'nothing' to 'x' matches none of the target's 20 keys, ")
    assert not (tmp_path / "y.pt").exists()


@pytest.mark.process
def test_list_keys_shows_everything_and_writes_nothing(samples, tmp_path):
    source = samples / "six_heads.keras"
    text = run("keys", source, cwd=tmp_path).stdout
    lines = text.splitlines()
    assert lines[0] == f"{source}: .keras, Keras 3.15.1 → 10 keys"
    assert lines[2].split() == ["key", "shape", "dtype", "from"]
    place = "layers/multi_head_attention"
    rows = {line.split()[0]: line for line in lines[3:13]}
    assert rows["attention.query_projection.weight"].endswith(f"(24, 4)   float32  {place}/query_dense/vars/0")
    assert rows["attention.attention.in_proj_bias"].endswith(
        f"float32  zeros, {place}/key_dense/vars/1, {place}/value_dense/vars/1"
    )
    assert lines[-1] == "Nothing was converted or written."
    document = json.loads(run("keys", source, "--json", "--layout", "qkv", cwd=tmp_path).stdout)
    assert list(document) == ["source", "layout", "dtype", "keys"]
    assert document["keys"][0] == {
        "key": "attention.qkv.weight",
        "shape": [72, 4],
        "dtype": "float32",
        "layer": "attention",
        "sources": [f"{place}/{role}_dense/vars/0" for role in ("query", "key", "value")],
    }
    assert not list(tmp_path.iterdir())


@pytest.mark.process
def test_keys_agrees_with_the_target(samples, tmp_path):
    options = ("--layout", "t5", "--dtype", "bfloat16", "--prefix", "m.{name}")
    (tmp_path / "rules.toml").write_text('[rename]\n"**.q.weight" = "{1}.query"\n')
    source = samples / "encoder.weights.h5"
    words = (*options, "--rename", "rules.toml", "--json")
    listed = json.loads(run("keys", source, *words, cwd=tmp_path).stdout)["keys"]
    run("convert", source, "x.safetensors", *words, cwd=tmp_path)
    target = mha_convert.open_target(tmp_path / "x.safetensors")
    assert {row["key"]: (tuple(row["shape"]), row["dtype"]) for row in listed} == {
        key: (shape, target.dtypes[key]) for key, shape in target.shapes.items()
    }
    assert "m.first.attention.query" in target.shapes
