"""What one AMQP client asks for is done a share at a time, and others are served between: publishing, transactions."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic, Queue, Tx
from tests.core.queues_stage import purged
from tests.core.test_idle import steps
from tests.server.amqp_stage import Client, Content, House, message, method
from tests.server.amqp_turns import LANES, READ, published, queues, send, turns, unsettled
from tests.server.amqp_turns import client as client
from tests.server.amqp_turns import house as house
from tests.wire.test_amqp_decoder import raw

from headway.core.base.deferred import DEFERRED_WORK_MAX
from headway.core.base.errors import Reason
from headway.core.routing.matching.router import SLICE_WORK, SLICES_PER_POOL
from headway.server.amqp.channel import PORTION
from headway.server.amqp.publisher import READ_WORK
from headway.server.connections.turn_budget import BUDGET_WORK
from headway.wire.amqp.codes import ReplyCode

LIMIT = 1_000_000
COUNT = 300
SIZE = 300


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


@pytest.mark.parametrize("alike", [True, False])
def test_others_are_served_between_messages_with_headers_of_their_own(
    house: House, client: Client, alike: bool
) -> None:
    """A thousand of them in one turn took 60 ms; those that are alike are read once."""
    client.declare("q")
    client.new()
    registry = house.broker.registry
    frames = [message(1, "q", b"x", headers={"n": 0 if alike else number}) for number in range(3000)]
    send(client, *(frame for one in frames for frame in one))
    before, steps = registry.totals.published_records, []
    while house.pretended.once():
        steps.append(registry.totals.published_records - before)
        before = registry.totals.published_records
    assert sum(steps) == 3000
    assert alike is (max(steps) > BUDGET_WORK // READ_WORK)


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


def begun(house: House, *, some: bool = True) -> Client:
    """A commit that has published ``some``; or else is being checked."""
    client, commit = transaction(house)
    send(client, commit)
    house.pretended.once()
    assert client.peer.budget.running is not None
    assert not published(house)
    while some and not published(house):
        assert house.pretended.once()
    assert published(house) < 3000
    return client


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


@pytest.mark.parametrize("some", [False, True], ids=["nothing published", "some published"])
@pytest.mark.parametrize("how", ["gone", "channel"])
def test_a_commit_that_is_begun_is_done_whoever_leaves(house: House, how: str, some: bool) -> None:
    client = begun(house, some=some)
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


@pytest.mark.parametrize("some", [False, True], ids=["nothing published", "some published"])
def test_a_commit_that_is_begun_is_done_before_the_broker_stops(house: House, some: bool) -> None:
    begun(house, some=some)
    house.stop()
    assert (published(house), unsettled(house)) == (3000, 0)


def test_a_commit_waits_while_its_publisher_is_to(house: House) -> None:
    client = begun(house)
    registry = house.broker.registry
    session, pool = client.peer.session, registry.pools[""]
    assert session is not None
    registry.backpressure.pause(session, pool, house.now())
    some = published(house)
    house.run()
    assert (published(house), unsettled(house)) == (some, 3000)
    registry.backpressure.resume(pool, house.now())
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


EMPTY = raw(3, 1, b"")
BEGIN = method(1, Basic.Publish(routing_key="q"))
ONE_BYTE = raw(2, 1, b"\0\x3c\0\0" + (1).to_bytes(8, "big") + b"\0\0")
TOO_LARGE = raw(2, 1, b"\0\x3c\0\0" + (1 << 40).to_bytes(8, "big") + b"\0\0")


@pytest.mark.parametrize(
    "frames",
    [
        [BEGIN, ONE_BYTE, *[EMPTY] * 30_000, raw(3, 1, b"x")],
        [BEGIN, TOO_LARGE, *[raw(3, 1, b"x")] * 30_000],
        [raw(8, 0, b"")] * 30_000,
    ],
    ids=["empty bodies", "of a message that is too large", "heartbeats"],
)
def test_frames_that_bring_nothing_are_work_too(house: House, client: Client, frames: list[bytes]) -> None:
    other = Client(house, "other")
    other.declare("q")
    send(client, *frames)
    other.sock.incoming.append(b"".join(message(1, "q", b"here")))
    lines = [steps(house.pretended.once)]
    while not house.stats("q").records:
        lines.append(steps(house.pretended.once))
        assert len(lines) < 5, "the other is served"
    assert "turn" in client.connection.reading_paused_by, "it is not done yet"
    while "turn" in client.connection.reading_paused_by:
        lines.append(steps(house.pretended.once))
    assert max(lines) < 60_000, lines
    assert len(lines) > 20
