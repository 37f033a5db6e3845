"""LIKE: patterns of SQL, with a limit on the work that they take."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Truth = bool | None
"""True, False or unknown."""
MAX_PATTERN_CHARS = 256
MAX_LIKE_WORK = 1 << 18
"""The most characters that the search for one piece of a pattern compares, about half a millisecond of work."""
FOUND_AT_ONCE = 16
"""A search for a piece without "_" goes through so many characters in the time of one comparison."""
TOO_LONG = -2
ANY = ""
"""Stands for any character in a piece."""
_NO_PATTERN = re.compile("")


class _Piece:
    """A part of a LIKE pattern between two "%"."""

    __slots__ = ("_core", "_lead", "_literal", "_size")

    def __init__(self, characters: Sequence[str]) -> None:
        given = [at for at, one in enumerate(characters) if one != ANY]
        self._size = len(characters)
        self._lead = given[0] if given else 0
        core = characters[self._lead : given[-1] + 1] if given else []  # from the first to the last given one
        self._literal = None if ANY in core else "".join(core)
        self._core = _NO_PATTERN if self._literal is not None else _expression(core)

    @property
    def compared(self) -> float:
        """The characters that a search compares for each character of the text."""
        return 1 / FOUND_AT_ONCE if self._literal is not None else self._size

    def end(self, text: str, start: int, stop: int) -> int:
        """Returns where its first match between ``start`` and ``stop`` ends; -1 if there is none, ``TOO_LONG`` if to
        find out would take too long."""
        places = stop - start - self._size + 1
        if places <= 0:
            return -1
        first, last = start + self._lead, stop - self._size + self._lead
        if self._literal is not None:
            at = text.find(self._literal, first, last + len(self._literal))
        elif places * self._size > MAX_LIKE_WORK:
            return TOO_LONG
        else:
            found = self._core.search(text, first, stop)
            at = -1 if found is None or found.start() > last else found.start()
        return -1 if at < 0 else at - self._lead + self._size


def _expression(characters: Sequence[str]) -> re.Pattern[str]:
    return re.compile("".join("." if one == ANY else re.escape(one) for one in characters), re.DOTALL)


def _anchored(characters: Sequence[str]) -> Callable[[str, int], object]:
    """Returns a test whether a text has these characters at a place."""
    if ANY in characters:
        return _expression(characters).match
    literal = "".join(characters)
    return lambda text, at: text.startswith(literal, at)


class LikePattern:
    """A LIKE pattern. ValueError says what is wrong with it.

    The piece before the first "%" must match at the start, and the piece after the last "%" at the end. Each piece
    between is taken at its first match, for no later match could be better. So the test does not backtrack. A search
    for a piece takes time in proportion to the text, if it has no "_" between other characters. Where it has one, the
    time is limited: a text for which ``MAX_LIKE_WORK`` does not do is unknown (None).
    """

    __slots__ = ("compared", "test")

    def __init__(self, pattern: str, escape: str | None) -> None:
        pieces = _pieces(pattern, escape)
        middle = [_Piece(piece) for piece in pieces[1:-1] if piece]
        self.compared = max((piece.compared for piece in middle), default=0.0)
        """The characters that a test compares for each character of the text, at most."""
        self.test = _test(pieces, middle)
        """Tells whether a text is like the pattern."""

    def work(self, text: str) -> int:
        """Returns how many characters a test of this text may compare."""
        return int(len(text) * self.compared)


def _pieces(pattern: str, escape: str | None) -> list[list[str]]:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"the LIKE pattern has {len(pattern)} characters, {MAX_PATTERN_CHARS} are allowed")
    if escape is not None and len(escape) != 1:
        raise ValueError("ESCAPE takes one character")
    pieces: list[list[str]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, "")
            if escaped not in ("%", "_", escape):
                raise ValueError(f"{escape!a} must stand before %, _ or itself in the LIKE pattern")
            pieces[-1].append(escaped)
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(ANY if character == "_" else character)
    return pieces


def _test(pieces: Sequence[Sequence[str]], middle: Sequence[_Piece]) -> Callable[[str], Truth]:
    head, tail, head_chars, tail_chars = _anchored(pieces[0]), _anchored(pieces[-1]), len(pieces[0]), len(pieces[-1])
    if len(pieces) == 1:
        return lambda text: len(text) == head_chars and bool(head(text, 0))

    def test(text: str) -> Truth:
        stop = len(text) - tail_chars
        if stop < head_chars or not head(text, 0) or not tail(text, stop):
            return False
        at = head_chars
        for piece in middle:
            at = piece.end(text, at, stop)
            if at < 0:
                return None if at == TOO_LONG else False
        return True

    return test
