"""Selectors of queue consumers: what each gets, in which order, and what it costs."""

from __future__ import annotations

from tests.core.queues_stage import Peer, QueueStage, drained, owner
from tests.core.refusals import refused

from headway.core.base.errors import Reason
from headway.core.queue.picking import picker, picking
from headway.core.routing.registry import OVERDUE_WORK
from headway.core.telemetry.stats import account


def put(peer: Peer, numbers: range, **user: str) -> None:
    peer.publish("q", numbers.start, len(numbers), user=tuple(user.items()))


def colours(stage: QueueStage, **terms: object) -> Peer:
    """A queue in which red (0 … 4), blue (5 … 9) and green (10 … 14) records wait."""
    peer = owner(stage, **terms)
    for at, colour in enumerate(("red", "blue", "green")):
        put(peer, range(5 * at, 5 * at + 5), colour=colour)
    stage.turn()
    return peer


def picky(stage: QueueStage, name: str, colour: str, prefetch: int = 1000, *, acks: bool | None = True) -> Peer:
    peer = stage.peer(name)
    peer.consume("q", prefetch, acks=acks, tag=name, selector=f"colour = '{colour}'")
    return peer


def test_each_gets_what_matches_and_what_nobody_wants_stays() -> None:
    stage = QueueStage()
    colours(stage)
    blue, green = picky(stage, "blue", "blue"), picky(stage, "green", "green")
    stage.run(1)
    assert blue.numbers == [*range(5, 10)]
    assert green.numbers == [*range(10, 15)]
    assert stage.queue("q").backlog.lag_records == 5
    stage.queue("q").backlog.check()
    red = picky(stage, "red", "red")
    stage.run(1)
    assert red.numbers == [*range(5)]
    assert stage.queue("q").backlog.lag_records == stage.queue("q").backlog.lag_bytes == 0


def test_a_queue_that_ends_leaves_nothing_standing_in_the_lane_of_another() -> None:
    stage = QueueStage()
    peer = owner(stage)
    peer.exchange("x", "fanout")
    peer.declare("other")
    for name in ("q", "other"):
        peer.bind(name, "x")
    picky(stage, "blue", "blue")
    peer.publish("", 0, 10, exchange="x", user=(("colour", "red"),))
    stage.run(1)
    lane = stage.queue("other").feed.lane
    assert stage.queue("q").feed.lane is lane
    assert lane.cursors_awaiting_acks == 1, "what nobody wants stands there"
    peer.delete("q")
    stage.run(1)
    lane.check()
    assert lane.cursors_awaiting_acks == 0


def test_what_comes_later_is_picked_too() -> None:
    stage = QueueStage()
    publisher, blue = colours(stage), picky(stage, "blue", "blue")
    stage.run(1)
    put(publisher, range(15, 20), colour="red")
    put(publisher, range(20, 25), colour="blue")
    stage.run(1)
    assert blue.numbers == [*range(5, 10), *range(20, 25)]
    plain = stage.peer("plain")
    plain.consume("q")
    stage.run(1)
    assert plain.numbers == [*range(5), *range(10, 15), *range(15, 20)]


def test_what_is_given_back_keeps_its_place_and_is_for_who_selects_it() -> None:
    stage = QueueStage()
    colours(stage)
    holder = picky(stage, "holder", "blue", acks=False)
    stage.run(1)
    assert holder.numbers == [*range(5, 10)]
    holder.nack(*[holder.id_of(number) for number in (9, 6)], requeue=True)
    holder.cancel("holder")
    stage.run(1)
    red, blue = picky(stage, "red", "red"), picky(stage, "blue", "blue")
    stage.run(1)
    assert red.numbers == [*range(5)]
    assert (blue.numbers, blue.again) == ([6, 9], [6, 9])
    assert drained(stage, "q") == [*range(10, 15)]


def test_priorities_hold_among_what_matches() -> None:
    stage = QueueStage()
    publisher = owner(stage, priorities=9)
    for number, (colour, priority) in enumerate([("red", 9), ("blue", 1), ("blue", 5), ("red", 1), ("blue", 9)]):
        publisher.publish("q", number, priority=priority, user=(("colour", colour),))
    stage.turn()
    blue = picky(stage, "blue", "blue")
    stage.run(1)
    assert blue.numbers == [4, 2, 1]
    publisher.publish("q", 5, priority=3, user=(("colour", "blue"),))
    publisher.publish("q", 6, priority=8, user=(("colour", "red"),))
    stage.run(1)
    assert blue.numbers == [4, 2, 1, 5]
    assert drained(stage, "q") == [0, 6, 3]


def test_what_expires_is_never_handed_out() -> None:
    stage = QueueStage()
    publisher = owner(stage)
    put(publisher, range(3), colour="red")
    publisher.publish("q", 3, 2, ttl_s=5.0, user=(("colour", "blue"),))
    publisher.publish("q", 5, 2, user=(("colour", "blue"),))
    stage.turn()
    red = picky(stage, "green", "green")
    stage.run(6)
    blue = picky(stage, "blue", "blue")
    stage.run(1)
    assert (blue.numbers, red.numbers) == ([5, 6], [])
    assert stage.counts("q")["expired"] == 2


def test_a_stuck_consumer_keeps_only_what_it_has() -> None:
    stage = QueueStage()
    colours(stage)
    stuck = picky(stage, "stuck", "blue", 2, acks=False)
    stage.run(1)
    assert stuck.numbers == [5, 6]
    assert account(stuck.consumers[1, "stuck"])[::2] == (2, 0, 3), "drained, skipped, lag"
    other = picky(stage, "other", "blue")
    stage.run(1)
    assert other.numbers == [7, 8, 9]
    assert account(stuck.consumers[1, "stuck"])[::2] in ((2, 0, 3), (2, 3, 0)), "what others took was skipped"
    assert not stuck.consumers[1, "stuck"].has_more
    assert account(stuck.consumers[1, "stuck"])[::2] == (2, 3, 0)


def test_the_same_selector_shares_and_takes_turns() -> None:
    stage = QueueStage()
    publisher = owner(stage)
    first, second = picky(stage, "first", "blue"), picky(stage, "second", "blue")
    put(publisher, range(100), colour="blue")
    stage.run(1)
    assert sorted(first.numbers + second.numbers) == [*range(100)]
    assert len(first.numbers) == len(second.numbers) == 50
    assert len(stage.queue("q").picking.pickers) == 2


def test_one_that_is_alone_gets_only_what_it_selects() -> None:
    stage = QueueStage()
    colours(stage, single_active=True)
    blue, red = picky(stage, "blue", "blue"), picky(stage, "red", "red")
    stage.run(1)
    assert (blue.numbers, red.numbers) == ([*range(5, 10)], [])
    blue.cancel("blue")
    stage.run(1)
    assert red.numbers == [*range(5)]


def test_the_number_of_selectors_has_an_end() -> None:
    stage = QueueStage()
    owner(stage)
    peer = stage.peer("many")
    for number in range(picking.SELECTORS_MAX):
        peer.consume("q", tag=f"c{number}", selector=f"n = {number}")
    peer.consume("q", tag="again", selector="n = 0")
    with refused(Reason.TOO_MANY_SUBSCRIPTIONS, "64 distinct selectors"):
        peer.consume("q", tag="more", selector="n = 99")
    with refused(Reason.PROTOCOL_ERROR, "selector"):
        peer.consume("q", tag="bad", selector="n ==")
    peer.cancel("c5")
    peer.consume("q", tag="more", selector="n = 99")
    for tag in [tag for _, tag in peer.consumers]:
        peer.cancel(tag)
    stage.turn()
    assert not stage.queue("q").picking.pickers


def test_a_hundred_thousand_that_match_nobody_do_not_hold_the_loop() -> None:
    """Each turn looks at some; each record is looked at once, however many consumers have the selector."""
    stage = QueueStage()
    publisher = owner(stage)
    for first in range(0, 100_000, 1000):
        publisher.publish("q", first, 1000, user=(("colour", "red"),))
    stage.turn()
    queue, looked = stage.queue("q"), []
    peers = [picky(stage, f"blue {number}", "blue") for number in range(20)]
    selector = next(known for known in queue.picking.pickers if known is not None)
    seen: list[int] = []
    evaluate = selector._evaluate
    selector._evaluate = lambda view: (seen.append(1), evaluate(view))[1]  # type: ignore[method-assign]
    turns = 0
    while stage.broker.has_work:
        before = len(seen)
        stage.broker.flush(stage.now)
        looked.append(len(seen) - before)
        turns += 1
    assert len(seen) == 100_000
    assert max(looked) <= OVERDUE_WORK / picker.LOOKED_WORK + 1
    assert turns >= 100_000 / max(looked)
    assert sum(len(cursor.rows) for cursor in queue.backlog.standing.readers) < 1000, "a row for a chunk"
    put(publisher, range(200_000, 200_001), colour="blue")
    for _ in range(3):
        stage.broker.flush(stage.now)
    for peer in peers:
        peer.read(1000)
    assert [number for peer in peers for number in peer.numbers] == [200_000]
    assert len(seen) == 100_001
    selector._evaluate = evaluate  # type: ignore[method-assign]
    queue.backlog.check()


def test_what_nobody_selects_gives_way_when_memory_is_short() -> None:
    """Records that nobody was promised; a healthy consumer that wants none of them does not keep them there."""
    stage = QueueStage(memory="300kB", disk="0")
    publisher, blue = owner(stage), picky(stage, "blue", "blue")
    sent = 0
    for _ in range(35):
        for _ in range(5):
            if publisher.publish("q", 1000 * sent, 10, size=2000, qos=0, user=(("colour", "red"),)) is not None:
                sent += 1
        publisher.publish("q", 1000 * sent + 500, 1, qos=0, user=(("colour", "blue"),))
        stage.run(1)
    assert sent > 100, "publishers are not held for ever"
    assert blue.numbers == sorted(blue.numbers)
    assert len(blue.numbers) > 15
    assert stage.counts("q")["memory_limit"] > 500
    assert blue.goodbye is None


def test_a_stuck_consumer_is_not_shielded_by_those_that_select_others() -> None:
    stage = QueueStage(memory="300kB", disk="0")
    publisher, blue, stuck = owner(stage), picky(stage, "blue", "blue"), picky(stage, "stuck", "red", 1, acks=False)
    sent = 0
    for _ in range(60):
        if publisher.publish("q", 1000 * sent, 10, size=2000, qos=0, user=(("colour", "red"),)) is not None:
            sent += 1
        publisher.publish("q", 1000 * sent + 500, 1, qos=0, user=(("colour", "blue"),))
        stage.run(1)
    assert stuck.goodbye is not None, "it holds what waits, and takes nothing"
    assert blue.goodbye is None
    assert sent > 30
