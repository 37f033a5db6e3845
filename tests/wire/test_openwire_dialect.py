"""What consumers of JMS are sent: equal bytes for consumers with one number, ids of deliveries, gaps, round trips."""

from __future__ import annotations

import pytest

from headway.core.message import Gap, Properties, Record
from headway.wire.codecs import queue_form
from headway.wire.common import Address, CommonProperties
from headway.wire.openwire.codes import Form
from headway.wire.openwire.dialect import OpenWireDialect
from headway.wire.openwire.envelope import OpenWireEnvelope
from headway.wire.openwire.maps import TYPES, read_headers, write_headers
from headway.wire.openwire.marshalling import ConsumerId, read_utf, utf, write_cached, write_number

COMMON = CommonProperties(
    content_type="text/plain", correlation_id="c", reply_to=Address("a/b", is_topic=True), message_id="ID:x:1:2:3",
    timestamp_ms=1_700_000_000_123, type="t", priority=7, expiration_ms=500, persistent=True,
    headers={"n": 5, "s": "é", "t": True, "f": 1.5},
)  # fmt: skip
FORMS = [Form(version, cached) for version in (9, 12) for cached in (False, True)]


def dialect(form: Form) -> OpenWireDialect:
    consumer = write_number(3) if form.cached else write_cached(ConsumerId("ID:c", 1, 2), form)
    return OpenWireDialect(consumer, form)


def record(common: CommonProperties = COMMON, payload: bytes = b"hi") -> Record:
    return Record("a/b", payload, queue_form().write_common(common), 1, sequence=9)


@pytest.mark.parametrize("form", FORMS)
def test_a_record_is_the_same_after_it_was_written_and_read(form: Form) -> None:
    written = dialect(form).encode(record().run(), 9)
    back = dialect(form).decode(written.data)
    assert (back.topic, back.payload, back.qos) == ("a/b", b"hi", 1)
    assert queue_form().read_common(back.properties) == COMMON
    assert dialect(form).encode_record(record(), 0, now=0.0) == written.data


@pytest.mark.parametrize("form", FORMS)
def test_records_of_other_protocols_get_ids_of_their_sequences(form: Form) -> None:
    bare = Record("a/b", b"\xff", Properties(user=(("who", "mqtt"),)), sequence=9)
    back = dialect(form).decode(dialect(form).encode(bare.run(), 9).data)
    common = queue_form().read_common(back.properties)
    assert (back.payload, dict(common.headers), common.message_id) == (b"\xff", {"who": "mqtt"}, None)


@pytest.mark.parametrize("form", FORMS)
def test_a_gap_is_told_by_properties(form: Form) -> None:
    frame = dialect(form).encode(record().run(), 9).data
    told = dialect(form).decode(dialect(form).with_gap(frame, Gap(3, 4, 6, "conflated")))
    headers = queue_form().read_common(told.properties).headers
    assert headers["x-headway-gap-records"] == 3
    assert headers["x-headway-gap-reason"] == "conflated"


def test_connections_whose_clients_keep_objects_are_sent_the_same_bytes() -> None:
    assert OpenWireDialect(write_number(1), FORMS[1]) == OpenWireDialect(write_number(1), FORMS[1])
    assert OpenWireDialect(write_number(1), FORMS[1]) != OpenWireDialect(write_number(2), FORMS[1])


@pytest.mark.parametrize("form", FORMS)
def test_deliveries_of_queues_have_their_numbers(form: Form) -> None:
    queues = queue_form().dialect
    frames = [queues.encode(record(payload=payload).run(), 0).data for payload in (b"a", b"bc")]
    ends = [len(frames[0]), len(frames[0]) + len(frames[1])]
    envelope = OpenWireEnvelope(write_number(1), "1-1", form)
    cut = envelope.cut(b"".join(frames), ends, redelivered=2)
    written = envelope.write(cut, 0, 2, 0x0102030405060708)
    assert envelope.ends(cut, 0, 2)[-1] == len(written)
    first = envelope.ends(cut, 0, 2)[0]
    assert int.from_bytes(written[:4], "big") == first - 4
    assert bytes.fromhex("0102030405060708") in written[:first]
    assert bytes.fromhex("0102030405060709") in written[first:]
    assert written.endswith(b"\0\0\0\2")


def test_types_of_properties_are_kept() -> None:
    raw = bytes.fromhex("00000004 000162 0203 000163 030041 000173 040007 00016c 060000000000000005".replace(" ", ""))
    headers = read_headers(raw)
    assert (headers["b"], headers["c"], headers["s"], headers["l"]) == (3, "A", 7, 5)
    assert sorted(str(headers[TYPES]).split()) == ["bb", "cc", "ll", "ss"]
    assert write_headers(headers) == raw


@pytest.mark.parametrize("text", ["", "abc", "é€", "a\0b", "😀 and \ud83d alone"])
def test_texts_in_modified_utf_8(text: str) -> None:
    expected = text.encode(errors="replace").decode()
    assert read_utf(utf(text)) == expected
    assert b"\0" not in utf(text)
