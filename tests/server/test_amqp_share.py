"""An AMQP client's share of a turn: what is much is done in slices, and goes on when there is room again."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic, Confirm, Queue
from tests.server.amqp_stage import Client, Content, House, message

from headway.core.errors import Reason
from headway.core.publishing import SLICE_WORK, SLICES_PER_POOL

READ = 1 << 22
LIMIT = 1_000_000
LANES = 50
COUNT = 300
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
    assert client.connection.held_by, "it waits"
    assert pool.memory_peak_bytes <= LIMIT * (1 + 1 / SLICES_PER_POOL) + LANES * SIZE
    last = len(frames) // 3
    assert 0 < confirmed(client) < last
    reader, came = Client(house, "reader"), 0
    while client.connection.held_by:
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
    before, steps = registry.published_records, []
    while house.pretended.once():
        steps.append(registry.published_records - before)
        before = registry.published_records
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
    assert client.connection.held_by
    client.connection.close(Reason.CLIENT_GONE)
    published = house.broker.registry.published_records
    assert 0 < published < COUNT
    for queue in house.queues.values():
        queue.drops.purge()
    house.pass_time(1)
    assert house.broker.registry.published_records == published
