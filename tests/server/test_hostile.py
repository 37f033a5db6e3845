"""Hostile clients of ``make soak``, without sockets and clocks: how many lines Python runs before others have their
turn. Each kind's clients say their largest; the broker may refuse it or take its time, but not in one step."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from random import Random
from types import FrameType
from typing import Any

import pytest
from bench.wires.packets import connect, encode_publish, encode_subscribe
from tests.server.amqp_stage import House
from tests.server.pretended import Socket
from tests.soak.hostile import CONFIG, KINDS, LOGINS, PORTS, Kind

from headway.core.consumer.subscription import Subscription
from headway.server.amqp.peer import AmqpPeer
from headway.server.amqp1.peer import Amqp1Peer
from headway.server.mqtt.peer import MqttPeer
from headway.server.openwire.peer import OpenWirePeer
from headway.server.stomp.peer import StompPeer
from headway.wire.mqtt.packets import TopicRequest

PEERS = {
    "mqtt": MqttPeer, "amqp": AmqpPeer, "amqp1": Amqp1Peer, "stomp": StompPeer, "openwire": OpenWirePeer,
}  # fmt: skip
LINES_MAX = 400_000
"""About a thirtieth of a second; some kinds ran millions of them."""
SHARES = (1, 3, 10)
"""Of the largest that a kind says, because that may be refused at once; who was not refused says the largest and the
smallest. A small kind says as much each time."""
SMALL, LARGE = 1000, 600_000
"""Bytes. What is larger takes long to make up, and longer than STEPS_MAX to be read."""
STEPS_MAX = 200
GROUPS = 2000
MQTT = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'


class Lines:
    """Counts the lines that Python runs."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        count = 0

        def line(_: FrameType, event: str, __: Any) -> Any:  # for each line: nothing is dearer here
            nonlocal count
            if event == "line":
                count += 1

        before = sys.gettrace()
        sys.settrace(lambda *_: line)
        try:
            yield
        finally:
            sys.settrace(before)
            self.count = count


def come(house: House, kind: Kind, number: int) -> Socket:
    sock = Socket()
    house.accept(sock, listener=PORTS.get(kind.protocol, kind.protocol), peer=PEERS[kind.protocol])
    if kind.login:
        said = (LOGINS.get(kind.protocol) or connect(f"hostile {number}"), kind.begin)
        sock.incoming += filter(None, said)  # nothing is the client's end
    return sock


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.protocol in PEERS], ids=lambda kind: kind.title)
def test_no_client_keeps_the_others_waiting(kind: Kind) -> None:
    house, rng, lines, worst = House(MQTT + CONFIG.partition('[[topic]]\nfilter = "recorded')[0]), Random(7), Lines(), 0
    socks = [come(house, kind, number) for number in range(2)]
    while house.pretended.once():
        pass
    for share in SHARES if kind.bytes_max > SMALL else (1,):
        if share == SHARES[1] and not any(sock.shut for sock in socks):
            continue
        for number, sock in enumerate(socks):
            if sock.shut or not kind.login:
                socks[number] = come(house, kind, number)
            socks[number].incoming.append(kind.say(rng, min(kind.bytes_max, LARGE) // share))
        for _ in range(STEPS_MAX):
            with lines.counted():
                more = house.pretended.once()
            worst = max(worst, lines.count)
            if not more:
                break
    assert worst < LINES_MAX


# -- ten thousand of a kind --------------------------------------------------------------------------------------------


def share(house: House, groups: int) -> Socket:
    """A client that is the only member of so many groups, which all get the same records."""
    sock = Socket()
    house.accept(sock, "mqtt", MqttPeer)
    requests = [TopicRequest(f"$share/g{number}/hot", 0) for number in range(groups)]
    sock.incoming += [connect("shares"), encode_subscribe(1, requests, version=5)]
    house.run()
    assert bytes(sock.taken).endswith(bytes(groups)), "every one is granted"
    sock.taken.clear()
    return sock


def test_what_ends_in_a_turn_is_freed_in_that_turn() -> None:
    gc.collect()  # what other tests have left would be counted
    house = House(MQTT)
    sock = share(house, GROUPS)
    counts = [GROUPS]
    sock.incoming.append(b"")
    while house.pretended.once():
        counts.append(sum(type(one) is Subscription for one in gc.get_objects()))
    assert counts[-1] < GROUPS / 10
    assert max(before - after for before, after in pairwise(counts)) < GROUPS / 5


def test_a_turn_writes_a_record_for_few_of_many_groups() -> None:
    house = House(MQTT)
    sock = share(house, GROUPS)
    publisher = Socket()
    house.accept(publisher, "mqtt", MqttPeer)
    publisher.incoming += [connect("publishes"), b"\x30\x07\x00\x03hot\x00x"]
    counts = [0]
    while house.pretended.once():
        counts.append(sock.taken.count(b"hot"))
    assert counts[-1] == GROUPS
    assert max(after - before for before, after in pairwise(counts)) < GROUPS / 12


@pytest.mark.parametrize("qos", [0, 1])
def test_records_to_very_many_groups_in_one_read_take_no_more_than_the_pool_has(qos: int) -> None:
    house = House(f'{MQTT}[listeners.mqtt.pool]\nmemory = "16MB"\n')
    share(house, GROUPS // 4).capacity = 1
    sock, pool = Socket(), house.broker.registry.pools["mqtt"]
    house.accept(sock, "mqtt", MqttPeer)
    pairs = [encode_publish("hot", b"x" * size, qos=qos, packet_id=1 if qos else 0, version=5)
             for _ in range(6) for size in (10, 10_000)]  # fmt: skip
    sock.incoming += [connect("publisher"), b"".join(pairs)]
    house.run()
    assert 5_000_000 < pool.memory_peak_bytes <= pool.memory_limit
