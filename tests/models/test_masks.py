"""Masks as each version of Keras hands them on: models that those versions wrote, and what they returned."""

import numpy as np
import pytest
from environment import TESTS
from model_damages import refused
from whole_models import difference, outputs_of, proven, written

GOLDEN = TESTS / "golden" / "models"
VERSIONS = ("2.21", "3.0.5", "3.3.3", "3.4.1", "3.7.0", "3.8.0", "3.15.1")
FLOAT32 = 2e-5


def source_of(version):
    """The model that this version wrote."""
    return GOLDEN / f"masks-{version}{'.h5' if version < '3' else '.keras'}"


@pytest.mark.parametrize("version", VERSIONS)
def test_outputs_are_those_of_the_version_that_wrote_the_file(version, tmp_path):
    plan = proven(source_of(version), tmp_path)
    arrays = np.load(GOLDEN / f"masks-{version}.npz")
    inputs = [arrays[f"x{number}"] for number in range(4)]
    wanted = [arrays[key] for key in sorted(arrays.files) if key.startswith("y")]
    names = [value.layer for value in plan.model.graph.outputs]
    found = dict(zip(names, map(difference, outputs_of(tmp_path, inputs), wanted), strict=True))
    assert {name: far for name, far in found.items() if far > FLOAT32} == {}


# What a rule of ours might write of the newest file.
WRONG = [
    ("multiply_two", "x = product_of_kept((one_merged, other_merged), (not_equal_2, not_equal_3))", "x = one_merged * other_merged"),
    ("multiply_plain", "product_of_kept((one_merged, plain), (not_equal_2, None))", "one_merged * plain"),
    ("maximum_two", "extreme_of_kept(torch.maximum, (one_merged, other_merged), (not_equal_2, not_equal_3))", "torch.maximum(one_merged, other_merged)"),
    ("minimum_three", "(None, not_equal_2, not_equal_3)", "(None, not_equal_3, not_equal_2)"),
    ("softmax", ".softmax(-1) * attends", ".softmax(-1)"),
    ("softmax", "added_to_scores(attends, ", "added_to_scores(~attends, "),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "old", "new"), WRONG)
def test_another_use_of_masks_is_caught(layer, old, new, tmp_path):
    assert refused(source_of("3.15.1"), tmp_path, old, new).startswith(f"Layer '{layer}': with inputs of its own")


def test_a_version_that_uses_no_masks_there_gets_none(tmp_path):
    """Keras 3.0 to 3.3, and Keras 2."""
    for version in ("3.3.3", "2.21"):
        source = written(source_of(version), tmp_path / version).source
        assert "_of_kept(" not in source and "torch.maximum(" in source
