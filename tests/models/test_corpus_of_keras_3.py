"""Every file that Keras 3 wrote into the corpus, as a whole model: converted, proven and compared, or refused as listed."""

import pytest
from environment import SHARED, require
from whole_corpus import by_tag, outcome

CORPUS = SHARED / "corpus" / "files"
CONVERTED = {
    "keras-3.0.5": 31,
    "keras-3.1.1": 9,
    "keras-3.10.0": 20,
    "keras-3.11.3-jax": 22,
    "keras-3.12.4": 52,
    "keras-3.14.1-jax": 20,
    "keras-3.15.1": 90,
    "keras-3.15.1-jax": 30,
    "keras-3.15.1-torch": 30,
    "keras-3.2.1-jax": 9,
    "keras-3.3.3": 44,
    "keras-3.5.0": 17,
    "keras-3.6.0": 48,
    "keras-3.8.0": 19,
}


@pytest.fixture(scope="module")
def files():
    """Of each Keras."""
    require(CORPUS.is_dir(), "../shared/corpus")
    return {tag: found for tag, found in by_tag(CORPUS).items() if tag.startswith("keras-3")}


def test_no_keras_is_left_out(files):
    assert files.keys() == CONVERTED.keys()


@pytest.mark.parametrize("tag", CONVERTED)
def test_every_file_is_converted_and_equal_or_refused_as_listed(tag, files, tmp_path):
    outcomes = [outcome(file, tmp_path / str(number)) for number, file in enumerate(files[tag])]
    assert [found.problem for found in outcomes if found.problem] == []
    assert sum(not found.refusal for found in outcomes) == CONVERTED[tag]
