"""nats-server."""

from __future__ import annotations

from collections.abc import Sequence

from bench.peers.peer import Instance, Peer
from bench.wires.nats import Nats


class NatsServer(Peer):
    name, title, program = "nats", "NATS", "nats-server"
    install = "apt-get install -y nats-server"
    wire = Nats()
    config = """
host: 127.0.0.1
port: {port}
"""
    why: Sequence[str] = (
        "Core NATS as it comes. Who has more than max_pending (64 MB) waiting, or takes nothing for write_deadline "
        "(10 s), is a slow consumer and disconnected.",
    )

    def command(self, instance: Instance) -> list[str]:
        return [self.find() or self.program, "--config", str(instance.folder / self.config_name)]
