"""Listeners in the making.

Rules:
- The registry says which schemes there are. A listener of another protocol has no counterpart.
- Beyond this machine a listener lets clients in without a name only if the other system certainly did. If that asked
  for a name, and nothing here can check it, or if it kept clients out in a way that is not understood, the listener is
  on loopback until somebody has looked.
- A certificate is a login only if it was one there.
- A listener with TLS whose certificates cannot be used here is written as a comment, for the file would be refused.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headway.core.base import ConfigError, parse_share, parse_size
from headway.core.message import covers, spellings
from headway.migration.formats import Node
from headway.migration.hiding import hide
from headway.server.config import TOPIC_POOLS_MAX, TlsTable, Url, load_tls
from headway.server.protocols import SCHEMES
from headway.store.toml import toml_key, value

# -- tables ------------------------------------------------------------------------------------------------------------
#
# Tables of the config in the making: keys with their values, and a comment that names the source of each.


WIDTH = 40
"""Column where comments begin, if the line is not longer."""
COMMENT_CHARS_MAX = 400


class Keyed(NamedTuple):
    """A value and its source."""

    value: Any
    source: str
    off: bool = False
    """Whether it is written as a comment, because it cannot hold on this machine."""


def said(node: Node, note: str = "") -> str:
    """Returns the comment of a key: the place, the setting as it was written, and a note."""
    text = f' "{node.shown}"' if node.text else ""
    return f"{node.where} {node.label}{text}{'; ' if note else ''}{note}"


def comment(text: str) -> str:
    """Returns a text as one line that cannot end a comment."""
    line = "".join(char if char.isprintable() else " " for char in " ".join(text.replace("`", "").split()))
    return f"# {line if len(line) <= COMMENT_CHARS_MAX else line[: COMMENT_CHARS_MAX - 3] + '...'}"


def key_line(key: str, item: Keyed) -> str:
    line = f"{'# ' if item.off else ''}{toml_key(key)} = {value(item.value)}"
    return f"{line:<{WIDTH}} {comment(item.source)}" if item.source else line


def table_text(header: str, keys: dict[str, Keyed]) -> str:
    """Writes a table. ``header`` has its brackets."""
    return "\n".join([header, *(key_line(key, item) for key, item in keys.items())]) + "\n"


def commented(text: str) -> str:
    """Turns the lines of a table into comments."""
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


# -- listeners ---------------------------------------------------------------------------------------------------------


EVERYWHERE = ("", "*", "0.0.0.0")
_NAME = re.compile(r"[^A-Za-z0-9_-]+")


class ListenerDraft:
    """A listener with its tables."""

    def __init__(self, name: str, scheme: str, host: str, port: int, source: str) -> None:
        self.name = _NAME.sub("-", name).strip("-")[:60] or scheme
        self.scheme = scheme
        self.host = "0.0.0.0" if host in EVERYWHERE else host.strip("[]")
        self.port = port
        self.source = source
        self.keys: dict[str, Keyed] = {}
        self.lowest: dict[str, int] = {}
        """Limits that several settings lower, as numbers."""
        self.pool: dict[str, Keyed] = {}
        self.tls: dict[str, Keyed] = {}
        self.open: bool | None = None
        """Whether clients certainly need no name; None: as all listeners of the draft."""
        self.here = self.host
        """The host that is written: loopback if nobody here could keep out those that it keeps out there."""
        self.fault = ""
        """The reason why the listener is a comment; empty: it is none."""

    def put(self, key: str, item: Any, source: str) -> None:
        self.keys[key] = Keyed(item, source)

    @property
    def spoken(self) -> bool:
        return self.scheme in SCHEMES

    def place(self, *, open_: bool, checked: bool, closed: str) -> None:
        """Decides where it listens, and who may come in. ``open_``: clients need no name there; ``checked``: names are
        checked here; ``closed``: what keeps clients out there and is not understood."""
        open_ = not closed and (open_ if self.open is None else self.open)
        verify = self.tls.get("verify")
        if verify is not None and not open_ and "user" not in self.tls:
            self.tls["user"] = Keyed("none", "a certificate alone is no login there")
        user = self.tls.get("user")
        shown = verify is not None and verify.value == "required" and (user is None or user.value != "none")
        known = checked or shown
        if open_ and known:
            self.keys["allow_anonymous"] = Keyed(True, "as there: clients may connect without a name")
        elif not Url(self.scheme, self.here, self.port).loopback and (closed or not known):
            if open_:
                self.keys["allow_anonymous"] = Keyed(True, "as there: anybody may connect; safer: [auth.users]")
            else:
                self.here = "::1" if ":" in self.host else "127.0.0.1"
                until = f"{closed} is settled" if closed else "there are [auth.users]"
                self.source += f"; on {self.host} there: write that here once {until}"
        if SCHEMES[self.scheme].tls:
            self.fault = self._bad_tls()

    def _bad_tls(self) -> str:
        """Returns why the broker could not listen with these certificates; empty: it could."""
        if "certificate" not in self.tls:
            return "there is no certificate for it"
        if "verify" in self.tls and "ca" not in self.tls:
            return "there is no ca by which its clients' certificates are verified"
        try:
            load_tls(TlsTable.model_validate({key: item.value for key, item in self.tls.items()}), "tls", ())
        except (ConfigError, ValueError) as error:
            return hide(str(error).partition("\n")[0].removeprefix("tls."))
        return ""

    def text(self) -> str:
        """Writes its tables."""
        name = f"listeners.{toml_key(self.name)}"
        url = Keyed(str(Url(self.scheme, self.here, self.port)), self.source)
        text = table_text(f"[{name}]", {"url": url, **self.keys})
        for table, part in (("pool", self.pool), ("tls", self.tls)):
            if part:
                text += "\n" + table_text(f"[{name}.{table}]", part)
        return commented(text) if self.fault else text


def is_address(text: str) -> bool:
    """Tells whether a text can be the host of a listener: an address, or a name."""
    if text in EVERYWHERE:
        return True
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return re.fullmatch(r"(?![0-9.]+$)[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", text) is not None
    return True


# -- policies ----------------------------------------------------------------------------------------------------------
#
# Policies in the making, and their order in the file.
#
# Rules:
# - What another system says of the same topics in several places is one policy: here the first that covers a
#   subscription governs it alone.
# - Narrow policies stand before those that cover their topics.
# - Where there is any policy, one for all other topics stands last. It tells who takes nothing, and does nothing.


REST = "everything else"
TELL: Mapping[str, Any] = {"when": {"blocked_time": "30s"}, "then": "notify"}
"""The rule for consumers about which the other system says nothing."""


@dataclass(eq=False)
class PolicyDraft:
    """A policy with its rules. ``subscriptions``: ``transient``, ``durable`` or ``all``."""

    name: str
    topics: tuple[str, ...]
    subscriptions: str
    listeners: tuple[str, ...]
    source: str
    rules: list[Keyed] = field(default_factory=list)

    @property
    def place(self) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
        return self.topics, self.subscriptions, self.listeners

    def add(self, rule: Mapping[str, Any], source: str) -> None:
        """Adds a rule, unless it is there already."""
        if all(dict(rule) != one.value for one in self.rules):
            self.rules.append(Keyed(dict(rule), source))

    def narrower(self, other: PolicyDraft) -> bool:
        """Tells whether the other policy would hide this one."""
        if self.listeners != other.listeners:
            return bool(self.listeners) and not other.listeners
        return all(any(within(wide, topic) for wide in other.topics) for topic in self.topics)

    def text(self, faulty: Collection[str] = ()) -> str:
        """Writes its tables; as comments, if all of its listeners are comments. ``faulty`` are those that are."""
        listeners = [name for name in self.listeners if name not in faulty]
        keys = {"topics": Keyed(list(self.topics), "")}
        if self.subscriptions != "all":
            keys["subscriptions"] = Keyed(self.subscriptions, "")
        if self.listeners:
            keys["listeners"] = Keyed(listeners or list(self.listeners), "")
        blocks = [table_text("[[policy]]", {"name": Keyed(self.name, self.source), **keys})]
        for one in self.rules:
            lines = ["[[policy.rule]]", comment(one.source)]
            lines += [key_line(key, Keyed(item, "")) for key, item in one.value.items()]
            blocks.append("\n".join(lines) + "\n")
        text = "\n".join(blocks)
        return commented(text) if self.listeners and not listeners else text


def within(wide: str, topic: str) -> bool:
    """Tells whether a filter covers another as policies mean it: ``#`` covers queues, too, and ``$queue/+`` those with
    any name."""
    every = wide == "$queue/+" and topic.startswith("$queue/")
    return wide == "#" or every or any(covers(wide, one) for one in spellings(topic))


def ordered(policies: list[PolicyDraft]) -> list[PolicyDraft]:
    """Returns policies with rules, the narrow ones first, and one for everything else."""
    found: list[PolicyDraft] = []
    for policy in policies:
        if policy.rules:
            place = next((at for at, other in enumerate(found) if policy.narrower(other)), len(found))
            found.insert(place, policy)
    rest = uncovered(found)
    if found and rest:
        last = PolicyDraft(REST, ("#",), rest, (), "")
        last.add(TELL, "nothing is done to other consumers: it only tells")
        found.append(last)
    return found


def uncovered(policies: Iterable[PolicyDraft], listeners: tuple[str, ...] = ()) -> str:
    """Returns which subscriptions through these listeners no policy for all topics covers; empty: none."""
    kinds = {one.subscriptions for one in policies if one.rules and one.listeners == listeners and "#" in one.topics}
    if "all" in kinds or kinds == {"transient", "durable"}:
        return ""
    return next(iter({"transient", "durable"} - kinds)) if kinds else "all"


def rule(then: str | Mapping[str, Any], when: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Makes a rule. ``for`` is a keyword of Python, so it is written ``for_``."""
    named = {"name": more.pop("name")} if "name" in more else {}
    return {**named, "when": dict(when), **{key.rstrip("_"): item for key, item in more.items()}, "then": then}


def discard(which: str, **keep: Any) -> dict[str, Any]:
    """Makes the action ``discard``."""
    return {"action": "discard", "which": which, **keep}


# -- limits ------------------------------------------------------------------------------------------------------------
#
# Limits that depend on the machine: the memory of pools, and packets that fit into a client's share of one.


DEFAULT_MEMORY = "10%"
DEFAULT_SHARE = "50%"


def fit_memory(pool: dict[str, Keyed], others: Sequence[dict[str, Keyed]], there: int) -> Iterator[str]:
    """Turns the memory of all pools into comments if they have more together than there is. Yields their sources."""
    if sum(_memory(pool | one, there) for one in ({}, *others)) <= there:
        return
    for keys in (pool, *others):
        item = keys.get("memory")
        if item is not None:
            keys["memory"] = item._replace(off=True)
            yield item.source


def fit_topics(topics: Iterable[dict[str, Keyed]], pool: dict[str, Keyed], there: int) -> int:
    """Turns the pools of topics into comments that would take more than half of ``[pool]``, which is for all else.
    Returns the memory of the others."""
    taken = count = 0
    for keys in topics:
        item = keys.get("pool")
        if item is not None:
            size = parse_size(item.value)
            if count == TOPIC_POOLS_MAX or taken + size > _memory(pool, there) // 2:
                keys["pool"] = item._replace(off=True, source=f"{item.source}; no room: topics get half of [pool]")
            else:
                taken, count = taken + size, count + 1
    return taken


def fit_packets(
    pool: dict[str, Keyed], listeners: Sequence[ListenerDraft], there: int, taken_bytes: int
) -> Iterator[str]:
    """Turns the largest packet of a listener into a comment if no client may take up as much. Yields its source.
    ``taken_bytes``: what topics have of ``[pool]``."""
    for one in listeners:
        item = one.keys.get("packet_max")
        keys = pool | one.pool
        given = keys.get("max_client_share", Keyed(DEFAULT_SHARE, ""))
        apart = one.pool.keys() - {"max_client_share"}
        room = (_memory(keys, there) - (0 if apart else taken_bytes)) * parse_share(given.value)
        if item is not None and one.scheme in SCHEMES and parse_size(item.value) > room:
            one.keys["packet_max"] = item._replace(off=True)
            yield item.source


def _memory(keys: dict[str, Keyed], there: int) -> int:
    item: Any = keys.get("memory")
    text = DEFAULT_MEMORY if item is None or item.off else str(item.value)
    return int(parse_share(text) * there) if text.endswith("%") else parse_size(text)
