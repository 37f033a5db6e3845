"""Random consumers of one queue, with selectors and without, that settle, give back, leave and come; and a checker that
knows only what was published, what each was given, and what it said.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.core.queues_stage import Peer, QueueStage, drained, owner

from headway.core.log.lanes import lane
from headway.core.queue import dispatch
from headway.core.queue.picking import picker

COLOURS = ("red", "blue", "green", "grey")
SELECTORS = (
    "colour = 'red'", "colour IN ('red', 'blue')", "n > 50", "colour <> 'grey' AND n < 80", "n BETWEEN 20 AND 60",
)  # fmt: skip


def wanted(selector: str | None, colour: str, n: int) -> bool:
    """What a selector selects, said once more in Python."""
    return {
        None: True, SELECTORS[0]: colour == "red", SELECTORS[1]: colour in ("red", "blue"), SELECTORS[2]: n > 50,
        SELECTORS[3]: colour != "grey" and n < 80, SELECTORS[4]: 20 <= n <= 60,
    }[selector]  # fmt: skip


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.stage = QueueStage()
        self.priorities = self.rng.choice((0, 0, 0, 3))
        self.publisher = owner(self.stage, priorities=self.priorities)
        self.facts: dict[int, tuple[str, int, int, float]] = {}
        """Of each record: colour, n, rank, and when it expires."""
        self.selector: dict[str, str | None] = {}
        self.peers: list[Peer] = []
        self.holds: dict[int, Peer] = {}
        self.done: set[int] = set()
        self.tried: set[int] = set()
        """Records that came back from somebody who had tried them."""
        self.read: dict[str, int] = {}
        self.names = self.numbers = 0

    def step(self) -> None:
        getattr(self, self.rng.choice(("publish", "publish", "come", "go", "settle", "settle", "give_back", "turn")))()

    def publish(self) -> None:
        colour, n, rank = self.rng.choice(COLOURS), self.rng.randrange(100), self.rng.randrange(4)
        ttl_s = self.rng.choice((None, None, None, 0.3))
        count = self.rng.choice((1, 2, 30))
        self.publisher.publish("q", self.numbers, count, priority=rank, ttl_s=ttl_s,
                               user=(("colour", colour), ("n", str(n))))
        expires_s = float("inf") if ttl_s is None else self.stage.now + ttl_s
        for number in range(self.numbers, self.numbers + count):
            self.facts[number] = colour, n, min(rank, self.priorities), expires_s
        self.numbers += count

    def come(self) -> None:
        if len(self.peers) >= 6:
            return
        self.names += 1
        peer = self.stage.peer(f"peer {self.names}")
        self.selector[peer.name] = self.rng.choice((None, *SELECTORS, *SELECTORS))
        peer.consume("q", self.rng.choice((1, 3, 1000)), acks=False, selector=self.selector[peer.name])
        self.peers.append(peer)

    def go(self) -> None:
        if self.peers and self.rng.random() < 0.5:
            self.look()
            peer = self.peers.pop(self.rng.randrange(len(self.peers)))
            peer.leave()
            for number in [number for number, holder in self.holds.items() if holder is peer]:
                del self.holds[number]
                self.tried.add(number)

    def settle(self) -> None:
        self.look()
        for number, peer in self.some():
            peer.ack(peer.id_of(number))
            self.done.add(number)

    def give_back(self) -> None:
        self.look()
        for number, peer in self.some():
            tried = self.rng.random() < 0.7
            queues = self.stage.broker.queues
            queues.refuse(peer.channels[1], [peer.id_of(number)], requeue=True, failed=tried)
            if tried:
                self.tried.add(number)

    def some(self) -> list[tuple[int, Peer]]:
        """Some of what is held, which is held no more."""
        held = sorted(self.holds)
        return [(number, self.holds.pop(number)) for number in self.rng.sample(held, self.rng.randint(0, len(held)))]

    def turn(self) -> None:
        self.stage.turn()
        self.stage.queue("q").backlog.check()
        self.stage.queue("q").members.check()
        self.look()

    def look(self) -> None:
        """Every record is with one consumer at most, who selected it, and was not expired when it was given."""
        for peer in self.peers:
            for one in peer.seen[self.read.get(peer.name, 0) :]:
                colour, n, _, expires_s = self.facts[one.number]
                assert wanted(self.selector[peer.name], colour, n), f"{peer.name} was given {colour}, {n}"
                assert one.number not in self.holds, f"{one.number} is with {self.holds[one.number].name}"
                assert one.number not in self.done, f"{one.number} was settled"
                assert one.redelivered == (one.number in self.tried)
                assert expires_s > self.stage.now - 0.2
                self.holds[one.number] = peer
            self.read[peer.name] = len(peer.seen)

    def settle_down(self) -> None:
        """All settle what they have; in the end nothing waits that one of them selects."""
        for _ in range(200):
            before = len(self.done)
            self.turn()
            for number, peer in list(self.holds.items()):
                peer.ack(peer.id_of(number))
                self.done.add(number)
            self.holds.clear()
            if len(self.done) == before and not self.stage.broker.has_work:
                break
        conditions = {self.selector[peer.name] for peer in self.peers}
        left = drained(self.stage, "q")
        for number in left:
            colour, n, _, _ = self.facts[number]
            assert not any(wanted(one, colour, n) for one in conditions), f"{number} waits, and {conditions} are there"
        assert left == sorted(left, key=lambda number: (-self.facts[number][2], number)), "in the order of the queue"
        mortal = {number for number, facts in self.facts.items() if facts[3] < float("inf")}
        assert self.done.isdisjoint(left)
        assert set(self.facts) - mortal <= self.done | set(left), "nothing is lost but what expired"
        assert len(self.facts) == len(self.done) + len(left) + self.stage.counts("q")["expired"]
        self.stage.queue("q").backlog.check()


@pytest.mark.parametrize("seed", range(12))
def test_seed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(seed)
    monkeypatch.setattr(lane, "CHUNK_BYTES", world.rng.choice((300, 3000, 64 * 1024)))
    monkeypatch.setattr(dispatch, "PORTION_RECORDS", world.rng.choice((1, 4, 32)))
    monkeypatch.setattr(picker, "FOUND_ENOUGH", world.rng.choice((1, 8, 64)))
    monkeypatch.setattr(picker, "PASSED_AT_ONCE", world.rng.choice((1, 7, 64)))
    for _ in range(150):
        world.step()
    world.settle_down()


def test_the_order_of_each_selector_is_kept() -> None:
    """Of those that were never given back."""
    stage = QueueStage()
    publisher, rng = owner(stage), Random(1)
    colours = [rng.choice(COLOURS) for _ in range(500)]
    for number, colour in enumerate(colours):
        publisher.publish("q", number, user=(("colour", colour), ("n", "1")))
    peers = [stage.peer(f"peer {number}") for number in range(3)]
    for peer, selector in zip(peers, (SELECTORS[0], SELECTORS[1], "colour = 'grey'"), strict=True):
        peer.consume("q", selector=selector)
    stage.run(3)
    assert all(peer.numbers == sorted(peer.numbers) for peer in peers)
    assert sorted(number for peer in peers for number in peer.numbers) == [
        number for number, colour in enumerate(colours) if colour != "green"
    ]
