"""Whatever is in the journal, the broker starts: entries that mean nothing are set aside, and all others are back.

Each seed takes the entries of a broker that was at work, makes some of its runs odd, strews odd entries among them, and
writes all of that to a new journal, with checksums that are right. ``make soak`` has a thousand of them.
"""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.core.queue_wire import run_of
from tests.server.journal_stage import WALL_OFFSET_S, JournalStage, Publisher
from tests.sim.outlet import PretendedOutlet
from tests.sim.seeds import seeds_of_the_day
from tests.store.journal.fake_files import FakeFiles

from headway.core.base.errors import Reason
from headway.core.clients.durability import SessionTerms
from headway.core.clients.publishers import Origin
from headway.core.clients.queues import Queues
from headway.core.consumer.request import ConnectRequest, SubscribeRequest
from headway.core.log.durable import MAIN
from headway.core.log.states import State
from headway.core.message.record import TOPICS, EncodedRun, Properties, Run
from headway.core.queue.queue import Queue
from headway.core.routing.matching.bindings import Binding, Destination
from headway.core.routing.publishing import Publishing
from headway.core.telemetry import stats
from headway.server.journal import entries as entry_codec
from headway.server.journal.compaction import RETAINED
from headway.server.journal.entries import (
    METADATA,
    POSITIONS,
    RUN,
    SNAPSHOT_METADATA,
    SNAPSHOT_POSITIONS,
    decode_metadata,
    decode_positions,
    decode_run,
    decode_runs,
    stream_name,
)
from headway.server.journal.recovery import FILE_NAME
from headway.store.journal.journal import Journal
from headway.store.journal.reading import StreamReader
from headway.store.journal.segments.batch import Entry, StoredEntry
from headway.store.journal.segments.segment import Corrupt
from headway.wire.amqp.dialect import AmqpDialect
from headway.wire.mqtt.dialect import MqttDialect

RECORDED = "rec/#"
CONFIG = f'[[topic]]\nfilter = "{RECORDED}"\nkey = "/id"\nkeep = "7d"\n'
NAMES = (MAIN, RETAINED, stream_name(RECORDED))
FOLDER = Path("/journal")
Strewn = tuple[str, Entry]


# -- a broker that was at work ----------------------------------------------------------------------------------------


class Original:
    """The entries that a broker has left, and what is to be back: numbers of records, by where they are."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        stage = JournalStage(config=CONFIG)
        publisher = Publisher(stage)
        for queue in ("q0", "q1"):
            stage.declare(queue)
        stage.broker.queues.bind(stage.session, Binding(TOPICS, Destination("queue", "q1"), "s.*"))
        away = stage.broker.connect(ConnectRequest("away", "", False, 1e9), _outlet(stage), stage.now)
        stage.broker.subscribe(away, SubscribeRequest("s/#", MqttDialect(5, 1), qos=1), stage.now)
        stage.turn()
        stage.broker.disconnect(away, away.outlet, Reason.CLIENT_GONE, stage.now)
        for number in range(60):
            self._publish(stage, publisher, number)
            if self.rng.random() < 0.5:
                stage.turn()
        for _ in range(5):
            found = stage.get("q0")
            if found is not None:
                stage.ack(found[1])
        stage.turn()
        stage.journal.close()
        self.streams = {name: _entries(stage.files, name) for name in NAMES}

    def _publish(self, stage: JournalStage, publisher: Publisher, number: int) -> None:
        kind = self.rng.choice(("q0", "q1", "s", "rec", "retain", "writer"))
        payload = b"%d" % number if kind == "s" else b'{"id": %d}' % number
        user = tuple((f"n{at}", "v" * self.rng.randrange(20)) for at in range(self.rng.randrange(3)))
        if kind in ("q0", "q1"):
            publisher.publish(kind, number, size=self.rng.randrange(10, 300))
        elif kind == "writer":
            session = stage.broker.writers.attach("w", lambda: None, stage.now)
            run = Run("rec/w", payload, [len(payload)], [0], None, 1, False, Properties(user=user))
            stage.broker.writers.publish(session, Origin("w", number, 0), run, stage.now)
        else:
            run = run_of(f"{kind}.x", [payload], exchange=TOPICS, properties=Properties(user=user))
            run.retain, run.topic = kind == "retain", f"{kind}/{number % 7}"
            stage.broker.publish(stage.session, [run], stage.now)


def _outlet(stage: JournalStage) -> PretendedOutlet:
    return PretendedOutlet(stage.now, 10**9, random.Random(1), 0.0, lambda data: None)


def _entries(files: FakeFiles, name: str) -> list[Entry]:
    stream = StreamReader(FOLDER / name, files)
    stream.open()
    return [
        Entry(one.kind, one.sequence, one.count, (bytes(one.data),)) for _, batch in stream.scan(None) for one in batch
    ]


# -- odd entries ------------------------------------------------------------------------------------------------------

ODD_VALUES: list[Any] = [
    None, True, -1, 0, 2**63, 2**64 - 1, nan, inf, -inf, "", "odd", "odd\0", "a/#", b"\xff", [], [None], ["odd"], {},
    {"a": 1}, [[["odd"]]], "x" * 70_000, list(range(300)), {"filter": "odd/#", "dialect": {"dialect": "none"}},
]  # fmt: skip
WHATS = (*entry_codec._FORMS, "odd", "")


def _packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def _odd_change(rng: random.Random) -> bytes:
    def odd(depth: int = 2) -> Any:
        if depth and rng.random() < 0.5:
            return [odd(depth - 1) for _ in range(rng.randrange(8))]
        return rng.choice(ODD_VALUES)

    shapes: list[Callable[[], Any]] = [
        lambda: [rng.choice(WHATS), odd(), odd()],
        lambda: ["session", "odd", SessionTerms("", "", None, rng.choice((nan, -1.0)), -1, nan)],
        lambda: ["queue", "odd", [2**63, "", {}]],
        lambda: ["queue", "odd", [10**7, "odd", {"selector": "((", "priorities": -5, "ttl_s": nan}]],
        lambda: ["subscription", 10**7, ["nobody", {"filter": "#", "dialect": {}}, 10**7]],
        lambda: ["subscription", 10**7, ["away", {"filter": "a/#/b", "dialect": {"dialect": "none"}}, 10**7]],
        lambda: ["subscription", 10**7, ["away", {"filter": "a", "dialect": {"version": 5},
                                                  "options": {"selector": "((("}}, 10**7]],
        lambda: ["exchange", "odd", ["odd", "no-kind", True, False, False, None, b""]],
        lambda: ["exchange", "odd", ["odd", "headers", True, False, False, None, b"\xff\xff\xff\xff"]],
        lambda: ["binding", ["odd", "nowhere", "odd", "", b"\0\0\0\0"], True],
        lambda: ["binding", ["amq.headers", "queue", "q0", "", b"\0\0\0\x05\xff"], True],
        lambda: ["batch", "../../odd", [1, ["../../../etc/passwd"], 0, 0.0]],
        lambda: ["deleted", ["queue", "odd"], ["no-reason", "odd"]],
        lambda: ["flight", ["away", 1], [10**7, 2**63, 3]],
        lambda: ["reserved", None, 2**64 - 1],
        lambda: odd(),
    ]  # fmt: skip
    data = _packed(rng.choice(shapes)())
    return data if rng.random() < 0.7 else data[: rng.randrange(len(data) + 1)] + rng.randbytes(rng.randrange(3))


def _odd_positions(rng: random.Random) -> bytes:
    ways = [10**7, 2**63, 0, 0], [10**7, 1, 1, 5, 1], [10**7, 9, 9, 2, 8, 7], [10**7], [10**7, 1, 1, 2**60]
    numbers = rng.choice(ways)
    return struct.pack(f"<{len(numbers)}Q", *numbers) + rng.randbytes(rng.choice((0, 3)))


def odd_entry(rng: random.Random) -> Strewn:
    """An entry without sequences of its own, so that it can stand anywhere."""
    kind = rng.choice((METADATA, METADATA, METADATA, POSITIONS, SNAPSHOT_METADATA, SNAPSHOT_POSITIONS, 0, 77, 255, RUN))
    if kind in (METADATA, SNAPSHOT_METADATA):
        data = _odd_change(rng)
    elif kind in (POSITIONS, SNAPSHOT_POSITIONS):
        data = _odd_positions(rng)
    else:
        data = rng.randbytes(rng.randrange(60))
    sequence = rng.choice((0, 1, 7, 2**63, 2**64 - 1))
    stored = StoredEntry(kind, sequence, 0, data)
    if kind in (SNAPSHOT_METADATA, SNAPSHOT_POSITIONS) and not is_odd(stored):
        data = b"\xc1"  # one that means something would end all that it does not mention
    return rng.choice(NAMES) if kind not in (SNAPSHOT_METADATA, SNAPSHOT_POSITIONS) else MAIN, Entry(
        kind, sequence, 0, (data,)
    )


def is_odd(stored: StoredEntry) -> bool:
    try:
        if stored.kind == RUN:
            decode_run(stored, 0.0)
        elif stored.kind in (METADATA, SNAPSHOT_METADATA):
            decode_metadata(stored, 0.0)
        elif stored.kind in (POSITIONS, SNAPSHOT_POSITIONS):
            decode_positions(stored)
        else:
            return stored.kind != entry_codec.SNAPSHOT_MARK
    except Exception:  # noqa: BLE001
        return True
    return False


def made_odd(rng: random.Random, entry: Entry) -> Entry:
    """The entry of a run, with something in it that cannot be."""
    data = bytes(b"".join(entry.data))
    head_bytes = int.from_bytes(data[:4], "little")
    head = msgspec.msgpack.decode(data[entry_codec._PREFIX.size :][:head_bytes])
    rest = data[entry_codec._PREFIX.size + head_bytes :]

    def again(**more: Any) -> bytes:
        names = entry_codec.RunHeader._fields
        made = _packed([more.get(name, value) for name, value in zip(names, head, strict=True)])
        _, count, size, expires, flags = entry_codec._PREFIX.unpack_from(data)
        return entry_codec._PREFIX.pack(len(made), count, size + len(made) - head_bytes, expires, flags) + made + rest

    def properties(**more: Any) -> bytes:
        return again(properties={**(head[5] or {}), **more})

    ways: list[Callable[[], bytes]] = [
        lambda: b"", lambda: data[: rng.randrange(entry_codec._PREFIX.size)], lambda: rng.randbytes(len(data)),
        lambda: data[:-1], lambda: data + b"x", lambda: data[:4] + b"\xff\xff\xff\xff" + data[8:],
        lambda: data[:12] + struct.pack("<d", nan) + data[20:], lambda: data[:20] + bytes((data[20] ^ 1,)) + data[21:],
        lambda: properties(user=[["a", None]]), lambda: properties(user=[["a", "b\0"]]),
        lambda: properties(user=[["a", "x" * 65_536]]), lambda: properties(user=[["a"]]),
        lambda: properties(content_type="\0"), lambda: properties(correlation_data=b"x" * 65_536),
        lambda: properties(native=b"\xff\xff"), lambda: properties(native=b"\x20\x00\0\0\0\x05\xff"),
        lambda: again(topic=None), lambda: again(topic="x" * 65_536), lambda: again(qos=3), lambda: again(qos="1"),
        lambda: again(publisher=7), lambda: again(properties=["no"]), lambda: again(topic=b"\xff"),
        lambda: data[: entry_codec._PREFIX.size] + b"\xc1" + data[entry_codec._PREFIX.size + 1 :],
    ]  # fmt: skip
    made = entry._replace(data=(rng.choice(ways)(),))
    return made if is_odd(StoredEntry(*made[:3], made.data[0])) else entry._replace(data=(b"",))


# -- a journal with odd entries ---------------------------------------------------------------------------------------


class Strange:
    """A journal of these entries, of which some runs are odd, and odd entries stand between."""

    def __init__(self, seed: int, streams: dict[str, list[Entry]]) -> None:
        self.rng = rng = random.Random(seed)
        self.odd: set[tuple[str, int, int, bytes]] = set()
        """Stream, kind, sequence and data of what has to be told."""
        self.whole: dict[str, list[Entry]] = {}
        self.files = FakeFiles()
        work: dict[str, list[Entry]] = {name: [] for name in NAMES}
        for name, entries in streams.items():
            self.whole[name] = []
            for entry in entries:
                if entry.kind == RUN and rng.random() < 0.1:
                    work[name].append(made_odd(rng, entry))
                    self._put(name, work[name][-1])
                else:
                    work[name].append(entry)
                    self.whole[name].append(entry)
        for _ in range(rng.randrange(10)):
            name, entry = odd_entry(rng)
            work[name].insert(rng.randrange(len(work[name]) + 1), entry)
            self._put(name, entry)
        journal = Journal(self.files, FOLDER, 20_000)
        journal.open(NAMES)
        for name, entries in work.items():
            while entries:
                some = rng.randrange(1, 12)
                journal.commit({name: entries[:some]}, int(WALL_OFFSET_S * 1e6))
                entries = entries[some:]
        journal.close()

    def _put(self, name: str, entry: Entry) -> None:
        stored = StoredEntry(*entry[:3], bytes(entry.data[0]))
        if name == MAIN:  # of its records nobody looks at those that are settled
            odd = stored.kind != RUN and is_odd(stored)
        else:
            odd = stored.kind != RUN or is_odd(stored)
        if odd:
            self.odd.add((name, stored.kind, stored.sequence, bytes(stored.data)))

    def wanted(self) -> dict[str, Any]:
        """What the same entries give without any odd ones."""
        files = FakeFiles()
        journal = Journal(files, FOLDER)
        journal.open(NAMES)
        journal.commit(self.whole, int(WALL_OFFSET_S * 1e6))
        journal.close()
        return contents(JournalStage(files, config=CONFIG))


def contents(stage: JournalStage) -> dict[str, Any]:
    """All that a broker has come back with, apart from objects of the odd entries."""
    away = [one.lag_records for one in stats.consumers(stage.broker, stage.now) if one.client == "away"]
    recorded = stage.journal.streams[stream_name(RECORDED)]
    runs = [
        (read.sequence + at, read.run.topic, read.run.payload(at))
        for _, batch in recorded.read(1, recorded.last_sequence)
        for read in decode_runs(batch, 0.0) for at in range(len(read.run))
    ]  # fmt: skip
    found = {"away": away, "recorded": runs, "retained": sorted(stage.broker.retained.topics())}
    return {**found, "q0": stage.all_of("q0"), "q1": stage.all_of("q1")}


@pytest.fixture(scope="module")
def originals() -> list[Original]:
    return [Original(seed) for seed in range(4)]


@pytest.mark.parametrize("seed", seeds_of_the_day(range(40)))
def test_broker_starts_and_gives_every_other_record_back(seed: int, originals: list[Original]) -> None:
    strange = Strange(seed, originals[seed % len(originals)].streams)
    stage = JournalStage(strange.files, config=CONFIG, set_aside=None)
    kept = kept_in(strange.files)
    told = {(one["stream"], one["kind"], one["sequence"], base64.b64decode(one["data"])) for one in kept}
    assert len(told) == len(kept) == stage.journal.set_aside
    assert strange.odd <= told
    assert contents(stage) == strange.wanted()
    publisher = Publisher(stage)  # and it goes on
    publisher.publish("q0", 1000)
    stage.turn()
    assert publisher.told == [1000]
    stage.journal.close()
    again = JournalStage(strange.files, config=CONFIG, set_aside=None)
    assert again.all_of("q0")[-1:] == [1000]
    assert kept_in(strange.files) == kept, "once"


def kept_in(files: FakeFiles) -> list[dict[str, Any]]:
    if FILE_NAME not in files.names(FOLDER):
        return []
    fd = files.open(FOLDER / FILE_NAME, read_only=True)
    text = files.read(fd, files.size(FOLDER / FILE_NAME), 0)
    files.close(fd)
    return [json.loads(line) for line in text.splitlines() if line]


@pytest.mark.parametrize("seed", seeds_of_the_day(range(20)))
def test_damaged_journal_with_odd_entries_is_repaired_and_starts(seed: int, originals: list[Original]) -> None:
    """Bytes on disk that were turned are another matter: a start with ``repair`` gives up whole batches."""
    strange = Strange(seed, originals[seed % len(originals)].streams)
    before = strange.wanted()
    for name in NAMES:
        segments = [one for one in strange.files.names(FOLDER / name) if one.endswith(".journal")]
        for _ in range(strange.rng.randrange(3)):
            path = FOLDER / name / strange.rng.choice(segments)
            strange.files.flip(path, strange.rng.randrange(strange.files.size(path)))
    try:
        stage = JournalStage(strange.files, config=CONFIG, set_aside=None, repair=True)
    except Corrupt:
        pytest.fail("it does not start")
    found = contents(stage) if {"q0", "q1"} <= stage.broker.registry.router.queues.keys() else {}
    for what, some in found.items():
        if what != "away":
            assert set(some) <= set(before[what]) or what.startswith("q"), "what was settled may come again"
    stage.journal.close()
    JournalStage(strange.files, config=CONFIG, set_aside=None).journal.close()


@pytest.mark.parametrize("bug", ["encode", "make", "state"])
def test_entry_that_cannot_be_replayed_is_set_aside(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It decodes, and then something raises: a dialect, a queue's terms, a key."""
    stage = JournalStage(config=CONFIG)
    stage.declare("q0")
    publisher = Publisher(stage)
    for number in range(6):
        publisher.publish("q0", number)
        stage.broker.publish(stage.session, [run_of("rec.x", [b'{"id": %d}' % number], exchange=TOPICS)], stage.now)
    stage.turn()
    stage.journal.close()

    def encode(self: AmqpDialect, run: Run, first: int) -> EncodedRun:
        if any(payload.startswith(b"3 ") for payload in map(run.payload, range(len(run)))):
            raise TypeError("a bug")
        return real_encode(self, run, first)

    def make(self: Queues, name: str, *more: Any) -> Queue:
        raise AssertionError("a bug")

    def keep(self: Publishing, state: State, run: Run, first: int, now: float) -> None:
        if run.payload(0) == b'{"id": 0}':
            raise KeyError("a bug")
        real_keep(self, state, run, first, now)

    real_encode, real_keep = AmqpDialect.encode, Publishing.keep
    if bug == "encode":
        monkeypatch.setattr(AmqpDialect, "encode", encode)
    elif bug == "make":
        monkeypatch.setattr(Queues, "restore", make)
    else:
        monkeypatch.setattr(Publishing, "keep", keep)
    again = JournalStage(stage.files, config=CONFIG, set_aside=1)
    (line,) = kept_in(stage.files)
    assert line["why"].endswith(("a bug", "'a bug'"))
    assert (line["what"], line["stream"] == MAIN) == (("a change" if bug == "make" else "records"), bug != "state")
    if bug != "make":
        assert again.all_of("q0") == ([0, 1, 2, 4, 5] if bug == "encode" else [0, 1, 2, 3, 4, 5])


def test_bug_while_a_commit_is_encoded_costs_that_record_alone(caplog: pytest.LogCaptureFixture) -> None:
    stage = JournalStage()
    stage.declare("q0")
    publisher = Publisher(stage)
    odd = run_of("q0", [b"7 "], properties=Properties(user=(("a", None),)))  # type: ignore[arg-type]
    odd.form = object()
    stage.broker.intake.publish_to(stage.session, odd, stage.now)
    publisher.publish("q0", 1)
    stage.turn()
    assert publisher.told == [1]
    assert "1 records of 'q0' by 'client' cannot be written" in caplog.text
    stage.journal.close()
    assert JournalStage(stage.files).all_of("q0") == [1]
