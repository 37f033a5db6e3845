"""Healthy consumers as they are met in the field: all work off what they are sent, each with a rhythm of its own."""

from __future__ import annotations

import asyncio
from math import inf

from bench.behaviours.consumers.actor import Actor, kind
from bench.behaviours.consumers.links import LOOK_S, Job, Link
from bench.behaviours.kinds.cursors import report
from bench.behaviours.kinds.workers import JOB_BYTES

HEAD_BYTES = 6
"""A PUBLISH of MQTT 5 at QoS 0 has so many bytes besides its topic and payload."""
SMALL_BUFFERS = (2_048, 4_096, 8_192)


def on_wire(rate: float, size_bytes: int, topic: str) -> float:
    """Returns the bytes a second that a feed of so many payload bytes a second has on the wire."""
    return rate * (size_bytes + len(topic) + HEAD_BYTES) / size_bytes


async def read_batch(me: Actor, link: Link, most_bytes: float, most_s: float) -> None:
    """Reads up to so many bytes, and for so long at most."""
    left, until = most_bytes, min(me.end, me.now + most_s)
    while left >= 1 and me.now < until:
        left -= link.take(left)
        link.settle(me.now)
        await asyncio.sleep(LOOK_S)


@kind("field: a browser's tab, now and then in the background")
async def tab(me: Actor) -> None:
    """In the background its script runs once a second."""
    me.feed(me.between(80e3, 200e3))
    link = await me.mqtt()
    while me.now < me.end:
        await link.read(me.now + me.between(15, 30))
        hidden_until = me.now + me.between(20, 50)
        while me.now < min(hidden_until, me.end):
            await me.sleep(1)
            await link.read(me.now + 0.06)


@kind("field: commits for 3 s", count=2)
async def commits(me: Actor) -> None:
    """A writer to a database: it reads a batch, then nothing while it commits. It could take half as much again."""
    rate, commit_s = me.between(50e3, 200e3), me.between(2.5, 4)
    feed = me.feed(rate, 1000)
    link = await me.mqtt()
    batch_bytes = on_wire(rate, 1000, me.topic) * 1.5 * (commit_s + 0.5)
    surge_s = me.now + me.between(40, 70)
    while me.now < me.end:
        await read_batch(me, link, batch_bytes, 0.5)
        await me.sleep(commit_s)
        if me.now > surge_s:
            feed.burst(int(rate * 12 / 1000))
            surge_s = me.now + me.between(60, 80)


@kind("field: micro-batches of 10 s", count=2)
async def micro_batches(me: Actor) -> None:
    me.feed(me.between(100e3, 250e3))
    link = await me.mqtt()
    while me.now < me.end:
        await me.sleep(me.between(9, 11))
        await link.read(me.now + 0.6)


@kind("field: a checkpoint of 9 to 12 s each 40 s")
async def checkpoints(me: Actor) -> None:
    me.feed(me.between(60e3, 150e3))
    link = await me.mqtt()
    while me.now < me.end:
        await link.read(me.now + me.between(35, 45))
        await me.sleep(me.between(9, 12))


@kind("field: as fast as its feed, with jitter", count=2)
async def jittery(me: Actor) -> None:
    rate = me.between(40e3, 150e3)
    me.feed(rate, 1000)
    link = await me.mqtt()
    wire = on_wire(rate, 1000, me.topic) * 1.02
    while me.now < me.end:
        swing, for_s = me.between(0, 0.4), me.between(1, 4)
        await link.read(me.now + for_s, wire * (1 - swing))
        await link.read(me.now + for_s, wire * (1 + swing))


@kind("field: warms up for a quarter of a minute", count=2)
async def warms_up(me: Actor) -> None:
    """A program that compiles its code as it runs: it reads two fifths of its feed at first."""
    rate = me.between(60e3, 140e3)
    me.feed(rate)
    link = await me.mqtt()
    await link.read(me.now + me.between(12, 17), rate * 0.4)
    await link.read(me.end, rate * 3)


@kind("field: acknowledges its window in bunches (QoS 1)", count=2)
async def bunches(me: Actor) -> None:
    """A window of 5 to 50, which it acknowledges once in one or two seconds."""
    window, every_s = me.random.choice((5, 10, 20, 50)), me.between(1, 2)
    feed = me.feed(500 * window / every_s * 0.6, 500, qos=1)
    link = await me.mqtt(qos=1, window=window)
    link.ack_every_s = every_s
    while me.now < me.end:
        await link.read(me.now + me.between(25, 45))
        feed.burst(window * 2 + 80)


@kind("field: commits its window in 9 to 14 s", count=2, protocol="amqp")
async def slow_commits(me: Actor) -> None:
    """A worker that acknowledges all of its prefetch at once, and works off what waits in a few minutes."""
    prefetch, commit_s = me.random.choice((30, 50, 100)), me.between(9, 14)
    feed = me.feed(JOB_BYTES * prefetch / commit_s * 0.5, JOB_BYTES)
    link = await me.worker(prefetch, Job(commit_s / prefetch, ack_every=prefetch))
    while me.now < me.end:
        await link.read(me.now + me.between(20, 40))
        feed.burst(2 * prefetch + 60)
        await link.read(me.now + 70)


@kind("field: acknowledges every tenth, prefetch 10", count=2, protocol="amqp")
async def tenth(me: Actor) -> None:
    job_s = me.between(0.05, 0.4)
    feed = me.feed(JOB_BYTES / job_s * me.between(0.5, 0.7), JOB_BYTES)
    link = await me.worker(10, Job(job_s, ack_every=10))
    while me.now < me.end:
        await link.read(me.now + me.between(25, 40))
        feed.burst(min(200, int(10 / job_s)))


@kind("field: a small device with a small buffer", count=3)
async def device(me: Actor) -> None:
    me.receive_buffer = me.random.choice(SMALL_BUFFERS)
    rate = me.between(1e3, 8e3)
    feed = me.feed(rate, 200)
    link = await me.mqtt(version=4)
    wire = on_wire(rate, 200, me.topic) * 1.8
    while me.now < me.end:
        await link.read(me.now + me.between(30, 50), wire)
        feed.burst(int(rate * 10 / 200))


@kind("field: its feed rests, then brings megabytes")
async def hourly(me: Actor) -> None:
    """A feed that brings at once what an hour made, each minute and a half. It is taken in half a minute."""
    rate = me.between(80e3, 150e3)
    feed = me.feed(200, 200)
    link = await me.mqtt()
    while me.now < me.end:
        await link.read(me.now + me.between(25, 40), rate)
        feed.burst(int(rate * me.between(22, 32) / 236))
        await link.read(me.now + 50, rate)


@kind("field: polls once in 20 to 40 s", count=2, protocol="http")
async def polls(me: Actor) -> None:
    topic = f"recorded/{me.name}"
    me.feed(me.between(10e3, 40e3), topic=topic)
    await me.sleep(2)
    every_s, offset = me.between(20, 40), 1
    while me.now < me.end:
        offset = await report(me, topic, offset)
        await me.sleep(every_s)


@kind("field: records of 200 kB on a slow line")
async def large_records(me: Actor) -> None:
    every_s = me.between(10, 18)
    me.feed(200_000 / every_s, 200_000)
    link = await me.mqtt()
    await link.read(me.end, 200_000 / every_s * 1.5)


@kind("field: a backup pauses it, then it hurries")
async def hurries(me: Actor) -> None:
    """Half of its pace for 20 s, as while a backup runs; then it makes up for it."""
    rate = me.between(60e3, 120e3)
    me.feed(rate, 1000)
    link = await me.mqtt()
    wire = on_wire(rate, 1000, me.topic)
    while me.now < me.end:
        await link.read(me.now + me.between(30, 50), wire * 2)
        await link.read(me.now + me.between(15, 20), wire * 0.6)


@kind("field: a device that wakes once in 15 to 30 s", count=2)
async def sleeper(me: Actor) -> None:
    """A client that saves power, and reads all there is whenever its radio is on."""
    me.receive_buffer = me.random.choice((8_192, 16_384))
    me.feed(me.between(800, 3000), 200)
    link = await me.mqtt(version=4)
    every_s = me.between(15, 30)
    while me.now < me.end:
        await link.read(me.now + 1.5)
        await me.sleep(every_s)


@kind("field: a quota of calls in a quarter of a minute", protocol="amqp")
async def quota(me: Actor) -> None:
    """A worker whose jobs call a service that permits so many calls in 15 s. It makes them at once, and waits for the
    next 15 s."""
    calls, job = me.random.choice((200, 300, 400)), Job(0.02)
    me.feed(JOB_BYTES * calls / 15 * me.between(0.6, 0.75), JOB_BYTES)
    link = await me.worker(me.random.choice((10, 20)), job)
    while me.now < me.end:
        began_s = me.now
        job.job_s = 0.02
        await link.read(began_s + calls * 0.02)
        job.job_s = inf
        await link.read(began_s + 15)
