"""Properties: what the broker makes of them, and what is left alone when one is altered."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pamqp import commands, header

from headway.core.base.errors import ProtocolError
from headway.core.message.record import NO_PROPERTIES, Properties
from headway.wire.amqp.codes import ReplyCode
from headway.wire.amqp.primitives import AmqpReader
from headway.wire.amqp.properties import (
    NONE,
    REPLY_TOPIC,
    BadExpiration,
    Facts,
    read,
    with_headers,
    with_reply_to,
    write,
)

ALL: Any = {
    "content_type": "application/json", "content_encoding": "utf-8",
    "headers": {"n": 5, "s": "text", "deep": {"x": [1]}},
    "delivery_mode": 2, "priority": 7, "correlation_id": "id-1", "reply_to": "replies.to/me", "expiration": "60000",
    "message_id": "m1", "timestamp": datetime(2024, 5, 6, tzinfo=UTC), "message_type": "t", "user_id": "guest",
    "app_id": "app",
}  # fmt: skip


def raw(**properties: Any) -> bytes:
    return bytes(commands.Basic.Properties(**properties).marshal())


def seen(data: bytes) -> dict[str, Any]:
    """As a client's ``pamqp`` reads it."""
    found = header.ContentHeader()
    found.unmarshal(b"\x00\x3c\x00\x00" + bytes(8) + data)
    return {name: value for name, value in found.properties if value not in (None, "")}


def test_everything() -> None:
    data = raw(**ALL)
    facts = read(data)
    assert facts == Facts(
        Properties(
            content_type="application/json", response_topic="replies/to.me", correlation_data=b"id-1",
            user=(("n", "5"), ("s", "text"), ("priority", "7")), native=data,
        ),
        ALL["headers"], 2, 7, 60_000, "replies.to/me", "guest",
    )  # fmt: skip
    assert facts.qos == 1


def test_nothing() -> None:
    assert read(NONE) == Facts(Properties(native=NONE), {})
    assert read(NONE).qos == 0


@pytest.mark.parametrize("name", sorted(ALL))
def test_one_alone(name: str) -> None:
    data = raw(**{name: ALL[name]})
    facts = read(data)
    assert facts.properties.native == data
    assert (facts.delivery_mode == 2) == (name == "delivery_mode")
    assert (facts.user_id == "guest") == (name == "user_id")
    assert (facts.reply_to is not None) == (facts.properties.response_topic is not None) == (name == "reply_to")
    assert (facts.headers != {}) == (name == "headers")


@pytest.mark.parametrize(("mode", "qos"), [(None, 0), (1, 0), (2, 1)])
def test_persistent_is_at_least_once(mode: int | None, qos: int) -> None:
    assert read(raw(delivery_mode=mode)).qos == qos


def test_a_header_called_priority_is_the_publishers() -> None:
    assert read(raw(priority=3, headers={"priority": "mine"})).properties.user == (("priority", "mine"),)
    assert read(raw(priority=0)).properties.user == (("priority", "0"),)


def test_headers_as_user_properties() -> None:
    headers = {
        "b": True, "d": Decimal("1.5"), "f": 0.5, "i": -3, "l": [1], "n": None, "s": "x", "t": ALL["timestamp"],
        "y": bytearray(b"x"),
    }  # fmt: skip
    facts = read(raw(headers=headers))
    assert facts.headers == headers
    assert facts.properties.user == (
        ("b", "true"), ("d", "1.5"), ("f", "0.5"), ("i", "-3"), ("s", "x"), ("t", "2024-05-06T00:00:00+00:00"),
    )  # fmt: skip


def test_what_mqtt_has_no_room_for() -> None:
    headers = {"null": "a\0b", "n\0l": "x", "long": "x" * 65_536, "fits": "é" * 32_767, "too": "é" * 32_768}
    facts = read(raw(headers=headers, content_type="a\0b"))
    assert [name for name, _ in facts.properties.user] == ["fits"]
    assert facts.properties.content_type is None
    assert facts.headers == headers


@pytest.mark.parametrize("key", ["", "a.#", "a+b", "a\0b"])
def test_a_reply_to_that_is_no_topic(key: str) -> None:
    facts = read(b"\x02\x00" + bytes([len(key)]) + key.encode())
    assert facts.properties.response_topic is None
    assert facts.reply_to == key


def test_texts_that_are_none() -> None:
    facts = read(b"\x86\x00\x01\xff\x02\xff\xfe\x01\xff")
    assert facts.properties == Properties(correlation_data=b"\xff\xfe", native=b"\x86\x00\x01\xff\x02\xff\xfe\x01\xff")
    assert facts.reply_to is None


def test_a_timestamp_is_not_looked_at() -> None:
    """Some write microseconds, which no calendar has."""
    assert read(b"\x00\x40" + b"\xff" * 8).properties.native is not None


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("1", 1), ("007", 7), ("4294967296", 2**32), ("9" * 200, 2**53)])
def test_expirations(text: str, value: int) -> None:
    assert read(raw(expiration=text)).expiration_ms == value


@pytest.mark.parametrize("text", ["x", "-1", "1.5", " 1", "1_000", "+1", "٣", ""])
def test_bad_expirations(text: str) -> None:
    encoded = text.encode()
    with pytest.raises(BadExpiration, match="invalid expiration") as error:
        read(b"\x01\x00" + bytes([len(encoded)]) + encoded)
    assert error.value.code == ReplyCode.PRECONDITION_FAILED
    assert ReplyCode(error.value.code).is_soft


BAD = [
    (b"", "ends within its property flags"),
    (b"\x00", "ends within its property flags"),
    (b"\x00\x01\x00\x00", "flags of properties that there are not"),
    (b"\x00\x02", "flags of properties that there are not"),
    (b"\x80\x00\x05abcd", "ends within its content-type"),
    (b"\x20\x00\x00\x00\x00\x05\x01aS\x00", "ends within its headers"),
    (b"\x20\x00\x00\x00\x00\x04\x03aaa", "ends within its headers"),
    (b"\x10\x00", "ends within its delivery-mode"),
    (b"\x00\x40" + b"\0" * 7, "ends within its timestamp"),
    (b"\x00\x00x", "1 bytes behind its properties"),
]


@pytest.mark.parametrize(("data", "words"), BAD, ids=[row[1] + row[0].hex()[:6] for row in BAD])
def test_malformed(data: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words) as error:
        read(data)
    assert error.value.code == ReplyCode.SYNTAX_ERROR


def test_cut_short_anywhere() -> None:
    data = raw(**ALL)
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            read(data[:end])


# -- altered -----------------------------------------------------------------------------------------------------------

ODD = (
    b"\x01dd" + struct.pack(">d", 0.1) + b"\x01ff" + struct.pack(">f", 0.1) + b"\x01iB\x05" + b"\x01lI\0\0\0\x07"
    + b"\x01TT" + (2**63).to_bytes(8, "big") + b"\x01rS\0\0\0\x02\xff\xfe" + b"\x01VV"
    + b"\x01nF\0\0\0\x05\x01au\0\x01"
)  # fmt: skip
"""Values whose types would be others if they were written anew."""
WITH_ODD = b"\x29\x00" + len(ODD).to_bytes(4, "big") + ODD + b"\x05" + b"\x0260"


def test_headers_that_stay_keep_their_bytes() -> None:
    headers = read(WITH_ODD).headers
    assert list(headers) == ["d", "f", "i", "l", "T", "r", "V", "n"]
    altered = with_headers(WITH_ODD, headers | {"new": "x"})
    assert altered[:2] == WITH_ODD[:2]
    assert altered[6 : 6 + len(ODD)] == ODD
    assert read(altered).headers == headers | {"new": "x"}
    assert altered.endswith(b"\x05\x0260")
    assert with_headers(WITH_ODD, headers) == WITH_ODD


def test_headers_that_change() -> None:
    data = raw(**ALL)
    altered = with_headers(data, {"n": True, "x-death": [{"count": 1, "time": ALL["timestamp"], "queue": "q"}]})
    assert seen(altered) == ALL | {
        "headers": {"n": True, "x-death": [{"count": 1, "time": ALL["timestamp"], "queue": "q"}]}
    }
    assert read(altered).headers["n"] is True


def test_a_number_of_another_type_is_another_value() -> None:
    data = with_headers(NONE, {"n": 1})
    assert read(with_headers(data, {"n": True})).headers["n"] is True
    assert read(with_headers(data, {"n": 1.0})).headers["n"] == 1.0
    assert type(read(with_headers(data, {"n": 1.0})).headers["n"]) is float


def test_headers_where_there_were_none() -> None:
    without = {name: value for name, value in ALL.items() if name != "headers"}
    assert seen(with_headers(raw(**without), {"a": 1})) == without | {"headers": {"a": 1}}
    assert read(with_headers(NONE, {"a": 1})).headers == {"a": 1}


def test_another_reply_to() -> None:
    assert seen(with_reply_to(raw(**ALL), "amq.gen-1")) == ALL | {"reply_to": "amq.gen-1"}
    assert seen(with_reply_to(NONE, "amq.gen-1")) == {"reply_to": "amq.gen-1"}


@pytest.mark.parametrize("data", [row[0] for row in BAD], ids=[row[0].hex()[:6] for row in BAD])
def test_what_is_malformed_is_not_altered(data: bytes) -> None:
    for alter in (lambda data: with_reply_to(data, "x"), lambda data: with_headers(data, {})):
        try:
            altered = alter(data)
        except ProtocolError:
            continue
        with pytest.raises(ProtocolError):  # only the inside of the headers is not looked at
            read(altered)


# -- from MQTT ---------------------------------------------------------------------------------------------------------


def test_written_anew() -> None:
    properties = Properties(1, "text/plain", "reply/to.me", b"corr", (("a", "1"), ("b", "2"), ("a", "again")))
    assert seen(write(properties, 1)) == {
        "content_type": "text/plain", "headers": {"a": "1", "b": "2", REPLY_TOPIC: True}, "delivery_mode": 2,
        "correlation_id": "corr", "reply_to": "reply.to/me",
    }  # fmt: skip
    assert seen(write(NO_PROPERTIES, 2)) == {"delivery_mode": 2}
    assert write(NO_PROPERTIES, 0) == write(Properties(), 0) == NONE


def test_written_and_read_again() -> None:
    properties = Properties(None, "text/plain", "reply/to.me", b"corr", (("a", "1"), ("b", "2")))
    data = write(properties, 1)
    assert read(data) == Facts(
        Properties(None, "text/plain", "reply/to.me", b"corr", (("a", "1"), ("b", "2")), data),
        {"a": "1", "b": "2", REPLY_TOPIC: True}, 2, 0, None, "reply.to/me",
    )  # fmt: skip


@pytest.mark.parametrize("correlation", [b"\xff", b"x" * 256])
def test_correlation_data_that_is_no_short_text(correlation: bytes) -> None:
    data = write(Properties(correlation_data=correlation), 0)
    assert data[:2] == b"\x20\x00"
    assert AmqpReader(data, 2).table("headers") in ({"x-correlation-id": correlation}, {"x-correlation-id": "x" * 256})


def test_what_a_short_string_has_no_room_for() -> None:
    properties = Properties(content_type="x" * 256, response_topic="é" * 128, user=(("n" * 256, "x"), ("n" * 255, "x")))
    data = write(properties, 0)
    assert seen(data) == {"headers": {"n" * 255: "x", "content-type": "x" * 256, "reply-to": "é" * 128}}
