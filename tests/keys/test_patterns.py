"""Patterns with stars always terminate, and mean what they meant as regular expressions (issue 12, point 12)."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mha_convert
from mha_convert.keys.patterns import compiled
from mha_convert.keys.renaming import STARS as IN_KEYS
from mha_convert.keys.renaming import Rename
from mha_convert.layers import described_kernels as hand_written_rows
from mha_convert.layers.descriptions import read_attention

OLD_KEYS = {"*": "([^.]+)", "**": "(.+)"}
OLD_PATHS = {"**/": "((?:.*/)?)", "**": "(.*)", "*": "([^/]*)"}
BOMB = "**a" * 28 + "z"
TEXT = "a" * 60
SECONDS = 5  # a bomb as a regular expression takes years; this takes a millisecond


def expression(pattern, stars, split):
    """What patterns were before: regular expressions."""
    return re.compile("".join(stars.get(part, re.escape(part)) for part in re.split(split, pattern)), re.DOTALL)


@given(st.text("ab.*/", max_size=8), st.text("ab./\n", max_size=10))
def test_patterns_for_keys_match_and_take_what_the_regular_expression_did(pattern, key):
    old = expression(pattern, OLD_KEYS, r"(\*\*?)").fullmatch(key)
    assert compiled(pattern, IN_KEYS).match(key) == (old and old.groups())


@given(st.text("ab./*", max_size=8), st.text("ab./\n", max_size=10))
def test_patterns_for_paths_match_what_the_regular_expression_did(pattern, name):
    old = expression(pattern, OLD_PATHS, r"(\*\*/|\*\*|\*)").fullmatch(name)
    new = compiled(pattern, hand_written_rows.STARS)
    assert new.fits(name) == (old is not None)
    assert new.match(name) == (old and old.groups())


@pytest.mark.parametrize("pattern", ["**a*b.c", "*.*", "a", "", "**", "é**√"])
def test_other_letters_and_nothing_at_all(pattern):
    for key in ("", "a", "éa√", "a.b", "xxab.c"):
        old = expression(pattern, OLD_KEYS, r"(\*\*?)").fullmatch(key)
        assert compiled(pattern, IN_KEYS).match(key) == (old and old.groups())


@pytest.mark.parametrize("pattern", [BOMB, "*a" * 28 + "z", "**/" * 28 + "z", "*" * 5000, "**a*" * 2000 + "z"])
@pytest.mark.parametrize("text", [TEXT, "a/" * 30, "a" * 20_000])
def test_no_pattern_takes_long(pattern, text):
    began = time.monotonic()
    Rename(pattern, "x").apply(text)
    compiled(pattern, hand_written_rows.STARS).fits(text)
    assert time.monotonic() - began < SECONDS


@pytest.mark.process
def test_bombs_in_rules_and_rows_are_refused_at_once(samples, tmp_path):
    """Also where a settings file beside a stranger's models holds them."""
    began = time.monotonic()
    source = samples / "encoder.weights.h5"
    with pytest.raises(mha_convert.LayoutError, match="matches none of the target's 20 keys"):
        mha_convert.convert_file(source, tmp_path / "x.pt", renames={BOMB: "x"}, prefix=f"{'a' * 60}.{{name}}")
    rows = read_attention({"path": BOMB, "num_heads": 2, "query": "q", "key": "k", "value": "v", "output": "o"})
    with pytest.raises(mha_convert.LayerError, match="matches none of the"):
        mha_convert.survey(mha_convert.read(source), rows)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "encoder.weights.h5").write_bytes(source.read_bytes())
    (tmp_path / "m" / "mha-convert.toml").write_text(f'prefix = "{TEXT}.{{name}}"\n[rename]\n"{BOMB}" = "x"\n')
    (report,) = mha_convert.convert_many([tmp_path / "m"], tmp_path / "out", timeout=120)
    assert report.outcome == "refused" and "matches none of" in report.error["message"]
    assert time.monotonic() - began < 60
