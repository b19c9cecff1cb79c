"""``--like``: attention in a user's model is recognised, and matched only if shapes and order determine the match."""

import json

import pytest
import torch
from command_line import run
from layer_cases import case, make_layer
from safetensors.torch import load_file
from torch import nn

import mha_convert
from mha_convert.conversion import convert
from mha_convert.keys.matching import FORMS, align, as_toml, natural, recognise, renames_of
from mha_convert.keys.renaming import read_renames, rename

SQUARE, CROSS = case("", 2, 4), case("", 2, 4, kv=(6, 6))


def shapes_of(module):
    return {key: tuple(tensor.shape) for key, tensor in module.state_dict().items()}


def places(alignment):
    return {pair.layer.name: (pair.place.prefix, pair.alike) for pair in alignment.pairs}


def stock(**options):
    return nn.MultiheadAttention(8, 2, **options)


def test_names_are_in_natural_order():
    assert sorted(["h.10.a", "h.2.a", "h.2", "b.1"], key=natural) == ["b.1", "h.2", "h.2.a", "h.10.a"]


def test_a_genuine_encoder_is_matched_by_order_and_loads():
    """Twelve layers: 10 comes after 9."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 12, enable_nested_tensor=False)
    layers = [make_layer(SQUARE, name=f"block_{i}/attn", seed=i) for i in range(12)]
    alignment = align(layers, shapes_of(model))
    assert places(alignment) == {f"block_{i}/attn": (f"layers.{i}.self_attn.", 12) for i in range(12)}
    assert (alignment.layout, alignment.left_layers, alignment.left_places) == ("padded", (), ())
    plan = mha_convert.plan(layers, layout=alignment.layout)
    state = {t.key: torch.from_numpy(t.read()) for t in convert(rename(plan, renames_of(alignment)))}
    assert not model.load_state_dict(state, strict=False).unexpected_keys
    assert torch.equal(model.layers[10].self_attn.in_proj_weight, state["layers.10.self_attn.in_proj_weight"])
    kernel = torch.from_numpy(layers[10].output.kernel.read()).reshape(8, 8)
    assert torch.equal(model.layers[10].self_attn.out_proj.weight, kernel.T)


def test_order_tells_nothing_between_places_of_different_words():
    """Encoder, decoder and cross-attention of one shape: sorted by name they would be exchanged."""
    model = nn.Transformer(8, 2, 2, 2, 16, batch_first=True)
    layers = [make_layer(SQUARE, name=f"attn_{i}") for i in range(6)]
    alignment = align(layers, shapes_of(model))
    why = "its 6 places in the model differ in words, so order shows nothing"
    assert alignment.pairs == () and alignment.left_layers == tuple((layer.name, why) for layer in layers)


def test_without_the_models_order_only_numbers_tell():
    shapes = shapes_of(nn.ModuleList([stock() for _ in range(12)]))
    names = ["mha", *[f"mha_{i}" for i in range(1, 12)]]
    layers = [make_layer(SQUARE, name=name) for name in sorted(names)]
    alignment = align(layers, shapes, in_order=False)
    assert places(alignment) == {name: (f"{i}.", 12) for i, name in enumerate(names)}
    names = ("decoder/attn", "encoder/attn")
    layers = [make_layer(SQUARE, name=name, has_config=True) for name in names]
    inside_custom_layers = [make_layer(SQUARE, name=name, has_config=False) for name in names]
    shapes = shapes_of(nn.ModuleList([stock(), stock()]))
    assert places(align(layers, shapes)) == {"decoder/attn": ("0.", 2), "encoder/attn": ("1.", 2)}
    why = "this file does not show the order of the 2 layers of its shapes"
    for alignment in (align(layers, shapes, in_order=False), align(inside_custom_layers, shapes)):
        assert alignment.pairs == () and alignment.left_layers == tuple((name, why) for name in names)


def test_a_decoder_is_matched_by_shapes():
    model = nn.ModuleDict({"cross": stock(kdim=6, vdim=6), "own": stock()})
    layers = [make_layer(SQUARE, name="a"), make_layer(CROSS, name="b")]
    assert places(align(layers, shapes_of(model))) == {"a": ("own.", 1), "b": ("cross.", 1)}


def test_a_narrow_layer_is_padded_into_a_stock_module():
    assert places(align([make_layer(case("", 2, 3), name="a")], shapes_of(stock()))) == {"a": ("", 1)}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: next(iter(form.names.values())))
def test_every_form_is_recognised_once(form):
    layer = make_layer(CROSS if "q_proj_weight" in form.names else SQUARE, name="a")
    plan = mha_convert.plan([layer], layout=form.layout, prefix="")
    shapes = {f"m.0.{form.names[t.key]}": t.shape for t in convert(plan)} | {
        "m.0.norm.weight": (8,),
        "head.weight": (3, 8),
    }
    (place,) = recognise(shapes)
    assert (place.prefix, place.others) == ("m.0.", ("m.0.norm.weight",))
    alignment = align([layer], shapes)
    assert places(alignment) == {"a": ("m.0.", 1)} and alignment.layout == form.layout
    plan = rename(mha_convert.plan([layer], layout=alignment.layout), renames_of(alignment))
    assert {t.key: t.shape for t in convert(plan)} == {
        k: s for k, s in shapes.items() if "norm" not in k and "head" not in k
    }


def test_t5_is_not_recognised():
    assert recognise({f"{name}.weight": (8, 8) for name in "qkvo"}) == []


@pytest.mark.parametrize(
    ("layers", "model", "reason"),
    [
        ([SQUARE], [stock(bias=False)], "no attention in the model has its shapes"),
        ([CROSS], [stock()], "no attention in the model has its shapes"),
        ([SQUARE] * 3, [stock(), stock()], "3 layers of its shapes for 2 in the model (0., 1.)"),
        ([SQUARE], [stock(), stock()], "1 layers of its shapes for 2 in the model (0., 1.)"),
    ],
)
def test_nothing_is_matched_by_luck(layers, model, reason):
    named = [make_layer(case, name=f"l{i}") for i, case in enumerate(layers)]
    alignment = align(named, shapes_of(nn.ModuleList(model)))
    assert alignment.pairs == () and len(alignment.left_places) == len(model)
    assert alignment.left_layers == tuple((layer.name, reason) for layer in named)


def test_layers_that_share_some_places_are_not_matched():
    """A layer with smaller heads fits the stock module by padding; the other fits both forms."""
    fused = {f"x.{key}": shape for key, shape in (("qkv.weight", (24, 8)), ("qkv.bias", (24,)), ("proj.weight", (8, 8)), ("proj.bias", (8,)))}  # fmt: skip
    shapes = fused | {f"y.{key}": shape for key, shape in shapes_of(stock()).items()}
    alignment = align([make_layer(SQUARE, name="a"), make_layer(case("", 2, 3), name="b")], shapes)
    why = "the model has attention of several forms that it fits, and shapes do not show which"
    assert alignment.pairs == () and alignment.left_layers == (("a", why), ("b", why))


def test_two_layouts_are_not_one_target():
    shapes = {f"x.{key}": shape for key, shape in shapes_of(stock(kdim=6, vdim=6)).items()}
    shapes |= {f"y.{key}": shape for key, shape in (("qkv.weight", (24, 8)), ("qkv.bias", (24,)), ("proj.weight", (8, 8)), ("proj.bias", (8,)))}  # fmt: skip
    layers = [make_layer(SQUARE, name="a"), make_layer(CROSS, name="b")]
    with pytest.raises(mha_convert.LayoutError) as caught:
        align(layers, shapes)
    assert str(caught.value) == (
        "The model's attention has the forms of 2 layouts, padded and qkv; a target has one. Convert in parts, with --layer."
    )


def test_rules_are_toml_that_is_read_back(tmp_path):
    renames = {'a "b" \\ ü.x': "c.x", "a.y": "d.y"}
    (tmp_path / "rules.toml").write_text(as_toml(renames, ["made\nby a test"]), encoding="utf-8")
    assert read_renames(tmp_path / "rules.toml") == renames


@pytest.mark.parametrize("prefix", ["a*b", "a{1}", "a\x7f"])
def test_keys_that_no_rule_can_hold(prefix):
    shapes = {f"{prefix}.{key}": shape for key, shape in shapes_of(stock()).items()}
    with pytest.raises(
        mha_convert.LayoutError, match="a star, a brace or a control character, which rules cannot hold"
    ):
        renames_of(align([make_layer(SQUARE, name="a")], shapes))


@pytest.fixture
def decoder(tmp_path):
    """A model with the attention of translator.h5, under other names."""
    torch.manual_seed(0)
    own = nn.MultiheadAttention(16, 2, batch_first=True)
    cross = nn.MultiheadAttention(16, 2, kdim=12, vdim=12, batch_first=True)
    model = nn.ModuleDict({"b": nn.ModuleDict({"own": own, "cross": cross}), "norm": nn.LayerNorm(16)})
    torch.save(model.state_dict(), tmp_path / "model.pt")
    return model


@pytest.mark.process
def test_the_proposal_is_written_edited_and_taken(samples, tmp_path, decoder):
    source = samples / "translator.h5"
    text = run("match", source, "model.pt", "--rules", "x.rename.toml", cwd=tmp_path).stdout
    rows = [line.split() for line in text.splitlines()]
    assert ["self_attention", "b.own.*", "shapes", "2"] in rows and [
        "cross_attention",
        "b.cross.*",
        "shapes",
        "2",
    ] in rows
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt", "x.rename.toml"]
    command = next(
        line for line in (tmp_path / "x.rename.toml").read_text().splitlines() if "mha-convert convert" in line
    )
    assert command.removeprefix("# ") in text
    options = ("--layout", "padded", "--rename", "x.rename.toml")
    run("convert", source, "by_rules.safetensors", *options, cwd=tmp_path)
    error = run("match", source, "model.pt", "--rules", "x.rename.toml", cwd=tmp_path, code=1).stderr
    assert "x.rename.toml" in error and "exists already" in error
    run("convert", source, "x.safetensors", "--like", "model.pt", cwd=tmp_path)
    assert (tmp_path / "x.safetensors").read_bytes() == (tmp_path / "by_rules.safetensors").read_bytes()
    result = decoder.load_state_dict(load_file(tmp_path / "x.safetensors"), strict=False)
    assert result.missing_keys == ["norm.weight", "norm.bias"] and not result.unexpected_keys
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 12)
    module = mha_convert.load_modules(tmp_path / "x.safetensors")["cross_attention"]
    torch.testing.assert_close(decoder["b"]["cross"](x, memory, memory)[0], module(x, memory, memory)[0])


@pytest.mark.process
def test_the_proposal_as_json_and_wrong_usage(samples, tmp_path, decoder):
    source = samples / "translator.h5"
    document = json.loads(run("match", source, "model.pt", "--json", cwd=tmp_path).stdout)
    assert list(document) == ["source", "like", "layout", "pairs", "layers_left", "places_left", "notes"]
    assert document["pairs"][0]["keys"]["in_proj_weight"] == "b.own.in_proj_weight"
    for words in (("--prefix", "x"), ("--rename", "x.rename.toml")):
        run("convert", source, "y.pt", "--like", "model.pt", *words, cwd=tmp_path, code=2)


@pytest.mark.process
def test_like_wants_a_place_for_every_layer(samples, tmp_path, decoder):
    source = samples / "six_heads.keras"
    text = run("match", source, "model.pt", "--rules", "x.rename.toml", cwd=tmp_path, code=1, shown=True).stdout
    assert "Without a place: layer 'attention': no attention in the model has its shapes." in text
    assert "Without a layer: b.cross.*" in text and not (tmp_path / "x.rename.toml").exists()
    error = run("convert", source, "x.pt", "--like", "model.pt", cwd=tmp_path, code=1).stderr
    assert error == (
        "error: model.pt does not take every layer: layer 'attention': no attention in the model has its shapes. "
        "Write rules for --rename.\n"
    )
    assert not (tmp_path / "x.pt").exists()


@pytest.mark.process
def test_a_model_is_never_run(samples, tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"a": Evil()}, tmp_path / "model.pt")
    error = run("convert", samples / "six_heads.keras", "x.pt", "--like", "model.pt", cwd=tmp_path, code=1).stderr
    assert "holds a dict of 'a', expected a state_dict" in error and not (tmp_path / "ran").exists()


@pytest.mark.parametrize("facts", [{"sliding_window": 2}, {"attention_axes": (2,), "input_rank": 4}])
def test_windows_and_axes_are_in_no_shape(facts):
    alignment = align([make_layer(SQUARE, **facts)], shapes_of(stock()))
    assert not alignment.pairs
    assert alignment.left_layers == (
        ("layer", "it has a window or other attention axes, which no shape in a model shows"),
    )


@pytest.mark.parametrize(
    ("prefix", "extra"),
    [("", "bias_k"), ("attn.", "bias_v"), ("attn.", "q_norm.weight"), ("attn.", "relative_attention_bias.weight")],
)
def test_attention_that_computes_more_is_no_place(prefix, extra):
    shapes = {prefix + key: shape for key, shape in shapes_of(stock()).items()} | {prefix + extra: (1, 1, 8)}
    alignment = align([make_layer(SQUARE, name="a")], shapes)
    assert not alignment.pairs and len(alignment.left_places) == 1
    assert alignment.left_layers == (
        ("a", f"the model's attention of its shapes also has {prefix}{extra}, which changes what it computes"),
    )
    del shapes[prefix + extra]
    assert len(align([make_layer(SQUARE, name="a")], shapes | {"head.q_norm.weight": (8,)}).pairs) == 1


def test_like_in_python_fills_the_model(samples, tmp_path):
    """The counterpart of ``--like --yes``; every tensor of the model's attention is filled, and outputs are Keras'."""

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn = nn.MultiheadAttention(16, 2, batch_first=True)
            self.cross_attn = nn.MultiheadAttention(16, 2, kdim=12, vdim=12, batch_first=True)

    model, target = Decoder(), tmp_path / "x.safetensors"
    torch.save(model.state_dict(), tmp_path / "model.pt")
    alignment = mha_convert.match_file(samples / "translator.h5", tmp_path / "model.pt")
    assert {name: prefix for name, (prefix, _) in places(alignment).items()} == {
        "self_attention": "self_attn.",
        "cross_attention": "cross_attn.",
    }
    report = mha_convert.convert_file(samples / "translator.h5", target, like=tmp_path / "model.pt")
    assert report.proven
    model.load_state_dict(load_file(target), strict=True)
    mha_convert.convert_file(samples / "translator.h5", tmp_path / "plain.pt")
    plain = mha_convert.load_modules(tmp_path / "plain.pt")["cross_attention"]
    query, key = torch.randn(2, 5, 16), torch.randn(2, 7, 12)
    torch.testing.assert_close(model.cross_attn(query, key, key)[0], plain(query, key, key)[0])
    one = mha_convert.match_file(samples / "translator.h5", tmp_path / "model.pt", layers=["self_attention"])
    assert [place.prefix for place in one.left_places] == ["cross_attn."]


def test_like_in_python_refuses_what_has_no_sure_place_and_names_beside_it(samples, tmp_path):
    torch.save(stock().state_dict(), tmp_path / "model.pt")
    with pytest.raises(
        mha_convert.LayoutError, match="does not take every layer: layer 'self_attention': no attention"
    ):
        mha_convert.convert_file(samples / "translator.h5", tmp_path / "x.pt", like=tmp_path / "model.pt")
    for options in ({"prefix": ""}, {"renames": {"a": "b"}}):
        with pytest.raises(mha_convert.LayoutError, match="gives the names itself. Leave out prefix and renames"):
            mha_convert.convert_file(
                samples / "translator.h5", tmp_path / "x.pt", like=tmp_path / "model.pt", **options
            )
    assert not (tmp_path / "x.pt").exists()
