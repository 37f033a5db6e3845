"""A client that stands still in a snapshot, a query or a live page is seen over real sockets: its row has its lag."""

from __future__ import annotations

import socket
import urllib.parse
from contextlib import closing
from typing import Any

import pytest
from bench.wires.packets import encode_publish
from tests.interop.conftest import BrokerFactory
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.raw import Raw
from tests.interop.test_interop_events import Stream
from tests.interop.waiting import PATIENCE_S, until

from headway.core.message.record import Properties

CONFIG = LISTENER + """
[[topic]]
filter = "t/#"
key = "property:key"
[[policy]]
name = "cut"
topics = ["t/x"]
[[policy.rule]]
when = { lag_age = "1500ms", lag_records = "> 100" }
then = "disconnect"
[[policy]]
name = "age limit"
topics = ["t/#"]
[[policy.rule]]
when = { lag_age = "1500ms", lag_records = "> 100" }
then = "notify"
"""
KEYS, SIZE = 1000, 20_000
"""20 MB: more than the kernels of both sides hold."""
KINDS = {"query": {"query": "true"}, "snapshot": {"snapshot": "true"}, "page": {"order_by": "offset", "top": "1000"}}


@pytest.fixture(scope="module")
def keyed(start: BrokerFactory) -> BrokerProcess:
    broker = start(CONFIG, server={"send_buffer": "16KiB"})
    with Raw(broker.port) as publisher:
        for number in range(KEYS):
            key = Properties(user=(("key", str(number)),))
            publisher.send(encode_publish("t/x", b"x" * SIZE, version=5, properties=key))
        publisher.so_far()
    return broker


def assert_seen(broker: BrokerProcess, client: str) -> dict[str, Any]:
    """Most of what it asked for has been waiting for longer than the age limit."""
    until(lambda: broker.verdicts(client), what="a verdict on its age")
    row = broker.consumer(client)
    assert 100 < row["lag_records"] <= KEYS + 2
    assert row["lag_bytes"] == pytest.approx(SIZE * row["lag_records"], rel=0.1)
    assert row["lag_age_ms"] >= 1500
    assert row["state"] in ("behind", "slow", "conflating")
    return row


@pytest.mark.parametrize("kind", KINDS)
def test_mqtt_client_that_stands_still_is_seen(keyed: BrokerProcess, kind: str) -> None:
    with Raw(keyed.port, f"stuck in a {kind}", receive_buffer=4096) as client:
        client.subscribed("t/#", user=tuple(KINDS[kind].items()))
        row = assert_seen(keyed, client.client_id)
        if kind == "page":
            assert row["held_bytes"] > KEYS * SIZE // 2, "the page's records, which no other subscriber shares"


@pytest.mark.parametrize("query", [{}, {"order_by": "offset", "top": "1000"}])
def test_http_client_that_stands_still_is_seen(keyed: BrokerProcess, query: dict[str, str]) -> None:
    with closing(Stream(keyed, "t/#", **query)) as stream:
        assert next(stream.events).name == "snapshot_begin"
        (client,) = {
            row["client"] for row in keyed.get("/v1/consumers")["consumers"] if row["client"].startswith("events/")
        }
        assert_seen(keyed, client)
    until(lambda: not keyed.consumer(client), what="its end")


class Asking:
    """A client that sends a GET for a state, and reads when it is told to."""

    def __init__(self, broker: BrokerProcess, filter: str, **query: str) -> None:
        netloc = urllib.parse.urlsplit(broker.admin)
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect((netloc.hostname, netloc.port))
        path = f"/v1/state/{urllib.parse.quote(filter, safe='')}?{urllib.parse.urlencode(query)}"
        self.sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {netloc.netloc}\r\nConnection: close\r\n\r\n".encode())

    def rest(self) -> bytes:
        """All that comes. Raises ConnectionResetError if it is broken off."""
        return b"".join(iter(lambda: self.sock.recv(1 << 20), b""))


def queries(broker: BrokerProcess) -> list[str]:
    rows = broker.get("/v1/consumers")["consumers"]
    return [row["client"] for row in rows if row["client"].startswith("query/")]


@pytest.mark.parametrize("query", [{}, {"order_by": "offset desc"}, {"order_by": "/x", "top": "1000"}])
def test_http_query_that_is_not_read_is_a_consumer_until_it_is(keyed: BrokerProcess, query: dict[str, str]) -> None:
    asking = Asking(keyed, "t/#", format="jsonl", **query)
    with closing(asking.sock):
        (client,) = until(lambda: queries(keyed), what="it to be seen")
        row = assert_seen(keyed, client)
        assert row["protocol"] == "http"
        assert row["held_bytes"] > (20 * SIZE if "top" in query else 0)
        answer = asking.rest()
        assert answer.count(b'"offset"') >= 100
        assert answer.endswith(b"0\r\n\r\n"), "it is whole"
    until(lambda: not queries(keyed), what="its end")


def test_policy_breaks_a_query_off_that_is_not_read(keyed: BrokerProcess) -> None:
    asking = Asking(keyed, "t/x", format="jsonl")
    with closing(asking.sock):
        (client,) = until(lambda: queries(keyed), what="it to be seen")
        until(lambda: not queries(keyed), what="its end")
        (verdict,) = keyed.verdicts(client)
        assert "waited" in verdict["text"]
        with pytest.raises(ConnectionResetError):
            asking.rest()


def test_http_query_that_is_read_is_nobody(keyed: BrokerProcess) -> None:
    before = keyed.get("/v1/verdicts?limit=1")
    asking = Asking(keyed, "t/#", format="jsonl")
    with closing(asking.sock):
        assert asking.rest().endswith(b"0\r\n\r\n")
    assert queries(keyed) == []
    assert keyed.get("/v1/verdicts?limit=1") == before
