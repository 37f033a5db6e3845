"""Deferred work: the part of a command that is too much for one turn."""

from __future__ import annotations

import pytest
from tests.core.queues_stage import Peer, QueueStage
from tests.core.stage import STUCK, Stage
from tests.core.test_idle import steps

from headway.core.base.deferred import DEFERRED_WORK_MAX, DeferredWork, WorkSteps
from headway.core.base.errors import Refused
from headway.core.clients.sessions import Ending
from headway.core.consumer.subscription import Subscription
from headway.core.log.durable import Ledger

MANY = 450
BLOCK = """
[[policy]]
name = "block"
topics = ["t/#"]
[[policy.rule]]
when = { lag_records = 1 }
then = "block_publishers"
"""
A_TURN = DEFERRED_WORK_MAX // 16


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Subscription]:
    """Subscriptions, as they end."""
    made: list[Subscription] = []
    end = Ending.end

    def counted(self: Ending, subscription: Subscription, *args: object, **how: object) -> object:
        if not subscription.ended:
            made.append(subscription)
        return end(self, subscription, *args, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Ending, "end", counted)
    return made


def test_they_are_done_one_after_the_other() -> None:
    deferred = DeferredWork()
    done: list[str] = []

    def some(name: str, count: int) -> WorkSteps:
        for number in range(count):
            done.append(f"{name}{number}")
            yield DEFERRED_WORK_MAX // 4

    deferred.begin(some("a", 6), 1.0)
    deferred.begin(some("b", 1), 1.0)
    assert done == ["a0", "a1", "a2", "a3"]
    assert deferred.begun
    deferred.turn(2.0)
    assert done[4:] == ["a4", "a5", "b0"]
    assert deferred.now == 2.0
    assert not deferred.begun


def left(stage: Stage, many: int = MANY) -> list[int]:
    """A client of many filters leaves; how many lines of Python each turn takes until nothing is left of it."""
    client = stage.client("c")
    for number in range(many):
        client.subscribe(f"t/{number}", 1)
    stage.turn()
    lines = [steps(client.leave)]
    while stage.broker.has_work:
        lines.append(steps(lambda: stage.broker.flush(stage.now)))
    return lines


def test_time_does_not_go_back_for_what_is_begun_in_the_name_of_an_earlier_moment() -> None:
    deferred, seen = DeferredWork(), []

    def inner() -> WorkSteps:
        seen.append(deferred.now)
        yield 1

    def outer() -> WorkSteps:
        deferred.begin(inner(), 1.0)
        seen.append(deferred.now)
        yield 1

    deferred.begin(outer(), 2.0)
    assert seen == [2.0, 2.0]


def test_a_session_of_many_subscriptions_ends_little_by_little(ended: list[Subscription]) -> None:
    stage = Stage()
    before = stage.pool.clients_bytes
    few = max(left(stage, A_TURN))
    assert len(ended) == A_TURN
    many = left(stage)
    assert max(many) < few + 100, "leaving looks at those alone that hold back publishers"
    assert len(many) >= MANY // A_TURN
    assert len(ended) == A_TURN + MANY
    assert stage.pool.clients_bytes == before, "all that it took up is given back"
    assert not [feed for feed in stage.broker.registry.router.feeds if feed.filter.startswith("t/")]


def test_who_held_back_publishers_in_many_ways_and_goes_lets_them_go_little_by_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(BLOCK)
    client = stage.client("c", reads=STUCK, buffer=0, expiry_s=1000.0)
    publisher = stage.client("publisher")
    for number in range(MANY):
        client.subscribe(f"t/{number}", 1)
    for number in range(MANY):
        publisher.publish(f"t/{number}", number, 2, qos=1)
    stage.run(2)
    session = client.session
    gates = len(session.gates)
    assert gates > 3 * A_TURN
    publisher.publish(next(reversed(session.gates)).filter, 0, 1, qos=1)
    assert publisher.session.paused_by
    opened: list[Subscription] = []
    open_gate = Ending.open_gate
    monkeypatch.setattr(Ending, "open_gate", lambda *args: opened.append(args[1]) or open_gate(*args))
    client.leave()
    counts = [len(opened)]
    while stage.broker.has_work:
        stage.broker.flush(stage.now)
        counts.append(len(opened) - sum(counts))
    assert max(counts) <= A_TURN
    assert sum(counts) == gates
    assert not session.gates
    assert not publisher.session.paused_by


@pytest.mark.parametrize("how", ["taken over", "expired"])
def test_a_new_session_of_the_name_is_not_the_old_one(ended: list[Subscription], how: str) -> None:
    stage = Stage()
    old = stage.client("c", expiry_s=60.0, reads=STUCK)
    for number in range(MANY):
        old.subscribe(f"t/{number}", 1)
    old.leave()
    if how == "expired":
        stage.now += 61.0
        stage.broker.registry.timers.run(stage.now)
    else:
        old.session.expiry_s = 0.0  # it is over, though nobody has come to see
    new = stage.client("c", expiry_s=60.0)
    assert new.session is not old.session
    assert not new.session.present
    assert 0 < len(ended) < MANY
    new.subscribe(f"t/{MANY - 1}", 1)
    stage.client("publisher").publish(f"t/{MANY - 1}", 7, 1, qos=1)
    stage.turn()
    assert len(ended) == MANY
    assert new.numbers == [7]
    assert stage.broker.registry.sessions["c"] is new.session
    assert list(new.session.subscriptions) == [f"t/{MANY - 1}"]


def test_the_journal_knows_it_by_one_word(ended: list[Subscription]) -> None:
    """Whatever a snapshot says meanwhile, the next session of the name has none of it."""
    stage = Stage()
    ledger = Ledger()
    stage.broker._metadata.begin(ledger)
    old = stage.client("c", expiry_s=60.0)
    for number in range(MANY):
        old.subscribe(f"t/{number}", 1)
    old.leave()
    stage.broker.disconnect(old.session, old.outlet, "gone", stage.now)  # type: ignore[arg-type]
    stage.now += 61.0
    ledger.take(0, 0.0)
    stage.broker.registry.timers.run(stage.now)
    assert len(ended) < MANY
    stage.client("c", expiry_s=60.0).subscribe("mine", 1)
    commit = ledger.take(0, 0.0)
    assert commit is not None
    sessions = [change for change in commit.changes if change.what == "session"]
    assert [(change.name, change.terms is None) for change in sessions] == [("c", True), ("c", False)]
    told = [change for change in ledger.all_metadata() if change is not None and change.what == "subscription"]
    assert [change.terms.request.filter for change in told] == ["mine"]  # type: ignore[attr-defined]


def test_a_group_ends_with_its_last_member_though_its_turn_is_to_come(ended: list[Subscription]) -> None:
    stage = Stage()
    old, publisher = stage.client("c", reads=STUCK, buffer=0), stage.client("publisher")
    for number in range(MANY):
        old.subscribe(f"t/{number}", 1)
    old.subscribe("$share/g/jobs", 1)
    publisher.publish("jobs", 0, 5, qos=1)
    stage.turn()
    old.leave()
    assert len(ended) < MANY
    new = stage.consumer("new", "$share/g/jobs", 1)
    publisher.publish("jobs", 5, 1, qos=1)
    stage.turn()
    assert new.numbers == [5]


def test_a_group_that_has_ended_is_left_to_its_own_turn_by_who_begins_it_anew(ended: list[Subscription]) -> None:
    stage = Stage(memory="64MB")
    publisher = stage.client("publisher")
    heavy = stage.client("heavy")
    for number in range(MANY):
        heavy.subscribe(f"t/{number}", 1)
    members = [stage.client(f"m{number}", reads=STUCK, buffer=0, acks=False) for number in range(MANY)]
    for member in members:
        member.subscribe("$share/g/jobs", 1)
    publisher.publish("jobs", 0, 3 * MANY, qos=1)
    while stage.broker.has_work:
        stage.broker.flush(stage.now)
    heavy.leave()
    for member in members:
        member.leave()
    before, sent = len(ended), publisher.session.published_records
    new = stage.consumer("new", "$share/g/jobs", 1)
    assert len(ended) == before, "it waits for the end of nobody"
    publisher.publish("jobs", 7, 1, qos=1)
    while stage.broker.has_work:
        stage.broker.flush(stage.now)
        assert len(ended) - before <= A_TURN
        before = len(ended)
    stage.turn()
    assert len(ended) == 2 * MANY
    assert new.numbers == [7]
    assert publisher.session.lost_records == {"subscription_ended": sent}, "each is counted once"
    assert len(new.session.subscriptions) == len(stage.broker.registry.router.feeds) - 1
    stage.check()


def test_queues_of_a_connection_that_is_gone_are_gone_though_their_turn_is_to_come() -> None:
    stage = QueueStage()
    old, other = stage.peer("old"), stage.peer("other")
    for number in range(MANY):
        old.declare(f"q{number}", exclusive=True)
    stage.turn()
    old.leave()
    queues = stage.broker.registry.router.queues
    assert MANY - A_TURN <= len(queues) < MANY
    with pytest.raises(Refused, match="no queue"):
        stage.broker.queues.queue(other.session, f"q{MANY - 1}")
    fresh = other.declare(f"q{MANY - 1}", exclusive=True)
    stage.turn()
    assert list(queues.values()) == [fresh]


def test_a_channel_of_many_consumers_is_closed_little_by_little(ended: list[Subscription]) -> None:
    stage = QueueStage()
    peer, other = stage.peer("c"), stage.peer("other")
    for number in range(MANY):
        peer.declare(f"q{number}")
        peer.consume(f"q{number}", acks=False)
    peer.declare("last")
    peer.consume("last", acks=False, exclusive=True)
    other.publish("last", 0, 2000)
    stage.turn()
    assert len(peer.ids()) == 2000
    lines = [steps(peer.close)]
    assert not ended, "deliveries go back first"
    fresh = peer.consume("last", acks=False, exclusive=True)
    assert not fresh.gone, "the tag is free, and the queue"
    deferred = stage.broker.registry.deferred
    while deferred.begun:
        lines.append(steps(lambda: deferred.turn(stage.now)))
    assert len(ended) == MANY + 1
    assert len(lines) >= (2000 * 2 + MANY * 16) // DEFERRED_WORK_MAX
    assert max(lines) < sum(lines) / 3
    stage.turn()
    assert peer.numbers == [*range(2000), *range(2000)]
    assert peer.again == list(range(2000))


def test_nothing_is_handed_out_on_a_channel_that_is_closed(ended: list[Subscription]) -> None:
    stage = QueueStage()
    peer, other = stage.peer("c"), stage.peer("other")
    for number in range(MANY):
        peer.declare(f"q{number}")
        peer.consume(f"q{number}", acks=None)
    stage.turn()
    peer.close()
    assert 0 < len(ended) < MANY
    other.publish(f"q{MANY - 1}", 0, 3)
    stage.turn()
    assert len(ended) == MANY
    assert not peer.seen
    peer.consume(f"q{MANY - 1}")
    stage.turn()
    assert peer.numbers == [0, 1, 2]


def deleted(consumers: int) -> tuple[list[int], list[Peer]]:
    """A queue of so many consumers is deleted; the lines of Python that each turn takes until nothing is left of it."""
    stage = QueueStage()
    owner = stage.peer("owner")
    owner.declare("q")
    owner.publish("q", 0, 2 * consumers)
    peers = [stage.peer(f"peer {number}") for number in range(10)]
    for number in range(consumers):
        peers[number % 10].consume("q", 1, acks=False, tag=f"tag {number}")
    stage.turn()
    lines = [steps(lambda: owner.delete("q"))]
    while stage.broker.has_work:
        lines.append(steps(lambda: stage.broker.flush(stage.now)))
    stage.turn()
    return lines, peers


def test_a_queue_of_many_consumers_is_deleted_little_by_little(ended: list[Subscription]) -> None:
    few = max(deleted(A_TURN)[0])
    assert len(ended) == A_TURN
    many, peers = deleted(MANY)
    assert len(ended) == A_TURN + MANY
    assert len(many) >= MANY // A_TURN
    assert max(many) < 1.5 * few, "ending one does not go through the others"
    assert sum(len(peer.cancelled) for peer in peers) == MANY
    assert not any(peer.session.queues or peer.session.subscriptions for peer in peers)


def test_tags_of_consumers_of_a_deleted_queue_are_free_though_their_turn_is_to_come(ended: list[Subscription]) -> None:
    stage = QueueStage()
    peer, other = stage.peer("peer"), stage.peer("other")
    peer.declare("q")
    peer.declare("fresh")
    for number in range(MANY):
        peer.consume("q", acks=False, tag=f"tag {number}")
    other.publish("q", 0, 3)
    stage.turn()
    first = peer.ids()[0]
    assert peer.delete("q") == 0
    assert 0 < len(ended) < MANY
    fresh = peer.consume("fresh", tag=f"tag {MANY - 1}")
    peer.ack(first)
    other.publish("fresh", 7)
    stage.turn()
    assert len(ended) == MANY
    assert not fresh.ended
    assert peer.numbers == [0, 1, 2, 7]
    assert list(peer.session.subscriptions.values()) == [fresh]


@pytest.mark.parametrize("exclusive", [False, True])
def test_what_consumers_took_up_is_given_back_once_however_late(exclusive: bool) -> None:
    """A channel that is closed while its session's turn is to come ends its consumers after the session."""
    stage = QueueStage()
    before = stage.pool.clients_bytes
    client, peer = stage.client("c"), stage.peer("peer")
    for number in range(MANY):
        client.subscribe(f"t/{number}", 1)
    peer.declare("q", exclusive=exclusive)
    for number in range(MANY):
        peer.consume("q", tag=f"tag {number}")
    stage.turn()
    client.leave()
    peer.leave()
    assert stage.pool.clients_bytes > before
    stage.turn()
    if not exclusive:
        stage.broker.queues.delete(stage.queue("q"), stage.now)
    assert stage.pool.clients_bytes == before
