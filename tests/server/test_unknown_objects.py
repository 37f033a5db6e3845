"""Whoever may do nothing with a queue or an exchange gets the same answer whether there is one or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp.commands import Basic, Exchange, Queue
from tests.server.amqp_stage import House, message, method
from tests.server.greedy_stage import Greedy
from tests.server.test_selector_requests import amqp, amqp1, openwire, stomp
from tests.wire import openwire_frames as frames

from headway.core.consumer import QueueTerms
from headway.core.routing import Exchange as CoreExchange
from headway.server.protocols import QUEUES
from headway.wire.amqp1.performatives import Attach, Source, Target
from headway.wire.amqp1.replies import write
from headway.wire.openwire.codes import Type

OTHERS = '[[permission]]\npublish = ["public/#"]\nsubscribe = ["public/#"]\ndeclare = ["$queue/work"]\n'
QUEUE, EXCHANGE = "secret", "inner"


def receiver(address: str, name: str = "r", *, capabilities: tuple[str, ...] = (), mode: str | None = None,
             durable: int = 0) -> bytes:
    source = Source(address, durable=durable, capabilities=list(capabilities) or None, distribution_mode=mode)
    return write(0, Attach(name, 0, True, 0, source=source, target=Target()))


def sender(address: str) -> bytes:
    attach = Attach("s", 0, False, source=Source(), target=Target(address), initial_delivery_count=0)
    return write(0, attach)


def consumer(destination: bytes, *, browser: bool = False) -> bytes:
    identity = frames.consumer_id(value=1)
    whole = frames.consumer_info(identity, destination)
    if browser:
        at = whole.index(identity) + len(identity)
        whole = whole[:at] + b"\1" + whole[at + 1 :]
    return whole


REQUESTS: dict[str, tuple[Callable[[House], Greedy], bytes]] = {
    "amqp-passive": (amqp, method(1, Queue.Declare(queue=QUEUE, passive=True))),
    "amqp-declare": (amqp, method(1, Queue.Declare(queue=QUEUE, durable=True))),
    "amqp-consume": (amqp, method(1, Basic.Consume(queue=QUEUE))),
    "amqp-get": (amqp, method(1, Basic.Get(queue=QUEUE))),
    "amqp-purge": (amqp, method(1, Queue.Purge(queue=QUEUE))),
    "amqp-delete": (amqp, method(1, Queue.Delete(queue=QUEUE))),
    "amqp-bind": (amqp, method(1, Queue.Bind(queue=QUEUE, exchange="amq.topic", routing_key="public.x"))),
    "amqp-unbind": (amqp, method(1, Queue.Unbind(queue=QUEUE, exchange="amq.topic", routing_key="public.x"))),
    "amqp-publish": (amqp, b"".join(message(1, QUEUE, b"x", ""))),
    "amqp-exchange-passive": (amqp, method(1, Exchange.Declare(exchange=EXCHANGE, passive=True))),
    "amqp-exchange-declare": (amqp, method(1, Exchange.Declare(exchange=EXCHANGE, exchange_type="fanout"))),
    "amqp-exchange-delete": (amqp, method(1, Exchange.Delete(exchange=EXCHANGE))),
    "amqp-exchange-publish": (amqp, b"".join(message(1, "k", b"x", EXCHANGE))),
    "amqp-exchange-source": (amqp, method(1, Queue.Bind(queue="work", exchange=EXCHANGE, routing_key="k"))),
    "amqp-exchange-bind": (amqp, method(1, Exchange.Bind(destination=EXCHANGE, source="amq.topic", routing_key="k"))),
    "amqp1-receiver": (amqp1, receiver(f"queue://{QUEUE}")),
    "amqp1-receiver-plain": (amqp1, receiver(QUEUE)),
    "amqp1-browser": (amqp1, receiver(f"queue://{QUEUE}", mode="copy")),
    "amqp1-sender": (amqp1, sender(f"queue://{QUEUE}")),
    "amqp1-sender-plain": (amqp1, sender(QUEUE)),
    "amqp1-exchange": (amqp1, receiver(f"exchange://{EXCHANGE}/k")),
    "amqp1-exchange-plain": (amqp1, receiver(EXCHANGE)),
    "amqp1-exchange-sender": (amqp1, sender(f"exchange://{EXCHANGE}/k")),
    "stomp-subscribe": (stomp, f"SUBSCRIBE\nid:1\ndestination:/queue/{QUEUE}\n\n\0".encode()),
    "stomp-subscribe-known": (stomp, f"SUBSCRIBE\nid:1\ndestination:/amq/queue/{QUEUE}\n\n\0".encode()),
    "stomp-send": (stomp, f"SEND\ndestination:/queue/{QUEUE}\nreceipt:1\n\nx\0".encode()),
    "stomp-send-exchange": (stomp, f"SEND\ndestination:/exchange/{EXCHANGE}/k\nreceipt:1\n\nx\0".encode()),
    "stomp-subscribe-exchange": (stomp, f"SUBSCRIBE\nid:1\ndestination:/exchange/{EXCHANGE}/k\n\n\0".encode()),
    "openwire-consume": (openwire, consumer(frames.queue(QUEUE))),
    "openwire-wildcard": (openwire, consumer(frames.queue("*"))),
    "openwire-browse": (openwire, consumer(frames.queue(QUEUE), browser=True)),
    "openwire-send": (openwire, frames.message(Type.BYTES_MESSAGE, frames.queue(QUEUE), b"x")),
}  # fmt: skip


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
def test_answer_does_not_tell_whether_the_object_is_there(
    request_of: tuple[Callable[[House], Greedy], bytes]
) -> None:
    connect, frame = request_of
    answers = list[tuple[bytes, bool, list[str]]]()
    for there in (False, True):
        house = House(OTHERS)
        client = connect(house)
        queues, session = house.broker.queues, client.connection.peer_side.session
        assert session is not None
        if there:
            queues.declare(session, QUEUE, QueueTerms(durable=True), QUEUES.dialect, house.now())
            queues.declare_exchange(CoreExchange(EXCHANGE, "direct"))
        house.blamed.clear()
        answers.append((client.say(frame), client.connection.open, house.blamed))
    assert answers[0] == answers[1]
    assert answers[0][0] or answers[0][2], "it is refused"


@pytest.mark.parametrize("right", ["subscribe", "publish", "declare"])
def test_whoever_may_do_something_with_a_queue_may_ask_whether_it_is_there(right: str) -> None:
    house = House(OTHERS + f'[[permission]]\n{right} = ["$queue/{QUEUE}"]\n')
    client = amqp(house)
    session = client.connection.peer_side.session
    assert session is not None
    house.broker.queues.declare(session, QUEUE, QueueTerms(durable=True), QUEUES.dialect, house.now())
    assert QUEUE.encode() in client.say(method(1, Queue.Declare(queue=QUEUE, passive=True)))
    assert not house.blamed
