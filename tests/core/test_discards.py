"""Discards free: what a look leaves out waits no more, whatever kind of consumer it waited for."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from tests.core.queues_stage import QueueStage
from tests.core.stage import STUCK
from tests.core.test_idle import steps

from headway.core.consumer.subscription import Subscription
from headway.core.delivery.fanout import start_conflating
from headway.core.governance.moves import discard
from headway.core.log.lanes.chunk import CHUNK_BYTES
from headway.core.policy.rules.rule import parse_action
from headway.core.telemetry import stats
from headway.core.telemetry.stats import account

COUNT, SIZE = 400, 1000
RULE = """
[[policy]]
name = "shed"
topics = ["t/#", "$queue/q"]
[[policy.rule]]
when = {{ lag_records = 390 }}
then = {{ action = "discard", {} }}
"""


def priority_of(number: int) -> int:
    return number * 7 % 10


def highest(numbers: list[int], keep: int) -> list[int]:
    return sorted(sorted(numbers, key=lambda number: (priority_of(number), number))[len(numbers) - keep :])


WHICH: dict[str, Callable[[list[int]], list[int]]] = {
    'which = "oldest", keep_records = 50': lambda waiting: waiting[-50:],
    'which = "newest", keep_records = 50': lambda waiting: waiting[:50],
    'which = "lowest_priority", keep_records = 50': lambda waiting: highest(waiting, 50),
    'which = "selector", selector = "priority < 8"': lambda waiting: [n for n in waiting if priority_of(n) >= 8],
    'which = "topics", topics = ["t/1"]': lambda waiting: [n for n in waiting if not n % 5],
}


class Kind:
    """A stuck consumer of some kind, for which records wait."""

    def __init__(self, toml: str, name: str) -> None:
        self.name = name
        pool = {"memory": "200kB", "disk": "8MB", "max_client_share": "100%"} if name == "spilled" else {}
        self.stage = QueueStage(toml, **pool)
        self.queued = name.endswith("queue")
        if self.queued:
            self.writer: Any = self.stage.peer("writer")
            self.queue = self.writer.declare("q", priorities=9 * (name == "priority queue"))
            self.writer.bind("q", "amq.topic", "t.#")
            self.reader: Any = self.stage.peer("reader", buffer=10**7)
            self.subscription: Subscription = self.reader.consume("q", 5, acks=False)
        else:
            self.writer, qos = self.stage.client("writer"), int(name == "qos 1")
            self.how: dict[str, Any] = {"window": 5, "acks": False} if qos else {"reads": STUCK}
            self.reader = self.stage.client("reader", **self.how)
            self.subscription = self.reader.subscribe("t/#", qos)
        self.qos = int(name == "qos 1")

    def publish(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            how: dict[str, Any] = {"size": SIZE, "priority": priority_of(number)}
            if self.queued:
                self.writer.publish(f"t.{int(number % 5 > 0)}", number, exchange="amq.topic", **how)
            else:
                assert self.writer.publish(f"t/{int(number % 5 > 0)}", number, qos=self.qos, **how)
            if not number % 50:
                self.stage.run(0.4 * (self.name == "spilled"))
                self.stage.turn()
        self.stage.turn()

    def drained(self) -> list[int]:
        """All that it was given, once it reads and settles everything."""
        if self.queued:
            for _ in range(COUNT):
                if not self.reader.ids():
                    break
                self.reader.ack(*self.reader.ids())
                self.stage.turn()
        self.reader.reads = inf
        if self.qos:
            self.reader.acks = True
            self.reader.acknowledge(5)
        self.stage.run(2)
        return sorted(self.reader.numbers)

    @property
    def waits(self) -> int:
        """How many records wait of which nothing was sent."""
        return self.subscription.lag_records - (not self.queued and not self.subscription.cursor.at_boundary)

    @property
    def begun(self) -> list[int]:
        """What it was sent before the look."""
        if self.queued or self.qos:
            return sorted(self.reader.numbers)
        cursor = self.subscription.cursor
        return list(range(cursor.number + (not cursor.at_boundary)))


KINDS = ["qos 0", "qos 1", "spilled", "queue", "priority queue"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", WHICH)
def test_what_a_look_leaves_out_waits_no_more(which: str, kind: str) -> None:
    consumer = Kind(RULE.format(which), kind)
    stage, subscription = consumer.stage, consumer.subscription
    consumer.publish(0, COUNT)
    assert (stage.pool.disk_bytes > 0) == (kind == "spilled")
    begun = consumer.begun
    waiting = [number for number in range(COUNT) if number not in begun]
    if kind == "priority queue":
        waiting.sort(key=lambda number: (-priority_of(number), number))
    offered = account(subscription).offered_records
    stage.run(1)
    kept = WHICH[which](waiting)
    (shown,) = [one for one in stats.consumers(stage.broker, stage.now) if one.client == "reader"]
    assert shown.lag_records == len(kept)
    each = SIZE * 1.1 + 60
    assert len(kept) * SIZE <= shown.lag_bytes <= len(kept) * each
    assert dict(subscription.counters.gap_records) == {"discarded": len(waiting) - len(kept)}
    assert account(subscription).offered_records == offered, "what was offered was sent, is left out, or waits"
    assert consumer.drained() == sorted(begun + kept)
    assert dict(subscription.counters.gap_records) == {"discarded": len(waiting) - len(kept)}
    assert sum(consumer.writer.session.lost_records.values()) == len(waiting) - len(kept)
    assert stage.pool.memory_bytes == stage.pool.disk_bytes == 0


LADDER = """
[[policy]]
name = "ladder"
topics = ["t/#", "$queue/q"]
[[policy.rule]]
when = { lag_records = 390 }
then = { action = "discard", which = "%s", %s }
[[policy.rule]]
when = { lag_records = %d }
for = "400ms"
then = { action = "discard", which = "oldest", keep_records = 10 }
"""


@pytest.mark.parametrize("kind", ["qos 0", "qos 1", "queue"])
@pytest.mark.parametrize(("which", "option", "left"), [
    ("selector", 'selector = "priority < 8"', 80), ("lowest_priority", "keep_records = 60", 60),
    ("newest", "keep_records = 60", 60),
])  # fmt: skip
@pytest.mark.parametrize("beyond", [-20, 20])
def test_the_next_rule_of_a_ladder_sees_what_is_left(
    which: str, option: str, left: int, beyond: int, kind: str
) -> None:
    consumer = Kind(LADDER % (which, option, left + beyond), kind)
    consumer.publish(0, COUNT)
    waited = consumer.waits
    consumer.stage.run(2)
    shown = consumer.subscription.lag_records
    assert shown == 10 if beyond < 0 else left - 4 <= shown <= left
    assert dict(consumer.subscription.counters.gap_records) == {"discarded": waited - shown}


@pytest.mark.parametrize("which", ["selector", "topics", "newest", "lowest_priority"])
def test_what_is_left_out_is_told_at_once_and_not_again(which: str) -> None:
    """Also if the consumer is conflated afterwards, is replaced, or ends before it has passed that."""
    option = next(one for one in WHICH if f'"{which}"' in one)
    for end in ("reads on", "is replaced", "ends", "is conflated"):
        consumer = Kind(RULE.format(option) + '[[topic]]\nfilter = "t/#"\nkey = "topic"\n', "qos 0")
        consumer.publish(0, COUNT)
        waited = consumer.waits
        consumer.stage.run(1)
        kept, old = consumer.subscription.lag_records, consumer.subscription
        assert sum(consumer.writer.session.lost_records.values()) == waited - kept
        match end:
            case "is replaced":
                consumer.reader.subscribe("t/#", snapshot="true")
            case "ends":
                consumer.stage.broker.unsubscribe(consumer.reader.session, "t/#", consumer.stage.now)
            case "is conflated":
                start_conflating(old, consumer.stage.now)
        consumer.drained()
        sent = len(consumer.reader.numbers)
        assert old.counters.gap_records["discarded"] == waited - kept
        assert sent <= len(consumer.begun) + kept + 2, "and the two topics of a snapshot"
        if end == "reads on":
            assert consumer.reader.gap_told == {"discarded": waited - kept}


@pytest.mark.parametrize("kind", ["qos 0", "queue"])
@pytest.mark.parametrize("which", WHICH)
def test_a_look_at_very_many_is_divided_into_steps(which: str, kind: str) -> None:
    consumer = Kind("", kind)
    consumer.stage.checks = False
    for first in range(0, 20_000, 50):
        topic, how = f"{first // 50 % 5 > 0:d}", {"size": 20, "priority": priority_of(first // 50)}
        if kind == "queue":
            consumer.writer.publish(f"t.{topic}", first, 50, exchange="amq.topic", **how)
        else:
            consumer.writer.publish(f"t/{topic}", first, 50, **how)
    consumer.stage.turn()
    before = consumer.subscription.lag_records
    if kind == "queue":
        consumer.queue.members.count_slow(consumer.subscription, 1)
    act = parse_action(tomllib.loads("then = { action = \"discard\", " + which + " }")["then"])
    registry, lines = consumer.stage.broker.registry, []
    lines.append(steps(lambda: discard(consumer.subscription, act, registry, consumer.stage.now)))
    while consumer.stage.broker.has_work:
        lines.append(steps(lambda: consumer.stage.broker.flush(consumer.stage.now)))
    assert max(lines) < 250_000, lines
    left = consumer.subscription.lag_records
    assert left == 50 if "keep" in which else 0 < left < before / 3, "all of it was looked at"


@pytest.mark.parametrize(("which", "kept"), [
    ('which = "oldest", keep_records = 50', slice(-50, None)), ('which = "newest", keep_records = 9000', slice(9000)),
])  # fmt: skip
def test_what_is_left_between_very_many_that_were_left_out_is_looked_at_in_steps(which: str, kept: slice) -> None:
    """Every other record was: what is left are as many ranges as records."""
    consumer = Kind("", "qos 0")
    consumer.stage.checks = False
    for number in range(20_000):
        consumer.writer.publish(f"t/{number % 2}", number, size=20)
    consumer.stage.turn()
    registry, lines, waiting = consumer.stage.broker.registry, list[int](), range(0, 20_000, 2)
    for one in ('which = "topics", topics = ["t/1"]', which):
        act = parse_action(tomllib.loads(f'then = {{ action = "discard", {one} }}')["then"])
        lines.append(steps(lambda act=act: discard(consumer.subscription, act, registry, consumer.stage.now)))
        while consumer.stage.broker.has_work:
            lines.append(steps(lambda: consumer.stage.broker.flush(consumer.stage.now)))
    assert max(lines) < 100_000, lines
    assert consumer.subscription.lag_records == (50 if "oldest" in which else 9000)
    got = [number for number in consumer.drained() if not number % 2]  # some were sent before
    assert got[kept] == list(waiting[kept])[: len(got)]
    assert len(got) < (200 if "oldest" in which else 9200)


EVERYTHING = """
[[policy]]
name = "everything"
topics = ["t/#"]
[[policy.rule]]
when = { lag_records = 390 }
then = "notify"
"""


@pytest.mark.parametrize("which", ["newest", "lowest_priority", "selector"])
def test_what_is_dropped_from_a_queue_takes_up_no_room(which: str) -> None:
    option = 'selector = "priority < 9"' if which == "selector" else "keep_records = 60"
    consumer = Kind(RULE.format(f'which = "{which}", {option}'), "queue")
    for number in range(COUNT):
        priority = 9 if number < 40 or number >= 380 else 1
        consumer.writer.publish("t.0", number, exchange="amq.topic", size=SIZE, priority=priority)
    consumer.stage.run(1)
    assert consumer.subscription.lag_records == (55 if which == "selector" else 60)
    assert consumer.stage.pool.memory_bytes < 4 * CHUNK_BYTES
    assert len(consumer.drained()) == 5 + (55 if which == "selector" else 60)
    assert consumer.stage.pool.memory_bytes == 0


@pytest.mark.parametrize("company", ["alone", "another who has as little left", "another who needs all"])
@pytest.mark.parametrize("kind", ["qos 0", "qos 1", "spilled"])
@pytest.mark.parametrize("which", ["newest", "lowest_priority"])
def test_what_is_left_out_takes_up_no_room(which: str, kind: str, company: str) -> None:
    """But for an index. Neither does it in the middle of a lane, unless somebody else still needs it."""
    consumer = Kind(RULE.format(f'which = "{which}", keep_records = 60') + EVERYTHING, kind)
    stage, other = consumer.stage, None
    if company != "alone":
        other = stage.client("other", **consumer.how)
        other.subscribe("t/#", consumer.qos, policy="everything" if "all" in company else "shed")
    for number in range(COUNT):
        priority = 9 if number < 40 or number >= 380 else 1
        assert consumer.writer.publish("t/0", number, size=SIZE, qos=consumer.qos, priority=priority)
        if kind == "spilled" and not number % 50:
            stage.run(0.4)
            stage.turn()
    stage.turn()
    assert stage.pool.memory_bytes + stage.pool.disk_bytes > COUNT * SIZE
    stage.run(1)
    held = stage.pool.memory_bytes + stage.pool.disk_bytes
    shown = {one.client: one.held_bytes for one in stats.consumers(stage.broker, stage.now) if one.filter == "t/#"}
    if company == "another who needs all":
        assert held > COUNT * SIZE
    else:
        assert held < 4 * CHUNK_BYTES, "the chunks with the 60, and what is in flight"
        index = sum(lane.index_bytes for lane in {consumer.subscription.feed.lane})
        assert abs(sum(shown.values()) - held + index) < len(shown) + 2 * SIZE
    begun = len(consumer.begun)
    assert len(consumer.drained()) == begun + 60
    if other is not None:
        other.reads, other.acks = inf, True
        other.acknowledge(5)
        stage.run(2)
        assert (len(other.numbers) == COUNT) == (company == "another who needs all")
    assert stage.pool.memory_bytes == stage.pool.disk_bytes == 0
