"""``headway export`` on the journal that a real broker has left behind, and the mistakes that both commands name."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pyarrow.parquet as pq
import pytest
from tests.server.canned import Ran
from tests.server.journal_commands import COUNT, Left
from tests.server.journal_commands import left as left
from tests.server.journal_commands import original as original

from headway.cli.export import ExportProgress

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
