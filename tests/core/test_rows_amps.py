"""The rows of AMPS over topics, one story each (docs/five-systems/AMPS.md)."""

from __future__ import annotations

import gc

from tests.core.rows import KB, MB, assert_told_why
from tests.core.stage import STUCK, Stage, documented

from headway.core.log.states import StatePass
from headway.core.telemetry import stats

# -- AMPS -----------------------------------------------------------------------------------------------------------


def test_m1_over_the_memory_limit_the_furthest_back_of_the_fullest_lane_are_offlined() -> None:
    stage = Stage(documented("M1"), memory="1MB", disk="8MB", max_client_share="100%")
    publisher = stage.client("publisher")
    most = stage.consumer("most", "a", reads=STUCK)
    less = stage.consumer("less", "b", reads=STUCK)
    fast = stage.consumer("fast", "#")
    for number, _ in enumerate(stage.steps(7)):
        publisher.publish("a", number * 10, 10, size=1000)
        publisher.publish("b", number * 3, 3, size=1000)
    assert [one["client"] for one in stage.told("offlined")] == ["most"]
    assert stage.told("disconnected") == []
    assert stage.pool.memory_bytes <= 1 * MB
    assert fast.numbers.count(0) == 2
    assert len(fast.seen) == 70 * 13, "nobody else notices"
    most.reads = less.reads = 10 * MB
    stage.run(3)
    assert most.numbers == list(range(700)), "from the disk, in order, whole"
    assert less.numbers == list(range(210))
    assert most.gap_told == less.gap_told == {}
    assert [one["client"] for one in stage.told("online")] == ["most"]
    assert not stage.disk.held, "what was read is deleted"
    assert stage.pool.memory_bytes == 0


def test_m2_over_the_disk_limit_the_furthest_back_of_the_fullest_lane_are_disconnected() -> None:
    stage = Stage(documented("M2"), memory="1MB", disk="2MB", max_client_share="100%")
    publisher = stage.client("publisher")
    most = stage.consumer("most", "a", reads=STUCK)
    also = stage.consumer("also most", "a", reads=STUCK)
    less = stage.consumer("less", "b", reads=STUCK)
    fast = stage.consumer("fast", "a")
    rounds = 0
    for rounds, _ in enumerate(stage.steps(60)):
        if not most.connected:
            break
        publisher.publish("a", rounds * 10, 10, size=1000)
        publisher.publish("b", rounds, 1, size=1000)
    for one in (most, also):
        assert_told_why(one, "disk is over its limit", "of 2 MB", "furthest back")
    assert less.connected
    assert stage.pool.disk_bytes < 1 * MB, "their part of it is free again"
    assert stage.pool.disk_peak_bytes <= 2 * MB + 300 * KB
    assert fast.numbers == list(range(rounds * 10))


def test_m3_a_listener_with_a_pool_of_its_own_has_its_own_trouble() -> None:
    toml = documented("M3").replace("200MB", "1MB").replace("100MB", "1MB").replace("1GB", "8MB").replace("2GB", "1MB")
    stage = Stage(toml)
    publisher = stage.client("publisher")
    desk = stage.consumer("desk", "t", reads=STUCK, listener="desk")
    other = stage.consumer("other", "t", reads=STUCK, listener="everybody")
    for number, _ in enumerate(stage.steps(20)):
        publisher.publish("t", number * 10, 10, size=1000)
    assert_told_why(desk)
    assert other.connected, "its pool has the disk for it"
    pools = {pool.name: pool for pool in stats.whole(stage.broker).pools}
    assert pools["desk"].disk_limit_bytes == 1 * MB
    assert pools["desk"].memory_bytes + pools["desk"].disk_bytes == 0, "each lane is in its own listener's pool"
    assert pools["global"].memory_bytes + pools["global"].disk_bytes >= 1.9 * MB


def test_m4_a_message_held_longer_than_the_age_limit_ends_the_connection() -> None:
    stage = Stage(documented("M4"))
    publisher = stage.client("publisher")
    stuck = stage.consumer("stuck", "t", reads=STUCK)
    behind = stage.consumer("always behind", "t", reads=990)
    for number, _ in enumerate(stage.steps(29)):
        publisher.publish("t", number, size=100)
    # The first two seconds' worth fits into the socket: what is stuck behind it was published from then on.
    assert stuck.connected
    for number, _ in enumerate(stage.steps(4)):
        publisher.publish("t", 290 + number, size=100)
    assert_told_why(stuck, "had waited", "limit 30 s")
    assert behind.connected, "it lags, and no record waits that long"


def test_m4_the_age_limit_of_a_transport_is_for_who_came_through_it() -> None:
    stage = Stage(documented("Transport"))
    publisher = stage.client("publisher")
    desk = stage.consumer("desk", "t", reads=STUCK, listener="desk")
    other = stage.consumer("other", "t", reads=STUCK, listener="everybody")
    for number, _ in enumerate(stage.steps(40)):
        publisher.publish("t", number, size=100)
    assert_told_why(other, "had waited", "limit 30 s")
    assert desk.connected
    stage.run(600)
    assert_told_why(desk, "had waited", "limit 10 m")


def test_m5_one_client_may_have_its_share_and_no_more_though_there_is_room() -> None:
    stage = Stage(documented("M5"), memory="1MB", disk="4MB", max_client_share="50%")
    publisher = stage.client("publisher")
    greedy = stage.consumer("greedy", "t", reads=STUCK)
    seen_memory = seen_disk = 0
    for number, _ in enumerate(stage.steps(60)):
        if not greedy.connected:
            break
        publisher.publish("t", number * 10, 10, size=1000)
        seen_memory = max(seen_memory, stage.pool.memory_bytes)
        seen_disk = max(seen_disk, stage.pool.disk_bytes)
    assert 0.5 * MB < seen_memory < 0.7 * MB, "offlined at half of the memory"
    assert 2 * MB < seen_disk < 2.3 * MB, "disconnected at half of the disk"
    assert_told_why(greedy, "more than one client's share", "of 2 MB")
    assert stage.pool.disk_bytes == 0


def test_m6_what_is_kept_for_conflation_is_counted_to_whom_it_is_kept_for() -> None:
    stage = Stage(memory="1MB")
    publisher = stage.client("publisher")
    one = stage.consumer("one", "t", options={"conflate": "1s", "key": "property:key"})
    plain = stage.consumer("plain", "t")
    for number in range(100):
        publisher.publish("t", number, size=1000, key=str(number))
    stage.run(2)
    state_bytes = stage.pool.memory_bytes
    assert state_bytes > 100 * KB
    assert stage.stats(one).held_bytes == state_bytes
    assert stage.stats(plain).held_bytes == 0
    two = stage.consumer("two", "t", options={"conflate": "1s", "key": "property:key"})
    assert stage.stats(one).held_bytes == stage.stats(two).held_bytes == state_bytes // 2, "one state, two who use it"
    for number in range(100, 2000):
        publisher.publish("t", number, size=1000, key=str(number))
        stage.turn()
    assert stage.pool.memory_bytes <= 0.26 * MB, "a state takes up a quarter of the pool at most"
    stage.run(2)
    assert one.numbers[-100:] == list(range(1900, 2000)), "the keys that changed last are the ones that are kept"
    publisher.publish("t", 2000, key="last")
    stage.run(2)
    assert len(one.seen) + sum(one.gap_told.values()) == 2001, "and it is told what it missed"
    assert len(plain.seen) == 2001
    for client in (one, two):
        client.leave()
    stage.run(1)
    assert stage.pool.memory_bytes == 0


def test_m7_a_large_answer_is_read_from_the_state_as_its_client_takes_it() -> None:
    stage = Stage('[[topic]]\nfilter = "prices/#"\nkey = "property:key"', memory="16MB", disk="0B")
    publisher = stage.client("publisher")
    for number in range(800):
        publisher.publish("prices/a", number, size=3000, key=str(number))
    state_bytes = stage.pool.memory_bytes
    assert state_bytes > 2 * MB
    asks = [stage.consumer(f"asks {n}", "prices/#", options={"snapshot": "true"}, reads=STUCK) for n in range(3)]
    stage.run(0.2)
    assert stage.pool.memory_bytes < state_bytes + 3 * 130 * KB, "at most what is on its way to each of them"
    assert all(0 < one.outlet.taken < 0.1 * MB for one in asks)
    for number in range(800):  # each key once more, while nobody reads
        publisher.publish("prices/a", 800 + number, size=3000, key=str(number))
    for one in asks:
        one.reads = 10 * MB
    stage.run(3)
    for one in asks:
        latest = dict(text.rstrip(".").split()[::-1] for text in one.payloads)
        assert latest == {str(number): str(800 + number) for number in range(800)}, "and the truth in the end"


def test_m8_disconnecting_ends_subscriptions_and_queries_and_deletes_what_was_offlined() -> None:
    stage = Stage(documented("X4"), memory="1MB", disk="8MB", max_client_share="100%")
    publisher = stage.client("publisher")
    for number in range(500):
        publisher.publish("prices/a", number, size=1000, key=str(number))
    state_bytes = stage.pool.memory_bytes
    client = stage.client("client", reads=STUCK)
    client.subscribe("prices/#", snapshot="true", policy="cancel the registration")
    client.subscribe("other/#")
    stage.turn()
    for number, _ in enumerate(stage.steps(1)):  # longer, and its policy would end it: it takes none of its snapshot
        publisher.publish("other/a", number * 120, 120, size=1000)
    assert stage.pool.disk_bytes > 0
    sent = len(client.seen)
    client.leave()
    stage.run(1)
    assert stage.stats_of("client") == []
    assert stage.pool.disk_bytes == 0
    assert not stage.disk.held, "the files are released"
    assert stage.pool.memory_bytes == state_bytes
    states = stage.broker.registry.router.states
    gc.collect()
    assert not [o for o in gc.get_objects() if isinstance(o, StatePass) and o.state in states], "no query goes on"
    for number in range(500):
        publisher.publish("prices/a", number, size=1000, key=str(number))
    stage.run(1)
    assert len(client.seen) == sent
    assert stage.pool.memory_bytes == state_bytes
