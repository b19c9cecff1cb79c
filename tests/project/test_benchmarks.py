"""``python -m benchmarks --quick`` measures everything once; the figures themselves are not judged."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from environment import PROJECT, require

WAYS = ["cp", "ours", "ours, proven", "Keras script", "Keras torch backend"]


def run(folder, *options):
    paths = os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture(scope="module")
def quick(keras_installed, tmp_path_factory, starts_processes):
    """A folder with the results, and what was printed."""
    require(importlib.util.find_spec("matplotlib") is not None, "matplotlib")
    folder = tmp_path_factory.mktemp("benchmarks")
    (folder / "page.md").write_text(
        "Before.\n\n<!-- figures: written by python -m benchmarks -->\nold\n<!-- end of figures -->\n\nAfter.\n"
    )
    result = run(folder, "--quick", "--out", "out", "--page", "page.md")
    assert result.returncode == 0, result.stderr
    return folder, result.stdout


def test_every_way_and_module_is_measured(quick):
    found = json.loads((quick[0] / "out" / "figures.json").read_text())
    (row,) = found["conversion"]
    assert row["model"] == "1MB" and row["layers"] == 1
    assert abs(row["target_bytes"] / 1e6 - 1) < 0.1 and row["source_bytes"] > row["target_bytes"] * 0.99
    assert list(row["ways"]) == WAYS
    assert row["ways"]["cp"]["times_cp"] == 1
    for way in row["ways"].values():
        assert len(way["seconds"]) == 1 and way["median_seconds"] == way["seconds"][0] > 0
        assert way["resident_bytes"] >= way["anonymous_bytes"]
    for name in WAYS[1:]:
        assert row["ways"][name]["anonymous_bytes"] > row["bare_interpreter"]["anonymous"] > 0
    assert [one["mode"] for one in found["forward"]] == ["mask: none", "mask: causal", "mask: padding", "training"]
    modules = {"layout linear", "layout bert", "layout qkv", "layout mha", "nn.MultiheadAttention"}
    for one in found["forward"]:
        assert modules <= set(one["times_plain"])
        assert min(one["times_plain"].values()) > 0 and one["plain_seconds"] > 0
    assert {"Keras on TensorFlow", "Keras on torch"} <= set(found["forward"][0]["times_plain"])
    (model,) = found["whole"]
    assert set(model["ways"]) == {
        "cp",
        *("convert, attention alone" + end for end in ("", ", proven")),
        "model",
        "model, proven",
    }
    assert {"written source", "Keras, tf.function"} == set(model["forward"]["times_plain"])
    (many,) = found["batch"]
    assert (many["files"], many["jobs"]) == (12, 2)
    assert many["ratio"] == many["seconds"] / (many["singles"] / 2) > 0
    assert found["machine"]["cores"] == os.cpu_count() and "torch" in found["versions"]


def test_the_table_is_printed_and_put_between_the_markers(quick):
    folder, printed = quick
    page = (folder / "page.md").read_text()
    assert printed.count("\n| --- ") == 6 and "| 1MB | 1 MB |" in printed
    assert printed.strip() in page
    assert page.startswith("Before.\n") and page.endswith("\nAfter.\n") and "\nold\n" not in page


def test_the_plot_is_a_small_picture(quick):
    picture = (quick[0] / "out" / "growth.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) < 100_000


def test_nothing_else_is_left(quick):
    assert sorted(path.name for path in quick[0].iterdir()) == ["out", "page.md"]
    assert sorted(path.name for path in (quick[0] / "out").iterdir()) == ["figures.json", "growth.png"]


def test_sizes_are_read():
    sys.path.insert(0, str(PROJECT))
    try:
        from benchmarks import models
    finally:
        sys.path.remove(str(PROJECT))
    for text, size in (("1MB", 1e6), ("10MB", 1e7), ("100MB", 1e8), ("1.26GB", 1.26e9), ("4GB", 4e9)):
        model = models.parse(text)
        assert abs(16 * model.layers * (model.features**2 + model.features) / size - 1) < 0.06
    with pytest.raises(ValueError, match="12 parsecs: no size. Give one as 100MB"):
        models.parse("12 parsecs")
