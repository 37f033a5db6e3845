"""AMQP clients that consume: one that settles in every way there is, and one that works within transactions."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pamqp.commands import Basic, Tx
from tests.crash.actor import World
from tests.crash.event import Asked, Committed, Returned, RolledBack, Settled
from tests.crash.publisher import AmqpActor
from tests.interop.amqp_raw import Content

RECEIPTS = ("", "receipts", ("receipts",))
"""Where consumers publish now and then, so that what they settled before becomes certain."""
SETTLED_PER_RECEIPT = 20


class Consumer(AmqpActor):
    """``dead``: the box of what it rejects; ``alone``: nobody else consumes from its queue; ``careful``: it only
    acknowledges, and at once."""

    def __init__(
        self, world: World, name: str, queue: str, *, prefetch: int = 30, dead: str = "", alone: bool = False,
        careful: bool = False, stays: bool = False, absence: tuple[int, int] = (0, 30),
    ) -> None:  # fmt: skip
        super().__init__(world, name)
        self.queue = queue
        self.prefetch = prefetch
        self.dead = dead
        self.alone = self.alone_now = alone
        self.careful = careful
        self.stays = stays
        self.absence = absence
        """For how many turns it goes."""
        self.waiting: dict[int, str] = {}
        """Delivery tags of what it has not settled."""
        self.settled = 0

    def begin(self) -> None:
        super().begin()
        self.consume()

    def consume(self) -> None:
        self.waiting.clear()
        self.alone_now = self.alone
        self.raw.do(Basic.Qos(prefetch_count=self.prefetch))
        self.raw.do(Basic.Consume(queue=self.queue))

    def content(self, content: Content) -> None:
        method = content.method
        record = self.delivered(self.queue, content.body, again=method.redelivered, alone=self.alone_now)
        self.waiting[method.delivery_tag] = record

    def work(self) -> None:
        rng, chance = self.world.rng, self.world.chance
        if self.careful or self.world.calm:
            if self.waiting:
                self._acknowledge_upto(max(self.waiting))
        else:
            for _ in range(rng.randint(0, 6)):
                self._settle_some()
        if self.settled >= SETTLED_PER_RECEIPT and (not self.careful or self.queue != "receipts"):
            self.settled = 0
            self.publish(RECEIPTS)
        if not (self.stays or self.world.calm) and chance(0.01):
            self.leave(rng.randint(*self.absence))

    def _settle_some(self) -> None:
        if not self.waiting:
            return
        tag, chance = self.world.rng.choice(list(self.waiting)), self.world.chance
        if chance(0.3):
            self._acknowledge_upto(tag)
        elif chance(0.05):
            self._give_back(tag)
        elif self.dead and chance(0.1):
            self._settle(tag, self.dead)
            self.raw.do(Basic.Nack(tag, requeue=False))
        else:
            self._settle(tag)
            self.raw.do(Basic.Ack(tag))

    def _settle(self, tag: int, dead: str = "", *, put_off: bool = False) -> None:
        self.world.tell(Settled(self.queue, self.waiting.pop(tag), self.conn, dead, put_off))
        self.settled += 1

    def _acknowledge_upto(self, tag: int) -> None:
        for known in [known for known in self.waiting if known <= tag]:
            self._settle(known)
        self.raw.do(Basic.Ack(tag, multiple=True))

    def _give_back(self, tag: int) -> None:
        self.alone_now = False
        self.world.tell(Returned(self.queue, self.waiting.pop(tag), self.conn))
        self.raw.do(Basic.Reject(tag, requeue=True))


class Retrier(Consumer):
    """Rejects what it cannot do now, so that it comes back after a while, as a dead letter of the queue in between."""

    def _give_back(self, tag: int) -> None:
        self.world.tell(Returned(self.queue, self.waiting.pop(tag), self.conn))
        self.raw.do(Basic.Nack(tag, requeue=False))


class Returner(AmqpActor):
    """Gives everything back until the queue gives it up. It puts nothing on record: the dead letters tell."""

    def __init__(self, world: World, name: str, queue: str) -> None:
        super().__init__(world, name)
        self.queue = queue

    def begin(self) -> None:
        super().begin()
        self.raw.do(Basic.Qos(prefetch_count=10))
        self.raw.do(Basic.Consume(queue=self.queue))

    def content(self, content: Content) -> None:
        if not self.raw.ended:
            with suppress(OSError):  # it may be dead by now
                self.raw.do(Basic.Reject(content.method.delivery_tag, requeue=True))

    def work(self) -> None:
        if not self.world.calm and self.world.chance(0.01):
            self.leave(self.world.rng.randint(0, 30))


class Worker(Consumer):
    """Takes records, and in one transaction acknowledges them and publishes what came of them; or changes its mind."""

    def __init__(self, world: World, name: str, queue: str, done: str) -> None:
        super().__init__(world, name, queue, prefetch=20, alone=True, stays=True)
        self.done = ("", done, (done,))
        self.asked = False
        self.named: dict[int, str] = {}
        """What the transaction settles."""

    def begin(self) -> None:
        self.asked = False
        self.named.clear()
        self.raw.call(Tx.Select(), Tx.SelectOk)
        self.consume()

    def work(self) -> None:
        if self.asked or len(self.waiting) < self.world.rng.randint(1, 20):
            return
        most = 20 if self.world.calm else self.world.rng.randint(1, 20)
        self.named = {tag: self.waiting[tag] for tag in list(self.waiting)[:most]}
        last = max(self.named)
        for tag in self.named:
            self._settle(tag, put_off=True)
            self.publish(self.done, put_off=True)
        self.raw.do(Basic.Ack(last, multiple=True))
        if self.world.chance(0.2):
            self.raw.do(Tx.Rollback())
        elif self.world.chance(0.95):
            self.world.tell(Asked(self.conn))
            self.raw.do(Tx.Commit())
        else:
            self.leave(0)
            return
        self.asked = True

    def answer(self, channel: int, said: Any) -> None:
        match said:
            case Tx.CommitOk():
                self.world.tell(Committed(self.conn))
                self.asked = False
            case Tx.RollbackOk():
                self.world.tell(RolledBack(self.conn))
                self.waiting |= self.named
                self.waiting = dict(sorted(self.waiting.items()))
                self.asked = False
