"""The decoder against the table: each packet whole, byte by byte, and with more behind it."""

from __future__ import annotations

import json

import msgspec
import pytest
from bench.wires.packets import connect, encode_publish
from tests.wire.mqtt_table import (
    BAD_CONNECTS,
    BAD_FROM_CLIENT,
    CONNACKS,
    CONNECTS,
    FROM_CLIENT,
    FROM_SERVER,
    Plain,
    open_decoder,
    plain,
    raw,
)

from headway.core.base.errors import Reason
from headway.core.message.record import Properties, Record
from headway.wire.common import VALUES_MAX
from headway.wire.mqtt.decoder import PACKET_WORK, SHARE_BYTES, MqttDecoder
from headway.wire.mqtt.packets import ConnAck, PingReq, PingResp
from headway.wire.mqtt.primitives import MqttReader, write_frame, write_varint

ALIASES = 8
PINGREQ, PINGRESP = raw("c0 00"), raw("d0 00")
ESTABLISHED = [(*row, "server") for row in FROM_CLIENT] + [(*row, "client") for row in FROM_SERVER]
OPENINGS = [(*row, "server") for row in CONNECTS] + [(*row, "client") for row in CONNACKS]


def name_of(value):
    return value if isinstance(value, str) else None


def new_decoder(version, role):
    return MqttDecoder(role=role, version=version if role == "client" else 0)


@pytest.mark.parametrize(("name", "version", "data", "meaning", "role"), OPENINGS, ids=name_of)
class TestOpening:
    def test_whole(self, name, version, data, meaning, role):
        decoder = new_decoder(version, role)
        assert decoder.feed(data) == [meaning]
        assert (decoder.error, decoder.version, decoder.buffered_bytes) == (None, version, 0)

    def test_byte_by_byte(self, name, version, data, meaning, role):
        decoder = new_decoder(version, role)
        for index in range(len(data) - 1):
            assert decoder.feed(data[index : index + 1]) == []
            assert decoder.buffered_bytes == index + 1
        assert decoder.feed(data[-1:]) == [meaning]
        assert decoder.error is None

    def test_trailing(self, name, version, data, meaning, role):
        decoder = new_decoder(version, role)
        ping, pinged = (PINGREQ, PingReq()) if role == "server" else (PINGRESP, PingResp())
        assert decoder.feed(data + ping + ping[:1]) == [meaning, pinged]
        assert (decoder.error, decoder.buffered_bytes) == (None, 1)
        assert decoder.feed(ping[1:]) == [pinged]


@pytest.mark.parametrize(("name", "version", "data", "meanings", "role"), ESTABLISHED, ids=name_of)
class TestEstablished:
    def test_whole(self, name, version, data, meanings, role):
        decoder = open_decoder(version, role, topic_alias_max=ALIASES)
        assert [plain(item) for item in decoder.feed(memoryview(data))] == meanings
        assert (decoder.error, decoder.buffered_bytes) == (None, 0)

    def test_byte_by_byte(self, name, version, data, meanings, role):
        decoder = open_decoder(version, role, topic_alias_max=ALIASES)
        items = [plain(item) for index in range(len(data)) for item in decoder.feed(data[index : index + 1])]
        assert split_runs(items) == split_runs(meanings)
        assert (decoder.error, decoder.buffered_bytes) == (None, 0)

    def test_trailing(self, name, version, data, meanings, role):
        decoder = open_decoder(version, role, topic_alias_max=ALIASES)
        ping, pinged = (PINGREQ, PingReq()) if role == "server" else (PINGRESP, PingResp())
        assert [plain(item) for item in decoder.feed(data + ping + ping[:1])] == [*meanings, pinged]
        assert decoder.feed(ping[1:]) == [pinged]
        assert decoder.error is None

    def test_cut_anywhere(self, name, version, data, meanings, role):
        for cut in range(1, len(data), max(1, len(data) // 64)):
            decoder = open_decoder(version, role, topic_alias_max=ALIASES)
            items = [*decoder.feed(data[:cut]), *decoder.feed(data[cut:])]
            assert split_runs([plain(item) for item in items]) == split_runs(meanings)


def split_runs(items):
    """Where the reads were cut decides how long the runs are, and nothing else."""
    out = []
    for item in items:
        if isinstance(item, Plain):
            out.extend(item._replace(payloads=(payload,)) for payload in item.payloads)
        elif isinstance(item, tuple):
            out.extend((item[0], item[1]._replace(payloads=(payload,)), *item[2:]) for payload in item[1].payloads)
        else:
            out.append(item)
    return out


@pytest.mark.parametrize(("name", "version", "data", "code", "words"), BAD_CONNECTS, ids=name_of)
class TestBadOpening:
    def test_whole(self, name, version, data, code, words):
        decoder = MqttDecoder()
        assert decoder.feed(data + PINGREQ) == []
        assert decoder.error is not None
        assert words in str(decoder.error)
        assert (decoder.error.code, decoder.version) == (code, version)
        assert decoder.feed(PINGREQ) == []
        assert decoder.buffered_bytes == 0

    def test_byte_by_byte(self, name, version, data, code, words):
        decoder = MqttDecoder()
        assert [item for index in range(len(data)) for item in decoder.feed(data[index : index + 1])] == []
        assert decoder.error is not None
        assert decoder.error.code == code


@pytest.mark.parametrize(("name", "version", "data", "code", "words"), BAD_FROM_CLIENT, ids=name_of)
class TestBadEstablished:
    def test_what_came_before_is_delivered(self, name, version, data, code, words):
        decoder = open_decoder(version, topic_alias_max=ALIASES)
        good = encode_publish("t", b"x", version=version)
        assert [plain(item) for item in decoder.feed(good + good + PINGREQ + data + PINGREQ)] == [
            Plain("t", (b"x", b"x"), "mqtt-3.1.1" if version == 4 else "mqtt-5"), PingReq(),
        ]
        assert decoder.error is not None
        assert words in str(decoder.error)
        assert "(packet 5)" in str(decoder.error)
        assert decoder.error.code == code
        assert decoder.error.reason == (Reason.MALFORMED if code == 0x81 else Reason.PROTOCOL_ERROR)
        assert decoder.feed(PINGREQ) == []

    def test_byte_by_byte(self, name, version, data, code, words):
        decoder = open_decoder(version, topic_alias_max=ALIASES)
        assert [item for index in range(len(data)) for item in decoder.feed(data[index : index + 1])] == []
        assert decoder.error is not None
        assert decoder.error.code == code


def test_nobody_is_buffered_before_connect():
    decoder = MqttDecoder()
    decoder.feed(b"\x30")
    assert decoder.error is not None
    assert decoder.buffered_bytes == 0


@pytest.mark.parametrize("version", [4, 5])
def test_oversize_is_refused_at_its_header(version):
    decoder = open_decoder(version, packet_bytes_max=100)
    exact = encode_publish("t", b"x" * (100 - 5 - (version == 5)), version=version)
    assert len(exact) == 100
    assert len(decoder.feed(exact)) == 1
    longer = encode_publish("t", b"x" * (101 - 5 - (version == 5)), version=version)
    assert decoder.feed(longer[:2]) == []
    assert decoder.error is not None
    assert (decoder.error.code, decoder.error.reason) == (0x95, Reason.PACKET_TOO_LARGE)
    assert "101 bytes (at most 100)" in str(decoder.error)


def test_oversize_within_a_run_comes_after_the_run():
    decoder = open_decoder(4, packet_bytes_max=100)
    small, large = (encode_publish("t", b"x" * size, version=4) for size in (10, 100))
    (run,) = decoder.feed(small + small + large + small)
    assert len(run) == 2
    assert decoder.error is not None
    assert decoder.error.code == 0x95


def test_a_frame_that_ends_within_what_looks_like_the_same_topic():
    """Its own length cuts its topic short, though the bytes behind it would complete it."""
    good, short = raw("30 05 0003", b"abc"), raw("30 04 0003", b"ab", b"c0")
    decoder = open_decoder(4)
    (run,) = decoder.feed(good + short)
    assert (len(run), run.data) == (1, good)
    assert "within its topic" in str(decoder.error)


def test_run_holds_the_frames_as_received():
    decoder = open_decoder(5)
    frames = b"".join(encode_publish("a/b", b"x" * size) for size in (5, 5, 5, 200, 5, 20000, 20000, 0))
    partial = encode_publish("a/b", b"y")
    (run,) = decoder.feed(frames + partial[:-1])
    assert run.data == frames
    assert [len(run.payload(index)) for index in range(len(run))] == [5, 5, 5, 200, 5, 20000, 20000, 0]
    assert decoder.packets == 9
    (rest,) = decoder.feed(partial[-1:])
    assert plain(rest) == Plain("a/b", (b"y",), "mqtt-5")


def test_large_packet_in_pieces_is_scanned_once(monkeypatch):
    decoder = open_decoder(4)
    scans = []
    scan = decoder._scan
    monkeypatch.setattr(MqttDecoder, "_scan", lambda _, data, *how: scans.append(len(data)) or scan(data, *how))
    packet = encode_publish("t", b"x" * 1_000_000, version=4)
    items = [item for at in range(0, len(packet), 1000) for item in decoder.feed(packet[at : at + 1000])]
    assert [len(item.payload(0)) for item in items] == [1_000_000]
    assert scans == [1000, len(packet)]


def test_topic_names_are_one_object():
    first, second = (open_decoder(4).feed(encode_publish("one/name", b"", version=4))[0] for _ in range(2))
    assert first.topic is second.topic


def test_aliases_belong_to_their_connection():
    one, other = (open_decoder(5, topic_alias_max=1) for _ in range(2))
    assert len(one.feed(encode_publish("t", b"", alias=1))) == 1
    assert other.feed(encode_publish("", b"", alias=1)) == []
    assert other.error is not None


def test_client_wants_connack_first():
    decoder = MqttDecoder(role="client", version=5)
    assert decoder.feed(PINGRESP) == []
    assert "before CONNACK" in str(decoder.error)
    decoder = MqttDecoder(role="client", version=4)
    assert decoder.feed(raw("20 02 00 00 30 03 0001", b"t"))[0] == ConnAck()


@pytest.mark.parametrize("value", [0, 127, 128, 16383, 16384, 2097151, 2097152, 268435455])
def test_varint_is_as_short_as_can_be(value):
    raw_value = write_varint(value)
    assert MqttReader(raw_value).varint("length") == value
    assert len(raw_value) == 1 + (value >= 128) + (value >= 16384) + (value >= 2097152)


def test_plain_connect_of_the_client_module():
    for version in (4, 5):
        (packet,) = MqttDecoder().feed(connect("name", version, keep=True, keep_alive_s=7))
        assert (packet.client_id, packet.clean_start, packet.keep_alive_s) == ("name", False, 7)
        assert packet.session_expiry_s == 0xFFFF_FFFF


@pytest.mark.parametrize("items_max", [1, 3])
def test_a_little_at_a_time_is_the_same_in_the_end(items_max):
    rows = [data for _, version, data, _, role in ESTABLISHED if version == 5 and role == "server"]
    data = b"".join(rows) + PINGREQ[:1]
    whole = open_decoder(5, "server", topic_alias_max=ALIASES)
    wanted = [plain(item) for item in whole.feed(data)]
    decoder, found = open_decoder(5, "server", topic_alias_max=ALIASES), []
    assert decoder.feed(data, 0) == []
    while decoder.waits:
        some = decoder.feed(b"", items_max)
        assert len(some) <= items_max
        found += [plain(item) for item in some]
    assert found == wanted
    assert str(decoder.error) == str(whole.error)
    assert decoder.feed(PINGREQ[1:]) == whole.feed(PINGREQ[1:])
    assert decoder.packets == whole.packets


def test_a_fault_is_found_when_it_is_its_turn():
    decoder = open_decoder(5, "server")
    assert decoder.feed(PINGREQ * 3 + raw("ff 00") + PINGREQ, 2 + 2 * PACKET_WORK) == [PingReq(), PingReq()]
    assert decoder.error is None
    assert decoder.feed(b"", 2 + PACKET_WORK) == [PingReq()]
    assert decoder.error is not None
    assert not decoder.waits


PAIR = raw("26 00 01 61 00 00")
FILTER = raw("00 01 61")


def block(count):
    return write_varint(count * len(PAIR)) + PAIR * count


@pytest.mark.parametrize(
    ("packet", "text"),
    [
        (write_frame(0x82, b"\0\1", block(VALUES_MAX + 1), FILTER + b"\0"), "more than 4096 user properties"),
        (write_frame(0x30, FILTER, block(VALUES_MAX + 1)), "more than 4096 user properties"),
        (write_frame(0xE0, b"\0", block(VALUES_MAX + 1)), "more than 4096 user properties"),
        (write_frame(0x82, b"\0\1\0", (FILTER + b"\0") * (VALUES_MAX + 1)), "more than 4096 topic filters"),
        (write_frame(0xA2, b"\0\1\0", FILTER * (VALUES_MAX + 1)), "more than 4096 topic filters"),
    ],
)
def test_a_packet_has_an_end_of_what_it_lists(packet, text):
    decoder = open_decoder(5, "server")
    assert decoder.feed(packet) == []
    assert text in str(decoder.error)
    assert decoder.error.reason is Reason.PACKET_TOO_LARGE


def test_a_connect_has_few_user_properties():
    head = raw("00 04") + b"MQTT" + raw("05 02 00 00")
    decoder = MqttDecoder()
    decoder.feed(write_frame(0x10, head, block(101), raw("00 01 61")))
    assert "more than 100 user properties" in str(decoder.error)
    assert len(MqttDecoder().feed(write_frame(0x10, head, block(100), raw("00 01 61")))) == 1


def test_a_long_packet_takes_the_place_of_several_items():
    decoder = open_decoder(5, "server")
    long = write_frame(0x82, b"\0\1", block(1000), FILTER + b"\0")
    assert len(decoder.feed(long * 3 + PINGREQ, 100)) == 1
    assert decoder.extra_work == PACKET_WORK + len(long) // SHARE_BYTES
    assert decoder.waits
    assert [len(decoder.feed(b"", 100)) for _ in range(3)] == [1, 1, 1]


def test_what_an_alias_takes_up_is_the_same_before_and_after_its_text_was_encoded():
    """Python keeps a text's UTF-8 beside it once it was asked for, and ``__sizeof__`` counts that."""
    decoder = open_decoder(5, topic_alias_max=1)
    (run,) = decoder.feed(encode_publish("v/" + "\u00e9" * 1000, b"", alias=1))
    first = decoder.remembered_bytes
    json.dumps(run.topic, ensure_ascii=False).encode()
    msgspec.json.encode(run.topic)
    decoder.feed(encode_publish("v/" + "\u00e9" * 1000, b"", alias=1))
    assert decoder.remembered_bytes == first > 1000
    decoder.feed(encode_publish("v", b"", alias=1))
    assert decoder.remembered_bytes == 1


def test_what_a_record_takes_up_is_the_same_before_and_after_its_texts_were_encoded():
    topic, user = "v/\u20ac" * 100, (("\u00e9" * 100, "\U0001f600" * 100),)
    before = Record(topic, b"x", Properties(user=user)).size
    msgspec.json.encode([topic, user])
    assert Record(topic, b"x", Properties(user=user)).size == before > 600
