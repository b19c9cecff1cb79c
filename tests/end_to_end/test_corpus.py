"""Files written by genuine Keras versions: every layer is found in place, converted and equal to Keras' outputs."""

import numpy as np
import pytest
import torch
from corpus_files import LINEAR_ONLY, MORE, OURS, QUANTIZED, READ, CorpusFile, arrays, rows
from environment import SHARED, TESTS

import mha_convert
from mha_convert.layers import survey
from mha_convert.records.layer import AttentionLayer

GOLDEN = [file for file in rows(TESTS / "golden") if file.format in READ and not file.is_unprojected]
CORPUS_ROOT = SHARED / "corpus" / "files"
EVERY_FILE = [file for file in rows(CORPUS_ROOT) if file.format in READ] if CORPUS_ROOT.is_dir() else []
CORPUS = [file for file in EVERY_FILE if not file.is_unprojected]


def every(*marks: pytest.MarkDecorator):
    """The golden files, and those of the corpus with ``marks``."""
    golden = [pytest.param(file, id=f"golden/{file.id}") for file in GOLDEN]
    return golden + [pytest.param(file, id=file.id, marks=marks) for file in CORPUS]


def test_the_corpus_is_there(corpus):
    assert len(CORPUS) > 600


@pytest.mark.parametrize("file", every())
def test_every_layer_is_found_at_its_place_and_no_other(file: CorpusFile):
    layers = [layer for layer in survey(mha_convert.read(file.path)).layers if isinstance(layer, AttentionLayer)]
    expected = [layer for layer in file.layers if layer["cls"] in OURS and is_stored(layer)]
    if file.model in MORE:
        assert [MORE[file.model] in layer.beyond for layer in layers] == [True]
        return
    for layer in layers:
        assert any(is_at_place(layer, wanted) for wanted in expected), layer
    assert len(layers) == len(expected)
    assert len({layer.name for layer in layers}) == len(expected)


def is_stored(layer: dict) -> bool:
    """Whether the file holds the layer: lists of lists were not saved; of LoRA only the biases are as in memory."""
    return bool(layer["paths"].get("query/kernel") or layer["paths"].get("query/bias"))


def is_at_place(layer, wanted: dict) -> bool:
    """Whether all found arrays are the ones that Keras wrote for this layer, each in its role."""
    return all(
        not wanted["paths"].get(f"{role}/{kind}")
        or variable.path.replace("\\", "/") in wanted["paths"][f"{role}/{kind}"]
        for role, projection in layer.projections.items()
        for kind, variable in (("kernel", projection.kernel), ("bias", projection.bias))
        if variable is not None
    )


@pytest.mark.parametrize("file", every(pytest.mark.slow))
@pytest.mark.parametrize("layout", ["mha", "linear"])
def test_layers_reproduce_genuine_keras(file: CorpusFile, layout: str, tmp_path):
    target = tmp_path / "target.safetensors"
    if file.refused_by(layout):
        with pytest.raises(mha_convert.MhaConvertError, match=file.refused_by(layout)):
            mha_convert.convert_file(file.path, target, layout=layout)
        assert not list(tmp_path.iterdir())
        return
    found = mha_convert.find_layers(mha_convert.read(file.path))
    assumed = [layer.name for layer in found if layer.doubt]
    assert bool(assumed) == (file.model.startswith("lora") and file.format in ("h5", "tfckpt"))  # alpha is not in them
    names = [layer.name for layer in found] if assumed else None
    report = mha_convert.convert_file(file.path, target, layout=layout, layers=names)
    assert report.proven
    if file.model in MORE:
        assert any(MORE[file.model] in item.layer.beyond for item in report.plan.layers)
        return
    modules = mha_convert.load_modules(target)
    for item in report.plan.layers:
        if not isinstance(item.layer, AttentionLayer):
            continue  # test_unprojected
        candidates = [layer for layer in file.layers if layer["cls"] in OURS and is_stored(layer)]
        facts = next(layer for layer in candidates if is_at_place(item.layer, layer))
        check_outputs(
            modules[item.layer.name], arrays(file, facts["index"]), file.tolerance(facts["compute_dtype"]), item
        )


def check_outputs(module, golden, tolerance, item):
    """Plain, causal and masked calls, outputs and scores, against Keras' own."""
    module = module.double()
    query, key, value = (torch.from_numpy(golden[name]).double() for name in ("query", "key", "value"))
    calls = {"plain": None}
    if "causal_out" in golden:
        calls["causal"] = mha_convert.to_attn_mask(
            causal=True,
            num_heads=item.layer.num_heads,
            query_length=query.shape[1],
            key_length=key.shape[1],
            dtype=torch.float64,
        )
    if "mask" in golden:
        calls["masked"] = mha_convert.to_attn_mask(
            torch.from_numpy(golden["mask"]), num_heads=item.layer.num_heads, dtype=torch.float64
        )
    compared = 0
    for name, mask in calls.items():
        with torch.no_grad():
            output, scores = module(query, key, value, attn_mask=mask, average_attn_weights=False)
        # Rows that have no key left depend on the version (FORMATS 5.2); the corpus masks some as a whole.
        rows = ... if name != "masked" else rows_with_keys(golden["mask"].astype(bool), item.layer.sliding_window)
        for result, wanted in (
            (output, f"{name}_out"),
            (output, f"{name}_out_s"),
            (scores, f"{name}_scores"),
        ):
            if wanted in golden:
                theirs = golden[wanted]
                if wanted.endswith("scores") and query.ndim == 3:
                    result, theirs = result.transpose(1, 2), theirs.swapaxes(1, 2)
                np.testing.assert_allclose(result.numpy()[rows], theirs[rows], rtol=0, atol=tolerance, err_msg=wanted)
                compared += 1
    assert compared


def rows_with_keys(mask: np.ndarray, window: int | None) -> np.ndarray:
    """Queries that mask and window leave a key."""
    distance = np.abs(np.arange(mask.shape[1])[:, None] - np.arange(mask.shape[2]))
    return (mask & (distance < (window or mask.size))).any(-1)


def by_model(files):
    """Files of one model, whatever wrote them."""
    models: dict[str, list[CorpusFile]] = {}
    for file in files:
        models.setdefault(file.model, []).append(file)
    return models


@pytest.mark.parametrize("model", sorted(by_model(CORPUS)))
def test_one_model_gives_the_same_tensors_from_every_version_and_format(model: str):
    """Names may differ where the file does not know them; the numbers may not."""
    seen = {}
    for file in by_model(CORPUS)[model]:
        if file.refusal or file.model in ("grid_in_layer", "classifier_adam"):
            continue  # partly lost; trained anew by each version
        tensors = tensors_of(file)
        # Each version quantizes and merges by its own arithmetic; its files agree.
        first = seen.setdefault(file.tag if model in QUANTIZED else "all", (file.id, tensors))
        if "lora" in model:
            check_merged(file, tensors, first)
        else:
            assert all(map(np.array_equal, tensors, first[1])), f"{file.id} and {first[0]}"


def tensors_of(file: CorpusFile) -> list[np.ndarray]:
    """All tensors of a file, whatever its layers are called."""
    layout = "linear" if file.model in LINEAR_ONLY else "mha"
    plan = mha_convert.plan(mha_convert.find_layers(mha_convert.read(file.path)), layout=layout)
    arrays = [tensor.read().astype("float64") for tensor in mha_convert.convert(plan)]
    return sorted(arrays, key=lambda array: (array.shape, array.tobytes()))


def check_merged(file: CorpusFile, tensors, first):
    """Keras merged one of the two files, and of int8 quantized it again; jax adds in another order than we do."""
    allowed = 0.02 if file.model == "lora_int8" else 2**-24 if file.tag.endswith("jax") else 0.0
    for ours, theirs in zip(tensors, first[1], strict=True):
        assert np.abs(ours - theirs).max() <= allowed, f"{file.id} and {first[0]}"


@pytest.mark.parametrize("model", sorted(by_model(CORPUS)))
def test_names_are_the_same_in_every_version_that_stores_a_configuration(model: str):
    names = {}
    for file in by_model(CORPUS)[model]:
        is_named = file.format in ("keras", "ext_keras", "h5", "dir") and not file.subclass
        if is_named and model not in ("block", "grid_in_layer", "hub_encoder", "lora"):
            found = tuple(sorted(layer.name for layer in mha_convert.find_layers(mha_convert.read(file.path))))
            names.setdefault(found, []).append(file.id)
    assert len(names) <= 1, names
