"""Room: a record to very many lanes takes no more of a pool than there is; it waits, or is refused, or is dropped."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from tests.core.stage import STUCK, Client, Stage

from headway.core.base import Reason, Refused
from headway.core.clients.sessions import WILL_WAITS_S
from headway.core.consumer.request import Will
from headway.core.message import Record
from headway.core.routing import publishing

GROUPS, MEMORY = 100, 1_000_000


@pytest.fixture(autouse=True)
def _pools_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "WIDE_BYTES_MIN", 0)


def groups(stage: Stage, count: int = GROUPS, filter: str = "hot") -> Client:
    reader = stage.consumer("reader", "unused", reads=STUCK, buffer=500)
    for number in range(count):
        reader.subscribe(f"$share/g{number}/{filter}")
    stage.turn()
    return reader


def admits(publisher: Client, topic: str, size: int) -> bool:
    """Whether a record would be read now. As in a connection, its publisher is paused otherwise."""
    run = Record(topic, b"x" * size).run()
    return not publisher.stage.broker.intake.must_wait(publisher.session, run, publisher.stage.now)


def small_stage(disk: str = "10MB") -> Stage:
    stage = Stage(memory="1MB", disk=disk)
    stage.checks = False
    return stage


@pytest.mark.parametrize("disk", ["0B", "10MB"])
def test_record_to_many_lanes_waits_for_room_or_is_refused(disk: str) -> None:
    stage = small_stage(disk)
    groups(stage)
    publisher = stage.client("publisher")
    for number in range(20):
        if admits(publisher, "hot", 7_000):
            with nullcontext() if disk == "10MB" or not number else pytest.raises(Refused, match="no room"):
                publisher.publish("hot", number, size=7_000)
        stage.run(0.1)
        assert stage.pool.memory_peak_bytes <= MEMORY


def test_others_publish_while_a_record_to_many_lanes_waits() -> None:
    stage = small_stage()
    stage.disk.delay_s = 1000.0
    groups(stage)
    publisher, other = stage.client("publisher"), stage.client("other")
    healthy = stage.consumer("healthy", "mine")
    publisher.publish("hot", 0, size=7_000)
    assert not admits(publisher, "hot", 7_000)
    stage.turn()
    assert publisher.paused
    for number in range(20):
        assert admits(other, "mine", 100)
        other.publish("mine", number)
        stage.run(0.1)
    assert healthy.numbers == list(range(20))


def test_publisher_goes_on_when_the_disk_has_made_room() -> None:
    stage = small_stage()
    groups(stage)
    publisher = stage.client("publisher")
    publisher.publish("hot", 0, size=7_000)
    assert not admits(publisher, "hot", 7_000)
    stage.run(2)
    assert not publisher.paused
    assert admits(publisher, "hot", 7_000)
    assert stage.pool.memory_bytes < 300_000


def test_record_that_can_never_fit_is_refused() -> None:
    stage = small_stage()
    groups(stage)
    publisher = stage.client("publisher")
    assert admits(publisher, "hot", 10_000), "it would wait for ever"
    with pytest.raises(Refused, match="have pool"):
        publisher.publish("hot", 0, size=10_000)
    assert stage.pool.memory_bytes == 0


def test_large_record_between_small_ones_is_a_slice_of_its_own() -> None:
    stage = small_stage()
    groups(stage)
    run = Record("hot", b"x" * 10).run()
    small, large = run.data, b"y" * 5_000
    run.data, run.ends, run.bodies = large + small * 99, [], []
    end = 0
    for size in (5_000, *[10] * 99):
        run.bodies.append(end)
        end += size
        run.ends.append(end)
    done = stage.broker.intake.publish_some(stage.client("publisher").session, [run], stage.now, 1e9)
    assert done.rest is not None
    assert len(done.rest) == 99


def test_selectors_that_accept_nothing_need_no_room() -> None:
    stage = small_stage()
    reader = stage.consumer("reader", "unused", reads=STUCK, buffer=500)
    for number in range(GROUPS):
        reader.subscribe(f"$share/g{number}/hot", selector=f"wanted = {number}")
    publisher = stage.client("publisher")
    assert admits(publisher, "hot", 20_000)
    publisher.publish("hot", 0, size=20_000)
    assert stage.pool.memory_bytes == 0


def published(stage: Stage) -> int:
    return stage.broker.registry.router.route("hot").feeds[0].lane.count


def leave_wills(stage: Stage, count: int, size: int) -> None:
    clients = [stage.client(f"c{number}") for number in range(count)]
    for client in clients:
        client.session.will = Will(Record("hot", b"x" * size))
        stage.broker.disconnect(client.session, client.outlet, Reason.CLIENT_GONE, stage.now)
    stage.turn()


@pytest.mark.parametrize(("size", "dropped"), [(200, 0), (6_000, 0), (12_000, 80)])
def test_wills_of_many_clients_take_no_more_than_there_is(size: int, dropped: int) -> None:
    """They wait; only what can never fit is dropped at once."""
    stage = small_stage()
    stage.disk.delay_s = 1000.0
    groups(stage)
    clients_bytes = stage.pool.clients_bytes
    leave_wills(stage, 80, size)
    stage.run(1)
    assert stage.pool.memory_peak_bytes <= MEMORY * 33 // 32
    assert stage.broker.registry.totals.unpublished_records["will"] == dropped
    stage.run(WILL_WAITS_S + 1)
    assert stage.broker.registry.totals.unpublished_records["will"] + published(stage) == 80
    assert stage.pool.clients_bytes < clients_bytes + 80 * 100, "they take up nothing any more"


def test_wills_that_wait_are_published_when_there_is_room() -> None:
    stage = small_stage()
    groups(stage)
    leave_wills(stage, 5, 7_000)
    assert published(stage) == 1
    stage.run(10)
    assert published(stage) == 5


def test_wills_that_wait_when_the_broker_stops_are_counted() -> None:
    stage = small_stage()
    groups(stage)
    leave_wills(stage, 5, 7_000)
    stage.broker.finish()
    assert stage.broker.registry.totals.unpublished_records["will"] == 4


def test_advisories_to_very_many_take_no_more_than_there_is() -> None:
    stage = small_stage()
    stage.disk.delay_s = 1000.0
    groups(stage, filter="$SYS/headway/told/#")
    for _ in range(200):
        stage.broker.intake.advisories.tell("told", "someone", stage.now, text="x" * 200)
        stage.turn()
    assert stage.pool.memory_peak_bytes <= MEMORY * 33 // 32
    assert stage.broker.registry.totals.unpublished_records["advisory"] > 0
