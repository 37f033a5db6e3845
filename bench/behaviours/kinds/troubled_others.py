"""More troubled clients over MQTT: other buffers, other rates, windows of QoS 1, and two topics."""

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
from bench.behaviours.kinds.paces import any_buffer, any_rate, member


@kind("stuck, on any buffer", count=3, stuck=True)
async def stuck(me: Actor) -> None:
    any_buffer(me)
    me.feed(me.between(90e3, 250e3))
    link = await me.mqtt(version=me.random.choice((4, 5)))
    await link.read(me.now + me.random.choice((0, 10, 30)))
    me.label.trouble(READS_NOTHING)
    await me.sleep(me.end)


@kind("frozen for 15 to 40 s", count=2, stuck=True)
async def frozen(me: Actor) -> None:
    """A client with a fixed receive buffer. Else the kernel would make it larger when the client catches up, and hide
    the next time."""
    me.receive_buffer = me.random.choice((65_536, 131_072))
    rate = me.between(150e3, 250e3)
    me.feed(rate)
    link = await me.mqtt()
    while me.now < me.end - 60:
        await link.read(me.now + me.between(25, 45))
        me.label.trouble(READS_NOTHING)
        await me.sleep(me.between(17, 40))
        await link.read(me.now + 3)
        me.label.well()
    await link.read(me.end)


@kind("over-subscribed by 12 to 30 %", count=3)
async def over_subscribed(me: Actor) -> None:
    any_buffer(me)
    rate = me.between(120e3, 250e3)
    me.feed(rate * me.between(1.12, 1.3))  # by less, and ten seconds of it would not wait within the run
    link = await me.mqtt()
    me.label.trouble(OVER_SUBSCRIPTION)
    await link.read(me.end, rate)


@kind("over-subscribed on a slow line", count=2)
async def slow_line(me: Actor) -> None:
    any_buffer(me)
    rate, qos = any_rate(me, 5e3, 30e3), member(me)
    me.feed(rate * me.between(2, 4) + 10e3, qos=qos)
    link = await me.mqtt(qos=qos)
    me.label.trouble(OVER_SUBSCRIPTION)
    await link.read(me.end, rate)


@kind("reads half a kilobyte to three a second", count=2)
async def trickle(me: Actor) -> None:
    any_buffer(me)
    me.feed(me.between(90e3, 200e3))
    link = await me.mqtt()
    me.label.trouble(READS_TOO_SLOWLY)
    await link.read(me.end, any_rate(me, 500, 3000))


@kind("a dump that is too big")
async def dump(me: Actor) -> None:
    """All at once, and it would take a quarter of an hour."""
    usual = me.between(8e3, 15e3)
    feed = me.feed(usual, 1000)
    link = await me.mqtt()
    rate = usual * 1.5
    await link.read(me.now + me.between(30, 50), rate)
    feed.burst(int(usual * 0.5 * 900 / 1000 * me.between(1.5, 2.5)))
    me.label.trouble(PRODUCER_BURST)
    await link.read(me.end, rate)


@kind("two topics, reads neither", stuck=True)
async def two_topics(me: Actor) -> None:
    me.feed(me.between(100e3, 200e3), topic=f"{me.topic}/fast")
    me.feed(me.between(1e3, 5e3), topic=f"{me.topic}/slow")
    link = await me.mqtt(filters=(f"{me.topic}/fast", f"{me.topic}/slow"))
    await link.read(me.now + me.between(10, 30))
    me.label.trouble(READS_NOTHING)
    await me.sleep(me.end)


@kind("dead peer (QoS 1)", stuck=True)
async def dead_peer(me: Actor) -> None:
    me.feed(me.between(20e3, 60e3), 500, qos=1)
    link = await me.mqtt(qos=1, window=me.random.choice((5, 10, 20, 100)))
    await link.read(me.now + me.between(20, 40))
    link.lose(1.0)
    me.label.trouble(NETWORK)
    await me.sleep(me.end)


@kind("frozen with a window (QoS 1)", stuck=True)
async def frozen_window(me: Actor) -> None:
    window = me.random.choice((1, 2, 5, 20))
    me.feed(500 * min(100, 6 * window), 500, qos=1)
    link = await me.mqtt(qos=1, window=window)
    await link.read(me.now + me.between(20, 40))
    me.label.trouble(READS_NOTHING)
    await me.sleep(me.between(25, 40))
    await link.read(me.now + 15)
    me.label.well()
    await link.read(me.end)


@kind("acknowledges nothing, window of 1 to 20 (QoS 1)", count=2, stuck=True)
async def silent(me: Actor) -> None:
    me.feed(me.between(6e3, 40e3), 500, qos=1)
    link = await me.mqtt(qos=1, window=me.random.choice((1, 2, 5, 20)))
    await link.read(me.now + me.random.choice((0, 15)))
    link.silent = True
    me.label.trouble(ACKNOWLEDGES_NOTHING)
    await link.read(me.end)


@kind("over-subscribed, one after the other (QoS 1)", count=2)
async def over_subscribed_window(me: Actor) -> None:
    handle_s = me.between(0.05, 0.4)
    me.feed(500 * me.between(1.5, 3) / handle_s, 500, qos=1)
    link = await me.mqtt(qos=1, window=me.random.choice((1, 2, 5, 20)))
    link.handle_s = handle_s
    me.label.trouble(OVER_SUBSCRIPTION)
    await link.read(me.end)
