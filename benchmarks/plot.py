"""The growth curves: time and memory against size."""

import importlib.util
from pathlib import Path
from typing import Any

from .conversion import CP

INSTALL = "matplotlib is not installed in this Python. Install it with `pip install -e '.[benchmarks]'`."


def require() -> None:
    """Exit before anything is measured if the plot cannot be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise SystemExit(INSTALL)


def growth(conversions: list[dict[str, Any]], path: Path) -> None:
    """Write both curves as PNG, for the models that consist only of attention."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    grown = sorted((row for row in conversions if row["model"] != "ViT-B"), key=lambda row: row["target_bytes"])
    if not grown:
        return
    sizes = [row["target_bytes"] / 1e6 for row in grown]
    figure, (times, memory) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    for number, name in enumerate(grown[0]["ways"]):
        spent = [row["ways"][name] for row in grown]
        style = {"marker": "o", "label": name, "color": f"C{number}"}
        times.plot(sizes, [way["median_seconds"] for way in spent], **style)
        if name != CP:
            memory.plot(sizes, [way["anonymous_bytes"] / 1e6 for way in spent], **style)
    for axes, title in ((times, "seconds, start to end"), (memory, "anonymous memory at the peak, MB")):
        axes.set(xscale="log", yscale="log", xlabel="MB of attention weights", title=title)
        axes.grid(alpha=0.3)
    figure.legend(*times.get_legend_handles_labels(), loc="outside lower center", ncols=len(grown[0]["ways"]))
    figure.savefig(path, dpi=90)
    plt.close(figure)
