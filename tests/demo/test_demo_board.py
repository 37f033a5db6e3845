"""The demo's board in a real browser, and its desk: what they show is what the broker has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("paho.mqtt")

from demo.board import BoardServer
from demo.cast import DESK
from demo.company import Company
from tests.interop.pahos import Paho, paho
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.view_stage import CHROMIUM
from tests.interop.waiting import until

CONFIG = f"""
{LISTENER}
[listeners.web]
url = "ws://127.0.0.1:0"
[[topic]]
filter = "flights/#"
key = "/tailnum"
[[policy]]
name = "strict"
topics = ["flights/strict/#"]
[[policy.rule]]
when = {{ blocked_time = "300ms" }}
then = "disconnect"
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, CONFIG, server={"send_buffer": "16KiB"})
    yield process
    process.kill()


def fly(publisher: Paho, number: int, delay: int | None, **more: str) -> None:
    flight = {"tailnum": f"N{number}", "flight": f"UA{number}", "dest": "IAH", "left": "2013-01-01T05:17"}
    publisher.publish("flights/EWR/UA", json.dumps(flight | {"dep_delay": delay} | more), 1)


def late(broker: BrokerProcess) -> dict[str, tuple[int, int]]:
    """The flights that the broker has, by aircraft: minus the delay, and the offset."""
    records = broker.get("/v1/state/flights%2F%23?where=dep_delay+%3E+60")["records"]
    return {one["key"]: (-json.loads(one["payload"])["dep_delay"], one["offset"]) for one in records}


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install -y chromium-headless-shell")
def test_the_board_shows_the_ten_longest_delays_and_says_when_it_is_stale(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    board = BoardServer(broker.admin, f"ws://127.0.0.1:{broker.ports['web']}/mqtt")
    browser = subprocess.Popen(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}",
         "--remote-debugging-port=0", board.url],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip

    def shows_the_truth() -> bool:
        top = [offset for _, offset in sorted(late(broker).values())[:10]]
        return board.shown is not None and board.shown.current and board.shown.top == top

    try:
        with paho(broker.port, "airports") as publisher:
            for number in range(30):
                fly(publisher, number, 50 + 7 * number % 100)
            fly(publisher, 40, None)
            until(lambda: len(late(broker)) > 10 and shows_the_truth(), what="the board shows the ten longest delays")
            fly(publisher, 3, 500)
            fly(publisher, int(min(late(broker), key=lambda key: late(broker)[key])[1:]), 0)
            until(shows_the_truth, what="the board shows what has changed")
            broker.signal(signal.SIGSTOP)
            until(lambda: board.shown is not None and not board.shown.current, what="the board says that it is stale")
            assert board.shown is not None
            assert len(board.shown.top) == 10
            broker.signal(signal.SIGCONT)
            fly(publisher, 5, 600)
            until(shows_the_truth, what="the board is current again")
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()
        board.close()


def test_a_desk_that_looks_away_is_cut_and_comes_back_with_all_that_the_broker_has(broker: BrokerProcess) -> None:
    company = Company()
    desk = company.hire(msgspec.structs.replace(DESK, port=broker.port, seconds=0.1), "desk")
    try:
        until(lambda: desk.ready or desk.failed, what="the desk has a view")
        with paho(broker.port, "airports") as publisher:
            number = 0

            def cut() -> bool:
                nonlocal number
                for _ in range(20):
                    number += 1
                    fly(publisher, number % 500, 61 + number % 50, fill="." * 4000)
                return bool(broker.verdicts(DESK.name))

            until(cut, what="the desk is cut")
            desk.order("go")
            fly(publisher, 3, 5)
            until(lambda: desk.last.back_s, what="the view is current again")
            company.stop([desk])
    finally:
        company.close()
    assert desk.last.kind == "done"
    assert desk.last.image == {f"flights/EWR/UA {key}": offset for key, (_, offset) in late(broker).items()}
    assert desk.last.oldest_s > 0.3
    assert desk.last.told
