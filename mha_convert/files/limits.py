"""What a file may ask for. Where the bytes in the file bound a size, they do, and no number here.

``--trust`` (``trust=True``) lifts all of ``Limits``, for sources whose author is known; what is in one another only
as far as trees can be followed. The bounds of files of words that go with a command, and of what is only looked at to
name it, are no part of a source and stay as they are.
"""

from dataclasses import dataclass

RAISE = "If you trust the file's author, use --trust (trust=True), which lifts this limit"
NO_MODEL = "No Keras model is like that"  # where trust was given already
ENDLESS = 1 << 62
RULES = 4 << 20  # bytes of a file of rules or settings in TOML
RULES_DEPTH = 16  # parts of a name in it: ``a.b.c``; tomllib takes time with the square of their number
LIST = 256 << 20  # bytes of a list of sources
LINE = 16 << 20  # bytes of a line of report.jsonl
STATE = 1 << 20  # bytes of TensorFlow's file ``checkpoint`` in which the latest one is looked for
ARCHIVE, MEMBERS = 64 << 20, 1000  # bytes and members of an archive in which a model is looked for
PROTOBUF = 2 << 30  # bytes of a message; protobuf itself takes no larger one
RANK = 8  # of attention's inputs: a proof grows with 2 to the rank


@dataclass(frozen=True)
class Limits:
    """The most that is read of one file.

    Args:
        json: bytes of a model's JSON.
        json_depth: objects and lists in one another.
        objects: groups and arrays.
        index: bytes of the index of a TensorFlow checkpoint.
        data_files: of a TensorFlow checkpoint.
        chain: objects of TensorFlow, or levels of a variable's name, in one another.
        depth: groups in one another.
        name: bytes of a name.
        attribute: bytes of an HDF5 attribute.
        ratio: of inflated to stored bytes; deflate cannot do better than 1032:1.
        memory: bytes beyond the arrays themselves that reading HDF5 may take; 0 for any.
        seconds: of a processor that reading an HDF5 file's structure, or one of its arrays, may take; 0 for any.
        speed: bytes of an array that are read in a second, at least.
    """

    json: int = 32 << 20
    json_depth: int = 200
    objects: int = 200_000
    index: int = 512 << 20
    data_files: int = 10_000
    chain: int = 100
    depth: int = 64
    name: int = 64 << 10
    attribute: int = 64 << 20
    ratio: int = 1100
    memory: int = 256 << 20
    seconds: int = 2
    speed: int = 10 << 20


STRANGER = Limits()
TRUSTED = Limits(
    json=ENDLESS,
    json_depth=800,
    objects=ENDLESS,
    index=ENDLESS,
    data_files=ENDLESS,
    chain=250,
    depth=250,
    name=ENDLESS,
    attribute=ENDLESS,
    ratio=ENDLESS,
    memory=0,
    seconds=0,
)


def limits_for(trust: bool) -> Limits:
    """Those of a stranger's file, or none."""
    return TRUSTED if trust else STRANGER


def way_on(limits: Limits) -> str:
    """What a message about one of the limits says: how to lift it, where that was not done."""
    return NO_MODEL if limits == TRUSTED else RAISE
