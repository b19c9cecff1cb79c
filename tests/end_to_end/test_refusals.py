"""Refusals are useful: they say what, why, and what can be done; tested word for word."""

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from corpus_files import arrays, rows
from layer_cases import CASES, make_layer

import mha_convert
from mha_convert.layers import multi_head_attention, survey
from mha_convert.records.layer import Projection
from mha_convert.records.source import Group

MESSAGES = {
    "keras-3.15.1/gate.keras": (
        "Layout 'mha' cannot hold this: layer 'multi_head_attention' has a gate (use_gate=True): its output is multiplied "
        "by a sigmoid that plain attention does not have. Use --layout linear, whose module computes it."
    ),
    "keras-3.15.1/sliding.keras": (
        "Layout 'mha' cannot hold this: layer 'multi_head_attention' has sliding_window=2: each query sees a band of keys "
        "only, which plain attention does not do by itself. Use --layout linear, whose module computes it."
    ),
}


@pytest.mark.parametrize("file", MESSAGES)
def test_messages_word_for_word(golden, tmp_path, file):
    with pytest.raises(mha_convert.MhaConvertError) as error:
        mha_convert.convert_file(golden / file, tmp_path / "x.safetensors")
    assert str(error.value) == MESSAGES[file]
    assert not list(tmp_path.iterdir())


ROTARY = (
    "it belongs to LlamaBackbone, whose attention adds rotary position embeddings; besides its projections it holds "
    "rotary_embedding_layer: its projections are converted, and proven by the formula of MultiHeadAttention; what its class "
    "computes besides them is not"
)


def test_rotary_attention_of_kerashub_converts_its_projections_and_says_so(corpus, tmp_path):
    source, name = corpus / "keras-3.15.1/hub_llama_tiny.keras", "transformer_layer_0/_self_attention_layer"
    report = mha_convert.convert_file(source, tmp_path / "x.safetensors")
    assert f"Layer '{name}': {ROTARY}." in report.notes
    (layer,) = mha_convert.find_layers(mha_convert.read(source))
    assert layer.beyond == ROTARY
    with pytest.raises(mha_convert.LayerError) as error:
        mha_convert.convert_file(source, tmp_path / "strict.safetensors", strict=True)
    assert str(error.value) == (
        f"Layer '{name}': {ROTARY}. Leave --strict (strict=True) out to convert them all the same."
    )
    assert not (tmp_path / "strict.safetensors").exists()


def test_strict_lets_plain_layers_pass_and_names_them(golden, tmp_path):
    assert mha_convert.convert_file(golden / "keras-3.15.1/square.keras", tmp_path / "a.pt", strict=True).proven
    with pytest.raises(mha_convert.LayerError, match="its class is corpus>MyMHA, not keras.layers.MultiHeadAttention"):
        mha_convert.convert_file(golden / "keras-3.15.1/mha_subclass.keras", tmp_path / "b.pt", strict=True)


def test_all_reasons_and_the_way_to_convert_the_rest():
    good = make_layer(CASES[0], name="encoder/good")
    bad = make_layer(CASES[0], name="bad", sliding_window=3, attention_axes=(-2,), input_rank=3)
    with pytest.raises(mha_convert.LayoutError) as error:
        mha_convert.plan([good, bad])
    assert "sliding_window=3" in str(error.value) and "axes (-2,)" in str(error.value)
    assert str(error.value).endswith("To convert the rest, use --layer encoder/good.")


def test_a_file_without_attention_says_what_it_holds(golden, tmp_path):
    source = tmp_path / "unscaled.weights.h5"  # without its configuration
    with zipfile.ZipFile(golden / "keras-3.15.1/luong_bahdanau.keras") as archive:
        source.write_bytes(archive.read("model.weights.h5"))
    with pytest.raises(mha_convert.LayerError) as error:
        mha_convert.convert_file(source, tmp_path / "x.safetensors")
    assert str(error.value) == (
        f"{source}: no attention with weights of its own in it, expected at least one; it holds 4 variables in 3 layers "
        "(additive_attention, attention, attention_2). It also holds AdditiveAttention 'additive_attention': "
        "keras.layers.AdditiveAttention is what its name and a scale look like, and no configuration shows what it "
        "computes; Attention 'attention': keras.layers.Attention is what its name and a scale look like, and no "
        "configuration tells what it computes; Attention 'attention_1': keras.layers.Attention is what its name looks "
        "like, and it has no variables here, so there is nothing to convert; Attention 'attention_2': keras.layers.Attention "
        "is what its name and a scale look like, and no configuration shows what it computes. Pass the model's "
        "configuration with --config, if you have it. If it is, nothing is needed from the file. In PyTorch it is "
        "scaled_dot_product_attention(query, key, value, scale=1.0). `mha-convert inspect` lists everything."
    )


def changed_config(source: Path, target: Path, change: Callable[[dict], object]) -> Path:
    """A copy of a ``.keras`` file with another configuration."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w") as copy:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "config.json":
                config = json.loads(content)
                change(config)
                content = json.dumps(config).encode()
            copy.writestr(name, content)
    return target


@pytest.mark.parametrize(
    ("file", "change", "fact"),
    [
        (
            "keras-3.15.1/sliding.keras",
            lambda config: config["config"]["layers"].pop(),
            "holds layer 'multi_head_attention', which its configuration does not name (it has 'input_layer')",
        ),
        (
            "keras-3.15.1/sliding.keras",
            lambda config: config["config"]["layers"][1].pop("config"),
            "its configuration is malformed: layer 'multi_head_attention' has no config",
        ),
        (
            "keras-3.15.1/sliding.keras",
            lambda config: config["config"].pop("layers"),
            "its configuration is malformed: the layers of 'Functional' are null, not a list",
        ),
        (
            "keras-3.0.5/square.keras",
            lambda config: config["config"]["layers"].insert(1, doubled(config["config"]["layers"][1])),
            "holds 1 layers 'multi_head_attention', 2 in its configuration, so their names cannot be determined",
        ),
        (
            "keras-2.15/square.keras",
            lambda config: config["config"]["layers"][1].update(class_name="Softmax"),
            "holds layer 'multi_head_attention', which its configuration does not name (it has 'input_1', 'attn')",
        ),
    ],
    ids=["the layer is not named", "it has no config", "no layers are listed", "one too many", "of another class"],
)
def test_a_configuration_that_lost_the_layer_is_refused(golden, tmp_path, file, change, fact):
    """A window, axes or a gate that only the configuration tells must not be lost in silence."""
    source = changed_config(golden / file, tmp_path / "x.keras", change)
    with pytest.raises(mha_convert.ReadError, match=re.escape(fact)):
        mha_convert.convert_file(source, tmp_path / "x.safetensors", layout="linear")


def test_legacy_hdf5_whose_configuration_lost_the_layer_is_refused(samples, tmp_path):
    source = tmp_path / "x.h5"
    shutil.copy(samples / "translator.h5", source)
    with h5py.File(source, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        layers = config["config"]["layers"]
        config["config"]["layers"] = [entry for entry in layers if entry["class_name"] != "MultiHeadAttention"]
        file.attrs["model_config"] = json.dumps(config)
    with pytest.raises(mha_convert.ReadError, match="which its configuration does not name"):
        mha_convert.convert_file(source, tmp_path / "x.safetensors")


def doubled(entry: dict) -> dict:
    """The same layer under another name."""
    return {**entry, "name": "second", "config": {**entry["config"], "name": "second"}}


def test_a_group_within_vars_is_refused(golden, tmp_path):
    """The value's kernel would be taken for the query's."""
    source = tmp_path / "x.weights.h5"
    shutil.copy(golden / "keras-3.15.1/square.weights.h5", source)
    with h5py.File(source, "r+") as file:
        layer = file["layers/multi_head_attention"]
        layer.move("query_dense/vars", "between")
        layer.move("value_dense", "query_dense/vars")
        layer.move("between", "value_dense")
    with pytest.raises(mha_convert.ReadError, match="is in a group 'vars', which holds nothing but arrays"):
        mha_convert.convert_file(source, tmp_path / "x.safetensors")


def moved(path, one, other, by):
    """Let the array ``one`` of a file lie where ``other`` lies, and ``by`` bytes further."""
    with h5py.File(path) as file:
        old, new = file[one].id.get_offset(), file[other].id.get_offset() + by
    content = path.read_bytes()
    assert content.count(old.to_bytes(8, "little")) == 1
    path.write_bytes(content.replace(old.to_bytes(8, "little"), new.to_bytes(8, "little")))


@pytest.mark.parametrize(("other", "by"), [("key", 0), ("value", 64)], ids=["all bytes", "some bytes"])
def test_two_arrays_in_the_same_bytes_are_refused(golden, tmp_path, other, by):
    source = tmp_path / "x.weights.h5"
    shutil.copy(golden / "keras-3.15.1/square.weights.h5", source)
    group = "layers/multi_head_attention"
    moved(source, f"{group}/query_dense/vars/0", f"{group}/{other}_dense/vars/0", by)
    with pytest.raises(mha_convert.ReadError, match="shares bytes of the file with another array"):
        mha_convert.convert_file(source, tmp_path / "x.safetensors")


def test_one_array_under_two_names_is_converted(golden, tmp_path):
    source = tmp_path / "x.weights.h5"
    shutil.copy(golden / "keras-3.15.1/square.weights.h5", source)
    with h5py.File(source, "r+") as file:
        layer = file["layers/multi_head_attention"]
        del layer["key_dense/vars/0"]
        layer["key_dense/vars/0"] = layer["query_dense/vars/0"]
    assert mha_convert.convert_file(source, tmp_path / "x.safetensors").proven


def test_an_unknown_layer_name_lists_the_known_ones(samples, tmp_path):
    with pytest.raises(mha_convert.LayerError) as error:
        mha_convert.convert_file(samples / "translator.h5", tmp_path / "x.pt", layers=["attn"])
    assert str(error.value) == (
        "Layer 'attn' is not in the file. Its attention layers are: self_attention, cross_attention; `mha-convert inspect` "
        "lists 1 other layer."
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "packed"}, "There is no layout 'packed'. Choose one of: mha, padded, linear, "),
        ({"dtype": "int8"}, "There is no dtype 'int8'. Choose one of: float32, float16, bfloat16, float64."),
    ],
)
def test_unknown_words_list_the_known_ones(samples, tmp_path, options, message):
    with pytest.raises(mha_convert.LayoutError, match=message):
        mha_convert.convert_file(samples / "six_heads.keras", tmp_path / "x.pt", **options)


def test_targets_that_cannot_be(samples, tmp_path):
    source = tmp_path / "six.pt"
    shutil.copyfile(samples / "six_heads.keras", source)
    for target, fact in (
        (tmp_path / "x.bin", r"suffix '.bin' is unknown. Name the target \*.safetensors or \*.pt"),
        (tmp_path / "no" / "x.pt", "there is no folder"),
        (source, "exists already"),
    ):
        with pytest.raises(mha_convert.WriteError, match=fact):
            mha_convert.convert_file(source, target)
    with pytest.raises(mha_convert.WriteError, match="is the source itself"):
        mha_convert.convert_file(source, source, overwrite=True)
    link = tmp_path / "link.pt"
    link.symlink_to(source)
    with pytest.raises(mha_convert.WriteError, match="is the source itself"):
        mha_convert.convert_file(source, link, overwrite=True)
    assert mha_convert.read(source).format == "keras"


def reconfigured(golden, tmp_path, **settings):
    """The golden model with other settings of its attention layer."""
    import json
    import zipfile

    path = tmp_path / "x.keras"
    with zipfile.ZipFile(golden / "keras-3.15.1/square.keras") as a, zipfile.ZipFile(path, "w") as b:
        config = json.loads(a.read("config.json"))
        layer = config["config"]["layers"][1]
        layer["class_name"] = settings.pop("class_name", layer["class_name"])
        layer["build_config"] = settings.pop("build_config", layer["build_config"])
        layer["config"].update(settings)
        b.writestr("config.json", json.dumps(config))
        b.writestr("model.weights.h5", a.read("model.weights.h5"))
    return path


def test_configuration_against_arrays_shows_both(golden, tmp_path):
    with pytest.raises(mha_convert.LayerError) as error:
        mha_convert.find_layers(mha_convert.read(reconfigured(golden, tmp_path, num_heads=2, use_bias=False)))
    assert str(error.value) == (
        "Layer 'attn': num_heads is 2 in the configuration, 4 in the arrays; use_bias is False in the configuration, True "
        "in the arrays. The file was changed or put together from two models; save the model again."
    )


@pytest.mark.parametrize(
    ("settings", "fact"),
    [
        ({"attention_axes": [2.0]}, r"attention_axes is \[2.0\], expected a list of integers"),
        ({"attention_axes": "2"}, "attention_axes is '2', expected a list of integers"),
        ({"sliding_window": 3.0}, "sliding_window is 3.0, expected a positive integer"),
        ({"sliding_window": "3"}, "sliding_window is '3', expected a positive integer"),
        ({"use_gate": 1}, "use_gate is 1 in the configuration, but the arrays have no gate kernel"),
        ({"use_gate": ""}, "use_gate is '', expected true or false"),
        ({"dropout": True}, "dropout is True, expected a number between 0 and 1"),
        ({"sliding_window": True}, "sliding_window is True, expected a positive integer"),
        ({"sliding_window": 1 << 200}, "sliding_window is .*, expected a positive integer of 64 bits"),
        ({"attention_axes": [True]}, "attention_axes is .*, expected a list of integers"),
        ({"num_heads": "4"}, "num_heads is '4' in the configuration, 4 in the arrays"),
        ({"key_dim": 8.5}, "key_dim is 8.5 in the configuration, 8 in the arrays"),
        ({"output_shape": 32.5}, r"output_shape is 32.5 in the configuration, \[32\] in the arrays"),
        ({"output_shape": [16]}, r"output_shape is \[16\] in the configuration, \[32\] in the arrays"),
        ({"dropout": float("nan")}, "dropout is nan, expected a number between 0 and 1"),
        ({"dropout": 10**400}, "dropout is 1000"),
        ({"dropout": -1}, "dropout is -1, expected a number between 0 and 1"),
        (
            {"build_config": {"shapes_dict": {"query_shape": [None, 5, 16]}}},
            "the query input is 16 wide in the configuration, 32",
        ),
        (
            {"class_name": "Dense"},
            "its class is Dense in the configuration, but the arrays are those of MultiHeadAttention",
        ),
    ],
)
def test_odd_configurations_are_not_taken_for_absent_ones(golden, tmp_path, settings, fact):
    with pytest.raises(mha_convert.LayerError, match=fact):
        mha_convert.find_layers(mha_convert.read(reconfigured(golden, tmp_path, **settings)))


def test_identities_that_would_fill_the_memory_are_refused():
    from layer_cases import LayerCase

    case = LayerCase(
        id="",
        num_heads=30000,
        key_dim=1,
        value_dim=1,
        query_features=2,
        key_features=2,
        value_features=2,
        output_shape=(2,),
    )
    layer = make_layer(case)
    with pytest.raises(
        mha_convert.LayoutError, match="would need identities of 1,800,000,000 numbers for .* Use --layout linear"
    ):
        mha_convert.plan([layer])
    mha_convert.plan([layer], layout="linear")


@pytest.mark.parametrize("name", ["a..b", ".", "a//b", "../../x", "a\x1bb", "a\udc80b"])
def test_names_that_are_no_module_names_are_refused(name):
    with pytest.raises(mha_convert.LayoutError, match="which no module of PyTorch can be called"):
        mha_convert.plan([make_layer(CASES[0], name=name)])
    mha_convert.plan([make_layer(CASES[0], name=name)], prefix="good")


def edited(golden, tmp_path, edit):
    """A .weights.h5 whose only layer was changed."""
    path = tmp_path / "x.weights.h5"
    shutil.copyfile(golden / "keras-3.15.1/square.weights.h5", path)
    with h5py.File(path, "a") as file:
        edit(file["layers/multi_head_attention"])
    return survey(mha_convert.read(path))


def remove(place):
    return lambda group: group.__delitem__(place)


def put(place, shape):
    def edit(group):
        if place in group:
            del group[place]
        group[place] = np.ones(shape, "f4")

    return edit


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (remove("output_dense/vars/0"), "the file holds no output kernel"),
        (remove("value_dense/vars/0"), "the file holds no value kernel"),
        (put("_gate_dense/vars/1", (4, 8)), "the file holds no gate kernel"),
        (remove("value_dense/vars/1"), "value without bias, the other projections with one"),
        (put("key_dense/vars/0", (32, 2, 8)), "key kernel (32, 2, 8) and value kernel (32, 4, 8) have different heads"),
        (
            put("key_dense/vars/0", (32, 4, 6)),
            "query kernel (32, 4, 8) and key kernel (32, 4, 6) have different head sizes",
        ),
        (
            put("output_dense/vars/0", (4, 6, 32)),
            "output kernel (4, 6, 32) does not begin with (heads, value_dim) = (4, 8)",
        ),
        (put("query_dense/vars/1", (8, 4)), "query bias (8, 4) is not (4, 8)"),
        (
            lambda layer: layer.move("output_dense/vars/1", "output_dense/vars/2"),
            "its output is stored as 0 float32 (4, 8, 32), 2 float32 (32,): numbers other than 0, 1, …",
        ),
    ],
)
def test_layers_that_are_not_quite_attention_are_named_and_block(golden, tmp_path, edit, reason):
    findings = edited(golden, tmp_path, edit)
    assert findings.layers == ()
    (found,) = findings.not_converted
    assert reason in found.reason and found.blocking
    with pytest.raises(mha_convert.LayerError, match="is not converted"):
        mha_convert.convert_file(tmp_path / "x.weights.h5", tmp_path / "x.pt")


@pytest.mark.parametrize("layout", ["mha", "linear"])
def test_a_key_without_bias_gives_what_keras_gives_with_one(golden, tmp_path, layout):
    """Its bias adds one number to all scores of a query, and softmax takes that away."""
    source, target = golden / "keras-3.15.1/square.weights.h5", tmp_path / "x.safetensors"
    with h5py.File(source) as file:
        assert np.abs(file["layers/multi_head_attention/key_dense/vars/1"][()]).max() > 0.01
    edited(golden, tmp_path, remove("key_dense/vars/1"))
    report = mha_convert.convert_file(tmp_path / "x.weights.h5", target, layout=layout)
    (name,) = report.ledgers
    assert report.proven and report.ledgers[name].target == 4 * (32 * 32 + 32)
    assert any("its key has no bias (as in Whisper), and zeros are put in its place" in note for note in report.notes)
    (file,) = (row for row in rows(golden) if row.path == source)
    keras = arrays(file, 0)
    module = mha_convert.load_modules(target)[name]
    inputs = (torch.from_numpy(keras[name]) for name in ("query", "key", "value"))
    output, scores = module(*inputs, average_attn_weights=False)
    largest = np.abs(keras["plain_out_s"]).max()
    np.testing.assert_allclose(output.detach() / largest, keras["plain_out_s"] / largest, atol=2e-6)
    np.testing.assert_allclose(scores.detach(), keras["plain_scores"], atol=2e-6)


def test_a_key_without_bias_is_refused_where_the_class_computes_more(golden, tmp_path):
    def edit(group):
        del group["key_dense/vars/1"]
        group["rope/vars/0"] = np.ones(2, "f4")

    (found,) = edited(golden, tmp_path, edit).not_converted
    assert "key without bias, the other projections with one" in found.reason and found.blocking


@pytest.mark.parametrize(
    ("place", "shape", "held"),
    [("vars/0", (3,), "0 (3,)"), ("temperature/vars/0", (), "temperature/0 ()"), ("rope/vars/0", (2,), "rope/0 (2,)")],
)
def test_variables_beside_the_projections_are_listed(golden, tmp_path, place, shape, held):
    findings = edited(golden, tmp_path, put(place, shape))
    (layer,) = findings.layers
    assert layer.beyond and layer.beyond.startswith(
        f"besides its projections it holds {held}, which MultiHeadAttention does not have: its projections are converted"
    )
    assert layer.beyond in layer.cautions
    mha_convert.convert_file(tmp_path / "x.weights.h5", tmp_path / "x.pt")
    with pytest.raises(mha_convert.LayerError, match="besides its projections it holds"):
        mha_convert.convert_file(tmp_path / "x.weights.h5", tmp_path / "y.pt", strict=True)


def group(name, **children):
    """A group with one 2-D kernel in each child."""
    parts = {}
    for child, shape in children.items():
        from layer_cases import make_variable

        parts[child] = Group(
            path=child, name=f"{name}/{child}", variables={"kernel": make_variable(child, np.ones(shape))}
        )
    return Group(path=name, name=name, children=parts)


@pytest.mark.parametrize(
    "names",
    [
        ("wq", "wk", "wv"),
        ("query", "key", "value"),
        ("query_dense", "key_dense", "value_dense"),
        ("q_proj", "k_proj", "v_proj"),
    ],
)
def test_hand_written_attention_is_a_candidate_and_never_guessed(names):
    root = Group(path="", name="", children={"mine": group("mine", **dict.fromkeys((*names, "dense"), (8, 8)))})
    checkpoint = mha_convert.Checkpoint(path="x", format="keras", has_config=False, root=root)
    findings = survey(checkpoint)
    assert findings.layers == ()
    (found,) = findings.not_converted
    assert found.kind == "perhaps hand-written attention" and not found.blocking
    assert "rank 2" in found.reason and "does not show the number of heads" in found.reason


@pytest.mark.parametrize(
    "family", ["llama_transformer_decoder", "GemmaDecoderBlock", "moonshine_encoder_block", "bloom_decoder"]
)
def test_families_with_other_mathematics_are_known_by_name(family):
    layer = make_layer(CASES[0])
    children = {
        f"{role}_dense": Group(path=role, name=role, variables={"0": projection.kernel, "1": projection.bias})
        for role, projection in layer.projections.items()
    }
    attention = Group(path="a", name="block/self_attention", children=children)
    assert multi_head_attention.match(attention, ()).beyond is None
    parent = Group(path=f"layers/{family}", name="block", children={"self_attention": attention})
    found = multi_head_attention.match(attention, (parent,))
    assert f"belongs to {family}, whose attention adds" in found.beyond


def test_a_users_subclass_is_converted_with_a_caution(golden, tmp_path):
    report = mha_convert.convert_file(golden / "keras-3.15.1/mha_subclass.keras", tmp_path / "x.pt")
    assert report.proven
    assert any("its class is corpus>MyMHA, not keras.layers.MultiHeadAttention" in note for note in report.notes)


def test_mixed_bias_is_no_plain_layer():
    layer = make_layer(CASES[0])
    projections = layer.projections | {"key": Projection(layer.key.kernel)}
    assert "key without bias" in multi_head_attention.disagreement(projections)[0]


def test_grouped_heads_are_seen_without_configuration():
    layer = make_layer(CASES[0])
    assert layer.num_key_value_heads == 4
    assert replace(layer, kind="GroupQueryAttention").num_heads == 4


def test_a_zip_whose_directory_is_no_text_is_refused(golden, tmp_path):
    """A member's name that says it is UTF-8 and is not."""
    source = tmp_path / "x.keras"
    content = bytearray((golden / "keras-3.15.1/seed1.keras").read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 9] |= 0x08  # names are UTF-8
    content[entry + 46] = 0x80
    source.write_bytes(content)
    with pytest.raises(mha_convert.ReadError, match="a zip archive that ends too early or is damaged"):
        mha_convert.convert_file(source, tmp_path / "x.safetensors")
