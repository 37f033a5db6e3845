"""Exchanges, queues and bindings, as pika declares them."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp.commands import Basic, Queue
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_pika import Pika, PikaFactory
from tests.interop.amqp_raw import Raw
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.amqp_fixtures",)

# -- queues ---------------------------------------------------------------------------------------------------------


def test_a_queue_from_declare_to_delete(client: Pika, word: str) -> None:
    assert not client.exists(word)
    answer = client.channel.queue_declare(word, exclusive=True).method
    assert (answer.queue, answer.message_count, answer.consumer_count) == (word, 0, 0)
    client.put(word, b"1", b"2", b"3")
    assert client.channel.queue_declare(word, exclusive=True).method.message_count == 3  # once more changes nothing
    assert client.count(word) == (3, 0)
    assert client.channel.queue_delete(word).method.message_count == 3
    assert not client.exists(word)
    # The specification asks for 404; RabbitMQ is content with the queue not being there, and so are its clients.
    assert client.channel.queue_delete(word).method.message_count == 0


def test_delete_if_unused_and_if_empty(client: Pika, word: str) -> None:
    client.queue(word)
    client.put(word, b"x")
    with client.refused(406):
        client.channel.queue_delete(word, if_empty=True)
    tag = client.consume(word)
    [got] = client.wait(1)
    with client.refused(406):
        client.channel.queue_delete(word, if_unused=True)
    until(lambda: client.count(word) == (1, 0), what="the record is back, the consumer gone with its channel")
    assert (tag, got.consumer) == (tag, tag)
    assert client.channel.queue_delete(word, if_unused=True).method.message_count == 1
    client.queue(word)
    client.channel.queue_delete(word, if_unused=True, if_empty=True)


def test_the_server_names_a_queue_and_the_channel_remembers_it(client: Pika, amqp_broker: AmqpBroker) -> None:
    first, second = client.queue(), client.queue()
    assert first.startswith("amq.gen-")
    assert first != second
    with Raw(amqp_broker.port) as raw:
        mine = raw.declare()
        raw.call(Queue.Bind(exchange="amq.direct"), Queue.BindOk)  # an empty key is the queue's name then
        raw.publish("amq.direct", mine, b"1")
        raw.publish("", mine, b"2")
        found = [raw.get("", no_ack=True), raw.get(mine, no_ack=True)]
        assert [one and one.body for one in found] == [b"1", b"2"]
        raw.publish("", mine, b"3")
        assert raw.call(Queue.Purge(), Queue.PurgeOk).message_count == 1
        raw.call(Basic.Consume(no_ack=True), Basic.ConsumeOk)
        raw.publish("", mine, b"4")
        assert raw.bodies(1) == [b"4"]
        raw.call(Queue.Delete(), Queue.DeleteOk)


def test_purge_takes_what_waits_and_no_more(client: Pika) -> None:
    queue = client.queue()
    client.put(queue, b"out", b"1", b"2")
    out = client.get(queue)
    assert out is not None
    assert client.channel.queue_purge(queue).method.message_count == 2
    assert client.channel.queue_purge(queue).method.message_count == 0
    client.channel.basic_reject(out.tag)
    assert client.take(queue).body == b"out"


def test_counts(client: Pika, connect: PikaFactory, word: str) -> None:
    """What is out with a consumer is not counted among what waits."""
    client.queue(word, exclusive=False, auto_delete=True)
    client.put(word, *(b"x" for _ in range(5)))
    other = connect()
    tag = client.consume(word, prefetch=1)
    other.consume(word, prefetch=2)
    assert [len(client.wait(1)), len(other.wait(2))] == [1, 2]
    assert client.count(word) == (2, 2)
    client.cancel(tag)
    assert other.count(word) == (2, 1)
    client.channel.close()
    until(lambda: other.count(word) == (3, 1), what="what was out with the channel is back")


def test_an_auto_delete_queue_goes_with_its_last_consumer(client: Pika, connect: PikaFactory, word: str) -> None:
    client.queue(word, exclusive=False, auto_delete=True)
    other = connect()
    tag = client.consume(word)
    other.consume(word)
    client.cancel(tag)
    assert client.exists(word)
    other.close()
    until(lambda: not client.exists(word), what="the queue goes")
    client.queue(word, exclusive=False, auto_delete=True)  # it has never had a consumer, so it stays
    client.put(word, b"x")
    client.take(word)
    assert client.exists(word)
    client.channel.queue_delete(word)


EXCLUSIVE: dict[str, Any] = {
    "declare": lambda channel, queue: channel.queue_declare(queue, exclusive=True),
    "declare for all": lambda channel, queue: channel.queue_declare(queue),
    "passive": lambda channel, queue: channel.queue_declare(queue, passive=True),
    "bind": lambda channel, queue: channel.queue_bind(queue, "amq.fanout"),
    "purge": lambda channel, queue: channel.queue_purge(queue),
    "delete": lambda channel, queue: channel.queue_delete(queue),
    "get": lambda channel, queue: channel.basic_get(queue),
    "consume": lambda channel, queue: channel.basic_consume(queue, print),
}


def test_an_exclusive_queue_is_its_connections_own(client: Pika, connect: PikaFactory, word: str) -> None:
    other = connect()
    client.queue(word)
    for call in EXCLUSIVE.values():
        with other.refused(405):
            call(other.channel, word)
    other.put(word, b"x")  # anybody may publish to it
    assert client.count(word) == (1, 0)
    client.close()
    until(lambda: not other.exists(word), what="the queue goes with its connection")


@pytest.mark.parametrize(
    "other",
    [{"durable": True}, {"auto_delete": True}, {"arguments": {"x-max-length": 4}}, {"arguments": None}],
    ids=["durable", "auto-delete", "arguments", "no arguments"],
)
def test_a_queue_declared_otherwise(client: Pika, word: str, other: dict[str, Any]) -> None:
    first: dict[str, Any] = {"exclusive": False, "arguments": {"x-max-length": 3}}
    client.queue(word, **first)
    with client.refused(406):
        client.queue(word, **(first | other))
    client.queue(word, **first)
    client.channel.queue_delete(word)


# -- exchanges ------------------------------------------------------------------------------------------------------


def test_an_exchange_from_declare_to_delete(client: Pika, word: str) -> None:
    assert not client.exists(exchange=word)
    client.exchange(word)
    client.exchange(word)
    assert client.exists(exchange=word)
    queue = client.bound(word, "")
    with client.refused(406):
        client.channel.exchange_delete(word, if_unused=True)
    client.channel.exchange_delete(word)
    assert not client.exists(exchange=word)
    client.channel.exchange_delete(word)  # as with queues
    client.exchange(word)
    client.put("", b"x", exchange=word)
    assert client.drain(queue) == []  # its bindings went with the first
    client.channel.exchange_delete(word, if_unused=True)


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "topic"}, {"durable": True}, {"auto_delete": False}, {"internal": True},
        {"arguments": {"alternate-exchange": "amq.fanout"}},
    ],
    ids=str,
)  # fmt: skip
def test_an_exchange_declared_otherwise(client: Pika, word: str, other: dict[str, Any]) -> None:
    first: dict[str, Any] = {"kind": "direct", "durable": False, "auto_delete": True, "internal": False}
    client.exchange(word, **first)
    with client.refused(406):
        client.exchange(word, **(first | other))
    client.channel.exchange_delete(word)


def test_those_that_are_always_there(client: Pika) -> None:
    for name, kind in {
        "amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic", "amq.headers": "headers",
        "amq.match": "headers",
    }.items():  # fmt: skip
        assert client.exists(exchange=name)
        client.exchange(name, kind, durable=True, auto_delete=False)
    with client.refused(403):
        client.exchange("amq.another")
    with client.refused(403):
        client.channel.exchange_delete("amq.topic")
    with client.refused(403):
        client.channel.queue_bind(client.queue(), "", "key")  # every queue is bound to it already


def route(client: Pika, exchange: str, sent: list[Any], queues: dict[str, str]) -> dict[str, str]:
    """Publish keys, or headers, numbered; the numbers that reach each queue."""
    for number, one in enumerate(sent):
        more: dict[str, Any] = {"headers": one} if isinstance(one, dict) else {}
        client.put(one if isinstance(one, str) else "", str(number), exchange=exchange, **more)
    return {name: b" ".join(client.drain(queue)).decode() for name, queue in queues.items()}


@pytest.mark.parametrize(
    ("kind", "sent", "expected"),
    [
        ("direct", ["a", "b", "a.b", "", "*"], {"a": "0", "a b": "0 1", "*": "4", "": "3"}),
        ("fanout", ["a", ""], {"a": "0 1", "b c": "0 1"}),
        (
            "topic",
            ["a", "a.b", "a.b.c", "", "a..c", "b", "a.*"],
            {
                "a": "0", "*": "0 5", "a.*": "1 6", "#": "0 1 2 3 4 5 6", "a.#": "0 1 2 4 6", "*.*": "1 6",
                "a.*.c": "2 4", "#.c": "2 4", "a.#.c": "2 4", "#.#": "0 1 2 3 4 5 6", "#.b.#": "1 2 5",
                "*.#": "0 1 2 4 5 6", "a #": "0 1 2 3 4 5 6", "": "3", "b*": "",
                # an empty key has no words
            },
        ),
    ],
)  # fmt: skip
def test_routing_by_key(client: Pika, word: str, kind: str, sent: list[str], expected: dict[str, str]) -> None:
    client.exchange(word, kind)
    queues = {keys: client.bound(word, *(keys.split() or [""])) for keys in expected}
    assert route(client, word, sent, queues) == expected


def test_routing_by_headers(client: Pika, word: str) -> None:
    sent: list[Any] = [
        {"a": 1, "b": "x"}, {"a": 1}, {"b": "x", "c": True}, {}, {"a": "1"}, {"a": 2, "b": "y"}, {"a": None}, "",
    ]  # fmt: skip
    bindings: dict[str, tuple[dict[str, Any], str]] = {
        "all": ({"x-match": "all", "a": 1, "b": "x"}, "0"),
        "any": ({"x-match": "any", "a": 1, "b": "x"}, "0 1 2"),
        "all if nothing is said": ({"a": 1, "b": "x"}, "0"),
        "presence": ({"a": None}, "0 1 4 5 6"),
        "text": ({"a": "1"}, "4"),
        "truth": ({"c": True}, "2"),
        "all of nothing": ({}, "0 1 2 3 4 5 6 7"),
        "any of nothing": ({"x-match": "any"}, ""),
        "x- does not count": ({"x-match": "all", "x-own": 1, "c": True}, "2"),
    }
    client.exchange(word, "headers")
    queues = {}
    for name, (arguments, _) in bindings.items():
        queues[name] = client.queue()
        client.channel.queue_bind(queues[name], word, "ignored", arguments)
    assert route(client, word, sent, queues) == {name: expected for name, (_, expected) in bindings.items()}


def test_a_header_binding_has_to_say_all_or_any(client: Pika, word: str) -> None:
    client.exchange(word, "headers")
    with client.refused(406):
        client.channel.queue_bind(client.queue(), word, "", {"x-match": "some"})
    client.channel.exchange_delete(word)


def test_bindings_are_a_set_and_a_queue_gets_a_record_once(client: Pika, word: str) -> None:
    client.exchange(word, "topic", auto_delete=False)
    queue = client.bound(word, "a.#", "#", "a.#")
    client.put("a.b", b"1", exchange=word)
    client.channel.queue_unbind(queue, word, "a.#")
    client.channel.queue_unbind(queue, word, "never")
    client.put("a.b", b"2", exchange=word)
    client.channel.queue_unbind(queue, word, "#")
    client.put("a.b", b"3", exchange=word)
    assert client.drain(queue) == [b"1", b"2"]
    client.channel.exchange_delete(word)


def test_unbinding_asks_for_the_same_arguments(client: Pika, word: str) -> None:
    client.exchange(word, "headers")
    queue = client.queue()
    one, two = {"x-match": "all", "a": 1}, {"x-match": "all", "a": 2}
    for arguments in (one, two):
        client.channel.queue_bind(queue, word, "", arguments)
    client.channel.queue_unbind(queue, word, "", one)
    assert route(client, word, [{"a": 1}, {"a": 2}], {"": queue}) == {"": "1"}


def test_an_auto_delete_exchange_goes_with_its_last_binding(client: Pika, word: str) -> None:
    client.exchange(word)
    first, second = client.bound(word, ""), client.bound(word, "")
    client.channel.queue_unbind(first, word, "")
    assert client.exists(exchange=word)
    client.channel.queue_delete(second)
    assert not client.exists(exchange=word)


def test_exchanges_bound_to_exchanges(client: Pika, word: str) -> None:
    """Also in a ring: each is passed once, and a queue gets one copy however many ways lead to it."""
    news, all_, last = (client.exchange(f"{word}-{i}", kind) for i, kind in enumerate(("topic", "fanout", "direct")))
    client.channel.exchange_bind(all_, news, "a.*")
    client.channel.exchange_bind(last, all_)
    client.channel.exchange_bind(news, last, "a.b")
    queues = {"news": client.bound(news, "#"), "all": client.bound(all_, ""), "last": client.bound(last, "a.c")}
    client.channel.queue_bind(queues["all"], news, "a.b")
    assert route(client, news, ["a.b", "a.c", "b"], queues) == {"news": "0 1 2", "all": "0 1", "last": "1"}
    client.channel.exchange_unbind(all_, news, "a.*")
    assert route(client, news, ["a.b", "a.c"], queues) == {"news": "0 1", "all": "0", "last": ""}
    with client.refused(404):
        client.channel.exchange_bind(all_, f"{word}-unknown")
    with client.refused(404):
        client.channel.exchange_bind(f"{word}-unknown", all_)
    with client.refused(403):
        client.channel.exchange_bind(all_, "")


def test_an_alternate_exchange_takes_what_has_no_route(client: Pika, word: str) -> None:
    """Mandatory records that find their way there are not returned."""
    direct, rest = f"{word}-direct", f"{word}-rest"
    client.exchange(direct, "direct", arguments={"alternate-exchange": rest})
    client.put("lost", b"0", exchange=direct)  # it need not be there
    client.exchange(rest)
    queues = {"known": client.bound(direct, "known"), "rest": client.bound(rest, "")}
    client.put("known", b"1", exchange=direct, mandatory=True)
    client.put("unknown", b"2", exchange=direct, mandatory=True)
    assert client.drain(queues["known"]) == [b"1"]
    got = client.take(queues["rest"])
    assert (got.body, got.exchange, got.key) == (b"2", direct, "unknown")


def test_an_internal_exchange_takes_only_from_exchanges(client: Pika, word: str) -> None:
    inner = client.exchange(f"{word}-inner", internal=True)
    outer = client.exchange(f"{word}-outer")
    queue = client.bound(inner, "")
    client.channel.exchange_bind(inner, outer)
    client.put("", b"x", exchange=outer)
    assert client.drain(queue) == [b"x"]
    with client.refused(403):
        client.channel.basic_publish(inner, "", b"x")
        client.count(queue)
