"""A broker: where its program is, how it is configured for the bench, and one that runs."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bench.errors import BenchError, PeerFailed
from bench.running_process import RunningProcess
from bench.wires.durable import AmqpDurable
from bench.wires.wire import HOST, NamedQueueWire, QueueWire, Wire

START_S = 60.0
END_S = 0.5
PORTS = range(15_000, 32_000)
FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Folders of programs; Debian keeps servers in some that a user's PATH does not have."""


class Instance(NamedTuple):
    """One broker's folder, its port, and more ports that it may need."""

    folder: Path
    port: int
    second_port: int
    third_port: int
    fourth_port: int


class Peer(ABC):
    """One broker of the comparison. ``config`` is a whole file with the fields of ``Instance`` in braces."""

    name: str
    title: str
    program: str
    install: str
    """The command that installs it."""
    wire: Wire
    conflating_wire: Wire | None = None
    """A wire with which a subscriber can ask for the latest record per key."""
    queue_wire: QueueWire | NamedQueueWire | None = None
    """A wire with which consumers can share a queue and acknowledge."""
    durable_wire: AmqpDurable | None = None
    """A wire with which queues and messages can outlive the broker, confirmed to publishers."""
    config_name = "bench.conf"
    config = ""
    why: Sequence[str] = ()
    """A reason for each setting that is not the default."""
    version_arguments: Sequence[str] = ("--version",)
    warm_up_s = 0.5
    """The time for which it is warmed up before a measurement."""
    inside = ""
    """The carrier of its protocol: tls, websocket. Such a peer is left out of a session that names none."""
    only_named = False
    """Whether it is left out of such a session for another reason: it differs only in how its clients speak."""
    is_limit = False
    is_ours = False

    def find(self) -> str | None:
        """Returns the program's path, None when it is not installed."""
        return shutil.which(self.program) or shutil.which(self.program, path=FOLDERS)

    def version(self) -> str:
        """Returns the version, as the program says it."""
        done = subprocess.run(
            [self.find() or self.program, *self.version_arguments],
            capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        found = re.search(r"\d+\.\d+(\.\d+)*", done.stdout + done.stderr)
        return found[0] if found else "unknown"

    def tuned(self, workload: str) -> Peer:
        """Returns the peer with the settings that its documentation advises for such a workload."""
        return self

    def durable(self, *, journal: bool = True) -> Peer:
        """Returns the peer as set up for ``durable_wire``; without a ``journal``, so that nothing is kept."""
        return self

    def compressing(self) -> Peer | None:
        """Returns the peer with messages compressed; None: it cannot do that."""
        return None

    def durable_port(self, instance: Instance) -> int:
        """Returns the port on which ``durable_wire`` is spoken."""
        return instance.port

    @abstractmethod
    def command(self, instance: Instance) -> list[str]:
        """Returns the command that starts it in the foreground."""

    def env(self, instance: Instance) -> Mapping[str, str] | None:
        return None

    def prepare(self, instance: Instance) -> None:
        """Writes the file that it reads when it starts."""
        if self.config:
            (instance.folder / self.config_name).write_text(self.config.format(**instance._asdict()))

    def settings(self) -> str:
        """Returns the configuration in full, and the command."""
        instance = Instance(Path("FOLDER"), 1, 2, 3, 4)
        command = " ".join("PORT" if word == "1" else word for word in self.command(instance))
        parts = [f"$ {command}"]
        names = {
            "folder": "FOLDER", "port": "PORT", "second_port": "PORT2", "third_port": "PORT3", "fourth_port": "PORT4",
        }  # fmt: skip
        if self.config:
            parts.append(self.config.format(**names).strip())
        if (durable := self.durable().config) != self.config:
            parts += ["And for what is durable:", durable.format(**names).strip()]
        return "\n\n".join(parts)

    def dealt_with(self, running: Running) -> str | None:
        """Says what the broker has done about stuck subscribers, in words; None: nothing. Asked now and then."""
        return None


class Running:
    """A peer that has answered its first handshake."""

    def __init__(self, peer: Peer, instance: Instance, process: RunningProcess, start_s: float) -> None:
        self.peer, self.instance, self.port, self.start_s = peer, instance, instance.port, start_s
        self.process = process

    def check(self) -> None:
        """Raises PeerFailed when it has died."""
        if self.process.ended:
            raise PeerFailed(f"{self.peer.name} died: {last_words(self.instance.folder / 'log')}")


@contextmanager
def again(running: Running) -> Iterator[Running]:
    """Kills all processes of the peer and starts it again: same folder, same
    ports. ``start_s`` is from then until its first answer."""
    for pid in running.process.pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    running.process.stop()
    peer, instance = running.peer, running.instance
    began = time.monotonic()
    with RunningProcess(peer.command(instance), instance.folder / "log", peer.env(instance)) as process:
        wait_until_answers(peer, instance, process)
        yield Running(peer, instance, process, time.monotonic() - began)


@contextmanager
def start(peer: Peer) -> Iterator[Running]:
    """Runs the peer on free ports of the loopback, its data in a temporary folder; ends it after the block."""
    with tempfile.TemporaryDirectory(prefix=f"bench-{peer.name}-", ignore_cleanup_errors=True) as folder:
        instance = Instance(Path(folder), *free_ports(4))
        peer.prepare(instance)
        began = time.monotonic()
        with RunningProcess(peer.command(instance), instance.folder / "log", peer.env(instance)) as process:
            wait_until_answers(peer, instance, process)
            try:
                yield Running(peer, instance, process, time.monotonic() - began)
            except (BenchError, OSError):
                if ends(process):
                    raise PeerFailed(f"{peer.name} died: {last_words(instance.folder / 'log')}") from None
                raise


def wait_until_answers(peer: Peer, instance: Instance, process: RunningProcess) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            peer.wire.open(instance.port, "first").close()
            return
        except (OSError, PeerFailed) as error:
            if process.ended:
                raise PeerFailed(f"{peer.name} did not start: {last_words(instance.folder / 'log')}") from None
            if time.monotonic() > deadline:
                raise PeerFailed(f"{peer.name} did not answer within {START_S:g} s: {error}") from None
            time.sleep(0.005)


def ends(process: RunningProcess) -> bool:
    """Whether it has ended, or does within a moment: its connection was closed."""
    deadline = time.monotonic() + END_S
    while not (ended := process.ended) and time.monotonic() < deadline:
        time.sleep(0.02)
    return ended


def free_ports(count: int) -> list[int]:
    """Returns ports that are free now. Nothing holds them until the peer does, so they are none of those that kernels
    give to clients, of which there may be thousands at any time."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with suppress(OSError), socket.create_server((HOST, port)):
            found.append(port)
        if len(found) == count:
            return found
    raise BenchError(f"all ports from {PORTS.start} to {PORTS.stop - 1} are in use")


def last_words(log: Path) -> str:
    """Returns the last line of a log that says something."""
    text = log.read_text(errors="replace").strip() if log.exists() else ""
    return text.splitlines()[-1][:300] if text else "without a word"
