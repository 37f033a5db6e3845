"""States that are one of a few: the tables of their legal moves."""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import StrEnum

import pytest
from tests.core.queues_stage import QueueStage
from tests.core.stage import STUCK, Stage

from headway.core.base import IllegalMove, moved
from headway.core.consumer import channel as life
from headway.core.consumer import reader as conflation
from headway.core.consumer.channel import Life, SessionLife
from headway.core.consumer.reader import Mode
from headway.core.queue import queue as queue_life
from headway.core.queue import queue_of
from headway.core.queue.queue import QueueLife


@pytest.mark.parametrize("table", [conflation.MOVES, life.MOVES, life.SESSION_MOVES, queue_life.MOVES])
def test_only_legal_moves_are_made(table: Mapping[StrEnum, Set[StrEnum]]) -> None:
    assert set(table) == set(type(next(iter(table))))
    for old, legal in table.items():
        for new in table:
            if new in legal:
                assert moved(table, old, new) is new
            else:
                with pytest.raises(IllegalMove):
                    moved(table, old, new)


def test_what_is_over_is_over() -> None:
    stage = Stage()
    subscription = stage.client("a").subscribe("t")
    stage.clients["a"].leave()
    stage.turn()
    assert subscription.life is Life.ENDED
    for flows in (False, True):
        subscription.let_flow(flows)
        assert subscription.ended, "a client may still ask, whose consumer the broker has ended"
    with pytest.raises(IllegalMove):
        subscription.become(Life.OPEN)


def test_conflation_is_started_once() -> None:
    stage = Stage()
    client = stage.client("a", reads=STUCK)
    subscription = client.subscribe("t", conflate="0")
    assert subscription.conflation.mode is Mode.RESTING
    with pytest.raises(IllegalMove):
        subscription.conflation.start(subscription, stage.now, 0)
    assert subscription.conflation.mode is Mode.RESTING


def test_a_session_is_connected_or_away_until_it_ends() -> None:
    stage = Stage()
    session = stage.client("a", expiry_s=60).session
    assert session.life is SessionLife.CONNECTED
    with pytest.raises(IllegalMove):
        session.connect(session.outlet)
    stage.clients["a"].leave()
    assert (session.life, session.connected) == (SessionLife.AWAY, False)
    with pytest.raises(IllegalMove):
        session.give_up()
    assert stage.client("a", expiry_s=60).session is session, "it came back to its own"
    assert session.life is SessionLife.CONNECTED


def test_a_session_that_was_given_up_ends_with_its_connection() -> None:
    stage = Stage()
    session = stage.client("a", expiry_s=60).session
    session.give_up()
    assert session.connected, "its client is to be told why"
    stage.clients["a"].leave()
    assert session.ended
    with pytest.raises(IllegalMove):
        session.become(SessionLife.CONNECTED)


def test_a_queue_ends_once() -> None:
    stage = QueueStage()
    owner = stage.peer("owner")
    owner.declare("q")
    queue = queue_of(stage.broker.registry.router.queues["q"])
    owner.publish("q", 0, 3)
    stage.turn()
    assert queue.life is QueueLife.OPEN
    stage.broker.queues.delete(queue, stage.now)
    assert queue.ended
    assert stage.broker.queues.delete(queue, stage.now) == 0, "a client may delete a queue that is gone"
    with pytest.raises(IllegalMove):
        queue.close()
