"""A bounded run of the fuzzer with fixed mutants, and arbitrary models by Hypothesis. See ``docs/security.md``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import strategies
from fuzz.mutations import mutate
from fuzz.second_reader import Content, Facts, Stored, disagreements
from fuzz.seeds import CONFIG, project_seeds
from fuzz.trial import message_outcome, written
from hypothesis import HealthCheck, given, settings

import mha_convert
from mha_convert.errors import MhaConvertError

PROJECT = Path(__file__).parents[2]
FOUND = json.loads((Path(__file__).parent / "found.json").read_text())
MUTANTS = 300
FEW = settings(max_examples=80, deadline=None, derandomize=True, database=None, suppress_health_check=[*HealthCheck])


def run_fuzzer(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own: it forks."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-m", "tests.fuzz", "--golden", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, env=environment, timeout=600)


@pytest.mark.process
def test_mutants_of_the_golden_files_are_refused_or_right():
    result = run_fuzzer("--mutants", str(MUTANTS), "--jobs", "2", "--json")
    assert result.stdout, result.stderr
    found = json.loads(result.stdout)
    assert found["failures"] == []
    assert found["mutants"] == MUTANTS and found["counts"]["proven"] > MUTANTS // 5


def test_mutants_are_the_same_each_time():
    seeds = project_seeds()
    for number in range(30):
        seed = seeds[number % len(seeds)]
        assert mutate(seed, number, seeds) == mutate(seed, number, seeds)


@pytest.mark.parametrize("case", FOUND, ids=[case["mutant"] for case in FOUND])
def test_what_was_found_stays_mended(case, tmp_path):
    seeds = project_seeds()
    name, _, number = case["mutant"].rpartition("#")
    seed = next(seed for seed in seeds if seed.name == name)
    mutant = mutate(seed, int(number), seeds)
    with written(mutant.files, seed.main) as source, pytest.raises(MhaConvertError) as error:
        config = source.parent / CONFIG if seed.config else None
        mha_convert.convert_file(source, tmp_path / "x.safetensors", config=config, layout="linear")
    assert case["says"] in str(error.value)


def is_converted(content: bytes, name: str) -> bool:
    """Proven, or one clear line."""
    with written({name: content}, name) as source:
        try:
            report = mha_convert.convert_file(source, source.parent / "x.safetensors", layout="linear")
        except MhaConvertError as error:
            assert message_outcome(str(error)).kind != "message", str(error)
            return False
    assert report.proven
    return True


@pytest.mark.parametrize(
    ("made", "name"),
    [(strategies.archives, "x.keras"), (strategies.weights, "x.weights.h5"), (strategies.legacy, "x.h5")],
    ids=["a zip", "an HDF5 tree", "legacy HDF5"],
)
def test_whatever_hypothesis_makes_is_proven_or_refused(made, name):
    converted = []

    @FEW
    @given(made())
    def convert(content):
        converted.append(is_converted(content, name))

    convert()
    assert any(converted) and not all(converted)


ARRAYS = {
    f"{role}.kernel": (f"attn/{role}_dense/vars/0", role.encode()) for role in ("query", "key", "value", "output")
}
SETTINGS = {"num_heads": 2, "dropout": 0.0, "sliding_window": None, "use_gate": False}


def facts(**changes: object) -> Facts:
    """A conversion that agrees with ``content``."""
    known = {
        "name": "attn",
        "arrays": {role: array for role, (_, array) in ARRAYS.items()},
        "paths": {role: path for role, (path, _) in ARRAYS.items()},
        "shapes": {},
        "dtypes": {},
        "settings": SETTINGS,
    }
    return Facts(**{**known, **changes})


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"arrays": {**facts().arrays, "key.kernel": b"value"}}, "its key.kernel (attn/key_dense/vars/0) is not"),
        ({"name": "other"}, "its arrays are of attn"),
        ({"settings": SETTINGS | {"sliding_window": 3}}, "sliding_window is None in the JSON, 3 converted"),
        ({"settings": SETTINGS | {"num_heads": 3}}, "num_heads is 2 in the JSON, 3 converted"),
        ({"paths": {**facts().paths, "query.kernel": "x"}}, "its query kernel is x, which is none"),
        ({"arrays": {**facts().arrays, "gate.kernel": b""}}, "has a gate.kernel, the file none"),
    ],
    ids=["roles", "names", "a setting", "heads", "a strange array", "one too many"],
)
def test_the_second_reader_sees_a_wrong_conversion(changes, fact):
    entries = [{"class_name": "MultiHeadAttention", "config": {"name": "attn", **SETTINGS}}]
    content = Content(stored={"attn": Stored("attn", ARRAYS)}, config={"config": {"layers": entries}})
    assert list(disagreements([facts()], content)) == []
    assert fact in "\n".join(disagreements([facts(**changes)], content))


LISTED = {role: (f"attn/{role}/kernel", array) for role, (_, array) in ARRAYS.items()}
REVERSED = {role: LISTED[role] for role in reversed(LISTED)}


@pytest.mark.parametrize(
    ("stored", "layers", "fact"),
    [
        ({"layers/multi_head_attention": Stored("other", ARRAYS)}, [], "other: counting gives attn"),
        ({"other|other": Stored(None, LISTED)}, ["other", "attn"], "the JSON lists ['attn', 'other'], the weights"),
        ({"other|other": Stored(None, REVERSED)}, ["attn", "other"], "its kernels come in the order [4, 3, 1, 0]"),
    ],
    ids=["labels", "layers", "weights"],
)
def test_the_second_reader_sees_names_that_contradict_the_order(stored, layers, fact):
    """Point 9 of issue 12: such a file is to be refused, so a conversion of it is a finding."""
    entries = [{"class_name": "MultiHeadAttention", "config": {"name": name}} for name in ("attn", "other")]
    content = Content(stored=stored, config={"config": {"layers": entries}}, layers=layers, whole=True)
    (found,) = stored.values()
    converted = facts(name="other", settings={}, paths={role: path for role, (path, _) in found.arrays.items()})
    assert fact in "\n".join(disagreements([converted], content))
