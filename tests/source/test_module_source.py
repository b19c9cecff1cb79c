"""``--module``: one formatted file that needs only torch, loads its target strictly and computes the same."""

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from layer_cases import CASES, make_layer
from strangers import NAMES

import mha_convert
from mha_convert.layouts.layer_normalization import lay_out
from mha_convert.records.layer import PlainLayer
from mha_convert.records.source import Variable
from mha_convert.source.attention import module_source

TARGETS = [
    ("six_heads.keras", {}),
    ("six_heads.keras", {"layout": "linear"}),
    ("six_heads.keras", {"layout": "qkv"}),
    ("six_heads.keras", {"layout": "bert", "prefix": "encoder.layer.0.attention"}),
    ("textbook.keras", {"layout": "t5", "prefix": ""}),
    ("translator.h5", {"layout": "encoder", "layers": ["self_attention"], "prefix": "layers.0"}),
    ("textbook.keras", {}),
    ("textbook.keras", {"prefix": ""}),
    ("translator.h5", {"layout": "linear"}),
    ("translator.h5", {}),
    ("encoder.weights.h5", {"prefix": "model.{name}.inner"}),
    ("encoder.weights.h5", {"layers": ["first/attention"], "prefix": ""}),
]

PROGRAM = """
import sys
for name in ("mha_convert", "numpy", "keras", "tensorflow"):
    sys.modules[name] = None
import torch
sys.path.insert(0, ".")
import modules
model = modules.build()
state = torch.load("x.pt", weights_only=True)
assert not any(model.load_state_dict(state, strict=True))
model.eval()
inputs = torch.load("inputs.pt", weights_only=True)
outputs = {}
for path, (query, key, value) in inputs.items():
    module = model.get_submodule(path) if path else model
    outputs[path] = module(query, key, value, need_weights=False)[0].detach()
torch.save(outputs, "outputs.pt")
"""


@pytest.mark.process
@pytest.mark.parametrize(("file", "options"), TARGETS)
def test_the_written_file_loads_and_computes(samples, tmp_path, file, options):
    report = mha_convert.convert_file(samples / file, tmp_path / "x.pt", module=tmp_path / "modules.py", **options)
    modules = mha_convert.load_modules(tmp_path / "x.pt")
    inputs, expected = {}, {}
    for item in report.plan.layers:
        layer, path = item.layer, item.prefix.rstrip(".")
        widths = (layer.query_features, layer.key_features, layer.value_features)
        inputs[path] = tuple(torch.randn(2, 5, width) for width in widths)
        expected[path] = modules[layer.name](*inputs[path], need_weights=False)[0]
    torch.save(inputs, tmp_path / "inputs.pt")
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, check=True)
    outputs = torch.load(tmp_path / "outputs.pt", weights_only=True)
    for path, output in expected.items():
        assert torch.equal(outputs[path], output)


@pytest.mark.process
@pytest.mark.parametrize(("file", "options"), TARGETS)
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_the_written_file_is_formatted_and_clean(samples, tmp_path, file, options, suffix):
    mha_convert.convert_file(samples / file, tmp_path / f"x{suffix}", module=tmp_path / "modules.py", **options)
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["format", "--check"], ["check", "--select", "E,F,W,I,B"]):
        result = subprocess.run(
            [*ruff, *command, "--isolated", "--line-length", "120", "modules.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout


def test_only_what_is_needed_is_written(samples, tmp_path):
    mha_convert.convert_file(samples / "textbook.keras", tmp_path / "x.pt", module=tmp_path / "modules.py", prefix="")
    text = (tmp_path / "modules.py").read_text()
    assert "class " not in text and "def additive_mask" not in text and "import math" not in text
    assert "def to_attn_mask" in text


def test_a_layer_normalization_alone_needs_no_masks():
    gamma = Variable(path="norm/gamma", shape=(3,), dtype="float32", read=lambda: None)
    layer = PlainLayer(
        name="norm",
        kind="layer-normalization",
        path="norm",
        arrays={"gamma": gamma},
        settings={"epsilon": 0.001},
        class_name="LayerNormalization",
    )
    plan = mha_convert.Plan(layout="mha", dtype=None, layers=(lay_out(layer, "norm."),))
    text = module_source(plan, "x.keras", "x.pt")
    assert "def " in text and "mask" not in text and "import math" not in text
    space = {}
    exec(compile(text, "module", "exec"), space)
    assert list(space["build"]().state_dict()) == ["norm.weight"]


def test_modules_need_torch_alone_and_name_nothing_twice():
    """What is copied out must run without this package, and is found by name."""
    files = sorted(Path(mha_convert.__file__).parent.joinpath("modules").glob("*.py"))
    nodes = [node for file in files for node in ast.parse(file.read_text()).body]
    names = [node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    assert names and len(names) == len(set(names))
    imported = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    homes = {alias.name for node in imported if isinstance(node, ast.Import) for alias in node.names}
    homes |= {node.module.split(".")[0] for node in imported if isinstance(node, ast.ImportFrom) and not node.level}
    assert homes <= {"collections", "math", "typing", "torch"}
    own = {node.module for node in imported if isinstance(node, ast.ImportFrom) and node.level}
    assert own <= {file.stem for file in files}
    assert not [node for node in imported if getattr(node, "level", 0) > 1]


def test_an_existing_file_stays(samples, tmp_path):
    (tmp_path / "modules.py").write_text("mine")
    with pytest.raises(mha_convert.WriteError, match="modules.py exists already"):
        mha_convert.convert_file(samples / "textbook.keras", tmp_path / "x.pt", module=tmp_path / "modules.py")
    assert [path.name for path in tmp_path.iterdir()] == ["modules.py"]


def test_a_layer_whose_key_lies_in_anothers(fresh_models, tmp_path):
    """Layers "block" and "block.0.attn": one is inside the other's place."""
    mha_convert.convert_file(fresh_models / "odd_names.keras", tmp_path / "x.pt", module=tmp_path / "modules.py")
    code = "import torch, modules\nprint(modules.build().load_state_dict(torch.load('x.pt', weights_only=True), strict=True))"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert set(mha_convert.load_modules(tmp_path / "x.pt")) == {"block", "block.0.attn"}


def test_target_and_source_cannot_be_one_file(samples, tmp_path):
    target = tmp_path / "x.pt"
    with pytest.raises(mha_convert.WriteError, match="is not a name that Python can import"):
        mha_convert.convert_file(samples / "textbook.keras", target, module=target)
    assert not list(tmp_path.iterdir())


def test_a_failing_proof_leaves_neither(golden, tmp_path, monkeypatch):
    from mha_convert import conversion

    monkeypatch.setattr(conversion, "is_rescaled", lambda piece: False)
    with pytest.raises(mha_convert.VerificationError):
        mha_convert.convert_file(
            golden / "keras-3.15.1/vdim_large.keras", tmp_path / "x.pt", module=tmp_path / "modules.py"
        )
    assert not list(tmp_path.iterdir())


def shape_of(text):
    """The tree of the source without what its strings say."""
    tree = ast.parse(text)
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    for node in strings:
        node.value = ""
    return ast.dump(tree), len(strings)


def written(name, options):
    """The source for a layer, a file, a target and a key of this name."""
    layer = replace(make_layer(CASES[0]), name=name)
    plan = mha_convert.plan([layer], **options)
    if options.get("prefix") != "":
        (item,) = plan.layers
        keys = {rule.target: f"{name}.{rule.target}" for rule in item.rules}
        plan = replace(plan, layers=(replace(item, prefix=f"{name}.", renamed=keys),))
    return plan, module_source(plan, f"{name}.keras", f"{name}.safetensors")


@pytest.mark.parametrize("options", [{}, {"prefix": ""}, {"layout": "bert"}], ids=str)
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_strangers_text_is_text_in_the_source(name, options, tmp_path, monkeypatch):
    """Point 1 of issue 12: names of sources, targets, layers and keys are strings of the source and nothing else."""
    monkeypatch.chdir(tmp_path)
    ordinary = {**options} if options.get("prefix") == "" else {**options, "prefix": "p"}
    plan, text = written(name, ordinary)
    assert shape_of(text) == shape_of(written("ordinary", ordinary)[1])
    text.encode()
    space = {}
    exec(compile(text, "module", "exec"), space)
    model = space["build"]()
    keys = [item.prefix + rule.target for item in plan.layers for rule in item.rules]
    assert sorted(model.state_dict()) == sorted(keys)
    if "own_keys" in space:
        renamed = {item.key(rule.target): 0 for item in plan.layers for rule in item.rules}
        assert sorted(space["own_keys"](renamed)) == sorted(keys)
    assert not list(tmp_path.iterdir())


@pytest.mark.process
def test_a_layer_called_with_an_emoji_loads_its_target(samples, tmp_path):
    """Point 12 of issue 12: JSON's pairs of surrogates are two characters in Python."""
    prefix = "a\U0001f600"
    mha_convert.convert_file(
        samples / "six_heads.keras", tmp_path / "x.pt", module=tmp_path / "modules.py", prefix=prefix
    )
    code = "import torch, modules\nmodules.build().load_state_dict(torch.load('x.pt', weights_only=True), strict=True)"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert json.dumps(prefix) not in (tmp_path / "modules.py").read_text()
