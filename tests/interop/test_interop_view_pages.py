"""Views of a page: what they show is what a query has, in its order, through cuts and while others write."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho, paho, properties
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.test_interop_state import ask
from tests.interop.view_stories import TOPIC, story, url
from tests.interop.waiting import holds, until

from headway.client import Current, Delete, OutOfFocus, Put, Stale, View, ViewError
from headway.core.base import ConfigError

PAGE: dict[str, Any] = {"order_by": "/delay DESC", "top": 5, "skip": 1}
TERMS: dict[str, Any] = {"key": "/tailnum", "stale_after": "400ms"} | PAGE


@pytest.fixture(scope="module")
def keyed(start: BrokerFactory) -> BrokerProcess:
    return start(LISTENER + TOPIC)


def update(client: Paho, chance: random.Random, times: int) -> None:
    """Each delay is another one, so that the order is no matter of who came first."""
    for _ in range(times):
        key = f"N{chance.randrange(30)}"
        if chance.random() < 0.1:
            client.publish("flights/a", b"", 1, properties=properties("PUBLISH", UserProperty=[("key", key)]))
        else:
            client.publish("flights/a", json.dumps({"tailnum": key, "delay": chance.random()}), 1)


def wanted(broker: BrokerProcess) -> list[bytes]:
    return [one["payload"].encode() for one in ask(broker, "flights/#", PAGE).json["records"]]


def shown(view: View) -> list[bytes]:
    return [entry.payload for _, entry in view.in_order()]


@story
async def test_a_view_of_a_page_shows_it_in_its_order(keyed: BrokerProcess) -> None:
    chance = random.Random(5)
    with paho(keyed.ports["mqtt"], "publisher") as client:
        update(client, chance, 40)
        async with View(url(keyed.ports["mqtt"]), "flights/#", **TERMS) as view:
            assert shown(view) == wanted(keyed)
            reader = view.changes()
            before = view.copy()
            for _ in range(10):
                update(client, chance, 20)
                truth = wanted(keyed)
                await holds(lambda truth=truth: shown(view) == truth and view.current)  # type: ignore[misc]
            told = [await anext(reader) for _ in range(20)]
            assert {type(change) for change in told} <= {Current, Put, OutOfFocus}
            assert any(isinstance(change, OutOfFocus) and change.why == "left_page" for change in told)
            for change in told:
                if isinstance(change, Put):
                    before[change.key] = change.entry
                elif isinstance(change, OutOfFocus):
                    assert before.pop(change.key) == change.before
            assert len(before) <= 6


@story
async def test_it_comes_back_after_a_cut_with_the_page_as_it_is(keyed: BrokerProcess) -> None:
    chance = random.Random(6)
    with paho(keyed.ports["mqtt"], "publisher") as client:
        update(client, chance, 40)
        async with View(url(keyed.ports["mqtt"]), "flights/#", **TERMS) as view:
            for _ in range(5):
                reader, before = view.changes(), view.copy()
                assert keyed.call(f"/v1/clients/{view.client_id}", "DELETE")[0] in (200, 202, 204)
                while not isinstance(await anext(reader), Stale):
                    pass
                update(client, chance, 20)
                truth = wanted(keyed)
                await holds(lambda truth=truth: shown(view) == truth and view.current)  # type: ignore[misc]
                while before != view.copy():
                    change = await anext(reader)
                    if isinstance(change, Put):
                        before[change.key] = change.entry
                    elif isinstance(change, Delete | OutOfFocus):
                        del before[change.key]


def test_a_view_of_a_page_in_threads(keyed: BrokerProcess) -> None:
    chance = random.Random(7)
    with (
        paho(keyed.ports["mqtt"], "publisher") as client,
        View.open(url(keyed.ports["mqtt"]), "flights/#", **TERMS) as view,
    ):
        update(client, chance, 40)
        truth = wanted(keyed)
        until(lambda: [entry.payload for _, entry in view.in_order()] == truth)


@story
async def test_terms_that_make_no_sense_are_errors_at_once(keyed: BrokerProcess) -> None:
    for terms in ({"order_by": "/delay"}, {"skip": 3}, {"top": 0}, {"top": 3, "order_by": "delay"}):
        with pytest.raises(ConfigError):
            View(url(keyed.ports["mqtt"]), "flights/#", key="/tailnum", **terms)  # type: ignore[arg-type]
    with pytest.raises(ViewError, match="10,000"):
        async with View(url(keyed.ports["mqtt"]), "flights/#", key="/tailnum", top=10_001):
            pass
