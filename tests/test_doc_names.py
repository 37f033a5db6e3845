"""The glossary, the pages on the project and the sources name files, folders, classes and functions that exist."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / f"{name}.md"
         for name in ("GLOSSARY", "ARCHITECTURE", "WAYS", "TURN", "DECISIONS", "EXTENDING")]  # fmt: skip
SOURCES = [path for top in ("src", "tests", "examples", "bench", "demo") for path in (ROOT / top).rglob("*.py")]
PATHS = {path.relative_to(ROOT).as_posix() for path in SOURCES}
PATHS |= {parent.relative_to(ROOT).as_posix() for path in SOURCES for parent in path.parents if ROOT in parent.parents}
ELSEWHERE = {"DataFrame", "Protocol", "CONNACK", "DISCONNECT", "PUBLISH"}
"""Names that are not Headway's own."""


def spans(text: str) -> list[str]:
    """Texts in backticks, without blocks of code."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def paths(text: str) -> set[str]:
    """Files and folders in backticks; NAME stands for any protocol."""
    found = {span for span in spans(text) if re.fullmatch(r"[\w./]+(\.py|/)", span)}
    return {path.replace("NAME", "mqtt") for path in found}


def names(text: str) -> set[str]:
    """Dotted names in backticks that begin with a class."""
    return {span.removesuffix("()") for span in spans(text) if re.fullmatch(r"_?[A-Z]\w*[a-z]\w*(\.\w+)*(\(\))?", span)}


def is_there(path: str) -> bool:
    return any(one == path.rstrip("/") or one.endswith("/" + path.rstrip("/")) for one in PATHS)


def undefined(wanted: set[str]) -> set[str]:
    """Those that are no class, function, attribute or variable of the sources. Only files that have one of them in
    their text are parsed: to parse all takes eight seconds."""
    missing = wanted - ELSEWHERE - set(dir(builtins))
    for path in SOURCES:
        text = path.read_text()
        if missing.isdisjoint(re.findall(r"\w+", text)):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                missing.discard(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                missing.discard(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                missing.discard(node.attr)
    return missing


def test_every_file_that_a_docstring_or_a_comment_names_exists() -> None:
    gone = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"(?<![\w/.])((?:\w+/)*\w+\.py)\b", path.read_text()) if not is_there(name)
    }
    assert not gone


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = paths(page.read_text())
    assert len(named) > (20 if page.stem in ("GLOSSARY", "ARCHITECTURE") else 4)
    assert not sorted(path for path in named if not is_there(path))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_that_a_page_gives_is_defined(page: Path) -> None:
    missing = undefined({part for name in names(page.read_text()) for part in name.split(".")})
    assert not sorted(missing)


@pytest.mark.parametrize(
    ("text", "files", "classes"),
    [
        ("| `core/log/lanes/lane.py` | `Lane.append` and `NOT_ONE` |", {"core/log/lanes/lane.py"}, {"Lane.append"}),
        ("`wire/NAME/codec.py`, `store/journal/`, `evaluate`", {"wire/mqtt/codec.py", "store/journal/"}, set()),
        ("```\n`Gone` `gone.py`\n```\n`Journal()`", set(), {"Journal"}),
    ],
)
def test_what_counts_as_a_name(text: str, files: set[str], classes: set[str]) -> None:
    assert paths(text) == files
    assert names(text) == classes
