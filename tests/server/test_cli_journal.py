"""``headway journal`` and ``headway export``, on the journal that a real broker has left behind."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pyarrow.parquet as pq
import pytest
from tests.interop.amqp_pika import Pika
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import until
from tests.server.canned import Ran

from headway.cli.export import ExportProgress
from headway.wire.mqtt.packets import TopicRequest

LISTENERS = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n[listeners.amqp]\nurl = "amqp://127.0.0.1:0"\n'
TOPICS = '[[topic]]\nfilter = "flights/#"\nkey = "/tailnum"\nkeep = "7d"\n[[topic]]\nfilter = "boats"\nkeep = "7d"\n'
COUNT = 5


def config_of(folder: Path, topics: str = TOPICS) -> str:
    return f'{LISTENERS}[journal]\npath = "{folder}"\nsegment = "100kB"\n{topics}'


class Left:
    """A journal, and the config of the broker that has left it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal"
        self.config = folder / "headway.toml"

    def segments(self, stream: str) -> list[Path]:
        return sorted(self.path.glob(f"{stream}/*.journal"))

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.path.rglob("*.journal"))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """A session with a subscription of which three records are unsettled, a queue with two, a retained record."""
    folder = tmp_path_factory.mktemp("left")
    left = Left(folder)
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), config_of(left.path))
    try:
        with Raw(broker.ports["mqtt"], "reader", clean_start=True, session_expiry_s=3600) as reader:
            reader.subscribed(TopicRequest("orders/#", 1))
            reader.goodbye()
        client = Pika(broker.ports["amqp"])
        client.channel.queue_declare("work", durable=True)
        client.put("work", b"x" * 1000, b"x" * 1000, delivery_mode=2)
        client.close()
        with Raw(broker.ports["mqtt"], "publisher") as publisher:
            for number in range(COUNT):
                publisher.published(f"flights/{number % 2}", b'{"tailnum": "N%d"}' % number)
            publisher.published("boats", b"\xff\xfe")
            for _ in range(3):
                publisher.published("orders/1", b"y" * 1000)
            publisher.published("state", b"z", retain=True)
        broker.stop()
    finally:
        broker.kill()
    left.config.write_text(config_of(left.path))
    return left


@pytest.fixture
def left(original: Left, tmp_path: Path) -> Left:
    """Of the test's own."""
    copy = Left(tmp_path)
    shutil.copytree(original.path, copy.path)
    copy.config.write_text(config_of(copy.path))
    return copy


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


def test_verify_takes_a_torn_tail_as_a_note(left: Left) -> None:
    segment = left.segments("main")[-1]
    segment.write_bytes(segment.read_bytes() + b"half a batch")
    ran = Ran("journal", "verify", str(left.path))
    assert ran.code == 0
    assert re.search(r"^note .*: the last 12 bytes, .* had not been confirmed and are cut", ran.out, re.MULTILINE)


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


# -- export -----------------------------------------------------------------------------------------------------------


def test_export_as_lines_and_as_parquet(left: Left, tmp_path: Path) -> None:
    ran = Ran("export", "flights/#", "--config", str(left.config))
    assert (ran.code, ran.err) == (0, "")
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [line["key"] for line in lines] == [f"N{number}" for number in range(COUNT)]
    assert [line["topic"] for line in lines] == [f"flights/{number % 2}" for number in range(COUNT)]
    for name in ("a.jsonl", "a.ndjson", "a.JSON"):
        assert Ran("export", "flights/#", "-c", str(left.config), "-o", str(tmp_path / name)).out == ""
        assert (tmp_path / name).read_text() == ran.out
    file = tmp_path / "a.parquet"
    assert Ran("export", "flights/#", "-c", str(left.config), "-o", str(file)).code == 0
    table = pq.read_table(file)
    assert table.column("offset").to_pylist() == [line["offset"] for line in lines]
    assert [payload.decode() for payload in table.column("payload").to_pylist()] == [line["payload"] for line in lines]
    other = tmp_path / "no ending"
    assert Ran("export", "boats", "--journal", str(left.path), "-o", str(other), "--format", "parquet").code == 0
    assert pq.read_table(other).column("payload").to_pylist() == [b"\xff\xfe"]
    assert pq.read_table(other).column("key").to_pylist() == [None]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_export_of_a_range(left: Left) -> None:
    lines = [json.loads(line) for line in Ran("export", "flights/+", "--journal", str(left.path)).out.splitlines()]

    def got(*arguments: str) -> list[str]:
        out = Ran("export", "flights/+", "--journal", str(left.path), "--key", "/tailnum", *arguments).out
        return [json.loads(line)["key"] for line in out.splitlines()]

    first, last = str(lines[1]["offset"]), str(lines[3]["offset"])
    assert got("--from", first, "--to", last) == ["N1", "N2"]
    assert got("--from", lines[3]["timestamp"]) == got("--from", last) == ["N3", "N4"]
    assert got("--from", "-1h") == got() == [f"N{number}" for number in range(COUNT)]
    assert got("--to", "-1h") == []


def test_export_stops_where_a_file_is_damaged_and_says_so(left: Left, tmp_path: Path) -> None:
    (segment,) = left.segments("topic-flights-*")
    data = bytearray(segment.read_bytes())
    data[data.index(b"N3")] ^= 1
    segment.write_bytes(data)
    ran = Ran("export", "flights/#", "-c", str(left.config))
    assert (ran.code, ran.out.count("\n"), ran.err.count("\n")) == (1, 3, 1)
    assert "a batch's checksum is wrong. `headway journal verify` shows all of it" in ran.err


def test_export_beside_a_writer_stops_at_what_is_not_whole(left: Left) -> None:
    (segment,) = left.segments("topic-flights-*")
    segment.write_bytes(segment.read_bytes()[:-5])
    ran = Ran("export", "flights/#", "-c", str(left.config))
    assert (ran.code, ran.out.count("\n"), ran.err) == (0, 4, "")


def test_progress_is_said_after_two_seconds_and_then_each_second() -> None:
    now, out = 100.0, io.StringIO()
    progress = ExportProgress(lambda: now, out)
    progress.add(1000, 5_000_000)
    now += 1.9
    progress.at(0.5)
    assert out.getvalue() == ""
    now += 0.2
    progress.add(500, 0)
    progress.add(500, 0)
    assert out.getvalue() == "headway: 1,500 records, 5 MB, 50%\n"
    now += 1.0
    progress.at(1.0)
    progress.end()
    assert out.getvalue().splitlines()[1:] == ["headway: 2,000 records, 5 MB, 100%"] * 2


# -- from a broker that is none, or goes away -------------------------------------------------------------------------


class _Short(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Begins an answer and does not end it."""
        self.send_response(200)
        self.send_header("Headway-Next-Offset", "9")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"5\r\n{}\n{}\r\n")

    def log_message(self, *_: object) -> None:
        """Tests speak for themselves."""


@pytest.fixture
def short() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Short)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_an_answer_that_ends_too_early_leaves_no_file(short: str, tmp_path: Path, name: str) -> None:
    ran = Ran("export", "a", "--admin", short, "-o", str(tmp_path / name))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "headway: the broker's answer ended too early; ask again\n"
    assert list(tmp_path.iterdir()) == []


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["journal", "journal show", "journal verify", "journal compact", "export"])
def test_help_teaches_by_examples(command: str) -> None:
    ran = Ran(*command.split(), "--help")
    assert ran.code == 0
    if command != "journal":
        assert len(re.findall(rf"^ +headway {command} ", ran.out, re.MULTILINE)) >= 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("journal {} ", "name the journal's folder, or the config of its broker: --config FILE"),
        ("journal {} JOURNAL --config CONFIG", "name the journal's folder, or the config of its broker: --config FILE"),
        ("journal {} TMP/none", "TMP/none: cannot be read: no such file or directory"),
        ("journal {} CONFIG", "CONFIG: cannot be read: not a directory"),
        ("journal {} TMP/empty", "TMP/empty: there is no journal in this folder"),
        ("journal {} --config TMP/plain.toml", "TMP/plain.toml has no [journal]"),
        ("journal {} --config TMP/none", "TMP/none: cannot be read: no such file or directory"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["show", "verify", "compact"])
def test_mistakes_are_one_line(left: Left, tmp_path: Path, command: str, arguments: str, error: str) -> None:
    _one_line(left, tmp_path, arguments.format(command), error)
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("cars --config CONFIG", "cars is not recorded; recorded is flights/#, boats"),
        ("a/#/b --journal JOURNAL", "'#'"), ("+x --journal JOURNAL", "'+'"),
        ("boats --journal JOURNAL --config CONFIG", "--journal and --config say the same: one of them"),
        ("boats --journal TMP/empty", "TMP/empty: there is no journal in this folder"),
        ("boats --journal TMP/bare", "nothing is recorded in TMP/bare"),
        ("boats --journal JOURNAL --from x", 'from="x" is none of: an offset, '),
        ("boats --journal JOURNAL --to earliest", 'to="earliest" is none of: an offset, '),
        ("boats --journal JOURNAL --from 9 --to 8", "to=8 is before from=9"),
        ("boats --journal JOURNAL --key x", "key 'x' is none of"),
        ("boats --key topic --admin http://localhost:1", "--key is for --journal: a broker knows its keys"),
        ("boats --journal JOURNAL --format csv", "--format csv: there are parquet and json"),
        ("boats --journal JOURNAL --format parquet", "Parquet needs a file: -o FILE"),
        ("boats --journal JOURNAL -o TMP/a.txt", "TMP/a.txt: its name does not say what it is to be; "
                                                 "--format parquet or json"),
        ("boats --journal JOURNAL -o TMP/none/a.json", "TMP/none/a.json: cannot be written there"),
        ("boats --journal JOURNAL -o TMP/empty --format json", "TMP/empty: cannot be written there"),
    ],
)  # fmt: skip
def test_mistakes_of_an_export_are_one_line(left: Left, tmp_path: Path, arguments: str, error: str) -> None:
    _one_line(left, tmp_path, f"export {arguments}", error)


def _one_line(left: Left, tmp_path: Path, arguments: str, error: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare" / "main").mkdir(parents=True)
    shutil.copy(left.segments("main")[0], tmp_path / "bare" / "main")
    (tmp_path / "plain.toml").write_text("[pool]\ndisk = 0\n")
    words = {"TMP": str(tmp_path), "JOURNAL": str(left.path), "CONFIG": str(left.config)}
    for word, value in words.items():
        arguments, error = arguments.replace(word, value), error.replace(word, value)
    ran = Ran(*arguments.split())
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("headway: ")
    assert error in ran.err
