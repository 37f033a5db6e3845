"""Changes: every small fault that can be put into a file of the core, one at a time.

Three kinds, chosen because each is a mistake that a person makes:

- *comparison*: ``<`` becomes ``<=``, ``==`` becomes ``!=``, ``in`` becomes ``not in`` …
- *condition*: what an ``if``, a ``while`` or a conditional expression asks is turned round; ``and`` becomes ``or``.
- *dropped*: a statement that stands for itself (a call, an assignment to an attribute or an item, ``+=``, ``del``) is
  not done.

Only bodies of functions are changed. What the interpreter never runs (``if TYPE_CHECKING:``), and what only checks
(``assert``), is left alone.
"""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

OTHER_WAY: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}  # fmt: skip


class Change(NamedTuple):
    """``file``: from character ``start`` to ``stop`` of it stands ``new`` instead of ``old``."""

    file: Path
    kind: str
    line: int
    start: int
    stop: int
    old: str
    new: str
    within: str
    """The line it stands in."""

    def applied(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.stop :]

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file.name}:{self.line} {self.kind}: {old}  ->  {new}"


class _Source:
    """A file, and where in it the nodes of its tree stand."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.text = file.read_text()
        self.tree = ast.parse(self.text)
        self._lines = [0]
        for line in self.text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._place(node.lineno, node.col_offset)

    def stop(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._place(node.end_lineno, node.end_col_offset)

    def _place(self, line: int, column: int) -> int:
        """``column`` counts bytes, and a line may hold letters of more than one."""
        begin = self._lines[line - 1]
        text = self.text[begin : self._lines[line]]
        return begin + len(text.encode()[:column].decode())

    def change(self, kind: str, line: int, start: int, stop: int, new: str) -> Change:
        within = self.text[self._lines[line - 1] : self._lines[line]].strip()
        return Change(self.file, kind, line, start, stop, self.text[start:stop], new, within)


def changes(file: Path) -> list[Change]:
    """All that can be made in a file, in the order in which they stand there."""
    source = _Source(file)
    found = [change for function in _functions(source.tree) for change in _within(source, function)]
    return sorted(set(found), key=lambda change: (change.start, change.kind))


def chosen_of(all_there_are: list[Change], count: int, seed: int) -> list[Change]:
    """Some of them, by chance. A change in the source moves no other one in or out: what a seed chooses can be compared
    with what it chose before."""
    often: Counter[tuple[str, ...]] = Counter()
    lots: list[tuple[float, Change]] = []
    for change in all_there_are:
        name = change.file.name, change.within, change.old, change.new
        often[name] += 1
        lots.append((random.Random(f"{seed} {name} {often[name]}").random(), change))
    return [change for _, change in sorted(lots)[:count]]


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node


def _within(source: _Source, function: ast.FunctionDef) -> Iterator[Change]:
    for node in [node for statement in function.body for node in _but_asserts(statement)]:
        if isinstance(node, ast.Compare):
            yield from _comparison(source, node)
        elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
            yield from _condition(source, node.test)
        elif isinstance(node, ast.BoolOp):
            yield from _either(source, node)
        elif isinstance(node, ast.stmt) and _stands_alone(node):
            yield source.change("dropped", node.lineno, source.start(node), source.stop(node), "pass")


def _but_asserts(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.Assert):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _but_asserts(child)


def _comparison(source: _Source, node: ast.Compare) -> Iterator[Change]:
    if len(node.ops) != 1:
        return
    old, new = OTHER_WAY[type(node.ops[0])]
    begin, end = source.stop(node.left), source.start(node.comparators[0])
    pattern = r"\b" + old.replace(" ", r"\s+") + r"\b" if old[0].isalpha() else re.escape(old)
    at = re.search(pattern, source.text[begin:end])
    if at is not None:
        yield source.change("comparison", node.lineno, begin + at.start(), begin + at.end(), new)


def _condition(source: _Source, test: ast.expr) -> Iterator[Change]:
    if isinstance(test, ast.Constant):
        return
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        return  # the comparison turned round is the same
    start, stop = source.start(test), source.stop(test)
    yield source.change("condition", test.lineno, start, stop, f"(not ({source.text[start:stop]}))")


def _either(source: _Source, node: ast.BoolOp) -> Iterator[Change]:
    old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    for left, right in zip(node.values, node.values[1:], strict=False):
        begin, end = source.stop(left), source.start(right)
        at = re.search(rf"\b{old}\b", source.text[begin:end])
        if at is not None:
            yield source.change("condition", node.lineno, begin + at.start(), begin + at.end(), new)


def _stands_alone(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Delete():
            return True
        case ast.Assign(targets):  # a plain name would be missed at once
            return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets)
    return False
