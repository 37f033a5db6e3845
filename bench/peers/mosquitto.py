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
    )

    def tuned(self, workload: str) -> Peer:
        if workload != "latency":
            return self
        quick = Mosquitto()
        quick.config = self.config.replace("set_tcp_nodelay false", "set_tcp_nodelay true")
        return quick

    def command(self, instance: Instance) -> list[str]:
        return [self.find() or self.program, "-c", str(instance.folder / self.config_name)]
