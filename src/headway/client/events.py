"""Events: what a record that came over MQTT 5 means for an image. The broker's user properties are read only here.

A publisher may use the same names. The broker's ``offset`` is the last one of that name, and a gap comes behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headway.client.changes import Change, Entry, Gap, Key
from headway.client.image import Image, Sent
from headway.core.message import DELETE, EVENT, TOLD_KEY, KeyExtractor, Properties, Record

OFFSET, OUT_OF_FOCUS, WHY = "offset", "out_of_focus", "headway-why"
BEGIN, END, MARK_OFFSET = "snapshot_begin", "snapshot_end", "headway-offset"
Pairs = Sequence[tuple[str, str]]


class Arrived(NamedTuple):
    """A record as it came over the wire."""

    topic: str
    payload: bytes
    user: Pairs
    content_type: str | None = None


class Grant(NamedTuple):
    """The broker's answer to a SUBSCRIBE."""

    renewed: bool
    keyed: bool
    """The broker's configuration declares this state, so it knows all keys."""
    last: int
    """The broker's last offset when it answered."""
    sent: Sent | None
    """The records sent before the answer; None if a snapshot or older records still come."""
    gap: Gap | None
    life: str
    """The start of the broker to which its offsets belong."""


def tell(image: Image, arrived: Arrived, key: KeyExtractor) -> list[Change]:
    """Tells the image of a record. Raises ValueError if the record lacks what the broker promised."""
    said = dict(arrived.user)
    if said.get(EVENT) in (BEGIN, END) and OFFSET not in said:
        if said[EVENT] == BEGIN:  # a gap before it is over with what it was in
            return list(image.begin_mark())
        gap = read_gap(arrived.user)
        return [*(() if gap is None else image.gap(gap)), *image.end_mark(int(said[MARK_OFFSET]))]
    at = max((at for at, (name, _) in enumerate(arrived.user) if name == OFFSET), default=None)
    if at is None:
        raise ValueError(f"a record of {arrived.topic} has no offset")
    publishers, offset = arrived.user[:at], int(arrived.user[at][1])
    gap, said = read_gap(arrived.user[at + 1 :]), dict(publishers)
    changes = [] if gap is None else list(image.gap(gap))
    record = Record(arrived.topic, arrived.payload, Properties(user=tuple(publishers)))
    event = said.get(EVENT)
    if event in (DELETE, OUT_OF_FOCUS):
        name = Key(arrived.topic, said.get(TOLD_KEY) or key.of(record))
        if event == DELETE:
            return [*changes, *image.delete(name, offset)]
        return [*changes, *image.out_of_focus(name, offset, said.get(WHY, ""))]
    publishers = [pair for pair in publishers if pair[0] != TOLD_KEY] if TOLD_KEY in said else publishers
    entry = Entry(arrived.payload, offset, tuple(publishers), arrived.content_type)
    return [*changes, *image.put(Key(arrived.topic, key.of(record)), entry)]


def read_gap(pairs: Pairs) -> Gap | None:
    """Returns the gap that user properties tell of; None if they tell of none. Raises ValueError."""
    said = dict(pairs)
    if "gap-records" not in said:
        return None
    return Gap(int(said["gap-records"]), said.get("gap-reason", ""), int(said.get("gap-last", "0")))


def read_grant(pairs: Pairs) -> Grant:
    """Reads the user properties of a SUBACK. Raises ValueError."""
    said = dict(pairs)
    if "last-offset" not in said:
        raise ValueError("the broker does not say in SUBACK what it has sent: it is older than this client")
    last = int(said["last-offset"])
    sent = Sent(int(said["sent-offset"]), float(said["age-s"]), last) if "sent-offset" in said else None
    renewed, keyed = (said.get(name) == "true" for name in ("renewed", "keyed"))
    return Grant(renewed, keyed, last, sent, read_gap(pairs), said.get("life", ""))
