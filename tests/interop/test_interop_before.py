"""What earlier releases have left on disk opens in this one, and has all that was confirmed then."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pika
import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.of_before import ACKED, FOLDERS, JOBS, NEVER, ORDERS, PLACE, RECORDED, config
from tests.interop.pahos import paho, properties

from headway.pipeline.lake import check_lake
from headway.server.config import lint, load_settings


@pytest.mark.parametrize("release", sorted(path.name for path in FOLDERS.iterdir()))
def test_a_journal_of_before(start: BrokerFactory, tmp_path: Path, release: str) -> None:
    shutil.copytree(FOLDERS / release / "journal", tmp_path / "journal")
    of_then = FOLDERS / release / "headway.toml"
    broker = start(of_then.read_text().replace(PLACE, str(tmp_path)) if of_then.exists() else config(tmp_path))
    lasting = properties("CONNECT", SessionExpiryInterval=NEVER)
    with paho(broker.ports["mqtt"], "away", clean=False, connect=lasting) as away:
        assert away.connect_flags.session_present
        got = away.wait(2 * ORDERS)
    for topic in ("orders/a", "tasks"):
        assert [int(one.payload) for one in got if one.topic == topic] == list(range(ORDERS))

    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.ports["amqp"])) as connection:
        channel = connection.channel()
        channel.exchange_declare("jobs", "topic", passive=True)
        channel.queue_declare("work", durable=True, arguments={"x-max-priority": 3})
        jobs = [channel.basic_get("work", auto_ack=True) for _ in range(JOBS - len(ACKED))]
        assert sorted(int(body) for _, _, body in jobs) == [n for n in range(JOBS) if n + 1 not in ACKED]
        for of_delivery, about, _ in jobs:
            assert about.headers.pop("x-delivery-count", 0) == of_delivery.redelivered
            assert about.headers == {"from": "before"}
        assert channel.basic_get("work") == (None, None, None)

    with paho(broker.ports["mqtt"], "board") as board:
        board.subscribe("board/#")
        assert [one.payload for one in board.wait(1)] == [b"the board"]
    status, lines = broker.call("/v1/topics/rec%2F%23/records?from=earliest&format=json")
    assert status == 200, lines
    assert [int(json.loads(line)["payload"]) for line in lines.splitlines()] == list(range(RECORDED))


@pytest.mark.parametrize("release", sorted(path.name for path in FOLDERS.iterdir()))
def test_a_lake_of_before(release: str) -> None:
    found = check_lake(FOLDERS / release / "lake")
    assert found.files == len(list(FOLDERS.glob(f"{release}/lake/*/*/*.parquet")))
    assert found.rows > 0


@pytest.mark.parametrize("file", sorted(FOLDERS.glob("*/default.toml")), ids=lambda file: file.parent.name)
def test_a_configuration_of_before(file: Path) -> None:
    """It says what it said then: what has come since has its default."""
    settings = load_settings(file)
    assert lint(settings) == []
    said = tomllib.loads(file.read_text())
    assert {name: str(table.url) for name, table in settings.listeners.items()} == {
        name: table["url"] for name, table in said["listeners"].items()
    }
    assert [policy.name for policy in settings.policies] == [policy["name"] for policy in said["policy"]]
    assert [len(policy.rules) for policy in settings.policies] == [len(policy["rule"]) for policy in said["policy"]]
