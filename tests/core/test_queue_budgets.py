"""What a queue does with very many records is spread over turns: dropping them into a dead letter exchange, and sorting
them by priority."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from tests.core.queue_wire import run_of
from tests.core.queues_stage import QueueStage, filled, reader
from tests.core.stage import STUCK, Stage
from tests.core.test_idle import steps

from headway.core.base.deferred import DEFERRED_WORK_MAX, DELIVERY_WORK
from headway.core.base.errors import Reason
from headway.core.consumer.session import Session
from headway.core.governance.turn import HAND_OUT_WORK, POLICY_WORK, Turn
from headway.core.queue import members
from headway.core.queue.drops import Drops
from headway.core.queue.queue import Queue
from headway.core.routing.registry import DEAD_LETTER_WORK, OVERDUE_WORK, SORTED_WORK, Registry

MANY = 1200
CONSUMERS = 50
DEAD_LETTERS_A_TURN = OVERDUE_WORK // DEAD_LETTER_WORK


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int]], list[int]]:
    """Records after each flush how much a figure has changed since the last."""

    def watch(figure: Callable[[], int]) -> list[int]:
        changes, last = [0], [figure()]
        flush = Turn.flush

        def counted(self: Turn, now: float) -> None:
            flush(self, now)
            changes.append(figure() - last[0])
            last[0] = figure()

        monkeypatch.setattr(Turn, "flush", counted)
        return changes

    return watch


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Indexes of dead letters, as they are made."""
    made: list[int] = []
    dead_letter = Drops._dead_letter

    def counted(self: Drops, chunk: object, index: int, reason: Reason) -> bool:
        made.append(index)
        return dead_letter(self, chunk, index, reason)  # type: ignore[arg-type]

    monkeypatch.setattr(Drops, "_dead_letter", counted)
    return made


def run_out(stage: QueueStage) -> None:
    while stage.broker.has_work:
        stage.broker.flush(stage.now)
    stage.turn()


@pytest.mark.parametrize("keep", ["keep_records = 10", 'keep_bytes = "500B"'])
def test_a_policy_drops_very_many_into_a_dead_letter_exchange(
    turns: Callable[[Callable[[], int]], list[int]], dead: list[int], keep: str
) -> None:
    stage = QueueStage(f"""
    [[policy]]
    name = "few"
    [[policy.rule]]
    when = {{ lag_records = 1000 }}
    then = {{ action = "discard", which = "oldest", {keep} }}
    """, memory="64MB")  # fmt: skip
    owner, peer = stage.peer("owner"), stage.peer("peer")
    owner.declare("q", dead_letter_exchange="dlx")
    member = peer.consume("q", 1, acks=False)
    owner.publish("q", 0, MANY)
    stage.turn()
    queue = stage.queue("q")
    before = queue.backlog.lag_bytes / queue.backlog.lag_records
    changes = turns(lambda: len(dead))
    stage.tick()
    stage.run(2)
    assert max(changes) <= 2 * DEAD_LETTERS_A_TURN, "one share when it is looked at, one in the turn"
    left = 10 if "records" in keep else int(500 / before)
    assert queue.backlog.lag_records == left
    assert stage.counts("q") == {"discarded": MANY - 1 - left}
    assert [int(one.record.payload.split()[0]) for one in stage.dead] == list(range(1, MANY - left))
    assert not member.ended


@pytest.mark.parametrize("came_back", [False, True])
def test_nothing_is_handed_out_that_is_still_to_be_discarded(
    turns: Callable[[Callable[[], int]], list[int]], dead: list[int], came_back: bool
) -> None:
    stage = QueueStage(memory="64MB")
    owner, peer = stage.peer("owner"), stage.peer("peer", buffer=10**7)
    queue = owner.declare("q", dead_letter_exchange="dlx")
    if came_back:
        peer.consume("q", acks=False)
    owner.publish("q", 0, MANY)
    stage.turn()
    if came_back:
        peer.close()
    stage.run(1)
    assert queue.backlog.lag_records == MANY
    changes = turns(lambda: len(dead))
    queue.discards.discard(MANY - 5, 0, Reason.DISCARDED)
    assert 0 < len(dead) <= DEAD_LETTERS_A_TURN
    reader = stage.peer("reader")
    reader.consume("q")
    run_out(stage)
    assert reader.numbers == list(range(MANY - 5, MANY))
    assert len(dead) == MANY - 5
    assert max(changes) <= 2 * DEAD_LETTERS_A_TURN, "one share before the flush, one in it"


def test_records_that_a_rule_leaves_out_become_dead_letters_little_by_little(
    turns: Callable[[Callable[[], int]], list[int]], dead: list[int]
) -> None:
    stage = QueueStage("""
    [[policy]]
    name = "urgent"
    [[policy.rule]]
    when = { lag_records = 10 }
    then = { action = "discard", which = "selector", selector = "priority < 5" }
    """, memory="64MB")  # fmt: skip
    owner, peer = stage.peer("owner"), stage.peer("peer")
    owner.declare("q", dead_letter_exchange="dlx")
    peer.consume("q", 1, acks=False)
    owner.publish("q", 0, MANY, priority=1)
    owner.publish("q", MANY, 2, priority=7)
    stage.turn()
    stage.run(1)
    assert stage.queue("q").members.all_slow or stage.broker.registry.totals.slow == 0
    changes = turns(lambda: len(dead))
    peer.ack(*peer.ids())
    stage.run(1)
    assert peer.numbers == [0, MANY]
    assert len(dead) == MANY - 1
    assert max(changes) <= 2 * DEAD_LETTERS_A_TURN, "one share before the flush, one in it"


@pytest.mark.parametrize("came_back", [False, True])
def test_a_full_pool_drops_very_many_into_a_dead_letter_exchange(
    turns: Callable[[Callable[[], int]], list[int]], dead: list[int], came_back: bool
) -> None:
    stage = QueueStage(memory="200KB", disk="0B", max_client_share="100%")
    owner, peer = stage.peer("owner"), stage.peer("peer", buffer=10**7)
    owner.declare("q", dead_letter_exchange="dlx")
    if came_back:
        peer.consume("q", acks=False)
    changes = turns(lambda: len(dead))
    sent = 0
    for _ in stage.steps(10):
        if owner.publish("q", sent, 500, qos=0) is not None:
            sent += 500
        if came_back and "q" in [tag for _, tag in peer.consumers]:
            peer.cancel("q")
            peer.nack(*peer.ids(), requeue=True)
    assert stage.counts("q")["memory_limit"] > 500
    assert max(changes) <= 2 * DEAD_LETTERS_A_TURN, "one share before the flush, one in it"
    assert sent > MANY


def test_a_queue_by_priority_sorts_very_many_little_by_little(
    turns: Callable[[Callable[[], int]], list[int]]
) -> None:
    stage = QueueStage(memory="64MB")
    owner, peer = stage.peer("owner"), stage.peer("peer", buffer=10**7)
    queue: Queue = owner.declare("q", priorities=5)
    changes = turns(lambda: queue.backlog.cursor.passed_records)
    peer.consume("q")
    for first in range(0, MANY, 100):
        owner.publish("q", first, 100, priority=first // 100 % 5)
    stage.broker.flush(stage.now)
    assert changes[-1] == OVERDUE_WORK // SORTED_WORK
    assert not peer.numbers, "the highest priority may be among what is not sorted"
    late = stage.peer("late")
    assert stage.broker.intake.must_wait(late.session, run_of("q", [b"x"]), stage.now), "publishers wait"
    run_out(stage)
    stage.run(1)
    assert max(changes) == OVERDUE_WORK // SORTED_WORK
    wanted = sorted(range(MANY), key=lambda number: (-(number // 100 % 5), number))
    assert peer.numbers == wanted


def test_who_asks_a_queue_by_priority_waits_until_it_is_sorted() -> None:
    stage = QueueStage(memory="64MB")
    owner, peer = stage.peer("owner"), stage.peer("peer")
    queue = owner.declare("q", priorities=5)
    owner.publish("q", 0, MANY, priority=1)
    owner.publish("q", MANY, priority=2)
    looks = 0
    while queue.is_behind(stage.now):
        looks += 1
        stage.broker.flush(stage.now)
    assert looks >= MANY * SORTED_WORK // OVERDUE_WORK
    got = peer.get("q")
    assert got is not None
    assert got[0].number == MANY


def test_members_of_a_queue_that_goes_by_other_names_get_other_policies_little_by_little(
    turns: Callable[[Callable[[], int]], list[int]]
) -> None:
    stage = QueueStage("""
    [[policy]]
    name = "orders"
    topics = ["$exchange/e/orders"]
    """)  # fmt: skip
    owner, peer = stage.peer("owner"), stage.peer("peer")
    owner.declare("q")
    owner.exchange("e")
    members = [peer.consume("q", tag=f"tag {number}") for number in range(MANY)]
    stage.turn()
    changes = turns(lambda: sum(member.case.policy.name == "orders" for member in members))
    owner.bind("q", "e", "orders")
    stage.broker.queues.cancel(members.pop(), stage.now)
    run_out(stage)
    assert sum(changes) == MANY - 1
    assert max(changes) <= DEFERRED_WORK_MAX // POLICY_WORK


def test_members_get_other_policies_in_one_pass_at_a_time(turns: Callable[[Callable[[], int]], list[int]]) -> None:
    """However often clients bind and unbind meanwhile: or deferred work grows faster than it is done."""
    stage = QueueStage()
    peer = reader(stage)
    peer.declare("q")
    for number in range(MANY):
        peer.consume("q", tag=f"{number}")
    run_out(stage)
    deferred = stage.broker.registry.deferred
    for number in range(20):
        peer.bind("q", "amq.direct", f"key {number}")
        stage.broker.flush(stage.now)
        assert len(deferred) <= 1
    run_out(stage)
    assert not stage.broker.registry.renamed


def test_a_record_for_very_many_idle_consumers_is_offered_to_few(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = QueueStage()
    peer = reader(stage)
    peer.declare("q")
    for number in range(MANY):
        peer.consume("q", prefetch=1, tag=f"{number}")
    run_out(stage)
    asked: list[object] = []
    has_room = members.has_room
    monkeypatch.setattr(members, "has_room", lambda member, now: asked.append(member) or has_room(member, now))
    for number in range(10):
        del asked[:]
        peer.publish("q", number)
        stage.turn()
        assert len(set(asked)) <= 3
    assert [len(peer.of(f"{number}")) for number in range(11)] == [1] * 10 + [0], "each in its turn"


def test_a_consumer_gets_the_record_that_those_before_it_have_no_room_for() -> None:
    stage = QueueStage()
    filled(stage, 0)
    stuck = [stage.peer(f"stuck {number}", reads=STUCK) for number in range(5)]
    for peer in stuck:
        peer.consume("q")
    reads = reader(stage, "q")
    stage.turn()
    for peer in stuck:
        peer.outlet.capacity = peer.outlet.taken - peer.outlet.drained  # full, though nobody knows it
    stage.clients["owner"].publish("q", 0)
    stage.turn()
    assert reads.numbers == [0]


def test_very_many_queues_of_one_publish_take_turns(turns: Callable[[Callable[[], int]], list[int]]) -> None:
    stage, count = QueueStage(), HAND_OUT_WORK
    consumer = stage.peer("consumer")
    for number in range(count):
        consumer.declare(f"q{number}")
        consumer.bind(f"q{number}", "amq.fanout", "")
        consumer.consume(f"q{number}", tag=f"tag {number}")
    run_out(stage)
    queues = [stage.queue(f"q{number}") for number in range(count)]
    changes = turns(lambda: sum(queue.backlog.handed_records for queue in queues))
    stage.peer("publisher").publish("any", 0, exchange="amq.fanout")
    run_out(stage)
    assert max(changes) <= HAND_OUT_WORK // 2 + 1, "each costs a look and a record"
    assert sum(changes) == count
    stage.check()


def test_records_for_many_without_acknowledgements_are_cut_once_and_handed_out_in_one_turn(
    turns: Callable[[Callable[[], int]], list[int]],
) -> None:
    """They counted each for each queue, so a turn reached two or three of them, and each cut them anew."""
    stage = QueueStage()
    for number in range(CONSUMERS):
        consumer = stage.peer(f"c{number}", buffer=10**6)
        consumer.declare(f"q{number}")
        consumer.bind(f"q{number}", "amq.fanout", "")
        consumer.consume(f"q{number}", acks=None)
    run_out(stage)
    queues = [stage.queue(f"q{number}") for number in range(CONSUMERS)]
    changes = turns(lambda: sum(queue.backlog.handed_records for queue in queues))
    stage.peer("publisher").publish("any", 0, 1000, exchange="amq.fanout")
    run_out(stage)
    assert max(changes) == sum(changes) == 1000 * CONSUMERS
    stage.check()


def test_a_publisher_waits_until_queues_that_were_put_off_had_their_turn() -> None:
    """They had theirs later and later, and their publishers were read faster than they could be served."""
    stage = QueueStage()
    consumer, publisher = stage.peer("consumer"), stage.peer("publisher")
    for number in range(HAND_OUT_WORK):
        consumer.declare(f"q{number}")
        consumer.bind(f"q{number}", "amq.fanout", "")
        consumer.consume(f"q{number}", tag=f"tag {number}")
    publisher.declare("apart")
    run_out(stage)
    publisher.publish("any", 0, exchange="amq.fanout")
    rounds = 0
    while stage.broker.registry.put_off or not rounds:
        stage.broker.flush(stage.now)
        rounds += 1
        run = run_of("any", [b"x"], exchange="amq.fanout")
        waits = stage.broker.intake.must_wait(publisher.session, run, stage.now)
        assert waits == bool(stage.broker.registry.put_off)
        assert not stage.broker.intake.must_wait(publisher.session, run_of("apart", [b"x"]), stage.now)
        assert rounds < 10
    assert rounds > 1
    run_out(stage)
    stage.check()


def test_queues_that_are_not_reached_in_a_turn_cost_it_nothing() -> None:
    def of(count: int) -> int:
        stage = QueueStage()
        consumer = stage.peer("consumer")
        queues = [consumer.declare(f"q{number}") for number in range(count)]
        run_out(stage)
        stage.broker.registry.ready_queues |= dict.fromkeys(queues)
        return steps(lambda: stage.broker.flush(stage.now))

    assert of(3 * HAND_OUT_WORK) <= of(2 * HAND_OUT_WORK) + 50


def walked(stuck: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many members are asked for room when a record comes for a consumer beside so many stuck ones."""
    stage = QueueStage()
    filled(stage, 0)
    for number in range(stuck):
        stage.peer(f"stuck {number}").consume("q", 1, acks=False)
    reads = reader(stage, "q")
    stage.clients["owner"].publish("q", 0, stuck + 1)  # each gets one
    stage.turn()
    before = len(reads.numbers)
    asked: list[object] = []
    has_room = members.has_room
    with monkeypatch.context() as patch:
        patch.setattr(members, "has_room", lambda member, now: asked.append(member) or has_room(member, now))
        for number in range(20):
            stage.clients["owner"].publish("q", stuck + 1 + number)
            stage.turn()
    assert len(reads.numbers) == before + 20
    return len(asked)


def test_who_reads_gets_records_without_a_look_at_all_who_are_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    assert walked(300, monkeypatch) <= walked(10, monkeypatch) + 300, "once each, and not for each record"


def test_the_end_of_a_client_wakes_none_of_its_consumers_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of five thousand that ended used to look at all the queues that its client read."""
    woken, wake = [0], Registry.wake

    def counted(self: Registry, session: Session) -> None:
        woken[0] += len(session.queues)
        wake(self, session)

    stage, count = QueueStage(), 200
    consumer = stage.peer("consumer")
    for number in range(count):
        consumer.declare(f"q{number}")
        consumer.consume(f"q{number}")
    run_out(stage)
    monkeypatch.setattr(Registry, "wake", counted)
    consumer.leave()
    run_out(stage)
    assert woken[0] <= count
    assert not any(queue.members for queue in map(stage.queue, [f"q{number}" for number in range(count)]))
    stage.check()


def test_a_member_whose_session_ends_gives_very_many_back_little_by_little() -> None:
    """An MQTT client may have 65,535 in flight of a shared subscription, and has 1024 if nothing else is said."""
    stage = Stage(memory="64MB")
    leaving = stage.client("leaving", buffer=10**7, acks=False)
    leaving.subscribe("$share/g/t", qos=1)
    publisher = stage.client("publisher")
    publisher.publish("t", 0, 1000, qos=1)
    stage.turn()
    assert len(leaving.numbers) == 1000
    staying = stage.client("staying", buffer=10**7)
    staying.subscribe("$share/g/t", qos=1)
    channel = leaving.session.channel
    left = [channel.used]
    leaving.leave()
    while stage.broker.has_work:
        left.append(channel.used)
        stage.broker.flush(stage.now)
    assert max(then - now for then, now in pairwise([*left, channel.used])) <= DEFERRED_WORK_MAX // DELIVERY_WORK + 1
    stage.turn()
    assert sorted(staying.numbers) == list(range(1000))
