"""Sizes, shares, durations and rates: every form people write, and the errors for those they should not."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.base.errors import ConfigError
from headway.core.base.units import (
    format_count,
    format_duration,
    format_rate,
    format_share,
    format_size,
    parse_count,
    parse_duration,
    parse_rate,
    parse_share,
    parse_size,
)

READ = [
    (parse_size, 1000, 1000),
    (parse_size, "1000", 1000),
    (parse_size, 4096.0, 4096),
    (parse_size, "64MB", 64_000_000),
    (parse_size, " 64 MB ", 64_000_000),
    (parse_size, "10KiB", 10_240),
    (parse_size, "10kB", 10_000),
    (parse_size, "10KB", 10_000),
    (parse_size, "1.5GB", 1_500_000_000),
    (parse_size, "1GiB", 2**30),
    (parse_size, "2TB", 2 * 10**12),
    (parse_size, "1_000B", 1000),
    (parse_size, "9007199254740993", 9007199254740993),
    (parse_share, 0.5, 0.5),
    (parse_share, 1, 1.0),
    (parse_share, "50%", 0.5),
    (parse_share, "12.5 %", 0.125),
    (parse_share, "0.25", 0.25),
    (parse_share, "100%", 1.0),
    (parse_duration, 30, 30.0),
    (parse_duration, 0.5, 0.5),
    (parse_duration, "0", 0.0),
    (parse_duration, "500ms", 0.5),
    (parse_duration, "30s", 30.0),
    (parse_duration, "5m", 300.0),
    (parse_duration, "5 min", 300.0),
    (parse_duration, "1h", 3600.0),
    (parse_duration, "7d", 604_800.0),
    (parse_duration, "1w", 604_800.0),
    (parse_duration, "1h30m", 5400.0),
    (parse_duration, "1 h 30 min", 5400.0),
    (parse_rate, 5000, 5000.0),
    (parse_rate, "5000", 5000.0),
    (parse_rate, "5000B/s", 5000.0),
    (parse_rate, "1MB/s", 1e6),
    (parse_rate, "10 KiB / s", 10_240.0),
    (parse_count, 30, 30),
    (parse_count, "10_000", 10_000),
]


@pytest.mark.parametrize(("parse", "written", "meant"), READ)
def test_reads(parse, written, meant):
    value = parse(written)
    assert value == pytest.approx(meant, rel=1e-12)
    assert type(value) is type(meant)


REFUSED = [
    (parse_size, "64Mb", "\"64Mb\": unknown unit 'Mb' (did you mean MB?)"),
    (parse_size, "64 parsecs", "unknown unit 'parsecs': units are B, kB, MB"),
    (parse_size, "10%", "is not a size"),
    (parse_size, "-1", "is not a size"),
    (parse_size, -1, "must be finite and not negative"),
    (parse_size, 1.5, "bytes are whole"),
    (parse_size, True, "true is not a size"),
    (parse_size, None, "is not a size"),
    (parse_size, "", "is not a size"),
    (parse_share, 50, 'for 50 percent write "50%"'),
    (parse_share, "150%", "more than the whole"),
    (parse_share, -0.1, "must be finite and not negative"),
    (parse_share, "half", "is not a share"),
    (parse_duration, "30", 'its unit is missing; for seconds write "30s"'),
    (parse_duration, "30 parsecs", "unknown unit 'parsecs': units are ms, s, m, h, d, w"),
    (parse_duration, "", "is not a duration"),
    (parse_duration, "soon", "is not a duration"),
    (parse_duration, "-5s", "is not a duration"),
    (parse_duration, float("nan"), "must be finite"),
    (parse_duration, float("inf"), "must be finite"),
    (parse_duration, False, "false is not a duration"),
    (parse_rate, "1MB", "rates are per second, written /s"),
    (parse_rate, "1MB/h", "rates are per second, written /s"),
    (parse_rate, "fast/s", "is not a rate"),
    (parse_count, 1.5, "is not a whole number"),
    (parse_count, "many", "is not a whole number"),
]


@pytest.mark.parametrize(("parse", "written", "says"), REFUSED)
def test_refuses_in_one_clear_line(parse, written, says):
    with pytest.raises(ConfigError) as caught:
        parse(written)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_does_not_repeat_a_page():
    with pytest.raises(ConfigError) as caught:
        parse_size("x" * 10_000)
    assert len(str(caught.value)) < 200


SHOWN = [
    (format_size, 0, "0 B"),
    (format_size, 999, "999 B"),
    (format_size, 1000, "1 kB"),
    (format_size, 1_588_224, "1.59 MB"),
    (format_size, 64_000_000, "64 MB"),
    (format_size, 999_999, "1 MB"),
    (format_size, 12_340_000_000, "12.3 GB"),
    (format_rate, 5000.0, "5 kB/s"),
    (format_share, 0.5, "50 %"),
    (format_share, 0.125, "12.5 %"),
    (format_count, 12408, "12,408"),
    (format_duration, 0, "0 s"),
    (format_duration, 0.0031, "3 ms"),
    (format_duration, 0.5, "500 ms"),
    (format_duration, 30, "30 s"),
    (format_duration, 31.24, "31.2 s"),
    (format_duration, 100.0, "100 s"),
    (format_duration, 119.99, "2 min"),
    (format_duration, 125, "2 min 5 s"),
    (format_duration, 3600, "1 h"),
    (format_duration, 5400, "1 h 30 min"),
    (format_duration, 90_000, "1 d 1 h"),
]


@pytest.mark.parametrize(("form", "value", "text"), SHOWN)
def test_writes_for_people(form, value, text):
    assert form(value) == text


@given(st.floats(min_value=0.001, max_value=1e8))
def test_a_written_duration_reads_back(seconds):
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.06, abs=0.0005)


@given(st.integers(min_value=0, max_value=10**15))
def test_a_written_size_and_rate_read_back(count):
    assert parse_size(format_size(count)) == pytest.approx(count, rel=0.006)
    assert parse_rate(format_rate(count)) == pytest.approx(count, rel=0.006)


@given(st.one_of(st.text(), st.floats(), st.integers(), st.booleans(), st.none(), st.lists(st.integers())))
def test_nothing_gives_anything_but_a_number_or_a_config_error(value):
    for parse in (parse_size, parse_share, parse_duration, parse_rate, parse_count):
        with contextlib.suppress(ConfigError):
            assert parse(value) >= 0
