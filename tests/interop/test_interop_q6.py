"""Qpid's test matrix (Q6) over JMS, AMQP 1.0 and STOMP, on queues and topics, with clients that nobody here wrote:
ActiveMQ's for JMS, Proton, and stomp.py. Whoever is too slow is told so with the verdict, however it acknowledges and
takes records, cannot commit any more, and loses nothing that is kept for it; who is not too slow is not told. And Q3 on
topics: who is deleted, and who is spared. Over AMQP 0-8 to 0-9-1: test_amqp_matrix.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Queue
from typing import Any, Protocol
from uuid import uuid4

import pytest
from proton import ConnectionException, Message, ProtonException
from proton.handlers import MessagingHandler
from proton.reactor import AtMostOnce, Container, DurableSubscription
from proton.utils import BlockingConnection
from stomp.exception import NotConnectedException
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
from tests.interop.stomps import Client
from tests.interop.waiting import PATIENCE_S, until

MODES = {AUTO: "auto", CLIENT: "client", DUPS_OK: "dups-ok", INDIVIDUAL: "individual", TRANSACTED: "transacted"}
LIMIT = 10
WINDOW = 4
LOOKS_MS = 60
"""In that time the governor looks several times (its sweep is 10 ms)."""
DELETE = '{ action = "delete_subscription", durable = true }'
RULES = "".join(
    policy(name, topics, f'when = {{ lag_records = "> {LIMIT}" }}\nthen = {then}')
    for name, topics, then in (
        ("matrix", 'q6/#", "$queue/q6/+", "$queue/durable/+/q6', '"disconnect"'),
        ("delete durable", "$queue/durable/+/told", DELETE),  # such a queue is bound to topics of the next one, too
        ("delete", 'q3/#", "$queue/durable/+/q3', '"delete_subscription"'),
    )
)
KINDS = ["durable", "transient", "durable subscription", "topic"]
"""Persistent and other records of a queue; a topic's subscriptions that outlive their connection, and others."""


def address(kind: str, place: str) -> str:
    """``place``: ``q6.NAME`` and the like."""
    return f"{'topic' if kind in KINDS[2:] else 'queue'}://{place}"


@pytest.fixture(scope="module")
def broker(start: BrokerFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    journal = f'[journal]\npath = "{tmp_path_factory.mktemp("journal")}"\n'
    stomp = '[listeners.stomp]\nurl = "stomp://127.0.0.1:0"\n'
    process = start(LISTENERS + stomp + journal + RULES + policy(PATIENT, "none"), server={"sweep": "10ms"})
    yield process
    process.stop()


class Consumer(Protocol):
    """A client that takes one record after the other, each when it is asked to, and settles them as its mode is."""

    name: str

    def take(self, count: int) -> list[str]:
        """The next ones, all settled."""
        ...

    def hold(self) -> None:
        """Takes one more within a transaction, if it has any."""
        ...

    def cannot_commit(self) -> None:
        """Fails to commit that."""
        ...

    def told(self) -> str:
        """Returns what it is told when it is cut."""
        ...

    def close(self) -> None: ...


def behaves(broker: BrokerProcess, consumer: Consumer, put: Callable[[list[str]], None]) -> None:
    """It takes a window of records; then so many wait that it is not too slow; then one more."""
    first = [f"first {number}" for number in range(WINDOW)]
    put(first)
    assert consumer.take(WINDOW) == first
    waiting = fill(broker, consumer.name, put)
    until(lambda: row(broker, consumer.name).get("lag_age_ms", 0) >= LOOKS_MS)
    assert broker.verdicts(consumer.name) == []
    assert consumer.take(len(waiting)) == waiting
    put(["held"])
    consumer.hold()
    fill(broker, consumer.name, put)
    put(["one more"])
    [verdict] = until(lambda: broker.verdicts(consumer.name), what="a verdict")
    assert (verdict["reason"], verdict["policy"], verdict["enforced"]) == ("lag_records", "matrix", True)
    assert f"{LIMIT + 1} records" in verdict["text"]
    assert verdict["text"] in consumer.told()
    consumer.cannot_commit()
    until(lambda: not row(broker, consumer.name), what="it is gone")


def fill(broker: BrokerProcess, name: str, put: Callable[[list[str]], None]) -> list[str]:
    """As many records as are not too many for a consumer that takes none of them."""
    sent: list[str] = []
    while (missing := LIMIT - row(broker, name)["lag_records"]) > 0:  # some are in its window
        more = [str(len(sent) + number) for number in range(missing)]
        put(more)
        sent += more
    return sent


def assert_left(broker: BrokerProcess, kind: str, queue: str) -> None:
    """All that waited is left, and what was in the window and not settled; of a topic's transient subscription nothing.
    """
    if kind == "topic":
        until(lambda: broker.get("/v1/broker")["pools"][0]["memory_bytes"] == 0, what="nothing is held")
        return
    with Named(broker.ports["amqp"] or 0, "left") as raw:
        found = raw.drain(queue)
    assert len(found) >= LIMIT + 1
    assert b"one more" in found[-1]


def row(broker: BrokerProcess, name: str) -> dict[str, Any]:
    there = broker.get("/v1/consumers")["consumers"]
    found = [one for one in there if one["client"] == name and not one["filter"].startswith("ActiveMQ/")]
    return found[0] if found else {}


# -- JMS ---------------------------------------------------------------------------------------------------------------


class JmsConsumer:
    def __init__(self, jms: Jms, broker: BrokerProcess, name: str, place: str, mode: int, how: str, durable: str = ""
                 ) -> None:
        """``durable``: the name of its durable subscription."""
        self.jms, self.name, self.mode, self.how = jms, name, mode, how
        self.connection = jms.connect(url_of(broker), client_id=name)
        self.session = jms.session(self.connection, mode)
        place += f"?consumer.prefetchSize={WINDOW}"
        self.consumer = jms.durable(self.session, place, durable) if durable else jms.consumer(self.session, place)
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

    def hold(self) -> None:
        if self.mode == TRANSACTED:
            assert self.jms.heard(self.consumer) if self.how == "listener" else self.jms.got(self.consumer)

    def cannot_commit(self) -> None:
        if self.mode == TRANSACTED:
            with pytest.raises(JmsError):
                self.jms.do("commit", self.session)

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
    place, name = f"q6.{uuid4().hex[:8]}", f"jms-{uuid4().hex[:8]}"
    feeding = jms.connect(url_of(broker))
    session = jms.session(feeding)
    producer = jms.producer(session, address(kind, place))

    def put(bodies: list[str]) -> None:
        for body in bodies:
            jms.send(producer, session, body, mode=PERSISTENT if kind.startswith("durable") else NON_PERSISTENT)

    consumer = JmsConsumer(jms, broker, name, address(kind, place), mode, how, "q6" if kind == KINDS[2] else "")
    try:
        behaves(broker, consumer, put)
    finally:
        consumer.close()
    assert_left(broker, kind, place if kind in KINDS[:2] else f"durable.{name}.q6")
    jms.do("close", feeding)


# -- AMQP 1.0 ----------------------------------------------------------------------------------------------------------


def options_of(mode: str, durable: str) -> list[Any]:
    return [AtMostOnce()] * (mode == "settled") + [DurableSubscription()] * bool(durable)


class NoTransactions:
    """How messages are settled in transactions is tested in test_amqp1_slow.py."""

    def hold(self) -> None: ...

    def cannot_commit(self) -> None: ...


class Asking(NoTransactions):
    """By a receiver that asks for each record."""

    def __init__(self, port: int, name: str, place: str, mode: str, durable: str = "") -> None:
        self.name, self.mode = name, mode
        container = Container()
        container.container_id = name
        self.client = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=TIMEOUT_S, container=container)
        self.receiver = self.client.create_receiver(
            place, credit=WINDOW, name=durable or None, options=options_of(mode, durable)
        )

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


class Listening(NoTransactions, MessagingHandler):
    """By a handler that is called with each record, and holds it until somebody asks for it."""

    def __init__(self, port: int, name: str, place: str, mode: str, durable: str = "") -> None:
        MessagingHandler.__init__(self, prefetch=WINDOW, auto_accept=False)
        self.name, self.mode, self.place, self.durable = name, mode, place, durable
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
            connection, self.place, name=self.durable or None, options=options_of(self.mode, self.durable)
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
def test_q6_over_amqp_1_0(broker: BrokerProcess, mode: str, how: type[Asking] | type[Listening], kind: str) -> None:
    place, name = f"q6.{uuid4().hex[:8]}", f"amqp-{uuid4().hex[:8]}"
    with feeding(broker, address(kind, place), durable=kind.startswith("durable")) as put:
        consumer = how(broker.ports["amqp"] or 0, name, address(kind, place), mode, "q6" if kind == KINDS[2] else "")
        until(lambda: row(broker, name))
        try:
            behaves(broker, consumer, put)
        finally:
            consumer.close()
    assert_left(broker, kind, place if kind in KINDS[:2] else f"durable.{name}.q6")


@contextmanager
def feeding(broker: BrokerProcess, place: str, *, durable: bool) -> Iterator[Callable[[list[str]], None]]:
    client = BlockingConnection(f"amqp://127.0.0.1:{broker.ports['amqp']}", timeout=TIMEOUT_S)
    sender = client.create_sender(place)

    def put(bodies: list[str]) -> None:
        for body in bodies:
            sender.send(Message(body, durable=durable))

    yield put
    client.close()


# -- STOMP -------------------------------------------------------------------------------------------------------------


class StompConsumer:
    """stomp.py calls a listener. It acknowledges each record when it is asked to."""

    def __init__(self, broker: BrokerProcess, name: str, place: str, mode: str, durable: str = "") -> None:
        self.name, self.mode = name, mode
        self.client = Client(broker.ports["stomp"] or 0, headers={"client-id": name})
        more = {"activemq.subscriptionName": durable} if durable else {}
        ack = "client" if mode == "transacted" else mode
        self.client.subscribe(place, ack=ack, prefetch_count=str(WINDOW), **more)
        self.taken = self.transactions = 0

    def _next(self, **headers: str) -> str:
        self.client.bodies(self.taken + 1)
        self.taken += 1
        return self.client.heard.messages[self.taken - 1][1]

    def take(self, count: int) -> list[str]:
        got = []
        for number in range(count):
            got.append(self._next())
            if self.mode == "transacted":
                self._in_transaction()
                self.client.told(lambda name: self.client.conn.commit(self.transaction, headers={"receipt": name}))
            elif self.mode == "client-individual" or number == count - 1 or number % WINDOW == 0:
                self.client.acknowledge(self.taken - 1)
        return got

    def _in_transaction(self) -> None:
        self.transactions += 1
        self.transaction = str(self.transactions)
        self.client.conn.begin(self.transaction)
        self.client.acknowledge(self.taken - 1, transaction=self.transaction)

    def hold(self) -> None:
        if self.mode == "transacted":
            self._next()
            self._in_transaction()

    def cannot_commit(self) -> None:
        if self.mode == "transacted":
            with pytest.raises(NotConnectedException):
                self.client.conn.commit(self.transaction)

    def told(self) -> str:
        return self.client.error()[1]

    def close(self) -> None:
        self.client.leave()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["client", "client-individual", "transacted"])
def test_q6_over_stomp(broker: BrokerProcess, mode: str, kind: str) -> None:
    place, name = f"q6.{uuid4().hex[:8]}", f"stomp-{uuid4().hex[:8]}"
    there = f"/{'topic' if kind in KINDS[2:] else 'queue'}/{place}"
    with feeding(broker, address(kind, place), durable=kind.startswith("durable")) as put:
        consumer = StompConsumer(broker, name, there, mode, "q6" if kind == KINDS[2] else "")
        try:
            behaves(broker, consumer, put)
        finally:
            consumer.close()
    assert_left(broker, kind, place if kind in KINDS[:2] else f"durable.{name}.q6")


# -- Q3: deleted, and spared -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("durable", "spared"), [("", False), ("q3", True), ("told", False)],
    ids=["transient", "durable", "durable, and told so"],
)
@pytest.mark.parametrize("protocol", [pytest.param("jms", marks=needs_jms), "amqp 1.0", "stomp"])
def test_q3_on_topics_deleting_spares_durable_subscriptions_unless_told(
    jms: Jms, broker: BrokerProcess, protocol: str, durable: str, spared: bool
) -> None:
    """Durable and transient ones are told in the same way; a spared one is not told, and its verdict says why."""
    place, name = f"q3.{uuid4().hex[:8]}", f"{protocol[:4].strip()}-{uuid4().hex[:8]}"
    consumer: Consumer
    if protocol == "jms":
        consumer = JmsConsumer(jms, broker, name, f"topic://{place}", CLIENT, "receive", durable)
    elif protocol == "stomp":
        consumer = StompConsumer(broker, name, f"/topic/{place}", "client", durable)
    else:
        consumer = Asking(broker.ports["amqp"] or 0, name, f"topic://{place}", "accepted one by one", durable)
    with feeding(broker, f"topic://{place}", durable=True) as put:
        put(sent := [str(number) for number in range(LIMIT + 2 * WINDOW + 1)])
        verdict = until(lambda: broker.verdicts(name), what="a verdict")[-1]
        assert verdict["enforced"] != spared
        if spared:
            assert "durable, so spared, and not unsubscribed by policy" in verdict["text"]
            assert len(consumer.take(len(sent))) == len(sent)
        else:
            assert verdict["text"] in consumer.told()  # by the end of the connection, as it has no other consumer
            until(lambda: not row(broker, name), what="the subscription is gone")
            assert not [one for one in broker.get("/v1/queues")["queues"] if name in one["name"]]
    consumer.close()
