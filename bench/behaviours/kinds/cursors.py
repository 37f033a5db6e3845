"""Clients that read recorded topics over HTTP and report how far they have come."""

from __future__ import annotations

from bench.behaviours.consumers.actor import Actor, kind
from bench.behaviours.consumers.labels import OVER_SUBSCRIPTION, READS_NOTHING
from bench.errors import PeerFailed

EVERY_S = (2.0, 5.0, 9.0, 13.0)


@kind("a cursor that moves on", protocol="http")
async def moving(me: Actor) -> None:
    topic = f"recorded/{me.name}"
    me.feed(me.between(10e3, 40e3), topic=topic)
    await me.sleep(2)
    offset = 1
    while me.now < me.end:
        offset = await report(me, topic, offset)
        await me.sleep(me.between(0.5, 3))


@kind("a cursor that stays", protocol="http", stuck=True)
async def staying(me: Actor) -> None:
    """A client that goes on asking, and reports no progress."""
    topic = f"recorded/{me.name}"
    me.feed(me.between(20e3, 60e3), topic=topic)
    await me.sleep(2)
    offset, ends = 1, me.now + me.between(20, 35)
    while me.now < ends:
        offset = await report(me, topic, offset)
        await me.sleep(1)
    me.label.trouble(READS_NOTHING)
    while me.now < me.end:
        await report(me, topic, offset)
        await me.sleep(1)


@kind("a cursor that comes once in 2 to 15 s", count=4, protocol="http")
async def seldom(me: Actor) -> None:
    topic = f"recorded/{me.name}"
    me.feed(me.between(10e3, 40e3), topic=topic)
    await me.sleep(2)
    every_s, offset = EVERY_S[int(me.name.rsplit("-", 1)[1]) % len(EVERY_S)], 1
    while me.now < me.end:
        offset = await report(me, topic, offset)
        await me.sleep(every_s * me.between(0.8, 1.2))


@kind("a cursor that falls behind", protocol="http")
async def falling_behind(me: Actor) -> None:
    """A client that reads half of what comes."""
    topic = f"recorded/{me.name}"
    rate = me.between(20e3, 60e3)
    me.feed(rate, 500, topic=topic)
    await me.sleep(2)
    first = offset = await report(me, topic, 1)
    me.label.trouble(OVER_SUBSCRIPTION)
    while me.now < me.end:
        latest = await report(me, topic, offset)
        offset = max(offset, (first + latest) // 2)
        await me.sleep(me.between(0.5, 2))


async def report(me: Actor, topic: str, offset: int) -> int:
    """Returns the next offset to come."""
    url = f"http://127.0.0.1:{me.stage.instance.second_port}/v1/cursors/{me.name}"
    async with me.stage.http.put(url, json={"topic": topic, "offset": offset}) as answer:
        if answer.status != 200:
            raise PeerFailed(f"cursor: {answer.status} {await answer.text()}")
        return int((await answer.json())["latest"])
