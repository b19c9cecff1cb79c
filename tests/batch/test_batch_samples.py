"""The scripts in samples/batch run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
NAMES = ["encoder.weights.h5", "six_heads.keras", "textbook.keras", "translator.h5"]
PUT = """
import sys, fsspec
s3 = fsspec.filesystem("s3")
s3.mkdir("lab")
for file in sys.argv[1:]:
    s3.put(file, f"lab/models/{file.rpartition('/')[2]}")
"""


@pytest.fixture
def models(samples, tmp_path):
    """The samples' models, and a file that is none."""
    (tmp_path / "models").mkdir()
    for name in NAMES:
        shutil.copyfile(samples / name, tmp_path / "models" / name)
    (tmp_path / "models" / "broken.keras").write_bytes(b"PK\3\4 and nothing else")
    return tmp_path / "models"


@pytest.fixture
def environment(tmp_path):
    """Where a shell finds the command, which is the project's own."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "mha-convert"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mha_convert "$@"\n')
    command.chmod(0o755)
    return os.environ | {"PATH": os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])}


def run(script, *arguments, env, cwd, code=0):
    """A script from beginning to end."""
    program = [sys.executable] if script.suffix == ".py" else ["sh"]
    command = [*program, script, *map(str, arguments)]
    result = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=180)
    assert result.returncode == code, result.stderr
    return result.stdout


def targets(folder):
    """The names of the targets in a folder."""
    return sorted(path.name for path in Path(folder).glob("*.safetensors"))


def test_the_loop_and_the_line_that_replaces_it(samples, models, environment, tmp_path):
    script = samples / "batch" / "convert_all.sh"
    out = run(script, models, tmp_path / "out", env=environment, cwd=tmp_path, code=1)
    assert "1 failed\n" in out
    assert "converted           4\n" in out
    expected = [f"{name}.safetensors" for name in NAMES]
    assert targets(tmp_path / "out" / "loop") == targets(tmp_path / "out" / "batch") == expected


def test_progress_and_failures_in_python(samples, models, environment, tmp_path):
    out = run(samples / "batch" / "convert_all.py", models, tmp_path / "out", env=environment, cwd=tmp_path)
    assert out.startswith(f"{models}/broken.keras: ")
    assert out.endswith("\n1 failed\n")
    assert len(targets(tmp_path / "out")) == len(NAMES)


def test_on_a_dask_cluster(samples, models, environment, tmp_path):
    out = run(samples / "batch" / "on_dask.py", models, tmp_path / "out", env=environment, cwd=tmp_path)
    assert sorted(line.split()[0] for line in out.splitlines()) == ["converted"] * 4 + ["refused"]
    assert len(targets(tmp_path / "out")) == len(NAMES)


def test_from_a_bucket_to_a_bucket(s3, samples, environment, tmp_path):
    files = [str(samples / name) for name in NAMES]
    subprocess.run([sys.executable, "-c", PUT, *files], env=os.environ | s3, check=True, timeout=60)
    script = samples / "batch" / "from_bucket.sh"
    out = run(script, "s3://lab/models", "s3://lab/converted", env=environment | s3, cwd=tmp_path)
    assert out.count("converted           4\n") == 2
