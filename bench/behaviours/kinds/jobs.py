"""Workers of AMQP queues with jobs of 1 to 40 s and windows of 1 to 500."""

from __future__ import annotations

import asyncio
from math import inf

from bench.behaviours.consumers.actor import Actor, kind
from bench.behaviours.consumers.connect import Work
from bench.behaviours.consumers.labels import ACKNOWLEDGES_NOTHING, NETWORK, OVER_SUBSCRIPTION
from bench.behaviours.consumers.links import Job, ManyJobs
from bench.behaviours.kinds.paces import any_rate
from bench.behaviours.kinds.workers import JOB_BYTES


@kind("jobs of 1 to 40 s, one after the other", count=4, protocol="amqp")
async def in_turn(me: Actor) -> None:
    job_s, prefetch = any_rate(me, 1, 40), me.random.choice((1, 1, 2, 5, 10))
    feed = me.feed(0, JOB_BYTES)
    link = await me.worker(prefetch, Job(job_s))
    feed.burst(me.random.choice((2, 3, 5)) + int(20 / job_s))
    feed.rate = JOB_BYTES / (job_s * me.between(1.2, 1.6))
    await link.read(me.end)


@kind("jobs of 1 to 20 s, all at the same time", count=3, protocol="amqp")
async def at_once(me: Actor) -> None:
    job_s, prefetch = any_rate(me, 1, 20), me.random.choice((5, 20, 100, 500))
    feed = me.feed(JOB_BYTES * prefetch / job_s * me.between(0.4, 0.7), JOB_BYTES)
    link = await me.worker(prefetch, ManyJobs(job_s))
    while me.now < me.end:
        await link.read(me.now + me.between(40, 70))
        feed.burst(int(prefetch * me.between(0.3, 0.8)))


@kind("one long job among quick ones", protocol="amqp")
async def one_long(me: Actor) -> None:
    """A worker that acknowledges all but the first."""
    me.feed(JOB_BYTES * me.between(5, 20), JOB_BYTES)
    link = await me.worker(me.random.choice((10, 20, 50)), ManyJobs(me.between(0.05, 0.3), me.between(60, 120)))
    await link.read(me.end)


@kind("holds tasks until they are due", count=2, protocol="amqp")
async def due_later(me: Actor) -> None:
    prefetch, hold_s = me.random.choice((4, 16, 32)), me.between(20, 100)
    feed = me.feed(0, JOB_BYTES)
    link = await me.worker(prefetch, Job(hold_s=hold_s))
    feed.burst(prefetch + me.random.choice((1, 5, 20)))
    feed.rate = JOB_BYTES * prefetch / (hold_s * 1.4)
    await link.read(me.end)


@kind("works off what was there before it", count=2, protocol="amqp")
async def late_comer(me: Actor) -> None:
    job_s = me.between(0.06, 0.15)
    await me.worker(0, Job(inf))  # it declares the queue ...
    me.close()  # ... and goes
    feed = me.feed(0, JOB_BYTES)
    feed.burst(int(me.between(50, 100) * 0.6 / job_s))
    feed.rate = 0.4 * JOB_BYTES / job_s
    await me.sleep(me.between(3, 10))
    link = await me.worker(me.random.choice((1, 10, 100, 500)), Job(job_s))
    await link.read(me.end)


@kind("acknowledged before they are read, by four", protocol="amqp")
async def acknowledged_before(me: Actor) -> None:
    """Four of one queue with paces of their own, which nobody asks for acknowledgements."""
    me.feed(me.between(60e3, 120e3))
    names = [me.name, *(f"{me.name}-{number}" for number in range(1, 4))]
    for name in names[1:]:
        me.labelled(name)
    links = [await me.workers([Work(me.name, me.key, 0, True)], [Job(inf)], name) for name in names]
    await asyncio.gather(*(link.read(me.end, me.between(60e3, 200e3)) for link in links))


@kind("acknowledges nothing, prefetch of 1 to 200", count=2, protocol="amqp", stuck=True)
async def silent(me: Actor) -> None:
    prefetch = me.random.choice((1, 2, 10, 100, 200))
    me.feed(JOB_BYTES * (me.between(10, 60) + prefetch / 4), JOB_BYTES)
    job = Job()
    link = await me.worker(prefetch, job)
    await link.read(me.now + me.random.choice((1, 20)))
    job.job_s = inf
    me.label.trouble(ACKNOWLEDGES_NOTHING)
    await link.read(me.end)


@kind("dead worker", protocol="amqp", stuck=True)
async def dead(me: Actor) -> None:
    me.feed(JOB_BYTES * me.between(20, 60), JOB_BYTES)
    link = await me.worker(me.random.choice((5, 20, 100)), Job())
    await link.read(me.now + me.between(20, 40))
    link.lose(1.0)
    me.label.trouble(NETWORK)
    await me.sleep(me.end)


@kind("over-subscribed with jobs of 1 to 4 s", count=2, protocol="amqp")
async def over_subscribed(me: Actor) -> None:
    job_s = me.between(1, 4)
    me.feed(JOB_BYTES * (1 / job_s + me.between(1, 3)), JOB_BYTES)
    link = await me.worker(me.random.choice((1, 2, 10, 20)), Job(job_s))
    me.label.trouble(OVER_SUBSCRIPTION)
    await link.read(me.end)
