"""The journal over a disk that fails: nothing is confirmed that could be lost, nothing that was confirmed is lost, and
the loop never waits."""

from __future__ import annotations

import errno
import random
import threading
from pathlib import Path

import pytest
from tests.core.queue_wire import run_of
from tests.server.journal_stage import JournalStage, Publisher
from tests.sim.seeds import seeds_of_the_day
from tests.sim.stream import Frame, Stream, as_publish
from tests.store.journal.fake_files import FakeFiles

from headway.core.base.errors import ConfigError
from headway.core.consumer.request import ConnectRequest, QueueTerms, SubscribeRequest
from headway.core.delivery.rendering import delivery_record
from headway.core.log.durable import MAIN
from headway.server.journal import writing as journal_writer
from headway.wire.amqp.dialect import AmqpDialect
from headway.wire.mqtt.dialect import MqttDialect
from headway.wire.mqtt.replies import Replies

RETRY_S = journal_writer.MEND_EVERY_S


def fail(files: FakeFiles, *operations: str, code: int = errno.EIO) -> None:
    def hook(operation: str, _: Path) -> None:
        if operation in operations:
            raise OSError(code, "Input/output error" if code == errno.EIO else "No space left on device")

    files.hook = hook


def begun() -> tuple[JournalStage, Publisher]:
    stage = JournalStage()
    stage.declare("q")
    stage.turn()
    return stage, Publisher(stage)


def after_power_loss(stage: JournalStage, seed: int = 1) -> JournalStage:
    return JournalStage(stage.files.crash(random.Random(seed)))


@pytest.mark.parametrize(
    ("operation", "code"), [("sync", errno.EIO), ("write", errno.ENOSPC), ("write", errno.EROFS), ("write", errno.EIO)]
)
def test_nothing_is_confirmed_until_it_is_safe_again(operation: str, code: int) -> None:
    stage, publisher = begun()
    publisher.publish("q", 1)
    stage.turn()
    assert publisher.told == [1]
    fail(stage.files, operation, "create", code=code)
    for number in (2, 3):
        publisher.publish("q", number)
        stage.turn()
    stage.files.hook = None
    publisher.publish("q", 4)
    stage.turn()
    assert publisher.told == [1], "the disk would take it now, and what came before is not there"
    assert stage.journal.error
    assert stage.journal.stats().waiting_bytes > 0
    stage.loop.pass_time(RETRY_S)
    stage.turn()
    assert publisher.told == [1, 2, 3, 4], "in the order in which they came"
    assert not stage.journal.error
    assert after_power_loss(stage).all_of("q") == [1, 2, 3, 4]


def test_it_is_tried_again_until_it_works() -> None:
    stage, publisher = begun()
    fail(stage.files, "sync", "create")
    publisher.publish("q", 1)
    stage.turn()
    for _ in range(5):
        stage.loop.pass_time(RETRY_S)
        assert publisher.told == []
    assert stage.journal.failures == 6
    stage.files.hook = None
    stage.loop.pass_time(RETRY_S)
    stage.turn()
    assert publisher.told == [1]


def test_what_is_not_durable_goes_on_while_the_disk_fails() -> None:
    stage, publisher = begun()
    fail(stage.files, "write")
    publisher.publish("q", 1)
    stage.turn()
    publisher.publish("q", 2, qos=0)
    assert publisher.told == [2]
    assert stage.get("q") is not None, "and what waits for the disk can be had"


def test_publishers_wait_when_too_much_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_writer, "BACKLOG_BYTES_MAX", 5000)
    stage, publisher = begun()
    fail(stage.files, "sync", "create")
    number = 0
    while not stage.paused and number < 100:
        number += 1
        publisher.publish("q", number, size=500)
        stage.turn()
    assert 8 < number < 20
    assert publisher.told == []
    stage.files.hook = None
    stage.loop.pass_time(RETRY_S)
    stage.turn()
    assert not stage.paused
    assert publisher.told == list(range(1, number + 1))


def test_the_loop_does_not_wait_for_a_disk_that_hangs() -> None:
    stage = JournalStage(thread=True)
    stage.declare("q")
    publisher = Publisher(stage)
    stalled, go_on = threading.Event(), threading.Event()

    def hook(operation: str, _: Path) -> None:
        if operation == "sync":
            stalled.set()
            assert go_on.wait(30)

    stage.files.hook = hook
    for number in range(10):  # were one of these to wait for the disk, none would come to an end
        publisher.publish("q", number)
        stage.turn()
    assert stalled.wait(30)
    assert stage.all_of("q") == list(range(10)), "and who consumes need not wait either"
    assert publisher.told == []
    go_on.set()
    told = threading.Event()
    stage.loop.call_soon_threadsafe(told.set)
    stage.journal._thread.submit(stage.loop.call_soon_threadsafe, told.set).result(30)
    stage.loop.work()
    stage.turn()
    stage.journal._thread.submit(lambda: None).result(30)
    stage.loop.work()
    assert publisher.told == list(range(10))
    stage.journal.close()


def test_turns_after_the_end_leave_the_journal_alone() -> None:
    """The loop goes on while clients read their last words. What comes then is confirmed to nobody."""
    stage = JournalStage(thread=True)
    stage.declare("q")
    publisher = Publisher(stage)
    publisher.publish("q", 1)
    stage.turn()
    stage.journal.close()
    publisher.publish("q", 2)
    for _ in range(3):
        stage.turn()
        stage.loop.pass_time(journal_writer.TIDY_EVERY_S + 1)
    assert publisher.told == [1]
    assert JournalStage(stage.files).all_of("q") == [1]


@pytest.mark.parametrize("operation", ["make_folder", "lock", "create"])
def test_a_folder_that_cannot_be_written_to_is_said_at_the_start(operation: str) -> None:
    files = FakeFiles()
    fail(files, operation, code=errno.EROFS)
    if operation == "create":  # nothing is written before there is something to write
        stage = JournalStage(files)
        stage.declare("q")
        stage.turn()
        assert stage.journal.error
        return
    with pytest.raises(ConfigError, match=r"journal\.path /journal: "):
        JournalStage(files)


def test_damage_in_the_middle_is_said_at_the_start_and_where_it_is() -> None:
    stage, publisher = begun()
    for number in range(20):
        publisher.publish("q", number)
        stage.turn()
    stage.journal.close()
    stage.files.kill()
    path = max((path for path in stage.files.seen if path.parent.name == "main"), key=stage.files.size)
    stage.files.flip(path, 1000)
    with pytest.raises(ConfigError, match=rf"journal: {path} is damaged at byte \d+: .*--repair"):
        JournalStage(stage.files)


@pytest.mark.parametrize("seed", seeds_of_the_day(range(12)))
def test_whatever_happens_what_was_confirmed_is_there_and_what_was_acknowledged_is_not(seed: int) -> None:
    """The story of one queue over several power losses. What a client knows is put down here, and nothing else."""
    rng = random.Random(seed)
    stage = JournalStage(FakeFiles(rng))
    stage.declare("q")
    stage.turn()
    publisher = Publisher(stage)
    confirmed: set[int] = set()
    gone: set[int] = set()
    """Acknowledged, and something that came later was confirmed."""
    acknowledged: list[tuple[int, int]] = []
    """A number, and the one that was published after it."""
    number = 0
    for _ in range(4):
        for _ in range(rng.randint(5, 60)):
            dice = rng.random()
            if dice < 0.5:
                number += 1
                publisher.publish("q", number, size=rng.choice((10, 100, 5000)))
            elif dice < 0.75 and (got := stage.get("q")) is not None:
                if rng.random() < 0.8:
                    stage.ack(got[1])
                    acknowledged.append((got[0], number + 1))
            elif dice < 0.8:
                fail(stage.files, rng.choice(("sync", "write", "create")))
            elif dice < 0.9:
                stage.files.hook = None
                stage.loop.pass_time(rng.choice((0.1, RETRY_S, 6.0)))
            stage.turn()
            confirmed |= set(publisher.told)
            gone |= {one for one, after in acknowledged if after in confirmed}
        stage = after_power_loss(stage, rng.randint(0, 10**9))
        there = stage.all_of("q")
        assert there == sorted(there), "order is kept"
        assert len(there) == len(set(there))
        maybe = {one for one, _ in acknowledged}
        assert confirmed - maybe <= set(there), "what was confirmed is there"
        assert not gone & set(there), "what was acknowledged is not"
        assert set(there) <= set(range(1, number + 1))
        for _ in stage.broker.queues.recover(stage.channel, stage.now):
            pass
        acknowledged = [(one, after) for one, after in acknowledged if one not in there]
        publisher = Publisher(stage)
        publisher.told = []


def test_a_loop_without_time_to_spare_gathers_for_a_moment() -> None:
    stage, publisher = begun()
    stage.journal.load(stage.now, 5.0)
    stage.loop.now += 0.2
    stage.journal.load(stage.now, 5.19)
    publisher.publish("q", 1)
    stage.turn()
    publisher.publish("q", 2)
    stage.turn()
    assert publisher.told == []
    commits = stage.journal.commits
    stage.loop.pass_time(journal_writer.LOADED_GATHER_S)
    stage.turn()
    assert publisher.told == [1, 2]
    assert stage.journal.commits == commits + 1
    stage.loop.now += 0.2
    stage.journal.load(stage.now, 5.2)
    publisher.publish("q", 3)
    stage.turn()
    assert publisher.told == [1, 2, 3], "with time to spare nothing waits"


def test_what_is_delivered_exactly_once_is_not_seen_before_the_journal_has_it() -> None:
    """A client takes what comes under an id that it holds for the same once more (MQTT 5, 4.3.3)."""
    stage = JournalStage()
    seen: dict[int, bytes] = {}

    def arrived(_: Stream, frame: Frame) -> None:
        item = as_publish(frame.item)
        if item is not None:
            assert item.packet_id not in seen, "the client has not let go of it"
            seen[item.packet_id] = item.run.payload(0)

    stream = Stream(1, 5, Replies(5), stage.now, 10**9, random.Random(1), 0.0, 10**9, arrived)
    request = ConnectRequest("sub", "", clean_start=False, expiry_s=3600, credit=4, protocol="mqtt5")
    session = stage.broker.connect(request, stream.outlet, stage.now)
    stream.outlet.out += Replies(5).connack()
    stage.broker.subscribe(session, SubscribeRequest("t/#", MqttDialect(5, 2), qos=2), stage.now)
    stage.turn()
    for number in range(200):
        if number == 100:
            fail(stage.files, "sync", "create")
        stage.broker.publish(stage.session, [run_of("t.x", [b"%d" % number], exchange="amq.topic", qos=2)], stage.now)
        stage.turn()
        stage.turn()
        if len(seen) == 4:
            oldest = next(iter(seen))
            stage.broker.on_pubrec(session, oldest)
            if number < 100:
                del seen[oldest]
                assert stage.broker.on_pubcomp(session, oldest, stage.now)
    assert {int(payload) for payload in seen.values()} == set(range(97, 100)), "none of what came later"
    again = after_power_loss(stage).broker.registry.sessions["sub"].channel
    for delivery_id, payload in seen.items():
        delivery = again.in_flight[delivery_id]
        assert delivery_record(delivery).run().payload(0) == payload


def test_a_writer_that_always_has_work_trims_all_the_same() -> None:
    stage = JournalStage(config='[[topic]]\nfilter = "t/#"\nkeep = "200kB"\n')
    for _ in range(1000):
        stage.broker.publish(stage.session, [run_of("t.x", [b"." * 2000], exchange="amq.topic")], stage.now)
        stage.loop.pass_time(0.02)
        stage.turn()
    (recorded,) = stage.journal.archive.recorded.values()
    assert recorded.stream.bytes < 1_000_000


def test_what_is_settled_is_on_disk_after_what_came_of_it() -> None:
    """A dead letter may be in a stream of its own; the main one says that its record is settled."""
    stage = JournalStage(config='[[topic]]\nfilter = "recorded"\nkeep = "1MB"\n')
    stage.declare("q")
    publisher = Publisher(stage)
    publisher.publish("q", 1)
    stage.turn()
    done: list[tuple[str, str]] = []
    stage.files.hook = lambda operation, path: done.append((operation, path.parent.name))
    got = stage.get("q")
    assert got is not None
    stage.ack(got[1])
    publisher.publish("q", 2)
    stage.broker.publish(None, [run_of("recorded", [b"1"], qos=1)], stage.now)
    stage.turn()
    stage.files.hook = None
    [other] = {name for operation, name in done if operation == "write" and name.startswith("topic-")}
    assert done.index(("sync", other)) < done.index(("write", MAIN))


def test_what_a_queue_refused_stays_refused_however_often_the_broker_is_started() -> None:
    stage = JournalStage()
    terms = QueueTerms(durable=True, records_max=3, refuses=True)
    stage.broker.queues.declare(stage.session, "q", terms, AmqpDialect(), stage.now)
    publisher, acked = Publisher(stage), list[int]()
    number = 0
    for _ in range(5):
        for _ in range(4):
            publisher.publish("q", number)
            number += 1
            stage.turn()
        got = stage.get("q")  # so what is refused is in several ranges
        assert got is not None
        acked.append(got[0])
        stage.ack(got[1])
        stage.turn()
    stage.journal.close()
    first = JournalStage(stage.files)
    kept = [first.get("q") for _ in range(4)]
    numbers = [one[0] for one in kept if one is not None]
    assert len(numbers) <= 3
    first.turn()
    first.journal.close()
    for _ in range(2):
        later = JournalStage(first.files)
        assert later.all_of("q") == numbers
        later.turn()
        later.journal.close()
