"""Turns of a queue with very many records: whatever a client does to all of them at once is done in parts, between
which others have their turns. Counted in lines that Python runs, because a machine's time varies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from pamqp.commands import Basic, Channel, Queue
from tests.server.amqp_stage import Client, House, message, method
from tests.server.amqp_turns import READ
from tests.server.greedy_stage import Greedy
from tests.server.test_amqp1_greedy import client as amqp1_client
from tests.server.test_amqp1_greedy import filled, receiver
from tests.server.test_hostile import Lines

from headway.wire.amqp1.performatives import Detach, Flow
from headway.wire.amqp1.replies import write

MANY, SOME = 3000, 1000
"""What is done to each of SOME takes twice the lines of a turn or more; for MANY there are dozens of lines each."""
LINES_MAX = 150_000
"""About a hundredth of a second."""
TURNS_MAX = 5000
PRIORITIES, LETTERS = {"x-max-priority": 9}, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


class Case(NamedTuple):
    """``many``: how many records wait in the queue ``q``; ``held``: they are with a consumer, unsettled. ``then``: what
    the client says, which may be nothing but to leave; ``left``: how many records there are in the end."""

    then: bytes
    left: int
    arguments: dict[str, Any] = {}  # noqa: RUF012  never changed
    held: bool = True
    later_s: float = 0.0
    many: int = SOME
    properties: Callable[[int], dict[str, Any]] = lambda number: {"priority": number % 10}


BACK, DROPPED = (method(1, Basic.Nack(0, multiple=True, requeue=requeue)) for requeue in (True, False))
HEADERS = {f"header {number}": "value" for number in range(400)}
PICKY = method(1, Basic.Consume(queue="q", arguments={"x-headway-selector": "missing = 1"}))
CASES = {
    "given back": Case(BACK, SOME),
    "given back, by priority": Case(BACK, SOME, PRIORITIES),
    "rejected into another queue": Case(DROPPED, SOME, LETTERS),
    "recovered": Case(method(1, Basic.Recover(requeue=True)), SOME, PRIORITIES),
    "sent again": Case(method(1, Basic.Recover(requeue=False)), SOME),
    "channel closed": Case(method(1, Channel.Close(200, "", 0, 0)), MANY, PRIORITIES, many=MANY),
    "connection lost": Case(b"", MANY, PRIORITIES, many=MANY),
    "purged": Case(method(1, Queue.Purge(queue="q")), 0, PRIORITIES, held=False, many=MANY),
    "deleted": Case(method(1, Queue.Delete(queue="q")), 0, LETTERS, held=False, many=MANY),
    "expired": Case(b"\n", 0, {"x-message-ttl": 1000}, held=False, later_s=2.0, many=MANY),
    "expired, into another queue": Case(b"\n", SOME, {"x-message-ttl": 1000} | LETTERS, held=False, later_s=2.0),
    "expired, each by itself": Case(b"\n", 0, held=False, later_s=2.0, many=MANY,
                                    properties=lambda number: {"expiration": str(1000 - number % 2)}),
    "consumed by priority": Case(method(1, Basic.Consume(queue="q")), SOME, PRIORITIES, held=False),
    "looked at in vain": Case(PICKY, 100, held=False, many=100, properties=lambda number: {"headers": HEADERS}),
}  # fmt: skip


def worst(house: House) -> int:
    """Runs turns until there is nothing to be done. Returns the lines of the longest."""
    lines, most = Lines(), 0
    for _ in range(TURNS_MAX):
        with lines.counted():
            more = house.pretended.once()
        most = max(most, lines.count)
        if not more:
            return most
    raise AssertionError("it does not end")


def run(house: House) -> None:
    while house.pretended.once():
        pass


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_done_to_very_many_records_leaves_others_their_turns(case: Case) -> None:
    house = House()
    house.read_bytes = READ
    client = Client(house, "greedy", frame_max=131_072)
    for name, arguments in (("dead", {}), ("q", case.arguments)):
        client.declare(name, arguments)
    for number in range(case.many):
        sent = message(1, "q", b"%d" % number, frame_max=131_072, **case.properties(number))
        client.sock.incoming.append(b"".join(sent))
    run(house)
    assert house.stats("q").records == case.many
    if case.held:
        client.sock.incoming.append(method(1, Basic.Consume(queue="q")))
        run(house)
        assert house.stats("q").unacknowledged == case.many
    if case.later_s:
        most = 0
        for timer in house.pretended.due(house.now() + case.later_s):
            timer.call()
            most = max(most, worst(house))
    else:
        client.sock.incoming.append(case.then)
        most = worst(house)
    assert most < LINES_MAX
    left = [house.stats(name) for name in ("q", "dead") if name in house.queues]
    assert sum(one.records + one.unacknowledged for one in left) == case.left


def test_a_link_that_ends_gives_very_many_back_in_parts() -> None:
    house = House()
    filled(house, MANY)
    greedy: Greedy = amqp1_client(house)
    greedy.say(receiver(1, "queue://work") + write(0, Flow(0, 1 << 30, 0, 1 << 30, 1, 0, MANY)))
    assert house.stats("work").unacknowledged == MANY
    greedy.send(write(0, Detach(1, True)))
    assert worst(house) < LINES_MAX
    assert house.stats("work").records == MANY
    other = amqp1_client(house, "other")
    other.say(receiver(1, "queue://work") + write(0, Flow(0, 1 << 30, 0, 1 << 30, 1, 0, MANY)))
    assert house.stats("work").unacknowledged == MANY


@pytest.mark.parametrize("drain", [False, True])
def test_a_link_that_permits_a_million_deliveries_gets_very_many_in_parts(drain: bool) -> None:
    """Each record is read and written anew for AMQP 1.0, and few bytes."""
    house = House()
    house.read_bytes = READ
    publisher = Client(house, "publisher", frame_max=131_072)
    publisher.declare("work")
    for number in range(MANY):
        sent = message(1, "work", b"x" * 20, frame_max=131_072, message_id=f"{number:05}")
        publisher.sock.incoming.append(b"".join(sent))
    run(house)
    assert house.stats("work").records == MANY
    reader = amqp1_client(house)
    reader.say(receiver(0, "queue://work"))
    reader.send(write(0, Flow(0, 1 << 30, 0, 1 << 30, 0, 0, 10**6, None, drain)))
    assert worst(house) < LINES_MAX
    assert house.stats("work").unacknowledged == MANY
