"""What the tests of slow AMQP consumers share: a broker with policies, clients that have names, a publisher."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from pamqp.commands import Basic, Channel, Connection, Queue
from tests.interop.amqp_broker import LISTENER, AmqpBroker
from tests.interop.amqp_raw import CAPABILITIES, Content, Raw
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess

SMALL = 4096
"""Receive buffer of a client whose socket is to be full soon."""
TEXT_MAX = 255
PATIENT = "patient"
"""A policy that a consumer may ask for, and that does nothing."""


def policy(name: str, topics: str, *rules: str) -> str:
    """``rules``: what stands in each [[policy.rule]]."""
    head = f'[[policy]]\nname = "{name}"\ntopics = ["{topics}"]\n'
    return head + "".join(f"[[policy.rule]]\n{one}\n" for one in rules)


def start_amqp(start: BrokerFactory, config: str, **server: str) -> AmqpBroker:
    """A broker of the module's own, with little room in its sockets."""
    process = start(LISTENER + config + policy(PATIENT, "none"), server={"send_buffer": "16KiB"} | server)
    return AmqpBroker(process.port, 0, None, process)


class Named(Raw):
    """A raw client that says what it is called."""

    def __init__(self, port: int, name: str, version: str = "0-9-1", *, able: bool = True, **more: Any) -> None:
        """``able``: it understands what a server says without being asked."""
        self.name, self.able = name, able
        super().__init__(port, version, **more)

    def __enter__(self) -> Self:
        return self

    def log_in(
        self, user: str = "guest", password: str = "guest", *, capabilities: tuple[str, ...] = CAPABILITIES
    ) -> None:
        able = dict.fromkeys(capabilities if self.able else (), True)
        about: Any = {"connection_name": self.name, "capabilities": able}
        self.do(Connection.StartOk(about, "PLAIN", f"\0{user}\0{password}"), 0)

    def read_fast(self) -> None:
        """As fast as others, whatever the receive buffer was."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)

    def consume(
        self, queue: str, channel: int = 1, *, no_ack: bool = False, prefetch: int = 0, policy: str = ""
    ) -> str:
        """The consumer's tag."""
        self.call(Basic.Qos(prefetch_count=prefetch), Basic.QosOk, channel)
        arguments: Any = {"policy": policy} if policy else {}
        command = Basic.Consume(queue=queue, no_ack=no_ack, arguments=arguments)
        return str(self.call(command, Basic.ConsumeOk, channel).consumer_tag)

    def cancel(self, tag: str, channel: int = 1) -> None:
        self.call(Basic.Cancel(tag), Basic.CancelOk, channel)

    def ack(self, *tags: int, channel: int = 1, multiple: bool = False) -> None:
        for tag in tags:
            self.do(Basic.Ack(tag, multiple), channel)

    def put(self, queue: str, *bodies: bytes, exchange: str = "") -> None:
        """The broker has them all when this returns."""
        self.publish(exchange, queue, *bodies)
        self.sync()

    def shared(self, queue: str) -> str:
        """Declare a queue for others to consume; it goes with the last of them."""
        return self.declare(queue, exclusive=False, auto_delete=True)

    def count(self, queue: str) -> int:
        """Records that wait."""
        return self.call(Queue.Declare(queue=queue, passive=True), Queue.DeclareOk).message_count or 0

    def drain(self, queue: str) -> list[bytes]:
        """All that wait, taken for good, by a consumer that is not governed."""
        tag = self.consume(queue, no_ack=True, policy=PATIENT)
        self.sync()
        self.cancel(tag)
        found = [item for channel, item in self.inbox if channel == 1 and isinstance(item, Content)]
        self.inbox = [(channel, item) for channel, item in self.inbox if item not in found]
        return [one.body for one in found]

    def exists(self, queue: str) -> bool:
        """Asked on a channel of its own."""
        self.open_channel(99)
        self.do(Queue.Declare(queue=queue, passive=True), 99)
        if isinstance(self.expect(object, 99), Channel.Close):
            self.do(Channel.CloseOk(), 99)
            return False
        self.call(Channel.Close(0, "", 0, 0), Channel.CloseOk, 99)
        return True


def numbered(count: int, size: int = 1000, first: int = 0) -> list[bytes]:
    return [b"%06d" % number + b"." * (size - 6) for number in range(first, first + count)]


def pools(broker: BrokerProcess) -> dict[str, dict[str, Any]]:
    return {pool["name"]: pool for pool in broker.get("/v1/broker")["pools"]}


def pool(broker: BrokerProcess) -> dict[str, Any]:
    return pools(broker)["global"]


def row(broker: BrokerProcess, client: str, queue: str) -> dict[str, Any]:
    """What the broker says of a consumer; empty when there is none."""
    return broker.consumer(client, f"$queue/{queue}")


def assert_told_why(told: Any, verdict: dict[str, Any]) -> None:
    """506, and as much of the verdict's sentence as there is room for; ``told``: what closes, or pika's exception."""
    text = f"RESOURCE_ERROR - {verdict['text']}"
    assert told.reply_code == 506
    assert told.reply_text == (text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "...")


@contextmanager
def closing(*clients: Raw) -> Iterator[None]:
    """At the end they vanish."""
    try:
        yield
    finally:
        for client in clients:
            client.close()
