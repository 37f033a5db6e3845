"""A slow consumer per protocol: it takes a few records of a topic and lets the others wait. It can be asked what it was
told in the end, or read on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from proton import ConnectionException, ProtonException, symbol
from proton.reactor import Container, Filter
from proton.utils import BlockingConnection
from tests.interop.jms_client import CLIENT, Jms, JmsError
from tests.interop.process import BrokerProcess
from tests.interop.stomps import Client
from tests.interop.waiting import PATIENCE_S, until

WINDOW = 1
GAP = "gap-records"


class Got(NamedTuple):
    body: str
    gap_records: int
    """Of the gap that is told with it; 0: none is."""


class Slow(Protocol):
    def told(self) -> str:
        """Returns what it is told when its connection ends."""
        ...

    def read(self) -> Iterator[Got]:
        """Reads on, each record when it is asked for."""
        ...

    def close(self) -> None: ...


class SlowStomp:
    def __init__(self, broker: BrokerProcess, _jms: Jms, name: str, topic: str, **options: str) -> None:
        self.client = Client(broker.ports["stomp"] or 0, headers={"client-id": name})
        if not options:
            options = {"ack": "client-individual", "prefetch_count": str(WINDOW)}
        self.acks = "ack" in options
        self.client.subscribe(f"/topic/{topic}", **options)

    def told(self) -> str:
        return self.client.error()[1]

    def read(self) -> Iterator[Got]:
        number = 0
        while True:
            self.client.bodies(number + 1)
            headers, body = self.client.heard.messages[number]
            if self.acks:
                self.client.conn.ack(headers["ack"])
            yield Got(body, int(headers.get(f"x-headway-{GAP}", 0)))
            number += 1

    def close(self) -> None:
        self.client.leave()


class SlowAmqp1:
    def __init__(self, broker: BrokerProcess, _jms: Jms, name: str, topic: str, **options: str) -> None:
        container = Container()
        container.container_id = name
        self.connection = BlockingConnection(
            f"amqp://127.0.0.1:{broker.ports['amqp']}", timeout=PATIENCE_S, container=container
        )
        filters = Filter({symbol(f"x-opt-headway-{key}"): value for key, value in options.items()}) if options else None
        self.receiver = self.connection.create_receiver(f"topic://{topic}", credit=WINDOW, options=filters)

    def told(self) -> str:
        try:
            self.connection.wait(lambda: False)
        except ConnectionException as fault:
            return str(fault)
        raise AssertionError("nothing was told")

    def read(self) -> Iterator[Got]:
        while True:
            message = self.receiver.receive()
            self.receiver.accept()
            body = message.body if isinstance(message.body, str) else bytes(message.body).decode()
            yield Got(body, (message.annotations or {}).get(symbol(f"x-opt-headway-{GAP}"), 0))

    def close(self) -> None:
        with suppress(ProtonException):
            self.connection.close()


class SlowJms:
    def __init__(self, broker: BrokerProcess, jms: Jms, name: str, topic: str, **options: str) -> None:
        self.jms = jms
        url = f"tcp://127.0.0.1:{broker.ports['openwire']}"
        self.connection = jms.connect(url, client_id=name)
        session = jms.session(self.connection, CLIENT)
        hints = " ".join(f"{key}={value}" for key, value in options.items())
        selector = f"/*+ {hints} */ TRUE" if hints else None
        self.consumer = jms.consumer(session, f"topic://{topic}?consumer.prefetchSize={WINDOW}", selector)

    def told(self) -> str:
        """Its ExceptionListener is called for the transport, too, which may come first."""
        heard = until(
            lambda: [fault for fault in self.jms.faults(self.connection) if "policy" in fault], what="a sentence"
        )
        return " ".join(heard or ())

    def read(self) -> Iterator[Got]:
        while True:
            message = self.jms.got(self.consumer)
            self.jms.do("acknowledge", self.consumer)
            gap = message.properties.get(f"x-headway-{GAP}", ":0")
            yield Got(message.body or "", int(gap.split(":")[1]))

    def close(self) -> None:
        with suppress(JmsError):  # where it was cut
            self.jms.do("close", self.connection)


SLOW: dict[str, Callable[..., Any]] = {"STOMP": SlowStomp, "AMQP 1.0": SlowAmqp1, "OpenWire": SlowJms}
