"""Clients of AMQP 1.0 that ask for much: it is done a share at a time, and what they have the broker keep counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy
from tests.server.pretended import Socket
from tests.test_caches import kept_bytes

from headway.server.amqp1.links import LINK_BYTES, LINKS_MAX
from headway.server.amqp1.peer import Amqp1Peer
from headway.server.amqp1.ports import credit_of
from headway.server.amqp1.session import HANDLE_MAX, SESSION_BYTES
from headway.wire.amqp1 import values as writing
from headway.wire.amqp1.performatives import Attach, Begin, Detach, End, Flow, Open, Source, Target, build
from headway.wire.amqp1.replies import ACCEPTED, frame, write, write_disposition
from headway.wire.amqp1.values import Described, read


@pytest.fixture
def house() -> House:
    return House()


def begin(channel: int) -> bytes:
    return write(channel, Begin(None, 0, 1 << 30, 1 << 30, 4095))


def client(house: House, name: str = "greedy") -> Greedy:
    return Greedy(house, Amqp1Peer, b"AMQP\0\1\0\0" + write(0, Open(name, None, 65_536, 255)), begin(0))


def receiver(handle: int, address: str, channel: int = 0, mode: str | None = None) -> bytes:
    source = Source(address, distribution_mode=mode)
    return write(channel, Attach(f"r{handle}", handle, True, 0, source=source, target=Target()))


def sender(handle: int, address: str, channel: int = 0, **more: object) -> bytes:
    attach = Attach(f"s{handle}", handle, False, source=Source(), target=Target(address), initial_delivery_count=0)
    return write(channel, attach._replace(**more))


def transfer(handle: int, number: int, body: bytes, sections: bytes = b"") -> bytes:
    fields = [writing.uint(handle), writing.uint(number), writing.binary(b"t"), writing.uint(0), writing.boolean(True)]
    head = frame(0, 0x14, fields)[8:]
    content = head + sections + writing.described(0x75, writing.binary(body))
    return (8 + len(content)).to_bytes(4, "big") + b"\2\0\0\0" + content


def performatives(said: bytes) -> list[object]:
    """What the broker said."""
    found: list[object] = []
    at = 0
    while at < len(said):
        size = int.from_bytes(said[at : at + 4], "big")
        value, _ = read(said, at + 8, at + size)
        if isinstance(value, Described):
            found.append(build(value))
        at += size
    return found


def filled(house: House, count: int, size: int = 10) -> Greedy:
    """A client that has put so many messages into a queue."""
    one = client(house, "fills")
    one.say(sender(0, "queue://work"))
    for start in range(0, count, 100):
        one.say(b"".join(transfer(0, start + at, bytes(size)) for at in range(100)))
    assert house.stats("work").records == count
    return one


@pytest.mark.parametrize("received", [False, True])
@pytest.mark.parametrize("state", [ACCEPTED, writing.NULL])
def test_dispositions_of_ranges_in_which_little_is_unsettled(house: House, state: bytes, received: bool) -> None:
    """Looking a range up is work, and looking up nothing is none."""
    filled(house, 2000)
    greedy = client(house)
    greedy.say(receiver(0, "queue://work"))
    if received:
        greedy.say(write(0, Flow(0, 1 << 30, 0, 1 << 30, 0, 0, 2000)))
        assert house.stats("work").unacknowledged == 2000
    far = 2_000_000
    said = write_disposition(0, True, far, far + 1_000_000, state, settled=state == ACCEPTED) * 200
    turns = greedy.turns(said)
    assert turns >= (8 if received and state == ACCEPTED else 1)
    assert house.stats("work").unacknowledged == (2000 if received else 0)


def test_links_are_counted_and_have_an_end(house: House) -> None:
    greedy = client(house)
    for channel in range(1, 4):
        greedy.say(begin(channel))
    greedy.say(sender(0, "queue://work", properties={"note": "x" * 20_000}))
    before = greedy.tab["links"]
    assert LINK_BYTES <= before < 2 * LINK_BYTES
    answers = b""
    for channel in range(4):
        for start in range(0, 2000, 100):
            answers += greedy.say(b"".join(sender(at, "queue://work", channel) for at in range(start + 1, start + 101)))
    assert greedy.connection.open
    assert b"a connection may have 4096 links" in answers or b"may take up" in answers
    assert greedy.tab["links"] <= LINKS_MAX * 2 * LINK_BYTES
    greedy.say(write(0, Detach(1, True)) + b"".join(write(channel, End()) for channel in range(1, 4)))
    assert greedy.tab["links"] < 2001 * 2 * LINK_BYTES
    greedy.say(write(0, End()))
    assert "links" not in greedy.tab


@pytest.mark.parametrize("ended", [False, True], ids=["refused", "ended"])
def test_links_whose_end_a_client_does_not_confirm_take_up_no_more_than_is_counted(house: House, ended: bool) -> None:
    greedy = client(house)
    greedy.say(begin(1) + sender(0, "queue://work", 1))  # what is made once, for whoever comes first

    def fill(number: int) -> None:
        greedy.say(begin(number + 2))
        for start in range(0, HANDLE_MAX + 1, 128):
            some = range(start, start + 128)
            if ended:  # each attach ends the link before it
                attaches = [sender(handle, "queue://work", number + 2, name="again") for handle in some]
            else:
                attaches = [write(number + 2, Attach("n", handle, False)) for handle in some]
            greedy.say(b"".join(attaches))

    kept = kept_bytes(fill, 2)
    assert len(greedy.connection.peer_side.sessions) == 4  # type: ignore[attr-defined]
    assert kept <= sum(greedy.tab.values()) + 60_000


def test_handles_of_links_that_were_refused_are_free_once_the_client_confirms_that(house: House) -> None:
    one = client(house)
    assert b"the link has no target" in one.say(write(0, Attach("n", 4095, False)))
    one.say(write(0, Detach(4095, True)) + sender(4095, "queue://work"))
    assert list(one.connection.peer_side.sessions[0].links) == [4095]  # type: ignore[attr-defined]
    one.say(write(0, Attach("n", 7, False)))
    assert b"the handle 7 is in use" in one.say(sender(7, "queue://work"))


def test_sessions_are_counted(house: House) -> None:
    greedy = client(house)
    kept = kept_bytes(lambda number: greedy.say(begin(number + 1)), 255)
    assert greedy.tab["sessions"] == 256 * SESSION_BYTES
    assert kept <= 255 * SESSION_BYTES
    greedy.say(b"".join(write(channel, End()) for channel in range(100)))
    assert greedy.tab["sessions"] == 156 * SESSION_BYTES
    greedy.say(write(100, Detach(1)))
    assert greedy.tab["sessions"] == 155 * SESSION_BYTES, "the broker has ended it"
    greedy.say(b"".join(write(channel, End()) for channel in range(100, 256)))
    assert "sessions" not in greedy.tab


def test_sessions_beyond_what_a_client_may_take_up_are_refused(house: House) -> None:
    greedy = client(house)
    greedy.connection.pool.client_share = 0.001
    session = greedy.connection.peer_side.session
    assert session is not None
    answers = performatives(greedy.say(b"".join(map(begin, range(1, 256)))))
    assert session.tab.bytes <= session.tab.limit
    begins, ends = ([one for one in answers if isinstance(one, kind)] for kind in (Begin, End))
    assert len(begins) == 255
    assert {end.error.condition for end in ends} == {"amqp:resource-limit-exceeded"}
    assert "most of it sessions; it may take up" in ends[0].error.description
    greedy.say(write(255, End()) + write(0, End()) + write(1, End()))
    assert performatives(greedy.say(begin(255))) == [Begin(255, 0, 0x7FFF_FFFF, 0x7FFF_FFFF, HANDLE_MAX)]
    assert greedy.connection.open


@pytest.mark.parametrize("one", [sender, receiver])
def test_what_links_that_have_ended_leave_behind_in_their_session_is_counted(
    house: House, one: Callable[[int, str, int], bytes]
) -> None:
    greedy = client(house)

    def fill(number: int) -> None:
        greedy.say(begin(number + 1))
        greedy.say(b"".join(one(handle, "topic://a.b", number + 1) for handle in range(700)))
        greedy.say(b"".join(write(number + 1, Detach(handle, True)) for handle in range(699)))

    fill(0)
    before = sum(greedy.tab.values())
    kept = kept_bytes(lambda number: fill(number + 1), 3)
    assert kept <= sum(greedy.tab.values()) - before


def test_what_browsers_have_not_taken_is_counted(house: House) -> None:
    filled(house, 200, 5000)
    greedy = client(house)
    answers = b""
    for handle in range(100):
        answers += greedy.say(receiver(handle, "queue://work", mode="copy"))
    assert 10_000_000 < greedy.tab["browsed"] < 30_000_000
    assert b"most of it browsed" in answers
    greedy.say(write(0, Detach(0, True)))
    assert 9_000_000 < greedy.tab["browsed"] < 29_000_000
    greedy.say(write(0, End()))
    assert "browsed" not in greedy.tab


def test_large_performatives_take_the_time_of_several_items(house: House) -> None:
    greedy = client(house)
    attach = sender(0, "queue://work", properties={f"{number}": None for number in range(2000)})
    assert greedy.turns(b"".join(attach.replace(b"\xa1\x02s0", b"\xa1\x02s%d" % at) for at in range(9))) >= 8


def test_draining_again_and_again_is_work(house: House) -> None:
    greedy = client(house)
    greedy.say(receiver(0, "queue://work"))
    drain = write(0, Flow(0, 1 << 30, 0, 1 << 30, 0, 0, 1, None, True))
    assert greedy.turns(drain * 1000) >= 1000 * 8 // 1024


def test_who_wants_to_hear_something_every_millisecond_is_told_that_this_is_too_often(house: House) -> None:
    sock = Socket()
    house.accept(sock, peer=Amqp1Peer)
    sock.incoming.append(b"AMQP\0\1\0\0" + write(0, Open("greedy", None, 65_536, 255, 1)))
    house.run()
    assert b"idle-time-out 1 ms (at least 250)" in sock.taken


def test_reading_dispositions_is_work(house: House) -> None:
    assert client(house).turns(write_disposition(0, True, 0, 0, ACCEPTED) * 1000) >= 6


def test_a_session_with_many_dynamic_nodes_ends_a_share_at_a_time(house: House) -> None:
    greedy = client(house)
    dynamic = Source(None, dynamic=True)
    for start in range(0, 500, 50):
        greedy.say(b"".join(
            write(0, Attach(f"r{at}", at, True, 0, source=dynamic, target=Target()))
            for at in range(start, start + 50)
        ))  # fmt: skip
    assert len(house.queues) == 500
    greedy.send(write(0, End()))
    most, before = 0, 500
    while house.pretended.once():
        most, before = max(most, before - len(house.queues)), len(house.queues)
    assert most < 300
    assert not house.queues


@pytest.mark.parametrize(("count", "credit", "spent", "left"), [
    (0, 2**31 - 1, 0, 2**31 - 1), (0, 2**32 - 1, 0, 2**32 - 1), (0, 10, 4, 6), (4, 10, 4, 10), (0, 2, 4, 0),
    (6, 1, 4, 3), (2**32 - 1, 10, 2**32 + 1, 8), (1, 10, 2**32 - 1, 12),
])  # fmt: skip
def test_credit_counts_from_what_the_client_has_seen(count: int, credit: int, spent: int, left: int) -> None:
    assert credit_of(Flow(0, 0, 0, 0, delivery_count=count, link_credit=credit), spent) == left
