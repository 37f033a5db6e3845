"""Parts of writers: what cannot be written in every protocol is refused before it is staged."""

from __future__ import annotations

import tracemalloc
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headway.server.streams import writers as publication
from headway.store import rows
from headway.store.rows import INFLATED_BYTES_MAX, ROWS, BadRows, check, runs

MAX = 1024 * 1024
GOOD: dict[str, Any] = {
    "content_type": None, "response_topic": None, "correlation_data": None, "user": [], "qos": 1, "retain": False,
}  # fmt: skip


def part(*rows: dict[str, Any], compression: str | None = None, batches: int = 1) -> bytes:
    whole = [{"topic": "a", "key": None, "properties": None, "payload": b"x", **row} for row in rows]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, ROWS, options=options) as writer:
        for _ in range(batches):
            writer.write_batch(pa.RecordBatch.from_pylist(whole, ROWS))
    return bytes(sink.getvalue())


def with_properties(**more: Any) -> dict[str, Any]:
    return {"properties": {**GOOD, **more}}


LONG = "ä" * 32768
"""One byte more than an MQTT string has room for."""
REFUSED = {
    "topic null": ({"topic": None}, "topic is null"),
    "topic empty": ({"topic": ""}, "at least one character"),
    "topic wildcard": ({"topic": "a/#"}, "wildcard"),
    "topic nul": ({"topic": "a\0"}, "NUL"),
    "topic long": ({"topic": LONG}, "65536 bytes"),
    "topic own": ({"topic": "$SYS/x"}, "the broker's own"),
    "payload null": ({"payload": None}, "payload is null"),
    "payload long": ({"payload": b"x" * (MAX + 1)}, "a payload has"),
    "key nul": ({"key": "a\0b"}, "row 1 key has a NUL"),
    "key long": ({"key": LONG}, "row 1 key has 65536 bytes"),
    "content type nul": (with_properties(content_type="a\0"), "row 1 content_type has a NUL"),
    "content type long": (with_properties(content_type=LONG), "row 1 content_type has 65536 bytes"),
    "response topic empty": (with_properties(response_topic=""), "response_topic: a topic has at least"),
    "response topic wildcard": (with_properties(response_topic="a/+"), "response_topic: topic 'a/\\+' contains a wild"),
    "response topic nul": (with_properties(response_topic="a\0"), "response_topic: .* NUL"),
    "response topic long": (with_properties(response_topic=LONG), "response_topic has 65536 bytes"),
    "correlation long": (with_properties(correlation_data=b"x" * 65536), "correlation_data has 65536 bytes"),
    "value null": (with_properties(user=[("b", "c"), ("a", None)]), r"row 1 the value of a .* \('a'\) is null"),
    "name nul": (with_properties(user=[("a\0", "")]), "row 1 the name of a user property has a NUL"),
    "value nul": (with_properties(user=[("a", "b"), ("a", "\0")]), "row 1 the value of a user property has a NUL"),
    "name long": (with_properties(user=[(LONG, "")]), "row 1 the name of a user property has 65536"),
    "value long": (with_properties(user=[("a", LONG)]), "row 1 the value of a user property has 65536"),
    "qos high": (with_properties(qos=3), "a qos is 0, 1 or 2, not 3"),
    "qos low": (with_properties(qos=-1), "a qos is 0, 1 or 2, not -1"),
    "properties long": (with_properties(user=[("a", "x" * 65535)] * 17), "the properties of row 1 have 1114112 bytes"),
}


@pytest.mark.parametrize("piece_rows", [1, 4096])
@pytest.mark.parametrize(("row", "text"), REFUSED.values(), ids=list(REFUSED))
def test_row_is_refused_if_a_protocol_cannot_carry_it(
    row: dict[str, Any], text: str, piece_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside good rows, of which one has properties before it."""
    monkeypatch.setattr(rows, "PIECE_ROWS", piece_rows)
    before = with_properties(user=[("k", "v"), ("l", "w")])
    with pytest.raises(BadRows, match=text):
        check(part(before, row, {}), MAX)


def test_rows_are_accepted_at_the_limits() -> None:
    text = "x" * 65535
    limits = with_properties(
        content_type=text, response_topic=text, correlation_data=b"\0" * 65535, user=[(text, text), ("", "")], qos=2
    )
    checked = check(part({"topic": text, "key": text, "payload": b"\0" * MAX}, limits, {}), MAX)
    assert checked.rows == 3
    assert checked.topics.to_pylist() == [text, "a"]


def test_nulls_that_mean_nothing_is_said_are_accepted() -> None:
    said = {**dict.fromkeys(GOOD), "user": None}
    data = part({"properties": said}, {}, with_properties(qos=None, retain=None))
    assert check(data, MAX).rows == 3
    found = [(run.qos, run.retain, run.properties.user) for _, run in runs(data) for _ in range(len(run))]
    assert found == [(1, False, ())] * 3


def test_text_that_is_not_utf_8_is_refused() -> None:
    data = part({"topic": "tttt", "key": "kkkk", **with_properties(content_type="cccc", user=[("nnnn", "vvvv")])})
    for text in (b"tttt", b"kkkk", b"cccc", b"nnnn", b"vvvv"):
        with pytest.raises(BadRows, match="this is not sound Arrow"):
            check(data.replace(text, b"\xff\xfe\xed\xa0"), MAX)


def test_damaged_stream_is_refused_and_never_crashes() -> None:
    """Each byte turned, also where the part is read to be published: it may have been damaged on disk."""
    data = part({"key": "k", **with_properties(user=[("n", "v"), ("m", "w")])}, {}, compression="lz4")
    sound = 0
    for at in range(len(data)):
        broken = data[:at] + bytes((data[at] ^ 0x55,)) + data[at + 1 :]
        try:
            sound += check(broken, MAX).rows > 0
            list(runs(broken))
        except BadRows:
            continue
    assert sound < len(data) / 2


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_rows_are_accepted_up_to_a_size(compression: str) -> None:
    large = {"payload": b"x" * MAX}
    assert check(part(large, large, compression=compression), MAX).rows == 2
    much = part(*[large] * 8, compression=compression, batches=1 + INFLATED_BYTES_MAX // (8 * MAX))
    assert len(much) < MAX
    with pytest.raises(BadRows, match=r"inflate to 7[0-9]+ bytes"):
        check(much, MAX)


def test_part_of_an_older_release_is_refused_when_it_is_read() -> None:
    with pytest.raises(BadRows, match="is null; give it a text, or leave the pair out"):
        list(runs(part(with_properties(user=[("a", None)]))))


@pytest.mark.parametrize("piece_rows", [1, 3, 4096])
def test_runs_have_the_same_rows_whatever_is_read_at_once(piece_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PIECE_ROWS", piece_rows)
    some = [{"topic": "ab"[at // 4 % 2], "payload": b"%d" % at} for at in range(20)]
    kept = [with_properties(user=[("n", str(at // 3))])["properties"] for at in range(20)]
    data = part(*[{**row, "properties": said} for row, said in zip(some, kept, strict=True)], batches=2)
    found = [
        (first + at, run.topic, run.payload(at), run.properties.user)
        for first, run in runs(data) for at in range(len(run))
    ]  # fmt: skip
    due = [(row["topic"], row["payload"], tuple(said["user"])) for row, said in zip(some, kept, strict=True)]
    assert found == [(at, *due[at % 20]) for at in range(40)]


def test_part_of_tiny_rows_is_read_a_little_at_a_time(tmp_path: Path) -> None:
    """Each row is a run, and takes fifty times as much memory as in its part."""
    path = tmp_path / "part"
    path.write_bytes(part(*[{"topic": "ab"[at % 2]} for at in range(40_000)]))
    tracemalloc.start()
    try:
        read = publication._read(path)
        assert len(list(islice(read, publication.READ_RUNS))) == publication.READ_RUNS
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_part_of_as_many_topics_as_rows_is_checked_a_piece_at_a_time() -> None:
    """All topics at once took forty times the bytes of the part, and other threads had no turn meanwhile."""
    count = 40_000
    data = part(*[{"topic": f"{at:x}", **with_properties(user=[("a", "b")], response_topic=f"{at:x}")}
                  for at in range(count)])  # fmt: skip
    check(part({}), MAX)  # what is loaded once
    tracemalloc.start()
    try:
        checked = check(data, MAX)
        assert sum(1 for _ in rows.values_of(checked.topics)) == count
        assert tracemalloc.get_traced_memory()[1] < 1_500_000
    finally:
        tracemalloc.stop()


def test_part_that_is_damaged_at_its_end_is_refused_before_its_first_row() -> None:
    data = part({}, batches=2)
    with pytest.raises(BadRows):
        runs(data[: len(data) // 2])
