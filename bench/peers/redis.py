"""redis-server, publish and subscribe."""

from __future__ import annotations

from bench.peers.peer import Instance, Peer
from bench.wires.resp import Resp


class Redis(Peer):
    name, title, program = "redis", "Redis", "redis-server"
    install = "apt-get install -y redis-server"
    wire = Resp()
    config = """
bind 127.0.0.1
port {port}
dir {folder}
daemonize no
save ""
appendonly no
maxclients 20000
client-output-buffer-limit pubsub 32mb 8mb 60
"""
    why = (
        'save "", appendonly no: nothing is kept on disk; what is published is not kept anyway.',
        "maxclients: 10,000 idle connections and the driver's own.",
        "client-output-buffer-limit: the default, written out. Who has more than 32 MB waiting, or 8 MB for 60 s, is "
        "disconnected.",
        "io-threads stays at 1: its own file advises threads from four cores on.",
    )

    def command(self, instance: Instance) -> list[str]:
        return [self.find() or self.program, str(instance.folder / self.config_name)]
