"""Tables of arguments: what each means, what is refused, and that the same is the same however it is written."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import asdict
from pamqp.commands import Queue
from tests.server.amqp_stage import Client, House

from headway.core.base import Reason, Refused
from headway.core.consumer.request import QueueTerms
from headway.core.routing.matching.bindings import frozen
from headway.server.peers.named_queues import read_alternate, read_terms

DLX, DLK = "x-dead-letter-exchange", "x-dead-letter-routing-key"
LONG_MAX = 2**63 - 1


def terms(arguments: dict[str, Any], **flags: bool) -> QueueTerms:
    return read_terms(arguments, **{"durable": False, "exclusive": False, "auto_delete": False, **flags})


def said(arguments: dict[str, Any]) -> dict[str, Any]:
    """In what it differs from a queue without arguments."""
    found, usual = asdict(terms(arguments)), asdict(QueueTerms())
    return {name: value for name, value in found.items() if value != usual[name]}


# -- queues ------------------------------------------------------------------------------------------------------------

GOOD: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"x-message-ttl": 1500}, {"ttl_s": 1.5}),
    ({"x-message-ttl": 0}, {"ttl_s": 0.0}),
    ({"x-message-ttl": LONG_MAX}, {"ttl_s": LONG_MAX / 1000}),
    ({"x-expires": 1}, {"idle_s": 0.001}),
    ({"x-expires": LONG_MAX}, {"idle_s": LONG_MAX / 1000}),
    ({"x-max-length": 0}, {"records_max": 0}),
    ({"x-max-length": 1 << 40}, {"records_max": 1 << 40}),
    ({"x-max-length-bytes": 10}, {"bytes_max": 10}),
    ({"x-overflow": "drop-head"}, {}),
    ({"x-overflow": "reject-publish"}, {"refuses": True}),
    ({"x-overflow": "reject-publish-dlx"}, {"refuses": True, "dead_letter_refused": True}),
    ({DLX: "dlx"}, {"dead_letter_exchange": "dlx"}),
    ({DLX: ""}, {"dead_letter_exchange": ""}),
    ({DLX: "dlx", DLK: "k"}, {"dead_letter_exchange": "dlx", "dead_letter_key": "k"}),
    ({DLX: "", DLK: ""}, {"dead_letter_exchange": "", "dead_letter_key": ""}),
    ({"x-max-priority": 0}, {}),
    ({"x-max-priority": 255}, {"priorities": 255}),
    ({"x-single-active-consumer": False}, {}),
    ({"x-delivery-limit": -1}, {}),
    ({"x-delivery-limit": 0}, {"returns_max": 0}),
    ({"x-delivery-limit": 20}, {"returns_max": 20}),
    ({"x-single-active-consumer": True}, {"single_active": True}),
    ({"x-queue-type": "classic"}, {}),
    ({"x-queue-type": "quorum"}, {}),
    ({"x-queue-mode": "lazy", "x-queue-version": 2, "own": [1, {"a": None}], "": 0}, {}),
]


@pytest.mark.parametrize(("arguments", "expected"), GOOD, ids=[str(row[0]) for row in GOOD])
def test_what_arguments_mean(arguments: dict[str, Any], expected: dict[str, Any]) -> None:
    assert said(arguments) == expected


@pytest.mark.parametrize("flag", ["durable", "exclusive", "auto_delete"])
def test_flags_are_terms_too(flag: str) -> None:
    assert terms({}, **{flag: True}) == QueueTerms(**{flag: True})  # type: ignore[arg-type]


def test_all_at_once() -> None:
    arguments: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    for some, meant in GOOD:
        arguments |= some
        expected |= meant
    assert said(arguments) == expected


COUNTS = ("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority")
NO_COUNTS: list[Any] = [
    -1, "1", "", 1.0, 1.5, True, False, None, [1], {"a": 1}, b"1", Decimal(1), datetime(2026, 1, 1, tzinfo=UTC)
]  # fmt: skip
NO_FLAGS: list[Any] = [0, 1, "true", None, []]
TEXTS = (DLX, "x-overflow", "x-queue-type")
NO_TEXTS: list[Any] = [1, True, None, ["a"], {"a": "b"}, b"\xff", bytearray(b"a")]
BAD: list[tuple[dict[str, Any], str]] = [
    *(({name: value}, f"a number from 0 on, not {value!r}") for name in COUNTS for value in NO_COUNTS),
    ({"x-expires": 0}, "a queue that is to end at once"),
    ({"x-max-priority": 256}, "at most 255, not 256"),
    *(({name: value}, f"a text, not {value!r}") for name in TEXTS for value in NO_TEXTS),
    *(({DLX: "dlx", DLK: value}, f"a text, not {value!r}") for value in NO_TEXTS),
    ({DLK: "k"}, f"there is no {DLX}"),
    ({"x-overflow": "reject"}, "drop-head or reject-publish or reject-publish-dlx, not 'reject'"),
    ({"x-overflow": ""}, "drop-head or reject-publish or reject-publish-dlx, not ''"),
    ({"x-queue-type": "stream"}, "classic or quorum, not 'stream'"),
    *(({"x-single-active-consumer": value}, f"true or false, not {value!r}") for value in NO_FLAGS),
]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=[str(row[0]) for row in BAD])
def test_what_makes_no_sense(arguments: dict[str, Any], words: str) -> None:
    """It is refused for what it is, whatever else is fine."""
    with pytest.raises(Refused) as caught:
        terms({"x-max-length": 1, "own": 1, **arguments})
    name = next(iter(reversed(arguments)))
    assert caught.value.reason is Reason.PRECONDITION_FAILED
    assert str(caught.value).startswith(f"invalid arg '{name}': ")
    assert words in str(caught.value)


@pytest.mark.parametrize("name", [*COUNTS, DLX, "x-overflow", "x-queue-type", "x-single-active-consumer"])
def test_over_the_wire(name: str) -> None:
    """The channel is closed, and there is no queue."""
    house = House()
    client = Client(house)
    assert client.say(Queue.Declare(queue="q", arguments={name: [1]})) == ["1 Channel.Close 406"]
    assert f"PRECONDITION_FAILED - invalid arg '{name}'" in client.heard[-1][1].reply_text
    assert not house.queues


# -- exchanges ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({}, None), ({"alternate-exchange": "a"}, "a"), ({"alternate-exchange": ""}, ""), ({"own": 1}, None)],
    ids=str,
)
def test_alternates(arguments: dict[str, Any], expected: str | None) -> None:
    assert read_alternate(arguments) == expected


@pytest.mark.parametrize("value", NO_TEXTS, ids=str)
def test_alternates_that_are_none(value: Any) -> None:
    with pytest.raises(Refused, match="invalid arg 'alternate-exchange': a text, not"):
        read_alternate({"alternate-exchange": value})


# -- bindings ----------------------------------------------------------------------------------------------------------

NESTED = {"a": [1, {"c": bytearray(b"x"), "b": None}], "d": {"f": 1, "e": [[]]}}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ()),
        ({"b": 1, "a": 2}, (("a", 2), ("b", 1))),
        ({"x-match": "any", "h": None}, (("h", None), ("x-match", "any"))),
        ({"a": [2, 1]}, (("a", (2, 1)),)),
        ({"a": bytearray(b"x")}, (("a", b"x"),)),
        ({"a": {"c": 1, "b": 2}}, (("a", (("b", 2), ("c", 1))),)),
        (NESTED, (("a", (1, (("b", None), ("c", b"x")))), ("d", (("e", ((),)), ("f", 1))))),
        ({"a": Decimal("1.5"), "b": datetime(2026, 1, 1, tzinfo=UTC)},
         (("a", Decimal("1.5")), ("b", datetime(2026, 1, 1, tzinfo=UTC)))),
    ],
    ids=["none", "order", "none of it", "array", "bytes", "table", "nested", "other types"],
)  # fmt: skip
def test_frozen(arguments: dict[str, Any], expected: tuple[tuple[str, object], ...]) -> None:
    assert frozen(arguments) == expected
    assert hash(frozen(arguments)) == hash(expected)


def test_in_whatever_order_they_come() -> None:
    """At any depth; but an array's order is its own."""
    turned = {"d": {"e": [[]], "f": 1}, "a": [1, {"b": None, "c": bytearray(b"x")}]}
    assert frozen(NESTED) == frozen(turned)
    assert frozen({"a": [1, 2]}) != frozen({"a": [2, 1]})


def test_values_of_types_that_cannot_be_compared_with_each_other() -> None:
    assert len(frozen({"a": 1, "b": "x", "c": None, "d": [None, "x", 1], "e": {"y": 1, "z": None}})) == 5


def test_the_same_binding_twice_is_one() -> None:
    house = House()
    client = Client(house)
    client.declare("q")
    one = Queue.Bind(queue="q", exchange="amq.headers", arguments={"x-match": "any", "a": {"b": 1, "c": 2}})
    same = Queue.Bind(queue="q", exchange="amq.headers", arguments={"a": {"c": 2, "b": 1}, "x-match": "any"})
    assert client.say(one, same) == ["1 Queue.BindOk", "1 Queue.BindOk"]
    assert len(house.broker.registry.router.exchanges.by_name["amq.headers"].bindings.all) == 1
    same_again = Queue.Unbind(queue="q", exchange="amq.headers", arguments=same.arguments)
    assert client.say(same_again) == ["1 Queue.UnbindOk"]
    assert not house.broker.registry.router.exchanges.by_name["amq.headers"].bindings.all


@pytest.mark.parametrize("value", [[1, "x"], {"a": 1, "b": [2]}, [{"a": [None]}]], ids=str)
def test_what_is_bound_by_a_table_or_an_array_is_found(value: Any) -> None:
    house = House()
    client = Client(house)
    client.declare("q")
    client.say(Queue.Bind(queue="q", exchange="amq.headers", arguments={"h": value}))
    client.put("", b"1", exchange="amq.headers", headers={"h": value})
    client.put("", b"2", exchange="amq.headers", headers={"h": [value]})
    assert client.drain("q") == [b"1"]


@pytest.mark.parametrize("match", ["all", "any", "all-with-x", "any-with-x"])
def test_ways_to_match(match: str) -> None:
    house = House()
    client = Client(house)
    client.declare("q")
    bind = Queue.Bind(queue="q", exchange="amq.match", arguments={"x-match": match, "a": 1, "x-b": "2"})
    assert client.say(bind) == ["1 Queue.BindOk"]
    rows: list[tuple[dict[str, Any], set[str]]] = [
        ({"a": 1, "x-b": "2"}, {"all", "any", "all-with-x", "any-with-x"}),
        ({"a": 1}, {"all", "any", "any-with-x"}),
        ({"x-b": "2"}, {"any-with-x"}),
        ({"a": 2, "x-b": 2}, set()),
    ]
    for headers, matches in rows:
        client.put("", b"1", exchange="amq.match", headers=headers)
        assert client.drain("q") == [b"1"] * (match in matches), headers


@pytest.mark.parametrize("match", ["", "ALL", "both", 1, None, ["all"], {"all": 1}], ids=str)
def test_ways_to_match_that_there_are_not(match: Any) -> None:
    client = Client(House())
    client.declare("q")
    bind = Queue.Bind(queue="q", exchange="amq.headers", arguments={"x-match": match})
    assert client.say(bind) == ["1 Channel.Close 406"]
    assert "invalid x-match" in client.heard[-1][1].reply_text


def test_other_exchanges_have_no_use_for_it() -> None:
    client = Client(House())
    client.declare("q")
    assert client.say(Queue.Bind(queue="q", exchange="amq.fanout", arguments={"x-match": 1})) == ["1 Queue.BindOk"]
