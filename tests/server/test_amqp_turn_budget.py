"""An AMQP client's share of a turn: what is much is done in slices, and goes on when there is room again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Confirm, Exchange, Queue, Tx
from tests.core.queues_stage import purged
from tests.server.amqp_stage import Client, Content, House, message, method

from headway.core.base.deferred import DEFERRED_WORK_MAX
from headway.core.base.errors import Reason
from headway.core.clients.queue_feeds import MEMBERS_PER_WORK, NAMES_PER_WORK, REBIND_WORK
from headway.core.clients.queues import UNBIND_WORK
from headway.core.queue.binding_set import BindingSet
from headway.core.routing.exchange import Binding, Destination
from headway.core.routing.overdue import DEAD_LETTER_WORK, OVERDUE_WORK, REQUEUED_WORK
from headway.core.routing.publishing import SLICE_WORK, SLICES_PER_POOL
from headway.core.routing.registry import Registry
from headway.server.amqp.channel import PORTION, QUEUES_PER_WORK, TAGS_PER_WORK, AmqpChannel
from headway.server.connections.turn_budget import BUDGET_WORK, SUBSCRIBE_WORK
from headway.wire.amqp.codes import ReplyCode

READ = 1 << 22
LIMIT = 1_000_000
LANES = 50
COUNT = 300
LED_TO = Destination("exchange", "amq.fanout")
SIZE = 300


@pytest.fixture
def house() -> House:
    made = House()
    made.read_bytes = READ
    return made


@pytest.fixture
def client(house: House) -> Client:
    made = Client(house, "greedy")
    made.say(Confirm.Select())
    return made


def queues(client: Client, count: int = LANES, key: str = "k") -> list[str]:
    """Each with a lane of its own, for each is bound by a key of its own besides this one."""
    names = [f"q{number}" for number in range(count)]
    for number, name in enumerate(names):
        client.declare(name)
        client.say(*(Queue.Bind(queue=name, exchange="amq.direct", routing_key=one) for one in (key, f"own {number}")))
    client.new()
    return names


def send(client: Client, *frames: bytes) -> None:
    """All of it is there to be read at once."""
    client.connection.read_bytes = READ
    client.sock.incoming.append(b"".join(frames))


def bodies(count: int = COUNT, size: int = SIZE) -> list[bytes]:
    return [b"%d " % number + bytes(size) for number in range(count)]


def to_many_lanes() -> list[bytes]:
    """One run, into all of them."""
    return [frame for body in bodies() for frame in message(1, "k", body, "amq.direct")]


def to_many_queues() -> list[bytes]:
    """As many runs as messages."""
    all_bodies = enumerate(bodies(1000, LANES * SIZE))
    return [frame for at, body in all_bodies for frame in message(1, f"q{at % LANES}", body, frame_max=READ)]


def to_hidden_keys() -> list[bytes]:
    """One run; where else it goes is in a header."""
    keys = [f"q{number}" for number in range(LANES)]
    return [frame for body in bodies() for frame in message(1, "nowhere", body, headers={"BCC": keys})]


def confirmed(client: Client) -> int:
    """Messages, all in order."""
    acks = [item for _, item in client.heard if isinstance(item, Basic.Ack)]
    tags = [ack.delivery_tag for ack in acks]
    assert tags == sorted(set(tags))
    return tags[-1] if tags else 0


QUEUES = to_many_queues()


@pytest.mark.parametrize("frames", [to_many_lanes(), QUEUES, to_hidden_keys()], ids=["lanes", "queues", "hidden"])
def test_a_full_pool_stops_a_publisher_in_the_middle_of_a_read(
    house: House, client: Client, frames: list[bytes]
) -> None:
    names = queues(client)
    pool = house.broker.registry.pools[""]
    pool.memory_limit = LIMIT
    send(client, *frames)
    house.run()
    client.run()
    assert client.connection.reading_paused_by, "it waits"
    assert pool.memory_peak_bytes <= LIMIT * (1 + 1 / SLICES_PER_POOL) + LANES * SIZE
    last = len(frames) // 3
    assert 0 < confirmed(client) < last
    reader, came = Client(house, "reader"), 0
    while client.connection.reading_paused_by:
        for name in names:
            reader.say(Queue.Purge(queue=name))
            came += reader.last(Queue.PurgeOk).message_count
        house.pass_time(0.3)
        client.run()
    assert confirmed(client) == last
    waits = sum(house.queues[name].backlog.lag_records for name in names)
    assert came + waits == (last if frames is QUEUES else last * LANES)


def test_others_are_served_in_the_middle_of_a_run_for_many_lanes(house: House, client: Client) -> None:
    queues(client, 4 * LANES)
    other = Client(house, "other")
    registry = house.broker.registry
    send(client, *(frame for number in range(5000) for frame in message(1, "k", b"%d" % number, "amq.direct")))
    before, steps = registry.totals.published_records, []
    while house.pretended.once():
        steps.append(registry.totals.published_records - before)
        before = registry.totals.published_records
    assert sum(steps) == 5000
    assert max(steps) <= SLICE_WORK
    other.say(Basic.Consume(queue="q7", no_ack=True))
    found = [item.body for _, item in other.heard if isinstance(item, Content)]
    assert found == [b"%d" % number for number in range(5000)], "all of it, in order"


def test_a_client_that_is_gone_in_the_middle_publishes_no_more(house: House, client: Client) -> None:
    queues(client)
    house.broker.registry.pools[""].memory_limit = LIMIT
    send(client, *to_many_lanes())
    house.run()
    assert client.connection.reading_paused_by
    client.connection.close(Reason.CLIENT_GONE)
    published = house.broker.registry.totals.published_records
    assert 0 < published < COUNT
    for queue in house.queues.values():
        purged(queue)
    house.pass_time(1)
    assert house.broker.registry.totals.published_records == published


# -- transactions, and much that is settled ----------------------------------------------------------------------------


def transaction(house: House, count: int = 3000) -> tuple[Client, bytes]:
    """So many records to as many queues as there are lanes, and as many that are settled; all but the commit."""
    client = Client(house, "tx")
    queues(client)
    client.declare("source")
    client.put("source", *(b"%d" % number for number in range(count)))
    client.say(Tx.Select(), Basic.Consume(queue="source"))
    client.say(*(message(1, f"q{at % LANES}", b"%d" % at) for at in range(count)), Basic.Ack(0, True))
    assert unsettled(house) == count
    return client, method(1, Tx.Commit())


def unsettled(house: House) -> int:
    return house.stats("source").unacknowledged + house.stats("source").records


def published(house: House) -> int:
    return sum(house.queues[f"q{number}"].backlog.lag_records for number in range(LANES))


def turns(house: House) -> Iterator[tuple[int, int]]:
    """What each step of the loop publishes, and settles."""
    before = published(house), unsettled(house)
    while house.pretended.once():
        now = published(house), unsettled(house)
        yield now[0] - before[0], before[1] - now[1]
        before = now


def test_a_large_commit_has_its_share_of_each_turn(house: House) -> None:
    client, commit = transaction(house)
    send(client, commit)
    steps = list(turns(house))
    assert max(new for new, _ in steps) <= BUDGET_WORK
    assert max(done for _, done in steps) <= BUDGET_WORK + PORTION
    assert [sum(one) for one in zip(*steps, strict=True)] == [3000, 3000]
    first_settled = next(at for at, (_, done) in enumerate(steps) if done)
    assert not any(new for new, _ in steps[first_settled + 1 :]), "a kill in between loses nothing"
    client.run()
    assert client.new() == ["1 Tx.CommitOk"]


@pytest.mark.parametrize("how", ["gone", "channel"])
def test_a_commit_that_is_begun_is_done_whoever_leaves(house: House, how: str) -> None:
    client, commit = transaction(house)
    send(client, commit)
    house.pretended.once()
    house.pretended.once()
    assert 0 < published(house) < 3000
    session = client.peer.session
    assert session is not None
    if how == "gone":
        client.connection.close(Reason.CLIENT_GONE)
    else:
        client.peer._close_channel(1, ReplyCode.RESOURCE_ERROR, "a verdict", 0)
    steps = list(turns(house))
    assert max(new for new, _ in steps) <= DEFERRED_WORK_MAX
    assert (published(house), unsettled(house)) == (3000, 0)
    assert session.tab.amounts.get("transactions") is None
    assert not house.broker.registry.deferred.begun


def test_a_commit_waits_while_its_publisher_is_to(house: House) -> None:
    client, commit = transaction(house)
    send(client, commit)
    house.pretended.once()
    registry = house.broker.registry
    session, pool = client.peer.session, registry.pools[""]
    assert session is not None
    registry.pause(session, pool, house.now())
    house.run()
    some = published(house)
    assert 0 < some < 3000
    assert unsettled(house) == 3000
    registry.resume(pool, house.now())
    house.turn_soon()
    house.run()
    client.run()
    assert (published(house), unsettled(house)) == (3000, 0)
    assert client.new() == ["Connection.Blocked", "Connection.Unblocked", "1 Tx.CommitOk"]


def test_nothing_of_a_commit_is_done_if_some_of_it_cannot_be(house: House) -> None:
    client, commit = transaction(house, 300)
    channel = client.peer.channels[1].core
    channel.remove(next(iter(channel.in_flight)))
    assert client.say(commit) == ["1 Channel.Close 406"]
    assert published(house) == 0


@pytest.mark.parametrize(
    "said",
    [Basic.Ack(0, True), Basic.Ack(3000, True), Basic.Nack(3000, True, False),
     [Basic.Ack(1 + at) for at in range(3000)]],
    ids=["all", "upto", "nack", "each"],
)  # fmt: skip
def test_much_that_is_settled_at_once(house: House, said: base.Frame | list[base.Frame]) -> None:
    client = Client(house, "acks")
    client.declare("source")
    client.declare("q0")
    client.put("source", *(b"%d" % number for number in range(3000)))
    client.say(Basic.Consume(queue="source"))
    client.new()
    send(client, *(method(1, one) for one in (said if isinstance(said, list) else [said])), method(1, Basic.Qos(0, 1)))
    before, most = unsettled(house), 0
    while house.pretended.once():
        most, before = max(most, before - unsettled(house)), unsettled(house)
    assert most <= BUDGET_WORK + PORTION
    assert unsettled(house) == 0
    client.run()
    assert client.new() == ["1 Basic.QosOk"]


@pytest.mark.parametrize("transacted", [False, True])
def test_many_that_are_settled_upto_one_after_the_other(house: House, transacted: bool) -> None:
    """Work, though each settles little: it is looked for among all that is in flight."""
    client = Client(house, "acks")
    client.declare("source")
    client.put("source", *(b"%d" % number for number in range(2000)))
    if transacted:
        client.say(Tx.Select())
    client.say(Basic.Consume(queue="source"))
    client.new()
    turns = house.turns
    send(client, *(method(1, Basic.Ack(at, True)) for at in range(2, 2001, 2)), method(1, Basic.Qos(0, 1)))
    house.run()
    client.run()
    assert client.new() == ["1 Basic.QosOk"]
    assert house.turns - turns >= 2
    assert unsettled(house) == (2000 if transacted else 0)
    if transacted:
        assert client.say(Tx.Commit()) == ["1 Tx.CommitOk"]
        assert unsettled(house) == 0


def test_a_channel_that_is_closed_while_it_settles_is_closed_once(house: House) -> None:
    client = Client(house, "acks")
    client.declare("source")
    client.put("source", *(b"%d" % number for number in range(3000)))
    client.say(Basic.Consume(queue="source"))
    client.new()
    send(client, *(method(1, Basic.Ack(at, True)) for at in range(2, 3001, 2)))
    house.pretended.once()
    assert unsettled(house)
    client.peer._close_channel(1, ReplyCode.RESOURCE_ERROR, "a verdict", 0)
    house.run()
    client.run()
    assert client.new() == ["1 Channel.Close 506"]
    assert house.stats("source").unacknowledged == 0


def test_a_purge_of_very_many_that_came_back(house: House) -> None:
    client = Client(house, "purges")
    client.declare("source")
    client.put("source", *(b"%d" % number for number in range(3000)))
    client.say(Basic.Consume(queue="source"))
    client.say(Channel.Flow(False), Basic.Nack(0, True, True))
    assert house.stats("source").records == 3000
    client.new()
    send(client, method(1, Queue.Purge(queue="source")), method(1, Basic.Qos(0, 1)))
    before, most = 3000, 0
    while house.pretended.once():
        now = house.stats("source").records
        most, before = max(most, before - now), now
    assert most <= BUDGET_WORK + PORTION
    client.run()
    assert client.new() == ["1 Queue.PurgeOk 3000", "1 Basic.QosOk"]


def dead_letters_a_turn(house: House) -> int:
    """Until there is nothing to be done; the most in any turn."""
    most, before = 0, house.stats("dead").records
    while house.pretended.once():
        most, before = max(most, house.stats("dead").records - before), house.stats("dead").records
    return most


@pytest.mark.parametrize("why", ["x-message-ttl", "x-max-length"])
def test_very_many_that_become_dead_letters(house: House, why: str) -> None:
    client = Client(house, "publisher")
    client.declare("dead")
    dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.declare("source", {why: 100} | dead_letters)
    client.declare("other", {"x-message-ttl": 100} | dead_letters)
    client.put("other", *(b"other" for _ in range(100)))
    send(client, *(frame for number in range(3000) for frame in message(1, "source", b"%d" % number)))
    most = dead_letters_a_turn(house)
    for timer in house.pretended.due(house.now() + 0.2):
        timer.call()
        most = max(most, dead_letters_a_turn(house))
    assert house.stats("dead").records == 100 + (3000 if why == "x-message-ttl" else 2900)
    assert house.stats("other").records == 0
    assert most <= OVERDUE_WORK // DEAD_LETTER_WORK


def test_very_many_that_are_rejected(house: House) -> None:
    client = Client(house, "consumer")
    client.declare("dead")
    client.declare("source", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.put("source", *(b"%d" % number for number in range(2000)))
    client.say(Basic.Consume(queue="source"))
    send(client, method(1, Basic.Nack(0, True, False)))
    assert dead_letters_a_turn(house) <= 2 * PORTION, "one when it is read, one in the turn"
    assert house.stats("dead").records == 2000


def test_who_asks_gets_what_is_behind_very_many_that_have_expired(house: House) -> None:
    client = Client(house, "publisher")
    client.declare("dead")
    client.declare("source", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.put("source", *(b"%d" % number for number in range(1000)), expiration="100")
    client.put("source", b"alive")
    client.new()
    house.pretended.now += 0.2
    send(client, method(1, Basic.Get(queue="source")), method(1, Basic.Qos(0, 1)))
    assert dead_letters_a_turn(house) <= OVERDUE_WORK // DEAD_LETTER_WORK
    client.run()
    assert client.last(Content).body == b"alive"
    assert client.new()[-1] == "1 Basic.QosOk"
    assert house.stats("dead").records == 1000


def test_who_publishes_faster_than_it_can_be_dropped_waits(house: House) -> None:
    """Or a queue would have ever more than it may."""
    house.read_bytes = 20_000
    client = Client(house, "publisher")
    client.declare("dead")
    client.declare("q", {"x-max-length": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    read = [b"".join(message(1, "q", b"%d" % number)) for number in range(5000)]
    client.sock.incoming.append(b"".join(read))
    most = 0
    while house.pretended.once():
        most = max(most, house.stats("q").records)
    assert most <= 2 * 20_000 // len(read[-1])
    assert house.stats("dead").records == 4990


def test_very_many_that_came_back_are_handed_out_again(house: House) -> None:
    client = Client(house, "consumer")
    for name in ("a", "b"):
        client.declare(name)
        client.put(name, *(b"%d" % number for number in range(2000)))
        client.say(Basic.Consume(queue=name, consumer_tag=name))
    send(client, method(1, Basic.Nack(0, True, True)))

    def handed() -> int:
        return sum(house.queues[name].backlog.handed_records for name in ("a", "b"))

    most, before = 0, handed()
    while house.pretended.once():
        most, before = max(most, handed() - before), handed()
    assert before == 8000
    assert most <= OVERDUE_WORK // REQUEUED_WORK
    client.new()
    client.run()
    again = [one for _, one in client.heard if isinstance(one, Content) and one.method.redelivered]
    for name in ("a", "b"):
        assert [int(one.body) for one in again if one.method.consumer_tag == name] == list(range(2000))


def test_a_binding_of_a_queue_that_has_many_is_much_work(
    house: House, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[int] = []
    join = BindingSet.feed_name
    monkeypatch.setattr(
        BindingSet, "feed_name", lambda self, *, called: joined.append(len(self)) or join(self, called=called)
    )
    client.declare("q")
    queues, session = house.broker.queues, house.broker.registry.sessions["greedy"]
    for number in range(3000):
        queues.bind(session, Binding("amq.topic", Destination("queue", "q"), f"there.{number}"))
    _change_bindings(client)
    assert _most_in_a_turn(house, joined) <= BUDGET_WORK * NAMES_PER_WORK + 3000
    client.run()
    assert len(client.new()) == 200


def test_a_binding_of_a_queue_with_many_consumers_is_much_work(
    house: House, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[int] = []
    move = Registry.move
    monkeypatch.setattr(Registry, "move", lambda self, who, *feeds: moved.append(len(who)) or move(self, who, *feeds))
    client.declare("q")
    for tags in range(0, 2000, 200):
        client.say(*(Basic.Consume(queue="q", consumer_tag=f"{tag}") for tag in range(tags, tags + 200)))
    _change_bindings(client)
    assert _most_in_a_turn(house, moved) <= BUDGET_WORK * MEMBERS_PER_WORK + 2000
    client.run()
    assert len(client.new()) == 200


def _change_bindings(client: Client) -> None:
    """A hundred are made, and ended again."""
    client.new()
    named = [(f"k.{number}", change) for number in range(100) for change in (Queue.Bind, Queue.Unbind)]
    send(client, *(method(1, change(queue="q", exchange="amq.topic", routing_key=key)) for key, change in named))


def _most_in_a_turn(house: House, counted: list[int]) -> int:
    most = 0
    del counted[:]
    while house.pretended.once():
        most = max(most, sum(counted))
        del counted[:]
    return most


@pytest.mark.parametrize("stays", [True, False])
def test_an_exchange_with_many_bindings_is_deleted_in_slices(house: House, client: Client, *, stays: bool) -> None:
    """Also if whoever asked for it is gone before it is done."""
    client.say(Exchange.Declare(exchange="e", exchange_type="direct"))
    most = max(BUDGET_WORK, DEFERRED_WORK_MAX) // UNBIND_WORK
    broker = house.broker
    for number in range(8 * most):
        broker.queues.bind(broker.registry.sessions["greedy"], Binding("e", LED_TO, f"{number}"))
    bindings = broker.registry.router.exchanges.by_name["e"].bindings.all
    client.new()
    send(client, method(1, Exchange.Delete(exchange="e")))
    steps, before = 0, len(bindings)
    while house.pretended.once():
        assert before - len(bindings) <= 2 * most, "its share, and one step of deferred work"
        steps, before = steps + (before > len(bindings)), len(bindings)
        if bindings and steps == 1 and not stays:
            client.connection.close(Reason.KEEP_ALIVE)
    assert steps > 1
    assert "e" not in broker.registry.router.exchanges.by_name
    client.run()
    assert client.new() == (["1 Exchange.DeleteOk"] if stays else [])


def test_flow_and_qos_are_the_work_that_they_are(
    house: House, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = queues(client, 640)
    client.say(*(Basic.Consume(queue=name, consumer_tag=name, no_ack=True) for name in names))
    woken: dict[int, int] = {}

    def wake(self: AmqpChannel) -> None:
        woken[house.turns] = woken.get(house.turns, 0) + 1
        real(self)

    real = AmqpChannel.wake
    monkeypatch.setattr(AmqpChannel, "wake", wake)
    client.say(*(Basic.Qos(prefetch_count=10, global_=True) for _ in range(200)))
    assert sum(woken.values()) == 200
    assert max(woken.values()) <= BUDGET_WORK // (640 // QUEUES_PER_WORK) + 1
    woken.clear()
    client.say(*(Channel.Flow(active=bool(number % 2)) for number in range(200)))
    assert sum(woken.values()) == 200
    assert max(woken.values()) <= BUDGET_WORK // (640 // QUEUES_PER_WORK + 640 // TAGS_PER_WORK) + 1
    woken.clear()
    client.say(*[Channel.Flow(active=True)] * 10)
    assert not woken, "it flows already"


def test_a_free_tag_is_not_looked_for(client: Client) -> None:
    client.declare("q")
    client.say(*(Basic.Consume(queue="q", consumer_tag=f"amq.ctag-{number}") for number in range(1, 6)))
    made = []
    for _ in range(3):
        client.say(Basic.Consume(queue="q"))
        made.append(client.last(Basic.ConsumeOk).consumer_tag)
        client.say(Basic.Cancel(made[-1]))
    assert made == ["amq.ctag-6", "amq.ctag-7", "amq.ctag-8"]


OTHER = Queue.Declare(queue="other", nowait=True), Queue.Delete(queue="other", nowait=True)
CONSUMER = Basic.Consume(queue="q", consumer_tag="c", nowait=True), Basic.Cancel("c", nowait=True)
BINDING = [kind(queue="q", exchange="amq.topic", routing_key="k") for kind in (Queue.Bind, Queue.Unbind)]


@pytest.mark.parametrize(
    ("both", "work"), [(OTHER, SUBSCRIBE_WORK), (CONSUMER, SUBSCRIBE_WORK), (BINDING, REBIND_WORK)],
    ids=["queues", "consumers", "bindings"],
)  # fmt: skip
def test_to_begin_and_to_end_is_the_work_that_it_is(
    house: House, client: Client, monkeypatch: pytest.MonkeyPatch, both: Sequence[base.Frame], work: int
) -> None:
    client.declare("q")
    per_turn: dict[int, int] = {}
    real = AmqpChannel.handle

    def handle(self: AmqpChannel, command: base.Frame) -> None:
        per_turn[house.turns] = per_turn.get(house.turns, 0) + 1
        real(self, command)

    monkeypatch.setattr(AmqpChannel, "handle", handle)
    client.say(*[*both] * 300)
    assert sum(per_turn.values()) == 600
    assert max(per_turn.values()) <= 2 * BUDGET_WORK // work, "it may be read once more before the turn is over"
