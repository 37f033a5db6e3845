"""Healthy readers over MQTT: they take all they are sent, each in its own way, and nobody should call them slow."""

from __future__ import annotations

import asyncio

from bench.behaviours.consumers import connect
from bench.behaviours.consumers.actor import Actor, kind
from bench.behaviours.consumers.feeds import Feed
from bench.behaviours.consumers.links import MqttLink

MODEMS = (5_000.0, 10_000.0, 20_000.0, 47_000.0)
KERNEL_BYTES = 650_000
"""About what the two kernels' buffers hold of a connection."""


@kind("fast", count=2)
async def fast(me: Actor) -> None:
    me.feed(me.between(50e3, 200e3))
    link = await me.mqtt(version=me.random.choice((4, 5)))
    await link.read(me.end)


@kind("steady, keeps up", count=2)
async def steady(me: Actor) -> None:
    rate = me.between(40e3, 150e3)
    me.feed(rate)
    link = await me.mqtt(version=me.random.choice((4, 5)))
    await link.read(me.end, rate * 1.3)


@kind("acknowledges steadily")
async def acknowledging(me: Actor) -> None:
    me.feed(me.between(10e3, 30e3), 500, qos=1)
    link = await me.mqtt(qos=1, window=20)
    await link.read(me.end)


@kind("modem", count=4)
async def modem(me: Actor) -> None:
    rate = _modem(me)
    me.feed(rate * me.between(0.5, 0.7), 200)
    link = await me.mqtt()
    await link.read(me.end, rate)


@kind("modem with a snapshot", count=4)
async def modem_with_snapshot(me: Actor) -> None:
    """A snapshot of more than the kernels hold is worked off in one or two minutes."""
    rate = _modem(me)
    feed = me.feed(rate * 0.5, 200)
    link = await me.mqtt()
    snapshot_bytes = KERNEL_BYTES + rate * 0.5 * me.between(30, 90)
    feed.burst(int(snapshot_bytes / feed.size_bytes))
    await link.read(me.end, rate)


def _modem(me: Actor) -> float:
    """The rates in turn, so that each seed has all of them."""
    return MODEMS[int(me.name.rsplit("-", 1)[1]) % len(MODEMS)]


@kind("pauses of 1 to 5 s", count=3)
async def pausing(me: Actor) -> None:
    """As garbage collection makes them."""
    me.feed(me.between(80e3, 200e3))
    link = await me.mqtt()
    while me.now < me.end:
        await link.read(min(me.end, me.now + me.between(3, 15)))
        await me.sleep(me.between(1, 5))


@kind("reads once in 8 s", count=2)
async def batches(me: Actor) -> None:
    me.feed(me.between(30e3, 120e3))
    link = await me.mqtt()
    while me.now < me.end:
        await me.sleep(8)
        await link.read(me.now + 0.5)


@kind("idle at night")
async def idle(me: Actor) -> None:
    feed = me.feed(0, 1000)
    link = await me.mqtt(version=4)
    while me.now < me.end:
        await link.read(min(me.end, me.now + me.between(30, 60)))
        feed.burst(1)


@kind("a big record now and then", count=2)
async def big_records(me: Actor) -> None:
    """Each takes a few seconds, and nothing else comes for most of a minute."""
    feed = me.feed(0, 900_000)
    link = await me.mqtt()
    while me.now < me.end:
        feed.burst(1)
        await link.read(min(me.end, me.now + me.between(35, 55)), me.between(150e3, 300e3))


@kind("a burst, worked off", count=2)
async def burst(me: Actor) -> None:
    usual = me.between(15e3, 30e3)
    feed = me.feed(usual)
    link = await me.mqtt()
    rate = me.between(150e3, 250e3)
    while me.now < me.end - 60:
        await link.read(me.now + me.between(30, 60), rate)
        bursting = asyncio.create_task(_burst(feed, usual, me.between(350e3, 450e3), me.between(6, 10)))
        await link.read(me.now + 12, rate)
        await bursting
    await link.read(me.end, rate)


async def _burst(feed: Feed, usual: float, rate: float, seconds: float) -> None:
    feed.rate = rate
    await asyncio.sleep(seconds)
    feed.rate = usual


@kind("floods of 100,000 small records")
async def small_records(me: Actor) -> None:
    feed = me.feed(500, 20)
    link = await me.mqtt(version=4)
    while me.now < me.end:
        await link.read(min(me.end, me.now + me.between(30, 60)), 1.5e6)
        feed.burst(100_000)


@kind("light packet loss")
async def light_loss(me: Actor) -> None:
    me.feed(me.between(30e3, 60e3))
    link = await me.mqtt()
    link.lose(0.02)
    await link.read(me.end)


@kind("comes back again and again")
async def coming_back(me: Actor) -> None:
    me.feed(me.between(50e3, 150e3))
    while me.now < me.end:
        link = await me.mqtt()
        await link.read(min(me.end, me.now + me.between(10, 20)))
        link.close()
        await me.sleep(0.5)


@kind("slow to say who it is")
async def slow_handshake(me: Actor) -> None:
    me.feed(me.between(50e3, 150e3))
    sock = await asyncio.to_thread(connect.dial, me.stage.instance.port, None)
    await me.sleep(me.between(4, 8))
    await asyncio.to_thread(connect.handshake_mqtt, sock, me.name)
    await me.sleep(me.between(2, 4))
    await asyncio.to_thread(connect.subscribe_mqtt, sock, me.topic)
    link = me.opened(MqttLink(sock, 5))
    await link.read(me.end)


@kind("durable and away")
async def away(me: Actor) -> None:
    me.feed(me.between(20e3, 50e3))
    link = await me.mqtt(expiry_s=3600)
    await link.read(me.now + me.between(15, 30))
    link.close()
    await me.sleep(me.between(60, 100))
    link = await me.mqtt(expiry_s=3600, fresh=False, subscribe=False)
    await link.read(me.end)


@kind("conflated, as it asked")
async def conflated(me: Actor) -> None:
    me.feed(me.between(60e3, 100e3))
    link = await me.mqtt(conflate="500ms")
    await link.read(me.end, me.between(20e3, 30e3))
