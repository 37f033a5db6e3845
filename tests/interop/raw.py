"""An MQTT client that does exactly as it is told: says what no well-behaved client says, and reads when it likes."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from bench.wires.packets import (
    encode_ack,
    encode_connect,
    encode_disconnect,
    encode_pingreq,
    encode_publish,
    encode_subscribe,
    encode_unsubscribe,
)
from tests.interop.waiting import PATIENCE_S, received

from headway.core.message.record import NO_PROPERTIES, Properties, Run
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import (
    ConnAck,
    Connect,
    DisconnectPacket,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    TopicRequest,
    UnsubAck,
)  # fmt: skip

P = TypeVar("P")


class Message(NamedTuple):
    """A PUBLISH as it arrived."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES
    expiry_s: int | None = None
    identifiers: tuple[int, ...] = ()

    @property
    def user(self) -> dict[str, str]:
        return dict(self.properties.user)


class Raw:
    """Connects at once, and with ``connect=False`` says nothing. It never acknowledges by itself."""

    def __init__(
        self,
        port: int,
        client_id: str = "",
        version: int = 5,
        *,
        connect: bool = True,
        granted: bool = True,
        receive_buffer: int | None = None,
        read_aliases: int = 0,
        tls: ssl.SSLContext | None = None,
        **fields: Any,
    ) -> None:
        self.version = version
        self.sock = socket.socket()
        if receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock, server_hostname="localhost")
        self.decoder = MqttDecoder(role="client", version=version, topic_alias_max=read_aliases)
        self.inbox: list[Any] = []
        self.ended = False
        self.read_bytes = 0
        self.next_id = 0
        self.client_id = client_id
        self.opened(port)
        if connect:
            fields.setdefault("clean_start", True)
            self.send(encode_connect(Connect(version, client_id, **fields)))
            self.connack = self.expect(ConnAck)
            assert not granted or self.connack.code == 0, self.connack

    def __enter__(self) -> Raw:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Vanish without a word."""
        self.sock.close()

    def opened(self, port: int) -> None:
        """What comes before the first packet, where the protocol is carried in something else."""

    # -- out --------------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def _id(self) -> int:
        self.next_id = self.next_id % 65_535 + 1
        return self.next_id

    def subscribe(self, *entries: TopicRequest | str, **more: Any) -> SubAck:
        number = self._id()
        self.send(encode_subscribe(number, entries, version=self.version, **more))
        answer = self.expect(SubAck)
        assert answer.packet_id == number
        return answer

    def subscribed(self, *entries: TopicRequest | str, **more: Any) -> Raw:
        """Subscribe, and be granted it."""
        answer = self.subscribe(*entries, **more)
        assert all(code < 0x80 for code in answer.codes), answer
        return self

    def unsubscribe(self, *filters: str) -> UnsubAck:
        self.send(encode_unsubscribe(self._id(), filters, version=self.version))
        return self.expect(UnsubAck)

    def publish(self, topic: str, payload: bytes = b"", qos: int = 0, **more: Any) -> int:
        """Send a PUBLISH and do not wait; its packet id."""
        number = self._id() if qos else 0
        self.send(encode_publish(topic, payload, version=self.version, qos=qos, packet_id=number, **more))
        return number

    def publish_all(self, topic: str, payloads: Sequence[bytes], **more: Any) -> None:
        """Many at once, as one write."""
        self.send(b"".join(encode_publish(topic, payload, version=self.version, **more) for payload in payloads))

    def published(self, topic: str, payload: bytes = b"", **more: Any) -> PubAck:
        """Publish at least once. When this returns, whoever is subscribed and not behind has been sent it."""
        number = self.publish(topic, payload, 1, **more)
        while (answer := self.expect(PubAck)).packet_id != number:
            pass  # of a publish that nobody waited for
        return answer

    def ack(self, message: Message) -> None:
        self.send(encode_ack(4, message.packet_id))

    def rec(self, message: Message, code: int = 0) -> None:
        self.send(encode_ack(5, message.packet_id, code))

    def rel(self, packet_id: int) -> None:
        self.send(encode_ack(6, packet_id))

    def comp(self, packet_id: int) -> None:
        self.send(encode_ack(7, packet_id))

    def say_goodbye(self, **fields: Any) -> None:
        self.send(encode_disconnect(DisconnectPacket(**fields), version=self.version))

    def goodbye(self, **fields: Any) -> None:
        self.say_goodbye(**fields)
        self.wait_end()
        self.close()

    # -- in ---------------------------------------------------------------------------------------------------------

    def unwrapped(self, data: bytes) -> bytes:
        """The protocol's own bytes."""
        return data

    def read(self, seconds: float = 0.0) -> bool:
        """Take in what has come, waiting so long for it. False when nothing came (or nothing more can)."""
        data = None if self.ended else received(self.sock, seconds)
        if not data:
            self.ended |= data is not None
            return False
        self.read_bytes += len(data)
        for item in self.decoder.feed(self.unwrapped(data)):
            self.inbox.extend(messages_of(item))
        assert self.decoder.error is None, self.decoder.error
        return True

    def expect(self, kind: type[P], seconds: float = PATIENCE_S) -> P:
        """The next packet of a kind; what else comes stays in the inbox."""
        deadline = time.monotonic() + seconds
        looked = 0
        while True:
            for index in range(looked, len(self.inbox)):
                if isinstance(self.inbox[index], kind):
                    found: P = self.inbox.pop(index)
                    return found
            looked = len(self.inbox)
            if not self.read(deadline - time.monotonic()) and (self.ended or time.monotonic() > deadline):
                raise AssertionError(
                    f"no {kind.__name__}: {'the end' if self.ended else f'{seconds:g} s'}, {self.inbox[:5]}"
                )

    def message(self, seconds: float = PATIENCE_S) -> Message:
        return self.expect(Message, seconds)

    def messages(self, count: int, seconds: float = PATIENCE_S) -> list[Message]:
        deadline = time.monotonic() + seconds
        seen = come = 0
        while True:
            come += sum(type(item) is Message for item in self.inbox[seen:])
            seen, left = len(self.inbox), deadline - time.monotonic()
            if come >= count or (not self.read(left) and (self.ended or left <= 0)):
                break
        found = [item for item in self.inbox if type(item) is Message][:count]
        assert len(found) == count, f"{len(found)} of {count} messages, {'the end' if self.ended else 'time is over'}"
        taken = set(map(id, found))
        self.inbox = [item for item in self.inbox if id(item) not in taken]
        return found

    def payloads(self, count: int, seconds: float = PATIENCE_S) -> list[bytes]:
        return [message.payload for message in self.messages(count, seconds)]

    def so_far(self) -> list[Message]:
        """All messages that are due now. Answers go out ahead of records that the same read set free, so the broker is
        asked twice."""
        for _ in range(2):
            self.send(encode_pingreq())
            self.expect(PingResp)
        found = [item for item in self.inbox if type(item) is Message]
        self.inbox = [item for item in self.inbox if type(item) is not Message]
        return found

    def wait_end(self, seconds: float = PATIENCE_S) -> None:
        """Read until the broker closes."""
        deadline = time.monotonic() + seconds
        while not self.ended:
            assert self.read(deadline - time.monotonic()) or self.ended, "the connection is still open"

    def wait_disconnect(self, seconds: float = PATIENCE_S) -> DisconnectPacket:
        """The DISCONNECT that is the very last packet before the broker closes; what it said before is in the inbox."""
        self.wait_end(seconds)
        assert self.decoder.buffered_bytes == 0, "the stream ends within a packet"
        last = self.inbox.pop()
        assert isinstance(last, DisconnectPacket), last
        return last


def messages_of(item: Any) -> Iterator[Any]:
    if type(item) is Run:
        for index in range(len(item)):
            yield Message(item.topic, item.payload(index), 0, item.retain, properties=item.properties)
    elif type(item) is Publish:
        run = item.run
        for index in range(len(run)):
            yield Message(
                run.topic,
                run.payload(index),
                item.qos,
                run.retain,
                item.dup,
                item.packet_id,
                run.properties,
                item.expiry_s,
                item.identifiers,
            )
    else:
        yield item


__all__ = ["Message", "PubAck", "PubComp", "PubRec", "PubRel", "Raw"]
