"""The independent checkers: what was published, what each subscription should therefore see, and what it has seen.

They know what was published (with its sequence) and every frame that was taken by a pretended socket. Of the broker
they are told only what it tells people: gap counters, verdicts, and the gaps it announces on the wire.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from math import inf
from typing import NamedTuple

import msgspec

from headway.core.base.errors import Reason
from headway.core.consumer.subscription import Subscription
from headway.core.message.record import Properties
from headway.core.message.topics import matches
from headway.wire.mqtt.packets import Publish

GAP_NAMES = ("gap-records", "gap-reason", "gap-first", "gap-last")


class Published(NamedTuple):
    sequence: int
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties
    expires_s: float
    publisher: int


class GapTold(NamedTuple):
    records: int
    reason: str
    first: int
    last: int


class Seen(NamedTuple):
    """A PUBLISH as a client sees it, with what the broker added taken apart from what the publisher wrote."""

    topic: str
    payload: bytes
    qos: int
    packet_id: int
    dup: bool
    retain: bool
    properties: Properties
    expiry_s: int | None
    identifiers: tuple[int, ...]
    gap: GapTold | None
    offset: int | None
    event: str | None = None
    """What the broker says that it is, if it is not an ordinary record."""
    key: str | None = None
    figures: Mapping[str, str] = {}
    """What else the broker says about it."""


def take_apart(item: Publish) -> Seen:
    run = item.run
    user = list(run.properties.user)
    gap = None
    if len(user) >= 4 and tuple(name for name, _ in user[-4:]) == GAP_NAMES:
        count, reason, first, last = (value for _, value in user[-4:])
        gap = GapTold(int(count), reason, int(first), int(last))
        del user[-4:]
    offset = int(user.pop()[1]) if user and user[-1][0] == "offset" else None
    told: dict[str, str] = {}
    while user and user[-1][0].startswith("headway-"):
        told |= [user.pop()]
    old = run.properties
    properties = Properties(
        old.payload_format, old.content_type, old.response_topic, old.correlation_data, tuple(user)
    )
    return Seen(
        run.topic, run.payload(0), item.qos, item.packet_id, item.dup, run.retain, properties, item.expiry_s,
        item.identifiers, gap, offset, told.pop("headway-event", None),
        told.pop("headway-key", None), told,
    )  # fmt: skip


class History:
    """All that was published."""

    def __init__(self) -> None:
        self.records: dict[int, Published] = {}
        self._by_body: dict[tuple[str, bytes], list[int]] = {}

    def add(self, record: Published) -> None:
        self.records[record.sequence] = record
        self._by_body.setdefault((record.topic, record.payload), []).append(record.sequence)

    def sequences(self, topic: str, payload: bytes) -> list[int]:
        """Of the records that look so; the broker's own advisories may look alike."""
        found = self._by_body.get((topic, payload), [])
        assert found, f"a record nobody published: {topic!r} {payload[:60]!r}"
        return found

    def key(self, sequence: int, key: str) -> tuple[str, str | None]:
        record = self.records[sequence]
        if key == "topic":
            return record.topic, record.topic
        return record.topic, fields(record.payload).get(key[1:])


def fields(payload: bytes) -> dict[str, str | None]:
    try:
        value = json.loads(payload)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def has_high_value(record: Published) -> bool:
    """Tells whether the selector of the simulators matches."""
    value = fields(record.payload).get("v")
    return isinstance(value, int) and value > 50


class Expectation:
    """What belongs to a filter, from its beginning on: shared by a subscription alone and by a group."""

    def __init__(self, history: History, filter: str, selector: bool, start: int) -> None:
        self.history = history
        self.filter = filter
        self.selector = selector
        self.start = start
        self.expected: list[int] = []
        self.seen: dict[int, int] = {}
        """Live records taken by a socket, or on their way when the connection broke; how often without DUP."""
        self.excess = 0
        """Records counted as lost that had been sent and were never acknowledged: at most so many."""

    def wants(self, record: Published) -> bool:
        if not matches(self.filter, record.topic):
            return False
        if not self.selector:
            return True
        return has_high_value(record)

    def expects(self, sequence: int) -> bool:
        place = bisect_left(self.expected, sequence)
        return self.expected[place : place + 1] == [sequence]


class SubModel(Expectation):
    """One subscription of one client, from SUBSCRIBE to its end."""

    def __init__(self, history: History, start: int, subscription: Subscription, filter: str, identifier: int | None,
                 began: tuple[int, int]) -> None:
        request = subscription.request
        super().__init__(history, filter, request.options.selector is not None, start)
        self.subscription = subscription
        self.identifier = identifier
        self.began = began
        """Connection, and position in its stream: frames before that are of an earlier subscription."""
        self.ended: tuple[int, float] | None = None
        self.no_local = request.no_local
        self.qos = request.qos
        self.keeps_retain = bool(getattr(request.dialect, "retain_as_published", False))
        self.version5 = getattr(request.dialect, "version", 4) == 5
        self.last = start if request.options.start == "end" and not request.options.snapshot else 0
        self.retained_seen: set[int] = set()
        own = subscription.counters.gap_records.total()  # what it missed before it began, with ``from``
        self.announced = subscription.gap.records - own if subscription.gap is not None else 0
        """Inherited from the subscription it replaced, and not this one's own: taken out again below."""
        self.announced = -self.announced
        self.told_upto = 0
        """The last sequence of the gaps that were announced."""
        self.early: list[int] = []
        self.snapshot: set[int] = set()
        self.retained: dict[str, int] = {}
        self.narrow = subscription.session.max_packet_bytes < 2**20
        """A gap that leaves no room for the record is told with a later one."""
        self.cut = False
        """A connection broke while it lasted."""
        self.stateful = False
        """It has, or had, a state that it may be conflated from."""
        self.renewed = False
        """Subscribed to once more: what was written before may still come as it was asked for before."""
        self.unsettled: dict[int, int] = {}
        """Packet id -> sequence of deliveries not acknowledged."""
        self.lost_again = 0
        """Records that it had, and had not acknowledged, that could not be read to be sent once more: at most so many
        are in a gap though it had them."""
        self.shared: GroupModel | None = None
        self.replaced: SubModel | None = None
        """The subscription it replaced, while that one still had something to be given."""
        self.replaced_by: SubModel | None = None
        self.owed_by_older = 0
        """How many records that passed while the older one conflated were still owed when this one replaced it."""

    @property
    def live(self) -> bool:
        return not self.subscription.ended

    def __str__(self) -> str:
        request = self.subscription.request
        options = {name: value for name, value in msgspec.structs.asdict(request.options).items() if value}
        return (
            f"{request.filter} of {self.subscription.session.client} (v{request.dialect.version}, QoS {self.qos}, "
            f"from {self.start}, {options}, retained {request.send_retained}, {self.subscription.case.policy.name})"
        )

    def published(self, record: Published) -> None:
        if self.replaced_by is not None or (self.no_local and record.publisher == self.subscription.session.number):
            return
        if self.wants(record):
            self.expected.append(record.sequence)
        self.stateful = self.stateful or self.subscription.conflation.state is not None

    def take(self, seen: Seen, *, lost: bool = False) -> int:
        """A frame for this subscription was taken whole (``lost``: it never will be). Returns its sequence."""
        history = self.history
        sequences = history.sequences(seen.topic, seen.payload)
        assert matches(self.filter, seen.topic), f"{seen.topic} does not belong to {self.filter}"
        if self.shared is not None:
            return self.shared.take(self, seen, sequences)
        if seen.gap is not None:
            self._announced(seen.gap)
        if seen.retain and not self.keeps_retain:
            return self._take_retained(seen, sequences)
        if seen.dup:
            at = next((s for s in sequences if s in self.seen or s <= self.start), None)
            assert at is not None, f"DUP on a record never sent: {seen}"
            return at
        handed = self.handed_over(sequences)
        if handed is not None:
            heir, sequence = handed
            heir.seen[sequence] = 1
            return sequence
        if self.replaced is not None and sequences[-1] <= self.start:
            self.early.append(sequences[-1])  # of a snapshot that either of them asked for
            return sequences[-1]
        at = bisect_right(sequences, self.last if seen.offset is None else seen.offset - 1)
        assert seen.offset is None or seen.offset > self.last, f"offset {seen.offset} after {self.last} on {self}"
        assert at < len(sequences), (
            f"out of order or twice: sequence {sequences} after {self.last} on {self}: {seen.payload[:40]!r}"
        )
        sequence = sequences[at]
        self.last = sequence
        self._check_fields(seen, history.records[sequence])
        if sequence <= self.start:
            self.early.append(sequence)
            return sequence
        place = bisect_left(self.expected, sequence)
        assert self.expected[place : place + 1] == [sequence], f"not expected: {seen}"
        if self.version5 and self.filter[0] != "$" and not self.excess and not self.replaced and not self.conflates:
            missing = place - len(self.seen)
            told = self.announced - missing
            ahead = max(0, bisect_right(self.expected, self.told_upto) - place - 1)  # a look told of these already
            most = self.early_gaps + self.lost_again + ahead
            assert -self.silent_gaps <= told <= most or (self.narrow and told < 0), (
                f"{missing} records were left out before {sequence} on {self}, {self.announced} announced"
            )
        self.seen[sequence] = 1
        return sequence

    @property
    def early_gaps(self) -> int:
        """How many more may be counted than were expected: retained records, those of the snapshot or the archive, and
        what the subscription that it replaced still owed, where these were not sent."""
        request, gaps = self.subscription.request, self.subscription.counters.gap_records
        options = request.options
        plain = request.send_retained == "never" and not options.snapshot and options.start == "end"
        if plain and self.replaced is None and not self.renewed:
            return 0
        return gaps[Reason.EXPIRED] + gaps[Reason.TOO_LARGE_FOR_CLIENT] + self.owed_by_older

    @property
    def silent_gaps(self) -> int:
        """Records that expired are announced to who asks for it."""
        told = self.subscription.request.options.expiries
        return 0 if told else self.subscription.counters.gap_records[Reason.EXPIRED]

    @property
    def conflates(self) -> bool:
        """It is, or was, given the latest record per key: what that leaves out is announced when the pass ends. A
        reload may begin it with records that were published before."""
        subscription = self.subscription
        by_now = subscription.conflation.state is not None
        return self.stateful or by_now or bool(subscription.counters.gap_records[Reason.CONFLATED])

    def handed_over(self, sequences: list[int]) -> tuple[SubModel, int] | None:
        """Whether a record was still owed to a subscription that this one replaced, and to which."""
        older = self.replaced
        while older is not None:
            for sequence in sequences:
                if sequence not in older.seen and older.expects(sequence):
                    return older, sequence
            older = older.replaced
        return None

    def _take_retained(self, seen: Seen, sequences: list[int]) -> int:
        told = [s for s in sequences if self.history.records[s].retain]
        assert told, f"flagged as retained, but was not published so: {seen}"
        self.retained_seen.add(told[-1])
        return told[-1]

    def _announced(self, gap: GapTold) -> None:
        assert gap.reason in set(Reason), gap
        assert gap.records >= 0, gap
        assert gap.first <= gap.last, gap
        self.announced += gap.records
        self.told_upto = max(self.told_upto, gap.last)
        if gap.reason == Reason.SPILL_FAILED:
            self.lost_again += sum(gap.first <= sequence <= gap.last for sequence in set(self.unsettled.values()))

    def _check_fields(self, seen: Seen, record: Published) -> None:
        if not self.renewed:
            assert seen.qos == min(record.qos, self.qos), f"QoS {seen.qos}: {record}"
            assert seen.retain == (record.retain and self.keeps_retain), f"retain flag {seen.retain}: {record}"
        if self.version5:
            assert seen.properties == record.properties, f"{seen.properties} instead of {record.properties}"
            assert (seen.expiry_s is None) == (record.expires_s == inf), seen
        if seen.offset is not None:
            assert seen.offset == record.sequence, f"offset {seen.offset} on sequence {record.sequence}"

    # -- sums -------------------------------------------------------------------------------------------------------

    def balance(self, waiting: int) -> str | None:
        """Published = delivered + left out and counted + waiting. What is wrong, if anything is."""
        gaps = self.subscription.counters.gap_records
        counted = gaps.total()
        surplus = len(self.seen) + counted + waiting - len(self.expected)
        # What was handed over and was not fit to be sent is counted with an heir.
        unfit, heir = 0, self.replaced_by
        while heir is not None:
            unfit, heir = unfit + heir.early_gaps, heir.replaced_by
        # What was sent and could not be read from disk to be sent again may have arrived all the same.
        unsure = self.excess + self.early_gaps + (gaps[Reason.SPILL_FAILED] if self.cut else 0)
        if -unfit <= surplus <= unsure:
            return None
        return (
            f"{self}: {len(self.expected)} published, {len(self.seen)} delivered, {counted} left out "
            f"({dict(self.subscription.counters.gap_records)}), {waiting} wait, {self.excess} unsure"
        )


class GroupModel(Expectation):
    """A shared group: each record to one of its members."""

    def __init__(self, history: History, filter: str, selector: bool, start: int) -> None:
        super().__init__(history, filter, selector, start)
        self.members: list[SubModel] = []
        self.returned: set[int] = set()
        """Sent to a member that ended without acknowledging: may go to another."""

    @property
    def live(self) -> bool:
        return any(member.live for member in self.members)

    def published(self, record: Published) -> None:
        if self.wants(record):
            self.expected.append(record.sequence)

    def take(self, member: SubModel, seen: Seen, sequences: list[int]) -> int:
        if seen.gap is not None:
            member._announced(seen.gap)
        if seen.dup:
            at = next((s for s in sequences if s in self.seen), None)
            assert at is not None, f"DUP on a record never sent: {seen}"
            return at
        sequence = next((s for s in sequences if s > self.start and s not in self.seen), None)
        if sequence is None:
            sequence = next((s for s in sequences if s in self.returned or self._just_returned(s)), None)
            gone = member.subscription.ended or not member.subscription.session.connected
            if sequence is None and (gone or self.excess):
                sequence = sequences[-1]  # still on its way to one that is gone, when another had it already
            assert sequence is not None, f"given twice to group {self.filter}: {seen}"
            self.returned.discard(sequence)
        record = self.history.records[sequence]
        place = bisect_left(self.expected, sequence)
        assert self.expected[place : place + 1] == [sequence], f"not expected: {seen}"
        member._check_fields(seen, record)
        self.seen[sequence] = 1
        if member.ended is not None and seen.qos:
            self.excess += 1
            self.returned.add(sequence)
        return sequence

    def _just_returned(self, sequence: int) -> bool:
        return any(m.subscription.session.ended and sequence in m.unsettled.values() for m in self.members)

    def counted(self) -> int:
        return sum(member.subscription.counters.gap_records.total() for member in self.members)

    def balance(self, waiting: int) -> str | None:
        surplus = len(self.seen) + self.counted() + waiting - len(self.expected)
        if 0 <= surplus <= self.excess:
            return None
        return (
            f"group {self.filter}: {len(self.expected)} published, {len(self.seen)} delivered, {self.counted()} "
            f"left out, {waiting} wait, {self.excess} unsure"
        )
