"""AMQP connections before they are open, and their heartbeats."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Connection, Queue
from tests.server.amqp_frames import CLOSE, OPEN, OPENED, OPENING, START_OK, STARTED, TUNE_OK, TUNED
from tests.server.amqp_stage import ABLE, Client, House, message, method, raw

from headway.core.base.errors import Reason
from headway.core.permission import Identity
from headway.server.logins import Attempt

# -- the handshake -----------------------------------------------------------------------------------------------------

EARLY: dict[str, tuple[list[base.Frame | bytes], list[str]]] = {
    "tune-ok first": ([TUNE_OK], [*STARTED, "Connection.Close 503"]),
    "open first": ([OPEN], [*STARTED, "Connection.Close 503"]),
    "start-ok twice": ([START_OK, START_OK], [*TUNED, "Connection.Close 503"]),
    "open before tune-ok": ([START_OK, OPEN], [*TUNED, "Connection.Close 503"]),
    "tune-ok twice": ([START_OK, TUNE_OK, TUNE_OK], [*TUNED, "Connection.Close 503"]),
    "start-ok after tune-ok": ([START_OK, TUNE_OK, START_OK], [*TUNED, "Connection.Close 503"]),
    "open twice": ([START_OK, TUNE_OK, OPEN, OPEN], [*OPENED, "Connection.Close 503"]),
    "secure-ok": ([Connection.SecureOk("x")], [*STARTED, "Connection.Close 503"]),
    "close-ok": ([Connection.CloseOk()], [*STARTED, "Connection.Close 503"]),
    "close-ok, open": ([START_OK, TUNE_OK, OPEN, Connection.CloseOk()], [*OPENED, "Connection.Close 503"]),
    "a new secret": ([Connection.UpdateSecret("s", "t")], [*STARTED, "Connection.Close 503"]),
    "a channel": ([method(1, Channel.Open())], [*STARTED, "Connection.Close 503"]),
    "a channel before open": ([START_OK, TUNE_OK, method(1, Channel.Open())], [*TUNED, "Connection.Close 503"]),
    "a channel's close": ([method(1, Channel.Close(200, "", 0, 0))], [*STARTED, "Connection.Close 503"]),
    "a channel's close-ok": ([method(1, Channel.CloseOk())], [*STARTED, "Connection.Close 504"]),
    "a message": (message(1, "q", b"x"), [*STARTED, "Connection.Close 503"]),  # type: ignore[dict-item]
    "an ack": ([method(1, Basic.Ack(1))], [*STARTED, "Connection.Close 503"]),
    "no such mechanism": ([Connection.StartOk({}, "EXTERNAL", "")], [*STARTED, "Connection.Close 503"]),
    "no password": ([Connection.StartOk({}, "PLAIN", "guest")], [*STARTED, "Connection.Close 502"]),
    "small frames": ([START_OK, Connection.TuneOk(0, 4095, 0)], [*TUNED, "Connection.Close 530"]),
    "large frames": ([START_OK, Connection.TuneOk(0, 131_073, 0)], [*TUNED, "Connection.Close 530"]),
    "many channels": ([START_OK, Connection.TuneOk(2048, 0, 0)], [*TUNED, "Connection.Close 530"]),
    "another vhost": ([START_OK, TUNE_OK, Connection.Open("/x")], [*TUNED, "Connection.Close 530"]),
    "closed at once": ([CLOSE], [*STARTED, "Connection.CloseOk"]),
    "closed, tuned": ([START_OK, CLOSE], [*TUNED, "Connection.CloseOk"]),
    "closed before open": ([START_OK, TUNE_OK, CLOSE], [*TUNED, "Connection.CloseOk"]),
    "closed, and more": ([START_OK, CLOSE, TUNE_OK, b"what?"], [*TUNED, "Connection.CloseOk"]),
    "more bytes than anybody": ([raw(1, 0, bytes(5000))], [*STARTED, "Connection.Close 501"]),
}


@pytest.mark.parametrize("breath", [True, False], ids=["at once", "bit by bit"])
@pytest.mark.parametrize("what", EARLY)
def test_mistakes_in_the_handshake(house: House, what: str, breath: bool) -> None:
    """The connection ends, with a word; nothing of it is left."""
    said, expected = EARLY[what]
    data = OPENING + b"".join(one if isinstance(one, bytes) else method(0, one) for one in said)
    client = Client(house, begin=False)
    client.send(*([data] if breath else [data[at : at + 1] for at in range(len(data))]))
    assert client.new() == expected
    assert not client.open
    assert not house.connections
    assert not house.broker.registry.sessions


@pytest.mark.parametrize("opening", [b"HTTP/1.1", b"AMQP\0\1\0\0", b"AMQP\0\0\0\0"])
def test_another_protocol_is_told_which_there_is(house: House, opening: bytes) -> None:
    client = Client(house, begin=False)
    client.send(opening[:5], opening[5:] + method(0, START_OK))
    assert [item for _, item in client.heard] == [OPENING]
    assert not client.open


def test_nothing_is_said_before_the_first_eight_bytes(house: House) -> None:
    client = Client(house, begin=False)
    client.send(*(OPENING[at : at + 1] for at in range(7)))
    assert client.new() == []
    client.send(OPENING[7:])
    assert client.new() == STARTED


def test_all_of_the_handshake_in_one_breath(house: House) -> None:
    client = Client(house, begin=False)
    frames = [method(0, START_OK), raw(8, 0, b""), method(0, TUNE_OK), method(0, OPEN), method(3, Channel.Open())]
    client.send(OPENING + b"".join(frames))
    assert client.new() == [*OPENED, "3 Channel.OpenOk"]


def test_who_does_not_say_who_it_is_has_to_go(house: House) -> None:
    client = Client(house, begin=False)
    client.send(OPENING, method(0, START_OK))
    house.pass_time(9)
    assert client.open
    house.pass_time(3)
    client.run()
    assert client.new() == TUNED
    assert not client.open


# -- who it is ---------------------------------------------------------------------------------------------------------

SECRET: dict[str, Any] = {"allow_anonymous_given": False}
AFTER = method(0, TUNE_OK) + method(0, OPEN) + method(1, Channel.Open())


def log_in(house: House, password: str, more: bytes = b"", able: tuple[str, ...] = ABLE) -> Client:
    """Its password is looked at for as long as ``hold_tasks`` says."""
    house.pretended.hold_tasks = True
    client = Client(house, "ann", able=able, begin=False, **SECRET)
    client.send(OPENING + method(0, client.start_ok("ann", password)) + more)
    assert client.new() == STARTED
    assert client.connection.reading_paused_by == {"password": None}
    return client


def test_what_comes_while_a_password_is_looked_at_waits(house: House) -> None:
    client = log_in(house, "right", AFTER)
    client.sock.incoming.append(method(1, Queue.Declare(queue="q")))
    client.run()
    assert client.new() == []
    house.pretended.hold_tasks = False
    client.run()
    assert client.new() == ["Connection.Tune", "Connection.OpenOk", "1 Channel.OpenOk", "1 Queue.DeclareOk q 0 0"]
    assert client.connection.reading_paused_by == {}


def test_of_many_newer_tokens_one_is_checked_at_a_time_and_then_the_last(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no client fills the queue in which all who come with a token wait."""
    checked: list[bytes] = []

    async def check(attempt: Attempt, _: object) -> Identity:
        checked.append(attempt.password)
        return Identity("guest", until_s=time.time() + 1e6)

    monkeypatch.setattr(house.logins, "is_token", lambda _: True)
    monkeypatch.setattr(house.logins, "check", check)
    client = Client(house, "c")
    client.peer.identity = Identity("guest", until_s=time.time() + 1e6)
    many = [method(0, Connection.UpdateSecret(f"token {number}", "it expires")) for number in range(100)]
    assert client.say(*many, channel=0) == ["Connection.UpdateSecretOk"] * 100
    assert checked == [b"token 0", b"token 99"]
    assert client.say(many[5], channel=0) == ["Connection.UpdateSecretOk"]
    assert checked[-1] == b"token 5"


@pytest.mark.parametrize(("able", "expected"), [(ABLE, ["Connection.Close 403"]), ((), [])], ids=["able", "not able"])
def test_a_wrong_password(house: House, able: tuple[str, ...], expected: list[str]) -> None:
    """Who does not know that it is told is hung up on (as the specification has it)."""
    client = log_in(house, "wrong", AFTER, able)
    house.pretended.hold_tasks = False
    client.run()
    assert client.new() == expected
    assert not client.open
    assert not house.broker.registry.sessions


def test_a_password_and_noise(house: House) -> None:
    """Everything before the noise counts."""
    client = log_in(house, "right", AFTER + raw(9, 0, b"noise"))
    house.pretended.hold_tasks = False
    client.run()
    assert client.new() == ["Connection.Tune", "Connection.OpenOk", "1 Channel.OpenOk", "Connection.Close 501"]


def test_who_is_gone_before_its_password_was_looked_at(house: House) -> None:
    client = log_in(house, "right", AFTER)
    client.connection.close(Reason.CLIENT_GONE)
    house.pretended.hold_tasks = False
    house.run()
    assert not house.broker.registry.sessions


def test_a_connection_goes_by_its_name_if_nobody_else_does(house: House) -> None:
    one, two, three = (Client(house, "same", channels=0) for _ in range(3))
    assert list(house.broker.registry.sessions) == ["same", "same#2", "same#3"]
    two.leave()
    Client(house, "same", channels=0)
    assert set(house.broker.registry.sessions) == {"same", "same#2", "same#3"}
    one.leave()
    three.leave()
    Client(house, "same", channels=0)
    assert set(house.broker.registry.sessions) == {"same", "same#2"}


@pytest.mark.parametrize(
    ("said", "name"), [("a" * 300, "a" * 200), ("with\na break", None), (7, None), ("", None), ("zwei Wörter", ...)],
    ids=["long", "not to be printed", "no text", "empty", "fine"],
)  # fmt: skip
def test_names_that_are_none(house: House, said: Any, name: Any) -> None:
    client = Client(house, begin=False)
    start_ok = Connection.StartOk({"connection_name": said}, "PLAIN", "\0guest\0guest")
    client.send(OPENING, method(0, start_ok), method(0, TUNE_OK), method(0, OPEN))
    expected = said if name is ... else name or f"amqp-{client.connection.address}"
    assert list(house.broker.registry.sessions) == [expected]


# -- heartbeats --------------------------------------------------------------------------------------------------------


def alive(client: Client, seconds: int) -> None:
    """It says that it is there, every second."""
    for _ in range(seconds):
        client.house.pass_time(1)
        client.send(raw(8, 0, b""))


def test_we_say_that_we_are_there_if_nothing_else_does(house: House) -> None:
    """Some twice in each interval."""
    idle, busy, without = Client(house, heartbeat=10), Client(house, heartbeat=10), Client(house)
    for _ in range(60):
        house.pass_time(1)
        idle.send(raw(8, 0, b""))
        assert busy.say(Basic.Qos()) == ["1 Basic.QosOk"]
    idle.run()
    without.run()
    assert 9 <= idle.new().count("Heartbeat") <= 12
    assert without.new() == []
    house.pass_time(6)
    busy.run()
    assert busy.new() == ["Heartbeat"]


def test_none_before_the_connection_is_open(house: House) -> None:
    client = Client(house, begin=False)
    client.send(OPENING, method(0, START_OK), method(0, Connection.TuneOk(0, 0, 2)))
    house.pass_time(6)
    client.run()
    assert client.new() == TUNED


def test_none_for_who_does_not_read(house: House) -> None:
    """What it has not read is sign enough; and so is what waits for it."""
    client = Client(house, heartbeat=2)
    client.reads = False
    client.sock.capacity = 20
    client.sock.incoming.append(method(1, Basic.Qos()) * 5)
    alive(client, 10)
    client.reads = True
    client.run()
    assert client.new() == ["1 Basic.QosOk"] * 5


def test_who_is_silent_for_two_heartbeats_has_to_go(house: House) -> None:
    silent, busy = Client(house, heartbeat=10), Client(house, heartbeat=10)
    alive(busy, 20)
    assert silent.open
    alive(busy, 2)
    silent.run()
    assert silent.new()[-1] == "Connection.Close 320"
    assert busy.open
