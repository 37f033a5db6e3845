"""Records as server-sent events: whatever a publisher writes, an event is one event, and is read back as it was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.message import DELETE, EVENT, Gap, Properties, Record, Run
from headway.wire.event_stream import END, EventStreamDialect

DIALECT = EventStreamDialect("/k")
HOSTILE = ["\n\n", "x\ndata: {}\n\n", "event: closed\n", "\r\n\r\n", "\u2028", "\0", ": comment\n"]
TEXTS = st.one_of(st.text(max_size=5), st.sampled_from(HOSTILE))
PROPERTIES = st.builds(
    Properties, content_type=st.none() | TEXTS, response_topic=st.none() | TEXTS,
    correlation_data=st.none() | st.binary(max_size=4), user=st.lists(st.tuples(TEXTS, TEXTS), max_size=2).map(tuple),
)  # fmt: skip
KEYED = TEXTS.map(lambda text: json.dumps({"k": text}).encode())
PAYLOADS = st.one_of(st.binary(max_size=8), TEXTS.map(str.encode), KEYED)


def lines(frame: bytes) -> dict[str, str]:
    assert frame.endswith(END)
    assert frame.count(b"\n\n") == 1, "one event"
    found = [line.partition(": ") for line in frame[:-2].decode().split("\n")]
    assert [name for name, _, _ in found] in (["id", "data"], ["event", "id", "data"], ["event", "data"])
    return {name: value for name, _, value in found}


@given(topic=TEXTS, properties=PROPERTIES, payloads=st.lists(PAYLOADS, min_size=1, max_size=4), qos=st.integers(0, 2))
def test_a_record_is_one_event_and_comes_back(
    topic: str, properties: Properties, payloads: list[bytes], qos: int
) -> None:
    data, ends = b"", []
    for payload in payloads:
        data += payload
        ends.append(len(data))
    run = Run(topic, data, ends, [0, *ends[:-1]], qos=qos, properties=properties)
    encoded = DIALECT.encode(run, 100)
    assert encoded.ends[-1] == len(encoded.data)
    for index, (start, end) in enumerate(zip([0, *encoded.ends], encoded.ends, strict=False)):
        frame = encoded.data[start:end]
        said = lines(frame)
        assert said["id"] == str(100 + index)
        record = DIALECT.decode(frame)
        assert (record.topic, record.payload, record.qos) == (topic, payloads[index], qos)
        assert record.properties == properties
        whole = DIALECT.encode_record(run.record(index, 100, 0.0), 0, now=0.0)
        assert whole == frame, "of the state as of a lane"
        gap = Gap(3, 1, 9, "conflated")
        gapped = DIALECT.with_gap(frame, gap)
        assert gapped is not None
        before, _, after = gapped.partition(END)
        assert lines(before + END) == {"event": "gap", "data": '{"records":3,"reason":"conflated","first":1,"last":9}'}
        assert after == frame
        assert DIALECT.decode(gapped) == record


def test_the_brokers_marks_are_events_and_those_of_publishers_are_not() -> None:
    mark = Properties(user=((EVENT, "snapshot_end"), ("headway-offset", "7"), ("headway-why", "no room")))
    frame = DIALECT.encode_record(Record("t/-", b"", mark), 0, now=0.0)
    assert lines(frame) == {"event": "snapshot_end", "data": '{"offset":7,"why":"no room"}'}
    forged = DIALECT.encode(Record("t/x", b"{}", mark).run(), 9).data
    assert "event" not in lines(forged)
    assert "event" not in lines(DIALECT.encode_record(Record("t/x", b"{}", mark, sequence=9), 0, now=0.0))


@pytest.mark.parametrize("user", [((EVENT, DELETE),), (("delete", "true"),)])
def test_a_delete_is_an_event_of_its_own(user: tuple[tuple[str, str], ...]) -> None:
    frame = DIALECT.encode(Record("t/x", b'{"k": 3}', Properties(user=user)).run(), 9).data
    said = lines(frame)
    assert (said["event"], said["id"], json.loads(said["data"])["key"]) == ("delete", "9", "3")
