"""Healthy clients over MQTT that come and go, share a topic, have two, or acknowledge in their own way."""

from __future__ import annotations

import asyncio

from bench.behaviours.consumers.actor import Actor, kind
from bench.behaviours.kinds.paces import any_buffer

GROUP = 4


@kind("killed, and back at once", count=2)
async def killed(me: Actor) -> None:
    """A process that is killed again and again. It is back while the broker still has the old connection, or later."""
    me.feed(me.between(40e3, 120e3), 500, qos=1)
    while me.now < me.end:
        link = await me.mqtt(qos=1, window=200, expiry_s=3600, fresh=False)
        await link.read(me.now + me.between(8, 20))
        if me.now < me.end:
            link.kill()
        await me.sleep(me.random.choice((0.0, 0.0, 0.3, 2.0)))


@kind("durable, comes back on a slow line")
async def back_slowly(me: Actor) -> None:
    usual = me.between(8e3, 20e3)
    me.feed(usual, 500, qos=1)
    link = await me.mqtt(qos=1, expiry_s=3600)
    await link.read(me.now + me.between(10, 20))
    link.close()
    await me.sleep(me.between(50, 80))
    any_buffer(me)
    link = await me.mqtt(expiry_s=3600, fresh=False, subscribe=False)
    await link.read(me.end, usual * me.between(2.2, 3))


@kind("acknowledges one after the other (QoS 1)", count=3)
async def one_by_one(me: Actor) -> None:
    handle_s = me.between(0.03, 0.2)
    feed = me.feed(500 * me.between(0.5, 0.75) / handle_s, 500, qos=1)
    link = await me.mqtt(qos=1, window=me.random.choice((2, 3, 5, 10, 20)))
    link.handle_s = handle_s
    while me.now < me.end:
        await link.read(me.now + me.between(25, 50))
        feed.burst(int(5 / handle_s))


@kind("acknowledges once in 3 to 8 s (QoS 1)", count=2)
async def in_batches(me: Actor) -> None:
    every_s, window = me.between(3, 8), me.random.choice((20, 50, 200, 1000))
    me.feed(500 * window / every_s * me.between(0.4, 0.7), 500, qos=1)
    link = await me.mqtt(qos=1, window=window)
    link.ack_every_s = every_s
    await link.read(me.end)


@kind("two topics, one of them slow")
async def two_topics(me: Actor) -> None:
    me.feed(me.between(60e3, 120e3), topic=f"{me.topic}/fast")
    seldom = me.feed(0, topic=f"{me.topic}/slow")
    link = await me.mqtt(filters=(f"{me.topic}/fast", f"{me.topic}/slow"))
    while me.now < me.end:
        await link.read(me.now + me.between(5, 15))
        seldom.burst(me.random.choice((1, 3, 100)))


@kind("members of a group at their own paces")
async def group(me: Actor) -> None:
    """Four share a topic. Each takes what it can, and together they take all."""
    paces = [me.between(0.4, 1.6) for _ in range(GROUP)]
    rate = 40e3
    feed = me.feed(0.7 * rate * sum(paces), 500, qos=1)
    names = [me.name, *(f"{me.name}-{number}" for number in range(1, GROUP))]
    for name in names[1:]:
        me.labelled(name)
    links = [
        await me.mqtt(qos=1, window=20, client=name, filters=(f"$share/{me.name}/{me.topic}",)) for name in names
    ]
    reading = asyncio.gather(*(link.read(me.end, rate * pace) for link, pace in zip(links, paces, strict=True)))
    while me.now < me.end:
        await me.sleep(me.between(30, 60))
        feed.burst(500)
    await reading


@kind("conflated on a slow line")
async def conflated(me: Actor) -> None:
    any_buffer(me)
    me.feed(me.between(40e3, 100e3))
    link = await me.mqtt(conflate=me.random.choice(("250ms", "500ms", "2s")))
    await link.read(me.end, me.between(4e3, 30e3))
