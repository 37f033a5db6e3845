"""What subscribers are sent: one test per thing a dialect adds, and all of it read back by a client's decoder."""

from __future__ import annotations

from math import inf

import pytest
from bench.wires.packets import encode_publish
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.mqtt_table import Plain, open_decoder, plain, publish, raw

from headway.core.message.record import NO_PROPERTIES, Gap, Properties, Record, Run, seconds_left
from headway.wire.mqtt.dialect import MqttDialect

ALL = Properties(1, "text/plain", "reply/to", b"\x00\x01", (("k", "v"), ("k", "w"), ("offset", "publisher's own")))
GAP = Gap(7, 100, 106, "conflated")
GAP_USER = (("gap-records", "7"), ("gap-reason", "conflated"), ("gap-first", "100"), ("gap-last", "106"))

dialects = st.builds(
    MqttDialect,
    version=st.sampled_from([4, 5]),
    qos=st.integers(0, 2),
    identifier=st.none() | st.integers(1, 268_435_455),
    retain_as_published=st.booleans(),
    offsets=st.booleans(),
)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
topics = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=20)
properties = st.builds(
    Properties,
    payload_format=st.sampled_from([None, 0, 1]),
    content_type=st.none() | texts,
    response_topic=st.none() | topics,
    correlation_data=st.none() | st.binary(max_size=8),
    user=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
) | st.just(NO_PROPERTIES)
payloads = st.binary(max_size=40) | st.integers(100, 140).map(bytes)
runs = st.builds(
    lambda topic, bodies, qos, retain, props, expires: payload_run(topic, bodies, qos, retain, props, expires),
    topics, st.lists(payloads, min_size=1, max_size=6), st.integers(0, 2), st.booleans(), properties,
    st.just(inf) | st.just(99.0),
)
alike = st.builds(
    lambda topic, count, size, *more: alike_run(topic, [bytes([at]) * size for at in range(count)], *more),
    topics, st.integers(2, 40), st.integers(0, 130), st.integers(0, 2), st.booleans(), properties,
    st.just(inf) | st.just(99.0),
)


def payload_run(topic, bodies, qos=0, retain=False, props=NO_PROPERTIES, expires=inf):
    ends, at = [], 0
    for body in bodies:
        at += len(body)
        ends.append(at)
    starts = [end - len(body) for end, body in zip(ends, bodies, strict=True)]
    return Run(topic, b"".join(bodies), ends, starts, None, qos, retain, props, expires)


def alike_run(topic, bodies, qos, retain, props, expires):
    """Records of one size with something before each, as they come."""
    count, size = len(bodies), len(bodies[0]) + 3
    ends, starts = range(size, size * count + 1, size), range(3, size * count + 1, size)
    return Run(topic, b"".join(b"***" + body for body in bodies), ends, starts, None, qos, retain, props, expires)


def read(frame, version):
    """One frame as a subscriber's decoder sees it."""
    decoder = open_decoder(version, "client")
    (item,) = decoder.feed(frame)
    assert (decoder.error, decoder.buffered_bytes) == (None, 0)
    return plain(item)


def cut(frames):
    return [frames.data[start:end] for start, end in zip([0, *frames.ends], frames.ends, strict=False)]


@pytest.mark.parametrize(
    ("dialect", "run", "expected"),
    [
        (MqttDialect(4), Record("t", b"x").run(), raw("30 04 0001", b"tx")),
        (MqttDialect(5), Record("t", b"x").run(), raw("30 05 0001", b"t", "00 78")),
        (MqttDialect(4, 2), Record("t", b"x", qos=1).run(), raw("32 06 0001", b"t", "0000 78")),
        (MqttDialect(5, 2), Record("t", b"x", qos=2).run(), raw("34 07 0001", b"t", "0000 00 78")),
        (MqttDialect(4, 1), Record("t", b"x", qos=0).run(), raw("30 04 0001", b"tx")),
        (MqttDialect(4), Record("t", b"x", retain=True).run(), raw("30 04 0001", b"tx")),
        (MqttDialect(4, retain_as_published=True), Record("t", b"x", retain=True).run(), raw("31 04 0001", b"tx")),
        (MqttDialect(5, identifier=200), Record("t", b"x").run(), raw("30 08 0001", b"t", "03 0b c801 78")),
        (MqttDialect(4, identifier=200, offsets=True), Record("t", b"x").run(), raw("30 04 0001", b"tx")),
        (MqttDialect(5), Record("t", b"x", Properties(1), expires_s=1.0).run(),
         raw("30 0c 0001", b"t", "07 02 00000000 01 01 78")),
        (MqttDialect(4), Record("t", b"x", ALL, expires_s=1.0).run(), raw("30 04 0001", b"tx")),
    ],
)
def test_bytes(dialect, run, expected):
    assert dialect.encode(run, 1).data == expected


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("props", [NO_PROPERTIES, ALL])
def test_own_form_passes_as_received(version, props):
    if version == 4 and props is ALL:
        props = NO_PROPERTIES
    frame = encode_publish("a/b", b"x" * 10, version=version, properties=props)
    (run,) = open_decoder(version).feed(frame * 3)
    for qos in (0, 1, 2):
        dialect = MqttDialect(version, qos, retain_as_published=True)
        assert run.form == dialect.form
        frames = dialect.encode(run, 1)
        assert frames.data is run.data
        assert (frames.ends, frames.holes, frames.expiries) == (run.ends, (), ())


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (encode_publish("t", b"x", retain=True), "retained"),
        (encode_publish("t", b"x", alias=3), "alias"),
        (encode_publish("t", b"x", expiry_s=3), "expiry"),
        (encode_publish("t", b"x", qos=1, packet_id=9), "QoS 1"),
    ],
)
def test_no_form_for_what_cannot_pass(frame, why):
    (item,) = open_decoder(5, topic_alias_max=3).feed(frame)
    run = item if isinstance(item, Run) else item.run
    assert run.form is None
    encoded = MqttDialect(5).encode(run, 1)
    assert read(encoded.data, 5) == Plain("t", (b"x",), "mqtt-5")


def test_a_dialect_that_adds_something_takes_no_frames_as_they_are():
    forms = [MqttDialect(5, identifier=1).form, MqttDialect(5, offsets=True).form]
    for form in forms:
        assert form is not None
        assert form not in (MqttDialect(5).form, MqttDialect(4).form)


def test_the_other_version_is_rewritten():
    payloads = [b"x" * size for size in (3, 3, 200, 200, 3)]
    for version, other in ((4, 5), (5, 4)):
        frames = b"".join(encode_publish("a/b", payload, version=version) for payload in payloads)
        (run,) = open_decoder(version).feed(frames)
        assert MqttDialect(other).encode(run, 1).data == b"".join(
            encode_publish("a/b", payload, version=other) for payload in payloads
        )


def test_dialects_are_equal_by_value_and_hashable():
    assert len({MqttDialect(5), MqttDialect(5), MqttDialect(5, 1), MqttDialect(5, identifier=1)}) == 3


@given(dialects, runs | alike, st.integers(0, 10**12))
@settings(deadline=None)
def test_frames_read_back_as_the_records(dialect, run, first_sequence):
    frames = dialect.encode(run, first_sequence)
    qos = min(run.qos, dialect.qos)
    retain = run.retain and dialect.retain_as_published
    assert frames.ends[-1] == len(frames.data)
    assert (not frames.holes) == (qos == 0)
    assert (not frames.expiries) == (run.expires_s == inf or dialect.version == 4)
    data = bytearray(frames.data)
    for index in range(len(run)):
        if frames.holes:
            hole = frames.holes[index]
            assert data[hole : hole + 2] == b"\0\0"
            data[hole : hole + 2] = (index + 1).to_bytes(2, "big")
        if frames.expiries:
            place = frames.expiries[index]
            assert data[place : place + 4] == b"\0\0\0\0"
            data[place : place + 4] = (1000 + index).to_bytes(4, "big")
    filled = frames._replace(data=bytes(data))
    for index, frame in enumerate(cut(filled)):
        expected = run.properties if dialect.version == 5 else NO_PROPERTIES
        back = dialect.decode(frame)
        assert back == Record(run.topic, run.payload(index), expected, qos, retain)
        seen = read(frame, dialect.version)
        assert_seen(seen, dialect, back, first_sequence + index, qos, index, bool(frames.expiries))


def assert_seen(seen, dialect, record, sequence, qos, index, expires):
    """A client sees the record, and what the dialect is to add."""
    if isinstance(seen, Plain):
        run, packet_id, expiry, identifiers = seen, 0, None, ()
    else:
        _, run, _, packet_id, dup, expiry, identifiers = seen
        assert not dup
    assert (run.topic, run.payloads, run.qos, run.retain) == (record.topic, (record.payload,), qos, record.retain)
    assert packet_id == (index + 1 if qos else 0)
    five = dialect.version == 5
    assert identifiers == ((dialect.identifier,) if five and dialect.identifier is not None else ())
    assert expiry == (1000 + index if expires else None)
    added = (("offset", str(sequence)),) if five and dialect.offsets else ()
    assert run.properties.user == record.properties.user + added


@given(dialects, runs, st.integers(1, 65_535), st.booleans(), st.booleans(), st.sampled_from([None, GAP]))
@settings(deadline=None)
def test_single_records(dialect, run, delivery_id, retain, redelivered, gap):
    record = run.record(0, 5, 0.0)
    qos = min(record.qos, dialect.qos)
    frame = dialect.encode_record(record, delivery_id, now=90.5, retain=retain, redelivered=redelivered, gap=gap)
    five = dialect.version == 5
    added = ((("offset", "5"),) if dialect.offsets else ()) + (GAP_USER if gap else ())
    user = record.properties.user + added if five else ()
    seen = read(frame, dialect.version)
    seen_run = seen if isinstance(seen, Plain) else seen[1]
    assert (seen_run.topic, seen_run.payloads) == (record.topic, (record.payload,))
    assert (seen_run.retain, seen_run.qos) == (retain, qos)
    assert seen_run.properties.user == user
    if not isinstance(seen, Plain):
        expiry = 9 if five and record.expires_s < inf else None
        assert seen[2:6] == (qos, delivery_id if qos else 0, redelivered and qos > 0, expiry)
    at_most_once = dialect.encode_record(record, 0, now=0.0)
    assert at_most_once[0] & 6 == 0


@given(dialects, runs)
@settings(deadline=None)
def test_gap_is_announced_on_a_frame_of_the_lane(dialect, run):
    frames = dialect.encode(run, 5)
    data = bytearray(frames.data)
    for hole in frames.holes:
        data[hole : hole + 2] = b"\x00\x09"
    frame = bytes(data[: frames.ends[0]])
    with_gap = dialect.with_gap(frame, GAP)
    if dialect.version == 4:
        assert with_gap is None
        return
    assert with_gap is not None
    before, after = dialect.decode(frame), dialect.decode(with_gap)
    assert after.properties.user == before.properties.user + GAP_USER
    assert (after.topic, after.payload, after.qos, after.retain) == (
        before.topic, before.payload, before.qos, before.retain,
    )
    seen = read(with_gap, 5)
    if not isinstance(seen, Plain):
        assert seen[3] == (9 if before.qos else 0)


def test_gap_on_a_frame_whose_length_field_grows():
    dialect = MqttDialect(5, 1)
    frame = dialect.encode_record(Record("t", b"x" * 100, qos=1), 0x1234, now=0.0)
    assert frame[1] < 128
    with_gap = dialect.with_gap(frame, GAP)
    assert with_gap[1] >= 128
    assert read(with_gap, 5) == publish(
        Plain("t", (b"x" * 100,), None, 1, properties=Properties(user=GAP_USER)), 1, 0x1234
    )


def test_redelivered_marks_only_what_can_be_redelivered():
    dialect = MqttDialect(4, 2)
    for qos in (1, 2):
        frame = dialect.encode_record(Record("t", b"x", qos=qos), 3, now=0.0)
        again = dialect.redelivered(frame)
        assert read(again, 4) == publish(Plain("t", (b"x",), None, qos), qos, 3, dup=True)
        assert dialect.redelivered(again) == again
    plain_frame = dialect.encode_record(Record("t", b"x"), 0, now=0.0)
    assert dialect.redelivered(plain_frame) == plain_frame


@pytest.mark.parametrize(
    ("expires_s", "now", "seconds"),
    [(10.0, 0.0, 10), (10.05, 0.0, 10), (10.0, 0.001, 10), (10.0, 9.0, 1), (10.0, 9.999, 1), (10.0, 10.0, 0),
     (10.0, 99.0, 0), (1e12, 0.0, 0xFFFF_FFFF)],
)
def test_remaining_lifetime(expires_s, now, seconds):
    assert seconds_left(expires_s, now) == seconds
