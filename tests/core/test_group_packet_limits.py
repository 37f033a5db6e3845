"""Records that are too large for one member of an MQTT group go to another member that can take them."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from tests.core.stage import STUCK, Client, Stage
from tests.core.test_idle import steps

from headway.core.base.errors import Reason
from headway.core.queue.queue import Queue, queue_of
from headway.core.telemetry.stats import account

SMALL, LARGE = 50, 500
"""The payload bytes of records."""
LIMIT = 300
"""The largest packet of a client that takes small records only."""
GROUP = "$share/g/t"


def member(stage: Stage, name: str, limit: int | None = None, qos: int = 1, **how: object) -> Client:
    client = stage.client(name, **how)  # type: ignore[arg-type]
    if limit is not None:
        come_back(client, limit)
    client.subscribe(GROUP, qos)
    return client


def come_back(client: Client, limit: int) -> None:
    client.leave()
    client.request = msgspec.structs.replace(client.request, max_packet_bytes=limit)
    client.connect()


def queue(stage: Stage) -> Queue:
    (found,) = {queue_of(one) for client in stage.clients.values() for one in client.session.queues}
    return found


def publish(stage: Stage, *sizes: int) -> None:
    publisher = stage.clients.get("publisher") or stage.client("publisher")
    for number, size in enumerate(sizes):
        publisher.publish("t", number, size=size, qos=1)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("limited_first", [True, False])
def test_group_gives_large_records_to_members_that_can_take_them(qos: int, limited_first: bool) -> None:
    stage = Stage()
    limits = {"limited": LIMIT, "free": None}
    members = [member(stage, name, limits[name], qos) for name in sorted(limits, reverse=limited_first)]
    sizes = [LARGE, SMALL, LARGE, LARGE] * 25
    for size in range(0, 100, 10):
        publish(stage, *sizes[size : size + 10])
        stage.turn()
    seen = {client.name: [len(one.payload) for one in client.seen] for client in members}
    assert seen["free"].count(LARGE) == 75
    assert 0 < len(seen["limited"]) == seen["limited"].count(SMALL)
    assert sorted(seen["free"] + seen["limited"]) == sorted(sizes)
    assert not queue(stage).drops.by_reason
    stage.check()


def test_group_keeps_a_large_record_for_a_busy_member_without_holding_up_others() -> None:
    stage = Stage()
    busy = member(stage, "busy", window=1, acks=False)
    publish(stage, SMALL)
    stage.turn()
    limited = member(stage, "limited", LIMIT)
    publish(stage, LARGE, SMALL, SMALL)
    stage.turn()
    assert (busy.numbers, limited.numbers) == ([0], [1, 2])
    publish(stage, *[SMALL] * 300)
    stage.run(1)
    assert limited.numbers[2:] == list(range(300)), "it goes on"
    assert limited.gap_told == {}
    busy.acknowledge()
    stage.turn()
    assert [len(seen.payload) for seen in busy.seen] == [SMALL, LARGE]
    busy.acknowledge()
    assert not queue(stage).backlog.has_more
    assert not queue(stage).drops.by_reason
    stage.check()


def test_group_keeps_a_large_record_for_a_stuck_member() -> None:
    stage = Stage()
    stuck = member(stage, "stuck", qos=0, reads=STUCK, buffer=100)
    publish(stage, *[SMALL] * 4)
    stage.turn()
    limited = member(stage, "limited", LIMIT, qos=0)
    publish(stage, LARGE, SMALL)
    stage.turn()
    assert LARGE not in [len(seen.payload) for seen in limited.seen]
    before = len(limited.seen)
    publish(stage, SMALL, SMALL)
    stage.turn()
    assert len(limited.seen) == before + 2
    stuck.reads = 10_000.0
    stuck.outlet.state.window_closed = False
    stage.run(2)
    assert LARGE in [len(seen.payload) for seen in stuck.seen]
    assert not queue(stage).drops.by_reason
    stage.check()


def test_group_drops_a_large_record_when_the_last_member_that_could_take_it_leaves() -> None:
    stage = Stage()
    busy = member(stage, "busy", window=1, acks=False)
    publish(stage, SMALL)
    stage.turn()
    limited = member(stage, "limited", LIMIT)
    publish(stage, LARGE, SMALL)
    stage.turn()
    assert limited.numbers == [1]
    busy.leave()
    stage.run(1)
    publish(stage, SMALL)
    stage.turn()
    assert queue(stage).drops.by_reason == {Reason.TOO_LARGE_FOR_CLIENT: 1}
    assert limited.gap_told == {"too_large_for_client": 1}
    assert limited.numbers == [1, 0, 0], "it gets what the other one had not acknowledged"
    assert stage.clients["publisher"].session.lost_records == {Reason.TOO_LARGE_FOR_CLIENT: 1}
    stage.check()


@pytest.mark.parametrize("limits", [[LIMIT], [LIMIT, LIMIT], [LIMIT, LIMIT // 2], [LIMIT // 2, LIMIT]])
def test_group_drops_records_that_are_too_large_for_all_members(limits: list[int]) -> None:
    stage = Stage()
    members = [member(stage, f"m{number}", limit) for number, limit in enumerate(limits)]
    for _ in range(10):
        publish(stage, LARGE, SMALL, 200)
        stage.turn()
    publish(stage, *[SMALL] * 10)
    stage.turn()
    assert queue(stage).drops.by_reason == {Reason.TOO_LARGE_FOR_CLIENT: 10}
    assert sum(client.gap_told.get("too_large_for_client", 0) for client in members) == 10
    assert sum(len(client.seen) for client in members) == 30
    assert not queue(stage).backlog.has_more
    stage.check()


def test_group_gives_a_record_in_flight_to_another_member_when_its_client_comes_back_with_a_smaller_limit() -> None:
    stage = Stage()
    first = member(stage, "first", window=1, acks=False, expiry_s=1000.0)
    publish(stage, LARGE)
    stage.turn()
    second = member(stage, "second")
    first.acks = True
    come_back(first, LIMIT)
    stage.turn()
    assert [len(seen.payload) for seen in second.seen] == [LARGE]
    publish(stage, SMALL, SMALL)
    stage.turn()
    assert not first.gap_told
    assert not queue(stage).drops.by_reason
    assert queue(stage).backlog.unacknowledged == 0
    stage.check()


def test_group_gives_a_large_record_to_a_member_that_comes_back_with_a_larger_limit() -> None:
    stage = Stage()
    busy = member(stage, "busy", window=1, acks=False)
    publish(stage, SMALL)
    stage.turn()
    limited = member(stage, "limited", LIMIT, expiry_s=1000.0)
    publish(stage, LARGE)
    stage.turn()
    assert (len(busy.seen), limited.seen) == (1, [])
    come_back(limited, 2**20)
    stage.turn()
    assert [len(seen.payload) for seen in limited.seen] == [LARGE]
    stage.check()


def test_group_does_not_look_at_all_members_for_each_record_that_none_can_take() -> None:
    def lines(members: int) -> int:
        stage = Stage()
        for number in range(members):
            member(stage, f"m{number}", LIMIT, window=1, acks=False)
        publish(stage, *[SMALL] * (members - 1))
        stage.turn()
        publish(stage, *[LARGE] * 100)
        found = steps(stage.turn)
        assert queue(stage).drops.by_reason == {Reason.TOO_LARGE_FOR_CLIENT: 100}
        return found

    lines(2)
    assert lines(100) < 2 * lines(10)


def test_group_picks_by_size_only_while_records_wait() -> None:
    stage = Stage()
    busy = member(stage, "busy", window=1, acks=False)
    member(stage, "limited", LIMIT)
    publish(stage, SMALL, LARGE, LARGE, SMALL, SMALL)
    stage.turn()
    assert queue(stage).picking
    busy.acks = True
    busy.acknowledge()
    stage.turn()
    assert not queue(stage).backlog.has_more
    assert not queue(stage).picking
    publish(stage, LARGE, SMALL, LARGE)
    stage.turn()
    assert not queue(stage).drops.by_reason
    stage.check()


@pytest.mark.parametrize("limits", [1, 16, 17, 64, 65, 200])
def test_group_of_clients_with_many_limits_loses_only_what_none_can_take(limits: int) -> None:
    stage = Stage()
    members = [member(stage, f"m{number}", LIMIT + number) for number in range(limits + 1)]
    sizes = [*range(LIMIT - 20, LIMIT + limits + 2), SMALL, SMALL] * 2
    for size in range(0, len(sizes), 20):
        publish(stage, *sizes[size : size + 20])
        stage.turn()
    seen = [len(one.payload) for client in members for one in client.seen]
    assert sorted(seen) == sorted(size for size in sizes if size <= max(seen))
    assert max(seen) > LIMIT + limits - 20, "the client with the largest maximum gets the largest"
    assert queue(stage).drops.by_reason.total() == len(sizes) - len(seen)
    assert not queue(stage).backlog.has_more
    stage.check()


@pytest.mark.parametrize("limits", [64, 100])
def test_group_of_clients_with_very_many_limits_works_no_more_than_one_with_few(
    limits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(limits: int) -> tuple[int, int]:
        """The steps of the longest flush, and of all."""
        stage, flushes = Stage(), list[int]()
        for number in range(100):
            member(stage, f"m{number}", LIMIT + number % limits)
        publish(stage, *[SMALL, LIMIT - 40, LARGE, LIMIT - 20 + limits // 2] * 50)
        flush = stage.broker.flush
        monkeypatch.setattr(stage.broker, "flush", lambda now: flushes.append(steps(lambda: flush(now))))
        stage.turn()
        assert not queue(stage).backlog.has_more
        return max(flushes), sum(flushes)

    few, many = work(17), work(limits)
    assert many[0] < 1.5 * few[0], "a turn does as little"
    assert many[1] < 2 * few[1]


@pytest.mark.parametrize("seed", range(12))
def test_group_of_clients_with_various_limits_loses_only_what_none_can_take(seed: int) -> None:
    random, stage, published = Random(seed), Stage(), 0
    limits = [random.choice([120, 300, 301, 310, 600, 2**20]) for _ in range(random.randint(2, 5))]
    members = [
        member(stage, f"m{number}", limit, random.choice([0, 1]), window=random.choice([1, 3, 100]), expiry_s=1000.0,
               acks=random.random() < 0.5)
        for number, limit in enumerate(limits)
    ]  # fmt: skip
    publisher = stage.client("publisher")
    for _ in range(60):
        for _ in range(random.randint(1, 20)):
            publisher.publish("t", published, size=random.choice([50, 250, 290, 400, 590]), qos=random.choice([0, 1]))
            published += 1
        stage.turn()
        one = random.choice(members)
        if random.random() < 0.1:
            come_back(one, random.choice([120, 300, 600]))
        one.acknowledge(random.randint(0, 3))
        stage.turn()
        queue(stage).backlog.check()
        queue(stage).members.check()
    for _ in range(2 * published):
        for one in members:
            one.acknowledge(100)
        stage.turn()
        if not queue(stage).backlog.has_more:
            break
    dropped = queue(stage).drops.by_reason
    assert set(dropped) <= {Reason.TOO_LARGE_FOR_CLIENT}
    seen = {number for one in members for number in one.numbers}
    assert len(seen) + dropped.total() >= published
    assert not queue(stage).backlog.has_more
    stage.check()


def test_accounts_of_members_go_on_while_the_group_picks_by_size() -> None:
    """All members are offered what comes to their group, whoever may have it."""
    stage = Stage()
    members = [member(stage, "busy", window=1, acks=False), member(stage, "limited", LIMIT)]
    publish(stage, SMALL, SMALL)
    stage.turn()
    publish(stage, LARGE, *[SMALL] * 5)
    stage.turn()
    assert queue(stage).picking.pickers, "it picks by size"
    assert [offered(client) for client in members] == [8, 8]
    member(stage, "third", LIMIT)
    assert not queue(stage).picking.pickers
    assert [offered(client) for client in members] == [8, 8]
    publish(stage, LARGE, SMALL)
    stage.turn()
    assert [offered(client) for client in members] == [10, 10]


def offered(client: Client) -> int:
    return account(client.session.subscriptions[GROUP]).offered_records


def test_what_only_an_absent_member_may_have_gives_way_while_others_read() -> None:
    """It is promised to nobody. To evict that member frees nothing, because others move: it was judged for ever."""
    stage = Stage(memory="40KB", disk="0B")
    member(stage, "away", qos=0, expiry_s=1000).leave()
    small = member(stage, "small", 1000, qos=2)
    publisher = stage.client("publisher")
    for number in range(100):
        publisher.publish("t", number, size=9000 if number % 4 == 0 else 300)
        stage.run(0.5)
    assert small.numbers == [number for number in range(100) if number % 4]
    dropped, waiting = queue(stage).drops.by_reason[Reason.MEMORY_LIMIT], queue(stage).backlog.lag_records
    assert waiting < 5
    assert dropped + waiting == 25
    assert not publisher.paused
