"""One life of a broker that speaks MQTT and has a journal: engine, peers, journal and journal are the real ones; the
loop, sockets, the writer's thread and the file system are pretended. Nothing is written before it is told to be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, cast

from tests.server.amqp_stage import WALL_S, House
from tests.server.pretended import Socket
from tests.store.journal.fake_files import FakeFiles, PowerLoss

from headway.server.config.reading import parse_settings
from headway.server.connections.connection import Connection
from headway.server.journal.recovery import start
from headway.server.mqtt.peer import MqttPeer

LISTENER = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
"""
JOURNAL = """
[journal]
path = "/journal"
segment = "100kB"
"""


class Writer:
    """An executor whose jobs are done when it is told so."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def submit(self, work: Callable[..., object], *arguments: object) -> None:
        self.jobs.append((work, arguments))

    def step(self) -> bool:
        if self.jobs:
            work, arguments = self.jobs.popleft()
            work(*arguments)
            return True
        return False


class JournalHouse(House):
    def __init__(self, files: FakeFiles, now: float) -> None:
        self.files = files
        super().__init__(LISTENER)
        self.pretended.now = now
        self.writer = Writer()
        table = parse_settings(LISTENER + JOURNAL).journal
        journal = start(table, (), self.broker, self.loop, self.now, self.turn_soon, lambda: WALL_S, files=files)
        journal._thread = cast(Any, self.writer)
        cast(Any, journal).load = lambda *_: None  # how busy this process is, is no matter
        self.journal = journal

    def welcome(self, sock: Socket) -> Connection:
        return self.accept(sock, "mqtt", peer=MqttPeer)

    def write(self) -> bool:
        """The writer does one thing, and the loop hears of it."""
        done = self.writer.step()
        self.run()
        return done

    def lose_power(self, rng: Random) -> FakeFiles:
        """Now, or in the middle of what the writer does next. Returns what is left of the files."""
        if rng.random() < 0.5:
            operations = rng.randint(0, 4)

            def hook(*_: object) -> None:
                nonlocal operations
                operations -= 1
                if operations < 0:
                    raise PowerLoss

            self.files.hook = hook
            with suppress(PowerLoss):
                self.writer.step()
            self.files.hook = None
        return self.files.crash(rng)
