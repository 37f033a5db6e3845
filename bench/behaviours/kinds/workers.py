"""Workers of AMQP queues. A worker with a long job is not slow; one that acknowledges nothing is."""

from __future__ import annotations

import asyncio
from math import inf

from bench.behaviours.consumers.actor import Actor, kind
from bench.behaviours.consumers.connect import Work
from bench.behaviours.consumers.labels import ACKNOWLEDGES_NOTHING, OVER_SUBSCRIPTION
from bench.behaviours.consumers.links import Job

JOB_BYTES = 500
SHARERS = 8


@kind("a job of 30 s, prefetch 1", count=3, protocol="amqp")
async def long_job(me: Actor) -> None:
    job_s = me.between(25, 35)
    feed = me.feed(0, JOB_BYTES)
    link = await me.worker(1, Job(job_s))
    feed.burst(me.random.choice((2, 3, 4)))
    feed.rate = JOB_BYTES / (job_s * 1.4)
    await link.read(me.end)


@kind("holds a full prefetch until it is due", protocol="amqp")
async def due_later(me: Actor) -> None:
    """As a Celery worker holds tasks with an ETA."""
    feed = me.feed(0, JOB_BYTES)
    hold_s = me.between(60, 90)
    link = await me.worker(8, Job(hold_s=hold_s))
    feed.burst(14)
    feed.rate = JOB_BYTES * 8 / (hold_s * 1.3)
    await link.read(me.end)


@kind("acknowledges once in 8 s", protocol="amqp")
async def batches(me: Actor) -> None:
    me.feed(JOB_BYTES * me.between(15, 25), JOB_BYTES)
    link = await me.worker(250, Job(ack_every=1000, ack_every_s=me.between(6, 8)))
    await link.read(me.end)


@kind("acknowledged before it is read", protocol="amqp")
async def acknowledged_before(me: Actor) -> None:
    me.feed(me.between(30e3, 80e3))
    link = await me.worker(0, Job(inf), no_ack=True)
    while me.now < me.end:
        await link.read(min(me.end, me.now + me.between(3, 8)))
        await me.sleep(me.between(1, 2))


@kind("comes to a full queue", protocol="amqp")
async def late_comer(me: Actor) -> None:
    job_s = me.between(0.003, 0.006)
    await me.worker(0, Job(inf))  # it declares the queue ...
    me.close()  # ... and goes
    me.feed(JOB_BYTES * me.between(40, 60), JOB_BYTES)
    await me.sleep(me.between(25, 40))
    link = await me.worker(50, Job(job_s))
    await link.read(me.end)


@kind("many of one queue, each under the floor", protocol="amqp")
async def sharers(me: Actor) -> None:
    """Eight that take a kilobyte a second each, and keep up together."""
    feed = me.feed(JOB_BYTES * me.between(12, 18), JOB_BYTES)
    names = [me.name, *(f"{me.name}-{number}" for number in range(1, SHARERS))]
    for name in names[1:]:
        me.labelled(name)
    links = [await me.workers([Work(me.name, me.key, 4)], [Job(me.between(0.2, 0.4))], name) for name in names]
    reading = asyncio.gather(*(link.read(me.end) for link in links))
    while me.now < me.end:
        await me.sleep(me.between(30, 60))
        feed.burst(60)
    await reading


@kind("one queue of two", protocol="amqp")
async def two_queues(me: Actor) -> None:
    """A client with two subscriptions: one is fine, the other acknowledges nothing."""
    good, bad = f"{me.name}-good", f"{me.name}-bad"
    me.label.filter = good
    other = me.labelled(me.name, bad, kind="the other queue of the two", stuck=True)
    for queue in (good, bad):
        me.feed(JOB_BYTES * me.between(20, 40), JOB_BYTES, topic=f"set/{queue}")
    works = [Work(queue, f"set.{queue}", me.random.choice((10, 20, 30))) for queue in (good, bad)]
    link = await me.workers(works, [Job(), Job(inf)])
    other.trouble(ACKNOWLEDGES_NOTHING)
    await link.read(me.end)


@kind("acknowledges nothing", count=2, protocol="amqp", stuck=True)
async def silent(me: Actor) -> None:
    me.feed(JOB_BYTES * me.between(25, 80), JOB_BYTES)
    link = await me.worker(me.random.choice((5, 10, 20, 50)), Job(inf))
    me.label.trouble(ACKNOWLEDGES_NOTHING)
    await link.read(me.end)


@kind("acknowledges nothing after a while", protocol="amqp", stuck=True)
async def silent_later(me: Actor) -> None:
    me.feed(JOB_BYTES * me.between(25, 60), JOB_BYTES)
    job = Job()
    link = await me.worker(me.random.choice((10, 20, 50)), job)
    await link.read(me.now + me.between(25, 45))
    job.job_s = inf
    me.label.trouble(ACKNOWLEDGES_NOTHING)
    await link.read(me.end)


@kind("over-subscribed worker", protocol="amqp")
async def over_subscribed(me: Actor) -> None:
    per_s = me.between(8, 15)
    me.feed(JOB_BYTES * per_s * me.between(2, 3), JOB_BYTES)
    link = await me.worker(10, Job(1 / per_s))
    me.label.trouble(OVER_SUBSCRIPTION)
    await link.read(me.end)
