"""The options: one record, typed keywords that mypy rejects if they are wrong, and layout ``encoder``."""

import importlib.util
import inspect
import subprocess
import sys
import typing
from dataclasses import fields

import numpy as np
import pytest
import torch
from environment import PROJECT, require
from safetensors.torch import load_file
from torch import nn

import mha_convert
from mha_convert import options
from mha_convert.layouts import LAYOUTS

WRONG = """
import mha_convert, torch
mha_convert.convert_file("a", "b", layout="mah")
mha_convert.convert_many("a", "b", layuot="mha")
mha_convert.explain_file("a", dtype="float16")
mha_convert.plan([], layout="separate")
mha_convert.verify_file("a", "b", reference="none")
"""
RIGHT = """
import mha_convert, torch
mha_convert.convert_file("a", "b", layout="padded", dtype=torch.float16, layers=["x"])
mha_convert.convert_many("a", "b", layout="bert", jobs=2)
mha_convert.from_keras_layer(None, layout="linear", dtype="bfloat16")
"""


def keys_of(kind: type) -> set[str]:
    return {name for base in kind.__mro__ for name in vars(base).get("__annotations__", {})} | set(
        kind.__optional_keys__
    )


def test_the_typed_keywords_are_the_fields_of_the_record():
    names = {item.name for item in fields(options.Options)}
    assert keys_of(options.ConvertOptions) == names == set(options.OPTIONS)
    assert keys_of(options.BatchOptions) == names | set(options.Run._fields)
    assert typing.get_args(options.Layout) == tuple(layout.NAME for layout in LAYOUTS)
    for name, row in options.OPTIONS.items():
        assert f"        {name}: " in options.Options.__doc__, name
        assert row.shown in (None, options.DEFAULTS[name], "{name}", "each layer's own"), name


def test_no_public_function_has_more_than_eight_parameters():
    for name in mha_convert.__all__:
        thing = getattr(mha_convert, name)
        if inspect.isfunction(thing) and name != "to_attn_mask":  # masks of five kinds, each by name
            own = [item for item in inspect.signature(thing).parameters.values() if item.kind is not item.VAR_KEYWORD]
            assert len(own) <= 8, name


@pytest.mark.process
@pytest.mark.parametrize(("code", "faults"), [(WRONG, 5), (RIGHT, 0)])
def test_a_type_checker_refuses_what_is_misspelt(code, faults, tmp_path):
    require(importlib.util.find_spec("mypy") is not None, "mypy")
    (tmp_path / "user.py").write_text(code)
    command = [sys.executable, "-m", "mypy", "--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    result = subprocess.run(
        [*command, f"--cache-dir={tmp_path}", tmp_path / "user.py"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.stdout.count("error:") == faults, result.stdout


def test_a_dtype_of_pytorch_is_taken(samples, tmp_path):
    for name, dtype in (("a", torch.float16), ("b", "float16")):
        mha_convert.convert_file(samples / "textbook.keras", tmp_path / f"{name}.safetensors", dtype=dtype)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    with pytest.raises(mha_convert.LayoutError, match="There is no dtype 'int8'"):
        mha_convert.convert_file(samples / "textbook.keras", tmp_path / "c.pt", dtype=torch.int8)


def test_layout_encoder_is_what_an_encoder_layer_loads(samples, tmp_path):
    """The keys are PyTorch's own, and its attention then computes what the layer does in layout linear."""
    source = samples / "translator.h5"
    for layout in ("encoder", "linear"):
        report = mha_convert.convert_file(
            source, tmp_path / f"{layout}.safetensors", layout=layout, layers=["self_attention"], prefix=""
        )
        assert report.proven
    encoder = nn.TransformerEncoderLayer(16, 2, batch_first=True)
    state = load_file(tmp_path / "encoder.safetensors")
    own = {key for key in encoder.state_dict() if key.startswith("self_attn.")}
    assert set(state) == own
    assert not encoder.load_state_dict(state, strict=False).unexpected_keys
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 5, 16), np.float32))
    expected, _ = mha_convert.load_modules(tmp_path / "linear.safetensors")["self_attention"](x, x, x)
    torch.testing.assert_close(encoder.eval().self_attn(x, x, x)[0], expected)
    assert mha_convert.verify_file(source, tmp_path / "encoder.safetensors").proven


@pytest.mark.parametrize(
    ("file", "layer", "fact"),
    [
        ("translator.h5", "cross_attention", "has inputs of widths 16, 12 and 12, and self-attention has one input"),
        ("six_heads.keras", "attention", "6 heads of key_dim=4 and value_dim=4, and the heads of an encoder layer"),
    ],
)
def test_what_no_encoder_layer_holds_is_refused(samples, tmp_path, file, layer, fact):
    with pytest.raises(mha_convert.LayoutError, match=fact):
        mha_convert.convert_file(samples / file, tmp_path / "x.pt", layout="encoder", layers=[layer])


@pytest.mark.parametrize(
    ("call", "kind", "fact"),
    [
        ("convert_file(SOURCE, TARGET, layout=None)", mha_convert.LayoutError, "There is no layout 'None'"),
        ("convert_file(SOURCE, TARGET, reference=None)", mha_convert.LayoutError, "There is no reference 'None'"),
        ("verify_file(SOURCE, TARGET, reference='none')", mha_convert.LayoutError, "There is no reference 'none'"),
        ("convert_many(SOURCE, TARGET, layout='mah')", mha_convert.LayoutError, "There is no layout 'mah'"),
        ("inspect_file(SOURCE, layout='linear')", TypeError, "unexpected keyword argument 'layout'"),
        ("explain_file(SOURCE, dtype='float16')", TypeError, "unexpected keyword argument 'dtype'"),
        ("plan_file(SOURCE, strict=True)", TypeError, "unexpected keyword argument 'strict'"),
        ("match_file(SOURCE, TARGET, prefix='')", TypeError, "unexpected keyword argument 'prefix'"),
        ("plan([], layout=None)", mha_convert.LayoutError, "There is no layout 'None'"),
    ],
)
def test_no_option_is_ignored_in_silence(samples, tmp_path, call, kind, fact):
    """Also where no type checker looks: an option that a function does not have, and None where it is no default."""
    names = {"SOURCE": samples / "textbook.keras", "TARGET": tmp_path / "x.pt"}
    with pytest.raises(kind, match=fact):
        eval(f"mha_convert.{call}", {"mha_convert": mha_convert, **names})
    assert not list(tmp_path.iterdir())


def test_the_command_line_has_every_option_of_a_run():
    """``batch`` gets its flags from the rows of ``RUN``, which are the fields of ``Run``."""
    assert set(options.RUN) == set(options.Run._fields)
    for name in options.RUN:
        assert f"        {name}: " in options.Run.__doc__, name
    assert options.RUN["timeout"].shown == f"{options.Run().timeout:.0f}"
