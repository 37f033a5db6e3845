"""Counters: what was sent and what was not, from what happened to one consumer."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from headway.core.base import Reason
from headway.core.consumer.progress import NO_GAPS, Counters, Volume


def test_what_left_the_lane_and_was_not_passed_over_was_sent() -> None:
    counters, cursor = Counters(10, 1000), SimpleNamespace(number=30, position=3000)
    assert counters.sent(cursor) == (20, 2000)
    counters.pass_over(5, 500)
    counters.skip(2, 200)
    counters.write(1, 90)
    counters.rewound_bytes += 7
    assert counters.sent(cursor) == (20 - 5 - 2 + 1, 2000 - 500 - 200 + 90 + 7)
    assert counters.written == (1, 90)
    counters.gap(2, Reason.DISCARDED)
    assert counters.skipped == (2, 200)


def test_what_a_queue_did_not_hand_to_a_member_went_to_others() -> None:
    counters = Counters(100, 10_000)
    counters.write(3, 330)
    counters.handed_bytes += 300
    assert counters.taken_from_queue == (3, 300)
    assert counters.given_to_others(110, 11_000) == (7, 700)
    counters.start_at(110, 11_000)
    assert counters.given_to_others(113, 11_300) == (0, 0)


def test_totals_are_added_to_once() -> None:
    counters, gaps = Counters(0, 0), Counter({Reason.EXPIRED: 1})
    assert counters.add_to_total(Volume(3, 30), gaps) == (3, 30)
    assert gaps == {Reason.EXPIRED: 1}
    counters.gap(4, Reason.DISCARDED)
    assert counters.add_to_total(Volume(5, 70), gaps) == (2, 40)
    counters.gap(1, Reason.DISCARDED)
    counters.gap(2, Reason.EXPIRED)
    assert counters.add_to_total(Volume(5, 70), gaps) == (0, 0)
    assert counters.add_to_total(Volume(5, 70), gaps) == (0, 0)
    assert gaps == {Reason.DISCARDED: 5, Reason.EXPIRED: 3}


def test_consumers_without_a_gap_share_one_counter() -> None:
    one, other = Counters(0, 0), Counters(0, 0)
    assert one.gap_records is other.gap_records is NO_GAPS
    one.gap(1, Reason.EXPIRED)
    assert other.gap_records[Reason.EXPIRED] == 0
    assert not NO_GAPS
