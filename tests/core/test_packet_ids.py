from __future__ import annotations

import sys
from random import Random
from typing import cast

import msgspec
import pytest
from tests.core.stage import Stage

from headway.core.base.tables import PacketIds
from headway.core.consumer.channel import Channel, Delivery
from headway.core.consumer.subscription import Subscription


@pytest.mark.parametrize("ids", [3, 300, 65_535])
def test_it_is_a_set(ids: int) -> None:
    rng, found, model = Random(ids), PacketIds(), set[int]()
    for _ in range(5000):
        number = rng.randint(1, ids)
        if rng.random() < 0.5:
            found.add(number)
            model.add(number)
        else:
            assert found.discard(number) == (number in model)
            model.discard(number)
        assert (number in found) == (number in model)
        assert len(found) == len(model)
    assert sorted(found) == sorted(model)


def test_all_of_them_take_little() -> None:
    found = PacketIds()
    for number in range(1, 65_536):
        found.add(number)
    pages = found._pages
    assert len(found) == 65_535
    assert sys.getsizeof(pages) + sum(map(sys.getsizeof, pages.values())) < 32 * 1024
    for number in range(1, 65_536):
        found.discard(number)
    assert not pages


def test_an_id_that_stands_for_something_is_not_given_again() -> None:
    channel = Channel(10, id_max=5)
    channel.in_flight[2] = Delivery(cast(Subscription, None), 0.0)
    channel.orphaned_ids[4] = None
    assert [channel.next_id() for _ in range(6)] == [1, 3, 5, 1, 3, 5]


def test_ids_that_stand_for_something_are_no_room() -> None:
    channel = Channel(10, id_max=5)
    channel.orphaned_ids |= dict.fromkeys((1, 2, 3, 4, 5))
    assert channel.left <= 0, "to look for a free id would never end"


def test_a_client_that_releases_no_id_gets_nothing_until_it_does() -> None:
    stage = Stage()
    publisher, client = stage.client("p"), stage.client("c", expiry_s=3600.0, acks=False)
    client.session.channel.id_max = 5
    client.subscribe("t", 2)
    publisher.publish("t", 0, 5, qos=2)
    stage.turn()
    client.leave()
    request, client.request = client.request, msgspec.structs.replace(client.request, max_packet_bytes=50)
    client.connect()
    stage.turn()
    client.leave()
    assert set(client.session.channel.orphaned_ids) == {1, 2, 3, 4, 5}
    client.request = request
    client.connect()
    publisher.publish("t", 5, 3, qos=2)
    stage.turn()
    assert client.numbers == [0, 1, 2, 3, 4]
    for delivery_id in (2, 4):
        assert stage.broker.on_pubcomp(client.session, delivery_id, stage.now)
    stage.turn()
    assert client.numbers == [0, 1, 2, 3, 4, 5, 6]
    assert set(client.session.channel.in_flight) == {2, 4}
