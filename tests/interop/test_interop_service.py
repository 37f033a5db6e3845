"""The broker as a service of systemd: what it says on the notify socket, which the tests hold as a manager does, and
the sockets that it is handed. The units that come with it are read by systemd's own checks, where it is installed."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from bench.wires.packets import connect
from tests.interop.conftest import BrokerFactory
from tests.interop.raw import Raw
from tests.interop.test_interop_plugins import install
from tests.interop.waiting import PATIENCE_S, received, until

from headway.core.base import ConfigError
from headway.server.systemd import NotifySocket, PassedSockets
from headway.wire.mqtt.packets import ConnAck

UNITS = Path(__file__).parents[2] / "packaging" / "systemd"
SILENCE_S = 3.0
HANGS = """
class Hangs:
    unit = "count"
    def measure(self, look, now):
        while True:
            pass
"""
RULE = '[[policy]]\nname = "p"\n[[policy.rule]]\nwhen = { hangs = 1 }\nthen = "notify"\n'
PROJECT = """
[project]
name = "headway-hangs"
version = "1"
[project.entry-points."headway.meters"]
hangs = "headway_hangs:Hangs"
"""


class Manager:
    """The notify socket of a service manager."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def environment(self, **more: str) -> Callable[[], None]:
        def put() -> None:
            os.environ.update({"NOTIFY_SOCKET": self.address, **more})

        return put

    def next(self, field: str, seconds: float = PATIENCE_S) -> dict[str, str]:
        """The next message with this field; those before it are passed over."""
        while (data := received(self.socket, seconds)) is not None:
            told = dict(line.split("=", 1) for line in data.decode().split("\n"))
            if field in told:
                return told
        raise AssertionError(f"nothing tells of {field}")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify"))
    with closing(made.socket):
        yield made


def test_ready_reload_watchdog_and_stop(start: BrokerFactory, manager: Manager) -> None:
    broker = start(before=manager.environment(WATCHDOG_USEC="300000"))
    first = manager.next("READY")
    assert first["READY"] == "1"
    assert first["STATUS"] == "ready; connections: 0, consumers behind: 0"
    for _ in range(3):
        assert manager.next("WATCHDOG")["WATCHDOG"] == "1"
    with Raw(broker.port):
        assert "connections: 1" in manager.next("STATUS")["STATUS"]
    broker.signal(signal.SIGHUP)
    assert int(manager.next("RELOADING")["MONOTONIC_USEC"]) > 0
    assert manager.next("READY")["STATUS"].startswith("ready")
    good = broker.config.read_text()
    broker.config.write_text("[server]\nnonsense = 1\n")
    broker.signal(signal.SIGHUP)
    assert "the config was not read" in manager.next("READY")["STATUS"]
    broker.config.write_text(good)
    broker.signal(signal.SIGHUP)
    manager.next("RELOADING")
    assert "the config" not in manager.next("READY")["STATUS"]
    broker.signal(signal.SIGTERM)
    assert manager.next("STOPPING")["STOPPING"] == "1"
    broker.stop()


def test_a_loop_that_hangs_tells_the_watchdog_nothing_and_its_end_shows_where(
    start: BrokerFactory, tmp_path: Path
) -> None:
    project, installed = tmp_path / "project", tmp_path / "installed"
    project.mkdir()
    installed.mkdir()
    (project / "headway_hangs.py").write_text(HANGS)
    (project / "pyproject.toml").write_text(PROJECT)
    path = str(install(installed, project))
    manager = Manager(f"@headway-{os.getpid()}-{tmp_path.name}")
    with closing(manager.socket):
        broker = start(RULE, before=manager.environment(WATCHDOG_USEC="300000", PYTHONPATH=path))
        manager.next("WATCHDOG")
        with Raw(broker.port, "slow", receive_buffer=4096) as slow, Raw(broker.port) as writer:
            slow.subscribed("a")
            writer.publish_all("a", [b"x" * 10_000] * 300)
            until(lambda: received(manager.socket, SILENCE_S) is None)
            assert broker.alive
            broker.signal(signal.SIGABRT)  # as systemd does, when WatchdogSec= is over
            assert broker.wait() == -signal.SIGABRT
    assert "headway_hangs.py" in broker.log.read_text()


def test_a_manager_that_is_gone_or_does_not_read_holds_nobody_up(
    manager: Manager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for address in (manager.address, str(tmp_path / "nobody")):
        caplog.clear()
        notify = NotifySocket(address)
        for _ in range(2000):
            notify.tell("READY=1", "STATUS=" + "x" * 1000)
        notify.close()
        assert caplog.text.count("the service manager could not be told READY=1") == 1


def test_what_a_manager_says_to_somebody_else_is_not_taken() -> None:
    environment = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1", "LISTEN_FDS": "9",
                   "LISTEN_PID": "1", "LISTEN_FDNAMES": "a:b"}  # fmt: skip
    notify = NotifySocket.of_environment(environment)
    assert notify.watchdog_s is None
    notify.close()
    PassedSockets.of_environment(environment).check_all_taken()
    assert environment == {}
    for wrong in ({"NOTIFY_SOCKET": "vsock:2:1"}, {"WATCHDOG_USEC": "x"}, {}):
        NotifySocket.of_environment(dict(wrong)).tell("READY=1")


def test_a_senseless_number_of_sockets_is_a_plain_error() -> None:
    with pytest.raises(ConfigError, match="LISTEN_FDS=99999999999: at most 1000 sockets"):
        PassedSockets.of_environment({"LISTEN_FDS": "99999999999", "LISTEN_PID": str(os.getpid())})


# -- socket activation -----------------------------------------------------------------------------------------------


class Activated:
    """A broker that is begun with open sockets, as systemd begins it."""

    def __init__(self, folder: Path, sockets: dict[str, socket.socket], config: str) -> None:
        self.log = folder / "log"
        ready = folder / "ready.json"
        ready.unlink(missing_ok=True)
        file = folder / "headway.toml"
        file.write_text(config)
        moves = " ".join(f"{3 + at}<&{one.fileno()}" for at, one in enumerate(sockets.values()))
        script = f'exec {moves}; LISTEN_PID=$$; export LISTEN_PID; exec "$@"'
        more = {"LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": ":".join(sockets)}
        command = ["bash", "-c", script, "bash", sys.executable, "-m", "headway", "serve", "-c", str(file),
                   "--ready-file", str(ready)]  # fmt: skip
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | more,
                                            pass_fds=[one.fileno() for one in sockets.values()])  # fmt: skip
        until(lambda: ready.exists() or self.process.poll() is not None)

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


def listening() -> socket.socket:
    """A socket whose number is above those to which the shell moves them."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return socket.socket(fileno=fcntl.fcntl(sock.fileno(), fcntl.F_DUPFD, 50))


CONFIG = """
[server]
admin = "http://127.0.0.1:2"
[listeners.main]
url = "mqtt://127.0.0.1:1"
[listeners.other]
url = "mqtt://127.0.0.1:{port}"
[pool]
disk = 0
"""


def test_sockets_go_to_the_listeners_that_they_name_and_outlive_the_broker(tmp_path: Path) -> None:
    with closing(listening()) as main, closing(listening()) as other, closing(listening()) as admin:
        config = CONFIG.format(port=other.getsockname()[1])
        sockets = {"main": main, "headway.socket": other, "admin": admin}
        broker = Activated(tmp_path, sockets, config)
        try:
            for sock in (main, other):
                with Raw(sock.getsockname()[1]) as client:
                    client.subscribed("a")
            with socket.create_connection(admin.getsockname(), timeout=PATIENCE_S) as asking:
                asking.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b"200 OK" in asking.recv(1000)
        finally:
            assert broker.end() == 0, broker.log.read_text()
        with Raw(main.getsockname()[1], connect=False) as early:  # nobody is there, and nobody is refused
            broker = Activated(tmp_path, sockets, config)
            try:
                early.send(connect("early"))
                assert early.expect(ConnAck).code == 0
            finally:
                assert broker.end() == 0, broker.log.read_text()


def test_a_socket_that_is_of_no_listener_is_a_mistake(tmp_path: Path) -> None:
    with closing(listening()) as sock:
        config = '[server]\nadmin = false\n[listeners.main]\nurl = "mqtt://127.0.0.1:0"\n[pool]\ndisk = 0\n'
        broker = Activated(tmp_path, {"mian": sock}, config)
        assert broker.end() == 2
    assert "the socket 'mian' of the service manager" in broker.log.read_text()
    assert "Traceback" not in broker.log.read_text()


# -- the units ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_units_and_finds_them_shut_off(tmp_path: Path) -> None:
    text = (UNITS / "headway.service").read_text()
    program = re.search(r"^ExecStart=(\S+)", text, re.MULTILINE)
    assert program
    (tmp_path / "headway.service").write_text(text.replace(program[1], shutil.which("true") or ""))
    shutil.copy(UNITS / "headway-mqtt.socket", tmp_path)
    units = [str(tmp_path / name) for name in ("headway.service", "headway-mqtt.socket")]
    verified = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=20", units[0]], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert rated.returncode == 0, rated.stdout
