"""What the tests of AMQP clients that ask for much share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pamqp.commands import Confirm, Queue
from tests.server.amqp_stage import Client, House

READ = 1 << 22
LANES = 50


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
