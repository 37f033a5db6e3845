"""Restart: a broker with many durable records is killed and started again."""

from __future__ import annotations

from bench.disk import sync_ns
from bench.driver import confirmed, recovery
from bench.driver.flood import workers
from bench.peers.peer import Peer, Running, again
from bench.wires.durable import AmqpDurable
from bench.wires.wire import Frame, Levels, measure
from bench.workloads.workload import Case, Column, Figures, Workload

WIRE = AmqpDurable("amq.topic")
"""Publishes to a queue's name and, through the exchange, to the MQTT topic's subscriptions."""
PAYLOAD_BYTES, WINDOW = 128, 1000
FILL_S, DRAIN_S = 600.0, 600.0


def topic(number: int) -> Levels:
    return ("restart", f"t{number:02d}")


MEASURED = ("restart", "m00")
"""A topic as long as any other."""


class Restart(Workload):
    name = "restart"
    about = (
        "1,000,000 persistent records of 128 B in 10 durable queues; with 1,000 MQTT sessions away, of QoS 1, 100 to "
        "each queue's topic, and without; or with 100,000 that came, subscribed, unsubscribed and ended since; all "
        "of the broker's processes are killed, and it is started again. Drained then: one session per topic, one queue"
    )
    columns = (
        Column("listens after", "listen_s", "s", "low"), Column("records back", "records", "count"),
        Column("lost", "lost", "count"), Column("twice", "twice", "count"),
        Column("peak memory", "peak_bytes", "bytes", "low"), Column("counted in queues", "counted", "count"),
        Column("empty start s", "start_s", "s", "low"), Column("filled at /s", "confirmed_per_s", "rate"),
        Column("drained s", "drain_s", "s"), Column("sync here", "sync_ns", "ns"),
    )  # fmt: skip
    unsuited = "nothing that outlives it"

    def cases(self, tiny: bool) -> list[Case]:
        sizes = {"topics": 2, "each": 500} if tiny else {"topics": 10, "each": 100_000}
        number, churned = (6, 10) if tiny else (1000, 100_000)
        name = f"{sizes['topics']} queues"
        return [
            Case(name, sizes | {"sessions": 0, "churned": 0}),
            Case(f"{name}, {number:,} sessions", sizes | {"sessions": number, "churned": 0}),
            Case(f"{name}, {churned:,} sessions come and gone", sizes | {"sessions": 0, "churned": churned}),
        ]

    def peer(self, peer: Peer, case: Case) -> Peer:
        return peer.durable()

    def suits(self, peer: Peer, case: Case) -> bool:
        """Peers with MQTT and AMQP at once have the cases with sessions."""
        by_mqtt = bool(case.values["sessions"] or case.values["churned"])
        return peer.durable_wire is not None and (peer.queue_wire is None) == by_mqtt

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        """Measures a restart. ``records``: different ones that were drained. ``counted``: the broker's own count."""
        topics = [topic(number) for number in range(case.values["topics"])]
        names = [f"away-{number:04d}" for number in range(case.values["sessions"])]
        sync, instance, each = sync_ns(running.instance.folder), running.instance, case.values["each"]
        port = running.peer.durable_port(instance)
        frame = measure(WIRE, port, MEASURED, PAYLOAD_BYTES)
        with workers() as begin:
            if names:
                leaving = begin(recovery.leave, instance.port, names, topics)
                leaving.go()
                leaving.answer(FILL_S)
            filling = begin(confirmed.fill, WIRE, port, topics, PAYLOAD_BYTES, each, WINDOW)
            filling.go()
            filled = filling.answer(FILL_S)
            if case.values["churned"]:
                churning = begin(recovery.churn, instance.port, case.values["churned"])
                churning.go()
                churning.answer(FILL_S)
        running.check()
        with again(running) as restarted:
            peak_bytes = restarted.process.peak_bytes()
            counted = _count(port, topics)
            drained = _drain(restarted, topics, names, frame, each)
            restarted.check()
        return drained | {
            "listen_s": restarted.start_s, "peak_bytes": peak_bytes, "counted": counted, "start_s": running.start_s,
            "published": filled["confirmed"], "confirmed_per_s": filled["confirmed"] / filled["seconds"],
            "sync_ns": sync,
        }  # fmt: skip


def _count(port: int, topics: list[Levels]) -> int:
    sock = WIRE.open(port, "count")
    try:
        return sum(WIRE.count(sock, levels) for levels in topics)
    finally:
        sock.close()


def _drain(running: Running, topics: list[Levels], names: list[str], frame: Frame, each: int) -> Figures:
    """Drains the first session of each topic, and the last topic's queue."""
    instance = running.instance
    with workers() as begin:
        found = []
        if names:
            reader = begin(recovery.sessions, instance.port, names[: len(topics)], each)
            reader.go()
            found.append(reader.answer(DRAIN_S))
        reader = begin(recovery.queue, WIRE, running.peer.durable_port(instance), topics[-1], frame, each)
        reader.go()
        found.append(reader.answer(DRAIN_S))
    wanted = each * (1 + (len(topics) if names else 0))
    records, deliveries = (sum(one[key] for one in found) for key in ("records", "deliveries"))
    return {
        "records": records, "deliveries": deliveries, "lost": wanted - records, "twice": deliveries - records,
        "drain_s": sum(one["seconds"] for one in found),
    }  # fmt: skip
