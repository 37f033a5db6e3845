"""Writers over HTTP: rows are handed over in parts, and a batch of them is published exactly once, come what may."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import ask, recording
from tests.interop.waiting import until

from headway.server.streams.writers import PART_BYTES_MAX
from headway.store.rows import ROWS
from headway.wire.mqtt.packets import TopicRequest

TOPICS = """
[[topic]]
filter = "t/#"
key = "property:key"
keep = "7d"
[[topic]]
filter = "other"
keep = "7d"
"""
BLOCKING = """
[[policy]]
name = "blocking"
topics = ["held/#"]
[[policy.rule]]
when = { lag_records = "> 100" }
then = "block_publishers"
"""
Row = tuple[str, str | None, dict[str, Any] | None, bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal")


@pytest.fixture(scope="module")
def keeping(start: BrokerFactory, folder: Path) -> BrokerProcess:
    return start(recording(folder, TOPICS + BLOCKING))


def arrow(rows: Sequence[Row]) -> bytes:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), ROWS, strict=True)]
    return stream(pa.RecordBatch.from_arrays(columns, schema=ROWS))


def stream(*batches: pa.RecordBatch) -> bytes:
    to = pa.BufferOutputStream()
    with pa.ipc.new_stream(to, batches[0].schema) as out:
        for batch in batches:
            out.write_batch(batch)
    return bytes(to.getvalue())


def plain(topic: str, payloads: Sequence[bytes]) -> bytes:
    return arrow([(topic, None, None, payload) for payload in payloads])


def call(broker: BrokerProcess, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
    status, answer = broker.call(f"/v1/writers/{path}", method, body)
    return status, json.loads(answer) if answer else {}


def stage(broker: BrokerProcess, name: str, data: bytes) -> str:
    status, answer = call(broker, "POST", f"{name}/parts", data)
    assert status == 201, answer
    return str(answer["part"])


def put(
    broker: BrokerProcess, name: str, batch: int, parts: Sequence[str], wait_ms: int = 10_000
) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"parts": parts, "wait_ms": wait_ms}).encode()
    return call(broker, "PUT", f"{name}/batches/{batch}", body)


def publish(broker: BrokerProcess, name: str, batch: int, *parts: str) -> dict[str, Any]:
    """To its end."""
    while True:
        status, answer = put(broker, name, batch, parts)
        assert status in (200, 202), answer
        if answer["done"]:
            return answer


def published_by(broker: BrokerProcess, name: str, batch: int, records: int) -> None:
    """Wait until it has published so many, or the batch is done."""

    def enough() -> bool:
        so_far = broker.publisher(name).get("published_records", 0)
        return so_far >= records or put(broker, name, batch, [], 0)[0] == 200

    until(enough)


def recorded(broker: BrokerProcess, topic: str) -> list[dict[str, Any]]:
    return ask(broker, topic).table.to_pylist()


# -- what is published ------------------------------------------------------------------------------------------------


def test_rows_come_out_as_they_went_in(keeping: BrokerProcess, name: str) -> None:
    """Topics in turns, with and without key and properties; to subscribers and to the record."""
    said = {
        "content_type": "text/plain", "response_topic": "re/ply", "correlation_data": b"\xff", "user": [("a", "ä")],
        "qos": 0, "retain": False,
    }  # fmt: skip
    rows: list[Row] = [
        (f"t/{name}/a", None, None, b"1"),
        (f"t/{name}/a", None, None, b""),
        (f"t/{name}/b", "k", None, b"\x00\xff"),
        (f"t/{name}/b", "k", said, b"3"),
        (f"t/{name}/a", None, said, b"4"),
    ]
    with Raw(keeping.port, f"{name}-reader").subscribed(f"t/{name}/#") as reader:
        answer = publish(keeping, name, 7, stage(keeping, name, arrow(rows)))
        heard = reader.messages(5)
    assert (answer["rows"], answer["refused"]) == (5, "")
    found = recorded(keeping, f"t/{name}/#")
    assert [(row["topic"], row["payload"]) for row in found] == [(topic, payload) for topic, _, _, payload in rows]
    assert [(one.topic, one.payload) for one in heard] == [(topic, payload) for topic, _, _, payload in rows]
    properties = [row["properties"] for row in found]
    nothing = dict.fromkeys(("content_type", "response_topic", "correlation_data")) | {"user": []}
    assert properties[0] == properties[1] == nothing | {"qos": 1, "retain": False}
    assert properties[2] == nothing | {"user": [("key", "k")], "qos": 1, "retain": False}
    assert properties[3] == said | {"user": [("a", "ä"), ("key", "k")]}
    assert properties[4] == said
    assert [row["key"] for row in found] == [None, None, "k", "k", None]


def test_many_rows_of_several_parts_keep_their_order(keeping: BrokerProcess, name: str) -> None:
    """Of one size and of many, in more than one batch a part."""
    sizes = random.Random(3)
    payloads = [b"%06d" % number + b"." * sizes.randrange(3) * 50 for number in range(30_000)]
    parts = [stage(keeping, name, plain(f"t/{name}", payloads[at : at + 10_000])) for at in range(0, 30_000, 10_000)]
    assert publish(keeping, name, 1, *parts)["rows"] == 30_000
    assert [row["payload"] for row in recorded(keeping, f"t/{name}")] == payloads
    assert keeping.publisher(name)["published_records"] == 30_000


def test_what_is_asked_for_again_is_not_published_again(keeping: BrokerProcess, folder: Path, name: str) -> None:
    """The same parts; other parts, of a batch that was run again; an earlier batch."""
    first = stage(keeping, name, plain(f"t/{name}", [b"1", b"2"]))
    publish(keeping, name, 4, first)
    publish(keeping, name, 4, first)
    other = stage(keeping, name, plain(f"t/{name}", [b"2", b"1"]))
    publish(keeping, name, 4, other)
    publish(keeping, name, 3, stage(keeping, name, plain(f"t/{name}", [b"0"])))
    publish(keeping, name, 5, stage(keeping, name, plain(f"t/{name}", [b"3"])))
    assert [row["payload"] for row in recorded(keeping, f"t/{name}")] == [b"1", b"2", b"3"]
    assert not (folder / "staged" / name).exists()  # and nothing is left lying


def test_what_is_staged_is_seen_by_nobody_and_can_be_taken_back(
    keeping: BrokerProcess, folder: Path, name: str
) -> None:
    part = stage(keeping, name, plain(f"t/{name}", [b"1"]))
    assert [file.name for file in (folder / "staged" / name).iterdir()] == [f"{part}.arrow"]
    assert call(keeping, "DELETE", f"{name}/parts/{part}")[0] == 204
    assert not (folder / "staged" / name).exists()
    status, answer = put(keeping, name, 1, [part])
    assert (status, answer["error"]) == (410, f"part {part} of batch 1 is not here any more: write the batch again")
    assert recorded(keeping, f"t/{name}") == []


def test_of_parts_for_a_batch_those_that_it_is_not_made_of_go_with_it(
    keeping: BrokerProcess, folder: Path, name: str
) -> None:
    parts = [call(keeping, "POST", f"{name}/parts?batch=3", plain(f"t/{name}", [b"1"]))[1]["part"] for _ in range(3)]
    publish(keeping, name, 3, parts[1])
    assert not (folder / "staged" / name).exists()
    status, answer = call(keeping, "POST", f"{name}/parts?batch=-3", b"")
    assert status == 400
    assert answer["error"] == "'-3' cannot be the number of a batch: a whole number of at most 18 digits"


def test_a_writer_that_is_forgotten_begins_anew(keeping: BrokerProcess, name: str) -> None:
    publish(keeping, name, 4, stage(keeping, name, plain(f"t/{name}", [b"1"])))
    assert keeping.publisher(name)["connected"]
    assert call(keeping, "DELETE", name)[0] == 204
    assert not keeping.publisher(name)["connected"]
    publish(keeping, name, 0, stage(keeping, name, plain(f"t/{name}", [b"2"])))
    assert [row["payload"] for row in recorded(keeping, f"t/{name}")] == [b"1", b"2"]


def test_a_batch_of_nothing_is_done(keeping: BrokerProcess, name: str) -> None:
    assert publish(keeping, name, 0)["rows"] == 0


def test_rows_that_cannot_be_published_any_more_are_left_out_and_told(start: BrokerFactory, tmp_path: Path) -> None:
    """Parts that were damaged on disk, that an older release took, or that are gone: the batch is done, also where it
    is begun again after a restart, and the next one begins."""
    broker = start(recording(tmp_path, TOPICS))
    parts = [stage(broker, "w", plain("t/left", [b"%d" % number])) for number in range(4)]
    folder = tmp_path / "staged" / "w"
    (folder / f"{parts[1]}.arrow").write_bytes(b"damaged")
    null = pa.array([{"user": [("a", None)], "qos": 1, "retain": False}], ROWS.field("properties").type)
    row = [pa.array(["t/left"]), pa.array([None], pa.string()), null, pa.array([b"old"], pa.binary())]
    (folder / f"{parts[2]}.arrow").write_bytes(stream(pa.RecordBatch.from_arrays(row, schema=ROWS)))
    with Raw(broker.port, "reader").subscribed("t/left") as reader:
        answer = publish(broker, "w", 1, *parts)
        assert [one.payload for one in reader.messages(2)] == [b"0", b"3"]
    assert (answer["done"], answer["rows"]) == (True, 2)
    assert f"part {parts[2]} cannot be read, and is left out: properties: in row 0 the value" in answer["refused"]
    kept = sorted(file.name for file in folder.iterdir())
    assert kept == sorted(f"{part}.unreadable" for part in parts[1:3])
    publish(broker, "w", 2, stage(broker, "w", plain("t/left", [b"4"])))
    assert [row["payload"] for row in recorded(broker, "t/left")] == [b"0", b"3", b"4"]


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status", "said"),
    [
        (lambda: b"hello", 400, "this is not an Arrow stream"),
        (lambda: plain("t/a", [b"x"] * 100)[:-300], 400, "this is not an Arrow stream"),
        (lambda: stream(pa.RecordBatch.from_pydict({"a": [1]})), 400, "these are not the columns of rows"),
        (lambda: plain("t/+", [b"x"]), 400, "topic 't/+' contains a wildcard"),
        (lambda: plain("$SYS/a", [b"x"]), 400, "topics that start with $ are the broker's own"),
        (lambda: plain("t/a", [b"x" * 16_000_001]), 400, "a payload has 16000001 bytes, and no more than 16000000 are"),
        (lambda: arrow([("t/a", None, {"qos": 3}, b"x")]), 400, "a qos is 0, 1 or 2, not 3"),
        (lambda: b"x" * (PART_BYTES_MAX + 1), 413, "hand over less at a time"),
    ],
)
def test_what_cannot_be_published_is_refused_at_once(
    keeping: BrokerProcess, folder: Path, name: str, data: Callable[[], bytes], status: int, said: str
) -> None:
    found, answer = call(keeping, "POST", f"{name}/parts", data())
    assert found == status
    assert said in answer["error"]
    assert not (folder / "staged" / name).exists()


def test_names_are_names(keeping: BrokerProcess) -> None:
    for bad in ("..", "a%2Fb", ".hidden", "x" * 129):
        status, answer = call(keeping, "POST", f"{bad}/parts", plain("t/a", [b"x"]))
        assert status in (400, 404), answer
    status, answer = put(keeping, "sound", 1, ["../../../etc/passwd"])
    assert (status, "is not here" in answer["error"]) == (410, True)


def test_a_name_that_somebody_has_is_taken(keeping: BrokerProcess, name: str) -> None:
    with Raw(keeping.port, name):
        status, answer = call(keeping, "POST", f"{name}/parts", plain("t/a", [b"x"]))
        assert (status, answer["error"]) == (409, f"{name} is the name of a client that speaks mqtt5")


def test_without_a_journal_it_says_what_to_do(start: BrokerFactory) -> None:
    status, answer = call(start(), "POST", "somebody/parts", plain("t/a", [b"x"]))
    assert (status, "add [journal]" in answer["error"]) == (404, True)


# -- slow consumers ---------------------------------------------------------------------------------------------------


@pytest.fixture
def held(keeping: BrokerProcess, name: str) -> Iterator[tuple[str, Raw, int]]:
    """A topic whose one subscriber holds publishers up, that subscriber, and how many records were sent to it, of dots.
    The broker may not have read all of them yet."""
    topic, sent = f"held/{name}", 2000
    with (
        Raw(keeping.port, f"{name}-slow", receive_buffer=4096).subscribed(topic) as slow,
        Raw(keeping.port, f"{name}-feeder") as feeder,
    ):
        feeder.publish_all(topic, [b"." * 1000] * sent)
        while not keeping.publisher(f"{name}-feeder")["paused"]:
            feeder.publish(topic, b"." * 1000)
            sent += 1
        yield topic, slow, sent


def test_a_writer_is_held_up_as_any_publisher(keeping: BrokerProcess, held: tuple[str, Raw, int], name: str) -> None:
    """And is told that it is not done yet, and goes on by itself; also when somebody cuts it off."""
    topic, slow, sent = held
    writer, payloads = f"{name}-w", [b"%06d" % number + b"." * 1000 for number in range(3000)]
    part = stage(keeping, writer, plain(topic, payloads))
    status, answer = put(keeping, writer, 1, [part], wait_ms=300)
    assert (status, answer["done"], answer["rows"] < 3000) == (202, False, True)
    assert keeping.publisher(writer)["paused"]
    status, answer = put(keeping, writer, 2, [])
    assert (status, "is not published yet" in answer["error"]) == (409, True)
    assert keeping.call(f"/v1/clients/{writer}", "DELETE")[0] in (200, 204)
    assert [payload for payload in slow.payloads(sent + 3000) if payload[:1] != b"."] == payloads
    assert publish(keeping, writer, 1, part)["rows"] == 3000
    assert keeping.publisher(writer)["stalled_ms"] > 0


def test_told_to_stop_in_the_middle_of_a_batch_it_ends_in_order(start: BrokerFactory, tmp_path: Path) -> None:
    """And goes on when it is started again."""
    config, rows, sent = recording(tmp_path / "journal", TOPICS), 12_000, list[bytes]()

    def done(batch: int) -> bool:
        return put(broker, "w", batch, [])[0] == 200

    for batch in range(2):
        broker = start(config)
        until(lambda batch=batch: done(batch - 1) if batch else True, what="the batch before is published")
        payloads = [b"%d/%d" % (batch, row) + b"." * 100 for row in range(rows)]
        put(broker, "w", batch, [stage(broker, "w", plain("t/a", payloads))], wait_ms=0)
        with ThreadPoolExecutor(1) as somebody:
            asked = somebody.submit(put, broker, "w", batch, [])  # and waits for the answer
            published_by(broker, "w", batch, 1)
            broker.stop()
            assert isinstance(asked.exception(), OSError) or asked.result()[0] in (200, 202)
        sent += payloads
    broker = start(config)
    until(lambda: done(1), what="the last one is")
    assert [row["payload"] for row in recorded(broker, "t/a")] == sent
    broker.stop()


# -- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_killed_in_the_middle_of_a_batch_all_of_it_comes_once(
    start: BrokerFactory, tmp_path: Path, seed: int
) -> None:
    """To two recordings and to a durable queue, which settles what it gets. Batch after batch, a kill in each."""
    config, chance = recording(tmp_path / "journal", TOPICS, segment="1MB"), random.Random(seed)
    topics, per_batch, batches = ("t/a", "other", "kept/a"), 6000, 3
    got: list[bytes] = []
    broker = start(config)
    with Raw(broker.port, "durable", session_expiry_s=3600) as raw:
        raw.subscribed(TopicRequest("kept/#", 1))
    for batch in range(batches):
        rows = [(topics[row // 7 % 3], None, None, b"%d/%d" % (batch, row) + b"." * 200) for row in range(per_batch)]
        parts = [stage(broker, "w", arrow(rows[at : at + 2000])) for at in range(0, per_batch, 2000)]
        put(broker, "w", batch, parts, wait_ms=0)
        published_by(broker, "w", batch, chance.randrange(per_batch))
        broker.kill()
        broker = start(config)
        publish(broker, "w", batch, *parts)
        with Raw(broker.port, "durable", clean_start=False, session_expiry_s=3600) as raw:
            count = sum(topic == "kept/a" for topic, *_ in rows)
            while len(got) < (batch + 1) * count:
                message = raw.message()
                raw.ack(message)
                got.append(message.payload)
            raw.so_far()
    everything = [
        [b"%d/%d" % (batch, row) + b"." * 200 for batch in range(batches) for row in range(per_batch)
         if topics[row // 7 % 3] == topic] for topic in topics
    ]  # fmt: skip
    for topic, payloads in zip(topics[:2], everything[:2], strict=True):
        assert [row["payload"] for row in recorded(broker, topic)] == payloads
    assert list(dict.fromkeys(got)) == everything[2]
    assert not os.path.exists(tmp_path / "journal" / "staged" / "w")


def test_what_was_begun_is_published_though_nobody_asks_again(start: BrokerFactory, tmp_path: Path) -> None:
    config, rows = recording(tmp_path / "journal", TOPICS), 30_000
    broker = start(config)
    part = stage(broker, "w", plain("t/a", [b"%d" % row for row in range(rows)]))
    status, _ = put(broker, "w", 0, [part], wait_ms=0)
    assert status == 202
    until(lambda: ask(broker, "t/a", "HEAD").offset("Latest") > 2, what="some of it is recorded")
    broker.kill()
    broker = start(config)
    until(lambda: ask(broker, "t/a", "HEAD").offset("Latest") > rows and len(recorded(broker, "t/a")) >= rows)
    assert [int(row["payload"]) for row in recorded(broker, "t/a")] == list(range(rows))
    status, answer = put(broker, "w", 0, [])
    assert (status, answer["done"]) == (200, True)
