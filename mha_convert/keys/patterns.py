"""Patterns with stars, matched in a time that grows with pattern times text and never explodes.

A regular expression with many stars can take for ever on a text that it does not match, and patterns come from files of
rules, also of strangers. Here the places of the text from which the rest of a pattern matches are the bits of one
number, found for one token after the other from the pattern's end; the numbers are those of the places from the text's
end, so that a run of characters is passed over by one addition.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter


@dataclass(frozen=True, slots=True)
class Star:
    """What a star stands for: at least so many characters, any but ``stops``; or with ``levels`` whole levels.

    ``levels`` is a character: the star then stands for nothing, or for anything that ends in that character.
    """

    least: int = 0
    stops: str = ""
    levels: str = ""


Token = str | Star


@dataclass(frozen=True, slots=True)
class Pattern:
    """Literal texts and stars, in their order."""

    tokens: tuple[Token, ...]

    def fits(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        return self.may_match(text) and self.sets(text, places_of(text)) is not None

    def match(self, text: str) -> tuple[str, ...] | None:
        """What each star stands for where the pattern matches the whole text, else None.

        The first star takes as much as it can, then the second, …, as in a regular expression.
        """
        if not self.may_match(text):
            return None
        places = places_of(text)
        sets = self.sets(text, places)
        if sets is None:
            return None
        at, found = 0, []
        for token, rest in zip(self.tokens, sets[1:], strict=True):
            end = at + len(token) if isinstance(token, str) else farthest(token, text, at, rest, places)
            found += [] if isinstance(token, str) else [text[at:end]]
            at = end
        return tuple(found)

    def may_match(self, text: str) -> bool:
        """A quick no for most texts: by the beginning, and by the length."""
        first = self.tokens[0] if self.tokens else ""
        if isinstance(first, str) and not text.startswith(first):
            return False
        return sum(len(token) if isinstance(token, str) else token.least for token in self.tokens) <= len(text)

    def sets(self, text: str, places: Mapping[str, int]) -> list[int] | None:
        """For each token, and for the end, the places from which the rest of the pattern matches; None for no match.

        Bit ``n`` stands for the place with ``n`` characters of the text after it.
        """
        found = [1]
        for token in reversed(self.tokens):
            found.append(before(token, found[-1], len(text), places))
            if not found[-1]:
                return None
        found.reverse()
        return found if found[0] >> len(text) & 1 else None


def compiled(text: str, stars: Mapping[str, Star]) -> Pattern:
    """A pattern as it is written, with its stars by what they are called: ``*``, ``**``, ``**/``."""
    names = sorted(stars, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, names))})", text) if names else [text]
    return Pattern(tuple(stars.get(part, part) for part in parts if part))


def places_of(text: str) -> dict[str, int]:
    """The places where each character stands."""
    size = len(text)
    ordered = sorted(zip(text, range(size), strict=True), key=itemgetter(0))
    found = {}
    for character, items in groupby(ordered, key=itemgetter(0)):
        digits = bytearray(b"0") * (size + 1)
        for _, place in items:
            digits[place] = ord("1")
        found[character] = int(digits, 2)
    return found


def before(token: Token, rest: int, size: int, places: Mapping[str, int]) -> int:
    """The places from which the token leads to a place of ``rest``."""
    if isinstance(token, str):
        for character in reversed(token):
            rest = rest << 1 & places.get(character, 0)
        return rest
    if token.levels:
        return rest | from_lowest(rest << 1 & places.get(token.levels, 0), size)
    if not token.stops:
        return from_lowest(rest << token.least, size)
    passed = (1 << size + 1) - 2  # characters that the star may stand for
    for character in token.stops:
        passed &= ~places.get(character, 0)
    starts = rest << 1 & passed
    ran = ((starts + passed) ^ passed | starts) & passed  # the carry runs through all that may be passed
    return ran | (0 if token.least else rest)


def from_lowest(places: int, size: int) -> int:
    """The lowest place and all above it."""
    return -(places & -places) & (1 << size + 1) - 1


def farthest(star: Star, text: str, at: int, rest: int, places: Mapping[str, int]) -> int:
    """Where the star ends that begins at ``at``: the farthest place from which the rest matches."""
    size = len(text)
    if star.levels:
        rest &= places.get(star.levels, 0) >> 1 | 1 << size - at  # after that character, or nowhere
    limit = min((end for stop in star.stops if (end := text.find(stop, at)) >= 0), default=size)
    reached = rest >> size - limit
    return limit - (reached & -reached).bit_length() + 1
