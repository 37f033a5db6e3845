"""Clients of STOMP that ask for much: it is done a share at a time, and what they have the broker keep is limited."""

from __future__ import annotations

import re

import pytest
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy

from headway.core.base import Reason
from headway.core.message import Run
from headway.core.routing import Publishing, Route
from headway.core.routing.matching import bindings
from headway.server.connections import BUDGET_WORK, SUBSCRIBE_WORK
from headway.server.stomp.peer import StompPeer


@pytest.fixture
def house() -> House:
    return House()


def client(house: House) -> Greedy:
    return Greedy(house, StompPeer, b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")


def unsettled(house: House, greedy: Greedy, count: int) -> list[bytes]:
    """The ids of so many deliveries, which the client does not acknowledge."""
    greedy.say(b"SEND\ndestination:/queue/work\n\nx\0" * count)
    said = greedy.say(b"SUBSCRIBE\nid:0\ndestination:/queue/work\nack:client\n\n\0")
    found = re.findall(rb"\nack:(\d+)\n", said)
    assert len(found) == count
    return found


def test_acknowledgements_of_all_up_to_one_in_a_transaction(house: House) -> None:
    greedy = client(house)
    ids = unsettled(house, greedy, 2000)
    greedy.say(b"BEGIN\ntransaction:t\n\n\0")
    said = b"".join(b"ACK\ntransaction:t\nid:%s\n\n\0" % one for one in ids[:200])
    assert greedy.turns(said) >= 16
    greedy.say(b"COMMIT\ntransaction:t\nreceipt:r\n\n\0")
    assert house.stats("work").unacknowledged == 1800


def test_transactions_are_counted_and_their_names_have_a_limit(house: House) -> None:
    greedy = client(house)
    greedy.say(b"".join(b"BEGIN\ntransaction:%d\n\n\0" % at for at in range(50)))
    assert greedy.tab["transactions"] >= 50 * 1000
    greedy.say(b"".join(b"ABORT\ntransaction:%d\n\n\0" % at for at in range(25)))
    greedy.say(b"".join(b"COMMIT\ntransaction:%d\n\n\0" % at for at in range(25, 50)))
    assert "transactions" not in greedy.tab
    said = greedy.say(b"BEGIN\ntransaction:" + b"x" * 1001 + b"\n\n\0")
    assert b"the name of a transaction has 1001 characters (at most 255)" in said


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (b"SUBSCRIBE\nid:" + b"x" * 1001 + b"\ndestination:/topic/a\n\n\0", b"subscription has 255 characters at most"),
        (b"SEND\ndestination:/temp-topic/" + b"x" * 256 + b"\n\n\0", b"has 255 bytes at most"),
    ],
)  # fmt: skip
def test_names_have_limits(house: House, frame: bytes, text: bytes) -> None:
    assert text in client(house).say(frame)


def test_reading_messages_with_heads_of_their_own_is_work(house: House) -> None:
    sends = b"".join(b"SEND\ndestination:/topic/%d\n\nx\0" % (at % 2) for at in range(1000))
    assert client(house).turns(sends) >= 8


def test_a_subscription_that_is_a_queue_is_the_work_of_making_binding_and_reading_one(house: House) -> None:
    count, frame = 200, b"SUBSCRIBE\nid:%d\ndestination:/topic/t.%d\nack:client\n\n\0"
    turns = client(house).turns(b"".join(frame % (at, at) for at in range(count)))
    assert turns >= 3 * SUBSCRIBE_WORK * count // BUDGET_WORK


def test_wildcards_of_acknowledged_subscriptions_have_a_limit(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are bindings of ``amq.topic``, as those of AMQP and JMS clients are."""
    monkeypatch.setattr(bindings, "STEPS_MAX", bindings.WORDS_MAX + 4)
    greedy = client(house)
    one = b"SUBSCRIBE\nid:%d\ndestination:/topic/%s\nack:client\nreceipt:%d\n\n\0"
    for at, place in enumerate((b"*.a", b"a.*", b"b.*")):
        assert b"RECEIPT" in greedy.say(one % (at, place, at))
    said = greedy.say(one % (3, b"*.*", 3))
    assert b"ERROR" in said
    assert b"the bindings of an exchange have too many patterns with wildcards in different places" in said


@pytest.mark.parametrize("leaves", ["", "closes", "is gone"])
def test_commit_begins_when_there_is_room_and_is_dropped_if_its_client_leaves_before(
    house: House, caplog: pytest.LogCaptureFixture, leaves: str
) -> None:
    greedy, filler = client(house), client(house)
    send = b"SEND\ntransaction:t\ndestination:/queue/%s\n\nx\0"
    greedy.say(b"BEGIN\ntransaction:t\n\n\0" + send % b"mine" + send % b"work")
    house.broker.registry.pools[""].memory_limit = 1_000_000
    filler.say(b"SEND\nreceipt:r\ndestination:/queue/work\n\n%s\0" % bytes(b"x" * 14_000) * 100)
    filled = house.stats("work").records
    greedy.say(b"COMMIT\ntransaction:t\nreceipt:r\n\n\0")
    assert house.stats("mine").records == 0
    if leaves:
        if leaves == "is gone":
            greedy.connection.close(Reason.CLIENT_GONE)
        else:
            greedy.send(b"")
            greedy.send(b"")  # a kernel says it again
        house.pass_time(30.0)
        assert not greedy.connection.open
        assert "leaves: 2 records are lost" in caplog.text
        assert house.stats("work").records == filled
        assert house.stats("mine").records == 0
    else:
        house.broker.queues.delete(house.queues["work"], house.now())
        house.pass_time(1.0)
        assert house.stats("mine").records == 1
        assert b"RECEIPT" in greedy.sock.taken


def test_what_is_lost_of_a_client_that_leaves_is_told_behind_its_goodbye(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    greedy, filler = client(house), client(house)
    house.broker.registry.pools[""].memory_limit = 1_000_000
    filler.say(b"SEND\nreceipt:r\ndestination:/queue/work\n\n%s\0" % bytes(b"x" * 14_000) * 100)
    greedy.send(b"SEND\ndestination:/queue/work\n\nx\0" * 3 + b"DISCONNECT\nreceipt:r\n\n\0")
    greedy.send(b"")
    house.pass_time(30.0)
    assert not greedy.connection.open
    assert "3 records that it published before are lost (" in caplog.text
    assert "could not be handled" not in caplog.text


def test_commit_is_checked_a_share_at_a_time(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first record is published."""
    asked, most, ask = 0, 0, Publishing.route

    def route(self: Publishing, run: Run) -> Route:
        nonlocal asked
        asked += 1
        return ask(self, run)

    greedy = client(house)
    send = b"SEND\ntransaction:t\ndestination:/queue/%s\n\nx\0"  # in turn, so that each is a run of its own
    greedy.say(b"BEGIN\ntransaction:t\n\n\0" + (send % b"a" + send % b"b") * BUDGET_WORK)
    monkeypatch.setattr(Publishing, "route", route)
    greedy.send(b"COMMIT\ntransaction:t\n\n\0")
    while house.pretended.once():
        most, asked = max(most, asked), 0
    assert 0 < most <= BUDGET_WORK
    assert house.stats("a").records == house.stats("b").records == BUDGET_WORK
