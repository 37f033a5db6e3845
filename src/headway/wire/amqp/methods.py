"""Methods: reads and writes the arguments of ``pamqp``'s commands.

``pamqp`` has the names of methods and the names and types of their arguments. This module reads and writes them:
strictly (primitives.py), and without ``pamqp``'s rules for names, which other brokers do not have. The bits of a method
are adjacent, and fit into one byte.
"""

from __future__ import annotations

from pamqp import base, commands

from headway.wire.amqp.primitives import AmqpReader, write_long, write_short, write_table
from headway.wire.amqp.versions import Version

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
