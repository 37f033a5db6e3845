"""``headway export`` and ``headway journal`` beside a broker, and a broker on a damaged journal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.interop.command import headway
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import ask, recording
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.records_fixtures",)
HEADWAY = [sys.executable, "-c", "from headway.cli import main; main()"]


def test_the_files_have_what_the_broker_says(keeping: BrokerProcess, folder: Path, publisher: Raw, name: str) -> None:
    topic = f"flights/jfk/{name}"
    for number in range(5):
        publisher.published(topic, b'{"tailnum": "N%d"}' % number)
    by_url = headway("export", topic, "--admin", keeping.admin)
    by_config = headway("export", topic, "--config", str(keeping.config))
    assert (by_url.returncode, by_url.stderr) == (by_config.returncode, by_config.stderr) == (0, "")
    assert by_url.stdout == by_config.stdout
    assert [json.loads(line)["key"] for line in by_url.stdout.splitlines()] == [f"N{number}" for number in range(5)]
    by_folder = headway("export", topic, "--journal", str(folder), "--key", "topic")
    assert [json.loads(line)["key"] for line in by_folder.stdout.splitlines()] == [topic] * 5


def test_a_journal_in_use_is_shown_and_not_compacted(keeping: BrokerProcess, folder: Path, publisher: Raw) -> None:
    publisher.published("plain", b"x")
    sound = headway("journal", "verify", str(folder))
    assert (sound.returncode, sound.stderr) == (0, "")
    assert "; all of it is sound" in sound.stdout
    shown = headway("journal", "show", str(folder))
    assert (shown.returncode, shown.stderr) == (0, "")
    refused = headway("journal", "compact", str(folder))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"is in use by process {keeping.pid}" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_broker_starts_on_a_damaged_journal_only_when_told_to(start: BrokerFactory, tmp_path: Path) -> None:
    config = recording(tmp_path / "journal")
    broker = start(config)
    with Raw(broker.ports["mqtt"], "publisher") as publisher:
        for number in range(3):
            publisher.published("plain", b"%d" % number * 1000)
    broker.stop()
    (segment,) = (tmp_path / "journal").glob("topic-plain-*/*.journal")
    data = bytearray(segment.read_bytes())
    data[data.index(b"1" * 1000)] ^= 1
    segment.write_bytes(data)
    refused = headway("serve", "--config", str(broker.config))
    assert refused.returncode == 2
    assert "with `--repair` Headway goes on with what can be read" in refused.stderr
    wrong = headway("journal", "verify", "--config", str(broker.config))
    assert (wrong.returncode, wrong.stdout.count("LOST  ")) == (1, 1)

    ready = tmp_path / "again.json"
    with subprocess.Popen(
        [*HEADWAY, "serve", "--repair", "-c", str(broker.config), "--ready-file", str(ready)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            until(lambda: ready.exists() or process.poll() is not None, what="it listens")
            broker.admin = json.loads(ready.read_text())["admin"]
            assert [row["payload"][:1] for row in ask(broker, "plain").rows] == [b"0", b"2"]
            lines = headway("export", "plain", "--config", str(broker.config))
            assert (lines.returncode, lines.stdout.count("\n"), lines.stderr) == (0, 2, "")
        finally:
            process.terminate()
            errors = process.communicate(timeout=30)[1]
    assert (process.returncode, "batch" in errors) == (0, True)
    assert headway("journal", "verify", "--config", str(broker.config)).returncode == 0
