"""One run of the set: the broker, the publisher and all consumers at once."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

import aiohttp

from bench.behaviours.broker import IN_FORCE
from bench.behaviours.consumers import connect
from bench.behaviours.consumers.actor import Actor, Kind, Stage
from bench.behaviours.consumers.feeds import Publisher
from bench.behaviours.consumers.labels import Label
from bench.behaviours.consumers.links import Gone
from bench.behaviours.judging.findings import Finding, Listener, TrialVerdicts
from bench.behaviours.judging.lags import Lags, doubts
from bench.behaviours.kinds.every import EVERY
from bench.errors import PeerFailed
from bench.peers.peer import Running

START_WITHIN_S = 5.0
STALL_S = (2.0, 6.0)
THROTTLED_S = 10.0
"""For so long the broker gets half of the time, a piece after the other."""
PIECE_S = 0.4
STALLS_S = (0.3, 3.0)
"""The lengths of more pauses than one."""
LATE_LOOK_S = 0.05


@dataclass
class Run:
    seed: int
    began_s: float
    ended_s: float
    labels: list[Label]
    findings: list[Finding]
    driver_late_s: float
    """By how much the driver's loop was late at worst, without the broker's pause."""
    driver_cpu: float
    """The driver's share of one core."""
    broker_cpu: float
    sent_bytes: int
    failed: list[str]
    """Consumers that ended otherwise than they should."""
    doubts: list[str]
    """Labels that what waited for their consumers contradicts."""


async def perform(
    running: Running, seed: int, seconds: float, kinds: list[Kind] | None = None, tell: Callable[[float], None] = print,
    pauses: int = 1,
) -> Run:
    """Runs the kinds (None: all) for so long. ``tell`` is called with the share that is done. The broker is paused so
    many times."""
    instance, random = running.instance, Random(seed)
    loop = asyncio.get_running_loop()
    sock = await asyncio.to_thread(connect.connect_mqtt, instance.port, "the set's publisher", version=4)
    publisher = Publisher(sock)
    listener = await asyncio.to_thread(Listener, instance, IN_FORCE)
    began_s, began_cpu_s, broker_cpu_s = time.time(), time.process_time(), running.process.cpu_s()
    lateness = _Lateness()
    async with aiohttp.ClientSession() as http:
        stage = Stage(instance, publisher, http, loop.time() + seconds)
        trials, lags = TrialVerdicts(instance, http), Lags(instance, http)
        actors = [
            Actor(stage, kind, _name(kind, number), Random(random.random()))
            for kind in (list(EVERY.values()) if kinds is None else kinds) for number in range(kind.members)
        ]  # fmt: skip
        failed: list[str] = []
        living = [asyncio.create_task(_live(actor, random.uniform(0, START_WITHIN_S), failed)) for actor in actors]
        beside = [asyncio.create_task(work) for work in (
            publisher.run(), listener.read(stage.end + 60), trials.ask_again_and_again(), lags.watch(),
            lateness.watch(), _pause(running, random.uniform(0.3, 0.6) * seconds, random.uniform(*STALL_S)),
            _throttle(running, random.uniform(0.7, 0.9) * seconds),
            *(_pause(running, *when) for when in _more_pauses(seconds, pauses - 1)),
        )]  # fmt: skip
        while loop.time() < stage.end:
            running.check()
            tell(1 - (stage.end - loop.time()) / seconds)
            for task in beside[:4]:
                if task.done():
                    task.result()
            await asyncio.sleep(0.5)
        ended_s = time.time()
        await asyncio.gather(*living)
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await trials.ask()
        spent_s = time.time() - began_s
        for actor in actors:
            actor.close()
        listener.close()
        sock.close()
    return Run(
        seed, began_s, ended_s, stage.labels,
        [one for one in (*listener.findings, *trials.findings) if one.time_s <= ended_s], lateness.worst_s,
        (time.process_time() - began_cpu_s) / spent_s, (running.process.cpu_s() - broker_cpu_s) / spent_s,
        publisher.sent_bytes, failed, doubts(stage.labels, lags.seen, ended_s),
    )  # fmt: skip


def _name(kind: Kind, number: int) -> str:
    """``packet-loss-0``: the kind in letters that suit a topic and a queue."""
    return "-".join("".join(c if c.isalnum() else " " for c in kind.title).split()) + f"-{number}"


async def _live(actor: Actor, delay_s: float, failed: list[str]) -> None:
    await asyncio.sleep(delay_s)
    actor.label.began_s = time.time()
    try:
        await actor.kind.live(actor)
    except (Gone, OSError, PeerFailed, aiohttp.ClientError) as error:
        failed.append(f"{actor.name}: {type(error).__name__} {error}")
    for label in actor.stage.labels:
        label.began_s = label.began_s or actor.label.began_s


def _more_pauses(seconds: float, count: int) -> list[tuple[float, float]]:
    """Returns after how many seconds the broker is paused, and for how long: the same for each seed."""
    random = Random(count)
    return [(random.uniform(0.05, 0.95) * seconds, random.uniform(*STALLS_S)) for _ in range(count)]


async def _pause(running: Running, after_s: float, seconds: float) -> None:
    """Stops the broker's process for a moment: everybody lags then, and nobody is to blame."""
    await asyncio.sleep(after_s)
    pids = running.process.pids
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


async def _throttle(running: Running, after_s: float) -> None:
    """Makes the broker slow for a while, as one is that pages, or whose processor is not its own."""
    await asyncio.sleep(after_s)
    for _ in range(round(THROTTLED_S / (2 * PIECE_S))):
        await _pause(running, PIECE_S, PIECE_S)


class _Lateness:
    """How late the driver's own loop is."""

    def __init__(self) -> None:
        self.worst_s = 0.0

    async def watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LATE_LOOK_S
            await asyncio.sleep(LATE_LOOK_S)
            self.worst_s = max(self.worst_s, loop.time() - due)
