"""What stands in a lane of AMQP, and what is made of it again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from headway.core.message.record import NO_PROPERTIES, TOPICS, Gap, Properties, Record, Run
from headway.wire.amqp.dialect import WHOLE_KEY, AmqpDialect, Message, address_in, read_message
from headway.wire.amqp.envelope import AmqpEnvelope
from headway.wire.amqp.primitives import write_long, write_short
from headway.wire.amqp.properties import NONE, read, with_headers, write

JSON = bytes(commands.Basic.Properties(content_type="application/json", delivery_mode=2, priority=4).marshal())


def run(
    bodies: list[bytes], topic: str = "a/b", exchange: str = TOPICS, *, between: int = 9, native: bytes | None = JSON,
    **more: Any,
) -> Run:  # fmt: skip
    """Records with something between their payloads, as they come; ranges where all are of one size."""
    data, ends, starts = b"", [], []
    for body in bodies:
        data += b"~" * between
        starts.append(len(data))
        data += body
        ends.append(len(data))
    size = len(bodies[0]) + between
    if size and len({len(body) for body in bodies}) == 1:
        return Run(
            topic, data, range(ends[0], ends[-1] + 1, size), range(starts[0], starts[-1] + 1, size),
            properties=more.pop("properties", Properties(native=native)), exchange=exchange, **more,
        )  # fmt: skip
    properties = more.pop("properties", Properties(native=native))
    return Run(topic, data, ends, starts, properties=properties, exchange=exchange, **more)


def messages(given: Run) -> list[Message]:
    frames = AmqpDialect().encode(given, 1)
    assert (frames.holes, frames.expiries) == ((), ())
    assert len(frames.ends) == len(given)
    assert frames.ends[-1] == len(frames.data)
    return [read_message(frames.data[start:end]) for start, end in pairwise([0, *frames.ends])]


def test_the_bytes_of_a_record() -> None:
    frames = AmqpDialect().encode(run([b"body"], "a/b.c", "ex", native=b"\x10\x00\x02"), 1)
    assert frames.data == (
        b"\x00\x09" b"\x02ex\x05a.b/c" b"\x00\x00\x00\x0f" b"\x00\x3c\x00\x00" + (4).to_bytes(8, "big")
        + b"\x10\x00\x02body"
    )
    assert list(frames.ends) == [len(frames.data)]


SIZES = [[5], [0], [5] * 3, [0] * 5, [128] * 300, [1, 2, 3], [0, 7, 0], [5, 5, 6, 5], list(range(100))]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("between", [0, 1, 60])
def test_what_goes_in_comes_out(sizes: list[int], between: int) -> None:
    bodies = [bytes([at % 256]) * size for at, size in enumerate(sizes)]
    assert messages(run(bodies, "a/b", "ex", between=between)) == [Message("ex", "a.b", JSON, body) for body in bodies]


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=20), st.text(max_size=20), st.integers(0, 3))
def test_any_bodies_and_topics(bodies: list[bytes], topic: str, between: int) -> None:
    given = run(bodies, topic, "", between=between)
    assert [message.body for message in messages(given)] == bodies
    dialect = AmqpDialect()
    frames = dialect.encode(given, 1)
    assert dialect.decode(frames.data[: frames.ends[0]]).topic == topic


def test_records_of_one_size_have_a_range() -> None:
    assert isinstance(AmqpDialect().encode(run([b"abc"] * 9), 1).ends, range)


def test_a_record_again() -> None:
    dialect = AmqpDialect()
    record = Record("a/b", b"body", read(JSON).properties, 1, exchange="ex")
    assert record.properties.user == (("priority", "4"),)
    lane = dialect.encode_record(record, 77, now=5.0, retain=True, redelivered=True)
    assert lane == dialect.encode(record.run(), 1).data
    assert dialect.decode(lane) == record


def test_a_gap_is_four_headers_and_changes_nothing_else() -> None:
    dialect, told = AmqpDialect(topics=True), Gap(1, 2, 3, "x")
    for native in (JSON, NONE):
        record = Record("a/b", b"body", read(native).properties, 1, exchange="ex")
        frame = dialect.encode_record(record, 0, now=5.0, gap=told)
        assert frame == dialect.with_gap(dialect.encode(record.run(), 1).data, told)
        message = read_message(frame)
        assert message[:2] + message[3:] == ("ex", "a.b", b"body", 0)
        headers = read(message.properties).headers
        assert {name: headers.pop(f"x-headway-gap-{name}") for name in ("records", "first", "last", "reason")} == {
            "records": 1, "first": 2, "last": 3, "reason": "x",
        }  # fmt: skip
        assert headers == read(native).headers


def test_an_offset_is_a_header_that_is_no_part_of_the_record() -> None:
    dialect = AmqpDialect(topics=True, offsets=True)
    for native in (JSON, NONE):
        encoded = dialect.encode(run([b"one", b"three"], "a/b", native=native), 7)
        frames = [encoded.data[: encoded.ends[0]], encoded.data[encoded.ends[0] :]]
        assert [read(read_message(frame).properties).headers["x-headway-offset"] for frame in frames] == [7, 8]
        assert [dialect.decode(frame).payload for frame in frames] == [b"one", b"three"]
        assert all("x-headway-offset" not in dict(dialect.decode(frame).properties.user) for frame in frames)


def test_a_record_that_is_not_persistent() -> None:
    assert AmqpDialect().decode(AmqpDialect().encode(run([b"x"], native=NONE), 1).data).qos == 0
    assert AmqpDialect().decode(AmqpDialect().encode(run([b"x"], native=JSON), 1).data).qos == 1


def test_the_exchange_of_what_did_not_come_by_one() -> None:
    assert messages(run([b"x"], "a/b.c"))[0][:2] == ("amq.topic", "a.b/c")


def test_properties_of_mqtt_are_written_anew() -> None:
    properties = Properties(1, "text/plain", "re/ply", b"c", (("k", "v"),))
    [message] = messages(run([b"x"], qos=2, properties=properties, expires_s=5.0))
    assert message.properties == write(properties, 2)
    again = AmqpDialect().decode(AmqpDialect().encode(run([b"x"], qos=2, properties=properties), 1).data)
    assert again.qos == 1
    assert (again.properties.response_topic, again.properties.user) == ("re/ply", (("k", "v"),))
    assert messages(run([b"x"], properties=NO_PROPERTIES))[0].properties == NONE


def test_properties_of_amqp_are_passed_on_whatever_is_said_of_them() -> None:
    odd = Properties(content_type="something else", native=JSON)
    assert messages(run([b"x"], properties=odd))[0].properties == JSON


def test_a_topic_that_is_no_routing_key_is_told_whole() -> None:
    """The address has as much of it as fits, and a header all of it; whoever reads the lane gets the topic itself."""
    topic = "é" * 200 + "/end"
    frame = AmqpDialect().encode(run([b"x"], topic), 1).data
    record = AmqpDialect().decode(bytes(frame))
    assert record.topic == topic
    assert record.properties.native == NONE or WHOLE_KEY not in read(record.properties.native or b"").headers
    assert address_in(bytes(frame)[:-1])[1] == topic
    delivered = AmqpEnvelope(1, "tag", 0).write(AmqpEnvelope(1, "tag", 0).cut(frame, [len(frame)]), 0, 1, 1)
    assert write_short("é" * 127) in delivered
    assert WHOLE_KEY.encode() in delivered
    assert write_long(topic.replace("/", ".")) in delivered


def test_a_client_cannot_make_up_a_topic() -> None:
    properties = Properties(native=with_headers(NONE, {WHOLE_KEY: "other"}))
    frame = AmqpDialect().encode(Run("a/b", b"x", [1], [0], None, 0, False, properties), 1).data
    assert AmqpDialect().decode(bytes(frame)).topic == "a/b"


def test_dialects_are_equal_and_no_run_has_their_form() -> None:
    assert {AmqpDialect(): 1} == {AmqpDialect(): 1}
    dialect = AmqpDialect()
    assert (dialect.form, dialect.id_bytes) == (None, 0)
    assert dialect.redelivered(b"frame") == b"frame"


def test_many_different_properties() -> None:
    """Longer ones than are remembered, too."""
    for size in (10, 1000):
        raw = write(Properties(user=(("k", "v" * size),)), 1)
        assert AmqpDialect().decode(AmqpDialect().encode(run([b"x"], native=raw), 1).data).properties.native == raw
