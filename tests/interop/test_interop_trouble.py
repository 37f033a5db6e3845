"""headway trouble against Headway, in each protocol, and against mosquitto, with real sockets."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.forked import Forked
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until
from tests.passwords import cheap_hash
from tests.server.canned import Ran

from headway.cli import main

LISTENERS = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[listeners.amqp]
url = "amqp://127.0.0.1:0"
[listeners.ws]
url = "ws://127.0.0.1:0"
"""
CUTS = LISTENERS + """
[[policy]]
name = "strict"
topics = ["headway-trouble/#"]

[[policy.rule]]
when = { lag_records = 50 }
then = "disconnect"
"""
SHORT = ("--calm", "300ms", "--for", "1s", "--rate", "400", "--controls", "3")
EXIT_CODES = {False: 0, True: 1, None: 2}
WITH_THE_ANSWER = 1
"""Records that a client may get with the answer to its subscription."""
MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@pytest.fixture(scope="module")
def headway(start: BrokerFactory) -> BrokerProcess:
    return start(LISTENERS)


def trouble(address: str, folder: Path, *more: str) -> tuple[dict[str, Any], str]:
    """Returns what was found, and what was printed. The exit code says what the verdict says."""
    told = folder / "found.json"
    ran = Ran("trouble", address, *SHORT, "--json", str(told), *more)
    assert told.exists(), ran.err
    found = json.loads(told.read_text())
    assert ran.code == EXIT_CODES[found["verdict"]["harmed"]]
    return found, ran.out


def check(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The controls have all that was published; those in trouble were so. Returns them by their kinds."""
    controls, sent = found["controls"], found["publisher"]["sent"]
    assert sent > 100
    assert (controls["lost"], controls["cut"], controls["repeated"]) == (0, 0, 0), controls
    assert controls["records"] == sent * controls["clients"]
    assert controls["before"]["p99_ms"] > 0 < controls["beside"]["p99_ms"]
    assert found["publisher"]["unconfirmed"] == 0
    return {one["kind"]: one for one in found["kinds"]}


@pytest.mark.parametrize("listener", ["mqtt", "amqp", "ws"])
def test_every_kind_of_trouble(headway: BrokerProcess, tmp_path: Path, listener: str) -> None:
    page = tmp_path / "page.html"
    address = f"{listener}://127.0.0.1:{headway.ports[listener]}"
    found, out = trouble(address, tmp_path, "--admin", headway.admin, "--html", str(page))
    kinds = check(found)
    assert len(kinds) == 8
    assert all(one["connections"] >= one["clients"] == 2 for one in kinds.values()), kinds
    assert kinds["stuck"]["records"] <= WITH_THE_ANSWER * 2
    assert kinds["stuck"]["read_on_records"] > 0
    assert kinds["no-acks"]["records"] == 2 * 20
    assert kinds["late-acks"]["notes"] == kinds["no-acks"]["notes"] == []  # no more than the window is under way
    assert kinds["half-open"]["records"] <= WITH_THE_ANSWER * 2
    assert kinds["trickling"]["lost"] == kinds["over-subscribed"]["lost"] == 0
    assert isinstance(found["decided"], list)
    assert all(one["kind"] in out for one in kinds.values())
    assert "Healthy consumers" in out or "The publisher" in out
    assert "trickling" in page.read_text()


def test_what_the_broker_decided_is_told_and_ctrl_c_ends_with_the_report(start: BrokerFactory, tmp_path: Path) -> None:
    broker, told, log = start(CUTS), tmp_path / "found.json", tmp_path / "log"
    options = ["--kinds", "stuck=2,bursty=1", "--calm", "100ms", "--for", "10min", "--rate", "400", "--size", "20kB"]
    address = f"mqtt://127.0.0.1:{broker.port}"
    process = Forked(main, ["trouble", address, *options, "--controls", "1", "--admin", broker.admin,
                            "--json", str(told)], log)  # fmt: skip

    def cut() -> bool:
        lines = broker.call("/v1/verdicts?client=trb-*stuck*")[1].splitlines()
        return len({json.loads(line)["client"] for line in lines}) == 2

    until(cut, what="both are judged")
    os.kill(process.pid, signal.SIGINT)
    until(lambda: process.poll() is not None, what="it ends")
    found = json.loads(told.read_text())
    stuck = found["kinds"][0]
    assert found["interrupted"]
    assert stuck["cut"] == 2
    assert "quota exceeded (0x97)" in stuck["words"]
    assert "strict" in stuck["words"]
    decided = {(one["kind"], one["action"]) for one in found["decided"]}
    assert ("stuck", "disconnect") in decided
    assert "it was ended early" in log.read_text()


def test_a_broker_that_dies_has_harmed_the_healthy(start: BrokerFactory, tmp_path: Path) -> None:
    broker, told = start(LISTENERS), tmp_path / "found.json"
    process = Forked(main, ["trouble", f"mqtt://127.0.0.1:{broker.port}", "--kinds", "stuck=1", "--for", "10min",
                            "--calm", "100ms", "--json", str(told)], tmp_path / "log")  # fmt: skip
    until(lambda: any("-stuck-" in row["client"] for row in broker.get("/v1/consumers")["consumers"]))
    broker.kill()
    os.kill(process.pid, signal.SIGINT)
    until(lambda: process.poll() is not None, what="it ends")
    assert process.returncode == 1, (tmp_path / "log").read_text()
    found = json.loads(told.read_text())
    assert found["verdict"]["harmed"]
    assert found["controls"]["cut"] == found["controls"]["clients"] == 5


def test_over_tls_with_a_login(start: BrokerFactory, certificates: Path, tmp_path: Path) -> None:
    login = f'[auth.users]\nalice = "{cheap_hash("secret")}"\n'
    broker = start(f'''
[listeners.mqtts]
url = "mqtts://127.0.0.1:0"
[listeners.mqtts.tls]
certificate = "{certificates / 'server.pem'}"
key = "{certificates / 'server-key.pem'}"
{login}''')
    address = f"mqtts://localhost:{broker.port}?ca={certificates / 'ca.pem'}"
    refused = Ran("trouble", address, "--user", "alice", HEADWAY_TROUBLE_PASSWORD="wrong")
    assert refused.code == 2
    assert "refused" in refused.err
    stranger = Ran("trouble", address.partition("?")[0])
    assert (stranger.code, "certificate" in stranger.err) == (2, True)
    kinds = check(trouble(address.replace("localhost", "alice:secret@localhost"), tmp_path, "--kinds",
                          "stuck,trickling,half-open")[0])  # fmt: skip
    assert kinds["stuck"]["read_on_records"] > 0


def test_traffic_of_others(headway: BrokerProcess, tmp_path: Path, name: str) -> None:
    found, out = trouble(f"mqtt://127.0.0.1:{headway.port}", tmp_path, "--topic", f"{name}/#", "--kinds", "stuck=1")
    assert found["publisher"] is None
    assert found["verdict"]["harmed"] is False
    assert "its delays and losses are not known" in out


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a mosquitto of this module's own."""
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed: make mosquitto")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    config = tmp_path_factory.mktemp("mosquitto") / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
    with subprocess.Popen([MOSQUITTO, "-c", str(config)], stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: _answers(port), what="mosquitto listens")
            yield port
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def test_mosquitto(mosquitto: int, tmp_path: Path) -> None:
    found, _ = trouble(f"mqtt://127.0.0.1:{mosquitto}", tmp_path, "--kinds", "stuck,flapping,no-acks=3,half-open")
    kinds = check(found)
    assert kinds["no-acks"]["records"] == 3 * 20
    assert kinds["stuck"]["records"] <= WITH_THE_ANSWER * 2
    assert kinds["flapping"]["connections"] >= 2
    assert found["decided"] is None
    assert found["broker"]["protocol"] == "mqtt 5"
