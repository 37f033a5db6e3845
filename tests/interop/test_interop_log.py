"""The log as JSON lines: every line is an object, and what a program would search for stands in fields."""

from __future__ import annotations

import json
import re
import signal
from datetime import UTC, datetime
from typing import Any

from bench.wires.packets import encode_publish
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import until
from tests.passwords import cheap_hash

CONFIG = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[[permission]]
publish = ["#"]
subscribe = ["#"]
[[permission]]
user = "ann"
admin = ["change"]
[[policy]]
name = "strict"
[[policy.rule]]
when = {{ lag_records = "> 20" }}
then = "disconnect"
[auth.users]
ann = "{hash}"
"""


def lines(broker: BrokerProcess) -> list[dict[str, Any]]:
    """Those of the log; what the broker prints for whoever started it is not among them."""
    text = broker.log.read_text()
    return [json.loads(line) for line in text.splitlines() if not line.startswith("headway ")]


def line(broker: BrokerProcess, **fields: object) -> dict[str, Any]:
    """The first that has these fields."""
    return until(lambda: next((one for one in lines(broker) if fields.items() <= one.items()), {}), what=f"{fields}")


def test_every_line_is_an_object_with_fields(start: BrokerFactory) -> None:
    broker = start(CONFIG.format(hash=cheap_hash("a")), server={"log": "json"})
    broker.login = "ann:a"
    user = {"username": "ann", "password": b"a"}
    with Raw(broker.port, "slow", receive_buffer=4096, **user) as slow, Raw(broker.port, "writer", **user) as writer:
        slow.subscribed("a/#")
        for _ in range(20):
            writer.publish_all("a/b", [b"x" * 10_000] * 50)
        verdict = line(broker, logger="headway.verdicts", client="slow", kind="fire")
        assert verdict["action"] == "disconnect"
        assert verdict["policy"] == "strict"
        assert {"rule", "reason", "cause", "listener", "filter", "enforced"} <= verdict.keys()
        assert verdict["message"].startswith("slow")
    end = line(broker, client="slow", logger="headway", admitted=True)
    assert (end["user"], end["listener"], end["reason"]) == ("ann", "mqtt", verdict["reason"])
    assert end["address"].startswith("127.0.0.1:")
    with Raw(broker.port, "stranger\n{", granted=False, username="ann", password=b"wrong") as stranger:
        stranger.wait_end()
    assert line(broker, client="stranger\n{")["reason"] == "not_authorized"
    with Raw(broker.port, "writer", **user) as writer:
        writer.publish("$SYS/x", b"", 1)
        writer.send(encode_publish("a/#", b""))
        writer.wait_end()
    assert line(broker, client="writer", reason="protocol_error")["why"]
    broker.call("/v1/broker")
    broker.login = "ann:b"
    broker.call("/v1/broker")
    assert line(broker, listener="admin", user="ann")["why"]
    broker.signal(signal.SIGHUP)
    until(lambda: [one for one in lines(broker) if one["message"].startswith("reload: 1 policies")])
    broker.stop()
    for one in lines(broker):
        assert {"time", "level", "logger", "message"} <= one.keys()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", one["time"])
        assert abs((datetime.now(UTC) - datetime.fromisoformat(one["time"])).total_seconds()) < 3600
        assert one["level"] in ("info", "warning", "error")
