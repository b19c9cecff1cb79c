"""What every JSON document says first: which of the package's schemas it follows, and who wrote it."""

from typing import Any

FORM = 1  # grows when a key changes its meaning or goes; keys that are added leave it as it is


def schema_of(name: str) -> str:
    """What a document calls its schema; ``name`` is that of a file in ``mha_convert/schemas``, without its suffix."""
    return f"mha-convert/{name}/{FORM}"


def document(schema: str, content: dict[str, Any]) -> dict[str, Any]:
    """A whole document: its schema's name, this package's version, and the content."""
    from importlib.metadata import version  # takes as long as importing this package: only where a document is made

    return {"schema": schema_of(schema), "version": version("mha-convert"), **content}


def error_document(kind: str, message: str) -> dict[str, Any]:
    """What ``--json`` prints where there is no result; ``kind`` is the error's class."""
    return document("error", {"error": {"kind": kind, "message": message}})
