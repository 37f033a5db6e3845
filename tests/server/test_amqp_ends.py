"""AMQP connections that end in the middle of anything, and the last words of either side."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp import base
from pamqp.commands import Basic, Connection, Tx
from tests.server.amqp_frames import CLOSE, MISTAKE, OPEN, OPENING, PARTS, START_OK, TUNED
from tests.server.amqp_stage import Client, House, Other, message, method, raw

from headway.core.base.errors import Reason

# -- the end, in the middle of anything --------------------------------------------------------------------------------


def idle(client: Client) -> None:
    client.put("q", b"1", b"2", b"3")


def consuming(client: Client) -> None:
    """Everything is with the client, and not settled."""
    idle(client)
    client.say(Basic.Consume(queue="q"))


def asking(client: Client) -> None:
    idle(client)
    client.say(Basic.Get(queue="q"), Basic.Get(queue="q"))


def half_sent(client: Client) -> None:
    """It has some of a delivery, and reads no more."""
    idle(client)
    client.reads = False
    client.sock.capacity = len(client.sock.taken) + 30
    client.say(Basic.Consume(queue="q"))
    assert client.connection.blocked


def answered(client: Client) -> None:
    """It does not read what it asked for."""
    idle(client)
    client.reads = False
    client.sock.capacity = 100
    client.say(*[Basic.Qos()] * 50)
    assert client.connection.out


def in_part(client: Client) -> None:
    idle(client)
    client.say(*PARTS[:3])


def in_a_frame(client: Client) -> None:
    idle(client)
    client.say(message(1, "q", b"4")[0][:-3])


def transaction(client: Client) -> None:
    idle(client)
    client.say(Tx.Select(), Basic.Get(queue="q"), Basic.Ack(1), message(1, "q", b"4"))


def deaf(client: Client) -> None:
    """Its channel was closed, and it has not granted that."""
    idle(client)
    client.say(Basic.Get(queue="q"), MISTAKE)


STATES: dict[str, Callable[[Client], None]] = {
    "idle": idle, "consuming": consuming, "asking": asking, "half a delivery": half_sent, "answers unread": answered,
    "a message in part": in_part, "a frame in part": in_a_frame, "a transaction": transaction, "deaf": deaf,
}  # fmt: skip


def vanish(client: Client) -> None:
    client.leave()


def close(client: Client) -> None:
    client.send(method(0, CLOSE))


def expel(client: Client) -> None:
    assert client.peer.session is not None
    client.house.broker.expel(client.peer.session, Reason.ADMIN, "an operator's wish", client.house.now())
    client.house.turn_soon()


def shut_down(client: Client) -> None:
    client.house.stop()


def go_silent(client: Client) -> None:
    client.connection.close_gracefully(Reason.KEEP_ALIVE, "nothing was heard")


ENDS: dict[str, tuple[Callable[[Client], None], str | None]] = {
    "vanishes": (vanish, None), "closes": (close, "Connection.CloseOk"), "is expelled": (expel, "Connection.Close 320"),
    "server stops": (shut_down, "Connection.Close 320"), "is silent": (go_silent, "Connection.Close 320"),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("state", STATES)
def test_the_end_in_the_middle_of(client: Client, state: str, end: str) -> None:
    """All it had not settled is for others, nothing else is left of it; and the last word is whole, and the last."""
    house = client.house
    STATES[state](client)
    do, last_word = ENDS[end]
    if (state, end) == ("a frame in part", "closes"):
        client.send(message(1, "q", b"4")[0][-3:] + b"".join(message(1, "q", b"4")[1:]))
    if state == "half a delivery" and end == "closes":
        client.reads = True  # nothing is read from whoever does not read what it is answered
    do(client)
    client.reads, client.sock.capacity = True, 1 << 20
    client.run()
    assert not client.open
    words = client.new()
    if last_word is not None:
        assert words[-1] == last_word
        assert not client.tail
    assert not house.broker.registry.sessions
    assert not house.connections
    assert house.stats("q").unacknowledged == 0
    assert not house.queues["q"].members
    house.stopped = False  # one that has stopped serves nobody, and here somebody looks what is left
    after = Client(house, "after")
    expected = [b"1", b"2", b"3"] + [b"4"] * ((state, end) == ("a frame in part", "closes"))
    assert after.drain("q") == expected


@pytest.mark.parametrize("said", [CLOSE, Connection.StartOk()], ids=["closes", "is at fault"])
def test_nothing_is_sent_after_the_last_word(client: Client, said: base.Frame) -> None:
    client.say(Basic.Qos(), method(0, said))
    assert not client.open
    assert not client.sock.late


# -- last words --------------------------------------------------------------------------------------------------------

FORCED = {Reason.SHUTDOWN, Reason.ADMIN, Reason.TAKEN_OVER, Reason.KEEP_ALIVE, Reason.CONNECT_TIMEOUT}


@pytest.mark.parametrize("reason", Reason)
def test_last_words(house: House, reason: Reason) -> None:
    """Whoever ends it, the client is told why; but not before it is in."""
    client, early = Client(house), Client(house, begin=False)
    early.send(OPENING, method(0, START_OK))
    for one in (client, early):
        one.connection.close_gracefully(reason, "because of that")
        one.run()
    code, name = (320, "CONNECTION_FORCED") if reason in FORCED else (506, "RESOURCE_ERROR")
    if reason is Reason.INTERNAL_ERROR:
        code, name = 541, "INTERNAL_ERROR"
    if reason is Reason.NOT_AUTHORIZED:
        code, name = 403, "ACCESS_REFUSED"
    assert client.new()[-1] == f"Connection.Close {code}"
    close = client.last(Connection.Close)
    assert (close.reply_text, close.class_id, close.method_id) == (f"{name} - because of that", 0, 0)
    assert early.new() == TUNED


@pytest.mark.parametrize(
    ("said", "code", "index"),
    [
        (method(1, Basic.Qos(prefetch_size=1)), 540, Basic.Qos.index),
        (method(9, Basic.Get()), 504, Basic.Get.index),
        (b"".join(message(9, "q", b"x")), 504, Basic.Publish.index),
        (method(9, Basic.Ack(1)), 504, Basic.Ack.index),
        (method(0, OPEN), 503, OPEN.index),
        (raw(9, 0, b"?"), 501, 0),
    ],
    ids=["qos", "get", "publish", "ack", "open", "noise"],
)
def test_a_mistake_is_named(client: Client, said: bytes, code: int, index: int) -> None:
    assert client.say(said) == [f"Connection.Close {code}"]
    close = client.last(Connection.Close)
    assert close.class_id << 16 | close.method_id == index
    assert len(client.house.blamed) == 1
    assert client.house.blamed[0] in close.reply_text


def test_the_close_of_0_8_has_a_number_of_its_own(house: House) -> None:
    client = Client(house, version="0-8", channels=0)
    client.say(raw(1, 1, b"\x00\x14\x00\x0a\x00"))
    assert client.say(method(9, Basic.Get())) == ["Other 10 60"]
    _, item = client.heard[-1]
    assert isinstance(item, Other)
    assert item.arguments[:2] == (504).to_bytes(2, "big")


def test_a_bug_of_ours_ends_one_connection(client: Client, other: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is put on record, and the others go on."""
    with monkeypatch.context() as broken:
        broken.setattr(client.house.broker.queues, "queue", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            client.say(Basic.Get(queue="q"))
    client.run()
    assert client.new() == ["Connection.Close 541"]
    assert not client.open
    assert other.put("q", b"x") == []
    assert other.drain("q") == [b"x"]
