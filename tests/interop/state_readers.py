"""One client of each protocol that subscribes to topics with options of the state, and yields what it is told: what
the broker says of a record, by its names in user properties, and the payload."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

from proton import Described, symbol
from proton.reactor import Filter
from proton.utils import BlockingConnection
from tests.interop.amqp_pika import Pika
from tests.interop.jms_client import java
from tests.interop.pahos import paho, properties
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.stomps import Client
from tests.interop.waiting import PATIENCE_S, until

LISTENERS = LISTENER + (
    '[listeners.amqp]\nurl = "amqp://127.0.0.1:0"\n[listeners.stomp]\nurl = "stomp://127.0.0.1:0"\n'
    '[listeners.openwire]\nurl = "openwire://127.0.0.1:0"\n'
)  # fmt: skip
CREDIT = 5000
"""Of an AMQP 1.0 client: more than a state has."""
Told = Iterator[tuple[dict[str, Any], bytes]]


@contextmanager
def mqtt(broker: BrokerProcess, root: str, name: str, options: dict[str, str]) -> Iterator[Told]:
    with paho(broker.ports["mqtt"], name) as client:

        def told() -> Told:
            done = 0
            while True:
                for message in client.wait(done + 1)[done:]:
                    done += 1
                    yield dict(getattr(message.properties, "UserProperty", [])), message.payload

        wanted = properties("SUBSCRIBE", UserProperty=list(options.items()))
        client.client.subscribe(f"{root}/#", 0, properties=wanted)
        yield told()


@contextmanager
def amqp(broker: BrokerProcess, root: str, name: str, options: dict[str, str]) -> Iterator[Told]:
    with closing(Pika(broker.ports["amqp"])) as client:

        def told() -> Told:
            while True:
                until(client.turn, what="a delivery")
                some, client.got = client.got, []
                yield from ((one.headers, one.body) for one in some)

        wanted = {f"x-headway-{option}": value for option, value in options.items()}
        client.consume("amq.topic", auto_ack=True, arguments={"x-headway-topics": f"{root}.#", **wanted})
        yield told()


@contextmanager
def stomp(broker: BrokerProcess, root: str, name: str, options: dict[str, str]) -> Iterator[Told]:
    client = Client(broker.ports["stomp"])

    def told() -> Told:
        done = 0
        while True:
            until(lambda: len(client.heard.messages) > done, what="a MESSAGE")  # noqa: B023 - it is called at once
            some = client.heard.messages[done:]
            done += len(some)
            yield from ((headers, body.encode()) for headers, body in some)

    try:
        headers = {f"x-headway-{option}": value for option, value in options.items()}
        client.told(lambda receipt: client.conn.subscribe(
            f"/topic/{root}.>", id="1", ack="auto", headers={"receipt": receipt, **headers}
        ))  # fmt: skip
        yield told()
    finally:
        client.leave()


@contextmanager
def amqp1(broker: BrokerProcess, root: str, name: str, options: dict[str, str]) -> Iterator[Told]:
    with closing(BlockingConnection(f"amqp://127.0.0.1:{broker.ports['amqp']}", timeout=PATIENCE_S)) as client:
        named = {symbol(f"x-opt-headway-{option}"): value for option, value in options.items()}
        filters = Filter({name: Described(name, value) for name, value in named.items()})
        receiver = client.create_receiver(f"topic://{root}.>", name=name, credit=CREDIT, options=filters)

        def told() -> Told:
            for count in range(1, 1 << 62):
                message = receiver.receive()
                if count % (CREDIT // 2) == 0:
                    receiver.flow(CREDIT // 2)
                annotations = (message.annotations or {}).items()
                said = {str(name).removeprefix("x-opt-"): value for name, value in annotations}
                yield said, bytes(message.body or b"")

        yield told()


@contextmanager
def jms(broker: BrokerProcess, root: str, name: str, options: dict[str, str]) -> Iterator[Told]:
    client = java()
    connection = client.connect(f"tcp://127.0.0.1:{broker.ports['openwire']}")
    quoted = {option: f"'{value}'" if " " in value else value for option, value in options.items()}
    hints = " ".join(f"{option}={value}" for option, value in quoted.items())
    consumer = client.consumer(client.session(connection), f"topic://{root}.>", f"/*+ {hints} */ TRUE")

    def told() -> Told:
        while True:
            message = client.got(consumer)
            said = {name: value.partition(":")[2] for name, value in message.properties.items()}
            body = message.body or ""  # of a BytesMessage, as MQTT has bytes
            yield said, base64.b64decode(body) if message.kind == "bytes" else body.encode()

    try:
        yield told()
    finally:
        client.do("close", connection)


Reader = Callable[[BrokerProcess, str, str, dict[str, str]], AbstractContextManager[Told]]
"""Of a broker, the first level of the topics, a name for the client, and options."""
READERS: dict[str, Reader] = {
    "MQTT 5, paho": mqtt, "AMQP 0-9-1, pika": amqp, "AMQP 1.0, Proton": amqp1, "STOMP 1.2, stomp.py": stomp,
    "OpenWire, ActiveMQ's JMS client": jms,
}  # fmt: skip
