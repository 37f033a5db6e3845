"""A client that stands still in a snapshot, a query or a live page is seen over real sockets: its row has its lag."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from bench.wires.packets import encode_publish
from tests.interop.conftest import BrokerFactory
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.raw import Raw
from tests.interop.test_interop_events import Stream
from tests.interop.waiting import until

from headway.core.message.record import Properties

CONFIG = LISTENER + """
[[topic]]
filter = "t/#"
key = "property:key"
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
    """It has most of what it asked for still to come, for longer than the age limit."""
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
