"""Slow consumers and fast publishers of AMQP 1.0: who is slow by the credit that he gives, what he is told, and who
waits."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Condition, ConnectionException, Handler, Message, symbol
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container
from proton.utils import BlockingConnection, LinkDetached
from tests.interop.amqp1_fixtures import TIMEOUT_S
from tests.interop.amqp_slow import policy
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

NO_CREDIT = 'when = { credit_exhausted_time = "100ms" }\n'
RULES = {
    "ask": NO_CREDIT + 'then = "close_consumer"',
    "cut": NO_CREDIT + 'then = "disconnect"',
    "discard": 'when = { lag_records = "> 5" }\nthen = { action = "discard", which = "oldest", keep_records = 2 }',
    "block": 'when = { lag_records = "> 50" }\nuntil = { lag_records = "< 10" }\nthen = "block_publishers"',
}
CONFIG = """
[listeners.amqp]
url = "amqp://127.0.0.1:0"
allow_anonymous = true
[flap]
base = "300ms"
""" + "".join(policy(name, f"{name}/#", rule) for name, rule in RULES.items()) + "".join(
    policy(f"{name} queue", f"$queue/{name}", rule) for name, rule in RULES.items()
)


@pytest.fixture(scope="module")
def slow_broker(start: BrokerFactory) -> BrokerProcess:
    return start(CONFIG, server={"send_buffer": "16KiB"})


@pytest.fixture
def clients(slow_broker: BrokerProcess) -> Iterator[Any]:
    opened: list[BlockingConnection] = []

    def dial(name: str, **more: Any) -> BlockingConnection:
        container = Container()
        container.container_id = name
        url = f"amqp://127.0.0.1:{slow_broker.port}"
        opened.append(BlockingConnection(url, timeout=TIMEOUT_S, container=container, **more))
        return opened[-1]

    yield dial
    for client in opened:
        if client.conn is not None:
            client.close()


def unread(client: BlockingConnection, address: str, credit: int) -> Any:
    return client.create_receiver(address, handler=Handler(), credit=credit).link


@pytest.mark.parametrize("address", ["topic://{}.a", "queue://{}"])
def test_a_consumer_without_credit_is_asked_to_go(
    slow_broker: BrokerProcess, clients: Any, name: str, address: str
) -> None:
    address = address.format("ask")
    slow, feeder = clients(name), clients(f"{name}-feeder")
    link = unread(slow, address, 1)
    sender = feeder.create_sender(address)
    for number in range(5):
        sender.send(Message(number))
    with pytest.raises(LinkDetached):
        slow.wait(lambda: False)
    condition: Condition = link.remote_condition
    assert condition.name == "amqp:resource-limit-exceeded"
    (verdict,) = slow_broker.verdicts(name)
    assert (verdict["reason"], verdict["text"]) == ("credit_exhausted", condition.description)
    fast = slow.create_receiver(address) if address.startswith("queue") else None
    if fast is not None:
        assert fast.receive().body == 0, "what it had not settled is back in the queue"


def test_a_consumer_is_cut_and_told_why(slow_broker: BrokerProcess, clients: Any, name: str) -> None:
    slow, feeder = clients(name), clients(f"{name}-feeder")
    unread(slow, "topic://cut.a", 1)
    sender = feeder.create_sender("topic://cut.a")
    for number in range(5):
        sender.send(Message(number))
    with pytest.raises(ConnectionException) as told:
        slow.wait(lambda: False)
    (verdict,) = slow_broker.verdicts(name)
    assert "amqp:resource-limit-exceeded" in str(told.value)
    assert verdict["text"] in str(told.value)


class Late(MessagingHandler, TransactionHandler):
    """Takes a message, and settles it in a transaction only when its link was detached."""

    def __init__(self, url: str, source: str) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url, self.source, self.outcome = url, source, ""
        self.delivery: Any = None

    def on_start(self, event: Any) -> None:
        self.conn = event.container.connect(self.url)
        event.container.create_receiver(self.conn, self.source).flow(1)

    def on_message(self, event: Any) -> None:
        self.delivery = event.delivery

    def on_link_error(self, event: Any) -> None:
        event.container.declare_transaction(self.conn, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        event.transaction.accept(self.delivery)
        event.transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        self._over("committed")

    def on_transaction_commit_failed(self, event: Any) -> None:
        self._over("failed")

    def _over(self, outcome: str) -> None:
        self.outcome = outcome
        self.conn.close()


@pytest.mark.parametrize("address", ["queue://ask", "topic://ask.late"])
def test_a_commit_fails_of_what_a_link_was_given_that_the_broker_has_ended(
    slow_broker: BrokerProcess, clients: Any, name: str, address: str
) -> None:
    late = Late(f"amqp://127.0.0.1:{slow_broker.port}", address)
    container = Container(late)
    container.timeout = TIMEOUT_S
    container.start()
    sender = clients(name).create_sender(address)
    while container.process() and not late.outcome:
        if late.delivery is None and sender.link.credit:
            sender.send(Message("x"))
            sender.send(Message("y"))
    assert late.outcome == "failed"


def test_a_gap_is_told_in_annotations(clients: Any, name: str) -> None:
    slow, feeder = clients(name), clients(f"{name}-feeder")
    link, sender = unread(slow, "topic://discard.a", 1), feeder.create_sender("topic://discard.a")
    for number in range(30):
        sender.send(Message(number))
    told: list[Message] = []

    def read() -> bool:
        if link.queued and (delivery := link.current) is not None and not delivery.partial:
            message = Message()
            message.recv(link) if hasattr(message, "recv") else message.decode(link.recv(delivery.pending))
            link.advance()
            told.append(message)
            link.flow(1)
        return any(symbol("x-opt-headway-gap-records") in (one.annotations or {}) for one in told)

    def go_on() -> bool:
        sender.send(Message("more"))
        slow.container.process()
        return read()

    until(go_on)
    gap = next(one.annotations for one in told if symbol("x-opt-headway-gap-records") in (one.annotations or {}))
    assert gap[symbol("x-opt-headway-gap-records")] > 0
    assert gap[symbol("x-opt-headway-gap-reason")] == "discarded"
    assert gap[symbol("x-opt-headway-gap-first")] <= gap[symbol("x-opt-headway-gap-last")]


def test_a_publisher_that_has_to_wait_gets_no_credit(slow_broker: BrokerProcess, clients: Any, name: str) -> None:
    slow, feeder = clients(name), clients(f"{name}-feeder")
    link = unread(slow, "topic://block.a", 1)
    sender = feeder.create_sender("topic://block.a").link
    state = {"sent": 0}

    def more() -> bool:
        while sender.credit > 0 and state["sent"] < 20_000:
            sender.send(Message(state["sent"]))
            state["sent"] += 1
        feeder.container.process()
        return sender.credit == 0 and bool(slow_broker.publisher(f"{name}-feeder").get("paused"))

    feeder.container.timeout = 0.05
    until(more)
    assert slow_broker.publisher(f"{name}-feeder")["paused"]
    slow.container.timeout = 0.05

    def read_on() -> bool:
        slow.container.process()
        while link.queued:
            link.advance()
        if link.credit < 100:
            link.flow(1000)
        feeder.container.process()
        return sender.credit > 0

    until(read_on)


def test_a_client_that_is_no_client(slow_broker: BrokerProcess) -> None:
    """Whoever breaks the protocol is told how, with a close."""
    with socket.create_connection(("127.0.0.1", slow_broker.port)) as raw:
        raw.settimeout(TIMEOUT_S)
        raw.sendall(b"AMQP\0\1\0\0" + b"\0\0\0\x09\2\0\0\0\xff")
        came = b""
        while more := raw.recv(1 << 16):
            came += more
    assert came.startswith(b"AMQP\0\1\0\0")
    assert b"amqp:decode-error" in came
    assert b"the frame at byte 8" in came


