"""What happened, as the clients saw it: the only thing the checker knows.

A record is called ``PUBLISHER:NUMBER``, and its body begins with that. A box is a place where records wait for whoever
acknowledges them: a durable queue, or a durable subscription.
"""

from __future__ import annotations

from typing import NamedTuple


class Sent(NamedTuple):
    """Published on a connection. ``put_off``: within a transaction."""

    record: str
    boxes: tuple[str, ...]
    conn: int
    durable: bool = True
    put_off: bool = False


class Confirmed(NamedTuple):
    record: str


class Delivered(NamedTuple):
    """``again``: the broker says that it was delivered before. ``alone``: whatever waits in the box came to this
    connection, and nothing was given back by it, so that even what is delivered again comes in order."""

    box: str
    record: str
    conn: int
    again: bool
    alone: bool
    whole: bool


class Settled(NamedTuple):
    """The client said that it has the record, or (``dead``) that nobody is to have it, so that it goes to that box."""

    box: str
    record: str
    conn: int
    dead: str = ""
    put_off: bool = False


class Returned(NamedTuple):
    """The client wants the record to be given to anybody."""

    box: str
    record: str
    conn: int


class Asked(NamedTuple):
    """A transaction is to be committed."""

    conn: int


class Committed(NamedTuple):
    conn: int


class RolledBack(NamedTuple):
    conn: int


class Emptied(NamedTuple):
    """The client had the box purged, or deleted and made again: what it has published to it is gone."""

    box: str
    conn: int


class Counted(NamedTuple):
    """The broker said how many records wait in a box, before anybody was there to take some."""

    box: str
    records: int


class Closed(NamedTuple):
    """The connection is over, and the client has read all that came."""

    conn: int


class Cut(NamedTuple):
    """The client sees that the broker has ended its connection, or a part of it; or it leaves while there is little
    room. What it has may be with others by now or soon, and for them it is new."""

    conn: int


class Killed(NamedTuple):
    life: int


class Wrong(NamedTuple):
    """Something that is wrong by itself."""

    text: str


Event = (
    Sent | Confirmed | Delivered | Settled | Returned | Asked | Committed | RolledBack | Emptied | Counted | Closed
    | Cut | Killed | Wrong
)  # fmt: skip
