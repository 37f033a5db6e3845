"""One measurement: one publisher, healthy subscribers, and some that are stuck; as fast as it goes, or at a pace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from bench.driver import publisher, stuck, subscribers
from bench.driver.worker import Worker
from bench.errors import PeerFailed
from bench.peers.peer import Running
from bench.wires.wire import Levels, measure

LOOK_S = 0.2
STUCK_LOOK_S = 0.5
PATIENCE_S = 60.0
READ_S = 20.0
WARM_UP_SUBSCRIBERS = 10
FILL_BYTES, FILL_MESSAGES = 16 * 1024, 400
"""Messages that are more than the kernel takes in for a subscriber that does not read."""
FILL_S = 10.0
IDLE_SHARE = 0.15
TICK_SHARE = 0.01
"""The least share of CPU time that can be told from none."""


class Crowd(NamedTuple):
    """The subscribers of a measurement. ``filters`` are given to them in turn; all match the topic, and are of one
    length."""

    topic: Levels
    filters: list[Levels]
    healthy: int
    stuck: int = 0
    payload_bytes: int = 128


def flood(running: Running, crowd: Crowd, seconds: float) -> dict[str, Any]:
    """Publishes as fast as the broker takes it.

    Throughput counts the deliveries until the publisher stopped; what came after that is only drained. Lost is what was
    published for each healthy subscriber and had not been delivered when all had drained.
    """
    wire, port, topic, filters = running.peer.wire, running.port, crowd.topic, crowd.filters
    frame = measure(wire, port, topic, crowd.payload_bytes, filters[0])
    warm_up(running, seconds)
    with workers() as begin:
        reader = begin(subscribers.count, wire, port, filters, crowd.healthy, frame)
        holder = begin(stuck.hold, wire, port, filters, crowd.stuck, STUCK_LOOK_S) if crowd.stuck else None
        writer = begin(publisher.flood, wire, port, topic, crowd.payload_bytes, seconds)
        figures, got = _perform(running, crowd, reader, writer, holder, seconds)
    rate = got["at_stop"] / got["seconds"]
    return figures | {"deliveries_per_s": rate, "deliveries_per_cpu_s": rate / max(figures["broker_cpu"], TICK_SHARE)}


def pace(running: Running, crowd: Crowd, seconds: float, rate_per_s: int, warm_up_s: float) -> dict[str, Any]:
    """Publishes at a rate; measures how late the deliveries are, once warmed up."""
    wire, port, topic = running.peer.wire, running.port, crowd.topic
    frame = measure(wire, port, topic, crowd.payload_bytes)
    warm_up(running, seconds)
    seconds += warm_up_s
    with workers() as begin:
        holder = None
        if crowd.stuck:
            holder = begin(stuck.hold, wire, port, [topic], crowd.stuck, None)
            fill(running, topic)
        reader = begin(subscribers.stamps, wire, port, topic, crowd.healthy, frame, warm_up_s)
        writer = begin(publisher.paced, wire, port, topic, crowd.payload_bytes, seconds, rate_per_s)
        figures, got = _perform(running, crowd, reader, writer, holder, seconds)
    return figures | {key: value for key, value in got.items() if key.endswith("_ns")}


def warm_up(running: Running, seconds: float) -> None:
    """Warms the broker up before the clock runs, so that code is compiled and buffers have grown: on a topic and with
    subscribers of its own. Not in tiny runs."""
    if seconds < 1:
        return
    wire, port, topic = running.peer.wire, running.port, ("bench", "warm-up")
    frame = measure(wire, port, topic, 128)
    with workers() as begin:
        reader = begin(subscribers.count, wire, port, [topic], WARM_UP_SUBSCRIBERS, frame)
        writer = begin(publisher.flood, wire, port, topic, 128, running.peer.warm_up_s)
        reader.go()
        writer.go()
        sent = writer.answer(running.peer.warm_up_s + PATIENCE_S)
        reader.go(sent["published"] * WARM_UP_SUBSCRIBERS)
        reader.answer(PATIENCE_S)
    running.check()
    running.process.forget_peak()


def fill(running: Running, topic: Levels) -> None:
    """Publishes so much, before anybody healthy is there, that those who do not read are stuck: until then the kernel
    takes in some megabytes for each, and the broker serves them as it serves all others."""
    with workers() as begin:
        writer = begin(publisher.keyed, running.peer.wire, running.port, [topic], FILL_BYTES, FILL_MESSAGES, topic)
        for _ in range(2):
            writer.go()
            writer.answer(PATIENCE_S)
    wait_until_read(running)
    deadline = time.monotonic() + FILL_S
    while time.monotonic() < deadline:
        cpu_s = running.process.cpu_s()
        time.sleep(LOOK_S)
        if running.process.cpu_s() - cpu_s < IDLE_SHARE * LOOK_S:
            break
    running.check()


def wait_until_read(running: Running) -> None:
    """Waits until the broker has read all that was published, or does not read any more for its own reasons."""
    deadline = time.monotonic() + READ_S
    while stuck.unread_bytes(running.port) and time.monotonic() < deadline:
        time.sleep(LOOK_S)


@contextmanager
def workers() -> Iterator[Any]:
    """Starts workers, each when the one before is ready; ends them all."""
    with ExitStack() as stack:

        def begin(*arguments: Any) -> Worker:
            worker = Worker(*arguments)
            stack.callback(worker.close)
            worker.ready()
            return worker

        yield begin


def watch(running: Running, writer: Worker, seconds: float, look: bool) -> dict[str, Any]:
    """Waits for the publisher's end; meanwhile sees that the broker lives, and asks if it has dealt with the stuck."""
    began = time.monotonic()
    dealt: dict[str, Any] = {"dealt_s": None, "dealt": "never"}
    while not writer.has_answered(LOOK_S):
        running.check()
        if time.monotonic() - began > seconds + PATIENCE_S:
            raise PeerFailed(f"{running.peer.name} has not let the publisher end")
        if look and dealt["dealt_s"] is None and (word := running.peer.dealt_with(running)):
            dealt = {"dealt_s": time.monotonic() - began, "dealt": word}
    return dealt


def _perform(
    running: Running, crowd: Crowd, reader: Worker, writer: Worker, holder: Worker | None, seconds: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the figures that all measurements have, and what the reader says."""
    idle_bytes, cpu_s = running.process.rss_bytes(), running.process.cpu_s()
    for worker in (reader, holder, writer):
        if worker is not None:
            worker.go()
    dealt = watch(running, writer, seconds, holder is not None)
    sent = writer.answer(PATIENCE_S)
    reader.go(sent["published"] * crowd.healthy)
    cpu_s = running.process.cpu_s() - cpu_s
    got = reader.answer(PATIENCE_S)
    running.check()
    figures = {
        "published": sent["published"], "published_per_s": sent["published"] / sent["seconds"],
        "deliveries": got["deliveries"], "lost": sent["published"] * crowd.healthy - got["deliveries"],
        "disconnected": got["disconnected"], "drain_s": got["drain_s"], "drained": got["drained"],
        "idle_bytes": idle_bytes, "peak_bytes": running.process.peak_bytes(), "start_s": running.start_s,
        "broker_cpu": cpu_s / got["seconds"], "driver_cpu": (sent["cpu_s"] + got["cpu_s"]) / got["seconds"],
    }  # fmt: skip
    if holder is not None:
        holder.go("stop")
        held = holder.answer(PATIENCE_S)
        if held["gone"]:
            dealt = {"dealt_s": held["first_gone_s"], "dealt": f"{held['gone']} of {crowd.stuck} disconnected"}
        figures |= held | dealt
    return figures, got
