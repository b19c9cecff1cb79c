"""Metrics, counters and slots of TensorFlow's files are not counted as other layers' (issue 12, point 14)."""

from collections import Counter

import numpy as np
import pytest

import mha_convert
from mha_convert.files.source import Source
from mha_convert.layers import survey
from mha_convert.readers.tensorflow.bundle import DTYPES, Bundle, Entry
from mha_convert.readers.tensorflow.object_graph import Object, arrange
from mha_convert.words.inspection import sort_variables, variables_line

INTEGERS = ("save_counter", "global_step")
NUMBER = {name: number for number, name in DTYPES.items()}


def bundle_of(tmp_path, shapes) -> Bundle:
    """A checkpoint with these arrays of zeros."""
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(1 << 10))
    entries = {}
    for key, shape in shapes.items():
        dtype = "int64" if any(name in key for name in INTEGERS) else "float32"
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        entries[key] = Entry(NUMBER[dtype], shape, 0, 0, size, 0, False)
    return Bundle(Source(tmp_path / "x"), 1, entries)


def roles(arrangement) -> dict[str, str]:
    """Each variable's role by its key."""
    own = [variable for node in arrangement.root.walk() for variable in node.variables.values()]
    return {variable.path: variable.role for variable in (*own, *arrangement.others)}


# The graph that Keras 2 writes of a compiled model: its lists name the state of metrics beside the layers' variables.
GRAPH = (
    Object((("dense", 1), ("keras_api", 2), ("variables", 5), ("save_counter", 9), ("counter", 10))),
    Object((("bias", 6),)),
    Object((("metrics", 3), ("layers", 5))),
    Object((("0", 4),)),
    Object((("total", 7), ("count", 8), ("kernel", 11), ("variables", 12))),
    Object((("0", 6),)),
    *(Object((), key=key, full_name=key) for key in ("d/bias", "m/total", "m/count", "save_counter", "counter", "m/kernel")),
    Object((("0", 7), ("1", 8), ("2", 11))),
)  # fmt: skip


def test_metrics_and_the_counter_of_saves_have_roles_of_their_own(tmp_path):
    shapes = {"d/bias": (3,), "m/total": (), "m/count": (), "save_counter": (), "counter": (), "m/kernel": (4, 2, 2)}
    found = roles(arrange(bundle_of(tmp_path, shapes), GRAPH, {}))
    assert found == {
        "d/bias": "layer",
        "m/total": "metric",
        "m/count": "metric",
        "save_counter": "counter",
        "counter": "layer",  # a user's
        "m/kernel": "layer",  # a metric that is a model: its kernels with heads are not passed over
    }


NAMES = {
    "a/kernel": "layer",
    "a/kernel/adam_m": "optimizer",
    "a/kernel/Adam_1": "optimizer",
    "a/kernel/Momentum": "optimizer",
    "a/kernel/RMSProp": "optimizer",
    "a/kernel_slot_v": "optimizer",
    "a/kernel_slot_vr": "optimizer",
    "b/kernel/adam_m": "layer",  # of no variable here
    "a/kernel/mine": "layer",
    "global_step": "counter",
    "save_counter/.ATTRIBUTES/VARIABLE_VALUE": "counter",
    "a/global_step": "layer",
}


def test_slots_behind_the_name_of_a_variable_are_the_optimizers(tmp_path):
    shapes = {key: (4, 2, 2) if "kernel" in key and "_vr" not in key else () for key in NAMES}
    bundle = bundle_of(tmp_path, shapes)
    arrangement = arrange(bundle, (), {})
    assert roles(arrangement) == NAMES


def test_a_slot_of_another_shape_is_none(tmp_path):
    bundle = bundle_of(tmp_path, {"a/kernel": (4, 2, 2), "a/kernel/adam_m": (4, 2, 3), "a/kernel_slot_vc": (2, 2)})
    assert set(roles(arrange(bundle, (), {})).values()) == {"layer"}


REAL = {"gspc-savedmodel/models/transformer_model": (24, 32, 4), "neg-savedmodel-lstm/models/lstm_model": (0, 16, 4)}


@pytest.mark.parametrize("name", REAL)
def test_public_saved_models_tell_their_metrics(real, name):
    checkpoint = mha_convert.read(real / name)
    findings = survey(checkpoint)
    counts = {heading: len(found) for heading, found in sort_variables(checkpoint, findings.layers).items()}
    assert (counts["attention"], counts["other"], counts["metric"]) == REAL[name]
    assert ", 4 of metrics (4 parameters)" in variables_line(checkpoint, findings)
    assert Counter(v.role for v in checkpoint.variables)["metric"] == 4
