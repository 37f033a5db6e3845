"""The rows of ActiveMQ and JBoss A-MQ over topics, one story each (docs/five-systems/ACTIVEMQ.md and A-MQ.md)."""

from __future__ import annotations

import pytest
from tests.core.rows import KB, MB, assert_told_why
from tests.core.stage import STUCK, Stage, documented

from headway.core.telemetry import stats

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


def test_a4_whoever_waited_for_a_blocked_consumer_goes_on_as_soon_as_it_is_cut() -> None:
    stage = Stage("""
    [[policy]]
    name = "sweep"

    [[policy.rule]]
    when = { lag_bytes = "100kB" }
    then = "block_publishers"

    [[policy.rule]]
    when = { blocked_time = "5s" }
    then = "disconnect"
    """)
    publisher = stage.client("publisher")
    blocked, fast = stage.consumer("blocked", "t", reads=STUCK), stage.consumer("fast", "t")
    sent, waits = 0, set[bool]()
    for _ in stage.steps(10):
        waits.add(publisher.paused)
        sent += 20 * publisher.publish("t", sent, 20, size=1000)
        assert blocked.connected or not publisher.paused, "nobody waits for one that is gone"
    assert waits == {False, True}
    assert_told_why(blocked, "limit 5 s")
    assert fast.numbers == list(range(sent))
    assert sent > 20 * 30, "it went on"


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


def test_j3_checks_may_be_30_s_apart_and_nothing_else_waits_for_them() -> None:
    stage = Stage('[server]\nsweep = "30s"\n' + documented("J3").replace('"30s"', '"5s"'))
    publisher = stage.client("publisher")
    stage.run(1)  # the first check is at the start
    slow = stage.consumer("slow", "t", 1, window=5, acks=False)
    prompt = stage.consumer("prompt", "u", options={"conflate": "1s"}, reads=1 * MB)
    publisher.publish("t", 0, 100, qos=1)
    for number, now in enumerate(stage.steps(27)):
        publisher.publish("u", number)
        assert slow.connected, f"for too long, but not looked at before {now}"
    assert len(prompt.numbers) >= 25, "timers are on time"
    stage.run(5)
    assert_told_why(slow, "window full", "limit 5 s")


@pytest.mark.parametrize("abort_connection", [False, True])
def test_j4_the_client_is_asked_to_close_or_its_connection_is_cut(abort_connection: bool) -> None:
    toml = documented("J4")
    stage = Stage(toml.replace('"close_consumer"', '"disconnect"') if abort_connection else toml)
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", 1, window=5, acks=False)
    deaf = stage.consumer("deaf", "t", 1, window=5, acks=False)
    slow.subscribe("$SYS/headway/close_consumer/slow")
    publisher.publish("t", 0, 100, qos=1)
    stage.run(31)
    asked = [seen for seen in slow.seen if seen.topic == "$SYS/headway/close_consumer/slow"]
    if abort_connection:
        assert_told_why(slow, "limit 30 s")
        return
    assert slow.connected
    assert deaf.connected
    assert stage.asked_to_close == ["slow", "deaf"]
    assert len(asked) == 1, "it hears it itself: its window does not hold back what needs no acknowledgement"
    assert b'"filter":"t"' in asked[0].payload
    assert stage.broker.unsubscribe(slow.session, "t", stage.now)
    stage.run(10)
    assert slow.connected, "it has done as it was asked"
    assert_told_why(deaf, "limit 30 s")
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
