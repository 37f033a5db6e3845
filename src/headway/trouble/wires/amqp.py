"""AMQP 0-9-1: one channel, and for a consumer one queue of its own, which ends with the connection.

Deliveries and publishes are written and read here; all other methods by ``pamqp``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pamqp import base, commands, common, exceptions, frame, header

from headway.trouble.plan import KEEP_ALIVE_S
from headway.trouble.wires.dialogue import Delivery, Dialogue

CHANNEL = 1
EXCHANGE = "amq.topic"
DELIVER = struct.pack(">HH", 60, 60)
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAMES = frozenset({METHOD, HEADER, BODY, HEARTBEAT})
FRAME_BYTES_MAX = 131_072
FRAME_END = b"\xce"
_WILDCARDS = str.maketrans("/+", ".*")


class AmqpDialogue(Dialogue):
    def __init__(self, name: str, user: str | None, password: str | None, virtual_host: str) -> None:
        super().__init__()
        self._name, self._virtual_host = name, virtual_host
        self._login = f"\0{user or 'guest'}\0{password if password is not None else 'guest'}"
        self._frame_max = FRAME_BYTES_MAX
        self._prefetch = 0
        self._in = bytearray()
        self._acked = False
        self._tag = self._left = 0
        self._body = bytearray()
        self._confirmed_to = 0
        self._early: set[int] = set()
        """Numbers of records beyond ``_confirmed_to`` that the broker has answered already."""
        self._heads: dict[tuple[str, int], bytes] = {}

    # -- what is said -------------------------------------------------------------------------------------------------

    def open(self, window: int | None) -> None:
        self._prefetch = window or 0
        self.out += b"AMQP\x00\x00\x09\x01"

    def _say(self, method: base.Frame, channel: int = CHANNEL) -> None:
        self.out += frame.marshal(method, channel)

    def subscribe(self, filters: Sequence[str], *, acked: bool) -> None:
        self._acked = acked
        self._say(commands.Queue.Declare(queue=self._name, exclusive=True, auto_delete=True))
        for one in filters:
            self._say(commands.Queue.Bind(queue=self._name, exchange=EXCHANGE, routing_key=one.translate(_WILDCARDS)))
        self._say(commands.Basic.Qos(prefetch_count=self._prefetch))
        self._say(commands.Basic.Consume(queue=self._name, consumer_tag="c", no_ack=not acked))

    def prepare(self) -> None:
        self._say(commands.Confirm.Select())

    def publish(self, topic: str, payload: bytes, *, confirmed: bool) -> None:
        self.unconfirmed += confirmed
        self.out += self._head(topic, len(payload))
        most = self._frame_max - 8
        for at in range(0, len(payload), most):
            part = payload[at : at + most]
            self.out += struct.pack(">BHI", BODY, CHANNEL, len(part)) + part + FRAME_END

    def _head(self, topic: str, size_bytes: int) -> bytes:
        found = self._heads.get((topic, size_bytes))
        if found is None:
            publish = commands.Basic.Publish(exchange=EXCHANGE, routing_key=topic.translate(_WILDCARDS))
            about = header.ContentHeader(body_size=size_bytes, properties=commands.Basic.Properties(delivery_mode=1))
            found = frame.marshal(publish, CHANNEL) + frame.marshal(about, CHANNEL)
            self._heads[topic, size_bytes] = found
        return found

    def acknowledge(self, tags: Sequence[int]) -> None:
        if tags:
            self._say(commands.Basic.Ack(delivery_tag=max(tags), multiple=True))

    def ping(self) -> None:
        self.out += struct.pack(">BHI", HEARTBEAT, 0, 0) + FRAME_END

    def goodbye(self) -> None:
        self._say(commands.Connection.Close(reply_code=200, reply_text="goodbye", class_id=0, method_id=0), 0)

    # -- what comes ---------------------------------------------------------------------------------------------------

    def take(self, data: bytes) -> list[Delivery]:
        held, at, found = self._in, 0, []
        held += data
        while len(held) - at >= 8 and not self.over:
            kind, _, size = struct.unpack_from(">BHI", held, at)
            if kind not in FRAMES or size > FRAME_BYTES_MAX:
                self.over = f"it does not speak AMQP 0-9-1: it answers {bytes(held[at:at + 8])!r}"
                break
            body, end = at + 7, at + 8 + size
            if len(held) < end:
                break
            if kind == BODY:
                self._body += held[body : end - 1]
                self._left -= size
            elif kind == HEADER:
                self._left, self._body = struct.unpack_from(">Q", held, body + 4)[0], bytearray()
            elif kind == METHOD and held[body : body + 4] == DELIVER:
                self._tag = struct.unpack_from(">Q", held, body + 5 + held[body + 4])[0]
            elif kind == METHOD:
                self._method(bytes(held[at:end]))
            if kind in (HEADER, BODY) and self._left <= 0:
                found.append(Delivery(bytes(self._body), self._tag if self._acked else 0))
            at = end
        del held[:at]
        return found

    def _method(self, raw: bytes) -> None:
        try:
            method = frame.unmarshal(raw)[2]
        except (exceptions.PAMQPException, ValueError, struct.error) as error:
            self.over = f"it does not speak AMQP as this client does: {error}"
            return
        if isinstance(method, commands.Basic.Ack | commands.Basic.Nack):
            self._confirm(method)
        elif isinstance(method, commands.Basic.ConsumeOk):
            self.granted = True
        elif isinstance(method, commands.Connection.Blocked):
            self.held = method.reason or "the broker asks publishers to wait"
        elif isinstance(method, commands.Connection.Unblocked):
            self.held = ""
        elif isinstance(method, commands.Channel.Flow):
            self.held = "" if method.active else "the broker asks publishers to wait"
            self._say(commands.Channel.FlowOk(active=method.active))
        elif isinstance(method, commands.Connection.Close):
            self.over = f"{method.reply_code} {method.reply_text}"
            self._say(commands.Connection.CloseOk(), 0)
        elif isinstance(method, commands.Channel.Close):
            self.over = f"channel closed: {method.reply_code} {method.reply_text}"
            self._say(commands.Channel.CloseOk())
        elif isinstance(method, commands.Basic.Cancel):
            self.over = "the broker has cancelled the consumer (basic.cancel)"
        else:
            self._handshake(method)

    def _confirm(self, method: commands.Basic.Ack | commands.Basic.Nack) -> None:
        tag = method.delivery_tag
        if method.multiple:
            answered = tag - self._confirmed_to - sum(one <= tag for one in self._early)
            self._early = {one for one in self._early if one > tag}
            self._confirmed_to = max(self._confirmed_to, tag)
        else:
            answered = 1
            self._early.add(tag)
        while self._confirmed_to + 1 in self._early:
            self._confirmed_to += 1
            self._early.remove(self._confirmed_to)
        self.unconfirmed -= answered
        if isinstance(method, commands.Basic.Nack):
            self.refused, self.refusal = self.refused + answered, "basic.nack"
        else:
            self.confirmed += answered

    def _handshake(self, method: object) -> None:
        if isinstance(method, commands.Connection.Start):
            about = method.server_properties or {}
            self.product = " ".join(str(about[name]) for name in ("product", "version") if name in about)
            can: common.FieldTable = {"connection.blocked": True, "consumer_cancel_notify": True, "basic.nack": True,
                                      "publisher_confirms": True, "authentication_failure_close": True}  # fmt: skip
            self._say(commands.Connection.StartOk(
                client_properties={"connection_name": self._name, "product": "headway trouble", "capabilities": can},
                mechanism="PLAIN", response=self._login, locale="en_US",
            ), 0)  # fmt: skip
        elif isinstance(method, commands.Connection.Tune):
            self._frame_max = min(method.frame_max or FRAME_BYTES_MAX, FRAME_BYTES_MAX)
            heartbeat_s = min(method.heartbeat or KEEP_ALIVE_S, KEEP_ALIVE_S)
            self._say(commands.Connection.TuneOk(method.channel_max, self._frame_max, heartbeat_s), 0)
            self._say(commands.Connection.Open(virtual_host=self._virtual_host), 0)
        elif isinstance(method, commands.Connection.OpenOk):
            self._say(commands.Channel.Open())
        elif isinstance(method, commands.Channel.OpenOk):
            self.greeted = True
