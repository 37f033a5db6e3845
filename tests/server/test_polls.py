"""Polls, with a pretended clock and disk: what waits for who reads by himself, and what a policy does about it."""

from __future__ import annotations

import random
from math import inf

import pytest
from tests.core.queue_wire import run_of
from tests.server.journal_stage import JournalStage
from tests.server.test_journal_faults import RETRY_S, fail

from headway.core.base.errors import Reason
from headway.core.consumer.poll import Poll
from headway.core.log.durable import RESERVE, Ledger
from headway.core.policy.verdicts import Cause
from headway.core.telemetry.stats import account
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
    last = publish(stage, 20)
    publish(stage, 5, "u")
    assert poll.lag_records == 20
    assert 20_000 < poll.lag_bytes < 26_000, "and nothing of another topic"
    poll.move(last - 4, stage.now)
    assert poll.lag_records == 5
    assert 5_000 < poll.lag_bytes < 6_500
    poll.move(last + 1, stage.now)
    assert (poll.lag_records, poll.lag_bytes, poll.oldest_time()) == (0, 0, inf)
    assert poll.delivered.records == 20


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


def test_what_is_not_on_disk_yet_counts_from_its_offset_on_and_is_kept_as_the_policy_says() -> None:
    action = '{ action = "discard", which = "oldest", keep_records = 10 }'
    stage = JournalStage(config=policy('lag_records = "> 50"', action))
    poll = reader(stage)
    publish(stage, 20)
    written, first = stage.journal.committed_sequence, stage.broker.registry.sequence + 1
    fail(stage.files, "write")
    for count in (1, 30, 9, 20):
        stage.broker.publish(stage.session, [run_of("t.x", [b"."] * count, exchange="amq.topic")], stage.now)
        stage.turn()
    lag = poll.archive_cursor.archive.lag
    assert stage.journal.committed_sequence == written
    left = [lag("t/#", first + over).records for over in (0, 1, 2, 31, 59, 60)]
    assert [poll.lag_records, *left] == [80, 60, 59, 58, 29, 1, 0]
    stage.broker.tick(stage.now)
    assert (poll.lag_records, poll.offset) == (10, first + 50)
    stage.files.hook = None
    stage.loop.pass_time(RETRY_S)
    stage.turn()
    assert poll.lag_records == 10
    assert stage.journal.committed_sequence > first + 58


def test_a_discard_leaves_as_much_as_it_says() -> None:
    action = '{ action = "discard", which = "oldest", keep_bytes = "10kB" }'
    stage = JournalStage(config=policy('lag_bytes = "> 30kB"', action))
    poll = reader(stage)
    publish(stage, 50)
    tick(stage, 3)
    assert 7_000 < poll.lag_bytes <= 10_000
    gap = poll.take_gap()
    assert gap is not None
    assert gap.records == 50 - poll.lag_records
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


@pytest.mark.parametrize("again", [False, True])
def test_lag_counts_records_and_no_holes_between_offsets(again: bool) -> None:
    """Offsets that an earlier version skipped at a start, and those of other topics, are no records. ``again``: after
    a start, which counts anew."""
    stage = JournalStage(config=RECORDED)
    poll = reader(stage)
    publish(stage, 3)
    stage.broker.registry.sequence += 1 << 24
    stage.turn()
    for _ in range(10):
        publish(stage, 1, "u")
        publish(stage, 1)
    if again:
        stage = JournalStage(stage.files.crash(random.Random(1)), config=RECORDED)
        poll = reader(stage)
    last = publish(stage, 2)
    assert poll.lag_records == 15
    assert poll.lag_bytes < 20_000
    poll.move(poll.offset + (1 << 23), stage.now)
    assert poll.lag_records == 12, "it stands in the hole"
    poll.move(last + 1, stage.now)
    assert (poll.lag_records, poll.delivered.records) == (0, 15)
    poll.move(last + 100, stage.now)
    assert publish(stage, 1) == last + 1
    assert poll.lag_records == 1


def test_a_policy_by_count_does_not_count_holes() -> None:
    action = '{ action = "discard", which = "oldest", keep_records = 10 }'
    stage = JournalStage(config=policy('lag_records = "> 30"', action))
    poll = reader(stage)
    publish(stage, 15)
    stage.broker.registry.sequence += 1 << 24
    stage.turn()
    publish(stage, 15)
    tick(stage, 3)
    assert (poll.lag_records, stage.broker.verdicts.of("query")) == (30, ())
    last = publish(stage, 1)
    tick(stage, 3)
    assert (poll.lag_records, poll.offset) == (10, last - 9)
    gap = poll.take_gap()
    assert gap is not None
    assert gap.records == 21


def test_a_batch_of_several_runs_is_counted_at_most_whole() -> None:
    """Nobody reads it for that: the count is a bound for who stands within it, and exact at its ends."""
    stage = JournalStage(config=RECORDED)
    poll = reader(stage)
    first = poll.offset
    for _ in range(10):
        for key in ("t.x", "u"):
            stage.broker.publish(stage.session, [run_of(key, [b"."], exchange="amq.topic")], stage.now)
    stage.turn()
    left = []
    for number in range(10):
        poll.move(first + 2 * number, stage.now)
        left.append(poll.lag_records)
    assert left[0] == 10
    assert all(10 - number <= count <= min(10, 20 - 2 * number) for number, count in enumerate(left))
    assert left[-1] == 1


# -- offsets across a start -------------------------------------------------------------------------------------------


def test_a_clean_stop_skips_no_offset() -> None:
    stage = JournalStage(config=RECORDED, thread=True)
    last = publish(stage, 5)
    stage.journal.close()
    for number in range(1, 4):
        stage = JournalStage(stage.files, config=RECORDED, thread=True)
        assert last <= stage.broker.registry.sequence <= last + 2 * number, "a snapshot has an offset"
        stage.journal.close()
    again = JournalStage(stage.files, config=RECORDED)
    assert publish(again, 1) <= last + 9


def test_a_crash_skips_what_was_reserved_and_no_more() -> None:
    stage = JournalStage(config=RECORDED)
    last = publish(stage, 5)
    stage.broker.publish(stage.session, [run_of("not.recorded", [b"."] * 1000, exchange="amq.topic", qos=0)], stage.now)
    assert stage.broker.registry.sequence == last + 1000, "somebody may have been told these offsets"
    again = JournalStage(stage.files.crash(random.Random(1)), config=RECORDED)
    assert last + 1000 <= again.broker.registry.sequence <= last + RESERVE


def test_sequences_are_reserved_on_disk_before_the_first_one_is_used() -> None:
    stage = JournalStage(config=RECORDED, thread=True)
    again = JournalStage(stage.files.crash(random.Random(1)), config=RECORDED)
    assert again.broker.registry.sequence >= RESERVE


def test_more_is_reserved_while_more_comes_and_given_back_afterwards() -> None:
    ledger, sequence, now = Ledger(), 0, 0.0
    commits = 0
    for _ in range(1000):  # a million records a second, in turns of 10 ms
        sequence, now = sequence + 10_000, now + 0.01
        commits += ledger.take(sequence, now) is not None
        assert ledger.reserved >= sequence
    assert commits < 20
    assert ledger.reserved - sequence < 5_000_000
    ledger.take(sequence, now + 60.0)
    assert ledger.reserved - sequence == RESERVE
    assert ledger.take(sequence, now + 120.0) is None, "and who does nothing writes nothing"
