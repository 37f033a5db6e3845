"""Lags: what waits for each consumer, as the broker shows it, and the labels that this contradicts.

A label is a claim of whoever wrote the kind. Two of them can be checked: whoever is in trouble to the end has something
waiting, and whoever is healthy does not fall ever further behind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

import aiohttp

from bench.behaviours.consumers.labels import Label
from bench.peers.peer import Instance

ASKED_EVERY_S = 5.0
LATELY_S = 30.0
MUCH_BYTES = 1_000_000


class Lag(NamedTuple):
    time_s: float
    client: str
    filter: str
    records: int
    bytes: int


class Lags:
    def __init__(self, instance: Instance, http: aiohttp.ClientSession) -> None:
        self.seen: list[Lag] = []
        self._url = f"http://127.0.0.1:{instance.second_port}/v1/consumers"
        self._http = http

    async def watch(self) -> None:
        """Asks until it is cancelled."""
        while True:
            await asyncio.sleep(ASKED_EVERY_S)
            async with self._http.get(self._url) as answer:
                told = await answer.json()
            now = time.time()
            self.seen += [
                Lag(now, one["client"], one["filter"], one["lag_records"], one["lag_bytes"])
                for one in told["consumers"]
            ]


def doubts(labels: Iterable[Label], seen: Iterable[Lag], ended_s: float) -> list[str]:
    """Returns the labels that the lags contradict, in words."""
    by_client: dict[str, list[Lag]] = {}
    for one in seen:
        by_client.setdefault(one.client, []).append(one)
    found = []
    for label in labels:
        theirs = [one for one in by_client.get(label.client, ()) if label.filter in one.filter]
        lately = [one for one in theirs if one.time_s > ended_s - LATELY_S]
        before = [one for one in theirs if ended_s - 2 * LATELY_S < one.time_s <= ended_s - LATELY_S]
        lasting = any(spell.end_s == inf and spell.start_s < ended_s - 2 * LATELY_S for spell in label.spells)
        if lasting and not any(one.records for one in lately):
            found.append(f"{label.client} is to be in trouble, and nothing waits for it at the end")
        if not label.spells and lately and before:
            least, most = min(one.bytes for one in lately), max(one.bytes for one in before)
            if least > most and least > MUCH_BYTES:
                found.append(f"{label.client} is to be healthy, and is ever further behind: {least:,} bytes")
    return found
