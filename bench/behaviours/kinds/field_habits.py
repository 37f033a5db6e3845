"""Consumers with habits of the field that stop, or that share their work: what was usual says little about the end."""

from __future__ import annotations

import asyncio

from bench.behaviours.consumers.actor import Actor, kind
from bench.behaviours.consumers.labels import NETWORK, OVER_SUBSCRIPTION, PRODUCER_BURST, READS_NOTHING
from bench.behaviours.consumers.links import Job
from bench.behaviours.kinds.field_rhythms import on_wire
from bench.behaviours.kinds.workers import JOB_BYTES

GROUP = 3
SLOW = (6e3, 12e3, 25e3)


@kind("field: subscribes before it is ready")
async def early(me: Actor) -> None:
    """A program that connects first, and loads its data for nine to eleven seconds."""
    me.feed(me.between(60e3, 150e3))
    link = await me.mqtt()
    await me.sleep(me.between(9, 11))
    await link.read(me.end)


@kind("field: a slow reader stops", count=3, stuck=True)
async def slow_reader(me: Actor) -> None:
    """A client that reads 6 to 25 kB a second, worked off a snapshot, and stops."""
    takes = SLOW[int(me.name.rsplit("-", 1)[1]) % len(SLOW)]
    feed = me.feed(takes * 0.6, 500)
    link = await me.mqtt()
    feed.burst(int((650e3 + takes * 20) / 500))
    await link.read(me.now + me.between(60, 80), takes)
    me.label.trouble(READS_NOTHING)
    await me.sleep(me.end)


@kind("field: a modem hangs up", count=2, stuck=True)
async def hangs_up(me: Actor) -> None:
    takes = me.between(8e3, 30e3)
    feed = me.feed(takes * 0.6, 500)
    link = await me.mqtt()
    feed.burst(int((650e3 + takes * 20) / 500))
    await link.read(me.now + me.between(50, 70), takes)
    link.lose(1.0)
    me.label.trouble(NETWORK)
    await me.sleep(me.end)


@kind("field: reads once in 5 to 9 s, then stops", count=2, stuck=True)
async def lumps(me: Actor) -> None:
    me.feed(me.between(100e3, 200e3))
    link = await me.mqtt()
    every_s = me.between(5, 9)
    for _ in range(8):
        await link.read(me.now + 0.5)
        me.label.spells.clear()
        me.label.trouble(READS_NOTHING)
        await me.sleep(every_s)
    await me.sleep(me.end)


@kind("field: one of a group reads nothing (QoS 1)", stuck=True)
async def of_a_group(me: Actor) -> None:
    """Three of a group: one holds its window for good, while the others take the rest."""
    feed = me.feed(30e3, 500, qos=1)
    names = [me.name, *(f"{me.name}-{number}" for number in range(1, GROUP))]
    for name in names[1:]:
        me.labelled(name, kind="field: the others of the group", stuck=False)
    links = [
        await me.mqtt(qos=1, window=20, client=name, filters=(f"$share/{me.name}/{me.topic}",)) for name in names
    ]
    others = asyncio.gather(*(link.read(me.end) for link in links[1:]))
    await links[0].read(me.now + me.between(20, 35))
    me.label.trouble(READS_NOTHING)
    while me.now < me.end:
        await me.sleep(me.between(20, 30))
        feed.burst(200)
    await others


@kind("field: a dump on a queue that is too big", count=2, protocol="amqp")
async def dump(me: Actor) -> None:
    """A quarter of an hour of work at once, for a worker with time to spare."""
    job_s, job = me.between(0.05, 0.2), Job()
    job.job_s = job_s
    feed = me.feed(JOB_BYTES / job_s * 0.5, JOB_BYTES)
    link = await me.worker(me.random.choice((5, 20, 50)), job)
    await link.read(me.now + me.between(30, 45))
    feed.burst(int(0.5 * 900 / job_s * me.between(1.5, 2)))
    me.label.trouble(PRODUCER_BURST)
    await link.read(me.end)


@kind("field: over-subscribed, and its feed rests for 3 s of 10", count=2)
async def with_rests(me: Actor) -> None:
    takes = me.between(70e3, 140e3)
    feed = me.feed(0, 1000)
    link = await me.mqtt()
    me.label.trouble(OVER_SUBSCRIPTION)
    while me.now < me.end:
        feed.rate = takes * 2.6
        await link.read(me.now + 7, takes)
        feed.rate = 0
        await link.read(me.now + 3, takes)


@kind("field: works off an hour's records, fed in lumps")
async def backlog(me: Actor) -> None:
    """A reader that is far behind, and gets current within two minutes."""
    takes = me.between(100e3, 160e3)
    feed = me.feed(0, 1000)
    link = await me.mqtt()
    feed.burst(int((650e3 + takes * 0.45 * 90) / 1000))
    while me.now < me.end:
        feed.burst(int(takes * 0.5 * 4 / 1000))
        await link.read(me.now + 4, on_wire(takes, 1000, me.topic))
