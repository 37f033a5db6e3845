"""Heartbeats over every protocol that has them: what was promised is kept, with a margin. The test drives the clock."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from struct import pack
from typing import Any

import pytest
from pamqp.commands import Channel, Connection
from tests.server.amqp_frames import OPENING, START_OK
from tests.server.amqp_stage import House, method, raw
from tests.server.greedy_stage import Greedy
from tests.server.pretended import Socket
from tests.server.test_amqp1_greedy import begin
from tests.wire import openwire_frames as frames

from headway.server.amqp.peer import AmqpPeer
from headway.server.amqp1.peer import Amqp1Peer
from headway.server.config.settings import KEEP_ALIVE_S
from headway.server.engine.supervision import Supervision
from headway.server.openwire.peer import OpenWirePeer
from headway.server.stomp.peer import StompPeer
from headway.wire.amqp1.performatives import Flow, Open
from headway.wire.amqp1.replies import EMPTY, write
from headway.wire.openwire.codes import Type

STEP_S = 0.01


class Beaten(Greedy):
    """A client that was promised to hear something every ``beat_s`` seconds. ``asks`` is answered at once."""

    def __init__(self, house: House, peer: Callable[..., Any], opening: list[bytes], asks: bytes, lives: bytes) -> None:
        super().__init__(house, peer, *opening)
        self.asks, self.lives = asks, lives

    def gaps(self, seconds: float, asks_after: Callable[[], float]) -> list[float]:
        """The times without a word, while it asks for something at these times and says every half second that it is
        alive."""
        house, start = self.house, self.house.now()
        heard, asks, lives, gaps = start, start + asks_after(), start, list[float]()
        self.sock.taken.clear()
        while house.now() < start + seconds:
            house.pass_time(STEP_S)
            assert self.connection.open
            if house.now() >= lives:
                lives += 0.5
                self.sock.incoming.append(self.lives)
            if house.now() >= asks:
                asks += asks_after()
                self.sock.incoming.append(self.asks)
            house.run()
            if self.sock.taken:
                gaps.append(house.now() - heard)
                heard = house.now()
                self.sock.taken.clear()
        return [*gaps, house.now() - heard]


def stomp(house: House, beat_s: float) -> Beaten:
    hello = b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:0,%d\n\n\0" % (beat_s * 1000)
    return Beaten(house, StompPeer, [hello], b"SEND\ndestination:/topic/t\nreceipt:1\n\nx\0", b"\n")


def amqp(house: House, beat_s: float) -> Beaten:
    tuned = method(0, Connection.TuneOk(0, 0, int(beat_s)))
    opening = [OPENING, method(0, START_OK), tuned, method(0, Connection.Open()), method(1, Channel.Open())]
    return Beaten(house, AmqpPeer, opening, method(1, Channel.Flow(True)), raw(8, 0, b""))


def amqp1(house: House, beat_s: float) -> Beaten:
    opened = b"AMQP\0\1\0\0" + write(0, Open("c", None, 65_536, 255, int(beat_s * 1000)))
    echo = write(0, Flow(0, 1 << 30, 0, 1 << 30, echo=True))
    return Beaten(house, Amqp1Peer, [opened, begin(0)], echo, EMPTY)


def openwire(house: House, beat_s: float) -> Beaten:
    idle = {"MaxInactivityDuration": b"\6" + pack(">q", int(beat_s * 1000))}
    opening = [frames.wire_format(known=idle) + frames.connection_info("c")]
    alive = frames.frame(Type.KEEP_ALIVE_INFO)
    return Beaten(house, OpenWirePeer, opening, alive, frames.frame(Type.KEEP_ALIVE_INFO, wants_response=False))


CLIENTS = [stomp, amqp, amqp1, openwire]


def strict(keep_alive_max_s: float) -> House:
    """Its listener has this ``keep_alive_max``."""
    house = House()
    table = house.settings.listeners["amqp"]
    house.settings.listeners["amqp"] = table.model_copy(update={"keep_alive_max_s": keep_alive_max_s})
    return house


def sending(protocol: str, beat_s: int) -> tuple[Callable[..., Any], list[bytes]]:
    """The peer and the opening of a client that promises a word every ``beat_s`` seconds; 0: it promises nothing."""
    if protocol == "stomp":
        return StompPeer, [b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:%d,0\n\n\0" % (beat_s * 1000)]
    if protocol == "stomp 1.0":
        return StompPeer, [b"CONNECT\n\n\0"]
    if protocol == "amqp":
        return AmqpPeer, [OPENING, method(0, START_OK), method(0, Connection.TuneOk(0, 0, beat_s)),
                          method(0, Connection.Open())]  # fmt: skip
    if protocol == "amqp1":
        return Amqp1Peer, [b"AMQP\0\1\0\0" + write(0, Open("c", None, 65_536, 255, None))]
    idle = {"MaxInactivityDuration": b"\6" + pack(">q", beat_s * 1000)}
    return OpenWirePeer, [frames.wire_format(known=idle) + frames.connection_info("c")]


def greeted(house: House, protocol: str, beat_s: int) -> tuple[Any, bytes]:
    """The connection, and what the client was sent."""
    sock = Socket()
    peer, opening = sending(protocol, beat_s)
    connection = house.accept(sock, peer=peer)
    for piece in opening:
        sock.incoming.append(piece)
        house.run()
    return connection, bytes(sock.taken)


@pytest.mark.parametrize(
    ("protocol", "beat_s", "sends"),
    [
        ("stomp", 0, "no heartbeats"), ("stomp 1.0", 0, "no heartbeats"), ("amqp", 0, "no heartbeats"),
        ("openwire", 0, "no heartbeats"),
        ("stomp", 10, "a heartbeat every 10 s"), ("amqp", 10, "a heartbeat every 10 s"),
    ],
)  # fmt: skip
def test_client_that_sends_too_seldom_is_refused_and_told(protocol: str, beat_s: int, sends: str) -> None:
    connection, told = greeted(strict(3.0), protocol, beat_s)
    assert f"the client sends {sends}; keep_alive_max of this listener asks for one every 3 s".encode() in told
    assert not connection.admitted
    assert not connection.open


@pytest.mark.parametrize(
    ("protocol", "beat_s", "offered", "silence_s"),
    [
        ("stomp", 3, b"heart-beat:0,3000", 6.0), ("stomp", 2, b"heart-beat:0,2000", 4.0),
        ("amqp", 3, pack(">HIH", 2047, 131_072, 3), 6.0), ("amqp", 2, pack(">HIH", 2047, 131_072, 3), 4.0),
        ("amqp1", 0, write(0, Open("", None, 131_072, 255, 3000))[-9:], 6.0),
        ("openwire", 2, b"MaxInactivityDuration\6" + pack(">q", 2000), 2.0),
        ("openwire", 10, b"MaxInactivityDuration\6" + pack(">q", 3000), 3.0),
    ],
)  # fmt: skip
def test_silent_client_is_ended_in_the_time_that_was_agreed_on(
    protocol: str, beat_s: int, offered: bytes, silence_s: float
) -> None:
    house = strict(3.0)
    connection, told = greeted(house, protocol, beat_s)
    assert connection.admitted
    assert offered in told
    house.pass_time(silence_s - 0.1)
    assert connection.open
    house.pass_time(1.0)
    assert not connection.open


@pytest.mark.parametrize("protocol", ["stomp", "stomp 1.0", "amqp", "openwire"])
def test_without_a_limit_a_client_may_promise_nothing(protocol: str) -> None:
    house = strict(KEEP_ALIVE_S)
    connection, _ = greeted(house, protocol, 0)
    house.pass_time(1000.0)
    assert connection.open


@pytest.mark.parametrize(
    ("protocol", "beat_s", "offered"),
    [("amqp", 60, pack(">HIH", 2047, 131_072, 60)), ("openwire", 90, b"MaxInactivityDuration\6" + pack(">q", 90_000))],
)
def test_a_long_limit_is_a_limit_only(protocol: str, beat_s: int, offered: bytes) -> None:
    connection, told = greeted(strict(600.0), protocol, beat_s)
    assert connection.admitted
    assert offered in told


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("beat_s", [1, 2, 10])
def test_idle_client_hears_from_the_broker_in_half_the_promised_time(
    client: Callable[[House, float], Beaten], beat_s: float
) -> None:
    gaps = client(House(), beat_s).gaps(8 * beat_s, lambda: 1e9)
    assert max(gaps) <= 0.6 * beat_s
    assert len(gaps) <= 8 * 3  # and not much more often


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("beat_s", [1, 2])
def test_client_that_was_just_sent_something_hears_again_in_time(
    client: Callable[[House, float], Beaten], beat_s: float
) -> None:
    """Whatever else is sent, and when: a word right after a look must not put the next heartbeat off too far."""
    random = Random(beat_s)
    gaps = client(House(), beat_s).gaps(30 * beat_s, lambda: random.uniform(0.1, 1.5) * beat_s)
    assert max(gaps) <= 0.6 * beat_s


@pytest.mark.parametrize("asked_ms", [250, 400])
def test_short_idle_time_out_of_amqp1_is_kept(asked_ms: int) -> None:
    assert max(amqp1(House(), asked_ms / 1000).gaps(5, lambda: 1e9)) <= 0.8 * asked_ms / 1000


def test_too_short_an_interval_is_not_promised() -> None:
    hasty = Greedy(House(), StompPeer, b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:5,5\n\n\0")
    assert b"\nheart-beat:1000,1000\n" in hasty.sock.taken
    assert b"MaxInactivityDuration\6" + pack(">q", 250) in openwire(House(), 0.001).sock.taken


def test_clients_with_heartbeats_cost_four_looks_each_and_others_none(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    beaten = [stomp(house, 10) for _ in range(3)]
    for _ in range(200):
        Greedy(house, StompPeer, b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
    house.pass_time(10)
    looks = list[Any]()
    look = Supervision._look
    monkeypatch.setattr(Supervision, "_look", lambda self, one, now: looks.append(one) or look(self, one, now))
    house.pass_time(30)
    assert set(looks) == {one.connection for one in beaten}
    assert len(looks) <= 3 * 3 * 4


def test_client_whose_words_wait_in_the_socket_is_not_called_silent() -> None:
    """The loop was late: its timers are called before its sockets."""
    house = House()
    client = Greedy(house, StompPeer, b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:1000,0\n\n\0")
    house.pretended.now += 5
    client.sock.incoming.append(b"\n")
    for timer in house.pretended.due(house.now()):
        timer.call()
    house.run()
    assert client.connection.open
    house.pass_time(2.6)
    assert not client.connection.open
