"""docs/ONE_MESSAGE.md says what is called when a message goes through the broker. Here they go through, and all calls
of ours are compared with it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest
from bench.wires.packets import connect, encode_publish, encode_subscribe
from pamqp.commands import Basic
from tests.server.amqp_stage import Client, House, message, method
from tests.server.greedy_stage import Greedy

from headway.server.mqtt.peer import MqttPeer
from headway.wire.mqtt.packets import TopicRequest

ROOT = Path(__file__).parents[2]
SOURCE = str(ROOT / "src" / "headway") + "/"
PAGE = ROOT / "docs" / "ONE_MESSAGE.md"
LONG_AGO_S = 3.0
"""A connection that is older than this is sent no small pieces (server/progress)."""
FILES_MAX = 12


class Call(NamedTuple):
    depth: int
    function: str
    file: str


def ways() -> dict[str, list[Call]]:
    """What the page says."""
    found: dict[str, list[Call]] = {}
    for name, block in re.findall(r"^```way (\S+)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        lines = [re.match(r"( *)(\S+) +(\S+\.py)", line) for line in block.splitlines()]
        found[name] = [Call(len(line[1]) // 2, line[2], line[3]) for line in lines if line is not None]
        assert len(found[name]) == len(lines), name
    return found


def calls(work: Callable[[], object]) -> list[Call]:
    """All calls of functions of ours."""
    made: list[Call] = []
    depth = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth
        if frame.f_code.co_filename.startswith(SOURCE):
            if event == "call":
                made.append(Call(depth, frame.f_code.co_qualname, frame.f_code.co_filename.removeprefix(SOURCE)))
            depth += (event == "call") - (event == "return")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


def mqtt(qos: int) -> tuple[list[Call], list[Call]]:
    """Of some messages that are published, and of their acknowledgements."""
    house = House('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n')
    publisher, *subscribers = (Greedy(house, MqttPeer, connect(name)) for name in "pabc")
    for one in subscribers:
        one.say(encode_subscribe(1, [TopicRequest("t", qos)]))
    house.pass_time(LONG_AGO_S)
    for number in range(3):  # the first time some things are found out, and remembered
        ids = range(1 + 4 * number, 5 + 4 * number)
        publisher.send(b"".join(encode_publish("t", b"x" * 20, qos=qos, packet_id=qos * one) for one in ids))
        published = calls(house.run)
        if qos:
            subscribers[0].send(b"".join(b"\x40\x02" + one.to_bytes(2, "big") for one in ids))
        acknowledged = calls(house.run)
    return published, acknowledged


def amqp() -> tuple[list[Call], list[Call]]:
    house = House()
    publisher, consumer = Client(house), Client(house)
    consumer.declare("work")
    consumer.say(Basic.Qos(prefetch_count=100))
    consumer.say(Basic.Consume(queue="work"))
    house.pass_time(LONG_AGO_S)
    for number in range(1, 4):
        publisher.sock.incoming.append(b"".join(b"".join(message(1, "work", b"x" * 20)) for _ in range(4)))
        published = calls(house.run)
        consumer.read()
        consumer.sock.incoming.append(method(1, Basic.Ack(delivery_tag=4 * number, multiple=True)))
        acknowledged = calls(house.run)
    return published, acknowledged


@cache
def made() -> dict[str, list[Call]]:
    (published_0, _), (published_1, acknowledged_1), (queued, settled) = mqtt(0), mqtt(1), amqp()
    return {
        "mqtt-0-in": published_0, "mqtt-0-out": published_0, "mqtt-1-out": published_1, "mqtt-1-ack": acknowledged_1,
        "amqp-in": queued, "amqp-out": queued, "amqp-ack": settled,
    }  # fmt: skip


@pytest.mark.parametrize("way", sorted(ways()))
def test_the_page_says_what_is_called(way: str) -> None:
    rest = iter(made()[way])
    above: list[tuple[int, int]] = []
    """The steps to the right of the functions that the next line may be called by, and how deep their calls were."""
    for told in ways()[way]:
        above = [(step, depth) for step, depth in above if step < told.depth]
        within = takewhile(lambda call, deepest=above[-1][1] if above else -1: call.depth > deepest, rest)  # type: ignore[misc]
        call = next((one for one in within if one[1:] == told[1:]), None)
        assert call is not None, f"{told.function} ({told.file}) is not called there, or not in this order"
        above.append((told.depth, call.depth))


def test_few_files_tell_the_way() -> None:
    assert ways().keys() == made().keys()
    assert all(len({told.file for told in lines}) <= FILES_MAX for lines in ways().values())
