"""Files of ``torch.save`` as people have them, and as a stranger makes them (issue 12, points 11 and 13)."""

import argparse
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from command_line import run
from torch import nn

import mha_convert
from mha_convert.targets import open_model
from mha_convert.targets.pickled import MOST_STEPS

STOCK = {"embed_dim": 16, "num_heads": 2}


def decoder():
    """A model with the attention of translator.h5."""
    own, cross = nn.MultiheadAttention(16, 2), nn.MultiheadAttention(16, 2, kdim=12, vdim=12)
    return nn.ModuleDict({"own": own, "cross": cross, "norm": nn.LayerNorm(16)})


def prefixed(prefix):
    """Its state_dict as a wrapper of the model saves it."""
    return {f"{prefix}{key}": tensor for key, tensor in decoder().state_dict().items()}


def trained():
    """What a trainer keeps beside the model: also things that weights_only does not load."""
    model = decoder()
    optimizer = torch.optim.Adam(model.parameters())
    model["norm"](torch.randn(2, 16)).sum().backward()
    optimizer.step()
    return {
        "epoch": 3,
        "optimizer": optimizer.state_dict(),
        "args": argparse.Namespace(lr=0.1),
        "loss": np.float64(0.5),
        "history": np.ones(3),
        "seen": {1, 2},
    }


CHECKPOINTS = {
    "plain": lambda: decoder().state_dict(),
    "dict": lambda: dict(decoder().state_dict()),
    "parameters": lambda: dict(decoder().named_parameters()),
    "state_dict": lambda: trained() | {"state_dict": decoder().state_dict()},
    "model": lambda: trained() | {"model": decoder().state_dict()},
    "model_state_dict": lambda: trained() | {"model_state_dict": decoder().state_dict()},
    "module": lambda: trained() | {"module": decoder().state_dict()},
    "with an average": lambda: {"model": decoder().state_dict(), "model_ema": decoder().state_dict()},
    "DataParallel": lambda: prefixed("module."),
    "compiled": lambda: prefixed("_orig_mod."),
    "both": lambda: prefixed("module._orig_mod."),
    "all": lambda: trained() | {"state_dict": prefixed("_orig_mod.module.")},
    "extra state": lambda: decoder().state_dict() | {"own._extra_state": {"scale": 3}},
    "odd beside": lambda: (
        decoder().state_dict() | {"freqs": torch.ones(2, dtype=torch.complex64), "n": torch.tensor(3)}
    ),
    "without numbers": lambda: decoder().state_dict() | {"position_ids": torch.arange(9).expand(4, 9)},
}


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "before 1.6"])
@pytest.mark.parametrize("form", CHECKPOINTS)
def test_checkpoints_are_taken_as_people_have_them(samples, tmp_path, form, legacy):
    """Point 13 of issue 12: entries of trainers and prefixes of wrappers are looked behind, and it is said."""
    path, target = tmp_path / "model.pth", tmp_path / "x.safetensors"
    torch.save(CHECKPOINTS[form](), path, _use_new_zipfile_serialization=not legacy)
    report = mha_convert.convert_file(samples / "translator.h5", target, like=path)
    assert report.proven
    names = {"own.in_proj_weight", "cross.q_proj_weight", "cross.k_proj_weight", "cross.v_proj_weight"}
    assert names < mha_convert.open_target(target).shapes.keys()
    notes = [note for note in report.notes if note.startswith(f"{path}: ")]
    said = sum("is the entry" in note for note in notes), sum("is left out of the names" in note for note in notes)
    in_entry = form in ("state_dict", "model", "model_state_dict", "module", "with an average", "all")
    assert said == (in_entry, {"DataParallel": 1, "compiled": 1, "both": 2, "all": 2}.get(form, 0))
    left = decoder().load_state_dict(torch_state(target), strict=False)
    assert not left.unexpected_keys and left.missing_keys == ["norm.weight", "norm.bias"]


def torch_state(target):
    stored = mha_convert.open_target(target)
    return {key: stored.read(key) for key in stored.shapes}


def test_shapes_are_those_that_torch_reads(tmp_path):
    """Point 11 of issue 12: what is described without PyTorch is what PyTorch loads, shared and cut tensors included."""
    whole = torch.randn(6, 4)
    state = {
        "whole": whole,
        "turned": whole.T,
        "cut": whole[1:4, ::2],
        "empty": torch.zeros(0, 3),
        "one": torch.tensor(1.5),
        **{str(dtype): torch.ones(3, 2).to(dtype) for dtype in (torch.half, torch.bfloat16, torch.float64, torch.int8)},
    }
    for legacy in (False, True):
        torch.save(state, tmp_path / "x.pt", _use_new_zipfile_serialization=not legacy)
        loaded = torch.load(tmp_path / "x.pt", weights_only=True)
        for stored in (mha_convert.open_target(tmp_path / "x.pt"), open_model(tmp_path / "x.pt")):
            assert stored.shapes == {key: tuple(tensor.shape) for key, tensor in loaded.items()}
            assert stored.dtypes == {key: str(tensor.dtype).removeprefix("torch.") for key, tensor in loaded.items()}
        stored = mha_convert.open_target(tmp_path / "x.pt")
        assert all(torch.equal(stored.read(key), tensor) for key, tensor in loaded.items())


def saved(thing, **options):
    """The bytes of a file of torch.save."""
    file = io.BytesIO()
    torch.save(thing, file, **options)
    return file.getvalue()


def keras_zip():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", b"")
    return file.getvalue()


SAVE = "Save your PyTorch model with torch.save(model.state_dict(), 'model.pt') and pass that."
WRONG = {
    "a whole model": (
        lambda: saved(decoder()),
        "holds a whole pickled model, torch.nn.modules.container.ModuleDict, wh",
    ),
    "a model in it": (
        lambda: saved({"model": decoder()}),
        "holds a whole pickled model as 'model', torch.nn.modules.con",
    ),
    "a list": (lambda: saved([1, 2]), "holds a list, expected a state_dict"),
    "one tensor": (lambda: saved(torch.ones(3)), "holds one tensor, expected a state_dict"),
    "settings": (
        lambda: saved({"lr": 1, "epoch": 2}),
        "holds a dict of 'lr', 'epoch', expected a state_dict: tensors un",
    ),
    "integer keys": (lambda: saved({0: torch.ones(3)}), "holds a dict of '0', expected a state_dict"),
    "Keras": (keras_zip, "is a saved Keras model, and --like (like=) takes a PyTorch model"),
    "HDF5": (lambda: b"\x89HDF\r\n\x1a\n" + bytes(100), "is a saved Keras model, and --like (like=) takes a PyTorch m"),
    "nothing": (lambda: b"", "is empty"),
    "text": (lambda: b"in_proj_weight", "is not a state_dict (.safetensors, .pt)"),
    "JSON": (lambda: b'{"a": 1}', "is JSON text, without tensors"),
    "LFS": (lambda: b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer, not the file itself"),
    "web": (lambda: b"<!DOCTYPE html>", "is a web page or XML text"),
    "damaged safetensors": (lambda: bytes([9, 0, 0, 0, 0, 0, 0, 0]) + b"{{{", "is not an intact safetensors file"),
    "one byte": (lambda: b"\x80", "cannot be read as a file of torch.save: it is damaged"),
    "another pickle": (
        lambda: pickle.dumps([1]) * 2,
        "cannot be read as a file of torch.save: it is a pickle of something else than torch.save",
    ),
}


@pytest.mark.process
@pytest.mark.parametrize("form", WRONG)
def test_other_files_are_called_what_they_are(samples, tmp_path, form):
    """Point 13 of issue 12: never "Convert again", of which nothing gets better."""
    make, words = WRONG[form]
    (tmp_path / "model.pt").write_bytes(make())
    for command in (
        ("match", samples / "textbook.keras", "model.pt"),
        ("convert", samples / "textbook.keras", "x.pt", "--like", "model.pt"),
    ):
        error = run(*command, cwd=tmp_path, code=1).stderr
        assert error.startswith(f"error: model.pt: {words}") and error.count("\n") == 1, error
        assert error.endswith(f"{SAVE}\n") and "onvert again" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_the_one_that_is_meant_is_asked_for(tmp_path):
    """Point 13 of issue 12: two models in one file, or one under a name of its own."""
    torch.save({"net": {"a": torch.ones(3)}, "epoch": 1}, tmp_path / "x.pt")
    with pytest.raises(mha_convert.ReadError) as caught:
        open_model(tmp_path / "x.pt")
    assert str(caught.value) == (
        f"{tmp_path}/x.pt holds 1 state_dict, 'net', and not one that is sure. Save the one that you mean, "
        "torch.save(torch.load(path, weights_only=True)['net'], 'model.pt'), and pass that."
    )
    torch.save({"model": {"a": torch.ones(3)}, "state_dict": {"b": torch.ones(3)}}, tmp_path / "x.pt")
    with pytest.raises(
        mha_convert.ReadError, match="holds 2 state_dicts, 'model', 'state_dict', and not one that is su"
    ):
        open_model(tmp_path / "x.pt")
    for place, words in ((tmp_path, "is a folder"), (tmp_path / "none.pt", "there is no such file")):
        with pytest.raises(mha_convert.ReadError, match=words):
            open_model(place)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_not_waited_for(tmp_path):
    """Point 11 of issue 12."""
    os.mkfifo(tmp_path / "x.pt")
    for opener in (open_model, mha_convert.open_target):
        with pytest.raises(mha_convert.ReadError, match="is a device, pipe or socket, expected a file"):
            opener(tmp_path / "x.pt")


@pytest.mark.process
def test_where_nothing_fits_the_exit_code_says_so(samples, tmp_path):
    """Point 13 of issue 12: proposing, as text and as JSON, and converting."""
    torch.save(nn.MultiheadAttention(6, 2).state_dict(), tmp_path / "model.pt")
    command = ("match", samples / "translator.h5", "model.pt")
    proposal = run(*command, cwd=tmp_path, code=1, shown=True)
    assert "Without a place: layer 'self_attention'" in proposal.stdout
    assert proposal.stderr.startswith("error: model.pt does not take every layer: layer 'self_attention': no attention")
    document = json.loads(run(*command, "--json", cwd=tmp_path, code=1, shown=True).stdout)
    assert document["pairs"] == [] and document["notes"] == [] and len(document["layers_left"]) == 2
    convert = ("convert", samples / "translator.h5", "x.pt", "--like", "model.pt")
    assert run(*convert, cwd=tmp_path, code=1).stderr == proposal.stderr
    torch.save({"model": nn.MultiheadAttention(16, 2).state_dict()}, tmp_path / "model.pt")
    text = run(*command, cwd=tmp_path).stdout  # one of two
    assert "Note: model.pt: its state_dict is the entry 'model' of the file." in text


# Tensors that are no plain numbers in a file, by what they are called.
ODD = {
    "sparse": lambda tensor: tensor.to_sparse(),
    "on the meta device": lambda tensor: tensor.to("meta"),
    "a negated or conjugated view": torch._neg_view,
    "quantized": lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
    "a view that repeats its numbers": lambda tensor: torch.ones(1).expand(tensor.shape),
    "complex64": lambda tensor: tensor.to(torch.complex64),
    "int32": lambda tensor: tensor.int(),
    "float8_e4m3fn": lambda tensor: tensor.to(torch.float8_e4m3fn),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD)
def test_odd_tensors_are_neither_aligned_nor_loaded(samples, tmp_path, kind):
    """Point 11 of issue 12: in a target, and in the attention of a model of the user's."""
    source, path = samples / "translator.h5", tmp_path / "x.pt"
    state = decoder().state_dict()
    state["own.in_proj_weight"] = ODD[kind](state["own.in_proj_weight"])
    torch.save(state, path)
    with pytest.raises(
        mha_convert.ReadError, match=f"x.pt: 'own.in_proj_weight' in its attention is {kind}.*, expected"
    ):
        mha_convert.match_file(source, path)
    mha_convert.convert_file(source, path, overwrite=True)
    state = torch.load(path, weights_only=True)
    key = next(key for key in state if state[key].dim() == 2)
    state[key] = ODD[kind](state[key])
    torch.save(state, path)
    with pytest.raises(mha_convert.ReadError, match=kind) as caught:
        mha_convert.load_modules(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(mha_convert.MhaConvertError, match=kind):
        mha_convert.verify_file(source, path)


def with_metadata(value):
    """A state_dict with something else where PyTorch keeps its versions."""
    state = decoder().state_dict()
    state._metadata = value
    return saved(state)


class Global:
    """Calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def zipped(pickled, compression=zipfile.ZIP_STORED, **members):
    """A zip as torch.save makes them."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("x/data.pkl", pickled)
        for name, content in members.items():
            archive.writestr(f"x/data/{name}", content)
    return file.getvalue()


def one_tensor(count, shape, stride):
    """The pickle of ``{"a": tensor}`` whose storage declares ``count`` numbers."""
    file = io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing):
            return ("storage", torch.FloatStorage, "0", "cpu", count) if thing is STORAGE else None

    arguments = (STORAGE, 0, shape, stride, False, {})
    Pickler(file, 2).dump({"a": Global(torch._utils._rebuild_tensor_v2, *arguments)})
    return file.getvalue()


def text(size):
    """The opcode for a text."""
    return b"X" + struct.pack("<I", size) + b"a" * size


STORAGE = object()
MANY = MOST_STEPS + 1
HOSTILE = {
    "one byte": lambda: b"\x80",
    "two bytes": lambda: b"\x80\x02",
    "an opcode that is none": lambda: b"\x80\x02\xff.",
    "a stack that is empty": lambda: zipped(b"\x80\x02."),
    "metadata that is a list": lambda: with_metadata([1]),
    "integer keys": lambda: saved({0: torch.ones(3)}),
    "a list": lambda: saved([torch.ones(3)]),
    "objects": lambda: saved({"a": argparse.Namespace(x=1)}),
    "a storage that is not there": lambda: zipped(one_tensor(4, (2, 2), (2, 1))),
    "a storage of other size": lambda: zipped(
        one_tensor(1 << 40, (1 << 20, 1 << 20), (1 << 20, 1)), **{"0": bytes(16)}
    ),
    "a view beyond its storage": lambda: zipped(one_tensor(4, (2, 3), (3, 1)), **{"0": bytes(16)}),
    "a negative stride": lambda: zipped(one_tensor(4, (2, 2), (-2, 1)), **{"0": bytes(16)}),
    "axes without end": lambda: zipped(one_tensor(4, (1,) * 100, (1,) * 100), **{"0": bytes(16)}),
    "an enormous view": lambda: zipped(one_tensor(4, (1 << 30, 1 << 30), (0, 0)), **{"0": bytes(16)}),
    "a bomb of zeros": lambda: zipped(one_tensor(25_000_000, (5000, 5000), (5000, 1)), 8, **{"0": bytes(100_000_000)}),
    "an allocation": lambda: zipped(pickle.dumps({"a": Global(bytearray, 1 << 36)}, 2)),
    "a tensor of any size": lambda: zipped(pickle.dumps({"a": Global(torch.Tensor, 1 << 18, 1 << 18)}, 2)),
    "text that is not there": lambda: zipped(b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"a."),
    "a memo of any size": lambda: zipped(b"\x80\x02Nr\xff\xff\xff\x7f."),
    "dicts": lambda: zipped(b"\x80\x02" + b"}" * MANY),
    "tuples in tuples": lambda: zipped(b"\x80\x02)" + b"\x85" * MANY),
    "a key that doubles": lambda: zipped(b"\x80\x02}Nq\x00" + b"0h\x00h\x00\x86q\x00" * 100 + b"Ns."),
    "a shape of text, many times": lambda: zipped(
        b"\x80\x02" + text(4_000_000) + b"q\x000ctorch\nSize\nq\x010]q\x02(" + b"h\x01h\x00R" * 60 + b"e."
    ),
    "a dict of one list, many times": lambda: zipped(
        b"\x80\x02]("
        + b"".join(text(6) + b"K\x01\x86" for _ in range(100_000))
        + b"eq\x000ccollections\nOrderedDict\nq\x010]q\x02(h\x01"
        + b"h\x00\x85Rh\x01" * 200
        + b"e."
    ),
    "a dict of one tuple, many times": lambda: zipped(
        b"\x80\x02("
        + b"".join(b"X\x06\0\0\0%06dK\x01\x86" % number for number in range(100_000))
        + b"t\x85q\x000ccollections\nOrderedDict\nq\x010]q\x02("
        + b"h\x01h\x00R" * 60
        + b"e."
    ),
    "a name of text, many times": lambda: zipped(
        b"\x80\x04" + text(4_000_000) + b"q\x000]q\x02(" + b"h\x00h\x00\x93" * 60 + b"e."
    ),
    "digits": lambda: zipped(b"I" + b"9" * 1_000_000 + b"\n."),
    "an old file's storage": lambda: saved({"a": torch.ones(1000)}, _use_new_zipfile_serialization=False)[:-3000],
}
CHILD = """
import resource, sys
import torch, mha_convert
from mha_convert.targets import open_model
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    began = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    for attempt in (mha_convert.load_modules, open_model):
        try:
            attempt(path)
        except mha_convert.ReadError as error:
            assert "\\n" not in str(error) and len(str(error)) < 1000, (path, str(error)[:3000])
        else:
            assert attempt is open_model and path.endswith(("list.pt", "view.pt")), (path, attempt)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    spent = resource.getrusage(resource.RUSAGE_SELF).ru_utime - began
    print(grown, spent, path, sep="|", flush=True)
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="measures as Linux does")
def test_hostile_files_are_refused_in_one_line_and_cost_little(tmp_path):
    """Point 11 of issue 12: no traceback, no gigabytes, no wait; whatever the pickle calls is not called."""
    paths = []
    for name, make in HOSTILE.items():
        paths.append(tmp_path / f"{name.replace(' ', '_')}.pt")
        paths[-1].write_bytes(make())
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *paths], capture_output=True, text=True, timeout=300, check=False
    )
    rows = [line.split("|") for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len(rows) == len(paths), (rows[-1:], done.stderr[-3000:])
    assert max(float(grown) for grown, _, _ in rows) < 300, rows
    assert max(float(spent) for _, spent, _ in rows) < 20, rows  # two attempts each, on a busy machine


def test_nothing_of_a_checkpoint_is_run(tmp_path):
    """Point 11 of issue 12: beside a state_dict may lie what runs when it is unpickled."""
    mark = tmp_path / "ran"
    torch.save({"state_dict": decoder().state_dict(), "hook": Global(os.mkdir, str(mark))}, tmp_path / "x.pt")
    assert "own.in_proj_weight" in open_model(tmp_path / "x.pt").shapes and not mark.exists()


def test_no_number_of_a_users_model_is_read(tmp_path, monkeypatch):
    """Point 11 of issue 12: only names, shapes and dtypes are."""
    torch.save(decoder().state_dict(), tmp_path / "x.pt")
    monkeypatch.setattr(torch, "load", None)
    assert open_model(tmp_path / "x.pt").shapes["own.in_proj_weight"] == (48, 16)


def test_what_torch_reads_is_what_was_described(tmp_path, monkeypatch):
    """Point 11 of issue 12: a file that two readers of zips understand in two ways."""
    torch.save({"a": torch.ones(3)}, tmp_path / "x.pt")
    monkeypatch.setattr(torch, "load", lambda *a, **b: {"a": torch.ones(4)})
    with pytest.raises(mha_convert.ReadError, match="torch.load reads other tensors than the file describes"):
        mha_convert.open_target(tmp_path / "x.pt").read("a")
