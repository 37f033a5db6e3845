"""A client's side of each protocol that the test bench speaks. No clock, and no I/O but the WebSocket's handshake."""

from __future__ import annotations

import base64
import os
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from pamqp import base, commands, common, exceptions, frame, header

from headway.core.message import Run
from headway.trouble.plan import KEEP_ALIVE_S, Line, Place
from headway.wire.mqtt.codes import ReasonCode
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import (
    ConnAck,
    Connect,
    DisconnectPacket,
    Item,
    PubAck,
    Publish,
    SubAck,
    TopicRequest,
    encode_ack,
    encode_connect,
    encode_disconnect,
    encode_pingreq,
    encode_subscribe,
)
from headway.wire.mqtt.primitives import write_frame, write_text

# -- dialogue ----------------------------------------------------------------------------------------------------------
#
# A dialogue: a client's side of some protocol on one connection. Bytes in, deliveries out, answers in ``out``.


WINDOW = 1000
"""Records that a publisher has unconfirmed at most, unless the broker permits fewer."""


class Delivery(NamedTuple):
    payload: bytes
    tag: int
    """To acknowledge it with; 0: it needs none."""


class Dialogue(ABC):
    def __init__(self) -> None:
        self.out = bytearray()
        """Bytes for the broker."""
        self.greeted = False
        """The broker has let the client in."""
        self.granted = False
        """The broker has granted all that was subscribed to."""
        self.over = ""
        """The broker's last words; empty: it goes on."""
        self.product = ""
        """The broker's name for itself, where the protocol has a place for it."""
        self.held = ""
        """Why the broker asks publishers to wait; empty: it does not."""
        self.window = WINDOW
        self.unconfirmed = self.confirmed = self.refused = 0
        self.refusal = ""
        """The broker's words for the latest record that it refused."""

    @abstractmethod
    def open(self, window: int | None) -> None:
        """Asks to be let in. ``window``: the deliveries that it permits without an acknowledgement; None: any."""

    @abstractmethod
    def subscribe(self, filters: Sequence[str], *, acked: bool) -> None: ...

    @abstractmethod
    def prepare(self) -> None:
        """Says that this client is going to publish, and wants its records confirmed."""

    @abstractmethod
    def publish(self, topic: str, payload: bytes, *, confirmed: bool) -> None: ...

    @abstractmethod
    def take(self, data: bytes) -> list[Delivery]:
        """Handles what has come."""

    @abstractmethod
    def acknowledge(self, tags: Sequence[int]) -> None: ...

    @abstractmethod
    def ping(self) -> None: ...

    @abstractmethod
    def goodbye(self) -> None: ...


# -- websocket ---------------------------------------------------------------------------------------------------------
#
# A client's side of WebSocket (RFC 6455), for MQTT in binary frames.


HEAD_BYTES_MAX = 16_384
BINARY, CLOSE, PING, PONG = 2, 8, 9, 10


def shake_hands(sock: socket.socket, place: Place) -> bytes:
    """Asks for the upgrade; blocking. Returns what has come behind the answer. Raises OSError."""
    key = base64.b64encode(os.urandom(16)).decode()
    host = f"[{place.host}]" if ":" in place.host else place.host
    sock.sendall(
        f"GET {place.websocket_path} HTTP/1.1\r\nHost: {host}:{place.port}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
    )
    answer = b""
    while b"\r\n\r\n" not in answer:
        data = sock.recv(4096)
        if not data or len(answer) > HEAD_BYTES_MAX:
            raise OSError("the WebSocket handshake was not answered")
        answer += data
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].decode("latin-1")
    if " 101" not in status:
        raise OSError(f"the WebSocket handshake was refused: {status}")
    return rest


class WebSocketLine(Line):
    def __init__(self, sock: socket.socket, rest: bytes) -> None:
        super().__init__(sock)
        self._in = bytearray(rest)

    def _received(self, data: bytes) -> bytes:
        self._in += data
        held, at, found = self._in, 0, bytearray()
        while len(held) - at >= 2:
            kind, size, body = held[at] & 0x0F, held[at + 1] & 0x7F, at + 2
            extra = {126: 2, 127: 8}.get(size, 0)
            if extra:
                size, body = int.from_bytes(held[body : body + extra], "big"), body + extra
            if len(held) < body + size:
                break
            if kind in (0, BINARY):
                found += held[body : body + size]
            elif kind == PING:
                super().write(_frame(PONG, bytes(held[body : body + size])))
            at = body + size
        del held[:at]
        return bytes(found)

    def write(self, data: bytes | bytearray) -> None:
        super().write(_frame(BINARY, bytes(data)))


def _frame(kind: int, data: bytes) -> bytes:
    """Returns a whole frame, masked as a client's must be."""
    size, mask = len(data), os.urandom(4)
    length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big") if size < 65_536 else (
        b"\xff" + size.to_bytes(8, "big"))  # fmt: skip
    keys = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return bytes((0x80 | kind,)) + length + mask + (int.from_bytes(data, "big") ^ keys).to_bytes(size, "big")


# -- amqp --------------------------------------------------------------------------------------------------------------
#
# AMQP 0-9-1: one channel, and for a consumer one queue of its own, which ends with the connection.
#
# Deliveries and publishes are written and read here; all other methods by ``pamqp``.


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


# -- mqtt --------------------------------------------------------------------------------------------------------------
#
# MQTT 5 and 3.1.1.


PUBACK = 4
PACKET_IDS = 65_535
NEVER_RETAINED = 2
REFUSALS_3_1_1 = {1: "unacceptable protocol version", 2: "identifier rejected", 3: "server unavailable",
                  4: "bad user name or password", 5: "not authorized"}  # fmt: skip


class MqttDialogue(Dialogue):
    def __init__(self, name: str, user: str | None, password: str | None, version: int) -> None:
        super().__init__()
        self._name, self._user, self._version = name, user, version
        self._password = None if password is None else password.encode()
        self._decoder = MqttDecoder(role="client", version=version)
        self._number = 0

    def open(self, window: int | None) -> None:
        self.out += encode_connect(Connect(
            self._version, self._name, True, KEEP_ALIVE_S, username=self._user, password=self._password,
            receive_max=window or PACKET_IDS,
        ))  # fmt: skip

    def subscribe(self, filters: Sequence[str], *, acked: bool) -> None:
        handling = NEVER_RETAINED if self._version == 5 else 0
        requests = [TopicRequest(one, int(acked), retain_handling=handling) for one in filters]
        self.out += encode_subscribe(1, requests, version=self._version)

    def prepare(self) -> None:
        """Every PUBLISH says it itself."""

    def publish(self, topic: str, payload: bytes, *, confirmed: bool) -> None:
        parts = [write_text(topic)]
        if confirmed:
            self._number = self._number % PACKET_IDS + 1
            self.unconfirmed += 1
            parts.append(self._number.to_bytes(2, "big"))
        if self._version == 5:
            parts.append(b"\x00")
        self.out += write_frame(0x32 if confirmed else 0x30, *parts, payload)

    def take(self, data: bytes) -> list[Delivery]:
        found: list[Delivery] = []
        for item in self._decoder.feed(data):
            if type(item) is Run:
                found += _deliveries(item, 0)
            elif type(item) is Publish:
                found += _deliveries(item.run, item.packet_id)
            else:
                self._answered(item)
        if self._decoder.error is not None:
            self.over = self.over or f"it does not speak MQTT as this client does: {self._decoder.error}"
        return found

    def _answered(self, item: Item) -> None:
        if type(item) is PubAck:
            self.unconfirmed -= 1
            if item.code >= 0x80:
                self.refused, self.refusal = self.refused + 1, _name(item.code)
            else:
                self.confirmed += 1
        elif type(item) is SubAck:
            refused = next((code for code in item.codes if code >= 0x80), None)
            self.granted = refused is None
            if refused is not None:
                self.over = f"subscription refused: {item.reason or _name(refused)}"
        elif type(item) is ConnAck:
            self._greet(item)
        elif type(item) is DisconnectPacket:
            self.over = f"{_name(item.code)} (0x{item.code:02x})" + (f": {item.reason}" if item.reason else "")

    def _greet(self, answer: ConnAck) -> None:
        if answer.code:
            word = _name(answer.code) if self._version == 5 else REFUSALS_3_1_1.get(answer.code, str(answer.code))
            self.over = f"refused: {answer.fields.reason_string or word}"
            return
        self.greeted = True
        if answer.fields.receive_max is not None:
            self.window = min(self.window, answer.fields.receive_max)

    def acknowledge(self, tags: Sequence[int]) -> None:
        self.out += b"".join(encode_ack(PUBACK, tag) for tag in tags)

    def ping(self) -> None:
        self.out += encode_pingreq()

    def goodbye(self) -> None:
        self.out += encode_disconnect(version=self._version)


def _deliveries(run: Run, tag: int) -> list[Delivery]:
    return [Delivery(run.data[body:end], tag) for body, end in zip(run.bodies, run.ends, strict=True)]


def _name(code: int) -> str:
    try:
        return ReasonCode(code).name.replace("_", " ").lower()
    except ValueError:
        return f"code 0x{code:02x}"
