"""JSON text as plain data, within bounds: nothing too long, too deep, or with two values for one name."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...errors import ReadError, reason, shortened
from ...files.limits import Limits, way_on
from ...files.small_files import read_small
from ...files.source import Source

Json = Mapping[str, Any]


def parse_json(text: str | bytes, source: Source, member: str) -> dict[str, Any]:
    """One JSON object out of ``text``; anything else is a ``ReadError``."""
    document = json_value(text, f"{source}: {member}", "Save the model again", source.limits)
    if not isinstance(document, dict):
        raise ReadError(f"{source}: {member} holds {kind_of(document)}, not an object. Save the model again.")
    return document


def json_value(text: str | bytes, subject: str, next_step: str, limits: Limits) -> Any:
    """Any JSON value, in UTF-8 as Keras writes it, without two values for one name, and not too deep."""
    too_deep = f"{subject} is nested more than {limits.json_depth} deep. {way_on(limits)}."
    try:
        value = json.loads(text if isinstance(text, str) else text.decode("utf-8"), object_pairs_hook=unambiguous)
    except RecursionError as error:
        raise ReadError(too_deep) from error
    except UnicodeDecodeError as error:
        raise ReadError(f"{subject} is not UTF-8 text from byte {error.start} on. {next_step}.") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ReadError(f"{subject} is not valid JSON from {where} on. {next_step}.") from error
    except AmbiguousError as error:
        raise ReadError(f"{subject} is not valid JSON: {error}. {next_step}.") from error
    except ValueError as error:
        raise ReadError(f"{subject} holds a number with more digits than any size has. {next_step}.") from error
    if depth_of(value, limits.json_depth) > limits.json_depth:
        raise ReadError(too_deep)
    return value


class AmbiguousError(ValueError):
    """An object in JSON with two values for one name."""


def unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """One JSON object; ``AmbiguousError`` where a name is in it twice, as readers take different ones."""
    found = dict(pairs)
    if len(found) < len(pairs):
        name, times = Counter(name for name, _ in pairs).most_common(1)[0]
        raise AmbiguousError(f"an object has '{shortened(name, 40)}' {times} times")
    return found


def kind_of(value: Any) -> str:
    """What JSON calls a value."""
    kinds = {type(None): "null", bool: "a truth value", str: "a text", list: "a list", dict: "an object"}
    return kinds.get(type(value), "a number")


def depth_of(value: Any, most: int) -> int:
    """Objects and lists in one another; counted no further than just beyond ``most``."""
    depth, level = 0, [value]
    while level and depth <= most:
        inner = [item for item in level if isinstance(item, (dict, list))]
        level = [part for item in inner for part in (item.values() if isinstance(item, dict) else item)]
        depth += bool(inner)
    return depth


def json_file(source: Source) -> bytes:
    """The content of a file of JSON, bounded."""
    try:
        return read_small(source, source.limits.json, "JSON", way_on(source.limits))
    except OSError as error:
        raise ReadError(f"{source} cannot be read: {reason(error)}. Check the path, or copy it again.") from error


def mapping(value: Any) -> Json:
    """``value`` where it is an object, an empty one where it is anything else."""
    return value if isinstance(value, dict) else {}
