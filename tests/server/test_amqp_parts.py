"""Records of several chunks that go to a consumer at once. What is not taken comes later, and once."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from pamqp.commands import Basic
from tests.server.amqp_stage import Client, Content, House

from headway.core.log import CHUNK_BYTES
from headway.core.queue.dispatch import PORTION_RECORDS
from headway.server.progress.peer_progress import FINE_BYTES

KIB = 1024
SIZES = [[700], [100, 2000, 1, 900]]
"""Of the bodies, in turns."""
COUNT = 400
READ = 1 << 22


def texts_of(sizes: list[int], count: int = COUNT) -> list[bytes]:
    return [b"%d " % number + b"x" * sizes[number % len(sizes)] for number in range(count)]


def consumer_of(house: House, name: str = "first") -> Client:
    """Returns one that was sent a large record, so that it is no newcomer, who gets small pieces."""
    client = Client(house)
    for queue in (name, "q"):
        client.declare(queue)
        client.say(Basic.Consume(queue=queue, no_ack=True))
    assert len(client.put(name, bytes(2 * FINE_BYTES))) == 1
    return client


def publish(house: House, texts: list[bytes], **more: object) -> None:
    """All of it is read at once."""
    publisher = Client(house)
    publisher.connection.read_bytes = READ
    publisher.put("q", *texts, **more)


def got(client: Client) -> list[tuple[int, bytes]]:
    """What it was delivered, after the first record: tags and bodies."""
    contents = [item for _, item in client.heard if isinstance(item, Content)]
    return [(one.method.delivery_tag, one.body) for one in contents[1:]]


def sends_to(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that gets the size of each further send."""
    sizes: list[int] = []
    send: Callable[..., int] = client.sock.send

    def noting(data: bytes, flags: int = 0) -> int:
        taken = send(data, flags)
        sizes.append(taken)
        return taken

    monkeypatch.setattr(client.sock, "send", noting)
    return sizes


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("room_bytes", [1, 700, CHUNK_BYTES - 1, CHUNK_BYTES + 1, 2 * CHUNK_BYTES + 5000, 200_001])
def test_what_a_socket_does_not_take_comes_later_and_once(room_bytes: int, sizes: list[int]) -> None:
    house, texts = House(), texts_of(sizes)
    client = consumer_of(house)
    client.sock.capacity = room_bytes
    publish(house, texts)
    client.sock.capacity = inf
    client.run()
    assert got(client) == [(number, text) for number, text in enumerate(texts, 2)]
    assert house.stats("q").records == 0


def test_one_who_kept_up_is_sent_several_chunks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    house, texts = House(), texts_of([700])
    client = consumer_of(house)
    sizes = sends_to(client, monkeypatch)
    publish(house, texts)
    client.run()
    assert max(sizes) > 3 * CHUNK_BYTES
    assert len(got(client)) == COUNT


def test_one_who_lags_is_sent_a_chunk_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written for somebody who takes little of it is written in vain."""
    house, texts = House(), texts_of([700])
    client = consumer_of(house)
    client.sock.capacity = 1000
    publish(house, texts)
    sizes = sends_to(client, monkeypatch)
    client.sock.capacity = inf
    client.run()
    assert max(sizes) < 2 * CHUNK_BYTES
    assert len(got(client)) == COUNT


def test_records_that_expire_are_not_sent_with_the_others() -> None:
    house, texts = House(), texts_of([700])
    client = consumer_of(house)
    client.sock.capacity = 0
    publish(house, texts[:100])
    publish(house, texts[100:], expiration="10")
    house.pass_time(1)
    client.sock.capacity = inf
    client.run()
    assert [text for _, text in got(client)] == texts[:100]
    assert house.stats("q").records == 0


def test_each_of_two_consumers_gets_a_portion_before_the_other_gets_more() -> None:
    house, texts = House(), texts_of([700], 4 * PORTION_RECORDS)
    first, second = consumer_of(house), consumer_of(house, "second")
    publish(house, texts)
    second.run()
    numbers = [int(text.split()[0]) for _, text in got(second)]
    jumps = [at for at, number in enumerate(numbers) if at and number != numbers[at - 1] + 1]
    assert jumps == [PORTION_RECORDS]
    first.run()
    assert sorted(text for client in (first, second) for _, text in got(client)) == sorted(texts)
