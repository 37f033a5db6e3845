"""What STOMP, AMQP 1.0 and OpenWire confirm, they keep: a transaction is all or nothing, and a client's name takes
nothing away from a client of another protocol."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

import pytest
from pamqp.commands import Queue
from tests.crash.voices.amqp1 import Amqp1
from tests.crash.voices.openwire import OpenWire
from tests.crash.voices.stomp import Stomp
from tests.crash.voices.voice import Begun, Came, Ended, Fault, Kept, Place, Voice
from tests.interop.amqp_raw import Raw
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw as Mqtt
from tests.interop.waiting import PATIENCE_S, until

from headway.wire.mqtt.packets import TopicRequest

VOICES = (Stomp, Amqp1, OpenWire)
MANY = 1500
"""So many are more than one turn does."""
CONFIG = """
[listeners.amqp]
url = "amqp://127.0.0.1:0"
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[listeners.stomp]
url = "stomp://127.0.0.1:0"
[listeners.openwire]
url = "openwire://127.0.0.1:0"
[journal]
path = "JOURNAL"
"""
_names = count(1)


class Ports(NamedTuple):
    amqp: int
    stomp: int
    openwire: int


class Queues:
    """Two queues that nobody else uses, as AMQP 0-9-1 sees them."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.raw = Raw(broker.ports["amqp"] or 0)
        number = next(_names)
        self.source, self.to = Place(f"in-{number}"), Place(f"out-{number}")
        self.raw.declare(self.source.name, durable=True, exclusive=False)

    def make(self, **arguments: Any) -> None:
        self.raw.declare(self.to.name, durable=True, exclusive=False, arguments=arguments)

    def waiting(self, place: Place) -> int:
        return self.raw.call(Queue.Declare(queue=place.name, passive=True), Queue.DeclareOk).message_count


@pytest.fixture(scope="module")
def broker(start: BrokerFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = start(CONFIG.replace("JOURNAL", str(tmp_path_factory.mktemp("journal"))))
    yield process
    process.stop()


@pytest.fixture
def queues(broker: BrokerProcess) -> Iterator[Queues]:
    found = Queues(broker)
    yield found
    found.raw.close()


@pytest.fixture(params=VOICES, ids=lambda voice: voice.protocol)
def voice(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[Voice]:
    client = come(request.param, broker, f"{request.param.protocol}-{next(_names)}")
    yield client
    client.close()


def come(kind: type[Voice], broker: BrokerProcess, name: str) -> Voice:
    ports = broker.ports
    return kind(Ports(ports["amqp"] or 0, ports["stomp"] or 0, ports["openwire"] or 0), name)


def heard(voice: Voice, kind: type[Any] | tuple[type[Any], ...], number: int = 1) -> list[Any]:
    """So many of a kind, once they have come."""

    def found() -> list[Any]:
        voice.read(0.01)
        return [item for item in voice.inbox if isinstance(item, kind)]

    until(lambda: len(found()) >= number, PATIENCE_S, f"{number} {kind}: {voice.inbox[-3:]}")
    some = found()
    voice.inbox = [item for item in voice.inbox if not isinstance(item, kind)]
    return some


def fill(voice: Voice, place: Place, number: int) -> None:
    for one in range(1, number + 1):
        voice.send(place, b"x", one)
        if not one % 100:
            voice.read()
    heard(voice, Kept, number)


def taken(voice: Voice, place: Place, number: int) -> list[int]:
    voice.consume(place, number, upto=False)
    return [item.number for item in heard(voice, Came, number)]


def begin(voice: Voice) -> None:
    voice.begin()
    heard(voice, Begun)


def end(voice: Voice) -> Any:
    """Commit, and return the answer."""
    until(lambda: voice.has_sent_all or voice.read(0.01), PATIENCE_S, "all is sent")
    voice.end(commit=True)
    return heard(voice, (Ended, Fault))[0]


def test_a_commit_is_refused_whole_if_a_queue_has_no_room(voice: Voice, queues: Queues) -> None:
    queues.make(**{"x-max-length": 2, "x-overflow": "reject-publish"})
    fill(voice, queues.source, 3)
    numbers = taken(voice, queues.source, 3)
    begin(voice)
    for number in numbers:
        voice.send(queues.to, b"y", number + 100)
        voice.settle(number)
    assert isinstance(end(voice), Fault)
    assert queues.waiting(queues.to) == 0
    voice.close()
    until(lambda: queues.waiting(queues.source) == 3, PATIENCE_S, "what it had taken waits again")


def test_a_commit_is_refused_if_it_settles_what_its_client_has_no_more(voice: Voice, queues: Queues) -> None:
    queues.make()
    fill(voice, queues.source, 3)
    numbers = taken(voice, queues.source, 3)
    begin(voice)
    for number in numbers:
        voice.send(queues.to, b"y", number + 100)
        voice.settle(number)
    until(lambda: voice.has_sent_all or voice.read(0.01), PATIENCE_S, "all is sent")
    voice.stop_consuming()
    answer = end(voice)
    voice.close()
    left = 0 if isinstance(answer, Ended) else 3
    until(lambda: queues.waiting(queues.source) == left, PATIENCE_S, f"{left} wait again after {answer}")
    assert queues.waiting(queues.to) == 3 - left


@pytest.mark.parametrize("kind", [Amqp1, OpenWire], ids=lambda voice: voice.protocol)
def test_a_commit_is_refused_whole_if_one_of_its_messages_was(
    kind: type[Voice], broker: BrokerProcess, queues: Queues
) -> None:
    queues.make()
    client = come(kind, broker, f"spoilt-{kind.protocol}")
    begin(client)
    client.send(queues.to, b"y", 1)
    client.send(Place("$SYS.x", is_topic=True), b"y", 2)
    client.send(queues.to, b"y", 3)
    until(lambda: client.has_sent_all or client.read(0.01), PATIENCE_S, "all is sent")
    client.end(commit=True)
    until(lambda: client.read(0.01) or any(isinstance(item, Fault) for item in client.inbox), PATIENCE_S, "a refusal")
    fill(client, queues.source, 1)
    assert not any(isinstance(item, Ended) for item in client.inbox)
    assert queues.waiting(queues.to) == 0
    client.close()


@pytest.mark.parametrize("again", range(2))
def test_a_commit_goes_on_without_its_client(again: int, voice: Voice, queues: Queues) -> None:
    queues.make()
    fill(voice, queues.source, MANY)
    numbers = taken(voice, queues.source, MANY)
    begin(voice)
    for number in numbers:
        voice.send(queues.to, b"y", number + 10_000)
        voice.settle(number)
        if not number % 100:
            voice.read()
    until(lambda: voice.has_sent_all or voice.read(0.01), PATIENCE_S, "all is sent")
    voice.end(commit=True)
    if again:  # it has perhaps begun
        until(lambda: queues.waiting(queues.to) >= 1 or voice.read(), PATIENCE_S, "the commit begins")
    voice.close()
    until(lambda: queues.waiting(queues.to) + queues.waiting(queues.source) == MANY, PATIENCE_S, "all or nothing")
    assert queues.waiting(queues.to) in (0, MANY)


def test_after_a_rollback_the_client_may_give_back_what_it_took(broker: BrokerProcess, queues: Queues) -> None:
    for kind in (Stomp, Amqp1):
        client = come(kind, broker, f"back-{kind.protocol}")
        fill(client, queues.source, 1)
        (number,) = taken(client, queues.source, 1)
        begin(client)
        client.settle(number)
        client.end(commit=False)
        heard(client, Ended)
        client.give_back(number)
        (once_more,) = heard(client, Came)
        client.settle(once_more.number)
        fill(client, Place(f"{queues.to.name}-other"), 1)
        client.close()
        assert queues.waiting(queues.source) == 0


@pytest.mark.parametrize("kind", VOICES, ids=lambda voice: voice.protocol)
def test_a_name_takes_no_session_of_mqtt(kind: type[Voice], broker: BrokerProcess, queues: Queues) -> None:
    name = f"same-{kind.protocol}"
    with Mqtt(broker.ports["mqtt"] or 0, name, clean_start=False, session_expiry_s=3600) as subscriber:
        subscriber.subscribed(TopicRequest(f"{name}/#", 1))
    with Mqtt(broker.ports["mqtt"] or 0) as publisher:
        publisher.published(f"{name}/a", b"kept")
    other = come(kind, broker, name)
    fill(other, queues.source, 1)
    other.close()
    with Mqtt(broker.ports["mqtt"] or 0, name, clean_start=False, session_expiry_s=3600) as subscriber:
        assert subscriber.connack.session_present
        assert subscriber.payloads(1) == [b"kept"]
