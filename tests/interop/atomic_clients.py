"""One client over each protocol that comes for a state and for what changes it (``atomic_stories``)."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from proton import Described, symbol
from proton.reactor import Filter
from proton.utils import BlockingConnection
from tests.interop.amqp_pika import Pika
from tests.interop.atomic_stories import LIVE, TOPIC, Feed, Seen, Truth, checked
from tests.interop.jms_client import java
from tests.interop.pahos import paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.stomps import Client
from tests.interop.test_interop_events import Stream
from tests.interop.waiting import PATIENCE_S, until

from headway.client import Delete, Gap, Key, Put, View

CREDIT = 5000
"""Of an AMQP 1.0 client: more than a state has."""


def _told(user: dict[str, Any], payload: bytes) -> Seen:
    """Reads user properties of MQTT, or headers of AMQP."""
    event = str(user.get("headway-event", ""))
    if event.startswith("snapshot_"):
        return Seen(event, offset=int(user["headway-offset"]), records=int(user.get("headway-records", -1)))
    said = json.loads(payload)
    return Seen(event, said["k"], said["n"], gap=any(name.startswith("headway-gap") for name in user))


def over_mqtt(broker: BrokerProcess, truth: Truth, base: int, name: str) -> int:
    with paho(broker.ports["mqtt"], name) as client:

        def seen() -> Iterator[Seen]:
            done = 0
            while True:
                for message in client.wait(done + 1)[done:]:
                    done += 1
                    yield _told(dict(getattr(message.properties, "UserProperty", [])), message.payload)

        options = properties("SUBSCRIBE", UserProperty=[("snapshot", "true"), ("marks", "true")])
        client.client.subscribe("atomic/#", 0, properties=options)
        return checked(seen(), truth, base)


def over_amqp(broker: BrokerProcess, truth: Truth, base: int, name: str) -> int:
    with closing(Pika(broker.ports["amqp"])) as client:
        wanted = {"x-headway-topics": "atomic.#", "x-headway-snapshot": "true", "x-headway-marks": "true"}

        def seen() -> Iterator[Seen]:
            while True:
                until(client.turn, what="a delivery")
                some, client.got = client.got, []
                yield from (_told(one.headers, one.body) for one in some)

        client.consume("amq.topic", auto_ack=True, arguments=wanted)
        return checked(seen(), truth, base)


def over_stomp(broker: BrokerProcess, truth: Truth, base: int, name: str) -> int:
    client = Client(broker.ports["stomp"])

    def seen() -> Iterator[Seen]:
        done = 0
        while True:
            until(lambda: len(client.heard.messages) > done, what="a MESSAGE")  # noqa: B023 - it is called at once
            some = client.heard.messages[done:]
            done += len(some)
            yield from (_told(headers, body.encode()) for headers, body in some)

    try:
        client.subscribe("/topic/atomic.>", snapshot="true", marks="true")
        return checked(seen(), truth, base)
    finally:
        client.leave()


def over_amqp1(broker: BrokerProcess, truth: Truth, base: int, name: str) -> int:
    with closing(BlockingConnection(f"amqp://127.0.0.1:{broker.ports['amqp']}", timeout=PATIENCE_S)) as client:
        wanted = [symbol(f"x-opt-headway-{option}") for option in ("snapshot", "marks")]
        options = Filter({name: Described(name, "true") for name in wanted})
        receiver = client.create_receiver("topic://atomic.>", name=name, credit=CREDIT, options=options)

        def seen() -> Iterator[Seen]:
            for count in range(1, 1 << 62):
                message = receiver.receive()
                if count % (CREDIT // 2) == 0:
                    receiver.flow(CREDIT // 2)
                annotations = (message.annotations or {}).items()
                said = {str(name).removeprefix("x-opt-"): value for name, value in annotations}
                yield _told(said, bytes(message.body))

        return checked(seen(), truth, base)


def over_jms(broker: BrokerProcess, truth: Truth, base: int, name: str) -> int:
    jms = java()
    connection = jms.connect(f"tcp://127.0.0.1:{broker.ports['openwire']}")
    consumer = jms.consumer(jms.session(connection), "topic://atomic.>", "/*+ snapshot=true marks=true */ TRUE")

    def seen() -> Iterator[Seen]:
        while True:
            message = jms.got(consumer)
            said = {name: value.partition(":")[2] for name, value in message.properties.items()}
            yield _told(said, base64.b64decode(message.body or ""))  # of a BytesMessage, as MQTT has bytes

    try:
        return checked(seen(), truth, base)
    finally:
        jms.do("close", connection)


def over_events(broker: BrokerProcess, truth: Truth, base: int, name: str) -> int:
    with closing(Stream(broker, "atomic/#")) as stream:

        def seen() -> Iterator[Seen]:
            for one in stream.events:
                if one.name.startswith("snapshot_"):
                    yield Seen(one.name, offset=one.data["offset"], records=one.data.get("records", -1))
                elif one.name in ("", "delete"):
                    number = json.loads(one.data["payload"])["n"]
                    assert int(one.id) == base + number
                    yield Seen(one.name, one.data["key"], number)
                else:
                    yield Seen(one.name, gap=True)

        return checked(seen(), truth, base)


def over_view(broker: BrokerProcess, truth: Truth, base: int, name: str) -> int:
    return asyncio.run(asyncio.wait_for(_view(broker, truth, base, name), 2 * PATIENCE_S))


async def _view(broker: BrokerProcess, truth: Truth, base: int, name: str) -> int:
    """The image is the truth as of an update, as of that which the view says or later, and then each change comes."""
    url = f"mqtt://127.0.0.1:{broker.ports['mqtt']}"
    async with View(url, "atomic/#", key="/k", client_id=name, lease="2m") as view:
        changes = view.changes()
        image = {str(key.key): entry.json()["n"] for key, entry in view.copy().items()}
        said = view.as_of.offset - base
        number = max(said, *image.values())
        while image != truth.state(number) and truth.deletes(number + 1):
            number += 1
        assert image == truth.state(number), f"the view's image is as of no update near {number}; it says {said}"
        upto, due = number + LIVE, _changes(truth, image, number)
        while number < upto:
            for change in await changes.some(100):
                assert not isinstance(change, Gap), change
                if isinstance(change, Put | Delete):
                    number, key = next(due)
                    assert change.key == Key(TOPIC, key), f"{change} came where {number} is due"
                    assert isinstance(change, Delete) == truth.deletes(number)
                    assert isinstance(change, Delete) or change.entry.json()["n"] == number
        return number - said


def _changes(truth: Truth, image: dict[str, int], number: int) -> Iterator[tuple[int, str]]:
    """Yields the updates that change an image; to delete what is not there does not."""
    there = set(image)
    while True:
        number += 1
        key, deletes = truth.update(number)
        if not deletes or key in there:
            yield number, key
        (there.discard if deletes else there.add)(key)


OVER: dict[str, Callable[[BrokerProcess, Truth, int, str], int]] = {
    "MQTT 5, paho": over_mqtt, "AMQP 0-9-1, pika": over_amqp, "AMQP 1.0, Proton": over_amqp1,
    "STOMP 1.2, stomp.py": over_stomp, "OpenWire, ActiveMQ's JMS client": over_jms,
    "server-sent events, http.client": over_events, "View": over_view,
}  # fmt: skip


def rounds(broker: BrokerProcess, over: str, count: int, seed: int = 1) -> tuple[int, int]:
    """Has one client come after the other. Returns how many found the state changed while it was sent, and how many
    keys had."""
    feed = Feed(broker, seed)
    with feed.flows() as base:
        truth, changed = feed.truth(), []
        for number in range(count):
            changed.append(OVER[over](broker, truth, base, f"round {number}"))
    return sum(map(bool, changed)), sum(changed)
