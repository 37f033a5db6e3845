"""Reading a part of what is recorded: all of it once, whatever becomes of the broker in between. Without Spark."""

from __future__ import annotations

import io
import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import ask, recording
from tests.interop.waiting import PATIENCE_S, until
from tests.pipeline.page import is_in_the_page
from tests.pipeline.proxy import Proxy

from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.broker.errors import Away, DataLoss, SourceError
from headway.pipeline.source.options import Options
from headway.pipeline.source.reading import OffsetFinder, Span, read

TOPIC = '[[topic]]\nfilter = "t/#"\nkeep = "7d"\n'
SENT = [os.urandom(size) for size in (100, 3000, 70_000, 1, 0) for _ in range(40)]
"""Several batches of Arrow."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    process = BrokerProcess(folder, recording(folder / "journal", TOPIC))
    with Raw(process.ports["mqtt"], "publisher") as publisher:
        publisher.publish_all("t/a", SENT[:-1])
        publisher.published("t/a", SENT[-1])
    yield process
    process.stop()


@pytest.fixture
def proxy(broker: BrokerProcess) -> Iterator[Proxy]:
    with Proxy(broker.admin) as between:
        yield between


def all_of(options: Options) -> Span:
    offsets = BrokerClient(options.admin, options.timeout_s).offsets(options.topic)
    return Span(offsets.earliest, offsets.latest)


def payloads(found: Iterator[pa.RecordBatch]) -> list[bytes]:
    return [payload for batch in found for payload in batch.column("payload").to_pylist()]


# -- broken off -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.001, 0.2, 0.5, 0.99])
def test_a_read_that_breaks_off_goes_on_behind_what_it_has(broker: BrokerProcess, proxy: Proxy, share: float) -> None:
    """Before the first batch, within one, before the end is said: nothing is lost, and nothing comes twice."""
    proxy.cut_at = round(len(ask(broker, "t/#").body) * share)
    options = Options("t/#", proxy.url, timeout_s=PATIENCE_S)
    assert payloads(read(options, "t/#", all_of(options))) == SENT
    (first, _), (again, _) = proxy.spans()
    assert (again > first) == (share >= 0.5), "what is there is not asked for again"


def test_an_answer_cut_between_two_batches_is_not_taken_for_the_whole(broker: BrokerProcess, proxy: Proxy) -> None:
    """Arrow takes the end of what it reads for the end of the stream: it is HTTP that knows better."""
    body = io.BytesIO(ask(broker, "t/#").body)
    with pa.ipc.open_stream(body) as stream:
        stream.read_next_batch()
        proxy.cut_at = body.tell()
    options = Options("t/#", proxy.url, timeout_s=PATIENCE_S)
    assert payloads(read(options, "t/#", all_of(options))) == SENT
    assert len(proxy.spans()) == 2


def test_a_broker_that_is_restarted_is_waited_for(tmp_path: Path, start: BrokerFactory) -> None:
    """The one that is killed in the middle of an answer is not the one that gives the rest of it."""
    config = recording(tmp_path / "journal", TOPIC)
    before = start(config)
    with Raw(before.ports["mqtt"], "publisher") as publisher:
        publisher.publish_all("t/a", SENT[:-1])
        publisher.published("t/a", SENT[-1])
    with Proxy(before.admin) as proxy:
        options = Options("t/#", proxy.url, timeout_s=PATIENCE_S)
        found = read(options, "t/#", all_of(options))
        proxy.cut_at = 2_000_000
        proxy.when_cut = before.kill
        first = next(found)
        rest: list[bytes] = []
        reading = threading.Thread(target=lambda: rest.extend(payloads(found)))
        reading.start()
        until(lambda: not before.alive)
        after = start(config)
        proxy.target = after.admin
        reading.join(PATIENCE_S)
    assert first.column("payload").to_pylist() + rest == SENT
    after.stop()


# -- away -------------------------------------------------------------------------------------------------------------


def test_a_broker_that_is_not_there_is_waited_for_only_so_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(Away) as caught:
        OffsetFinder(BrokerClient(url, 0.2), Options("t/#", url), "t/#").start()
    assert str(caught.value) == (
        f"no broker at {url} for 0.2 s: connection refused; start it, or name its address (option admin), or wait for "
        "longer (option timeout)"
    )


def test_one_that_takes_the_question_and_says_nothing_is_away_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Away, match=r"for 1 s: it does not answer; "):
            BrokerClient(url, 1.0).offsets("t/#")


def test_what_is_no_broker_is_said_to_be_none(broker: BrokerProcess) -> None:
    url = f"{broker.admin}/v2"
    with pytest.raises(SourceError, match=r"\(status 404\) is not headway's admin API, or an older one") as caught:
        BrokerClient(url, 5.0).offsets("t/#")
    assert f"what answers at {url} " in str(caught.value)
    assert is_in_the_page(str(caught.value))


# -- where it begins --------------------------------------------------------------------------------------------------


def test_where_a_query_begins(broker: BrokerProcess) -> None:
    offsets = ask(broker, "t/#", "HEAD")
    first, end = offsets.offset("Earliest"), offsets.offset("Latest")
    asked = BrokerClient(broker.admin, 5.0)
    places = {
        "earliest": first, "latest": end, str(first + 3): first + 3, "-5m": first, "2999-01-01": end,
        "2001-01-01": first,
    }  # fmt: skip
    for text, offset in places.items():
        assert OffsetFinder(asked, Options("t/#", start=text), "t/#").start() == offset, text


@pytest.mark.parametrize(
    ("topic", "start", "error"),
    [
        ("t/#", "yesterday", 'from="yesterday" is none of: an offset, a time such as 2026-01-31T12:00:00Z, how long '
         'ago, such as -5m, "earliest"'),
        ("boats/1", "earliest", "boats/1 is not recorded; recorded is t/#"),
        ("boats/1", "-5m", "boats/1 is not recorded; recorded is t/#"),
    ],
)  # fmt: skip
def test_what_the_broker_refuses_is_raised_in_its_words(
    broker: BrokerProcess, topic: str, start: str, error: str
) -> None:
    with pytest.raises(SourceError) as caught:
        OffsetFinder(BrokerClient(broker.admin, 5.0), Options(topic, start=start), topic).start()
    assert str(caught.value) == error


# -- what is not there any more ---------------------------------------------------------------------------------------


def test_what_is_trimmed_ends_a_query_that_wants_all(trimmed: BrokerProcess) -> None:
    earliest = ask(trimmed, "t/#", "HEAD").offset("Earliest")
    text = (
        f"offsets 1 to {earliest - 1} of t/# are lost to this query: they are older than the broker keeps them; option "
        f"failOnDataLoss=false goes on at {earliest}"
    )
    options = Options("t/#", trimmed.admin, start="1")
    with pytest.raises(DataLoss) as caught:
        list(read(options, "t/#", Span(1, 11)))
    assert str(caught.value) == text
    with pytest.raises(DataLoss) as caught:
        OffsetFinder(BrokerClient(trimmed.admin, 5.0), options, "t/#").start()
    assert str(caught.value) == text


def test_who_does_not_mind_goes_on_behind_it_and_the_log_says_so(
    trimmed: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    options = Options("t/#", trimmed.admin, start="1", strict=False)
    earliest, end = all_of(options).first, all_of(options).stop
    with caplog.at_level(logging.WARNING, "headway"):
        found = payloads(read(options, "t/#", Span(1, end)))
    assert found == [one["payload"] for one in ask(trimmed, "t/#").rows]
    assert [line.getMessage() for line in caplog.records] == [
        f"offsets 1 to {earliest - 1} of t/# are lost to this query: they are older than the broker keeps them; it "
        f"goes on at {earliest}"
    ]
    assert payloads(read(options, "t/#", Span(1, 3))) == [], "a part that is gone as a whole"
    assert OffsetFinder(BrokerClient(trimmed.admin, 5.0), options, "t/#").start() == earliest


def test_from_earliest_reads_all_that_is_held_of_topics_that_are_trimmed_each_on_its_own(
    trimmed: BrokerProcess,
) -> None:
    wanted = [row["payload"] for row in ask(trimmed, "u/#").rows]
    assert set(wanted) > {b"%d" % number for number in range(10)}
    options = Options("u/#", trimmed.admin, partitions=3)
    finder = OffsetFinder(BrokerClient(trimmed.admin, 5.0), options, "u/#")
    first, stop = finder.start(), finder.stop()
    assert first < ask(trimmed, "u/#", "HEAD").offset("Earliest")
    spans = [Span(one, one + 1, finder.deleted) for one in range(first, stop)]
    assert [payload for span in spans for payload in payloads(read(options, "u/#", span))] == wanted
    (span,) = finder.split(first, stop)
    assert isinstance(span, Span)
    assert payloads(read(options, "u/#", span)) == wanted
    with pytest.raises(DataLoss):
        payloads(read(options, "u/#", Span(first, stop)))
    assert first < finder.limited(first, stop, 1, None) < first + 3


def test_records_that_a_broker_has_lost_are_not_passed_over(broker: BrokerProcess) -> None:
    """It ends before what was planned: its journal was deleted, say."""
    options = Options("t/#", broker.admin)
    span = all_of(options)
    found = read(options, "t/#", Span(span.first, span.stop + 5))
    with pytest.raises(DataLoss, match=f"offsets {span.stop} to {span.stop + 4} of t/# are lost") as caught:
        payloads(found)
    assert is_in_the_page(str(caught.value))
    options = Options("t/#", broker.admin, strict=False)
    assert payloads(read(options, "t/#", Span(span.first, span.stop + 5))) == SENT
