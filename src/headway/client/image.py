"""The image that a view keeps: the latest record per key, as one subscription tells it. No I/O and no clock: it is
given what came and the time, and returns the changes.

Rules:

- A snapshot is gathered aside and takes the image's place when it is whole (``proved``). Before that nothing of it is
  seen; a cut in the middle of it leaves the image as it was.
- Records of a subscription come in the order of their offsets, so a record that is not behind the last one is a
  repetition, and is left out.
- A gap that was not made by conflation means that a change is missing. The image stands still from there on, stale,
  until it gets a new snapshot (``wants_snapshot``). A gap of records from before the snapshot is none.
- While a snapshot or the changes after a cut are gathered, no gap is told. The image has stood still since before, and
  is told to be stale; what has changed is told when it is whole. A gap only decides whether that needs a snapshot.
- A delta is merged into the entry that the subscription has of its key, which the broker sees to. Without one, a
  change is missing.
- The image is *proved* when the broker says that everything up to a time was sent. Its age counts from the last proof.
  It is current while it is connected, whole and not older than ``stale_after_s``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headway.client.changes import Change, Current, Delete, Entries, Entry, Gap, Key, OutOfFocus, Put, Stale
from headway.core.message import BadPatch, merged

CONFLATED = "conflated"
LIMITS = {"bytes_max": 1 << 30, "depth_max": 400}
"""Limits of a merge; higher ones than for what publishers send."""
NO_SNAPSHOT = "there was no snapshot yet"


class Differences:
    """The changes that lead from one image to another, made one by one when they are read. More records may have come
    by then: the other image is kept as it was, and the old one changes no more."""

    def __init__(self, old: Entries, new: Entries) -> None:
        self._old = old.of
        self._new = dict(new.of)

    def __iter__(self) -> Iterator[Change]:
        for key, before in self._old.items():
            if key not in self._new:
                yield Delete(key, before)
        for key, entry in self._new.items():
            old = self._old.get(key)
            if old is None or old.offset != entry.offset or old.payload != entry.payload:
                yield Put(key, entry, old)


Changes = Iterable[Change]
NONE: tuple[Change, ...] = ()


class Sent(NamedTuple):
    """The part of a subscription that the broker has sent, as it says at some time."""

    offset: int
    """All changes up to this offset were sent."""
    age_s: float
    """The changes that were not are no older than this; 0 if there are none."""
    last: int
    """The broker's last offset."""


class Image:
    def __init__(self, stale_after_s: float, *, marked: bool = False) -> None:
        """``marked``: snapshots come between marks, whenever the broker sends one."""
        self.stale_after_s = stale_after_s
        self._marked, self._between = marked, False
        """``_between``: the begin mark has come, and the end mark has not."""
        self.entries = Entries()
        self.offset = 0
        """The offset up to which the image was proved: all changes up to it are in the image. Later ones may be."""
        self.true_s: float | None = None
        """The time at which the image was last known to be the broker's state; None: there is none yet."""
        self.current = False
        """Set if ``Current`` was told last, and not ``Stale``."""
        self.why_stale = NO_SNAPSHOT
        self.wants_snapshot = False
        """A change is missing."""
        self._connected = False
        self._next: Entries | None = None
        """The image that is being gathered; None: it is in its place."""
        self._last = 0
        """The offset of the last record that came by this subscription."""
        self._floor = 0
        """The offset as of which the snapshot is."""
        self._resumes = False
        self._whole_at: int | None = None
        """The offset up to which all changes have to come before the snapshot is whole; None: not known yet."""

    # -- subscriptions ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A subscription begins that sends a snapshot first."""
        self._connected, self.wants_snapshot, self._whole_at, self._resumes = True, False, None, False
        self._next, self._last, self._floor, self._between = Entries(), 0, 0, False

    def begin_mark(self) -> Changes:
        """All that comes up to the end mark takes the image's place."""
        if self._connected and not self.wants_snapshot:
            self._next, self._between = Entries(), True
        return NONE

    def end_mark(self, offset: int) -> Changes:
        """The snapshot is whole, as of this offset."""
        if not self._between or self._next is None:
            return NONE
        old, self.entries, self._next, self._between = self.entries, self._next, None, False
        self._last = self.offset = offset
        return Differences(old, self.entries)

    def resume(self) -> None:
        """A subscription begins that sends all changes behind ``offset``. They are gathered beside the image, too: some
        of them may be in it already, and it would go back in time."""
        self.begin()
        self._resumes = True
        self._next, self._last, self._floor = self.entries.copy(), self.offset, self.offset

    def granted(self, offset: int) -> None:
        """The broker says what its last offset was when it granted the subscription. A snapshot is as of then or later,
        so a gap of earlier records is none in it."""
        if not self._resumes:
            self._floor = offset

    def cut(self, why: str) -> Changes:
        """The subscription is over."""
        self._connected, self._next, self._between = False, None, False
        return self._stale(why)

    # -- records ----------------------------------------------------------------------------------------------------

    def put(self, key: Key, entry: Entry) -> Changes:
        entries = self._entries(entry.offset)
        if entries is None:
            return NONE
        before = entries.put(key, entry)
        return (Put(key, entry, before),) if entries is self.entries else NONE

    def patch(self, key: Key, delta: Entry) -> Changes:
        """The payload is what changes of a key: a JSON merge patch of the latest record."""
        entries = self._entries(delta.offset)
        if entries is None:
            return NONE
        known = entries.of.get(key)
        try:
            payload = None if known is None else merged(known.payload, delta.payload, **LIMITS)
        except BadPatch:
            payload = None
        if payload is None:
            return self._miss("a delta came that nothing is known to merge with")
        entry = Entry(payload, delta.offset, delta.properties, delta.content_type)
        before = entries.put(key, entry)
        return (Put(key, entry, before),) if entries is self.entries else NONE

    def delete(self, key: Key, offset: int) -> Changes:
        before = self._take(key, offset)
        return NONE if before is None else (Delete(key, before),)

    def out_of_focus(self, key: Key, offset: int, why: str) -> Changes:
        before = self._take(key, offset)
        return NONE if before is None else (OutOfFocus(key, before, why),)

    def gap(self, gap: Gap) -> Changes:
        """Records were left out. Called before the record that told of it is put."""
        if not self._connected or self.wants_snapshot:
            return NONE
        told = (gap,) if self._next is None or self._between else NONE
        if gap.reason == CONFLATED or (gap.last and gap.last <= self._floor):
            return told
        return (*told, *self._miss(f"records are missing ({gap.reason})"))

    def _miss(self, why: str) -> Changes:
        """A change is missing, so no other is believed."""
        self.wants_snapshot, self._next, self._between = True, None, False
        return self._stale(why)

    def _entries(self, offset: int) -> Entries | None:
        """Returns the entries that a record with this offset is for; None if it is for none."""
        if not self._connected or self.wants_snapshot:
            return None
        if self._between:
            return self._next
        if offset <= self._last:
            return None
        self._last = offset
        return self.entries if self._next is None else self._next

    def _take(self, key: Key, offset: int) -> Entry | None:
        """Removes a key. Returns its entry if the reader of changes knows it."""
        entries = self._entries(offset)
        before = None if entries is None else entries.pop(key)
        return before if entries is self.entries else None

    # -- time -------------------------------------------------------------------------------------------------------

    def proved(self, sent: Sent, at_s: float, now: float) -> Changes:
        """The broker says what it had sent at ``at_s`` or later. All of that has come.

        A snapshot leaves out keys that change while it is sent, for these changes come behind it. So it is whole when
        all changes have come that there were when it was first said to be sent."""
        if not self._connected or self.wants_snapshot:
            return NONE
        if self._next is None:
            self._prove(sent.offset, at_s - sent.age_s)
            return self.look(now)
        if self._marked:
            return NONE
        self._whole_at = sent.last if self._whole_at is None else self._whole_at
        if max(sent.offset, self._last) < self._whole_at:
            return NONE
        old, self.entries, self._next = self.entries, self._next, None
        self.offset = 0  # those of another life of the broker are no measure
        self._prove(sent.offset, at_s - sent.age_s)
        return Chain([Differences(old, self.entries), self.look(now)])

    def _prove(self, offset: int, true_s: float) -> None:
        self.offset = max(self.offset, offset)
        self.true_s = true_s if self.true_s is None else max(true_s, self.true_s)

    def look(self, now: float) -> Changes:
        """Tells if the image has become stale or current with time."""
        if not self._connected or self.wants_snapshot or self._next is not None:
            return NONE
        if self.stale_s(now) > self.stale_after_s:
            return self._stale(f"the broker has not confirmed it for {self.stale_after_s:g} s")
        if self.current:
            return NONE
        self.current, self.why_stale = True, ""
        return (Current(self.offset),)

    @property
    def whole(self) -> bool:
        """Tells whether the image is that of the subscription there is, and not the last one of an earlier one."""
        return self._connected and not self.wants_snapshot and self._next is None

    def stale_s(self, now: float) -> float:
        """Returns how old the image is; infinite without one."""
        return float("inf") if self.true_s is None else max(0.0, now - self.true_s)

    def is_current(self, now: float) -> bool:
        return self.current and self.stale_s(now) <= self.stale_after_s

    def _stale(self, why: str) -> Changes:
        was, self.current, self.why_stale = self.current, False, why
        return (Stale(why),) if was else NONE


class Chain:
    """Several groups of changes, one after the other, any number of times."""

    def __init__(self, parts: list[Changes]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[Change]:
        for part in self._parts:
            yield from part
