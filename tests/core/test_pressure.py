"""Pressure: who has to make room, in which order, and that the healthy never do."""

from __future__ import annotations

from math import inf

import pytest
from tests.core.pressure_stage import publish_while_read
from tests.core.stage import STUCK, Stage, run_to

from headway.core.base.errors import Reason


def crowd(stage: Stage) -> None:
    """A stuck consumer of a full lane, one of a small lane, a healthy one of both."""
    stage.consumer("full", "a", reads=STUCK, buffer=500)
    stage.consumer("small", "b", reads=STUCK, buffer=500)
    stage.consumer("healthy", "#")


@pytest.mark.parametrize(
    ("disk", "full_goes"),
    [
        ("100MB", None),
        ("0B", Reason.MEMORY_LIMIT),
        ("300KB", Reason.DISK_LIMIT),
    ],
)
def test_the_furthest_back_of_the_fullest_lane_goes_first(disk: str, full_goes: Reason | None) -> None:
    stage = Stage(memory="200KB", disk=disk, max_client_share="100%")
    crowd(stage)
    publisher = stage.client("publisher")
    for turn in range(80):
        publisher.publish("a", turn * 50, 50, size=200)
        publisher.publish("b", 10_000 + turn, 1, size=200)
        stage.run(0.1)
    full, small, healthy = (stage.clients[name] for name in ("full", "small", "healthy"))
    assert (full.goodbye is not None) == (full_goes is not None)
    if full_goes is not None:
        last = stage.broker.verdicts.last("full")
        assert last is not None
        assert last.reason == full_goes
    assert small.connected
    assert stage.broker.verdicts.last("healthy") is None
    for topic in (range(10_000), range(10_000, 20_000)):
        numbers = [number for number in healthy.numbers if number in topic]
        assert numbers == sorted(set(numbers)), "each once, in order"
    assert stage.pool.memory_peak_bytes <= 200_000 + 2 * 50 * 260
    for client in (full, small):
        client.reads = inf
    stage.run(2)
    assert not stage.disk.held
    assert stage.pool.memory_bytes == stage.pool.disk_bytes == 0


def test_who_has_everything_keeps_nothing_of_what_was_written_early() -> None:
    """The disk is late, so even the chunk that the healthy one has just read to its end is sent there; and then the
    stuck one goes, and nobody publishes any more."""
    stage = Stage(memory="2MB", disk="20MB", max_client_share="10%")
    stage.disk.delay_s = 5.0
    healthy = stage.consumer("healthy", "t", buffer=100_000)
    stuck = stage.consumer("stuck", "t", reads=STUCK, buffer=500)
    publisher = stage.client("publisher")
    for turn in range(66):
        publisher.publish("t", turn * 20, 20, size=2000)
        stage.run(0.1)
    assert healthy.numbers == list(range(1320))
    stage.run(10)
    assert (healthy.connected, stuck.connected) == (True, False)
    assert not stage.disk.held
    assert stage.pool.disk_bytes == stage.pool.memory_bytes == stage.pool.spilling_bytes == 0


def test_what_is_beyond_a_share_leaves_in_portions_and_waits_for_no_tick() -> None:
    """Each write costs the loop the same, however small it is."""
    stage = Stage(memory="8MB", disk="100MB", max_client_share="50%")
    stage.consumer("stuck", "t", reads=STUCK, buffer=500)
    publisher, pool, read_bytes = stage.client("publisher"), stage.pool, 110_000
    for turn in range(60):
        publisher.publish("t", turn * 50, 50, size=2000)
        stage.turn()
        assert pool.memory_bytes - pool.spilling_bytes <= pool.share_bytes + pool.portion_bytes + read_bytes
    portions = [sum(chunk.size for chunk in spill.chunks) for spill in stage.spills]
    assert len(portions) > 1
    assert min(portions) >= pool.portion_bytes


def test_who_keeps_up_does_not_wait_for_the_memory_that_others_fill() -> None:
    """A stuck consumer's lane leaves for the disk as slowly as the disk is; its publisher waits for that."""
    stage = Stage(memory="2MB", disk="20MB", max_client_share="100%")
    stage.disk.delay_s = 5.0
    stuck = stage.consumer("stuck", "t", reads=STUCK, buffer=500)
    healthy = stage.consumer("healthy", "h")
    greedy, modest = stage.client("greedy"), stage.client("modest")
    sent = 0
    for turn in range(150):
        if not greedy.paused:
            greedy.publish("t", turn * 20, 20, size=2000)
        if not modest.paused:
            modest.publish("h", turn, 1, size=100)
        sent = turn + 1
        stage.run(0.1)
        assert not modest.paused
    assert greedy.session.pauses > 1
    assert stuck.connected
    assert healthy.numbers == list(range(sent))
    assert stage.pool.memory_peak_bytes <= stage.pool.memory_limit


@pytest.mark.parametrize(
    ("disk", "common", "desk", "goes"),
    [("0B", "50%", "10%", "desk"), ("1MB", "50%", "10%", "desk"), ("0B", "10%", "50%", "other"),
     ("1MB", "10%", "50%", "other")],
)  # fmt: skip
def test_a_listeners_clients_have_another_share_of_the_common_pool(
    disk: str, common: str, desk: str, goes: str
) -> None:
    toml = f'[listeners.desk.pool]\nmax_client_share = "{desk}"'
    stage = Stage(toml, memory="1MB", disk=disk, max_client_share=common)
    publisher = stage.client("publisher")
    both = [stage.consumer(name, "t", reads=STUCK, listener=name) for name in ("desk", "other")]
    for number, _ in enumerate(stage.steps(20)):
        publisher.publish("t", number * 2, 2, size=1000)
        if not all(one.connected for one in both):
            break
    assert [one.name for one in both if not one.connected] == [goes]
    (told,) = stage.told("disconnected")
    assert "more than one client's share" in told["text"]
    assert {one.session.pool for one in both} == {stage.pool}
    assert stage.pool.lane_share == 0.5, "a lane of both has room for the larger share"


def test_nobody_is_given_up_for_what_has_just_come() -> None:
    """A burst larger than the memory, in one read: the healthy have not had the time to take it."""
    stage = Stage(memory="100KB", disk="0B")
    healthy = stage.consumer("healthy", "t", buffer=1000)
    stuck = stage.consumer("stuck", "t", reads=STUCK, buffer=1000)
    publisher = stage.client("publisher")
    publisher.publish("t", 0, 1000, size=200)
    stage.broker.flush(stage.now)
    assert stage.pool.full
    assert healthy.connected
    assert stuck.connected, "nobody can tell yet which of them is the slow one"
    stage.run(0.5)
    assert healthy.numbers == list(range(1000))
    assert stuck.connected
    assert publisher.paused, "meanwhile the memory grows no more"
    stage.run(1.5)
    assert (stuck.connected, publisher.paused) == (False, False)


def test_nor_for_what_it_has_just_asked_for() -> None:
    """Records that others should have taken by now are new to whoever has just come and begins with the earliest."""
    stage = Stage(memory="100KB", disk="0B")
    stuck = stage.consumer("stuck", "t", reads=STUCK, buffer=1000)
    stage.client("publisher").publish("t", 0, 1000, size=200)
    stage.run(0.9)
    fresh = stage.consumer("fresh", "t", reads=150_000, buffer=1000, options={"from_": "earliest"})
    stage.run(0.3)
    assert (stuck.connected, fresh.connected) == (False, True)
    stage.run(3)
    assert fresh.numbers == list(range(1000))


def test_a_durable_consumer_that_is_away_loses_what_nobody_was_promised_and_is_told() -> None:
    stage = Stage(memory="100KB", disk="0B")
    away = stage.consumer("away", "t", 1, expiry_s=3600.0)
    away.leave()
    publisher = stage.client("publisher")
    for turn in range(20):
        publisher.publish("t", turn * 50, 50, size=200)
        stage.run(0.3)
    stage.run(1)
    subscription = stage.broker.registry.sessions["away"].subscriptions["t"]
    gaps = subscription.counters.gap_records
    lost = gaps[Reason.MEMORY_LIMIT] + gaps[Reason.CLIENT_SHARE]
    assert 0 < lost <= 1000
    assert not publisher.paused
    away.connect()
    publisher.publish("t", 1000, 1, qos=1)
    stage.run(1)
    assert away.session.present
    assert len(away.numbers) + lost == 1001
    assert sum(away.gap_told.values()) == lost
    assert len(stage.broker.verdicts) < 20, "judged once for each time it held too much, not over and over"


@pytest.mark.parametrize("disk", ["0B", "50KB"])
@pytest.mark.parametrize("share", ["50%", "100%"])
def test_what_was_promised_stays_and_publishers_wait(disk: str, share: str) -> None:
    stage = Stage(memory="100KB", disk=disk, max_client_share=share)
    away = stage.consumer("away", "t", 1, expiry_s=3600.0)
    away.leave()
    publisher = stage.client("publisher")
    published = publish_while_read(publisher, 40)
    assert publisher.paused
    assert 0 < published < 1000
    assert len(stage.broker.verdicts) == 0, "nobody was given up"
    assert stage.pool.memory_peak_bytes <= 100_000 + 50 * 260
    assert stage.pool.disk_peak_bytes <= stage.pool.disk_limit + 65_536
    away.connect()
    stage.run(3)
    assert away.numbers == list(range(published))
    assert not publisher.paused
    assert not stage.disk.held


def test_who_comes_back_to_more_than_its_share_is_not_cut_for_it() -> None:
    """All of it was promised, so a cut frees nothing, and the client could never take what waits for it."""
    stage = Stage(memory="100KB", disk="0B", max_client_share="50%")
    away = stage.consumer("away", "t", 1, expiry_s=3600.0, reads=10_000, buffer=1000, window=10)
    away.leave()
    publisher = stage.client("publisher")
    published = publish_while_read(publisher, 40)
    assert published * 200 > 50_000
    away.connect()
    stage.run(30)
    assert away.connected
    assert away.numbers == list(range(published))
    assert len(stage.broker.verdicts) == 0
    assert not publisher.paused


@pytest.mark.parametrize("qos", [0, 1])
def test_nothing_is_given_up_that_holds_nothing(qos: int) -> None:
    """One subscription of a client that is away holds more than its share, and was promised it; the other has all it
    was to be given, and is looked at all the same."""
    stage = Stage(memory="100KB", disk="0B", max_client_share="20%")
    away = stage.consumer("away", "t", 1, expiry_s=3600.0)
    other = away.subscribe("u", qos)
    away.leave()
    publish_while_read(stage.client("publisher"), 10)
    stage.broker.registry.watched[other] = None
    stage.run(2)
    assert len(stage.broker.verdicts) == 0


@pytest.mark.parametrize("share", ["50%", "100%"])
def test_a_closed_lane_holds_up_nobody_elses_publishers(share: str) -> None:
    stage = Stage(memory="100KB", disk="0B", max_client_share=share)
    away = stage.consumer("away", "t", 1, expiry_s=3600.0)
    away.leave()
    healthy = stage.consumer("healthy", "u", 1)
    publisher, other = stage.client("publisher"), stage.client("other")
    publish_while_read(publisher, 20)
    assert publisher.paused
    assert publish_while_read(other, 30, "u") == 1500
    assert healthy.numbers == list(range(1500))
    assert publisher.paused


@pytest.mark.parametrize(("share", "most_bytes"), [("20%", 50_000), ("100%", 200_000)])
def test_an_index_that_stays_in_memory_closes_its_lane_and_nobody_else_gives_way_to_it(
    share: str, most_bytes: int
) -> None:
    """Records without payload are on disk, and what stays in memory to find them is as large as they were."""
    stage = Stage(memory="200KB", disk="100MB", max_client_share=share)
    away = stage.consumer("away", "t", 1, expiry_s=3600.0)
    small = stage.consumer("small", "u", 1, expiry_s=3600.0)
    slow = stage.consumer("slow", "v", reads=STUCK, buffer=500)
    away.leave()
    small.leave()
    publisher, other = stage.client("publisher"), stage.client("other")
    published = 0
    for turn in range(100):
        if not publisher.paused:
            publisher.publish("t", published, 500, qos=1, empty=True)
            published += 500
        for topic in ("u", "v"):
            assert other.publish(topic, turn, 1, size=10, qos=1), "the other publisher never waits"
        stage.run(0.3)
    assert publisher.paused
    assert stage.pool.disk_bytes > 4 * published
    assert away.session.subscriptions["t"].cursor.lane.index_bytes <= most_bytes
    assert slow.connected
    assert len(stage.broker.verdicts) == 0
    for one in (away, small):
        one.connect()
    stage.run(10)
    assert len(away.payloads) == published
    assert small.numbers == list(range(100))
    assert not publisher.paused


def test_who_connects_again_brings_nothing_in_where_there_is_no_room() -> None:
    stage = Stage(memory="100KB", disk="0B")
    away = stage.consumer("away", "t", 1, expiry_s=3600.0)
    away.leave()
    publish_while_read(stage.client("publisher"), 20)
    again = stage.client("again")
    assert not stage.broker.intake.must_wait(again.session, run_to("u"), stage.now)
    assert stage.broker.intake.must_wait(again.session, run_to("t"), stage.now)
    stage.run(1)
    assert again.paused
    away.connect()
    stage.run(3)
    assert not again.paused
    assert not stage.broker.intake.must_wait(again.session, run_to("t"), stage.now)


def test_a_disk_that_fails_takes_nothing_that_was_promised() -> None:
    stage = Stage(memory="100KB", disk="10MB")
    stage.disk.full = 1.0
    away = stage.consumer("away", "t", 1, expiry_s=3600.0)
    away.leave()
    stuck = stage.consumer("stuck", "t", 1, reads=STUCK, buffer=500)
    publisher = stage.client("publisher")
    published = publish_while_read(publisher, 20)
    assert stage.disk.failures
    assert not stuck.connected
    stage.disk.full = 0.0
    stage.run(40)
    published = publish_while_read(publisher, 5, published=published)
    assert stage.disk.held, "it is tried again"
    away.connect()
    stage.run(3)
    assert away.numbers == list(range(published))


def test_what_cannot_be_read_back_is_lost_and_nothing_else() -> None:
    stage = Stage(memory="200KB", disk="100MB", max_client_share="100%")
    away = stage.consumer("away", "t", 1, expiry_s=3600.0)
    away.leave()
    assert publish_while_read(stage.client("publisher"), 60) == 3000
    stage.run(1)
    stage.disk.unreadable = 1.0
    away.connect()
    stage.run(1)
    assert away.goodbye is not None
    stage.disk.unreadable = 0.0
    away.connect()
    stage.run(3)
    lost = stage.broker.registry.sessions["away"].subscriptions["t"].counters.gap_records[Reason.SPILL_FAILED]
    assert 0 < lost * 200 <= 65_536, "one chunk"
    assert away.numbers == list(range(lost, 3000))
    assert sum(away.gap_told.values()) == lost


def test_in_a_shared_group_those_go_who_do_not_acknowledge() -> None:
    stage = Stage(memory="100KB", disk="0B")
    good = stage.consumer("good", "$share/g/t", 1, window=10)
    bad = stage.consumer("bad", "$share/g/t", 1, window=10, acks=False)
    publisher = stage.client("publisher")
    for turn in range(40):
        publisher.publish("t", turn * 20, 20, size=300, qos=1)
        stage.run(0.2)
    assert good.connected
    assert not bad.connected
    assert sorted(set(good.numbers)) == list(range(800)), "and the others are given what it had"
    assert stage.broker.verdicts.last("good") is None
