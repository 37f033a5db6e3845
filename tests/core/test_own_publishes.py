"""What the broker publishes itself, to very many consumers: a little of it in a turn, and all of it in the end."""

from __future__ import annotations

import pytest
from tests.core.queues_stage import QueueStage
from tests.core.stage import Client, Stage, run_to

from headway.core.base import DeferredWork, Reason
from headway.core.clients import publishers as intake
from headway.core.consumer import QueueTerms
from headway.core.consumer.request import Will
from headway.core.governance import turn
from headway.core.message import Properties, Record
from headway.core.queue.drops import letter_work
from headway.core.routing import registry

SHARE, GROUPS, MANY = 128, 132, 6
"""To publish one record to so many groups uses up the share of a turn."""


@pytest.fixture(autouse=True)
def _the_share_of_a_turn_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "DeferredWork", lambda *_: DeferredWork(SHARE))


def groups(stage: Stage, filter: str) -> Client:
    reader = stage.client("reader")
    for number in range(GROUPS):
        reader.subscribe(f"$share/g{number}/{filter}")
    stage.turn()
    return reader


def most_in_a_turn(stage: Stage, wanted: int) -> int:
    """Runs turns until so many records are published. Returns the most in one of them."""
    totals, most = stage.broker.registry.totals, 0
    end = totals.published_records + wanted
    for _ in range(100 * wanted):
        before = totals.published_records
        stage.broker.flush(stage.now)
        most = max(most, totals.published_records - before)
        if totals.published_records == end:
            return most
    raise AssertionError("not all are published")


def test_wills_to_very_many_are_published_one_by_one() -> None:
    stage = Stage()
    stage.checks = False
    groups(stage, "hot")
    clients = [stage.client(f"c{number}") for number in range(MANY)]
    published = stage.broker.registry.totals.published_records
    for client in clients:
        client.session.will = Will(Record("hot", b"gone"))
        stage.broker.disconnect(client.session, client.outlet, Reason.CLIENT_GONE, stage.now)
    already = stage.broker.registry.totals.published_records - published
    assert already == 1
    assert stage.broker.registry.pools[""].clients_bytes > 0
    assert most_in_a_turn(stage, MANY - already) == 1
    stage.turn()
    assert not stage.broker.registry.deferred.begun


def test_wills_that_wait_are_published_when_the_broker_stops() -> None:
    stage = Stage()
    stage.checks = False
    groups(stage, "hot")
    clients = [stage.client(f"c{number}") for number in range(MANY)]
    published = stage.broker.registry.totals.published_records
    for client in clients:
        client.session.will = Will(Record("hot", b"gone"))
        stage.broker.disconnect(client.session, client.outlet, Reason.CLIENT_GONE, stage.now)
    stage.broker.registry.deferred.finish()
    assert stage.broker.registry.totals.published_records - published == MANY


@pytest.mark.parametrize("to", ["hot", None])
def test_receipts_that_very_many_hear_of_are_told_one_by_one(to: str | None) -> None:
    stage = Stage(memory="256MB")
    stage.checks = False
    groups(stage, "hot" if to else "$SYS/headway/#")
    publisher = stage.client("p")
    for number in range(MANY):
        publisher.publish("nobody", number, receipt="10s", reply_to=to)
    assert most_in_a_turn(stage, MANY) == 1


def test_who_asks_for_a_receipt_pays_for_the_reply() -> None:
    stage = Stage()
    stage.checks = False
    groups(stage, "hot")
    publisher = stage.client("p")
    router = stage.broker.registry.router
    router.searched = 0
    publisher.publish("nobody", 1, receipt="10s", reply_to="hot")
    assert router.searched > GROUPS


def test_nobody_asks_for_more_receipts_while_very_many_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "UNTOLD_MAX", 2)
    stage = Stage()
    publisher = stage.client("p")
    for number in range(2):
        publisher.publish("nobody", number, receipt="10s")
    asks, plain = run_to("t"), run_to("t")
    asks.receipt = next(iter(stage.broker.registry.receipts.done)).request
    assert stage.broker.intake.must_wait(publisher.session, asks, stage.now)
    assert not stage.broker.intake.must_wait(publisher.session, plain, stage.now)
    stage.turn()
    assert not stage.broker.intake.must_wait(publisher.session, asks, stage.now)


def test_the_route_of_very_many_is_looked_through_once_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "HAND_OUT_WORK", GROUPS // 4)
    stage = Stage()
    stage.checks = False
    groups(stage, "hot")
    publishers = [stage.client(f"p{number}") for number in range(MANY)]
    publishers[0].publish("hot", 1)
    stage.broker.flush(stage.now)
    assert stage.broker.registry.put_off
    looks, look = [], intake.Intake._look
    monkeypatch.setattr(intake.Intake, "_look", lambda self, route: looks.append(route) or look(self, route))
    for _ in range(2):
        waits = [stage.broker.intake.must_wait(one.session, run_to("hot"), stage.now) for one in publishers]
        assert waits == [True] * MANY
    assert len(looks) == 1
    stage.turn()
    assert not stage.broker.intake.must_wait(publishers[0].session, run_to("hot"), stage.now)


def test_a_dead_letter_is_as_much_work_as_the_queues_that_get_it() -> None:
    stage = QueueStage()
    peer = stage.peer("p")
    for number in range(50):
        peer.declare(f"q{number}")
        for key in ("dead", f"own {number}"):
            peer.bind(f"q{number}", "amq.direct", key)
    router, record = stage.broker.registry.router, Record("src", b"x", Properties())
    plain = letter_work(router, QueueTerms(dead_letter_exchange="amq.direct", dead_letter_key="nobody"), record)
    work = letter_work(router, QueueTerms(dead_letter_exchange="amq.direct", dead_letter_key="dead"), record)
    assert work >= plain + 50
