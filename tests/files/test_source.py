"""What readers get: a place with its limits and a note of what was looked into, and nothing of it global."""

import os
import threading

import numpy as np
import pytest

from mha_convert import read
from mha_convert.errors import ReadError
from mha_convert.files.limits import STRANGER, TRUSTED
from mha_convert.files.locations import is_link_out, locate
from mha_convert.files.source import Source


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").write_bytes(b"0123456789")
    (tmp_path / "b").write_bytes(b"")
    return Source(tmp_path, TRUSTED)


def test_what_is_derived_shares_limits_and_note(folder):
    a = folder.child("a")
    others = [a, a.beside("b"), a.folder, folder.at(locate("/elsewhere")), *folder.children()]
    assert all(other.limits == TRUSTED and other.seen is folder.seen for other in others)
    assert sorted(item.name for item in folder.children("?")) == ["a", "b"]
    assert str(a) == str(folder.place / "a") and a.beside("b") == folder.child("b") != a


@pytest.mark.parametrize("look", [Source.size, Source.open, lambda source: source.fetch(0, 4)])
def test_whatever_is_looked_into_is_noted_as_it_was_before(folder, look):
    a = folder.child("a")
    found = look(a)
    if hasattr(found, "close"):
        found.close()
    (before,) = folder.seen.values()
    os.utime(a.place, (1, 1))
    assert a.size() == 10
    assert list(folder.seen.values()) == [before] and before.modified != 10**9


def test_asking_what_there_is_is_not_noted(folder):
    assert folder.child("a").is_file() and folder.is_folder() and folder.child("a").exists()
    assert not folder.child("c").exists() and not folder.child("\0").is_file()
    assert not folder.seen and not folder.is_remote


def test_a_range_is_read_only(folder):
    part = folder.child("a").fetch(2, 3)
    assert bytes(part) == b"234" and not part.flags.writeable
    assert folder.child("b").fetch(0, 0).size == 0


def test_a_store_has_the_same_methods():
    pytest.importorskip("upath")
    remote = Source(locate("memory://source-test/x"), STRANGER)
    with remote.place.open("wb") as file:
        file.write(bytes(range(100)))
    assert remote.is_remote and remote.is_file() and not remote.is_folder() and remote.size() == 100
    assert remote.folder.is_folder() and [item.name for item in remote.folder.children("*")] == ["x"]
    assert remote.folder.child("x") == remote and not remote.beside("y").exists()
    np.testing.assert_array_equal(remote.fetch(10, 5), [10, 11, 12, 13, 14])
    with remote.open() as file:
        assert file.read(2) == b"\0\1"
    assert not remote.seen and not is_link_out(remote.folder.place, remote.place)
    with pytest.raises(ReadError, match="memory://source-test/z: the store does not return it"):
        remote.beside("z").size()


def test_files_are_read_at_once_with_limits_of_their_own(samples, tmp_path):
    """Threads of a program that trusts one file and not the other."""
    (tmp_path / "deep.json").write_text('{"class_name": "Sequential", "config": ' + '{"a": ' * 300 + "1" + "}" * 301)
    found = {True: [], False: []}

    def describe(trust):
        for _ in range(5):
            try:
                read(samples / "encoder.weights.h5", config=tmp_path / "deep.json", trust=trust)
            except ReadError as error:
                found[trust].append("more than 200 deep" in str(error))

    threads = [threading.Thread(target=describe, args=(trust,)) for trust in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {True: [False] * 5, False: [True] * 5}
