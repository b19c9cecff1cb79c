"""Keras itself as the reference: in a process of its own, on each backend, and able to disagree."""

import importlib.util
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from environment import PROJECT

import mha_convert

BACKENDS = [name for name in ("tensorflow", "torch", "jax") if importlib.util.find_spec(name)]


@pytest.mark.process
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_sample_agrees_with_genuine_keras(keras_installed, samples, tmp_path, backend, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", backend)
    for file in ("textbook.keras", "six_heads.keras", "translator.h5", "encoder.weights.h5"):
        report = mha_convert.convert_file(samples / file, tmp_path / f"{file}.pt", reference="keras")
        assert report.proven
        theirs = [comparison for comparison in report.comparisons if comparison.reference.startswith("Keras ")]
        assert len(theirs) == 12 * len(report.plan.layers)
        assert f"on {backend} " in theirs[0].reference
        assert max(comparison.bound for comparison in theirs) < 1e-4
        assert max(comparison.relative for comparison in theirs) < 1e-6


@pytest.mark.process
def test_geometries_agree_with_genuine_keras(keras_installed, tmp_path):
    """The whole table of sizes in one Keras process."""
    from layer_cases import CASES, make_layer

    from mha_convert.targets import write
    from mha_convert.verification import verify

    plan = mha_convert.plan([make_layer(case, name=f"layer{i}") for i, case in enumerate(CASES)])
    write(tmp_path / "x.safetensors", mha_convert.convert(plan))
    proof = verify(plan, mha_convert.open_target(tmp_path / "x.safetensors"), reference="keras")
    assert sum(comparison.reference.startswith("Keras ") for comparison in proof.comparisons) == 12 * len(CASES)


@pytest.mark.process
def test_genuine_keras_can_disagree(keras_installed, tmp_path, monkeypatch):
    """Were our formula wrong in the same way as our conversion, Keras would say so."""
    from layer_cases import CASES, make_layer

    from mha_convert import conversion, verification

    monkeypatch.setattr(conversion, "is_rescaled", lambda piece: False)
    maths = verification.OF_KIND["MultiHeadAttention"]

    def wrong_scale(arrays, calls):
        factor = np.sqrt(3 / 7)
        return maths.formula(
            arrays | {name: arrays[name] * factor for name in ("query.kernel", "query.bias")},
            calls,
        )

    wrong = {"MultiHeadAttention": replace(maths, formula=wrong_scale)}
    monkeypatch.setattr(verification, "OF_KIND", wrong)
    case = next(case for case in CASES if case.id == "value larger")
    plan = mha_convert.plan([make_layer(case)])
    mha_convert.write(tmp_path / "x.safetensors", mha_convert.convert(plan))
    target = mha_convert.open_target(tmp_path / "x.safetensors")
    verification.verify(plan, target)
    with pytest.raises(mha_convert.VerificationError, match=r"and Keras 3\.\d+\.\d+ on \w+ .* differ by"):
        verification.verify(plan, target, reference="keras")


def test_without_keras_the_message_says_how_to_get_it(samples, tmp_path, monkeypatch):
    from mha_convert.verification import genuine_keras

    monkeypatch.setattr(genuine_keras.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(mha_convert.VerificationError) as error:
        mha_convert.convert_file(samples / "six_heads.keras", tmp_path / "x.pt", reference="keras")
    assert str(error.value) == (
        "Reference keras: Keras is not installed in this Python. Install it with `pip install keras tensorflow`, or "
        "take --reference numpy."
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.process
def test_a_keras_that_does_not_start_is_one_line(keras_installed, samples, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "nonsense")
    with pytest.raises(mha_convert.VerificationError, match="the Keras process ended: .*nonsense"):
        mha_convert.convert_file(samples / "six_heads.keras", tmp_path / "x.pt", reference="keras")
    assert not list(tmp_path.iterdir())


LIVE = """
import os, sys
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy as np, torch, mha_convert
for options, widths in (
    (dict(num_heads=6, key_dim=4), (4, 4, 4)),
    (dict(num_heads=2, key_dim=4), (8, 6, 10)),
    (dict(num_heads=2, key_dim=3, value_dim=5, use_bias=False, output_shape=(2, 3)), (8, 8, 8)),
):
    layer = keras.layers.MultiHeadAttention(**options)
    query, key, value = (np.random.default_rng(i).standard_normal((2, 5 + (i > 0), w)).astype("float32") for i, w in enumerate(widths))
    layer(query, value, key)
    for weight in layer.weights:
        weight.assign(np.random.default_rng(1).standard_normal(weight.shape))
    output, scores = layer(query, value, key, return_attention_scores=True)
    for layout in ("mha", "linear"):
        module = mha_convert.from_keras_layer(layer, layout=layout)
        ours = module(*map(torch.from_numpy, (query, key, value)), average_attn_weights=False)
        for a, b in zip(ours, (output, scores)):
            assert float((a - b).abs().max()) < 2e-5, (options, layout)
# Point 13 of issue 12: only attention that is not built is to be called.
inputs = keras.Input((4,))
model = keras.Model(inputs, keras.layers.Dense(2)(inputs))
built, plain = keras.layers.Dense(2), keras.layers.Attention()
built.build((None, 4))
plain([np.ones((1, 2, 3)), np.ones((1, 2, 3))])
for thing, words in (
    (keras.layers.Dense(2), "Dense is not an attention layer, and has no weights. Pass a built keras.layers.MultiH"),
    (built, "its class is Dense, expected attention with weights of its own. Pass a keras.layers.MultiHeadAttention"),
    (plain, "Attention has no weights of its own, so there is nothing to convert. Call torch.nn.functional"),
    (keras.layers.MultiHeadAttention, "MultiHeadAttention is the class, expected a built layer. Pass the layer"),
    (keras.layers.Attention(use_scale=True), "Call the layer once"),
    (model, "Functional is a model, expected one layer"),
    ("model.keras", "'model.keras' is a path, expected a layer in memory"),
    (torch.nn.MultiheadAttention(4, 2), "MultiheadAttention is not a layer of Keras (torch.nn.modules.activation."),
):
    try:
        mha_convert.from_keras_layer(thing)
    except mha_convert.LayerError as error:
        assert words in str(error), str(error)
        assert ("Call the layer once" in str(error)) == ("Call the layer once" in words), str(error)
    else:
        raise AssertionError(words)
for thing in (model, built):
    for call in (mha_convert.read, lambda thing: mha_convert.convert_file(thing, "x.pt")):
        try:
            call(thing)
        except mha_convert.ReadError as error:
            assert f"class {type(thing).__name__}: expected the path or URL of a saved Keras model" in str(error)
            assert "Save the model with model.save('model.keras')" in str(error)
        else:
            raise AssertionError(thing)
try:
    mha_convert.from_keras_layer(keras.layers.MultiHeadAttention(2, 4))
except mha_convert.LayerError as error:
    assert "has no weights, expected a built" in str(error)
else:
    raise AssertionError("an unbuilt layer was taken")
"""


@pytest.mark.process
def test_live_layers_become_modules(keras_installed):
    subprocess.run([sys.executable, "-c", LIVE], check=True, cwd=PROJECT, timeout=300)
