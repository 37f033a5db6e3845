"""Frames that are like the ones before: what they become is what each would become alone."""

from __future__ import annotations

from struct import pack

import pytest
from tests.wire.openwire_frames import (
    CACHED,
    NO,
    ack,
    consumer_id,
    frame,
    message,
    message_id,
    producer_id,
    queue,
    topic,
    wire_format,
)

from headway.core.message import NO_PROPERTIES, EncodedRun, Run
from headway.wire.codecs import queue_form
from headway.wire.dialect import Numbered
from headway.wire.openwire.alike import Acks, Series
from headway.wire.openwire.codes import Form, Type
from headway.wire.openwire.decoder import Item, OpenWireDecoder, Request, Sent
from headway.wire.openwire.dialect import OpenWireDialect
from headway.wire.openwire.envelope import NumberedCut, OpenWireEnvelope
from headway.wire.openwire.marshalling import write_number
from headway.wire.openwire.messages import RECENT

PROPERTIES = pack(">i", 2) + b"\0\1a" + b"\5" + pack(">i", 5) + b"\0\1s" + b"\x09\0\1x"
TEXT = pack(">i", 2) + b"hi"
NOW_MS = 1_795_800_000_123
LATER = [NOW_MS, NOW_MS, NOW_MS + 1, NOW_MS + 2, NOW_MS + 300]
"""Times of messages, none at a whole second."""


def decoder(cached: bool = False) -> OpenWireDecoder:
    found = OpenWireDecoder(1_000_000)
    found.feed(wire_format(12, CACHED if cached else None))
    return found


def sent(sequence: int, time_ms: int = 0, body: bytes = b"body", **said: object) -> bytes:
    said = {"destination": queue("q"), "kind": Type.BYTES_MESSAGE, "wants_response": False, **said}
    kind, destination = said.pop("kind"), said.pop("destination")
    return message(kind, destination, body, PROPERTIES, producer=producer_id(), sequence=sequence,
                   timestamp_ms=time_ms, **said)  # type: ignore[arg-type]  # fmt: skip


def alone(raw: bytes) -> Sent:
    """What a message becomes that is the first of its client."""
    (item,) = decoder().feed(raw)
    assert isinstance(item, Sent)
    return item


def items_of(*frames: bytes, at_once: OpenWireDecoder | None = None) -> list[Item]:
    reader = decoder() if at_once is None else at_once
    found = reader.feed(b"".join(frames))
    assert reader.error is None
    return found


def series_of(times_ms: list[int], first: int = 8, **said: object) -> tuple[Series, list[bytes]]:
    """Messages that are like one before them."""
    frames = [sent(number, time_ms, **said) for number, time_ms in enumerate(times_ms, first)]  # type: ignore[arg-type]
    before, series = items_of(sent(first - 1, times_ms[0], **said), *frames)  # type: ignore[arg-type]
    assert isinstance(before, Sent)
    assert isinstance(series, Series)
    return series, frames


@pytest.mark.parametrize("times_ms", [[0] * 5, LATER, [NOW_MS // 1000 * 1000] * 3], ids=["none", "ms", "seconds"])
@pytest.mark.parametrize(("kind", "body"), [(Type.BYTES_MESSAGE, b"body"), (Type.TEXT_MESSAGE, TEXT)])
def test_messages_that_are_alike_are_one_run_and_say_what_each_would_say_alone(
    times_ms: list[int], kind: Type, body: bytes
) -> None:
    series, frames = series_of(times_ms, kind=kind, body=body)
    assert len(series.run) == len(frames)
    assert (series.run.topic, series.run.exchange, series.wants_response) == ("q", "", False)
    for index, raw in enumerate(frames):
        expected, record = alone(raw).message, series.run.record(index, 1, 0.0)
        assert record.payload == expected.payload
        assert queue_form().read_common(record.properties) == expected.common
        assert record.properties == queue_form().write_common(expected.common)
        assert record.qos == int(expected.common.persistent)
    assert series.size == sum(alone(raw).message.size for raw in frames)


def test_bodies_may_be_of_different_sizes() -> None:
    frames = [sent(number, body=b"x" * number) for number in (1, 2, 300, 4)]
    _, series = items_of(*frames)
    assert isinstance(series, Series)
    assert [series.run.payload(index) for index in range(3)] == [b"x" * 2, b"x" * 300, b"x" * 4]


def test_byte_by_byte_each_comes_alone_and_none_is_lost() -> None:
    reader, found = decoder(), list[Item]()
    for byte in b"".join(sent(number, NOW_MS) for number in range(1, 5)):
        found += reader.feed(bytes((byte,)))
    assert [type(item) for item in found] == [Sent, Series, Series, Series]
    numbers = [item.own.numbers for item in found if isinstance(item, Series)]
    assert numbers == [[2], [3], [4]]


def test_a_message_whose_sender_waits_is_alone_and_has_its_number() -> None:
    frames = [sent(number, wants_response=True, number=100 + number) for number in (1, 2, 3)]
    first, *others = items_of(*frames)
    assert isinstance(first, Sent)
    assert [(one.number, one.wants_response, len(one.run)) for one in others if isinstance(one, Series)] == [
        (102, True, 1), (103, True, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        sent(9, expires_ms=NOW_MS), sent(9, destination=queue("q,r")),
        sent(9, transaction=b"\1\x6f" + pack(">q", 1) + NO), sent(9, body=b""), sent(-1),
        sent(9, destination=queue("other")), sent(9, kind=Type.TEXT_MESSAGE, body=TEXT),
    ],
    ids=["expires", "composite", "transaction", "empty", "negative", "other queue", "other type"],
)  # fmt: skip
def test_what_is_not_alike_is_read_field_by_field(other: bytes) -> None:
    *_, item, last = items_of(sent(7), sent(8), other, sent(10))
    assert item == alone(other)
    assert isinstance(last, Series | Sent)


def test_whole_seconds_and_other_times_are_not_of_one_run() -> None:
    whole = NOW_MS // 1000 * 1000
    _, *found = items_of(sent(1, NOW_MS), sent(2, NOW_MS), sent(3, whole), sent(4, whole + 5), sent(5, 0))
    assert [(item.own.numbers, item.own.times_ms) for item in found if isinstance(item, Series)] == [
        ([2], [NOW_MS]), ([3], [whole]), ([4], [whole + 5]), ([5], [0]),
    ]  # fmt: skip


def test_a_number_that_stands_for_another_object_now_is_read_anew() -> None:
    """The second message says byte for byte what the first one said; but it goes elsewhere."""
    reader = decoder(cached=True)
    unknown, known = b"\1\xff\xff" + NO, b"\0\0\5"

    def to_five(sequence: int) -> bytes:
        return frame(
            24, b"\1\xff\xff" + producer_id(), known, unknown, unknown,
            b"\1\x6e" + NO + b"\1\xff\xff" + producer_id() + pack(">qq", sequence, 0), unknown, NO, pack(">i", 0),
            NO, NO, pack(">q", 0), b"\4", NO, pack(">q", 0), NO, b"\1" + pack(">i", 1) + b"x", NO, NO, unknown, NO,
            pack(">i", 0), NO, pack(">q", 0), NO, NO, NO, NO, pack(">qq", 0, 0), NO, wants_response=False,
        )  # fmt: skip

    def numbered(destination: bytes) -> bytes:
        return frame(8, b"\1\xff\xff" + NO, b"\1\0\5" + destination, NO, pack(">q", 0), NO)

    found = items_of(numbered(queue("a")), to_five(1), to_five(2), numbered(queue("b")), to_five(3), at_once=reader)
    assert [type(item) for item in found] == [Request, Sent, Series, Request, Sent]
    assert isinstance(found[2], Series)
    assert isinstance(found[4], Sent)
    assert (found[2].destination.name, found[4].message.destination.name) == ("a", "b")


def said_by(items: list[Item]) -> list[object]:
    """What messages say, each, whether they came in a series or not."""
    told = list[object]()
    for item in items:
        if isinstance(item, Series):
            own = item.own
            told += [
                (own.numbers[n], own.times_ms[n], item.run.payload(n), own.of(n), item.run.topic)
                for n in range(len(item.run))
            ]
        else:
            told.append(item)
    return told


MANY = [(NOW_MS + number // 7, b"body of %3d" % number) for number in range(1, 201)]


@pytest.mark.parametrize("kind", [Type.BYTES_MESSAGE, Type.TEXT_MESSAGE])
@pytest.mark.parametrize("at", [1, 3, 20, 100, 199])
@pytest.mark.parametrize(
    ("time_ms", "body", "said"),
    [
        (NOW_MS, b"body of 999", {}),
        (NOW_MS, b"longer than the others", {}),
        (NOW_MS // 1000 * 1000, b"body of 999", {}),
        (NOW_MS, b"body of \xed\xa0\xbd", {}),
        (NOW_MS, b"body of 999", {"sequence": -1}),
        (NOW_MS, b"body of 999", {"expires_ms": NOW_MS}),
        (NOW_MS, b"body of 999", {"destination": queue("r")}),
    ],
    ids=["as the others", "longer", "whole second", "no UTF-8", "negative", "expires", "other queue"],
)
def test_many_of_one_size_are_read_as_each_is_by_itself(
    kind: Type, at: int, time_ms: int, body: bytes, said: dict[str, object]
) -> None:
    frames = list[bytes]()
    for number, (its_ms, its_body) in enumerate([*MANY[:at], (time_ms, body), *MANY[at:]]):
        text = pack(">i", len(its_body if number != at else body)) if kind is Type.TEXT_MESSAGE else b""
        more = {"sequence": number, "kind": kind, **(said if number == at else {})}
        frames.append(sent(more.pop("sequence"), its_ms, text + its_body, **more))  # type: ignore[arg-type]
    reader = decoder()
    one_by_one = [item for raw in frames for item in items_of(raw, at_once=reader)]
    at_once = items_of(*frames)
    assert said_by(at_once) == said_by(one_by_one)
    assert len(at_once) <= 6


def test_a_turn_reads_no_more_of_them_than_it_has_time_for() -> None:
    reader = decoder()
    reader.feed(sent(1))
    (series,) = reader.feed(b"".join(sent(number) for number in range(2, 102)), 4)
    assert isinstance(series, Series)
    assert len(series.run) == 32
    rest = reader.feed(b"")
    assert sum(len(item.run) for item in rest if isinstance(item, Series)) == 68


def single(number: int, kind: int = 2, value: int = 2, *, last: int | None = None, count: int = 1) -> bytes:
    end = message_id(number if last is None else last, number if last is None else last)
    return ack(consumer_id(value=value), kind, message_id(number, number), end, count, queue("q"))


def test_acknowledgements_of_one_message_each_are_one_item() -> None:
    first, acks = items_of(*(single(number) for number in range(1, 8)))
    assert isinstance(first, Request)
    assert isinstance(acks, Acks)
    assert (acks.kind, acks.ids, acks.consumer.value) == (2, [2, 3, 4, 5, 6, 7], 2)


def test_other_acknowledgements_are_requests() -> None:
    several, other, of_type = single(3, last=5, count=3), single(4, value=3), single(5, kind=3)
    found = items_of(single(1), single(2), several, single(6), single(7, last=9), other, of_type)
    assert [type(item) for item in found] == [Request, Acks, Request, Acks, Request, Request, Request]
    assert isinstance(found[3], Acks)
    assert found[3].ids == [6]


# -- writing them ------------------------------------------------------------------------------------------------------


def record_by_record(dialect: OpenWireDialect, run: Run) -> bytes:
    return b"".join(dialect.encode_record(run.record(n, 50, 0.0), 0, now=0.0) for n in range(len(run)))


@pytest.mark.parametrize("form", [Form(9), Form(12), Form(12, True)], ids=str)
@pytest.mark.parametrize("bodies", [[b"abc", b"def", b"ghi"], [b"a", b"\xff" * 9, b"ccc"]], ids=["one size", "sizes"])
def test_consumers_of_topics_get_the_same_bytes_as_if_each_was_written_alone(form: Form, bodies: list[bytes]) -> None:
    frames = [sent(7, NOW_MS, destination=topic("t"))]
    frames += [sent(8 + n, NOW_MS + n, body=body, destination=topic("t")) for n, body in enumerate(bodies)]
    _, series = items_of(*frames)
    assert isinstance(series, Series)
    dialect = OpenWireDialect(write_number(1), form)
    expected = record_by_record(dialect, series.run)
    encoded = dialect.encode(series.run, 50)
    assert encoded.data == expected
    assert list(encoded.ends)[-1] == len(expected)
    RECENT.note(series.own.numbering)
    one = series.run.record(1, 50, 0.0)
    assert dialect.encode(one.run(), one.sequence).data == dialect.encode_record(one, 0, now=0.0)


def queued(run: Run) -> EncodedRun:
    return queue_form().dialect.encode(run, 1)


def test_queues_keep_the_same_bytes_as_of_each_alone() -> None:
    series, _ = series_of(LATER)
    each = [queued(series.run.record(n, 1, 0.0).run()).data for n in range(len(series.run))]
    assert queued(series.run).data == b"".join(each)
    assert series.run.properties is not NO_PROPERTIES


@pytest.mark.parametrize("form", [Form(9), Form(12), Form(12, True)], ids=str)
@pytest.mark.parametrize("times_ms", [[0] * 5, LATER, [NOW_MS // 1000 * 1000] * 5], ids=["none", "ms", "seconds"])
def test_consumers_of_queues_get_the_same_bytes_as_if_each_was_cut_alone(form: Form, times_ms: list[int]) -> None:
    series, _ = series_of(times_ms, kind=Type.TEXT_MESSAGE, body=TEXT, first=11)
    data, ends, _, _ = queued(series.run)
    envelope = OpenWireEnvelope(write_number(1), "1-1", form)
    each = b"".join(
        envelope.write(envelope.cut(data[start:end], [end - start], redelivered=3), 0, 1, number)
        for number, (start, end) in enumerate(zip((0, *ends), ends, strict=False), 70)
    )  # without a numbering that is known
    RECENT.note(series.own.numbering)
    cut = envelope.cut(data, list(ends), redelivered=3)
    assert isinstance(cut, NumberedCut)
    assert envelope.write(cut, 0, len(ends), 70) == each
    assert envelope.write(cut, 2, 4, 72) == each[envelope.ends(cut, 0, 2)[-1] : envelope.ends(cut, 0, 4)[-1]]
    some = envelope.cut(data[: ends[1]], list(ends[:2]), redelivered=3)
    assert not isinstance(some, NumberedCut)
    assert envelope.write(some, 0, 2, 70) == each[: envelope.ends(cut, 0, 2)[-1]]
    assert envelope.ends(some, 0, 2) == envelope.ends(cut, 0, 2)


@pytest.mark.parametrize("odd", [b"ID:d:1:2:13", b"ID:c:1:2:05"], ids=["another sender", "no number of Java's"])
def test_records_that_only_look_alike_are_cut_one_by_one(odd: bytes) -> None:
    series, _ = series_of(LATER, first=11)
    RECENT.note(series.own.numbering)
    data, ends, _, _ = queued(series.run)
    name = b"ID:c:1:2:13"
    assert name in data
    changed = data.replace(name, odd)
    cut = OpenWireEnvelope(write_number(1), "1-1", Form()).cut(changed, list(ends))
    assert isinstance(cut, list)
    assert len(cut) == len(ends)


def test_part_of_a_run_keeps_the_properties_of_its_records() -> None:
    series, _ = series_of(LATER)
    part = series.own.part(1, 3)
    assert isinstance(part, Numbered)
    assert [part.of(n) for n in range(2)] == [series.own.of(1), series.own.of(2)]
