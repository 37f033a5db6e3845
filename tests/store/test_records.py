"""Runs as Arrow: whatever a run looks like, the columns have its records, one by one."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.message.record import NO_PROPERTIES, Properties, Run
from headway.store.records import (
    BATCH_BYTES,
    SCHEMA,
    STREAM_END,
    Columns,
    batches,
    batches_of,
    stream_part,
    stream_start,
    write_parquet,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
PROPERTIES = st.one_of(
    st.just(NO_PROPERTIES),
    st.builds(
        Properties,
        content_type=st.none() | TEXTS,
        response_topic=st.none() | TEXTS,
        correlation_data=st.none() | st.binary(max_size=4),
        user=st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple),
    ),
)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """As they come from the wire: anything between the payloads; of one size, and then with ranges, or of many."""
    topic, properties = draw(TEXTS), draw(PROPERTIES)
    lead = draw(st.integers(0, 3))
    if draw(st.booleans()):
        count, size = draw(st.integers(1, 5)), draw(st.integers(0, 5))
        step = lead + size
        if step:
            ends: Any = range(step, step * count + 1, step)
            bodies: Any = range(lead, lead + step * (count - 1) + 1, step)
            data = draw(st.binary(min_size=step * count, max_size=step * count))
            return Run(topic, data, ends, bodies, None, draw(st.integers(0, 2)), draw(st.booleans()), properties)
    payloads = draw(st.lists(st.binary(max_size=5), min_size=1, max_size=5))
    data, ends, bodies = b"", [], []
    for payload in payloads:
        bodies.append(len(data) + lead)
        data += b"l" * lead + payload
        ends.append(len(data))
    return Run(topic, data, ends, bodies, None, draw(st.integers(0, 2)), draw(st.booleans()), properties)


@given(st.lists(st.tuples(runs(), st.sampled_from(["none", "topic", "mixed"])), min_size=1, max_size=5))
def test_the_columns_have_what_the_runs_have(given_runs: list[tuple[Run, str]]) -> None:
    columns, expected, first = Columns(), [], 7
    for number, (run, kind) in enumerate(given_runs):
        keys = [None if kind == "none" or (kind == "mixed" and at % 2) else run.topic for at in range(len(run))]
        columns.add(run, first, number, keys)
        said = run.properties
        for index, key in enumerate(keys):
            expected.append({
                "offset": first + index, "timestamp": number, "topic": run.topic, "key": key,
                "properties": {
                    "content_type": said.content_type, "response_topic": said.response_topic,
                    "correlation_data": said.correlation_data, "user": list(said.user), "qos": run.qos,
                    "retain": run.retain,
                },
                "payload": run.payload(index),
            })  # fmt: skip
        first += len(run) + 2
    assert len(columns) == len(expected)
    batch = columns.batch()
    batch.validate(full=True)
    plain = batch.set_column(1, "timestamp", batch.column("timestamp").cast(pa.int64()))
    assert plain.to_pylist() == expected
    assert batch.schema == SCHEMA


def test_a_key_that_is_no_text_is_mended() -> None:
    columns = Columns()
    columns.add(Run("a", b"x", [1], [0]), 1, 0, ["half a pair \ud800"])
    assert columns.batch().column("key").to_pylist() == ["half a pair ?"]


def many(count: int) -> list[tuple[Run, int, int, list[str | None]]]:
    return [(Run("a", b"x" * 1000, [1000], [0]), number, number, [None]) for number in range(count)]


def test_batches_are_of_about_one_size() -> None:
    found = list(batches(many(5000)))
    assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == list(range(5000))
    assert all(BATCH_BYTES / 2 < batch.nbytes < BATCH_BYTES * 2 for batch in found[:-1])
    assert list(batches([])) == []


def test_a_stream_is_put_together_from_its_parts() -> None:
    found = list(batches(many(3000)))
    parts = [stream_start({"headway.next_offset": "9"}), *map(stream_part, found)]
    whole = io.BytesIO(b"".join(parts) + STREAM_END)
    with pa.ipc.open_stream(whole) as reader:
        assert reader.schema.metadata == {b"headway.next_offset": b"9"}
        assert reader.read_all().column("offset").to_pylist() == list(range(3000))
    assert [batch.num_rows for batch in batches_of(io.BytesIO(b"".join(parts) + STREAM_END))] == [
        batch.num_rows for batch in found
    ]
    for broken in (b"", b"<html>", b"".join(parts)[:-100]):
        with pytest.raises(ValueError):
            list(batches_of(io.BytesIO(broken)))


def test_parquet(tmp_path: Path) -> None:
    for count in (0, 1, 40_000):
        write_parquet(tmp_path / "a.parquet", batches(many(count)))
        file = pq.ParquetFile(tmp_path / "a.parquet")
        assert file.read().column("offset").to_pylist() == list(range(count))
        assert file.num_row_groups == (3 if count == 40_000 else count)
