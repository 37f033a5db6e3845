"""The story: lives of one broker after another, each ended by a kill, and the actors going on with what they do."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.crash import cast
from tests.crash.actor import Actor, World
from tests.crash.checker import Checker
from tests.crash.consumer import Consumer
from tests.crash.event import Killed, Wrong
from tests.crash.life import Life
from tests.crash.publisher import AmqpActor
from tests.crash.setting import FSYNC, Setting
from tests.crash.speaker import Speaker
from tests.crash.subscriber import MqttActor, Subscriber

STALLED_S = 10.0
"""After so long without a confirm to anybody, the broker is stuck."""
DRAIN_S = 60.0
EVENTS = (50, 8000)
"""A life ends after so many events, at least and at most."""
EVENTS_CALM = (4000, 8000)
KILLED_STARTING = 0.25
"""How many of the lives end before the broker listens."""
CALM = 0.3
RELOADED = 0.002
"""In so many turns the broker is told to read its config again; and in half of its lives right after the start."""
TURN_S = 0.01
EXAMPLES = 10
"""So much of what is wrong in a life is said at once."""
PATIENCE_S = 1.0
"""After so long without a confirm somebody makes room on the disks, and everybody comes back."""


class Told(NamedTuple):
    wrong: list[str]
    summary: str


class Story:
    def __init__(self, folder: Path, seed: int, kills: int, *, fsync: str | None = None, orderly: bool = False,
                 say: Callable[[str], None] = lambda text: None) -> None:
        """``fsync`` None: each in its turn, life by life. ``orderly``: the broker is asked to stop, and is not killed.
        """
        self.world = World(seed)
        self._folder = folder
        self._kills = kills
        self._fsync = fsync
        self._orderly = orderly
        self._say = say
        self._checker = Checker(cast.UNORDERED, frozenset({cast.SHARED}))
        self._checked = 0
        self._lives = 0
        self._start_s = 1.0
        """How long the last start took."""
        self._actors: list[Actor] = []

    def tell(self) -> Told:
        world = self.world
        subscribers = cast.subscribers(world)
        durables = cast.durables(world)
        self._actors = [
            *subscribers, *durables, *cast.consumers(world), *cast.publishers(world), *cast.speakers(world)
        ]  # fmt: skip
        try:
            self._begin_life()
            cast.declare(world)
            for who in (*subscribers, *durables):
                who.come()
            self._live()
            for _ in range(self._kills - 1):
                if world.chance(KILLED_STARTING) and not self._orderly:
                    self._stillborn()
                self._begin_life()
                cast.look(world)
                self._live()
            self._begin_life()
            cast.look(world)
            self._drain(subscribers)
        except AssertionError as error:
            world.tell(Wrong(f"{error}"))
            self._check()
        else:
            self._check()
            self._checker.finish()
        finally:
            if hasattr(world, "life"):
                world.life.kill()
        checker = self._checker
        summary = (f"{self._lives} lives, {checker.confirmed} records confirmed, {checker.delivered} delivered, "
                   f"{checker.again} of them again; {self.world.cuts} cut")  # fmt: skip
        return Told(checker.wrong, summary)

    # -- lives ------------------------------------------------------------------------------------------------------

    def _new_life(self) -> Life:
        self._lives += 1
        world, fsync = self.world, self._fsync or FSYNC[self._lives % len(FSYNC)]
        setting = world.setting = Setting(world.rng, self._folder, fsync)
        return Life(self._folder, self._lives, fsync=fsync, memory=setting.memory, disk=setting.disk)

    def _begin_life(self) -> None:
        life = self.world.life = self._new_life()
        life.listening()
        self._start_s = life.age_s
        if self.world.chance(0.5):
            life.reload()

    def _stillborn(self) -> None:
        """Killed before it listens, or just then."""
        life = self.world.life = self._new_life()
        life.let_live(self.world.rng.uniform(0.3, 1.1) * self._start_s)
        self._end(life, f"after {life.age_s:.2f} s, starting")

    def _live(self) -> None:
        world = self.world
        world.calm = world.chance(CALM)
        began = len(world.events)
        events = world.rng.randint(*(EVENTS_CALM if world.calm else EVENTS))

        def over() -> bool:
            done = len(world.events) - began
            world.setting.at(done / events)
            return done >= events

        for actor in self._actors:
            actor.away = world.setting.turns_away()
        self._go_on(self._actors, over)
        self._end(world.life, f"after {len(world.events) - began} events")

    def _end(self, life: Life, when: str) -> None:
        world = self.world
        if life.process.poll() is not None:
            world.tell(Wrong(f"the broker ended by itself with {life.process.returncode}"))
        if self._orderly:
            life.stop()
        else:
            life.freeze()
            for actor in self._actors:
                actor.read()  # who was cut off just before the kill learns of it; later it would be the kill
            life.kill()
        for actor in self._actors:
            actor.gone()
            actor.away = 0
        if self._orderly and life.process.wait() != 0:
            world.tell(Wrong(f"the broker was asked to stop, and ended with {life.process.returncode}"))
        for complaint in life.complaints(full_disk=bool(world.setting.trouble)):
            world.tell(Wrong(f"the broker complained:\n{complaint}"))
        world.tell(Killed(self._lives))
        self._check()
        self._say(f"life {self._lives} ({world.setting}) killed {when}; {self._checker.confirmed} records confirmed, "
                  f"{len(self._checker.wrong)} wrong")  # fmt: skip

    def _check(self) -> None:
        events, known = self.world.events, len(self._checker.wrong)
        fresh = events[self._checked :]
        for event in fresh:
            self._checker.see(event)
        self._checked = len(events)
        for text in self._checker.wrong[known : known + EXAMPLES]:
            self._say(f"WRONG {text}")
        if len(self._checker.wrong) > known:
            told = self._folder / f"events-{self._lives}.txt"
            told.write_text("".join(f"{event}\n" for event in fresh))
            self._say(f"what the clients saw in that life is in {told}")

    # -- turns ------------------------------------------------------------------------------------------------------

    def _go_on(self, actors: Sequence[Actor], done: Callable[[], bool]) -> None:
        """Until it is done, or nothing was confirmed for long though there is room on the disks, and all are there."""
        world = self.world
        confirmed, moved_s, relieved = world.confirmed, time.monotonic(), False
        while not done():
            there = {actor.raw.sock: actor for actor in actors if actor.raw is not None}
            for sock in select.select(list(there), [], [], TURN_S)[0]:
                there[sock].read()
            for actor in actors:
                actor.step()
            if world.chance(RELOADED):
                world.life.reload()
            if world.confirmed > confirmed:
                confirmed, moved_s, relieved = world.confirmed, time.monotonic(), False
            elif not relieved and time.monotonic() - moved_s > PATIENCE_S:
                moved_s, relieved = time.monotonic(), True
                world.setting.relieve()
                for actor in actors:
                    actor.away = 0
            elif time.monotonic() - moved_s > STALLED_S:
                waits = [a.name for a in actors if isinstance(a, AmqpActor | MqttActor | Speaker) and a.unconfirmed]
                world.tell(Wrong(f"nothing was confirmed for {STALLED_S:g} s; {', '.join(waits)} wait for it"))
                return

    def _drain(self, subscribers: Sequence[Subscriber]) -> None:
        """Fetch and acknowledge all there is. It is over when nothing was delivered for a while."""
        last: list[Actor] = [*cast.last_consumers(self.world), *subscribers]
        for subscriber in subscribers:
            subscriber.careful = True
        quiet = Quiet(last)
        deadline = time.monotonic() + DRAIN_S
        self._go_on(last, lambda: quiet.now() or time.monotonic() > deadline)
        if time.monotonic() > deadline:
            self.world.tell(Wrong(f"not everything is delivered after {DRAIN_S:g} s"))
        self._actors = last
        self._end(self.world.life, "at the end")


class Quiet:
    """Whether all that was delivered is settled, and the broker has had time to deliver more."""

    TURNS = 100

    def __init__(self, actors: Sequence[Actor]) -> None:
        self._actors = actors
        self._turns = 0

    def now(self) -> bool:
        busy = any(
            actor.raw is None or actor.waiting or actor.unconfirmed
            for actor in self._actors if isinstance(actor, Consumer | Subscriber)
        )  # fmt: skip
        self._turns = 0 if busy else self._turns + 1
        return self._turns > self.TURNS
