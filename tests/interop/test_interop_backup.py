"""Backups of a live journal: publishers confirm, consumers settle, segments come and go, and the copy has all that was
confirmed before it was begun. What is killed on the way leaves nothing that looks like a backup."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.amqp_pika import Pika
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import LISTENERS
from tests.interop.waiting import PATIENCE_S, until
from tests.passwords import cheap_hash
from typer.testing import CliRunner

from headway.cli.admin import AdminClient
from headway.cli.app import app
from headway.cli.backups import Hold
from headway.store.backup import BadBackup, make_backup
from headway.wire.mqtt.packets import TopicRequest

DAY_S = 86_400
PAYLOAD = b"x" * 1000


def config(folder: Path, more: str = "") -> str:
    return (f'{LISTENERS}[journal]\npath = "{folder / "journal"}"\nsegment = "100kB"\n'
            f'[[topic]]\nfilter = "rec/#"\nkeep = "7d"\n{more}')  # fmt: skip


def headway(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, list(arguments))
    return found.exit_code, found.output


class Load:
    """Publishers of two protocols that go on until told otherwise, and a consumer that settles what one of them says.
    ``confirmed`` has how many records of each were confirmed."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.confirmed = {"rec/a": 0, "orders/a": 0, "work": 0, "board": 0}
        self.settled = 0
        self.going = True
        self._threads = [threading.Thread(target=one) for one in (self._mqtt, self._amqp, self._work)]
        with Raw(broker.ports["mqtt"], "away", clean_start=True, session_expiry_s=DAY_S) as away:
            away.subscribed(TopicRequest("orders/#", 1))
            away.goodbye()
        client = Pika(broker.ports["amqp"])
        client.channel.queue_declare("work", durable=True)
        client.close()
        for thread in self._threads:
            thread.start()

    def _mqtt(self) -> None:
        with Raw(self.broker.ports["mqtt"]) as writer:
            while self.going:
                for topic in ("rec/a", "orders/a", "board"):
                    number = self.confirmed[topic]
                    writer.published(topic, b"%06d" % number + PAYLOAD, retain=topic == "board")
                    self.confirmed[topic] += 1

    def _amqp(self) -> None:
        client = Pika(self.broker.ports["amqp"])
        while self.going:
            client.put("work", b"%06d" % self.confirmed["work"] + PAYLOAD, delivery_mode=2)
            self.confirmed["work"] += 1
        client.close()

    def _work(self) -> None:
        """Settles about half of what there is."""
        client = Pika(self.broker.ports["amqp"])
        while self.going:
            if self.settled < self.confirmed["work"] // 2:
                method, _, _ = client.channel.basic_get("work")
                client.channel.basic_ack(method.delivery_tag)
                self.settled += 1
            else:
                client.connection.process_data_events(0.01)
        client.close()

    def end(self) -> None:
        self.going = False
        for thread in self._threads:
            thread.join(PATIENCE_S)


@pytest.fixture(scope="module")
def loaded(start: BrokerFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Load, Path]]:
    folder = tmp_path_factory.mktemp("live")
    load = Load(start(config(folder)))
    try:
        until(lambda: min(load.confirmed.values()) > 300)
        yield load, folder / "journal"
    finally:
        load.end()


def test_a_backup_under_load_has_all_that_was_confirmed_before_it(
    start: BrokerFactory, loaded: tuple[Load, Path], tmp_path: Path
) -> None:
    load, journal = loaded
    place, before = tmp_path / "backup", dict(load.confirmed)
    assert headway("journal", "backup", str(place), "--admin", load.broker.admin)[0] == 0
    after, settled = dict(load.confirmed), load.settled
    assert all(after[name] > before[name] for name in before), "they went on"
    assert json.loads((place / "backup.json").read_text())["files"]
    status, shown = headway("journal", "show", str(journal), "--json")  # of the live one
    assert status == 0, shown
    assert {one["name"] for one in json.loads(shown)["holders"]} == {"away", "work"}

    elsewhere = tmp_path / "elsewhere"
    assert headway("journal", "restore", str(place), str(elsewhere / "journal"))[0] == 0
    broker = start(config(elsewhere))
    with Raw(broker.ports["mqtt"], "away", clean_start=False, session_expiry_s=DAY_S) as away:
        got = []
        for _ in range(before["orders/a"]):
            got.append(away.message())
            away.ack(got[-1])
    assert [int(one.payload[:6]) for one in got] == list(range(before["orders/a"]))
    status, lines = broker.call("/v1/topics/rec%2F%23/records?from=earliest&format=json")
    recorded = [int(json.loads(line)["payload"][:6]) for line in lines.splitlines()]
    assert recorded == list(range(len(recorded)))
    assert before["rec/a"] <= len(recorded) <= after["rec/a"] + 1
    with Raw(broker.ports["mqtt"]) as reader:
        reader.subscribed("board")
        assert before["board"] - 1 <= int(reader.message().payload[:6]) <= after["board"]
    client = Pika(broker.ports["amqp"])
    waiting = client.channel.queue_declare("work", passive=True).method.message_count
    jobs = [int(client.channel.basic_get("work", auto_ack=True)[2][:6]) for _ in range(waiting)]
    client.close()
    assert jobs == list(range(jobs[0], jobs[-1] + 1))
    assert jobs[0] <= settled
    assert before["work"] <= jobs[-1] + 1
    broker.stop()


def stopped_at_work(admin: str, place: Path) -> subprocess.Popen[bytes]:
    """A command that stands still in the middle of a backup. Where it was too quick, there is another try."""
    command = [sys.executable, "-m", "headway", "journal", "backup", str(place), "--admin", admin]
    made = place.with_name(f".{place.name}.partial")
    for _ in range(20):
        process = subprocess.Popen(command)
        until(lambda: made.exists() or process.poll() is not None)  # noqa: B023
        if process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if made.exists():
                return process
        process.kill()
        process.wait()
        shutil.rmtree(place)
    raise AssertionError("each backup was done before it could be stopped")


def test_a_backup_that_is_killed_leaves_none_and_holds_nothing(loaded: tuple[Load, Path], tmp_path: Path) -> None:
    load, journal = loaded
    place = tmp_path / "backup"
    process = stopped_at_work(load.broker.admin, place)
    held = sorted(os.listdir(journal / "main"))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not place.exists()
    status, said = headway("journal", "restore", str(place.with_name(".backup.partial")), str(tmp_path / "new"))
    assert status == 2
    assert "no backup, or one that was not finished" in said
    assert not (tmp_path / "new").exists()
    # Segments are removed again, and the next backup takes the place of what is left.
    with Raw(load.broker.ports["mqtt"], "away", clean_start=False, session_expiry_s=DAY_S) as away:

        def removed() -> bool:
            for message in away.so_far():
                away.ack(message)
            return not set(held) <= set(os.listdir(journal / "main"))

        until(removed)
    assert headway("journal", "backup", str(place), "--admin", load.broker.admin)[0] == 0
    assert not place.with_name(".backup.partial").exists()
    assert headway("journal", "verify", str(place))[0] == 0
    assert headway("journal", "backup", str(place), "--admin", load.broker.admin)[0] == 2, "it is there already"


def test_a_broker_that_dies_meanwhile_leaves_no_backup(start: BrokerFactory, tmp_path: Path) -> None:
    broker = start(config(tmp_path))
    with Raw(broker.ports["mqtt"]) as writer:
        for number in range(50):
            writer.published("rec/a", b"%d" % number + PAYLOAD)
    place = tmp_path / "backup"
    with Hold(AdminClient(broker.admin)) as hold:
        hold.check()
        broker.kill()
        until(lambda: hold.ended)
        with pytest.raises(BadBackup, match="its broker stopped"):
            make_backup(hold.contents, place, hold.check)
    assert not list(tmp_path.glob("*backup*"))
    # Without a broker the command takes the files as they are.
    assert headway("journal", "backup", str(place), "--journal", str(tmp_path / "journal"))[0] == 0
    file = sorted(place.glob("*/*.journal"))[-1]
    file.write_bytes(file.read_bytes()[:-1])
    status, said = headway("journal", "restore", str(place), str(tmp_path / "new"))
    assert status == 2
    assert "is not whole" in said
    assert not (tmp_path / "new").exists()


def test_a_backup_needs_the_right_to_change_and_a_journal(start: BrokerFactory, tmp_path: Path) -> None:
    users = "".join(f'{name} = "{cheap_hash(name[0])}"\n' for name in ("ann", "bob"))
    broker = start(f'[auth.users]\n{users}[auth.admin]\nchange = ["bob"]\n')
    address = broker.admin.replace("//", "//{}@")
    for login, why in (("ann:a", "may not change here"), ("bob:b", "has no journal")):
        status, said = headway("journal", "backup", str(tmp_path / "b"), "--admin", address.format(login))
        assert status == 2
        assert why in said
    assert not (tmp_path / "b").exists()
    broker.stop()
