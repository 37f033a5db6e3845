"""Much that is settled, purged, dropped or handed out again is done a share at a time."""

from __future__ import annotations

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Queue, Tx
from tests.server.amqp_stage import Client, Content, House, message, method
from tests.server.amqp_turns import client as client
from tests.server.amqp_turns import house as house
from tests.server.amqp_turns import send, unsettled

from headway.core.routing.registry import DEAD_LETTER_WORK, OVERDUE_WORK, REQUEUED_WORK
from headway.server.connections.turn_budget import BUDGET_WORK
from headway.server.peers import DEAR_PORTION, PORTION
from headway.wire.amqp.codes import ReplyCode


@pytest.mark.parametrize(
    "said",
    [Basic.Ack(0, True), Basic.Ack(3000, True), Basic.Nack(3000, True, False),
     [Basic.Ack(1 + at) for at in range(3000)]],
    ids=["all", "upto", "nack", "each"],
)  # fmt: skip
def test_much_that_is_settled_at_once(house: House, said: base.Frame | list[base.Frame]) -> None:
    client = Client(house, "acks")
    client.declare("source")
    client.declare("q0")
    client.put("source", *(b"%d" % number for number in range(3000)))
    client.say(Basic.Consume(queue="source"))
    client.new()
    send(client, *(method(1, one) for one in (said if isinstance(said, list) else [said])), method(1, Basic.Qos(0, 1)))
    before, most = unsettled(house), 0
    while house.pretended.once():
        most, before = max(most, before - unsettled(house)), unsettled(house)
    assert most <= BUDGET_WORK + PORTION
    assert unsettled(house) == 0
    client.run()
    assert client.new() == ["1 Basic.QosOk"]


@pytest.mark.parametrize("transacted", [False, True])
def test_many_that_are_settled_upto_one_after_the_other(house: House, transacted: bool) -> None:
    """Work, though each settles little: it is looked for among all that is in flight."""
    client = Client(house, "acks")
    client.declare("source")
    client.put("source", *(b"%d" % number for number in range(2000)))
    if transacted:
        client.say(Tx.Select())
    client.say(Basic.Consume(queue="source"))
    client.new()
    turns = house.turns
    send(client, *(method(1, Basic.Ack(at, True)) for at in range(2, 2001, 2)), method(1, Basic.Qos(0, 1)))
    house.run()
    client.run()
    assert client.new() == ["1 Basic.QosOk"]
    assert house.turns - turns >= 2
    assert unsettled(house) == (2000 if transacted else 0)
    if transacted:
        assert client.say(Tx.Commit()) == ["1 Tx.CommitOk"]
        assert unsettled(house) == 0


def test_a_channel_that_is_closed_while_it_settles_is_closed_once(house: House) -> None:
    client = Client(house, "acks")
    client.declare("source")
    client.put("source", *(b"%d" % number for number in range(3000)))
    client.say(Basic.Consume(queue="source"))
    client.new()
    send(client, *(method(1, Basic.Ack(at, True)) for at in range(2, 3001, 2)))
    house.pretended.once()
    assert unsettled(house)
    client.peer._close_channel(1, ReplyCode.RESOURCE_ERROR, "a verdict", 0)
    house.run()
    client.run()
    assert client.new() == ["1 Channel.Close 506"]
    assert house.stats("source").unacknowledged == 0


def test_a_purge_of_very_many_that_came_back(house: House) -> None:
    client = Client(house, "purges")
    client.declare("source")
    client.put("source", *(b"%d" % number for number in range(3000)))
    client.say(Basic.Consume(queue="source"))
    client.say(Channel.Flow(False), Basic.Nack(0, True, True))
    assert house.stats("source").records == 3000
    client.new()
    send(client, method(1, Queue.Purge(queue="source")), method(1, Basic.Qos(0, 1)))
    before, most = 3000, 0
    while house.pretended.once():
        now = house.stats("source").records
        most, before = max(most, before - now), now
    assert most <= BUDGET_WORK + PORTION
    client.run()
    assert client.new() == ["1 Queue.PurgeOk 3000", "1 Basic.QosOk"]


def dead_letters_a_turn(house: House) -> int:
    """Until there is nothing to be done; the most in any turn."""
    most, before = 0, house.stats("dead").records
    while house.pretended.once():
        most, before = max(most, house.stats("dead").records - before), house.stats("dead").records
    return most


@pytest.mark.parametrize("why", ["x-message-ttl", "x-max-length"])
def test_very_many_that_become_dead_letters(house: House, why: str) -> None:
    client = Client(house, "publisher")
    client.declare("dead")
    dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.declare("source", {why: 100} | dead_letters)
    client.declare("other", {"x-message-ttl": 100} | dead_letters)
    client.put("other", *(b"other" for _ in range(100)))
    send(client, *(frame for number in range(3000) for frame in message(1, "source", b"%d" % number)))
    most = dead_letters_a_turn(house)
    for timer in house.pretended.due(house.now() + 0.2):
        timer.call()
        most = max(most, dead_letters_a_turn(house))
    assert house.stats("dead").records == 100 + (3000 if why == "x-message-ttl" else 2900)
    assert house.stats("other").records == 0
    assert most <= OVERDUE_WORK // DEAD_LETTER_WORK


def test_very_many_that_are_rejected(house: House) -> None:
    client = Client(house, "consumer")
    client.declare("dead")
    client.declare("source", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.put("source", *(b"%d" % number for number in range(2000)))
    client.say(Basic.Consume(queue="source"))
    send(client, method(1, Basic.Nack(0, True, False)))
    assert dead_letters_a_turn(house) <= 2 * DEAR_PORTION, "one when it is read, one in the turn"
    assert house.stats("dead").records == 2000


def test_who_asks_gets_what_is_behind_very_many_that_have_expired(house: House) -> None:
    client = Client(house, "publisher")
    client.declare("dead")
    client.declare("source", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.put("source", *(b"%d" % number for number in range(1000)), expiration="100")
    client.put("source", b"alive")
    client.new()
    house.pretended.now += 0.2
    send(client, method(1, Basic.Get(queue="source")), method(1, Basic.Qos(0, 1)))
    assert dead_letters_a_turn(house) <= OVERDUE_WORK // DEAD_LETTER_WORK
    client.run()
    assert client.last(Content).body == b"alive"
    assert client.new()[-1] == "1 Basic.QosOk"
    assert house.stats("dead").records == 1000


def test_who_publishes_faster_than_it_can_be_dropped_waits(house: House) -> None:
    """Or a queue would have ever more than it may."""
    house.read_bytes = house.usual_read_bytes = 20_000
    client = Client(house, "publisher")
    client.declare("dead")
    client.declare("q", {"x-max-length": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    read = [b"".join(message(1, "q", b"%d" % number)) for number in range(5000)]
    client.sock.incoming.append(b"".join(read))
    most = 0
    while house.pretended.once():
        most = max(most, house.stats("q").records)
    assert most <= 2 * 20_000 // len(read[-1])
    assert house.stats("dead").records == 4990


def test_very_many_that_came_back_are_handed_out_again(house: House) -> None:
    client = Client(house, "consumer")
    for name in ("a", "b"):
        client.declare(name)
        client.put(name, *(b"%d" % number for number in range(2000)))
        client.say(Basic.Consume(queue=name, consumer_tag=name))
    send(client, method(1, Basic.Nack(0, True, True)))

    def handed() -> int:
        return sum(house.queues[name].backlog.handed_records for name in ("a", "b"))

    most, before = 0, handed()
    while house.pretended.once():
        most, before = max(most, handed() - before), handed()
    assert before == 8000
    assert most <= OVERDUE_WORK // REQUEUED_WORK
    client.new()
    client.run()
    again = [one for _, one in client.heard if isinstance(one, Content) and one.method.redelivered]
    for name in ("a", "b"):
        assert [int(one.body) for one in again if one.method.consumer_tag == name] == list(range(2000))
