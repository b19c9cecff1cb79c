"""Whatever a command or a stranger's folder adds to the weights leads to one clear line (issue 12, point 12).

Configurations, rules, settings, lists, reports and models to match: pipes, links to devices, endless texts, endless
nesting, names that no file can have. All cases run in one process, with little memory and an alarm for each.
"""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from environment import PROJECT
from layer_cases import CASES, make_layer

import mha_convert
from mha_convert.files.limits import RANK
from mha_convert.files.toml import outside_texts, refuse_deep

SECONDS, MEMORY = 20, 6 << 30  # for each case; torch alone takes most of the addresses
ENDLESS = "is a device, pipe or socket, expected a file. Pass a file on a disk."
RECORD = {"source": "a.keras", "target": None, "outcome": "refused", "settings": "x"}
REPORTS = {
    "deep line": b'{"source": ' + b"[" * 100_000,
    "source is a dict": json.dumps(RECORD | {"source": {}}).encode(),
    "outcome is a list": json.dumps(RECORD | {"outcome": []}).encode(),
    "error is text": json.dumps(RECORD | {"error": "text"}).encode(),
    "error without message": json.dumps(RECORD | {"error": {"kind": "x"}}).encode(),
    "message is a list": json.dumps(RECORD | {"error": {"kind": "x", "message": []}}).encode(),
    "layers of text": json.dumps(RECORD | {"layers": "abc"}).encode(),
    "a layer without ledger": json.dumps(RECORD | {"layers": [{}]}).encode(),
    "parameters are a dict": json.dumps(RECORD | {"layers": [{"ledger": {"source": {}}}]}).encode(),
    "parameters without end": json.dumps(RECORD | {"layers": [{"ledger": {"source": 10**400}}]}).encode(),
    "seconds are text": json.dumps(RECORD | {"seconds": "1"}).encode(),
    "seconds are no number": json.dumps(RECORD | {"seconds": float("nan")}).encode(),
    "seconds without end": json.dumps(RECORD | {"seconds": 10**400}).encode(),
    "memory is a float": json.dumps(RECORD | {"peak_memory": 1.5}).encode(),
    "a list": b"[]",
    "another field": json.dumps(RECORD | {"more": 1}).encode(),
    "no record": b"{}",
}
DEEP = {
    "arrays": "a = " + "[" * 100_000,
    "tables": "a = " + "{b = " * 100_000,
    "names": "a" + ".a" * 1_000_000 + " = 1",
    "quoted names": '"a"' + '."a"' * 900_000 + " = 1",
    "names behind a text": 'x = { y = """ " """, a' + ".a" * 1_000_000 + ' = """x""" }',
    "a header": "[a" + ".a" * 1_000_000 + "]",
}


def fill(folder: Path, golden: Path) -> None:
    """Everything that the cases name."""
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe.toml")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "zero.toml").symlink_to("/dev/zero")
    (folder / "folder.toml").mkdir()
    with (folder / "huge.toml").open("wb") as file:
        file.truncate(1 << 40)
    for number, text in enumerate(DEEP.values()):
        (folder / f"deep{number}.toml").write_text(text)
    (folder / "elsewhere.json").write_text("{}")
    for name, settings in SETTINGS.items():
        (folder / name).mkdir()
        (folder / name / "x.weights.h5").write_bytes((golden / "keras-3.15.1/square.weights.h5").read_bytes())
        (folder / name / "zero.json").symlink_to("/dev/zero")
        (folder / name / "out.json").symlink_to(folder / "elsewhere.json")
        os.mkfifo(folder / name / "pipe.json")
        (folder / name / "folder.json").mkdir()
        if settings == "pipe":
            os.mkfifo(folder / name / "mha-convert.toml")
        elif settings == "zero":
            (folder / name / "mha-convert.toml").symlink_to("/dev/zero")
        else:
            (folder / name / "mha-convert.toml").write_text(settings)
    for name in ("long", "nul"):
        letters = {"long": "x" * 5000, "nul": "x\0y"}[name]
        (folder / f"{name}.weights.json").write_text(json.dumps({"weight_map": {"layers/a": letters}}))
    (folder / "long.txt").write_text("x" * 5000 + ".keras\n" + "y/" * 5000 + "z.keras\n")
    (folder / "binary.txt").write_bytes(b"\xff\xfe\n")
    for number, line in enumerate(REPORTS.values()):
        (folder / f"report{number}.jsonl").write_bytes(line + b"\n")
    with (folder / "line.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("journal-pipe", "journal-zero"):
        (folder / name).mkdir()
    os.mkfifo(folder / "journal-pipe/report.jsonl")
    (folder / "journal-zero/report.jsonl").symlink_to("/dev/zero")


SETTINGS = {
    "settings-pipe": "pipe",
    "settings-zero": "zero",
    "settings-deep": DEEP["arrays"],
    "config-missing": 'config = "missing.json"',
    "config-zero": 'config = "zero.json"',
    "config-pipe": 'config = "pipe.json"',
    "config-folder": 'config = "folder.json"',
    "config-out": 'config = "out.json"',
    "config-long": f'config = "{"x" * 5000}"',
    "config-nul": r'config = "a\u0000b"',
    "like-missing": 'like = "missing.json"',
    "like-zero": 'like = "zero.json"',
    "like-pipe": 'like = "pipe.json"',
}
CALLS = {  # a call, and what its one line says
    **{f"--config {name}": (f"read(square, config='{name}')", ENDLESS) for name in ("pipe", "zero")},
    "--config folder": ("read(square, config='folder.toml')", "is a directory"),
    "--config huge": ("read(square, config='huge.toml')", "is 1099511627776 bytes of JSON, expected at most"),
    **{f"source {name}": (f"read('{name}')", "is a device, pipe or socket") for name in ("pipe", "zero")},
    **{f"--like {name}": (f"match_file(square, '{name}')", ENDLESS) for name in ("pipe", "zero")},
    **{f"--rename {name}": (f"read_renames('{name}')", ENDLESS) for name in ("pipe", "zero")},
    **{f"--attention {name}": (f"read_attention('{name}.toml')", ENDLESS) for name in ("pipe", "zero")},
    "--rename folder": ("read_renames('folder.toml')", "is a directory"),
    "--rename huge": ("read_renames('huge.toml')", "is 1099511627776 bytes of TOML, expected at most 4194304"),
    **{
        f"--rename deep {name}": (f"read_renames('deep{number}.toml')", "is nested more than 16 deep")
        for number, name in enumerate(DEEP)
    },
    "settings-pipe": ("batch('settings-pipe')", ENDLESS),
    "settings-zero": ("batch('settings-zero')", ENDLESS),
    "settings-deep": ("batch('settings-deep')", "is nested more than 16 deep"),
    **{
        name: (f"batch('{name}')", "and there is no such file next to it. Put it there, or leave the line out.")
        for name in SETTINGS
        if name.startswith(("config", "like")) and name != "config-out"
    },
    "config-out": ("batch('config-out')", "'config' names 'out.json', a link to a file elsewhere, which is not followed"),
    **{f"batch --config {name}": (f"batch(square, config='{name}')", ENDLESS) for name in ("pipe", "zero")},
    "batch --config missing": ("batch(square, config='missing')", "missing cannot be read: there is no such file"),
    **{f"batch --like {name}": (f"batch(square, like='{name}')", ENDLESS) for name in ("pipe", "zero")},
    **{f"batch --rename {name}": (f"batch(square, renames='{name}')", ENDLESS) for name in ("pipe", "zero")},
    **{f"list {name}": (f"batch('@{name}')", ENDLESS) for name in ("pipe", "zero")},
    "list huge": ("batch('@huge.toml')", "is 1099511627776 bytes of places, expected at most"),
    "list of no text": ("batch('@binary.txt')", "the list cannot be read: it is not text in UTF-8"),
    **{f"--out {name}": (f"batch(square, out='journal-{name}', overwrite=True)", "report.jsonl is a device, pipe or") for name in ("pipe", "zero")},
    **{f"--resume {name}": (f"batch(square, out='journal-{name}', resume=True)", ENDLESS) for name in ("pipe", "zero")},
    **{f"report {name}": (f"report('{name}')", ENDLESS) for name in ("pipe", "zero")},
    "report of one line": ("report('line.jsonl')", "line 1 is longer than 16777216 bytes"),
    **{
        f"report: {name}": (f"report('report{number}.jsonl')", "line 1 is not a line of a report, expected what batch writes")
        for number, name in enumerate(REPORTS)
    },
    "shard of 5,000 letters": ("read('long.weights.json')", "is not next to it. Copy all shards into one folder."),
    "shard with a NUL": ("read('nul.weights.json')", "expected a file next to it. Save it again."),
    "source of 5,000 letters": (f"read('{'x' * 5000}')", "cannot be opened: file name too long"),
    "--like of 5,000 letters": (f"match_file(square, '{'x' * 5000}')", "cannot be opened: file name too long"),
}  # fmt: skip
PROGRAM = """
import json, resource, signal, sys
from mha_convert import *
from mha_convert import convert_many, read_renames, read_attention
from mha_convert.batch.journal import read_report
from mha_convert.batch.summary import summary_of, summary_as_json, summary_as_text

resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
square = sys.argv[1]
batch = lambda source, out="out", **options: list(convert_many(source, out, **options))
report = lambda place: summary_as_text(summary_of(read_report(place)))

def late(*_):
    raise SystemExit("too late")

signal.signal(signal.SIGALRM, late)
for name, call in json.load(sys.stdin).items():
    signal.alarm(int(sys.argv[3]))
    try:
        told = ["nothing", str(eval(call))]
    except BaseException as error:
        told = [type(error).__mro__[-4 if isinstance(error, MhaConvertError) else 0].__name__, str(error)]
    signal.alarm(0)
    print(json.dumps([name, *told]), flush=True)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory, golden, starts_processes):
    """What each call said."""
    folder = tmp_path_factory.mktemp("side")
    fill(folder, golden)
    square = golden / "keras-3.15.1/square.weights.h5"
    command = [sys.executable, "-c", PROGRAM, square, str(MEMORY), str(SECONDS)]
    calls = {name: call for name, (call, _) in CALLS.items()}
    result = subprocess.run(
        command, cwd=folder, input=json.dumps(calls), capture_output=True, text=True, timeout=600, env=os.environ | {"PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return {name: (kind, text) for name, kind, text in lines}, result.stderr


@pytest.mark.parametrize("name", CALLS)
def test_everything_beside_the_weights_is_one_clear_line(told, name):
    answers, stderr = told
    assert name in answers, f"nothing was said any more: {stderr[-2000:]}"
    kind, text = answers[name]
    assert kind == "MhaConvertError", f"{kind}: {text[:500]}"
    assert CALLS[name][1] in text and "\n" not in text


@pytest.mark.process
def test_a_list_with_names_that_no_file_can_have_costs_these_sources_only(tmp_path):
    """Point 12 of issue 12: each has its line in the report."""
    (tmp_path / "list.txt").write_text("x" * 5000 + ".keras\n" + "y/" * 5000 + "z.keras\n")
    os.mkfifo(tmp_path / "pipe.keras")
    reports = list(mha_convert.convert_many([f"@{tmp_path / 'list.txt'}", tmp_path / "pipe.keras"], tmp_path / "out"))
    assert [report.outcome for report in reports] == ["refused"] * 3
    assert sorted(report.error["message"].split(": ")[-1] for report in reports)


TEXTS = {
    "a = 'x.y.z' # no. no. no.\nb.c = 1": "a =  b.c = 1",
    'a = "x\\".y" , b = 1': "a =   , b = 1",
    'a = """x "" . \\""" . """"" , b = 1': "a =   , b = 1",
    "a = '''x '' . ''''' , b = 1": "a =   , b = 1",
    'a = ""\nb = """"""\nc = 1': "a =  b =  c = 1",
    'a = "never.ends': "a =",
    "a = '''never.ends": "a =",
    'a = "ends with the line\nb.c = 1': "a =  b.c = 1",
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts_and_comments_of_toml_are_left_out(text):
    """Point 12 of issue 12: what is counted before the parser sees it are names."""
    assert re.sub(r"\s+", " ", " ".join(outside_texts(text))).strip() == re.sub(r"\s+", " ", TEXTS[text]).strip()


def test_dots_in_texts_comments_and_lists_are_no_depth():
    """Point 12 of issue 12."""
    dots = "." * 500
    refuse_deep(f'# {dots}\n"{dots}" = "{dots}"\nlist = [{"1.5, " * 500}]\n[a.b.c]\n', "x", "y")


def test_long_rules_are_read(tmp_path):
    """Point 12 of issue 12: the limit is far above what a large model needs."""
    keys = {f"encoder.layer_{number}.attention.{number % 8}": f"encoder.layers.{number}.x" for number in range(20_000)}
    (tmp_path / "r.toml").write_text("[rename]\n" + "".join(f'"{key}" = "{new}"\n' for key, new in keys.items()))
    assert mha_convert.read_renames(tmp_path / "r.toml") == keys


def with_axes(golden, path: Path, axes) -> Path:
    """A genuine file with other axes, and nothing that tells the rank."""
    with zipfile.ZipFile(golden / "keras-3.15.1/square.keras") as a, zipfile.ZipFile(path, "w") as b:
        for name in a.namelist():
            content = a.read(name)
            if name == "config.json":
                config = json.loads(content)
                for entry in config["config"]["layers"]:
                    entry.pop("build_config", None)
                    entry["inbound_nodes"] = []
                    if entry["class_name"] == "MultiHeadAttention":
                        entry["config"] |= {
                            "attention_axes": axes,
                            "query_shape": None,
                            "key_shape": None,
                            "value_shape": None,
                        }
                content = json.dumps(config).encode()
            b.writestr(name, content)
    return path


AXES = {
    "twice": ([1, 1], r"attention_axes \[1, 1\] names an axis twice"),
    "3,000 times": ([1] * 3000, r"attention_axes \[1, 1, .*\(9000 characters\) names an axis twice"),
    "twice by two names": ([1, -3], r"attends over axes \(1, -3\) of an input of rank 3, which name an axis twice"),
    "a million": ([10**6], "has inputs of rank 1000002, and attention over inputs of rank 8 at most is converted"),
    "16": ([16], "has inputs of rank 18, and attention over inputs of rank 8 at most is converted"),
    "18": ([18], "has inputs of rank 20, and attention over inputs of rank 8 at most is converted"),
    "many": (list(range(1, 3000)), "has inputs of rank 3001, and attention over inputs of rank 8 at most"),
    "many below zero": (list(range(-9000, -10)), r"attends over axes \(-9000, .*…"),
    "the batch": ([0], "attends over axis 0, which is the batch: each sample looks at the others. If time was meant"),
    "the batch and time": ([0, 1], "attends over axis 0, which is the batch: each sample looks at the others"),
}


@pytest.mark.parametrize("layout", ["mha", "linear", "qkv", "bart"])
@pytest.mark.parametrize("name", AXES)
def test_axes_that_no_input_has_are_one_line(golden, tmp_path, name, layout):
    """Point 12 of issue 12."""
    axes, message = AXES[name]
    source = with_axes(golden, tmp_path / "x.keras", axes)
    with pytest.raises(mha_convert.MhaConvertError, match=message) as error:
        mha_convert.convert_file(source, tmp_path / "x.pt", layout=layout)
    assert "\n" not in str(error.value) and len(str(error.value)) < 900
    assert not (tmp_path / "x.pt").exists()


@pytest.mark.parametrize("axes, rank", [((RANK - 2,), None), (None, RANK), (tuple(range(RANK - 2, 0, -1)), RANK)])
def test_the_highest_rank_is_proven_with_little_memory(tmp_path, axes, rank):
    """Point 12 of issue 12: a rank costs at most this much."""
    import tracemalloc

    layer = make_layer(CASES[0], attention_axes=axes, input_rank=rank)
    plan = mha_convert.plan([layer], layout="linear")
    mha_convert.write(tmp_path / "x.safetensors", mha_convert.convert(plan))
    tracemalloc.start()
    try:
        assert mha_convert.verify(plan, mha_convert.open_target(tmp_path / "x.safetensors")).comparisons
        assert tracemalloc.get_traced_memory()[1] < 300 << 20
    finally:
        tracemalloc.stop()
