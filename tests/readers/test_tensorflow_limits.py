"""TensorFlow's limits are with the others, `--trust` lifts them, and messages say so (issue 12, point 14)."""

import struct
from dataclasses import replace

import pytest

import mha_convert
from mha_convert.errors import ReadError
from mha_convert.files import limits as limits_module
from mha_convert.files.limits import NO_MODEL, RAISE, STRANGER
from mha_convert.readers.tensorflow.bundle import MAGIC, MASK_DELTA, checksum
from mha_convert.readers.tensorflow.protobuf import message_classes

ONE = b"\x00"  # no compression


def masked(content: bytes) -> int:
    """A checksum as LevelDB stores it."""
    plain = checksum(content)
    return (((plain >> 15) | (plain << 17)) + MASK_DELTA) & 0xFFFFFFFF


def varint(number: int) -> bytes:
    """Protobuf's form of a number."""
    found = b""
    while number >= 0x80:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def block(rows) -> bytes:
    """A block of a table; keys share what they can with the one before."""
    content, before = [], b""
    for key, value in rows:
        shared = len(before) if before and key.startswith(before) else 0
        content.append(varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value)
        before = key
    body = b"".join(content) + struct.pack("<II", 0, 1)
    return body + ONE + struct.pack("<I", masked(body + ONE))


def write_index(path, rows, data_files=1):
    """An index of a checkpoint with these keys; each is a float32 of no number in the first data file."""
    messages = message_classes()
    header = messages["BundleHeader"](num_shards=data_files).SerializeToString()
    entry = messages["BundleEntry"](dtype=1, crc32c=masked(b""))
    entry.shape.dim.add(size=0)
    first = block([(b"", header), *((key, entry.SerializeToString()) for key in rows)])
    second = block([(b"\xff", varint(0) + varint(len(first) - 5))])
    handles = varint(0) + varint(0) + varint(len(first)) + varint(len(second) - 5)
    path.with_suffix(".index").write_bytes(first + second + handles.ljust(40, b"\0") + MAGIC)
    path.with_suffix(f".data-00000-of-{data_files:05d}").write_bytes(b"")
    return path.with_suffix(".index")


def test_the_index_that_is_made_here_is_read(tmp_path):
    source = write_index(tmp_path / "x", [b"a", b"ab", b"b/kernel"])
    assert [variable.path for variable in mha_convert.read(source).variables] == ["a", "ab", "b/kernel"]


LIMITS = {  # what is made smaller, rows and data files, what is said
    "index": ({"index": 50}, [b"a"], 1, "bytes, expected at most 50 of an index"),
    "names": ({"index": 1800}, [b"a" * number for number in range(1, 100)], 1, "has names of more than 1800 bytes together"),
    "entries": ({"objects": 5}, [b"a", b"b", b"c", b"d", b"e", b"f"], 1, "has more than 5 entries"),
    "data files": ({}, [b"a"], 10_001, "says 10001 data files, expected at most 10000"),
    "levels": ({}, [b"/".join([b"a"] * 150)], 1, "has more than 100 levels"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_trust_lifts_what_the_message_says(tmp_path, monkeypatch, name):
    changed, rows, data_files, fact = LIMITS[name]
    source = write_index(tmp_path / "x", rows, data_files)
    monkeypatch.setattr(limits_module, "STRANGER", replace(STRANGER, **changed))
    with pytest.raises(ReadError, match=fact) as error:
        mha_convert.read(source)
    assert str(error.value).endswith(f". {RAISE}.")
    assert len(mha_convert.read(source, trust=True).variables) == len(rows)


def test_where_trust_was_given_nothing_promises_that_it_would_help(tmp_path):
    source = write_index(tmp_path / "x", [b"/".join([b"a"] * 300)])
    with pytest.raises(ReadError, match=f"has more than 250 levels. {NO_MODEL}.$"):
        mha_convert.read(source, trust=True)
    path = tmp_path / "x.json"
    path.write_text('{"a":' * 3000 + "1" + "}" * 3000)
    with pytest.raises(ReadError, match=f"is nested more than 800 deep. {NO_MODEL}.$"):
        mha_convert.read(source, config=path, trust=True)


def test_what_trust_lets_in_one_another_can_be_followed(tmp_path):
    """As deep as the limit: read, looked through and told."""
    from mha_convert.layers import survey

    source = write_index(tmp_path / "x", [b"/".join([b"a"] * 250), b"/".join([b"b"] * 250)])
    checkpoint = mha_convert.read(source, trust=True)
    assert not survey(checkpoint).layers and len(checkpoint.variables) == 2


def test_an_empty_or_too_large_graph_is_named_without_an_option_that_does_not_help(tmp_path):
    folder = tmp_path / "saved"
    (folder / "variables").mkdir(parents=True)
    write_index(folder / "variables" / "variables", [b"a"])
    for size, fact in ((0, "is empty"), (2 << 30, "is 2147483648 bytes, and TensorFlow writes less than 2147483648")):
        with (folder / "saved_model.pb").open("wb") as file:
            file.truncate(size)
        for trust in (False, True):
            with pytest.raises(ReadError, match=fact) as error:
                mha_convert.read(folder, trust=trust)
            assert "--trust" not in str(error.value)
