"""Operations of genuine Keras: proven in this process, and every output compared with what Keras returned."""

import subprocess
import sys

import numpy as np
import pytest
from environment import SUPPORT, TESTS
from whole_models import difference, outputs_of, proven

from mha_convert.records.graph import leaves

MODELS = ("of_one", "of_two", "of_positive", "of_small", "of_whole", "of_bits", "of_sorts", "of_free")
FLOAT32 = 1e-5


@pytest.fixture(scope="module")
def saved(tmp_path_factory, keras_installed, starts_processes):
    """A folder with every model and its outputs."""
    folder = tmp_path_factory.mktemp("operations")
    program = [sys.executable, SUPPORT / "operation_models.py", folder]
    subprocess.run(program, check=True, capture_output=True, timeout=300)
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_outputs_dtypes_and_shapes_are_those_of_genuine_keras(saved, tmp_path, name):
    plan = proven(saved / f"{name}.keras", tmp_path)
    arrays = np.load(saved / f"{name}.npz")
    specs = [plan.model.facts[value] for value in leaves(plan.model.graph.outputs)]
    inputs = [arrays[key] for key in sorted(arrays.files) if key.startswith("x")]
    found = outputs_of(tmp_path, [array.astype("int64") if array.dtype == "int32" else array for array in inputs])
    assert len(found) == len(arrays["names"]) == len(specs)
    wrong = []
    for number, case in enumerate(arrays["names"]):
        spec, actual, wanted = specs[number], found[number], arrays[f"y{number}"]
        far = difference(np.nan_to_num(actual), np.nan_to_num(wanted))
        said = (str(arrays["dtypes"][number]), str(arrays["shapes"][number]))
        if far > FLOAT32 or (spec.dtype, repr(spec.shape)) != said:
            wrong.append((str(case), far, spec, said))
    assert not wrong


@pytest.mark.parametrize("name", MODELS)
def test_h5_gives_the_same_source(saved, tmp_path, name):
    sources = [proven(saved / f"{name}.{form}", tmp_path / form).source for form in ("keras", "h5")]
    bodies = [text[text.index("class ") :] for text in sources]
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize("name", ["of_one", "of_two", "of_whole", "of_bits"])
def test_functions_of_tensorflow_that_keras_2_wrote(name, tmp_path):
    place = TESTS / "golden" / "tf_keras-2.21" / f"functions_{name}"
    proven(place.with_suffix(".h5"), tmp_path)
    arrays = np.load(place.with_suffix(".npz"))
    inputs = [arrays[key] for key in sorted(arrays.files) if key.startswith("x")]
    found = outputs_of(tmp_path, [array.astype("int64") if array.dtype == "int32" else array for array in inputs])
    assert len(found) == len(arrays["names"])
    far = {
        str(case): difference(np.nan_to_num(actual), np.nan_to_num(arrays[f"y{number}"]))
        for number, (case, actual) in enumerate(zip(arrays["names"], found, strict=True))
    }
    assert {case: error for case, error in far.items() if error > FLOAT32} == {}
