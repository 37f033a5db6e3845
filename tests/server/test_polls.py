"""Polls, with a pretended clock and disk: what waits for who reads by himself, and what a policy does about it."""

from __future__ import annotations

import random
from math import inf

import pytest
from tests.core.queue_wire import run_of
from tests.server.journal_stage import JournalStage

from headway.core.base.errors import Reason
from headway.core.consumer.poll import Poll
from headway.core.policy.verdicts.causes import Cause
from headway.core.telemetry.accounts import account
from headway.wire.mqtt.dialect import MqttDialect

RECORDED = """
[[topic]]
filter = "t/#"
keep = "7d"
[[topic]]
filter = "u"
keep = "7d"
"""


def policy(when: str, then: str) -> str:
    return f'{RECORDED}\n[[policy]]\nname = "p"\ntopics = ["#"]\n[[policy.rule]]\nwhen = {{ {when} }}\nthen = {then}\n'


def reader(stage: JournalStage, filter: str = "t/#") -> Poll:
    """Somebody who reads by himself, from now on."""
    offset = stage.broker.registry.sequence + 1
    return stage.broker.polls.attach("query", filter, offset, None, MqttDialect(5, 1), stage.now)


def publish(stage: JournalStage, count: int, key: str = "t.x", size: int = 1000) -> int:
    """Returns the last offset."""
    for _ in range(count):
        stage.broker.publish(stage.session, [run_of(key, [b"." * size], exchange="amq.topic")], stage.now)
        stage.turn()
    return stage.broker.registry.sequence


def tick(stage: JournalStage, times: int = 1) -> None:
    for _ in range(times):
        stage.loop.pass_time(0.2)
        stage.broker.tick(stage.now)
        stage.turn()


def test_what_waits_is_what_is_recorded_from_its_offset_on() -> None:
    stage = JournalStage(config=RECORDED)
    poll = reader(stage)
    first = poll.offset
    last = publish(stage, 20)
    publish(stage, 5, "u")
    assert poll.lag_records == last + 1 - first
    assert 20_000 < poll.lag_bytes < 26_000, "and nothing of another topic"
    poll.move(last - 4, stage.now)
    assert poll.lag_records == 5
    assert 5_000 < poll.lag_bytes < 6_500
    poll.move(last + 1, stage.now)
    assert (poll.lag_records, poll.lag_bytes, poll.oldest_time()) == (0, 0, inf)
    assert poll.delivered.records == last + 1 - first


def test_its_account_balances() -> None:
    stage = JournalStage(config=RECORDED)
    poll = reader(stage)
    last = publish(stage, 30)
    offered = account(poll)
    assert offered.lag_records == offered.offered_records >= 30
    poll.move(last - 9, stage.now)
    moved = account(poll)
    assert (moved.lag_records, moved.offered_records) == (10, offered.offered_records)
    assert moved.offered_bytes == offered.offered_bytes
    assert moved.drained_bytes > 0


def test_its_age_is_that_of_the_first_record_that_waits() -> None:
    stage = JournalStage(config=RECORDED)
    poll = reader(stage)
    publish(stage, 1)
    stage.loop.pass_time(7.0)
    publish(stage, 1)
    oldest = poll.oldest_time()
    assert oldest == pytest.approx(stage.now - 7.0, abs=0.01)


def test_one_that_moves_on_is_not_blocked_however_far_behind_it_is() -> None:
    stage = JournalStage(config=policy('blocked_time = "> 1s"', '"disconnect"'))
    poll = reader(stage)
    publish(stage, 100)
    for _ in range(20):
        tick(stage, 4)
        poll.move(poll.offset + 2, stage.now)
    assert not stage.broker.verdicts.of("query")
    tick(stage, 8)
    assert not stage.broker.verdicts.of("query"), "three of its usual pauses are not over"
    tick(stage, 8)
    (verdict,) = stage.broker.verdicts.of("query")
    assert (verdict.reason, verdict.cause) == (Reason.BLOCKED, Cause.APPLICATION)
    assert not poll.session.connected


def test_a_discard_leaves_as_much_as_it_says() -> None:
    action = '{ action = "discard", which = "oldest", keep_bytes = "10kB" }'
    stage = JournalStage(config=policy('lag_bytes = "> 30kB"', action))
    poll = reader(stage)
    first = poll.offset
    publish(stage, 50)
    tick(stage, 3)
    assert 7_000 < poll.lag_bytes <= 10_000
    gap = poll.take_gap()
    assert gap is not None
    assert gap.records == poll.offset - first
    assert poll.counters.gap_records.total() == gap.records
    assert poll.delivered.records == 0


@pytest.mark.parametrize("then", ['"conflate"', '"offline"', '"block_publishers"'])
def test_what_has_nothing_to_act_on_is_told_and_hurts_nobody(then: str) -> None:
    stage = JournalStage(config=policy('lag_records = "> 5"', then))
    poll = reader(stage)
    first = poll.offset
    publish(stage, 50)
    tick(stage, 3)
    assert (poll.offset, stage.paused) == (first, False)
    (verdict,) = stage.broker.verdicts.of("query")
    assert verdict.filter == "t/#"


def test_it_comes_back_where_it_was_and_is_judged_while_it_is_away() -> None:
    stage = JournalStage(config=policy('lag_records = "> 30"', '{ action = "delete_subscription", durable = true }'))
    poll = reader(stage)
    last = publish(stage, 10)
    poll.move(last - 2, stage.now)
    stage.turn()
    again = JournalStage(stage.files.crash(random.Random(1)), config=policy(
        'lag_records = "> 30"', '{ action = "delete_subscription", durable = true }'))  # fmt: skip
    poll = reader(again)
    assert poll.offset == last - 2
    again.broker.polls.leave(poll.session, again.now)
    publish(again, 40)
    tick(again, 3)
    assert poll.ended
    assert again.broker.deletion_notice("query")
