"""``explain`` accepts every layer that a layout accepts; a gate was a KeyError (issue 12, point 15)."""

import re

import pytest
from environment import TESTS

from mha_convert import MhaConvertError
from mha_convert.layouts import LAYOUTS
from mha_convert.pipeline import explain_file
from mha_convert.words.explanation import alike, explanation

GOLDEN = TESTS / "golden"
FILES = sorted(path for path in GOLDEN.rglob("*.*") if path.suffix in (".keras", ".h5"))


@pytest.mark.parametrize("layout", [layout.NAME for layout in LAYOUTS])
def test_explain_takes_every_golden_layer(layout):
    explained = 0
    for path in FILES:
        try:
            plans = explain_file(path, layout=layout)
        except MhaConvertError:
            continue  # refused; anything else fails here
        for items in alike(plans.plans):
            text = "\n".join(explanation(items, f"'{path.name}'"))
            for rule in items[0].rules:
                assert rule.target in text, path
            explained += 1
    assert explained >= 20


def test_gates_windows_and_shared_heads_are_in_the_formula():
    for name, words in (
        ("gate", "gate = sigmoid(query · Wg + bg)"),
        ("gate", "weights · v × gate"),
        ("sliding", "sliding_window = 2 positions away"),
        ("gqa", "2 query heads in a row share one of the 2 heads of k and v"),
    ):
        (item,) = explain_file(GOLDEN / "keras-3.15.1" / f"{name}.keras", layout="linear").plans
        assert words in "\n".join(explanation([item], "'x.keras'")), name
    (item,) = explain_file(GOLDEN / "keras-3.15.1" / "square.keras", layout="linear").plans
    assert not re.search("gate|window|share", "\n".join(explanation([item], "'x.keras'")))
