"""Message groups of queues: who gets them, in which order, and how much is kept of them."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.queues_stage import Peer, QueueStage, owner

from headway.core.queue.picking import groups, picker
from headway.core.routing.registry import OVERDUE_WORK
from headway.core.telemetry.stats import account


def put(peer: Peer, numbers: range, group: str | None, sequence: int = 1, **user: str) -> None:
    told = () if group is None else (("JMSXGroupID", group), ("JMSXGroupSeq", str(sequence)))
    peer.publish("q", numbers.start, len(numbers), user=(*told, *user.items()))


def consumers(stage: QueueStage, count: int, prefetch: int = 1000, *, acks: bool | None = True) -> list[Peer]:
    peers = [stage.peer(f"peer {number}") for number in range(count)]
    for peer in peers:
        peer.consume("q", prefetch, acks=acks)
    return peers


def check(stage: QueueStage) -> None:
    stage.queue("q").backlog.check()
    stage.queue("q").members.check()


def test_a_group_goes_to_one_consumer_and_the_others_get_other_groups() -> None:
    stage = QueueStage()
    publisher = owner(stage)
    peers = consumers(stage, 3)
    for number in range(300):
        put(publisher, range(number, number + 1), f"group {number % 30}")
    stage.run(2)
    check(stage)
    for peer in peers:
        assert peer.numbers == sorted(peer.numbers)
        assert peer.numbers, "each has some groups"
    owners = {number % 30: peer.name for peer in peers for number in peer.numbers}
    assert all(owners[number % 30] == peer.name for peer in peers for number in peer.numbers)
    assert sum(len(peer.numbers) for peer in peers) == 300
    put(publisher, range(300, 330), None)
    stage.run(1)
    assert sum(len(peer.numbers) for peer in peers) == 330, "what is in no group is for anybody"


def test_a_group_moves_with_all_that_waits_when_its_consumer_goes() -> None:
    stage = QueueStage()
    publisher = owner(stage)
    holder, other = consumers(stage, 2, 2, acks=False)
    put(publisher, range(10), "a")
    stage.run(1)
    first = holder if holder.numbers else other
    assert first.numbers == [0, 1]
    last = other if first is holder else holder
    assert last.numbers == [], "it waits for its consumer, whoever else has room"
    first.leave()
    stage.run(1)
    assert (last.numbers, last.again) == ([0, 1], [0, 1])
    last.ack(*last.ids())
    stage.run(1)
    assert last.numbers == [0, 1, 2, 3]
    check(stage)


def test_what_is_given_back_stays_with_its_consumer_and_at_its_place() -> None:
    stage = QueueStage()
    publisher = owner(stage)
    peers = consumers(stage, 2, 3, acks=False)
    put(publisher, range(6), "a")
    stage.run(1)
    mine = next(peer for peer in peers if peer.numbers)
    mine.nack(mine.id_of(1), requeue=True)
    mine.ack(mine.id_of(0), mine.id_of(2))
    stage.run(1)
    assert mine.numbers == [0, 1, 2, 1, 3, 4]
    assert sum(len(peer.numbers) for peer in peers) == 6


def test_a_stuck_consumer_holds_up_only_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = QueueStage()
    publisher = owner(stage)
    stuck, healthy = stage.peer("stuck"), stage.peer("healthy")
    stuck.consume("q", 1, acks=False)
    put(publisher, range(1), "a")
    stage.run(1)
    assert stuck.numbers == [0]
    healthy.consume("q")
    for number in range(1, 201):
        put(publisher, range(number, number + 1), "a" if number % 2 else f"b{number % 10}")
    stage.run(1)
    assert healthy.numbers == [*range(2, 201, 2)]
    assert stuck.consumers[1, "q"].lag_records == 100
    assert healthy.consumers[1, "q"].lag_records == 0
    assert account(healthy.consumers[1, "q"])[::2] == (100, 0, 0), "drained, skipped, lag: what waits was not skipped"
    assert account(stuck.consumers[1, "q"])[::2] == (1, 100, 100)
    stuck.leave()
    stage.run(1)
    assert sorted(healthy.numbers) == [0, *range(1, 201)]
    assert account(healthy.consumers[1, "q"])[::2] == (201, 0, 0), "nobody else got any"
    check(stage)


def test_a_message_closes_its_group() -> None:
    stage = QueueStage()
    publisher = owner(stage)
    first = consumers(stage, 1)[0]
    put(publisher, range(2), "a")
    put(publisher, range(2, 3), "a", -1)
    stage.run(1)
    assert first.numbers == [0, 1, 2]
    groups_known = stage.queue("q").picking.groups
    assert groups_known is not None
    assert groups_known.owner("a") is None
    put(publisher, range(3, 4), "a")
    stage.run(1)
    assert groups_known.owner("a") is first.consumers[1, "q"]


def test_what_was_reserved_in_a_group_that_is_closed_stays_together() -> None:
    stage = QueueStage()
    publisher = owner(stage)
    first, other = stage.peer("first"), stage.peer("other")
    first.consume("q", 1, acks=False)
    put(publisher, range(1), "a")
    stage.run(1)
    other.consume("q")
    put(publisher, range(1, 2), "a", -1)
    put(publisher, range(2, 5), "a")
    put(publisher, range(5, 6), "b")
    stage.run(1)
    assert (first.numbers, other.numbers) == ([0], [5]), "the others are reserved"
    first.ack(*first.ids())
    stage.run(1)
    assert first.numbers == [0, 1], "the message that closes the group"
    put(publisher, range(6, 8), "a")
    stage.run(1)
    assert other.numbers == [5, 2, 3, 4, 6, 7]
    known = stage.queue("q").picking.groups
    assert known is not None
    assert (known.reserved, known._count) == ({}, 0)


def test_more_groups_than_are_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "GROUPS_MAX", 10)
    monkeypatch.setattr(groups, "BUCKETS", 4)
    stage = QueueStage()
    publisher = owner(stage)
    peers = consumers(stage, 3)
    for number in range(200):
        put(publisher, range(number, number + 1), f"group {number % 50}")
    stage.run(2)
    owners: dict[int, str] = {}
    for peer in peers:
        assert peer.numbers == sorted(peer.numbers)
        for number in peer.numbers:
            assert owners.setdefault(number % 50, peer.name) == peer.name
    assert len(owners) == 50
    known = stage.queue("q").picking.groups
    assert known is not None
    assert len(known._owners) <= 14


def test_selectors_and_groups() -> None:
    """A group's message that its owner does not select waits for the owner's end, as in ActiveMQ."""
    stage = QueueStage()
    publisher = owner(stage)
    red, any_colour = stage.peer("red"), stage.peer("any")
    red.consume("q", selector="colour = 'red'")
    put(publisher, range(2), "a", colour="red")
    stage.run(1)
    any_colour.consume("q")
    put(publisher, range(2, 4), "a", colour="blue")
    put(publisher, range(4, 6), "a", colour="red")
    put(publisher, range(6, 8), "b", colour="blue")
    stage.run(1)
    assert (red.numbers, any_colour.numbers) == ([0, 1, 4, 5], [6, 7])
    red.leave()
    stage.run(1)
    assert any_colour.numbers == [6, 7, 2, 3]
    check(stage)


@pytest.mark.parametrize("seed", range(24))
def test_whoever_comes_and_goes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any time a group's deliveries are with one consumer, who selects them; in the end, when all have left but one
    who takes everything, all were settled, once each."""
    rng, stage = Random(seed), QueueStage()
    monkeypatch.setattr(groups, "RESERVED_MAX", rng.choice((3, 2000)))
    monkeypatch.setattr(groups, "GROUPS_MAX", rng.choice((2, 10_000)))
    monkeypatch.setattr(picker, "FOUND_ENOUGH", rng.choice((1, 3, 64)))
    monkeypatch.setattr(picker, "LOOKED_WORK", rng.choice((32, OVERDUE_WORK // 3)))
    publisher, number, names = owner(stage, priorities=rng.choice((0, 0, 5))), 0, 0
    peers: list[Peer] = []
    group_of: dict[int, str | None] = {}
    colours: dict[int, str] = {}
    selects: dict[str, str | None] = {}
    done: list[int] = []
    for _ in range(250):
        match rng.randrange(6):
            case 0 | 1:
                group = rng.choice((None, "a", "b", "c", "d"))
                count = rng.choice((1, 1, 5))
                colour = rng.choice(("red", "blue"))
                put(publisher, range(number, number + count), group, colour=colour)
                colours |= dict.fromkeys(range(number, number + count), colour)
                group_of |= dict.fromkeys(range(number, number + count), group)
                number += count
            case 2 if len(peers) < 4:
                names += 1
                peers.append(stage.peer(f"peer {names}"))
                selects[peers[-1].name] = rng.choice((None, None, "red", "blue"))
                selector = selects[peers[-1].name] and f"colour = '{selects[peers[-1].name]}'"
                peers[-1].consume("q", rng.choice((1, 2, 50)), acks=False, selector=selector)
            case 3 if peers and rng.random() < 0.3:
                peers.pop(rng.randrange(len(peers))).leave()
            case 4 if peers:
                peer = rng.choice(peers)
                for delivery in rng.sample(peer.ids(), min(3, len(peer.ids()))):
                    settle(peer, delivery, rng, done)
            case _:
                stage.turn()
                check(stage)
                one_holder(peers, group_of)
                for peer in peers:
                    assert all(selects[peer.name] in (None, colours[one]) for one in peer.numbers)
    for peer in peers:
        peer.leave()
    peers = [stage.peer("last")]
    peers[0].consume("q", acks=False)
    for _ in range(1000):
        stage.turn()
        one_holder(peers, group_of)
        for peer in peers:
            for delivery in peer.ids():
                settle(peer, delivery, None, done)
        if not stage.queue("q").backlog.lag_records and not any(peer.ids() for peer in peers):
            break
    assert stage.queue("q").backlog.lag_records == 0
    assert sorted(done) == sorted(group_of)


def settle(peer: Peer, delivery: int, rng: Random | None, done: list[int]) -> None:
    known = {one.id: one.number for one in peer.seen}
    if delivery not in known:
        return  # it has not read it yet
    if rng is not None and rng.random() < 0.3:
        peer.nack(delivery, requeue=True)
    else:
        peer.ack(delivery)
        done.append(known[delivery])


def one_holder(peers: list[Peer], group_of: dict[int, str | None]) -> None:
    holders: dict[str, set[str]] = {}
    for peer in peers:
        known = {one.id: one.number for one in peer.seen}
        for delivery in peer.ids():
            group = group_of.get(known.get(delivery, -1))
            if group is not None:
                holders.setdefault(group, set()).add(peer.name)
    assert all(len(names) == 1 for names in holders.values()), holders
