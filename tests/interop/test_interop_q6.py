"""Qpid's test matrix (Q6) over JMS and AMQP 1.0, with clients that nobody here wrote: ActiveMQ's for JMS, and Proton.
Whoever is too slow is told so with the verdict, however it acknowledges and takes records, and loses nothing; who is
not too slow is not. Over AMQP 0-8 to 0-9-1: test_amqp_matrix.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Queue
from typing import Any, Protocol
from uuid import uuid4

import pytest
from proton import ConnectionException, Message, ProtonException
from proton.handlers import MessagingHandler
from proton.reactor import AtMostOnce, Container, DurableSubscription
from proton.utils import BlockingConnection
from tests.interop.amqp1_fixtures import TIMEOUT_S
from tests.interop.amqp_slow import PATIENT, Named, policy
from tests.interop.conftest import BrokerFactory
from tests.interop.jms_client import (
    AUTO,
    CLIENT,
    DUPS_OK,
    INDIVIDUAL,
    NON_PERSISTENT,
    PERSISTENT,
    TRANSACTED,
    Jms,
    JmsError,
    needs_jms,
)
from tests.interop.openwire_fixtures import LISTENERS, url_of
from tests.interop.process import BrokerProcess
from tests.interop.waiting import PATIENCE_S, until

MODES = {AUTO: "auto", CLIENT: "client", DUPS_OK: "dups-ok", INDIVIDUAL: "individual", TRANSACTED: "transacted"}
LIMIT = 10
WINDOW = 4
LOOKS_MS = 60
"""In that time the governor looks several times (its sweep is 10 ms)."""
KINDS = ["durable queue", "transient queue", "durable subscription", "topic"]
"""Of a queue the messages are durable, or transient."""
RULE = f'when = {{ lag_records = "> {LIMIT}" }}\nthen = "disconnect"'


@pytest.fixture(scope="module")
def broker(start: BrokerFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    journal = f'[journal]\npath = "{tmp_path_factory.mktemp("journal")}"\n'
    policies = policy("matrix", '$queue/#", "q6/#', RULE) + policy(PATIENT, "none")
    process = start(LISTENERS + journal + policies, server={"sweep": "10ms"})
    yield process
    process.stop()


class Consumer(Protocol):
    """A client that takes one record after the other, each when it is asked to, and settles them as its mode is."""

    name: str

    def take(self, count: int) -> list[str]:
        """The next ones, all settled."""
        ...

    def told(self) -> str:
        """Returns what it is told when it is cut."""
        ...

    def close(self) -> None: ...


def address(kind: str, name: str) -> str:
    return f"{'queue' if 'queue' in kind else 'topic'}://q6.{name}"


def behaves(broker: BrokerProcess, consumer: Consumer, put: Callable[[list[str]], None]) -> None:
    """It takes a window of records; then so many wait that it is not too slow; then one more."""
    first = [f"first {number}" for number in range(WINDOW)]
    put(first)
    assert consumer.take(WINDOW) == first
    waiting = fill(broker, consumer.name, put)
    until(lambda: row(broker, consumer.name).get("lag_age_ms", 0) >= LOOKS_MS)
    assert broker.verdicts(consumer.name) == []
    assert consumer.take(len(waiting)) == waiting
    waiting = fill(broker, consumer.name, put)
    put(["one more"])
    [verdict] = until(lambda: broker.verdicts(consumer.name), what="a verdict")
    assert (verdict["reason"], verdict["policy"], verdict["enforced"]) == ("lag_records", "matrix", True)
    assert f"{LIMIT + 1} records" in verdict["text"]
    assert verdict["text"] in consumer.told()
    until(lambda: not row(broker, consumer.name), what="it is gone")


def fill(broker: BrokerProcess, name: str, put: Callable[[list[str]], None]) -> list[str]:
    """As many records as are not too many for a consumer that takes none of them."""
    sent: list[str] = []
    while (missing := LIMIT - row(broker, name)["lag_records"]) > 0:  # some are in its window
        more = [str(len(sent) + number) for number in range(missing)]
        put(more)
        sent += more
    return sent


def assert_left(broker: BrokerProcess, kind: str, name: str) -> None:
    """All that waited is left, and what was in the window and not settled; of a topic's transient subscription nothing.
    """
    if kind == "topic":
        until(lambda: broker.get("/v1/broker")["pools"][0]["memory_bytes"] == 0, what="nothing is held")
        return
    with Named(broker.ports["amqp"] or 0, "left") as raw:
        found = raw.drain(f"q6.{name}" if "queue" in kind else f"durable.{name}.sub")
    assert len(found) >= LIMIT + 1
    assert b"one more" in found[-1]


def row(broker: BrokerProcess, name: str) -> dict[str, Any]:
    """JMS's client also follows the broker's advisories."""
    found = [
        one for one in broker.get("/v1/consumers")["consumers"]
        if one["client"] == name and "Advisory" not in one["filter"]
    ]  # fmt: skip
    return found[0] if found else {}


# -- JMS ---------------------------------------------------------------------------------------------------------------


class JmsConsumer:
    def __init__(self, jms: Jms, broker: BrokerProcess, name: str, kind: str, mode: int, how: str) -> None:
        self.jms, self.name, self.mode, self.how = jms, name, mode, how
        self.connection = jms.connect(url_of(broker), client_id=name)
        self.session = jms.session(self.connection, mode)
        there = f"{address(kind, name)}?consumer.prefetchSize={WINDOW}"
        durable = kind == "durable subscription"
        self.consumer = jms.durable(self.session, there, "sub") if durable else jms.consumer(self.session, there)
        if how == "listener":
            jms.do("listen", self.consumer, None, "held")

    def take(self, count: int) -> list[str]:
        got = []
        for number in range(count):
            message = self.jms.heard(self.consumer) if self.how == "listener" else self.jms.got(self.consumer)
            assert message is not None
            got.append(message.body or "")
            if self.mode == INDIVIDUAL or (self.mode == CLIENT and (number == count - 1 or number % WINDOW == 0)):
                self.jms.do("acknowledge", self.consumer)
        if self.mode == TRANSACTED:
            self.jms.do("commit", self.session)
        return got

    def told(self) -> str:
        """The client calls its ExceptionListener when no listener is at work any more."""
        if self.how == "listener":
            self._close(self.consumer)
        faults = until(lambda: [one for one in self.jms.faults(self.connection) if "policy" in one], what="a sentence")
        return " ".join(faults)

    def close(self) -> None:
        self._close(self.connection)

    def _close(self, what: str) -> None:
        with suppress(JmsError):  # where it was cut
            self.jms.do("close", what)


@needs_jms
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["receive", "listener"])
@pytest.mark.parametrize("mode", MODES, ids=MODES.get)
def test_q6_over_jms(jms: Jms, broker: BrokerProcess, mode: int, how: str, kind: str) -> None:
    name = f"jms-{uuid4().hex[:8]}"
    feeding = jms.connect(url_of(broker))
    session = jms.session(feeding)
    producer = jms.producer(session, address(kind, name))

    def put(bodies: list[str]) -> None:
        for body in bodies:
            jms.send(producer, session, body, mode=PERSISTENT if "durable" in kind else NON_PERSISTENT)

    consumer = JmsConsumer(jms, broker, name, kind, mode, how)
    try:
        behaves(broker, consumer, put)
    finally:
        consumer.close()
    assert_left(broker, kind, name)
    jms.do("close", feeding)


# -- AMQP 1.0 ----------------------------------------------------------------------------------------------------------


def link(kind: str, mode: str) -> list[Any]:
    """Options of a link."""
    settled, durable = [AtMostOnce()] * (mode == "settled"), [DurableSubscription()] * (kind == "durable subscription")
    return settled + durable


class Asking:
    """By a receiver that asks for each record."""

    def __init__(self, port: int, name: str, kind: str, mode: str) -> None:
        self.name, self.mode = name, mode
        container = Container()
        container.container_id = name
        self.client = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=TIMEOUT_S, container=container)
        self.receiver = self.client.create_receiver(address(kind, name), WINDOW, name="sub", options=link(kind, mode))

    def take(self, count: int) -> list[str]:
        got = []
        for _ in range(count):
            got.append(self.receiver.receive(PATIENCE_S).body)
            if self.mode == "accepted one by one":
                self.receiver.accept()
            elif self.mode == "accepted together" and len(got) % WINDOW == 0:
                self._settle()
        self._settle()
        return got

    def _settle(self) -> None:
        while self.mode == "accepted together" and self.receiver.fetcher.unsettled:
            self.receiver.accept()

    def told(self) -> str:
        with pytest.raises(ConnectionException) as told:
            self.client.wait(lambda: False)
        return str(told.value)

    def close(self) -> None:
        with suppress(ProtonException):
            self.client.close()


class Listening(MessagingHandler):
    """By a handler that is called with each record, and holds it until somebody asks for it."""

    def __init__(self, port: int, name: str, kind: str, mode: str) -> None:
        super().__init__(prefetch=WINDOW, auto_accept=False)
        self.name, self.mode, self.kind = name, mode, kind
        self.url = f"amqp://127.0.0.1:{port}"
        self.wanted: Queue[bool] = Queue()
        self.given: Queue[str] = Queue()
        self.ended: Queue[str] = Queue()
        self.unsettled: list[Any] = []
        container = Container(self)
        container.container_id = name
        self.thread = threading.Thread(target=container.run, daemon=True)
        self.thread.start()

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.url, reconnect=False)
        event.container.create_receiver(
            connection, address(self.kind, self.name), name="sub", options=link(self.kind, self.mode)
        )

    def on_message(self, event: Any) -> None:
        if not self.wanted.get():
            return
        self.given.put(event.message.body)
        self.unsettled.append(event.delivery)
        if self.mode != "accepted together" or len(self.unsettled) == WINDOW:
            self._settle()

    def _settle(self) -> None:
        for delivery in self.unsettled:
            if self.mode != "settled":
                self.accept(delivery)
        self.unsettled.clear()

    def on_connection_error(self, event: Any) -> None:
        self.ended.put(event.connection.remote_condition.description)

    def take(self, count: int) -> list[str]:
        for _ in range(count):
            self.wanted.put(True)
        return [self.given.get(timeout=PATIENCE_S) for _ in range(count)]

    def told(self) -> str:
        for _ in range(WINDOW + 1):
            self.wanted.put(False)
        return self.ended.get(timeout=PATIENCE_S)

    def close(self) -> None:
        for _ in range(WINDOW + 1):
            self.wanted.put(False)
        self.thread.join(PATIENCE_S)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [Asking, Listening], ids=["receive", "listener"])
@pytest.mark.parametrize("mode", ["settled", "accepted one by one", "accepted together"])
def test_q6_over_amqp_1_0(
    broker: BrokerProcess, mode: str, how: type[Asking] | type[Listening], kind: str
) -> None:
    name = f"amqp-{uuid4().hex[:8]}"
    feeding = BlockingConnection(f"amqp://127.0.0.1:{broker.ports['amqp']}", timeout=TIMEOUT_S)
    sender = feeding.create_sender(address(kind, name))

    def put(bodies: list[str]) -> None:
        for body in bodies:
            sender.send(Message(body, durable="durable" in kind))

    consumer = how(broker.ports["amqp"] or 0, name, kind, mode)
    until(lambda: row(broker, name))
    try:
        behaves(broker, consumer, put)
    finally:
        consumer.close()
    assert_left(broker, kind, name)
    feeding.close()


