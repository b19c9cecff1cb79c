"""No child process imports what is in the current folder, next to a downloaded model (issue 12, point 3)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from environment import PROJECT

from mha_convert.files.child import command as child_command

TRAPS = (
    "json",
    "numpy",
    "keras",
    "tensorflow",
    "h5py",
    "torch",
    "sitecustomize",
    "encodings_",
    "ml_dtypes",
    "os_",
    "typing",
)
SCRIPT = f"import sys; sys.path[0] = {str(PROJECT)!r}; from mha_convert.__main__ import main; main()"  # as the command
VERBS = {
    "inspect": ["inspect", "m.keras"],
    "convert": ["convert", "m.keras", "new.safetensors"],
    "keras": ["convert", "m.keras", "new.safetensors", "--reference", "keras"],
    "verify": ["verify", "m.keras", "x.safetensors", "--reference", "keras"],
    "batch": ["batch", "m.keras", "--out", "out", "--reference", "keras"],
}


@pytest.fixture(scope="module")
def trapped(samples, tmp_path_factory, starts_processes):
    """A folder with a model and modules that say so when they are imported."""
    folder = tmp_path_factory.mktemp("downloaded")
    (folder / "m.keras").write_bytes((samples / "six_heads.keras").read_bytes())
    run(["convert", "m.keras", "x.safetensors", "--reference", "none"], folder)
    trap = "import pathlib; (pathlib.Path(__file__).parent / 'PWNED').touch()\n"
    for name in TRAPS:
        (folder / f"{name}.py").write_text(trap)
    (folder / "mha_convert").mkdir()
    (folder / "mha_convert" / "__init__.py").write_text(trap)
    return folder


def run(arguments, folder, **environment):
    """The command as installed: its own folder, not the current one, comes first."""
    return subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-c", SCRIPT, *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )


def ran(folder):
    """Whether a trap was imported."""
    return list(folder.rglob("PWNED"))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="an older Python puts the current folder first for -c itself")
@pytest.mark.parametrize("verb", VERBS)
def test_nothing_beside_the_model_runs(verb, trapped, keras_installed):
    report = run([*VERBS[verb], *(["--overwrite"] if verb not in ("inspect", "verify") else [])], trapped)
    assert report.returncode == 0 and not ran(trapped)


@pytest.mark.parametrize("site", [True, False])
def test_a_child_does_not_see_the_current_folder(site, trapped, tmp_path):
    """Whatever the environment says, and where this process itself has the folder in its path."""
    program = tmp_path / "imports_json.py"
    program.write_text("import json\ndef main(): print(json.dumps([1]))\n")
    command = child_command.python("imports_json", folders=[str(tmp_path)], site=site)
    done = subprocess.run(
        command,
        cwd=trapped,
        env=os.environ | {"PYTHONPATH": str(trapped)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [1] and not ran(trapped)
    subprocess.run([sys.executable, "-c", "import json"], cwd=trapped, check=False, capture_output=True)
    assert ran(trapped)  # the trap works
    ran(trapped)[0].unlink()


def test_a_child_writes_bytecode_only_where_its_parent_does(monkeypatch):
    for is_off in (True, False):
        monkeypatch.setattr(sys, "dont_write_bytecode", is_off)
        assert ("-B" in child_command.python("json.tool")) == is_off


def test_relative_folders_are_left_out(monkeypatch):
    monkeypatch.setattr(sys, "path", ["", ".", "models", *sys.path])
    assert all(Path(folder).is_absolute() for folder in child_command.importable())
    assert child_command.importable()[-1] == str(PROJECT) or str(PROJECT) in child_command.importable()
