"""Common properties: what any protocol says of a message comes back, in the form of queues and in MQTT's fields."""

from __future__ import annotations

from headway.core.message import NO_PROPERTIES, Properties, Record
from headway.wire.amqp.kept import MS_LARGEST
from headway.wire.codecs import queue_form
from headway.wire.common import NO_COMMON, Address, CommonProperties, address_of, run_to

QUEUES = queue_form()
WHOLE = CommonProperties(
    content_type="text/plain", content_encoding="gzip", correlation_id="c-1", reply_to=Address("answers"),
    message_id="m-1", timestamp_ms=1_700_000_000_000, type="order", priority=7, expiration_ms=60_000, user_id="ann",
    app_id="shop", persistent=True, headers={"n": 1, "ok": True, "x": 1.5, "raw": bytearray(b"\0\1"), "list": [1, "a"]},
)  # fmt: skip


def again(common: CommonProperties) -> CommonProperties:
    return QUEUES.read_common(QUEUES.write_common(common))


def test_all_properties_come_back() -> None:
    assert again(WHOLE) == WHOLE
    assert again(NO_COMMON) == NO_COMMON
    assert QUEUES.write_common(NO_COMMON) is NO_PROPERTIES
    for common in (
        CommonProperties(timestamp_ms=1_700_000_000_123), CommonProperties(reply_to=Address("a/b", is_topic=True)),
        CommonProperties(correlation_id="c" * 300), CommonProperties(message_id="m" * 300, type="t" * 300),
    ):  # fmt: skip
        assert again(common) == common


def test_times_that_other_protocols_cannot_tell() -> None:
    """AMQP's have 64 bits of seconds, and a lifetime any digits. Whoever writes them has 64 bits of milliseconds."""
    for seconds in (1 << 62, (1 << 63) - 1, (1 << 64) - 1):
        told = again(CommonProperties(timestamp_ms=seconds * 1000, expiration_ms=seconds * 1000))
        assert told.timestamp_ms is None
        assert told.expiration_ms is not None
        assert told.expiration_ms + MS_LARGEST < 1 << 63
    late = CommonProperties(timestamp_ms=MS_LARGEST // 1000 * 1000)
    assert again(late) == late


def test_mqtt_sees_them_in_its_own_fields() -> None:
    properties = QUEUES.write_common(WHOLE)
    assert properties.content_type == "text/plain"
    assert properties.correlation_data == b"c-1"
    assert properties.user_value("n") == "1"
    assert properties.user_value("ok") == "true"
    topic = QUEUES.write_common(CommonProperties(reply_to=Address("a/b", is_topic=True)))
    assert topic.response_topic == "a/b"


def test_what_came_by_mqtt_is_read() -> None:
    user = (("a", "1"), ("a", "2"))
    properties = Properties(content_type="t", response_topic="r/s", correlation_data=b"\xff", user=user)
    assert QUEUES.read_common(properties) == CommonProperties(
        content_type="t", reply_to=Address("r/s", is_topic=True), correlation_id="\xff", headers={"a": "1"}
    )


def test_addresses() -> None:
    for address in (Address("a/b", is_topic=True), Address("orders.new"), Address("a/b")):
        assert address_of(run_to(address, b"x", [1], [0])) == address
    assert address_of(Record("a", b"", exchange="logs")) is None
