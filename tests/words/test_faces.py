"""Issue 13, point 4: what a user gets shows itself; documents follow the schemas of the package; errors are documents."""

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files

import pytest
from command_line import run
from environment import TESTS
from jsonschema import Draft202012Validator, ValidationError

import mha_convert
from mha_convert import MhaConvertError
from mha_convert.batch.record import SourceReport
from mha_convert.batch.summary import summary_as_json, summary_of
from mha_convert.records import graph, layer, model, plan, proof, said, source
from mha_convert.records.face import Face
from mha_convert.words.documents import error_document
from mha_convert.words.faces import FACES

GOLDEN = TESTS / "golden"
FILES = sorted(path for path in GOLDEN.rglob("*.*") if path.suffix in (".keras", ".h5"))
SCHEMAS = {
    path.name.removesuffix(".json"): json.loads(path.read_text())
    for path in (files("mha_convert") / "schemas").iterdir()
}
HOSTILE = "two\nlines \x1b[31mred\u202e " + "long" * 100
RECORDS = [
    record
    for module in (graph, layer, model, plan, proof, said, source)
    for record in vars(module).values()
    if dataclasses.is_dataclass(record) and record.__module__ == module.__name__ and issubclass(record, Face)
]


def check(document: dict) -> dict:
    """The document, if it fits the schema that it names."""
    _, name, form = document["schema"].split("/")
    assert form == "1" and document["version"] == mha_convert.__version__
    Draft202012Validator(SCHEMAS[name]).validate(document)
    assert json.loads(json.dumps(document, allow_nan=False)) == document, "something is not plain data"
    return document


def answers(path, folder):
    """What every function that answers says of a file; nothing where it refuses the file."""
    target = folder / "x.safetensors"
    asked = [lambda: mha_convert.inspect_file(path), lambda: mha_convert.inspect_graph(path)]
    for layout in ("mha", "linear", "qkv"):
        asked.append(lambda layout=layout: mha_convert.explain_file(path, layout=layout))
        asked.append(lambda layout=layout: mha_convert.plan_file(path, layout=layout))
    asked.append(lambda: mha_convert.convert_file(path, target, overwrite=True))
    asked.append(lambda: mha_convert.match_file(path, target))
    asked.append(lambda: mha_convert.convert_model(path, folder / "model", reference="none", overwrite=True))
    for ask in asked:
        with suppress(MhaConvertError):
            yield ask()


def test_every_schema_is_a_schema_under_its_own_name():
    assert set(SCHEMAS) == {
        "alignment",
        "conversion",
        "error",
        "explanation",
        "graph",
        "inspection",
        "keys",
        "model",
        "source",
        "summary",
    }
    for name, schema in SCHEMAS.items():
        Draft202012Validator.check_schema(schema)
        assert schema["$id"] == schema["properties"]["schema"]["const"] == f"mha-convert/{name}/1"


@pytest.fixture(scope="module")
def said_of_golden(tmp_path_factory):
    """Every answer about every golden file."""
    folder = tmp_path_factory.mktemp("golden")
    return [answer for path in FILES for answer in answers(path, folder)]


def test_every_document_about_the_golden_files_fits_its_schema(said_of_golden):
    found = {}
    for answer in said_of_golden:
        document = check(answer.to_dict())
        found.setdefault(document["schema"].split("/")[1], []).append(document)
    assert set(found) == {"alignment", "conversion", "explanation", "graph", "inspection", "keys", "model"}
    assert all(len(documents) >= 15 for documents in found.values())


@pytest.mark.parametrize("name", ["alignment", "conversion", "explanation", "graph", "inspection", "keys", "model"])
def test_no_key_can_be_missing_renamed_or_of_another_type(name, said_of_golden):
    """A schema that takes anything proves nothing."""
    documents = [answer.to_dict() for answer in said_of_golden]
    document = max((d for d in documents if d["schema"] == f"mha-convert/{name}/1"), key=lambda d: len(json.dumps(d)))
    broken = 0
    for spoilt in spoilt_copies(document):
        with pytest.raises(ValidationError):
            Draft202012Validator(SCHEMAS[name]).validate(spoilt)
        broken += 1
    assert broken >= 10


FREE = (
    "arguments",
    "keywords",
    "object",
    "settings",
    "keys",
    "weights",
)  # objects whose keys are a module's, a layer's or a model's own


def spoilt_copies(document):
    """Copies with a key less, with a key more, and with a list of objects for a value; in the first object of each list, too."""
    text = json.dumps(document)
    for path in paths(document):
        for spoil in (lambda o, k: o.pop(k), lambda o, k: o.update(other=1), lambda o, k: o.update({k: [{"x": 1.5}]})):
            copy = json.loads(text)
            *way, key = path
            inside = copy
            for step in way:
                inside = inside[step]
            spoil(inside, key)
            yield copy


def paths(value, way=()):
    """The way to each key that a schema names."""
    for key, inner in value.items():
        yield (*way, key)
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            yield from paths(inner[0], (*way, key, 0))
        elif isinstance(inner, dict) and key not in FREE:
            yield from paths(inner, (*way, key))


@pytest.mark.process
def test_lines_of_a_batch_and_its_summary_fit_their_schemas(tmp_path):
    sources = [GOLDEN / "keras-3.15.1" / name for name in ("square.keras", "mha_subclass.keras")]
    sources += [tmp_path / "missing.keras", *GOLDEN.rglob("*weightless*.keras")]
    reports = list(mha_convert.convert_many(sources, tmp_path / "out"))
    assert {report.outcome for report in reports} >= {"converted", "refused"}
    for line in (tmp_path / "out" / "report.jsonl").read_text().splitlines():
        check(json.loads(line))
    for report in reports:
        check(report.to_dict())
        assert report.to_text() and "\n" not in report.to_text() + repr(report)
        assert SourceReport(**json.loads(json.dumps(report.to_dict()))).to_dict() == json.loads(
            json.dumps(report.to_dict())
        )
    check(summary_as_json(summary_of(reports), earlier=1, left=2))


def test_every_record_that_a_user_gets_has_a_face():
    assert set(RECORDS) == set(FACES)
    public = {getattr(mha_convert, name) for name in mha_convert.__all__}
    given = {mha_convert.Options, SourceReport}  # what a user passes; a row of FACES of its own folder
    assert {record for record in public if dataclasses.is_dataclass(record)} - given <= set(FACES)


def parts(record):
    """The record and every record in it."""
    yield record
    values = [getattr(record, field.name) for field in dataclasses.fields(record)]
    for value in values:
        inner = (
            [*value, *value.values()] if isinstance(value, Mapping) else value if isinstance(value, tuple) else [value]
        )
        for part in inner:
            if isinstance(part, Face):
                yield from parts(part)


def test_records_are_one_line_plain_data_and_text(said_of_golden):
    seen = set()
    for answer in said_of_golden[:400]:
        for part in parts(answer):
            assert repr(part).startswith("<") and repr(part).endswith(">") and "\n" not in repr(part)
            assert type(part.to_dict()) is dict and part.to_text().strip()
            json.dumps(part.to_dict(), allow_nan=False)
            seen.add(type(part))
    assert set(FACES) - seen <= {plan.TargetTensor, graph.Constant}, "a record that no answer holds"


def test_the_parts_of_a_document_are_what_its_records_say(said_of_golden):
    report = next(answer for answer in said_of_golden if isinstance(answer, proof.Conversion))
    document = report.to_dict()
    assert document["comparisons"] == [part.to_dict() for part in report.comparisons]
    assert document["stored"] == [part.to_dict() for part in report.stored]
    assert [item["ledger"] for item in document["layers"]] == [entry.to_dict() for entry in report.ledgers.values()]
    inspection = next(answer for answer in said_of_golden if isinstance(answer, said.Inspection))
    assert inspection.to_dict()["layers"] == [part.to_dict() for part in inspection.findings.layers]


def test_a_repr_says_what_matters(samples, tmp_path):
    report = mha_convert.convert_file(samples / "translator.h5", tmp_path / "x.pt")
    source_, target = samples / "translator.h5", tmp_path / "x.pt"
    assert repr(report).startswith(f"<Conversion '{str(source_)[:80]}")
    assert repr(report).endswith(": 2 layers, proven with the Keras formula in NumPy (float64)>")
    assert repr(report.plan) == "<Plan: 2 layers in layout mha>"
    assert repr(report.plan.layers[1].layer) == (
        "<MultiHeadAttention 'cross_attention': num_heads=2, key_dim=8, value_dim=8, float32, 960 parameters>"
    )
    assert repr(report.ledgers["self_attention"]) == "<Ledger: 1,088 in, 1,088 out>"
    unproven = dataclasses.replace(report, reference=None, comparisons=())
    assert repr(unproven).endswith("2 layers, NOT PROVEN>")
    failed = dataclasses.replace(report.comparisons[0], relative=float("nan"))
    assert repr(failed).endswith(", FAILED>") and target.exists()


def test_hostile_names_stay_in_the_line(samples):
    (found,) = mha_convert.inspect_file(samples / "six_heads.keras").findings.layers
    hostile = dataclasses.replace(found, name=HOSTILE)
    shown = [repr(hostile), repr(dataclasses.replace(found.query.kernel, path=HOSTILE))]
    shown += [repr(layer.NotConverted(name=HOSTILE, kind=HOSTILE, reason=HOSTILE, next_step="", blocking=False))]
    shown += [
        repr(SourceReport(source=HOSTILE, target=None, outcome="refused", error={"kind": HOSTILE, "message": ""}))
    ]
    for text in shown:
        assert text.isprintable() and len(text) < 800
    assert hostile.to_dict()["name"] == HOSTILE  # JSON escapes by itself


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (("inspect", "missing.keras"), 1, "ReadError"),
        (("inspect",), 2, "UsageError"),
        (("inspect", "missing.keras", "--colour"), 2, "UsageError"),
        (("convert", "six_heads.keras", "x.txt"), 1, "WriteError"),
        (("convert", "six_heads.keras", "x.pt", "--layout", "mah"), 2, "UsageError"),
        (("convert", "six_heads.keras", "x.pt", "--layer", "nobody"), 1, "LayerError"),
        (("match", "six_heads.keras", "other.safetensors"), 1, "LayoutError"),
        (("batch", "no/such/*.keras", "--out", "out"), 1, "ReadError"),
        (("report", "missing.jsonl"), 1, "ReadError"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_with_json_an_error_is_a_document(words, code, kind, samples, tmp_path):
    for name in ("six_heads.keras", "translator.h5"):
        (tmp_path / name).write_bytes((samples / name).read_bytes())
    mha_convert.convert_file(samples / "translator.h5", tmp_path / "other.safetensors")
    result = run(*words, "--json", cwd=tmp_path, code=code)
    document = check(json.loads(result.stdout))
    assert document["error"]["kind"] == kind
    if code == 1:
        assert result.stderr == f"error: {document['error']['message']}\n"
        assert document == error_document(kind, document["error"]["message"])
    assert run(*words, cwd=tmp_path, code=code, shown=words[0] == "match").stdout == "" or words[0] == "match"
