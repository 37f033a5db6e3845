"""A stream's offsets and its cursor at the broker, step by step as Spark takes them. Without Spark."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import ask, recording
from tests.interop.test_interop_cursors import POLICIES, settled
from tests.interop.waiting import until
from tests.pipeline.page import is_in_the_page
from tests.pipeline.proxy import Proxy

from headway.pipeline.broker.errors import DataLoss, SourceError
from headway.pipeline.source.options import Options
from headway.pipeline.source.reading import Span
from headway.pipeline.source.source import TopicStream

TOPICS = '[[topic]]\nfilter = "t/#"\nkeep = "7d"\n'
ALL = ReadAllAvailable()
Streams = Callable[..., TopicStream]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    process = BrokerProcess(folder, recording(folder / "journal", TOPICS + POLICIES))
    publish(process, 1)
    yield process
    process.stop()


@pytest.fixture
def stream(broker: BrokerProcess) -> Iterator[Streams]:
    """Makes streams, of t/# unless told otherwise, as a new process of the driver would, and stops them."""
    made: list[TopicStream] = []
    before = signal.getsignal(signal.SIGTERM)

    def make(**options: Any) -> TopicStream:
        about = {"topic": "t/#", "admin": broker.admin, "start": "latest"} | options
        made.append(TopicStream(Options(**about)))
        return made[-1]

    yield make
    for one in made:
        one.stop()
    signal.signal(signal.SIGTERM, before)


def publish(broker: BrokerProcess, *sizes: int) -> None:
    with Raw(broker.ports["mqtt"]) as writer:
        writer.publish_all("t/x", [b"x" * size for size in sizes[:-1]])
        writer.published("t/x", b"x" * sizes[-1])


def latest(broker: BrokerProcess) -> int:
    """The broker uses some offsets for itself, so nobody can count."""
    return ask(broker, "t/#", "HEAD").offset("Latest")


def payloads(stream: TopicStream, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    spans = stream.partitions(start, end)
    return [body for span in spans for batch in stream.read(span) for body in batch.column("payload").to_pylist()]


# -- what Spark is told -----------------------------------------------------------------------------------------------


def test_a_batch_ends_where_there_is_no_more_and_the_next_begins_there(broker: BrokerProcess, stream: Streams) -> None:
    query = stream()
    begin = query.initialOffset()
    assert query.initialOffset() == begin, "Spark asks twice, and there is one cursor"
    assert query.latestOffset(begin, ALL) == begin, "nothing came yet"
    assert query.partitions(begin, begin) == []
    publish(broker, 1, 2, 3)
    one = query.latestOffset(begin, ALL)
    assert one == {"offset": latest(broker), "cursor": begin["cursor"], "from": begin["offset"]}
    assert query.reportLatestOffset() == {"offset": one["offset"]}
    assert payloads(query, begin, one) == [b"x", b"xx", b"xxx"]
    publish(broker, 4)
    two = query.latestOffset(one, ALL)
    query.commit(one)
    assert payloads(query, one, two) == [b"xxxx"]
    assert query.latestOffset(two, ALL) == two


def test_a_batch_that_is_run_again_is_the_same_one(broker: BrokerProcess, stream: Streams) -> None:
    """Also the first, whose beginning Spark does not write down: it asks anew where the query begins."""
    query = stream()
    begin = query.initialOffset()
    publish(broker, 1, 2)
    one = query.latestOffset(begin, ALL)
    publish(broker, 3)
    again = stream()
    later = again.initialOffset()
    assert later["offset"] > begin["offset"]
    assert payloads(again, later, one) == [b"x", b"xx"]
    assert broker.consumer(one["cursor"])["lag_records"] == latest(broker) - begin["offset"], "not processed yet"
    two = again.latestOffset(one, ALL)
    assert payloads(again, one, two) == [b"xxx"]
    assert two["cursor"] == begin["cursor"], "the query has found its cursor again"
    assert broker.consumer(later["cursor"]) == {}


def test_limits_are_for_batches_that_are_not_to_take_all(broker: BrokerProcess, stream: Streams) -> None:
    few, small = stream(offsets_max=3), stream(bytes_max=240, offsets_max=40)
    begin = few.initialOffset()
    publish(broker, 100, 100, 30, 300, 10)
    assert few.getDefaultReadLimit() == ReadMaxRows(3)
    assert few.latestOffset(begin, ReadMaxRows(3))["offset"] == begin["offset"] + 3
    assert few.latestOffset(begin, ALL)["offset"] == latest(broker)
    assert small.getDefaultReadLimit() == ReadMaxBytes(240)
    got, at = [], begin
    for _ in range(3):
        before, at = at, small.latestOffset(at, ReadMaxBytes(240))
        got.append([len(body) for body in payloads(small, before, at)])
    assert got == [[100, 100, 30], [300], [10]]
    assert stream().getDefaultReadLimit() == ALL


def test_what_comes_after_the_beginning_is_not_for_a_query_that_takes_what_there_is(
    broker: BrokerProcess, stream: Streams
) -> None:
    query = stream()
    begin = query.initialOffset()
    publish(broker, 1, 1)
    query.prepareForTriggerAvailableNow()
    target = latest(broker)
    publish(broker, 1, 1, 1)
    end = query.latestOffset(begin, ALL)
    assert end["offset"] == target < latest(broker)
    assert query.latestOffset(end, ALL) == end


# -- the cursor -------------------------------------------------------------------------------------------------------


def test_the_cursor_follows_what_is_processed_and_stays_when_the_query_stops(
    broker: BrokerProcess, stream: Streams
) -> None:
    query = stream()
    begin = query.initialOffset()
    query.latestOffset(begin, ALL)

    def seen() -> tuple[bool, int]:
        """Whether it is connected, and where it stands."""
        row = broker.consumer(begin["cursor"], "t/#")
        return row["connected"], latest(broker) - row["lag_records"]

    publish(broker, *[1] * 10)
    end = query.latestOffset(begin, ALL)
    query.partitions(begin, end)
    assert seen() == (True, begin["offset"])
    query.commit(end)
    assert seen() == (True, end["offset"])
    publish(broker, 1)
    query.stop()
    assert seen() == (False, end["offset"])
    again = stream()
    assert again.latestOffset(end, ALL)["offset"] == latest(broker) > end["offset"]
    assert seen() == (True, end["offset"])


def test_a_query_that_never_ran_a_batch_leaves_no_cursor(broker: BrokerProcess, stream: Streams) -> None:
    """Nothing would ever find it again."""
    query = stream()
    begin = query.initialOffset()
    query.latestOffset(begin, ALL)
    assert broker.consumer(begin["cursor"])
    query.stop()
    assert broker.consumer(begin["cursor"]) == {}


# -- verdicts, and what is lost ---------------------------------------------------------------------------------------


def test_a_policy_there_is_none_of_is_said_at_once(stream: Streams) -> None:
    query = stream(policy="nothing")
    with pytest.raises(SourceError, match="nothing"):
        query.latestOffset(query.initialOffset(), ALL)


def test_what_a_policy_leaves_out_is_lost(
    broker: BrokerProcess, stream: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    """A query that is to have all ends, and so does one that learns of it from a commit; another goes on behind it."""
    strict, lenient = stream(policy="newest"), stream(policy="newest", strict=False)
    begins = [one.initialOffset() for one in (strict, lenient)]
    for query, begin in zip((strict, lenient), begins, strict=True):
        query.latestOffset(begin, ALL)
    publish(broker, *range(1, 101))
    left = [until(lambda begin=begin: settled(broker.consumer(begin["cursor"]))) for begin in begins]
    first, thens = begins[0]["offset"], [latest(broker) - count for count in left]
    texts = [
        f"offsets {first} to {then - 1} of t/# are lost to this query: its policy left them out (discarded): headway "
        f"why {begin['cursor']}" for begin, then in zip(begins, thens, strict=True)
    ]  # fmt: skip
    with pytest.raises(DataLoss) as caught:
        strict.commit(begins[0])
    assert str(caught.value) == f"{texts[0]}; option failOnDataLoss=false goes on at {thens[0]}"
    with caplog.at_level(logging.WARNING, "headway"):
        lenient.commit(begins[1])
    assert [line.getMessage() for line in caplog.records] == [f"{texts[1]}; it goes on at {thens[1]}"]
    assert any("discarded down to 10 records" in verdict["text"] for verdict in broker.verdicts(begins[0]["cursor"]))
    end = lenient.latestOffset(begins[1], ALL)
    sizes = list(range(101 - left[1], 101))
    assert [len(body) for body in payloads(lenient, begins[1], end)] == sizes
    assert [len(body) for body in payloads(stream(policy="newest"), begins[1], end)] == sizes


def test_what_is_left_out_of_a_batch_that_was_under_way_is_not_lost(broker: BrokerProcess, stream: Streams) -> None:
    """The query had it before the policy moved its cursor."""
    query = stream(policy="newest")
    begin = query.initialOffset()
    publish(broker, *[1] * 40)
    one = query.latestOffset(begin, ALL)
    publish(broker, *[1] * 20)
    left = until(lambda: settled(broker.consumer(begin["cursor"])))
    with pytest.raises(DataLoss, match=f"offsets {one['offset']} to {latest(broker) - left - 1} "):
        query.commit(one)
    query = stream(policy="newest")
    begin = query.initialOffset()
    publish(broker, *[1] * 45)  # the policy moves nothing before it is 51, however late it is asked
    one = query.latestOffset(begin, ALL)
    publish(broker, *[1] * 6)
    until(lambda: broker.consumer(begin["cursor"])["gap_records"])
    query.commit(one)


def test_a_query_whose_place_is_trimmed(trimmed: BrokerProcess, stream: Streams) -> None:
    earliest = ask(trimmed, "t/#", "HEAD").offset("Earliest")
    start = {"offset": 1, "cursor": "spark-old", "from": 0}
    with pytest.raises(DataLoss, match=f"offsets 1 to {earliest - 1} of t/# are lost .*goes on at {earliest}"):
        stream(admin=trimmed.admin).latestOffset(start, ALL)
    query = stream(admin=trimmed.admin, strict=False)
    end = query.latestOffset(start, ALL)
    assert end["from"] == earliest
    assert payloads(query, start, end) == [row["payload"] for row in ask(trimmed, "t/#").rows]
    assert query.partitions(start, {**end, "from": 1})[0] == Span(1, end["offset"]), "as it was written down"


def test_a_query_begins_with_all_that_is_held_and_knows_what_is_not(trimmed: BrokerProcess, stream: Streams) -> None:
    """Also in another process, which has only what Spark has written down."""
    wanted, got = [row["payload"] for row in ask(trimmed, "u/#").rows], []
    options: dict[str, Any] = {"topic": "u/#", "admin": trimmed.admin, "start": "earliest", "offsets_max": 3}
    query = stream(**options)
    place = query.initialOffset()
    assert place["deleted"]
    while (end := query.latestOffset(place, query.getDefaultReadLimit())) != place:
        found = payloads(query, place, end)
        assert len(found) <= 3
        got += found
        query = stream(**options)
        assert payloads(query, place, end) == found
        query.commit(end)
        place = end
    assert got == wanted
    assert "deleted" not in place, "it is past all that"


def test_a_query_that_is_further_than_the_broker(broker: BrokerProcess, stream: Streams) -> None:
    """Its journal was deleted, say. A query that has read nothing yet just waits for its beginning."""
    at = latest(broker) + 1000
    start = {"offset": at, "cursor": "spark-ahead", "from": 1}
    with pytest.raises(DataLoss) as caught:
        stream().latestOffset(start, ALL)
    assert str(caught.value) == (
        f"this query is at offset {at} of t/#, and the broker's records end at {latest(broker)}: it has lost some, or "
        f"is not the one it was; option failOnDataLoss=false goes on at {latest(broker)}"
    )
    assert is_in_the_page(str(caught.value))
    query = stream(strict=False)
    back = query.latestOffset(start, ALL)
    assert back == {"offset": latest(broker), "cursor": "spark-ahead", "from": latest(broker)}
    assert query.partitions(start, back) == []
    publish(broker, 1)
    assert payloads(query, back, query.latestOffset(back, ALL)) == [b"x"]
    fresh = stream(start=str(at + 1000))
    assert fresh.latestOffset(fresh.initialOffset(), ALL) == fresh.initialOffset()


def test_a_query_whose_topic_is_not_recorded_any_more(tmp_path: Path, stream: Streams, start: BrokerFactory) -> None:
    """Its broker was restarted with another config. With the old one it finds its cursor again, and goes on."""

    def restarted(filter: str) -> BrokerProcess:
        return start(recording(tmp_path / "journal", TOPICS.replace("t/#", filter)))

    broker = restarted("t/#")
    publish(broker, 1)
    with Proxy(broker.admin) as proxy:
        query = stream(admin=proxy.url, start="earliest")
        one = query.latestOffset(query.initialOffset(), ALL)
        broker.stop()
        broker = restarted("other")
        proxy.target = broker.admin
        with pytest.raises(SourceError) as caught:
            query.latestOffset(one, ALL)
        assert str(caught.value) == "t/# is not recorded; recorded is other"
        broker.stop()
        broker = restarted("t/#")
        proxy.target = broker.admin
        publish(broker, 2)
        two = query.latestOffset(one, ALL)
        assert payloads(query, one, two) == [b"xx"]
        assert broker.consumer(two["cursor"], "t/#")["connected"]
        query.stop()
    broker.stop()


@pytest.mark.parametrize("killed", [False, True])
def test_a_limited_batch_has_as_many_records_as_it_may_across_holes(
    tmp_path: Path, stream: Streams, start: BrokerFactory, killed: bool
) -> None:
    """Offsets of other topics, and those that a crash has skipped, are holes. They cost no empty batches."""
    config = recording(tmp_path / "journal", TOPICS)
    broker = start(config)
    with Proxy(broker.admin) as proxy:
        query = stream(admin=proxy.url, offsets_max=3)
        begin = query.initialOffset()
        with Raw(broker.ports["mqtt"]) as writer:
            for _ in range(5):
                writer.publish_all("not/recorded", [b"."] * 50)
                writer.published("t/x", b"x")
        query.latestOffset(begin, ALL)
        before = latest(broker)
        if killed:
            broker.kill()
        else:
            broker.stop()
        broker = start(config)
        proxy.target = broker.admin
        publish(broker, 1, 1)
        skipped = latest(broker) - before
        assert 1 << 15 < skipped < 1 << 17 if killed else skipped < 10
        query.prepareForTriggerAvailableNow()
        got, at = [], begin
        while (end := query.latestOffset(at, ReadMaxRows(3))) != at:
            assert broker.consumer(begin["cursor"], "t/#")["lag_records"] == 7 - sum(got)
            got.append(len(payloads(query, at, end)))
            at = end
        assert got == [3, 3, 1]
        query.stop()
    broker.stop()
