"""The hostile and broken files of ``../shared/hostile`` are refused in one clear line, or converted correctly.

``hostile_cases.py`` runs the verbs; this module says what the results must be.
"""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from environment import SHARED, TESTS, require
from hostile_cases import run_all
from safetensors.numpy import load_file

from mha_convert.errors import MhaConvertError, printable
from mha_convert.pipeline import plan_file

VERBS = ("inspect", "convert", "model", "verify")
FOLDER = ["README.md", "model.py", "model.safetensors", "report.json"]
SECONDS, MEGABYTES = 5, 500  # a verb
# How h5py, HDF5, zipfile, zlib and json speak; a user should not have to.
LIBRARIES = re.compile(
    r"Unable to|Can't|bad symbol table|signature|h5py|H5\w+|errno|Bad (magic|CRC)|BadZipFile|central directory|"
    r"zipfile|Error -\d|Expecting|codec can't|recursion|object has no|Traceback|\bNoneType\b",
)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory, starts_processes: None) -> Path:
    """The files, their manifest, and what happened with each."""
    maker = SHARED / "hostile" / "make_hostile.py"
    require(maker.is_file(), "../shared/hostile")
    folder = tmp_path_factory.mktemp("hostile")
    run_all(maker, folder)
    return folder


@pytest.fixture(scope="session")
def cases(hostile: Path) -> list[dict]:
    """The manifest's entries with what happened."""
    found = json.loads((hostile / "cases.json").read_text())
    assert len(found) > 400
    return found


def test_nothing_is_written_into_the_set(hostile):
    """No payload ran (each would leave a mark there), and no member of a zip was extracted."""
    assert json.loads((hostile / "new.json").read_text()) == []


def accepted(case: dict) -> bool:
    """Whether the file was converted."""
    return case["convert"]["code"] == 0


def expected(case: dict) -> tuple[str, ...]:
    """The manifest's expectations, but for two: root may read what has mode 000, and weights alone do not tell how wide
    the query is (``test_a_width_that_the_configuration_contradicts``)."""
    if (case["id"] == "noperm" and os.geteuid() == 0) or case["id"] == "shape_wrong_in":
        return ("accept",)
    return {"accept": ("accept",), "reject": ("reject",)}.get(case["expect"], ("accept", "reject"))


def none(faults: list) -> None:
    """All cases are looked at; every failing one is shown."""
    assert not faults, "\n".join(map(str, faults))


def test_no_file_crashes_or_hangs_a_verb(cases):
    none([case["id"] for case in cases if "signal" in case or "hang" in case])


def test_each_file_is_converted_or_refused_as_the_manifest_says(cases):
    wrong = [case for case in cases if ("accept" if accepted(case) else "reject") not in expected(case)]
    none([(case["id"], case["what"], case["expect"], case["convert"]["err"]) for case in wrong])


def test_what_must_be_accepted_is_proven(cases):
    """But for NaN, of which equality proves nothing: the proof says so."""
    unproven = [case for case in cases if case["expect"] == "accept" and case["verify"]["code"] != 0]
    none([(case["id"], case["verify"]) for case in unproven if "NaN or infinite" not in case["verify"]["err"]])


def test_a_refusal_is_exit_code_1_and_one_clear_line(cases):
    faults = []
    for case in cases:
        for verb in VERBS:
            result = case[verb]
            if not result or result["code"] == 0:
                continue
            lines, text = result["err"].splitlines(), result["err"]
            clear = len(lines) == 1 and text.startswith("error: ") and len(text) > 40
            if result["code"] != 1 or result["out"] or not clear or LIBRARIES.search(text.replace(case["file"], "")):
                faults.append((case["id"], verb, result["code"], text))
    none(faults)


def test_the_line_names_the_file(cases):
    faults = []
    for case in cases:
        text, name = case["convert"]["err"], Path(case["file"]).name
        about_layer = text.startswith("error: Layer '")  # the configuration of one layer, in the only file given
        if not accepted(case) and name.isprintable() and name not in text and not about_layer:
            faults.append((case["id"], text))
    none(faults)


def test_nothing_from_a_file_reaches_the_terminal_unescaped(cases):
    outputs = [
        (case["id"], case[verb][stream]) for case in cases for verb in VERBS if case[verb] for stream in ("out", "err")
    ]
    none([entry for entry in outputs if not entry[1].replace("\n", "").isprintable()])


def test_a_refused_file_leaves_nothing_behind_and_a_converted_one_its_target(cases):
    none([(case["id"], case["written"]) for case in cases if case["written"] != ["x.safetensors"] * accepted(case)])


def test_a_whole_model_is_a_whole_folder_or_nothing(cases):
    faults = []
    for case in cases:
        is_whole = case["model"]["code"] == 0
        left = ["model"] * is_whole + case["written"]
        if case["modelled"] != FOLDER * is_whole or case["left"] != left:
            faults.append((case["id"], case["modelled"], case["left"]))
    none(faults)


def test_a_whole_model_is_refused_wherever_the_file_is(cases):
    none([case["id"] for case in cases if case["model"]["code"] == 0 and not accepted(case)])
    assert sum(case["model"]["code"] == 0 for case in cases) >= 20


def test_no_other_file_is_opened(cases):
    none([case["id"] for case in cases if case["opened"]])


def test_five_seconds_and_500_mb_are_enough(cases):
    """Seconds of a processor, as the machine may be busy; memory of both processes together."""
    faults = []
    for case in cases:
        verbs = sum(bool(case[verb]) for verb in VERBS)
        if case["seconds"] > SECONDS * verbs or case["megabytes"] > MEGABYTES:
            faults.append((case["id"], case["seconds"], case["megabytes"]))
    none(faults)


def test_what_is_converted_has_the_numbers_of_the_file(hostile, cases):
    """All files were made from one, so a target is that one's, or what the case says of itself; never a canary's."""
    good = load_file(hostile / "0" / "targets" / "good.safetensors")
    compared = 0
    for case in filter(accepted, cases):
        found = load_file(next(hostile.glob(f"*/targets/{case['id'][:40]!a}.safetensors")))
        assert not any((array == 1234.5).any() for array in found.values()), case["id"]
        if case["expect"] == "accept" and {*found} == {*good} and case["threat"] == "control":
            assert all(np.array_equal(found[key], good[key]) for key in good) or "shared" in case["id"], case["id"]
            compared += 1
    assert compared >= 5


def test_a_width_that_the_configuration_contradicts(hostile, tmp_path):
    """Manifest case ``shape_wrong_in``: query kernel (9, 2, 4) in weights whose model says 8."""
    config = tmp_path / "config.json"
    with zipfile.ZipFile(hostile / "set" / "files" / "ok_base.keras") as archive:
        config.write_bytes(archive.read("config.json"))
    for name, fact in (("ok_base_weights", None), ("shape_wrong_in", "the query input is 8 wide .*, 9 in the arrays")):
        source = hostile / "set" / "files" / f"{name}.weights.h5"
        if fact is None:
            plan_file(source, config=config)
        else:
            with pytest.raises(MhaConvertError, match=fact):
                plan_file(source, config=config)


SAMPLE = (
    "gheap_zero_loop",
    "leg_vlen_badtype_config",
    "leg_vlen_bomb2",
    "fifo",
    "cfg_json_deep_list",
    "ext_link_layers",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_the_real_command_says_the_same(hostile, cases, name, tmp_path):
    case = next(case for case in cases if case["id"] == name)
    source = hostile / "set" / "files" / case["file"]
    for verb, arguments in (("inspect", []), ("convert", ["x.safetensors"])):
        command = [sys.executable, "-m", "mha_convert", verb, source, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment)
        assert (result.returncode, result.stdout, result.stderr) == (1, "", case[verb]["err"])
    assert not list(tmp_path.iterdir())


def test_a_batch_says_of_each_file_what_the_single_command_says(hostile, cases, tmp_path):
    """None of them disturbs the others. 50 GB of zeros are left out, as their SHA-256 alone takes half a minute."""
    files, large = hostile / "set" / "files", "sparse_50g_h5.h5"
    (files / large).rename(tmp_path / large)
    command = [sys.executable, "-m", "mha_convert", "batch", files, "--out", tmp_path / "out", "--pattern", "*"]
    options = ["--keep-suffix", "--reference", "none", "--jobs", "2", "--timeout", "60"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    try:
        result = subprocess.run([*command, *options], capture_output=True, timeout=300, cwd=tmp_path, env=environment)
    finally:
        (tmp_path / large).rename(files / large)
    assert result.returncode == 1, result.stderr
    lines = [json.loads(line) for line in (tmp_path / "out" / "report.jsonl").read_text().splitlines()]
    found = {line["source"]: line for line in lines}
    assert len(found) == len(lines)
    faults, missing = [], []
    for case in cases:
        source = files / case["file"]
        line = found.get(str(source))
        if line is None:
            missing.append(case["file"])
        elif accepted(case):
            faults += [case["id"]] * (line["outcome"] != "converted")
        else:
            said = f"error: {printable(line['error']['message'])}\n"
            faults += [(case["id"], said)] * (
                line["outcome"] not in ("refused", "no attention") or said != case["convert"]["err"]
            )
    none(faults)
    assert set(missing) == {large, *(name for name in missing if (files / name).is_dir())}, "folders are no models then"
