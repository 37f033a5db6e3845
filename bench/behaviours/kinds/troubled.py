"""Troubled readers over MQTT: each falls behind for good, or until its trouble is over."""

from __future__ import annotations

from bench.behaviours.consumers.actor import Actor, kind
from bench.behaviours.consumers.labels import (
    ACKNOWLEDGES_NOTHING,
    NETWORK,
    OVER_SUBSCRIPTION,
    PRODUCER_BURST,
    READS_NOTHING,
    READS_TOO_SLOWLY,
)


@kind("stuck from the start", count=2, stuck=True)
async def stuck(me: Actor) -> None:
    me.feed(me.between(100e3, 250e3))
    await me.mqtt(version=me.random.choice((4, 5)))
    me.label.trouble(READS_NOTHING)
    await me.sleep(me.end)


@kind("stuck after a while", count=2, stuck=True)
async def stuck_later(me: Actor) -> None:
    me.feed(me.between(100e3, 250e3))
    link = await me.mqtt(version=me.random.choice((4, 5)))
    await link.read(me.now + me.between(25, 45))
    me.label.trouble(READS_NOTHING)
    await me.sleep(me.end)


@kind("frozen, then back", count=2, stuck=True)
async def frozen(me: Actor) -> None:
    me.feed(me.between(100e3, 250e3))
    link = await me.mqtt()
    await link.read(me.now + me.between(25, 50))
    me.label.trouble(READS_NOTHING)
    await me.sleep(me.between(35, 50))
    await link.read(min(me.end, me.now + 3))  # it catches up
    me.label.well()
    await link.read(me.end)


@kind("stuck, comes back stuck", stuck=True)
async def stuck_again(me: Actor) -> None:
    me.feed(me.between(150e3, 250e3))
    while me.now < me.end:
        link = await me.mqtt()
        if not me.label.spells:
            me.label.trouble(READS_NOTHING)
        await me.sleep(me.between(20, 30))
        link.close()
        await me.sleep(0.5)


@kind("over-subscribed", count=3)
async def over_subscribed(me: Actor) -> None:
    rate = me.between(25e3, 60e3)
    me.feed(rate + me.between(40e3, 80e3))
    link = await me.mqtt()
    me.label.trouble(OVER_SUBSCRIPTION)
    await link.read(me.end, rate)


@kind("reads a trickle")
async def trickle(me: Actor) -> None:
    me.feed(me.between(100e3, 200e3))
    link = await me.mqtt()
    me.label.trouble(READS_TOO_SLOWLY)
    await link.read(me.end, me.between(1e3, 2e3))


@kind("a burst that is too big", count=2)
async def burst_too_big(me: Actor) -> None:
    """The rest of the burst would take a quarter of an hour."""
    feed = me.feed(30e3)
    link = await me.mqtt()
    rate = me.between(42e3, 50e3)
    await link.read(me.now + me.between(30, 50), rate)
    feed.rate = me.between(400e3, 600e3)
    me.label.trouble(PRODUCER_BURST)
    await link.read(me.now + me.between(25, 35), rate)
    feed.rate = 30e3
    await link.read(me.end, rate)


@kind("dead peer", count=2, stuck=True)
async def dead_peer(me: Actor) -> None:
    """Every packet to it is lost, acknowledgements of its own included."""
    me.feed(me.between(80e3, 200e3))
    link = await me.mqtt(version=me.random.choice((4, 5)))
    await link.read(me.now + me.between(25, 45))
    link.lose(1.0)
    me.label.trouble(NETWORK)
    await me.sleep(me.end)


@kind("heavy packet loss")
async def heavy_loss(me: Actor) -> None:
    me.feed(me.between(150e3, 250e3))
    link = await me.mqtt()
    await link.read(me.now + me.between(20, 30))
    link.lose(0.5)
    me.label.trouble(NETWORK)
    await link.read(me.end)


@kind("acknowledges nothing (QoS 1)", stuck=True)
async def silent(me: Actor) -> None:
    me.feed(me.between(15e3, 40e3), 500, qos=1)
    link = await me.mqtt(qos=1, window=me.random.choice((10, 20, 40)))
    link.silent = True
    me.label.trouble(ACKNOWLEDGES_NOTHING)
    await link.read(me.end)
