"""Selectors in the requests of all protocols: what compiling them costs is charged, and empty ones mean none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bench.wires.packets import connect, encode_subscribe
from pamqp.commands import Basic, Channel, Connection, Queue
from tests.server.amqp_stage import House, method
from tests.server.greedy_stage import Greedy
from tests.wire import openwire_frames

from headway.core.selector import MAX_SELECTOR_CHARS, compile_work
from headway.server.amqp.peer import AmqpPeer
from headway.server.amqp1.peer import Amqp1Peer
from headway.server.connections import TURN_WORK
from headway.server.mqtt.peer import MqttPeer
from headway.server.openwire.peer import OpenWirePeer
from headway.server.stomp.peer import StompPeer
from headway.wire.amqp1.performatives import Attach, Begin, Open, Source, Target
from headway.wire.amqp1.replies import write
from headway.wire.mqtt.packets import TopicRequest

MQTT = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'


def mqtt(house: House) -> Greedy:
    return Greedy(house, MqttPeer, connect("greedy"))


def amqp(house: House) -> Greedy:
    return Greedy(
        house, AmqpPeer, b"AMQP\0\0\x09\1", method(0, Connection.StartOk({}, "PLAIN", "\0guest\0guest")),
        method(0, Connection.TuneOk(0, 0, 0)) + method(0, Connection.Open()),
        method(1, Channel.Open()) + method(1, Queue.Declare(queue="work")),
    )  # fmt: skip


def amqp1(house: House) -> Greedy:
    begin = write(0, Begin(None, 0, 1 << 30, 1 << 30, 4095))
    return Greedy(house, Amqp1Peer, b"AMQP\0\1\0\0" + write(0, Open("greedy", None, 65_536, 255)), begin)


def stomp(house: House) -> Greedy:
    return Greedy(house, StompPeer, b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")


def openwire(house: House) -> Greedy:
    return Greedy(house, OpenWirePeer, openwire_frames.wire_format() + openwire_frames.connection_info("greedy"))


def attach(address: str, selector: str) -> bytes:
    source = Source(address, filter={"selector": selector})  # type: ignore[dict-item]
    return write(0, Attach("r", 0, True, 0, source=source, target=Target()))


def stomp_subscribe(destination: str, selector: str, ack: str = "auto") -> bytes:
    return f"SUBSCRIBE\nid:1\ndestination:{destination}\nack:{ack}\nselector:{selector}\n\n\0".encode()


def info(destination: bytes, selector: str) -> bytes:
    return openwire_frames.consumer_info(openwire_frames.consumer_id(value=1), destination, selector=selector)


REQUESTS: dict[str, tuple[Callable[[House], Greedy], Callable[[str], bytes]]] = {
    "mqtt": (mqtt, lambda text: encode_subscribe(1, [TopicRequest("t")], user=(("selector", text),))),
    "mqtt-prefixed": (
        mqtt, lambda text: encode_subscribe(1, [TopicRequest("t")], user=(("x-headway-selector", text),)),
    ),
    "mqtt-shared": (mqtt, lambda text: encode_subscribe(1, [TopicRequest("$share/g/t")], user=(("selector", text),))),
    "amqp-queue": (
        amqp, lambda text: method(1, Basic.Consume(queue="work", arguments={"x-headway-selector": text})),
    ),
    "amqp-topics": (
        amqp, lambda text: method(1, Basic.Consume(queue="amq.topic", no_ack=True, arguments={"selector": text})),
    ),
    "amqp1-queue": (amqp1, lambda text: attach("queue://work", text)),
    "amqp1-topic": (amqp1, lambda text: attach("topic://t", text)),
    "amqp1-exchange": (amqp1, lambda text: attach("exchange://amq.direct/k", text)),
    "stomp-queue": (stomp, lambda text: stomp_subscribe("/queue/work", text)),
    "stomp-topic": (stomp, lambda text: stomp_subscribe("/topic/t", text)),
    "stomp-bound": (stomp, lambda text: stomp_subscribe("/topic/t", text, "client")),
    "openwire-queue": (openwire, lambda text: info(openwire_frames.queue("work"), text)),
    "openwire-topic": (openwire, lambda text: info(openwire_frames.topic("t"), text)),
}  # fmt: skip


def consumers(house: House) -> list[Any]:
    return [one for session in house.broker.registry.sessions.values() for one in session.subscriptions.values()]


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("selector", ["", "   "], ids=["empty", "blank"])
def test_empty_selector_means_none(
    request_of: tuple[Callable[[House], Greedy], Callable[[str], bytes]], selector: str
) -> None:
    house = House(MQTT)
    connect_to, frame = request_of
    client = connect_to(house)
    client.say(frame(selector))
    assert not house.blamed
    assert [one.request.options.selector for one in consumers(house)] == [None]
    assert client.connection.open


LONG = " OR ".join(f"a{number} = 1" for number in range(670))


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("ending", [" AND b = 2", " AND )", " AND 'text'"], ids=["good", "bad", "no-condition"])
def test_compiling_is_charged_to_the_turn_whether_it_succeeds_or_not(
    request_of: tuple[Callable[[House], Greedy], Callable[[str], bytes]], ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    house, lowest = House(MQTT), [TURN_WORK]
    connect_to, frame = request_of
    client = connect_to(house)
    turn = house._turn
    monkeypatch.setattr(house, "_turn", lambda: (lowest.append(house.work_left), turn()))
    text = LONG + ending
    assert MAX_SELECTOR_CHARS - 500 < len(text) < MAX_SELECTOR_CHARS
    client.say(frame(text))
    assert len(consumers(house)) == ("b" in ending)
    assert min(lowest) <= TURN_WORK - compile_work(text)
    assert compile_work(text) > TURN_WORK * 9 // 10, "a turn compiles one long selector"
