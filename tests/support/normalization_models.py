"""Models with LayerNormalization in every form, by genuine Keras: ``FOLDER``; outputs of each layer in ``outputs.npz``."""

import os
import sys
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

FORMS = {
    "usual": {},
    "small_epsilon": {"epsilon": 1e-6},
    "large_epsilon": {"epsilon": 0.5},
    "two_axes": {"axis": [1, 2]},
    "two_last_axes": {"axis": [-2, -1]},
    "shift_alone": {"scale": False},
    "scale_alone": {"center": False},
}
REFUSED = {
    "first_axis": {"axis": 1},
    "bare": {"center": False, "scale": False},
}
SHAPE = (5, 6)


def main(folder):
    """One model; every layer reads the input."""
    import keras  # here: tests read the names alone
    import numpy as np

    keras.utils.set_random_seed(13)
    inputs = keras.Input(SHAPE, name="inputs")
    layers = {name: keras.layers.LayerNormalization(name=name, **form) for name, form in (FORMS | REFUSED).items()}
    layers["half"] = keras.layers.LayerNormalization(name="half", dtype="float16")
    layers["attention"] = keras.layers.MultiHeadAttention(2, 3, name="attention")
    outputs = [layer(inputs, inputs) if name == "attention" else layer(inputs) for name, layer in layers.items()]
    model = keras.Model(inputs, [keras.ops.cast(output, "float32") for output in outputs])
    random = np.random.default_rng(0)
    for layer in layers.values():
        layer.set_weights([random.normal(0.7, 0.5, array.shape) for array in layer.get_weights()])
    x = random.normal(3.0, 2.0, (4, *SHAPE)).astype("float32")
    x[0] *= 1e-3  # of a variance near epsilon
    model.save(folder / "norm.keras")
    model.save(folder / "norm.h5")
    model.save_weights(folder / "norm.weights.h5")
    (folder / "norm.json").write_text(model.to_json())
    model.export(folder / "exported", verbose=False)
    found = {name: np.asarray(layers[name](x)) for name in (*FORMS, "half")}
    np.savez(folder / "outputs.npz", x=x, **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
