"""The biggest client goes: who gives way is judged by all that it holds, not by its largest lane."""

from __future__ import annotations

from math import inf

import pytest
from tests.core.rows import KB, assert_told_why
from tests.core.stage import STUCK, Client, Stage

from headway.core.allowance import Holdings
from headway.core.base.errors import Reason
from headway.core.consumer.session import Session
from headway.core.governance.memory import CLIENTS_LOOKED_AT_MAX, LOOKS_MAX, MORE_BYTES
from headway.core.log import QUERIES

MANY = 8


def spread(stage: Stage, name: str = "many", qos: int = 0, **how: float) -> Client:
    """A client that is stuck with as many subscriptions as ``fill`` publishes to."""
    client = stage.client(name, reads=STUCK, buffer=500, **how)  # type: ignore[arg-type]
    for number in range(MANY):
        client.subscribe(f"many/{number}", qos)
    return client


def fill(stage: Stage, publisher: Client, *stuck: Client, turns: int = 200, qos: int = 0) -> None:
    """Publishes twice as much to the many topics together as to the one, until somebody goes."""
    for turn in range(turns):
        if not all(client.connected for client in stuck):
            break
        publisher.publish("one", turn, 4, size=1000, qos=qos)
        for number in range(MANY):
            publisher.publish(f"many/{number}", turn, 1, size=1000, qos=qos)
        stage.run(0.1)


@pytest.mark.parametrize(("disk", "reason"), [("0B", Reason.MEMORY_LIMIT), ("1MB", Reason.DISK_LIMIT)])
def test_the_client_that_holds_the_most_in_all_goes_first(disk: str, reason: Reason) -> None:
    stage = Stage(memory="1MB", disk=disk, max_client_share="100%")
    many = spread(stage)
    one = stage.consumer("one", "one", reads=STUCK, buffer=500)
    healthy = stage.consumer("healthy", "#")
    fill(stage, stage.client("publisher"), many, one)
    assert (many.connected, one.connected) == (False, True)
    verdict = stage.broker.verdicts.last("many")
    assert verdict is not None
    assert verdict.reason is reason
    assert_told_why(many, "its client holds more than any other", "in 8 subscriptions")
    assert stage.broker.verdicts.last("one") is None
    assert stage.broker.verdicts.last("healthy") is None
    assert healthy.connected


@pytest.mark.parametrize("asked_for", [False, True])
def test_the_biggest_client_goes_first_where_that_is_asked_for(asked_for: bool) -> None:
    """It is not furthest back in the lane that it shares with another, and holds a little more in another lane."""
    stage = Stage(memory="1MB", disk="0B", max_client_share="100%")
    stage.pool.biggest_client_first = asked_for
    publisher = stage.client("publisher")
    first = stage.consumer("first", "one", reads=STUCK, buffer=500)
    publisher.publish("one", 0, 100, size=1000)
    stage.run(0.1)
    biggest = stage.client("biggest", reads=STUCK, buffer=500)
    biggest.subscribe("one")
    biggest.subscribe("more")
    for turn in range(400):
        publisher.publish("one", turn, 10, size=1000)
        publisher.publish("more", turn, 3 if turn < 44 else 0, size=1000)
        stage.run(0.1)
    assert not first.connected
    assert not biggest.connected
    verdicts = [stage.broker.verdicts.last(client) for client in ("biggest", "first")]
    numbers = [verdict.number for verdict in verdicts if verdict is not None]
    assert numbers == ([1, 2] if asked_for else [2, 1])
    if asked_for:
        assert_told_why(biggest, "its client holds more than any other")
    else:
        assert_told_why(first, "it is furthest back")


def test_a_clients_lanes_together_leave_memory_beyond_its_share() -> None:
    """None of them is over the share alone, and the pool has room."""
    stage = Stage(memory="4MB", disk="40MB", max_client_share="20%")
    many = spread(stage)
    one = stage.consumer("one", "one", reads=STUCK, buffer=500)
    fill(stage, stage.client("publisher"), many, one, turns=140)
    stage.run(1)
    share = stage.pool.share_bytes
    assert 500 * KB < one.session.memory_bytes < share, "it is below its share, so it stays in memory"
    assert many.session.memory_bytes <= share + MORE_BYTES
    assert many.session.disk_bytes == stage.pool.disk_bytes >= 1140 * KB - share
    assert stage.pool.memory_peak_bytes < 2 * share + 200 * KB
    many.reads = one.reads = inf
    stage.run(3)
    assert [number for number in many.numbers if many.numbers.count(number) != MANY] == []
    assert not stage.disk.held
    assert len(stage.broker.verdicts) == 0


def test_of_a_client_that_was_promised_the_most_nothing_is_given_up() -> None:
    stage = Stage(memory="1MB", disk="0B", max_client_share="100%")
    away = spread(stage, "away", 1, expiry_s=3600.0)
    away.leave()
    one = stage.consumer("one", "one", reads=STUCK, buffer=500)
    publisher = stage.client("publisher")
    fill(stage, publisher, one, qos=1)
    assert not one.connected
    assert stage.broker.verdicts.last("away") is None
    away.reads = inf
    away.connect()
    stage.run(3)
    assert len(away.numbers) == MANY * (max(away.numbers) + 1), "all of it is there"


def test_a_client_that_is_away_loses_of_one_subscription_after_the_other_what_nobody_was_promised() -> None:
    stage = Stage(memory="1MB", disk="0B", max_client_share="100%")
    away = spread(stage, "away", 1, expiry_s=3600.0)
    away.leave()
    one = stage.consumer("one", "one", reads=STUCK, buffer=500)
    fill(stage, stage.client("publisher"), one, turns=80)
    lost = [one.counters.gap_records[Reason.MEMORY_LIMIT] for one in away.session.subscriptions.values()]
    assert 0 < sum(count > 0 for count in lost) < MANY, "no more than it takes"
    assert one.connected
    verdict = stage.broker.verdicts.last("away")
    assert verdict is not None
    assert "its client holds more than any other: 64" in verdict.text
    assert " kB in 8 subscriptions" in verdict.text
    away.reads = inf
    away.connect()
    stage.run(3)
    assert sum(away.gap_told.values()) == sum(lost)
    assert len(away.numbers) + sum(lost) == MANY * 80


def test_a_client_is_not_judged_by_what_has_just_come() -> None:
    """It is late with little, and with nothing else."""
    stage = Stage(memory="1MB", disk="0B", max_client_share="100%")
    many = spread(stage)
    one = stage.consumer("one", "one", reads=STUCK, buffer=500)
    publisher = stage.client("publisher")
    publisher.publish("one", 0, 330, size=1000)
    publisher.publish("many/0", 0, 20, size=1000)
    stage.run(2)
    for number in range(MANY):
        publisher.publish(f"many/{number}", 0, 64, size=1000)
    stage.run(0.5)
    assert many.session.memory_bytes > 500 * KB
    publisher.publish("one", 330, 30, size=1000)
    stage.run(0.2)
    assert (many.connected, one.connected) == (True, False)


def test_what_is_held_of_one_lane_counts_once() -> None:
    holdings = Holdings()
    for holder, size in (("first", 700), ("second", 900), ("first", 800)):
        holdings.note("lane", holder, size, 0, size)
    holdings.note("other lane", "third", 50, 20, 30)
    assert (holdings.gating_bytes, holdings.disk_bytes, holdings.memory_bytes, len(holdings)) == (950, 20, 930, 2)
    holdings.note("lane", "first", 0, 0, 0)
    assert holdings.gating_bytes == 950, "another holds it"
    holdings.note("lane", "second", 0, 0, 0)
    assert (holdings.gating_bytes, len(holdings)) == (50, 1)


@pytest.mark.parametrize("clients", [3, 60])
def test_a_turn_looks_at_few_clients_and_few_of_their_subscriptions(
    clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(memory="1MB", disk="0B", max_client_share="100%")
    for number in range(clients):
        spread(stage, f"c{number}")
    publisher = stage.client("publisher")
    for number in range(MANY):
        publisher.publish(f"many/{number}", 0, 150, size=1000)
    stage.run(0.5)
    looks: list[Session] = []
    look_at = Session.look_at
    monkeypatch.setattr(Session, "look_at", lambda self, *them: looks.append(self) or look_at(self, *them))
    stage.broker.governor.relief.relieve(stage.now)
    assert len(looks) <= LOOKS_MAX + CLIENTS_LOOKED_AT_MAX
    stage.run(5)
    assert stage.pool.memory_bytes < 900 * KB
    assert len(stage.pool.clients) == sum(client.connected and bool(client.session.lagging)
                                          for client in stage.clients.values())  # fmt: skip


def test_what_a_client_holds_besides_records_counts_too() -> None:
    """Such as what is held for its queries and snapshots: it goes with it."""
    stage = Stage(memory="1MB", disk="0B", max_client_share="100%", free="0MB")
    asks = stage.consumer("asks", "few", reads=STUCK, buffer=500)
    one = stage.consumer("one", "one", reads=STUCK, buffer=500)
    asks.session.tab.add(QUERIES, 350_000)
    publisher = stage.client("publisher")
    for turn in range(60):
        if not (asks.connected and one.connected):
            break
        publisher.publish("few", turn, 4, size=1000)
        publisher.publish("one", turn, 6, size=1000)
        stage.run(0.1)
    assert (asks.connected, one.connected) == (False, True)
    assert_told_why(asks, "its client holds more than any other", "in 1 subscription")
    assert not asks.session.tab.bytes


def test_nobody_is_ranked_who_has_everything() -> None:
    stage = Stage(memory="4MB", disk="40MB", max_client_share="20%")
    many = spread(stage)
    fill(stage, stage.client("publisher"), many, turns=130)
    pool = stage.pool
    assert pool.clients.most() is pool.clients_on_disk.most() is many.session
    assert many.session.disk_bytes == pool.disk_bytes > 0
    many.reads = inf
    stage.run(3)
    assert (pool.memory_bytes, pool.disk_bytes, len(pool.clients), len(pool.clients_on_disk)) == (0, 0, 0, 0)
