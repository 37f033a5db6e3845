"""The name of a client whose connection is called like those of others."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.server.amqp_stage import House
from tests.server.pretended import Socket
from tests.wire import openwire_frames as frames

from headway.server.connections import Connection
from headway.server.openwire.peer import OpenWirePeer
from headway.server.peers.login_side import free_name
from headway.server.stomp.peer import StompPeer


class Asked(set[str]):
    """Names that are taken, which count how often somebody asks for one."""

    asked = 0

    def __contains__(self, name: object) -> bool:
        self.asked += 1
        return super().__contains__(name)


def test_very_many_who_have_one_name_get_numbers_in_order_after_a_few_questions() -> None:
    taken = Asked()
    names = []
    for _ in range(3000):
        taken.asked = 0
        names.append(free_name("worker", taken))
        assert taken.asked <= 30
        taken.add(names[-1])
    assert names == ["worker", *(f"worker#{number}" for number in range(2, 3001))]


@pytest.mark.parametrize("seed", range(10))
def test_a_name_is_free_whoever_has_left(seed: int) -> None:
    chance = Random(seed)
    taken = Asked()
    for _ in range(500):
        name = free_name("worker", taken)
        assert name not in taken
        taken.add(name)
        if chance.random() < 0.4:
            taken.remove(chance.choice(sorted(taken)))


def connected(house: House, peer: Callable[..., Any], *said: bytes) -> tuple[Connection, bytes]:
    sock = Socket()
    connection = house.accept(sock, peer=peer)
    for piece in said:
        sock.incoming.append(piece)
        house.run()
    return connection, bytes(sock.taken)


def test_stomp_does_not_tell_that_a_client_id_is_taken() -> None:
    house = House()
    connect = b"CONNECT\naccept-version:1.2\nhost:x\nclient-id:c\n\n\0"
    connections, answers = zip(*(connected(house, StompPeer, connect) for _ in range(3)), strict=True)
    assert [one.client for one in connections] == ["c", "c#2", "c#3"]
    sessions = [re.search(rb"\nsession:(.*)\n", answer)[1] for answer in answers]  # type: ignore[index]
    assert all(re.fullmatch(rb"c/[0-9a-f]{8}", one) for one in sessions)
    assert len(set(sessions)) == 3, "each is another's"


@pytest.mark.parametrize("reconnects", [True, False])
@pytest.mark.parametrize("user", ["alice", "bob"])
def test_jms_tells_only_the_same_user_that_a_client_is_there(user: str, reconnects: bool) -> None:
    house = House()
    first, _ = connected(house, OpenWirePeer, frames.wire_format(), frames.connection_info("c"))
    said = frames.connection_info("c", user=user, reconnects=reconnects)
    connection, answer = connected(house, OpenWirePeer, frames.wire_format(), said)
    same = user == "alice"
    assert (b"is connected already" in answer) is (same and not reconnects)
    assert first.open is not (same and reconnects), "only its own user's client takes its place"
    assert (connection.client == "c#2") is not same
