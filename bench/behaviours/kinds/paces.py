"""Healthy readers over MQTT at any pace, on any receive buffer, with feeds of any rhythm."""

from __future__ import annotations

from math import exp, log

from bench.behaviours.consumers.actor import Actor, kind
from bench.behaviours.kinds.healthy import KERNEL_BYTES

BUFFERS = (16_384, 32_768, 65_536, 131_072, 262_144, 1_048_576, None)
LUMPS_S = (3.0, 6.0, 9.0, 12.0)


def member(me: Actor) -> int:
    """The number of this actor among those of its kind."""
    return int(me.name.rsplit("-", 1)[1])


def any_buffer(me: Actor) -> None:
    me.receive_buffer = me.random.choice(BUFFERS)


def any_rate(me: Actor, low: float, high: float) -> float:
    """A rate that is as likely to be between 2 and 4 kB/s as between 20 and 40."""
    return exp(me.between(log(low), log(high)))


@kind("any pace on any buffer", count=4)
async def any_pace(me: Actor) -> None:
    any_buffer(me)
    rate, qos = any_rate(me, 2e3, 60e3), me.random.choice((0, 0, 1))
    me.feed(rate * me.between(0.5, 0.85), qos=qos)
    link = await me.mqtt(version=me.random.choice((4, 5)), qos=qos)
    await link.read(me.end, rate)


@kind("any pace, with a snapshot", count=3)
async def any_pace_with_snapshot(me: Actor) -> None:
    any_buffer(me)
    rate, share = any_rate(me, 5e3, 60e3), me.between(0.4, 0.7)
    feed = me.feed(rate * share, 200)
    link = await me.mqtt()
    feed.burst(int((KERNEL_BYTES + rate * (1 - share) * me.between(30, 90)) / feed.size_bytes))
    await link.read(me.end, rate)


@kind("a big snapshot, steadily worked off", count=2)
async def big_snapshot(me: Actor) -> None:
    """Ten megabytes or so, in two or three minutes: what waits becomes less all the time."""
    any_buffer(me)
    rate, share = me.between(100e3, 200e3), me.between(0.3, 0.7)
    feed = me.feed(rate * share)
    link = await me.mqtt()
    feed.burst(int(rate * (1 - share) * me.between(100, 160) / feed.size_bytes))
    await link.read(me.end, rate)


@kind("its feed comes in waves", count=2)
async def waves(me: Actor) -> None:
    """A reader that takes more than comes on the average, and less than comes at the height of a wave."""
    usual, half_s = me.between(60e3, 150e3), me.between(8, 14)
    feed = me.feed(usual)
    link = await me.mqtt()
    while me.now < me.end:
        feed.rate = usual * 1.8
        await link.read(me.now + half_s, usual * 1.3)
        feed.rate = usual * 0.2
        await link.read(me.now + half_s, usual * 1.3)


@kind("its feed rests and comes back")
async def rests(me: Actor) -> None:
    """As exchanges close and open."""
    rate = me.between(30e3, 120e3)
    feed = me.feed(rate)
    link = await me.mqtt(version=4)
    while me.now < me.end:
        feed.rate = rate
        await link.read(me.now + me.between(25, 45), rate * 1.2)
        feed.rate = 0
        await link.read(me.now + me.between(25, 45), rate * 1.2)


@kind("its feed comes in lumps", count=2)
async def fed_in_lumps(me: Actor) -> None:
    rate, every_s = me.between(80e3, 160e3), me.between(15, 30)
    feed = me.feed(0)
    link = await me.mqtt()
    while me.now < me.end:
        feed.burst(int(rate * every_s * 0.65 / feed.size_bytes))
        await link.read(me.now + every_s, rate)


@kind("reads once in 3 to 12 s", count=4)
async def lumps(me: Actor) -> None:
    """A client that reads all there is, then nothing for a while."""
    any_buffer(me)
    every_s = LUMPS_S[member(me) % len(LUMPS_S)] * me.between(0.85, 1.0)
    me.feed(me.between(20e3, 80e3))
    link = await me.mqtt()
    while me.now < me.end:
        await me.sleep(every_s)
        await link.read(me.now + 0.5)


@kind("pauses now and then, and makes up for it", count=2)
async def rests_itself(me: Actor) -> None:
    rate = me.between(40e3, 100e3)
    me.feed(rate)
    link = await me.mqtt()
    while me.now < me.end:
        await link.read(me.now + me.between(20, 40), rate * 2)
        await me.sleep(me.between(4, 7))


@kind("a big record on a slow line")
async def big_records(me: Actor) -> None:
    any_buffer(me)
    feed = me.feed(0, me.random.choice((400_000, 700_000, 950_000)))
    link = await me.mqtt()
    rate = me.between(40e3, 100e3)
    while me.now < me.end:
        feed.burst(1)
        await link.read(me.now + me.between(50, 70), rate)


@kind("packet loss on a slow line")
async def lossy_modem(me: Actor) -> None:
    rate = me.between(20e3, 50e3)
    me.feed(rate * 0.6)
    link = await me.mqtt()
    link.lose(me.between(0.005, 0.015))
    await link.read(me.end, rate)
