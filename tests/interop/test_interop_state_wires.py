"""What can be asked of a state, asked over every protocol: all are told the same, with real clients."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any
from uuid import uuid4

import pytest
from bench.wires.packets import encode_publish
from proton import Described, Message, symbol
from proton.reactor import Filter
from proton.utils import BlockingConnection, LinkDetached
from tests.interop.amqp_pika import Pika
from tests.interop.conftest import BrokerFactory
from tests.interop.jms_client import Jms, needs_jms
from tests.interop.openwire_fixtures import url_of
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.state_readers import LISTENERS, READERS
from tests.interop.stomps import Client as Stomp
from tests.interop.stomps import Raw as RawStomp
from tests.interop.test_interop_state import ask
from tests.interop.waiting import PATIENCE_S, until

from headway.core.message import Properties
from headway.core.query.state_query import GROUPS_MAX

FIRST = [{"k": "a", "price": 1}, {"k": "b", "price": 2}, {"k": "c", "price": 3}]
LATER = [{"k": "b", "price": 20}, {"k": "b", "price": 21}]
BEGIN, END = "snapshot_begin", "snapshot_end"
Told = tuple[str, str, Any]
"""Event, key, and what the payload says in JSON (None: nothing)."""


@pytest.fixture(scope="module")
def keyed(start: BrokerFactory) -> BrokerProcess:
    return start(f'{LISTENERS}[[topic]]\nfilter = "+/#"\nkey = "/k"\n')


def publish(writer: Raw, root: str, *records: dict[str, Any], deletes: str = "") -> None:
    """Publishes records, and deletes a key, in one read of the broker."""
    packets = [encode_publish(f"{root}/quotes", json.dumps(said).encode()) for said in records]
    if deletes:
        delete = Properties(user=(("delete", "1"),))
        packets.append(encode_publish(f"{root}/quotes", json.dumps({"k": deletes}).encode(), properties=delete))
    writer.sock.sendall(b"".join(packets))


def of(told: Iterator[tuple[dict[str, Any], bytes]], count: int) -> list[Told]:
    return [
        (str(said.get("headway-event", "")), str(said.get("headway-key", "")), json.loads(payload) if payload else None)
        for said, payload in islice(told, count)
    ]


ASKED: dict[str, tuple[dict[str, str], list[Told], list[Told]]] = {
    "a snapshot with marks": (
        {"snapshot": "true", "marks": "true"},
        [(BEGIN, "", None), *[("", one["k"], one) for one in FIRST], (END, "", None)],
        [*[("", "", one) for one in LATER], ("delete", "", {"k": "a"})],
    ),
    "a query": ({"query": "true", "selector": "price >= 2"}, [
        (BEGIN, "", None), ("", "b", FIRST[1]), ("", "c", FIRST[2]), (END, "", None)
    ], []),
    "what leaves the focus": (
        {"snapshot": "true", "selector": "price < 3", "out_of_focus": "true"},
        [("", "", FIRST[0]), ("", "", FIRST[1])],
        [("out_of_focus", "b", None), ("out_of_focus", "a", None)],
    ),
    "deltas": (
        {"snapshot": "true", "delta": "true"}, [("", "", one) for one in FIRST],
        [("", "", LATER[0]), ("delta", "b", {"k": "b", "price": 21}), ("delete", "", {"k": "a"})],
    ),
    "one column": (
        {"snapshot": "true", "select": "/price"}, [("", one["k"], {"price": one["price"]}) for one in FIRST],
        [("", "b", {"price": 20}), ("", "b", {"price": 21}), ("delete", "a", {"price": None})],
    ),
    "a live page": (
        {"order_by": "/price DESC", "top": "2"},
        [(BEGIN, "", None), ("", "c", FIRST[2]), ("", "b", FIRST[1]), (END, "", None)],
        [("", "", LATER[1])],
    ),
    "an aggregate": (
        {"select": "/k, max(/price) AS most", "group_by": "/k"},
        [(BEGIN, "", None), *[("", one["k"], {"k": one["k"], "most": one["price"]}) for one in FIRST], (END, "", None)],
        [("out_of_focus", "a", None), ("", "b", {"k": "b", "most": 21})],
    ),
}  # fmt: skip
"""What is asked; what is told at first; what is told once there are later records and "a" is deleted."""


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("over", READERS)
def test_the_same_is_told_over_every_protocol(keyed: BrokerProcess, over: str, asked: str) -> None:
    options, first, then = ASKED[asked]
    root = f"r{uuid4().hex[:8]}"
    with Raw(keyed.ports["mqtt"], f"writer-{root}") as writer:
        publish(writer, root, *FIRST)
        until(lambda: len(ask(keyed, f"{root}/#", {}).json["records"]) == len(FIRST), what="all keys are there")
        with READERS[over](keyed, root, f"reader-{root}", options) as told:
            assert of(told, len(first)) == first
            publish(writer, root, *LATER, deletes="a")
            assert of(told, len(then)) == then


@pytest.mark.parametrize("over", READERS)
def test_the_end_of_a_query_ends_nothing_else(keyed: BrokerProcess, over: str) -> None:
    """A client that reads only after its query is over gets the whole answer, and its connection goes on."""
    options, first, _ = ASKED["a query"]
    root = f"r{uuid4().hex[:8]}"
    with Raw(keyed.ports["mqtt"], f"writer-{root}") as writer:
        publish(writer, root, *FIRST)
        until(lambda: len(ask(keyed, f"{root}/#", {}).json["records"]) == len(FIRST), what="all keys are there")
        before = keyed.get("/v1/broker")
        with READERS[over](keyed, root, f"reader-{root}", options) as told:
            until(lambda: keyed.get("/v1/broker")["delivered_records"] >= before["delivered_records"] + len(first))
            until(lambda: root not in str(keyed.get("/v1/consumers")), what="the query is over")
            assert of(told, len(first)) == first
            assert keyed.get("/v1/broker")["sessions"] == before["sessions"] + 1


@pytest.mark.parametrize("over", READERS)
def test_the_end_of_a_lease_ends_nothing_else(keyed: BrokerProcess, over: str) -> None:
    """A client that reads only after its lease is over gets what it was sent, and its connection goes on. Nobody says
    that something was deleted."""
    root = f"r{uuid4().hex[:8]}"
    with Raw(keyed.ports["mqtt"], f"writer-{root}") as writer:
        publish(writer, root, *FIRST)
        until(lambda: len(ask(keyed, f"{root}/#", {}).json["records"]) == len(FIRST), what="all keys are there")
        before = keyed.get("/v1/broker")
        with READERS[over](keyed, root, f"reader-{root}", {"snapshot": "true", "lease": "500ms"}) as told:
            until(lambda: keyed.get("/v1/broker")["delivered_records"] >= before["delivered_records"] + len(FIRST))
            until(lambda: root not in str(keyed.get("/v1/consumers")), what="the lease is over")
            assert of(told, len(FIRST)) == [("", "", one) for one in FIRST]
            assert keyed.get("/v1/broker")["sessions"] == before["sessions"] + 1


def test_amqp_1_0_is_told_that_a_lease_is_over(keyed: BrokerProcess) -> None:
    client = BlockingConnection(f"amqp://127.0.0.1:{keyed.ports['amqp']}", timeout=PATIENCE_S)
    name = symbol("x-opt-headway-lease")
    client.create_receiver("topic://leased.amqp1", options=Filter({name: Described(name, "100ms")}))
    with pytest.raises(LinkDetached, match="its lease is over"):
        client.wait(lambda: False)
    client.close()


@needs_jms
def test_jms_is_told_that_a_lease_is_over(keyed: BrokerProcess, jms: Jms) -> None:
    connection = jms.connect(url_of(keyed))
    jms.consumer(jms.session(connection), "topic://leased.jms", "/*+ lease=100ms */ TRUE")
    until(lambda: "the lease of topic://leased.jms is over" in str(jms.faults(connection)), what="the listener is told")
    jms.do("close", connection)


def test_stomp_is_told_whether_a_lease_was_renewed(keyed: BrokerProcess) -> None:
    client = RawStomp(keyed.ports["stomp"])

    def renewed(lease: str = "") -> bytes:
        headers = f"id:1\ndestination:/topic/leased.stomp\nlease:{lease}\nreceipt:r"
        client.sock.sendall(f"SUBSCRIBE\n{headers}\n\n\0".encode())
        return client.frame().partition(b"x-headway-renewed:")[2].strip()

    assert [renewed("500ms"), renewed("500ms")] == [b"false", b"true"]
    until(lambda: "leased/stomp" not in str(keyed.get("/v1/consumers")), what="the lease is over")
    assert renewed("500ms") == b"false"
    client.close()


@needs_jms
def test_a_message_renews_the_leases_of_its_client(keyed: BrokerProcess, jms: Jms) -> None:
    """Their libraries do not subscribe twice under one name, but all of them can send a message."""
    amqp, stomp = Pika(keyed.ports["amqp"]), Stomp(keyed.ports["stomp"])
    amqp.consume("amq.topic", auto_ack=True, arguments={"x-headway-topics": "renewed.pika", "x-headway-lease": "2s"})
    stomp.conn.subscribe("/topic/renewed.stomp", id="1", ack="auto", headers={"x-headway-lease": "2s"})
    proton = BlockingConnection(f"amqp://127.0.0.1:{keyed.ports['amqp']}", timeout=PATIENCE_S)
    name = symbol("x-opt-headway-lease")
    proton.create_receiver("topic://renewed.proton", options=Filter({name: Described(name, "2s")}))
    sender = proton.create_sender("topic://$headway.renew")
    connection = jms.connect(url_of(keyed))
    session = jms.session(connection)
    jms.consumer(session, "topic://renewed.jms", "/*+ lease=2s */ TRUE")
    producer = jms.producer(session, "topic://$headway.renew")
    leased = [f"renewed/{name}" for name in ("pika", "stomp", "proton", "jms")]

    def there() -> list[str]:
        return [topic for topic in leased if topic in str(keyed.get("/v1/consumers"))]

    def renewed() -> float:
        amqp.out.basic_publish("amq.topic", "$headway.renew", b"")  # it raises if that is not confirmed
        amqp.channel.basic_publish("amq.topic", "$headway.renew", b"")
        stomp.send("/topic/$headway.renew", "")
        sender.send(Message())
        jms.send(producer, session, "")
        return time.monotonic()

    until(lambda: renewed() and there() == leased, what="all have subscribed")
    begun = time.monotonic()
    until(lambda: renewed() > begun + 2.5, what="the first leases would be over")
    assert there() == leased
    until(lambda: not there(), what="all leases are over")
    assert not stomp.heard.errors
    for close in (amqp.close, stomp.leave, proton.close):
        close()
    jms.do("close", connection)


AGGREGATE = {"select": "/k, count(*) AS some", "group_by": "/k"}


def too_many_groups(broker: BrokerProcess, root: str) -> None:
    with Raw(broker.ports["mqtt"], f"writer-{root}") as writer:
        publish(writer, root, *({"k": f"k{number}"} for number in range(GROUPS_MAX + 1)))
        until(lambda: f"{root}/#" not in str(broker.get("/v1/consumers")), what="the aggregate is given up")


def test_an_aggregate_that_is_given_up_ends_no_other_consumer_of_its_channel(keyed: BrokerProcess) -> None:
    with closing(Pika(keyed.ports["amqp"])) as client:
        root, cancelled = f"r{uuid4().hex[:8]}", list[Any]()
        arguments = {f"x-headway-{option}": value for option, value in {"topics": f"{root}.#", **AGGREGATE}.items()}
        client.channel.add_on_cancel_callback(cancelled.append)
        client.consume("amq.topic", auto_ack=True, arguments=arguments)
        queue = client.queue()
        client.consume(queue)
        too_many_groups(keyed, root)
        until(lambda: client.turn() is not None and cancelled, what="it is cancelled")
        client.put(queue, b"here")
        assert b"here" in until(lambda: [one.body for one in client.turn() if one.key == queue])


def test_an_aggregate_that_is_given_up_ends_no_other_link_of_its_session(keyed: BrokerProcess) -> None:
    root = f"r{uuid4().hex[:8]}"
    client = BlockingConnection(f"amqp://127.0.0.1:{keyed.ports['amqp']}", timeout=PATIENCE_S)
    named = {symbol(f"x-opt-headway-{option}"): value for option, value in AGGREGATE.items()}
    filters = Filter({name: Described(name, value) for name, value in named.items()})
    client.create_receiver(f"topic://{root}.>", credit=1, options=filters)
    beside = client.create_receiver(f"queue://{root}", credit=1)
    too_many_groups(keyed, root)
    with pytest.raises(LinkDetached, match="is kept no more: group_by: more than"):
        client.wait(lambda: False)
    client.create_sender(f"queue://{root}").send(Message("here"))
    assert beside.receive().body == "here"
    client.close()
