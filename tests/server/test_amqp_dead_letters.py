"""What dead letters say of themselves and of their past."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pamqp.commands import Basic, Queue
from tests.server.amqp_letters import DLK, DLX, FIRST, TTL, at, headers_of, letter, reject, to, told
from tests.server.amqp_letters import client as client
from tests.server.amqp_stage import Client, Content, message, raw

from headway.core.message.record import Properties, Run

# -- what they say -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "arguments", "more"),
    [
        ("rejected", {}, {}), ("expired", {TTL: 0}, {}), ("expired", {TTL: 300}, {}),
        ("expired", {}, {"expiration": "300"}), ("expired", {TTL: 100}, {"expiration": "300"}),
        ("maxlen", {"x-max-length": 0}, {}), ("maxlen", {"x-max-length-bytes": 0}, {}),
        ("maxlen", {"x-max-length": 0, "x-overflow": "reject-publish-dlx"}, {}),
    ],
    ids=["rejected", "no time", "some time", "its own", "both", "length", "bytes", "refused"],
)  # fmt: skip
def test_what_a_letter_says(client: Client, why: str, arguments: dict[str, Any], more: dict[str, Any]) -> None:
    client.declare("q", to("dead") | arguments)
    client.say(Queue.Bind(queue="q", exchange="amq.direct", routing_key="k"))
    died_s = client.house.now()
    client.put("k", b"x", exchange="amq.direct", headers={"mine": 1}, app_id="a", content_type="t", **more)
    if why == "rejected":
        reject(client, "q")
    wait_s = min([arguments.get(TTL, 1000), int(more.get("expiration", 1000))]) / 1000 % 1
    if wait_s:
        client.house.pass_time(wait_s - 0.01)
        assert client.take("dead") is None
    client.house.pass_time(0.5)
    found = letter(client)
    assert (found.body, found.method.exchange, found.method.routing_key) == (b"x", "", "dead")
    assert (found.properties.app_id, found.properties.content_type, found.properties.expiration) == ("a", "t", None)
    headers = found.headers
    [death] = headers.pop("x-death")
    assert abs((death.pop("time") - at(died_s + wait_s)).total_seconds()) <= 1
    expected = {"count": 1, "reason": why, "queue": "q", "exchange": "amq.direct", "routing-keys": ["k"]}
    if more:
        expected["original-expiration"] = "300"
    assert death == expected
    assert headers == dict(zip(FIRST, (why, "q", "amq.direct"), strict=True)) | {"mine": 1}


def test_a_letter_without_properties_gets_headers(client: Client) -> None:
    client.declare("q", to("dead") | {TTL: 0})
    client.put("q", b"")
    found = letter(client)
    assert found.body == b""
    assert set(found.headers) == {"x-death", *FIRST}


def test_what_comes_back_too_often_is_a_dead_letter(client: Client) -> None:
    client.declare("q", to("dead") | {"x-delivery-limit": 2})
    client.put("q", b"poison")
    for _ in range(3):
        client.say(Basic.Get(queue="q"))
        client.say(Basic.Nack(client.last(Content).method.delivery_tag, requeue=True))
    found = letter(client)
    assert (found.body, told(found)) == (b"poison", [("q", "delivery_limit", 1)])
    assert client.take("q") is None


def test_a_large_letter_comes_in_as_many_frames_as_it_takes(client: Client) -> None:
    client.declare("q", to("dead") | {TTL: 0})
    client.put("q", b"x" * 300_000, frame_max=131_072)
    assert letter(client).body == b"x" * 300_000


def test_headers_of_its_own_stay_as_they_are(client: Client) -> None:
    """Byte for byte, in their order, whatever types they are of."""
    own = b"\x01zs\xff\xfe" + b"\x01af" + struct.pack(">f", 1.5) + b"\x01mD\x02\x00\x00\x00\x07" + b"\x01bV"
    client.declare("q", to("dead") | {TTL: 0})
    client.say(with_headers("q", own))
    client.say(Basic.Get(queue="dead", no_ack=True))
    assert own in client.bytes


def with_headers(key: str, entries: bytes, text: bytes = b"x") -> list[bytes]:
    """A message with a table of headers that was written by hand."""
    table = struct.pack(">I", len(entries)) + entries
    publish, _, body = message(1, key, text)
    return [publish, raw(2, 1, struct.pack(">HHQH", 60, 0, len(text), 0x2000) + table), body]


def test_a_letter_that_came_from_a_topic(client: Client) -> None:
    """Nobody has written properties for it yet: MQTT has others."""
    client.declare("q", {DLX: "", DLK: "dead", TTL: 0})
    client.say(Queue.Bind(queue="q", exchange="amq.topic", routing_key="a.#"))
    properties = Properties(content_type="t", user=(("k", "v"),), response_topic="r/s", correlation_data=b"c")
    run = Run("a/b.c", b"x", [1], [0], None, 1, False, properties)
    client.house.broker.publish(None, [run], client.house.now())
    client.house.turn_soon()
    client.run()
    found = letter(client)
    said = found.properties
    assert (said.content_type, said.reply_to, said.correlation_id, said.delivery_mode) == ("t", "r.s", "c", 2)
    assert found.headers["k"] == "v"
    [death] = headers_of(found)
    assert (death["exchange"], death["routing-keys"]) == ("amq.topic", ["a.b/c"])


# -- one that dies again -----------------------------------------------------------------------------------------------


def test_each_queue_and_reason_is_counted(client: Client) -> None:
    """The latest first; what it died of first is never forgotten."""
    client.declare("work", to("wait"))
    client.declare("wait", to("work") | {TTL: 1000})
    client.declare("park", to("work") | {"x-max-length": 0})
    client.put("work", b"x")
    for turn in range(1, 4):
        reject(client, "work")
        client.house.pass_time(1.5)
        client.say(Basic.Get(queue="work"))
        found = client.last(Content)
        assert told(found) == [("wait", "expired", turn), ("work", "rejected", turn)]
        assert [found.headers[name] for name in FIRST] == ["rejected", "work", ""]
        client.say(Basic.Nack(found.method.delivery_tag, requeue=True))
    said = {"headers": found.headers}
    client.take("work")
    client.put("park", b"x", **said)
    client.say(Basic.Get(queue="work"))
    assert told(client.last(Content)) == [("park", "maxlen", 1), ("wait", "expired", 3), ("work", "rejected", 3)]
    client.say(Basic.Reject(client.last(Content).method.delivery_tag, requeue=False))
    client.house.pass_time(1.5)
    assert told(letter(client, "work")) == [("wait", "expired", 4), ("work", "rejected", 4), ("park", "maxlen", 1)]


def test_two_reasons_in_one_queue_are_two_entries(client: Client) -> None:
    client.declare("q", to("back") | {TTL: 1000})
    client.declare("back", to("q"))
    client.put("q", b"x")
    client.house.pass_time(1.5)
    reject(client, "back")
    reject(client, "q")
    assert told(letter(client, "back")) == [("q", "rejected", 1), ("back", "rejected", 1), ("q", "expired", 1)]


def test_an_entry_tells_of_the_first_time(client: Client) -> None:
    """Of what is said about a queue and a reason only the count changes."""
    client.declare("work", to("wait"))
    client.declare("wait", to("work") | {TTL: 1000})
    client.say(Queue.Bind(queue="wait", exchange="amq.fanout"))
    born_s = client.house.now()
    client.put("k", b"x", exchange="amq.fanout", expiration="200")
    client.house.pass_time(3)
    first = at(int(born_s + 0.2))
    for count in (1, 2):
        client.say(Basic.Get(queue="work"))
        death = headers_of(client.last(Content))[0]
        assert death == {
            "count": count, "reason": "expired", "queue": "wait", "time": first, "exchange": "amq.fanout",
            "routing-keys": ["k"], "original-expiration": "200",
        }  # fmt: skip
        client.say(Basic.Reject(client.last(Content).method.delivery_tag, requeue=False))
        client.house.pass_time(3)


@pytest.mark.parametrize("own", [["a", "b", "c"], [1, None, ["x"]]], ids=["texts", "anything"])
def test_what_it_says_of_its_first_death_is_kept(client: Client, own: list[Any]) -> None:
    """Also if somebody else says so."""
    client.declare("q", to("dead") | {TTL: 0})
    client.put("q", b"x", headers=dict(zip(FIRST, own, strict=True)))
    found = letter(client)
    assert [found.headers[name] for name in FIRST] == own
    assert told(found) == [("q", "expired", 1)]


# -- a past that is made up --------------------------------------------------------------------------------------------

HONEST: dict[str, Any] = {"queue": "o", "reason": "expired", "exchange": "e", "count": 2, "routing-keys": ["k"]}
PASTS: dict[str, tuple[Any, list[tuple[str, str, int]]]] = {
    "nothing": ([], []), "no list": (7, []), "a text": ("x-death", []), "a table": (HONEST, []),
    "no tables": ([1, "a", None, [HONEST]], []), "an empty table": ([{}], []),
    "without a queue": ([{**HONEST, "queue": None}], []), "without a reason": ([{**HONEST, "reason": 1}], []),
    "without an exchange": ([{**HONEST, "exchange": []}], []), "honest": ([HONEST], [("o", "expired", 2)]),
    "some of it": ([1, HONEST, {}], [("o", "expired", 2)]),
    "twice": ([HONEST, HONEST], [("o", "expired", 2)] * 2),
    "no count": ([{**HONEST, "queue": "q", "reason": "rejected", "count": "many"}], []),
}  # fmt: skip


@pytest.mark.parametrize("what", PASTS)
def test_a_past_that_is_made_up(client: Client, what: str) -> None:
    """What is no entry is left out; nobody comes to harm."""
    past, kept = PASTS[what]
    client.declare("q", to("dead"))
    client.put("q", b"x", headers={"x-death": past, "own": 1})
    reject(client, "q")
    found = letter(client)
    assert told(found) == [("q", "rejected", 1), *kept]
    assert found.headers["own"] == 1
    assert [found.headers[name] for name in FIRST[:1]] == [told(found)[-1][1]]


def entry(name: str, value: bytes) -> bytes:
    return bytes([len(name)]) + name.encode() + value


def text(value: str) -> bytes:
    return b"S" + struct.pack(">I", len(value)) + value.encode()


TOO_LARGE = {
    "count": entry("queue", text("q")) + entry("count", b"l" + struct.pack(">q", 2**63 - 1)),
    "time": entry("queue", text("o")) + entry("time", b"T" + struct.pack(">Q", 2**64 - 1)),
}


@pytest.mark.parametrize("before", [b"", b"b\1"], ids=["alone", "behind a number"])
@pytest.mark.parametrize("what", TOO_LARGE)
def test_a_past_with_numbers_larger_than_there_are(client: Client, what: str, before: bytes) -> None:
    client.declare("q", to("dead") | ({TTL: 0} if what == "time" else {}))
    death = entry("reason", text("rejected")) + entry("exchange", text("")) + TOO_LARGE[what]
    table = before + b"F" + struct.pack(">I", len(death)) + death
    client.say(with_headers("q", entry("x-death", b"A" + struct.pack(">I", len(table)) + table)))
    if what == "count":
        reject(client, "q")
    assert client.house.stats("dead").records == 1
