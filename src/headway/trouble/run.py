"""A run: controls alone, then the same controls beside the trouble, then what became of everybody.

Theory of operation. All clients are tasks of one loop in one process, so that the stamp of a record and the moment of
its arrival are of one clock; ``Lateness`` says when this process was the slow one. The controls and the publisher are
there before the trouble begins and after it is over; a control has lost what was sent and had not come when all was
quiet. Whoever is cut stays away, except those whose trouble is that they come back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from headway.core.base import ConfigError
from headway.trouble.client import Client, Publisher, Stage
from headway.trouble.figures import Lateness
from headway.trouble.kinds import KINDS, Script
from headway.trouble.plan import KEEP_ALIVE_S, Gone

HEALTHY = "healthy"
DRAIN_S = 5.0
"""For how long the controls wait, at the end, for what was sent to them."""
LOOK_S = 0.1


class Outcome(NamedTuple):
    """All that a run has found out, still as its parts have it."""

    stage: Stage
    controls: list[Client]
    troubled: list[Client]
    publisher: Publisher | None
    lateness: Lateness
    calm_s: float
    trouble_s: float
    began_s: float
    """Wall-clock time."""
    interrupted: bool


class Run:
    def __init__(self, stage: Stage, stop: asyncio.Event, tell: Callable[[Run], None]) -> None:
        """``stop``: ends the run early. ``tell``: called ten times a second."""
        self.stage, self._stop, self._tell = stage, stop, tell
        self.phase = "connecting"
        self.share = 0.0
        """The part of the run that is over."""
        self.controls: list[Client] = []
        self.troubled: list[Client] = []
        self.publisher: Publisher | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def perform(self) -> Outcome:
        """Raises ConfigError if the broker does not let the controls in."""
        plan, began_s = self.stage.plan, time.time()
        lateness = Lateness()
        helpers = [asyncio.create_task(lateness.watch()), asyncio.create_task(self._pulse())]
        try:
            await self._open()
            self.phase = "calm"
            calm_s = await self._wait(plan.calm_s, 0.0)
            self._begin_trouble()
            lateness.trouble_begins()
            self.phase = "trouble"
            trouble_s = await self._wait(plan.trouble_s, plan.calm_s)
            lateness.trouble_ends()
            self.phase = "last words"
            interrupted = self._stop.is_set()
            await self._end()
        finally:
            for task in [*helpers, *self._tasks]:
                task.cancel()
            ended = await asyncio.gather(*helpers, *self._tasks, return_exceptions=True)
            for client in self._everyone():
                client.close()
        for fault in ended:
            if isinstance(fault, Exception):
                raise fault  # of this program's own
        return Outcome(self.stage, self.controls, self.troubled, self.publisher, lateness, calm_s, trouble_s, began_s,
                       interrupted)  # fmt: skip

    async def _open(self) -> None:
        plan = self.stage.plan
        await self._probe()
        own = plan.listen is None
        self.controls = [Client(self.stage, HEALTHY, number, from_start=own) for number in range(1, plan.controls + 1)]
        for client in self.controls:
            await self._admitted(client)
            self._start(client, Client.read)
        if own:
            sender = Client(self.stage, "publisher", 1)
            await self._admitted(sender, publishes=True)
            publisher = self.publisher = Publisher(sender, plan.traffic)
            self._start(sender, lambda _: publisher.run())

    async def _probe(self) -> None:
        """Finds out which version of the protocol the broker speaks, and what it calls itself."""
        probe = Client(self.stage, "probe", 1)
        try:
            await probe.connect(publishes=True)
        except Gone as first:
            if self.stage.place.protocol != "mqtt":
                raise ConfigError(f"{self.stage.place}: {first}") from None
            self.stage.mqtt_version = 4
            try:
                await probe.connect(publishes=True)
            except Gone as second:
                older = "" if str(second) == str(first) else f"; in MQTT 3.1.1: {second}"
                raise ConfigError(f"{self.stage.place}: {first}{older}") from None
        self.stage.product = probe.dialogue.product
        probe.close()

    async def _admitted(self, client: Client, *, publishes: bool = False) -> None:
        try:
            await client.connect(publishes=publishes)
        except Gone as error:
            raise ConfigError(f"{self.stage.place}: {client.name} is not let in: {error}") from None

    def _begin_trouble(self) -> None:
        self.stage.trouble_ns = time.monotonic_ns()
        for client in self.controls:
            client.tally.trouble_ns = self.stage.trouble_ns
        for name, count in self.stage.plan.kinds.items():
            for number in range(1, count + 1):
                client = Client(self.stage, name, number)
                self.troubled.append(client)
                self._start(client, KINDS[name].live)

    def _start(self, client: Client, script: Script) -> None:
        async def live() -> None:
            try:
                await script(client)
            except* Gone as gone:
                client.was_cut(_first_words(gone))

        self._tasks.append(asyncio.create_task(live()))

    async def _wait(self, seconds: float, before_s: float) -> float:
        """Waits so long, or until it is stopped. Returns for how long it did."""
        plan, began = self.stage.plan, time.monotonic()
        while (passed := time.monotonic() - began) < seconds and not self._stop.is_set():
            self.share = min(1.0, (before_s + passed) / max(0.001, plan.calm_s + plan.trouble_s))
            self._tell(self)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), LOOK_S)
        return time.monotonic() - began

    async def _end(self) -> None:
        """The publisher ends, the controls get what is left, and those in trouble hear the last words."""
        now_ns, controls = time.monotonic_ns(), len(self.controls)
        for client in [*self.controls, *self.troubled]:
            client.see(now_ns)
        for task in self._tasks[controls:]:
            task.cancel()
        await asyncio.gather(*self._tasks[controls:], return_exceptions=True)
        if self.publisher is not None:
            with suppress(Gone):
                await self.publisher.settle(DRAIN_S)
            await self._drain(self.publisher.sent)
        reading = [client for client in self.troubled if client.connected]
        for client in reading:
            if not client.pings and client.line is not None:
                client.line.hear()
                client.pings = True
                client.ping()
        await asyncio.gather(*(client.read_on() for client in reading))

    async def _drain(self, sent: list[int]) -> None:
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline:
            if all(client.tally.has_all(sent) for client in self.controls if client.connected):
                break
            self._tell(self)
            await asyncio.sleep(LOOK_S)
        for client in self.controls:
            client.tally.close(sent)

    def _everyone(self) -> list[Client]:
        return [*self.controls, *self.troubled, *([self.publisher.client] if self.publisher else [])]

    async def _pulse(self) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_S / 3)
            for client in self._everyone():
                client.ping()


def _first_words(gone: BaseExceptionGroup[Gone]) -> str:
    first = gone.exceptions[0]
    return _first_words(first) if isinstance(first, BaseExceptionGroup) else str(first)
