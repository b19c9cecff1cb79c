"""Statements that fit the page: what is too long is broken at its brackets, as ``ruff format`` breaks it."""

from collections.abc import Iterator

WIDTH = 100
INDENT = "    "
OPENING, CLOSING = "([{", ")]}"
OPERATORS = (" + ", " - ", " * ", " & ", " | ")


def fitted(statement: str, depth: int) -> list[str]:
    """The lines of one statement, ``depth`` levels deep."""
    line = f"{INDENT * depth}{statement}"
    if len(line) <= WIDTH:
        return [line]
    returned = split(statement.removeprefix("return "), ",") if statement.startswith("return ") else []
    if len(returned) > 1:
        parts = [line for part in returned for line in fitted(f"{part.strip()},", depth + 1)]
        return [f"{INDENT * depth}return (", *parts, f"{INDENT * depth})"]
    head, inside, tail = last_bracket(statement)
    if inside is None:
        return in_parentheses(statement, depth)
    whole = f"{INDENT * (depth + 1)}{inside}"
    parts = split(inside, ",")
    # A trailing comma would make a tuple of one expression in plain parentheses.
    is_call = head[-2:-1].isidentifier() or head[-2:-1] in (")", "]") or len(parts) > 1 or not head.endswith("(")
    body = (
        [whole]
        if len(whole) <= WIDTH
        else [line for part in parts for line in fitted(part.strip() + ("," if is_call else ""), depth + 1)]
    )
    return [*fitted(head, depth), *body, f"{INDENT * depth}{tail}"]


def last_bracket(statement: str) -> tuple[str, str | None, str]:
    """The text up to the last bracket that is open at the outermost level, what is in it, and the rest."""
    opened, place, spans = 0, 0, []
    for index, letter in code(statement):
        if letter in OPENING:
            opened += 1
            place = index if opened == 1 else place
        elif letter in CLOSING:
            opened -= 1
            if opened == 0:
                spans.append((place, index))
    wide = [(start, end) for start, end in spans if end - start > 1]
    if not wide:
        return statement, None, ""
    start, end = max(wide, key=lambda span: (span[1] - span[0] > WIDTH // 2, span))
    return statement[: start + 1], statement[start + 1 : end], statement[end:]


def in_parentheses(statement: str, depth: int) -> list[str]:
    """A sum or the like without brackets, one operand a line."""
    target, sign, value = statement.partition(" = ")
    if not sign:
        target, sign, value = (
            ("return", " ", statement.removeprefix("return ")) if statement.startswith("return ") else ("", "", "")
        )
    operands = [part for operator in OPERATORS if operator in value for part in operands_of(value, operator)]
    elements = [part.strip() for part in split(value, ",")]
    if not operands and len(elements) > 1:
        operands = [f"{element}," for element in elements]
    if not sign or not operands:
        return [f"{INDENT * depth}{statement}"]
    return [
        f"{INDENT * depth}{target}{sign}(",
        *(f"{INDENT * (depth + 1)}{part}" for part in operands),
        f"{INDENT * depth})",
    ]


def operands_of(value: str, operator: str) -> list[str]:
    """The operands of one operator, each but the first behind it."""
    first, *others = value.split(operator)
    return [first, *(f"{operator.strip()} {part}" for part in others)]


def split(text: str, separator: str) -> list[str]:
    """Parts between separators that are in no bracket."""
    parts, start, opened = [], 0, 0
    for index, letter in code(text):
        opened += (letter in OPENING) - (letter in CLOSING)
        if letter == separator and not opened:
            parts.append(text[start:index])
            start = index + 1
    return [part for part in (*parts, text[start:]) if part.strip()]


def code(text: str) -> Iterator[tuple[int, str]]:
    """Letters that are in no text literal, with their places."""
    quote, skipped = "", False
    for index, letter in enumerate(text):
        if quote:
            is_end = letter == quote and not skipped
            skipped = letter == "\\" and not skipped
            quote = "" if is_end else quote
        elif letter in "'\"":
            quote = letter
        else:
            yield index, letter
