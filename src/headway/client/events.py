"""Events: what records that came over MQTT 5 mean for an image. The broker's user properties are read only here.

A publisher may use the same names. The broker's ``offset`` is the last one of that name, and a gap comes behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headway.client.changes import Change, Entry, Gap, Key
from headway.client.image import Changes, Image, Sent
from headway.client.link import Pairs
from headway.core.message import DELETE, DELTA, EVENT, NO_PROPERTIES, TOLD_KEY, KeyExtractor, Properties, Run

OFFSET, OUT_OF_FOCUS, WHY = "offset", "out_of_focus", "headway-why"
BEGIN, END, MARK_OFFSET = "snapshot_begin", "snapshot_end", "headway-offset"


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


def tell(image: Image, runs: Sequence[Run], key: KeyExtractor, *, deltas: bool = False) -> list[Change]:
    """Tells the image of records. ``deltas``: the view has asked for them. Raises ValueError if a record lacks what the
    broker promised."""
    changes: list[Change] = []
    find, put = key.find, image.put
    for run in runs:
        user = run.properties.user
        if len(user) != 1 or user[0][0] != OFFSET:
            changes += _tell_of_one(image, run, key, deltas)
            continue
        # The usual record, of which nothing is said but its offset.
        topic, payload = run.topic, run.payload(0)
        entry = Entry(payload, int(user[0][1]), (), run.properties.content_type)
        changes += put(Key(topic, find(topic, NO_PROPERTIES, payload)), entry)
    return changes


def _tell_of_one(image: Image, run: Run, key: KeyExtractor, deltas: bool) -> list[Change]:
    """Tells the image of a run, which has one record: of each the offset is another."""
    user = run.properties.user
    said = dict(user)
    if said.get(EVENT) in (BEGIN, END) and OFFSET not in said:
        if said[EVENT] == BEGIN:  # a gap before it is over with what it was in
            return list(image.begin_mark())
        gap = read_gap(user)
        return [*(() if gap is None else image.gap(gap)), *image.end_mark(int(said[MARK_OFFSET]))]
    at = max((at for at, (name, _) in enumerate(user) if name == OFFSET), default=None)
    if at is None:
        raise ValueError(f"a record of {run.topic} has no offset")
    publishers, offset = user[:at], int(user[at][1])
    gap = read_gap(user[at + 1 :])
    changes = [] if gap is None else list(image.gap(gap))
    return [*changes, *_tell_of_event(image, run, publishers, offset, key, deltas)]


def _tell_of_event(
    image: Image, run: Run, publishers: tuple[tuple[str, str], ...], offset: int, key: KeyExtractor, deltas: bool
) -> Changes:
    said, payload = dict(publishers), run.payload(0)
    event, told = said.get(EVENT), said.get(TOLD_KEY)
    found = key.find(run.topic, Properties(user=publishers), payload)
    if event == DELETE:
        return image.delete(Key(run.topic, told or found), offset)
    if event == OUT_OF_FOCUS:
        return image.out_of_focus(Key(run.topic, told or found), offset, said.get(WHY, ""))
    is_delta = deltas and event == DELTA
    ours = (TOLD_KEY, EVENT) if is_delta else (TOLD_KEY,)
    left = tuple(pair for pair in publishers if pair[0] not in ours)
    entry = Entry(payload, offset, left, run.properties.content_type)
    if is_delta:
        return image.patch(Key(run.topic, told), entry)
    return image.put(Key(run.topic, found), entry)


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
