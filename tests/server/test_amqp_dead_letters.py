"""Dead letters: what they say, where they go, and when there are to be no more of them."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from pamqp.commands import Basic, Exchange, Queue
from tests.server.amqp_stage import WALL_S, Client, Content, House, message, raw

from headway.core.base.errors import Reason
from headway.core.consumer.effects import DeadLetter
from headway.core.consumer.options import QueueTerms
from headway.core.message.record import Properties, Record, Run
from headway.server.engine.dead_letters import publish_dead_letter

DLX, DLK, TTL = "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-message-ttl"
FIRST = ("x-first-death-reason", "x-first-death-queue", "x-first-death-exchange")


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def client(house: House) -> Client:
    """With a queue for the dead."""
    client = Client(house, "client")
    client.declare("dead")
    return client


def to(key: str, **more: Any) -> dict[str, Any]:
    """Arguments of a queue whose letters go to another."""
    return {DLX: "", DLK: key, **{name.replace("_", "-"): value for name, value in more.items()}}


def reject(client: Client, queue: str) -> None:
    client.say(Basic.Get(queue=queue))
    client.say(Basic.Reject(client.last(Content).method.delivery_tag, requeue=False))


def letter(client: Client, queue: str = "dead") -> Content:
    found = client.take(queue)
    assert found is not None
    return found


def at(seconds: float) -> datetime:
    """By the calendar."""
    return datetime.fromtimestamp(WALL_S + seconds, UTC)


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


def headers_of(found: Content) -> list[dict[str, Any]]:
    deaths = found.headers["x-death"]
    assert isinstance(deaths, list)
    return deaths


def told(found: Content) -> list[tuple[str, str, int]]:
    """Its deaths, the latest first."""
    return [(death["queue"], death["reason"], death["count"]) for death in headers_of(found)]


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


@pytest.mark.parametrize("what", TOO_LARGE)
def test_a_past_with_numbers_larger_than_there_are(client: Client, what: str) -> None:
    client.declare("q", to("dead") | ({TTL: 0} if what == "time" else {}))
    death = entry("reason", text("rejected")) + entry("exchange", text("")) + TOO_LARGE[what]
    table = b"F" + struct.pack(">I", len(death)) + death
    client.say(with_headers("q", entry("x-death", b"A" + struct.pack(">I", len(table)) + table)))
    if what == "count":
        reject(client, "q")
    assert client.house.stats("dead").records == 1


# -- rings -------------------------------------------------------------------------------------------------------------

RINGS: dict[str, dict[str, dict[str, Any]]] = {
    "one queue, no time": {"q": {DLX: "", TTL: 0}},
    "one queue, some time": {"q": {DLX: "", TTL: 100}},
    "one queue, no room": {"q": {DLX: "", "x-max-length": 0}},
    "two queues": {"q": to("r") | {TTL: 0}, "r": to("q") | {TTL: 0}},
    "two queues, two reasons": {"q": to("r") | {TTL: 0}, "r": to("q") | {"x-max-length": 0}},
    "three queues": {"q": to("r") | {TTL: 0}, "r": to("s") | {TTL: 0}, "s": to("q") | {TTL: 0}},
    "a tail": {"q": to("r") | {TTL: 0}, "r": {DLX: "", TTL: 0}},
}


@pytest.mark.parametrize("past", ["none", "rejected once", "says it was"])
@pytest.mark.parametrize("ring", RINGS)
def test_nothing_goes_round_by_itself(client: Client, ring: str, past: str) -> None:
    """Whatever became of it before: what counts is whether a client rejected it since it was there last."""
    for name, arguments in RINGS[ring].items():
        client.declare(name, arguments)
    if past == "rejected once":
        client.declare("work", to("q"))
        client.put("work", b"x")
        reject(client, "work")
    else:
        said = [{"queue": "w", "reason": "rejected", "exchange": "", "count": 1}] if past == "says it was" else []
        client.put("q", b"x", headers={"x-death": said})
    client.house.pass_time(2)
    assert all(not client.house.stats(name).records for name in RINGS[ring])


def test_a_letter_that_dies_again_is_still_its_publishers(client: Client) -> None:
    client.declare("q", to("r") | {TTL: 0})
    client.declare("r", {DLX: "none", "x-max-length": 0})
    client.put("q", b"x")
    assert client.house.lost("client") == {"queue_length": 1}


def test_a_ring_with_a_rejection_in_it_goes_on(client: Client) -> None:
    client.declare("work", to("wait"))
    client.declare("wait", to("work") | {TTL: 100})
    client.put("work", b"x")
    for _ in range(20):
        reject(client, "work")
        client.house.pass_time(0.3)
    assert told(letter(client, "work")) == [("wait", "expired", 20), ("work", "rejected", 20)]
    assert client.house.lost("client") == {}


def test_one_queue_whose_client_rejects_into_it(client: Client) -> None:
    client.declare("q", {DLX: ""})
    client.put("q", b"x")
    for _ in range(5):
        reject(client, "q")
    assert told(letter(client, "q")) == [("q", "rejected", 5)]


# -- where they go -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "expected"), [(None, "a.b"), ("c", "c"), ("", ""), ("k" * 300, "k" * 255)])
def test_under_which_key(client: Client, key: str | None, expected: str) -> None:
    client.say(Exchange.Declare(exchange="dlx", exchange_type="fanout"), Queue.Bind(queue="dead", exchange="dlx"))
    client.declare("q", {DLX: "dlx", TTL: 0, **({} if key is None else {DLK: key})})
    client.say(Queue.Bind(queue="q", exchange="amq.direct", routing_key="a.b"))
    client.put("a.b", b"x", exchange="amq.direct")
    found = letter(client)
    assert (found.method.exchange, found.method.routing_key) == ("dlx", expected)
    assert headers_of(found)[0]["routing-keys"] == ["a.b"]


def test_by_what_they_say(client: Client) -> None:
    """A headers exchange sees the headers of the letter."""
    bind = Queue.Bind(queue="dead", exchange="amq.headers", arguments={"x-match": "all-with-x", FIRST[0]: "maxlen"})
    client.say(bind)
    for name, more in (("q", {TTL: 0}), ("r", {"x-max-length": 0})):
        client.declare(name, {DLX: "amq.headers", **more})
        client.put(name, name.encode())
    assert client.drain("dead") == [b"r"]
    assert client.house.lost("client") == {"expired": 1}


def test_to_the_alternate_of_their_exchange(client: Client) -> None:
    client.say(
        Exchange.Declare(exchange="dlx", exchange_type="direct", arguments={"alternate-exchange": "amq.fanout"}),
        Queue.Bind(queue="dead", exchange="amq.fanout"),
    )
    client.declare("q", {DLX: "dlx", TTL: 0})
    client.put("q", b"x")
    assert letter(client).method.exchange == "dlx"
    assert client.house.lost("client") == {}


def test_in_the_order_in_which_they_died(client: Client) -> None:
    client.declare("q", to("dead") | {"x-max-length": 2})
    for number in range(6):
        client.put("q", b"%d" % number)
    assert client.drain("dead") == [b"0", b"1", b"2", b"3"]
    assert client.drain("q") == [b"4", b"5"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [({TTL: 0}, "expired"), ({"x-max-length": 0}, "queue_length"), ({}, "rejected"),
     ({"x-max-length": 0, "x-overflow": "reject-publish-dlx"}, "queue_length")],
    ids=["expired", "length", "rejected", "refused"],
)  # fmt: skip
@pytest.mark.parametrize("where", ["no exchange", "no queue", "it was deleted"])
def test_letters_without_an_address_are_lost(
    client: Client, where: str, arguments: dict[str, Any], reason: str
) -> None:
    """Their publisher has them counted; and nobody else has."""
    if where == "it was deleted":
        client.say(Exchange.Declare(exchange="dlx", exchange_type="fanout"), Queue.Bind(queue="dead", exchange="dlx"))
    client.declare("q", {DLX: {"no exchange": "none", "no queue": "amq.direct"}.get(where, "dlx"), **arguments})
    if where == "it was deleted":
        client.say(Exchange.Delete(exchange="dlx"))
    other = Client(client.house, "other")
    client.put("q", b"1", b"2")
    if reason == "rejected":
        reject(other, "q")
        reject(other, "q")
    assert client.house.lost("client") == {reason: 2}
    assert client.house.lost("other") == {}
    assert client.drain("dead") == []


def test_letters_that_arrive_are_not_lost(client: Client) -> None:
    client.declare("q", to("dead") | {TTL: 0})
    client.put("q", b"1", b"2")
    assert client.house.lost("client") == {}
    assert client.drain("dead") == [b"1", b"2"]


def test_who_published_them_may_have_gone(client: Client) -> None:
    client.declare("q", {DLX: "none", TTL: 100})
    gone = Client(client.house, "gone")
    gone.put("q", b"1")
    gone.leave()
    client.house.pass_time(1)
    assert client.house.lost("gone") == {"expired": 1}


def test_letters_that_are_refused_are_lost(client: Client) -> None:
    client.declare("full", {"x-max-length": 0, "x-overflow": "reject-publish"})
    client.declare("q", to("full") | {TTL: 0})
    client.put("q", b"1")
    assert client.house.lost("client") == {"expired": 1}


def test_a_letter_that_is_refused_is_another_in_the_same_turn(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the journal might have what became of the first, and not the second."""
    house, left = client.house, []
    over = house._turn_over

    def turn_over() -> None:
        left.append(len(house.broker.registry.effects))
        over()

    client.declare("full", to("dead") | {"x-max-length": 0, "x-overflow": "reject-publish-dlx"})
    client.declare("q", to("full") | {TTL: 0})
    monkeypatch.setattr(house, "_turn_over", turn_over)
    client.put("q", b"1")
    assert told(letter(client)) == [("full", "maxlen", 1), ("q", "expired", 1)]
    assert left
    assert not any(left)


def test_what_is_purged_or_deleted_is_no_letter(client: Client) -> None:
    for end in (Queue.Purge(queue="q"), Queue.Delete(queue="q")):
        client.declare("q", to("dead"))
        client.put("q", b"1", b"2")
        assert client.say(end)[0].endswith("Ok 2")
    assert client.drain("dead") == []
    assert client.house.lost("client") == {}


# -- by itself ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [Reason.DISCARDED, Reason.LAG_AGE, Reason.MEMORY_LIMIT])
def test_reasons_that_only_headway_has(client: Client, reason: Reason) -> None:
    house = client.house
    record = Record("dead", b"x", time_s=house.now(), exchange="e")
    given_up = DeadLetter("q", QueueTerms(dead_letter_exchange=""), record, reason)
    publish_dead_letter(house.broker, given_up, house.now(), WALL_S)
    house.turn_soon()
    client.run()
    [death] = headers_of(letter(client))
    assert (death["reason"], death["exchange"], death["time"]) == (str(reason), "e", at(0))


def test_a_queue_without_such_an_exchange_has_no_letters(client: Client) -> None:
    house = client.house
    client.put("dead", b"1")
    record = Record("dead", b"x", time_s=house.now(), publisher=client.peer.session.number)  # type: ignore[union-attr]
    publish_dead_letter(house.broker, DeadLetter("q", QueueTerms(), record, Reason.EXPIRED), house.now(), WALL_S)
    assert house.lost("client") == {"expired": 1}
    assert client.drain("dead") == [b"1"]
