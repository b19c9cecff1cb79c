"""Writes the model ``activations`` of this folder with genuine Keras: every activation, as a layer and as a setting."""

import os
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
from keras import layers
from keras.src.activations import ALL_OBJECTS_DICT

HERE = Path(__file__).parent
CHANGES_SHAPES = ("glu", "threshold")  # threshold has arguments that no setting can give
LAYERS = {
    "relu_most": layers.ReLU(max_value=1.5),
    "relu_nothing": layers.ReLU(max_value=0.0, negative_slope=0.1),
    "relu_slope": layers.ReLU(negative_slope=0.1, max_value=2.0),
    "relu_threshold": layers.ReLU(threshold=0.5, negative_slope=0.2),
    "leaky": layers.LeakyReLU(),
    "leaky_more": layers.LeakyReLU(negative_slope=0.05),
    "elu_alpha": layers.ELU(alpha=0.7),
    "softmax_steps": layers.Softmax(axis=1),
    "softmax_both": layers.Softmax(axis=(1, 2)),
}


def names() -> list[str]:
    """Of all activations of the installed Keras that keep shapes."""
    return sorted(set(ALL_OBJECTS_DICT) - set(CHANGES_SHAPES))


def model() -> keras.Model:
    """Each activation of the same steps, and of a projection of them."""
    steps = keras.Input((3, 7), name="steps")
    outputs = [layers.Activation(name, name=f"{name}_alone")(steps) for name in names()]
    outputs += [layers.Dense(5, activation=name, name=f"{name}_of_dense")(steps) for name in names()]
    for name, layer in LAYERS.items():
        layer.name = name
        outputs.append(layer(steps))
    outputs.append(layers.Conv1D(4, 1, activation="sparsemax", name="sparsemax_of_conv")(steps))
    cell = layers.GRU(3, activation="sparse_sigmoid", recurrent_activation="hard_sigmoid", name="gru")
    return keras.Model(steps, [*outputs, cell(steps)], name="activations")


def main() -> None:
    """Write the model, its inputs and what it returns."""
    random = np.random.default_rng(0)
    written = model()
    written.set_weights([random.standard_normal(w.shape) for w in written.get_weights()])
    written.save(HERE / "activations.keras")
    x0 = (2.0 * random.standard_normal((4, 3, 7))).astype("float32")
    x0[0, 0] = [-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0]  # where one piece of a function ends
    outputs = written(x0)
    arrays = {f"y{number:03}": keras.ops.convert_to_numpy(y) for number, y in enumerate(outputs)}
    np.savez_compressed(HERE / "activations.npz", x0=x0, **arrays)


if __name__ == "__main__":
    main()
