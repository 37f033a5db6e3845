"""rabbitmq-server, with an Erlang port mapper of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.peer import FOLDERS, Instance, Peer
from bench.wires.amqp import Amqp, AmqpQueue
from bench.wires.durable import AmqpDurable
from bench.wires.wire import Wire

BIN = Path("/usr/lib/rabbitmq/bin")
"""The programs that the wrapper in /usr/sbin runs, after it has become the user rabbitmq."""
START = 'epmd -address 127.0.0.1 -port "$ERL_EPMD_PORT" & exec "$0"'


class Rabbitmq(Peer):
    name, title, program = "rabbitmq", "RabbitMQ", "rabbitmq-server"
    install = "apt-get install -y rabbitmq-server"
    wire: Wire = Amqp()
    queue_wire: AmqpQueue | None = AmqpQueue()
    durable_wire: AmqpDurable | None = AmqpDurable()
    config_name = "rabbitmq.conf"
    config = """
listeners.tcp.1 = 127.0.0.1:{port}
tcp_listen_options.nodelay = true
log.console.level = error
"""
    why: Sequence[str] = (
        "Transient messages, exclusive auto-delete queues, no acknowledgements, no confirms: nothing waits for a disk.",
        "The work queue: transient messages in a queue that is not durable, of its default type (classic).",
        "persistent and restart: persistent messages in durable queues of the default type (classic), on the same file "
        "system as Headway's journal.",
        "nodelay: as in its own example. No plugins. Memory high watermark, credit flow and schedulers as they come.",
        "The node, its distribution port and epmd listen on 127.0.0.1 only.",
    )

    def find(self) -> str | None:
        return str(BIN / self.program) if (BIN / self.program).exists() and shutil.which("epmd", path=FOLDERS) else None

    def version(self) -> str:
        """Returns the release's version, from its folder's name without starting a node, and Erlang's."""
        release = next(BIN.parent.glob("lib/rabbitmq_server-*"), None)
        show = "io:put_chars(erlang:system_info(otp_release)), halt()."
        erlang = subprocess.run(["erl", "-noshell", "-eval", show], capture_output=True, text=True, timeout=60)
        return f"{release.name.rpartition('-')[2] if release else 'unknown'} (Erlang {erlang.stdout.strip()})"

    def command(self, instance: Instance) -> list[str]:
        return ["/bin/sh", "-c", START, self.find() or self.program]

    def env(self, instance: Instance) -> Mapping[str, str] | None:
        folder = instance.folder
        return {
            "PATH": FOLDERS, "HOME": str(folder), "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(instance.second_port), "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "bench@localhost", "RABBITMQ_DIST_PORT": str(instance.third_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONFIG_FILE": str(folder / self.config_name), "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"), "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOGS": "-", "RABBITMQ_LOG_BASE": str(folder),
        }  # fmt: skip
