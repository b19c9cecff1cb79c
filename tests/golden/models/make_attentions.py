"""Writes ``attention_bare``, ``attention_forms`` and ``attention_axes``: every form of attention of genuine Keras.

``python make_attentions.py``. Keras 3.15.1 on TensorFlow; each output is one layer's own.
"""

import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers

HERE = Path(__file__).parent


def attention_bare() -> keras.Model:
    """Without projections."""
    query, memory, other = keras.Input((5, 6), name="query"), keras.Input((7, 6), name="memory"), keras.Input((7, 4))
    words, keep = keras.Input((7,), dtype="int32", name="words"), keras.Input((7,), dtype="bool", name="keep")
    first = keras.Input((5,), dtype="bool", name="first")
    embedded = layers.Embedding(9, 6, mask_zero=True, name="embedded")(words)
    outputs = [
        layers.Attention(name="plain")([query, memory]),
        layers.Attention(name="causal")([query, memory], use_causal_mask=True),
        layers.Attention(use_scale=True, name="scaled")([query, other, memory]),
        layers.Attention(score_mode="concat", name="concat")([query, memory]),
        layers.Attention(score_mode="concat", use_scale=True, dropout=0.2, name="concat_scaled")([query, memory]),
        layers.Attention(dropout=0.1, name="dropped")([query, memory], use_causal_mask=True),
        layers.Attention(name="masked")([query, embedded]),
        layers.Attention(name="masked_self")([embedded, embedded], use_causal_mask=True),
        layers.Attention(name="told")([query, memory], mask=[first, keep]),
        *layers.Attention(name="shown")([query, embedded], return_attention_scores=True),
        layers.AdditiveAttention(name="additive")([query, memory]),
        layers.AdditiveAttention(use_scale=False, name="additive_bare")([query, memory], use_causal_mask=True),
        *layers.AdditiveAttention(dropout=0.3, name="additive_masked")(
            [embedded, embedded], return_attention_scores=True
        ),
    ]
    return keras.Model([query, memory, other, words, keep, first], outputs, name="attention_bare")


def attention_forms() -> keras.Model:
    """With projections, over one time axis."""
    query, memory = keras.Input((None, 6), name="query"), keras.Input((7, 8), name="memory")
    five = keras.Input((5, 6), name="five")
    words = keras.Input((7,), dtype="int32", name="words")
    attends = keras.Input((5, 7), dtype="bool", name="attends")
    embedded = layers.Embedding(9, 6, mask_zero=True, name="embedded")(words)

    def own():
        """Tokens with a mask that no other attention takes away, which Keras' does from 3.8 on."""
        return layers.Embedding(9, 6, mask_zero=True)(words)

    def attention(name, **options):
        return layers.MultiHeadAttention(options.pop("heads", 2), 3, name=name, **options)

    def grouped(name, **options):
        return layers.GroupQueryAttention(3, 4, 2, name=name, **options)

    outputs = [
        attention("plain")(query, memory),
        attention("causal", use_bias=False)(query, memory, use_causal_mask=True),
        attention("wide", value_dim=5, output_shape=(2, 3), dropout=0.1)(query, memory),
        attention("gated", use_gate=True)(query, memory),
        attention("windowed", sliding_window=2)(memory, memory),
        attention("windowed_causal", sliding_window=3)(memory, memory, use_causal_mask=True),
        attention("told")(five, memory, attention_mask=attends),
        attention("told_causal")(five, memory, attention_mask=attends, use_causal_mask=True),
        attention("masked")(query, own()),
        attention("masked_self", dropout=0.1)(tokens := own(), tokens, use_causal_mask=True),
        attention("gated_masked", use_gate=True, dropout=0.1)(query, own()),
        attention("first")(query, dropped := layers.Dropout(0.2, name="dropped")(embedded)),
        attention("second")(query, dropped),
        attention("third")(query, embedded),
        *attention("shown")(query, memory, return_attention_scores=True),
        *attention("shown_causal", output_shape=(3, 2))(
            query, memory, return_attention_scores=True, use_causal_mask=True
        ),
        *attention("shown_masked")(query, own(), return_attention_scores=True),
        grouped("grouped")(query, embedded),
        grouped("grouped_causal")(query, query, use_causal_mask=True),
        grouped("grouped_gated", use_gate=True, dropout=0.1)(query, embedded),
        *grouped("grouped_shown")(embedded, embedded, return_attention_scores=True, use_causal_mask=True),
        grouped("grouped_windowed", sliding_window=2, use_bias=False)(query, query),
    ]
    return keras.Model([query, memory, words, attends, five], outputs, name="attention_forms")


def attention_axes() -> keras.Model:
    """Over other axes than one time axis."""
    x, y = keras.Input((4, 5, 6), name="grid"), keras.Input((3, 2, 6), name="other")
    free = keras.Input((None, 5, 6), name="free")

    def attention(name, **options):
        return layers.MultiHeadAttention(2, 4, name=name, **options)

    outputs = [
        attention("whole")(x, y),
        attention("columns", attention_axes=(2,))(x, x),
        attention("rows", attention_axes=(1,))(free, free),
        attention("rows_causal", attention_axes=(1,))(x, x, use_causal_mask=True),
        *attention("whole_shown", attention_axes=(1, 2), output_shape=(3, 2))(x, y, return_attention_scores=True),
        *attention("columns_shown", attention_axes=(2,))(free, free, return_attention_scores=True),
        *attention("rows_shown", attention_axes=(1,), use_gate=True)(x, x, return_attention_scores=True),
    ]
    return keras.Model([x, y, free], outputs, name="attention_axes")


def inputs_of(model: keras.Model, random: np.random.Generator) -> list[np.ndarray]:
    """Normal numbers; tokens of which the last are padding, in one sample all; bits."""
    found = []
    for tensor in model.inputs:
        shape = [3, *(5 if size is None else size for size in tensor.shape[1:])]
        if tensor.dtype == "int32":
            tokens = random.integers(1, 9, shape)
            tokens[0, -3:] = tokens[1] = 0
            found.append(tokens.astype("int32"))
        elif tensor.dtype == "bool":
            found.append(random.random(shape) < 0.7)
        else:
            found.append(random.standard_normal(shape).astype("float32"))
    return found


def main() -> None:
    """Write all three."""
    for number, make in enumerate((attention_bare, attention_forms, attention_axes)):
        keras.utils.clear_session()
        random = np.random.default_rng(number)
        model = make()
        for layer in model.layers:
            layer.set_weights([random.standard_normal(w.shape) * 0.5 + (w.ndim < 2) * 0.4 for w in layer.get_weights()])
        model.save(HERE / f"{make.__name__}.keras")
        given = inputs_of(model, random)
        arrays = {f"x{n}": array for n, array in enumerate(given)}
        arrays |= {f"y{n:02}": np.asarray(array) for n, array in enumerate(model(given))}
        np.savez_compressed(HERE / f"{make.__name__}.npz", **arrays)


if __name__ == "__main__":
    main()
