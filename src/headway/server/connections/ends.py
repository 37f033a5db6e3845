"""Ends: how each connection ended. Each is one line in the log, and an entry that outlives the client.

Clients that never got a session are recorded in a book of their own: they may be anybody and come as often as they
like, and must not drive out the entries of clients that were let in. They are found by their client name and by their
user name; who has given neither, by the address without its port.

Nor may anybody fill the disk: so many have lines of their own in the log in a second (``Lines``), strangers fewer than
clients; the others are counted in one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import msgspec

from headway.core.base import History, Reason, format_duration
from headway.server.connections.connection import Connection

# -- ends --------------------------------------------------------------------------------------------------------------


log = logging.getLogger("headway")

PER_NAME_MAX = 16
STRANGERS_MAX = 1_000
STRANGERS_LINES_A_S, STRANGERS_LINES_MAX = 20, 500
CLIENTS_LINES_A_S, CLIENTS_LINES_MAX = 200, 10_000
NAME_CHARS_MAX = 200
TEXT_CHARS_MAX = 500
PLAIN = {Reason.CLIENT_GONE: "the socket was closed without a goodbye", Reason.NORMAL: "the client said goodbye"}
"""Texts for ends of which nothing more is known."""


class End(msgspec.Struct, frozen=True):
    """How one connection ended."""

    wall_s: float
    client: str
    """Empty if the client had not said who it is."""
    username: str
    listener: str
    address: str
    lasted_s: float
    admitted: bool
    """The client had a session."""
    reason: Reason
    text: str


class Lines:
    """The lines of the log that ends of one kind may have: ``a_s`` in a second, and ``most`` after a calm."""

    def __init__(self, a_s: int, most: int, words: str) -> None:
        self._a_s = a_s
        self._left = self._most = most
        self._words = words
        self._without: Counter[str] = Counter()

    def has(self, why: str) -> bool:
        """Tells whether this one has a line of its own. If not, it is counted."""
        if not self._left:
            self._without[why] += 1
            return False
        self._left -= 1
        return True

    def tell(self) -> None:
        """Logs how many had none since the last call. To be called once a second."""
        if self._without:
            counts = ", ".join(f"{why} {count}" for why, count in self._without.most_common())
            log.info("%d more %s: %s", self._without.total(), self._words, counts)
            self._without.clear()
        self._left = min(self._most, self._left + self._a_s)


class Ends:
    def __init__(self) -> None:
        self.counts: Counter[Reason] = Counter()
        self.keep: Callable[[End], None] | None = None
        """Called with each end, for the history; None: there is none."""
        self._clients: History[End] = History(PER_NAME_MAX)
        self._strangers: History[End] = History(PER_NAME_MAX, STRANGERS_MAX, STRANGERS_MAX)
        self.strangers_lines = Lines(STRANGERS_LINES_A_S, STRANGERS_LINES_MAX, "connections were not admitted")
        self.clients_lines = Lines(CLIENTS_LINES_A_S, CLIENTS_LINES_MAX, "clients disconnected")

    def put(self, connection: Connection, reason: Reason, text: str, now: float, wall_s: float) -> None:
        self.counts[reason] += 1
        end = End(
            round(wall_s, 3), _short(connection.client), _short(connection.username), connection.listener,
            connection.address, round(now - connection.opened_s, 3), connection.admitted, reason,
            (text or PLAIN.get(reason, ""))[:TEXT_CHARS_MAX],
        )  # fmt: skip
        if end.admitted:
            self._clients.put(end.client, end)
        else:
            for name in dict.fromkeys((end.client, end.username)) if end.client or end.username else (_host(end),):
                if name:
                    self._strangers.put(name, end)
        if self.keep is not None:
            self.keep(end)
        level = logging.DEBUG if reason is Reason.SHUTDOWN else logging.INFO
        if log.isEnabledFor(level) and (self.clients_lines if end.admitted else self.strangers_lines).has(reason):
            log.log(level, "%s", _line(end), extra={"fields": _fields(end)})

    def tell(self) -> None:
        """Logs how many had no line of their own since the last call. To be called once a second."""
        self.strangers_lines.tell()
        self.clients_lines.tell()

    def of(self, name: str) -> list[End]:
        """Returns the ends of a client, or of a user that was not let in, the newest first."""
        name = _short(name)
        both = reversed((*self._clients.of(name), *self._strangers.of(name)))
        return sorted(both, key=lambda end: -end.wall_s)  # of two at the same time, the later one comes first


def _host(end: End) -> str:
    return end.address.rpartition(":")[0]


def _short(name: str) -> str:
    return name[:NAME_CHARS_MAX]


def _line(end: End) -> str:
    who = f"{_shown(end.client)} " if end.client else ""
    user = f", user {_shown(end.username)}" if end.username else ""
    done = "disconnected" if end.admitted else "not admitted"
    why = f": {_shown(end.text)}" if end.text else ""
    return (f"{who}({end.listener}, {end.address}{user}) {done} after {format_duration(end.lasted_s)}, "
            f"{end.reason}{why}")  # fmt: skip


def _fields(end: End) -> dict[str, object]:
    return {
        "client": end.client, "user": end.username, "listener": end.listener, "address": end.address,
        "lasted_s": end.lasted_s, "admitted": end.admitted, "reason": end.reason, "why": end.text,
    }  # fmt: skip


def _shown(text: str) -> str:
    """Escapes a client's text, so that it cannot begin a line of the log."""
    return text if text.isprintable() else ascii(text)


# -- floods ------------------------------------------------------------------------------------------------------------
#
# Floods: clients that publish as fast as they are read. All others wait for what is read of them in a turn.


FLOOD_BYTES = 16 * 1024
"""A client that has so much read at once publishes as fast as it is read, or nearly."""


class Floods:
    """Tells whether more than one client floods the broker."""

    __slots__ = ("_changes", "_last", "several")

    def __init__(self) -> None:
        self._last = 0
        """The id of the last client that had much read."""
        self._changes = 0
        """How often it was another one in this turn."""
        self.several = False
        """Whether several had much read in the last turn."""

    def note(self, client: object) -> None:
        """Notes that much was read of a client."""
        if id(client) != self._last:
            self._last = id(client)
            self._changes += 1

    def turn(self) -> None:
        """Ends a turn."""
        self.several, self._changes = self._changes > 1, 0
