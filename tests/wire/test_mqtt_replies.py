"""Replies, byte by byte in both versions, and within the size the client takes."""

from __future__ import annotations

from itertools import product
from struct import pack

import pytest
from tests.wire.mqtt_table import open_decoder, raw

from headway.core.base.errors import ProtocolError, Reason
from headway.wire.mqtt.codes import CONNACK_CODES, SERVER_DISCONNECT_CODES, ReasonCode, find_code
from headway.wire.mqtt.packets import Auth, Connect, DisconnectPacket, PubAck, PubComp, PubRec, PubRel, SubAck, UnsubAck
from headway.wire.mqtt.properties import Fields
from headway.wire.mqtt.replies import Replies

USER = (("k", "v"),)


@pytest.mark.parametrize(
    ("version", "call", "expected"),
    [
        (4, lambda r: r.connack(), raw("20 02 00 00")),
        (4, lambda r: r.connack(session_present=True), raw("20 02 01 00")),
        (4, lambda r: r.connack(0x84), raw("20 02 00 01")),
        (4, lambda r: r.connack(0x85, session_present=True), raw("20 02 00 02")),
        (4, lambda r: r.connack(0x97), raw("20 02 00 03")),
        (4, lambda r: r.connack(0x86), raw("20 02 00 04")),
        (4, lambda r: r.connack(0x87), raw("20 02 00 05")),
        (4, lambda r: r.connack(0x81), None),
        (5, lambda r: r.connack(), raw("20 03 00 00 00")),
        (5, lambda r: r.connack(session_present=True, fields=Fields(receive_max=5)), raw("20 06 01 00 03 21 0005")),
        (5, lambda r: r.connack(0x8B), raw("20 03 00 88 00")),
        (4, lambda r: r.puback(0x102, 0x97, "no", USER), raw("40 02 0102")),
        (5, lambda r: r.puback(0x102), raw("40 02 0102")),
        (5, lambda r: r.puback(0x102, 0x10), raw("40 03 0102 10")),
        (5, lambda r: r.puback(0x102, 0x97, "no"), raw("40 09 0102 97 05 1f 0002", b"no")),
        (5, lambda r: r.pubrec(1, 0, "", USER), raw("50 0b 0001 00 07 26 0001", b"k", "0001", b"v")),
        (4, lambda r: r.pubrec(1), raw("50 02 0001")),
        (4, lambda r: r.pubrel(1), raw("62 02 0001")),
        (5, lambda r: r.pubrel(1, 0x92), raw("62 03 0001 92")),
        (5, lambda r: r.pubcomp(1), raw("70 02 0001")),
        (4, lambda r: r.suback(10, [0, 2, 0x97]), raw("90 05 000a 00 02 80")),
        (5, lambda r: r.suback(10, [0, 2, 0x97]), raw("90 06 000a 00 00 02 97")),
        (4, lambda r: r.unsuback(10, [0, 0x11]), raw("b0 02 000a")),
        (5, lambda r: r.unsuback(10, [0, 0x11]), raw("b0 05 000a 00 00 11")),
        (5, lambda r: r.pingresp(), raw("d0 00")),
        (4, lambda r: r.disconnect(0x97, "slow"), None),
        (5, lambda r: r.disconnect(), raw("e0 02 00 00")),
        (5, lambda r: r.disconnect(0x97, "slow"), raw("e0 09 97 07 1f 0004", b"slow")),
        (5, lambda r: r.disconnect(0x9D, server_reference="b"), raw("e0 06 9d 04 1c 0001", b"b")),
        (5, lambda r: r.disconnect(0x84), raw("e0 02 80 00")),
        (5, lambda r: r.auth(0x18, "m", b"d"), raw("f0 0a 18 08 15 0001", b"m", "16 0001", b"d")),
        (4, lambda r: r.auth(0x18, "m"), None),
    ],
)
def test_bytes(version, call, expected):
    assert call(Replies(version)) == expected


@pytest.mark.parametrize("kind", [PubAck, PubRec, PubRel, PubComp])
@pytest.mark.parametrize("most", [3, 4, 5, 20, None])
def test_many_at_once_are_what_they_are_one_by_one(kind, most):
    ids = [1, 255, 256, 65_535, 7]
    for version, code, reason, wants in product((4, 5), (0, 0x10, 0x92), ("", "no"), (False, True)):
        replies = Replies(version, most, wants)
        one = getattr(replies, kind.__name__.lower())
        singles = b"".join(one(number, code, reason) for number in ids)
        assert replies.acks(kind, pack(">5H", *ids), code, reason) == singles


def test_a_client_reads_them_back():
    replies = Replies(5)
    decoder = open_decoder(5, "client")
    sent = b"".join(
        [
            replies.suback(1, [1, 0x8F], "bad filter", USER),
            replies.unsuback(2, [0], "gone", USER),
            replies.auth(0x18, "m", b"d", "next"),
            replies.disconnect_for(Reason.LAG_BYTES, "behind", USER),
        ]
    )
    assert decoder.feed(sent) == [
        SubAck(1, (1, 0x8F), "bad filter", USER),
        UnsubAck(2, (0,), "gone", USER),
        Auth(0x18, "m", b"d", "next"),
        DisconnectPacket(0x97, None, "behind", None, USER),
    ]


def test_words_are_dropped_until_the_packet_fits():
    whole = Replies(5).disconnect(0x97, "reason", USER)
    assert whole is not None
    without_user = Replies(5).disconnect(0x97, "reason")
    bare = Replies(5).disconnect(0x97)
    assert without_user is not None
    assert Replies(5, len(whole)).disconnect(0x97, "reason", USER) == whole
    assert Replies(5, len(whole) - 1).disconnect(0x97, "reason", USER) == without_user
    assert Replies(5, len(without_user)).disconnect(0x97, "reason", USER) == without_user
    assert Replies(5, len(without_user) - 1).disconnect(0x97, "reason", USER) == bare


def test_connack_keeps_what_the_client_must_know():
    fields = Fields(receive_max=5, reason_string="x" * 100, user=USER)
    frame = Replies(5, 20).connack(fields=fields)
    assert frame == raw("20 06 00 00 03 21 0005")


def test_a_client_that_wants_no_problem_information():
    replies = Replies.to(Connect(5, "c", True, max_packet_bytes=1000, request_problem_info=False))
    assert replies.packet_bytes_max == 1000
    assert replies.puback(1, 0x97, "no", USER) == raw("40 03 0001 97")
    assert replies.suback(1, [0], "no", USER) == raw("90 04 0001 00 00")
    # CONNACK and DISCONNECT may say why all the same.
    assert b"slow" in (replies.disconnect(0x97, "slow") or b"")
    assert b"full" in (replies.connack(0x97, fields=Fields(reason_string="full")) or b"")


def test_a_very_long_reason_is_cut():
    frame = Replies(5).disconnect(0x97, "€" * 70_000)
    (packet,) = open_decoder(5, "client").feed(frame)
    assert len(packet.reason) == 8192


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_has_a_code_that_may_be_sent(reason):
    code = find_code(reason)
    assert code in SERVER_DISCONNECT_CODES
    (packet,) = open_decoder(5, "client").feed(Replies(5).disconnect_for(reason, reason))
    assert (packet.code, packet.reason) == (code, reason)


@pytest.mark.parametrize(
    "reason", [Reason.LAG_BYTES, Reason.DRAIN_RATE, Reason.BLOCKED, Reason.MEMORY_LIMIT, Reason.FLAPPING]
)
def test_the_slow_hear_quota_exceeded(reason):
    assert find_code(reason) == ReasonCode.QUOTA_EXCEEDED


@pytest.mark.parametrize("code", list(ReasonCode))
def test_any_code_gives_a_valid_connack(code):
    frame = Replies(5).connack(code)
    assert frame is not None
    assert frame[3] in CONNACK_CODES
    old = Replies(4).connack(code)
    assert old is None or old[3] <= 5


def test_refusals():
    error = ProtocolError("PUBLISH is odd", reason=Reason.PROTOCOL_ERROR, code=0x94)
    assert open_decoder(5, "client").feed(Replies(5).refuse(error, connected=True)) == [
        DisconnectPacket(0x94, None, "PUBLISH is odd")
    ]
    assert Replies(4).refuse(error, connected=True) is None
    assert Replies(0).refuse(error, connected=False) is None
    assert Replies(4).refuse(ProtocolError("", code=0x84), connected=False) == raw("20 02 00 01")
    before = Replies(5).refuse(error, connected=False)
    assert before is not None
    assert before[3] == 0x82
    assert b"PUBLISH is odd" in before
    assert Replies(5).refuse(ProtocolError("x"), connected=True)[2] == 0x81
