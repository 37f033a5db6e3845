"""JMS by ActiveMQ's own client: messages, acknowledgements, transactions, destinations."""

from __future__ import annotations

import base64
from functools import partial

import pytest
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
from tests.interop.openwire_fixtures import LISTENERS, broker, connection, fresh, url_of
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

__all__ = ["broker", "connection"]
pytestmark = needs_jms
PROPERTIES = {
    "a": "boolean:true", "b": "byte:3", "c": "short:4", "d": "int:5", "e": "long:6", "f": "float:1.5",
    "g": "double:2.5", "h": "string:é€", "i": "long:1099511627776",
}  # fmt: skip
SEEN = {
    "a": "Boolean:true", "b": "Byte:3", "c": "Short:4", "d": "Integer:5", "e": "Long:6", "f": "Float:1.5",
    "g": "Double:2.5", "h": "String:é€", "i": "Long:1099511627776",
}  # fmt: skip
BODIES = [
    ("text", "héllo € 😀 \0", "héllo € 😀 \0"), ("text", "", ""), ("bytes", "AAEC/w==", "AAEC/w=="),
    ("map", "x", "x|7|2.5|3"), ("stream", "y", "y|1099511627776|true"), ("object", "z", "[z]"), ("message", None, None),
]  # fmt: skip


@pytest.mark.parametrize("options", ["", "?jms.useCompression=true", "?wireFormat.cacheEnabled=false"])
@pytest.mark.parametrize("to", ["queue", "topic"])
def test_all_types_of_messages_arrive_with_all_that_they_say(
    jms: Jms, broker: BrokerProcess, to: str, options: str
) -> None:
    there = fresh(to)
    connection = jms.connect(url_of(broker, options))
    session = jms.session(connection)
    consumer, producer = jms.consumer(session, there), jms.producer(session)
    for kind, body, seen in BODIES:
        sent = jms.send(
            producer, session, body, there, kind=kind, properties=PROPERTIES, priority=7, lifetime_ms=100_000,
            correlation="c-1", type="of a kind", reply_to="queue://back", mode=NON_PERSISTENT,
        )  # fmt: skip
        got = jms.got(consumer)
        assert (got.id, got.kind, got.body or None, got.properties) == (sent, kind, seen or None, SEEN)
        assert (got.destination, got.reply_to, got.correlation, got.type) == (there, "queue://back", "c-1", "of a kind")
        assert (got.priority, got.mode, got.redelivered, got.deliveries) == (7, NON_PERSISTENT, False, 1)
        assert got.expiration == got.timestamp + 100_000
    jms.do("close", connection)


@pytest.mark.parametrize("mode", [AUTO, CLIENT, DUPS_OK, INDIVIDUAL, TRANSACTED])
@pytest.mark.parametrize("to", ["queue", "topic"])
def test_every_mode_of_acknowledgement_goes_on_beyond_its_prefetch(
    jms: Jms, connection: str, broker: BrokerProcess, to: str, mode: int
) -> None:
    there = f"{fresh(to)}?consumer.prefetchSize=10"
    session, sending = jms.session(connection, mode), jms.session(connection)
    consumer = jms.consumer(session, there)
    jms.do("flood", jms.producer(sending), sending, there, NON_PERSISTENT, 100, None)
    acknowledges = mode in (CLIENT, INDIVIDUAL)
    assert jms.drain(consumer, 100, acknowledge=acknowledges) == [str(number) for number in range(100)]
    if mode == TRANSACTED:
        jms.do("commit", session)
    jms.do("close", session)
    if to == "queue":
        assert jms.receive(jms.consumer(jms.session(connection), there), 300) is None


def test_what_is_not_acknowledged_comes_again_in_its_order(jms: Jms, connection: str) -> None:
    there = fresh()
    sending, session = jms.session(connection), jms.session(connection, CLIENT)
    jms.do("flood", jms.producer(sending), sending, there, PERSISTENT, 5, None)
    consumer = jms.consumer(session, there)
    assert jms.drain(consumer, 3) == ["0", "1", "2"]
    jms.do("close", session)
    again = jms.consumer(jms.session(connection), there)
    got = [jms.got(again) for _ in range(5)]
    assert [message.body for message in got] == ["0", "1", "2", "3", "4"]
    assert [message.redelivered for message in got] == [True] * 3 + [False] * 2
    assert [message.deliveries for message in got] == [2, 2, 2, 1, 1]


def test_recover_and_individual_acknowledgement(jms: Jms, connection: str) -> None:
    there = fresh()
    sending, session = jms.session(connection), jms.session(connection, INDIVIDUAL)
    jms.do("flood", jms.producer(sending), sending, there, NON_PERSISTENT, 3, None)
    consumer = jms.consumer(session, there)
    jms.got(consumer)
    assert jms.got(consumer).body == "1"
    jms.do("acknowledge", consumer)
    jms.do("close", session)
    again = jms.consumer(jms.session(connection), there)
    assert [jms.got(again).body for _ in range(2)] == ["0", "2"]


def test_a_transaction_is_seen_when_it_is_committed_and_never_when_it_is_rolled_back(
    jms: Jms, connection: str
) -> None:
    there, other = fresh(), fresh()
    session = jms.session(connection, TRANSACTED)
    producer, watcher = jms.producer(session), jms.consumer(jms.session(connection), other)
    jms.send(producer, session, "lost", other)
    jms.do("rollback", session)
    jms.send(producer, session, "kept", other)
    assert jms.receive(watcher, 200) is None
    jms.do("commit", session)
    assert jms.got(watcher).body == "kept"
    jms.send(producer, session, "one", there)
    jms.do("commit", session)
    consumer = jms.consumer(session, there)
    assert jms.got(consumer).deliveries == 1
    jms.do("rollback", session)
    again = jms.got(consumer)
    assert (again.body, again.deliveries, again.redelivered) == ("one", 2, True)
    jms.do("commit", session)
    jms.do("close", session)
    assert jms.receive(jms.consumer(jms.session(connection), there), 200) is None


def test_a_message_that_fails_too_often_becomes_a_dead_letter(jms: Jms, broker: BrokerProcess) -> None:
    options = "?jms.redeliveryPolicy.maximumRedeliveries=1&jms.redeliveryPolicy.initialRedeliveryDelay=1"
    connection = jms.connect(url_of(broker, options))
    there = fresh()
    session = jms.session(connection)
    consumer = jms.consumer(session, there)
    jms.do("listen", consumer, "this one cannot be done")
    jms.send(jms.producer(session), session, "poison", there, properties={"n": "int:1"})
    assert [jms.heard(consumer) is not None for _ in range(2)] == [True, True]
    dead = jms.consumer(jms.session(connection), "queue://ActiveMQ.DLQ")
    letter = jms.got(dead)
    assert (letter.body, letter.properties["n"]) == ("poison", "Integer:1")
    assert jms.heard(consumer, 200) is None
    jms.do("close", connection)


def test_the_prefetch_of_a_topic_is_in_the_thousands_unless_the_client_says_another(
    jms: Jms, broker: BrokerProcess, connection: str
) -> None:
    """The default of ActiveMQ's client, 32,766, is its own."""
    there = fresh("topic")
    slow = jms.connect(url_of(broker), client_id="slow")
    sending = jms.session(connection)
    jms.consumer(jms.session(slow, CLIENT), there)
    jms.do("flood", jms.producer(sending), sending, there, NON_PERSISTENT, 3000, None)
    topic = there.removeprefix("topic://").replace(".", "/")
    until(lambda: broker.consumer("slow", topic)["delivered_records"] == 3000, what="all are sent, none acknowledged")
    jms.do("close", slow)


def test_consumers_with_a_prefetch_of_nothing_ask_for_each_message(jms: Jms, connection: str) -> None:
    for to in ("queue", "topic"):
        there = fresh(to)
        sending, session = jms.session(connection), jms.session(connection)
        consumer = jms.consumer(session, f"{there}?consumer.prefetchSize=0")
        assert jms.receive(consumer, 0) is None
        assert jms.receive(consumer, 100) is None
        jms.do("flood", jms.producer(sending), sending, there, NON_PERSISTENT, 3, None)
        assert [jms.got(consumer).body for _ in range(2)] == ["0", "1"]
        assert until(partial(jms.receive, consumer, 0)).body == "2"
        if to == "queue":
            assert jms.do("browse", sending, there, None) == ""


def test_a_browser_sees_what_waits_and_takes_nothing(jms: Jms, connection: str) -> None:
    there = fresh()
    session = jms.session(connection)
    producer = jms.producer(session)
    for number in range(5):
        jms.send(producer, session, str(number), there, properties={"n": f"int:{number}"})
    assert jms.do("browse", session, there, None) == "0\n1\n2\n3\n4"
    assert jms.do("browse", session, there, "n > 2") == "3\n4"
    assert jms.drain(jms.consumer(session, there), 5) == ["0", "1", "2", "3", "4"]
    assert jms.do("browse", session, there, None) == ""


def test_a_durable_subscription_keeps_what_comes_while_its_client_is_away(jms: Jms, broker: BrokerProcess) -> None:
    topic, other = fresh("topic"), fresh("topic")
    sending = jms.connect(url_of(broker))
    session = jms.session(sending)
    producer = jms.producer(session)

    def come() -> tuple[str, str, str]:
        connection = jms.connect(url_of(broker), client_id="the durable")
        of = jms.session(connection)
        return connection, of, jms.durable(of, topic, "my own")

    connection, _, consumer = come()
    jms.send(producer, session, "while there", topic)
    assert jms.got(consumer).body == "while there"
    with pytest.raises(JmsError, match="is connected already"):
        jms.connect(url_of(broker), client_id="the durable")
    jms.do("close", connection)
    jms.send(producer, session, "while away", topic)
    connection, of, consumer = come()
    assert jms.got(consumer).body == "while away"
    with pytest.raises(JmsError, match="in use"):
        jms.do("unsubscribe", of, "my own")
    jms.do("close", consumer)
    jms.send(producer, session, "of the old topic", topic)
    changed = jms.durable(of, other, "my own")
    assert jms.receive(changed, 200) is None
    jms.do("close", changed)
    jms.do("unsubscribe", of, "my own")
    with pytest.raises(JmsError, match="no durable subscription"):
        jms.do("unsubscribe", of, "my own")
    jms.do("close", connection)
    jms.do("close", sending)


def test_requests_and_replies_over_temporary_destinations_of_another_connection(
    jms: Jms, connection: str, broker: BrokerProcess
) -> None:
    requests = fresh()
    serving = jms.connect(url_of(broker))
    service = jms.session(serving)
    served = jms.consumer(service, requests)
    session = jms.session(connection)
    for kind in ("queue", "topic"):
        name, address = jms.temporary(session, kind)
        replies = jms.consumer(session, name)
        jms.send(jms.producer(session), session, "question", requests, reply_to=name, correlation="42")
        question = jms.got(served)
        assert question.reply_to == address
        jms.do("reply_to", served, "back")
        jms.send(jms.producer(service), service, "answer", "back", correlation=question.correlation)
        assert (jms.got(replies).body, replies != name) == ("answer", True)
        with pytest.raises(JmsError):
            jms.consumer(service, "back")
        jms.do("close", replies)
        jms.do("delete", name)
        until(lambda: _refuses(jms, service, "back"))
    jms.do("close", serving)


def _refuses(jms: Jms, session: str, there: str) -> bool:
    """Returns whether a destination that has ended is sent nothing more: its client, or the broker, knows that."""
    try:
        jms.send(jms.producer(session), session, "too late", there)
    except JmsError as error:
        return "eleted" in error.text or "ended" in error.text
    return False


def test_composite_destinations_and_wildcards(jms: Jms, connection: str) -> None:
    one, other, topic = fresh(), fresh(), fresh("topic")
    session = jms.session(connection)
    producer = jms.producer(session)
    both = jms.consumer(session, f"{one},{other}")
    wild = jms.consumer(session, topic.rpartition(".")[0] + ".*")
    rest = jms.consumer(session, "topic://of.>")
    jms.send(producer, session, "x", f"{one},{other},{topic}")
    assert sorted(jms.got(both).destination for _ in range(2)) == sorted([one, other])
    assert jms.got(wild).destination == topic
    assert jms.got(rest).destination == topic
    jms.do("close", both)
    jms.send(producer, session, "y", one)
    assert jms.got(jms.consumer(session, "queue://of.test.*")).body == "y"


def test_selectors_hints_and_no_local(jms: Jms, connection: str, broker: BrokerProcess) -> None:
    topic = fresh("topic")
    session = jms.session(connection)
    producer = jms.producer(session)
    picky = jms.consumer(session, topic, "n > 1 AND JMSType = 'x' AND JMSPriority >= 5")
    deaf = jms.consumer(session, topic, no_local=True)
    hinted = jms.consumer(session, topic, "/*+ offsets=true */ n = 2")
    for number in range(3):
        jms.send(producer, session, str(number), topic, properties={"n": f"int:{number}"}, type="x", priority=6)
    assert jms.got(picky).body == "2"
    assert jms.receive(deaf, 200) is None
    assert jms.got(hinted).properties["x-headway-offset"]
    with pytest.raises(JmsError, match="did you mean"):
        jms.consumer(session, topic, "/*+ conflat=1s */ TRUE")
    with pytest.raises(JmsError) as fault:
        jms.consumer(session, topic, "n BETWEEN 'a' AND 'b' OR 1 = 'x'")
    assert fault.value.kind == "javax.jms.InvalidSelectorException"


def test_expired_messages_are_not_delivered(jms: Jms, connection: str) -> None:
    there = fresh()
    session = jms.session(connection)
    producer = jms.producer(session)
    jms.send(producer, session, "short", there, lifetime_ms=1)
    jms.send(producer, session, "long", there, lifetime_ms=100_000)
    assert jms.got(jms.consumer(session, there)).body == "long"


def test_a_producer_with_a_window_goes_on_as_the_broker_takes_its_messages(jms: Jms, broker: BrokerProcess) -> None:
    there = fresh()
    connection = jms.connect(url_of(broker, "?jms.producerWindowSize=3000&jms.useAsyncSend=true"))
    session = jms.session(connection)
    jms.do("flood", jms.producer(session), session, there, NON_PERSISTENT, 200, "x" * 500)
    assert len(jms.drain(jms.consumer(session, there), 200)) == 200
    jms.do("close", connection)


def test_a_listener_hears_each_message(jms: Jms, connection: str) -> None:
    there = fresh("topic")
    session, sending = jms.session(connection), jms.session(connection)
    consumer = jms.consumer(session, there)
    jms.do("listen", consumer, None)
    jms.do("flood", jms.producer(sending), sending, there, NON_PERSISTENT, 50, None)
    heard = [jms.heard(consumer) for _ in range(50)]
    assert [message.body for message in heard if message is not None] == [str(number) for number in range(50)]


def test_a_body_has_the_bytes_that_were_sent(jms: Jms, connection: str) -> None:
    there = fresh()
    session = jms.session(connection)
    body = base64.b64encode(bytes(range(256)) * 1000).decode()
    jms.send(jms.producer(session), session, body, there, kind="bytes")
    assert jms.got(jms.consumer(session, there)).body == body


def test_an_exclusive_consumer_gets_all_until_it_ends(jms: Jms, connection: str) -> None:
    there = fresh()
    session = jms.session(connection)
    other = jms.consumer(session, there)
    alone, next_one = (jms.consumer(session, f"{there}?consumer.exclusive=true") for _ in range(2))
    producer = jms.producer(session)
    for number in range(4):
        jms.send(producer, session, str(number), there)
    assert jms.drain(alone, 4) == ["0", "1", "2", "3"]
    jms.do("close", alone)
    jms.send(producer, session, "4", there)
    assert jms.got(next_one).body == "4"
    jms.do("close", next_one)
    jms.send(producer, session, "5", there)
    assert jms.got(other).body == "5"


def test_what_cannot_be_had_is_refused_with_its_reason(jms: Jms, connection: str) -> None:
    session = jms.session(connection)
    with pytest.raises(JmsError, match="option snapshot is for"):
        jms.consumer(session, fresh(), "/*+ snapshot=true */ a = 1")
    assert jms.consumer(session, fresh()), "the connection goes on"


def test_a_snapshot_a_conflated_topic_and_a_retained_message(jms: Jms, start: BrokerFactory) -> None:
    broker = start(f'{LISTENERS}[[topic]]\nfilter = "flights/#"\nkey = "/id"\n')
    connection = jms.connect(url_of(broker))
    session = jms.session(connection)
    producer = jms.producer(session)
    for number in range(2):
        jms.send(producer, session, f'{{"id": {number}}}', "topic://flights.a")
    consumer = jms.consumer(session, "topic://flights.>", "/*+ snapshot=true marks=true conflate=50ms */ TRUE")
    got = [jms.got(consumer) for _ in range(4)]
    events = [message.properties.get("headway-event") for message in got]
    assert events == ["String:snapshot_begin", None, None, "String:snapshot_end"]
    assert [message.body for message in got[1:3]] == ['{"id": 0}', '{"id": 1}']
    assert [message.properties["headway-key"] for message in got[1:3]] == ["String:0", "String:1"]
    jms.send(producer, session, '{"id": 1, "new": true}', "topic://flights.a")
    assert jms.got(consumer).body == '{"id": 1, "new": true}'
    jms.send(producer, session, "kept", "topic://kept", properties={"ActiveMQ.Retain": "boolean:true"})
    retained = jms.got(jms.consumer(session, "topic://kept?consumer.retroactive=true"))
    assert (retained.body, retained.properties["ActiveMQ.Retained"]) == ("kept", "Boolean:true")
    jms.do("close", connection)
    broker.stop()
