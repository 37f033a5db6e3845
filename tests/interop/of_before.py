"""What a broker of an earlier release has left on disk: how it was made, and what has to be in it.

``python -m tests.interop.of_before FOLDER COMMIT`` makes such a folder with the release of that commit, in a work tree
of its own; ``tests/interop/before`` has those of releases past. They are never made anew: what they hold is what people
have on their disks. ``headway.toml`` is what that broker ran with, ``default.toml`` what its ``--print-config`` said.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pika
from tests.interop.pahos import Paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

FOLDERS = Path(__file__).with_name("before")
ROOT = Path(__file__).parents[2]
PLACE = "/var/lib/headway-of-before"
"""Stands in a config for the folder that the broker had."""
NEVER = 49_710 * 86_400
ORDERS, JOBS, RECORDED = 20, 20, 30
ACKED = (1, 2, 3, 4, 7)
"""Of the jobs, by delivery tag: 1 is job 0."""


def config(folder: Path) -> str:
    return f"""
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
session_expiry_max = "49710d"
[listeners.amqp]
url = "amqp://127.0.0.1:0"
[journal]
path = "{folder / "journal"}"
[[topic]]
filter = "rec/#"
key = "topic"
keep = "1MB"
[telemetry]
path = "{folder / "lake"}"
every = "1s"
"""


def fill(broker: BrokerProcess) -> None:
    """Everything here is confirmed, so all of it has to be there for ever."""
    lasting = properties("CONNECT", SessionExpiryInterval=NEVER)
    away = Paho(broker.ports["mqtt"], "away", clean=False, connect=lasting)
    away.subscribe("orders/#", 1)
    away.subscribe("$share/crew/tasks", 1)
    away.close()
    publisher = Paho(broker.ports["mqtt"], "publisher")
    for topic, count in (("orders/a", ORDERS), ("tasks", ORDERS), ("rec/a", RECORDED)):
        for number in range(count):
            publisher.publish(topic, f"{number}", 1)
    publisher.publish("board/1", "the board", 1, retain=True)
    publisher.close()
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.ports["amqp"]))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("jobs", "topic", durable=True)
    channel.queue_declare("work", durable=True, arguments={"x-max-priority": 3})
    channel.queue_bind("work", "jobs", "job.#")
    lasting_message = pika.BasicProperties(delivery_mode=2, headers={"from": "before"})
    for number in range(JOBS):
        channel.basic_publish("jobs", f"job.{number}", f"{number}".encode(), lasting_message)
    for _ in range(max(ACKED)):
        method, _, _ = channel.basic_get("work")
        if method.delivery_tag in ACKED:
            channel.basic_ack(method.delivery_tag)
    connection.close()
    until(lambda: list(broker.folder.glob("lake/consumer_samples/*/*.parquet")), what="the lake has samples")


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        broker = BrokerProcess(Path(made), config(Path(made)))
        fill(broker)
        broker.stop()
        for name in ("journal", "lake"):
            shutil.copytree(Path(made, name), folder / name)
        (folder / "headway.toml").write_text(config(Path(PLACE)))
    told = subprocess.run([sys.executable, "-m", "headway", "serve", "--print-config"], capture_output=True, check=True)
    (folder / "default.toml").write_bytes(told.stdout)


def with_release(folder: Path, commit: str) -> None:
    with tempfile.TemporaryDirectory() as tree:
        subprocess.run(["git", "worktree", "add", "--detach", tree, commit], cwd=ROOT, check=True)
        try:
            command = [sys.executable, "-m", "tests.interop.of_before", str(folder)]
            subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": f"{tree}/src"}, check=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        with_release(Path(sys.argv[1]).absolute(), sys.argv[2])
    else:
        main(Path(sys.argv[1]))
