"""Actors: clients that keep telling the world what they did and what they were told.

Reading and acting are two things: what came is put on record as it is read (also what the dead broker left in the
socket), and only ``work``, which is not called for the dead, says anything.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from random import Random
from typing import Any, ClassVar
from zlib import crc32

from tests.crash.event import Closed, Committed, Confirmed, Cut, Delivered, Event, Wrong
from tests.crash.life import Life
from tests.crash.setting import Setting

BUFFER_BYTES = 1 << 20
"""So much may be on its way to a broker that does not read at the moment."""
CUT_TURNS = 10
"""Who is not let in for being slow of late, tries again after so many."""


def body_of(record: str) -> bytes:
    """What a record consists of: mostly little, sometimes much, and of a publisher called fat always."""
    seed = crc32(record.encode())
    if record.startswith("fat"):
        size = 2000 + seed % 30_000
    else:
        size = seed % 200 if seed % 10 else seed % 4000
    return record.encode() + b" " + (b"%08x" % seed) * (size // 8)


def record_of(body: bytes) -> tuple[str, bool]:
    """Which record it is, and whether it is whole."""
    name = body.split(b" ", 1)[0].decode(errors="replace")
    return name, body == body_of(name)


class World:
    """What actors share: the story so far, chance, and the broker that lives."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.events: list[Event] = []
        self.conns = self.confirmed = 0
        self.calm = False
        """Nobody leaves, all settle everything at once, and hardly anybody but the fat publishes: so that what is
        needed of the journal moves on, and old segments are freed."""
        self.life: Life
        self.setting: Setting
        self.cuts = 0
        """Connections that the broker ended, as it may in narrow settings."""

    def tell(self, event: Event) -> None:
        self.events.append(event)
        self.confirmed += isinstance(event, Confirmed | Committed)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability


class Actor(ABC):
    """One client, of one connection after another. ``raw`` is None while it is away."""

    protocol: ClassVar[str]

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.raw: Any = None
        self.conn = 0
        self.numbers = 0
        self.away = 0
        """So many more times it does nothing."""

    def come(self) -> None:
        """Connect, and be ready."""
        self.world.conns += 1
        self.conn = self.world.conns
        self.raw = self.connect()
        self.raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        self.begin()
        self._take_in()

    def _try_to_come(self) -> None:
        try:
            self.come()
        except (AssertionError, OSError):
            if not self.world.setting.narrow or self.world.life.process.poll() is not None:
                raise
            self.world.cuts += 1
            self.gone()
            self.away = CUT_TURNS

    @abstractmethod
    def connect(self) -> Any:
        """Returns the raw client of a new connection."""

    @abstractmethod
    def begin(self) -> None:
        """Begins to use a new connection."""

    @abstractmethod
    def work(self) -> None:
        """Does something, as it is this actor's turn."""

    @abstractmethod
    def handle(self, item: Any) -> None:
        """Puts on record what the broker said."""

    def step(self) -> None:
        """It is its turn."""
        if self.away:
            self.away -= 1
        elif self.raw is None:
            if not self.world.setting.speechless:
                self._try_to_come()
        else:
            try:
                self.work()
            except OSError as error:
                self.wrong(f"cannot write: {error}")
                self.gone()

    def read(self) -> None:
        while self.raw is not None and self.raw.read():
            self._take_in()
        if self.raw is not None and self.raw.ended:
            self.cut("the broker closed the connection")
            self.gone()

    def _take_in(self) -> None:
        items, self.raw.inbox = self.raw.inbox, []
        for item in items:
            self.handle(item)

    def gone(self) -> None:
        """The connection is over: take in what is left of it."""
        if self.raw is not None:
            while self.raw.read():
                pass
            self._take_in()
            self.raw.close()
            self.raw = None
            self.world.tell(Closed(self.conn))

    def leave(self, turns: int) -> None:
        self.farewell()
        if self.world.setting.narrow:
            self.world.tell(Cut(self.conn))
        self.gone()
        self.away = turns

    def farewell(self) -> None:  # noqa: B027  most say nothing
        """Says goodbye, and reads until the end; or says nothing."""

    def burst(self, room: int) -> int:
        """How much it publishes this time, if there is room for so much."""
        world = self.world
        if world.calm and not self.name.startswith("fat") and not world.chance(0.05):
            return 0
        return world.rng.randint(0, max(0, room))

    def new_record(self) -> str:
        self.numbers += 1
        return f"{self.name}:{self.numbers}"

    def delivered(self, box: str, body: bytes, *, again: bool, alone: bool) -> str:
        record, whole = record_of(body)
        self.world.tell(Delivered(box, record, self.conn, again, alone, whole))
        return record

    def cut(self, text: str) -> None:
        """The broker has ended the connection, or is about to, or a part of it."""
        if self.world.setting.narrow:
            self.world.cuts += 1
            self.world.tell(Cut(self.conn))
            self.raw.ended = True
        else:
            self.wrong(text)

    def wrong(self, text: str) -> None:
        self.world.tell(Wrong(f"{self.name}: {text}"))
