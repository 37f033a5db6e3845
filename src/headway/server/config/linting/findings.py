"""Findings: doubtful places of a valid config, each with its line, what is wrong there, and what to do."""

from __future__ import annotations

import re
from typing import NamedTuple


class Finding(NamedTuple):
    """One finding."""

    key: str
    """The key, or the policy and the rule."""
    text: str
    """The fault, and the remedy."""
    line: int | None = None
    """The line of the file, from 1; None: it is not known."""

    def __str__(self) -> str:
        return f"{'' if self.line is None else f'line {self.line}: '}{self.key}: {self.text}"


class Lines:
    """Finds the line of a policy, a rule, or a key in the text of a file. TOML's own reader does not tell lines."""

    def __init__(self, text: str) -> None:
        self._found: dict[tuple[str, int, int, str], int] = {}
        """By table, its number, the number of the rule (0: none), and the key (empty: the header)."""
        table, numbers, rule, quotes = "", {"policy": 0, "trial": 0, "topic": 0, "permission": 0, "limit": 0}, 0, ""
        for number, line in enumerate(text.splitlines(), 1):
            if quotes:
                quotes = "" if quotes in line else quotes
                continue
            header = _HEADER.match(line)
            if header is not None:
                table = re.sub(r"[\s\"']", "", header[2])
                if header[1] == "[[":
                    rule = rule + 1 if table.endswith(".rule") else 0
                    if table in numbers:
                        numbers[table] += 1
                self._put(table, numbers, rule, "", number)
                continue
            key = _KEY.match(line)
            if key is not None:
                self._put(table, numbers, rule, key[1].strip("\"'"), number)
            quotes = next((mark for mark in ('"""', "'''") if line.count(mark) % 2), "")

    def _put(self, table: str, numbers: dict[str, int], rule: int, key: str, line: int) -> None:
        name = table.removesuffix(".rule")
        self._found.setdefault((name, numbers.get(name, 0), rule if table != name else 0, key), line)

    def policy(self, policy: int, rule: int = 0, key: str = "", kind: str = "policy") -> int | None:
        """Returns the line of a policy (or trial: ``kind``), of one of its rules, or of a key in either; numbers are
        from 1. None: the file has them in another form."""
        return self._first((kind, policy, rule, key), (kind, policy, rule, ""), (kind, policy, 0, ""))

    def key(self, table: str, key: str = "", number: int = 0) -> int | None:
        """Returns the line of a key, or of its table; ``number``: of a table in double brackets, from 1."""
        return self._first((table, number, 0, key), (table, number, 0, ""))

    def _first(self, *places: tuple[str, int, int, str]) -> int | None:
        return next((self._found[place] for place in places if place in self._found), None)


_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*(\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+)\s*=")
