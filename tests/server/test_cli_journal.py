"""``headway journal show``, ``verify`` and ``compact``, on the journal that a real broker has left behind."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interop.amqp_pika import Pika
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import until
from tests.server.canned import Ran
from tests.server.journal_commands import COUNT, TOPICS, Left, config_of
from tests.server.journal_commands import left as left
from tests.server.journal_commands import original as original

from headway.server.journal.entries import METADATA
from headway.store.journal.disk import REAL
from headway.store.journal.journal import Journal
from headway.store.journal.manifest import MANIFEST_NAME
from headway.store.journal.segments.batch import Entry
from headway.store.journal.segments.segment import file_name

# -- show -------------------------------------------------------------------------------------------------------------


def test_show(left: Left) -> None:
    before = {path: path.read_bytes() for path in left.path.rglob("*.journal")}
    ran = Ran("journal", "show", "--config", str(left.config))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{left.path}: 4 streams, ")
    rows = {line.split()[0]: re.split(r"\s{2,}", line) for line in ran.out.splitlines() if line}
    assert next(iter(row[0] for name, row in rows.items() if name.startswith("topic-flights"))).endswith("(flights/#)")
    flights = next(row for name, row in rows.items() if name.startswith("topic-flights"))
    assert flights[1:3] == ["1", "5"]
    assert re.fullmatch(r"\d+ to \d+", flights[3])
    assert re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) to \1?.*Z", flights[4])
    assert rows["retained"][1:3] == ["1", "1"]
    assert "kept: 1 session, 1 subscription, 1 queue, 0 exchanges, 1 retained record\n" in ran.out
    assert rows["reader"][:3] == ["reader", "orders/#", "3"]
    assert rows["work"][:3] == ["work", "(a queue)", "2"]
    assert {path: path.read_bytes() for path in left.path.rglob("*.journal")} == before


def test_show_as_json_and_by_segments(left: Left) -> None:
    told = json.loads(Ran("journal", "show", str(left.path), "--json").out)
    assert (told["sessions"], told["retained"], told["exchanges"]) == (1, 1, 0)
    assert {holder["name"]: holder["records"] for holder in told["holders"]} == {"reader": 3, "work": 2}
    streams = {stream["name"].rpartition("-")[0] or stream["name"]: stream for stream in told["streams"]}
    assert {name: streams[name]["records"] for name in ("topic-flights", "topic-boats")} == {
        "topic-flights": 5, "topic-boats": 1,
    }  # fmt: skip
    assert all(stream["filter"] is None for stream in told["streams"])
    assert sum(stream["bytes"] for stream in told["streams"]) == left.bytes
    out = Ran("journal", "show", str(left.path), "--segments").out
    assert out.count(".journal ") == len(list(left.path.rglob("*.journal")))


# -- verify -----------------------------------------------------------------------------------------------------------


def test_verify_says_everything_that_is_wrong(left: Left) -> None:
    ran = Ran("journal", "verify", str(left.path))
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(r"\S+: 4 streams, \d+ segments, \S+ kB; all of it is sound\n", ran.out)
    for stream, text in (("topic-flights-*", b"N1"), ("topic-flights-*", b"N3"), ("main", b"y" * 1000)):
        (segment,) = [path for path in left.segments(stream) if text in path.read_bytes()]
        data = bytearray(segment.read_bytes())
        data[data.index(text)] ^= 1
        segment.write_bytes(data)
    ran = Ran("journal", "verify", "--config", str(left.config))
    assert (ran.code, ran.err) == (1, "")
    lost = [line for line in ran.out.splitlines() if line.startswith("LOST  ")]
    assert len(lost) == 3
    assert all("a batch's checksum is wrong" in line for line in lost)
    assert "3 losses: with `headway serve --repair` a broker goes on with what can be read\n" in ran.out
    shown = Ran("journal", "show", str(left.path))
    assert (shown.code, shown.out) == (2, "")
    assert "is damaged at byte" in shown.err


def _delete(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def _remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("damage", [_delete, _empty, _cut, _remove_folder])
@pytest.mark.parametrize("stream", ["main", "retained", "topic-flights-*"])
def test_verify_a_start_show_and_export_say_which_file_is_missing_or_cut(
    left: Left, stream: str, damage: Callable[[Path], None]
) -> None:
    segment = left.segments(stream)[-1]
    damage(segment)
    ran = Ran("journal", "verify", str(left.path))
    assert (ran.code, ran.err) == (1, "")
    (line,) = [line for line in ran.out.splitlines() if line.startswith("LOST  ")]
    place = str(segment if segment.parent.exists() else segment.with_name(file_name(1)))
    assert place in line
    assert "lost" in line
    refused = Ran("serve", "--config", str(left.config))
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(f"headway: journal: {place} is ")
    assert "with `--repair` Headway goes on with what can be read, and says what is lost" in refused.err
    assert Ran("journal", "verify", str(left.path)).out == ran.out, "a start that is refused changes nothing"
    exported = Ran("export", "flights/#", "--journal", str(left.path))
    if stream.startswith("topic") and not segment.exists():
        assert exported.code == 1
        assert f"{segment}: is missing" in exported.err
    backup = Ran("journal", "backup", str(left.path.parent / "backup"), "--journal", str(left.path))
    assert backup.code == 2
    assert "the copy is not sound" in backup.err


def test_verify_says_that_the_manifest_is_missing(left: Left) -> None:
    (left.path / MANIFEST_NAME).unlink()
    ran = Ran("journal", "verify", str(left.path))
    assert (ran.code, ran.err) == (1, "")
    assert f"LOST  {left.path / MANIFEST_NAME} is missing: it lists the segments" in ran.out
    assert ": 4 streams, " in ran.out
    backup = Ran("journal", "backup", str(left.path.parent / "backup"), "--journal", str(left.path))
    assert backup.code == 2
    assert "manifest is missing" in backup.err


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


@pytest.mark.parametrize(
    ("place", "damage", "what"),
    [
        ("manifest", _folder, "a folder"), ("manifest", _pipe, "a pipe"), ("lock", _folder, "a folder"),
        ("retained", _file, "a file"), (f"main/{file_name(1)}", _folder, "a folder"),
        (f"main/{file_name(1)}", _pipe, "a pipe"),
    ],
)  # fmt: skip
def test_verify_and_a_start_name_what_is_in_the_place_of_a_file(
    left: Left, place: str, damage: Callable[[Path], None], what: str
) -> None:
    damage(left.path / place)
    line = f"{left.path / place} is missing: {what} is in its place"
    ran = Ran("journal", "verify", str(left.path))
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith(f"LOST  {line}")
    refused = Ran("serve", "--config", str(left.config))
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert refused.err.startswith(f"headway: journal: {line}")
    assert Ran("journal", "compact", str(left.path)).code == 2
    Ran("journal", "show", str(left.path))  # shows what it can


def test_a_start_leaves_folders_alone_that_are_no_streams(left: Left) -> None:
    names = ["lost+found", ".snapshot", ".Trash-0", "main.bak", "Topic X"]
    for name in names:
        shutil.copytree(left.path / "main", left.path / name)
    before = {path: path.read_bytes() for name in names for path in (left.path / name).iterdir()}
    assert Ran("journal", "verify", str(left.path)).code == 0
    assert Ran("journal", "compact", str(left.path)).code == 0
    broker = BrokerProcess(left.config.parent, config_of(left.path))
    try:
        with Raw(broker.ports["mqtt"], "reader", clean_start=False, session_expiry_s=3600) as reader:
            assert [message.payload for message in reader.messages(3)] == [b"y" * 1000] * 3
        broker.stop()
    finally:
        broker.kill()
    assert {path: path.read_bytes() for path in before} == before


def test_an_error_of_the_disk_is_told_with_its_file(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    (segment, *_) = left.segments("main")

    def fails(*args: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("headway.store.journal.segments.segment.read_all", fails)
    for arguments in (["journal", "verify", str(left.path)], ["serve", "--config", str(left.config)]):
        ran = Ran(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.endswith("input/output error\n")
        assert str(segment) in ran.err
        assert "another folder" not in ran.err


def test_verify_takes_a_torn_tail_as_a_note(left: Left) -> None:
    segment = left.segments("main")[-1]
    segment.write_bytes(segment.read_bytes() + b"half a batch")
    ran = Ran("journal", "verify", str(left.path))
    assert ran.code == 0
    assert re.search(r"^note .*: the last 12 bytes, .* had not been confirmed and are cut", ran.out, re.MULTILINE)


def test_verify_and_a_start_say_the_same_of_an_odd_entry(left: Left, tmp_path: Path) -> None:
    """Its checksum is right, and it means nothing; the broker starts and counts it."""
    journal = Journal(REAL, left.path)
    journal.open(["main"])
    journal.commit({"main": [Entry(METADATA, 2**63, 0, (b"\x93\xa4oddx\xc0\xc0",))]}, 1)
    journal.close()
    ran = Ran("journal", "verify", str(left.path))
    assert (ran.code, ran.err) == (1, "")
    (line,) = [line for line in ran.out.splitlines() if line.startswith("ASIDE")]
    assert line.startswith(f"ASIDE main: a change at sequence {2**63}, 8 bytes: ValueError: a change of 'oddx'")
    assert ran.out.endswith("; a broker that starts sets aside 1 entry\n")
    (tmp_path / "broker").mkdir()
    broker = BrokerProcess(tmp_path / "broker", left.config.read_text())
    try:
        assert broker.get("/v1/broker")["journal"]["set_aside"] == 1
    finally:
        broker.kill()
    (kept,) = (left.path / "set-aside.jsonl").read_text().splitlines()
    assert json.loads(kept)["why"] in line
    assert Ran("journal", "show", str(left.path)).code == 0


# -- compact ----------------------------------------------------------------------------------------------------------


def test_compact_keeps_all_that_somebody_needs(left: Left) -> None:
    before = json.loads(Ran("journal", "show", str(left.path), "--json").out)
    ran = Ran("journal", "compact", str(left.path))
    assert (ran.code, ran.err) == (0, "")
    after = json.loads(Ran("journal", "show", str(left.path), "--json").out)
    assert [after[name] for name in ("sessions", "retained", "exchanges", "holders")] == [
        before[name] for name in ("sessions", "retained", "exchanges", "holders")
    ]
    assert Ran("export", "#", "--journal", str(left.path)).out.count("\n") == COUNT + 1
    assert Ran("journal", "verify", str(left.path)).code == 0
    broker = BrokerProcess(left.config.parent, config_of(left.path))
    try:
        with Raw(broker.ports["mqtt"], "reader", clean_start=False, session_expiry_s=3600) as reader:
            assert [message.payload for message in reader.messages(3)] == [b"y" * 1000] * 3
        with Raw(broker.ports["mqtt"], "other") as other:
            other.subscribed("state")
            assert other.message().payload == b"z"
        broker.stop()
    finally:
        broker.kill()


def run_again(left: Left, publish: Callable[[Raw], int]) -> None:
    """The broker once more: something is published, of which so many go to the reader, and all is settled."""
    broker = BrokerProcess(left.config.parent, config_of(left.path))
    try:
        with Raw(broker.ports["mqtt"], "reader", clean_start=False, session_expiry_s=3600) as reader:
            with Raw(broker.ports["mqtt"], "publisher") as publisher:
                count = publish(publisher)
            for message in reader.messages(3 + count):
                reader.ack(message)
            until(lambda: broker.consumer("reader")["in_flight"] == 0, what="all is settled")
            reader.goodbye()
        client = Pika(broker.ports["amqp"])
        client.channel.queue_purge("work")
        client.close()
        broker.stop()
    finally:
        broker.kill()


def test_compact_frees_what_is_settled(left: Left) -> None:
    def publish(publisher: Raw) -> int:
        for number in range(40):
            publisher.published("orders/1", b"%02d" % number * 5000)
            publisher.published("state", b"%02d" % number * 2000, retain=True)
        return 40

    run_again(left, publish)
    left.config.write_text(config_of(left.path))
    before = left.bytes
    ran = Ran("journal", "compact", "--config", str(left.config))
    assert (ran.code, ran.err) == (0, "")
    assert before > 480_000
    assert left.bytes < 20_000
    assert re.search(r"^main: 4\d\d kB, now \S+ (k?)B$", ran.out, re.MULTILINE)
    assert re.search(r"^\d\d\d kB are free; [\d.]+ kB are left\.$", ran.out, re.MULTILINE)
    again = Ran("journal", "compact", "--config", str(left.config))
    assert (again.code, left.bytes < 20_000) == (0, True)
    told = json.loads(Ran("journal", "show", str(left.path), "--json").out)
    assert {holder["name"]: holder["records"] for holder in told["holders"]} == {"reader": 0, "work": 0}
    assert told["retained"] == 1


def test_compact_gives_up_nothing_for_want_of_memory(left: Left) -> None:
    broker = BrokerProcess(left.config.parent, config_of(left.path))
    try:
        client = Pika(broker.ports["amqp"])
        client.put("work", *[b"w" * 100_000] * 30, delivery_mode=2)
        client.close()
        with Raw(broker.ports["mqtt"], "publisher") as publisher:
            for _ in range(30):
                publisher.published("orders/1", b"y" * 100_000)
        broker.stop()
    finally:
        broker.kill()
    left.config.write_text('[pool]\nmemory = "1MB"\ndisk = "50MB"\n' + config_of(left.path))
    assert Ran("journal", "compact", "--config", str(left.config)).code == 0
    told = json.loads(Ran("journal", "show", "--config", str(left.config), "--json").out)
    assert {holder["name"]: holder["records"] for holder in told["holders"]} == {"reader": 33, "work": 32}


def test_compact_shortens_what_is_recorded(left: Left) -> None:
    def publish(publisher: Raw) -> int:
        for number in range(40):
            publisher.published("boats", b"%02d" % number * 5000)
        return 0

    run_again(left, publish)
    for topics, least, most in ((TOPICS, 400_000, 450_000), (TOPICS.replace("7d", "150kB"), 100_000, 250_000)):
        left.config.write_text(config_of(left.path, topics))
        assert Ran("journal", "compact", "--config", str(left.config)).code == 0
        assert least < sum(path.stat().st_size for path in left.segments("topic-boats-*")) < most
