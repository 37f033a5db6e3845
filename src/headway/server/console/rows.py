"""Rows of the board: a troubled consumer, the lane that it reads, a verdict; as a page gets them.

All names and texts are cut, because clients choose them.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from headway.core.consumer import Feed, Shares, Subscription
from headway.core.governance import conflated_by, peek, stall_s, state_of, with_peer
from headway.core.policy import Sample, Verdict, explain_cause, find_cause
from headway.core.routing import Registry
from headway.server.engine import Engine

# -- names -------------------------------------------------------------------------------------------------------------
#
# Names as the console shows them: cut, and with a key of fixed length by which a page names a consumer.


NAME_CHARS_MAX = 200
"""Clients choose their names, up to 64 kB of anything; a page gets the beginning."""
TEXT_CHARS_MAX = 700
KNOWN_MAX = 2000
KNOWN_CHARS_MAX = 4_000_000
_KEY_BYTES = 9


class Name(NamedTuple):
    """The names of one consumer: those of its client, its filter, and its channel and tag (or nothing)."""

    client: str
    filter: str
    consumer: str

    @property
    def chars(self) -> int:
        return len(self.client) + len(self.filter) + len(self.consumer)

    @property
    def key(self) -> str:
        whole = "\0".join(self).encode(errors="surrogatepass")
        return urlsafe_b64encode(blake2b(whole, digest_size=_KEY_BYTES).digest()).decode()


def name_of(subscription: Subscription) -> Name:
    return Name(subscription.session.client, subscription.filter, subscription.request.label)


def cut(text: str, most: int = NAME_CHARS_MAX) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


class Known:
    """The consumers that pages were told of, by key: the latest ``KNOWN_MAX``, fewer where names are long."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, Name] = OrderedDict()
        self.chars = 0

    def key(self, name: Name) -> str:
        key = name.key
        if key not in self._names:
            self.chars += name.chars
        self._names[key] = name
        self._names.move_to_end(key)
        while len(self._names) > KNOWN_MAX or (self.chars > KNOWN_CHARS_MAX and len(self._names) > 1):
            self.chars -= self._names.popitem(last=False)[1].chars
        return key

    def find(self, key: str) -> Name | None:
        return self._names.get(key)


def consumer_of(registry: Registry, name: Name) -> Subscription | None:
    """Returns the consumer of this name; None if there is none any more."""
    theirs = registry.subscriptions_of(name.client)
    first = theirs.get(name.filter)
    if first is not None and name_of(first) == name:
        return first
    return next((one for one in theirs.values() if name_of(one) == name), None)


# -- rows --------------------------------------------------------------------------------------------------------------


class DeedRow(msgspec.Struct, frozen=True):
    """A verdict: what was found of whom, and what was done."""

    number: int
    wall_s: float
    key: str
    client: str
    filter: str
    kind: str
    """``fire`` or ``clear``."""
    action: str
    enforced: bool
    reason: str
    cause: str
    policy: str
    rule: int
    text: str


class ConsumerRow(msgspec.Struct, frozen=True):
    key: str
    client: str
    filter: str
    consumer: str
    protocol: str
    lane: int
    """Index in the frame's lanes."""
    connected: bool
    state: str
    slow: bool
    conflated_by: str
    cause: str
    """The likely cause now, in a word; empty while nothing waits."""
    why: str
    """The same in words."""
    lag_s: float
    lag_records: int
    lag_bytes: int
    held_bytes: int
    view_age_s: float
    drain_rate: float
    offered_rate: float
    drain_share: float
    catching_up_s: float | None
    """Seconds until it has taken all that waits; None: never, at these rates; 0: not known."""
    blocked_s: float
    credit_exhausted_s: float
    in_flight: int
    stall_s: float
    """For how long publishers waited for it."""
    gaps: int
    slow_count: int
    policy: str
    last: DeedRow | None


class LaneRow(msgspec.Struct, frozen=True):
    filter: str
    queue: bool
    consumers: int
    troubled: int
    """Those of its consumers that have a row."""
    slow: int
    records: int
    """Records since the lane began."""
    end_bytes: int
    memory_bytes: int
    disk_bytes: int
    gated: bool
    """Publishers wait for a consumer of this lane."""


def deed_row(verdict: Verdict, key: str) -> DeedRow:
    return DeedRow(
        verdict.number, round(verdict.wall_s, 2), key, cut(verdict.client), cut(verdict.filter), str(verdict.kind),
        verdict.action.word, verdict.enforced, str(verdict.reason), str(verdict.cause or ""), verdict.policy,
        verdict.rule, cut(verdict.text, TEXT_CHARS_MAX),
    )  # fmt: skip


def consumer_row(engine: Engine, one: Subscription, lane: int, known: Known, shares: Shares) -> ConsumerRow:
    registry, now, session, case = engine.broker.registry, engine.now(), one.session, one.case
    sample = now_of(engine, one, shares)
    judged = sample.lag_records > 0 or sample.in_flight > 0
    key, verdict = known.key(name_of(one)), case.last_verdict
    ages = case.last_sample if one in registry.watched else sample
    return ConsumerRow(
        key=key, client=cut(session.client), filter=cut(one.filter), consumer=cut(one.request.label),
        protocol=session.protocol, lane=lane, connected=session.connected, state=state_of(one), slow=case.slow,
        conflated_by=cut(conflated_by(one)), cause=str(find_cause(sample)) if judged else "",
        why=explain_cause(sample).partition(", ")[2] if judged else "", lag_s=round(sample.lag_age, 3),
        lag_records=sample.lag_records, lag_bytes=sample.lag_bytes,
        held_bytes=sample.held_bytes, view_age_s=round(one.view_age_s(now), 3),
        drain_rate=round(ages.drain_rate, 1), offered_rate=round(ages.offered_rate, 1),
        drain_share=round(ages.drain_share, 4), catching_up_s=_finite(ages.catching_up),
        blocked_s=round(sample.blocked_time, 2), credit_exhausted_s=round(ages.credit_exhausted_time, 2),
        in_flight=sample.in_flight, stall_s=round(stall_s(one, now), 2), gaps=one.counters.gap_records.total(),
        slow_count=case.slow_count, policy=case.policy.name,
        last=None if verdict is None else deed_row(verdict, key),
    )  # fmt: skip


def now_of(engine: Engine, one: Subscription, shares: Shares) -> Sample:
    """Returns a consumer's sample of this moment, with what its transport knows of the peer."""
    sample = peek(engine.broker.registry, one, engine.now(), shares)
    return with_peer(sample, one) if one.session.connected else sample


def lane_row(feed: Feed, troubled: int) -> LaneRow:
    members = sum(len(queue.members) for queue in feed.queues if queue.feed is feed)
    lane = feed.lane
    return LaneRow(
        cut(feed.key.filter), bool(feed.queues), members or len(feed.subscriptions), troubled, feed.slow, lane.count,
        lane.end, lane.resident_bytes, lane.spilled_bytes, feed.gated,
    )  # fmt: skip


def name_in(verdict: Verdict) -> Name:
    """Returns the name of the consumer that a verdict is about; of several of its client on one queue, of neither."""
    return Name(verdict.client, verdict.filter, "")


def _finite(seconds: float) -> float | None:
    return None if seconds == float("inf") else round(seconds, 1)
