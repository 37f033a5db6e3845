"""Names of topics and queues, as clients of ActiveMQ and RabbitMQ write them, and what they mean here."""

from __future__ import annotations

import pytest

from headway.core.base import Refused
from headway.core.message import Record
from headway.server.peers import binding_key_of, filter_of, name_of_topic, parts_of, topic_named
from headway.wire.common import Address
from headway.wire.stomp.destinations import Destination, Kind, destination_of, destinations_of, text_of
from headway.wire.stomp.versions import StompFault


@pytest.mark.parametrize(
    ("name", "filter", "key"),
    [
        ("a", "a", "a"), ("a.b", "a/b", "a.b"), ("a.*.c", "a/+/c", "a.*.c"), ("a.>", "a/#", "a.#"), (">", "#", "#"),
        ("a.#", "a/#", "a.#"), ("*", "+", "*"), ("a/b.c", "a.b/c", "a/b.c"), ("$SYS.x", "$SYS/x", "$SYS.x"),
    ],
)  # fmt: skip
def test_topics_for_subscribers(name: str, filter: str, key: str) -> None:
    assert (filter_of(name), binding_key_of(name)) == (filter, key)


@pytest.mark.parametrize("name", ["a.>.b", "a.#.b", "a*", "*a.b", "a.b>", "a.+x", "#.a"])
def test_wildcards_that_are_none(name: str) -> None:
    for read in (filter_of, binding_key_of):
        with pytest.raises(Refused, match=r"stands at the end|a whole word"):
            read(name)


def test_topics_for_publishers() -> None:
    assert topic_named("a.b/c") == "a/b.c"
    assert name_of_topic("a/b.c") == "a.b/c"
    for name in ("a.*", "a.>", "a.#", "+"):
        with pytest.raises(Refused, match="wildcards are for subscribers"):
            topic_named(name)
    assert parts_of("a, b,,c") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/queue/a", [(Kind.QUEUE, "a", "")]), ("/queue/a/b", [(Kind.QUEUE, "a/b", "")]),
        ("/topic/a.*,b.>", [(Kind.TOPIC, "a.*", ""), (Kind.TOPIC, "b.>", "")]),
        ("/queue/a,/topic/b,c", [(Kind.QUEUE, "a", ""), (Kind.TOPIC, "b", ""), (Kind.TOPIC, "c", "")]),
        ("/exchange/e", [(Kind.EXCHANGE, "e", "")]), ("/exchange/e/k.l/m", [(Kind.EXCHANGE, "e", "k.l/m")]),
        ("/amq/queue/a", [(Kind.KNOWN_QUEUE, "a", "")]), ("/temp-queue/a", [(Kind.TEMP_QUEUE, "a", "")]),
        ("/remote-temp-queue/a", [(Kind.REPLY_QUEUE, "a", "")]), ("queue://a", [(Kind.QUEUE, "a", "")]),
        ("/queue/a%2Cb%25%zz", [(Kind.QUEUE, "a,b%%zz", "")]),
    ],
)  # fmt: skip
def test_destinations(text: str, found: list[tuple[Kind, str, str]]) -> None:
    assert destinations_of(text) == tuple(Destination(*one) for one in found)


@pytest.mark.parametrize(
    "text", ["", "a", "/queue", "/queue/", "/topic/", "/exchange//k", "/queue/" + "x" * 256, "/queue/a," + "b," * 200]
)
def test_destinations_that_are_none(text: str) -> None:
    with pytest.raises(StompFault):
        destinations_of(text)


@pytest.mark.parametrize("address", [Address("a,b%c"), Address("a/b.c", is_topic=True), Address("amq.temp-x")])
def test_addresses_come_back(address: Address) -> None:
    (found,) = destinations_of(text_of(address))
    assert found.name == (name_of_topic(address.name) if address.is_topic else address.name)
    record = Record("k/l", b"", exchange="e")
    assert destination_of(record) == "/exchange/e/k.l"
