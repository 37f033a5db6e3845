"""Writes the server's methods as frames, in the client's version.

``write_method`` writes any ``pamqp`` command. The other functions are for methods that need more: texts that may be too
long, names that ``pamqp`` refuses, contents, and speed.
"""

from __future__ import annotations

from pamqp import base, commands, common

from headway import __version__
from headway.wire.amqp.codes import AMQP_0_9_1, ReplyCode, Version
from headway.wire.amqp.dialect import split_record, with_delivery_counts, write_address
from headway.wire.amqp.primitives import (
    SHORT_BYTES_MAX,
    AmqpReader,
    malformed,
    read_bare_table,
    write_long,
    write_short,
    write_table,
)
from headway.wire.amqp.scan import ACK, CONTENT, FRAME_END, Content
from headway.wire.common import PLAIN, Login, read_plain

# -- methods -----------------------------------------------------------------------------------------------------------
#
# Methods: reads and writes the arguments of ``pamqp``'s commands.
#
# ``pamqp`` has the names of methods and the names and types of their arguments. This module reads and writes them:
# strictly (primitives.py), and without ``pamqp``'s rules for names, which other brokers do not have. The bits of a
# method are adjacent, and fit into one byte.


_SIZES = {"octet": 1, "short": 2, "long": 4, "longlong": 8}

FROM_CLIENT: frozenset[type[base.Frame]] = frozenset({
    commands.Connection.StartOk, commands.Connection.SecureOk, commands.Connection.TuneOk, commands.Connection.Open,
    commands.Connection.Close, commands.Connection.CloseOk, commands.Connection.UpdateSecret,
    commands.Channel.Open, commands.Channel.Flow, commands.Channel.FlowOk, commands.Channel.Close,
    commands.Channel.CloseOk,
    commands.Exchange.Declare, commands.Exchange.Delete, commands.Exchange.Bind, commands.Exchange.Unbind,
    commands.Queue.Declare, commands.Queue.Bind, commands.Queue.Purge, commands.Queue.Delete, commands.Queue.Unbind,
    commands.Basic.Qos, commands.Basic.Consume, commands.Basic.Cancel, commands.Basic.CancelOk, commands.Basic.Publish,
    commands.Basic.Get, commands.Basic.Ack, commands.Basic.Reject, commands.Basic.RecoverAsync, commands.Basic.Recover,
    commands.Basic.Nack,
    commands.Tx.Select, commands.Tx.Commit, commands.Tx.Rollback, commands.Confirm.Select,
})  # fmt: skip
"""Methods that a client may send; only a server sends the others."""


_KINDS: list[type[base.Frame]] = list(commands.INDEX_MAPPING.values())
_ARGUMENTS = {kind: tuple((name, kind.amqp_type(name)) for name in kind.__slots__) for kind in _KINDS}
"""Names and types of each method's arguments."""


def read_arguments(kind: type[base.Frame], reader: AmqpReader, version: Version) -> base.Frame:
    """Reads the arguments of a command. Bytes after the last argument are no error: later versions add arguments."""
    command = kind.__new__(kind)  # every argument is set below, and one of the constructors warns
    optional = kind.__slots__[-1] if kind.index in version.shorter else None
    bits = place = 0
    for name, type_ in _ARGUMENTS[kind]:
        if type_ == "bit":
            if not place:
                bits = reader.integer(1, name)
            setattr(command, name, bool(bits >> place & 1))
            place += 1
        elif name == optional and reader.pos == reader.end:
            setattr(command, name, {} if type_ == "table" else "")
        elif type_ == "shortstr":
            setattr(command, name, reader.short(name))
        elif type_ == "table":
            setattr(command, name, reader.table(name))
        elif type_ == "longstr":
            setattr(command, name, reader.long(name))
        else:
            setattr(command, name, reader.integer(_SIZES[type_], name))
    return command


def write_arguments(command: base.Frame, version: Version) -> bytes:
    wanted = _ARGUMENTS[type(command)]
    if command.index in version.shorter:
        wanted = wanted[:-1]
    parts: list[bytes] = []
    bits = place = 0
    for name, type_ in wanted:
        value = getattr(command, name)
        if type_ == "bit":
            if not place:
                parts.append(b"")
            bits |= bool(value) << place
            parts[-1] = bits.to_bytes(1, "big")
            place += 1
        elif type_ == "shortstr":
            parts.append(write_short(value))
        elif type_ == "table":
            parts.append(write_table(value))
        elif type_ == "longstr":
            parts.append(write_long(value))
        else:
            parts.append(int(value).to_bytes(_SIZES[type_], "big"))
    return b"".join(parts)


# -- login -------------------------------------------------------------------------------------------------------------
#
# A client's login: the responses of PLAIN and AMQPLAIN.


AMQPLAIN = "AMQPLAIN"
MECHANISMS = f"{PLAIN} {AMQPLAIN}"


def read_login(mechanism: str, response: str | bytes) -> Login | None:
    """Reads the login of ``connection.start-ok``; None: the mechanism was not offered."""
    raw = response.encode() if isinstance(response, str) else response
    if mechanism == PLAIN:
        return read_plain(raw, malformed)
    return _table(raw) if mechanism == AMQPLAIN else None


def _table(raw: bytes) -> Login:
    table = read_bare_table(raw, "response")
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(user, str) or not isinstance(password, str | bytes):
        raise malformed("has no LOGIN and PASSWORD in its response")
    return Login(user, password.encode() if isinstance(password, str) else password)


# -- replies -----------------------------------------------------------------------------------------------------------


HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
ACCESS_OK = 30 << 16 | 11
RETURN = 60 << 16 | 50
GET_OK = 60 << 16 | 71
TICKET = b"\x00\x01"
CAPABILITIES: common.FieldTable = dict.fromkeys((
    "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify", "connection.blocked",
    "authentication_failure_close", "direct_reply_to", "per_consumer_qos",
), True)  # fmt: skip
_ACK_LEAD = (13).to_bytes(4, "big") + ACK.to_bytes(4, "big")


def write_method(version: Version, channel: int, command: base.Frame) -> bytes:
    return _frame(channel, version.from_091(command.index), write_arguments(command, version))


def _frame(channel: int, index: int, arguments: bytes) -> bytes:
    size = 4 + len(arguments)
    head = b"\x01" + channel.to_bytes(2, "big") + size.to_bytes(4, "big") + index.to_bytes(4, "big")
    return head + arguments + FRAME_END


def shortened(text: str) -> str:
    """Returns the text, cut to the length of a short string."""
    raw = text.encode()
    return text if len(raw) <= SHORT_BYTES_MAX else raw[: SHORT_BYTES_MAX - 3].decode(errors="ignore") + "..."


# -- connections and channels ------------------------------------------------------------------------------------------


def write_start(version: Version, mechanisms: str = MECHANISMS) -> bytes:
    """Writes ``connection.start``, the server's first method."""
    about: common.FieldTable = {
        "product": "Headway",
        "version": __version__,
        "platform": "Python",
        "capabilities": CAPABILITIES,
    }
    return write_method(version, 0, commands.Connection.Start(
        version_major=version.major, version_minor=version.minor, server_properties=about, mechanisms=mechanisms,
    ))  # fmt: skip


def write_close_connection(version: Version, code: ReplyCode, text: str, method: int = 0) -> bytes:
    """Writes ``connection.close``. ``method``: class id << 16 | method id, in 0-9-1, of the method at fault; 0:
    none."""
    class_id, method_id = divmod(version.from_091(method), 1 << 16)
    return write_method(version, 0, commands.Connection.Close(
        reply_code=code, reply_text=reply_text(code, text), class_id=class_id, method_id=method_id,
    ))  # fmt: skip


def write_close_channel(version: Version, channel: int, code: ReplyCode, text: str, method: int = 0) -> bytes:
    class_id, method_id = divmod(version.from_091(method), 1 << 16)
    return write_method(version, channel, commands.Channel.Close(
        reply_code=code, reply_text=reply_text(code, text), class_id=class_id, method_id=method_id,
    ))  # fmt: skip


def reply_text(code: ReplyCode, text: str) -> str:
    """Returns the code's name and the text, which is all that clients show."""
    return shortened(f"{code.word} - {text}")


def write_blocked(reason: str) -> bytes:
    """Writes ``connection.blocked``, for clients that announced that they understand it; so always of 0-9-1."""
    return write_method(AMQP_0_9_1, 0, commands.Connection.Blocked(reason=shortened(reason)))


def write_access_ok(channel: int) -> bytes:
    """Writes the reply to ``access.request``: ticket 1, which is never checked."""
    return _frame(channel, ACCESS_OK, TICKET)


# -- queues and messages -----------------------------------------------------------------------------------------------


def write_declare_ok(version: Version, channel: int, queue: str, messages: int, consumers: int) -> bytes:
    """Writes ``queue.declare-ok`` with any name; ``pamqp`` refuses some names that other brokers allow."""
    command = commands.Queue.DeclareOk("", messages, consumers)
    command.queue = queue
    return write_method(version, channel, command)


def write_ack(channel: int, tag: int, multiple: bool = False) -> bytes:
    """Writes ``basic.ack``, which confirms a message, or all up to it, to its publisher."""
    end = b"\x01\xce" if multiple else b"\x00\xce"
    return b"\x01" + channel.to_bytes(2, "big") + _ACK_LEAD + tag.to_bytes(8, "big") + end


def write_get_ok(
    channel: int, delivery_tag: int, record: bytes, message_count: int, frame_bytes_max: int, *,
    redelivered: int = 0,
) -> bytes:  # fmt: skip
    """Writes the reply to ``basic.get``, from a record of a lane. ``redelivered``: how often it came back."""
    if redelivered:
        record = bytes(with_delivery_counts(record, [len(record)], redelivered).data)
    address, header, body = split_record(record)
    flag = b"\x01" if redelivered else b"\x00"
    arguments = delivery_tag.to_bytes(8, "big") + flag + address + message_count.to_bytes(4, "big")
    content, header = Content(channel, frame_bytes_max), CONTENT + header[len(CONTENT) :]
    return b"".join((_frame(channel, GET_OK, arguments), content.header(header), content.body(body)))


def write_return(
    channel: int, code: ReplyCode, text: str, exchange: str, routing_key: str, properties: bytes, body: bytes,
    frame_bytes_max: int,
) -> bytes:  # fmt: skip
    """Writes ``basic.return``, which sends an unroutable message back to its publisher."""
    arguments = code.to_bytes(2, "big") + write_short(shortened(text)) + write_address(exchange, routing_key)
    header = CONTENT + len(body).to_bytes(8, "big") + properties
    content = Content(channel, frame_bytes_max)
    return b"".join((_frame(channel, RETURN, arguments), content.header(header), content.body(body)))
