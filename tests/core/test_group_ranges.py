"""Members of a group (shared subscriptions) get neighbours in one write, where the lane has them as each gets them."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.core.stage import STUCK, Client, Socket, Stage

from headway.core.message import Record
from headway.core.queue import dispatch
from headway.core.queue.dispatch import SendResult

GROUP = "$share/g/t"


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who got a record that was written for it alone."""
    found: list[str] = []
    send_one = dispatch.send_one

    def noted(member: dispatch.Subscription, *more: object) -> SendResult:
        found.append(member.session.client)
        return send_one(member, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(dispatch, "send_one", noted)
    return found


@pytest.fixture
def sends(monkeypatch: pytest.MonkeyPatch) -> Counter[Socket]:
    found = Counter[Socket]()
    send = Socket.send

    def counted(self: Socket, *more: object) -> int:
        found[self] += 1
        return send(self, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Socket, "send", counted)
    return found


def members(stage: Stage, *names: str, qos: int = 1, **how: object) -> list[Client]:
    return [stage.consumer(name, GROUP, qos, buffer=100_000, **how) for name in names]  # type: ignore[arg-type]


def all_numbers(*clients: Client) -> list[int]:
    return sorted(number for client in clients for number in client.numbers)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_neighbours_go_together_and_each_to_one(qos: int, one_by_one: list[str], sends: Counter[Socket]) -> None:
    stage = Stage()
    publisher, group = stage.client("p"), members(stage, "a", "b", "c", qos=qos)
    for first in range(0, 90, 30):
        publisher.publish("t", first, 30, qos=qos)
        stage.turn()
    stage.run(0.5)
    assert all_numbers(*group) == list(range(90))
    assert all(client.numbers == sorted(client.numbers) for client in group), "each in order"
    assert max(len(client.numbers) for client in group) <= 40, "each has its share"
    assert one_by_one == []
    assert max(sends[client.outlet] for client in group) <= 9
    if qos == 1:
        assert not any(client.session.channel.used for client in group), "it knows the ids that it is given"
        assert not stage.stats_of("a")[0].in_flight


def test_who_is_stuck_holds_no_more_than_a_record_and_the_others_get_the_rest(one_by_one: list[str]) -> None:
    stage = Stage()
    publisher = stage.client("p")
    stuck = stage.consumer("stuck", GROUP, 1, reads=STUCK, buffer=350)
    free, = members(stage, "free")
    for first in range(0, 200, 20):
        publisher.publish("t", first, 20, size=100, qos=1)
        stage.turn()
    stage.run(0.5)
    held = set(range(200)) - set(free.numbers)
    assert 3 <= len(held) <= 4, "what its socket has taken, and one that it has taken half of"
    assert len(stuck.outlet.out) < 110
    assert one_by_one == []
    stuck.leave()
    stage.run(0.5)
    assert all_numbers(free) == list(range(200)), "they come again"


def test_credit_bounds_what_goes_together() -> None:
    stage = Stage()
    publisher = stage.client("p")
    group = [stage.consumer(name, GROUP, 1, buffer=100_000, window=3, acks=False) for name in ("a", "b")]
    publisher.publish("t", 0, 30, qos=1)
    stage.turn()
    assert [len(client.numbers) for client in group] == [3, 3]
    for _ in range(8):
        for client in group:
            client.acknowledge(3)
        stage.turn()
    assert all_numbers(*group) == list(range(30))


def test_what_a_member_gets_in_another_form_is_written_for_it_alone(one_by_one: list[str]) -> None:
    """MQTT 3.1.1, a lower QoS, a retain flag that is cleared; and the others go on in ranges."""
    stage = Stage()
    publisher = stage.client("p")
    old, low = stage.consumer("old", GROUP, 1, version=4), stage.consumer("low", GROUP, 0)
    (same,) = members(stage, "same")
    publisher.publish("t", 0, 30, qos=1)
    stage.run(0.5)
    assert all_numbers(old, low, same) == list(range(30))
    assert set(one_by_one) == {"old", "low"}
    assert [{seen.qos for seen in client.seen} for client in (old, low, same)] == [{1}, {0}, {1}]
    assert not any(client.session.channel.used for client in (old, low, same))


def test_records_of_several_kinds_stand_beside_each_other(one_by_one: list[str]) -> None:
    stage = Stage()
    publisher, group = stage.client("p"), members(stage, "a")
    for first, qos in ((0, 0), (5, 1), (10, 0), (15, 2), (20, 1)):
        publisher.publish("t", first, 5, qos=qos)
    stage.run(0.5)
    assert group[0].numbers == list(range(25))
    assert [seen.qos for seen in group[0].seen] == [0] * 5 + [1] * 5 + [0] * 5 + [1] * 10
    assert Counter(one_by_one) == {"a": 5}, "at QoS 2 frames are others"
    assert not group[0].session.channel.used


def test_a_lifetime_is_told_to_each() -> None:
    stage = Stage()
    publisher, group = stage.client("p"), members(stage, "a", "b")
    publisher.publish("t", 0, 6, qos=1, expiry_s=60)
    stage.now += 7.0
    stage.turn()
    assert all_numbers(*group) == list(range(6))
    assert {seen.expiry_s for client in group for seen in client.seen} == {53}


def test_a_retain_flag_is_cleared(one_by_one: list[str]) -> None:
    stage = Stage()
    publisher, (member,) = stage.client("p"), members(stage, "a")
    for number in range(4):
        retained = Record("t", f"{number} ".encode(), qos=1, retain=number == 2)
        stage.broker.publish(publisher.session, [retained.run()], stage.now)
    kept = stage.broker.registry.router.feeds
    assert any(feed.key.dialect.retain_as_published for feed in kept.values())  # type: ignore[attr-defined]
    stage.run(0.5)
    assert member.numbers == [0, 1, 2, 3]
    assert one_by_one == ["a"]
    assert not any(seen.retain for seen in member.seen)
