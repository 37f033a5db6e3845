"""Views that ask for deltas, in Python, in Chromium and in node: their image is the same as if they had not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho, paho
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.view_stage import Stage, need
from tests.interop.view_stories import SLOW, TOPIC, story, url
from tests.interop.waiting import holds
from tests.interop.wire_between import WireBetween

from headway.client import Gap, Put, Stale, View

WEB = LISTENER + '[listeners.web]\nurl = "ws://127.0.0.1:0"\n'
FILL = "." * 1000
"""A field that never changes: a record has it, a delta has not."""
EXACT = 2**60 + 1
"""A number that JavaScript does not have."""
UPDATES = 50


@pytest.fixture(scope="module")
def keyed(start: BrokerFactory) -> BrokerProcess:
    return start(WEB + TOPIC + SLOW, server={"send_buffer": "16KiB"})


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("stage"))
    yield made
    made.close()


class Flights:
    """The latest records of a topic, as they were published."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.latest: dict[str, dict[str, Any]] = {}

    def put(self, client: Paho, number: int, version: int, **more: object) -> None:
        flight = {"tailnum": f"N{number}", "version": version, "exact": EXACT, "fill": FILL} | more
        client.publish(self.topic, json.dumps(flight), 1)
        self.latest[f"N{number}"] = flight

    def update(self, client: Paho, first: int) -> None:
        for version in range(first, first + UPDATES):
            self.put(client, version % 3, version, **{f"extra{version % 5}": {"at": version}})

    def is_shown(self, view: View) -> bool:
        return view.current and {key.key: entry.json() for key, entry in view.copy().items()} == self.latest

    @property
    def versions(self) -> dict[str, int]:
        return {key: flight["version"] for key, flight in self.latest.items()}


@story
async def test_a_view_with_deltas_has_whole_records_and_is_sent_what_changes(keyed: BrokerProcess, name: str) -> None:
    flights = Flights(f"flights/{name}")
    with paho(keyed.port, name) as publisher:
        for number in range(3):
            flights.put(publisher, number, 0)
        async with (
            WireBetween(keyed.port) as wire,
            View(url(wire.port), flights.topic, key="/tailnum", stale_after="400ms", delta=True) as view,
        ):
            assert flights.is_shown(view)
            for first in (1, 1 + UPDATES):  # after the first record of each key
                before = keyed.consumer(view.client_id)["delivered_bytes"]
                await asyncio.to_thread(flights.update, publisher, first)
                await holds(lambda: flights.is_shown(view))
            assert keyed.consumer(view.client_id)["delivered_bytes"] - before < UPDATES * len(FILL) / 2
            wire.cut()
            await asyncio.to_thread(flights.update, publisher, 500)
            await holds(lambda: flights.is_shown(view))
            changes = view.changes()
            await asyncio.to_thread(flights.put, publisher, 1, 1000)
            await holds(lambda: flights.is_shown(view))
            put = [change for change in await changes.some(9) if isinstance(change, Put)][-1]
            assert put.entry is view["N1"]
            assert put.before is not None
            assert put.before.json()["fill"] == FILL


@story
async def test_what_is_discarded_for_it_makes_no_value_wrong(keyed: BrokerProcess, name: str) -> None:
    flights = Flights(f"flights/discard/{name}")
    with paho(keyed.port, name) as publisher:
        async with View(
            url(keyed.port), flights.topic, key="/tailnum", stale_after="400ms", delta=True, max_queued=10
        ) as view:
            changes, told = view.changes(), list[object]()

            def flood() -> None:
                for version in range(1500):
                    fill = {"part": str(version) * 500}
                    flight = {"tailnum": f"N{version % 20}", "version": version, "fill": FILL} | fill
                    publisher.publish(flights.topic, json.dumps(flight), 0)

            await asyncio.to_thread(flood)
            for number in range(20):
                await asyncio.to_thread(flights.put, publisher, number, 5000 + number)
            await holds(lambda: keyed.verdicts(view.client_id))

            async def read() -> None:
                async for change in changes:
                    told.append(change)

            reading = asyncio.create_task(read())
            await holds(lambda: flights.is_shown(view))
            assert any(isinstance(change, Gap | Stale) for change in told)
            await asyncio.to_thread(flights.update, publisher, 9000)
            await holds(lambda: flights.is_shown(view))
            reading.cancel()


@pytest.mark.parametrize("where", ["chromium", "node"])
@story
async def test_a_page_with_deltas_has_whole_records(
    keyed: BrokerProcess, stage: Stage, where: str, name: str
) -> None:
    need(where)
    flights, options = Flights(f"flights/{name}"), {"key": "/tailnum", "staleAfter": "400ms", "delta": True}
    with paho(keyed.port, name) as publisher:
        for number in range(3):
            flights.put(publisher, number, 0)
        async with WireBetween(keyed.ports["web"]) as wire:
            with stage.view(where, wire.port, flights.topic, **options) as view:
                await holds(lambda: view.image == flights.versions)
                for first in (1, 1 + UPDATES):
                    before = keyed.consumer(view.clientId)["delivered_bytes"]
                    await asyncio.to_thread(flights.update, publisher, first)
                    await holds(lambda: view.current and view.image == flights.versions)
                assert keyed.consumer(view.clientId)["delivered_bytes"] - before < UPDATES * len(FILL) / 2
                wire.cut()
                await asyncio.to_thread(flights.update, publisher, 500)
                await holds(lambda: view.current and view.image == flights.versions and view.adds)
                assert [json.loads(text) for text in view.texts] == [flights.latest[key] for key in view.image]
