"""`headway verdicts`: what a pager's owner sees, from a broker and from the files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.server.canned import Ran

from headway.cli.verdicts import to_rows
from headway.core.base import Cause
from headway.core.policy.rules.condition import Reading
from headway.store.history import EntryKind, HistoryEntry, encode_entry, utc

NOW = time.time()


def entry(back_s: float, client: str = "display-7", **more: Any) -> HistoryEntry:
    """``back_s`` seconds ago."""
    values: dict[str, Any] = {
        "wall_s": NOW - back_s, "time": utc(NOW - back_s), "kind": EntryKind.VERDICT, "run": "r1", "client": client,
        "number": 1, "decision": "fire", "filter": "s/#", "policy": "p", "rule": 1, "action": "notify",
        "enforced": True, "cause": Cause.NETWORK, "reason": "blocked",
        "readings": (Reading("blocked_time", 31.2, ">", 30.0),),
        "text": f"{client} on s/#: no bytes taken for 31.2 s; reported as slow",
    }  # fmt: skip
    return HistoryEntry(**{**values, **more})


def clear(back_s: float, held_s: float, **more: Any) -> HistoryEntry:
    return entry(back_s, decision="clear", cause=None, held_s=held_s, **more)


FLAPPING = [one for back_s in range(4000, 3800, -20) for one in (entry(back_s), clear(back_s - 8, 8.0))]
"""Ten times for eight seconds."""
CUT = entry(3000, action="disconnect", rule=2, text="display-7 on s/#: gone\x1b[2J")
NIGHT = [*FLAPPING, CUT, entry(100, "other/9", cause=Cause.OVER_SUBSCRIPTION)]


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was run since this file was imported: with a slow machine and all the tests that may be half an hour."""
    monkeypatch.setattr("headway.cli.verdicts.time.time", lambda: NOW)


# -- episodes ----------------------------------------------------------------------------------------------------------


def test_a_verdict_and_what_steps_it_back_are_one_row() -> None:
    (row,) = to_rows([entry(100), clear(70, 30.0)])
    assert (row.count, row.seconds, row.open, row.cause) == (1, 30.0, False, "network")
    assert round(row.ended_s - row.began_s) == 30


def test_who_comes_and_goes_is_one_row_with_a_count_unless_each_is_asked_for() -> None:
    (row,) = to_rows(FLAPPING)
    assert (row.count, row.seconds, row.open) == (10, 80.0, False)
    assert len(to_rows(FLAPPING, fold=False)) == 10


def test_what_the_broker_has_folded_is_counted() -> None:
    (row,) = to_rows([entry(100), clear(90, 10.0), entry(85, relapses=1), clear(10, 75.0, relapses=9)])
    assert (row.count, row.open) == (10, False)


def test_what_is_far_apart_or_of_others_is_not_folded() -> None:
    assert len(to_rows([entry(4000), clear(3990, 10.0), entry(3000), clear(2990, 10.0)])) == 2
    assert len(to_rows([entry(100), entry(99, "other"), entry(98, rule=2), entry(97, filter="t")])) == 4


def test_a_rule_that_never_stepped_back_is_open_until_its_consumer_goes() -> None:
    (row,) = to_rows([entry(100)])
    assert row.open
    notified, cut = to_rows([entry(100), entry(60, action="disconnect", rule=2)])
    assert (notified.open, round(notified.seconds), cut.open) == (False, 40, False)
    gone = HistoryEntry(wall_s=NOW - 60, time="", kind=EntryKind.END, run="r1", client="display-7", reason="normal")
    ended, _ = to_rows([entry(100), gone])
    assert not ended.open
    still, _ = to_rows([entry(100), entry(60, action="disconnect", rule=2, enforced=False)])
    assert still.open, "a dry run cuts nobody"


def test_what_an_operator_asked_for_is_done_once_and_never_open() -> None:
    (row,) = to_rows([entry(100, action="conflate", cause=Cause.OPERATOR, policy="", rule=0)])
    assert not row.open


def test_a_restart_ends_no_episode_of_the_run_before() -> None:
    rows = to_rows([entry(100), clear(70, 5.0, run="r2")])
    assert [row.open for row in rows] == [True, False]


def test_what_fired_before_the_time_asked_for_has_its_length_all_the_same() -> None:
    (row,) = to_rows([clear(70, 500.0)])
    assert (row.seconds, row.open, round(row.ended_s - row.began_s)) == (500.0, False, 500)


def test_a_rule_steps_back_once() -> None:
    first, second = to_rows([entry(100), clear(70, 30.0), clear(10, 5.0)], fold=False)
    assert (first.seconds, second.seconds) == (30.0, 5.0)


def test_the_commonest_cause_is_told() -> None:
    causes = [Cause.NETWORK, Cause.APPLICATION, Cause.APPLICATION]
    (row,) = to_rows([entry(100 - number, cause=cause) for number, cause in enumerate(causes)])
    assert row.cause == "application"


# -- the files ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "verdicts-00000001.jsonl").write_bytes(b"".join(encode_entry(one) + b"\n" for one in NIGHT))
    end = HistoryEntry(wall_s=NOW - 2999, time="", kind=EntryKind.END, run="r1", client="display-7", reason="blocked",
                address="127.0.0.1:9", listener="mqtt", lasted_s=90.0, admitted=True, user="alice")  # fmt: skip
    (tmp_path / "ends-00000001.jsonl").write_bytes(encode_entry(end) + b"\n")
    return tmp_path


def test_the_table(folder: Path) -> None:
    ran = Ran("verdicts", "--path", str(folder))
    assert (ran.code, ran.err) == (0, "")
    head, *lines = ran.out.splitlines()
    assert head.split() == ["WHEN", "CONSUMER", "DONE", "CAUSE", "HOW", "LONG", "WHY"]
    flapping, cut, other = [line for line in lines if "s/#)" in line]
    assert "notify x 10" in flapping
    assert "network" in flapping
    assert "80 s" in flapping
    assert "no bytes taken for 31.2 s; reported as slow" in flapping
    assert "gone\ufffd[2J" in cut
    assert "\x1b[2J" not in ran.out
    assert "over-subscription" in other
    assert "open" in other


def test_on_a_narrow_terminal_the_sentence_is_below_its_row(folder: Path) -> None:
    lines = Ran("verdicts", "--path", str(folder), width=80).out.splitlines()
    assert len(lines) == 6
    assert lines[1] == "    no bytes taken for 31.2 s; reported as slow"


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (["--all"], 12), (["--last", "1"], 1), (["--since", "30m"], 1), (["--until", "30m"], 2), (["--ends"], 4),
        (["--client", "display-7"], 2), (["--client", "*/9"], 1), (["--cause", "over-subscription"], 1),
        (["--action", "disconnect"], 1), (["--cause", "network", "--action", "notify"], 1),
    ],
)  # fmt: skip
def test_what_can_be_asked_for(folder: Path, arguments: list[str], rows: int) -> None:
    ran = Ran("verdicts", "--path", str(folder), *arguments, width=80)
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 2 * rows


def test_as_json_each_is_a_line_and_the_latest_is_the_last(folder: Path) -> None:
    lines = Ran("verdicts", "--path", str(folder), "--json").out.splitlines()
    assert len(lines) == len(NIGHT)
    assert json.loads(lines[-1])["client"] == "other/9"
    assert len(Ran("verdicts", "--path", str(folder), "--json", "--last", "2").out.splitlines()) == 2


def test_nothing_found_is_exit_code_1(folder: Path) -> None:
    ran = Ran("verdicts", "--path", str(folder), "--client", "nobody", "--since", "8h")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("headway: nothing was decided about nobody since ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--since", "yesterday"], "is not a time such as"), (["--cause", "ghosts"], "--cause ghosts: one of network,"),
        (["--path", "/nowhere"], "/nowhere: there is no history in this folder"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(arguments: list[str], says: str) -> None:
    ran = Ran("verdicts", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


def test_a_config_names_the_folder(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "headway.toml"
    config.write_text(f'[history]\npath = "{folder}"\n')
    assert Ran("verdicts", "--config", str(config)).code == 0
    config.write_text("")
    assert "there is no history: add [history], or a [journal]" in Ran("verdicts", "--config", str(config)).err


# -- a broker ----------------------------------------------------------------------------------------------------------


class Lines(ThreadingHTTPServer):
    """An admin API that answers /v1/verdicts, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[dict[str, list[str]]] = []
        self.state: str | None = "on"
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Lines

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        assert parts.path == "/v1/verdicts"
        self.server.asked.append(parse_qs(parts.query))
        raw = b"".join(encode_entry(one) + b"\n" for one in reversed(NIGHT))
        self.send_response(200)
        if self.server.state is not None:
            self.send_header("Headway-History", self.server.state)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Tests speak for themselves."""


@pytest.fixture
def broker() -> Iterator[Lines]:
    server = Lines()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_broker_is_asked(broker: Lines) -> None:
    before = time.time()
    ran = Ran("verdicts", "--since", "8h", "--client", "display-*", "--cause", "network", "--admin", broker.url)
    assert (ran.code, ran.err) == (0, "")
    assert "notify x 10" in ran.out
    (asked,) = broker.asked
    assert before - 1 <= float(asked.pop("since")[0]) + 28_800 <= time.time() + 1
    assert asked == {"client": ["display-*"], "cause": ["network"], "kind": ["verdict"], "limit": ["10000"]}


def test_where_there_is_no_history_it_is_said(broker: Lines) -> None:
    broker.state = "off"
    assert "keeps no history" in Ran("verdicts", "--admin", broker.url).err
    broker.state = "failing"
    assert "cannot be written now" in Ran("verdicts", "--admin", broker.url).err
    broker.state = None
    assert "is not headway's admin API" in Ran("verdicts", "--admin", broker.url).err


def test_without_a_broker_it_is_said_that_the_files_can_be_read() -> None:
    ran = Ran("verdicts", "--admin", "http://127.0.0.1:1")
    assert ran.code == 2
    assert "headway verdicts --config FILE" in ran.err
