"""A broker with a journal on a pretended disk, with a pretended clock; the writer works at once, or in a thread that a
test can hold up."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from tests.core.queue_wire import run_of
from tests.sim.queues.outlet import QueueOutlet
from tests.store.journal.fake_files import FakeFiles

from headway.core.broker import Broker
from headway.core.consumer.channel import Channel
from headway.core.consumer.credit import NO_LIMIT
from headway.core.consumer.effects import Pause, Resume
from headway.core.consumer.request import ConnectRequest, QueueTerms, SubscribeRequest
from headway.core.consumer.session import Session
from headway.core.queue.dispatch import FetchedRecord
from headway.server.config.reading import make_broker, parse_settings
from headway.server.journal.recovery import start
from headway.server.journal.writing import JournalWriter
from headway.wire.amqp.dialect import AmqpDialect

WALL_OFFSET_S = 1_700_000_000.0
CONFIG = """
[listeners.amqp]
url = "amqp://127.0.0.1:0"
[pool]
memory = "8MB"
disk = "8MB"
[journal]
path = "/journal"
segment = "100kB"
"""


class AtOnce:
    """An executor that has no thread."""

    def submit(self, work: Callable[..., object], *arguments: object) -> None:
        work(*arguments)

    def shutdown(self, *, wait: bool = True) -> None: ...


class PretendedLoop:
    def __init__(self) -> None:
        self.soon: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self.later: list[tuple[float, Callable[..., object], tuple[Any, ...]]] = []
        self.now = 1000.0

    def call_soon_threadsafe(self, work: Callable[..., object], *arguments: object) -> None:
        self.soon.append((work, arguments))

    def call_later(self, seconds: float, work: Callable[..., object], *arguments: object) -> PretendedLoop:
        self.later.append((self.now + seconds, work, arguments))
        return self

    def cancel(self) -> None: ...

    def work(self) -> None:
        while self.soon:
            work, arguments = self.soon.popleft()
            work(*arguments)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [one for one in self.later if one[0] <= self.now]
        self.later = [one for one in self.later if one[0] > self.now]
        for _, work, arguments in due:
            work(*arguments)
        self.work()


class Publisher:
    """What it was told is kept, by number; ``told`` in that order."""

    def __init__(self, stage: JournalStage) -> None:
        self.stage = stage
        self.told: list[int] = []
        self.waits: deque[tuple[int, int]] = deque()

    def publish(self, queue: str, number: int, *, size: int = 20, qos: int = 1) -> None:
        run = run_of(queue, [f"{number} ".encode().ljust(size, b".")], qos=qos)
        stage = self.stage
        stage.broker.intake.publish_to(stage.session, run, stage.now)
        commit = stage.journal.wait(self) if run.journaled else 0
        if commit:
            self.waits.append((commit, number))
        else:
            self.told.append(number)

    def on_commit(self, number: int) -> None:
        while self.waits and self.waits[0][0] <= number:
            self.told.append(self.waits.popleft()[1])
        if self.waits:
            self.stage.journal.wait(self)


class JournalStage:
    def __init__(
        self, files: FakeFiles | None = None, *, thread: bool = False, config: str = "", memory: str = "8MB",
        set_aside: int | None = 0, repair: bool = False,
    ) -> None:
        """``set_aside``: as many odd entries are in the journal; None: any number."""
        self.files = files or FakeFiles()
        self.loop = PretendedLoop()
        settings = parse_settings(CONFIG.replace('memory = "8MB"', f'memory = "{memory}"') + config)
        self.broker: Broker = make_broker(settings)
        self.journal: JournalWriter = start(
            settings.journal, settings.topics, self.broker, cast(asyncio.AbstractEventLoop, self.loop),
            lambda: self.loop.now, lambda: self.loop.call_soon_threadsafe(self.turn_now), lambda: WALL_OFFSET_S,
            files=self.files, repair=repair,
        )  # fmt: skip
        assert set_aside is None or self.journal.set_aside == set_aside
        if not thread:
            self.journal._thread = cast(ThreadPoolExecutor, AtOnce())
        outlet = QueueOutlet(self.now, 100_000, random.Random(1), 0.0, lambda *_: None)
        request = ConnectRequest("client", "", protocol="amqp-0-9-1")
        self.session: Session = self.broker.connect(request, outlet, self.now)
        self.channel = Channel(NO_LIMIT, NO_LIMIT, 1, self.session.number)
        self.paused = False

    @property
    def now(self) -> float:
        return self.loop.now

    def declare(self, name: str) -> None:
        self.broker.queues.declare(self.session, name, QueueTerms(durable=True), AmqpDialect(), self.now)

    def turn(self) -> None:
        """The end of a turn, and what the writer says to it."""
        self.turn_now()
        self.loop.work()

    def turn_now(self) -> None:
        self.broker.flush(self.now)
        for effect in self.broker.take_effects():
            if isinstance(effect, Pause | Resume):
                self.paused = isinstance(effect, Pause)
        self.journal.turn(self.now)

    def get(self, queue: str) -> tuple[int, FetchedRecord] | None:
        """The next record's number, and the delivery."""
        request = SubscribeRequest(f"$queue/{queue}", AmqpDialect(), qos=1, polling=True, name=(1, "get", queue))
        found = self.broker.queues.queue(self.session, queue)
        got = self.broker.queues.get(self.session, self.channel, found, request, 2**62, self.now)
        return None if got is None else (int(AmqpDialect().decode(got.frame).payload.split()[0]), got)

    def ack(self, got: FetchedRecord) -> None:
        self.broker.queues.acknowledge(self.channel, [got.delivery_id])

    def all_of(self, queue: str) -> list[int]:
        """What it gives until there is no more."""
        numbers = []
        while (got := self.get(queue)) is not None:
            numbers.append(got[0])
        return numbers
