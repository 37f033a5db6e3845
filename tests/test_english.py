"""Docstrings open with the name of the thing, or with what it does: none with a riddle's first word.

``RIDDLES_MAX`` is how many of each floor still do. It may only be lowered.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
from tests.test_floors import FILES, FLOORS, without_expressions

OPENER = re.compile(r"(who|whom|whose|whoever|what|whatever|of|nobody|nothing|it|its)\b", re.IGNORECASE)
RIDDLES_MAX: dict[str, int] = {}
"""By floor; a floor that is not named has none."""


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every string that stands as a statement, with its line: of files, classes, functions, and attributes."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        waiting.extend(without_expressions(node))
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for statement in node.body:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value


@cache
def riddles() -> dict[str, list[str]]:
    """The docstrings with such an opener, by floor."""
    found: dict[str, list[str]] = {}
    for file, path in FILES.items():
        for line, text in docstrings(ast.parse(path.read_text())):
            if OPENER.match(text.strip()):
                found.setdefault(file.partition(".")[0], []).append(f"{path}:{line}: {text.strip().splitlines()[0]}")
    return found


@pytest.mark.parametrize("floor", FLOORS)
def test_docstrings_name_the_thing_first(floor: str) -> None:
    found, most = riddles().get(floor, []), RIDDLES_MAX.get(floor, 0)
    assert len(found) <= most, f"{len(found)} docstrings of {floor} open with a riddle:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('"""What it is."""', 1),
        ('def f():\n    """Of the first one."""', 1),
        ('class A:\n    size: int\n    """Its size."""', 1),
        ('class A:\n    """Whoever\n    comes."""\n    def f(self):\n        """nobody"""', 2),
        ('"""Items of it."""\ndef f():\n    """Whole."""\n    return "Who"', 0),
    ],
)
def test_a_riddle_is_found(source: str, count: int) -> None:
    assert Counter(bool(OPENER.match(text)) for _, text in docstrings(ast.parse(source)))[True] == count
