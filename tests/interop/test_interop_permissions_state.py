"""Permissions for states: snapshots, queries, states as they were, live pages, aggregates and keys out of focus, over
each protocol; allowed, denied, and revoked while connected."""

from __future__ import annotations

import json
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from pika.exceptions import ChannelClosedByBroker
from tests.interop.amqp_pika import Pika
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho, properties
from tests.interop.permitted import SECRET, config, paho, permission, rabbit, reload
from tests.interop.process import BrokerProcess
from tests.interop.test_interop_events import Stream
from tests.interop.test_interop_state import ask
from tests.interop.view_stories import TOPIC
from tests.interop.waiting import PATIENCE_S, until

MINE, OTHERS = "flights/ua", "flights/secret"
HIDDEN = 987_654
"""A delay that only records of others have."""
WAYS: dict[str, dict[str, str]] = {
    "snapshot": {"snapshot": "true"},
    "page": {"order_by": "/delay DESC", "top": "5"},
    "rows": {"select": "/carrier, max(/delay) AS delay, count(*) AS flights", "group_by": "/carrier"},
    "focus": {"snapshot": "true", "selector": "delay > 1", "out_of_focus": "true"},
}
FORBIDDEN, NOT_AUTHORIZED = 403, 0x87


def given(journal: Path, *mine: str) -> str:
    topics = f'{TOPIC}keep = "1d"\n'
    return config(permission("alice", subscribe=list(mine)), more=f'[journal]\npath = "{journal}"\n{topics}')


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal")


@pytest.fixture(scope="module")
def guarded(start: BrokerFactory, journal: Path) -> BrokerProcess:
    return start(given(journal, MINE))


def flight(number: int, delay: int) -> bytes:
    return json.dumps({"tailnum": f"N{number}", "delay": delay, "carrier": "UA"}).encode()


@pytest.fixture
def root(guarded: BrokerProcess, journal: Path) -> Iterator[Paho]:
    """It publishes the same keys to both topics."""
    client = paho(guarded, "root")
    for number in range(3):
        client.publish(MINE, flight(number, 2 + number), 1)
        client.publish(OTHERS, flight(number, HIDDEN), 1)
    yield client
    client.close()
    reload(guarded, given(journal, MINE))


class Reader:
    """One way to read a state: what it was sent, and whether it was told that it may not any more."""

    payloads: list[bytes]

    def look(self) -> None:
        """Takes what has come."""

    @property
    def ended(self) -> bool:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class PahoReader(Reader):
    def __init__(self, broker: BrokerProcess, filter: str, options: dict[str, str]) -> None:
        self.client = paho(broker, "alice")
        said = properties("SUBSCRIBE", UserProperty=list(options.items()))
        self.denied = self.client.subscribe(filter, 1, properties=said)[0].value == NOT_AUTHORIZED

    def look(self) -> None:
        self.payloads = [one.payload for one in self.client.messages]

    @property
    def ended(self) -> bool:
        return bool(self.client.ended) and self.client.ended[0].value == NOT_AUTHORIZED

    def close(self) -> None:
        self.client.close()


class PikaReader(Reader):
    def __init__(self, broker: BrokerProcess, filter: str, options: dict[str, str]) -> None:
        self.client: Pika = rabbit(broker, "alice")
        self.cancels: list[Any] = []
        self.client.channel.add_on_cancel_callback(self.cancels.append)
        arguments = {"x-headway-topics": filter.replace("/", ".").replace("+", "*")}
        arguments |= {f"x-headway-{name}": value for name, value in options.items()}
        self.denied = False
        try:
            self.client.consume("amq.topic", auto_ack=True, arguments=arguments)
        except ChannelClosedByBroker as error:
            self.denied = error.reply_code == FORBIDDEN

    def look(self) -> None:
        self.client.connection.process_data_events(0)
        self.payloads = [one.body for one in self.client.got]

    @property
    def ended(self) -> bool:
        return bool(self.cancels)

    def close(self) -> None:
        self.client.close()


class EventReader(Reader):
    def __init__(self, broker: BrokerProcess, filter: str, options: dict[str, str]) -> None:
        alice = copy(broker)
        alice.login = f"alice:{SECRET}"
        self.stream = Stream(alice, filter, **{key: value for key, value in options.items() if key != "snapshot"})
        self.denied = self.stream.answer.status == FORBIDDEN
        self.payloads = []
        self._ended = False
        self._thread = threading.Thread(target=self._read)
        if not self.denied:
            self._thread.start()

    def _read(self) -> None:
        for event in self.stream.events:
            self.payloads.append(json.dumps(event.data).encode())
            self._ended |= event.name == "closed" and event.data["reason"] == "not_authorized"

    @property
    def ended(self) -> bool:
        return self._ended

    def close(self) -> None:
        if not self.denied:
            self._thread.join(PATIENCE_S)  # the broker ends the answer
        self.stream.close()


OPEN: dict[str, Callable[..., Any]] = {"mqtt": PahoReader, "amqp": PikaReader, "events": EventReader}


def has(reader: Reader, text: bytes) -> bool:
    reader.look()
    return any(text in one for one in reader.payloads)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("protocol", OPEN)
def test_what_is_read_and_goes_on(guarded: BrokerProcess, journal: Path, root: Paho, protocol: str, way: str) -> None:
    for filter in ("flights/#", "flights/+", OTHERS):
        reader = OPEN[protocol](guarded, filter, WAYS[way])
        assert reader.denied, filter
        reader.close()
    reader = OPEN[protocol](guarded, MINE, WAYS[way])
    assert not reader.denied
    until(lambda: has(reader, b"4"), what="the state")
    root.publish(OTHERS, flight(1, HIDDEN + 1), 1)
    root.publish(MINE, flight(1, 55), 1)
    until(lambda: has(reader, b"55"), what="the next record")
    root.publish(MINE, flight(1, 1), 1)  # out of focus
    reload(guarded, given(journal, "other"))
    until(lambda: (reader.look(), reader.ended)[1], what="the end")
    root.publish(MINE, flight(2, 777), 1)
    reader.look()
    assert not any(b"777" in one or str(HIDDEN)[:-1].encode() in one for one in reader.payloads)
    reader.close()


@pytest.mark.parametrize("way", ["all", "page", "rows", "past", "past rows"])
def test_a_query(guarded: BrokerProcess, journal: Path, root: Paho, way: str) -> None:
    guarded.login = f"alice:{SECRET}"
    last = json.loads(ask(guarded, MINE, {}, Authorization=guarded.basic).body)["offset"]
    query: dict[str, object] = dict(WAYS.get(way.removeprefix("past "), {}))
    query |= {"at": last} if "past" in way else {}
    for filter in ("flights/#", "flights/+", OTHERS):
        answer = ask(guarded, filter, query, Authorization=guarded.basic)
        assert (answer.status, b"alice may not subscribe to" in answer.body) == (FORBIDDEN, True), filter
    answer = ask(guarded, MINE, query, Authorization=guarded.basic)
    assert answer.status == 200
    assert answer.json["records"]
    assert str(HIDDEN).encode() not in answer.body
    reload(guarded, given(journal, "other"))
    assert ask(guarded, MINE, query, Authorization=guarded.basic).status == FORBIDDEN


def test_a_query_over_mqtt(guarded: BrokerProcess, root: Paho) -> None:
    reader = PahoReader(guarded, MINE, {"query": "true"})
    until(lambda: has(reader, b"N2"), what="the state")
    assert not has(reader, str(HIDDEN).encode())
    said = properties("SUBSCRIBE", UserProperty=[("query", "true")])
    assert reader.client.subscribe("flights/#", 1, properties=said)[0].value == NOT_AUTHORIZED
    reader.close()


def test_event_streams_have_no_client_id_that_can_be_forbidden_or_taken(
    guarded: BrokerProcess, journal: Path, root: Paho
) -> None:
    limited = given(journal) + permission("alice", connect=["%u"], subscribe=[MINE])
    reload(guarded, limited + permission("bob", publish=["other"]))
    first = EventReader(guarded, MINE, {})
    assert not first.denied
    until(lambda: has(first, b"N2"), what="the state")
    guarded.login = f"root:{SECRET}"
    consumers = [row["client"] for row in guarded.get("/v1/consumers")["consumers"]]
    (name,) = [client for client in consumers if client.startswith("events/")]
    front, _, number = name.rpartition("/")
    taken = [paho(guarded, "bob", f"{front}/{int(number) + more}") for more in (1, 2, 3)]
    second = EventReader(guarded, MINE, {})
    assert not second.denied
    for one in taken:
        assert one.connack.value == 0
        one.close()
    reload(guarded, limited + permission("bob", publish=["more"]))
    reload(guarded, limited.replace(f'"{MINE}"', '"other"'))
    for one in (first, second):
        until(lambda one=one: one.ended, what="the end")  # type: ignore[misc]
        one.close()


def test_an_answer_that_is_not_read_yet_breaks_off_when_it_is_revoked(
    guarded: BrokerProcess, journal: Path, root: Paho
) -> None:
    """It has no end, so nobody takes it for a whole one."""
    fill = "." * 200_000
    for number in range(100, 150):
        root.publish(MINE, json.dumps({"tailnum": f"N{number}", "delay": 1, "fill": fill}).encode(), 1)
    guarded.login = f"alice:{SECRET}"
    where = urllib.parse.urlsplit(guarded.admin)
    with socket.create_connection((where.hostname, where.port)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        head = f"GET /v1/state/flights/ua HTTP/1.1\r\nHost: localhost\r\nAuthorization: {guarded.basic}\r\n\r\n"
        sock.sendall(head.encode())
        got = bytearray(sock.recv(1000))
        assert got.startswith(b"HTTP/1.1 200")
        reload(guarded, given(journal, "other"))
        with suppress(ConnectionResetError):
            while some := sock.recv(1 << 20):
                got += some
    assert not got.endswith(b"0\r\n\r\n")
    assert got.count(b"tailnum") < 50
    assert "the answer ends here: alice may not subscribe to 'flights/ua'" in guarded.log.read_text()
    said = properties("PUBLISH", UserProperty=[])
    for number in range(100, 150):
        said.UserProperty = [("key", f"N{number}")]
        root.publish(MINE, b"", 1, properties=said)
