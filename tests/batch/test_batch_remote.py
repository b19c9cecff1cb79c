"""Batches from and to an S3-compatible server on loopback, and fsspec's in-memory store."""

import json
import os
import re
import subprocess
import sys

import fsspec
import pytest
from command_line import run_cli

import mha_convert

TREE = {  # key below models/, and the file
    "textbook.keras": "samples/textbook.keras",
    "deep/er/translator.h5": "samples/translator.h5",
    "saved": "golden/keras-2.15/square.savedmodel",
    "checkpoint": "golden/keras-2.12/square.tfckpt",
}
TARGETS = ["checkpoint/ckpt", "deep/er/translator", "saved", "textbook"]
PUT = """
import sys, fsspec
s3 = fsspec.filesystem("s3")
bucket = sys.argv[1].split("/")[0]
s3.exists(bucket) or s3.mkdir(bucket)
pairs = iter(sys.argv[1:])
for key, file in zip(pairs, pairs):
    s3.put(file, key, recursive=True)
"""
LIST = "import sys, fsspec; print('\\n'.join(fsspec.filesystem('s3').find(sys.argv[1])))"
CAT = "import sys, fsspec; sys.stdout.write(fsspec.filesystem('s3').cat(sys.argv[1]).decode())"


def s3_client(code, *arguments, env):
    """Something that a client of the server does, in a process of its own."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=os.environ | env, check=True, capture_output=True, text=True, timeout=60).stdout


def files(samples, golden):
    """The files of the tree on this machine."""
    return {key: (samples if file[0] == "s" else golden) / file.split("/", 1)[1] for key, file in TREE.items()}


@pytest.fixture
def bucket(s3, samples, golden, request):
    """A bucket of this test's own, with the tree in it."""
    name = re.sub("[^a-z0-9]", "", request.node.name)[:60]
    pairs = [part for key, file in files(samples, golden).items() for part in (f"{name}/models/{key}", file)]
    s3_client(PUT, *pairs, env=s3)
    return name


def batch(*arguments, env, cwd, code=0):
    """``batch --json``: the lines that it prints."""
    out = run_cli("batch", *arguments, "--json", "--reference", "none", env=env, cwd=cwd, code=code).stdout
    return [json.loads(line) for line in out.splitlines()]


def test_a_tree_goes_from_a_bucket_to_a_bucket(s3, bucket, tmp_path):
    source, out = f"s3://{bucket}/models", f"s3://{bucket}/converted"
    batch(source, "--out", out, env=s3, cwd=tmp_path)
    found = s3_client(LIST, f"{bucket}/converted", env=s3).split()
    assert found == sorted(
        f"{bucket}/converted/{end}" for end in ["report.jsonl", *(f"{t}.safetensors" for t in TARGETS)]
    )
    report = [json.loads(line) for line in s3_client(CAT, f"{bucket}/converted/report.jsonl", env=s3).splitlines()]
    assert [line["outcome"] for line in report] == ["converted"] * len(TREE)
    assert "converted           4\n" in run_cli("report", f"{out}/report.jsonl", env=s3, cwd=tmp_path).stdout


def test_what_did_not_change_in_a_bucket_is_not_done_again(s3, bucket, samples, golden, tmp_path):
    source, out = f"s3://{bucket}/models", f"s3://{bucket}/converted"
    batch(source, "--out", out, env=s3, cwd=tmp_path)
    (summary,) = batch(source, "--out", out, "--resume", env=s3, cwd=tmp_path)
    assert summary["summary"]["earlier"] == len(TREE)
    other = golden / "keras-2.15/square.savedmodel/fingerprint.pb"
    (tmp_path / "longer").write_bytes(other.read_bytes() + b"\0")
    changed = [f"{bucket}/models/textbook.keras", samples / "six_heads.keras"]
    s3_client(PUT, *changed, f"{bucket}/models/saved/fingerprint.pb", tmp_path / "longer", env=s3)
    *again, summary = batch(source, "--out", out, "--resume", env=s3, cwd=tmp_path)
    assert sorted(line["source"] for line in again) == [f"{source}/saved", f"{source}/textbook.keras"]
    assert summary["summary"]["earlier"] == len(TREE) - 2


def test_a_glob_in_a_bucket_and_targets_here(s3, bucket, samples, tmp_path):
    names = ["x/six heads #1?.keras", "y/six heads #1?.keras", "y/six%20heads [a].keras"]
    pairs = [part for name in names for part in (f"{bucket}/models/{name}", samples / "six_heads.keras")]
    s3_client(PUT, *pairs, env=s3)
    batch(f"s3://{bucket}/**/*.keras", "--out", "out", env=s3, cwd=tmp_path)
    expected = ["textbook.safetensors", *(name.replace(".keras", ".safetensors") for name in names)]
    written = [path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.safetensors")]
    assert sorted(written) == sorted(expected)
    batch(f"s3://{bucket}/models/y", "--out", f"s3://{bucket}/out", env=s3, cwd=tmp_path)
    assert f"{bucket}/out/six heads #1?.safetensors" in s3_client(LIST, f"{bucket}/out", env=s3).splitlines()


def test_credentials_that_are_missing_are_one_line(s3, samples, tmp_path):
    nobody = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "")
    env = s3 | nobody | {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    for arguments in (("s3://any/models", "--out", "out"), (samples, "--out", "s3://any/out")):
        message = run_cli("batch", *arguments, env=env, cwd=tmp_path, code=1).stderr
        assert "the store does not return it: Unable to locate credentials" in message
        assert message.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../up.keras", "a/../../up.keras", "a/../../../up.keras"])
def test_a_name_with_dots_never_leads_out(monkeypatch, tmp_path, name):
    monkeypatch.setattr("mha_convert.batch.sources.listing", lambda folder: iter([name]))
    fsspec.filesystem("memory").pipe("/models/x.keras", b"")
    with pytest.raises(mha_convert.WriteError, match=r"would be written outside .*Name it without '\.\.'"):
        list(mha_convert.convert_many("memory://models", tmp_path / "out"))
    assert not list(tmp_path.iterdir())


def test_names_with_empty_parts_and_dots_stay_in_the_folder(monkeypatch, tmp_path):
    from mha_convert.batch.run import plan_batch

    names = ["/abs.keras", "a//double.keras", "a/./dot.keras", "//etc/x.keras"]
    monkeypatch.setattr("mha_convert.batch.sources.listing", lambda folder: iter(names))
    fsspec.filesystem("memory").pipe("/models/x.keras", b"")
    tasks = {task["source"]: task["target"] for task in plan_batch("memory://models", tmp_path).tasks}
    ends = ["abs", "a/double", "a/dot", "etc/x"]
    assert tasks == {
        f"memory://models/{name}": str(tmp_path / f"{end}.safetensors") for name, end in zip(names, ends, strict=True)
    }


def test_settings_in_a_bucket_count(s3, bucket, tmp_path):
    (tmp_path / "mha-convert.toml").write_text('layout = "linear"\n')
    s3_client(PUT, f"{bucket}/models/deep/mha-convert.toml", tmp_path / "mha-convert.toml", env=s3)
    *lines, _ = batch(f"s3://{bucket}/models", "--out", "out", env=s3, cwd=tmp_path)
    modules = {line["source"].rpartition("/")[2]: {layer["module"] for layer in line["layers"]} for line in lines}
    assert modules["translator.h5"] == {"KerasMultiheadAttention"}
    assert "KerasMultiheadAttention" not in modules["textbook.keras"]
