"""The lake of a real broker: what stands in it is what happened, by the admin API and by what the clients know."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.raw import Raw
from tests.interop.waiting import until
from tests.passwords import cheap_hash

POLICY = '[[policy]]\nname = "strict"\n[[policy.rule]]\nwhen = { blocked_time = "1s" }\nthen = "disconnect"\n'
SMALL = {"receive_buffer": 4096}
COUNT, SIZE = 500, 2000


def telemetry(folder: Path, **more: str) -> str:
    keys = {"path": str(folder), "every": "1s", **more}
    return "[telemetry]\n" + "".join(f'{key} = "{value}"\n' for key, value in keys.items())


def rows(folder: Path, table: str, **where: Any) -> list[dict[str, Any]]:
    """As a reader finds them at this moment, in the order of their time."""
    files = sorted(folder.glob(f"{table}/date=*/*.parquet"))
    found = [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]
    found = [row for row in found if all(row[name] == value for name, value in where.items())]
    return sorted(found, key=lambda row: row["time"])


def test_what_is_in_the_lake_is_what_happened(start: BrokerFactory, tmp_path: Path, name: str) -> None:
    lake = tmp_path / "lake"
    broker = start(POLICY + telemetry(lake), server={"send_buffer": "16KiB", "name": "edge"})
    stuck = Raw(broker.port, f"{name}-stuck", **SMALL).subscribed(f"{name}/#")
    healthy = Raw(broker.port, f"{name}-healthy").subscribed(f"{name}/#")
    publisher = Raw(broker.port, f"{name}-publisher")
    publisher.publish_all(f"{name}/a", [b"x" * SIZE] * COUNT)
    healthy.messages(COUNT)
    (verdict,) = until(lambda: broker.verdicts(f"{name}-stuck"), what="a verdict")
    consumer = broker.consumer(f"{name}-healthy")
    until(lambda: rows(lake, "verdicts"), what="the verdict is in the lake while the broker runs")
    broker.stop()

    (written,) = rows(lake, "verdicts")
    for column in ("number", "client", "filter", "policy", "rule", "kind", "reason", "cause", "text"):
        assert written[column] == verdict[column], column
    assert written["action"] == verdict["action"]["kind"] == "disconnect"
    assert written["time"].timestamp() == pytest.approx(verdict["wall_s"], abs=1e-5)

    last = rows(lake, "consumer_samples", client=f"{name}-stuck")[-1]
    assert (last["ended"], last["connected"], last["broker"]) == ("blocked", False, "edge")
    assert last["offered_records"] == COUNT
    assert last["subscription"] == written["subscription"]
    assert last["blocked_ms"] >= 1000
    frame = last["offered_bytes"] // COUNT
    assert last["offered_bytes"] == frame * COUNT
    assert SIZE < frame < SIZE + 50

    kept_up = rows(lake, "consumer_samples", client=f"{name}-healthy")[-1]
    assert kept_up["drained_records"] == COUNT == consumer["delivered_records"]
    assert kept_up["drained_bytes"] == frame * COUNT == consumer["delivered_bytes"]
    assert (kept_up["lag_records"], kept_up["ended"]) == (0, "shutdown")

    whole = rows(lake, "broker_samples")[-1]
    assert whole["published_records"] >= COUNT
    assert whole["delivered_records"] >= COUNT + last["drained_records"]
    assert whole["dropped_rows"] == 0
    lane = rows(lake, "topic_samples", lane=last["lane"])[-1]
    assert (lane["offered_records"], lane["offered_bytes"]) == (COUNT, frame * COUNT)
    assert len({row["run"] for table in ("consumer_samples", "verdicts", "configs") for row in rows(lake, table)}) == 1
    for client in (stuck, healthy, publisher):
        client.close()


def test_a_reload_is_put_on_record_and_users_never_are(start: BrokerFactory, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    users = f'[auth.users]\nalice = "{cheap_hash("secret")}"\n'
    broker = start(POLICY + users + telemetry(lake))
    broker.write(POLICY.replace("1s", "7s") + users + telemetry(lake, every="2s"))
    broker.signal(signal.SIGHUP)
    until(lambda: len(rows(lake, "configs")) == 2, what="a row of the new config")
    broker.stop()
    first, second = [json.loads(row["config"]) for row in rows(lake, "configs")]
    assert [one["policy"][0]["rule"][0]["when"] for one in (first, second)] == [
        {"blocked_time": "1s"}, {"blocked_time": "7s"},
    ]  # fmt: skip
    assert set(first) == set(second) == {"policy", "topic"}
    log = broker.log.read_text()
    assert "effective only after a restart: [telemetry]" in log
    assert not any(b"scrypt" in path.read_bytes() for path in lake.rglob("*.parquet"))


def test_a_killed_broker_leaves_whole_files_and_the_next_one_goes_on(start: BrokerFactory, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    config = POLICY + telemetry(lake)
    first = start(config)
    until(lambda: rows(lake, "broker_samples"), what="the first rows")
    first.kill()
    before = rows(lake, "broker_samples")
    second = start(config)
    until(lambda: len({row["run"] for row in rows(lake, "broker_samples")}) == 2, what="rows of the next run")
    second.stop()
    assert rows(lake, "broker_samples")[: len(before)] == before


def test_a_disk_that_fails_costs_rows_and_nothing_else(start: BrokerFactory, tmp_path: Path, name: str) -> None:
    lake = tmp_path / "lake"
    broker = start(POLICY + telemetry(lake))
    lake.rename(tmp_path / "gone")
    lake.write_bytes(b"in the way")

    def dropped() -> int:
        return int(broker.get("/v1/broker")["telemetry"]["dropped_rows"])

    until(dropped, what="rows are dropped")
    assert b"headway_telemetry_dropped_rows_total" in broker.call("/metrics")[1]
    with Raw(broker.port, name) as client:
        client.subscribed(name).published(name, b"still here")
        assert client.message().payload == b"still here"
    lake.unlink()
    lost = dropped()
    whole = until(lambda: rows(lake, "broker_samples"), what="the disk is back, and so are the rows")
    assert whole[-1]["dropped_rows"] >= lost
    broker.stop()
    assert broker.log.read_text().count("could not be written") == 1


@pytest.mark.parametrize("why", ["no pyarrow", "no place"])
def test_what_cannot_be_is_one_line_and_exit_code_2(tmp_path: Path, why: str) -> None:
    path = tmp_path / "lake"
    if why == "no place":
        path.write_bytes(b"")
    config = tmp_path / "headway.toml"
    config.write_text('[server]\nadmin = false\n[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n[pool]\ndisk = 0\n'
                      + telemetry(path))
    hide = "import sys; sys.modules['pyarrow'] = None\n" if why == "no pyarrow" else ""
    code = f"{hide}import sys; sys.argv = ['', 'serve', '-c', {str(config)!r}]\nfrom headway.cli import main\nmain()"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert answer.returncode == 2, answer.stderr
    (line,) = [line for line in answer.stderr.splitlines() if "has no disk" not in line]
    assert "telemetry" in line
    assert ("pip install 'headway[telemetry]'" in line) == (why == "no pyarrow")


def test_switched_off_it_writes_nothing(start: BrokerFactory, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    broker = start(POLICY + telemetry(lake) + "enabled = false\n")
    assert "telemetry" not in broker.get("/v1/broker")
    broker.stop()
    assert not lake.exists()
