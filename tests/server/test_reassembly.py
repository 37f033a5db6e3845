"""Packets that come in part: who may bring the rest of his, and when."""

from __future__ import annotations

from typing import Any

from headway.core.log.lanes.pool import Pool
from headway.server.connections.reassembly import (
    BYTES_PER_S_MIN,
    GRANT_S,
    SMALL_BYTES,
    STRANGER_BYTES,
    PartialPacket,
    Reassembly,
)

MB = 1_000_000


class Line:
    """A connection, as far as the parts of its packets go: it sends a packet a piece at a time, while it is read."""

    def __init__(self, reassembly: Reassembly, *packets: int) -> None:
        self.reassembly = reassembly
        self.packets = list(packets)
        self.done = 0
        self.sent_bytes = 0
        self.partial_bytes = 0
        self.read_bytes = 262_144
        self.held: set[str] = set()
        self.reading_paused_by = self.held

    def pause_reading(self, why: str) -> None:
        self.held.add(why)

    def resume_reading(self, why: str) -> None:
        self.held.discard(why)

    def send(self, now: float) -> bool:
        """As much as is read at once. False: it is not read, or has sent everything."""
        if self.held or not self.packets:
            return False
        self.sent_bytes += self.reassembly.limit_of(self)  # type: ignore[arg-type]
        while self.packets and self.sent_bytes >= self.packets[0]:
            self.sent_bytes -= self.packets.pop(0)
            self.done += 1
        if not self.packets:
            self.sent_bytes = 0
        missing = self.packets[0] - self.sent_bytes if self.packets else 0
        part: Any = PartialPacket(self.sent_bytes, missing if self.sent_bytes else 0, self.done)
        self.reassembly.update(self, part, now)  # type: ignore[arg-type]
        return True


def a_pool() -> tuple[Pool, Reassembly]:
    """8 MB for reassembly."""
    pool = Pool("p", 32 * MB, 0, clients_free_bytes=16 * MB)
    return pool, Reassembly(pool)


def test_everybody_gets_his_turn_and_the_memory_has_an_end() -> None:
    pool, reassembly = a_pool()
    lines = [Line(reassembly, *[MB] * 3) for _ in range(600)]
    most = now = 0.0
    while any(line.packets for line in lines):
        now += 0.01
        assert sum(line.send(now) for line in lines), "nobody is read"
        most = max(most, pool.clients_bytes)
    assert [line.done for line in lines] == [3] * 600
    assert most <= reassembly.limit_bytes + 600 * SMALL_BYTES + 262_144
    assert pool.clients_bytes == 0
    assert not reassembly.overdue(now + 1000)


def test_one_turn_after_the_other_not_the_same_ones_for_ever() -> None:
    _, reassembly = a_pool()
    busy = [Line(reassembly, *[MB] * 10_000) for _ in range(20)]
    late = Line(reassembly, MB)
    for line in [*busy, late]:
        line.send(0.0)
    assert late.held
    for turn in range(100):
        for line in [*busy, late]:
            line.send(turn / 100)
    assert late.done == 1


def test_who_does_not_use_his_turn_loses_it() -> None:
    pool, reassembly = a_pool()
    idle = [Line(reassembly, MB) for _ in range(7)]
    good = [Line(reassembly, MB) for _ in range(3)]
    for line in [*idle, *good]:
        line.send(0.0)
    assert not reassembly.overdue(GRANT_S - 1)
    assert [bool(line.held) for line in good] == [False, True, True]
    while good[0].packets:
        good[0].send(1.0)
    while good[1].packets:
        good[1].send(1.0)
    late = GRANT_S + MB / BYTES_PER_S_MIN + 1.1
    while good[2].packets:
        good[2].send(2.0)
    more = Line(reassembly, 4 * MB)
    more.send(3.0)
    assert more.held
    found = reassembly.overdue(late)
    assert [connection for connection, _ in found] == idle
    assert "has not come whole" in found[0][1]
    for line in idle:
        reassembly.remove(line, late)  # type: ignore[arg-type]
    while more.send(late):
        pass
    assert more.done == 1
    assert pool.clients_bytes == 0


def test_a_packet_larger_than_all_there_is_has_its_turn_alone() -> None:
    pool, reassembly = a_pool()
    whale, small = Line(reassembly, 50 * MB), Line(reassembly, MB)
    whale.send(0.0)
    small.send(0.0)
    assert (bool(whale.held), bool(small.held)) == (False, True)
    while whale.send(0.1):
        pass
    assert not small.held
    while small.send(0.2):
        pass
    assert (whale.done, small.done, pool.clients_bytes) == (1, 1, 0)


def test_all_wait_for_more_and_one_of_them_goes_on() -> None:
    """AMQP: a connection puts messages of several channels together; each has a part, and wants more than there is."""
    _, reassembly = a_pool()
    lines = [Line(reassembly) for _ in range(4)]
    for line in lines:
        reassembly.update(line, PartialPacket(100_000, 1_900_000, 0), 0.0)  # type: ignore[arg-type]
    assert not any(line.held for line in lines)
    for line in lines:
        reassembly.update(line, PartialPacket(200_000, 4_000_000, 0), 0.1)  # type: ignore[arg-type]
    assert sum(not line.held for line in lines) == 1


class Trickle:
    """A connection whose packets tell their sizes only at their ends. Each read brings a piece, and no packet ends."""

    def __init__(self, reassembly: Reassembly, most: int) -> None:
        self.reassembly = reassembly
        self.most = most
        self.partial_bytes = self.bytes = self.oldest = 0
        self.read_bytes = 262_144
        self.held: set[str] = set()
        self.reading_paused_by = self.held

    def pause_reading(self, why: str) -> None:
        self.held.add(why)

    def resume_reading(self, why: str) -> None:
        self.held.discard(why)

    def send(self, now: float, size: int = 1 << 62, *, end: int = 0) -> bool:
        """``end``: the oldest packet of a size becomes whole. False: it is not read, or its packet is refused."""
        if self.held or self.bytes >= self.most:
            return False
        self.bytes += min(size, self.reassembly.limit_of(self)) - end  # type: ignore[arg-type]
        self.oldest += end > 0
        part: Any = PartialPacket(self.bytes, 0, self.oldest, self.most - self.bytes)
        self.reassembly.update(self, part, now)  # type: ignore[arg-type]
        return True


def test_packets_that_never_end_stay_within_the_memory_and_the_largest_packet() -> None:
    pool, reassembly = a_pool()
    lines = [Trickle(reassembly, 2 * MB) for _ in range(100)]
    for _ in range(200):
        for line in lines:
            line.send(0.0)
    assert pool.clients_bytes <= reassembly.limit_bytes + 2 * MB + 262_144 + 100 * SMALL_BYTES


def test_who_lets_packets_grow_slowly_is_found_and_the_others_go_on() -> None:
    """Each asks for a little more now and then. Time in which it waits itself does not count."""
    _, reassembly = a_pool()
    lines = [Trickle(reassembly, 16 * MB) for _ in range(20)]
    good = Line(reassembly, 2 * MB)
    for _ in range(100):
        for line in lines:
            line.send(0.0)
    good.send(0.0)
    assert good.held
    for second in range(20 * 60):
        for line in lines:
            line.send(second, 1)
        for line, _ in reassembly.overdue(second):
            assert not line.held
            reassembly.remove(line, second)
            lines.remove(line)  # type: ignore[arg-type]
        if not good.held:
            break
    assert not good.held
    assert second < 20 * 60 - 1


def test_a_packet_that_becomes_whole_does_not_give_away_what_the_others_hold() -> None:
    """AMQP 1.0: one link's message never ends, and another's have ends all the time."""
    pool, reassembly = a_pool()
    lines = [Trickle(reassembly, 2 * MB) for _ in range(100)]
    for _ in range(200):
        for line in lines:
            line.send(0.0, end=1)
    assert pool.clients_bytes <= reassembly.limit_bytes + 2 * MB + 262_144 + 100 * SMALL_BYTES


def test_many_that_send_nothing_more_do_not_keep_others_waiting_for_half_a_minute_each() -> None:
    _, reassembly = a_pool()
    idle = [Line(reassembly, 4 * MB) for _ in range(100)]
    slow, good = Line(reassembly, MB), Line(reassembly, MB)
    slow.read_bytes = 50_000
    for line in [*idle, slow, good]:
        line.send(0.0)
    assert slow.held
    assert good.held
    second = 0.0
    while (good.packets or slow.packets) and second < 400:
        second += 1
        for line, _ in reassembly.overdue(second):
            assert line in idle, "50 kB a second are fast enough"
            reassembly.remove(line, second)
        slow.send(second)
        good.send(second)
    assert good.done == slow.done == 1


def test_connections_that_have_not_logged_in_take_up_little_and_nothing_of_what_clients_may_take_up() -> None:
    pool, reassembly = a_pool()
    strangers = Reassembly(pool, strangers=True)
    lines = [Line(strangers, 60_000) for _ in range(3000)]
    for line in lines:
        line.read_bytes = STRANGER_BYTES
    for _ in range(10):
        for line in lines:
            line.send(0.0)
    assert sum(line.sent_bytes for line in lines) <= strangers.limit_bytes + len(lines) * STRANGER_BYTES
    assert pool.clients_bytes == 0
    client = Line(reassembly, 4 * MB)
    while client.send(0.0):
        pass
    assert client.done == 1
    while sum(line.send(1.0) for line in lines):  # all of them, and not those before one that is read again and again
        pass
    assert all(line.done for line in lines), "each gets its turn"
