"""A client's side of MQTT 5: what it makes of a broker's bytes, without a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from bench.wires.packets import encode_publish

from headway.client.link import Dialogue, Pairs
from headway.core.message import Properties, Run
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import AckRun, Connect, PubAck, Subscribe, TopicRequest, Unsubscribe
from headway.wire.mqtt.properties import Fields
from headway.wire.mqtt.replies import Replies

BROKER = Replies(5)
USER = (("sent-offset", "7"),)


class Heard:
    """A receiver that notes what it hears, and may do something."""

    def __init__(self) -> None:
        self.all: list[object] = []
        self.then: Callable[[], object] = lambda: None

    def room(self) -> int:
        return 100

    def received(self, runs: Sequence[Run]) -> None:
        self.all.append([(run.topic, run.payload(0), run.properties.user) for run in runs])
        self.then()

    def granted(self, number: int, refusal: str, user: Pairs) -> None:
        self.all.append(("granted", number, refusal, user))

    def ended(self, number: int) -> None:
        self.all.append(("ended", number))

    def lost(self, why: str) -> None:
        raise AssertionError("a dialogue does no I/O")


def record(number: int, qos: int = 0) -> bytes:
    said = Properties(user=(("offset", str(number)),))
    return encode_publish("t", b"x%d" % number, qos=qos, packet_id=number if qos else 0, properties=said)


def found(number: int) -> tuple[str, bytes, tuple[tuple[str, str], ...]]:
    return ("t", b"x%d" % number, (("offset", str(number)),))


def opened() -> tuple[Dialogue, Heard]:
    heard = Heard()
    dialogue = Dialogue(heard, "broker:1883")
    dialogue.take(BROKER.connack() or b"", 1)
    assert dialogue.greeted
    return dialogue, heard


def asked(dialogue: Dialogue) -> list[object]:
    """Returns what a server reads of what the client has written."""
    server = MqttDecoder()
    server.feed(OPENING)
    return list(server.feed(bytes(dialogue.out)))


def _opening() -> bytes:
    dialogue = Dialogue(Heard(), "broker:1883")
    dialogue.connect("me", "u", "p", 64)
    return bytes(dialogue.out)


OPENING = _opening()


def test_it_asks_to_be_let_in_subscribes_and_ends_a_subscription() -> None:
    assert MqttDecoder().feed(OPENING) == [
        Connect(5, "me", True, 60, username="u", password=b"p", receive_max=64)
    ]
    dialogue, _ = opened()
    numbers = [dialogue.subscribe("a/#", 1, [("lease", "9s")]), dialogue.unsubscribe("a/#")]
    request = TopicRequest("a/#", 1, retain_handling=2)
    assert asked(dialogue) == [Subscribe(numbers[0], (request,), None, (("lease", "9s"),)),
                               Unsubscribe(numbers[1], ("a/#",))]  # fmt: skip
    for _ in range(70_000):
        number = dialogue.unsubscribe("a")
        assert 0 < number < 65_536
        dialogue.out.clear()


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_what_comes_is_told_in_order(piece: int) -> None:
    dialogue, heard = opened()
    sent = [record(1), record(2), BROKER.suback(1, [0], "", USER), record(3), BROKER.pingresp(),
            BROKER.suback(2, [0x97], "no room"), BROKER.suback(3, [0x87]), BROKER.unsuback(4, [0])]  # fmt: skip
    data = b"".join(sent)
    for at in range(0, len(data), piece):
        dialogue.take(data[at : at + piece], 100)
    records = [one for group in heard.all if isinstance(group, list) for one in group]
    assert records == [found(1), found(2), found(3)]
    assert [one for one in heard.all if isinstance(one, tuple)] == [
        ("granted", 1, "", USER), ("granted", 2, "no room", ()), ("granted", 3, "not authorized", ()), ("ended", 4),
    ]  # fmt: skip
    assert heard.all.index(("granted", 1, "", USER)) < heard.all.index(("granted", 2, "no room", ()))
    assert dialogue.over is None


def test_no_more_is_handled_than_there_is_room_for() -> None:
    dialogue, heard = opened()
    dialogue.take(b"".join(record(number) for number in range(1, 8)), 3)
    assert heard.all == [[found(1), found(2), found(3)]]
    dialogue.take(record(8), 0)
    assert (len(heard.all), dialogue.waits) == (1, True)
    dialogue.take(b"", 100)
    assert heard.all[1:] == [[found(number) for number in range(4, 9)]]
    assert not dialogue.waits


def test_a_record_of_qos_1_is_acknowledged_once_it_is_there() -> None:
    dialogue, heard = opened()
    heard.then = lambda: heard.all.append(bytes(dialogue.out))
    dialogue.take(record(5, 1) + record(6, 1), 9)
    assert heard.all == [[found(5)], b"", [found(6)], b"\x40\x02\x00\x05"]
    assert asked(dialogue) == [AckRun(PubAck, b"\0\5\0\6")]


def test_who_ends_it_hears_no_more() -> None:
    dialogue, heard = opened()
    heard.then = dialogue.goodbye
    dialogue.take(record(5, 1) + record(6) + BROKER.suback(1, [0]), 9)
    dialogue.take(record(7), 9)
    assert heard.all == [[found(5)]]
    assert not dialogue.waits


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (record(1) + BROKER.disconnect(0x97, "too slow") + record(2), "too slow"),
        (BROKER.disconnect(0x8B), "server shutting down"),
        (record(1) + b"\xff\x00", "broker:1883: AUTH (packet 3) has the flags 0xF, which are reserved"),
        (record(1, 2), "broker:1883: a record came at QoS 2, which nobody asked for"),
        (b"\x82\x00", "broker:1883: SUBSCRIBE (packet 2) is nothing that a server sends"),
    ],
)  # fmt: skip
def test_it_is_over(data: bytes | None, text: str) -> None:
    dialogue, heard = opened()
    dialogue.take(data or b"", 9)
    assert str(dialogue.over) == text
    dialogue.take(record(9), 9)
    assert [found(9)] not in heard.all


@pytest.mark.parametrize(
    ("code", "fields", "text", "retry_after_s", "final"),
    [
        (0x86, Fields(), "broker:1883 refused: bad user or password", 0.0, True),
        (0x97, Fields(reason_string="shut out", user=(("retry-after-s", "2.5"),)), "broker:1883 refused: shut out", 2.5,
         False),
        (0x88, Fields(), "broker:1883 refused: server unavailable", 0.0, False),
    ],
)  # fmt: skip
def test_a_refusal_says_for_how_long(code: int, fields: Fields, text: str, retry_after_s: float, final: bool) -> None:
    dialogue = Dialogue(Heard(), "broker:1883")
    dialogue.take(BROKER.connack(code, fields=fields) or b"", 9)
    over = dialogue.over
    assert over is not None
    assert (dialogue.greeted, str(over), over.retry_after_s, over.final) == (False, text, retry_after_s, final)


def test_the_broker_may_ask_for_signs_of_life_more_often() -> None:
    dialogue = Dialogue(Heard(), "broker:1883")
    dialogue.take(BROKER.connack(fields=Fields(server_keep_alive=5)) or b"", 9)
    assert dialogue.keep_alive_s == 5
