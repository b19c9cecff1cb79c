"""Saves models of ``Attention`` and ``AdditiveAttention`` with the installed Keras: `python unprojected_models.py FOLDER`.

Weights are random, because fresh ones are all 1 and would hide an exchange. Outputs are in ``outputs.npz``.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers

LAYERS = {
    "dot": lambda: layers.Attention(use_scale=True, name="dot"),
    "dot_dropout": lambda: layers.Attention(use_scale=True, dropout=0.3, name="dot_dropout"),
    "concat": lambda: layers.Attention(score_mode="concat", name="concat"),
    "concat_scaled": lambda: layers.Attention(use_scale=True, score_mode="concat", name="concat_scaled"),
    "additive": lambda: layers.AdditiveAttention(name="additive"),
    "additive_dropout": lambda: layers.AdditiveAttention(dropout=0.1, name="additive_dropout"),
    "half": lambda: layers.AdditiveAttention(dtype="float16", name="half"),
}


def main(folder: Path) -> None:
    """One model with every layer, one of them in a nested model, beside a MultiHeadAttention."""
    random = np.random.default_rng(7)
    query, value = keras.Input((4, 6), name="q"), keras.Input((5, 6), name="v")
    inside = [keras.Input((4, 6)), keras.Input((5, 6))]
    nested = keras.Model(inside, LAYERS["additive"]()(inside), name="nested")
    made = {name: make() for name, make in LAYERS.items() if name != "additive"}
    outputs = [layer([query, value]) for layer in made.values()] + [nested([query, value])]
    mha = layers.MultiHeadAttention(2, 3, name="mha")
    model = keras.Model([query, value], layers.Concatenate()([*outputs, mha(query, value)]))
    model.set_weights(
        [random.uniform(0.3, 1.5, w.shape) * random.choice([-1, 1], w.shape) for w in model.get_weights()]
    )
    model.save(folder / "every.keras")
    model.save(folder / "every.h5")
    model.save_weights(folder / "every.weights.h5")
    (folder / "every.json").write_text(model.to_json())
    q, k, v = (random.standard_normal((2, n, 6)).astype("float32") for n in (5, 7, 7))
    mask = np.arange(7) < np.array([[7], [4]])
    results = {"query": q, "key": k, "value": v, "mask": mask}
    for name in LAYERS:
        layer = nested.get_layer(name) if name == "additive" else model.get_layer(name)
        calls = {"plain": {}, "causal": {"use_causal_mask": True}, "padding": {"mask": [None, mask]}}
        for what, options in calls.items():
            output, scores = layer([q, v, k], return_attention_scores=True, **options)
            results[f"{name}/{what}/output"] = keras.ops.convert_to_numpy(output).astype("float32")
            results[f"{name}/{what}/scores"] = keras.ops.convert_to_numpy(scores).astype("float32")
    np.savez(folder / "outputs.npz", **results)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
