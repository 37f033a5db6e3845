"""The draft: tables of the config in the making, and a line about each setting of the files that it is made of.

Rules:
- Each setting gets one outcome: carried over, so here anyway, or without counterpart. ``leftovers`` sees to those that
  a reader has not spoken of.
- The text is a config that ``headway check`` accepts on this machine. What this machine cannot have (its memory, a
  certificate, a protocol) is a comment, and counts as without counterpart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from headway.core.base import ConfigError, format_size, parse_duration
from headway.migration.draft import units
from headway.migration.draft.listeners import (
    Keyed,
    ListenerDraft,
    PolicyDraft,
    comment,
    commented,
    fit_memory,
    fit_packets,
    fit_topics,
    is_address,
    ordered,
    said,
    table_text,
    within,
)
from headway.migration.draft.units import SoAnyway, Unreadable, as_written, toml_duration
from headway.migration.formats import ITEM, Kind, Node, Where
from headway.migration.hiding import hide
from headway.server.config import default_text, host_limits, parse_settings, read_password_file, same_address
from headway.server.protocols import SCHEMES
from headway.store.toml import BadConfig

# -- option ------------------------------------------------------------------------------------------------------------
#
# Options of other systems, what became of each that a file sets, and how that is counted.


class Option(NamedTuple):
    """One option of another system, or several that are alike: a row of its page in ``docs/coming-from``."""

    names: tuple[str, ...]
    """Names as its files have them; that of an attribute of XML has its element's in front. ``log.*`` stands for all
    that begin so."""
    here: str
    """Headway's counterpart, in Markdown; empty: there is none."""
    differs: str
    """The difference; the reason, if there is no counterpart."""
    restricts: bool = False
    """Whether it may keep clients out, or from something. Without a counterpart it closes what is imported."""


class Result(StrEnum):
    """The fate of a setting."""

    CARRIED = "carried over"
    SAME = "so here anyway"
    LOST = "without counterpart"


class Outcome(NamedTuple):
    """The fate of one setting of a file."""

    where: Where
    option: str
    """The setting's name, for people."""
    value: str
    result: Result
    why: str = ""
    """The reason, if it has no counterpart or needs none."""

    def __str__(self) -> str:
        value = f" = {self.value}" if self.value else ""
        return f"{self.where}: {self.option}{value}: {self.why}"


# -- draft -------------------------------------------------------------------------------------------------------------


TABLES = ("server", "auth", "pool", "retained", "journal")
POLICIES_MAX, LISTENERS_MAX = 1000, 1000
POOLS_ORDERED_MAX = 256
"""Each is held against those before it. A config has fewer (``server/config/reading.py``): others become comments."""
JOURNAL = "/var/lib/headway"
SWEEP_MIN_MS, SWEEP_MAX_MS = 10, 10_000
ADMIN_PORT = 9883
"""The port of the admin API by default."""
UNKNOWN = "nothing is known of it here"
ELSEWHERE = "it stands where it has no meaning, or its value is said elsewhere"


class Draft:
    def __init__(self, options: Sequence[Option]) -> None:
        self._options = {name: option for option in options for name in option.names}
        self._groups = sorted((name[:-1] for name in self._options if name.endswith("*")), key=len, reverse=True)
        """Beginnings of the names of groups, the longest first."""
        self.outcomes: list[Outcome] = []
        self.tables: dict[str, dict[str, Keyed]] = {name: {} for name in TABLES}
        self.listeners: list[ListenerDraft] = []
        self.topics: dict[str, dict[str, Keyed]] = {}
        self.policies: list[PolicyDraft] = []
        self.open = True
        """Whether the other system certainly let clients in without a name."""
        self.closed = ""
        """The place of the first setting that keeps clients out there, or from something, and is not understood."""

    def hide_users(self, roots: Sequence[Node]) -> None:
        """Marks settings that say who may come in, or what with, as secrets. Users are written anew here, so nobody
        needs them in a report."""
        for node in (node for root in roots for node in root.walk()):
            option = self.option(node) if node.parent is not None else None
            if option is not None and "[auth.users]" in option.differs:
                node.secret = True

    # -- what became of a setting -------------------------------------------------------------------------------------

    # Settings that are None are not in the file, and nothing is said of them.

    def carried(self, *nodes: Node | None) -> None:
        for node in filter(None, nodes):
            self._say(node, Result.CARRIED, "")

    def same(self, *nodes: Node | None, why: str = "") -> None:
        """Notes that a setting needs no line here: it is so anyway."""
        for node in filter(None, nodes):
            option = self.option(node)
            self._say(node, Result.SAME, (why or (option.here if option else "")).replace("`", ""))

    def lost(self, *nodes: Node | None, why: str = "") -> None:
        """Notes that a setting has no counterpart. ``why``: left out, the reason of its option."""
        for node in filter(None, nodes):
            option = self.option(node)
            reason = why or (option.differs if option else "") or UNKNOWN
            self._say(node, Result.LOST, reason.replace("`", ""))

    def lost_with_all(self, group: Node, why: str) -> None:
        """Notes that nothing in a group of settings has a counterpart."""
        self.lost(*(node for node in group.walk() if node.text or not node.children), why=why)

    def _say(self, node: Node, result: Result, why: str) -> None:
        if not node.said:
            node.said = True
            if result is Result.LOST:
                option = self.option(node)
                # These systems refuse a file with a setting that they do not know: one that nobody knows here may
                # mean anything.
                if option is None or option.restricts:
                    self.close(node)
            self.outcomes.append(Outcome(node.where, node.label, node.shown, result, why))

    @contextmanager
    def reading(self, *nodes: Node | None) -> Iterator[None]:
        """Wraps the reading of settings: one with a value that cannot be read has no counterpart, nor have those that
        go with it, which name it."""
        try:
            yield
        except SoAnyway as error:
            self.same(*nodes, why=str(error))
        except Unreadable as error:
            at_fault = error.node
            if at_fault is not None and at_fault.parent is not None:
                self.lost(at_fault, why=str(error))
            for node in filter(None, nodes):
                goes_along = at_fault is not None and at_fault.label != node.label
                self.lost(node, why=f"{at_fault.label}: {error}" if at_fault is not None and goes_along else str(error))

    def close(self, node: Node) -> None:
        """Keeps everybody out, for a setting may do so there and is not understood."""
        self.closed = self.closed or f"{node.where} {node.label}"

    def last_counts(self, roots: Sequence[Node], *, but: Collection[str] = ()) -> None:
        """Takes out settings that a later line of the same group sets again, and says so. ``but``: names of which every
        line counts."""
        last = {node.name: node for root in roots for node in root.children}
        for root in roots:
            for node in root.children:
                if node.name not in but and last[node.name] is not node:
                    for one in node.walk():
                        if one.text or not one.children:
                            self.same(one, why=f"{last[node.name].where} sets it again, and the last one counts")
            root.children = [node for node in root.children if node.name in but or last[node.name] is node]

    def option(self, node: Node) -> Option | None:
        """Returns what is known of a setting; None: nothing. A name with that of the element around it in front counts
        first. ``log.*`` is known of everything that begins so, ``broker *`` of every other attribute of ``broker``."""
        around = f"{node.parent.name} " if node.parent is not None else ""
        names = (around + node.name, node.label)
        exact = next((self._options[name] for name in names if name in self._options), None)
        if exact is not None:
            return exact
        # What has children is no attribute of the element around it.
        some = names[1:] if node.kind is Kind.ELEMENT and node.children else names
        return next((self._options[f"{begin}*"] for begin in self._groups if any(
            name.startswith(begin) for name in some)), None)

    def leftovers(self, root: Node) -> None:
        """Speaks of every setting that nobody has spoken of."""
        waiting = list(reversed(root.children))
        while waiting:
            node = waiting.pop()
            option = None if node.name == ITEM else self.option(node)
            if not node.said and option is not None and not option.here:
                self.lost(node)
                continue
            if not node.said and (node.text or not node.children):
                self.lost(node, why=ELSEWHERE if option is not None else UNKNOWN)
            waiting.extend(reversed(node.children))

    # -- tables -------------------------------------------------------------------------------------------------------

    def put(self, table: str, key: str, value: Any, node: Node, note: str = "") -> None:
        """Sets a key of a table without a name. The first line that says it counts."""
        self.put_in(self.tables[table], key, value, node, note)

    def put_in(self, keys: dict[str, Keyed], key: str, value: Any, node: Node, note: str = "") -> None:
        """Sets a key of any table."""
        if key in keys and keys[key].value != value:
            self.lost(node, why=f"{key} is set by an earlier line, {keys[key].source.partition(' ')[0]}")
            return
        if any(hide(text) != text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)):
            self.lost(node, why=units.SECRET)
            return
        keys[key] = Keyed(value, said(node, note))
        self.carried(node)

    def put_read(self, keys: dict[str, Keyed], key: str, read: Callable[[Node], Any], *nodes: Node | None) -> None:
        """Sets a key to what ``read`` makes of a setting. It raises Unreadable or SoAnyway."""
        for node in filter(None, nodes):
            with self.reading(node):
                self.put_in(keys, key, read(node), node)

    def put_everywhere(self, key: str, read: Callable[[Node], Any], *nodes: Node) -> None:
        """Sets a key of every listener, likewise."""
        for node in nodes:
            with self.reading(node):
                value = read(node)
                for one in self.all_listeners():
                    one.put(key, value, said(node))
                self.carried(node)

    def put_journal(self, node: Node, note: str = "in a folder of its own") -> None:
        """Has a journal, for the folder or the switch that the other system has for one."""
        self.put("journal", "path", JOURNAL, node, note)

    def put_sweep(self, time_ms: int, *nodes: Node | None) -> None:
        """Has consumers looked at as often as a setting says. Of several the shortest time counts. Raises Unreadable or
        SoAnyway."""
        node = next(filter(None, nodes))
        if time_ms < 1:
            raise Unreadable(f"{node.shown[:60]!r} is no time between two looks", node)
        if time_ms > SWEEP_MAX_MS:
            raise SoAnyway("consumers are looked at more often, five times a second, and times are measured; a sweep "
                           f"of {toml_duration(time_ms)} in [server] looks as seldom as there")  # fmt: skip
        server, time = self.tables["server"], toml_duration(max(SWEEP_MIN_MS, time_ms))
        before = server.get("sweep")
        if before is not None and parse_duration(before.value) <= parse_duration(time):
            self.same(*nodes, why=f"another is as short, or shorter: {before.source.partition(' ')[0]}")
            return
        server["sweep"] = Keyed(time, said(node))
        self.carried(*nodes)

    def put_tls(
        self, listener: ListenerDraft, verify: str, *said_by: Node | None, **files: Node | None
    ) -> None:
        """Sets the certificates of a listener. ``verify``: whether it asks clients for certificates, as ``said_by``
        say."""
        for key, node in files.items():
            if key == "ca" and verify == "none":
                self.same(node, why="it is for certificates of clients, and none is asked for")
            else:
                self.put_read(listener.tls, key, as_written, node)
        self.carried(*said_by)
        if verify != "none":
            listener.tls["verify"] = Keyed(verify, "; ".join(said(node) for node in filter(None, said_by)))

    def put_password_file(self, node: Node) -> None:
        """Has the users of a file, if it can be read here."""
        try:
            read_password_file(Path(node.text))
        except BadConfig as error:
            problem = error.lines[0].partition(": ")[2] or error.lines[0]
            self.lost(node, why=f"it cannot be read here ({problem}); headway passwd makes lines for [auth.users]")
        else:
            self.put("auth", "password_file", node.text, node)

    def put_admin(self, node: Node) -> None:
        """Sets the address of the admin API: the port of the other system's, on loopback."""
        port = node.text.rpartition(":")[2]
        if port.isdecimal() and 0 < int(port[:6]) < 65_536:
            self.put("server", "admin", f"http://127.0.0.1:{int(port)}", node, "on loopback")
        else:
            self.lost(node, why="it has no port")

    def topic(self, filter: str) -> dict[str, Keyed]:
        """Returns the keys of a ``[[topic]]``, which is made if there is none yet."""
        return self.topics.setdefault(filter, {})

    def policy(
        self, name: str, topics: Sequence[str], source: str, subscriptions: str = "all", listeners: Sequence[str] = ()
    ) -> PolicyDraft:
        """Returns the policy for these topics, which is made if there is none yet. Its name is made unique."""
        wanted = PolicyDraft(hide(name), tuple(topics), subscriptions, tuple(listeners), source)
        for one in self.policies:
            if one.place == wanted.place:
                return one
        if len(self.policies) >= POLICIES_MAX:
            raise ConfigError(f"there are more than {POLICIES_MAX:,} policies in it; is it a configuration?")
        names = {one.name for one in self.policies}
        number = 2
        while wanted.name in names:
            wanted.name, number = f"{hide(name)} ({number})", number + 1
        self.policies.append(wanted)
        return wanted

    def listener(self, name: str, scheme: str, host: str, port: int, node: Node) -> ListenerDraft | None:
        """Makes a listener; None: there can be none, and the report says why."""
        if "@" in node.text or hide(host) != host:
            self.lost(node, why=units.SECRET)
            return None
        one = ListenerDraft(hide(name), scheme, host, port, said(node))
        if not one.spoken:
            self.lost(node, why=f"{hide(scheme)} is not spoken here (listeners: {', '.join(SCHEMES)})")
            return None
        if not is_address(host) or not 0 < port < 65_536:
            self.lost(node, why=f"{hide(host)[:60]}:{port} is not an address that can be listened on")
            return None
        if len(self.listeners) >= LISTENERS_MAX:
            self.lost(node, why=f"there are {LISTENERS_MAX} listeners already")
            return None
        for other in self.listeners:
            if other.port == port and same_address(other.host, one.host):
                self.lost(node, why=f"port {port} is taken by the listener {other.name!r}")
                return None
        names = {other.name for other in self.listeners}
        begin, number = f"{one.name}-{port}", 1
        while one.name in names:
            one.name, number = begin if number == 1 else f"{begin}-{number}", number + 1
        self.listeners.append(one)
        self.carried(node)
        return one

    def all_listeners(self) -> list[ListenerDraft]:
        """Returns the listeners, or the default ones if there are none, for limits that hold for every client."""
        if not self.listeners:
            for name, one in parse_settings(default_text()).listeners.items():
                self.listeners.append(ListenerDraft(name, one.url.scheme, one.url.host, one.url.port, "the default"))
        return self.listeners

    # -- the text -----------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Writes the config, with what has no counterpart at its end."""
        self._place()
        self._fit()
        blocks = [table_text(f"[{name}]", self.tables[name]) for name in TABLES if self.tables[name] and name != "auth"]
        written = [one.text() for one in self.listeners]
        if self.tables["auth"]:
            written.append(table_text("[auth]", self.tables["auth"]))
        if self.closed and self._somebody_logs_in():
            nothing = f"{self.closed}: not understood here, so nobody may do anything else; write what they may"
            written.append(table_text("[[permission]]", {"admin": Keyed(["read"], nothing)}))
        at = 1 if self.tables["server"] else 0
        blocks[at:at] = written
        for filter, keys in self.topics.items():
            empty = keys.keys() == {"pool"} and keys["pool"].off  # without its pool, the table would mean a key
            keys = {"pool": keys["pool"]._replace(off=False)} if empty else keys
            table = table_text("[[topic]]", {"filter": Keyed(filter, ""), **keys})
            blocks.append(commented(table) if empty else table)
        faulty = {one.name for one in self.listeners if one.fault}
        policies = ordered(self.policies)
        blocks += [policy.text(faulty) for policy in policies]
        off = [one for one in policies if one.listeners and faulty.issuperset(one.listeners)]
        there = {rule.source for one in policies if one not in off for rule in one.rules}
        for source in {rule.source for one in off for rule in one.rules} - there:
            self._replace(source, "its listener is a comment, and so is its rule")
        self.outcomes.sort(key=lambda one: one.where)
        lost = [comment(str(one)) + "\n" for one in self.outcomes if one.result is Result.LOST]
        if lost:
            blocks.append("# Without counterpart:\n" + "".join(lost))
        return "\n".join(blocks)

    def _place(self) -> None:
        """Decides where the listeners are. Those that were on loopback come first, then those that are there until
        there are users."""
        for one in self.listeners:
            one.place(open_=self.open, checked=bool(self.tables["auth"]), closed=self.closed)
        placed: list[ListenerDraft] = []
        for one in sorted(self.listeners, key=lambda one: one.here != one.host):
            taken = next((by for by in placed if by.port == one.port and same_address(by.here, one.here)), None)
            if taken is None and not one.fault:
                placed.append(one)
            elif taken is not None:
                one.fault = one.fault or f"port {one.port} of loopback is that of the listener {taken.name!r}"
        server = self.tables["server"]
        admin = server.get("admin")
        port = first = int(str(admin.value).rpartition(":")[2]) if admin is not None else ADMIN_PORT
        while any(one.port == port and same_address(one.here, "127.0.0.1") for one in placed):
            port = port + 1 if port < 65_535 else 1024
        if port != first:
            source = admin.source if admin is not None else "the admin API"
            server["admin"] = Keyed(f"http://127.0.0.1:{port}", f"{source}; {first} is the port of a listener")

    def _somebody_logs_in(self) -> bool:
        return bool(self.tables["auth"]) or any("verify" in one.tls for one in self.listeners)

    def _fit(self) -> None:
        """Turns into comments what this machine cannot have."""
        for one in self.listeners:
            if one.fault:
                self._replace(one.source, f"it cannot be had here; the listener is a comment: {one.fault}")
        pool = self.tables["pool"]
        pools = [one.pool for one in self.listeners if one.pool.keys() - {"max_client_share"}]  # others share the first
        there = host_limits.memory_bytes()
        for source in fit_memory(pool, pools, there):
            self._replace(source, f"this machine has {format_size(there)} for all pools; the line is a comment")
        self._narrow_pools_first()
        taken_bytes = fit_topics(self.topics.values(), pool, there)
        for source in fit_packets(pool, self.listeners, there, taken_bytes):
            self._replace(source, "one client may take up less of its pool; the line is a comment")

    def _narrow_pools_first(self) -> None:
        """Orders the topics: the first pool that covers a destination counts, and the narrowest one did there."""
        found: list[str] = []
        pooled = (filter for filter, keys in self.topics.items() if "pool" in keys)
        for filter in list(islice(pooled, POOLS_ORDERED_MAX)):
            place = next((at for at, other in enumerate(found) if within(other, filter)), len(found))
            found.insert(place, filter)
        self.topics = {filter: self.topics[filter] for filter in dict.fromkeys((*found, *self.topics))}

    def _replace(self, source: str, why: str) -> None:
        """Changes the outcome of the setting that a comment names."""
        for number, one in enumerate(self.outcomes):
            value = f' "{one.value}"' if one.value else ""
            if one.result is Result.CARRIED and source.startswith(f"{one.where} {one.option}{value}"):
                self.outcomes[number] = one._replace(result=Result.LOST, why=why)
