"""What the tests of embedded brokers share: configs, running a story on a loop, and reading what a process has open."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop
from tests.interop.waiting import PATIENCE_S

from headway.embed import Broker

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop,
}  # fmt: skip
MQTT = {"mqtt": {"url": "mqtt://127.0.0.1:0"}}


def config(folder: Path, **more: Any) -> dict[str, Any]:
    """A small broker, whose governor looks often."""
    server = {"sweep": "20ms"} | more.pop("server", {})
    return {"server": server, "pool": {"memory": "32MB", "disk": "64MB", "disk_path": str(folder)}} | more


def play(story: Coroutine[Any, Any, Any], loop: str = "asyncio") -> Any:
    """Runs a story to its end, on a loop of this kind."""

    async def within() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await story

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(within())


async def get(broker: Broker, path: str) -> Any:
    """Asks the admin API, from a thread."""

    def ask() -> Any:
        with urllib.request.urlopen(broker.urls["admin"] + path, timeout=PATIENCE_S) as answer:
            return json.loads(answer.read())

    return await asyncio.to_thread(ask)


async def turns(count: int = 5) -> None:
    """Lets the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


def open_files() -> Counter[str]:
    """What the process has open, by what it is. Subtract what was open before: an earlier test may close some late."""
    found = Counter[str]()
    for one in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing of the folder itself
            found[os.readlink(f"/proc/self/fd/{one}")] += 1
    return found


def threads() -> list[str]:
    return sorted(one.name for one in threading.enumerate() if one.name.startswith("headway"))


