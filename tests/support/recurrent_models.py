"""Models with recurrent layers, by genuine Keras in float64: ``FOLDER``; inputs ``x0`` … and outputs ``y0`` … beside each.

``KERAS`` in the environment names another package with the same functions (``tf_keras``).
"""

import importlib
import os
import sys
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

BATCH, LENGTH, FEATURES, VOCABULARY = 7, 6, 3, 9
KINDS = ("LSTM", "GRU", "SimpleRNN")
STATES = {"LSTM": 2, "GRU": 1, "SimpleRNN": 1}
FORMS = {
    "last": {},
    "all": {"return_sequences": True},
    "backwards": {"go_backwards": True},
    "all_backwards": {"go_backwards": True, "return_sequences": True},
    "states": {"return_sequences": True, "return_state": True},
    "last_states": {"return_state": True},
    "no_bias": {"use_bias": False, "return_sequences": True},
    "relu": {"activation": "relu", "return_sequences": True},
    "softmax": {"activation": "softmax"},
    "unrolled": {"unroll": True, "return_sequences": True},
    "zeros": {"zero_output_for_mask": True, "return_sequences": True},
    "zeros_last": {"zero_output_for_mask": True, "go_backwards": True},
    "dropped": {"dropout": 0.3, "recurrent_dropout": 0.2},
}
OF_ONE_KIND = {
    "GRU_before": ("GRU", {"reset_after": False, "return_sequences": True}),
    "GRU_before_no_bias": ("GRU", {"reset_after": False, "use_bias": False}),
    "LSTM_hard": ("LSTM", {"recurrent_activation": "hard_sigmoid", "activation": "elu", "return_sequences": True}),
    "GRU_hard": ("GRU", {"recurrent_activation": "hard_sigmoid", "return_state": True}),
    "LSTM_no_forget": ("LSTM", {"unit_forget_bias": False}),
}
MERGED = ("concat", "sum", "mul", "ave", None)


def forms():
    """Every layer of one direction: name, class and settings."""
    for kind in KINDS:
        for name, form in FORMS.items():
            yield f"{kind}_{name}", kind, form
    for name, (kind, form) in OF_ONE_KIND.items():
        yield name, kind, form


def inputs_of(keras):
    """Sequences and their mask."""
    return (
        keras.Input((LENGTH, FEATURES), name="a_sequences"),
        keras.Input((LENGTH,), dtype="bool", name="b_mask"),
    )


def states_of(keras, count, units=4):
    """Initial states as inputs."""
    return [keras.Input((units,), name=f"c_state_{number}") for number in range(count)]


def models(keras):
    """Every case: name, inputs, outputs."""
    layers = keras.layers
    for name, kind, form in forms():
        sequences, mask = inputs_of(keras)
        layer = getattr(layers, kind)
        yield name, [sequences], layer(4, **form)(sequences)
        if not (form.get("unroll") and form.get("go_backwards")):
            yield f"{name}_masked", [sequences, mask], layer(4, **form)(sequences, mask=mask)
    for kind in KINDS:
        sequences, mask = inputs_of(keras)
        layer, states = getattr(layers, kind), states_of(keras, STATES[kind])
        form = {"return_sequences": True, "return_state": True}
        given = states if len(states) > 1 else states[0]
        yield f"{kind}_started", [sequences, *states], layer(4, **form)(sequences, initial_state=given)
        masked = layer(4, **form)(sequences, initial_state=given, mask=mask)
        yield f"{kind}_started_masked", [sequences, mask, *states], masked
    yield from bidirectional(keras)
    yield from with_embedding(keras)
    yield from distributed(keras)


def bidirectional(keras):
    """Both directions."""
    layers = keras.layers
    for kind in KINDS:
        for mode in MERGED:
            for has_all in (False, True):
                sequences, mask = inputs_of(keras)
                form = {"return_sequences": has_all, "return_state": mode in ("mul", None)}
                layer = layers.Bidirectional(getattr(layers, kind)(4, **form), merge_mode=mode)
                yield f"both_{kind}_{mode}_{'all' if has_all else 'last'}", [sequences], layer(sequences)
                layer = layers.Bidirectional(getattr(layers, kind)(4, **form), merge_mode=mode)
                yield (
                    f"both_{kind}_{mode}_{'all' if has_all else 'last'}_masked",
                    [sequences, mask],
                    layer(sequences, mask=mask),
                )
        sequences, mask = inputs_of(keras)
        states = states_of(keras, 2 * STATES[kind])
        layer = layers.Bidirectional(getattr(layers, kind)(4, return_sequences=True, return_state=True))
        yield f"both_{kind}_started", [sequences, *states], layer(sequences, initial_state=states)
        layer = layers.Bidirectional(getattr(layers, kind)(4, return_sequences=True, return_state=True))
        masked = layer(sequences, initial_state=states, mask=mask)
        yield f"both_{kind}_started_masked", [sequences, mask, *states], masked
    sequences, mask = inputs_of(keras)
    for name, more in (("", {}), ("_masked", {"mask": mask})):
        first = layers.LSTM(4, return_sequences=True, name="ahead")
        second = layers.GRU(2, return_sequences=True, go_backwards=True, name="behind")
        different = layers.Bidirectional(first, backward_layer=second)
        yield f"both_different{name}", [sequences, *more.values()], different(sequences, **more)
        first = layers.LSTM(4, activation="relu", name="forward_ahead")
        relu = layers.Bidirectional(first, merge_mode="sum")
        yield f"both_relu{name}", [sequences, *more.values()], relu(sequences, **more)
        small = layers.Bidirectional(layers.GRU(4, use_bias=False, reset_after=False, return_sequences=True))
        yield f"both_before{name}", [sequences, *more.values()], small(sequences, **more)


def with_embedding(keras):
    """Masks that nobody gives: of the embedding, through layers, to recurrent ones."""
    layers = keras.layers
    tokens = keras.Input((LENGTH,), dtype="int32", name="a_tokens")
    embedded = layers.Embedding(VOCABULARY, FEATURES, mask_zero=True)(tokens)
    x = layers.LSTM(4, return_sequences=True)(embedded)
    x = layers.Dense(3, activation="tanh")(layers.Dropout(0.2)(x))
    x = layers.Bidirectional(layers.GRU(3, return_sequences=True))(x)
    yield "stacked", [tokens], layers.Bidirectional(layers.LSTM(2))(x)
    both = layers.Bidirectional(layers.LSTM(4, return_sequences=True), merge_mode=None)(embedded)
    yield "two_masked", [tokens], [layers.GRU(2)(both[0]), layers.SimpleRNN(2)(both[1])]
    # Keras 3 finds no mask for a layer with initial states, and hands its input's mask on.
    state = keras.Input((4,), name="b_state")
    x = layers.GRU(4, return_sequences=True)(embedded, initial_state=state)
    yield "started_without_mask", [tokens, state], [x, layers.LSTM(2)(x)]
    states = [keras.Input((4,), name=f"b_state_{number}") for number in range(2)]
    x = layers.Bidirectional(layers.GRU(4, return_sequences=True))(embedded, initial_state=states)
    yield "both_started_without_mask", [tokens, *states], [x, layers.LSTM(2)(x)]
    # An encoder and a decoder.
    source = keras.Input((LENGTH, FEATURES), name="a_source")
    target = keras.Input((LENGTH - 2, FEATURES), name="b_target")
    _, *states = layers.LSTM(4, return_state=True, name="encoder")(source)
    decoded = layers.LSTM(4, return_sequences=True, name="decoder")(target, initial_state=states)
    yield "translator", [source, target], layers.TimeDistributed(layers.Dense(5, activation="softmax"))(decoded)
    # One layer, called twice.
    shared = layers.GRU(3, name="shared")
    first, second = (keras.Input((LENGTH, FEATURES), name=name) for name in ("a_first", "b_second"))
    yield "shared", [first, second], [shared(first), shared(second)]
    # Lengths that prove little.
    for length in (1, 2):
        short = keras.Input((length, FEATURES), name="a_short")
        keep = keras.Input((length,), dtype="bool", name="b_keep")
        x = layers.LSTM(4, return_sequences=True)(short, mask=keep)
        yield f"short_{length}", [short, keep], layers.Bidirectional(layers.GRU(4, return_sequences=True))(x, mask=keep)
    free = keras.Input((None, FEATURES), name="a_free")
    yield "free", [free], layers.Bidirectional(layers.LSTM(4))(layers.GRU(4, return_sequences=True)(free))
    stepwise = layers.LSTM(4, activation="relu")(layers.GRU(4, return_sequences=True)(free))
    yield "free_stepwise", [free], stepwise


def distributed(keras):
    """Another layer at each step."""
    layers = keras.layers
    wrapped = {
        "dense": (layers.Dense(4, activation="relu"), (FEATURES,)),
        "dense_deep": (layers.Dense(4), (2, FEATURES)),
        "activation": (layers.Activation("softmax"), (FEATURES,)),
        "dropout": (layers.Dropout(0.5), (FEATURES,)),
        "normalization": (layers.LayerNormalization(), (FEATURES,)),
        "flatten": (layers.Flatten(), (2, FEATURES)),
        "reshape": (layers.Reshape((FEATURES, 2)), (2, FEATURES)),
        "average": (layers.GlobalAveragePooling1D(), (4, FEATURES)),
        "lstm": (layers.LSTM(4), (5, FEATURES)),
        "lstm_relu": (layers.LSTM(4, activation="relu"), (5, FEATURES)),
        "gru_all": (layers.GRU(4, return_sequences=True), (5, FEATURES)),
        "both": (layers.Bidirectional(layers.LSTM(4, return_sequences=True), merge_mode="sum"), (5, FEATURES)),
        "both_last": (layers.Bidirectional(layers.GRU(4)), (5, FEATURES)),
        "again": (layers.TimeDistributed(layers.Dense(2)), (4, FEATURES)),
    }
    for name, (layer, shape) in wrapped.items():
        inputs = keras.Input((LENGTH, *shape), name="a_inputs")
        yield f"each_{name}", [inputs], layers.TimeDistributed(layer)(inputs)
    tokens = keras.Input((LENGTH,), dtype="int32", name="a_tokens")
    embedded = layers.Embedding(VOCABULARY, FEATURES, mask_zero=True)(tokens)
    yield "each_masked", [tokens], layers.LSTM(4)(layers.TimeDistributed(layers.Dense(5))(embedded))


def arrays_for(inputs, random):
    """Random numbers, and masks with padding at both ends, holes, and nothing kept."""
    import numpy as np

    for tensor in inputs:
        shape = (BATCH, *(LENGTH if size is None else size for size in tensor.shape[1:]))
        name = str(getattr(tensor.dtype, "name", tensor.dtype))
        if name in ("bool", "int32"):
            kept = random.random(shape) < 0.6
            kept[0], kept[1], kept[2], kept[3] = True, False, np.arange(shape[1]) < 3, np.arange(shape[1]) >= 3
            yield kept if name == "bool" else (kept * random.integers(1, VOCABULARY, shape)).astype(np.int32)
        else:
            yield random.normal(size=shape)


def main(folder):
    """All files."""
    import numpy as np

    keras = importlib.import_module(os.environ.get("KERAS", "keras"))
    random = np.random.default_rng(2)
    keras.backend.set_floatx("float64")
    for name, inputs, outputs in models(keras):
        model = keras.Model(inputs, outputs)
        model.set_weights([random.normal(0.0, 0.6, array.shape) for array in model.get_weights()])
        arrays = [*arrays_for(inputs, random)]
        found = model(arrays if len(arrays) > 1 else arrays[0])
        found = [*found] if isinstance(found, list | tuple) else [found]
        for suffix in os.environ.get("SUFFIXES", "keras").split():
            model.save(Path(folder) / f"{name}.{suffix}")
        told = {f"x{n}": array for n, array in enumerate(arrays)}
        np.savez(Path(folder) / f"{name}.npz", **told, **{f"y{n}": np.asarray(array) for n, array in enumerate(found)})


if __name__ == "__main__":
    main(sys.argv[1])
