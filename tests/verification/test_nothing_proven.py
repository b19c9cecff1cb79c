"""Nothing is *proven* if no layer is named: an empty list is refused everywhere (issue 12, point 12)."""

import json

import pytest
from safetensors.torch import save_file

import mha_convert

MESSAGE = "The list of layers is empty, expected at least one name. Name one, or leave --layer (layers=) out for all."


@pytest.mark.parametrize("names", [[], ()])
def test_an_empty_list_of_layers_is_refused(samples, tmp_path, names):
    source = samples / "encoder.weights.h5"
    for verb in (mha_convert.convert_file, mha_convert.match_file):
        with pytest.raises(mha_convert.LayerError) as error:
            verb(source, tmp_path / "x.safetensors", layers=names)
        assert str(error.value) == MESSAGE
    assert not list(tmp_path.iterdir())


@pytest.mark.process
def test_a_batch_refuses_it_from_python_and_from_settings(samples, tmp_path):
    source = tmp_path / "encoder.weights.h5"
    source.write_bytes((samples / "encoder.weights.h5").read_bytes())
    (report,) = mha_convert.convert_many([source], tmp_path / "out", layers=[])
    assert (report.outcome, report.proven, report.error["message"]) == ("refused", False, MESSAGE)
    (tmp_path / "mha-convert.toml").write_text("layer = []\n")
    with pytest.raises(mha_convert.ReadError, match="'layer' is an empty list, expected at least one entry"):
        mha_convert.convert_many([source], tmp_path / "other")


def test_plans_and_targets_without_layers_are_not_proven(samples, tmp_path):
    source, target = samples / "encoder.weights.h5", tmp_path / "x.safetensors"
    report = mha_convert.convert_file(source, target)
    text = json.loads(mha_convert.open_target(target).description)
    save_file({}, target, {"mha_convert": json.dumps({**text, "layers": []})})
    with pytest.raises(mha_convert.VerificationError, match="describes no layer, so there is nothing to prove"):
        mha_convert.verify_file(source, target)
    with pytest.raises(mha_convert.VerificationError, match="there is no layer to prove"):
        mha_convert.verify(mha_convert.plan([]), mha_convert.open_target(target))
    empty = mha_convert.Conversion(
        source=report.source, target="x", plan=mha_convert.plan([]), reference="numpy", ledgers={}
    )
    assert report.proven and not empty.proven
