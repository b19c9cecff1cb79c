"""Every file that Keras 2 wrote into the corpus, as a whole model: converted, proven and compared, or refused as listed."""

import pytest
from environment import SHARED, require
from whole_corpus import by_tag, outcome

CORPUS = SHARED / "corpus" / "files"
CONVERTED = {
    "keras-2.10": 30,
    "keras-2.12": 60,
    "keras-2.14": 27,
    "keras-2.15": 77,
    "keras-2.4": 13,
    "keras-2.8": 7,
    "tf_keras-2.21": 54,
}


@pytest.fixture(scope="module")
def files():
    """Of each Keras."""
    require(CORPUS.is_dir(), "../shared/corpus")
    return {tag: found for tag, found in by_tag(CORPUS).items() if not tag.startswith("keras-3")}


def test_no_keras_is_left_out(files):
    assert files.keys() == CONVERTED.keys()


@pytest.mark.parametrize("tag", CONVERTED)
def test_every_file_is_converted_and_equal_or_refused_as_listed(tag, files, tmp_path):
    outcomes = [outcome(file, tmp_path / str(number)) for number, file in enumerate(files[tag])]
    assert [found.problem for found in outcomes if found.problem] == []
    assert sum(not found.refusal for found in outcomes) == CONVERTED[tag]
