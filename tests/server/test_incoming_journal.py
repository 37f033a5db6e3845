"""Exactly-once publishes across a crash: a client that sends one again is known to have sent it, whichever stream of
the journal was written last."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.core.queue_wire import run_of
from tests.server.journal_stage import CONFIG as BROKER
from tests.server.journal_stage import JournalStage
from tests.sim.queues.outlet import QueueOutlet
from tests.store.journal.fake_files import PowerLoss

from headway.core.consumer.request import ConnectRequest
from headway.core.consumer.session import Session
from headway.core.log.durable import MAIN, JournaledRun
from headway.core.message.record import TOPICS
from headway.core.routing.matching.bindings import Binding, Destination
from headway.server.config.reading import parse_settings
from headway.server.journal.entries import _PREFIX, decode_run, encode_run
from headway.server.offline import RestoredBroker
from headway.store.journal import StoredEntry

CONFIG = '[[topic]]\nfilter = "recorded"\nkeep = "7d"\n'


def connected(stage: JournalStage) -> Session:
    outlet = QueueOutlet(stage.now, 100_000, random.Random(1), 0.0, lambda *_: None)
    request = ConnectRequest("publisher", "", clean_start=False, expiry_s=3600, protocol="mqtt5")
    return stage.broker.connect(request, outlet, stage.now)


def begun() -> tuple[JournalStage, Session]:
    """A queue gets the records of both topics."""
    stage = JournalStage(config=CONFIG)
    stage.declare("q")
    for topic in ("recorded", "plain"):
        stage.broker.queues.bind(stage.session, Binding(TOPICS, Destination("queue", "q"), topic))
    session = connected(stage)
    stage.turn()
    return stage, session


def publish(stage: JournalStage, session: Session, topic: str, number: int, packet_id: int) -> None:
    """As the MQTT peer does it."""
    if packet_id in session.incoming:
        return
    run = run_of(topic, [b"%d " % number], exchange=TOPICS, qos=2)
    stage.broker.intake.publish_to(session, run, stage.now)
    stage.broker.keep_packet_id(session, packet_id)


def killed_before(stage: JournalStage, stream: str) -> JournalStage:
    """The process is killed as it begins to write this stream."""

    def hook(operation: str, path: Path) -> None:
        if operation == "write" and path.parent.name == stream:
            raise PowerLoss

    stage.files.hook = hook
    with pytest.raises(PowerLoss):
        stage.turn()
    return killed(stage)


def killed(stage: JournalStage) -> JournalStage:
    stage.files.kill()
    return JournalStage(stage.files, config=CONFIG)


@pytest.mark.parametrize("again", [1, 2])
def test_a_kill_between_two_streams_doubles_nothing(again: int) -> None:
    """The recorded topic has the record, and the main stream does not have the note on it; also if the next life ends
    before a snapshot of it."""
    stage, session = begun()
    publish(stage, session, "recorded", 1, 7)
    stage = killed_before(stage, MAIN)
    for _ in range(again - 1):
        stage.turn()
        stage = killed(stage)
    session = connected(stage)
    publish(stage, session, "recorded", 1, 7)
    publish(stage, session, "recorded", 2, 8)
    stage.turn()
    assert stage.all_of("q") == [1, 2]
    stage.broker.free_packet_id(session, 7)
    publish(stage, session, "recorded", 3, 7)
    stage.turn()
    assert stage.get("q") is not None, "a released id is free again"


def test_a_record_without_the_note_on_it_is_cut_off_with_its_commit() -> None:
    """So that what an offline command writes is the same, too."""
    stage, session = begun()
    publish(stage, session, "recorded", 1, 7)
    stage = killed_before(stage, MAIN)
    restored = RestoredBroker(parse_settings(BROKER + CONFIG), stage.journal.streams)
    assert 7 not in restored.broker.registry.sessions["publisher"].incoming
    assert stage.all_of("q") == []


def test_an_id_that_was_released_is_free_after_a_kill() -> None:
    """Though the recorded topic has it still."""
    stage, session = begun()
    publish(stage, session, "recorded", 1, 7)
    stage.turn()
    stage.broker.free_packet_id(session, 7)
    stage.turn()
    stage = killed(stage)
    session = connected(stage)
    publish(stage, session, "recorded", 2, 7)
    stage.turn()
    assert stage.all_of("q") == [1, 2]


def test_what_was_not_written_is_published_when_it_comes_again() -> None:
    stage, session = begun()
    publish(stage, session, "plain", 1, 7)
    stage = killed_before(stage, MAIN)
    session = connected(stage)
    publish(stage, session, "plain", 1, 7)
    stage.turn()
    assert stage.all_of("q") == [1]


def test_a_packet_id_that_an_earlier_release_wrote_behind_a_run_is_passed_over() -> None:
    run = run_of("plain", [b"1", b"22"], exchange=TOPICS, qos=2)
    entry = encode_run(JournaledRun(MAIN, run, 5, "publisher"), 0.0)
    front, data = map(bytes, entry.data)
    head, count, size, expires, flags = _PREFIX.unpack_from(front)
    front = _PREFIX.pack(head, count, size + 2, expires, flags | 4) + front[_PREFIX.size :] + b"\7\0"
    found = decode_run(StoredEntry(entry.kind, 5, 2, front + data), 0.0)
    assert [found.run.payload(index) for index in range(2)] == [b"1", b"22"]
    assert found.publisher == "publisher"
