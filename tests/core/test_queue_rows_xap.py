"""The rows of XAP over queues, one story each (test_rows_xap.py has them over topics)."""

from __future__ import annotations

from tests.core.queue_rows import MB, assert_told_why
from tests.core.queues_stage import QueueStage, consumer, owner
from tests.core.stage import STUCK, documented

from headway.core.base.errors import Reason

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
