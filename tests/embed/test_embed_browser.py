"""examples/embed under uvicorn, with its page in real browsers: one stands still in the middle, the other does not
notice, and neither does the program."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.wires.websocket import Frames, upgrade
from tests.interop.forked import Forked
from tests.interop.view_stage import CHROMIUM
from tests.interop.waiting import PATIENCE_S, until
from tests.interop.web import WebRaw

CHECKOUT = Path(__file__).parents[2]
PAD = "x" * 2_000
RECORDS = 8_000


def serve() -> None:
    import uvicorn

    sys.path.insert(0, str(CHECKOUT))
    uvicorn.run("examples.embed.app:app", port=0, log_level="info", access_log=False)


class Publisher(WebRaw):
    def opened(self, port: int) -> None:
        self.frames = Frames(upgrade(self.sock, "/headway/mqtt", f"127.0.0.1:{port}", "mqtt"))


class Program:
    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.process = Forked(serve, [], self.log)
        try:
            found = until(lambda: re.search(r"running on (http://127\.0\.0\.1:(\d+))", self.log.read_text())
                          if self.log.exists() else None, what="uvicorn runs")  # fmt: skip
        except AssertionError:
            self.process.kill()
            raise
        self.url, self.port = found[1], int(found[2])

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/headway/v1/{path}", timeout=PATIENCE_S) as answer:
            return json.loads(answer.read())

    def consumer(self, name: str) -> dict[str, Any]:
        return next(iter(self.get(f"consumers?client={name}")["consumers"]), {})


class Browser:
    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}",
             "--remote-debugging-port=0", url],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)  # Debian's command is a script, and its child is the browser

    def title(self) -> str:
        """The title of its page."""
        told = self._folder / "DevToolsActivePort"
        port = told.read_text().split("\n")[0] if told.exists() else ""
        if not port:  # the browser makes the file before it writes into it
            return ""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=PATIENCE_S) as pages:
            return next((one["title"] for one in json.loads(pages.read()) if one["type"] == "page"), "")

    def close(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()


@contextmanager
def browser(folder: Path, url: str) -> Iterator[Browser]:
    opened = Browser(folder, url)
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install -y chromium-headless-shell")
def test_a_page_that_stands_still_costs_the_program_nothing(tmp_path: Path) -> None:
    program = Program(tmp_path)
    try:
        url = f"{program.url}/?name="
        with browser(tmp_path / "1", f"{url}stuck") as stuck, browser(tmp_path / "2", f"{url}good") as good:
            for page in (stuck, good):
                until(lambda page=page: page.title() == "8 prices, live", what="the page shows the prices")
            stuck.signal(signal.SIGSTOP)
            before = program.get("broker")
            with Publisher(program.port, "publisher") as publisher:
                for number in range(RECORDS):  # 16 MB
                    symbol = "ABCDEFGH"[number % 8]
                    told = json.dumps({"symbol": symbol, "price": number, "pad": PAD})
                    publisher.publish(f"prices/{symbol}", told.encode())
                until(lambda: program.get("broker")["published_records"] > RECORDS, what="all are published")
            until(lambda: not program.consumer("good")["lag_records"], what="the good page has them")
            until(lambda: good.title() == "8 prices, live", what="the good page is current")
            after = program.get("broker")
            assert after["memory_rss_bytes"] - before["memory_rss_bytes"] < 10_000_000
            assert program.consumer("stuck")["held_bytes"] < 100_000
            assert program.get("why/good")["verdicts"] == []
            stuck.signal(signal.SIGCONT)
            until(lambda: stuck.title() == "8 prices, live", what="the other page is current again")
        os.kill(program.process.pid, signal.SIGINT)
        until(lambda: program.process.poll() is not None, what="the program ends")
        assert "Traceback" not in program.log.read_text(), program.log.read_text()
        assert "Application shutdown complete" in program.log.read_text()
    finally:
        program.process.kill()
        program.process.wait()
