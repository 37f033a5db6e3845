"""Queues, topics and links of AMQP 1.0, with proton's blocking client."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from proton import ConnectionException, Delivery, Described, Handler, Message, Timeout, symbol
from proton.reactor import AtMostOnce, Container, Copy, DurableSubscription, Filter, ReceiverOption, Selector
from proton.utils import BlockingConnection, LinkDetached, SendException
from tests.interop.amqp1_fixtures import TIMEOUT_S, Dial
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.amqp1_fixtures",)

SHORT_S = 0.3


@pytest.fixture
def client(dial: Dial) -> BlockingConnection:
    return dial()


def nothing_comes(receiver: Any) -> None:
    with pytest.raises(Timeout):
        receiver.receive(timeout=SHORT_S)


# -- messages ----------------------------------------------------------------------------------------------------------

BODIES = [
    "text", b"bytes", "", b"", None, True, 5, -(2**40), 2.5, [1, "a", None], {"a": 1, "b": [2]},
    uuid.UUID(int=7), symbol("word"), "x" * 300, b"y" * 300, b"z" * 300_000, ["w" * 70_000] * 4,
]  # fmt: skip


@pytest.mark.parametrize("address", ["queue://{}", "topic://{}.a"])
def test_all_bodies_and_properties_arrive(client: BlockingConnection, own_word: str, address: str) -> None:
    address = address.format(own_word)
    receiver, sender = client.create_receiver(address, credit=50), client.create_sender(address)
    for body in BODIES:
        sent = Message(
            body, id=uuid.UUID(int=9), user_id=b"", subject="about", correlation_id="c-1", content_type="a/b",
            content_encoding="gzip", creation_time=1.5, group_id="g", group_sequence=3, reply_to_group_id="h",
            priority=7, ttl=60.0, durable=True, address="elsewhere", reply_to="replies",
            properties={
                "text": "é", "number": 2**40, "flag": False, "none": None, "real": 1.25, "id": uuid.UUID(int=1),
            },
            annotations={symbol("x-opt-own"): 17},
        )  # fmt: skip
        assert sender.send(sent).remote_state == Delivery.ACCEPTED
        got = receiver.receive()
        receiver.accept()
        for field in (
            "body", "id", "subject", "correlation_id", "content_type", "content_encoding", "creation_time", "group_id",
            "group_sequence", "reply_to_group_id", "priority", "ttl", "durable", "address", "reply_to", "properties",
        ):  # fmt: skip
            assert getattr(got, field) == getattr(sent, field), (field, body)
        assert got.annotations[symbol("x-opt-own")] == 17
        assert (symbol("x-opt-headway-topic") in got.annotations) == address.startswith("topic")


@pytest.mark.parametrize("frame_bytes", [512, 4096])
def test_messages_of_many_small_frames(dial: Dial, own_word: str, frame_bytes: int) -> None:
    body = bytes(range(256)) * 400
    client = dial(max_frame_size=frame_bytes)
    for address in (f"queue://{own_word}", f"topic://{own_word}.b"):
        receiver, sender = client.create_receiver(address, credit=9), client.create_sender(address)
        for number in range(4):
            sender.send(Message(body + bytes((number,))))
        for number in range(4):
            assert receiver.receive().body == body + bytes((number,))
            receiver.accept()


def test_a_message_that_is_too_large_is_rejected(client: BlockingConnection, own_word: str) -> None:
    receiver, sender = client.create_receiver(own_word), client.create_sender(own_word)
    with pytest.raises(SendException):
        sender.send(Message(b"x" * 17_000_000))
    sender.send(Message("small"))
    assert receiver.receive().body == "small"


# -- addresses ---------------------------------------------------------------------------------------------------------

SAME = [
    ("queue://{}", "queue://{}"), ("{}", "queue://{}"), ("/queues/{}", "{}"), ("/queue/{}", "/queues/{}"),
    ("/exchanges/amq.topic/{}.b", "topic://{}.b"), ("amq.topic/{}.b", "{}/b"), ("topic://{}.b.c", "topic://{}.*.c"),
    ("{}/b/c", "{}/#"), ("{}/b/c", "topic://{}.>"), ("/exchange/amq.direct/{}", "/exchanges/amq.direct/{}"),
    ("/topics/{}.b", "{}/+"), ("amq.fanout", "amq.fanout"),
]  # fmt: skip


@pytest.mark.parametrize(("to", "source"), SAME)
def test_addresses_that_mean_the_same(client: BlockingConnection, own_word: str, to: str, source: str) -> None:
    receiver = client.create_receiver(source.format(own_word))
    client.create_sender(to.format(own_word)).send(Message(own_word))
    assert receiver.receive().body == own_word


class Capable(ReceiverOption):
    def __init__(self, word: str) -> None:
        self.word = word

    def apply(self, receiver: Any) -> None:
        receiver.source.capabilities.put_object(symbol(self.word))


def test_capabilities_say_what_a_plain_name_means(client: BlockingConnection, own_word: str) -> None:
    of_topic = client.create_receiver(own_word, options=Capable("topic"))
    of_queue = client.create_receiver(f"{own_word}/x", options=Capable("queue"))
    client.create_sender(f"topic://{own_word}").send(Message("to the topic"))
    client.create_sender(f"queue://{own_word}/x").send(Message("to the queue"))
    assert of_topic.receive().body == "to the topic"
    assert of_queue.receive().body == "to the queue"


def test_messages_of_an_anonymous_link_say_where_they_go(client: BlockingConnection, own_word: str) -> None:
    of_queue, of_topic = client.create_receiver(own_word), client.create_receiver(f"topic://{own_word}.b")
    sender = client.create_sender(None)
    sender.send(Message("q", address=own_word))
    sender.send(Message("t", address=f"topic://{own_word}.b"))
    assert (of_queue.receive().body, of_topic.receive().body) == ("q", "t")
    with pytest.raises(SendException):
        sender.send(Message("nowhere"))


@pytest.mark.parametrize(
    ("address", "condition"), [
        ("/exchanges/no.such/k", "amqp:not-found"), ("topic://a.>.b", "amqp:invalid-field"),
        ("queue://", "amqp:invalid-field"),
    ],
)  # fmt: skip
def test_addresses_that_mean_nothing_are_refused(client: BlockingConnection, address: str, condition: str) -> None:
    with pytest.raises(LinkDetached) as refused:
        client.create_receiver(address)
    assert refused.value.condition == condition


def test_a_dynamic_node_ends_with_its_link(client: BlockingConnection, dial: Dial) -> None:
    receiver = client.create_receiver(None, dynamic=True)
    address = receiver.link.remote_source.address
    sender = dial().create_sender(address)
    sender.send(Message("reply"))
    assert receiver.receive().body == "reply"
    receiver.close()
    with pytest.raises((SendException, LinkDetached)):
        dial().create_sender(address)


# -- settling ----------------------------------------------------------------------------------------------------------


def test_outcomes(client: BlockingConnection, own_word: str) -> None:
    receiver, sender = client.create_receiver(own_word, credit=1), client.create_sender(own_word)
    sender.send(Message("m"))
    assert receiver.receive().delivery_count == 0
    receiver.release(delivered=False)
    assert receiver.receive().delivery_count == 0, "released: as if it had never been sent"
    _modify(receiver, failed=True)
    assert receiver.receive().delivery_count == 1
    _modify(receiver, failed=True)
    assert receiver.receive().delivery_count == 2
    _modify(receiver, failed=True, undeliverable=True)
    nothing_comes(receiver)
    sender.send(Message("n"))
    receiver.receive()
    receiver.reject()
    nothing_comes(receiver)


def _modify(receiver: Any, *, failed: bool = False, undeliverable: bool = False) -> None:
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.failed, delivery.local.undeliverable = failed, undeliverable
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    receiver.link.flow(1)


def test_what_is_unsettled_goes_back_to_its_queue_when_its_link_ends(
    client: BlockingConnection, dial: Dial, own_word: str
) -> None:
    sender = client.create_sender(own_word)
    for number in range(5):
        sender.send(Message(number))
    other = dial()
    first = other.create_receiver(own_word, credit=5)
    assert [first.receive().body for _ in range(3)] == [0, 1, 2]
    first.close()
    second = other.create_receiver(own_word, credit=5)
    assert [second.receive().body for _ in range(5)] == [0, 1, 2, 3, 4]
    other.close()
    third = client.create_receiver(own_word, credit=5)
    assert [third.receive().body for _ in range(5)] == [0, 1, 2, 3, 4]


def test_settled_deliveries_do_not_come_again(client: BlockingConnection, own_word: str) -> None:
    sender = client.create_sender(own_word, options=AtMostOnce())
    receiver = client.create_receiver(own_word, credit=2, options=AtMostOnce())
    for number in range(3):
        sender.send(Message(number))
    assert [receiver.receive().body for _ in range(3)] == [0, 1, 2]
    receiver.close()
    nothing_comes(client.create_receiver(own_word))


def test_a_browser_takes_nothing(client: BlockingConnection, own_word: str) -> None:
    sender = client.create_sender(own_word)
    for number in range(5):
        sender.send(Message(number))
    for _ in range(2):
        browser = client.create_receiver(own_word, credit=2, options=Copy())
        assert [browser.receive().body for _ in range(5)] == [0, 1, 2, 3, 4]
        nothing_comes(browser)
        browser.close()
    receiver = client.create_receiver(own_word, credit=5)
    assert [receiver.receive().body for _ in range(5)] == [0, 1, 2, 3, 4]


# -- credit ------------------------------------------------------------------------------------------------------------


def unread(client: BlockingConnection, address: str, credit: int) -> Any:
    """A link whose messages nobody reads, so that the library gives no credit of its own. ``link.credit`` counts those
    that have come, too."""
    return client.create_receiver(address, handler=Handler(), credit=credit).link


@pytest.mark.parametrize("address", ["{}", "topic://{}.b"])
def test_no_more_is_sent_than_there_is_credit(client: BlockingConnection, own_word: str, address: str) -> None:
    address = address.format(own_word)
    link, sender = unread(client, address, 3), client.create_sender(address)
    for number in range(10):
        sender.send(Message(number))
    client.wait(lambda: link.queued == 3)
    sender.send(Message("one more, behind which a fourth would have come"))
    assert (link.queued, link.credit) == (3, 3)
    link.flow(4)
    client.wait(lambda: link.queued == 7)
    sender.send(Message("and one more"))
    assert (link.queued, link.credit) == (7, 7)


@pytest.mark.parametrize("address", ["{}", "topic://{}.b"])
def test_drain_uses_the_credit_up(client: BlockingConnection, own_word: str, address: str) -> None:
    address = address.format(own_word)
    link, sender = unread(client, address, 1), client.create_sender(address)
    link.drain(0)
    client.wait(lambda: link.credit == 0)
    for number in range(4):
        sender.send(Message(number))
    link.drain(10)
    client.wait(lambda: link.credit == link.queued)
    assert link.queued == 4
    link.flow(1)
    sender.send(Message("more"))
    client.wait(lambda: link.queued == 5)


def test_exhausted_credit_is_what_shows_a_slow_consumer(
    amqp1_broker: BrokerProcess, client: BlockingConnection, own_word: str
) -> None:
    link, sender = unread(client, f"topic://{own_word}.b", 2), client.create_sender(f"topic://{own_word}.b")
    for number in range(10):
        sender.send(Message(number))

    def row() -> Any:
        rows = amqp1_broker.get("/v1/consumers")["consumers"]
        return next((one for one in rows if one["filter"] == f"{own_word}/b"), {})

    until(lambda: row().get("lag_records") == 8 and row().get("credit_exhausted_ms"))
    link.flow(20)
    client.wait(lambda: link.queued == 10)
    until(lambda: row()["lag_records"] == 0)


# -- topics ------------------------------------------------------------------------------------------------------------


def test_a_selector(client: BlockingConnection, own_word: str) -> None:
    receiver = client.create_receiver(f"topic://{own_word}.b", options=Selector("price > 5 AND name = 'a'"))
    sender = client.create_sender(f"topic://{own_word}.b")
    for price, name in ((1, "a"), (6, "b"), (7, "a"), (9, "a")):
        sender.send(Message(price, properties={"price": price, "name": name}))
    assert [receiver.receive().body for _ in range(2)] == [7, 9]
    with pytest.raises(LinkDetached):
        client.create_receiver(f"topic://{own_word}.c", options=Selector("price >"))


def option(**values: str) -> Filter:
    return Filter({
        symbol(name): Described(symbol(f"x-opt-headway-{name}"), value) for name, value in values.items()
    })  # fmt: skip


def test_options_of_a_subscription(client: BlockingConnection, own_word: str) -> None:
    sender = client.create_sender(f"topic://prices.{own_word}")
    for price in range(3):
        sender.send(Message(b'{"id": "%s", "price": %d}' % (own_word.encode(), price)))
    receiver = client.create_receiver(
        f"topic://prices.{own_word}", options=option(snapshot="true", offsets="true"), name=own_word
    )  # fmt: skip
    got = receiver.receive()
    assert b'"price": 2' in bytes(got.body)
    assert got.annotations[symbol("x-opt-headway-offset")] > 0
    with pytest.raises(LinkDetached) as refused:
        client.create_receiver(f"topic://prices.{own_word}", options=option(snapshoot="true"), name="other")
    assert "did you mean x-headway-snapshot" in str(refused.value)


def test_a_durable_subscription_is_kept_until_it_is_closed(
    amqp1_broker: BrokerProcess, own_word: str
) -> None:
    url, topic = f"amqp://127.0.0.1:{amqp1_broker.ports['amqp']}", f"topic://{own_word}.b"

    def begin() -> tuple[BlockingConnection, Any]:
        container = Container()
        container.container_id = own_word
        client = BlockingConnection(url, timeout=TIMEOUT_S, container=container)
        return client, client.create_receiver(topic, name="sub", options=DurableSubscription())

    client, receiver = begin()
    sender = client.create_sender(topic)
    sender.send(Message(1, durable=True))
    assert receiver.receive().body == 1
    receiver.accept()
    receiver.detach()
    sender.send(Message(2, durable=True))
    client.close()

    client, receiver = begin()
    assert receiver.receive().body == 2
    receiver.accept()
    receiver.close()
    client.create_sender(topic).send(Message(3))
    client.close()
    client, receiver = begin()
    nothing_comes(receiver)
    receiver.close()
    client.close()


# -- logins ------------------------------------------------------------------------------------------------------------


def test_logins(amqp1_broker: BrokerProcess, dial: Dial, own_word: str) -> None:
    port = amqp1_broker.ports["closed"]
    client = dial(url=f"amqp://guest:guest@127.0.0.1:{port}", allow_insecure_mechs=True, allowed_mechs="PLAIN")
    client.create_sender(own_word).send(Message("in"))
    for user, mechanisms in (("guest:wrong@", "PLAIN"), ("", "ANONYMOUS")):
        with pytest.raises(ConnectionException):
            dial(url=f"amqp://{user}127.0.0.1:{port}", allow_insecure_mechs=True, allowed_mechs=mechanisms)
    without_sasl = dial(sasl_enabled=False)
    receiver = without_sasl.create_receiver(own_word)
    assert receiver.receive().body == "in"
    with pytest.raises(ConnectionException):
        dial("closed", sasl_enabled=False)


def test_the_port_of_all_protocols(dial: Dial, own_word: str) -> None:
    dial("auto").create_sender(own_word).send(Message("hallo"))
    assert dial().create_receiver(own_word).receive().body == "hallo"


def test_an_idle_connection_is_kept_by_empty_frames(dial: Dial) -> None:
    client = dial(heartbeat=4)
    before = client.conn.transport.frames_input
    client.wait(lambda: client.conn.transport.frames_input >= before + 2)


