"""Single things that have to be as they were after a kill; each found by the long story, or thought of beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp.commands import Basic, Confirm, Queue, Tx
from tests.crash.life import Life
from tests.interop import raw as mqtt
from tests.interop.amqp_raw import Raw
from tests.interop.raw import Message, PubComp, PubRec, PubRel
from tests.interop.waiting import until

from headway.wire.mqtt.packets import TopicRequest

LATE = "300ms"
"""So long everything waits for the journal: what is said too early is so every time."""
SESSION: dict[str, Any] = {"clean_start": False, "session_expiry_s": 3600}


class Again:
    """Kills the broker, if there is one, and starts it on the same journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fsync = "always"
        self.lives: list[Life] = []

    def __call__(self) -> Life:
        if self.lives:
            self.lives[-1].kill()
        self.lives.append(Life(self.folder, len(self.lives) + 1, fsync=self.fsync))
        self.lives[-1].listening()
        return self.lives[-1]


@pytest.fixture
def again(tmp_path: Path) -> Iterator[Again]:
    found = Again(tmp_path)
    yield found
    for life in found.lives:
        life.kill()
    assert not [complaint for life in found.lives for complaint in life.complaints()]


def durable(raw: Raw, *queues: str, **arguments: Any) -> None:
    for queue in queues:
        raw.declare(queue, durable=True, exclusive=False, arguments=arguments)


def confirmed(raw: Raw, exchange: str, key: str, *bodies: bytes, **properties: Any) -> None:
    """Publish durably, one by one, and wait for the confirm of the last."""
    if not getattr(raw, "confirms", False):
        raw.call(Confirm.Select(), Confirm.SelectOk)
        raw.confirms, raw.published = True, 0  # type: ignore[attr-defined]
    for body in bodies:
        raw.publish(exchange, key, body, delivery_mode=2, **properties)
    raw.published += len(bodies)  # type: ignore[attr-defined]
    while raw.expect(Basic.Ack).delivery_tag < raw.published:  # type: ignore[attr-defined]
        pass


def bind(raw: Raw, queue: str, key: str, *, there: bool = True) -> None:
    what: Any = Queue.Bind if there else Queue.Unbind
    raw.call(what(queue=queue, exchange="amq.direct", routing_key=key), Queue.BindOk if there else Queue.UnbindOk)


def waiting(raw: Raw, queue: str) -> int:
    return raw.call(Queue.Declare(queue=queue, passive=True), Queue.DeclareOk).message_count or 0


def rest(raw: Raw, queue: str) -> list[bytes]:
    """All that waits."""
    found: list[bytes] = []
    while (content := raw.get(queue, no_ack=True)) is not None:
        found.append(content.body)
    return found


def test_a_queue_that_was_bound_unbound_and_bound_again(again: Again) -> None:
    """It reads one lane twice, and not what came there in between."""
    with Raw(again().amqp) as raw:
        durable(raw, "q", "other")
        bind(raw, "other", "k")
        for part, there in ((b"1", True), (b"2", False), (b"3", True), (b"4", False)):
            bind(raw, "q", "k", there=there)
            confirmed(raw, "amq.direct", "k", part + b"a", part + b"b")
    with Raw(again().amqp) as raw:
        assert rest(raw, "q") == [b"1a", b"1b", b"3a", b"3b"]
        assert len(rest(raw, "other")) == 8


def test_a_binding_between_two_records_of_one_commit(again: Again) -> None:
    """Everything goes in one write, so all of it is read, and committed, together."""
    with Raw(again().amqp) as raw:
        durable(raw, "q", "other")
        bind(raw, "other", "k")
        raw.call(Confirm.Select(), Confirm.SelectOk)
        publish = Basic.Publish(exchange="amq.direct", routing_key="k")
        lasting = Basic.Properties(delivery_mode=2)
        bound = {"queue": "q", "exchange": "amq.direct", "routing_key": "k"}
        raw.send(b"".join((
            raw.content(publish, b"1", properties=lasting), raw.encode(Queue.Bind(**bound)),
            raw.content(publish, b"2", properties=lasting), raw.encode(Queue.Unbind(**bound)),
            raw.content(publish, b"3", properties=lasting),
        )))  # fmt: skip
        while raw.expect(Basic.Ack).delivery_tag < 3:
            pass
    with Raw(again().amqp) as raw:
        assert rest(raw, "q") == [b"2"]
        assert rest(raw, "other") == [b"1", b"2", b"3"]


def test_what_is_settled_in_a_later_lane_while_an_earlier_one_has_something_out(again: Again) -> None:
    """Also when a snapshot was taken since, which has to say all of it once more."""
    with Raw(again().amqp) as raw:
        durable(raw, "q", "filler")
        bind(raw, "q", "one")
        confirmed(raw, "amq.direct", "one", b"1")
        bind(raw, "q", "two")
        confirmed(raw, "amq.direct", "two", b"2", b"3", b"4")
        raw.do(Basic.Consume(queue="q"))
        tags = {content.body: content.method.delivery_tag for content in raw.contents(4)}
        for body in (b"2", b"3"):
            raw.do(Basic.Ack(tags[body]))
        for _ in range(8):
            confirmed(raw, "", "filler", *[b"." * 10_000] * 10)
    with Raw(again().amqp) as raw:
        assert rest(raw, "q") == [b"1", b"4"]


def test_what_was_purged_in_a_later_lane_while_an_earlier_one_has_something_out(again: Again) -> None:
    with Raw(again().amqp) as raw:
        durable(raw, "q", "filler")
        bind(raw, "q", "one")
        confirmed(raw, "amq.direct", "one", b"1")
        assert raw.get("q") is not None
        bind(raw, "q", "two")
        confirmed(raw, "amq.direct", "two", b"2", b"3")
        assert raw.call(Queue.Purge(queue="q"), Queue.PurgeOk).message_count == 2
        confirmed(raw, "amq.direct", "two", b"4")
    with Raw(again().amqp) as raw:
        assert rest(raw, "q") == [b"1", b"4"]


def test_what_a_queue_refused_does_not_come_back(again: Again) -> None:
    with Raw(again().amqp) as raw:
        durable(raw, "q", **{"x-max-length": 2, "x-overflow": "reject-publish"})
        confirmed(raw, "", "q", b"1", b"2")
        raw.publish("", "q", b"3", delivery_mode=2)
        raw.expect(Basic.Nack)
        durable(raw, "other")
        confirmed(raw, "", "other", b"!")
    with Raw(again().amqp) as raw:
        assert rest(raw, "q") == [b"1", b"2"]


def test_the_oldest_were_dropped(again: Again) -> None:
    with Raw(again().amqp) as raw:
        durable(raw, "q", **{"x-max-length": 2})
        confirmed(raw, "", "q", b"1", b"2", b"3", b"4")
    with Raw(again().amqp) as raw:
        assert rest(raw, "q") == [b"3", b"4"]


@pytest.mark.parametrize("whose", ["queue", "record"])
def test_what_expired_while_nobody_was_there_is_a_dead_letter_once(again: Again, whose: str) -> None:
    ttl: dict[str, Any] = {"x-message-ttl": 500} if whose == "queue" else {}
    with Raw(again().amqp) as raw:
        durable(raw, "dead")
        durable(raw, "q", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}, **ttl)
        confirmed(raw, "", "q", b"1", b"2", **({} if ttl else {"expiration": "500"}))
        published_s = time.monotonic()
        again.lives[-1].kill()
    until(lambda: time.monotonic() > published_s + 0.5, 10.0, "their time is over")
    with Raw(again().amqp) as raw:
        until(lambda: waiting(raw, "dead") == 2, 10.0, "both are dead letters")
        confirmed(raw, "", "dead", b"3")
    with Raw(again().amqp) as raw:
        assert rest(raw, "dead") == [b"1", b"2", b"3"]
        assert rest(raw, "q") == []


def test_a_rolled_back_transaction_leaves_nothing(again: Again) -> None:
    with Raw(again().amqp) as raw:
        durable(raw, "q")
        confirmed(raw, "", "q", b"1")
        raw.open_channel(2)
        raw.call(Tx.Select(), Tx.SelectOk, 2)
        assert raw.get("q", 2) is not None
        raw.do(Basic.Ack(1), 2)
        raw.publish("", "q", b"never", channel=2, delivery_mode=2)
        raw.call(Tx.Rollback(), Tx.RollbackOk, 2)
        confirmed(raw, "", "q", b"2")
    with Raw(again().amqp) as raw:
        assert rest(raw, "q") == [b"1", b"2"]


def test_what_was_delivered_before_is_marked_as_such(again: Again) -> None:
    """A client that looks for doubles only where it is told to, must be told."""
    with Raw(again().amqp) as raw:
        durable(raw, "q")
        confirmed(raw, "", "q", b"1", b"2")
        assert raw.get("q") is not None
        confirmed(raw, "", "q", b"3")
    with Raw(again().amqp) as raw:
        found = [raw.get("q") for _ in range(3)]
        assert [(c.body, c.method.redelivered) for c in found if c] == [(b"1", True), (b"2", False), (b"3", False)]


def subscriber(life: Life, *entries: TopicRequest, **more: Any) -> mqtt.Raw:
    raw = mqtt.Raw(life.mqtt, "sub", **SESSION, **more)
    return raw.subscribed(*entries) if entries else raw


def test_new_terms_of_a_subscription_with_a_backlog(again: Again) -> None:
    """Subscribed to once more with another QoS and another identifier, while records wait."""
    life = again()
    with subscriber(life, TopicRequest("t/#", 1), receive_max=1), mqtt.Raw(life.mqtt) as writer:
        for body in (b"1", b"2", b"3"):
            writer.published("t/x", body)
    with subscriber(life, receive_max=1) as sub, mqtt.Raw(life.mqtt) as writer:
        sub.subscribe(TopicRequest("t/#", 2), identifier=7)
        writer.published("t/x", b"4")
        assert sub.message().payload == b"1"
    life = again()
    with subscriber(life) as sub, mqtt.Raw(life.mqtt) as writer:
        assert sub.payloads(4) == [b"1", b"2", b"3", b"4"]
        number = writer.publish("t/x", b"5", 2)
        assert writer.expect(PubRec).packet_id == number
        message = sub.message()
        assert (message.payload, message.qos, message.identifiers) == (b"5", 2, (7,))


def test_an_id_of_exactly_once_is_not_used_for_another_record(again: Again) -> None:
    """A client that keeps its ids (MQTT 5, 4.1) takes such a record for one that it has, and it is lost."""
    life = again()
    with subscriber(life, TopicRequest("t/#", 2)) as sub, mqtt.Raw(life.mqtt) as writer:
        for body in (b"1", b"2"):
            writer.publish("t/x", body, 2)
        held = {message.packet_id: message.payload for message in sub.messages(2)}
        first = min(held)
        sub.rec(Message("", b"", packet_id=first))
        assert sub.expect(PubRel).packet_id == first
        sub.comp(first)
        del held[first]
        sub.published("t/receipt")
        sub.message()
    life = again()
    with subscriber(life) as sub, mqtt.Raw(life.mqtt) as writer:
        number = writer.publish("t/x", b"3", 2)
        assert writer.expect(PubRec).packet_id == number
        for message in sub.messages(3):
            assert held.get(message.packet_id, message.payload) == message.payload


def test_a_record_that_is_received_exactly_once_is_not_published_again(again: Again) -> None:
    """PUBLISH, PUBREC, and then PUBREL only after the kill; or the PUBLISH once more, for the PUBREC got lost."""
    life = again()
    with subscriber(life, TopicRequest("t/#", 1)), mqtt.Raw(life.mqtt, "pub", **SESSION) as writer:
        number = writer.publish("t/x", b"1", 2)
        assert writer.expect(PubRec).packet_id == number
    life = again()
    with subscriber(life) as sub, mqtt.Raw(life.mqtt, "pub", **SESSION) as writer:
        assert writer.connack.session_present
        writer.next_id = number - 1
        writer.publish("t/x", b"1", 2, dup=True)
        assert writer.expect(PubRec).packet_id == number
        writer.rel(number)
        assert writer.expect(PubComp).code == 0
        assert [message.payload for message in sub.so_far()] == [b"1"]


def test_an_id_whose_publish_is_complete_is_free_again(again: Again) -> None:
    """Its release has to be in the journal by then, or the id swallows the next record that has it."""
    again.fsync = LATE
    life = again()
    with subscriber(life, TopicRequest("t/#", 2)):
        pass
    bodies = [b"1", b"2", b"3"]
    for body in bodies:
        with mqtt.Raw(life.mqtt, "pub", **SESSION) as writer:
            assert writer.publish("t/x", body, 2) == 1
            assert writer.expect(PubRec).packet_id == 1
            writer.rel(1)
            assert writer.expect(PubComp).code == 0
        life = again()
    with subscriber(life) as sub:
        assert sub.payloads(3) == bodies


def test_an_id_that_was_released_on_another_connection(again: Again) -> None:
    """PUBREL, and before its answer the connection is lost; on the next one the id is unknown already."""
    again.fsync = LATE
    life = again()
    with subscriber(life, TopicRequest("t/#", 2)), mqtt.Raw(life.mqtt, "pub", **SESSION) as writer:
        writer.publish("t/x", b"1", 2)
        writer.expect(PubRec)
        writer.rel(1)
        with mqtt.Raw(life.mqtt, "pub", **SESSION) as same:
            same.rel(1)
            assert same.expect(PubComp).packet_id == 1
    life = again()
    with subscriber(life) as sub, mqtt.Raw(life.mqtt, "pub", **SESSION) as writer:
        writer.publish("t/x", b"2", 2)
        assert writer.expect(PubRec).packet_id == 1
        assert sub.payloads(2) == [b"1", b"2"]


def test_who_is_told_that_nothing_is_known_of_him_may_use_all_ids(again: Again) -> None:
    """A clean start: the session before it, with an id under way, must not be there again."""
    again.fsync = LATE
    life = again()
    with subscriber(life, TopicRequest("t/#", 2)), mqtt.Raw(life.mqtt, "pub", **SESSION) as writer:
        writer.publish("t/x", b"1", 2)
        writer.expect(PubRec)
        with mqtt.Raw(life.mqtt, "pub", clean_start=True, session_expiry_s=3600):
            life = again()
    with mqtt.Raw(life.mqtt, "pub", **SESSION) as writer, subscriber(life) as sub:
        writer.publish("t/x", b"2", 2, dup=True)
        assert writer.expect(PubRec).packet_id == 1
        assert sub.payloads(2) == [b"1", b"2"]


def test_a_subscription_that_was_granted_is_there(again: Again) -> None:
    """Or a client that finds its session again believes that it has it."""
    again.fsync = LATE
    life = again()
    with subscriber(life), subscriber(life, TopicRequest("t/#", 1)):
        life = again()
    with mqtt.Raw(life.mqtt) as writer, subscriber(life) as sub:
        assert sub.connack.session_present
        writer.published("t/x", b"1")
        assert sub.message().payload == b"1"
        sub.unsubscribe("t/#")
        life = again()
    with mqtt.Raw(life.mqtt) as writer, subscriber(life) as sub:
        writer.published("t/x", b"2")
        assert not [message for message in sub.so_far() if message.payload == b"2"]


def test_what_was_declared_and_answered_is_there_and_what_was_taken_away_is_not(again: Again) -> None:
    """Killed right after each answer."""
    again.fsync = LATE
    with Raw(again().amqp) as raw:
        durable(raw, "q", "other")
    with Raw(again().amqp) as raw:
        bind(raw, "q", "k")
        raw.call(Queue.Delete(queue="other"), Queue.DeleteOk)
    with Raw(again().amqp) as raw:
        confirmed(raw, "amq.direct", "k", b"1")
        assert raw.call(Queue.Declare(queue="q", passive=True), Queue.DeclareOk).message_count == 1
        raw.do(Queue.Declare(queue="other", passive=True))
        assert raw.channel_closed().reply_code == 404
    with Raw(again().amqp) as raw:
        raw.call(Queue.Purge(queue="q"), Queue.PurgeOk)
    with Raw(again().amqp) as raw:
        assert rest(raw, "q") == []
        bind(raw, "q", "k", there=False)
    with Raw(again().amqp) as raw:
        confirmed(raw, "amq.direct", "k", b"2")
        assert rest(raw, "q") == []


def test_a_slow_subscriber_reads_what_all_durable_ones_have_settled(tmp_path: Path) -> None:
    """No kill: what left memory for the journal stays there for those, too, who are not in it."""
    life = Life(tmp_path, 1, memory="2MB")
    size, count = 5000, 1600
    try:
        life.listening()
        with (subscriber(life, TopicRequest("t/#", 1)) as sub, mqtt.Raw(life.mqtt) as writer,
              mqtt.Raw(life.mqtt, "slow", receive_buffer=4096).subscribed(TopicRequest("t/#", 1)) as slow):  # fmt: skip
            for at in range(0, count, 20):
                for number in range(at, at + 20):
                    writer.publish("t/x", b"%06d" % number + b"." * (size - 6), 1)
                writer.so_far()
                for message in sub.messages(20):
                    sub.ack(message)
                sub.so_far()
            found: list[bytes] = []
            while len(found) < count:
                message = slow.message()
                found.append(message.payload[:6])
                slow.ack(message)
            assert found == [b"%06d" % number for number in range(count)]
    finally:
        life.kill()
