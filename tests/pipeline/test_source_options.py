"""Options of the Spark source: every mistake is one line that names the option."""

from __future__ import annotations

import pytest
from tests.pipeline.page import rows

from headway.core.base.errors import ConfigError
from headway.pipeline.source.options import READ, Options, for_batches, for_streams, read_options
from headway.pipeline.source.source import columns

TOPIC = {"topic": "flights/#"}
STATE = TOPIC | {"state": "true"}


def test_what_is_not_said_is_the_default() -> None:
    assert read_options(TOPIC) == Options("flights/#", "http://127.0.0.1:9883", "earliest", None, 4, True, 60.0)
    assert read_options(TOPIC | {"from": "", "policy": " "}) == Options("flights/#")


def test_everything_said_is_read_whatever_its_letters_case() -> None:
    """Spark hands over names in small letters, and every value as a text."""
    said = {
        "TOPIC": " flights/ua ", "admin": "localhost:9/base/", "from": "Latest", "maxbytespertrigger": "64MB",
        "maxOffsetsPerTrigger": "10_000", "partitions": "3", "failOnDataLoss": "False", "policy": "patient",
        "timeout": "90", "path": "somewhere", "checkpointLocation": "x", "option.topic": "x", "provider": "headway",
        "patience": "20m",
    }  # fmt: skip
    assert for_streams(read_options(said)) == Options(
        "flights/ua", "http://localhost:9/base", "latest", partitions=3, strict=False, timeout_s=90.0,
        bytes_max=64_000_000, offsets_max=10_000, policy="patient", patience="1200s",
    )  # fmt: skip
    said = TOPIC | {"from": "-5m", "to": "2026-01-31T12:00:00Z", "timeout": "1m 30s", "pushFilters": "true"}
    assert for_batches(read_options(said)) == Options(
        "flights/#", start="-5m", stop="2026-01-31T12:00:00Z", timeout_s=90.0, push=True
    )


def test_the_old_name_of_an_option_works_and_says_so() -> None:
    with pytest.warns(FutureWarning, match="option Lake is called archive now"):
        assert read_options({"Lake": "there", **TOPIC}).archive == "there"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({}, 'option topic is missing: which topic to read, or a filter, such as "flights/#"'),
        ({"topic": "a/#/b"}, "option topic: filter 'a/#/b': '#' must be the whole of the last level"),
        ({"topics": "a", **TOPIC}, "unknown option 'topics': there are admin, archive, at, failOnDataLoss, from, "
         "maxBytesPerTrigger, maxOffsetsPerTrigger, order_by, partitions, patience, policy, pushFilters, selector, "
         "skip, state, timeout, to, top, topic, where; did you mean topic?"),
        ({"statee": "true", **TOPIC}, "top, topic, where; did you mean state?"),
        ({"state": "yes", **TOPIC}, 'option state: "yes" is neither true nor false'),
        ({"where": "delay > 5", **TOPIC}, "option where is for states: add option state=true, or leave it away"),
        ({"at": "5", "state": "false", **TOPIC}, "option at is for states: add option state=true, or leave it away"),
        ({"top": "ten", **STATE}, 'option top: "ten": takes a number from 0 on'),
        ({"from": "-5m", **STATE}, "option from is for records, not for a state (option state): the state as it was "
         "has option at"),
        ({"pushfilters": "true", **STATE}, "option pushFilters is for records, not for a state (option state): what "
         "the broker is to leave out says option where"),
        ({"policy": "patient", **STATE}, "option policy is for records, not for a state (option state)"),
        ({"where": "a = 1", "selector": "a = 2", **STATE}, "options where and selector are the same: give one of"),
        ({"admin": "ftp://x", **TOPIC}, 'option admin: "ftp://x" is not the address of an admin API, such as '
         "http://127.0.0.1:9883"),
        ({"partitions": "0", **TOPIC}, 'option partitions: "0": from 1 on'),
        ({"partitions": "many", **TOPIC}, 'option partitions: "many" is not a whole number'),
        ({"failOnDataLoss": "yes", **TOPIC}, 'option failOnDataLoss: "yes" is neither true nor false'),
        ({"timeout": "5 parsecs", **TOPIC}, 'option timeout: "5 parsecs": unknown unit'),
        ({"maxBytesPerTrigger": "64Mb", **TOPIC}, "option maxBytesPerTrigger: \"64Mb\": unknown unit 'Mb'"),
        ({"maxOffsetsPerTrigger": "0", **TOPIC}, 'option maxOffsetsPerTrigger: "0": from 1 on'),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(said: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(said)
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"policy": "p"}, "option policy is for streams: spark.readStream"),
        ({"maxBytesPerTrigger": "1MB"}, "option maxBytesPerTrigger is for streams: spark.readStream"),
        ({"from": "latest"}, "option from: a batch that begins at the latest offset has nothing in it"),
        ({"from": "7", "to": "5"}, "option to: 5 is before from, 7"),
    ],
)
def test_what_is_not_for_batches(said: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        for_batches(read_options(TOPIC | said))
    assert str(caught.value) == error


@pytest.mark.parametrize("name", ["to", "pushFilters"])
def test_what_is_not_for_streams(name: str) -> None:
    with pytest.raises(ConfigError, match=f"option {name} is for batches: spark.read"):
        for_streams(read_options(TOPIC | {name: "true"}))


def test_a_state_has_no_stream_and_asks_what_was_said() -> None:
    said = {"Selector": "delay > 5", "order_by": "/delay DESC", "top": "20", "skip": "40", "at": "-5m", **STATE}
    options = for_batches(read_options(said))
    asked = {"where": "delay > 5", "order_by": "/delay DESC", "top": "20", "skip": "40", "at": "-5m"}
    assert (options.state, options.state_query) == (True, asked)
    with pytest.raises(ConfigError, match=r"option state is for batches: spark\.read; a stream has every record"):
        for_streams(read_options(STATE))


def test_the_page_has_every_option_with_its_default_and_every_column() -> None:
    fields = {name: getattr(Options("t"), field) for name, (field, _) in READ.items()}
    shown = rows("## Options")
    assert set(shown) == set(fields)
    for name in ("admin", "from", "partitions", "failOnDataLoss", "timeout", "pushFilters"):
        assert READ[name][1](shown[name]) == fields[name], name
    assert {shown[name] for name, value in fields.items() if value is None} == {"all there is", "none", "by topic"}
    kinds = {one.name: one.dataType.simpleString().split("<")[0].upper() for one in columns()}
    assert rows("## Columns") == kinds
    assert columns(Options("t", state=True)).names == [*kinds, "as_of"]
