"""What watches a broker: is it alive, is it ready, and what it and its process take up. Also when clients have taken
every descriptor that they can get."""

from __future__ import annotations

import http.client
import os
import re
import resource
import signal
import socket
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from bench.wires.packets import connect
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import PATIENCE_S, until
from tests.passwords import cheap_hash

from headway import __version__

FILES_MAX = 100
KEPT_BACK = 25


def figure(page: bytes, name: str) -> float:
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", page.decode(), re.MULTILINE)
    assert found, (name, page)
    return float(found[1])


def test_who_watches_needs_no_login_and_may_name_any_host(start: BrokerFactory) -> None:
    broker = start(f'[auth.users]\nann = "{cheap_hash("a")}"\n')
    assert broker.call("/v1/broker")[0] == 401
    for path, says in (("/healthz", b"ok\n"), ("/readyz", b"ready\n")):
        assert broker.call(path) == (200, says)
        with closing(http.client.HTTPConnection("127.0.0.1", int(broker.admin.rpartition(":")[2]))) as connection:
            connection.request("GET", path, headers={"Host": "balancer.example.com"})
            assert connection.getresponse().status == 200
    assert broker.call("/healthz/..%2Fv1/broker")[0] == 401
    broker.stop()


def test_the_process_and_the_build_are_in_the_metrics(broker: BrokerProcess) -> None:
    status, page = broker.call("/metrics")
    assert status == 200
    assert figure(page, "headway_ready") == 1
    assert f'version="{__version__}"' in page.decode()
    with Path(f"/proc/{broker.pid}/status").open() as lines:
        rss = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))
    assert rss / 2 < figure(page, "process_resident_memory_bytes") < rss * 2
    assert 0 < figure(page, "process_open_fds") < figure(page, "process_max_fds")
    for name in ("process_cpu_seconds_total", "process_virtual_memory_bytes", "process_start_time_seconds"):
        assert figure(page, name) > 0


def test_a_broker_that_is_to_stop_is_alive_and_no_longer_ready(start: BrokerFactory) -> None:
    broker = start(server={"drain": "10m"})
    broker.signal(signal.SIGTERM)
    until(lambda: broker.call("/readyz") == (503, b"the broker is stopping\n"))
    assert broker.call("/healthz")[0] == 200
    with Raw(broker.port) as client:  # who does not ask is served
        client.subscribed("a")
    broker.stop()


def test_a_full_listener_is_a_reason_not_to_be_ready(start: BrokerFactory) -> None:
    broker = start('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\nconnections_max = 1\n')
    with Raw(broker.port):
        assert broker.call("/readyz") == (503, b"listeners.mqtt has its 1 connections already\n")
    until(lambda: broker.call("/readyz")[0] == 200)
    broker.stop()


def test_so_is_a_journal_that_cannot_be_written(start: BrokerFactory, tmp_path: Path) -> None:
    broker = start(f'[journal]\npath = "{tmp_path}/journal"\n')
    endless = resource.RLIM_INFINITY
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (100_000, endless))
    with Raw(broker.port) as writer:
        writer.publish("a", b"x" * 200_000, 1, retain=True)
        until(lambda: broker.call("/readyz")[0] == 503)
        assert broker.call("/readyz")[1].startswith(b"the journal cannot be written, and nothing durable is confirmed")
        assert figure(broker.call("/metrics")[1], "headway_ready") == 0
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (endless, endless))
        until(lambda: broker.call("/readyz")[0] == 200)
    broker.stop()


@pytest.fixture
def crowded(start: BrokerFactory) -> BrokerProcess:
    """A broker with few descriptors."""
    return start(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX)))


def test_clients_cannot_take_the_descriptors_that_the_admin_api_needs(crowded: BrokerProcess) -> None:
    with ExitStack() as crowd:
        for number in range(2 * FILES_MAX):
            sock = socket.create_connection(("127.0.0.1", crowded.port), timeout=PATIENCE_S)
            crowd.enter_context(sock).sendall(connect(f"c{number}"))  # a silent one would make room
        until(lambda: crowded.call("/readyz")[0] == 503)
        assert b"listeners.mqtt cannot accept connections: no more open files" in crowded.call("/readyz")[1]
        assert crowded.call("/healthz")[0] == 200
        page = crowded.call("/metrics")[1]
        assert FILES_MAX - KEPT_BACK <= figure(page, "process_open_fds") < FILES_MAX
        assert len(os.listdir(f"/proc/{crowded.pid}/fd")) < FILES_MAX
    until(lambda: crowded.call("/readyz")[0] == 200)
    with Raw(crowded.port) as client:
        client.subscribed("a")
    crowded.stop()
    assert "no more open files for clients (raise it: ulimit -n)" in crowded.log.read_text()
