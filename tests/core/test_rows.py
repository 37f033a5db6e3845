"""The rows of the five systems, one story each: what a consumer was given, what it was told, what the server was asked.

The policies are those that docs/POLICIES.md shows for the row, word for word; pools are smaller than there, so that a
test can fill them. tests/core/stage.py is the stage.
"""

from __future__ import annotations

import gc

import pytest
from tests.core.stage import STUCK, Client, Stage, documented

from headway.core.base.errors import Refused
from headway.core.log.state import StatePass
from headway.core.telemetry import stats

KB, MB = 1000, 1_000_000
QUOTA_EXCEEDED = 0x97


def assert_told_why(client: Client, *words: str) -> None:
    """Its connection was ended by DISCONNECT 0x97 with a sentence that has these words."""
    assert not client.connected
    assert client.goodbye is not None, f"{client.name} was not told"
    assert client.goodbye.code == QUOTA_EXCEEDED
    assert client.goodbye.reason is not None
    for word in words:
        assert word in client.goodbye.reason, client.goodbye.reason


# -- XAP ------------------------------------------------------------------------------------------------------------


def test_x1_a_rate_below_the_floor_while_records_wait_makes_a_suspect() -> None:
    stage = Stage(documented("X1"))
    publisher, trickle = stage.client("publisher"), stage.client("little to say")
    stage.consumer("slow", "t", reads=4000)
    stage.consumer("fast enough", "t", reads=6500)
    stage.consumer("idle", "nothing")
    stage.consumer("little to read", "rare")
    for number, _ in enumerate(stage.steps(8)):
        publisher.publish("t", number, size=900)  # 9 kB/s
        if number % 10 == 0:
            trickle.publish("rare", number)  # 100 B/s, all of it taken
    assert {one["client"] for one in stage.told("slow")} == {"slow"}
    verdict = stage.told("slow")[0]
    assert verdict["reason"] == "drain_rate"
    assert "at least 5 kB/s asked" in verdict["text"]


def test_x2_three_tests_within_the_latency_and_one_passed_test_clears() -> None:
    stage = Stage(documented("X2"))
    publisher = stage.client("publisher")
    stuck = stage.consumer("stuck", "t", reads=STUCK)
    hiccup = stage.consumer("hiccup", "t", reads=STUCK)
    stage.run(0.1)
    publisher.publish("t", 0, 50, size=1000)
    went = None
    for now in stage.steps(9):
        since = round(now - 1000.1, 1)
        # Two tests find it slow; before the third it reads what there is. And so again and again.
        hiccup.reads = STUCK if since % 1.8 < 0.95 else 1 * MB
        publisher.publish("t", round(since * 1000), 10, size=1000)
        if went is None and not stuck.connected:
            went = since
    assert went is not None
    # A quarter of a second of measuring, then three tests; each at a sweep, five of which make a second.
    assert 0.25 + 3 * 0.2 < went <= 0.25 + 3 * 0.2 + 3 * 0.2
    assert_told_why(stuck, "each of 3 tests", "at least 5 kB/s asked")
    assert hiccup.connected


def test_x3_a_client_whose_bounded_queue_is_full_stops_reading_and_is_found() -> None:
    stage = Stage(documented("X3"))
    publisher = stage.client("publisher")
    full = stage.consumer("queue full", "t", queue=20)
    works = stage.consumer("queue worked off", "t", queue=20)
    works.handles = 100
    window = stage.consumer("window full", "t", 1, window=20, acks=False)
    for number, _ in enumerate(stage.steps(5)):
        publisher.publish("t", number, size=600, qos=1)  # 6 kB/s
    assert len(full.seen) == 20, "it takes no more than its queue holds"
    assert len(window.seen) == 20
    ended = {one["client"]: one["text"] for one in stage.told("deleted")}
    assert set(ended) == {"queue full", "window full"}
    assert "20 records unacknowledged" in ended["window full"]
    assert full.connected, "only its registration is cancelled"
    assert works.numbers == list(range(50)), "and whoever works off what it gets misses nothing"


def test_x4_cancelled_then_learnt_through_the_lease_then_a_snapshot() -> None:
    stage = Stage(documented("X4"))
    publisher = stage.client("publisher")
    slow = stage.client("slow")
    stage.client("other")
    options = {"lease": "10s", "snapshot": "true"}
    first = slow.subscribe("prices/#", **options)
    stage.run(2)
    renewed = slow.subscribe("prices/#", **options)
    assert renewed is first
    assert renewed.renewals == 1, "SUBACK says renewed=true"
    slow.reads = STUCK
    for number, _ in enumerate(stage.steps(3)):
        publisher.publish("prices/a", number, size=1500, key=f"key {number % 3}")
    assert slow.connected, "the registration is cancelled, not the connection"
    assert stage.stats_of("slow") == []
    assert stage.told("deleted", "slow")[0]["filter"] == "prices/#"
    slow.reads = float("inf")
    stage.run(1)
    slow.seen.clear()  # it clears its image
    again = slow.subscribe("prices/#", **options)
    assert again.renewals == 0, "SUBACK says renewed=false: the client learns that it was cancelled"
    stage.turn()
    assert slow.payloads == [p.ljust(1500, ".") for p in ("27 key 0", "28 key 1", "29 key 2")], "the state, once"
    publisher.publish("prices/a", 30, key="key 0")
    stage.turn()
    assert slow.numbers == [27, 28, 29, 30], "then what comes"
    stage.run(10)
    assert stage.stats_of("slow") == [], "whoever does not renew is not subscribed for ever"


def test_x6_fast_consumers_notice_nothing_and_memory_stays_within_its_limit() -> None:
    stage = Stage(documented("X6"), memory="1MB", disk="2MB")
    publisher = stage.client("publisher")
    fast = stage.consumer("fast", "t")
    stuck = [stage.consumer(f"stuck {n}", "t", reads=STUCK) for n in range(20)]
    for number, _ in enumerate(stage.steps(60)):
        assert publisher.publish("t", number * 20, 20, size=1000)
        stage.turn()
        assert len(fast.seen) == (number + 1) * 20, "everything, in the turn it came"
    assert fast.numbers == list(range(600 * 20))
    assert fast.gap_told == {}
    assert stage.pool.memory_peak_bytes <= 1 * MB + 20 * KB * 1.1
    assert stage.pool.disk_peak_bytes <= 2 * MB + 64 * KB
    for one in stuck:
        assert_told_why(one)


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
    for number, _ in enumerate(stage.steps(4)):
        publisher.publish("other/a", number * 30, 30, size=1000)
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


# -- ActiveMQ -------------------------------------------------------------------------------------------------------


def test_a1_the_producer_is_blocked_until_the_consumer_has_caught_up() -> None:
    stage = Stage(documented("A1"))
    publisher, elsewhere = stage.client("publisher"), stage.client("elsewhere")
    slow = stage.consumer("slow", "orders/#", reads=100 * KB)
    sent = refused = 0
    for number, _ in enumerate(stage.steps(20)):
        if publisher.publish("orders/1", sent, 60, size=1000):
            sent += 60
        else:
            refused += 1
        assert elsewhere.publish("news", number)
    assert refused > 20, "held back for as long as it takes"
    assert sent < 60 * 200 / 2, "to about the pace of the consumer"
    assert stage.told("fast_producer")[0]["client"] == "publisher"
    stage.run(30)
    assert slow.numbers == list(range(sent)), "and nothing is lost"
    assert not publisher.paused
    one = next(p for p in stats.publishers(stage.broker, stage.now) if p.client == "publisher")
    assert one.stalled_ms > 2000
    assert stage.stats(slow).producer_stall_ms == pytest.approx(one.stalled_ms, rel=0.2), "charged to who caused it"


def test_a2_a_finite_amount_is_spooled_to_disk() -> None:
    stage = Stage(documented("A2"), memory="8MB", disk="2MB", max_client_share="100%")
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", reads=STUCK)
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("t", number * 10, 10, size=1000)
    assert stage.told("offlined", "slow"), "though there is memory for it"
    assert stage.pool.disk_bytes > 0.8 * MB
    assert stage.pool.memory_bytes < 0.2 * MB
    slow.reads = 10 * MB
    stage.run(1)
    assert slow.numbers == list(range(1000))
    slow.reads = STUCK
    for number, _ in enumerate(stage.steps(30)):
        publisher.publish("t", 1000 + number * 10, 10, size=1000)
    assert_told_why(slow, "disk is over its limit")


def test_a3_discarded_until_slow_no_more_what_comes_by_selector_or_by_topic() -> None:
    stage = Stage(documented("A3"))
    publisher = stage.client("publisher")
    consumers = {topic: stage.consumer(topic, f"{topic}/#", reads=STUCK) for topic in ("ticks", "orders", "quotes")}
    published: dict[str, list[tuple[int, bool]]] = {topic: [] for topic in consumers}

    def publish(number: int) -> None:
        odd = bool(number % 2)
        publisher.publish("ticks/a", number)
        publisher.publish("orders/a", number, priority=2 if odd else 7)
        publisher.publish("quotes/minor/a" if odd else "quotes/major/a", number)
        for numbers in published.values():
            numbers.append((number, odd))

    for number, _ in enumerate(stage.steps(20)):
        publish(number)
    for client in consumers.values():
        client.reads = 100 * KB
    stage.run(2)
    for number, _ in enumerate(stage.steps(2), 200):
        publish(number)
    stage.run(1)
    for topic, client in consumers.items():
        numbers, everything = client.numbers, [number for number, _ in published[topic]]
        left_out = sorted(set(everything) - set(numbers))
        assert left_out, topic
        assert numbers == sorted(numbers)
        assert set(range(200, 220)) <= set(numbers), f"{topic}: slow no more, it gets everything again"
        assert client.gap_told == {"discarded": len(left_out)}, f"{topic}: and it is told what it missed"
        if topic != "ticks":
            assert left_out == [number for number in left_out if number % 2], f"{topic}: only what is marked"
            assert {n for n in everything if not n % 2} <= set(numbers)
    kept = [number for number in consumers["ticks"].numbers if number < 200]
    assert kept == list(range(len(kept))), "what waited stays, what comes is left out"
    assert 50 <= len(kept) <= 75, "what waited when it was five seconds behind, and what the socket had"


def test_a5_few_are_slow_they_go_most_are_slow_the_publisher_waits() -> None:
    few = Stage(documented("A5"))
    publisher = few.client("publisher")
    consumers = [few.consumer(f"c{n}", "t", reads=STUCK if n < 3 else float("inf")) for n in range(10)]
    for number, _ in enumerate(few.steps(10)):
        assert publisher.publish("t", number, 10), "nobody holds it back"
    assert [one.connected for one in consumers] == [False] * 3 + [True] * 7
    assert_told_why(consumers[0], "had waited")
    assert len(consumers[9].seen) == 1000

    most = Stage(documented("A5"))
    publisher = most.client("publisher")
    consumers = [most.consumer(f"c{n}", "t", reads=STUCK if n < 6 else float("inf")) for n in range(10)]
    for number, _ in enumerate(most.steps(10)):
        publisher.publish("t", number, 10)
    assert publisher.paused
    assert all(one.connected for one in consumers)
    for one in consumers:
        one.reads = 1 * MB
    most.run(3)
    assert not publisher.paused, "they are slow no more"


def test_a6_slow_and_slow_no_more_are_both_told_and_each_destination_has_its_policy() -> None:
    stage = Stage(documented("A6"))
    publisher = stage.client("publisher")
    quotes = stage.consumer("quotes", "quotes/#", 1, window=5, acks=False)
    orders = stage.consumer("orders", "orders/#", reads=STUCK)
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("quotes/a", number, qos=1)
        publisher.publish("orders/a", number, size=500)
    assert_told_why(orders, "policy 'orders'")
    assert quotes.connected
    assert [one["policy"] for one in stage.told("slow", "quotes")] == ["quotes"]
    while stage.stats(quotes).lag_records > 20:
        quotes.acknowledge()
        stage.turn()
    stage.run(1)
    assert stage.told("recovered") == [], "better, and not yet as good as 'until' wants it"
    while stage.stats(quotes).lag_records > 5:
        quotes.acknowledge()
        stage.turn()
    stage.run(1)
    assert len(stage.told("recovered", "quotes")) == 1
    assert not stage.stats(quotes).slow, "though a few still wait"
    while stage.stats(quotes).in_flight:
        quotes.acknowledge()
        stage.turn()
    publisher.publish("quotes/a", 1000, 1100, qos=1)  # by count this time, long before it is old
    stage.run(1)
    assert [one["reason"] for one in stage.told("slow", "quotes")] == ["lag_age", "lag_records"]


# -- JBoss A-MQ -----------------------------------------------------------------------------------------------------


def test_j1_a_constant_number_pends_on_top_of_the_prefetch() -> None:
    stage = Stage(documented("J1"))
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", 1, window=10, acks=False, buffer=100_000, reads=1 * MB)
    exact = stage.consumer("just within", "fifty", 1, window=10, acks=False, buffer=100_000, reads=1 * MB)
    for number, _ in enumerate(stage.steps(2)):
        publisher.publish("t", number * 10, 10, qos=1)
        if number < 6:
            publisher.publish("fifty", number * 10, 10, qos=1)
    stage.run(1)
    slow.acks = exact.acks = True
    slow.acknowledge(10)
    exact.acknowledge(10)
    stage.run(1)
    assert slow.numbers == [*range(10), *range(150, 200)], "its window's worth, and the newest 50"
    assert slow.gap_told == {"discarded": 140}
    assert exact.numbers == list(range(60)), "50 pending are within the limit"


def test_j2_the_pending_limit_is_a_multiple_of_the_prefetch() -> None:
    stage = Stage(documented("J2"))
    publisher = stage.client("publisher")
    small = stage.consumer("window of 3", "t", 1, window=3, acks=False, buffer=100_000, reads=1 * MB)
    large = stage.consumer("window of 20", "t", 1, window=20, acks=False, buffer=100_000, reads=1 * MB)
    for number, _ in enumerate(stage.steps(2)):
        publisher.publish("t", number * 10, 10, qos=1)
    stage.run(1)
    for one in (small, large):
        one.acks = True
        one.acknowledge(one.session.channel.limit)
    stage.run(1)
    assert small.numbers == [0, 1, 2, *range(194, 200)], "3 and 2 x 3"
    assert large.numbers == [*range(20), *range(160, 200)], "20 and 2 x 20"


def test_j3_slow_for_too_long_or_too_often_and_never_for_one_bad_second() -> None:
    stage = Stage(documented("J3"))
    publisher = stage.client("publisher")
    long = stage.consumer("too long", "t", 1, window=5, acks=False)
    often = stage.consumer("too often", "t", 1, window=5)
    brief = stage.consumer("one bad second", "t", 1, window=5)
    steady = stage.consumer("behind and steady", "t", 1, window=5, acks=False)
    publisher.publish("t", 10_000, 50, qos=1)
    pauses = 0
    for number, now in enumerate(stage.steps(95)):
        since = round(now - 1000, 1)
        before, often.acks = often.acks, since % 3 >= 2  # two seconds without an acknowledgement, one with
        if often.acks and not before:
            often.acknowledge(5)
            pauses += 1
        brief.acks = not 28.9 <= since <= 30.1  # just when a sweep every 30 s would look
        if brief.acks:
            brief.acknowledge(5)
        steady.acknowledge(1)  # as many as come, so its window is always full
        publisher.publish("t", number, qos=1)
        if since < 30:
            assert long.connected
        if since > 32:
            assert not long.connected
        if pauses < 29:
            assert often.connected, f"after {pauses} times"
    assert_told_why(long, "window full", "5 records unacknowledged", "limit 30 s")
    assert_told_why(often, "for the 30th time")
    assert brief.connected
    assert len(brief.seen) == 50 + 950
    assert stage.stats(steady).lag_records > 40
    assert steady.connected, "who acknowledges is slow no more, and then again"


@pytest.mark.parametrize("abort_connection", [False, True])
def test_j4_the_client_is_asked_to_close_or_its_connection_is_cut(abort_connection: bool) -> None:
    toml = documented("J4")
    stage = Stage(toml.replace('"close_consumer"', '"disconnect"') if abort_connection else toml)
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", 1, window=5, acks=False)
    slow.subscribe("$SYS/headway/close_consumer/slow")
    publisher.publish("t", 0, 100, qos=1)
    stage.run(31)
    asked = [seen for seen in slow.seen if seen.topic == "$SYS/headway/close_consumer/slow"]
    if abort_connection:
        assert_told_why(slow, "limit 30 s")
        return
    assert slow.connected
    assert stage.asked_to_close == ["slow"]
    assert len(asked) == 1, "it hears it itself: its window does not hold back what needs no acknowledgement"
    assert b'"filter":"t"' in asked[0].payload
    assert stage.broker.unsubscribe(slow.session, "t", stage.now)
    stage.run(1)
    assert stage.pool.memory_bytes == 0


def test_j5_wildcard_destinations_and_the_first_policy_that_covers_all_of_a_subscription() -> None:
    stage = Stage(documented("J5"))
    publisher = stage.client("publisher")
    american = stage.consumer("american", "stocks/us/ibm", reads=STUCK)
    british = stage.consumer("british", "stocks/uk/bp", reads=STUCK)
    wider = stage.consumer("wider", "stocks/#", reads=STUCK)
    for number, _ in enumerate(stage.steps(2)):
        publisher.publish("stocks/us/ibm", number * 5, 5)
        publisher.publish("stocks/uk/bp", number * 5, 5)
    assert_told_why(american, "policy 'american stocks'")
    assert british.connected
    assert wider.connected, "a subscription to more than the policy is about is not governed by it"
    publisher.publish("stocks/uk/bp", 1000, 600)
    stage.run(1)
    assert_told_why(british, "policy 'the rest'")
    assert_told_why(wider, "policy 'the rest'")


# -- Qpid -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "size", "seconds", "reason"),
    [(80, 100, 1, "80 waiting"), (50, 100_000, 1, "waited in 5"), (30, 1000, 602, "had waited"), (40, 1000, 500, "")],
)
def test_q1_depth_age_or_count_any_of_them_fires(count: int, size: int, seconds: int, reason: str) -> None:
    stage = Stage(documented("Q1"))
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "stocks/us/ibm", reads=STUCK)
    publisher.publish("stocks/us/ibm", 0, count, size=size)
    stage.run(seconds)
    if not reason:
        assert slow.connected, "none of the three is exceeded"
        return
    assert_told_why(slow)
    verdict = stage.broker.verdicts.of("slow")[0]
    expected = {"80 waiting": "lag_records", "waited in 5": "lag_bytes", "had waited": "lag_age"}[reason]
    assert verdict.reason == expected
    assert {reading.meter for reading in verdict.readings} == {"lag_bytes", "lag_age", "lag_records"}


def test_q2_a_consumption_rate_to_stay_above() -> None:
    stage = Stage(documented("Q2"))
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", reads=8 * KB)
    enough = stage.consumer("enough", "t", reads=12 * KB)
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("t", number, size=1500)  # 15 kB/s
    assert_told_why(slow, "taken over", "at least 10 kB/s asked")
    assert enough.connected


@pytest.mark.parametrize("told", [False, True])
def test_q3_deleting_spares_durable_subscriptions_unless_told(told: bool) -> None:
    toml = documented("Q3")
    if told:
        toml = toml.replace('"delete_subscription"', '{ action = "delete_subscription", durable = true }')
    stage = Stage(toml)
    publisher = stage.client("publisher")
    transient = stage.consumer("transient", "t", reads=STUCK)
    durable = stage.consumer("durable", "t", 1, reads=STUCK, expiry_s=3600)
    for number, _ in enumerate(stage.steps(1)):
        publisher.publish("t", number * 10, 10, qos=1)
    assert stage.stats_of("transient") == []
    assert transient.connected
    assert bool(stage.stats_of("durable")) is not told
    assert {one["client"] for one in stage.told("slow")} == {"transient", "durable"}, "it is called slow all the same"
    durable.reads = 1 * MB
    stage.run(1)
    if not told:
        assert durable.numbers == list(range(100))


# -- beyond all five ------------------------------------------------------------------------------------------------


def test_beyond_one_stuck_consumer_or_three_hundred_hold_the_same() -> None:
    held = {}
    for stuck in (1, 300):
        stage = Stage(memory="1MB", disk="8MB", max_client_share="100%")
        publisher = stage.client("publisher")
        for n in range(stuck):
            stage.consumer(f"stuck {n}", "t", reads=STUCK)
        fast = stage.consumer("fast", "t")
        for number, _ in enumerate(stage.steps(20)):
            publisher.publish("t", number * 10, 10, size=1000)
        assert len(fast.seen) == 2000
        written = sum(chunk.size for chunk in stage.disk.written)
        held[stuck] = (stage.pool.memory_bytes, stage.pool.disk_bytes, written, len(stage.disk.written))
        assert stage.pool.disk_bytes > 0.9 * MB
    assert held[300] == held[1], "memory, disk, and what was ever written"


def test_beyond_conflation_on_demand_costs_nothing_and_gives_the_latest_of_each_key() -> None:
    stage = Stage(documented("Ladder"))
    publisher = stage.client("publisher")
    stuck = stage.consumer("stuck", "positions/#", reads=STUCK)
    fast = stage.consumer("fast", "positions/#")
    for number, _ in enumerate(stage.steps(20)):
        publisher.publish("positions/a", number * 50, 50, size=200, key=f"plane {number % 10}")
    lanes_bytes = stage.pool.memory_bytes - stage.pool.state_bytes
    assert lanes_bytes <= 64 * 1024, "it is stuck still, and no more than a chunk waits"
    assert stage.stats(stuck).held_bytes == 0
    before = 10  # records that its socket held
    stuck.reads = 1 * MB
    stage.run(1)
    latest = [number * 50 + 49 for number in range(190, 200)]
    assert stuck.numbers[-10:] == latest, "the latest of each of the ten keys, the oldest change first"
    assert len(stuck.seen) <= 10 + before
    publisher.publish("positions/a", 20_000, key="plane 0")
    stage.run(1)
    gap = sum(stuck.gap_told.values())
    assert len(stuck.seen) + gap == 10_001, "what it was not given is counted and announced"
    assert set(stuck.gap_told) == {"conflated"}
    assert len(fast.seen) == 10_001


def test_beyond_a_verdict_is_kept_after_the_disconnect_and_names_what_was_measured() -> None:
    stage = Stage(documented("M4"))
    publisher = stage.client("publisher")
    stuck = stage.consumer("stuck", "t", reads=STUCK)
    publisher.publish("t", 0, 100)
    stage.run(31)
    assert not stuck.connected
    stage.run(3600)
    verdict = stage.broker.verdicts.of("stuck")[-1]
    assert (verdict.policy, verdict.rule, verdict.reason, verdict.cause) == ("age limit", 1, "lag_age", "application")
    assert verdict.readings[0].value > verdict.readings[0].threshold == 30
    assert verdict.text in stuck.goodbye.reason  # type: ignore[union-attr,operator]


def test_beyond_a_dry_run_does_everything_but_the_deed() -> None:
    stage = Stage(documented("Dry"))
    publisher = stage.client("publisher")
    stuck = stage.consumer("stuck", "t", reads=STUCK)
    publisher.publish("t", 0, 100)
    stage.run(10)
    assert stuck.connected
    (told,) = stage.told("slow", "stuck")
    assert told["enforced"] is False
    assert told["action"] == "disconnect"
    assert "would have been disconnected" in told["text"]
    stuck.reads = 1 * MB
    stage.run(1)
    assert len(stuck.seen) == 100


def test_beyond_the_publishers_counters_show_what_consumers_were_not_given() -> None:
    stage = Stage(documented("J1"))
    mine, theirs = stage.client("mine"), stage.client("theirs")
    slow = stage.consumer("slow", "t", 1, window=10, acks=False, buffer=100_000, reads=1 * MB)
    stage.consumer("fast", "t", 1)
    for number, _ in enumerate(stage.steps(2)):
        mine.publish("t", number * 10, 5, qos=1)
        theirs.publish("t", number * 10 + 5, 5, qos=1)
    stage.run(1)
    slow.acks = True
    slow.acknowledge(10)
    stage.run(1)
    lost = {one.client: one.lost_records for one in stats.publishers(stage.broker, stage.now)}
    assert lost == {"mine": {"discarded": 70}, "theirs": {"discarded": 70}}
    assert slow.gap_told == {"discarded": 140}
    assert stats.whole(stage.broker).gap_records == {"discarded": 140}


def test_beyond_a_ladder_steps_up_and_back_by_itself() -> None:
    stage = Stage(documented("Ladder"))
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "positions/#", 1, reads=STUCK, acks=False)
    number = 0
    for _ in range(2):
        slow.reads = STUCK
        for _ in stage.steps(8):
            publisher.publish("positions/a", number, 10, key=f"plane {number % 5}", qos=1)
            # Never idle, so that it is the thresholds that decide.
            slow.acknowledge(len(slow.session.channel.in_flight) - 1)
            number += 10
        assert stage.stats(slow).state == "conflating"
        slow.reads = 1 * MB
        stage.run(2)
        slow.acknowledge(len(slow.session.channel.in_flight) - 1)
        first = number
        for _ in stage.steps(2):
            publisher.publish("positions/a", number, 10, key=f"plane {number % 5}", qos=1)
            # Never idle, so that it is the thresholds that decide.
            slow.acknowledge(len(slow.session.channel.in_flight) - 1)
            number += 10
        stage.run(0.5)
        assert slow.numbers[-(number - first) :] == list(range(first, number)), "every record again"
        assert not stage.stats(slow).slow
    assert [one["action"] for one in stage.told("slow", "slow")] == ["notify", "conflate"] * 2
    assert sorted(one["action"] for one in stage.told("recovered", "slow")) == ["conflate"] * 2 + ["notify"] * 2


def test_beyond_who_flaps_is_readmitted_ever_later() -> None:
    stage = Stage(documented("Flap") + documented("M4"))
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", reads=STUCK)
    for shut_out_s in (0.0, 1.0, 2.0, 4.0):
        publisher.publish("t", 0, 100)
        stage.run(31)
        assert not slow.connected
        if shut_out_s:
            assert f"readmitted in {shut_out_s:g} s" in str(slow.goodbye and slow.goodbye.reason)
            with pytest.raises(Refused, match="disconnected for slowness") as refused:
                slow.connect()
            assert refused.value.reason == "flapping"
            waits_s = refused.value.retry_after_s
            assert shut_out_s - 1 < waits_s <= shut_out_s
            stage.run(waits_s - 0.2)
            with pytest.raises(Refused):
                slow.connect()
            stage.run(0.2)
        slow.connect()
        slow.subscribe("t")
    stage.run(601)  # long enough without trouble
    publisher.publish("t", 0, 100)
    stage.run(31)
    assert not slow.connected
    slow.connect()  # at once: all was forgiven


def test_beyond_held_shares_add_up_to_what_is_held() -> None:
    stage = Stage()
    publisher = stage.client("publisher")
    clients = [
        stage.consumer(f"{topic} {n}", topic, reads=n * 7000) for topic in ("a", "b") for n in range(6)
    ]
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("a", number, 10, size=1000)
        publisher.publish("b", number, 3, size=1000)
    shares = {one.client: one.held_bytes for one in stats.consumers(stage.broker, stage.now)}
    assert sum(shares.values()) == pytest.approx(stage.pool.memory_bytes, abs=len(shares))
    assert stage.pool.memory_bytes > 1 * MB
    lags = {one.client: one.lag_bytes for one in stats.consumers(stage.broker, stage.now)}
    assert shares["a 0"] > shares["a 3"], "who is further back answers for more"
    assert sum(lags.values()) > 2 * stage.pool.memory_bytes, "what a buffer per client would have held"
    assert all(client.connected for client in clients)


def test_beyond_nobody_is_judged_for_the_brokers_own_lateness() -> None:
    stage = Stage(documented("M4"))
    publisher = stage.client("publisher")
    stuck = stage.consumer("stuck", "t", reads=STUCK)
    publisher.publish("t", 0, 100)
    stage.run(28)
    stage.hang(20)
    assert stuck.connected
    stage.run(1)
    assert stuck.connected, "48 seconds by the clock, 20 of them the broker's own"
    assert stats.whole(stage.broker).loop_late_s == pytest.approx(20, abs=0.3)
    stage.run(3)
    assert_told_why(stuck, "had waited 30.")


def test_beyond_slow_fraction_counts_the_consumers_of_the_same_filter() -> None:
    stage = Stage(documented("A5"))
    publisher = stage.client("publisher")
    for n in range(4):
        stage.consumer(f"stuck {n}", "t", reads=STUCK)
    fast = [stage.consumer(f"fast {n}", "t") for n in range(4)]
    more = [stage.consumer(f"elsewhere {n}", "other") for n in range(20)]
    for number, _ in enumerate(stage.steps(8)):
        publisher.publish("t", number, 10)
    assert publisher.paused, "four of eight are half, whoever reads something else"
    assert all(one.connected for one in (*fast, *more))
    for n in range(4):  # more come, and the same four are few
        stage.consumer(f"late {n}", "t")
    stage.run(1)
    assert not publisher.paused
    assert [stage.clients[f"stuck {n}"].connected for n in range(4)] == [False] * 4
    one = stage.consumer("one more", "t", reads=STUCK)
    for number, _ in enumerate(stage.steps(8)):
        assert publisher.publish("t", number, 10)
    assert not one.connected, "one of nine: who is gone counts no more"
