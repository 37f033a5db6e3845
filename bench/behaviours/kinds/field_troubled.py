"""Troubled consumers as they are met in the field: they fall behind slowly, late, or where few records wait."""

from __future__ import annotations

import asyncio
from math import inf

from bench.behaviours.consumers.actor import Actor, kind
from bench.behaviours.consumers.connect import Work
from bench.behaviours.consumers.labels import ACKNOWLEDGES_NOTHING, NETWORK, OVER_SUBSCRIPTION, READS_NOTHING
from bench.behaviours.consumers.links import Job, ManyJobs
from bench.behaviours.kinds.field_rhythms import on_wire, read_batch
from bench.behaviours.kinds.workers import JOB_BYTES

TROUBLE_S = 15.0
"""A pause that is shorter is no trouble."""
MANY = 100


@kind("field: pauses that grow", count=2, stuck=True)
async def growing_pauses(me: Actor) -> None:
    """A leak: each collection of garbage takes longer. From a quarter of a minute on it is trouble."""
    me.feed(me.between(100e3, 200e3))
    link = await me.mqtt()
    pause_s, grows = me.between(1.8, 2.4), me.between(1.55, 1.7)
    while me.now < me.end:
        await link.read(me.now + me.between(8, 11))
        if pause_s >= TROUBLE_S:
            me.label.trouble(READS_NOTHING)
        await me.sleep(pause_s)
        if pause_s >= TROUBLE_S:
            await link.read(me.now + 4)
            me.label.well()
        pause_s = min(pause_s * grows, 35)


@kind("field: a phone in a tunnel", count=2, stuck=True)
async def tunnel(me: Actor) -> None:
    rate = me.between(60e3, 150e3)
    me.feed(rate)
    link = await me.mqtt()
    while me.now < me.end - 60:
        await link.read(me.now + me.between(25, 40), rate * 2)
        link.lose(1.0)
        me.label.trouble(NETWORK)
        await link.read(me.now + me.between(20, 35), rate * 2)
        link.lose(0.0)
        had = link.read_bytes
        while link.read_bytes == had and me.now < me.end:  # its peer tries again ever more seldom
            await link.read(me.now + 0.5, rate * 4)
        await link.read(me.now + 12, rate * 4)
        me.label.well()
    await link.read(me.end, rate * 2)


@kind("field: slower by a fifth every 15 s")
async def degrades(me: Actor) -> None:
    rate = me.between(80e3, 160e3)
    me.feed(rate, 1000)
    link = await me.mqtt()
    feeds = on_wire(rate, 1000, me.topic)
    takes = feeds * me.between(1.5, 1.8)
    while me.now < me.end:
        if takes < feeds and not me.label.spells:
            me.label.trouble(OVER_SUBSCRIPTION)
        await link.read(me.now + 15, takes)
        takes = max(takes * 0.8, feeds * 0.3)


@kind("field: takes 8 to 11 % too little")
async def a_little_short(me: Actor) -> None:
    rate = me.between(250e3, 400e3)
    me.feed(rate, 2000)
    link = await me.mqtt()
    me.label.trouble(OVER_SUBSCRIPTION)
    await link.read(me.end, on_wire(rate, 2000, me.topic) * me.between(0.89, 0.92))


@kind("field: over-subscribed with records of 200 kB")
async def large_records(me: Actor) -> None:
    every_s = me.between(3, 4)
    me.feed(200_000 / every_s, 200_000)
    link = await me.mqtt()
    me.label.trouble(OVER_SUBSCRIPTION)
    await link.read(me.end, 200_000 / every_s * me.between(0.4, 0.6))


@kind("field: over-subscribed, fed once in 2 to 5 s", count=3)
async def fed_in_lumps(me: Actor) -> None:
    rate, every_s = me.between(80e3, 160e3), me.between(2, 5)
    feed = me.feed(0, 1000)
    link = await me.mqtt()
    me.label.trouble(OVER_SUBSCRIPTION)
    while me.now < me.end:
        feed.burst(int(rate * every_s / 1000))
        await link.read(me.now + every_s, rate * 0.55)


@kind("field: a hundred subscriptions, over-subscribed")
async def many_topics(me: Actor) -> None:
    """A dashboard: each topic has a record in one or two seconds."""
    each = me.between(800, 1200)
    topics = [f"{me.topic}/{number}" for number in range(MANY)]
    for topic in topics:
        me.feed(each, 1500, topic=topic)
    link = await me.mqtt(filters=topics)
    me.label.trouble(OVER_SUBSCRIPTION)
    await link.read(me.end, each * MANY * me.between(0.5, 0.6))


@kind("field: half of the jobs would be enough", protocol="amqp")
async def few_jobs(me: Actor) -> None:
    """Long jobs, so few records wait, and each for longer than the one before."""
    job_s = me.between(7, 10)
    me.feed(JOB_BYTES * 2.2 / job_s, JOB_BYTES)
    link = await me.worker(1, Job(job_s))
    me.label.trouble(OVER_SUBSCRIPTION)
    await link.read(me.end)


@kind("field: over-subscribed, commits its window in 9 to 14 s", protocol="amqp")
async def slow_commits(me: Actor) -> None:
    prefetch, commit_s = me.random.choice((30, 50, 100)), me.between(9, 14)
    me.feed(JOB_BYTES * prefetch / commit_s * 2.2, JOB_BYTES)
    link = await me.worker(prefetch, Job(commit_s / prefetch, ack_every=prefetch))
    me.label.trouble(OVER_SUBSCRIPTION)
    await link.read(me.end)


@kind("field: acknowledges nothing, without a prefetch", protocol="amqp", stuck=True)
async def no_prefetch(me: Actor) -> None:
    me.feed(JOB_BYTES * me.between(20, 60), JOB_BYTES)
    job = Job()
    link = await me.worker(0, job)
    await link.read(me.now + me.between(20, 30))
    job.job_s = inf
    me.label.trouble(ACKNOWLEDGES_NOTHING)
    await link.read(me.end)


@kind("field: acknowledges nothing, without a window (QoS 1)", stuck=True)
async def no_window(me: Actor) -> None:
    me.feed(500 * me.between(20, 60), 500, qos=1)
    link = await me.mqtt(qos=1)
    await link.read(me.now + me.between(20, 30))
    link.silent = True
    me.label.trouble(ACKNOWLEDGES_NOTHING)
    await link.read(me.end)


@kind("field: acknowledges nothing of one to three a second", count=2, protocol="amqp", stuck=True)
async def quiet_queue(me: Actor) -> None:
    me.feed(JOB_BYTES * me.between(1, 3), JOB_BYTES)
    job = Job(0.1)
    link = await me.worker(me.random.choice((1, 5, 20)), job)
    await link.read(me.now + me.between(20, 30))
    job.job_s = inf
    me.label.trouble(ACKNOWLEDGES_NOTHING)
    await link.read(me.end)


@kind("field: one of two workers acknowledges nothing", protocol="amqp", stuck=True)
async def one_of_two(me: Actor) -> None:
    """Two workers: one holds all of its prefetch for good, while the other keeps the queue short."""
    me.feed(JOB_BYTES * me.between(20, 40), JOB_BYTES)
    other = f"{me.name}-other"
    me.labelled(other, kind="field: the other of the two workers", stuck=False)
    job, prefetch = Job(0.01), me.random.choice((5, 10, 20))
    links = [
        await me.workers([Work(me.name, me.key, prefetch)], [one], name)
        for name, one in ((me.name, job), (other, Job(0.01)))
    ]
    good = asyncio.create_task(links[1].read(me.end))
    await links[0].read(me.now + me.between(20, 35))
    job.job_s = inf
    me.label.trouble(ACKNOWLEDGES_NOTHING)
    await asyncio.gather(links[0].read(me.end), good)


class LeakyJobs(ManyJobs):
    """A worker that forgets to acknowledge one record of so many."""

    def __init__(self, job_s: float, one_of: int) -> None:
        super().__init__(job_s)
        self.leaked = 0
        self._one_of, self._done = one_of, 0

    def done(self, now: float) -> int:
        tag = super().done(now)
        while tag:
            self._done += 1
            if self._done % self._one_of:
                break
            self.leaked += 1
            tag = super().done(now)
        return tag


@kind("field: forgets one acknowledgement of ten", protocol="amqp", stuck=True)
async def leaks(me: Actor) -> None:
    """A window that becomes smaller with each, until there is none."""
    me.feed(JOB_BYTES * me.between(10, 20), JOB_BYTES)
    prefetch = me.random.choice((20, 30, 50))
    job = LeakyJobs(me.between(0.05, 0.2), 10)
    link = await me.worker(prefetch, job)
    while me.now < me.end and job.leaked < prefetch:
        await link.read(me.now + 0.1)
    me.label.trouble(ACKNOWLEDGES_NOTHING)
    await link.read(me.end)


@kind("field: stuck on a feed of 10 to 40 kB/s", count=2, stuck=True)
async def stuck_slow_feed(me: Actor) -> None:
    me.feed(me.between(10e3, 40e3))
    link = await me.mqtt()
    await link.read(me.now + me.between(20, 30))
    me.label.trouble(READS_NOTHING)
    await me.sleep(me.end)


@kind("field: half-open, on a feed of 5 to 25 kB/s", count=2, stuck=True)
async def half_open(me: Actor) -> None:
    me.feed(me.between(5e3, 25e3))
    link = await me.mqtt()
    await link.read(me.now + me.between(20, 30))
    link.lose(1.0)
    me.label.trouble(NETWORK)
    await me.sleep(me.end)


@kind("field: gone when its feed comes back", stuck=True)
async def gone_meanwhile(me: Actor) -> None:
    """A laptop that was closed while nothing came."""
    rate = me.between(80e3, 200e3)
    feed = me.feed(rate)
    link = await me.mqtt()
    await link.read(me.now + me.between(15, 25))
    feed.rate = 0
    await link.read(me.now + 5)
    link.lose(1.0)
    await me.sleep(me.between(20, 40))
    feed.rate = rate
    me.label.trouble(NETWORK)
    await me.sleep(me.end)


@kind("field: conflated, then stuck", stuck=True)
async def conflated(me: Actor) -> None:
    for number in range(50):
        me.feed(me.between(2e3, 4e3), 500, topic=f"{me.topic}/{number}")
    link = await me.mqtt(filters=(f"{me.topic}/+",), conflate="500ms")
    await link.read(me.now + me.between(25, 40))
    me.label.trouble(READS_NOTHING)
    await me.sleep(me.end)


@kind("field: not acknowledged, and stops reading", protocol="amqp", stuck=True)
async def stops_reading(me: Actor) -> None:
    me.feed(me.between(100e3, 200e3))
    link = await me.worker(0, Job(inf), no_ack=True)
    await link.read(me.now + me.between(20, 35))
    me.label.trouble(READS_NOTHING)
    await me.sleep(me.end)


@kind("field: a load that alternates by the minute")
async def alternates(me: Actor) -> None:
    """For half a minute and more it is offered more than it takes; then it works that off in a minute."""
    takes = me.between(100e3, 160e3)
    feed = me.feed(0, 1000)
    link = await me.mqtt()
    while me.now < me.end:
        feed.rate = takes * 1.8
        me.label.trouble(OVER_SUBSCRIPTION)
        await link.read(me.now + 40, takes)
        feed.rate = takes * 0.5
        await link.read(me.now + 70, takes)
        me.label.well()
        await link.read(me.now + 10, takes)


@kind("field: its feed grows", count=2)
async def audience(me: Actor) -> None:
    """By a tenth each eight seconds, from 0.6 to 1.9 of what it takes."""
    takes = me.between(80e3, 160e3)
    feed = me.feed(takes * 0.6, 1000)
    link = await me.mqtt()
    while me.now < me.end:
        if on_wire(feed.rate, 1000, me.topic) > takes and not me.label.spells:
            me.label.trouble(OVER_SUBSCRIPTION)
        await link.read(me.now + 8, takes)
        feed.rate = min(feed.rate * 1.1, takes * 1.9)


@kind("field: over-subscribed, commits for 3 s", count=2)
async def commits(me: Actor) -> None:
    rate, commit_s = me.between(80e3, 200e3), me.between(2.5, 4)
    me.feed(rate, 1000)
    link = await me.mqtt()
    me.label.trouble(OVER_SUBSCRIPTION)
    while me.now < me.end:
        await read_batch(me, link, rate * 0.55 * (commit_s + 0.3), 0.3)
        await me.sleep(commit_s)


@kind("field: over-subscribed, and its line loses one packet of a hundred")
async def lossy(me: Actor) -> None:
    rate = me.between(80e3, 150e3)
    me.feed(rate, 1000)
    link = await me.mqtt()
    link.lose(0.01)
    me.label.trouble(OVER_SUBSCRIPTION)
    await link.read(me.end, rate * 0.55)


@kind("field: stuck, and its line loses one packet of fifty", stuck=True)
async def stuck_lossy(me: Actor) -> None:
    me.feed(me.between(60e3, 120e3))
    link = await me.mqtt()
    link.lose(0.02)
    await link.read(me.now + me.between(20, 30))
    me.label.trouble(READS_NOTHING)
    await me.sleep(me.end)
