"""What happens to the target and its folder if something goes wrong: no space, signals, two writers, special files."""

import os
import pickletools
import random
import re
import resource
import signal
import stat
import subprocess
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from faults import finish, group_is_gone, names, one_line, prepared, run, start, wait_for
from hdf5_weights import hdf5_model as weights

import mha_convert
from mha_convert.errors import ReadError, WriteError
from mha_convert.targets import drafts as _draft

UNPROVEN = ("--reference", "none", "--overwrite")
INTERRUPTED = "Interrupted: nothing was written; an existing target is as it was.\n"
DRAFT = re.compile(r"\.x\.safetensors\.\d+-[0-9a-f]{8}\.draft")


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of many tensors; under ``SLOWLY`` its conversion takes seconds, so that it is met while it writes."""
    return weights(tmp_path_factory.mktemp("large") / "large.weights.h5", 16, 64)


SLOWLY = """
import time
from mha_convert.targets import safetensors_file, torch_file
def slow(real):
    def act(*arguments):
        time.sleep(0.1)
        return real(*arguments)
    return act
safetensors_file.write_all = slow(safetensors_file.write_all)
torch_file.as_tensor = slow(torch_file.as_tensor)
"""


def drafts(folder: Path, name: str) -> list[str]:
    """Drafts of a target."""
    return [path.name for path in folder.iterdir() if path.name.startswith(f".{name}.")]


@pytest.fixture
def six(samples) -> Path:
    """A small model."""
    return samples / "six_heads.keras"


# Space


def small_files(limit: int) -> None:
    """No file of this process may be larger."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


@pytest.mark.process
@pytest.mark.parametrize("name", ["x.safetensors", "x.pt"])
@pytest.mark.parametrize("old", [None, "old"])
@pytest.mark.parametrize("limit", [0, 3000])
def test_a_target_that_may_not_grow_is_one_line_and_no_draft(six, tmp_path, name, old, limit):
    """At its first byte, and in the middle."""
    if old:
        (tmp_path / name).write_text(old)
    result = run("convert", six, name, *UNPROVEN, cwd=tmp_path, before=partial(small_files, limit))
    one_line(result, f"{name} cannot be written: file too large", "Raise the limit (ulimit -f) or use another folder")
    assert [path.read_text() for path in tmp_path.iterdir()] == ([old] if old else [])


@pytest.mark.process
def test_a_module_that_may_not_grow_takes_the_target_with_it(six, tmp_path):
    (tmp_path / "m.py").write_text("old")
    options = (*UNPROVEN, "--module", "m.py")
    one_line(run("convert", six, "x.pt", *options, cwd=tmp_path, before=partial(small_files, 100)), "m.py cannot be")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.fixture
def tiny(tmp_path, starts_processes):
    """A disk of 64 KiB, where this machine lets us mount one."""
    yield from mounted(tmp_path / "tiny", "-t", "tmpfs", "-o", "size=64k", "tmpfs")


def mounted(folder: Path, *options: str):
    """The folder with something mounted on it, for the time of a test."""
    folder.mkdir()
    result = subprocess.run(["mount", *options, folder], capture_output=True, text=True, check=False)
    if result.returncode:
        pytest.skip(f"cannot mount: {result.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("name", ["x.safetensors", "x.pt", "m.py"])
def test_a_full_disk_is_one_line_and_no_draft(samples, six, tiny, tmp_path, name):
    module = ("--module", tiny / "m.py") if name == "m.py" else ()
    target = tmp_path / "x.pt" if module else tiny / name
    (tiny / name).write_text("old")
    source = six if module else weights(tmp_path / "s.weights.h5", 2, 128)
    if module:
        (tiny / "filler").write_bytes(b"x" * (60 << 10))
    result = run("convert", source, target, *UNPROVEN, *module, cwd=tmp_path)
    one_line(result, f"{name} cannot be written: no space left on device. Free space or use another folder.")
    assert (tiny / name).read_text() == "old" and set(names(tiny)) <= {name, "filler"}
    assert not (tmp_path / "x.pt").exists()


FAILING_FSYNC = """
import errno, os, stat
def fsync(descriptor, real=os.fsync):
    if {condition}(os.fstat(descriptor).st_mode):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    real(descriptor)
os.fsync = fsync
"""


@pytest.mark.process
@pytest.mark.parametrize("module", [(), ("--module", "m.py")])
@pytest.mark.parametrize("name", ["x.safetensors", "x.pt"])
def test_a_disk_that_fails_at_the_end_leaves_the_old_target(six, tmp_path, name, module):
    (tmp_path / name).write_text("old")
    fault = FAILING_FSYNC.format(condition="stat.S_ISREG")
    result = run("convert", six, name, *UNPROVEN, *module, cwd=tmp_path, program=prepared(fault))
    one_line(result, f"{name} cannot be written: input/output error. Check the disk, or use another folder.")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.process
def test_a_folder_that_the_disk_fails_to_keep_is_told(six, tmp_path):
    fault = FAILING_FSYNC.format(condition="stat.S_ISDIR")
    result = run("convert", six, "x.pt", *UNPROVEN, cwd=tmp_path, program=prepared(fault))
    one_line(result, "x.pt was written and is complete, but its folder cannot be synchronised: input/output error")
    assert names(tmp_path) == ["x.pt"]


def test_content_and_name_are_on_the_disk_in_this_order(six, tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append(kind_of(descriptor, tmp_path)))
    mha_convert.convert_file(six, tmp_path / "x.safetensors", reference="none")
    assert done == [("file", False), ("folder", True)]


def kind_of(descriptor: int, folder: Path) -> tuple[str, bool]:
    """What is synchronised, and whether the target has its name by then."""
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    return "folder" if is_folder else "file", (folder / "x.safetensors").exists()


# kill -9


KILLS, AT_ONCE = 50, 4


def killed(source: Path, folder: Path, moment: float) -> str:
    """Kill a conversion over an old target after ``moment`` seconds; which of the two is there then."""
    folder.mkdir()
    (folder / "x.safetensors").write_text("old")
    process = start("convert", source, "x.safetensors", *UNPROVEN, cwd=folder)
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    finish(process)
    assert all(name == "x.safetensors" or DRAFT.fullmatch(name) for name in names(folder))
    return sha256((folder / "x.safetensors").read_bytes()).hexdigest()


@pytest.mark.process
def test_a_killed_conversion_leaves_the_old_target_or_the_new_one(tmp_path):
    source = weights(tmp_path / "s.weights.h5", 8, 256)
    mha_convert.convert_file(source, tmp_path / "x.safetensors", reference="none")
    new = sha256((tmp_path / "x.safetensors").read_bytes()).hexdigest()
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert {*pool.map(partial(killed, source), folders(tmp_path, "whole", AT_ONCE), [60] * AT_ONCE)} == {new}
    whole = time.monotonic() - began
    chance = random.Random(0)
    # Python starts for most of the time and touches no file then; what writes is met more often in the second half.
    moments = [
        chance.uniform(0, whole) if index % 3 == 0 else chance.uniform(whole / 2, whole) for index in range(KILLS)
    ]
    places = folders(tmp_path, "killed", KILLS)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = [*pool.map(partial(killed, source), places, moments)]
    assert {*found} <= {sha256(b"old").hexdigest(), new} and sha256(b"old").hexdigest() in found
    left = [place for place in places if len(names(place)) > 1]
    for place in [*left, places[0]][:4]:
        assert run("convert", source, "x.safetensors", *UNPROVEN, cwd=place)[0] == 0
        assert sha256((place / "x.safetensors").read_bytes()).hexdigest() == new
        assert not [name for name in names(place) if DRAFT.fullmatch(name) and (place / name).stat().st_size]


def folders(parent: Path, name: str, number: int) -> list[Path]:
    """Names of new folders."""
    return [parent / f"{name}{index}" for index in range(number)]


@pytest.mark.process
def test_the_next_conversion_removes_what_a_killed_one_left(large, six, tmp_path):
    process = start("convert", large, "x.safetensors", *UNPROVEN, cwd=tmp_path, program=prepared(SLOWLY))
    wait_for(lambda: any(path.stat().st_size for path in tmp_path.iterdir()), process)
    os.killpg(process.pid, signal.SIGKILL)
    finish(process)
    (left,) = names(tmp_path)
    assert DRAFT.fullmatch(left)
    mha_convert.convert_file(six, tmp_path / "y.safetensors", reference="none")
    assert left in names(tmp_path)  # another target's
    mha_convert.convert_file(six, tmp_path / "x.safetensors", reference="none")
    assert names(tmp_path) == ["x.safetensors", "y.safetensors"]


def test_drafts_in_use_and_other_files_are_not_removed(six, tmp_path):
    others = [".x.pt.draft", ".x.pt.1-0123456.draft", "x.pt.1-01234567.draft", ".x.pt.1-01234567.draft.txt"]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".x.pt.1-01234567.draft").symlink_to(tmp_path / others[0])
    with _draft.draft(tmp_path / "x.pt", overwrite=True) as path:
        path.write_text("mine, slowly")
        mha_convert.convert_file(six, tmp_path / "x.pt", reference="none")
        assert path.read_text() == "mine, slowly"
    assert names(tmp_path) == sorted([*others, ".x.pt.1-01234567.draft", "x.pt"])
    assert (tmp_path / "x.pt").read_text() == "mine, slowly"


# Several at once


@pytest.mark.process
@pytest.mark.parametrize("number", [2, 4])
def test_of_several_conversions_to_one_target_one_wins(samples, tmp_path, number):
    """Two sources, so that a mixture would show."""
    sources = [samples / ("six_heads.keras", "translator.h5")[index % 2] for index in range(number)]
    runs = [start("convert", source, "x.safetensors", "--reference", "none", cwd=tmp_path) for source in sources]
    results = [finish(process) for process in runs]
    assert sorted(code for code, _, _ in results) == [0] + [1] * (number - 1)
    for result in results:
        if result[0]:
            one_line(result, "x.safetensors", "exists", "another name")  # already, or by now
    assert names(tmp_path) == ["x.safetensors"]
    winner = sources[[code for code, _, _ in results].index(0)]
    mha_convert.convert_file(winner, tmp_path / "alone.safetensors", reference="none")
    assert (tmp_path / "x.safetensors").read_bytes() == (tmp_path / "alone.safetensors").read_bytes()


@pytest.mark.process
def test_with_overwrite_the_last_one_wins(samples, tmp_path):
    sources = [samples / name for name in ("six_heads.keras", "translator.h5")] * 2
    runs = [start("convert", source, "x.safetensors", *UNPROVEN, cwd=tmp_path) for source in sources]
    assert [finish(process)[::2] for process in runs] == [(0, "")] * 4
    assert names(tmp_path) == ["x.safetensors"]
    whole = []
    for index, source in enumerate(sources[:2]):
        mha_convert.convert_file(source, tmp_path / f"{index}.safetensors", reference="none")
        whole.append((tmp_path / f"{index}.safetensors").read_bytes())
    assert (tmp_path / "x.safetensors").read_bytes() in whole


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_is_taken_meanwhile_stays_taken(tmp_path, monkeypatch, links):
    """Also on file systems without hard links."""
    if not links:
        monkeypatch.setattr(os, "link", refuse_links)
    target = tmp_path / "x.pt"
    with pytest.raises(WriteError, match="was made by another process"), _draft.draft(target, overwrite=False) as path:
        path.write_text("mine")
        target.write_text("theirs")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["theirs"]
    with _draft.draft(tmp_path / "y.pt", overwrite=False) as path:
        path.write_text("mine")
    assert names(tmp_path) == ["x.pt", "y.pt"] and (tmp_path / "y.pt").stat().st_nlink == 1


def refuse_links(*paths: Path) -> None:
    """As FAT does."""
    raise PermissionError(1, "Operation not permitted")


# Places


@pytest.mark.process
def test_a_read_only_folder_is_one_line(six, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.pt").write_text("old")
    for folder in mounted(tmp_path / "bound", "--bind", str(tmp_path / "real")):
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        result = run("convert", six, folder / "x.pt", *UNPROVEN, cwd=tmp_path)
        one_line(result, "bound/x.pt cannot be written: read-only file system. Use another folder.")
        result = run("convert", six, "y.pt", *UNPROVEN, "--module", folder / "m.py", cwd=tmp_path)
        one_line(result, "bound/m.py cannot be written: read-only file system. Use another folder.")
    assert names(tmp_path) == ["bound", "real"] and (tmp_path / "real" / "x.pt").read_text() == "old"


FORBIDDING = """
import errno, os
def open(path, *rest, real=os.open):
    if str(path).endswith(".draft"):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return real(path, *rest)
os.open = open
"""


@pytest.mark.process
def test_a_folder_that_one_may_not_write_to_is_one_line(six, tmp_path):
    result = run("convert", six, "x.pt", *UNPROVEN, cwd=tmp_path, program=prepared(FORBIDDING))
    one_line(result, "x.pt cannot be written: permission denied. Use another folder.")
    assert names(tmp_path) == []


def make_places(folder: Path) -> None:
    """Odd targets, each with the suffix of a target."""
    (folder / "folder.pt").mkdir()
    os.mkfifo(folder / "fifo.pt")
    (folder / "full.pt").symlink_to("/dev/full")
    (folder / "loop.pt").symlink_to("loop.pt")
    (folder / "away.pt").symlink_to("nowhere/x.pt")
    (folder / "file").touch()


@pytest.mark.process
@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
@pytest.mark.parametrize(
    ("target", "fact"),
    [
        ("nowhere/x.pt", "there is no folder"),
        ("file/x.pt", "there is no folder"),
        ("away.pt", "there is no folder"),
        ("folder.pt", "is a folder. Pass the name of a file in it"),
        ("fifo.pt", "is a device, pipe or socket"),
        ("full.pt", "is a device, pipe or socket"),
        ("/dev/full", "suffix '' is unknown"),
        ("loop.pt", "is a link that leads nowhere"),
        (f"{'x' * 300}.pt", "file name too long. Use a shorter name"),
    ],
)
def test_a_place_that_cannot_take_a_target_is_one_line(six, tmp_path, target, fact, overwrite):
    make_places(tmp_path)
    before = names(tmp_path)
    one_line(run("convert", six, target, "--reference", "none", *overwrite, cwd=tmp_path), target, fact)
    assert names(tmp_path) == before and stat.S_ISFIFO((tmp_path / "fifo.pt").stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)  # nobody has renamed a file to it


def test_a_name_may_be_as_long_as_the_file_system_lets_it(six, tmp_path):
    for name in ("x" * 252 + ".pt", "字" * 84 + ".pt"):
        mha_convert.convert_file(six, tmp_path / name, reference="none")
        assert name in names(tmp_path)


# The source


def linked(source: Path, link: Path, kind: str) -> Path:
    """Another name of the source."""
    if kind == "symbolic":
        link.symlink_to(source)
    elif kind == "hard":
        os.link(source, link)
    else:
        link = link.parent / ".." / link.parent.name / link.name
        source.rename(link)
    return link


@pytest.mark.process
@pytest.mark.parametrize("kind", ["symbolic", "hard", "detour"])
@pytest.mark.parametrize("which", ["target", "module"])
def test_the_source_is_no_target_by_any_name(six, tmp_path, kind, which):
    source = tmp_path / "s.keras"
    source.write_bytes(six.read_bytes())
    link = linked(source, tmp_path / ("link.pt" if which == "target" else "link.py"), kind)
    source = link.resolve() if kind == "detour" else source
    places = [link] if which == "target" else ["x.pt", "--module", link]
    one_line(run("convert", source, *places, *UNPROVEN, cwd=tmp_path), link.name, "is the source itself")
    assert source.read_bytes() == six.read_bytes() and not (tmp_path / "x.pt").exists()


@pytest.mark.process
@pytest.mark.parametrize("kind", ["symbolic", "hard"])
@pytest.mark.parametrize("which", ["target", "module"])
def test_no_part_of_a_folder_is_a_target(six, tmp_path, kind, which):
    folder = tmp_path / "model"
    with zipfile.ZipFile(six) as archive:
        archive.extractall(folder)
    before = {name: (folder / name).read_bytes() for name in names(folder)}
    link = linked(folder / "model.weights.h5", folder / ("x.pt" if which == "target" else "m.py"), kind)
    places = [link] if which == "target" else ["x.pt", "--module", link]
    one_line(run("convert", folder, *places, *UNPROVEN, cwd=tmp_path), link.name, "is the source itself, or part of")
    assert before.items() <= {name: (folder / name).read_bytes() for name in names(folder)}.items()


def test_neither_the_configuration_nor_the_model_to_match_is_a_target(golden, six, tmp_path):
    mha_convert.convert_file(six, tmp_path / "mine.pt", layout="linear", reference="none")
    content = (tmp_path / "mine.pt").read_bytes()
    with pytest.raises(WriteError, match="is the model of --like"):
        mha_convert.convert_file(six, tmp_path / "mine.pt", like=tmp_path / "mine.pt", overwrite=True)
    assert (tmp_path / "mine.pt").read_bytes() == content


@pytest.mark.process
def test_target_and_module_are_two_files(six, tmp_path):
    (tmp_path / "m.py").symlink_to("x.pt")
    result = run("convert", six, "x.pt", "--module", "m.py", *UNPROVEN, cwd=tmp_path)
    one_line(result, "is named as the target and as the module's source")


READ_ONLY = """
import builtins, io, os, sys
source = os.path.realpath(sys.argv[2])
def audit(event, arguments):
    if event == "open" and os.path.realpath(str(arguments[0])) == source:
        mode, flags = arguments[1:]
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            sys.stderr.write("OPENED FOR WRITING\\n")
        sys.stderr.write("opened\\n")
sys.addaudithook(audit)
"""


@pytest.mark.process
@pytest.mark.parametrize("name", ["six_heads.keras", "translator.h5", "encoder.weights.h5"])
def test_the_source_is_opened_for_reading_only(samples, tmp_path, name):
    source = tmp_path / name
    source.write_bytes((samples / name).read_bytes())
    code, _, err = run("convert", source, "x.pt", "--module", "m.py", cwd=tmp_path, program=prepared(READ_ONLY))
    assert code == 0 and {*err.splitlines()} == {"opened"}


def appended(path: Path) -> None:
    """As a program does that goes on writing."""
    with path.open("ab") as file:
        file.write(b"more")


def overwritten(path: Path) -> None:
    """One byte, in place."""
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def replaced(path: Path) -> None:
    """By a file of the same content, as a download does."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [appended, overwritten, replaced, Path.unlink])
@pytest.mark.parametrize("reference", ["none", "numpy"])
@pytest.mark.parametrize("name", ["encoder.weights.h5", "six_heads.keras"])
def test_a_source_that_changes_meanwhile_is_refused(samples, tmp_path, monkeypatch, change, reference, name):
    from mha_convert import pipeline

    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    source = tmp_path / "in" / name
    source.write_bytes((samples / name).read_bytes())
    prove = pipeline.prove

    def change_and_prove(*arguments):
        change(source)
        return prove(*arguments)

    monkeypatch.setattr(pipeline, "prove", change_and_prove)
    with pytest.raises(ReadError, match=f"{name} changed while it was read. Wait until it is complete"):
        mha_convert.convert_file(source, tmp_path / "out" / "x.safetensors", reference=reference)
    assert names(tmp_path / "out") == []


def test_a_source_that_changes_while_a_target_is_verified_is_refused(samples, tmp_path, monkeypatch):
    from mha_convert import pipeline

    source = tmp_path / "encoder.weights.h5"
    source.write_bytes((samples / source.name).read_bytes())
    mha_convert.convert_file(source, tmp_path / "x.safetensors", reference="none")
    monkeypatch.setattr(pipeline, "prove", lambda *arguments: appended(source))
    with pytest.raises(ReadError, match="changed while it was read"):
        mha_convert.verify_file(source, tmp_path / "x.safetensors")


def test_a_part_of_a_folder_that_changes_meanwhile_is_refused(six, tmp_path, monkeypatch):
    from mha_convert import pipeline

    with zipfile.ZipFile(six) as archive:
        archive.extractall(tmp_path / "model")
    described = pipeline.describe_plan

    def change_and_describe(*arguments):
        appended(tmp_path / "model" / "config.json")
        return described(*arguments)

    monkeypatch.setattr(pipeline, "describe_plan", change_and_describe)
    with pytest.raises(ReadError, match="config.json changed while it was read"):
        mha_convert.convert_file(tmp_path / "model", tmp_path / "x.safetensors")
    assert names(tmp_path) == ["model"]


TRUNCATING = """
import os, sys
from mha_convert import pipeline
from mha_convert.targets import safetensors_file
def cut_off(*arguments):
    os.truncate(sys.argv[2], 20_000)
    return real(*arguments)
"""
BEFORE = TRUNCATING + "real, pipeline.convert = pipeline.convert, cut_off"
AMID = TRUNCATING + "real, safetensors_file.write_all = safetensors_file.write_all, cut_off"


def cut_off_while_read(tmp_path: Path, prelude: str) -> tuple[tuple[int, str, str], list[str]]:
    """What the command says, and what is beside the old target then."""
    source = weights(tmp_path / "s.weights.h5", 4, 256)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x.safetensors").write_text("old")
    result = run("convert", source, "out/x.safetensors", *UNPROVEN, cwd=tmp_path, program=prepared(prelude))
    assert (tmp_path / "out" / "x.safetensors").read_text() == "old"
    return result, [name for name in names(tmp_path / "out") if name != "x.safetensors"]


@pytest.mark.process
def test_a_source_that_is_cut_off_before_its_arrays_are_read_is_refused(tmp_path):
    result, left = cut_off_while_read(tmp_path, BEFORE)
    one_line(result, "s.weights.h5 changed while it was read")
    assert left == []


@pytest.mark.process
def test_a_source_that_is_cut_off_while_it_is_read_ends_the_command_without_a_target(tmp_path):
    """It is mapped: the kernel ends whoever reads behind the new end. The next conversion removes the draft."""
    result, left = cut_off_while_read(tmp_path, AMID)
    assert result == (-signal.SIGBUS, "", "")
    assert len(left) == 1 and DRAFT.fullmatch(left[0])


# Signals


SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.mark.process
@pytest.mark.parametrize(("number", "expected"), SIGNALS)
@pytest.mark.parametrize("name", ["x.safetensors", "x.pt"])
@pytest.mark.parametrize("times", [1, 3])
def test_an_interruption_while_it_writes_is_one_line(large, tmp_path, number, expected, name, times):
    """To the whole process group, as a terminal sends it; impatience changes nothing."""
    (tmp_path / name).write_text("old")
    process = start("convert", large, name, *UNPROVEN, "--module", "m.py", cwd=tmp_path, program=prepared(SLOWLY))
    wait_for(lambda: drafts(tmp_path, name), process)
    for _ in range(times):
        os.killpg(process.pid, number)
        time.sleep(0.01)
    assert finish(process) == (expected, "", INTERRUPTED)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
    assert group_is_gone(process.pid)


MOMENTS = 24
READY = """
from mha_convert import signals
def install(real=signals.install):
    real()
    sys.stdout.write("ready\\n")
    sys.stdout.flush()
signals.install = install
"""


def interrupted(source: Path, number: int, folder: Path, moment: float) -> tuple[int, str, list[str]]:
    """Interrupt a conversion ``moment`` seconds after Python has come to our code; exit code, errors, what is there."""
    folder.mkdir()
    process = start("convert", source, "x.safetensors", *UNPROVEN, cwd=folder, program=prepared(READY))
    process.stdout.readline()
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, number)
    code, _, err = finish(process)
    assert group_is_gone(process.pid)
    return code, err, names(folder)


@pytest.mark.process
@pytest.mark.parametrize(("number", "expected"), SIGNALS)
def test_an_interruption_at_any_moment_is_one_line(six, tmp_path, number, expected):
    """While modules are imported, the process for HDF5 is started, the target gets its name, the report is shown."""
    began = time.monotonic()
    interrupted(six, number, tmp_path / "whole", 60)
    whole = time.monotonic() - began
    chance = random.Random(int(number))
    moments = [0.001, *(chance.uniform(0.001, whole) for _ in range(MOMENTS - 1))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = [*pool.map(partial(interrupted, six, number), folders(tmp_path, "", MOMENTS), moments)]
    written = (expected, "Interrupted: x.safetensors was written and is complete.\n", ["x.safetensors"])
    assert results[0] == (expected, INTERRUPTED, [])
    for result in results:
        assert result in [(expected, INTERRUPTED, []), written, (0, "", ["x.safetensors"])]


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_what_is_ignored_stays_ignored(large, tmp_path, number):
    """``nohup``, and jobs that a script starts in the background."""
    ignore = partial(signal.signal, number, signal.SIG_IGN)
    process = start("convert", large, "x.safetensors", *UNPROVEN, cwd=tmp_path, program=prepared(SLOWLY), before=ignore)
    wait_for(lambda: names(tmp_path), process)
    os.killpg(process.pid, number)
    assert finish(process)[::2] == (0, "")


SWALLOWING = """
import os, signal
from mha_convert import inspection
class Finalised:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass
def read(*arguments, real=inspection.read, **options):
    {fault}
    return real(*arguments, **options)
inspection.read = read
"""
FAULTS = [
    "Finalised(); import time; time.sleep(60)",  # Python prints what a finaliser raises, and goes on
    "signal.raise_signal(signal.SIGINT)",
    """
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException as error:
        raise ImportError("numpy failed to import") from error""",
]


@pytest.mark.process
@pytest.mark.parametrize("fault", FAULTS)
def test_an_interruption_is_one_whatever_becomes_of_it_on_its_way(six, tmp_path, fault):
    prelude = prepared(SWALLOWING.replace("{fault}", fault))
    assert run("convert", six, "x.pt", *UNPROVEN, cwd=tmp_path, program=prelude) == (130, "", INTERRUPTED)
    assert names(tmp_path) == []


@pytest.mark.process
def test_a_file_that_has_its_name_when_the_signal_comes_is_told(six, tmp_path):
    """The signal waits until the name is given, and the line says so."""
    fault = """
import os, signal
def replace(*arguments, real=os.replace):
    signal.raise_signal(signal.SIGINT)
    real(*arguments)
os.replace = replace
"""
    code, _, err = run("convert", six, "x.pt", *UNPROVEN, cwd=tmp_path, program=prepared(fault))
    assert (code, err) == (130, "Interrupted: x.pt was written and is complete.\n")
    assert names(tmp_path) == ["x.pt"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("before", "memory://bucket/x.pt was being sent, and the store may have it. Convert again."),
        ("after", "memory://bucket/x.pt was written and is complete."),
    ],
)
def test_what_is_sent_to_a_store_when_the_signal_comes_is_told(six, tmp_path, when, expected):
    name, owner = {"before": ("publish", "_draft"), "after": ("answer", "verbs")}[when]
    fault = f"""
import signal
from mha_convert.cli import verbs
from mha_convert.targets import drafts as _draft
def interrupt(*arguments):
    signal.raise_signal(signal.SIGINT)
{owner}.{name} = interrupt
"""
    code, _, err = run("convert", six, "memory://bucket/x.pt", *UNPROVEN, cwd=tmp_path, program=prepared(fault))
    assert (code, err) == (130, f"Interrupted: {expected}\n")


@pytest.mark.process
def test_an_interrupted_proof_with_keras_leaves_no_process(keras_installed, six, tmp_path):
    process = start("convert", six, "x.safetensors", "--reference", "keras", cwd=tmp_path)
    wait_for(lambda: "keras_worker" in children_of(process.pid), process)
    process.send_signal(signal.SIGTERM)
    assert finish(process) == (143, "", INTERRUPTED)
    assert names(tmp_path) == [] and group_is_gone(process.pid)


def children_of(leader: int) -> str:
    """The command lines of a process's children."""
    found = subprocess.run(
        ["ps", "-ww", "-o", "args=", "--ppid", str(leader)], capture_output=True, text=True, check=False
    )
    return found.stdout


# The bytes


SETTINGS = [
    {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C"},
    {"PYTHONHASHSEED": "2", "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "OPENBLAS_NUM_THREADS": "2"},
]


@pytest.mark.process
@pytest.mark.parametrize("name", ["x.safetensors", "x.pt"])
def test_targets_are_the_same_bytes_wherever_and_whenever_they_are_made(samples, tmp_path, name, monkeypatch):
    """Names of folders, hash seeds, time zones, umasks and seconds differ."""
    found = set()
    for index, settings in enumerate(SETTINGS):
        for key, value in settings.items():
            monkeypatch.setenv(key, value)
        folder = tmp_path / ("a", "another folder")[index]
        folder.mkdir()
        (folder / "translator.h5").write_bytes((samples / "translator.h5").read_bytes())
        os.utime(folder / "translator.h5", (index * 10**8, index * 10**8))
        source = ("translator.h5", folder / "translator.h5")[index]
        options = ("--module", "m.py", *UNPROVEN)
        result = run("convert", source, name, *options, cwd=folder, before=partial(os.umask, (0o022, 0o077)[index]))
        assert result[0] == 0
        found.add(tuple((folder / made).read_bytes() for made in (name, "m.py")))
        time.sleep(2.1 * (1 - index))  # a zip knows even seconds
    assert len(found) == 1


ALLOWED_GLOBALS = {
    "collections OrderedDict",
    "torch FloatStorage",
    "torch HalfStorage",
    "torch BFloat16Storage",
    "torch DoubleStorage",
    "torch._utils _rebuild_tensor_v2",
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_a_pt_file_names_no_code(six, tmp_path, dtype):
    mha_convert.convert_file(six, tmp_path / "x.pt", dtype=dtype)
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        (pickled,) = (name for name in archive.namelist() if name.endswith(".pkl"))
        operations = [*pickletools.genops(archive.read(pickled))]
    called = {argument for operation, argument, _ in operations if operation.name == "GLOBAL"}
    assert "torch._utils _rebuild_tensor_v2" in called and called <= ALLOWED_GLOBALS
    assert not {operation.name for operation, _, _ in operations} & {"STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "EXT1"}


# Rights


@pytest.mark.process
@pytest.mark.parametrize(("umask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_rights_of_what_is_new_follow_the_umask(six, tmp_path, umask, expected):
    for name in ("x.safetensors", "x.pt"):
        options = ("--module", f"{name[-1]}.py", "--reference", "none")
        assert run("convert", six, name, *options, cwd=tmp_path, before=partial(os.umask, umask))[0] == 0
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {expected}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_rights_of_what_is_replaced_are_kept(six, tmp_path, mode):
    """Also while the draft is written: nobody may read the new weights who could not read the old."""
    for name in ("x.pt", "m.py"):
        (tmp_path / name).write_text("old")
        (tmp_path / name).chmod(mode)
    mha_convert.convert_file(six, tmp_path / "x.pt", module=tmp_path / "m.py", reference="none", overwrite=True)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("x.pt", "m.py")] == [mode, mode]
    with pytest.raises(KeyError), _draft.draft(tmp_path / "x.pt", overwrite=True) as path:
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077 & ~mode
        raise KeyError
