"""Work queue: consumers that share one queue and acknowledge what they get."""

from __future__ import annotations

import itertools
from typing import Any

from bench.driver import consumers
from bench.driver.flood import PATIENCE_S, TICK_SHARE, watch, workers
from bench.peers.peer import Peer, Running
from bench.wires.mqtt import Mqtt, MqttAcknowledged, MqttExactlyOnce
from bench.wires.wire import Frame, Levels, NamedQueueWire, QueueWire, measure
from bench.workloads.workload import Case, Column, Figures, Workload

NUMBERS = itertools.count()
PAYLOAD_BYTES = 128


class Workqueue(Workload):
    name = "workqueue"
    about = (
        "1 publisher without confirms, 4 consumers of one queue that is not durable, prefetch 100, each message "
        "acknowledged on its own; read as soon as something is there, and every millisecond; 128 B, at most 2,000 "
        "published and not yet delivered"
    )
    columns = (
        Column("acknowledged/s", "acknowledged_per_s", "rate", "high"), Column("lost", "lost", "count"),
        Column("cut off", "disconnected", "count"), Column("peak memory", "peak_bytes", "bytes", "low"),
        Column("published/s", "published_per_s", "rate"), Column("drained s", "drain_s", "s"),
        Column("per CPU s", "acknowledged_per_cpu_s", "rate"),
        Column("CPU broker", "broker_cpu", "share"), Column("CPU driver", "driver_cpu", "share"),
    )  # fmt: skip
    unsuited = "no queue of this kind here"

    def cases(self, tiny: bool) -> list[Case]:
        """Consumers that rest between reads take more at once, and the broker has the cores; RabbitMQ is faster so."""
        number = 2 if tiny else 4
        return [
            Case(f"{number} consumers, {often}", {"consumers": number, "pause_s": pause_s})
            for often, pause_s in (("at once", 0.0), ("every 1 ms", 0.001))
        ]

    def suits(self, peer: Peer, case: Case) -> bool:
        return self.wire(peer) is not None

    def wire(self, peer: Peer) -> NamedQueueWire | QueueWire | None:
        """Returns what consumers and publisher speak; None where the peer has nothing of the kind."""
        return peer.queue_wire

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        """An acknowledgement counts once it is sent: the broker delivers no more than a prefetch beyond those it has
        taken. ``lost`` is what was published and had not been delivered when all had drained."""
        wire = self.wire(running.peer)
        assert wire is not None
        frame = measure(wire, running.port, unused_name(), PAYLOAD_BYTES)
        if case.values.get("qos") == MqttExactlyOnce.qos:
            wire = MqttExactlyOnce()  # whose frames are of the same size
        if seconds >= 1:
            _work(running, wire, unused_name(), case, frame, running.peer.warm_up_s)
            running.process.forget_peak()
        figures = _work(running, wire, unused_name(), case, frame, seconds)
        rate = figures["acknowledged_per_s"]
        return figures | {"acknowledged_per_cpu_s": rate / max(figures["broker_cpu"], TICK_SHARE)}


class Acknowledged(Workqueue):
    name = "acknowledged"
    about = (
        "MQTT at QoS 1 and 2: 1 publisher with at most 100 messages that the broker has not acknowledged, to 1 and 50 "
        "subscribers that acknowledge each delivery; 128 B, at most 2,000 published and not yet delivered"
    )
    unsuited = "no MQTT"

    def cases(self, tiny: bool) -> list[Case]:
        return [
            Case(f"QoS {qos}, 1 to {number}", {"consumers": number, "pause_s": 0.0, "qos": qos})
            for qos in (1, 2) for number in ((1, 2) if tiny else (1, 50))
        ]  # fmt: skip

    def wire(self, peer: Peer) -> NamedQueueWire | QueueWire | None:
        return MqttAcknowledged() if type(peer.wire) is Mqtt else None


def unused_name() -> Levels:
    """Returns the name of a queue that nobody has used: what a measurement leaves in one is not the next one's. All are
    of one length, as a name is part of a delivery."""
    return "bench", f"queue-{next(NUMBERS):06d}"


def _work(
    running: Running, wire: NamedQueueWire | QueueWire, queue: Levels, case: Case, frame: Frame, seconds: float
) -> Figures:
    """Runs the consumers and their publisher for so long."""
    port, number, pause_s = running.port, case.values["consumers"], case.values["pause_s"]
    copies = number if isinstance(wire, MqttAcknowledged) else 1
    with workers() as begin:
        worker = begin(consumers.work, wire, port, queue, number, PAYLOAD_BYTES, frame, seconds, pause_s)
        idle_bytes, cpu_s = running.process.rss_bytes(), running.process.cpu_s()
        worker.go()
        watch(running, worker, seconds, False)
        said: dict[str, Any] = worker.answer(PATIENCE_S)
        cpu_s = running.process.cpu_s() - cpu_s
        got: dict[str, Any] = worker.answer(PATIENCE_S)
        running.check()
    took_s = said["seconds"]
    return got | {
        "acknowledged_per_s": said["delivered_at_stop"] / took_s, "lost": got["published"] * copies - got["deliveries"],
        "published_per_s": said["published_at_stop"] / took_s, "idle_bytes": idle_bytes,
        "peak_bytes": running.process.peak_bytes(), "start_s": running.start_s, "broker_cpu": cpu_s / took_s,
        "driver_cpu": said["cpu_s"] / took_s,
    }  # fmt: skip
