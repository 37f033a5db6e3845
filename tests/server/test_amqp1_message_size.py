"""Receivers of AMQP 1.0 that say how large a message may be: a larger one is not sent on their links (2.7.3)."""

from __future__ import annotations

import pytest
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy
from tests.server.test_amqp1_greedy import client, sender, transfer

from headway.wire.amqp1.performatives import Attach, Flow, Source, Target
from headway.wire.amqp1.replies import write

SMALL, LARGE, LIMIT = b"small" * 2, b"large" * 200, 500
EXCEEDED = b"amqp:link:message-size-exceeded"
CREDIT = write(0, Flow(0, 1 << 30, 0, 1 << 30, 0, 0, 10))


@pytest.fixture
def house() -> House:
    return House()


def receiver(address: str, limit: int | None = LIMIT, mode: str | None = None, **source: object) -> bytes:
    wanted = Source(address, distribution_mode=mode)._replace(**source)
    return write(0, Attach("r", 0, True, 0, source=wanted, target=Target(), max_message_size=limit))


def send(house: House, address: str, *bodies: bytes) -> None:
    one = client(house, "sends")
    one.say(sender(0, address))
    one.say(b"".join(transfer(0, at, body) for at, body in enumerate(bodies)))


def attached(house: House, name: str, *attach: bytes) -> tuple[Greedy, bytes]:
    """A receiver, and what it got."""
    one = client(house, name)
    return one, one.say(b"".join((*attach, CREDIT)))


@pytest.mark.parametrize("selector", [None, "true"])
def test_queue_keeps_what_is_too_large_for_a_receiver(house: House, selector: str | None) -> None:
    named = {} if selector is None else {"filter": {"x-opt-headway-selector": selector}}
    send(house, "queue://work", SMALL, LARGE, SMALL)
    one, got = attached(house, "one", receiver("queue://work", **named))
    assert got.count(SMALL) == 1
    assert LARGE not in got
    assert EXCEEDED in got
    assert b"the next message has 1,0" in got
    assert b"500 at most" in got
    assert one.connection.open, "only the link ends"
    assert house.stats("work").records == 3, "the unsettled one is back"
    _, got = attached(house, "other", receiver("queue://work", 0))
    assert (got.count(SMALL), got.count(LARGE)) == (2, 1), "0 is no limit"


def test_another_receiver_gets_it_meanwhile(house: House) -> None:
    one, _ = attached(house, "one", receiver("queue://work"))
    other, _ = attached(house, "other", receiver("queue://work", None))
    for sock in (one.sock, other.sock):
        sock.taken.clear()
    send(house, "queue://work", LARGE, LARGE, SMALL, LARGE)
    assert LARGE not in one.sock.taken
    assert EXCEEDED in one.sock.taken
    assert other.sock.taken.count(LARGE) == 3


def test_each_attach_of_a_receiver_is_told_once(house: House) -> None:
    send(house, "queue://work", LARGE)
    one = client(house, "one")
    before = house.turns
    got = one.say(receiver("queue://work") + CREDIT * 3 + write(0, Flow(0, 1 << 30, 0, 1 << 30, 0, 0, 9, None, True)))
    assert got.count(EXCEEDED) == 1
    assert house.turns - before < 20
    assert house.stats("work").records == 1


def test_browser_does_not_see_what_is_too_large(house: House) -> None:
    send(house, "queue://work", SMALL, LARGE, SMALL)
    one, got = attached(house, "one", receiver("queue://work", mode="copy"))
    assert (got.count(SMALL), got.count(LARGE), got.count(EXCEEDED)) == (1, 0, 1)
    assert one.connection.open
    assert "browsed" not in one.tab


def test_durable_subscription_keeps_it(house: House) -> None:
    durable = {"durable": 2, "expiry_policy": "never"}
    one, _ = attached(house, "one", receiver("topic://a", **durable))
    one.sock.taken.clear()
    send(house, "topic://a", LARGE)
    assert (one.sock.taken.count(LARGE), one.sock.taken.count(EXCEEDED)) == (0, 1)
    assert house.stats("durable.one.r").records == 1


def test_consumer_of_topics_is_told_of_the_gap(house: House) -> None:
    one, _ = attached(house, "one", receiver("topic://a"))
    other, _ = attached(house, "other", receiver("topic://a", None))
    for sock in (one.sock, other.sock):
        sock.taken.clear()
    send(house, "topic://a", SMALL, LARGE, LARGE, SMALL)
    assert (other.sock.taken.count(SMALL), other.sock.taken.count(LARGE)) == (2, 2)
    assert (one.sock.taken.count(SMALL), one.sock.taken.count(LARGE)) == (2, 0)
    assert b"too_large_for_client" in one.sock.taken
    assert EXCEEDED not in one.sock.taken, "the link goes on"
