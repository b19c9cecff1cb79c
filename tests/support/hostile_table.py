"""Writes the table of docs/security.md: what Keras' ``load_model`` does with each hostile file, and what we do.

    python tests/support/hostile_table.py

Keras' column is from ``../shared/hostile/keras_outcomes.md``; ours is measured when the script runs.
"""

import json
import re
import sys
import tempfile
import textwrap
from pathlib import Path

from environment import PROJECT, SHARED
from hostile_cases import run_all

PAGE = PROJECT / "docs" / "security.md"
VERBS = ("inspect", "convert", "model", "verify")
BEGIN, END = "<!-- cases: written by python tests/support/hostile_table.py -->\n", "<!-- end of cases -->"


def keras_outcomes() -> dict[str, str]:
    """What happened in Keras, by case."""
    lines = (SHARED / "hostile" / "keras_outcomes.md").read_text(encoding="utf-8").splitlines()
    rows = [re.split(r"(?<!\\)\|", line) for line in lines if line.startswith("| ") and line.count("|") >= 10]
    return {row[1].strip(" `"): row[5].strip() for row in rows}


def ours(case: dict) -> str:
    """Converted, or the reason of the refusal."""
    if case["convert"]["code"] == 0:
        return "converts"
    name = Path(case["file"]).name
    text = case["convert"]["err"].strip().removeprefix("error: ")
    text = re.sub(r"\S*/set/(files|canary)/", "", text).removeprefix(f"{name}: ").removeprefix(f"{name} ")
    return cell(re.split(r"\. (?=[A-Z])", text)[0][:160])


def cell(text: str) -> str:
    """Text that stays in its cell."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return shown.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_").replace("`", "'")


def table(cases: list[dict]) -> str:
    """All cases, and the sums."""
    keras = keras_outcomes()
    converted = sum(case["convert"]["code"] == 0 for case in cases)
    whole = sum(case["model"]["code"] == 0 for case in cases)
    seconds, memory = (
        max(case["seconds"] / sum(bool(case[verb]) for verb in VERBS) for case in cases),
        max(case["megabytes"] for case in cases),
    )
    sums = (
        f"{len(cases)} files: {converted} are converted, {len(cases) - converted} refused in one line. None crashes, hangs, "
        f"runs code or makes us open another file; at most {seconds:.1f} s of a processor for a verb and {memory} MB are used. "
        f"`mha-convert model`, which needs a graph of known layers, converts {whole} and refuses the others in one line."
    )
    rows = [
        textwrap.fill(sums, 125) + "\n",
        "| file | what it is | `load_model` | `mha-convert convert` |",
        "|---|---|---|---|",
    ]
    for case in cases:
        name = cell(case["id"])
        rows.append(f"| {name} | {cell(case['what'][:140])} | {keras.get(case['id'], 'not measured')} | {ours(case)} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Measure, and write the table into the page."""
    with tempfile.TemporaryDirectory() as name:
        run_all(SHARED / "hostile" / "make_hostile.py", Path(name))
        cases = json.loads((Path(name) / "cases.json").read_text())
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + table(cases) + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
