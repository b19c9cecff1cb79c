"""Which module may import which, what must not be loaded, and what start-up costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from environment import PROJECT

PACKAGE = PROJECT / "mha_convert"
BASE = {"records", "errors", "files", "options"}
# What each part may import of ours, beside `records`, `errors` and `files` (and its own folder).
ALLOWED = {
    "errors": set(),
    "options": set(),
    "signals": set(),
    "streams": set(),
    "records": set(),
    "classes": set(),
    "files": set(),
    "modules": set(),
    "readers": {"classes"},
    "layers": {"classes", "keys"},
    "graph": {"layers", "readers"},
    "layouts": {"layers"},
    "conversion": set(),
    "keys": {"conversion", "layouts", "targets"},
    "targets": {"modules", "signals"},
    "source": {"graph", "layers", "layouts"},
    "verification": {"conversion", "graph", "layers", "layouts", "modules", "targets"},
    "words": {"conversion", "layers", "layouts", "source"},
    "inspection": {"graph", "layers", "readers"},
    "pipeline": {"conversion", "inspection", "keys", "layers", "layouts", "readers", "source", "targets", "verification", "words"},
    "models": {"conversion", "graph", "layers", "layouts", "readers", "source", "targets", "verification", "words"},
    "live": {"conversion", "layers", "layouts", "readers", "targets", "verification"},
    "batch": {"keys", "layers", "pipeline", "readers", "targets", "words", "__init__"},
    "cli": {"batch", "inspection", "keys", "models", "pipeline", "readers", "signals", "targets", "words", "__init__"},
    "__main__": {"cli", "signals", "streams"},
    "__init__": {"batch", "conversion", "graph", "inspection", "keys", "layers", "layouts", "live", "models", "modules", "pipeline", "readers", "targets", "verification"},
}  # fmt: skip
HEAVY = ("torch", "tensorflow", "keras", "jax")


def part_of(path: Path) -> str:
    """The folder or module below the package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    """Parts of the package that a file imports, wherever the import stands."""
    depth = len(path.relative_to(PACKAGE).parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            found |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    found = {"__init__" if name == "__version__" else name for name in imported_parts(path)}
    assert found <= ALLOWED[part_of(path)] | BASE | {part_of(path)}


def test_the_import_test_can_fail(tmp_path, monkeypatch):
    bad = tmp_path / "readers" / "bad.py"
    bad.parent.mkdir()
    bad.write_text("from ..layouts import plan\nfrom .. import conversion")
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    assert imported_parts(bad) == {"layouts", "conversion"}


def test_hdf5_is_touched_in_the_process_of_its_own_only():
    assert {path.stem for path in PACKAGE.rglob("*.py") if "h5py" in imported_names(path)} == {"worker", "structure"}


def imported_names(path: Path) -> set[str]:
    """Top-level names of other packages that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name.split(".")[0] for name in found}


def modules_after(code: str, *arguments: str) -> set[str]:
    """Top-level modules that a fresh Python has loaded after ``code``."""
    program = f"import sys\nsys.argv[1:] = {list(arguments)!r}\n{code}\nprint(' '.join(sorted({{m.split('.')[0] for m in sys.modules}})), file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(result.stderr.split())


CLI = "import atexit\nfrom mha_convert.cli import app\ntry:\n    app()\nexcept SystemExit as end:\n    assert not end.code, end"


@pytest.mark.process
def test_import_loads_nothing_heavy():
    loaded = modules_after("import mha_convert")
    assert not loaded & {*HEAVY, "numpy", "h5py", "rich"}


@pytest.mark.process
@pytest.mark.parametrize("arguments", [("--help",), ("convert", "--help")])
def test_help_loads_nothing_heavy(arguments):
    assert not modules_after(CLI, *arguments) & {*HEAVY, "numpy", "h5py"}


@pytest.mark.process
def test_inspect_and_unproven_conversion_need_neither_torch_nor_keras(samples, tmp_path):
    assert not modules_after(CLI, "inspect", str(samples / "translator.h5")) & set(HEAVY)
    target = str(tmp_path / "x.safetensors")
    assert not modules_after(CLI, "convert", str(samples / "translator.h5"), target, "--reference", "none") & set(HEAVY)


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "six_heads.keras"),
        ("inspect", "--json", "encoder.weights.h5"),
        ("explain", "six_heads.keras"),
        ("keys", "six_heads.keras"),
        ("convert", "--reference", "none", "six_heads.keras", "x.safetensors"),
        ("convert", "--reference", "none", "encoder.weights.h5", "x.safetensors", "--layout", "linear"),
    ],
    ids=" ".join,
)
def test_whatever_proves_nothing_starts_fast(arguments, samples, tmp_path):
    """Neither torch nor Keras, nor what costs as much as a small conversion and is not needed for local files."""
    places = {name: str(samples / name) for name in ("six_heads.keras", "encoder.weights.h5")}
    places["x.safetensors"] = str(tmp_path / "x.safetensors")
    loaded = modules_after(CLI, *(places.get(argument, argument) for argument in arguments))
    assert not loaded & {*HEAVY, "safetensors", "fsspec", "upath", "ssl", "sympy", "scipy"}


@pytest.mark.process
def test_a_local_conversion_loads_no_http(samples, tmp_path):
    code = CLI + "\n" + "bad = {'urllib.request', 'http.client'} & set(sys.modules)\nassert not bad, bad"
    target = str(tmp_path / "x.safetensors")
    modules_after(code, "convert", "--reference", "none", str(samples / "six_heads.keras"), target)
    with pytest.raises(subprocess.CalledProcessError):
        modules_after("import http.client\n" + code, "inspect", str(samples / "six_heads.keras"))


@pytest.mark.process
def test_the_command_asks_for_one_thread_unless_the_user_did():
    code = "import os\nfrom mha_convert.cli import main\ntry:\n    main()\nexcept SystemExit: pass\nassert os.environ['OPENBLAS_NUM_THREADS'] == {!r}"
    modules_after(code.format("1"), "--help")
    modules_after("import os\nos.environ['OPENBLAS_NUM_THREADS'] = '3'\n" + code.format("3"), "--help")


@pytest.mark.process
def test_proof_needs_no_keras(samples, tmp_path):
    loaded = modules_after(CLI, "convert", str(samples / "translator.h5"), str(tmp_path / "x.safetensors"))
    assert "torch" in loaded and not loaded & {"tensorflow", "keras", "jax"}


FORBID = """
import sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("keras", "tensorflow", "tf_keras", "jax"):
            raise ImportError(f"{name} is forbidden")

sys.meta_path.insert(0, Forbidden())
"""


@pytest.mark.process
def test_reading_and_proving_work_where_keras_and_tensorflow_cannot_be_imported(samples, tmp_path):
    for file in ("six_heads.keras", "translator.h5", "encoder.weights.h5"):
        modules_after(FORBID + CLI, "convert", str(samples / file), str(tmp_path / f"{file}.pt"))
    with pytest.raises(subprocess.CalledProcessError):
        modules_after(FORBID + "import keras")


@pytest.mark.process
def test_genuine_keras_never_shares_a_process_with_torch(keras_installed, samples, tmp_path):
    loaded = modules_after(
        CLI, "convert", str(samples / "textbook.keras"), str(tmp_path / "x.pt"), "--reference", "keras"
    )
    assert "torch" in loaded and not loaded & {"tensorflow", "keras"}


@pytest.mark.process
def test_the_process_of_hdf5_starts_before_numpy_is_loaded():
    """Both load at once then: 0.1 s of every command."""
    assert not modules_after("import mha_convert.files.hdf5.process") & {*HEAVY, "numpy", "h5py", "rich"}
    program = (
        "import mha_convert.files.hdf5.worker, sys; print(*[n for n in sys.modules if n.startswith('mha_convert')])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {name for name in result.stdout.split() if "readers" in name or "records" in name}
