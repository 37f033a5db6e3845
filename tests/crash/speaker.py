"""Clients of STOMP, AMQP 1.0 and OpenWire: one that publishes, one that consumes, one that works in transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.crash.actor import Actor, World, body_of
from tests.crash.event import Asked, Committed, Confirmed, Returned, RolledBack, Sent, Settled
from tests.crash.voices.voice import Begun, Came, Ended, Fault, Kept, Place, Voice

To = tuple[Place, tuple[str, ...]]
"""A place, and the boxes it leads to."""
RECEIPTS: To = Place("receipts"), ("receipts",)
"""Where consumers publish now and then, so that what they settled before becomes certain; not where there is little
room, for then they would wait for room that only they can make."""
SETTLED_PER_RECEIPT = 20


class Speaker(Actor):
    """Publishes."""

    def __init__(self, world: World, name: str, voice: type[Voice], *to: To, window: int = 30) -> None:
        super().__init__(world, name)
        self.voice = voice
        self.to = to
        self.window = window
        self.unconfirmed: dict[int, str] = {}

    def connect(self) -> Voice:
        return self.voice(self.world.life, self.name)

    def begin(self) -> None:
        self.unconfirmed.clear()

    def publish(self, to: To, *, put_off: bool = False) -> None:
        place, boxes = to
        record = self.new_record()
        self.world.tell(Sent(record, boxes, self.conn, put_off=put_off))
        if not put_off:
            self.unconfirmed[self.numbers] = record
        self.raw.send(place, body_of(record), self.numbers)

    def work(self) -> None:
        for _ in range(self.burst(self.window - len(self.unconfirmed))):
            self.publish(self.world.rng.choice(self.to))
        if not self.world.calm and self.world.chance(0.005):
            self.leave(self.world.rng.randint(0, 20))

    def handle(self, item: Any) -> None:
        match item:
            case Kept(number):
                self.world.tell(Confirmed(self.unconfirmed.pop(number)))
            case Came():
                self.came(item)
            case Fault(text):
                self.cut(text)
            case _:
                self.answer(item)

    def came(self, item: Came) -> None:
        """A record was delivered."""

    def answer(self, item: Any) -> None:
        """Anything else was said."""


class Listener(Speaker):
    """``box``: what it is called by others; ``durable``: the name of its durable subscription; ``careful``: it settles
    at once; ``returns``: now and then it gives something back."""

    def __init__(
        self, world: World, name: str, voice: type[Voice], place: Place, box: str, *, credit: int = 30,
        durable: str = "", alone: bool = False, returns: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(world, name, voice)
        self.place = place
        self.box = box
        self.credit = credit
        self.durable = durable
        self.alone = alone
        self.returns = returns
        self.upto = False
        self.waiting: dict[int, str] = {}
        """Deliveries that it has not settled, in their order."""
        self.settled = 0

    def begin(self) -> None:
        super().begin()
        self.waiting.clear()
        self.upto = self.world.chance(0.5)
        self.raw.consume(self.place, self.credit, upto=self.upto, durable=self.durable)

    def came(self, item: Came) -> None:
        self.waiting[item.number] = self.delivered(self.box, item.body, again=item.again, alone=self.alone)

    def work(self) -> None:
        rng = self.world.rng
        for _ in range(rng.randint(0, 8)):
            if self.waiting:
                self._settle_some(rng.choice(list(self.waiting)))
        if self.settled >= SETTLED_PER_RECEIPT and not self.world.setting.narrow:
            self.settled = 0
            self.publish(RECEIPTS)
        if not (self.durable or self.world.calm) and self.world.chance(0.01):
            self.leave(rng.randint(0, 30))

    def _settle_some(self, number: int) -> None:
        if self.returns and not self.upto and self.world.chance(0.05):
            self.world.tell(Returned(self.box, self.waiting.pop(number), self.conn))
            self.raw.give_back(number)
            return
        if self.world.calm:
            number = max(self.waiting)
        self.settle(number)

    def settle(self, number: int, *, put_off: bool = False) -> None:
        for one in [one for one in self.waiting if one == number or (self.upto and one < number)]:
            self.world.tell(Settled(self.box, self.waiting.pop(one), self.conn, put_off=put_off))
            self.settled += 1
        self.raw.settle(number)


class Toiler(Listener):
    """Takes records, and in one transaction settles them and publishes what came of them; or changes its mind."""

    def __init__(self, world: World, name: str, voice: type[Voice], source: str, done: str) -> None:
        super().__init__(world, name, voice, Place(source), source, credit=20, alone=True)
        self.done: To = Place(done), (done,)
        self.commits = False
        self.step_on: Callable[[], None] | None = self._begin
        """What comes next; None: the broker has to answer first."""
        self.named: dict[int, str] = {}
        """What the transaction settles."""

    def begin(self) -> None:
        self.step_on = self._begin
        self.named.clear()
        super().begin()

    def work(self) -> None:
        if self.step_on is not None:
            self.step_on()

    def answer(self, item: Any) -> None:
        match item:
            case Begun():
                self.step_on = self._toil
            case Ended():
                self.step_on = self._begin
                if self.commits:
                    self.world.tell(Committed(self.conn))
                else:
                    self.world.tell(RolledBack(self.conn))
                    self.waiting = dict(sorted((self.named | self.waiting).items()))

    def _begin(self) -> None:
        if self.waiting:
            self.step_on = None
            self.raw.begin()
            self._take_in()

    def _toil(self) -> None:
        most = 20 if self.world.calm else self.world.rng.randint(1, 20)
        self.named = dict(list(self.waiting.items())[:most])
        for number in self.named:
            self.publish(self.done, put_off=True)
            if not self.upto:
                self.settle(number, put_off=True)
        if self.upto:
            self.settle(max(self.named), put_off=True)
        self.step_on = self._end

    def _end(self) -> None:
        if not self.raw.has_sent_all:
            return
        self.commits = self.world.chance(0.8)
        if self.world.chance(0.05):
            self.leave(0)
            return
        self.step_on = None
        if self.commits:
            self.world.tell(Asked(self.conn))
        self.raw.end(commit=self.commits)
