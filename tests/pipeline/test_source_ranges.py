"""Ranges: parts that cover all of it once, and what is left of it by filters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from headway.pipeline.source.reading import CLOCK_BACK, SPAN_OFFSETS, Bounds, split

OFFSET, TIME, TOPIC = ("offset",), ("timestamp",), ("topic",)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@given(st.integers(0, 2**62), st.integers(0, 10 * SPAN_OFFSETS), st.integers(1, 20))
def test_the_parts_are_the_whole(first: int, size: int, most: int) -> None:
    """Nothing twice, nothing left out, as many as are worth it, none much larger than another."""
    spans = split(first, first + size, most)
    assert [span.stop for span in spans[:-1]] == [span.first for span in spans[1:]]
    assert (spans[0].first, spans[-1].stop) == (first, first + size)
    sizes = [span.stop - span.first for span in spans]
    assert max(sizes) - min(sizes) <= 1
    assert len(spans) == min(most, max(1, -(-size // SPAN_OFFSETS)))


def pushed(*filters: Filter, topic: str = "flights/#") -> tuple[Bounds, list[Filter]]:
    bounds = Bounds(topic)
    return bounds, list(bounds.push(filters))


@pytest.mark.parametrize(
    ("filters", "first", "stop"),
    [
        ([EqualTo(OFFSET, 7)], 7, 8), ([GreaterThan(OFFSET, 7)], 8, None), ([GreaterThanOrEqual(OFFSET, 7)], 7, None),
        ([LessThan(OFFSET, 7)], 0, 7), ([LessThanOrEqual(OFFSET, 7)], 0, 8),
        ([GreaterThan(OFFSET, 3), GreaterThan(OFFSET, 5), LessThan(OFFSET, 9), LessThan(OFFSET, 8)], 6, 8),
        ([GreaterThan(OFFSET, 9), LessThan(OFFSET, 3)], 10, 3),
    ],
)  # fmt: skip
def test_offsets_need_no_second_look(filters: list[Filter], first: int, stop: int | None) -> None:
    bounds, left = pushed(*filters)
    assert (bounds.first, bounds.stop, left) == (first, stop, [])


def test_a_topic_within_the_filter_is_asked_for_alone() -> None:
    assert pushed(EqualTo(TOPIC, "flights/ua")) == (Bounds("flights/ua"), [])
    assert pushed(EqualTo(TOPIC, "boats/1")) == (Bounds("flights/#", nothing=True), [])
    assert pushed(EqualTo(TOPIC, "flights/ua"), EqualTo(TOPIC, "flights/dl"))[0].nothing
    wild = EqualTo(TOPIC, "flights/+")  # a value that no topic has, but a filter of others
    assert pushed(wild) == (Bounds("flights/#"), [wild])


def test_times_narrow_the_range_but_are_looked_at_again() -> None:
    """From the first that may be it to the last, on a broker whose clock was set back a little."""
    micro = timedelta(microseconds=1)
    for kind, since, until in (
        (EqualTo, [NOON], [NOON + micro + CLOCK_BACK]), (GreaterThan, [NOON], []), (GreaterThanOrEqual, [NOON], []),
        (LessThan, [], [NOON + micro + CLOCK_BACK]), (LessThanOrEqual, [], [NOON + micro + CLOCK_BACK]),
    ):  # fmt: skip
        one = kind(TIME, NOON)
        assert pushed(one) == (Bounds("flights/#", since=since, until=until), [one])


@pytest.mark.parametrize(
    "one",
    [
        In(OFFSET, (1, 2)), IsNotNull(OFFSET), Not(EqualTo(OFFSET, 1)), EqualTo(("payload",), b""),
        EqualTo(("properties", "offset"), 1), GreaterThan(TOPIC, "flights"), LessThan(TIME, NOON.replace(tzinfo=None)),
        EqualTo(OFFSET, True),
    ],
)  # fmt: skip
def test_all_else_is_left_to_spark(one: Filter) -> None:
    assert pushed(one) == (Bounds("flights/#"), [one])
