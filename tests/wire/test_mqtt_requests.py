"""A client's packets, byte by byte, and user properties that are read at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.mqtt_table import raw

from headway.core.base.errors import ProtocolError
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import (
    Connect,
    DisconnectPacket,
    PingReq,
    PubAck,
    Subscribe,
    TopicRequest,
    Unsubscribe,
    encode_ack,
    encode_connect,
    encode_disconnect,
    encode_pingreq,
    encode_subscribe,
    encode_unsubscribe,
)
from headway.wire.mqtt.primitives import MqttReader, write_varint
from headway.wire.mqtt.properties import Fields, read_properties, read_user, write_user

USER = (("k", "v"),)
LOGIN = Connect(5, "me", True, 60, username="u", password=b"p", receive_max=64)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (encode_connect(Connect(5, "me", True, 60)), raw("10 0f 0004", b"MQTT", "05 02 003c 00 0002", b"me")),
        (encode_connect(LOGIN),
         raw("10 18 0004", b"MQTT", "05 c2 003c 03 21 0040 0002", b"me", "0001", b"u", "0001", b"p")),
        (encode_subscribe(258, [TopicRequest("a/#", 1, retain_handling=2)], user=USER),
         raw("82 10 0102 07 26 0001", b"k", "0001", b"v", "0003", b"a/#", "21")),
        (encode_unsubscribe(1, ["a/#"]), raw("a2 08 0001 00 0003", b"a/#")),
        (encode_ack(4, 258), raw("40 02 0102")),
        (encode_pingreq(), raw("c0 00")),
        (encode_disconnect(), raw("e0 00")),
    ],
)  # fmt: skip
def test_bytes(written: bytes, expected: bytes) -> None:
    assert written == expected


def test_a_server_reads_them_back() -> None:
    entries = (TopicRequest("a/#", 1, True, True, 2), TopicRequest("b"))
    packets = [
        LOGIN, Subscribe(1, entries, 7, USER), Unsubscribe(2, ("a/#", "b"), USER), PubAck(3), PubAck(4, 0x97),
        PingReq(), DisconnectPacket(0x04, 9, "why", None, USER),
    ]  # fmt: skip
    sent = [
        encode_connect(LOGIN), encode_subscribe(1, entries, identifier=7, user=USER),
        encode_unsubscribe(2, ["a/#", "b"], user=USER), encode_ack(4, 3), encode_ack(4, 4, 0x97), encode_pingreq(),
        encode_disconnect(DisconnectPacket(0x04, 9, "why", None, USER)),
    ]  # fmt: skip
    assert MqttDecoder().feed(b"".join(sent)) == packets


PAIRS = st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=4).map(tuple)
CHANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=2)


@given(PAIRS, CHANGES, st.integers(0, 3), st.binary(max_size=8))
def test_user_properties_are_read_at_once_as_they_are_one_by_one(
    pairs: tuple[tuple[str, str], ...], changes: list[tuple[int, int]], cut: int, behind: bytes
) -> None:
    """Whatever the bytes are: what is read at once is right, and what is malformed is left to the careful reader."""
    block = bytearray(write_user(pairs)[: -cut or None])
    for at, byte in changes:
        if at < len(block):
            block[at] = byte
    at_once = read_user(bytes(block) + behind, 0, len(block))
    assert (at_once or ()) == (_one_by_one(bytes(block)) if at_once else ())
    if not changes and not cut and not any("\0" in text for pair in pairs for text in pair):
        assert at_once == pairs


def _one_by_one(block: bytes) -> object:
    read: Callable[[MqttReader, str], Fields] = read_properties
    try:
        return read(MqttReader(write_varint(len(block)) + block), "PUBLISH").user
    except ProtocolError:
        return None
