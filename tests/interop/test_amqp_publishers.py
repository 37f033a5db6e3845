"""What publishers are told: returns, confirms, transactions, direct answers; with pika."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp.commands import Basic, Confirm
from pika.exceptions import NackError, UnroutableError
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_pika import Pika, PikaFactory, properties
from tests.interop.amqp_raw import Content, Raw
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.amqp_fixtures",)

THREE = (b"1", b"2", b"3")

# -- returns and confirms -------------------------------------------------------------------------------------------


def test_mandatory_records_without_a_queue_come_back(client: Pika) -> None:
    with pytest.raises(UnroutableError) as caught:
        client.put("nowhere", b"x", exchange="amq.direct", mandatory=True, app_id="a")
    [back] = caught.value.messages
    assert (back.method.reply_code, back.method.reply_text) == (312, "NO_ROUTE")
    assert (back.method.exchange, back.method.routing_key) == ("amq.direct", "nowhere")
    assert (back.body, back.properties.app_id) == (b"x", "a")
    client.put("nowhere", b"x", exchange="amq.direct")  # nobody minds otherwise


def test_immediate_records_that_nobody_takes_at_once_come_back(amqp_broker: AmqpBroker) -> None:
    """As the specification has it. RabbitMQ has given that up, and says so."""
    said = Basic.Publish(immediate=True)
    with Raw(amqp_broker.port) as raw:
        said.routing_key = raw.declare()
        raw.send(raw.content(said, b"1"))
        if amqp_broker.process is None:
            assert raw.connection_closed().reply_code == 540
            return
        back = raw.expect(Content)
        assert (back.method.reply_code, back.body) == (313, b"1")
        assert raw.get("") is None
        raw.call(Basic.Qos(prefetch_count=1), Basic.QosOk)
        raw.call(Basic.Consume(queue=said.routing_key), Basic.ConsumeOk)
        raw.send(raw.content(said, b"2") + raw.content(said, b"3"))
        got = raw.contents(2)
        assert {type(one.method): one.body for one in got} == {Basic.Deliver: b"2", Basic.Return: b"3"}


def test_confirms_are_numbered_and_follow_the_return(amqp_broker: AmqpBroker, client: Pika, word: str) -> None:
    queue = client.queue()
    with Raw(amqp_broker.port) as raw:
        raw.publish("", queue, b"0")  # before confirms were asked for
        raw.call(Confirm.Select(), Confirm.SelectOk)
        raw.publish("", queue, *(b"%d" % i for i in range(1, 50)))
        raw.publish("", word, b"lost", mandatory=True)
        raw.publish("", word, b"lost, too")
        waiting = set(range(1, 52))
        while waiting:
            one: Any = raw.expect(object)
            if isinstance(one, Content):
                assert (one.method.reply_code, one.body) == (312, b"lost")
                assert 50 in waiting
            else:
                assert type(one) is Basic.Ack
                acked = {tag for tag in waiting if tag <= one.delivery_tag} if one.multiple else {one.delivery_tag}
                assert acked <= waiting
                waiting -= acked
    assert client.drain(queue) == [b"%d" % i for i in range(50)]


def test_what_a_full_queue_does_not_take_is_nacked(client: Pika) -> None:
    queue = client.queue(arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    client.put(queue, b"1", b"2")
    with pytest.raises(NackError):
        client.put(queue, b"3")
    assert client.take(queue).body == b"1"
    client.put(queue, b"4")
    assert client.drain(queue) == [b"2", b"4"]


# -- transactions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_publishes_and_acks_of_a_transaction(client: Pika, commit: bool) -> None:
    source, target = client.queue(), client.queue()
    client.put(source, *THREE)
    tx = client.connection.channel()
    tx.tx_select()
    tags = [tx.basic_get(source)[0].delivery_tag for _ in THREE]
    tx.basic_publish("", target, b"a")
    tx.basic_ack(tags[1], multiple=True)
    tx.basic_nack(tags[2], requeue=False)
    tx.basic_publish("", target, b"b")
    tx.queue_declare(target, passive=True)
    assert client.count(target) == (0, 0)
    if commit:
        tx.tx_commit()
        assert client.drain(target) == [b"a", b"b"]
    else:
        tx.tx_rollback()
        assert client.drain(target) == []
    tx.basic_publish("", target, b"c")  # the next one has begun, and goes with its channel
    tx.close()
    assert client.drain(target) == []
    until(lambda: client.count(source)[0] == (0 if commit else 3), what="only a commit acknowledges")


def test_what_is_rolled_back_can_be_acknowledged_again(client: Pika) -> None:
    queue = client.queue()
    client.put(queue, b"1", b"2")
    client.channel.tx_select()
    got = [client.get(queue), client.get(queue)]
    assert got[0]
    assert got[1]
    client.ack(got[0], got[1])
    client.channel.tx_rollback()
    client.ack(got[0])
    client.channel.basic_reject(got[1].tag)
    client.channel.tx_commit()
    assert [(one.body, one.redelivered) for one in [client.get(queue)] if one] == [(b"2", True)]


# -- direct reply-to ------------------------------------------------------------------------------------------------

REPLY = "amq.rabbitmq.reply-to"


def test_direct_reply_to(client: Pika, connect: PikaFactory) -> None:
    """No queue is made for the answers, and each asker gets its own."""
    server, work = connect(), client.queue("", exclusive=False, auto_delete=True)
    server.consume(work, auto_ack=True)
    askers = [client, connect()]
    for number, asker in enumerate(askers):
        asker.consume(REPLY, auto_ack=True)
        said = properties(reply_to=REPLY, correlation_id=str(number))
        asker.channel.basic_publish("", work, b"ask", said)
    asked = server.wait(2)
    names = {one.properties.reply_to for one in asked}
    assert len(names) == 2
    assert all(name.startswith(REPLY + ".") for name in names)
    for one in asked:
        correlation = one.properties.correlation_id
        server.put(one.properties.reply_to, b"for " + correlation.encode(), correlation_id=correlation)
    for number, asker in enumerate(askers):
        [answer] = asker.wait(1)
        assert (answer.properties.correlation_id, answer.body) == (str(number), b"for %d" % number)
    gone = next(one.properties.reply_to for one in asked if one.properties.correlation_id == "1")
    assert server.exists(gone)  # so a server can see whether it is worth its while
    askers[1].close()
    until(lambda: not server.exists(gone), what="the asker is gone")
    server.put(gone, b"too late")  # nobody minds


def test_direct_reply_to_asks_for_a_consumer_without_acks(client: Pika) -> None:
    with client.refused(406):
        client.consume(REPLY)
    with client.refused(406):
        client.channel.basic_publish("", client.queue(), b"x", properties(reply_to=REPLY))
        client.queue()
