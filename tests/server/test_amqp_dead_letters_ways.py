"""Where dead letters go, and that none goes round by itself."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pamqp.commands import Basic, Exchange, Queue
from tests.server.amqp_letters import DLK, DLX, FIRST, TTL, at, headers_of, letter, reject, to, told
from tests.server.amqp_letters import client as client
from tests.server.amqp_letters import house as house
from tests.server.amqp_stage import WALL_S, Client, Content

from headway.core.base.errors import Reason
from headway.core.consumer.effects import DeadLetter
from headway.core.consumer.request import QueueTerms
from headway.core.log.durable import MAIN, JournaledRun
from headway.core.message.record import Properties, Record, Run
from headway.server.engine import dead_letters
from headway.server.engine.dead_letters import DEATHS_BYTES_MAX, DEATHS_MAX, publish_dead_letter
from headway.server.journal.entries import decode_run, encode_run
from headway.store.journal.segments.batch import StoredEntry
from headway.wire.amqp.dialect import AmqpDialect
from headway.wire.amqp.properties import NONE

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


@pytest.mark.parametrize("by", ["get", "deliver"])
def test_a_letter_published_again_by_its_consumer_is_no_circle(client: Client, by: str) -> None:
    """With all the headers that it came with, as Spring and many retry loops do."""
    client.declare("work")
    client.declare("wait", to("work") | {TTL: 100})
    client.put("work", b"job")
    if by == "deliver":
        client.say(Basic.Consume(queue="work", no_ack=True))
    seen: list[list[int]] = []
    for _ in range(10):
        found = client.last(Content) if by == "deliver" else letter(client, "work")
        seen.append([death["count"] for death in found.headers.get("x-death", [])])
        client.put("wait", found.body, headers=found.headers)
        client.house.pass_time(0.2)
        client.run()
    assert seen == [[]] + [[count] for count in range(1, 10)]
    assert client.house.lost("client") == {}


def test_a_letter_published_again_may_still_go_round_and_is_dropped(client: Client) -> None:
    client.declare("q", to("r") | {TTL: 100})
    client.declare("r", to("q") | {TTL: 100})
    said = [{"queue": "r", "reason": "expired", "exchange": "", "count": 7}]
    client.put("q", b"x", headers={"x-death": said})
    client.house.pass_time(0.25)
    assert told(letter(client, "q")) == [("r", "expired", 8), ("q", "expired", 1)]
    client.put("q", b"x", headers={"x-death": said})
    client.house.pass_time(2)
    assert client.house.lost("client") == {"dead_letter_cycle": 1}
    assert client.house.stats("q").dropped_records["dead_letter_cycle"] == 1


def test_circles_are_logged_once_a_second_with_their_queues(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.declare("q", to("r") | {TTL: 100})
    client.declare("r", to("q") | {TTL: 100})
    client.put("q", b"1", b"2", b"3")
    client.house.pass_time(2)
    logged = [one.getMessage() for one in caplog.records if "go round" in one.getMessage()]
    assert len(logged) == 1
    assert "q < r < q" in logged[0]
    assert client.house.lost("client") == {"dead_letter_cycle": 3}


def test_a_record_is_multiplied_so_often_and_no_more(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these queues gives up to all of them. No copy passes a queue twice, and still n queues make n! copies."""
    monkeypatch.setattr(dead_letters, "SPREAD_MAX", 3)
    client.say(Exchange.Declare(exchange="all", exchange_type="fanout"))
    for number in range(5):
        client.declare(f"q{number}", {DLX: "all", TTL: 100})
        client.say(Queue.Bind(queue=f"q{number}", exchange="all"))
    client.put("q0", b"x")
    client.house.pass_time(2)
    assert client.house.lost("client") == {"dead_letter_cycle": 5}, "one came back, four would multiply again"
    assert all(not client.house.stats(f"q{number}").records for number in range(5))


def test_a_record_for_many_queues_may_be_parked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many they are: it is multiplied once."""
    monkeypatch.setattr(dead_letters, "SPREAD_MAX", 1)
    client.say(Exchange.Declare(exchange="all", exchange_type="fanout"))
    client.declare("q", {DLX: "all", TTL: 100})
    for number in range(5):
        client.declare(f"q{number}", to("dead") | {TTL: 100})
        client.say(Queue.Bind(queue=f"q{number}", exchange="all"))
    client.put("q", b"x")
    client.house.pass_time(2)
    assert client.house.lost("client") == {}
    assert client.house.stats("dead").records == 5


def test_a_circle_of_more_queues_than_a_letter_names_ends(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its letters name the last queues only, so the number of moves tells."""
    monkeypatch.setattr(dead_letters, "MOVES_MAX", 200)
    count = DEATHS_MAX + 6
    for number in range(count):
        client.declare(f"q{number}", to(f"q{(number + 1) % count}") | {TTL: 0})
    client.put("q0", b"x")
    assert client.house.lost("client") == {"dead_letter_cycle": 1}


def test_a_long_chain_keeps_the_latest_deaths_and_the_first(client: Client) -> None:
    count = DEATHS_MAX + 6
    for number in range(count):
        client.declare(f"q{number}", to(f"q{number + 1}" if number < count - 1 else "dead") | {TTL: 0})
    client.put("q0", b"x")
    found = letter(client)
    assert told(found) == [(f"q{number}", "expired", 1) for number in reversed(range(6, count))]
    assert [found.headers[name] for name in FIRST] == ["expired", "q0", ""]


def test_deaths_with_long_names_are_limited_by_their_bytes(client: Client) -> None:
    past = [{"queue": f"{n}", "reason": "expired", "exchange": "e", "note": "x" * 3000} for n in range(20)]
    client.declare("q", to("dead") | {TTL: 0})
    client.put("q", b"x", headers={"x-death": past}, frame_max=131_072)
    assert len(headers_of(letter(client))) == 1 + DEATHS_BYTES_MAX // 3100


def test_letters_are_charged_for_the_size_of_their_properties(client: Client) -> None:
    """Or a few records with large headers would hold up everybody."""

    def turns_of(headers: dict[str, Any]) -> int:
        client.declare("q", to("dead") | {TTL: 100})
        client.put("q", *[b"x"] * 200, headers=headers, frame_max=131_072)
        before = client.house.turns
        client.house.pass_time(0.2)
        turns = client.house.turns - before
        assert len(client.drain("dead")) == 200
        client.say(Queue.Delete(queue="q"))
        return turns

    assert turns_of({"large": "x" * 10_000}) > 5 * turns_of({})


def test_the_broker_never_tells_how_often_it_moved_a_letter(client: Client) -> None:
    """The weight of a content header has it in a queue, and is 0 for clients."""
    client.declare("q", to("dead") | {TTL: 0})
    client.put("q", b"1", b"2")
    client.say(Basic.Get(queue="dead"), Basic.Consume(queue="dead"))
    headers = re.findall(rb"\x02\x00\x01....(\x00\x3c..)", client.bytes, re.DOTALL)
    assert headers == [b"\0\x3c\0\0"] * 2


def test_the_number_of_moves_is_kept_by_queues_and_by_the_journal() -> None:
    run = Run("a/b", b"xyz", [3], [0], None, 1, properties=Properties(native=NONE, moves=7), exchange="e")
    entry = encode_run(JournaledRun(MAIN, run, 1, "client"), 0.0)
    stored = StoredEntry(entry.kind, entry.sequence, entry.count, b"".join(entry.data))
    kept = decode_run(stored, 0.0).run
    assert kept.properties.moves == 7
    assert AmqpDialect().decode(bytes(AmqpDialect().encode(kept, 1).data)).properties.moves == 7


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


# -- redeliveries ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["get", "deliver"])
def test_a_redelivery_says_how_often_the_record_came_back(client: Client, by: str) -> None:
    """As quorum queues do: the first delivery says nothing, and other headers stay."""
    client.declare("q")
    client.put("q", b"x", headers={"own": "h"})
    seen: list[dict[str, Any]] = []
    if by == "deliver":
        client.say(Basic.Consume(queue="q", consumer_tag="t"))
    for _ in range(3):
        if by == "get":
            client.say(Basic.Get(queue="q"))
        found = client.last(Content)
        assert found.method.redelivered == bool(seen)
        seen.append(found.headers)
        client.say(Basic.Nack(found.method.delivery_tag, requeue=True))
    assert seen == [{"own": "h"}, {"own": "h", "x-delivery-count": 1}, {"own": "h", "x-delivery-count": 2}]


def test_a_get_is_not_limited_by_the_prefetch_of_its_channel(client: Client) -> None:
    client.declare("q")
    client.put("q", b"1", b"2", b"3")
    client.say(Basic.Qos(prefetch_count=1, global_=True), Basic.Consume(queue="q", consumer_tag="t"))
    client.say(Basic.Get(queue="q"))
    assert client.last(Content).body == b"2"
    client.say(Basic.Get(queue="q"))
    assert client.last(Content).body == b"3"
