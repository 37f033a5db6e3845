"""The kinds of trouble: how each behaves, in a function, and in a sentence for people."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import NamedTuple

from headway.trouble.client import Client, Publisher
from headway.trouble.plan import Gone

SMALL_BUFFER = 65_536
"""Bytes of the receive buffer of those who read little, so that the broker notices within a short run."""
UP_S, DOWN_S = (0.5, 2.0), (0.2, 1.0)
"""For how long a flapping client is connected, and then away: at random between."""
OVER_SUBSCRIBED_SHARE = 0.1
"""The part of what it asked for that an over-subscribed consumer can read."""
TWICE_MAX = 20
"""Topics that it subscribes to a second time, by themselves."""
LATE_S = 1.0
BURST_S = 5.0
BURST_TOPIC = 60_000
"""The numbers of bursty producers' topics begin here."""

Script = Callable[[Client], Awaitable[None]]


class Kind(NamedTuple):
    name: str
    live: Script
    sentence: str
    needs_acks: bool
    publishes: bool


KINDS: dict[str, Kind] = {}


def kind(name: str, sentence: str, *, needs_acks: bool = False, publishes: bool = False) -> Callable[[Script], Script]:
    """Enters a kind in the table."""

    def enter(live: Script) -> Script:
        KINDS[name] = Kind(name, live, sentence, needs_acks, publishes)
        return live

    return enter


@kind("stuck", "subscribes and then reads nothing; its keep-alives go on, as of a program that hangs in one thread")
async def stuck(client: Client) -> None:
    await client.connect(receive_buffer=SMALL_BUFFER)
    await client.stay()


@kind("trickling", "reads a few bytes a second (--trickle), without a pause and without an end")
async def trickling(client: Client) -> None:
    await client.connect(receive_buffer=SMALL_BUFFER)
    await client.read_at(client.stage.plan.trickle_bytes)


@kind("flapping", "connects, subscribes, reads nothing, breaks the connection within two seconds, and comes again")
async def flapping(client: Client) -> None:
    random = client.stage.random
    while True:
        with suppress(Gone):  # a refusal, which is noted
            await client.connect(receive_buffer=SMALL_BUFFER)
            await asyncio.sleep(random.uniform(*UP_S))
            if client.line is not None and client.line.ended:
                client.was_cut("closed while it read nothing")
            client.reset()
        await asyncio.sleep(random.uniform(*DOWN_S))


@kind("over-subscribed", "subscribes to everything of the run, some of it twice, and reads a tenth of that")
async def over_subscribed(client: Client) -> None:
    plan = client.stage.plan
    own = [f"{plan.prefix}/#", *plan.traffic[:TWICE_MAX]]
    await client.connect(own if plan.listen is None else None, receive_buffer=SMALL_BUFFER)
    rate = plan.rate * plan.size_bytes * OVER_SUBSCRIBED_SHARE if plan.listen is None else 5 * plan.trickle_bytes
    await client.read_at(rate)


@kind("half-open", "its host answers nothing any more, as when a cable is pulled: no packet, no keep-alive")
async def half_open(client: Client) -> None:
    await client.connect(receive_buffer=SMALL_BUFFER)
    client.pings = False
    if client.line is not None and not client.line.deafen():
        client.note = "this system cannot drop its packets, so it is only silent"
    await asyncio.Event().wait()  # for ever


@kind("late-acks", f"permits --window deliveries at a time and takes {LATE_S:g} s over each of them", needs_acks=True)
async def late_acks(client: Client) -> None:
    client.ack_after_s = LATE_S
    await client.connect(acked=True, window=client.stage.plan.window)
    await client.read_at()


@kind("no-acks", "permits --window deliveries, reads them, and never acknowledges one", needs_acks=True)
async def no_acks(client: Client) -> None:
    client.ack_after_s = inf
    await client.connect(acked=True, window=client.stage.plan.window)
    await client.read_at()


@kind("bursty", f"a producer that is silent for {BURST_S:g} s and then sends all that was due at once, with a consumer "
      "of its own that reads as fast as it can", publishes=True)  # fmt: skip
async def bursty(client: Client) -> None:
    number = int(client.name.rpartition("-")[2])
    topic = f"{client.stage.plan.bursts}/{number}"
    await client.connect([topic])
    producer = Client(client.stage, "burst-producer", number)
    try:
        await producer.connect(publishes=True)
        publisher = Publisher(producer, [topic], BURST_TOPIC + number, BURST_S)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publisher.run())
            tasks.create_task(client.read())
    finally:
        producer.close()
