"""No input gives anything but packets and one clean protocol error; and what is written is what is read."""

from __future__ import annotations

from itertools import pairwise

import pytest
from bench.wires.packets import (
    encode_ack,
    encode_auth,
    encode_connect,
    encode_disconnect,
    encode_publish,
    encode_subscribe,
    encode_unsubscribe,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.fuzz.seeded import cuts, mutated, seeded
from tests.wire.mqtt_table import CONNACKS, CONNECTS, FROM_CLIENT, FROM_SERVER, open_decoder, plain

from headway.core.base.errors import ProtocolError, Reason
from headway.core.message.record import NO_PROPERTIES, Properties
from headway.wire.mqtt.codes import CLIENT_DISCONNECT_CODES, PUBACK_CODES, PUBREL_CODES
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import (
    Ack,
    AckRun,
    Auth,
    Connect,
    DisconnectPacket,
    PubAck,
    PubComp,
    PubRec,
    PubRel,
    Subscribe,
    TopicRequest,
    Unsubscribe,
    WillMessage,
)
from headway.wire.mqtt.primitives import MqttReader
from headway.wire.mqtt.properties import PROPERTY_TABLE, Fields, read_properties, write_properties
from headway.wire.mqtt.replies import Replies
from headway.wire.mqtt.scan import numbers_of

ALIASES = 8


def fuzz(examples=100):
    """A deadline would measure the machine."""
    return settings(max_examples=examples, deadline=None)


SEEDS = [(version, data, "server") for _, version, data, _ in FROM_CLIENT] + [
    (version, data, "client") for _, version, data, _ in FROM_SERVER
]
FIRST = [(version, data, "server") for _, version, data, _ in CONNECTS] + [
    (version, data, "client") for _, version, data, _ in CONNACKS
]

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10)
topics = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=10)
users = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
packet_ids = st.integers(1, 65_535)
u32 = st.integers(0, 0xFFFF_FFFF)
properties = st.builds(
    Properties,
    payload_format=st.sampled_from([None, 0, 1]),
    content_type=st.none() | texts,
    response_topic=st.none() | topics,
    correlation_data=st.none() | st.binary(max_size=8),
    user=users,
)


def feed_in_pieces(decoder, data, cuts):
    """All items, whatever the cuts; checks what must hold after each read."""
    items = []
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, end in pairwise(places):
        failed = decoder.error is not None
        got = decoder.feed(data[start:end])
        assert not (failed and got)
        items.extend(got)
        assert decoder.buffered_bytes <= len(data)
        if decoder.error is not None:
            assert decoder.buffered_bytes == 0
    return items


def check(decoder, items):
    """The decoder ended well, or with an error that can be told to the client."""
    for item in items:
        plain(item)
    error = decoder.error
    if error is None:
        return
    assert type(error) is ProtocolError
    assert error.reason in (Reason.MALFORMED, Reason.PROTOCOL_ERROR, Reason.PACKET_TOO_LARGE)
    assert 0x80 < error.code < 0xA3
    assert "(packet " in str(error)
    for version in (0, 4, 5):
        for connected in (True, False):
            Replies(version).refuse(error, connected)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
@fuzz()
def test_random_bytes_first(data, cuts):
    clients = [MqttDecoder(1000, role="client", version=version) for version in (4, 5)]
    for decoder in (MqttDecoder(1000), *clients):
        check(decoder, feed_in_pieces(decoder, data, cuts))


@given(st.sampled_from([4, 5]), st.sampled_from(["server", "client"]), st.binary(max_size=200))
@fuzz(300)
@example(5, "server", bytes.fromhex("300500017402"))
@example(5, "server", b"\x30\x00")
def test_random_bytes_later(version, role, data):
    decoder = open_decoder(version, role, packet_bytes_max=1000, topic_alias_max=ALIASES)
    check(decoder, feed_in_pieces(decoder, data, []))


@given(
    st.sampled_from([4, 5]), st.sampled_from(["server", "client"]),
    st.sampled_from([0x30, 0x31, 0x32, 0x3D, 0x40, 0x62, 0x82, 0x90, 0xA2, 0xB0, 0xE0, 0xF0]), st.binary(max_size=60),
)
@fuzz(500)
def test_random_bodies(version, role, first, body):
    decoder = open_decoder(version, role, topic_alias_max=ALIASES)
    check(decoder, decoder.feed(bytes((first, len(body))) + body))


@given(st.binary(max_size=60), st.sampled_from([4, 5]))
@fuzz(300)
def test_random_connects(body, version):
    decoder = MqttDecoder()
    head = b"\x00\x04MQTT" + bytes((version,))
    check(decoder, decoder.feed(bytes((0x10, len(head) + len(body))) + head + body))


def mutation(rng, packets):
    """A packet of the table with bytes changed, cut out, or put in; its length mended or not. And where it is cut."""
    version, data, role = rng.choice(packets)
    out = mutated(rng, data[:300], 1, (0, 1, 0x7F, 0x80, 0xFF))
    if rng.random() < 0.5 and 2 <= len(out) < 130:
        out[1] = len(out) - 2
    return version, bytes(out), role, cuts(rng, 3, 300)


@given(seeded(lambda rng: mutation(rng, SEEDS)))
@fuzz(1000)
def test_mutated_packets(mutation):
    version, data, role, cuts = mutation
    one = open_decoder(version, role, topic_alias_max=ALIASES)
    items = feed_in_pieces(one, data, [])
    check(one, items)
    other = open_decoder(version, role, topic_alias_max=ALIASES)
    pieces = feed_in_pieces(other, data, cuts)
    check(other, pieces)
    # How the bytes were cut changes neither what is understood nor what is refused.
    assert (one.error is None) == (other.error is None)
    assert str(one.error) == str(other.error)
    assert (one.packets, one.buffered_bytes) == (other.packets, other.buffered_bytes)


@given(seeded(lambda rng: mutation(rng, FIRST)))
@fuzz(500)
def test_mutated_openings(mutation):
    version, data, role, _ = mutation
    decoder = MqttDecoder(role=role, version=version if role == "client" else 0)
    check(decoder, decoder.feed(data))


def a_read(rng):
    """Publishes of few topics and sizes, most of them neighbours that are alike, and acknowledgements; some have no
    packet id."""
    data, version = b"", rng.choice((4, 5))
    for _ in range(rng.randint(1, 8)):
        topic, qos, dup = rng.choice(("a", "ab", "b" * 200)), rng.choice((0, 1, 1, 1, 2, 2)), rng.random() < 0.1
        size, user = rng.choice((0, 1, 1, 5, 120, 300)), rng.choice(((), (), (("k", "v"),)))
        kind = rng.choice((4, 5, 6, 7))
        for _ in range(rng.choice((1, 2, 3, 20, 60)) if rng.random() < 0.3 else 0):
            kind = rng.choice((4, 4, 5, 6, 7)) if rng.random() < 0.2 else kind
            data += encode_ack(kind, rng.choice((*range(1, 20), 256, 512, 65_535, rng.randint(0, 300))))
        for _ in range(rng.choice((1, 2, 3, 20, 60))):
            if rng.random() < 0.05:
                size = rng.choice((0, 1, 5, 127, 128))
            packet_id = rng.choice((*range(1, 20), 256, 512, 65_535, rng.randint(0, 300))) if qos else 0
            data += encode_publish(topic, rng.randbytes(size), version=version, qos=qos, dup=dup and qos > 0,
                                   packet_id=packet_id, properties=Properties(user=user))
    return version, data, cuts(rng, 3, len(data))


def one_by_one(items):
    for item in map(plain, items):
        if isinstance(item, Ack):
            yield item
        elif isinstance(item, AckRun):
            yield from map(item.kind, numbers_of(item.packet_ids))
        elif item[0] == "publish":
            yield item[1].topic, item[1].payloads[0], item[1].properties, item[2], item[3], item[4]
        elif item[0] == "publishes":
            for payload, packet_id in zip(item[1].payloads, item[2], strict=True):
                yield item[1].topic, payload, item[1].properties, item[1].qos, packet_id, False
        else:
            for payload in item.payloads:
                yield item.topic, payload, item.properties, 0, 0, False


@given(seeded(a_read))
@fuzz(500)
def test_runs_are_what_single_messages_are(read):
    """A client's decoder makes no runs of messages that have packet ids."""
    version, data, cuts = read
    server, client = (open_decoder(version, role, packet_bytes_max=400) for role in ("server", "client"))
    items, singles = feed_in_pieces(server, data, cuts), feed_in_pieces(client, data, [])
    assert list(one_by_one(items)) == list(one_by_one(singles))
    assert str(server.error) == str(client.error)
    assert server.packets == client.packets


# What is written is what is read.


def read_one(data, version, role="server"):
    decoder = open_decoder(version, role, topic_alias_max=65_535)
    (item,) = decoder.feed(data)
    assert (decoder.error, decoder.buffered_bytes) == (None, 0)
    return plain(item)


wills = st.builds(
    WillMessage, topic=topics, payload=st.binary(max_size=8), qos=st.integers(0, 2), retain=st.booleans(), delay_s=u32,
    expiry_s=st.none() | u32, properties=properties,
)
connects_5 = st.builds(
    Connect,
    version=st.just(5), client_id=texts, clean_start=st.booleans(), keep_alive_s=st.integers(0, 65_535),
    will=st.none() | wills, username=st.none() | texts, password=st.none() | st.binary(max_size=8),
    session_expiry_s=u32, receive_max=st.integers(1, 65_535), max_packet_bytes=st.none() | st.integers(1, 0xFFFF_FFFF),
    topic_alias_max=st.integers(0, 65_535), request_response_info=st.booleans(), request_problem_info=st.booleans(),
    auth_method=texts, auth_data=st.none() | st.binary(max_size=8), user=users,
)


@given(connects_5)
@fuzz()
def test_connect_5(packet):
    assert MqttDecoder().feed(encode_connect(packet)) == [packet]


@given(texts, st.booleans(), st.integers(0, 65_535), st.none() | wills, st.none() | texts, st.binary(max_size=8))
@fuzz()
def test_connect_4(client_id, clean, keep_alive, will, username, password):
    if will is not None:
        will = WillMessage(will.topic, will.payload, will.qos, will.retain)
    packet = Connect(
        4, client_id or "c", clean, keep_alive, will, username, None if username is None else password,
        session_expiry_s=0 if clean else 0xFFFF_FFFF,
    )
    assert MqttDecoder().feed(encode_connect(packet)) == [packet]


@given(
    topics, st.lists(st.binary(max_size=200), min_size=1, max_size=8), st.booleans(),
    st.just(NO_PROPERTIES) | properties, st.sampled_from([4, 5]),
)
@fuzz()
def test_runs(topic, payloads, retain, props, version):
    if version == 4:
        props = NO_PROPERTIES
    frames = b"".join(
        encode_publish(topic, payload, version=version, retain=retain, properties=props) for payload in payloads
    )
    decoder = open_decoder(version)
    (run,) = decoder.feed(frames)
    assert decoder.error is None
    assert [run.payload(index) for index in range(len(run))] == payloads
    assert (run.topic, run.retain, run.properties, run.data) == (topic, retain, props, frames)


@given(
    topics, st.binary(max_size=200), packet_ids, st.integers(1, 2), st.booleans(), st.booleans(), properties,
    st.none() | u32, st.none() | packet_ids,
)
@fuzz()
def test_publish(topic, payload, packet_id, qos, retain, dup, props, expiry_s, alias):
    frame = encode_publish(
        topic, payload, qos=qos, packet_id=packet_id, retain=retain, dup=dup, properties=props, expiry_s=expiry_s,
        alias=alias,
    )
    _, run, *rest = read_one(frame, 5)
    assert run == (topic, (payload,), None, qos, retain, props)
    assert rest == [qos, packet_id, dup, expiry_s, ()]


filters = texts.filter(bool)
entries = st.builds(
    TopicRequest, filter=filters, qos=st.integers(0, 2), no_local=st.booleans(), retain_as_published=st.booleans(),
    retain_handling=st.integers(0, 2),
)


@given(packet_ids, st.lists(entries, min_size=1, max_size=4).map(tuple), st.none() | st.integers(1, 268_435_455), users)
@fuzz()
def test_subscribe(packet_id, wanted, identifier, user):
    frame = encode_subscribe(packet_id, wanted, identifier=identifier, user=user)
    assert read_one(frame, 5) == Subscribe(packet_id, wanted, identifier, user)


@given(packet_ids, st.lists(filters, min_size=1, max_size=4).map(tuple), users, st.sampled_from([4, 5]))
@fuzz()
def test_unsubscribe(packet_id, filters, user, version):
    frame = encode_unsubscribe(packet_id, filters, version=version, user=user)
    assert read_one(frame, version) == Unsubscribe(packet_id, filters, user if version == 5 else ())


@given(packet_ids, st.sampled_from(sorted(PUBACK_CODES)), st.sampled_from(sorted(PUBREL_CODES)))
@fuzz()
def test_acks(packet_id, code, rel_code):
    for kind, made, its_code in ((4, PubAck, code), (5, PubRec, code), (6, PubRel, rel_code), (7, PubComp, rel_code)):
        assert read_one(encode_ack(kind, packet_id, its_code), 5) == made(packet_id, its_code)


@given(st.sampled_from(sorted(CLIENT_DISCONNECT_CODES)), st.none() | u32, st.none() | texts, users)
@fuzz()
def test_disconnect(code, expiry, reason, user):
    packet = DisconnectPacket(code, expiry, reason, None, user)
    assert read_one(encode_disconnect(packet), 5) == packet


@given(st.sampled_from([0x18, 0x19]), texts, st.none() | st.binary(max_size=8), st.none() | texts, users)
@fuzz()
def test_auth(code, method, data, reason, user):
    packet = Auth(code, method, data, reason, user)
    assert read_one(encode_auth(packet), 5) == packet


_VALUES = {
    "flag": st.integers(0, 1), "u16": st.integers(0, 65_535), "u16+": packet_ids, "alias": packet_ids, "u32": u32,
    "u32+": st.integers(1, 0xFFFF_FFFF), "text": texts, "topic": topics, "binary": st.binary(max_size=8), "pair": users,
    "varint+": st.lists(st.integers(1, 268_435_455), max_size=1).map(tuple),
}


@pytest.mark.parametrize("packet", sorted({packet for row in PROPERTY_TABLE for packet in row.packets}))
@given(data=st.data())
@fuzz(20)
def test_properties(packet, data):
    fields = Fields()
    for row in PROPERTY_TABLE:
        if packet in row.packets and data.draw(st.booleans()):
            setattr(fields, row.name, data.draw(_VALUES[row.kind]))
    raw = write_properties(fields)
    reader = MqttReader(raw + b"more")
    assert read_properties(reader, packet) == fields
    assert reader.rest() == b"more"
