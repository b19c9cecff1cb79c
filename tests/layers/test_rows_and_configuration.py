"""A row of --attention compared with its file: scale, heads, activations, leftovers (issue 12, point 5).

The inputs are those of ``../shared/cases``, with outputs of genuine Keras and TensorFlow; what needs no genuine file is
tested with layers that are built here.
"""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import run
from safetensors.torch import load_file, save_file

import mha_convert
from mha_convert.layers import described_settings as settings
from mha_convert.layers import survey
from mha_convert.layers.descriptions import read_attention
from mha_convert.pipeline import convert_file, verify_file
from mha_convert.records.source import Checkpoint, Group, LayerConfig, Variable
from mha_convert.words.conversion import report_as_text

MAKERS = (
    "01_scale",
    "02_dense_activation",
    "03_heads_in_config",
    "04_leftovers",
    "10_slots",
    "14_own_class_keras_name",
)
T5 = "**/SelfAttention:num_heads=4,query=q,key=k,value=v,output=o"
DENSE = ".:num_heads=4,query=att_query,key=att_key,value=att_value,output=att_out,name=att"
HEADS = "att:num_heads={},query=wq,key=wk,value=wv,output=dense"
BESIDE = "att:num_heads=4,query=wq,key=wk,value=wv,output=wo"
BERT = "bert/encoder/layer_*/attention:num_heads=4,query=self/query,key=self/key,value=self/value,output=output/dense"
T5_FILES = ("t5_mesh/model.ckpt-5", "tf_model.h5")
RELU = "its query, key, value have activation relu by the file's configuration, which the formula leaves out"


@pytest.fixture(scope="module")
def cases(written_cases, starts_processes) -> Path:
    """What the makers write, by the first two letters of their names."""
    return written_cases(*MAKERS)


def difference(target: Path, expected: Path) -> float:
    """Largest difference between the one converted module and genuine outputs (and scores, where there are some)."""
    data = np.load(expected)
    (module,) = mha_convert.load_modules(target).values()
    inputs = torch.from_numpy(data["x"])
    with torch.no_grad():
        output, scores = module(inputs, inputs, inputs, average_attn_weights=False)
    found = [np.abs(output.numpy() - data["y"]).max()]
    found += [np.abs(scores.numpy() - data["s"]).max()] if "s" in data.files else []
    return float(max(found))


# --- scale


@pytest.mark.parametrize("file", T5_FILES)
def test_t5_is_moved_bit_for_bit_and_computes_what_it_did(cases, tmp_path, file):
    """Point 5 of issue 12: with scale=1 nothing is multiplied under T5's names, and T5's own module divides nothing."""
    source, target = cases / "01" / file, tmp_path / "t5.safetensors"
    options = ("--layout", "t5", "--attention", f"{T5},scale=1")
    text = run("convert", source, target, *options).stdout
    assert "Ledger: 1,024 parameters in = 1,024 moved + 0 rescaled; 1,024 out." in text
    assert "softmax(q · k) · v" in text
    state, data = load_file(target), np.load(cases / "01/t5.npz")
    for name in "qkvo":
        (key,) = (key for key in state if key.endswith(f".{name}.weight"))
        assert state[key].numpy().tobytes() == np.ascontiguousarray(data[f"kernel_{name}"].T).tobytes()
    assert difference(target, cases / "01/t5.npz") < 1e-5
    assert verify_file(source, target).proven


@pytest.mark.parametrize("file", T5_FILES)
@pytest.mark.parametrize("layout", ["mha", "linear", "qkv", "bart"])
@pytest.mark.parametrize(
    ("scale", "expected"), [("1", "t5.npz"), ("1/sqrt(width)", "width.npz"), ("0.25", "width.npz")]
)
def test_every_layout_carries_the_scale(cases, tmp_path, file, layout, scale, expected):
    """Point 5 of issue 12: a module that divides scores gets a query that makes up for it."""
    source, target = cases / "01" / file, tmp_path / "x.safetensors"
    report = convert_file(source, target, attention=f"{T5},scale={scale}", layout=layout)
    assert report.proven and verify_file(source, target).proven
    assert difference(target, cases / "01" / expected) < 1e-5


@pytest.mark.parametrize("row", [T5, f"{T5},scale=0.5", f"{T5},scale=1/sqrt(key_dim)"])
def test_a_wrong_scale_is_another_result(cases, tmp_path, row):
    """Point 5 of issue 12: the tests above can fail: T5 with its scores divided, as every row had it."""
    source, target = cases / "01/tf_model.h5", tmp_path / "x.safetensors"
    assert convert_file(source, target, attention=row).proven
    assert difference(target, cases / "01/t5.npz") > 0.05


def test_verify_finds_a_scale_that_was_changed_in_the_target(cases, tmp_path):
    """Point 5 of issue 12: the scale of the row is proven with the numbers."""
    source, target = cases / "01/tf_model.h5", tmp_path / "x.safetensors"
    convert_file(source, target, attention=f"{T5},scale=1")
    described = json.loads(mha_convert.open_target(target).description)
    assert described["layers"][0]["attention"]["scale"] == 1
    described["layers"][0]["attention"]["scale"] = 0.5
    save_file(load_file(target), target, {"mha_convert": json.dumps(described)})
    with pytest.raises(mha_convert.VerificationError, match="differ"):
        verify_file(source, target)


@pytest.mark.parametrize("damaged", [1.0, 0.49])
def test_the_proof_computes_with_the_scale(cases, tmp_path, damaged):
    """Point 5 of issue 12: tensors of one scale do not pass as those of another, however the bits were made."""
    checkpoint = mha_convert.read(cases / "01/tf_model.h5")
    (layer,) = mha_convert.find_layers(checkpoint, read_attention(f"{T5},scale=0.25"))
    (item,) = mha_convert.plan([layer], layout="linear", prefix="").layers
    target = tmp_path / "x.safetensors"
    convert_file(cases / "01/tf_model.h5", target, attention=f"{T5},scale=0.25", layout="linear", prefix="")
    right, wrong = (mha_convert.plan([layer], layout="linear", prefix="") for _ in range(2))
    wrong = replace(wrong, layers=(replace(item, layer=replace(layer, scale=damaged)),))
    mha_convert.verify(right, mha_convert.open_target(target))
    with pytest.raises(mha_convert.VerificationError):
        mha_convert.verify(wrong, mha_convert.open_target(target))


@pytest.mark.parametrize("file", T5_FILES)
def test_t5s_names_without_a_scale_are_asked_for_it(cases, tmp_path, file):
    """Point 5 of issue 12: under T5's names the factor is taken out of the query, where there may be none."""
    with pytest.raises(mha_convert.LayoutError) as error:
        convert_file(cases / "01" / file, tmp_path / "x.pt", attention=T5, layout="t5")
    assert "has the names of T5, whose scores are not divided by sqrt(key_dim)" in str(error.value)
    assert str(error.value).endswith("scale=1 for a T5, scale=1/sqrt(key_dim) for attention that divides.")
    assert not list(tmp_path.iterdir())
    report = convert_file(cases / "01" / file, tmp_path / "x.pt", attention=T5, layout="bart")
    assert "which does not divide its scores: use scale=1 if it is one." in "\n".join(report.notes)
    scaled = f"{T5},scale=1/sqrt(key_dim)"
    convert_file(cases / "01" / file, tmp_path / "y.pt", attention=scaled, layout="t5")
    assert difference(tmp_path / "y.pt", cases / "01/t5.npz") > 0.05


@pytest.mark.parametrize(
    "scale", ["0", "-1", "nan", "inf", "1e-31", "1e31", "1e999", "sqrt(key_dim)", "1/sqrt(8)", "True", ""]
)
def test_what_is_no_scale(scale):
    """Point 5 of issue 12: one line, whatever the scale is."""
    with pytest.raises(mha_convert.LayerError, match=r"scale is .*, expected a number above 0, 1/sqrt\(key_dim\) or"):
        read_attention(f"{T5},scale={scale}")
    for value in (True, None, [1], 10**400, float("nan")):
        with pytest.raises(mha_convert.LayerError, match="scale is "):
            read_attention({**read_attention(T5)[0].fields, "scale": value})


# --- activations and heads of the configuration


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_plain_dense_layers_of_a_model_convert(cases, tmp_path, suffix):
    """Point 5 of issue 12: and no note says that there is no configuration."""
    source, target = cases / f"02/linear.{suffix}", tmp_path / "x.safetensors"
    report = convert_file(source, target, attention=DENSE)
    assert difference(target, cases / "02/linear.npz") < 1e-5
    assert len(report.notes) == 1 and "nothing in the file proves" in report.notes[0]
    assert "no configuration" not in report.notes[0]


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_an_activation_is_named_and_strict_refuses_it(cases, tmp_path, suffix):
    """Point 5 of issue 12: a Dense with relu is no plain projection; the same file says so."""
    source, target = cases / f"02/relu.{suffix}", tmp_path / "x.safetensors"
    with pytest.raises(mha_convert.LayerError) as error:
        convert_file(source, target, attention=DENSE, strict=True)
    assert str(error.value).startswith(f"Layer 'att': {RELU}; ")
    assert not list(tmp_path.iterdir())
    report = convert_file(source, target, attention=DENSE)
    assert f"Layer 'att': {RELU}." in report.notes
    assert difference(target, cases / "02/relu.npz") > 0.05  # so the caution is true
    assert f"Note: Layer 'att': {RELU}." in run("inspect", source, "--attention", DENSE).stdout


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_heads_that_contradict_the_configuration_are_refused(cases, tmp_path, suffix):
    """Point 5 of issue 12: with both numbers; and the row that is proposed has the configuration's."""
    source, target = cases / f"03/m.{suffix}", tmp_path / "x.safetensors"
    error = run("convert", source, target, "--attention", HEADS.format(8), code=1).stderr
    assert "contradicts the file: num_heads is 8 in the row, and its configuration says num_heads=4." in error
    assert not list(tmp_path.iterdir())
    proposed = run("inspect", source).stdout
    assert "; its configuration says num_heads=4. If it is, use --attention " + HEADS.format(4) in proposed
    report = convert_file(source, target, attention=HEADS.format(4))
    assert difference(target, cases / "03/m.npz") < 1e-5
    assert any("num_heads=4, as its configuration says, and the roles" in note for note in report.notes)


def edited(source: Path, target: Path, change) -> Path:
    """A `.keras` with other settings of its layer 'att'."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "config.json":
                config = json.loads(content)
                (layer,) = (item for item in config["config"]["layers"] if item["config"]["name"] == "att")
                layer["config"] |= change
                content = json.dumps(config).encode()
            new.writestr(name, content)
    return target


def test_settings_of_a_custom_layer_in_a_file(cases, tmp_path):
    """Point 5 of issue 12: what a custom layer's own configuration says beside its heads, from the file to the report."""
    source = edited(cases / "03/m.keras", tmp_path / "e.keras", {"activation": "relu", "dropout": 0.1})
    notes = convert_file(source, tmp_path / "x.safetensors", attention=HEADS.format(4)).notes
    assert notes[1:] == (
        "Layer 'att': its configuration says activation=relu, which the formula leaves out.",
        "Layer 'att': its configuration says dropout=0.1, which the module does not get.",
    )
    source = edited(cases / "03/m.keras", tmp_path / "e.keras", {"use_scale": False})
    error = run("convert", source, tmp_path / "y.pt", "--attention", HEADS.format(4), code=1).stderr
    assert "its configuration says use_scale=False, and the row has no scale" in error
    assert convert_file(source, tmp_path / "y.pt", attention=f"{HEADS.format(4)},scale=1").proven


# --- leftovers


@pytest.mark.parametrize(
    ("file", "held"),
    [
        ("m.keras", "variable 0 (4, 1, 1), variable 1 (4, 5, 5), q_norm (2 arrays)"),
        ("m.weights.h5", "variable 0 (4, 1, 1), variable 1 (4, 5, 5), q_norm (2 arrays)"),
        ("m.h5", "temperature (4, 1, 1), position_bias (4, 5, 5), layer_normalization (2 arrays)"),
    ],
)
def test_what_lies_beside_the_kernels_is_named_and_strict_refuses_it(cases, tmp_path, file, held):
    """Point 5 of issue 12: by the names that the format has; the v3 formats number a layer's own variables."""
    source, target = cases / "04" / file, tmp_path / "x.safetensors"
    fact = f"besides its kernels the layer holds {held}, which no field names and nothing converts"
    with pytest.raises(mha_convert.LayerError) as error:
        convert_file(source, target, attention=BESIDE, strict=True)
    assert str(error.value).startswith(f"Layer 'att': {fact}; ")
    assert not list(tmp_path.iterdir())
    report = convert_file(source, target, attention=BESIDE)
    assert f"Layer 'att': {fact}." in report.notes
    assert difference(target, cases / "04/m.npz") > 0.05  # so the caution is true
    assert report.not_converted == ()


# --- a checkpoint with an optimizer's slots


def test_converted_kernels_are_not_called_not_converted(cases, tmp_path):
    """Point 14 of issue 12: slots beside 48 kernels are the optimizer's, and the note is told once for 12 layers."""
    source, target = cases / "10/slots/model.ckpt-100", tmp_path / "x.safetensors"
    text = run("convert", source, target, "--attention", BERT).stdout
    assert "Not converted" not in text
    assert "Variables not in the target: 192 of the optimizer, 1 of TensorFlow's counters." in text
    assert text.count("nothing in the file proves") == 1 and text.count("Note: ") == 1
    assert "Note: Each of 12 layers ('bert/encoder/layer_0/attention', " in text and " and 8 more): its kernels" in text
    plain = tmp_path / "plain.safetensors"
    run("convert", cases / "10/plain/bert_model.ckpt", plain, "--attention", BERT)
    state, other = load_file(target), load_file(plain)
    assert state.keys() == other.keys() and all(torch.equal(state[key], other[key]) for key in state)
    listed = run("inspect", source, "--attention", BERT).stdout
    assert "Not converted" not in listed and listed.count("nothing in the file proves") == 1
    error = run("convert", source, tmp_path / "y.pt", "--attention", BERT, "--strict", code=1).stderr
    assert error.count("nothing in the file proves") == 1 and "each of 12 layers" in error.lower()


def test_errors_that_list_some_layers_say_how_many_there_are(cases, tmp_path):
    """Point 14 of issue 12: 4 of 12, the rest counted, and a row of --attention in the message."""
    error = run("convert", cases / "10/plain/bert_model.ckpt", tmp_path / "x.pt", code=1).stderr
    assert error.count("perhaps hand-written attention") == 4 and "; and 8 more. " in error
    assert error.count("--attention") == 1 and "query=query,key=key,value=value" in error


# --- the verdict


def test_the_verdict_says_what_was_proven(cases, tmp_path):
    """Point 5 of issue 12: as the row describes it, in text and in JSON; of genuine layers the word stands alone."""
    source, target = cases / "03/m.keras", tmp_path / "x.safetensors"
    row = ("--attention", HEADS.format(4))
    assert "\nProven as --attention describes it, outputs" in run("convert", source, target, *row).stdout
    assert "\nProven as --attention describes it, outputs" in run("verify", source, target).stdout
    told = json.loads(run("convert", source, target, *row, "--overwrite", "--json").stdout)
    assert told["proven"] is True and told["as_described"] == ["att"]
    told = json.loads(run("verify", source, target, "--json").stdout)
    assert told["proven"] is True and told["as_described"] == ["att"]


def test_the_verdict_of_a_file_with_both_kinds_names_the_described_ones(cases, samples, tmp_path):
    """Point 5 of issue 12: one layer of Keras' own and one that a row describes."""
    genuine = convert_file(samples / "encoder.weights.h5", tmp_path / "x.safetensors")
    assert genuine.described == ()
    text = run("convert", samples / "encoder.weights.h5", tmp_path / "y.safetensors").stdout
    assert "\nProven, outputs and per-head scores:" in text
    described = convert_file(cases / "03/m.keras", tmp_path / "z.safetensors", attention=HEADS.format(4))
    both = replace(genuine, plan=replace(genuine.plan, layers=(*genuine.plan.layers, *described.plan.layers)))
    both = replace(
        both,
        comparisons=(*genuine.comparisons, *described.comparisons),
        ledgers={**genuine.ledgers, **described.ledgers},
    )
    lines = [part for part in report_as_text(both) if isinstance(part, str)]
    assert "Proven ('att' as --attention describes it), outputs and per-head scores:" in lines


# --- attention without weights


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_attention_without_weights_has_its_own_next_step(cases, tmp_path, suffix):
    """Point 14 of issue 12: no row of --attention describes a class of Keras' own."""
    error = run("convert", cases / f"14/luong.{suffix}", tmp_path / "x.pt", code=1).stderr
    assert "--attention" not in error
    assert error.count("In PyTorch it is scaled_dot_product_attention(query, key, value, scale=1.0). ") == 1
    own = run("convert", cases / "14/att.keras", tmp_path / "x.pt", code=1).stderr
    assert "Attention of your own code is described with --attention (docs/layers.md). " in own


# --- every name of the tables, with layers that are made here


def variable(path: str, *shape: int) -> Variable:
    array = np.random.default_rng(sum(map(ord, path))).standard_normal(shape).astype("float32")
    return Variable(path=path, shape=shape, dtype="float32", read=lambda: array)


def dense(name: str, *shape: int, config: dict | None = None) -> Group:
    variables = {"kernel": variable(f"{name}/kernel", *shape), "bias": variable(f"{name}/bias", shape[1])}
    told = None if config is None else LayerConfig(name=name, class_name="Dense", settings=config)
    return Group(path=name, name=name, config=told, variables=variables)


def group(name: str, *children: Group, own: dict | None = None, config: dict | None = None) -> Group:
    told = None if config is None else LayerConfig(name=name, class_name="Attn", is_own=True, settings=config)
    inner = {child.name.rpartition("/")[2]: child for child in children}
    return Group(path=name, name=name, config=told, variables=own or {}, children=inner)


def four(at: str = "att", shared: int = 1, config: dict | None = None) -> list[Group]:
    widths = {"q": (16, 16), "k": (16, 16 // shared), "v": (16, 16 // shared), "o": (16, 16)}
    return [dense(f"{at}/w{name}", *shape, config=config) for name, shape in widths.items()]


def layer_of(*groups: Group, row: str = "att:num_heads=4", names: str = "query=wq,key=wk,value=wv,output=wo"):
    """The one layer of a model with these groups, and what is named beside it."""
    root = group("", *groups)
    findings = survey(
        Checkpoint(path="x", format="x", has_config=True, root=root),
        read_attention(f"{row},{names}".replace("::", ":")),
    )
    (layer,) = findings.layers
    return layer, findings.not_converted


def with_settings(config: dict, row: str = "att:num_heads=4", shared: int = 1):
    return layer_of(group("att", *four(shared=shared), config=config), row=row)[0]


NAMES_OF_HEADS = (
    "num_heads num_attention_heads num_query_heads attention_heads n_heads nheads heads head_num num_head n_head nhead"
)
NAMES_OF_SHARED = "num_key_value_heads num_kv_heads n_kv_heads kv_heads"
NAMES_OF_SIZES = "head_dim head_size size_per_head dim_per_head attention_head_size"
NAMES_OF_SCALES = "attention_scale score_scale softmax_scale scale_factor scaling scale use_scale scaled"
LEFT_OUT, MASK, NO_DROPOUT = (
    "which the formula leaves out",
    "so pass PyTorch that mask",
    "which the module does not get",
)
SETTINGS = [  # names, values that change nothing, one that does, how it is told, and whether --strict tells it
    ("activation kernel_activation projection_activation", (None, "linear"), "relu", LEFT_OUT, True),
    ("attention_activation attn_activation score_activation", (None, "softmax"), "sigmoid", LEFT_OUT, True),
    ("qk_norm use_qk_norm qk_layernorm normalize_qk", (None, False), True, LEFT_OUT, True),
    ("rotary use_rotary rope use_rope alibi use_alibi p_bias", (None, False), True, LEFT_OUT, True),
    ("position_bias use_position_bias relative_attention use_relative_position", (None, False), True, LEFT_OUT, True),
    ("causal is_causal use_causal_mask history_only", (None, False), True, MASK, False),
    ("attention_dropout attn_dropout dropout dropout_rate", (None, 0, 0.0), 0.1, NO_DROPOUT, False),
]


def test_the_tables_hold_what_is_tested_here():
    """Point 5 of issue 12: a name that is added gets a value here, and none is dropped in silence."""
    assert set(settings.HEADS) == set(NAMES_OF_HEADS.split())
    assert set(settings.SHARED_HEADS) == set(NAMES_OF_SHARED.split())
    assert set(settings.HEAD_SIZES) == set(NAMES_OF_SIZES.split())
    assert set(settings.SCALES) == set(NAMES_OF_SCALES.split())
    assert [set(row.names) for row in settings.SYNONYMS] == [set(row[0].split()) for row in SETTINGS]


@pytest.mark.parametrize("name", NAMES_OF_HEADS.split())
def test_each_name_of_heads_is_compared(name):
    """Point 5 of issue 12: and is what a proposed row says."""
    with pytest.raises(
        mha_convert.LayerError, match=rf"num_heads is 8 in the row, and its configuration says {name}=4\."
    ):
        with_settings({name: 4}, row="att:num_heads=8")
    assert "num_heads=4, as its configuration says, and" in with_settings({name: 4}).cautions[0]
    root = group("", group("att", *four(), config={name: 4}))
    (item,) = survey(Checkpoint(path="x", format="x", has_config=True, root=root)).not_converted
    assert item.described == "row" and "att:num_heads=4,query=wq" in item.next_step
    for odd in (True, 0, -4, "4", None, [4], 4.0):
        assert "as its configuration says" not in with_settings({name: odd}, row="att:num_heads=8").cautions[0]


@pytest.mark.parametrize("name", NAMES_OF_SHARED.split())
def test_each_name_of_shared_heads_is_compared(name):
    """Point 5 of issue 12: with what the row gives, and with num_heads where it gives none."""
    with pytest.raises(mha_convert.LayerError, match=f"num_key_value_heads is 4 in the row, and its .* says {name}=2"):
        with_settings({name: 2})
    row = "att:num_heads=4,num_key_value_heads=2"
    assert with_settings({name: 2}, row=row, shared=2).num_key_value_heads == 2
    with pytest.raises(mha_convert.LayerError, match=f"num_key_value_heads is 2 in the row, and its .* says {name}=1"):
        with_settings({name: 1}, row=row, shared=2)


@pytest.mark.parametrize("name", NAMES_OF_SIZES.split())
def test_the_size_of_a_head_is_compared_and_is_no_number_of_heads(name):
    """Point 5 of issue 12: num_heads=4 and head_dim=8 do not make 8 a number of heads."""
    with pytest.raises(mha_convert.LayerError, match=f"makes heads of 2 columns, and its configuration says {name}=4"):
        with_settings({name: 4}, row="att:num_heads=8")
    with pytest.raises(
        mha_convert.LayerError, match="num_heads is 8 in the row, and its configuration says num_heads=4"
    ):
        with_settings({"num_heads": 4, name: 8}, row="att:num_heads=8")
    for right in (4, 16, None, "8", True):  # of one head, of all together; no size
        assert with_settings({name: right}).key_dim == 4


@pytest.mark.parametrize("name", NAMES_OF_SCALES.split())
@pytest.mark.parametrize("value", [False, 0.3, 1, pytest.param(10**400, id="huge")])
def test_each_name_of_a_scale_asks_for_the_users(name, value):
    """Point 5 of issue 12: a scale of the configuration is never guessed at; the usual one is no question."""
    with pytest.raises(mha_convert.LayerError, match=f"its configuration says {name}=.*, and the row has no scale"):
        with_settings({name: value})
    given = {False: 1, 0.3: 0.3, 1: 1}.get(value)
    if given is not None:
        assert len(with_settings({name: value}, row=f"att:num_heads=4,scale={given}").cautions) == 1
    layer = with_settings({name: value}, row="att:num_heads=4,scale=0.7")
    assert layer.cautions[1].startswith(f"its configuration says {name}=")
    assert layer.cautions[1].endswith(", and scale=0.7 was given") and layer.beyond.startswith(layer.cautions[1])
    for usual in (True, None, 2, 2.0, 0.5, "auto"):
        assert len(with_settings({name: usual}).cautions) == 1


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row[0].split()[0])
def test_each_setting_is_told(row):
    """Point 5 of issue 12: what the configuration says beside heads and scale, and nothing where it is as usual."""
    names, usual, other, effect, changes = row
    for name in names.split():
        for value in usual:
            assert len(with_settings({name: value}).cautions) == 1
        layer, fact = with_settings({name: other}), f"its configuration says {name}={other}, {effect}"
        assert layer.cautions[1:] == (fact,)
        assert (fact in layer.beyond) == changes
        wrapped = {"class_name": "function", "config": other, "registered_name": other}
        if isinstance(other, str):
            assert with_settings({name: wrapped}).cautions[1:] == (fact,)


def test_settings_of_what_is_around_speak_of_heads_only():
    """Point 5 of issue 12: a block's activation is its feed-forward network's; its heads may be the attention's."""
    att = group("block/att", *four("block/att"))
    config = {"activation": "relu", "dropout": 0.1, "scale": 0.3, "num_heads": 4}
    block = group("block", att, config=config)
    row = "block/att:num_heads={}"
    assert len(layer_of(block, row=row.format(4))[0].cautions) == 1
    with pytest.raises(mha_convert.LayerError, match="the configuration of what is around it says num_heads=4"):
        layer_of(block, row=row.format(8))
    for several in ({"num_heads": 4, "cross_heads": 8}, {"num_heads": 3}):  # another attention's, or not of this one
        layer_of(group("block", att, config=several), row=row.format(8))
    nearer = group(
        "block",
        replace(att, config=LayerConfig(name="att", class_name="A", settings={"heads": 4})),
        config={"num_heads": 8},
    )
    with pytest.raises(mha_convert.LayerError, match="its configuration says heads=4"):
        layer_of(nearer, row=row.format(8))


def test_use_bias_and_classes_of_projections_are_compared():
    """Point 5 of issue 12: a Dense that contradicts itself is refused; an own layer's use_bias and other classes are told."""
    with pytest.raises(
        mha_convert.LayerError, match="use_bias of query is False in the configuration, and it has a bias"
    ):
        layer_of(group("att", *four(config={"use_bias": False})))
    assert len(layer_of(group("att", *four(config={"use_bias": True})))[0].cautions) == 1
    fact = "its configuration says use_bias=False, and every projection has one here"
    assert with_settings({"use_bias": False}).cautions[1:] == (fact,)
    assert len(with_settings({"use_bias": True}).cautions) == 1
    first, *others = four(config={})
    first = replace(first, config=LayerConfig(name="wq", class_name="CosineDense", is_own=True, module="mine"))
    fact = "by the file's configuration the class of its query is mine.CosineDense, not Dense"
    assert layer_of(group("att", first, *others))[0].cautions[1:] == (fact,)


def test_leftovers_of_layers_in_a_model_and_of_nothing_else():
    """Point 5 of issue 12: kernels that a row takes out of several layers of a model, each with what lies beside it."""
    table = variable("inner/table", 4, 25)
    inner = group("inner", *four("inner")[:3], own={"table": table})
    out = group("out", dense("out/wo", 16, 16), own={"gamma": variable("out/gamma", 16)})
    other = group("other", dense("other/kernel", 4, 4))
    names = "query=inner/wq,key=inner/wk,value=inner/wv,output=out/wo"
    held = "besides its kernels the layer holds inner/table (4, 25), out/gamma (16,), which no field names and nothing converts"
    for row in (".:num_heads=4", "model:num_heads=4"):
        parts = [inner, out, other]
        if row.startswith("model"):  # a model in the model: its other layers are no part of the attention
            parts = [renamed(part, "model/") for part in parts]
            told = LayerConfig(name="model", class_name="Functional", settings={"layers": []})
            parts = [replace(group("model", *parts), config=told)]
        layer, not_converted = layer_of(*parts, row=row, names=names)
        assert layer.cautions[1:] == (held,) and layer.beyond.startswith(held) and not_converted == ()
    layer, _ = layer_of(*four(""), other, row=".:num_heads=4", names="query=/wq,key=/wk,value=/wv,output=/wo")
    assert len(layer.cautions) == 1
    seeds = group("att/seed_generator", own={"seed_generator_state": variable("s", 2)})
    assert len(layer_of(group("att", *four(), seeds))[0].cautions) == 1
    many = {f"v{number}": variable(f"v{number}", 3) for number in range(9)}
    (fact,) = layer_of(group("att", *four(), own=many))[0].cautions[1:]
    assert "v5 (3,) and 3 more, which no field names" in fact


def renamed(part: Group, prefix: str) -> Group:
    """The same group under another one."""
    inner = {name: renamed(child, prefix) for name, child in part.children.items()}
    return replace(part, name=prefix + part.name, path=prefix + part.path, children=inner)


def test_json_and_help_tell_the_scale(cases):
    """Point 5 of issue 12: of a described layer a number, of one without null."""
    source = cases / "01/tf_model.h5"
    scales = [
        json.loads(run("inspect", source, "--json", "--attention", row).stdout)["layers"][0]["scale"]
        for row in (f"{T5},scale=1", f"{T5},scale=1/sqrt(width)", T5)
    ]
    assert scales == [1, 0.25, None]
    assert "scale=1" in run("convert", "--help").stdout
    text = run("explain", source, "--attention", f"{T5},scale=1").stdout
    assert "softmax(q · k × 1), the scale that was given" in text and "The query is multiplied by 2, so that" in text


def test_a_batch_tells_what_was_proven_as_described(cases, tmp_path):
    """Point 5 of issue 12: in the record, and in the line for a source."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "m.keras").write_bytes((cases / "03/m.keras").read_bytes())
    (record,) = mha_convert.convert_many([folder / "m.keras"], tmp_path / "out", attention=HEADS.format(4))
    assert record.proven and list(record.as_described) == ["att"]
    (line,) = map(json.loads, (tmp_path / "out/report.jsonl").read_text().splitlines())
    assert line["proven"] is True and line["as_described"] == ["att"]
    text = run("report", tmp_path / "out/report.jsonl").stdout
    assert "Proven as --attention describes them: 1 layers." in text
