"""What the server says, read by ``pamqp``; and what its older clients are told."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import base, commands, frame, heartbeat
from tests.wire.test_amqp_dialect import JSON, run
from tests.wire.test_amqp_envelope import content_of, frames_of

from headway import __version__
from headway.core.base.errors import Refused
from headway.wire.amqp import replies
from headway.wire.amqp.codes import AMQP_0_8, AMQP_0_9, AMQP_0_9_1, ReplyCode, Version
from headway.wire.amqp.dialect import AmqpDialect

VERSIONS = [AMQP_0_9_1, AMQP_0_9, AMQP_0_8]


def read(data: bytes) -> tuple[int, Any]:
    size, channel, value = frame.unmarshal(data)
    assert size == len(data)
    return channel, value


SAID: list[base.Frame] = [
    commands.Connection.Secure("challenge"), commands.Connection.Tune(2047, 131_072, 60), commands.Connection.OpenOk(),
    commands.Connection.CloseOk(), commands.Connection.Blocked("low on memory"), commands.Connection.Unblocked(),
    commands.Connection.UpdateSecretOk(),
    commands.Channel.OpenOk(), commands.Channel.Flow(False), commands.Channel.FlowOk(True), commands.Channel.CloseOk(),
    commands.Exchange.DeclareOk(), commands.Exchange.DeleteOk(), commands.Exchange.BindOk(),
    commands.Exchange.UnbindOk(),
    commands.Queue.DeclareOk("q", 2**32 - 1, 7), commands.Queue.BindOk(), commands.Queue.UnbindOk(),
    commands.Queue.PurgeOk(3), commands.Queue.DeleteOk(4),
    commands.Basic.QosOk(), commands.Basic.ConsumeOk("tag"), commands.Basic.Cancel("tag", True),
    commands.Basic.CancelOk("tag"), commands.Basic.GetEmpty(), commands.Basic.RecoverOk(), commands.Basic.Ack(5, True),
    commands.Basic.Nack(6, True, False), commands.Basic.Return(312, "NO_ROUTE", "ex", "key"),
    commands.Tx.SelectOk(), commands.Tx.CommitOk(), commands.Tx.RollbackOk(), commands.Confirm.SelectOk(),
]  # fmt: skip


@pytest.mark.parametrize("command", SAID, ids=[command.name for command in SAID])
def test_methods(command: base.Frame) -> None:
    """The same bytes as ``pamqp``'s own."""
    assert replies.write_method(AMQP_0_9_1, 513, command) == frame.marshal(command, 513)


@pytest.mark.parametrize("version", VERSIONS, ids=[version.name for version in VERSIONS])
def test_start(version: Version) -> None:
    channel, start = read(replies.write_start(version))
    assert (channel, start.version_major, start.version_minor) == (0, version.major, version.minor)
    assert (start.mechanisms, start.locales) == ("PLAIN AMQPLAIN", "en_US")
    about = start.server_properties
    assert (about["product"], about["version"]) == ("Headway", __version__)
    assert about["capabilities"] == dict.fromkeys((
        "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
        "connection.blocked", "authentication_failure_close", "direct_reply_to", "per_consumer_qos",
    ), True)  # fmt: skip


def test_closing() -> None:
    frame = replies.write_close_connection(AMQP_0_9_1, ReplyCode.FRAME_ERROR, "the frame ...", 60 << 16 | 40)
    channel, close = read(frame)
    assert channel == 0
    assert isinstance(close, commands.Connection.Close)
    assert dict(close) == {
        "reply_code": 501, "reply_text": "FRAME_ERROR - the frame ...", "class_id": 60, "method_id": 40,
    }  # fmt: skip
    channel, close = read(replies.write_close_channel(AMQP_0_9_1, 9, ReplyCode.NOT_FOUND, "no queue 'q'"))
    assert channel == 9
    assert isinstance(close, commands.Channel.Close)
    assert dict(close) == {
        "reply_code": 404, "reply_text": "NOT_FOUND - no queue 'q'", "class_id": 0, "method_id": 0,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["x" * 300, "é" * 300, "é" * 120 + "x" * 10])
def test_texts_that_are_too_long(text: str) -> None:
    _, close = read(replies.write_close_channel(AMQP_0_9_1, 1, ReplyCode.NOT_FOUND, text))
    assert close.reply_text.startswith("NOT_FOUND - " + text[:100])
    assert close.reply_text.endswith("...")
    assert 250 < len(close.reply_text.encode()) <= 255
    _, blocked = read(replies.write_blocked(text))
    assert len(blocked.reason.encode()) <= 255


def test_a_text_that_just_fits() -> None:
    text = "x" * (255 - len("NOT_FOUND - "))
    frame = replies.write_close_channel(AMQP_0_9_1, 1, ReplyCode.NOT_FOUND, text)
    assert read(frame)[1].reply_text == f"NOT_FOUND - {text}"


def test_a_queue_may_be_called_anything() -> None:
    data = replies.write_declare_ok(AMQP_0_9_1, 1, "q|é?", 5, 6)
    assert data[11:-1] == b"\x05q|\xc3\xa9?" + b"\0\0\0\x05\0\0\0\x06"


def test_a_name_that_is_too_long_is_not_written() -> None:
    with pytest.raises(Refused):
        replies.write_declare_ok(AMQP_0_9_1, 1, "q" * 256, 0, 0)


@pytest.mark.parametrize("multiple", [False, True])
def test_confirms(multiple: bool) -> None:
    for channel, tag in ((1, 1), (65_535, 2**63 - 1)):
        assert replies.write_ack(channel, tag, multiple) == frame.marshal(commands.Basic.Ack(tag, multiple), channel)


def test_heartbeat() -> None:
    assert heartbeat.Heartbeat().marshal() == replies.HEARTBEAT


# -- messages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 10_000])
def test_get_ok(size: int) -> None:
    record = AmqpDialect().encode(run([b"x" * size], "a/b", "ex"), 1).data
    data = replies.write_get_ok(4, 2**40 + 1, record, 77, 4096, redelivered=size > 1)
    frames = frames_of(data)
    assert {channel for channel, _, _ in frames} == {4}
    assert max(size for _, _, size in frames) <= 4096
    _, method, _ = frames.pop(0)
    assert dict(method) == {
        "delivery_tag": 2**40 + 1, "redelivered": size > 1, "exchange": "ex", "routing_key": "a.b", "message_count": 77,
    }  # fmt: skip
    head, body = content_of(frames)
    assert (head.properties.content_type, body, frames) == ("application/json", b"x" * size, [])


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 10_000])
def test_return(size: int) -> None:
    data = replies.write_return(4, ReplyCode.NO_ROUTE, "NO_ROUTE", "ex", "a.b", JSON, b"x" * size, 4096)
    frames = frames_of(data)
    assert max(size for _, _, size in frames) <= 4096
    channel, method, _ = frames.pop(0)
    assert channel == 4
    assert dict(method) == {"reply_code": 312, "reply_text": "NO_ROUTE", "exchange": "ex", "routing_key": "a.b"}
    head, body = content_of(frames)
    assert (head.properties.content_type, body, frames) == ("application/json", b"x" * size, [])


# -- older versions ----------------------------------------------------------------------------------------------------


def test_0_8_closes_with_other_methods() -> None:
    close = replies.write_close_connection(AMQP_0_8, ReplyCode.NOT_ALLOWED, "no", 10 << 16 | 51)
    assert close[7:11] == b"\0\x0a\0\x3c"
    assert close[-5:-1] == b"\0\x0a\0\x3d"  # what it is about is numbered as in 0-8, too
    assert replies.write_method(AMQP_0_8, 0, commands.Connection.CloseOk())[7:] == b"\0\x0a\0\x3d\xce"


def test_0_8_opens_channels_without_a_word() -> None:
    assert replies.write_method(AMQP_0_8, 1, commands.Channel.OpenOk()) == b"\x01\0\x01\0\0\0\x04\0\x14\0\x0b\xce"
    assert replies.write_method(AMQP_0_9, 1, commands.Channel.OpenOk())[11:] == b"\0\0\0\x010\xce"


def test_0_9_recovers_with_another_method() -> None:
    assert replies.write_method(AMQP_0_9, 1, commands.Basic.RecoverOk())[7:11] == b"\0\x3c\0\x65"


def test_tickets() -> None:
    assert replies.write_access_ok(3) == b"\x01\0\x03\0\0\0\x06\0\x1e\0\x0b\0\x01\xce"
