"""Queues and exchanges by name: declaring, binding, sharing of lanes, ending; and MQTT beyond amq.topic."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.queues_stage import Delivered, Peer, QueueStage, purged
from tests.core.stage import STUCK

from headway.core.base.errors import Reason, Refused
from headway.core.clients.queues import QUEUES_MAX, Queues
from headway.core.consumer.options import QueueTerms
from headway.core.routing.bindings import Binding, Destination


@pytest.fixture
def stage() -> QueueStage:
    return QueueStage()


@pytest.fixture
def peer(stage: QueueStage) -> Peer:
    return stage.peer("peer")


def reader(stage: QueueStage, *queues: str, acks: bool | None = True) -> Peer:
    """Who consumes all of these, each under its own name."""
    made = stage.peer(f"reader of {', '.join(queues)}")
    for name in queues:
        made.consume(name, acks=acks)
    return made


def drained(stage: QueueStage, name: str) -> list[int]:
    """What waits in a queue, by asking for it."""
    asking, found = stage.peer("drain"), []
    while (got := asking.get(name, acks=True)) is not None:
        found.append(got[0].number)
    asking.leave()
    return found


def refused(reason: Reason, words: str = ".") -> Any:
    """The block is refused for this reason."""
    return _Refused(reason, words)


class _Refused:
    def __init__(self, reason: Reason, words: str) -> None:
        self.reason = reason
        self.raises = pytest.raises(Refused, match=words)

    def __enter__(self) -> None:
        self.caught = self.raises.__enter__()

    def __exit__(self, *about: Any) -> bool:
        done = self.raises.__exit__(*about)
        assert self.caught.value.reason is self.reason
        return bool(done)


# -- declaring ------------------------------------------------------------------------------------------------------


def test_a_queue_declared_again_is_the_same_one(stage: QueueStage, peer: Peer) -> None:
    made = peer.declare("q", ttl_s=5.0)
    peer.publish("q", 0)
    assert stage.peer("other").declare("q", ttl_s=5.0) is made
    assert stage.broker.queues.queue(peer.session, "q") is made
    assert made.backlog.lag_records == 1


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"durable": True}, "durable"), ({"auto_delete": True}, "auto-delete"),
        ({"ttl_s": 1.0}, "x-message-ttl"), ({"idle_s": 1.0}, "x-expires"), ({"records_max": 5}, "x-max-length"),
        ({"bytes_max": 5}, "x-max-length-bytes"), ({"refuses": True}, "x-overflow"),
        ({"dead_letter_exchange": "x"}, "x-dead-letter-exchange"),
        ({"dead_letter_key": "x"}, "x-dead-letter-routing-key"), ({"dead_letter_refused": True}, "x-overflow"),
        ({"priorities": 3}, "x-max-priority"), ({"single_active": True}, "x-single-active-consumer"),
    ],
)  # fmt: skip
def test_a_queue_is_not_declared_otherwise_than_it_is(peer: Peer, other: dict[str, Any], words: str) -> None:
    made = peer.declare("q")
    with refused(Reason.PRECONDITION_FAILED, f"with another {words}$"):
        peer.declare("q", **other)
    assert made.terms == QueueTerms()


@pytest.mark.parametrize("exclusive", [True, False])
def test_whether_a_queue_is_exclusive_is_not_changed_by_declaring_it_again(peer: Peer, exclusive: bool) -> None:
    """Not even by its owner; that comes first, whatever else differs (as RabbitMQ has it)."""
    made = peer.declare("q", exclusive=exclusive)
    assert peer.declare("q", exclusive=exclusive) is made
    with refused(Reason.RESOURCE_LOCKED, "^cannot obtain exclusive access to locked queue 'q' in vhost '/'"):
        peer.declare("q", exclusive=not exclusive, durable=True)


@pytest.mark.parametrize("what", ["acknowledge", "requeue", "reject"])
def test_a_delivery_that_never_was_is_refused_in_the_words_that_clients_match(
    stage: QueueStage, peer: Peer, what: str
) -> None:
    queues, channel = stage.broker.queues, peer.channel(1)
    with refused(Reason.PRECONDITION_FAILED, "^unknown delivery tag 7$"):
        if what == "acknowledge":
            queues.acknowledge(channel, [7])
        else:
            queues.refuse(channel, [7], requeue=what == "requeue")


def test_what_is_not_there(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    for ask in (
        lambda: stage.broker.queues.queue(peer.session, "other"),
        lambda: stage.broker.queues.exchange("other"),
        lambda: peer.bind("other", "amq.direct", "k"),
        lambda: peer.bind("q", "other", "k"),
        lambda: peer.chain("amq.direct", "other", "k"),
    ):
        with refused(Reason.NOT_FOUND, "'other'"):
            ask()
    assert stage.broker.registry.router.exchanges.by_name["amq.direct"].bindings.all == {}


def test_exchanges_declared_again_and_otherwise(peer: Peer) -> None:
    peer.exchange("e", "topic", alternate="amq.fanout")
    peer.exchange("e", "topic", alternate="amq.fanout")
    with refused(Reason.PRECONDITION_FAILED, "another kind"):
        peer.exchange("e", "direct", alternate="amq.fanout")
    with refused(Reason.PRECONDITION_FAILED, "another alternate"):
        peer.exchange("e", "topic")
    with refused(Reason.NOT_AUTHORIZED, "broker's own"):
        peer.exchange("amq.mine")


def test_the_brokers_own_exchanges_stay(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    for name in ("", "amq.topic"):
        with refused(Reason.NOT_AUTHORIZED):
            list(stage.broker.queues.delete_exchange(name, if_unused=False))
    with refused(Reason.NOT_AUTHORIZED):
        peer.bind("q", "", "other name")
    with refused(Reason.NOT_AUTHORIZED):
        peer.unbind("q", "", "q")


def test_an_exchange_in_use_and_one_that_is_gone(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    peer.exchange("e")
    peer.bind("q", "e", "k")
    with refused(Reason.PRECONDITION_FAILED, "in use"):
        list(stage.broker.queues.delete_exchange("e", if_unused=True))
    list(stage.broker.queues.delete_exchange("e", if_unused=False))
    list(stage.broker.queues.delete_exchange("e", if_unused=True))
    peer.exchange("e")
    assert peer.publish("k", 0, exchange="e").taken == 0  # type: ignore[union-attr]
    peer.publish("q", 1)
    assert drained(stage, "q") == [1]


def test_there_is_an_end_of_queues(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.core.clients.queues.QUEUES_MAX", 2)
    peer.declare("a")
    peer.declare("b")
    peer.declare("a")
    with refused(Reason.TOO_MANY_QUEUES):
        peer.declare("c")
    assert QUEUES_MAX > 2


def test_a_tag_is_given_once_and_consumers_are_limited(stage: QueueStage, peer: Peer, monkeypatch: pytest.MonkeyPatch
                                                       ) -> None:
    peer.declare("q")
    peer.consume("q", tag="t")
    with refused(Reason.NOT_ALLOWED, "tag"):
        peer.consume("q", tag="t")
    peer.consume("q", tag="t", channel=2)
    for number in range(9998):
        peer.consume("q", tag=f"t{number}")
    with refused(Reason.TOO_MANY_SUBSCRIPTIONS, "10000"):
        peer.consume("q", tag="one more")


# -- ending ---------------------------------------------------------------------------------------------------------


def test_deleting_says_how_many_waited_and_tells_consumers(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", dead_letter_exchange="dlx")
    other = stage.peer("other")
    other.consume("q", 3, acks=False)
    peer.publish("q", 0, 10)
    stage.turn()
    assert peer.delete("q") == 7
    stage.turn()
    assert other.cancelled == ["q"]
    assert stage.pool.memory_bytes == 0
    assert stage.lanes == []
    assert stage.dead == []
    with refused(Reason.NOT_FOUND):
        peer.delete("q")
    other.ack(other.ids()[0])
    other.nack(other.ids()[0], requeue=True)
    other.nack(other.ids()[0], requeue=False)
    stage.turn()
    assert not other.ids()
    assert peer.publish("q", 0).taken == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["if_unused", "if_empty"])
def test_deleting_on_conditions(stage: QueueStage, peer: Peer, how: str) -> None:
    peer.declare("q")
    other = stage.peer("other")
    other.consume("q", 1, acks=False)
    peer.publish("q", 0, 2)
    stage.turn()
    with refused(Reason.PRECONDITION_FAILED):
        peer.delete("q", **{how: True})
    assert other.connected
    assert stage.queue("q").backlog.lag_records == 1
    if how == "if_unused":
        other.cancel("q")
    else:
        purged(stage.queue("q"))
    peer.delete("q", **{how: True})
    stage.turn()
    assert stage.lanes == []


def test_an_exclusive_queue_is_its_sessions_alone_and_goes_with_it(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", exclusive=True)
    other = stage.peer("other")
    for ask in (
        lambda: other.declare("q", exclusive=True), lambda: other.consume("q"), lambda: other.get("q"),
        lambda: other.bind("q", "amq.direct", "k"), lambda: other.unbind("q", "amq.direct", "k"),
        lambda: other.delete("q"),
    ):  # fmt: skip
        with refused(Reason.RESOURCE_LOCKED):
            ask()
    other.publish("q", 0, 3)
    peer.consume("q", 1, acks=False)
    stage.turn()
    assert peer.numbers == [0]
    peer.leave()
    stage.turn()
    assert "q" not in stage.broker.registry.router.queues
    assert stage.pool.memory_bytes == 0
    assert stage.lanes == []
    assert not stage.broker.registry.owned


@pytest.mark.parametrize("how", ["cancel", "close", "leave"])
def test_a_queue_may_end_with_its_last_consumer(stage: QueueStage, peer: Peer, how: str) -> None:
    peer.declare("q", auto_delete=True)
    peer.publish("q", 0, 4)
    stage.run(1)
    assert stage.queue("q").backlog.lag_records == 4, "not before it had one"
    one, two = reader(stage, "q", acks=False), stage.peer("two")
    two.consume("q", acks=False)
    stage.turn()
    two.cancel("q")
    stage.turn()
    assert "q" in stage.broker.registry.router.queues
    if how == "cancel":
        one.cancel("q")
    elif how == "close":
        one.close()
    else:
        one.leave()
    stage.turn()
    assert "q" not in stage.broker.registry.router.queues
    assert stage.pool.memory_bytes == 0
    two.ack(*two.ids())
    stage.turn()
    assert stage.lanes == []


def test_a_queue_nobody_uses_for_so_long_ends(stage: QueueStage, peer: Peer) -> None:
    peer.declare("used", idle_s=2.0)
    peer.declare("asked", idle_s=2.0)
    peer.declare("left", idle_s=2.0)
    consumer = peer.consume("used")
    peer.publish("left", 0, 10)
    for _ in stage.steps(5):
        if stage.now < 1003:
            peer.get("asked")
            peer.publish("left", 10, 1)
    queues = stage.broker.registry.router.queues
    assert "left" not in queues, "publishing is no use of it"
    stage.run(0.4)
    assert list(queues) == ["used"]
    stage.broker.queues.cancel(consumer, stage.now)
    stage.run(1.8)
    assert "used" in queues
    stage.run(0.4)
    assert not queues
    assert stage.pool.memory_bytes == 0


def test_a_lifetime_renewed_by_declaring_again(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", idle_s=1.0)
    stage.run(0.8)
    peer.declare("q", idle_s=1.0)
    stage.run(0.8)
    assert "q" in stage.broker.registry.router.queues
    stage.run(0.6)
    assert "q" not in stage.broker.registry.router.queues


# -- one lane for all -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queues", [2, 100])
def test_queues_bound_alike_share_one_lane_and_a_record_is_held_once(stage: QueueStage, peer: Peer, queues: int
                                                                     ) -> None:
    for number in range(queues):
        peer.declare(f"q{number}")
        peer.bind(f"q{number}", "amq.topic", "a.#")
        peer.bind(f"q{number}", "amq.direct", "k")
    assert len(stage.lanes) == 1
    peer.publish("a.b", 0, 10, exchange="amq.topic", size=1000)
    published = peer.publish("k", 10, 10, exchange="amq.direct", size=1000)
    stage.turn()
    assert published is not None
    assert published.taken == 1
    assert 20_000 < stage.pool.memory_bytes < 23_000
    first = reader(stage, "q0")
    stage.turn()
    assert first.numbers == list(range(20))
    assert stage.pool.memory_bytes > 20_000, "for the others"
    others = [reader(stage, f"q{number}") for number in range(1, queues)]
    stage.turn()
    assert all(other.numbers == list(range(20)) for other in others)
    assert stage.pool.memory_bytes == 0


@pytest.mark.parametrize(
    ("source", "looks_at_key", "looks_at_arguments"),
    [("amq.fanout", False, False), ("amq.headers", False, True), ("amq.direct", True, False),
     ("amq.topic", True, False)],
)  # fmt: skip
def test_what_an_exchange_does_not_look_at_keeps_nobody_apart(
    stage: QueueStage, peer: Peer, source: str, looks_at_key: bool, looks_at_arguments: bool
) -> None:
    for number in range(50):
        peer.declare(f"q{number}")
        peer.bind(f"q{number}", source, f"key{number}")
    assert len(stage.lanes) == (50 if looks_at_key else 1)
    for number in range(50):
        peer.unbind(f"q{number}", source, f"key{number}")
        peer.bind(f"q{number}", source, "key", number=number)
    assert len(stage.lanes) == (50 if looks_at_arguments else 1)


def test_a_binding_ends_by_the_very_key_and_arguments_it_was_made_with(stage: QueueStage, peer: Peer) -> None:
    for name in ("q", "r"):
        peer.declare(name)
        peer.bind(name, "amq.fanout", name)
    peer.bind("q", "amq.fanout", "other", a=1)
    assert len(stage.lanes) == 1
    peer.unbind("q", "amq.fanout", "")
    peer.unbind("q", "amq.fanout", "r")
    peer.unbind("q", "amq.fanout", "other")
    peer.publish("x", 0, exchange="amq.fanout")
    peer.unbind("q", "amq.fanout", "q")
    peer.publish("x", 1, exchange="amq.fanout")
    peer.unbind("q", "amq.fanout", "other", a=1)
    peer.publish("x", 2, exchange="amq.fanout")
    assert (drained(stage, "q"), drained(stage, "r")) == ([0, 1], [0, 1, 2])


def test_a_queue_gets_a_record_once_though_two_bindings_match(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    peer.exchange("e", "fanout")
    peer.chain("amq.topic", "e", "a.*")
    for source, key in (("amq.topic", "a.#"), ("amq.topic", "#.b"), ("e", "")):
        peer.bind("q", source, key)
    assert peer.publish("a.b", 0, exchange="amq.topic").taken == 1  # type: ignore[union-attr]
    assert drained(stage, "q") == [0]


def test_a_lane_stays_as_long_as_one_queue_reads_it(stage: QueueStage, peer: Peer) -> None:
    for name in ("q", "r"):
        peer.declare(name)
        peer.bind(name, "amq.fanout")
    assert len(stage.lanes) == 1
    peer.publish("", 0, 3, exchange="amq.fanout")
    peer.delete("q")
    stage.turn()
    assert drained(stage, "r") == [0, 1, 2]
    peer.delete("r")
    assert stage.lanes == []


def test_a_refusing_queue_has_a_lane_of_its_own(stage: QueueStage, peer: Peer) -> None:
    peer.declare("plain")
    peer.declare("refusing", refuses=True, records_max=3)
    for name in ("plain", "refusing"):
        peer.bind(name, "amq.fanout")
    assert len(stage.lanes) == 2


def test_names_that_look_like_others_do_not_share(stage: QueueStage, peer: Peer) -> None:
    """What a lane is called by is made of names that clients choose."""
    peer.declare("two")
    peer.bind("two", "amq.direct", "a")
    peer.bind("two", "amq.direct", "b")
    peer.declare("odd")
    peer.bind("odd", "amq.direct", "a, $exchange.amq/direct.b")
    peer.declare("by headers")
    peer.bind("by headers", "amq.headers", "k", x=1)
    peer.declare("by nothing")
    peer.bind("by nothing", "amq.headers", "k (x=1)")
    peer.publish("a", 0, exchange="amq.direct")
    peer.publish("b", 1, exchange="amq.direct")
    peer.publish("k", 2, exchange="amq.headers", x=2)
    assert drained(stage, "two") == [0, 1]
    assert drained(stage, "odd") == []
    assert drained(stage, "by headers") == []
    assert drained(stage, "by nothing") == [2]


# -- bindings that change -------------------------------------------------------------------------------------------


def test_what_waits_stays_in_order_when_bindings_change(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    sent = 0
    expected = []
    for round in range(12):
        peer.bind("q", "amq.direct", f"k{round % 4}")
        if round >= 4:
            peer.unbind("q", "amq.direct", f"k{(round + 2) % 4}")
        bound = {b.key for b in stage.broker.registry.router.exchanges.bound_to(Destination("queue", "q"))}
        for key in ("k0", "k1", "k2", "k3"):
            peer.publish(key, sent, 2, exchange="amq.direct")
            expected += [sent, sent + 1] if key in bound else []
            sent += 2
    assert stage.queue("q").backlog.lag_records == len(expected)
    one = stage.peer("one")
    one.consume("q", 3)
    stage.turn()
    assert one.numbers == expected
    assert not one.again
    assert len(stage.lanes) == 1, "lanes it has left are let go of"
    assert stage.pool.memory_bytes == 0


def test_a_lane_that_was_left_stays_until_all_of_it_is_settled(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    peer.bind("q", "amq.direct", "a")
    one = stage.peer("one")
    one.consume("q", 3, acks=False)
    peer.publish("a", 0, 5, exchange="amq.direct")
    stage.turn()
    assert one.numbers == [0, 1, 2]
    peer.bind("q", "amq.direct", "b")
    peer.publish("b", 5, 3, exchange="amq.direct")
    stage.turn()
    assert len(stage.lanes) == 2
    one.nack(one.id_of(1), requeue=True)
    stage.turn()
    assert one.numbers == [0, 1, 2, 1]
    one.ack_upto(0)
    stage.turn()
    assert one.numbers == [0, 1, 2, 1, 3, 4, 5]
    assert len(stage.lanes) == 2, "3 and 4 may come back"
    one.nack(one.id_of(3), one.id_of(5), requeue=True)
    one.ack(one.id_of(4))
    one.acks[1, "q"] = True
    stage.turn()
    assert one.numbers == [0, 1, 2, 1, 3, 4, 5, 3, 5, 6, 7]
    assert one.again == [1, 3, 5]
    assert len(stage.lanes) == 1
    assert stage.pool.memory_bytes == 0


def test_back_to_a_lane_that_was_left_and_is_still_read(stage: QueueStage, peer: Peer) -> None:
    """To and fro between two lanes, one of which others read all the time."""
    for name in ("q", "other"):
        peer.declare(name)
        peer.bind(name, "amq.direct", "a")
    consumer = reader(stage, "other")
    expected = []
    for number in range(0, 40, 4):
        peer.publish("a", number, exchange="amq.direct")
        peer.bind("q", "amq.direct", "b")
        peer.publish("a", number + 1, exchange="amq.direct")
        peer.publish("b", number + 2, exchange="amq.direct")
        peer.unbind("q", "amq.direct", "b")
        peer.publish("b", number + 3, exchange="amq.direct")
        expected += [number, number + 1, number + 2]
        stage.turn()
    assert consumer.numbers == [number for number in expected if number % 4 < 2]
    one = stage.peer("one")
    one.consume("q", 2)
    stage.turn()
    assert one.numbers == expected
    assert len(stage.lanes) == 1
    assert stage.pool.memory_bytes == 0


def test_the_others_of_a_lane_let_go_of_it_when_the_last_who_needs_it_is_deleted(stage: QueueStage, peer: Peer
                                                                                 ) -> None:
    for name in ("stays", "goes"):
        peer.declare(name)
        peer.bind(name, "amq.direct", "a")
    reader(stage, "stays")
    peer.publish("a", 0, 5, exchange="amq.direct")
    stage.turn()
    assert stage.pool.memory_bytes
    assert peer.delete("goes") == 5
    stage.turn()
    assert stage.pool.memory_bytes == 0


def test_the_others_of_a_lane_that_was_left_let_go_of_it_too(stage: QueueStage, peer: Peer) -> None:
    """Whoever reads the rest of a lane last may be one who has left it."""
    for name in ("stays", "leaves"):
        peer.declare(name)
        peer.bind(name, "amq.direct", "a")
    reader(stage, "stays")
    peer.publish("a", 0, 5, exchange="amq.direct")
    peer.bind("leaves", "amq.direct", "b")
    stage.turn()
    assert stage.pool.memory_bytes
    late = reader(stage, "leaves")
    stage.turn()
    assert late.numbers == [0, 1, 2, 3, 4]
    assert stage.pool.memory_bytes == 0


def test_what_others_go_on_getting_is_not_dropped_with_what_waits(stage: QueueStage, peer: Peer) -> None:
    """Where a queue left a lane that ends, though the lane goes on in the same chunk."""
    for name in ("leaves", "stays"):
        peer.declare(name)
        peer.bind(name, "amq.direct", "a")
    peer.publish("a", 0, 3, exchange="amq.direct")
    peer.bind("leaves", "amq.direct", "b")
    peer.unbind("leaves", "amq.direct", "a")
    peer.publish("a", 3, 5, exchange="amq.direct")
    peer.publish("b", 8, 2, exchange="amq.direct")
    assert stage.queue("leaves").drops.drop(4, Reason.DISCARDED) == 4
    assert drained(stage, "leaves") == [9]
    assert stage.counts("leaves") == {"discarded": 4}
    assert drained(stage, "stays") == list(range(8))
    stage.turn()
    assert stage.pool.memory_bytes == 0


def test_a_deleted_exchange_and_one_that_ends_with_its_last_binding(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    peer.exchange("deleted", "fanout")
    peer.exchange("temporary", "fanout", auto_delete=True)
    peer.bind("q", "deleted")
    peer.bind("q", "temporary")
    peer.publish("", 0, exchange="deleted")
    peer.publish("", 1, exchange="temporary")
    list(stage.broker.queues.delete_exchange("deleted", if_unused=False))
    peer.publish("", 2, exchange="temporary")
    assert peer.publish("", 3, exchange="deleted").taken == 0  # type: ignore[union-attr]
    peer.unbind("q", "temporary")
    assert peer.publish("", 4, exchange="temporary").taken == 0  # type: ignore[union-attr]
    with refused(Reason.NOT_FOUND):
        stage.broker.queues.exchange("temporary")
    peer.publish("q", 5)
    assert drained(stage, "q") == [0, 1, 2, 5]
    stage.turn()
    assert len(stage.lanes) == 1


def test_unbinding_what_is_not_bound_changes_nothing(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    peer.bind("q", "amq.direct", "a")
    peer.unbind("q", "amq.direct", "b")
    peer.unbind("q", "no such exchange", "b")
    peer.unbind("no such queue", "amq.direct", "a")
    peer.publish("a", 0, exchange="amq.direct")
    assert drained(stage, "q") == [0]


# -- ways -----------------------------------------------------------------------------------------------------------


def test_every_queue_can_be_published_to_by_its_name(stage: QueueStage, peer: Peer) -> None:
    """Also when it shares a lane: from then on it has one of its own, and loses nothing of the other's."""
    for name in ("q", "r"):
        peer.declare(name)
        peer.bind(name, "amq.topic", "a.*")
        peer.bind(name, "amq.direct", "k")
    peer.publish("a.b", 0, exchange="amq.topic")
    peer.publish("k", 1, exchange="amq.direct")
    assert len(stage.lanes) == 1
    peer.publish("q", 2)
    assert len(stage.lanes) == 2
    peer.publish("a.b", 3, exchange="amq.topic")
    peer.publish("k", 4, exchange="amq.direct")
    peer.publish("q", 5)
    peer.publish("r", 6)
    peer.publish("a.b", 7, exchange="amq.topic")
    peer.publish("k", 8, exchange="amq.direct")
    assert drained(stage, "q") == [0, 1, 2, 3, 4, 5, 7, 8]
    assert drained(stage, "r") == [0, 1, 3, 4, 6, 7, 8]
    stage.turn()
    assert len(stage.lanes) == 2
    assert stage.pool.memory_bytes == 0


def test_from_exchange_to_exchange_and_to_the_alternate(stage: QueueStage, peer: Peer) -> None:
    peer.exchange("in", "topic", alternate="rest")
    peer.exchange("rest", "fanout")
    peer.exchange("next", "direct")
    peer.chain("in", "next", "to.next.#")
    for name, source, key in (("q", "in", "to.q"), ("n", "next", "to.next.1"), ("lost", "rest", "")):
        peer.declare(name)
        peer.bind(name, source, key)
    for number, key in enumerate(("to.q", "to.next.1", "to.next.2", "elsewhere")):
        peer.publish(key, number, exchange="in")
    assert drained(stage, "q") == [0]
    assert drained(stage, "n") == [1]
    assert drained(stage, "lost") == [3], "what goes to an exchange has been routed, wherever it ends"


def test_by_headers(stage: QueueStage, peer: Peer) -> None:
    for name in ("both", "any"):
        peer.declare(name)
    peer.bind("both", "amq.headers", "", a=1, b="x")
    peer.bind("any", "amq.headers", "", x_match="any", a=1, b="x")
    sent: tuple[dict[str, Any], ...] = ({"a": 1, "b": "x"}, {"a": 1}, {"b": "y"}, {"b": "x", "c": 1})
    for number, headers in enumerate(sent):
        peer.publish("k", number, exchange="amq.headers", **headers)
    assert drained(stage, "both") == [0]
    assert drained(stage, "any") == [0, 1, 3]


def test_by_headers_though_another_exchange_is_deleted(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    peer.exchange("other")
    peer.bind("q", "other", "k")
    peer.bind("q", "amq.headers", "", a=1)
    list(peer.broker.queues.delete_exchange("other", if_unused=False))
    for number in (1, 2, 1):
        peer.publish("k", number, exchange="amq.headers", a=number)
    assert drained(stage, "q") == [1, 1]


def test_headers_are_nobodys_business_when_their_exchange_is_deleted(stage: QueueStage, peer: Peer) -> None:
    """What routes are remembered for does not depend on them any more."""
    peer.declare("q")
    peer.exchange("headers", "headers")
    peer.exchange("front", "fanout")
    peer.bind("q", "headers", "", a=1)
    peer.bind("q", "front", "")
    exchanges = stage.broker.registry.router.exchanges
    exchanges.bind(Binding("front", Destination("exchange", "headers"), ""))
    assert exchanges.looks_at("front") == {"a"}
    list(peer.broker.queues.delete_exchange("headers", if_unused=False))
    assert exchanges.looks_at("front") == set()


def test_where_nobody_is_nothing_is_taken(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    for key, exchange in (("other", ""), ("k", "amq.direct"), ("k", "amq.topic"), ("k", "no such exchange")):
        published = peer.publish(key, 0, exchange=exchange)
        assert published is not None
        assert published.taken == 0
    assert stage.pool.memory_bytes == 0


# -- refusing -------------------------------------------------------------------------------------------------------


def test_a_queue_that_refuses_what_is_too_much(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", records_max=5, refuses=True)
    accepted = [peer.publish("q", first, 2).accepted for first in range(0, 10, 2)]  # type: ignore[union-attr]
    assert accepted == [2, 2, 1, 0, 0]
    assert drained(stage, "q") == [0, 1, 2, 3, 4]
    assert stage.counts("q") == {}
    assert stage.dead == []


def test_refused_by_bytes(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", bytes_max=5000, refuses=True)
    accepted = [peer.publish("q", first, 2, size=900).accepted for first in range(0, 10, 2)]  # type: ignore[union-attr]
    assert sum(accepted) == 5
    assert accepted == sorted(accepted, reverse=True)
    assert stage.queue("q").backlog.lag_bytes < 5500


def test_what_a_consumer_takes_at_once_is_not_refused(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", records_max=2, refuses=True)
    consumer = reader(stage, "q", acks=None)
    stage.turn()
    assert [peer.publish("q", n).accepted for n in range(5)] == [1] * 5  # type: ignore[union-attr]
    stage.turn()
    assert consumer.numbers == list(range(5))


def test_what_it_takes_at_once_makes_room_for_the_next_run(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", records_max=2, refuses=True)
    consumer = reader(stage, "q", acks=None)
    stage.turn()
    assert [peer.publish("q", first, 2).accepted for first in range(0, 6, 2)] == [2] * 3  # type: ignore[union-attr]
    stage.turn()
    assert consumer.numbers == list(range(6))


def test_what_one_queue_refuses_the_others_get(stage: QueueStage, peer: Peer) -> None:
    peer.declare("refusing", records_max=1, refuses=True)
    peer.declare("plain")
    for name in ("refusing", "plain"):
        peer.bind(name, "amq.fanout")
    accepted = [peer.publish("", first, 2, exchange="amq.fanout").accepted for first in (0, 2)]  # type: ignore[union-attr]
    assert accepted == [1, 0], "how many nobody refused"
    assert drained(stage, "refusing") == [0]
    assert drained(stage, "plain") == [0, 1, 2, 3]


def test_what_comes_over_mqtt_is_refused_as_well(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", records_max=2, refuses=True)
    peer.bind("q", "amq.topic", "t")
    with pytest.raises(Refused):
        stage.client("mqtt").publish("t", 0, 5)
    stage.turn()
    assert drained(stage, "q") == [0, 1]


def test_refused_ones_may_go_to_the_dead(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", records_max=1, refuses=True, dead_letter_refused=True, dead_letter_exchange="dlx")
    assert peer.publish("q", 0, 3).accepted == 1  # type: ignore[union-attr]
    stage.turn()
    assert [(one.queue, one.reason, one.record.payload.split()[0]) for one in stage.dead] == [
        ("q", Reason.QUEUE_LENGTH, b"1"), ("q", Reason.QUEUE_LENGTH, b"2"),
    ]  # fmt: skip


# -- MQTT on the other side -----------------------------------------------------------------------------------------


def test_what_is_published_to_amq_topic_reaches_mqtt(stage: QueueStage, peer: Peer) -> None:
    subscriber = stage.consumer("mqtt", "plant/+/temperature")
    old = stage.consumer("mqtt 3.1.1", "plant/#", version=4)
    peer.exchange("in", "direct")
    peer.chain("in", "amq.topic", "plant.3.temperature")
    peer.publish("plant.1.temperature", 1, exchange="amq.topic")
    peer.publish("plant.2.pressure", 2, exchange="amq.topic")
    peer.publish("plant.3.temperature", 3, exchange="in")
    peer.publish("plant.4.temperature", 4, exchange="amq.direct")
    stage.turn()
    assert subscriber.numbers == [1, 3]
    assert [seen.topic for seen in old.seen] == ["plant/1/temperature", "plant/2/pressure", "plant/3/temperature"]


def test_what_is_published_over_mqtt_reaches_queues(stage: QueueStage, peer: Peer) -> None:
    publisher = stage.client("mqtt")
    for name, key in (("star", "plant.*.temperature"), ("hash", "plant.#"), ("exact", "a.b"), ("dotted", "v1/2.x")):
        peer.declare(name)
        peer.bind(name, "amq.topic", key)
    peer.exchange("next", "fanout")
    peer.chain("amq.topic", "next", "a.#")
    peer.declare("chained")
    peer.bind("chained", "next")
    for number, topic in enumerate(("plant/1/temperature", "plant", "a/b", "a", "v1.2/x", "v1/2/x")):
        publisher.publish(topic, number, qos=1)
    stage.turn()
    got = {name: drained(stage, name) for name in ("star", "hash", "exact", "dotted", "chained")}
    assert got == {"star": [0], "hash": [0, 1], "exact": [2], "dotted": [4], "chained": [2, 3]}


def test_a_queue_bound_to_all_topics_is_not_told_of_the_brokers_own(stage: QueueStage, peer: Peer) -> None:
    peer.declare("all")
    peer.bind("all", "amq.topic", "#")
    peer.declare("own")
    peer.bind("own", "amq.topic", "$SYS.headway.slow.#")
    stage.broker._advisories.tell("slow", "somebody", stage.now, text="")
    assert stage.queue("all").backlog.lag_records == 0
    assert stage.queue("own").backlog.lag_records == 1


def test_one_record_for_both_worlds(stage: QueueStage, peer: Peer) -> None:
    """Facts and payload are the same, whichever way it came and went."""
    subscriber = stage.consumer("mqtt", "t/#")
    publisher = stage.client("publisher")
    peer.declare("q")
    peer.bind("q", "amq.topic", "t.#")
    consumer = reader(stage, "q")
    publisher.publish("t/1", 1, priority=7)
    peer.publish("t.2", 2, exchange="amq.topic", priority=3)
    stage.turn()
    found: list[Delivered] = consumer.seen
    assert [(one.record.topic, one.key, one.record.properties.user_value("priority")) for one in found] == [
        ("t/1", "t.1", "7"), ("t/2", "t.2", "3"),
    ]  # fmt: skip
    assert [one.record.payload for one in found] == [seen.payload for seen in subscriber.seen]
    assert [seen.topic for seen in subscriber.seen] == ["t/1", "t/2"]


def test_a_stuck_mqtt_subscriber_and_a_stuck_queue_do_not_hold_each_other(stage: QueueStage, peer: Peer) -> None:
    publisher = stage.client("publisher")
    stage.consumer("stuck", "t", reads=STUCK)
    healthy = stage.consumer("healthy", "t")
    peer.declare("q")
    peer.bind("q", "amq.topic", "t")
    peer.declare("nobody's")
    peer.bind("nobody's", "amq.topic", "t")
    consumer = reader(stage, "q")
    for number, _ in enumerate(stage.steps(5)):
        publisher.publish("t", number, size=500)
        stage.turn()
        assert len(healthy.seen) == len(consumer.seen) == number + 1


# -- when all is over -----------------------------------------------------------------------------------------------


def test_a_connection_cut_with_its_window_full_ends_like_any_other(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    peer.channel(1, limit=2)
    peer.consume("q", acks=False)
    peer.publish("q", 0, 5)
    stage.turn()
    stage.broker.expel(peer.session, Reason.ADMIN, "go", stage.now)
    stage.turn()
    assert not peer.connected
    assert drained(stage, "q") == [0, 1, 2, 3, 4]


def test_nothing_is_left(stage: QueueStage, peer: Peer) -> None:
    registry = stage.broker.registry
    before = len(registry.router.feeds)
    for name in ("a", "b"):
        peer.declare(name)
        peer.bind(name, "amq.topic", "x")
        peer.consume(name, 2, acks=False)
    peer.get("a")
    peer.publish("x", 0, 10, exchange="amq.topic")
    peer.publish("a", 10, 10)
    stage.run(1)
    peer.leave()
    stage.run(1)
    other = stage.peer("other")
    for name in ("a", "b"):
        other.delete(name)
    other.leave()
    stage.run(1)
    assert len(registry.router.feeds) == before
    assert stage.pool.memory_bytes == 0
    assert not registry.router.queues
    assert not registry.woken
    assert not registry.unused
    assert not registry.watched
    assert set(registry.consumers.elements()) == {"$SYS/headway/#"}
    assert isinstance(stage.broker.queues, Queues)
    assert not stage.broker.queues._homes
    assert registry.router.exchanges.bound_to(Destination("queue", "a")) == []
    assert Binding("amq.topic", Destination("queue", "a"), "x") not in registry.router.exchanges.by_name[
        "amq.topic"
    ].bindings.all
