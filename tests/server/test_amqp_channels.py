"""The state machine of AMQP's connections and channels, where clients that behave do not lead: everything out of order,
at once, or too late."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx
from tests.server.amqp_stage import ABLE, OPENINGS, Client, House, Other, message, method, raw, reason_of
from tests.sim.outlet import PretendedOutlet

from headway.core.base.errors import Reason
from headway.core.consumer.effects import CloseChannel
from headway.core.consumer.options import SubscribeRequest
from headway.core.consumer.session import ConnectRequest
from headway.wire.mqtt.dialect import MqttDialect


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def client(house: House) -> Client:
    """With two channels, and a queue."""
    client = Client(house, "client", channels=2)
    client.declare("q")
    return client


@pytest.fixture
def other(house: House, client: Client) -> Client:
    """After ``client``, whose queue it may use."""
    return Client(house, "other")


def policy(then: str, *, queue: str = "q", when: str = "lag_records = 3") -> str:
    return f"""
[[policy]]
name = "p"
topics = ["$queue/{queue}"]
[[policy.rule]]
when = {{ {when} }}
then = "{then}"
"""


# -- the handshake -----------------------------------------------------------------------------------------------------

OPENING = OPENINGS["0-9-1"]
START_OK = Connection.StartOk({}, "PLAIN", "\0guest\0guest")
TUNE_OK = Connection.TuneOk(0, 0, 0)
OPEN = Connection.Open()
CLOSE = Connection.Close(200, "bye", 0, 0)
STARTED = ["Connection.Start"]
TUNED = [*STARTED, "Connection.Tune"]
OPENED = [*TUNED, "Connection.OpenOk"]
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


@pytest.mark.parametrize("opening", [b"HTTP/1.1", b"AMQP\0\1\0\0", b"AMQP\0\0\0\0", b"\x16\x03\x01\x02\0\1\0\1"])
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


# -- channels, opened and closed ---------------------------------------------------------------------------------------

BYE = Channel.Close(200, "bye", 0, 0)
MISTAKE = Basic.Ack(99)


def test_channels_are_opened_once_and_up_to_what_was_agreed(house: House) -> None:
    client = Client(house, channel_max=5, channels=0)
    assert client.say(Channel.Open(), channel=5) == ["5 Channel.OpenOk"]
    assert client.say(Channel.Open(), channel=6) == ["Connection.Close 504"]
    client = Client(house)
    assert client.say(Channel.Open()) == ["Connection.Close 504"]


MUTE: dict[str, base.Frame | list[bytes]] = {
    "queue.declare": Queue.Declare(queue="new"), "exchange.declare": Exchange.Declare(exchange="new"),
    "queue.delete": Queue.Delete(queue="q"), "queue.bind": Queue.Bind(queue="q", exchange="amq.fanout"),
    "basic.consume": Basic.Consume(queue="q"), "basic.get": Basic.Get(queue="q"), "basic.qos": Basic.Qos(),
    "qos in bytes": Basic.Qos(prefetch_size=1), "basic.ack": Basic.Ack(1), "ack of nothing": MISTAKE,
    "basic.nack": Basic.Nack(1), "basic.recover": Basic.Recover(True), "channel.flow": Channel.Flow(False),
    "confirm.select": Confirm.Select(), "tx.select": Tx.Select(), "tx.commit": Tx.Commit(),
    "channel.flow-ok": Channel.FlowOk(True), "basic.publish": message(1, "q", b"no"),
    "large": message(1, "q", bytes(9000)),
    "too large": [message(1, "q", b"")[0], raw(2, 1, struct.pack(">HHQH", 60, 0, 17_000_000, 0))],
}  # fmt: skip


@pytest.mark.parametrize("what", MUTE)
@pytest.mark.parametrize("breath", [True, False], ids=["at once", "later"])
def test_a_channel_that_we_have_closed_is_deaf_until_the_client_knows(client: Client, what: str, breath: bool) -> None:
    client.put("q", b"yes")
    if breath:
        assert client.say(MISTAKE, MUTE[what]) == ["1 Channel.Close 406"]
    else:
        assert client.say(MISTAKE) == ["1 Channel.Close 406"]
        assert client.say(MUTE[what]) == []
    assert list(client.house.queues) == ["q"]
    assert client.say(Basic.Get(queue="q"), channel=2) == ["2 Basic.GetOk 1 yes 0"]
    assert client.say(Channel.CloseOk(), Channel.Open(), Basic.Qos()) == ["1 Channel.OpenOk", "1 Basic.QosOk"]


def test_nor_does_it_give_tickets(house: House) -> None:
    client = Client(house, version="0-9")
    request = raw(1, 1, (30 << 16 | 10).to_bytes(4, "big") + b"\x00\x00")
    assert client.say(request) == ["1 Other 30 11"]
    assert client.say(MISTAKE, request) == ["1 Channel.Close 406"]


def test_both_close_at_once(client: Client) -> None:
    """Each gets its answer; the number is free once ours has come."""
    assert client.say(MISTAKE, BYE) == ["1 Channel.Close 406", "1 Channel.CloseOk"]
    assert client.say(Basic.Qos()) == []
    assert client.say(BYE) == ["1 Channel.CloseOk"]
    assert client.say(Channel.CloseOk(), Channel.Open(), Basic.Qos()) == ["1 Channel.OpenOk", "1 Basic.QosOk"]


@pytest.mark.parametrize(
    "said", [[BYE, Basic.Qos()], [BYE, BYE], [Channel.CloseOk()], [MISTAKE, Channel.CloseOk(), Channel.CloseOk()],
             [MISTAKE, Channel.Open()], [MISTAKE, BYE, Channel.Open()]],
    ids=["used after its end", "closed twice", "granted unasked", "granted twice", "opened again", "opened too early"],
)  # fmt: skip
def test_a_number_is_used_for_what_it_is_not(client: Client, said: list[base.Frame]) -> None:
    assert client.say(*said)[-1] == "Connection.Close 504"


def test_what_a_channel_held_is_for_others_when_it_ends(client: Client, other: Client) -> None:
    """At once, not when the client knows of it; and in its old place."""
    client.say(Basic.Consume(queue="q", consumer_tag="t"), Confirm.Select())
    assert client.put("q", b"1", b"2") == ["1 Basic.Ack 2+", "1 Basic.Deliver t 1 1", "1 Basic.Deliver t 2 2"]
    assert client.say(MISTAKE) == ["1 Channel.Close 406"]
    assert other.drain("q") == [b"1", b"2"]
    assert client.say(Channel.CloseOk(), Channel.Open(), Confirm.Select(), channel=1)[-1] == "1 Confirm.SelectOk"
    assert client.put("q", b"3") == ["1 Basic.Ack 1"]  # it counts anew
    assert client.say(Basic.Get(queue="q")) == ["1 Basic.GetOk 1 3 0"]


def test_the_other_channel_notices_nothing(client: Client) -> None:
    client.say(Basic.Consume(queue="q", consumer_tag="t"), channel=2)
    assert client.say(MISTAKE, message(2, "q", b"x")) == ["1 Channel.Close 406", "2 Basic.Deliver t 1 x"]
    assert client.say(Basic.Ack(1), Basic.Qos(), channel=2) == ["2 Basic.QosOk"]


# -- a message in the middle -------------------------------------------------------------------------------------------

LONG = bytes(b"x" * 6000)
PARTS = message(1, "q", LONG)


def close_by_effect(client: Client, channel: int = 1) -> list[str]:
    """As the governor has it."""
    peer = client.peer
    assert peer.session is not None
    effect = CloseChannel(peer.session, peer.channels[channel].core, Reason.LAG_AGE, "too slow")
    client.house.broker.registry.effects.append(effect)
    client.house.turn_soon()
    client.run()
    return client.new()


@pytest.mark.parametrize("said", [1, 2, 3], ids=["method", "header", "some of its body"])
@pytest.mark.parametrize("then", ["the rest", "nothing", "half"])
def test_a_channel_ends_in_the_middle_of_a_message(client: Client, said: int, then: str) -> None:
    client.say(*PARTS[:said])
    assert close_by_effect(client) == ["1 Channel.Close 506"]
    rest = PARTS[said:]
    assert client.say(*{"the rest": rest, "nothing": [], "half": rest[:1]}[then]) == []
    assert client.say(Channel.CloseOk(), Channel.Open()) == ["1 Channel.OpenOk"]
    assert client.put("q", b"whole") == []
    assert client.drain("q") == [b"whole"]


@pytest.mark.parametrize("said", [1, 2, 3], ids=["method", "header", "some of its body"])
def test_a_mistake_and_some_of_a_message(client: Client, said: int) -> None:
    assert client.say(MISTAKE, *PARTS[:said]) == ["1 Channel.Close 406"]
    again: list[Any] = [Channel.CloseOk(), Channel.Open(), message(1, "q", b"new")]
    assert client.say(*PARTS[said:], *again) == ["1 Channel.OpenOk"]
    assert client.drain("q") == [b"new"]


def test_messages_on_two_channels_frame_by_frame(client: Client) -> None:
    theirs = message(2, "q", b"y" * 6000)
    mixed = [frame for pair in zip(PARTS, theirs, strict=True) for frame in pair]
    assert client.say(*mixed[:5]) == []
    assert close_by_effect(client, channel=2) == ["2 Channel.Close 506"]
    assert client.say(*mixed[5:]) == []
    assert client.drain("q") == [LONG]


def test_what_comes_of_a_channel_that_was_closed_is_not_kept(house: House) -> None:
    """Or parts of too many messages would be there."""
    client = Client(house, packet_bytes_given=6000, channels=4)
    for channel in range(1, 5):
        assert client.say(message(channel, "q", LONG, frame_max=5000)[:3], channel=channel) == []
        assert close_by_effect(client, channel) == [f"{channel} Channel.Close 506"]
        assert client.say(raw(3, channel, LONG[4992:-1])) == []


@pytest.mark.parametrize("said", [1, 2, 3], ids=["method", "header", "some of its body"])
def test_a_client_closes_its_channel_in_the_middle_of_a_message(client: Client, said: int) -> None:
    assert client.say(*PARTS[:said], BYE) == ["Connection.Close 505"]


@pytest.mark.parametrize("said", [1, 2, 3], ids=["method", "header", "some of its body"])
def test_a_number_used_again_in_the_same_breath(client: Client, said: int) -> None:
    """What has come of the new channel's first message is no message of the old one's."""
    assert client.say(BYE, Channel.Open(), *PARTS[:said]) == ["1 Channel.CloseOk", "1 Channel.OpenOk"]
    client.say(*PARTS[said:])
    assert client.drain("q") == [LONG]


def test_a_message_that_is_too_large_ends_its_channel_at_once(house: House) -> None:
    client = Client(house, packet_bytes_given=5000)
    client.declare("q")
    assert client.say(*PARTS[:2]) == ["1 Channel.Close 311"]
    assert client.say(*PARTS[2:]) == []
    assert client.say(Channel.CloseOk(), Channel.Open(), message(1, "q", b"x" * 5000)) == ["1 Channel.OpenOk"]
    assert client.drain("q") == [b"x" * 5000]


def test_parts_of_too_many_messages(house: House) -> None:
    """Two of the largest may be there in part, on however many channels."""
    client = Client(house, packet_bytes_given=5000, channels=4)
    for channel in (1, 2):
        assert client.say(message(channel, "q", b"x" * 4999, frame_max=5006)[:3], channel=channel) == []
    assert client.say(message(3, "q", b"x" * 4999, frame_max=5006)[:2], message(4, "q", b"x"), channel=4) == []
    assert client.say(message(3, "q", b"x" * 4999, frame_max=5006)[2]) == ["Connection.Close 506"]


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
    after = Client(house, "after")
    expected = [b"1", b"2", b"3"] + [b"4"] * ((state, end) == ("a frame in part", "closes"))
    assert after.drain("q") == expected


@pytest.mark.parametrize("said", [CLOSE, Connection.StartOk()], ids=["closes", "is at fault"])
def test_nothing_is_sent_after_the_last_word(client: Client, said: base.Frame) -> None:
    client.say(Basic.Qos(), method(0, said))
    assert not client.open
    assert not client.sock.late


# -- transactions ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tx(client: Client) -> Client:
    """Channel 1 has transactions."""
    assert client.say(Tx.Select()) == ["1 Tx.SelectOk"]
    return client


def waiting(client: Client, queue: str = "q") -> int:
    return client.house.stats(queue).records


def test_a_commit_publishes_in_the_order_it_was_said(tx: Client, other: Client) -> None:
    tx.put("q", b"1")
    other.put("q", b"2")
    tx.put("q", b"3", b"4")
    assert waiting(tx) == 1
    assert tx.say(Tx.Commit()) == ["1 Tx.CommitOk"]
    assert other.drain("q") == [b"2", b"1", b"3", b"4"]
    assert tx.say(Tx.Commit()) == ["1 Tx.CommitOk"]  # the next one has begun
    assert waiting(tx) == 0


@pytest.mark.parametrize(
    "end", [Tx.Rollback(), BYE, MISTAKE, CLOSE, None], ids=["rollback", "close", "verdict", "connection", "gone"]
)
def test_without_a_commit_nothing_was_said(tx: Client, other: Client, end: base.Frame | None) -> None:
    tx.put("q", b"1", b"2")
    tx.say(Basic.Get(queue=""), Basic.Get(queue=""))
    other.put("q", b"a", b"b")
    tx.say(Basic.Get(queue="q"), Basic.Get(queue="q"))
    tx.say(Basic.Ack(1), Basic.Nack(2, requeue=False))
    assert tx.house.stats("q").unacknowledged == 2
    if end is None:
        tx.leave()
    elif end is MISTAKE:
        assert close_by_effect(tx) == ["1 Channel.Close 506"]
    else:
        tx.say(method(0, end) if end is CLOSE else end)
    if isinstance(end, Tx.Rollback):
        assert tx.say(Basic.Ack(1), Basic.Ack(2), Tx.Commit()) == ["1 Tx.CommitOk"]
        assert other.drain("q") == []
    else:
        assert other.drain("q") == [b"a", b"b"]


def test_settlements_count_from_the_commit_on(tx: Client, other: Client) -> None:
    other.put("q", *(b"%d" % number for number in range(1, 7)))
    tx.say(*[Basic.Get(queue="q")] * 6)
    tx.say(Basic.Ack(2, True), Basic.Nack(3, requeue=True), Basic.Reject(4, requeue=False), Basic.Nack(6, requeue=True))
    assert (waiting(tx), tx.house.stats("q").unacknowledged) == (0, 6)
    assert tx.say(Tx.Commit()) == ["1 Tx.CommitOk"]
    assert (waiting(tx), tx.house.stats("q").unacknowledged) == (2, 1)
    assert other.drain("q") == [b"3", b"6"]


def test_what_nobody_wants_is_returned_before_the_commit_is_granted(tx: Client) -> None:
    assert tx.put("nowhere", b"1", mandatory=True) == []
    assert tx.put("q", b"2", immediate=True) == []
    assert tx.say(Tx.Commit()) == ["1 Basic.Return 312 1", "1 Basic.Return 313 2", "1 Tx.CommitOk"]
    assert tx.put("nowhere", b"1", mandatory=True) == []
    assert tx.say(Tx.Rollback()) == ["1 Tx.RollbackOk"]


def test_what_may_not_be_published_is_refused_at_once(tx: Client) -> None:
    assert tx.put("q", b"1") == []
    assert tx.put("q", b"2", exchange="none") == ["1 Channel.Close 404"]
    assert waiting(tx) == 0


def test_an_exchange_that_is_gone_at_the_commit(tx: Client) -> None:
    """It takes nothing, and that is no reason for others to miss anything."""
    tx.say(Exchange.Declare(exchange="e", exchange_type="fanout"), Queue.Bind(queue="q", exchange="e"))
    tx.put("", b"1", exchange="e", mandatory=True)
    tx.put("q", b"2")
    tx.say(Exchange.Delete(exchange="e"), channel=2)
    assert tx.say(Tx.Commit()) == ["1 Basic.Return 312 1", "1 Tx.CommitOk"]
    assert tx.drain("q") == [b"2"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([Tx.Commit()], ["1 Channel.Close 406"]),
        ([Tx.Rollback()], ["1 Channel.Close 406"]),
        ([Confirm.Select(), Tx.Select()], ["1 Confirm.SelectOk", "1 Channel.Close 406"]),
        ([Tx.Select(), Confirm.Select()], ["1 Tx.SelectOk", "1 Channel.Close 406"]),
        ([Tx.Select(), Confirm.Select(nowait=True)], ["1 Tx.SelectOk", "1 Channel.Close 406"]),
        ([Tx.Select(), message(1, "q", b"1"), Tx.Select(), Tx.Commit()],
         ["1 Tx.SelectOk", "1 Tx.SelectOk", "1 Tx.CommitOk"]),
    ],
    ids=["commit nothing", "roll back nothing", "confirms, tx", "tx, confirms", "tx, confirms unasked", "tx twice"],
)  # fmt: skip
def test_what_has_transactions(client: Client, said: list[Any], expected: list[str]) -> None:
    assert client.say(*said) == expected
    assert waiting(client) == (len(said) == 4)


def test_the_other_channel_has_none(tx: Client) -> None:
    tx.put("q", b"1")
    tx.put("q", b"2", channel=2)
    assert tx.drain("q") == [b"2"]


def test_an_ack_of_all_is_of_all_there_was(tx: Client, other: Client) -> None:
    """What is delivered between it and the commit is not acknowledged."""
    tx.say(Basic.Consume(queue="q", consumer_tag="t"))
    other.put("q", b"1")
    assert tx.say(Basic.Ack(0, True)) == ["1 Basic.Deliver t 1 1"]
    other.put("q", b"2")
    assert tx.say(Tx.Commit()) == ["1 Basic.Deliver t 2 2", "1 Tx.CommitOk"]
    tx.leave()
    assert other.drain("q") == [b"2"]


@pytest.mark.parametrize(
    "said", [Basic.Ack(9), Basic.Ack(9, True), Basic.Nack(9), Basic.Reject(9)],
    ids=["ack", "ack upto", "nack", "reject"],
)  # fmt: skip
def test_a_commit_is_of_all_or_nothing(tx: Client, other: Client, said: base.Frame) -> None:
    tx.put("q", b"1")
    assert [*tx.say(said), *tx.say(Tx.Commit())] == ["1 Channel.Close 406"]
    assert other.drain("q") == []


@pytest.mark.parametrize("again", [Basic.Ack(2), Basic.Ack(2, True), Basic.Nack(2), Basic.Reject(2)],
                         ids=["ack", "ack upto", "nack", "reject"])  # fmt: skip
@pytest.mark.parametrize("first", [Basic.Ack(2), Basic.Ack(2, True), Basic.Nack(0, True), Basic.Reject(2)],
                         ids=["ack", "ack upto", "nack all", "reject"])  # fmt: skip
def test_what_is_to_be_settled_can_be_settled_once(tx: Client, other: Client, first: Any, again: Any) -> None:
    other.put("q", b"1", b"2")
    tx.say(Basic.Get(queue="q"), Basic.Get(queue="q"))
    assert tx.say(first) == []
    assert tx.say(again) == ["1 Channel.Close 406"]
    assert other.drain("q") == [b"1", b"2"]


@pytest.mark.parametrize("how", [Basic.Ack(1), Basic.Nack(1, requeue=False), Basic.Reject(1, requeue=False)],
                         ids=["ack", "nack", "reject"])  # fmt: skip
def test_what_is_to_be_settled_is_not_recovered(tx: Client, other: Client, how: base.Frame) -> None:
    other.put("q", b"1", b"2")
    tx.say(Basic.Get(queue="q"), Basic.Get(queue="q"))
    tx.put("q", b"3")
    assert tx.say(how, Basic.Recover(True), Tx.Commit()) == ["1 Basic.RecoverOk", "1 Tx.CommitOk"]
    assert other.drain("q") == [b"2", b"3"]


# -- confirms ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sure(client: Client) -> Client:
    """Channel 1 has confirms."""
    assert client.put("q", b"uncounted") == []
    assert client.say(Confirm.Select()) == ["1 Confirm.SelectOk"]
    return client


def test_confirms_count_from_the_first_on(sure: Client) -> None:
    assert sure.put("q", b"1") == ["1 Basic.Ack 1"]
    assert sure.put("q", *[b"x"] * 4) == ["1 Basic.Ack 5+"]
    assert sure.put("q", b"x", b"xx", b"xxx") == ["1 Basic.Ack 8+"]
    assert sure.put("q", b"x", channel=2) == []
    assert sure.put("nowhere", b"x", b"x") == ["1 Basic.Ack 10+"]  # nobody minds that it is lost
    assert sure.say(Confirm.Select(), message(1, "q", b"x")) == ["1 Confirm.SelectOk", "1 Basic.Ack 11"]
    assert sure.put("q", b"x" * 9000) == ["1 Basic.Ack 12"]
    assert sure.say(Confirm.Select(), message(2, "q", b"x"), channel=2) == ["2 Confirm.SelectOk", "2 Basic.Ack 1"]


def test_several_runs_in_one_breath(sure: Client) -> None:
    said = [message(1, key, b"x") for key in ("q", "q", "nowhere", "q", "q", "q")]
    assert sure.say(*said) == ["1 Basic.Ack 2+", "1 Basic.Ack 3", "1 Basic.Ack 6+"]


def test_what_is_returned_comes_before_its_confirm(sure: Client) -> None:
    said = [message(1, "q", b"1"), *(message(1, "nowhere", text, mandatory=True) for text in (b"2", b"3"))]
    assert sure.say(*said) == ["1 Basic.Ack 1", "1 Basic.Return 312 2", "1 Basic.Return 312 3", "1 Basic.Ack 3+"]
    assert sure.put("q", b"4", b"5", immediate=True) == [
        "1 Basic.Return 313 4", "1 Basic.Ack 4", "1 Basic.Return 313 5", "1 Basic.Ack 5"
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["reject-publish", "reject-publish-dlx"])
@pytest.mark.parametrize("limit", [{"x-max-length": 3}, {"x-max-length-bytes": 3}], ids=str)
def test_what_a_full_queue_does_not_take_is_refused(sure: Client, how: str, limit: dict[str, int]) -> None:
    """Of a run the first are taken, the rest is not."""
    sure.declare("full", {"x-overflow": how, **limit})
    assert sure.put("full", b"1") == ["1 Basic.Ack 1"]
    assert sure.put("full", *[b"x"] * 5) == ["1 Basic.Ack 3+", "1 Basic.Nack 6+"]
    assert sure.put("full", b"7") == ["1 Basic.Nack 7"]
    assert sure.put("full", b"8", b"9") == ["1 Basic.Nack 9+"]
    assert sure.take("full")
    assert sure.put("full", b"a", b"b") == ["1 Basic.Ack 10", "1 Basic.Nack 11"]
    assert sure.put("q", b"c") == ["1 Basic.Ack 12"]
    assert sure.drain("full") == [b"x", b"x", b"a"]


def test_one_of_several_queues_is_full(sure: Client) -> None:
    """The others have it all the same."""
    sure.declare("full", {"x-overflow": "reject-publish", "x-max-length": 2})
    for queue in ("q", "full"):
        sure.say(Queue.Bind(queue=queue, exchange="amq.fanout"))
    said = [f"{number}".encode() for number in range(4)]
    assert sure.put("", *said, exchange="amq.fanout") == ["1 Basic.Ack 2+", "1 Basic.Nack 4+"]
    assert sure.drain("full") == said[:2]
    assert sure.drain("q") == [b"uncounted", *said]


def test_a_queue_that_is_full_is_no_reason_to_return_it(sure: Client) -> None:
    sure.declare("full", {"x-overflow": "reject-publish", "x-max-length": 0})
    assert sure.put("full", b"1", mandatory=True) == ["1 Basic.Nack 1"]


def test_confirms_that_nobody_asked_an_answer_for(client: Client) -> None:
    assert client.say(Confirm.Select(nowait=True), message(1, "q", b"x")) == ["1 Basic.Ack 1"]


# -- deliveries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("immediate", [True, False])
def test_deliveries_wait_for_what_was_answered_before(client: Client, immediate: bool) -> None:
    """Also where a publish has the queue look for somebody to take it at once."""
    client.declare("full", {"x-max-length": 1, "x-overflow": "reject-publish"})
    said = [message(1, "full", text, immediate=immediate) for text in (b"1", b"2")]
    heard = client.say(message(1, "full", b"0"), Basic.Consume(queue="full", consumer_tag="t", no_ack=True), *said)
    assert heard[0] == "1 Basic.ConsumeOk t"
    assert "1 Basic.Deliver t 1 0" in heard[1:]


# -- flow --------------------------------------------------------------------------------------------------------------


def test_flow_holds_back_deliveries_and_nothing_else(client: Client) -> None:
    client.say(Basic.Consume(queue="q", consumer_tag="t"))
    client.say(Basic.Consume(queue="q", consumer_tag="u"), channel=2)
    client.say(Basic.Cancel("u"), channel=2)
    assert client.say(Channel.Flow(False)) == ["1 Channel.FlowOk False"]
    assert client.put("q", b"1", b"2") == []
    assert client.say(Basic.Get(queue="q")) == ["1 Basic.GetOk 1 1 1"]
    assert client.say(Channel.Flow(False)) == ["1 Channel.FlowOk False"]
    assert client.say(Channel.Flow(True)) == ["1 Channel.FlowOk True", "1 Basic.Deliver t 2 2"]


def test_flow_is_about_consumers_to_come_too(client: Client) -> None:
    client.put("q", b"1")
    assert client.say(Channel.Flow(False), Basic.Consume(queue="q", consumer_tag="t")) == [
        "1 Channel.FlowOk False", "1 Basic.ConsumeOk t"
    ]  # fmt: skip
    assert client.say(Channel.Flow(True)) == ["1 Channel.FlowOk True", "1 Basic.Deliver t 1 1"]


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


# -- publishers are to wait --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("able", [True, False])
def test_who_publishes_too_fast_is_told_if_it_understands(able: bool) -> None:
    house = House(policy("block_publishers"))
    consumer = Client(house, "consumer")
    consumer.declare("q")
    consumer.say(Basic.Qos(prefetch_count=1), Basic.Consume(queue="q", consumer_tag="t"))
    publisher = Client(house, "publisher", able=ABLE if able else ())
    publisher.put("q", *[b"x"] * 6)
    house.pass_time(0.5)
    assert publisher.put("q", b"x") == ["Connection.Blocked"] * able
    assert publisher.connection.reading_paused_by == {"publisher": None}
    assert publisher.say(Basic.Qos()) == []  # it is not read
    assert consumer.say(Basic.Ack(0, True), Basic.Cancel("t"))[-1] == "1 Basic.CancelOk t"
    publisher.run()
    assert publisher.new() == ["Connection.Unblocked"] * able + ["1 Basic.QosOk"]


def test_nobody_waits_for_itself(house: House) -> None:
    """Not even if it waited for somebody else before: its acks would never be read."""
    house = House(policy("block_publishers"))
    both, consumer = Client(house, "both"), Client(house, "consumer")
    both.declare("q")
    for one in (both, consumer):
        one.say(Basic.Qos(prefetch_count=1), Basic.Consume(queue="q", consumer_tag="t"))
    Client(house, "publisher").put("q", *[b"x"] * 8)
    house.pass_time(0.5)
    both.put("q", b"x")
    assert both.connection.reading_paused_by == {"publisher": None}
    consumer.leave()
    house.pass_time(0.5)
    assert both.connection.reading_paused_by == {}
    assert "1 Basic.Deliver t 2 x!" in both.say(Basic.Ack(1))


def test_who_is_not_in_yet_is_told_nothing(house: House) -> None:
    client = Client(house, begin=False)
    client.send(OPENING, method(0, client.start_ok()))
    client.peer.paused(True)
    client.peer.paused(False)
    client.run()
    assert client.new() == TUNED


# -- what the broker wants of a channel --------------------------------------------------------------------------------


def test_a_verdict_on_a_channel(client: Client) -> None:
    client.say(Basic.Consume(queue="q"))
    assert close_by_effect(client) == ["1 Channel.Close 506"]
    close = client.last(Channel.Close)
    assert (close.class_id, close.method_id, close.reply_text) == (0, 0, "RESOURCE_ERROR - too slow")
    assert not client.house.queues["q"].members
    assert close_by_effect(client) == []  # once is enough
    assert client.say(Basic.Qos(), channel=2) == ["2 Basic.QosOk"]


def test_a_verdict_on_a_channel_that_is_another_now(client: Client) -> None:
    session, core = client.peer.session, client.peer.channels[1].core
    assert session is not None
    client.say(BYE, Channel.Open())
    client.peer.close_channel(CloseChannel(session, core, Reason.LAG_AGE, "too late"))
    client.peer.close_channel(CloseChannel(session, client.peer.channels[2].core, Reason.ADMIN, "now"))
    client.house.turn_soon()
    client.run()
    assert client.new() == ["2 Channel.Close 320"]
    assert client.say(Channel.CloseOk(), channel=2) == []
    client.peer.close_channel(CloseChannel(session, core, Reason.LAG_AGE, "gone"))
    assert client.say(Basic.Qos()) == ["1 Basic.QosOk"]


def lag(client: Client, tag: str = "t", channel: int = 1) -> None:
    """A consumer that takes one, of six."""
    client.say(Basic.Qos(prefetch_count=1), Basic.Consume(queue="q", consumer_tag=tag), channel=channel)
    client.put("q", *[b"x"] * 6)
    client.new()
    client.house.pass_time(0.5)
    client.run()


@pytest.mark.parametrize(("others", "expected"), [(True, "1 Channel.Close 506"), (False, "Connection.Close 506")])
def test_a_slow_consumer_is_disconnected(others: bool, expected: str) -> None:
    """Its channel, if there are consumers on others."""
    house = House(policy("disconnect"))
    client = Client(house, "slow", channels=2)
    client.declare("q")
    client.declare("another")
    if others:
        client.say(Basic.Consume(queue="another", consumer_tag="u"), channel=2)
    lag(client)
    assert client.new()[-1] == expected
    if others:
        assert client.put("another", b"y", channel=2) == ["2 Basic.Deliver u 1 y"]
    else:
        assert reason_of(client) is Reason.LAG_RECORDS


@pytest.mark.parametrize(
    ("able", "expected"), [(True, "1 Basic.Cancel t"), (False, "1 Channel.Close 506")], ids=["able", "not able"]
)
def test_a_slow_consumer_is_closed(able: bool, expected: str) -> None:
    """Who does not know that a server cancels consumers loses its channel."""
    house = House(policy("close_consumer"))
    client = Client(house, "slow", able=ABLE if able else ())
    client.declare("q")
    lag(client)
    assert client.new()[-1] == expected
    assert house.queues["q"].members.consumers == []
    if able:  # the rest of the channel goes on; what it has it may settle
        said = client.say(Basic.Ack(1), Basic.Consume(queue="q", consumer_tag="t", no_ack=True))
        assert said[0] == "1 Basic.ConsumeOk t"


def test_a_consumer_that_is_to_be_closed_and_has_gone(client: Client) -> None:
    client.say(Basic.Consume(queue="q", consumer_tag="t"))
    [subscription] = client.house.queues["q"].members.consumers
    client.say(Basic.Cancel("t"))
    client.peer.close_consumer(subscription, "too slow")
    client.peer.cancelled(subscription)
    client.house.turn_soon()
    client.run()
    assert client.new() == []
    client.say(Basic.Consume(queue="q", consumer_tag="t"))
    [subscription] = client.house.queues["q"].members.consumers
    client.say(MISTAKE)
    client.peer.close_consumer(subscription, "too slow")
    client.peer.cancelled(subscription)
    client.house.turn_soon()
    client.run()
    assert client.new() == []


@pytest.mark.parametrize("able", [True, False])
def test_consumers_of_a_queue_that_is_deleted(house: House, able: bool) -> None:
    client = Client(house, able=ABLE if able else ())
    client.declare("q")
    client.say(*(Basic.Consume(queue="q", consumer_tag=tag) for tag in "tu"))
    client.put("q", b"1")
    other = Client(house)
    assert other.say(Queue.Delete(queue="q")) == ["1 Queue.DeleteOk 0"]
    client.run()
    assert sorted(client.new()) == ["1 Basic.Cancel t", "1 Basic.Cancel u"] * able
    assert client.say(Basic.Ack(1), Basic.Cancel("t")) == ["1 Basic.CancelOk t"]
    client.declare("q")
    assert client.say(Basic.Consume(queue="q", consumer_tag="t")) == ["1 Basic.ConsumeOk t"]
    assert client.put("q", b"2") == ["1 Basic.Deliver t 2 2"]


def test_a_queue_made_anew_in_the_same_breath(client: Client) -> None:
    client.say(Basic.Consume(queue="q", consumer_tag="t"))
    said = client.say(Queue.Delete(queue="q"), Queue.Declare(queue="q"), Basic.Consume(queue="q", consumer_tag="t"))
    assert said == ["1 Queue.DeleteOk 0", "1 Queue.DeclareOk q 0 0", "1 Basic.ConsumeOk t"]


# -- ways to a queue ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["bound to it", "its alternate"])
def test_by_way_of_the_default_exchange(client: Client, how: str) -> None:
    """To the queue of that name, and not to those that are bound as it is."""
    for name in ("a", "b"):
        client.declare(name)
        client.say(Queue.Bind(queue=name, exchange="amq.direct", routing_key="k"))
    alternate: dict[str, Any] = {"alternate-exchange": ""} if how == "its alternate" else {}
    client.say(Exchange.Declare(exchange="e", exchange_type="fanout" if how == "bound to it" else "direct",
                                arguments=alternate))  # fmt: skip
    if how == "bound to it":
        client.say(Exchange.Bind(destination="", source="e"))
    client.put("a", b"x", exchange="e")
    assert client.drain("b") == []
    assert client.drain("a") == [b"x"]


def test_a_key_that_is_no_topic(client: Client) -> None:
    """Queues get it, subscribers to topics do not."""
    taken = bytearray()
    outlet, house = PretendedOutlet(client.house.now(), 1 << 20, Random(0), 0.0, taken.extend), client.house
    session = house.broker.connect(ConnectRequest("mqtt", "", protocol="mqtt5"), outlet, house.now())
    house.broker.subscribe(session, SubscribeRequest("#", MqttDialect(5, 0, None, False, False)), house.now())
    client.say(Queue.Bind(queue="q", exchange="amq.topic", routing_key="#"))
    for key in ("a\0b", "a.+", "#", ""):
        client.put(key, b"x", exchange="amq.topic")
    assert client.drain("q") == [b"x"] * 4
    assert not taken


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
