"""A message that is sent by any protocol arrives by any other with all that both can say: by a topic, and by a queue
where both have queues. With paho, pika, proton, stomp.py and ActiveMQ's JMS client."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.jms_client import Jms, needs_jms
from tests.interop.notes import BYTES, SPEAKERS, TEXT, Note, Place, Speaker
from tests.interop.openwire_fixtures import LISTENERS

pytestmark = needs_jms
LIFETIME_MS = 600_000
LATE_MS = 60_000
NOW = -1
"""Stands for the time of the test, which may come long after this module was read."""
"""So much later a slow machine may get to read what the module said at its start."""
HEADERS = {"text": "é", "number": 5, "big": 2**40, "flag": True, "real": 1.5, "raw": b"\0\xff"}
NOTES = {
    "text": Note(
        "body é".encode(), HEADERS, TEXT, "c-1", Place("answers.here", is_topic=True), "ID:m-1", "kind", 6, True,
        LIFETIME_MS, NOW,
    ),
    "bytes": Note(b"\0body\xff", {}, BYTES, "c-2", Place("answers", is_topic=False), "ID:m-2", None, 2, False,
                  LIFETIME_MS),
    "bare": Note(b"{}", {}),
}  # fmt: skip


@pytest.fixture(scope="module")
def speakers(start: BrokerFactory, jms: Jms) -> Iterator[dict[str, Speaker]]:
    broker = start(LISTENERS + '[listeners.stomp]\nurl = "stomp://127.0.0.1:0"\n')
    made = {name: make(broker, jms) for name, make in SPEAKERS.items()}
    yield made
    for one in made.values():
        one.close()
    broker.stop()


def sayable(note: Note, by: Speaker) -> Note:
    """Returns as much of a note as this client can send."""
    return _within(note, by.types, by.unsaid, texts=by.types == (str,))


def hearable(note: Note, by: Speaker) -> Note:
    """Returns as much of a note as this client can be told."""
    return _within(note, by.types, by.unheard, texts=True)


def _within(note: Note, types: tuple[type, ...], lacks: frozenset[str], *, texts: bool) -> Note:
    """Values of other types than these are texts, if they may be and have a text."""
    headers: dict[str, object] = {}
    for name, value in note.headers.items():
        if type(value).__name__ in lacks:
            continue
        if type(value) in types:
            headers[name] = value
        elif texts and not isinstance(value, bytes):
            headers[name] = str(value).lower() if isinstance(value, bool) else str(value)
    note = note._replace(headers=headers, **dict.fromkeys(lacks & set(Note._fields), None))
    if note.reply_to and not note.reply_to.is_topic and "reply to a queue" in lacks:
        note = note._replace(reply_to=None)
    if note.time_ms is None and "lifetime without a time" in lacks:
        note = note._replace(lifetime_ms=None)
    return note


CELLS = [
    (sender, reader, where, note)
    for sender in SPEAKERS for reader in SPEAKERS for where in ("topic", "queue") for note in NOTES
    if where == "topic" or "MQTT" not in (sender, reader)
]  # fmt: skip


@pytest.mark.parametrize(("sender", "reader", "where", "note"), CELLS)
def test_what_is_kept(
    speakers: dict[str, Speaker], name: str, sender: str, reader: str, where: str, note: str
) -> None:
    by, to = speakers[sender], speakers[reader]
    place = Place(f"notes.{name}", where == "topic")
    read = to.listen(place)
    said = NOTES[note]
    if said.time_ms == NOW:
        said = said._replace(time_ms=int(time.time()) * 1000)
    sent = by.send(place, sayable(said, by))
    wanted = {field: value for field, value in hearable(sent, to)._asdict().items() if value is not None}
    got = read()._asdict()
    if lifetime_ms := wanted.pop("lifetime_ms", 0):
        assert lifetime_ms - LATE_MS < (got["lifetime_ms"] or 0) <= lifetime_ms
    assert {field: got[field] for field in wanted} == wanted
