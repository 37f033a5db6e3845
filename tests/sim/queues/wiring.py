"""Where a record should go, by the plainest means: regular expressions and no memory. Knows only what was declared."""

from __future__ import annotations

import re
from typing import NamedTuple

TOPICS = "amq.topic"
PREDECLARED = {"": "direct", "amq.direct": "direct", "amq.fanout": "fanout", TOPICS: "topic", "amq.headers": "headers"}


class Tie(NamedTuple):
    """A binding. ``to``: ("queue", name) or ("exchange", name). ``wanted``: of a headers exchange."""

    source: str
    to: tuple[str, str]
    key: str
    wanted: tuple[tuple[str, object], ...] = ()


class Hub:
    """An exchange."""

    def __init__(self, kind: str, *, auto_delete: bool = False, alternate: str | None = None) -> None:
        self.kind = kind
        self.auto_delete = auto_delete
        self.alternate = alternate
        self.ties: dict[Tie, None] = {}


class Wiring:
    def __init__(self) -> None:
        self.hubs = {name: Hub(kind) for name, kind in PREDECLARED.items()}
        self.queues: dict[str, None] = {}

    def tie(self, tie: Tie) -> None:
        self.hubs[tie.source].ties[tie] = None

    def untie(self, tie: Tie) -> None:
        hub = self.hubs.get(tie.source)
        if hub is None or tie not in hub.ties:
            return
        del hub.ties[tie]
        if hub.auto_delete and not hub.ties:
            self.remove(tie.source)

    def remove(self, name: str) -> None:
        """An exchange."""
        del self.hubs[name]
        self._forget(("exchange", name))

    def remove_queue(self, name: str) -> None:
        self.queues.pop(name, None)
        self._forget(("queue", name))

    def _forget(self, to: tuple[str, str]) -> None:
        for hub in list(self.hubs.values()):
            for tie in [tie for tie in hub.ties if tie.to == to]:
                self.untie(tie)

    def all(self) -> list[Tie]:
        return [tie for hub in self.hubs.values() for tie in hub.ties]

    def reaches(self, exchange: str, key: str, headers: dict[str, object]) -> set[str]:
        """The names of the queues that get it."""
        found: set[str] = set()
        seen: set[str] = set()
        waiting = [exchange]
        while waiting:
            name = waiting.pop()
            hub = self.hubs.get(name)
            if hub is None or name in seen:
                continue
            seen.add(name)
            if not name:
                ways = [("queue", key)] if key in self.queues else []
            else:
                ways = [tie.to for tie in hub.ties if _fits(hub.kind, tie, key, headers)]
            found |= {to for kind, to in ways if kind == "queue"}
            waiting += [to for kind, to in ways if kind == "exchange"]
            if not ways and hub.alternate is not None and name != TOPICS:
                waiting.append(hub.alternate)
        return found


def _fits(kind: str, tie: Tie, key: str, headers: dict[str, object]) -> bool:
    if kind == "fanout":
        return True
    if kind == "direct":
        return tie.key == key
    if kind == "topic":
        wild = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
        words = [wild.get(word, re.escape(word) + r"\.") for word in tie.key.split(".")]
        return re.fullmatch("".join(words), key + ".") is not None
    wanted = dict(tie.wanted)
    some = wanted.pop("x-match", "all") == "any"
    found = [name in headers and headers[name] == value for name, value in wanted.items()]
    return any(found) if some else all(found)
