"""Times calls of a saved model in genuine Keras, compiled: ``python -m benchmarks.keras_calls FILE BATCH``.

A line on standard input asks for one measurement; its seconds are a line of standard output.
"""

import os
import sys

import keras
import numpy as np
import tensorflow as tf

from .timing import seconds


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    model = keras.models.load_model(sys.argv[1])
    shape = (int(sys.argv[2]), *model.inputs[0].shape[1:])
    x = tf.constant(np.random.default_rng(0).standard_normal(shape, "float32"))
    call = tf.function(lambda: model(x, training=False))
    call()
    for _ in sys.stdin:
        answers.write(f"{seconds(call)}\n")


if __name__ == "__main__":
    main()
