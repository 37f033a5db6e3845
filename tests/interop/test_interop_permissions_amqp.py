"""Permissions over AMQP: each operation allowed, denied, and revoked while connected, with pika."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker
from tests.interop.amqp_pika import Pika, properties
from tests.interop.conftest import BrokerFactory
from tests.interop.permitted import config, paho, permission, rabbit, reload, why
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

ALICE = {
    "publish": ["$exchange/work/in/#", "$queue/%u/#", "orders/%u/#", "$exchange/dead/alice"],
    "subscribe": ["$exchange/work/out/#", "$queue/%u/#", "prices/#"],
    "declare": ["$queue/%u/#", "$exchange/%u-x"],
}
WITHOUT = {key: [one for one in lists if "queue" not in one] for key, lists in ALICE.items()}
ACCESS_REFUSED = 403


@pytest.fixture(scope="module")
def guarded(start: BrokerFactory) -> BrokerProcess:
    broker = start(given())
    root = rabbit(broker, "root")
    root.exchange("work", "topic", auto_delete=False)
    root.exchange("dead", "direct", auto_delete=False)
    root.exchange("all", "fanout", auto_delete=False)
    root.queue("of.root", exclusive=False)
    root.close()
    return broker


def given(alice: dict[str, list[str]] = ALICE) -> str:
    return config(permission("alice", **alice))


@pytest.fixture
def alice(guarded: BrokerProcess) -> Iterator[Pika]:
    client = rabbit(guarded, "alice", client_properties={"connection_name": "alice"})
    yield client
    client.close()
    reload(guarded, given())


@pytest.fixture
def root(guarded: BrokerProcess) -> Iterator[Pika]:
    client = rabbit(guarded, "root")
    yield client
    client.close()


def publish(client: Pika, exchange: str, key: str, **more: object) -> None:
    """And see it confirmed."""
    if not client.out.is_open:
        client.out = client.connection.channel()
        client.out.confirm_delivery()
    client.out.basic_publish(exchange, key, b"x", properties(**more) if more else None)


def test_connect(guarded: BrokerProcess) -> None:
    with pytest.raises(AMQPConnectionError) as refused:
        rabbit(guarded, "carol")
    assert "530" in repr(refused.value) or "ProbableAccessDenied" in repr(refused.value)


def test_declarations(alice: Pika) -> None:
    assert alice.queue("alice.jobs") == "alice.jobs"
    alice.exchange("alice-x")
    alice.exchange("amq.topic", "topic", auto_delete=False, durable=True)  # it is there anyway
    for declare in (
        lambda: alice.queue("jobs"), lambda: alice.queue("bob.jobs"), lambda: alice.exchange("bob-x"),
        lambda: alice.channel.queue_delete("of.root"), lambda: alice.channel.exchange_delete("work"),
        lambda: alice.channel.queue_declare("of.root", passive=True),
        lambda: alice.channel.queue_declare("of.nobody", passive=True),
    ):  # fmt: skip
        with alice.refused(ACCESS_REFUSED):
            declare()
    alice.channel.queue_delete("alice.jobs")
    alice.channel.exchange_delete("alice-x")


def test_dead_letters_and_alternates_are_publishes(alice: Pika) -> None:
    to = {"x-dead-letter-exchange": "dead"}
    for arguments in (to, {**to, "x-dead-letter-routing-key": "bob"}, {"x-dead-letter-exchange": "amq.topic"},
                      {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "of.root"}):  # fmt: skip
        with alice.refused(ACCESS_REFUSED):
            alice.queue("alice.d", arguments)
        with alice.refused(ACCESS_REFUSED):  # nor for a queue of its own
            alice.queue("", arguments)
    alice.queue("alice.d", {**to, "x-dead-letter-routing-key": "alice"})
    with alice.refused(ACCESS_REFUSED):
        alice.exchange("alice-x", arguments={"alternate-exchange": "all"})


def test_publishes(alice: Pika, root: Pika) -> None:
    queue = root.bound("work", "#")
    for exchange, key in (("work", "in.a.b"), ("work", "in"), ("amq.topic", "orders.alice.1")):
        publish(alice, exchange, key)
    assert root.channel.queue_declare(queue, passive=True).method.message_count == 2
    for exchange, key in (("work", "out"), ("work", ""), ("amq.topic", "orders.bob"), ("amq.topic", "$SYS.x"),
                          ("", "of.root"), ("all", "x"), ("dead", "bob")):  # fmt: skip
        with pytest.raises(ChannelClosedByBroker) as refused:
            publish(alice, exchange, key)
        assert refused.value.reply_code == ACCESS_REFUSED, (exchange, key)
    for header in ("CC", "BCC"):
        with pytest.raises(ChannelClosedByBroker) as refused:
            publish(alice, "work", "in.a", headers={header: ["in.b", "secret"]})
        assert refused.value.reply_code == ACCESS_REFUSED
    assert root.channel.queue_declare(queue, passive=True).method.message_count == 2


def test_bindings(alice: Pika) -> None:
    own = alice.queue()
    alice.channel.queue_bind(own, "work", "out.*")
    alice.channel.queue_bind(own, "amq.topic", "prices.#")
    alice.queue("alice.q")
    alice.channel.queue_bind("alice.q", "work", "out.#")
    alice.channel.queue_unbind("alice.q", "work", "out.#")
    for queue, exchange, key in (
        (own, "work", "#"), (own, "work", "*.a"), (own, "work", "in.a"), (own, "amq.topic", "#"),
        (own, "amq.topic", "$SYS.#"), (own, "all", ""), ("of.root", "work", "out.a"),
    ):  # fmt: skip
        with alice.refused(ACCESS_REFUSED):
            alice.channel.queue_bind(queue, exchange, key)
    with alice.refused(ACCESS_REFUSED):
        alice.channel.exchange_bind("all", "work", "out.a")
    with alice.refused(ACCESS_REFUSED):
        alice.channel.exchange_bind("amq.topic", "work", "out.a")


def test_consumers(alice: Pika, root: Pika) -> None:
    publish(root, "", "of.root")
    for read in (
        lambda: alice.channel.basic_consume("of.root", lambda *_: None), lambda: alice.channel.basic_get("of.root"),
        lambda: alice.channel.queue_purge("of.root"),
    ):  # fmt: skip
        with alice.refused(ACCESS_REFUSED):
            read()
    alice.queue("alice.q")
    publish(root, "", "alice.q")
    assert alice.channel.basic_get("alice.q", auto_ack=True)[2] == b"x"
    alice.channel.queue_purge("alice.q")
    root.channel.queue_purge("of.root")


def test_direct_replies_need_no_permission(guarded: BrokerProcess, alice: Pika, root: Pika) -> None:
    """The one who asks tells the name of the queue, and whoever was told may answer."""
    got: list[bytes] = []
    root.channel.basic_consume("amq.rabbitmq.reply-to", lambda _c, _m, _p, body: got.append(body), auto_ack=True)
    alice.queue("alice.rpc")
    root.channel.basic_publish("", "alice.rpc", b"?", properties(reply_to="amq.rabbitmq.reply-to"))
    asked = until(lambda: found if (found := alice.channel.basic_get("alice.rpc", auto_ack=True))[0] else None)
    alice.channel.basic_publish("", asked[1].reply_to, b"!")
    until(lambda: root.connection.process_data_events(0.01) or got, what="the reply")


def test_a_publish_that_is_revoked(guarded: BrokerProcess, alice: Pika) -> None:
    publish(alice, "work", "in.a")
    reload(guarded, given({**ALICE, "publish": ["orders/%u/#"]}))
    with pytest.raises(ChannelClosedByBroker) as refused:
        publish(alice, "work", "in.a")
    assert refused.value.reply_code == ACCESS_REFUSED
    reload(guarded, given())
    publish(alice, "work", "in.a")


def test_a_transaction_commits_nothing_that_was_revoked(guarded: BrokerProcess, alice: Pika, root: Pika) -> None:
    queue = root.bound("work", "in.tx")
    alice.channel.tx_select()
    alice.channel.basic_publish("work", "in.tx", b"x")
    alice.channel.exchange_declare("amq.topic", passive=True)  # it has been read
    reload(guarded, given({**ALICE, "publish": ["orders/%u/#"]}))
    with pytest.raises(ChannelClosedByBroker):
        alice.channel.tx_commit()
    assert root.channel.queue_declare(queue, passive=True).method.message_count == 0


@pytest.mark.parametrize("cancels", [True, False])
def test_a_consumer_that_is_revoked(guarded: BrokerProcess, root: Pika, cancels: bool) -> None:
    """It is cancelled, or its channel closed; nothing reaches it any more."""
    name = f"alice.c{cancels:d}"  # its own: what waits in it at the end would come first the next time
    own = {"consumer_cancel_notify": cancels, "connection.blocked": True, "publisher_confirms": True,
           "exchange_exchange_bindings": True, "basic.nack": True, "authentication_failure_close": True}  # fmt: skip
    alice = rabbit(guarded, "alice", client_properties={"capabilities": own})
    alice.queue(name, exclusive=False)
    got: list[bytes] = []
    ended: list[object] = []
    alice.channel.add_on_cancel_callback(ended.append)
    alice.channel.basic_consume(name, lambda _c, _m, _p, body: got.append(body), auto_ack=True)
    publish(root, "", name)
    until(lambda: alice.connection.process_data_events(0.01) or got, what="the first")
    reload(guarded, given(WITHOUT))
    until(lambda: alice.connection.process_data_events(0.01) or ended or not alice.channel.is_open, what="the end")
    publish(root, "", name)
    alice.connection.process_data_events(0.05)
    assert got == [b"x"]
    assert bool(ended) is cancels
    assert alice.channel.is_open is cancels
    assert root.channel.queue_declare(name, passive=True).method.message_count == 1
    reload(guarded, given())
    alice.close()


def test_an_exclusive_queue_with_a_binding_that_is_revoked_is_deleted(
    guarded: BrokerProcess, alice: Pika, root: Pika
) -> None:
    queue, got, ended = alice.queue(), [], []
    alice.channel.queue_bind(queue, "amq.topic", "prices.#")
    alice.channel.add_on_cancel_callback(ended.append)
    alice.channel.basic_consume(queue, lambda _c, _m, _p, body: got.append(body), auto_ack=True)
    reload(guarded, given({**ALICE, "subscribe": ["$queue/#"]}))
    until(lambda: alice.connection.process_data_events(0.01) or ended, what="the end")
    publish(root, "amq.topic", "prices.eu")
    alice.connection.process_data_events(0.05)
    assert not got


def test_topics_are_the_same_over_both_protocols(guarded: BrokerProcess, alice: Pika) -> None:
    """What MQTT publishes to a topic that a queue is bound to, and the other way round."""
    mqtt = paho(guarded, "root", "both")
    mqtt.subscribe("orders/#")
    publish(alice, "amq.topic", "orders.alice.1")
    assert mqtt.wait(1)[0].topic == "orders/alice/1"
    mqtt.close()


def test_the_words_of_a_denial(guarded: BrokerProcess) -> None:
    alice = rabbit(guarded, "alice", client_properties={"connection_name": "talker"})
    with pytest.raises(ChannelClosedByBroker) as refused:
        alice.channel.basic_consume("of.root", lambda *_: None)
    assert refused.value.reply_text == (
        "ACCESS_REFUSED - alice may not subscribe to '$queue/of.root': no [[permission]] allows it"
    )
    alice.close()
    assert why(guarded, "talker") == ["alice may not subscribe to '$queue/of.root': no [[permission]] allows it"]


def consume_topics(client: Pika, key: str) -> str:
    return client.consume("amq.topic", auto_ack=True, arguments={"x-headway-topics": key})


def test_topics_are_read_with_the_right_to_subscribe_to_them(guarded: BrokerProcess, alice: Pika, root: Pika) -> None:
    consume_topics(alice, "prices.*")
    for denied in ("#", "orders.#", "*.eu"):
        with alice.refused(ACCESS_REFUSED):
            consume_topics(alice, denied)
    consume_topics(alice, "prices.#")
    publish(root, "amq.topic", "prices.eu")
    assert {one.key for one in alice.wait(1)} == {"prices.eu"}


def test_a_consumer_of_topics_that_is_revoked_is_cancelled_alone(
    guarded: BrokerProcess, alice: Pika, root: Pika
) -> None:
    ended: list[object] = []
    alice.channel.add_on_cancel_callback(ended.append)
    consume_topics(alice, "prices.eu")
    consume_topics(alice, "prices.us")
    reload(guarded, given({**ALICE, "subscribe": ["prices/us"]}))
    until(lambda: alice.connection.process_data_events(0.01) or ended, what="the end")
    publish(root, "amq.topic", "prices.eu")
    publish(root, "amq.topic", "prices.us")
    assert [one.key for one in alice.wait(1)] == ["prices.us"]
