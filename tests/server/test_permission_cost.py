"""What permissions cost while messages flow: without any, nothing; with some, a look per run, whoever reads it."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from bench.wires.packets import connect, encode_publish, encode_subscribe
from pamqp.commands import Basic, Queue
from tests.server.amqp_stage import Client, House, message
from tests.server.pretended import Socket

import headway
from headway.core.permission import Permission
from headway.server.mqtt.peer import MqttPeer
from headway.wire.mqtt.packets import TopicRequest

SOURCE = str(Path(headway.__file__).parent) + "/"
LISTENER = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'
EVERYTHING = Permission(
    publish=("#", "$queue/#", "$exchange/#"), subscribe=("#", "$queue/#", "$exchange/#"), declare=("$queue/#",)
)
WARM = 3
"""Turns after which caches have what they need."""
A_LOOK = 120
"""Instructions: the rights of a session, and an answer that is known."""


def instructions(work: Callable[[], object]) -> Counter[str]:
    """The instructions of the interpreter that ``work`` takes in each file of the broker."""
    found: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(SOURCE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        found[name.removeprefix(SOURCE)] += event == "opcode"
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return found


class World:
    """A publisher, and those who read what it publishes."""

    def __init__(self, permissions: tuple[Permission, ...], readers: int) -> None:
        self.house = House(LISTENER)
        self.give(permissions)
        self.publisher = self.person("publisher")
        self.readers = [self.person(f"reader {number}") for number in range(readers)]
        for one in self.readers:
            one.incoming.append(encode_subscribe(1, [TopicRequest("t/#")]))
        self.rabbit = Client(self.house, "rabbit")
        self.rabbit.say(Queue.Declare(queue="q"), Basic.Consume(queue="q", no_ack=True))
        self.house.run()

    def give(self, permissions: tuple[Permission, ...]) -> None:
        settings = replace(self.house.settings, permissions=permissions)
        self.house.settings = settings
        self.house.permissions.reload(settings, self.house.now())
        self.house.run()

    def person(self, name: str) -> Socket:
        sock = Socket()
        self.house.accept(sock, "mqtt", MqttPeer)
        sock.incoming.append(connect(name))
        self.house.run()
        return sock

    def mqtt(self, records: int) -> None:
        """One read with so many records of one topic, delivered to all."""
        before = len(self.readers[0].taken)
        self.publisher.incoming.append(encode_publish("t/a", b"x") * records)
        self.house.run()
        assert all(len(one.taken) - before >= 6 * records for one in self.readers)

    def amqp(self, records: int) -> None:
        heard = len(self.rabbit.heard)
        self.rabbit.sock.incoming.append(b"".join(b"".join(message(1, "q", b"x")) for _ in range(records)))
        self.house.run()
        self.rabbit.read()
        assert len(self.rabbit.heard) - heard == records

    def cost(self, protocol: str, records: int) -> Counter[str]:
        self.house.now = lambda: 2000.0
        turn = getattr(self, protocol)
        for _ in range(WARM):
            turn(records)
        return instructions(lambda: turn(records))


@pytest.mark.parametrize("protocol", ["mqtt", "amqp"])
def test_without_permissions_nothing_is_asked_while_messages_flow(protocol: str) -> None:
    found = World((), 20).cost(protocol, 50)
    assert found.total() > 1000, "it was counted"
    assert not [name for name in found if "core/permission" in name], "no code of permissions runs"
    few, many = (World((), readers).cost(protocol, records) for readers, records in ((1, 1), (20, 50)))
    held = "core/consumer/connection/held_rights.py"
    assert few[held] == many[held] <= A_LOOK, "whether there are any is looked at once a read"


@pytest.mark.parametrize("protocol", ["mqtt", "amqp"])
def test_permissions_that_were_taken_away_leave_no_cost(protocol: str) -> None:
    never, no_more = World((), 5), World((EVERYTHING,), 5)
    no_more.give(())
    assert no_more.cost(protocol, 20) == never.cost(protocol, 20)


@pytest.mark.parametrize("protocol", ["mqtt", "amqp"])
def test_with_permissions_a_read_costs_a_look_more_however_many_read_it(protocol: str) -> None:
    for readers, records in ((1, 1), (20, 1), (1, 50), (20, 50)):
        without, given = (World(some, readers).cost(protocol, records).total() for some in ((), (EVERYTHING,)))
        assert 0 < given - without <= A_LOOK, (readers, records)
