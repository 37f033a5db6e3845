"""Clients of JMS that ask for much: it is done a share at a time, and what they have the broker keep is counted."""

from __future__ import annotations

import zlib
from math import inf
from struct import pack

import pytest
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy
from tests.server.test_queue_turns import worst
from tests.wire import openwire_frames as frames

from headway.core.routing import Limits
from headway.server.openwire.peer import OpenWirePeer
from headway.wire.openwire.codes import AckType, TransactionStep, Type

INFLATED = 2_000_000
NO, YES = b"\0", b"\1"


@pytest.fixture
def house() -> House:
    return House()


def client(house: House, name: str = "greedy") -> Greedy:
    return Greedy(house, OpenWirePeer, frames.wire_format() + frames.connection_info(name))


def consumer(number: int, session: int = 1) -> bytes:
    return frames.consumer_id(session=session, value=number)


def bomb(to: str) -> bytes:
    text = pack(">i", INFLATED) + bytes(INFLATED)
    return frames.message(Type.TEXT_MESSAGE, frames.queue(to), zlib.compress(text, 9), compressed=True)


def filled(house: House, count: int) -> Greedy:
    one = client(house, "fills")
    one.say(b"".join(frames.message(Type.BYTES_MESSAGE, frames.queue("work"), b"x") for _ in range(count)))
    assert house.stats("work").records == count
    return one


def test_bodies_that_explode_come_one_at_a_time(house: House) -> None:
    greedy = client(house)
    greedy.say(bomb("work"))
    assert house.stats("work").records == 1
    before = house.turns
    greedy.send(bomb("work") * 20)
    most = 0
    while house.pretended.once():
        decoded = [item for item in getattr(greedy.connection.peer_side, "_held", ()) if not isinstance(item, int)]
        most = max(most, len(decoded))
    assert house.turns - before >= 10
    assert most <= 2
    assert house.stats("work").records == 21


def test_looking_up_acknowledgements_is_work(house: House) -> None:
    filled(house, 2000)
    greedy = client(house)
    greedy.say(frames.consumer_info(consumer(1), frames.queue("work"), prefetch=5000))
    assert house.stats("work").unacknowledged == 2000
    again = frames.ack(consumer(1), AckType.REDELIVERED, frames.message_id(1, 1), frames.message_id(1, 2000), 2000)
    assert greedy.turns(again * 100) >= 8
    assert house.stats("work").unacknowledged == 2000


def test_many_consumers_are_counted_and_end_a_share_at_a_time(house: House) -> None:
    greedy = client(house)
    for start in range(0, 1000, 100):
        greedy.say(b"".join(
            frames.consumer_info(consumer(at), frames.topic(f"t.{at}")) for at in range(start, start + 100)
        ))  # fmt: skip
    assert greedy.tab["consumers"] >= 1000 * 2000
    end = frames.frame(Type.REMOVE_INFO, YES + b"\x79" + frames.text("ID:c") + pack(">q", 1), pack(">q", 0))
    assert greedy.turns(end) >= 1000 * 16 // 1024
    assert not {"consumers", "subscriptions"} & greedy.tab.keys()


def test_a_consumer_of_very_many_queues_is_refused(house: House) -> None:
    filler = client(house, "fills")
    for start in range(0, 600, 50):
        filler.say(b"".join(
            frames.message(Type.BYTES_MESSAGE, frames.queue(f"many.{at}"), b"x") for at in range(start, start + 50)
        ))  # fmt: skip
    greedy = client(house)
    answer = greedy.say(frames.consumer_info(consumer(1), frames.queue("many.>")))
    assert b"many.> matches 600 queues (at most 500 for one consumer)" in answer
    assert greedy.connection.open
    assert "consumers" not in greedy.tab


def test_consumers_that_are_all_to_have_each_new_queue_take_turns_and_few_lines(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    greedy, filler = client(house), client(house, "fills")
    house.broker.registry.limits["amqp"] = Limits(subscriptions_per_session_max=700)
    for at in range(600):
        greedy.say(frames.consumer_info(consumer(at), frames.queue("many.>")))
    assert filler.turns(frames.message(Type.BYTES_MESSAGE, frames.queue("many.0"), b"x")) >= 5
    assert len(house.queues["many.0"].members) == 600
    filler.say(frames.message(Type.BYTES_MESSAGE, frames.queue("many.1"), b"x"))
    assert len(house.queues["many.1"].members) == 100
    lines = [one for one in caplog.messages if "does not get queue 'many.1'" in one]
    assert "its client has 700 subscriptions already" in lines[0]
    assert len(lines) == 9, "the 1st, 2nd, 4th, ... of 500"


def test_temporary_destinations_are_counted_and_end_over_several_turns(house: House) -> None:
    follows = client(house, "follows")
    follows.say(frames.consumer_info(consumer(1), frames.topic("ActiveMQ.Advisory.TempTopic"), prefetch=1000))
    greedy = client(house)

    def made(name: str, operation: int = 0) -> bytes:
        return frames.destination_info(YES + b"\x67" + frames.text(f"ID:c:{name}"), operation)

    assert b"(at most 1255)" in greedy.say(made("x" * 2000))
    for start in range(0, 500, 50):
        greedy.say(b"".join(made(f"{at}") for at in range(start, start + 50)))
    assert greedy.tab["temporaries"] >= 500 * 1000
    greedy.say(made("0", 1))
    assert greedy.tab["temporaries"] < 500 * 1050
    follows.sock.taken.clear()
    before = house.turns
    greedy.say(b"")
    assert not greedy.connection.open
    assert house.turns - before >= 499 * 8 // 2048
    assert bytes(follows.sock.taken).count(b"ID:c:") >= 499


def test_producers_with_windows_are_counted(house: House) -> None:
    greedy = client(house)

    def producer(number: int) -> bytes:
        return frames.frame(Type.PRODUCER_INFO, frames.producer_id("ID:" + "c" * 900, 1, number),
                            frames.queue("work"), NO, NO, pack(">i", 1000))  # fmt: skip

    for start in range(0, 500, 100):
        greedy.say(b"".join(producer(at) for at in range(start, start + 100)))
    assert greedy.tab["producers"] >= 500 * 1000
    long = frames.frame(Type.PRODUCER_INFO, frames.producer_id("c" * 5000), NO, NO, NO, pack(">i", 1))
    assert b"an id of 5000 bytes" in greedy.say(long)
    assert not greedy.connection.open


# -- room --------------------------------------------------------------------------------------------------------------

BODY = 900_000


def composite(count: int = 64) -> bytes:
    return frames.queue(",".join(f"part.{at}" for at in range(count)))


def told_to(to: bytes, body: int = BODY, transaction: bytes = NO) -> bytes:
    return frames.message(Type.BYTES_MESSAGE, to, bytes(body), persistent=False, transaction=transaction)


TRANSACTION = YES + b"\x6f" + pack(">q", 7) + frames.connection_id()


def step(kind: TransactionStep) -> bytes:
    return frames.frame(Type.TRANSACTION_INFO, frames.connection_id(), TRANSACTION, bytes((kind,)))


def put(house: House, name: str) -> int:
    """How many records there are in the queues of this prefix."""
    return sum(house.stats(queue).records for queue in house.queues if queue.startswith(name))


@pytest.mark.parametrize("leaves", [False, True])
def test_copies_for_many_queues_are_put_down_while_there_is_room(house: House, leaves: bool) -> None:
    pool = house.broker.registry.pool_of("amqp")
    for number in range(3):
        greedy = client(house, f"greedy {number}")
        greedy.send(told_to(composite()) * 3)
        if leaves:
            greedy.send(b"")
        house.run()
    assert 40 <= put(house, "part.") <= 75
    assert pool.memory_bytes < pool.memory_limit + 4 * BODY


def test_what_a_transaction_will_publish_is_counted_for_each_of_its_queues(house: House) -> None:
    greedy = client(house)
    greedy.say(step(TransactionStep.BEGIN) + told_to(composite(4), 10_000, TRANSACTION))
    assert 40_000 < greedy.tab["transactions"] < 60_000
    assert b"may take up" in greedy.say(told_to(composite(), BODY, TRANSACTION))
    assert b"is rolled back" in greedy.say(step(TransactionStep.COMMIT))
    assert put(house, "part.") == 0


@pytest.mark.parametrize("leaves", [False, True])
def test_a_commit_begins_when_there_is_room_and_one_whose_client_has_left_by_then_is_dropped(
    house: House, caplog: pytest.LogCaptureFixture, leaves: bool
) -> None:
    greedy, filler = client(house), client(house, "fills")
    greedy.say(step(TransactionStep.BEGIN) + told_to(frames.queue("work.1,mine"), 1000, TRANSACTION) * 2)
    house.broker.registry.pools[""].memory_limit = 1_000_000
    filler.say(told_to(frames.queue("work.1"), 14_000) * 100)
    filled = put(house, "work")
    greedy.say(step(TransactionStep.COMMIT))
    assert put(house, "mine") == 0
    if leaves:
        greedy.send(b"")
        greedy.send(b"")  # a kernel says it again
        house.pass_time(30.0)
        assert not greedy.connection.open
        assert "greedy leaves: 4 records are lost" in caplog.text
        assert (put(house, "work"), put(house, "mine")) == (filled, 0)
    else:
        house.broker.queues.delete(house.queues["work.1"], house.now())
        house.pass_time(1.0)
        assert put(house, "mine") == 2


# -- turns -------------------------------------------------------------------------------------------------------------

LINES_MAX = 150_000
"""About a hundredth of a second."""
LONG = "a." * 100


def worst_of(house: House, greedy: Greedy, said: bytes) -> int:
    """The lines that Python runs in the longest turn until this is done."""
    greedy.sock.taken.clear()
    greedy.send(said)
    return worst(house)


def test_names_with_wildcards_are_looked_for_a_share_at_a_time(house: House) -> None:
    filler = client(house, "fills")
    for start in range(0, 300, 50):
        filler.say(b"".join(
            frames.message(Type.BYTES_MESSAGE, frames.queue(f"{LONG}{at}"), b"x") for at in range(start, start + 50)
        ))  # fmt: skip
    greedy = client(house)
    nothing = ",".join(f"{LONG}*.x{number}" for number in range(8))
    assert worst_of(house, greedy, frames.consumer_info(consumer(1), frames.queue(nothing))) < LINES_MAX
    assert greedy.sock.taken[4] == Type.RESPONSE
    all_of_them = ",".join([f"{LONG}*"] * 8)
    assert worst_of(house, greedy, frames.consumer_info(consumer(2), frames.queue(all_of_them))) < LINES_MAX
    assert [len(queue.members) for name, queue in house.queues.items() if name.startswith(LONG)] == [1] * 300


def test_names_with_wildcards_have_a_limit(house: House) -> None:
    greedy = client(house)
    many = frames.queue(",".join(f"*.x{number}" for number in range(9)))
    for info in (frames.consumer_info(consumer(1), many), browser(1, many)):
        assert b"9 names with wildcards (at most 8)" in greedy.say(info)
    assert "consumers" not in greedy.tab


def browser(number: int, destination: bytes) -> bytes:
    return frames.frame(5, consumer(number), YES, destination, pack(">ii", 1000, 0), YES, frames.text(None), NO,
                        frames.text(None), NO, NO, NO, b"\0", NO, NO, NO, NO, NO, NO)  # fmt: skip


def test_a_browser_is_sent_as_much_as_its_client_reads(house: House) -> None:
    filler = client(house, "fills")
    for _ in range(6):
        filler.say(told_to(frames.queue("big"), 690_000))
    greedy = client(house)
    greedy.sock.capacity = 100_000
    big = frames.queue(",".join(["big"] * 64))
    greedy.say(b"".join(browser(number, big) for number in range(1, 65)))
    assert 3_000_000 < greedy.tab["browsed"] < 4_200_000  # of the first; the others wait
    assert len(greedy.connection.out) < 1_500_000
    read, greedy.sock.capacity = 0, inf
    for _ in range(5000):
        if not house.pretended.once():
            break
        read += len(greedy.sock.taken)
        greedy.sock.taken.clear()
    assert "browsed" not in greedy.tab
    assert 64 * 6 * 690_000 < read < 64 * 7 * 690_000


def test_copies_for_browsers_are_made_a_share_at_a_time(house: House) -> None:
    filler = client(house, "fills")
    for number in range(64):
        filler.say(told_to(frames.queue(f"work.{number}"), 60_000))
    greedy = client(house)
    every = frames.queue(",".join(f"work.{number}" for number in range(64)))
    assert greedy.turns(browser(1, every)) >= 2 * 64 * 60_000 // 8192 // 1024
    assert bytes(greedy.sock.taken).count(bytes(60_000)) == 64
    assert "browsed" not in greedy.tab
