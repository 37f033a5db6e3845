"""Stories of views in Python: what was published, what a view shows, and what it told of its changes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import Any

from tests.interop.pahos import Paho, properties
from tests.interop.waiting import PATIENCE_S, holds

from headway.client import Change, Current, Delete, Gap, Key, Put, Stale, View

TOPIC = '[[topic]]\nfilter = "flights/#"\nkey = "/tailnum"\n'
QUICK = {"key": "/tailnum", "stale_after": "400ms"}
PATIENT = QUICK | {"stale_after": "10s"}
"""For who must not be stale, on a busy machine either."""
SLOW = """
[flap]
base = "1s"
[[policy]]
name = "cut"
topics = ["flights/cut/#"]
[[policy.rule]]
when = { blocked_time = "300ms" }
then = "disconnect"
[[policy]]
name = "discard"
topics = ["flights/discard/#"]
[[policy.rule]]
when = { lag_records = 50 }
then = { action = "discard", which = "oldest", keep_records = 10 }
"""
"""Policies that cut a slow reader, or discard for it."""


def story(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test on a loop of its own, within a deadline."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), 2 * PATIENCE_S))

    return run


def url(port: int) -> str:
    return f"mqtt://127.0.0.1:{port}"


class Truth:
    """What was published and confirmed, and when; each value of a key is higher than the one before."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.version = 0
        self.latest: dict[Key, int] = {}
        self.confirmed: list[tuple[float, Key, int]] = []

    def publish(self, client: Paho, number: int) -> None:
        self.version += 1
        key = Key(self.topic, f"N{number}")
        client.publish(self.topic, json.dumps({"tailnum": key.key, "version": self.version}), 1)
        self.latest[key] = self.version
        self.confirmed.append((time.monotonic(), key, self.version))

    def delete(self, client: Paho, number: int) -> None:
        key = Key(self.topic, f"N{number}")
        client.publish(self.topic, b"", 1, properties=properties("PUBLISH", UserProperty=[("key", f"N{number}")]))
        del self.latest[key]
        self.confirmed = [one for one in self.confirmed if one[1] != key]

    def check(self, view: View) -> None:
        """The view has all that was confirmed before the time as of which it says to be."""
        shown = {key: entry.json()["version"] for key, entry in view.copy().items()}
        upto_s = time.monotonic() - view.stale_s
        for at_s, key, version in self.confirmed:
            if at_s < upto_s:
                assert shown.get(key, 0) >= version, f"{key}: {version} was confirmed {upto_s - at_s:.3f} s before"

    def is_shown(self, view: View) -> bool:
        return view.current and {key: entry.json()["version"] for key, entry in view.copy().items()} == self.latest

    @asynccontextmanager
    async def holds_for(self, view: View) -> AsyncIterator[list[Change]]:
        """Checks the view all the time, and gathers what it tells. At the end that adds up to what it shows."""
        told: list[Change] = []

        async def check() -> None:
            while True:
                self.check(view)
                await asyncio.sleep(0.005)

        async def gather() -> None:
            async for change in view.changes():
                told.append(change)

        before = view.copy()
        tasks = [asyncio.create_task(check()), asyncio.create_task(gather())]
        yield told
        await holds(lambda: self.is_shown(view))
        await holds(lambda: added_up(before, told) == view.copy())
        for task in tasks:
            if task.done():
                await task
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def added_up(before: dict[Key, Any], changes: list[Change]) -> dict[Key, Any]:
    image = before.copy()
    for change in changes:
        if isinstance(change, Put):
            image[change.key] = change.entry
        elif isinstance(change, Delete):
            image.pop(change.key)
    return image


def kinds(told: list[Change]) -> list[type]:
    """What was told of the view as a whole, in order, without the first."""
    return [type(change) for change in told if isinstance(change, Stale | Current | Gap)][1:]


async def publish(truth: Truth, client: Paho, *numbers: int) -> None:
    for number in numbers:
        await asyncio.to_thread(truth.publish, client, number)
