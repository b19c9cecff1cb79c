"""The measured figures: a JSON document, and a table between two markers of a page."""

import json
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
BEGIN, END = "<!-- figures: written by python -m benchmarks -->", "<!-- end of figures -->"


def load(folder: Path) -> Figures:
    """What was measured before, so that one part can be measured again."""
    empty: Figures = {"conversion": [], "forward": [], "whole": [], "batch": []}
    path = folder / "figures.json"
    return empty | json.loads(path.read_text(encoding="utf-8")) if path.exists() else empty


def with_conversion(found: Figures, row: dict[str, Any]) -> Figures:
    """The same figures with one model's row, which replaces its old one if there is one."""
    rows = [old for old in found["conversion"] if old["model"] != row["model"]] + [row]
    found["conversion"] = sorted(rows, key=lambda one: one["target_bytes"])
    return found


def save(folder: Path, found: Figures) -> None:
    """Write ``figures.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "figures.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def put(page: Path, text: str) -> None:
    """Replace the text between the page's markers; a page that does not exist is created."""
    old = page.read_text(encoding="utf-8") if page.exists() else f"{BEGIN}\n{END}\n"
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
