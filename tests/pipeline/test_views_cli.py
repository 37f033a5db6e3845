"""``headway pipeline views``: a process of its own, until it is told to stop; and how it shows its views."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.interop.conftest import BrokerFactory
from tests.interop.raw import Raw
from tests.interop.records import recording
from tests.interop.waiting import until

from headway.cli.pipeline import Plain, draw
from headway.pipeline.views.publish import ROWS, Status
from headway.server.config.settings import ViewTable

COMMAND = [sys.executable, "-m", "headway", "pipeline", "views"]
START_S = 180.0
CONFIG = """
[[topic]]
filter = "flights/#"
keep = "7d"
[views.good]
sql = "SELECT carrier, count(*) AS n FROM flights GROUP BY carrier"
topic = "views/good"
key = "carrier"
every = 0
[views.bad]
sql = "SELECT carier FROM flights"
topic = "views/bad"
key = "carrier"
"""
VIEW = ViewTable(sql="SELECT 1", topic="views/a", key="a")


def views(*arguments: object) -> tuple[int, str]:
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_it_runs_until_it_is_told_to_stop_and_says_which_failed(start: BrokerFactory, tmp_path: Path) -> None:
    broker = start(recording(tmp_path / "journal", CONFIG))
    folder, errors = tmp_path / "views", tmp_path / "errors"
    with Raw(broker.ports["mqtt"], "client").subscribed("views/#") as client:
        client.published("flights/1", b'{"carrier": "UA"}')
        arguments = ["-c", str(broker.config), "--checkpoint", str(folder), "--admin", broker.admin]
        with (
            errors.open("w") as file,
            subprocess.Popen([*COMMAND, *arguments], stdout=file, stderr=file, start_new_session=True) as running,
        ):
            try:
                assert json.loads(client.message(START_S).payload) == {"carrier": "UA", "n": 1}
                assert views(*arguments) == (
                    2, f"headway: {folder} is in use by another run; wait for its end\n",
                )  # fmt: skip
                until(lambda: "good to views/good: running, 1 records read" in errors.read_text(), what="it says so")
                running.terminate()
                assert running.wait(START_S) == 1
            finally:
                running.kill()
    said = errors.read_text()
    columns = "carrier, _offset, _timestamp, _topic, _key, _deleted, timestamp"
    assert f"headway: view bad: there is no column carier: those of flights are {columns}\n" in said
    assert not {"Exception", "Traceback", "WARN", "\tat "} & set(said.replace("\n", " ").split(" "))
    broker.stop()


@pytest.mark.parametrize(
    ("config", "arguments", "says"),
    [
        ("[journal]\n", [], "there are no views in this file: [views.NAME] with sql, topic and key"),
        ("[journal]\n" + CONFIG, ["god"], "there is no view god: there are good, bad"),
        ("[journal]\n[server]\nadmin = false\n" + CONFIG, [], "the config does not say where the broker's admin"),
        (CONFIG, [], "topic[1].keep: records are kept in the journal, and there is none"),
    ],
)
def test_a_mistake_is_found_before_spark_is_started(
    tmp_path: Path, config: str, arguments: list[str], says: str
) -> None:
    path = tmp_path / "headway.toml"
    path.write_text(config)
    code, said = views("-c", path, "--checkpoint", tmp_path / "views", *arguments)
    assert (code, says in said.splitlines()[0]) == (2, True), said
    assert not (tmp_path / "views").exists()


def progress(number: int, **more: Any) -> dict[str, Any]:
    return {
        "batchId": number, "durationMs": {"triggerExecution": 250},
        "stateOperators": [{"numRowsDroppedByWatermark": 1}],
        "sources": [{"numInputRows": 1_000, "endOffset": '{"offset": 50}', "latestOffset": '{"offset": 70}'}],
        "observedMetrics": {ROWS: {"values": [5]}, "flights": {"values": [2, "topic a, offset 3: \x1b[0m", 3]}},
    } | more  # fmt: skip


def test_batches_are_added_up_once_each_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = Status("delay", VIEW), Status("other", VIEW)
    show = Plain()
    show([one, other])
    one.add(progress(0, observedMetrics={}))  # it waits for its first batch
    for number in (0, 1, 1, 0):
        one.add(progress(number, **({"durationMs": None} if number else {})))
    assert one.deletes == 6
    assert (one.records, one.published, one.misfits, one.late, one.behind, one.batch_ms) == (2_000, 10, 4, 2, 20, 0)
    other.end("it is broken")
    for _ in range(2):
        show([one, other])
    found = capsys.readouterr()
    assert found.out == (
        "delay to views/a: running, 2,000 records read, 10 published, the last batch took 0 s, 20 behind, 2 too late, "
        "6 deletes left out, 4 misfits left out\n"
    )
    assert found.err.splitlines() == [
        "headway: view delay: 4 left out; the last: topic a, offset 3: \ufffd[0m",
        "headway: view other: it is broken",
    ]
    screen = Console(file=io.StringIO(), width=120, force_terminal=False)
    screen.print(draw([one, other]))
    assert isinstance(screen.file, io.StringIO)
    assert [line.split() for line in screen.file.getvalue().splitlines()] == [
        ["VIEW", "TOPIC", "STATE", "READ", "PUBLISHED", "BATCHES", "LAST", "TOOK", "BEHIND", "LATE", "DELETES",
         "MISFITS"],
        ["delay", "views/a", "running", "2,000", "10", "2", "0", "s", "20", "2", "6", "4"],
        ["other", "views/a", "ended", "0", "0", "0", "0", "s", "0", "0", "0", "0"],
    ]
