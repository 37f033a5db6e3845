"""mosquitto."""

from __future__ import annotations

from collections.abc import Sequence

from bench.peers.peer import Instance, Peer
from bench.wires.mqtt import Mqtt


class Mosquitto(Peer):
    name, title, program = "mosquitto", "mosquitto", "mosquitto"
    install = "apt-get install -y mosquitto"
    wire = Mqtt()
    version_arguments = ("-h",)
    config = """
listener {port} 127.0.0.1
allow_anonymous true
persistence false
sys_interval 0
log_type error
log_type warning
set_tcp_nodelay false
"""
    why: Sequence[str] = (
        "persistence false, sys_interval 0, log_type: nothing that is not asked for here is done.",
        "set_tcp_nodelay: true for the latency workload, as its manual advises; for all others false, the default: "
        "fan-out is faster so.",
        "max_queued_messages, max_inflight_messages: no limits where each message is acknowledged, or it drops some.",
    )

    def tuned(self, workload: str) -> Peer:
        tuned = Mosquitto()
        if workload == "latency":
            tuned.config = self.config.replace("set_tcp_nodelay false", "set_tcp_nodelay true")
        if workload == "acknowledged":
            tuned.config += "max_queued_messages 0\nmax_inflight_messages 0\n"
        return tuned

    def command(self, instance: Instance) -> list[str]:
        return [self.find() or self.program, "-c", str(instance.folder / self.config_name)]
