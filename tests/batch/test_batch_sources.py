"""Which models a batch includes, what their targets are called, and with which options each is converted."""

import os

import pytest

from mha_convert.batch.files import sha256_of, state_of
from mha_convert.batch.run import plan_batch
from mha_convert.batch.settings import read_settings
from mha_convert.batch.sources import find, matches
from mha_convert.errors import LayoutError, MhaConvertError, ReadError, WriteError

TREE = (
    "a.keras",
    "notes.txt",
    "b/c.h5",
    "b/D.HDF5",
    "b/deep/e.weights.h5",
    "unzipped/config.json",
    "unzipped/metadata.json",
    "unzipped/model.weights.h5",
    "unzipped/best.keras",
    "preset/config.json",
    "preset/model.weights.json",
    "preset/model_00000.weights.h5",
    "preset/task.weights.h5",
    "saved/saved_model.pb",
    "saved/variables/variables.index",
    "saved/variables/variables.data-00000-of-00001",
    "shards/x.weights.json",
    "shards/x_00000.weights.h5",
    "shards/x_00001.weights.h5",
    "shards/y_00000.weights.h5",
    "train/ckpt-1.index",
    "train/ckpt-1.data-00000-of-00001",
    "train/other.index",
)
MODELS = {
    "a.keras",
    "b/c.h5",
    "b/D.HDF5",
    "b/deep/e.weights.h5",
    "unzipped",
    "unzipped/best.keras",
    "preset",
    "preset/task.weights.h5",
    "saved",
    "shards/x.weights.json",
    "shards/y_00000.weights.h5",
    "train/ckpt-1.index",
}


@pytest.fixture
def tree(tmp_path):
    """A folder with every kind of model; the files are empty, as only their names count."""
    for name in TREE:
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "models"


def trees(*sources, pattern=None):
    """Where the sources lie in their tree."""
    return [source.tree for source in find(sources, pattern)]


def test_a_folder_is_searched_for_models_of_every_kind(tree):
    assert trees(tree) == sorted(MODELS)
    assert all(source.place == str(tree / source.tree) for source in find([tree]))


def test_a_folder_that_is_a_model_is_one_source(tree):
    assert [source.place for source in find([tree / "saved", tree / "unzipped"])] == [
        str(tree / "saved"),
        str(tree / "unzipped"),
    ]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.h5", ["b/c.h5", "b/deep/e.weights.h5", "preset/task.weights.h5", "shards/y_00000.weights.h5"]),
        ("b/*", ["b/D.HDF5", "b/c.h5", "b/deep/e.weights.h5"]),
        ("saved", ["saved"]),
        ("*.txt", ["notes.txt"]),
    ],
)
def test_a_pattern_says_which_files_are_models(tree, pattern, found):
    assert trees(tree, pattern=pattern) == found


def test_globs_lists_and_files_keep_the_tree_below_the_folder_that_holds_them(tree, tmp_path, monkeypatch):
    assert trees(f"{tree}/b/**/*.h5") == ["c.h5", "deep/e.weights.h5"]
    assert trees(tree / "a.keras", tree / "b" / "c.h5") == ["a.keras", "b/c.h5"]
    assert trees(tree / "b" / "c.h5") == ["c.h5"]
    (tmp_path / "list.txt").write_text(f"# models\n\n  {tree}/b/c.h5  \n{tree}/shards/*.json\n{tree}/train\n")
    assert set(trees(f"@{tmp_path}/list.txt")) == {"b/c.h5", "shards/x.weights.json", "ckpt-1.index"}
    monkeypatch.chdir(tree / "b")
    assert trees("c.h5", "../a.keras", "deep/../../shards/x.weights.json") == [
        "b/c.h5",
        "a.keras",
        "shards/x.weights.json",
    ]


def test_a_source_that_is_named_twice_is_taken_once(tree):
    assert len(find([tree, tree / "a.keras", f"{tree}/*.keras"])) == len(MODELS)


def test_links_to_folders_are_not_followed(tree, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.keras").touch()
    (tree / "link").symlink_to(outside)
    (tree / "b" / "loop").symlink_to(tree)
    assert trees(tree) == sorted(MODELS)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["{tree}/empty"], "{tree}/empty holds no saved models (.keras, .h5, .hdf5, .weights.h5, .weights.json, .index, SavedModels). Check the path, or use --pattern."),
        (["{tree}/*.xyz"], "{tree}/*.xyz holds no saved models (.keras, .h5, .hdf5, .weights.h5, .weights.json, .index, SavedModels). Check the path, or use --pattern."),
        (["-"], "Standard input is one file, and a batch takes the places of many. Pass it to convert."),
        (["@{tree}/none.txt"], "{tree}/none.txt: the list cannot be read: there is no such file. Check the path."),
        (["@{tree}/bad.txt"], "{tree}/bad.txt: the list cannot be read: it is not text in UTF-8. Check the path."),
    ],
)  # fmt: skip
def test_nothing_to_do_is_an_error(tree, sources, message):
    (tree / "empty").mkdir()
    (tree / "bad.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ReadError) as error:
        find([source.format(tree=tree) for source in sources])
    assert str(error.value) == message.format(tree=tree)


def targets(*sources, out, **options):
    """The targets of a batch, in its folder."""
    return {os.path.relpath(task["target"], out) for task in plan_batch(sources, out, **options).tasks}


def test_targets_stand_where_the_sources_do(tree, tmp_path):
    out = tmp_path / "out"
    expected = {"a", "b/D", "b/c", "b/deep/e", "unzipped", "unzipped/best", "preset", "preset/task", "saved"}
    expected |= {"shards/x", "shards/y_00000", "train/ckpt-1"}
    assert targets(tree, out=out) == {f"{name}.safetensors" for name in expected}
    assert targets(tree / "saved", out=out, format="pt") == {"saved.pt"}
    assert "b/c.h5.safetensors" in targets(tree, out=out, keep_suffix=True)


def test_two_sources_never_have_one_target(tree, tmp_path):
    (tree / "a.h5").touch()
    with pytest.raises(WriteError) as error:
        plan_batch(tree, tmp_path / "out")
    assert str(error.value) == (
        f"{tmp_path}/out/a.safetensors would be the target of '{tree}/a.h5' and of '{tree}/a.keras'. "
        "Use --keep-suffix, or convert them into two folders."
    )
    assert {"a.h5.safetensors", "a.keras.safetensors"} <= targets(tree, out=tmp_path / "out", keep_suffix=True)
    assert not (tmp_path / "out").exists()


def test_options_that_no_batch_has_are_refused(tree, tmp_path):
    with pytest.raises(LayoutError, match="^Option 'module' is not an option of a batch"):
        plan_batch(tree, tmp_path, module="x.py")
    with pytest.raises(LayoutError, match="^There is no format 'onnx'. Choose one of: safetensors, pt"):
        plan_batch(tree, tmp_path, format="onnx")
    with pytest.raises(WriteError, match="--resume keeps what is finished, --overwrite does not"):
        plan_batch(tree, tmp_path, resume=True, overwrite=True)


def settings(tree, **options):
    """The settings of each source."""
    tasks = plan_batch(tree, tree.parent / "out", **options).tasks
    return {os.path.relpath(task["source"], tree): task["settings"] for task in tasks}


def test_settings_lie_beside_the_sources_and_the_nearest_count(tree):
    (tree / "mha-convert.toml").write_text('layout = "linear"\nstrict = true\nlayer = ["x"]\n')
    (tree / "b" / "mha-convert.toml").write_text(
        'prefix = "p."\nconfig = "model.json"\n[rename]\n"a.*" = "b.{1}"\n'
        '[[attention]]\npath = "*"\nnum_heads = 2\nquery = "q"\nkey = "k"\nvalue = "v"\noutput = "o"\n'
    )
    (tree / "b" / "model.json").write_text("{}")
    found = settings(tree)
    assert found["a.keras"] == found["saved"] == {"layout": "linear", "strict": True, "layers": ["x"]}
    row = {"path": "*", "num_heads": 2, "query": "q", "key": "k", "value": "v", "output": "o"}
    near = {"prefix": "p.", "config": f"{tree}/b/model.json", "renames": {"a.*": "b.{1}"}, "attention": [row]}
    assert found["b/c.h5"] == found["b/deep/e.weights.h5"] == near


def test_what_is_given_comes_before_settings(tree):
    (tree / "mha-convert.toml").write_text('layout = "linear"\ndtype = "float16"\n')
    found = settings(tree, layout="mha", reference="none")
    assert found["a.keras"] == {"layout": "mha", "dtype": "float16", "reference": "none"}


def test_a_named_file_has_the_settings_of_its_own_folder(tree):
    (tree / "b" / "mha-convert.toml").write_text('layout = "qkv"\n')
    found = plan_batch([tree / "a.keras", tree / "b" / "c.h5"], tree.parent / "out").tasks
    assert [task["settings"] for task in found] == [{}, {"layout": "qkv"}]


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("trust = true", "holds 'trust', expected some of config, attention, layout, layer,"),
        ('reference = "none"', "holds 'reference', expected some of"),
        ("overwrite = true", "holds 'overwrite', expected some of"),
        ('config = "/etc/passwd"', "'config' is '/etc/passwd', expected the name of a file next to it. Put it there."),
        ('like = "../mine.pt"', "'like' is '../mine.pt', expected the name of a file next to it"),
        ('config = "s3://x/y"', "'config' is 's3://x/y', expected the name of a file next to it"),
        ("layout = 3", "'layout' is int, expected text"),
        ('strict = "yes"', "'strict' is str, expected true or false"),
        ('layer = "x"', "'layer' is str, expected a list"),
        ("layer = []", "'layer' is an empty list, expected at least one entry. Leave it out."),
        ("attention = []", "'attention' is an empty list, expected at least one entry. Leave it out."),
        ("[rename]\nx = 3", "'rename' is dict, expected a table"),
        ("layout = ", "is not TOML"),
    ],
)
def test_settings_of_strangers_choose_names_and_layouts_and_nothing_else(tmp_path, text, fact):
    (tmp_path / "mha-convert.toml").write_text(text)
    with pytest.raises(MhaConvertError) as error:
        read_settings(str(tmp_path / "mha-convert.toml"))
    assert fact in str(error.value)
    assert "\n" not in str(error.value)


def test_rules_in_files_are_read_once_and_not_by_the_workers(tree, tmp_path):
    (tmp_path / "rules.toml").write_text('[rename]\n"x" = "y"\n')
    (tmp_path / "rows.toml").write_text(
        '[[attention]]\npath = "*"\nnum_heads = 2\nquery = "q"\nkey = "k"\nvalue = "v"\noutput = "o"\n'
    )
    found = settings(tree, renames=tmp_path / "rules.toml", attention=[str(tmp_path / "rows.toml")])["a.keras"]
    assert found["renames"] == {"x": "y"}
    assert found["attention"][0]["query"] == "q"


def test_a_question_mark_in_a_url_is_no_glob():
    place = "https://host/models/x.keras?download=true"
    assert matches(place) == [place]


def test_all_files_of_a_source_tell_whether_it_changed(tree):
    for name in ("ckpt-1.data-00000-of-00002", "ckpt-1.data-00001-of-00002", "ckpt-10.data-00000-of-00001"):
        (tree / "train" / name).touch()
    source, later = str(tree / "train" / "ckpt-1.index"), tree / "train" / "ckpt-1.data-00001-of-00002"
    before = state_of(source), sha256_of(source)
    (tree / "train" / "ckpt-10.data-00000-of-00001").write_bytes(b"another checkpoint's")
    assert (state_of(source), sha256_of(source)) == before
    later.write_bytes(b"new")
    assert state_of(source) != before[0]
    assert sha256_of(source) != before[1]


def test_files_of_the_options_are_read_again_in_every_run(tree):
    (tree / "mine.json").write_text("{}")
    first = {task["digest"] for task in plan_batch(tree, tree.parent / "out", config=tree / "mine.json").tasks}
    (tree / "mine.json").write_text("{ }")
    again = {task["digest"] for task in plan_batch(tree, tree.parent / "out", config=tree / "mine.json").tasks}
    assert len(first) == len(again) == 1
    assert first != again
