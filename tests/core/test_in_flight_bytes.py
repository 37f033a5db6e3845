"""Bytes in flight of one user: what was sent to all of its clients and is not acknowledged, over all its sessions."""

from __future__ import annotations

from tests.core.stage import Client, Stage
from tests.core.test_allowance import given, of_user

from headway.core.allowance import Allowance, UserLimits
from headway.core.base import Reason
from headway.core.permission import Identity

RECORD = 1_000
"""Bytes of a payload; a record has a topic besides."""
SLACK = RECORD + 100
"""The last record may go beyond the limit."""
SLOW = """
[[policy]]
name = "all"
topics = ["#"]
[[policy.rule]]
when = { any = [{ credit_exhausted_time = "> 2s" }, { lag_age = "> 2s" }, { drain_rate = "< 1MB/s" }] }
then = "notify"
"""


def limits(size: int) -> UserLimits:
    return UserLimits("limit[1]", in_flight_bytes=size)


def clients_of_ann(stage: Stage, names: str, size: int, *, acks: bool = True) -> tuple[Allowance, list[Client]]:
    given(stage, limits(size))
    found = [stage.consumer(name, "t", 1, acks=acks, expiry_s=60.0) for name in names.split()]
    for one in found:
        ann = of_user(stage, one, "ann")
    return ann, found


def in_flight(*clients: Client) -> int:
    return sum(
        delivery.chunk.size_of(delivery.index) if delivery.chunk is not None else RECORD
        for client in clients for delivery in client.session.channel.in_flight.values()
    )  # fmt: skip


def test_what_is_not_acknowledged_is_limited_over_all_sessions_of_a_user() -> None:
    stage = Stage()
    ann, (a, b) = clients_of_ann(stage, "a b", 100_000, acks=False)
    other = stage.consumer("other", "t", 1, acks=False)
    source = stage.client("source")
    source.publish("t", 0, 500, size=RECORD, qos=1)
    stage.turn()
    assert len(other.seen) == 500
    assert 100_000 <= ann.in_flight_bytes == in_flight(a, b) < 100_000 + SLACK
    assert stage.broker.registry.allowances.counts["in_flight_bytes"]
    for _ in range(2_000):
        for one in (a, b):
            one.acknowledge(1)
        stage.turn()
        assert ann.in_flight_bytes == in_flight(a, b) < 100_000 + SLACK
    assert a.numbers == b.numbers == list(range(500))
    assert not ann.in_flight_bytes
    assert not ann.waiting


def test_who_settles_at_once_does_not_take_all_the_room_that_comes_free() -> None:
    stage = Stage()
    _, clients = clients_of_ann(stage, "a b c d", 3 * RECORD, acks=False)
    source = stage.client("source")
    source.publish("t", 0, 400, size=RECORD, qos=1)
    for _ in range(160):
        stage.turn()
        for one in clients:
            one.acknowledge(1)
    shares = [len(one.seen) for one in clients]
    assert min(shares) >= max(shares) / 2, shares


def test_a_session_that_holds_all_of_it_and_ends_leaves_the_room_to_those_that_wait() -> None:
    stage = Stage()
    ann, (hog,) = clients_of_ann(stage, "hog", 50_000, acks=False)
    source = stage.client("source")
    source.publish("t", 0, 300, size=RECORD, qos=1)
    stage.turn()
    late = stage.consumer("late", "u", 1)
    of_user(stage, late, "ann")
    source.publish("u", 0, 10, size=RECORD, qos=1)
    stage.turn()
    assert not late.seen
    assert "user ann has" in stage.stats(late).waits_for
    hog.leave()
    stage.turn()
    assert not late.seen  # its session stays, and so does what it holds
    stage.broker.disconnect(hog.session, hog.outlet, Reason.CLIENT_GONE, stage.now)
    hog.request = hog.request.__class__("hog", "", True)
    hog.connect()  # a clean start
    stage.turn()
    assert late.numbers == list(range(10))
    assert not ann.in_flight_bytes
    assert stage.stats(late).waits_for == ""


def test_a_shared_subscription_and_queued_records_count_and_come_free() -> None:
    stage = Stage()
    given(stage, limits(20 * RECORD))
    a, b = (stage.consumer(name, "$share/g/t", 1, acks=False) for name in "ab")
    ann = of_user(stage, a, "ann")
    of_user(stage, b, "ann")
    source = stage.client("source")
    source.publish("t", 0, 200, size=RECORD, qos=1)
    stage.turn()
    assert 20 * RECORD <= ann.in_flight_bytes < 20 * RECORD + SLACK
    for _ in range(400):
        a.acknowledge(1)
        b.acknowledge(1)
        stage.turn()
    assert sorted(a.numbers + b.numbers) == list(range(200))
    assert not ann.in_flight_bytes


def test_a_limit_that_is_raised_or_taken_away_lets_go_on_who_waits() -> None:
    stage = Stage()
    ann, (a,) = clients_of_ann(stage, "a", 50_000, acks=False)
    source = stage.client("source")
    source.publish("t", 0, 1_000, size=RECORD, qos=1)
    stage.turn()
    seen = len(a.seen)
    allowances = stage.broker.registry.allowances
    allowances.take([limits(200_000)], {})
    stage.broker.set_allowances(lambda _: allowances.of(Identity("ann")), stage.now)
    stage.turn()
    assert seen < len(a.seen) < 300
    assert ann.in_flight_bytes < 200_000 + SLACK
    allowances.take([UserLimits("limit[1]", connections=9)], {})
    stage.broker.set_allowances(lambda _: allowances.of(Identity("ann")), stage.now)
    stage.turn()
    assert len(a.seen) == 1_000
    assert not ann.in_flight_bytes  # nothing is counted any more


def test_who_waits_for_others_of_its_user_is_not_called_slow_and_who_acknowledges_nothing_is() -> None:
    stage = Stage(SLOW)
    _, (_hog, late) = clients_of_ann(stage, "hog late", 30_000, acks=False)
    late.acks = True
    late.acknowledge(1_000)
    source = stage.client("source")
    for number in range(40):
        source.publish("t", 40 * number, 40, size=RECORD, qos=1)
        stage.run(0.25)
    late.acknowledge(1_000)
    assert stage.stats(late).lag_records
    told = stage.told("slow")
    assert {one["client"] for one in told} == {"hog"}, told
    assert any("its user has as many bytes in flight as its limit permits" in str(one) for one in told), told
