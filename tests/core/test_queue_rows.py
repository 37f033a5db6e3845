"""The rows of the five systems over queues, one story each (tests/core/test_rows.py has them over topics).

Where docs/POLICIES.md has a policy for the row, it is that one word for word. tests/core/queues_stage.py is the stage.
"""

from __future__ import annotations

import pytest
from tests.core.queues_stage import Peer, QueueStage, consumer, owner
from tests.core.stage import STUCK, documented

from headway.core.base.errors import Reason
from headway.core.telemetry import stats

KB, MB = 1000, 1_000_000


ALL_SLOW = """
[[policy]]
name = "all slow"

[[policy.rule]]
when = { blocked_time = "2s" }
then = %s
"""


def assert_told_why(peer: Peer, reason: Reason, *words: str) -> None:
    assert not peer.connected
    assert peer.goodbye is not None
    assert peer.goodbye.reason is reason
    for word in words:
        assert word in peer.goodbye.text


# -- XAP ------------------------------------------------------------------------------------------------------------


def test_x1_a_rate_below_the_floor_while_records_wait_makes_a_suspect() -> None:
    stage = QueueStage(documented("X1"))
    publisher = owner(stage, "slow", "fast", "idle", "little", "shared")
    for name in ("slow", "fast"):
        publisher.bind(name, "amq.fanout")
    consumer(stage, "slow", "slow", acks=None, reads=4000)
    consumer(stage, "fast enough", "fast", acks=None, reads=6500)
    consumer(stage, "idle", "idle")
    consumer(stage, "little to read", "little")
    consumer(stage, "slow with company", "shared", acks=None, reads=100)
    consumer(stage, "company", "shared", acks=None)
    for number, _ in enumerate(stage.steps(8)):
        publisher.publish("", number, exchange="amq.fanout", size=850)  # 9 kB/s
        publisher.publish("shared", number, size=850)
        if number % 10 == 0:
            publisher.publish("little", number)
    assert {one["client"] for one in stage.told("slow")} == {"slow"}
    verdict = stage.told("slow")[0]
    assert (verdict["reason"], verdict["filter"]) == ("drain_rate", "$queue/slow")
    assert "at least 5 kB/s asked" in verdict["text"]


def test_x2_three_tests_within_the_latency_and_one_passed_test_clears() -> None:
    stage = QueueStage(documented("X2"))
    publisher = owner(stage, "a", "b")
    for name in ("a", "b"):
        publisher.bind(name, "amq.fanout")
    stuck = consumer(stage, "stuck", "a", acks=None, reads=STUCK)
    hiccup = consumer(stage, "hiccup", "b", acks=None, reads=STUCK)
    stage.run(0.1)
    publisher.publish("", 0, 50, exchange="amq.fanout", size=1000)
    went = None
    for now in stage.steps(9):
        since = round(now - 1000.1, 1)
        hiccup.reads = STUCK if since % 1.8 < 0.95 else 1 * MB
        publisher.publish("", round(since * 1000), 10, exchange="amq.fanout", size=1000)
        if went is None and not stuck.connected:
            went = since
    assert went is not None
    assert 0.25 + 3 * 0.2 < went <= 0.25 + 3 * 0.2 + 3 * 0.2
    assert_told_why(stuck, Reason.DRAIN_RATE, "each of 3 tests", "at least 5 kB/s asked")
    assert hiccup.connected


# -- ActiveMQ -------------------------------------------------------------------------------------------------------


def test_a1_the_producer_is_blocked_until_the_consumer_has_caught_up() -> None:
    stage = QueueStage(documented("A1"))
    publisher, elsewhere = owner(stage, "q", "other"), stage.peer("elsewhere")
    publisher.bind("q", "amq.topic", "orders.#")
    slow = consumer(stage, "slow", reads=100 * KB)
    sent = refused = 0
    for number, _ in enumerate(stage.steps(20)):
        if publisher.publish("orders.1", sent, 60, exchange="amq.topic", size=1000):
            sent += 60
        else:
            refused += 1
        assert elsewhere.publish("other", number)
    assert refused > 20, "held back for as long as it takes"
    assert sent < 60 * 200 / 2, "to about the pace of the consumer"
    assert stage.told("fast_producer")[0]["client"] == "owner"
    stage.run(30)
    assert slow.numbers == list(range(sent)), "and nothing is lost"
    assert not publisher.paused
    charged = next(one for one in stats.consumers(stage.broker, stage.now) if one.client == "slow")
    assert charged.producer_stall_ms > 2000


def test_a1_an_mqtt_publisher_is_blocked_by_a_queue_as_well() -> None:
    stage = QueueStage(documented("A1"))
    owner(stage).bind("q", "amq.topic", "orders.#")
    slow = consumer(stage, "slow", reads=100 * KB)
    publisher = stage.client("mqtt")
    sent = 0
    for _ in stage.steps(20):
        if publisher.publish("orders/1", sent, 60, size=1000):
            sent += 60
    assert sent < 60 * 200 / 2
    stage.run(30)
    assert slow.numbers == list(range(sent))


def test_a1_who_blocks_publishers_does_so_no_more_when_its_queue_is_bound_elsewhere() -> None:
    """The lane it read may be gone, and whoever waited for it goes on all the same."""
    stage = QueueStage(documented("A1"))
    publisher, other = owner(stage), stage.peer("other")
    publisher.bind("q", "amq.topic", "orders.#")
    slow = consumer(stage, "slow", reads=STUCK)
    sent = 0
    for _ in stage.steps(4):
        if publisher.publish("orders.1", sent, 60, exchange="amq.topic", size=1000):
            sent += 60
    assert publisher.paused
    other.bind("q", "amq.topic", "orders.1")
    slow.reads = 10 * MB
    stage.run(3)
    assert slow.numbers == list(range(sent))
    assert not publisher.paused
    assert publisher.publish("orders.1", sent, exchange="amq.topic")
    stage.run(1)
    assert slow.numbers == list(range(sent + 1))


def test_a1_who_was_held_back_before_anybody_noted_it_goes_on_when_the_consumer_is_gone() -> None:
    """The only one that did not block publishers leaves, and between two looks somebody publishes."""
    stage = QueueStage(ALL_SLOW % '"block_publishers"')
    publisher = owner(stage)
    stuck = consumer(stage, "stuck", acks=None, reads=STUCK)
    idle = consumer(stage, "idle", prefetch=1, acks=False)
    publisher.publish("q", 0, 50, size=100)
    stage.run(3)
    assert not publisher.paused
    idle.leave()
    publisher.publish("q", 50)
    stage.turn()
    assert publisher.paused
    stuck.leave()
    stage.run(1)
    assert not publisher.paused


def test_a2_a_finite_amount_is_spooled_to_disk() -> None:
    stage = QueueStage(documented("A2"), memory="8MB", disk="2MB", max_client_share="100%")
    publisher = owner(stage)
    slow = consumer(stage, "slow", acks=None, reads=STUCK)
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("q", number * 10, 10, size=1000)
    assert stage.told("offlined", "slow"), "though there is memory for it"
    assert stage.pool.disk_bytes > 0.8 * MB
    assert stage.pool.memory_bytes < 0.2 * MB
    slow.reads = 10 * MB
    stage.run(1)
    assert slow.numbers == list(range(1000))
    assert stage.pool.disk_bytes == 0
    slow.reads = STUCK
    for number, _ in enumerate(stage.steps(30)):
        publisher.publish("q", 1000 + number * 10, 10, size=1000)
    assert_told_why(slow, Reason.DISK_LIMIT, "disk is over its limit")


def test_a3_discarded_until_slow_no_more_what_comes_by_selector_or_by_topic() -> None:
    stage = QueueStage(documented("A3"))
    publisher = owner(stage, "ticks", "orders", "quotes")
    consumers = {}
    for name in ("ticks", "orders", "quotes"):
        publisher.bind(name, "amq.topic", f"{name}.#")
        consumers[name] = consumer(stage, name, name, acks=None, reads=STUCK)
    everything: list[int] = []

    def publish(number: int) -> None:
        odd = bool(number % 2)
        publisher.publish("ticks.a", number, exchange="amq.topic")
        publisher.publish("orders.a", number, exchange="amq.topic", priority=2 if odd else 7)
        publisher.publish("quotes.minor.a" if odd else "quotes.major.a", number, exchange="amq.topic")
        everything.append(number)

    for number, _ in enumerate(stage.steps(20)):
        publish(number)
    for peer in consumers.values():
        peer.reads = 100 * KB
    stage.run(2)
    for number, _ in enumerate(stage.steps(2), 200):
        publish(number)
    stage.run(1)
    for name, peer in consumers.items():
        left_out = sorted(set(everything) - set(peer.numbers))
        assert left_out, name
        assert peer.numbers == sorted(peer.numbers)
        assert set(range(200, 220)) <= set(peer.numbers), f"{name}: slow no more, it gets everything again"
        assert stage.counts(name) == {"discarded": len(left_out)}
        if name != "ticks":
            assert left_out == [number for number in left_out if number % 2], f"{name}: only what is marked"
            assert {n for n in everything if not n % 2} <= set(peer.numbers)
    kept = [number for number in consumers["ticks"].numbers if number < 200]
    assert kept == list(range(len(kept))), "what waited stays, what comes is left out"
    assert 50 <= len(kept) <= 80
    assert stage.pool.memory_bytes == 0


def test_a5_few_are_slow_they_go_most_are_slow_the_publisher_waits() -> None:
    """Of the consumers of all queues that are bound alike."""
    for stuck in (3, 6):
        stage = QueueStage(documented("A5"))
        names = [f"q{number}" for number in range(10)]
        publisher = owner(stage, *names)
        for name in names:
            publisher.bind(name, "amq.fanout")
        consumers = [
            consumer(stage, name, name, acks=None, reads=STUCK if number < stuck else float("inf"))
            for number, name in enumerate(names)
        ]
        sent = 0
        for _ in stage.steps(10):
            sent += 10 if publisher.publish("", sent, 10, exchange="amq.fanout", size=100) else 0
        if stuck == 3:
            assert [one.connected for one in consumers] == [False] * 3 + [True] * 7
            assert_told_why(consumers[0], Reason.LAG_AGE, "had waited")
            assert sent == 1000, "nobody holds it back"
            assert len(consumers[9].seen) == 1000
            continue
        assert publisher.paused
        assert all(one.connected for one in consumers)
        for one in consumers:
            one.reads = 1 * MB
        stage.run(3)
        assert not publisher.paused, "they are slow no more"
        assert all(one.numbers == list(range(sent)) for one in consumers)


def test_a7_one_slow_consumer_of_a_queue_is_no_problem() -> None:
    stage = QueueStage(ALL_SLOW % '"block_publishers"')
    publisher = owner(stage)
    slow, fast = consumer(stage, "slow", acks=None, reads=STUCK), consumer(stage, "fast", acks=None)
    for number, _ in enumerate(stage.steps(10)):
        assert publisher.publish("q", number, size=500)
    assert stage.told("slow") == []
    assert len(slow.seen) + len(fast.seen) >= 96
    assert stage.pool.memory_bytes == 0


def test_a7_all_slow_blocks_the_producer() -> None:
    stage = QueueStage(ALL_SLOW % '"block_publishers"')
    publisher = owner(stage)
    stuck = consumer(stage, "stuck", acks=None, reads=STUCK)
    other = consumer(stage, "other", acks=None, reads=2500)
    sent = 0
    for _ in stage.steps(10):
        sent += bool(publisher.publish("q", sent, size=500))
    assert sent == 100, "one of them still takes records, if too few"
    assert {one["client"] for one in stage.told("slow")} == {"stuck"}
    assert stage.queue("q").backlog.lag_records > 30
    other.reads = STUCK
    stage.run(3)
    publisher.publish("q", sent)
    sent += 1
    stage.turn()
    assert publisher.paused
    stage.run(1)
    assert not publisher.publish("q", sent)
    third = consumer(stage, "third", prefetch=1, acks=False)  # who is not slow is enough
    stage.run(1)
    assert not publisher.paused
    sent += bool(publisher.publish("q", sent))
    stage.run(1)
    assert not publisher.paused
    third.leave()
    stage.run(1)
    publisher.publish("q", sent)
    sent += 1
    stage.turn()
    assert publisher.paused
    for peer in (stuck, other):
        peer.reads = 10 * MB
    stage.run(1)
    assert not publisher.paused
    assert sorted(stuck.numbers + other.numbers) == list(range(sent)), "what the third had came back"


def test_a7_all_slow_discards() -> None:
    stage = QueueStage(ALL_SLOW % '{ action = "discard", which = "oldest", keep_records = 5 }')
    publisher = owner(stage)
    stuck = consumer(stage, "stuck", acks=None, reads=STUCK)
    other = consumer(stage, "other", acks=None, reads=2500)
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("q", number, size=500)
    assert stage.counts("q") == {}
    other.reads = STUCK
    for number, _ in enumerate(stage.steps(6), 100):
        publisher.publish("q", number, size=500)
    assert stage.queue("q").backlog.lag_records <= 7
    dropped = stage.counts("q")["discarded"]
    assert dropped > 50
    for peer in (stuck, other):
        peer.reads = 10 * MB
    stage.run(1)
    assert len(set(stuck.numbers + other.numbers)) == 160 - dropped
    assert set(range(155, 160)) <= set(stuck.numbers + other.numbers), "the newest"
    assert sorted(stuck.numbers) == stuck.numbers
    assert sorted(other.numbers) == other.numbers


@pytest.mark.parametrize("company", ["who asked once", "who stands by"])
@pytest.mark.parametrize("then", ['"block_publishers"', '{ action = "discard", which = "oldest", keep_records = 5 }'])
def test_a7_who_is_given_nothing_is_no_consumer_that_could_help(company: str, then: str) -> None:
    stage = QueueStage(ALL_SLOW % then)
    publisher = owner(stage, single_active=company == "who stands by")
    consumer(stage, "stuck", acks=None, reads=STUCK)
    if company == "who asked once":
        stage.peer("company").get("q")
    else:
        consumer(stage, "company")
    for number, _ in enumerate(stage.steps(6)):
        publisher.publish("q", number, size=500)
    if "discard" in then:
        assert stage.counts("q")["discarded"] > 20
    else:
        assert publisher.paused


def test_who_stands_by_is_not_judged_by_what_waits_for_another() -> None:
    stage = QueueStage(documented("M4"))
    publisher = owner(stage, single_active=True)
    active = consumer(stage, "active", acks=None, reads=STUCK)
    standby = consumer(stage, "standby")
    publisher.publish("q", 0, 100)
    stage.run(31)
    assert_told_why(active, Reason.LAG_AGE)
    assert standby.connected
    stage.run(1)
    assert standby.numbers == list(range(100 - len(standby.seen), 100))
    assert len(standby.seen) > 50


def test_nobody_is_judged_by_what_came_back_at_the_same_look() -> None:
    """One is cut, and what it held is old at once for the next who is looked at; who may never have seen it."""
    stage = QueueStage("""
    [[policy]]
    name = "age"

    [[policy.rule]]
    when = { any = [{ ack_age = "2s" }, { lag_age = "1s" }] }
    then = "disconnect"
    """)
    publisher = owner(stage)
    holds, works = consumer(stage, "holds", prefetch=1, acks=False), consumer(stage, "works", prefetch=5, acks=False)
    for number, _ in enumerate(stage.steps(4)):
        publisher.publish("q", number)
        stage.turn()
        for delivery_id in works.ids()[:-1]:
            works.ack(delivery_id)
    assert_told_why(holds, Reason.ACK_AGE)
    assert works.connected
    works.acks[1, "q"] = True
    works.ack_upto(0)
    stage.run(1)
    assert sorted(works.numbers) == list(range(40))
    assert works.again == holds.numbers == [0]


# -- JBoss A-MQ -----------------------------------------------------------------------------------------------------


def test_j1_a_constant_number_pends_on_top_of_the_prefetch() -> None:
    stage = QueueStage(documented("J1"))
    publisher = owner(stage, "q", "fifty")
    slow = consumer(stage, "slow", "q", 10, acks=False)
    exact = consumer(stage, "just within", "fifty", 10, acks=False)
    for number, _ in enumerate(stage.steps(2)):
        publisher.publish("q", number * 10, 10)
        if number < 6:
            publisher.publish("fifty", number * 10, 10)
    stage.run(1)
    assert stage.counts("q") == {"discarded": 140}
    assert stage.counts("fifty") == {}
    for peer, name in ((slow, "q"), (exact, "fifty")):
        peer.acks[1, name] = True
        peer.ack_upto(0)
    stage.run(1)
    assert slow.numbers == [*range(10), *range(150, 200)], "its window's worth, and the newest 50"
    assert exact.numbers == list(range(60)), "50 pending are within the limit"
    assert stage.pool.memory_bytes == 0


def test_j2_the_pending_limit_is_a_multiple_of_the_prefetch() -> None:
    stage = QueueStage(documented("J2"))
    publisher = owner(stage, "3", "20", "by channel")
    for name in ("3", "20", "by channel"):
        publisher.bind(name, "amq.fanout")
    small = consumer(stage, "window of 3", "3", 3, acks=False)
    large = consumer(stage, "window of 20", "20", 20, acks=False)
    channel = stage.peer("channel of 4")
    channel.channel(1, limit=4)
    channel.consume("by channel", 20, acks=False)
    unbounded = without_a_window(stage)
    for number, _ in enumerate(stage.steps(2)):
        publisher.publish("", number * 10, 10, exchange="amq.fanout")
    stage.run(1)
    for peer, name in ((small, "3"), (large, "20"), (channel, "by channel")):
        peer.acks[1, name] = True
        peer.ack_upto(0)
    stage.run(1)
    assert small.numbers == [0, 1, 2, *range(194, 200)], "3 and 2 x 3"
    assert large.numbers == [*range(20), *range(160, 200)], "20 and 2 x 20"
    assert channel.numbers == [*range(4), *range(192, 200)], "4 and 2 x 4: what both windows leave"
    assert unbounded.connected
    assert stage.queue("unbounded").backlog.lag_records > 490, "who has no window has no multiple of it"


def without_a_window(stage: QueueStage) -> Peer:
    """A stuck consumer with some 500 records behind it."""
    peer = stage.peer("no window", reads=STUCK, buffer=100)
    peer.declare("unbounded")
    peer.consume("unbounded", acks=None)
    peer.publish("unbounded", 0, 500)
    return peer


def test_j3_slow_for_too_long_or_too_often_and_never_for_one_bad_second() -> None:
    stage = QueueStage(documented("J3"))
    names = ["too long", "too often", "one bad second", "behind and steady"]
    publisher = owner(stage, *names)
    for name in names:
        publisher.bind(name, "amq.fanout")
    long, often, brief, steady = (consumer(stage, name, name, 5, acks=name == "one bad second") for name in names)
    publisher.publish("", 10_000, 50, exchange="amq.fanout")
    pauses = 0
    for number, now in enumerate(stage.steps(95)):
        since = round(now - 1000, 1)
        before = often.acks[1, "too often"]
        often.acks[1, "too often"] = since % 3 >= 2
        if since % 3 >= 2 and not before:
            often.ack_upto(0)
            pauses += 1
        brief.acks[1, "one bad second"] = not 28.9 <= since <= 30.1
        if brief.acks[1, "one bad second"]:
            brief.ack_upto(0)
        steady.ack(steady.ids()[0])
        publisher.publish("", number, exchange="amq.fanout")
        if since < 30:
            assert long.connected
        if since > 32:
            assert not long.connected
        if pauses < 29:
            assert often.connected, f"after {pauses} times"
    assert_told_why(long, Reason.CREDIT_EXHAUSTED, "window full", "5 records unacknowledged", "limit 30 s")
    assert_told_why(often, Reason.CREDIT_EXHAUSTED, "for the 30th time")
    assert brief.connected
    assert len(brief.seen) == 50 + 950
    assert stage.queue("behind and steady").backlog.lag_records > 40
    assert steady.connected, "who acknowledges is slow no more, and then again"


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("abort_connection", [False, True])
def test_j4_the_client_is_asked_to_close_or_channel_or_connection_is_cut(abort_connection: bool, elsewhere: bool
                                                                         ) -> None:
    toml = documented("J4")
    stage = QueueStage(toml.replace('"close_consumer"', '"disconnect"') if abort_connection else toml)
    publisher = owner(stage, "q", "other")
    slow = consumer(stage, "slow", prefetch=5, acks=False)
    if elsewhere:
        slow.consume("other", channel=2)
    publisher.publish("q", 0, 100)
    stage.run(29)
    assert slow.connected
    assert not slow.asked_to_close
    stage.run(2)
    if not abort_connection:
        assert slow.asked_to_close == ["q"]
        assert stage.told("close_consumer", "slow")[0]["filter"] == "$queue/q"
        assert slow.connected
        assert not slow.closed
        slow.cancel("q")
        slow.ack_upto(0)
    elif elsewhere:
        assert slow.connected
        (closed,) = slow.closed
        assert closed.channel.number == 1
        assert closed.reason is Reason.CREDIT_EXHAUSTED
        assert "limit 30 s" in closed.text
        publisher.publish("other", 1000)
        stage.turn()
        assert slow.of("other", 2) == [1000], "its other channel lives on"
    else:
        assert_told_why(slow, Reason.CREDIT_EXHAUSTED, "limit 30 s", "5 records unacknowledged")
    heir = consumer(stage, "heir")
    stage.run(1)
    first = 0 if abort_connection else 5
    assert heir.numbers == list(range(first, 100))
    assert heir.again == list(range(5)) if abort_connection else not heir.again
    assert stage.pool.memory_bytes == 0


def test_j5_wildcard_destinations_and_the_first_policy_that_covers_all_of_a_binding() -> None:
    stage = QueueStage(documented("J5"))
    publisher = owner(stage, "american", "british", "wider", "both")
    for name, key in (("american", "stocks.us.ibm"), ("british", "stocks.uk.bp"), ("wider", "stocks.#"),
                      ("both", "stocks.uk.bp"), ("both", "stocks.us.*")):
        publisher.bind(name, "amq.topic", key)
    american, british, wider, both = (
        consumer(stage, name, name, acks=None, reads=STUCK) for name in ("american", "british", "wider", "both")
    )
    for number, _ in enumerate(stage.steps(2)):
        publisher.publish("stocks.us.ibm", number * 5, 5, exchange="amq.topic")
        publisher.publish("stocks.uk.bp", number * 5, 5, exchange="amq.topic")
    assert_told_why(american, Reason.LAG_RECORDS, "policy 'american stocks'")
    assert_told_why(both, Reason.LAG_RECORDS, "policy 'american stocks'")
    assert british.connected
    assert wider.connected, "a queue bound to more than the policy is about is not governed by it"
    publisher.publish("stocks.uk.bp", 1000, 600, exchange="amq.topic")
    stage.run(1)
    assert_told_why(british, Reason.LAG_RECORDS, "policy 'the rest'")
    assert_told_why(wider, Reason.LAG_RECORDS, "policy 'the rest'")


# -- Qpid -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "size", "seconds", "reason"),
    [(80, 100, 1, Reason.LAG_RECORDS), (50, 100_000, 1, Reason.LAG_BYTES), (30, 1000, 602, Reason.LAG_AGE),
     (40, 1000, 500, None)],
)  # fmt: skip
@pytest.mark.parametrize("how", ["no-ack", "acks", "get"])
def test_q1_depth_age_or_count_any_of_them_fires(count: int, size: int, seconds: int, reason: Reason | None, how: str
                                                 ) -> None:
    stage = QueueStage(documented("Q1"))
    publisher = owner(stage)
    publisher.bind("q", "amq.topic", "stocks.us.ibm")
    if how == "get":
        slow = stage.peer("slow")
        slow.get("q")
    else:
        slow = consumer(stage, "slow", prefetch=1, acks=None if how == "no-ack" else False, reads=STUCK, buffer=100)
    publisher.publish("stocks.us.ibm", 0, count, exchange="amq.topic", size=size)
    stage.run(seconds)
    if reason is None:
        assert slow.connected, "none of the three is exceeded"
        return
    assert_told_why(slow, reason)
    verdict = stage.broker.verdicts.of("slow")[0]
    assert {reading.meter for reading in verdict.readings} == {"lag_bytes", "lag_age", "lag_records"}


def test_q2_a_consumption_rate_to_stay_above() -> None:
    stage = QueueStage(documented("Q2"))
    publisher = owner(stage, "slow", "enough")
    for name in ("slow", "enough"):
        publisher.bind(name, "amq.fanout")
    slow = consumer(stage, "slow", "slow", acks=None, reads=8 * KB)
    enough = consumer(stage, "enough", "enough", reads=13 * KB)
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("", number, exchange="amq.fanout", size=1500)  # 15 kB/s
    assert_told_why(slow, Reason.DRAIN_RATE, "taken over", "at least 10 kB/s asked")
    assert enough.connected


@pytest.mark.parametrize("told", [False, True])
def test_q3_deleting_spares_durable_queues_unless_told(told: bool) -> None:
    toml = documented("Q3")
    if told:
        toml = toml.replace('"delete_subscription"', '{ action = "delete_subscription", durable = true }')
    stage = QueueStage(toml)
    publisher = owner(stage, "transient", "shared")
    publisher.declare("durable", durable=True)
    for name in ("transient", "durable"):
        publisher.bind(name, "amq.fanout")
    transient = consumer(stage, "transient", "transient", acks=None, reads=STUCK, buffer=100)
    durable = consumer(stage, "durable", "durable", acks=None, reads=STUCK, buffer=100)
    for number, _ in enumerate(stage.steps(1)):
        publisher.publish("", number * 10, 10, exchange="amq.fanout")
    queues = stage.broker.registry.router.queues
    assert "transient" not in queues
    assert_told_why(transient, Reason.LAG_RECORDS)
    assert ("durable" in queues) is not told
    assert durable.connected is not told
    assert {one["client"] for one in stage.told("slow")} == {"transient", "durable"}, "it is called slow all the same"
    assert {one["client"] for one in stage.told("deleted")} == {"transient"} | ({"durable"} if told else set())
    durable.reads = 1 * MB
    stage.run(1)
    if not told:
        assert durable.numbers == list(range(100))
    else:
        assert stage.pool.memory_bytes == 0
        assert stage.lanes == ["$queue/shared"]


def test_q3_a_queue_that_others_consume_too_is_not_deleted() -> None:
    stage = QueueStage(ALL_SLOW % '"delete_subscription"')
    publisher = owner(stage)
    stuck = consumer(stage, "stuck", acks=None, reads=STUCK)
    other = consumer(stage, "other", acks=None, reads=2500)
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("q", number, size=500)
    assert not stuck.connected
    assert other.connected
    other.reads = 1 * MB
    stage.run(1)
    assert sorted(stuck.numbers + other.numbers) == list(range(100))


@pytest.mark.parametrize(
    ("topics", "governed"),
    [
        ("$queue/q", ["q"]), ("$queue/+", ["q", "r", "s"]), ("$queue/other", []),
        ("$exchange/amq.direct/a/b", ["q"]), ("$exchange/amq.direct/#", ["q", "r"]), ("$exchange/amq.direct/a", []),
        ("$exchange/amq.topic/x/#", ["s"]), ("$exchange/+/x/+", ["s"]), ("x/#", ["s"]), ("x/+", ["s"]), ("a/b", []),
        ("x/1", []), ("#", ["q", "r", "s"]),
    ],
)  # fmt: skip
def test_q5_policies_by_queue_by_exchange_and_key_and_by_topic(topics: str, governed: list[str]) -> None:
    stage = QueueStage(f"""
    [[policy]]
    name = "p"
    topics = ["{topics}"]

    [[policy.rule]]
    when = {{ lag_records = "> 50" }}
    then = "disconnect"
    """)
    publisher = owner(stage, "q", "r", "s")
    for name, source, key in (("q", "amq.direct", "a.b"), ("r", "amq.direct", "c"), ("s", "amq.topic", "x.*")):
        publisher.bind(name, source, key)
    stuck = {name: consumer(stage, name, name, acks=None, reads=STUCK, buffer=100) for name in ("q", "r", "s")}
    for source, key in (("amq.direct", "a.b"), ("amq.direct", "c"), ("amq.topic", "x.1")):
        publisher.publish(key, 0, 60, exchange=source)
    stage.run(1)
    assert [name for name, peer in stuck.items() if not peer.connected] == governed


def test_q5_a_consumer_may_ask_for_another_policy_and_durable_queues_have_theirs() -> None:
    stage = QueueStage("""
    [[policy]]
    name = "durable ones"
    subscriptions = "durable"

    [[policy.rule]]
    when = { lag_records = "> 500" }
    then = "disconnect"

    [[policy]]
    name = "all"

    [[policy.rule]]
    when = { lag_records = "> 50" }
    then = "disconnect"

    [[policy]]
    name = "patient"
    topics = ["none"]
    """)
    publisher = owner(stage, "q")
    publisher.declare("d", durable=True)
    plain = consumer(stage, "plain", acks=None, reads=STUCK, buffer=100)
    durable = consumer(stage, "durable", "d", acks=None, reads=STUCK, buffer=100)
    asks = stage.peer("asks", reads=STUCK, buffer=100)
    asks.consume("q", acks=None, policy="patient")
    for name in ("q", "d"):
        publisher.publish(name, 0, 100)
    stage.run(1)
    assert_told_why(plain, Reason.LAG_RECORDS, "policy 'all'")
    assert durable.connected
    assert asks.connected
    publisher.publish("d", 100, 500)
    stage.run(1)
    assert_told_why(durable, Reason.LAG_RECORDS, "policy 'durable ones'")
