"""What would become of exactly once if the power went at this moment? Publishers and subscribers go on with a broker
that is started again and again from what is left of its files.

The checker knows only what clients saw. A record of which PUBREC was seen is delivered to every subscriber that had
seen its SUBACK before, exactly once; no other record is delivered more than once. A group counts as one subscriber.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from hashlib import sha256
from random import Random

from tests.sim.once.client import GROUP, TOPIC, Client, Publisher, Subscriber
from tests.sim.once.house import JournalHouse
from tests.store.journal.fake_files import FakeFiles

TRAIL = 100
TURNS_MAX = 400
"""To become quiet."""


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.trail: deque[str] = deque(maxlen=TRAIL)
        self.counts: Counter[str] = Counter()
        self._hash = sha256()
        self.house = JournalHouse(FakeFiles(), 1000.0)
        self.publishers = [Publisher(f"p{n}", self.rng.choice((4, 5)), self._tell, self.rng.randint(1, 3))
                           for n in range(self.rng.randint(1, 3))]  # fmt: skip
        self.subscribers = [Subscriber(f"s{n}", self.rng.choice((4, 5)), self._tell) for n in range(2)]
        self.group = [Subscriber(f"g{n}", self.rng.choice((4, 5)), self._tell, GROUP) for n in range(2)]
        self.subscribers += self.group
        self.clients: list[Client] = [*self.publishers, *self.subscribers]
        self.former: list[Subscriber] = []
        self.names = len(self.subscribers)
        self.clumsy = self.rng.random() * 0.1
        """How often something goes wrong."""

    def _tell(self, text: str) -> None:
        self.trail.append(text)
        self._hash.update(text.encode())

    def run(self, steps: int) -> str:
        for subscriber in self.subscribers:
            subscriber.come(self.house)
        self._settle(lambda: all(one.subscribed for one in self.subscribers))
        for _ in range(steps):
            self._step()
        self._finish()
        return self._hash.hexdigest()

    # -- what happens -----------------------------------------------------------------------------------------------

    def _step(self) -> None:
        rng, client = self.rng, self.rng.choice(self.clients)
        if rng.random() < self.clumsy:
            rng.choice((self._crash, lambda: self._leave(client), lambda: self._come_again(client)))()
        elif client.sock is None:
            client.come(self.house)
        elif isinstance(client, Publisher) and rng.random() < 0.5:
            self._publish(client)
        elif isinstance(client, Subscriber):
            client.answer(rng.randint(0, 4))
        what = rng.random()
        if what < 0.6:
            self.house.run()
        if what < 0.3:
            self.house.write()
        if what > 0.9:
            self.house.pass_time(rng.random() * 3)
        if rng.random() < 0.8:
            client.read(rng.choice((3, 30, 3000)))

    def _publish(self, publisher: Publisher) -> None:
        record = publisher.publish()
        for subscriber in self.subscribers:
            if record is not None and subscriber.subscribed:
                subscriber.due.add(record)

    def _leave(self, client: Client) -> None:
        self._tell(f"{client.name} vanishes")
        self.counts["left"] += 1
        client.vanish()

    def _come_again(self, client: Client) -> None:
        """Its old connection is still there; it may forget all it knew."""
        rng = self.rng
        self.counts["taken over"] += client.sock is not None
        if rng.random() < 0.4 or client in self.group:  # what those that end have had is lost, not another's
            client.come(self.house)
            return
        self.counts["clean"] += 1
        if isinstance(client, Subscriber):
            client = self._another(client)
        client.come(self.house, clean=client.version == 5)
        for _ in range(rng.randint(0, 3)):  # no sooner is it greeted than it goes on
            self.house.run()
            client.read()
            if isinstance(client, Publisher):
                self._publish(client)
            elif rng.random() < 0.5:
                self._publish(rng.choice(self.publishers))
        if rng.random() < 0.5:
            self._crash()

    def _another(self, old: Subscriber) -> Subscriber:
        """One that knows nothing of what the old one had; the broker may find that there was one before."""
        self.names += old.version == 4  # which cannot ask for a new session that is kept
        name = f"s{self.names}" if old.version == 4 else old.name
        new = Subscriber(name, old.version, self._tell)
        self.former.append(old)
        self.clients[self.clients.index(old)] = self.subscribers[self.subscribers.index(old)] = new
        return new

    def _crash(self) -> None:
        self._tell("crash")
        self.counts["crashes"] += 1
        files = self.house.lose_power(self.rng)
        for client in self.clients:
            if self.rng.random() < 0.5:
                client.read()  # what the dead broker had said
            client.lost()
        self.house = JournalHouse(files, self.house.now())

    # -- the end ----------------------------------------------------------------------------------------------------

    def _settle(self, done: Callable[[], bool]) -> None:
        """Nothing goes wrong any more."""
        for _ in range(TURNS_MAX):
            for client in self.clients:
                if client.sock is None:
                    client.come(self.house)
                client.read()
                if isinstance(client, Subscriber):
                    client.answer()
            self.house.run()
            while self.house.write():
                pass
            if done():
                return
        raise AssertionError("the handshakes do not end")

    def _finish(self) -> None:
        quiet = 0

        def settled() -> bool:
            nonlocal quiet
            there = all(client.greeted for client in self.clients)
            quiet = quiet + 1 if there and all(one.quiet for one in (*self.publishers, *self.subscribers)) else 0
            return quiet > 3

        self._settle(settled)
        confirmed = {record for publisher in self.publishers for record in publisher.confirmed}
        alone = [[one] for one in (*self.subscribers, *self.former) if one.filter == TOPIC]
        for some in (*alone, self.group):
            names, had = " and ".join(one.name for one in some), Counter(record for one in some for record in one.had)
            due = set().union(*(one.due for one in some if one not in self.former))
            missing = sorted((confirmed & due) - set(had))
            assert not missing, f"{names} never had {missing}, which were confirmed"
            twice = sorted(record for record, count in had.items() if count > 1)
            assert not twice, f"{names} had {twice} twice"
        self.counts["confirmed"] += len(confirmed)
        self.counts["completed"] += sum(publisher.completed for publisher in self.publishers)
        self.counts["delivered"] += sum(len(subscriber.had) for subscriber in self.subscribers)
