"""Bindings by the thousand: one more or less is no work with all the others, and leaves nothing behind."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.queues_stage import Peer, QueueStage
from tests.core.test_idle import steps

from headway.core.clients.queues import QueueFeeds
from headway.core.queue.queue import BindingSet
from headway.core.routing.matching.bindings import Binding, Destination

FEW, MANY = 200, 2000


def bound(count: int) -> tuple[QueueStage, Peer]:
    stage = QueueStage()
    peer = stage.peer("peer")
    peer.declare("q")
    peer.exchange("e")
    for number in range(count):
        peer.bind("q", "e", f"k{number:04}")
    return stage, peer


@pytest.mark.parametrize("waits", [False, True])
def test_one_more_and_one_less(waits: bool) -> None:
    def of(count: int) -> int:
        stage, peer = bound(count)
        peer.consume("q", 1, acks=False)
        peer.publish("k0000", 0, 2 if waits else 1, exchange="e")
        stage.turn()

        def work() -> None:
            peer.bind("q", "e", "k1000x")
            peer.unbind("q", "e", "k0100")
            stage.turn()

        return steps(work)

    assert of(MANY) <= of(FEW) + 50


def test_what_waits_is_not_followed_by_a_cursor_for_each_change() -> None:
    stage, peer = bound(3)
    peer.publish("k0000", 0, exchange="e")
    for number in range(100):
        peer.bind("q", "e", f"more {number}")
        stage.turn()
    peer.publish("more 7", 1, exchange="e")
    for number in range(100):
        peer.unbind("q", "e", f"more {number}")
        stage.turn()
    assert len(stage.queue("q").backlog.cursors) <= 3
    assert sum("k0000" in name for name in stage.lanes) <= 3
    peer.consume("q")
    stage.run(1)
    assert peer.numbers == [0, 1]
    assert len(stage.queue("q").backlog.cursors) == 1
    assert sum("k0000" in name for name in stage.lanes) == 1


def test_an_exchange_that_goes_changes_a_queue_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, peer = bound(FEW)
    rebound: list[object] = []
    rebind = QueueFeeds._rebind
    monkeypatch.setattr(QueueFeeds, "_rebind", lambda self, queue: rebound.append(queue) or rebind(self, queue))
    list(peer.broker.queues.delete_exchange("e", if_unused=False))
    assert len(rebound) == 1


def test_names_of_lanes_that_are_gone_are_forgotten() -> None:
    stage, peer = bound(1)
    peer.consume("q")
    mqtt = stage.client("mqtt")
    for number in range(50):
        peer.bind("q", "e", f"more {number}")
        peer.unbind("q", "e", f"more {number}")
        mqtt.subscribe(f"t/{number}")
        stage.broker.unsubscribe(mqtt.session, f"t/{number}", stage.now)
        stage.turn()
    assert len(stage.broker.registry.totals.consumers) <= 3
    assert not stage.broker.registry.totals.slow_consumers


def test_the_name_says_what_there_is_whatever_there_was() -> None:
    random = Random(7)
    all_of_them = [
        Binding(source, Destination("queue", "q"), key, arguments)
        for source in ("amq.topic", "e", "f, g") for key in ("a", "a.*", "#", "a b", "")
        for arguments in ((), (("x", 1),))
    ]  # fmt: skip
    there: dict[Binding, None] = {}
    one = BindingSet("q")
    for _ in range(500):
        binding = random.choice(all_of_them)
        seen = binding._replace(arguments=()) if binding.source == "e" else binding
        change = binding not in there
        one.change(binding, seen, there=change)
        if change:
            there[binding] = None
        else:
            del there[binding]
        fresh = BindingSet("q")
        for other in random.sample(list(there), len(there)):
            fresh.change(other, other._replace(arguments=()) if other.source == "e" else other, there=True)
        assert one.feed_name(called=False) == fresh.feed_name(called=False)
        assert sorted(one.filters()) == sorted(fresh.filters())
    assert one.feed_name(called=True).endswith("$queue/q")
