"""Queue arguments: limits, lifetimes, dead letters, priorities, one consumer at a time; with pika."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import Any

import pytest
from pika.exceptions import AMQPError, NackError, UnroutableError
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_pika import Delivery, Pika, PikaFactory, properties
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.amqp_fixtures",)


def dead_letters(client: Pika, word: str, key: str | None = None, **arguments: Any) -> tuple[str, str]:
    """A queue with these arguments, and that which gets its dead letters."""
    client.exchange(f"{word}-dlx", "topic")
    more = {} if key is None else {"x-dead-letter-routing-key": key}
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    queue = client.queue(word, {"x-dead-letter-exchange": f"{word}-dlx", **more, **given})
    return queue, client.bound(f"{word}-dlx", "#")


# -- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        ({"x-max-length": 3}, "345"),
        ({"x-max-length": 3, "x-overflow": "drop-head"}, "345"),
        ({"x-max-length-bytes": 20}, "45"),
        ({"x-max-length": 4, "x-max-length-bytes": 30}, "345"),
        ({"x-max-length": 2, "x-max-length-bytes": 1000}, "45"),
        ({"x-max-length": 0}, ""),
    ],
    ids=str,
)
def test_a_full_queue_drops_its_oldest(client: Pika, arguments: dict[str, Any], left: str) -> None:
    """Bodies are what counts of the bytes."""
    queue = client.queue(arguments=arguments)
    client.put(queue, *(b"%d" % i * 10 for i in range(1, 6)))
    assert [body[:1].decode() for body in client.drain(queue)] == list(left)


def test_what_is_out_with_consumers_does_not_count(client: Pika) -> None:
    queue = client.queue(arguments={"x-max-length": 2})
    client.put(queue, b"1", b"2")
    client.consume(queue, prefetch=2)
    assert client.bodies(2) == [b"1", b"2"]
    client.put(queue, b"3", b"4", b"5")
    assert client.count(queue) == (2, 1)
    client.channel.basic_nack(0, multiple=True)
    until(lambda: len(client.turn()) >= 2)
    assert client.count(queue)[0] <= 2


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
@pytest.mark.parametrize("limit", [{"x-max-length": 2}, {"x-max-length-bytes": 2}], ids=str)
def test_a_full_queue_refuses(client: Pika, word: str, overflow: str, limit: dict[str, Any]) -> None:
    """Who asked for no confirms loses the record without a word; another queue that takes it is no comfort."""
    queue, dead = dead_letters(client, word, **limit, x_overflow=overflow)
    client.put(queue, b"1", b"2")
    with pytest.raises(NackError):
        client.put(queue, b"3")
    client.channel.basic_publish("", queue, b"4")
    client.exchange(f"{word}-both")
    other = client.bound(f"{word}-both", "")
    client.channel.queue_bind(queue, f"{word}-both")
    with pytest.raises(NackError):
        client.put("", b"5", exchange=f"{word}-both")
    assert client.drain(other) == [b"5"]
    assert client.drain(queue) == [b"1", b"2"]
    client.put(queue, b"6")
    assert client.drain(queue) == [b"6"]
    if overflow == "reject-publish-dlx":
        got = [client.take(dead) for _ in range(3)]
        assert sorted(one.body for one in got) == [b"3", b"4", b"5"]
        assert {one.headers["x-death"][0]["reason"] for one in got} == {"maxlen"}
    assert client.drain(dead) == []


# -- lifetimes ------------------------------------------------------------------------------------------------------


def test_records_live_as_long_as_the_queue_says(client: Pika) -> None:
    queue, brief = client.queue(), client.queue(arguments={"x-message-ttl": 150})
    begin = time.monotonic()
    for one in (queue, brief):
        client.put(one, b"x")
    until(lambda: client.count(brief)[0] == 0, what="the record expires")
    assert time.monotonic() - begin >= 0.14
    assert client.count(queue)[0] == 1


def test_records_live_as_long_as_they_say_or_their_queue_if_that_is_less(client: Pika) -> None:
    plain, brief = client.queue(), client.queue(arguments={"x-message-ttl": 200})
    begin = time.monotonic()
    client.put(plain, b"x", expiration="100")
    client.put(brief, b"x", expiration="60000")
    until(lambda: client.count(plain)[0] == 0, what="its own lifetime ends it")
    assert time.monotonic() - begin >= 0.09
    until(lambda: client.count(brief)[0] == 0, what="the queue's lifetime ends it")
    assert time.monotonic() - begin >= 0.19


def test_what_has_expired_is_not_delivered(client: Pika) -> None:
    queue = client.queue()
    client.put(queue, b"1", b"2", expiration="50")
    client.put(queue, b"3")
    until(lambda: client.count(queue)[0] == 1, what="two have expired")
    client.consume(queue, auto_ack=True)
    assert client.bodies(1) == [b"3"]
    assert client.so_far() == []


def test_no_time_at_all_is_for_those_who_wait(client: Pika) -> None:
    """A lifetime of 0: now to a consumer, or never."""
    queue = client.queue(arguments={"x-message-ttl": 0})
    client.put(queue, b"1")
    until(lambda: client.count(queue)[0] == 0)
    client.consume(queue, auto_ack=True)
    client.put(queue, b"2")
    assert client.bodies(1) == [b"2"]
    plain = client.queue()
    client.put(plain, b"3", expiration="0")
    until(lambda: client.count(plain)[0] == 0)


def test_a_record_handed_back_keeps_its_first_hour(client: Pika) -> None:
    """Its lifetime goes on while it is out."""
    queue = client.queue(arguments={"x-message-ttl": 150})
    client.put(queue, b"x")
    begin = time.monotonic()
    got = client.get(queue)
    assert got is not None
    until(lambda: time.monotonic() - begin > 0.2)
    assert client.count(queue)[0] == 0
    client.channel.basic_reject(got.tag)
    until(lambda: client.count(queue)[0] == 0 and client.get(queue) is None, what="it has expired")


def test_a_queue_that_nobody_uses_goes(client: Pika, word: str) -> None:
    """Being consumed, asked or declared is use; being published to is not, so that shows when it is gone."""
    names = consumed, asked, declared, idle = [f"{word}-{i}" for i in range(4)]
    for name in names:
        client.queue(name, {"x-expires": 500}, exclusive=False)
    begin = time.monotonic()
    tag = client.consume(consumed, auto_ack=True)

    def gone(queue: str) -> bool:
        try:
            client.put(queue, b"x", mandatory=True)
        except UnroutableError:
            return True
        return False

    def idle_is_gone() -> bool:
        client.get(asked, auto_ack=True)
        client.count(declared)
        return gone(idle)

    until(idle_is_gone)
    assert time.monotonic() - begin >= 0.49
    assert not any(gone(name) for name in (consumed, asked, declared))
    client.cancel(tag)
    until(lambda: all(gone(name) for name in names), what="the others go, too")
    assert time.monotonic() - begin >= 0.98


# -- dead letters ---------------------------------------------------------------------------------------------------


def death(one: Delivery) -> dict[str, Any]:
    found: dict[str, Any] = dict(one.headers["x-death"][0])
    assert found.pop("time") is not None
    return found


@pytest.mark.parametrize("key", [None, "grave"])
@pytest.mark.parametrize("reason", ["rejected", "expired", "expired itself", "maxlen"])
def test_dead_letters(client: Pika, word: str, reason: str, key: str | None) -> None:
    arguments: dict[str, Any] = {"expired": {"x-message-ttl": 50}, "maxlen": {"x-max-length": 1}}.get(reason, {})
    queue, dead = dead_letters(client, word, key, **arguments)
    client.exchange(f"{word}-in", "direct")
    client.channel.queue_bind(queue, f"{word}-in", "first")
    more: dict[str, Any] = {"expiration": "50"} if reason == "expired itself" else {}
    client.put("first", b"1", exchange=f"{word}-in", headers={"mine": 1}, app_id="a", **more)
    if reason == "maxlen":
        client.put("first", b"2", exchange=f"{word}-in")
    if reason == "rejected":
        got = client.get(queue)
        assert got is not None
        client.channel.basic_nack(got.tag, requeue=False)
    one = client.take(dead)
    assert (one.body, one.exchange, one.key, one.redelivered) == (b"1", f"{word}-dlx", key or "first", False)
    assert (one.properties.app_id, one.headers["mine"], one.properties.expiration) == ("a", 1, None)
    why = reason.split()[0]
    expected = {"count": 1, "reason": why, "queue": queue, "exchange": f"{word}-in", "routing-keys": ["first"]}
    if more:
        expected["original-expiration"] = "50"
    assert death(one) == expected
    first = {word: one.headers[f"x-first-death-{word}"] for word in ("exchange", "queue", "reason")}
    assert first == {"exchange": f"{word}-in", "queue": queue, "reason": why}
    assert client.drain(queue) == ([b"2"] if reason == "maxlen" else [])


def test_the_history_of_a_dead_letter(client: Pika, word: str) -> None:
    """A retry as people build it: rejected, it waits in a second queue until that sends it back."""
    work, wait = f"{word}-work", f"{word}-wait"
    client.queue(work, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait})
    client.queue(wait, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": work, "x-message-ttl": 30})
    client.put(work, b"x")
    client.consume(work)
    for turn in range(3):
        [one] = client.wait(1)
        history = one.headers.get("x-death", [])
        expected = [(wait, "expired", turn), (work, "rejected", turn)] if turn else []
        assert [(row["queue"], row["reason"], row["count"]) for row in history] == expected
        client.channel.basic_reject(one.tag, requeue=False)
    client.ack(*client.wait(1))


def test_dead_letters_do_not_go_round_by_themselves(client: Pika, word: str) -> None:
    """A ring without a rejection in it is broken."""
    client.queue(word, {"x-dead-letter-exchange": "", "x-message-ttl": 30})
    client.put(word, b"x")
    until(lambda: client.count(word)[0] == 0, what="it expires, and is gone")


def test_dead_letters_without_an_exchange_are_dropped(client: Pika, word: str) -> None:
    queue = client.queue(arguments={"x-dead-letter-exchange": word, "x-max-length": 1})
    client.put(queue, b"1", b"2")
    assert client.drain(queue) == [b"2"]


# -- priorities -----------------------------------------------------------------------------------------------------


def test_higher_priorities_first(client: Pika) -> None:
    queue = client.queue(arguments={"x-max-priority": 5})
    for body, priority in (("a", 1), ("b", 5), ("c", None), ("d", 0), ("e", 9), ("f", 1), ("g", 3)):
        client.put(queue, body, priority=priority)
    got = client.get(queue)
    assert got is not None
    assert (got.body, got.properties.priority) == (b"b", 5)
    client.channel.basic_reject(got.tag)
    until(lambda: client.count(queue)[0] == 7)
    client.consume(queue, auto_ack=True)
    came = client.wait(7)
    assert b"".join(one.body for one in came) == b"begafcd"
    assert came[1].properties.priority == 9  # as it was said


def test_a_full_priority_queue_keeps_its_limit(client: Pika) -> None:
    """RabbitMQ drops at the head: what has the highest priority. That is nothing to rely on."""
    queue = client.queue(arguments={"x-max-priority": 3, "x-max-length": 2})
    for body, priority in (("a", 3), ("b", 1), ("c", 2)):
        client.put(queue, body, priority=priority)
    left = client.drain(queue)
    assert len(left) == 2
    assert left in ([b"c", b"b"], [b"a", b"c"], [b"a", b"b"])


# -- one consumer at a time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["connection", "channel", "cancel", "cancel when all is done"])
def test_a_single_active_consumer_and_who_takes_over(
    amqp_broker: AmqpBroker, client: Pika, connect: PikaFactory, word: str, how: str
) -> None:
    """The others wait in the order they came; the next one gets first what came back."""
    if how == "cancel" and amqp_broker.process is None:
        pytest.skip("RabbitMQ 3.10 does not look at the queue after the cancel, and fails at the next publish")
    second, third, writer = connect(), connect(), connect()
    client.queue(word, {"x-single-active-consumer": True}, exclusive=False, auto_delete=True)
    tag, *_ = [one.consume(word, prefetch=2) for one in (client, second, third)]
    writer.put(word, b"1", b"2", b"3", b"4")
    got = client.wait(2)
    client.ack(got[0])
    got += client.wait(1)
    assert [one.body for one in got] == [b"1", b"2", b"3"]
    assert second.so_far() == third.so_far() == []
    assert writer.count(word) == (1, 3)
    if how == "connection":  # pika's own close cancels the consumer first, and that is another row
        client.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
        with suppress(AMQPError):
            until(lambda: client.turn() is not None and client.connection.is_closed)
    elif how == "channel":
        client.channel._impl._consumers.clear()
        client.channel._impl.close()
        client.turn()
    else:
        if how != "cancel":
            client.ack(*got[1:])
            client.ack(*client.wait(1))
            until(lambda: client.count(word) == (0, 3))
        client.cancel(tag)
    expected = [(b"2", True), (b"3", True), (b"4", False)] if how in ("connection", "channel") else [(b"4", False)]
    if how == "cancel when all is done":
        expected = []
    writer.put(word, b"5")
    expected.append((b"5", False))
    for body, redelivered in expected:  # it may take two at a time
        [one] = second.wait(1)
        assert (one.body, one.redelivered) == (body, redelivered)
        second.ack(one)
    assert third.so_far() == []


def test_an_exclusive_consumer_is_the_only_one(client: Pika, connect: PikaFactory, word: str) -> None:
    other = connect()
    client.queue(word, exclusive=False, auto_delete=True)
    tag = client.consume(word, exclusive=True)
    with other.refused(403):
        other.consume(word)
    client.cancel(tag)
    client.queue(word, exclusive=False, auto_delete=True)
    other.consume(word)
    with client.refused(403):
        client.consume(word, exclusive=True)


# -- what is asked for must make sense ------------------------------------------------------------------------------

DLX, DLK = "x-dead-letter-exchange", "x-dead-letter-routing-key"


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-max-length": -1}, {"x-max-length": "10"}, {"x-max-length": True}, {"x-max-length-bytes": -1},
        {"x-overflow": "drop-tail"}, {"x-overflow": 1}, {"x-message-ttl": -1}, {"x-message-ttl": "100"},
        {"x-expires": 0}, {"x-expires": -1}, {"x-expires": "1"}, {DLX: 1}, {DLK: "key"},
        {DLX: "x", DLK: 1}, {"x-max-priority": -1}, {"x-max-priority": 256}, {"x-max-priority": "5"},
        {"x-single-active-consumer": "yes"}, {"x-queue-type": "unknown"},
    ],
    ids=str,
)  # fmt: skip
def test_arguments_that_make_no_sense(client: Pika, word: str, arguments: dict[str, Any]) -> None:
    with client.refused(406):
        client.queue(word, arguments)
    assert not client.exists(word)


@pytest.mark.parametrize("expiration", ["", "soon", "-1", "1.5"])
def test_an_expiration_that_makes_no_sense(client: Pika, expiration: str) -> None:
    queue = client.queue()
    with client.refused(406):
        client.channel.basic_publish("", queue, b"x", properties(expiration=expiration))
        client.count(queue)
    assert client.count(queue)[0] == 0


def test_unknown_arguments_are_kept_and_compared_but_mean_nothing(client: Pika, word: str) -> None:
    client.queue(word, {"own": "x"}, exclusive=False)
    client.queue(word, {"own": "x"}, exclusive=False)
    client.channel.queue_delete(word)
