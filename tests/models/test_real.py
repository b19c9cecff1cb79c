"""Every public model as a whole: converted and proven, or refused with a listed reason."""

import shutil
import zipfile

import h5py
import pytest
from environment import SHARED, TESTS, require
from whole_models import proven

from mha_convert import MhaConvertError, VerificationError, convert_model

REAL = SHARED / "real"
ARCHIVE = "odd-zip-in-zip/ws-gru-mesa.zip"
# How many layers have weights.
CONVERTED = {
    "fiit-remote/transformer.keras": 22,
    "juangtz/transformer_classifier.keras": 23,
    "neg-fiit/lstm2_retrained.keras": 4,
    "neg-fiit/lstm_cnn_skip.keras": 7,
    "neg-savedmodel-lstm/models/lstm_model": 5,
}
NO_CONFIGURATION = "has no configuration, so its graph is unknown"
OWN = "the file holds the name of a class of somebody's own"
REFUSED = {
    "ckpt-index-only/transformer.index": "without its data",
    "db-atcnet/subject-9.h5": NO_CONFIGURATION,
    "dm3loc/weights_fold_0.h5": rf"Lambda .* and 2 more\); Attention_mask .*{OWN}",
    "eeg-atcnet/subject-1.h5": NO_CONFIGURATION,
    "eeg-atcnet/subject-9.h5": NO_CONFIGURATION,
    "gspc-savedmodel/models/transformer_model": rf"PositionalEncoding .*TransformerBlock .*{OWN}",
    "neg-basic-pitch/nmp": "FlattenAudioCh .*Conv2D ",
    "neg-deepcut/cnn_without_ne_ab.h5": NO_CONFIGURATION,
    "neg-spatial-transformer/models/transformer_model": rf"SpatialTransformer .*{OWN}",
    "nnt-h5/transformer_model.h5": rf"TransformerBlock .*{OWN}",
    ARCHIVE: "holds the .keras file 'classifier.keras'",
    "settyl/transformer_weights.h5": NO_CONFIGURATION,
    "video-qoe/gru_basic.h5": rf"SelfAttention .*{OWN}",
    "video-qoe/transformer_basic.h5": rf"TransformerBlock .*{OWN}",
    "video-qoe/transformer_large_ff.h5": rf"TransformerBlock .*{OWN}",
    "video-qoe/transformer_low_dropout.h5": rf"TransformerBlock .*{OWN}",
    "video-qoe/transformer_more_heads.h5": rf"TransformerBlock .*{OWN}",
    "video-qoe/transformer_with_stats.h5": rf"TransformerBlock .*{OWN}",
    "vol-attn/lstm_attention_model.keras": rf"AttentionLayer .*{OWN}",
}


@pytest.fixture(scope="module")
def real():
    require(REAL.is_dir(), "../shared/real")
    return REAL


@pytest.fixture
def classifier(real, tmp_path):
    """The model in the archive."""
    with zipfile.ZipFile(real / ARCHIVE) as archive:
        archive.extract("classifier.keras", tmp_path)
    return tmp_path / "classifier.keras"


def test_every_file_is_listed(real):
    folders = {path.parent for path in real.rglob("saved_model.pb")}
    files = {path for path in real.rglob("*") if path.suffix in (".keras", ".h5", ".zip", ".index")}
    models = folders | {path for path in files if path.parent.parent not in folders}
    assert {path.relative_to(real).as_posix() for path in models} == {*CONVERTED, *REFUSED}


@pytest.mark.parametrize("name", CONVERTED)
def test_it_is_converted_and_proven(name, real, tmp_path):
    assert len(proven(real / name, tmp_path).weights.layers) == CONVERTED[name]


def test_the_model_in_an_archive_is_converted_and_proven(classifier, tmp_path):
    assert len(proven(classifier, tmp_path / "out").weights.layers) == 5


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name, real, tmp_path):
    with pytest.raises(MhaConvertError, match=REFUSED[name]):
        proven(real / name, tmp_path)


def without_time_major(old, new):
    """A copy without the setting that made Keras 3 refuse the file."""
    shutil.copyfile(old, new)
    with h5py.File(new, "r+") as file:
        text = file.attrs["model_config"]
        file.attrs["model_config"] = text.replace('"time_major": false, ', "").replace(', "time_major": false', "")
    return new


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "juangtz",
        "classifier",
        "lstm2",
    ],
)
def test_what_keras_loads_is_what_keras_computes(name, real, classifier, tmp_path, keras_installed):
    sources = {
        "juangtz": lambda: real / "juangtz/transformer_classifier.keras",
        "classifier": lambda: classifier,
        "lstm2": lambda: without_time_major(real / "neg-fiit/lstm2_retrained.keras", tmp_path / "lstm2.keras"),
    }
    report = convert_model(sources[name](), tmp_path / "out", reference="keras")
    assert "Keras 3" in report.reference
    found = [item for item in report.comparisons if "Keras 3" in item.reference]
    assert found and max(item.relative for item in found) < 1e-8


@pytest.mark.process
def test_keras_loads_hdf5_that_is_called_keras(tmp_path, keras_installed):
    source = shutil.copyfile(TESTS / "golden" / "keras-3.3.3" / "square.h5", tmp_path / "square.keras")
    report = convert_model(source, tmp_path / "out", reference="keras")
    assert "Keras 3" in report.reference


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("name", ["fiit-remote/transformer.keras", "neg-fiit/lstm2_retrained.keras"])
def test_what_keras_cannot_load_is_told(name, real, tmp_path, keras_installed):
    with pytest.raises(VerificationError, match="cannot run it: .* Use --reference numpy, or another Keras version"):
        convert_model(real / name, tmp_path / "out", reference="keras")
