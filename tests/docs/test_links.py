"""Links between pages lead to files and headings that exist, and every page is reached from docs/README.md."""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("src", "tests", "examples", "bench", "demo", "packaging")
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(page for top in FOLDERS for page in (ROOT / top).rglob("*.md"))]
KINDS = {".py", ".js", ".html", ".toml", ".yml", ".json", ".service"}
SOURCES = [path for top in FOLDERS for path in (ROOT / top).rglob("*")
           if path.suffix in KINDS or path.name == "Dockerfile"]  # fmt: skip
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"(?<![\w/.-])(?:\.\./)*(docs/[\w./-]+\.(?:md|toml|ipynb)(?:#[\w-]+)?)")
BARE = re.compile(r"(?<![\w/.-])([A-Z][A-Z0-9_-]{2,}\.md(?:#[\w-]+)?)(?![\w/])")
"""A page of docs by its name alone, as messages and comments name it."""


def slug(heading: str) -> str:
    """Returns the anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ +(.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        found[slug(heading)] = found.get(slug(heading), 0) + 1
    return frozenset(f"{name}-{number}" if number else name for name, count in found.items() for number in range(count))


def leads_nowhere(link: str, base: Path) -> bool:
    """True if a link, relative to a file, names no file or no heading of it."""
    if re.match(r"[a-z]+:", link):
        return False
    path, _, anchor = link.partition("#")
    target = (base.parent / unquote(path)).resolve() if path else base
    if not target.exists():
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors(target)


def links(page: Path) -> list[str]:
    return LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert [link for link in links(page) if leads_nowhere(link, page)] == []


def test_links_of_the_notebook_and_of_the_statements_lead_somewhere() -> None:
    cells = json.loads((DOCS / "topic-to-answer.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "".join(line for cell in cells if cell["cell_type"] == "markdown" for line in cell["source"])
    assert [link for link in LINK.findall(text) if leads_nowhere(link, DOCS / "README.md")] == []
    systems = tomllib.loads((DOCS / "five-systems.toml").read_text(encoding="utf-8"))
    said = "".join(one["says"] + one["here"] for statements in systems.values() for one in statements)
    assert [link for link in LINK.findall(said) if leads_nowhere(link, DOCS / "five-systems" / "XAP.md")] == []


def test_pages_that_sources_name_exist() -> None:
    known = {page.name for page in PAGES} | {"PAGE.md"}
    missing = set()
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        named = {name for name in NAMED.findall(text) if leads_nowhere(name, ROOT / "README.md")}
        named |= {name for name in BARE.findall(text) if name.partition("#")[0] not in known}
        missing |= {f"{path.relative_to(ROOT)}: {name}" for name in named}
    assert not missing


def test_every_page_is_reached_from_the_first() -> None:
    reached: set[Path] = set()
    waiting = [DOCS / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        targets = [link.partition("#")[0] for link in links(page) if not re.match(r"[a-z]+:", link)]
        waiting += [(page.parent / target).resolve() for target in targets if target]
    assert sorted(set(DOCS.rglob("*.md")) - reached) == []


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("`[listeners.NAME.tls]`", "listenersnametls"),
        ("Browsers: WebSocket", "browsers-websocket"),
        ("Where we differ from the design page, and why", "where-we-differ-from-the-design-page-and-why"),
    ],
)
def test_what_anchor_a_heading_has(heading: str, anchor: str) -> None:
    assert slug(heading) == anchor
