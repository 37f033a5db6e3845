"""The journal's size, and what a start reads of it, go with what is alive: clients that come and go leave nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from tests.server.journal_stage import JournalStage, Publisher
from tests.sim.outlet import PretendedOutlet

from headway.core.base.errors import Reason
from headway.core.clients.durability import Folding
from headway.core.consumer.request import ConnectRequest, SubscribeRequest
from headway.core.consumer.session import Session
from headway.core.log import CommittedPosition
from headway.core.log.durable import MAIN, MetadataChange
from headway.server.journal import compaction as snapshot
from headway.server.journal import compaction as snapshot_schedule
from headway.server.journal.entries import POSITIONS, SNAPSHOT_POSITIONS, encode_positions
from headway.store.journal.recovery import verify
from headway.store.journal.segments.batch import Entry
from headway.wire.mqtt.dialect import MqttDialect

METADATA_BYTES = 4000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_schedule, "METADATA_BYTES", METADATA_BYTES)


def come(stage: JournalStage, name: str) -> Session:
    outlet = PretendedOutlet(stage.now, 10**9, random.Random(1), 0.0, lambda data: None)
    session = stage.broker.connect(ConnectRequest(name, "", False, 1e6), outlet, stage.now)
    for number in range(3):
        stage.broker.subscribe(session, SubscribeRequest(f"{name}/{number}", MqttDialect(5, 1), qos=1), stage.now)
    stage.turn()
    return session


def churn(stage: JournalStage, clients: int) -> int:
    """Returns the largest size of the main stream meanwhile."""
    largest = 0
    for number in range(clients):
        session = come(stage, f"client-{number}")
        assert session.connected
        stage.broker.disconnect(session, session.outlet, Reason.SUBSCRIPTION_ENDED, stage.now, expiry_s=0.0)
        stage.loop.pass_time(1.0)
        stage.turn()
        largest = max(largest, stage.journal.streams[MAIN].bytes)
    return largest


def talk(stage: JournalStage, times: int) -> int:
    """Records that are settled at once, and clients that come and go."""
    stage.declare("talk")
    publisher, largest = Publisher(stage), 0
    for number in range(times):
        publisher.publish("talk", number, size=500)
        stage.turn()
        got = stage.get("talk")
        assert got is not None
        stage.ack(got[1])
        largest = max(largest, churn(stage, 1))
    return largest


def test_what_came_and_went_takes_up_no_room() -> None:
    stage = JournalStage()
    assert churn(stage, 200) < 8 * METADATA_BYTES
    stage.journal.close()
    again = JournalStage(stage.files)
    assert list(again.broker.registry.sessions) == ["client"], "who has just connected"


def test_nor_while_an_old_record_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = JournalStage()
    stage.declare("q")
    publisher = Publisher(stage)
    publisher.publish("q", 1)
    stage.turn()
    come(stage, "keeper")
    assert churn(stage, 200) < 8 * METADATA_BYTES
    publisher.publish("q", 2)
    stage.turn()
    assert churn(stage, 200) < 12 * METADATA_BYTES
    assert publisher.told == [1, 2]
    assert talk(stage, 200) < 16 * METADATA_BYTES

    folded, fact = [], Folding.change

    def counted(folding: Folding, one: MetadataChange, *, again: bool) -> None:
        folded.append(one)
        fact(folding, one, again=again)

    monkeypatch.setattr(Folding, "change", counted)
    assert verify(stage.journal.streams[MAIN].folder, stage.files).good
    stage.journal.close()
    again = JournalStage(stage.files)
    assert len(folded) < 400, "of 6,000"
    assert set(again.broker.registry.sessions) == {"client", "keeper"}
    assert sorted(again.broker.registry.sessions["keeper"].subscriptions) == ["keeper/0", "keeper/1", "keeper/2"]
    assert again.all_of("q") == [1, 2]


def test_a_snapshot_that_was_cut_off_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = JournalStage()
    stage.declare("q")
    Publisher(stage).publish("q", 1)
    stage.turn()

    def never_last(places: Sequence[CommittedPosition], sequence: int, kind: int = POSITIONS) -> Entry:
        return encode_positions(places, sequence, POSITIONS if kind == SNAPSHOT_POSITIONS else kind)

    monkeypatch.setattr(snapshot, "encode_positions", never_last)
    stage.journal._snapshots.requested = True
    stage.declare("q2")
    stage.turn()
    whole = stage.journal._tidying.snapshots[:-1]
    monkeypatch.undo()
    stage.journal.close()
    again = JournalStage(stage.files)
    assert again.journal._tidying.snapshots == whole
    assert again.all_of("q") == [1]


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_removed_before_what_says_it_again_is_on_disk(seed: int) -> None:
    stage = JournalStage(config='fsync = "off"\n')
    come(stage, "keeper")
    churn(stage, 12 + seed)
    stage.journal._snapshots.requested = True
    come(stage, "last but one")
    come(stage, "last")
    stage.loop.pass_time(6.0)
    stage.turn()
    after = stage.files.crash(random.Random(seed))
    assert "keeper" in JournalStage(after).broker.registry.sessions
