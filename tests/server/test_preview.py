"""A preview of other policies: whom it names, and how many consumers are asked before others have their turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bench.wires.packets import encode_publish, encode_subscribe
from tests.server.amqp_stage import House
from tests.server.test_turn_budget import Person

from headway.core.telemetry.stats import CLOSE_SLICE
from headway.server.admin import api as module
from headway.server.admin.api import preview
from headway.server.admin.metrics import EACH_MAX
from headway.server.config.reading import parse_settings
from headway.wire.mqtt.packets import TopicRequest

FILTERS = 1200
POLICIES = """
[[policy]]
name = "tight"
topics = ["t/#"]
[[policy.rule]]
when = { lag_records = 1 }
for = "1h"
then = "disconnect"
"""


@pytest.fixture
def house() -> House:
    """One client that is stuck in many topics, and one that is not."""
    house = House('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n')
    healthy, stuck = Person(house, "healthy"), Person(house, "stuck")
    healthy.send(encode_subscribe(1, [TopicRequest("t/0")]))
    stuck.send(*(encode_subscribe(1, [TopicRequest(f"t/{number}")]) for number in range(FILTERS)))
    house.run()
    stuck.sock.capacity = len(stuck.sock.taken)
    twice = [encode_publish(f"t/{number}", bytes(50)) for number in range(FILTERS)] * 2
    Person(house, "publisher").send(*twice)
    house.run()
    return house


def test_whom_it_names(house: House) -> None:
    answer = asyncio.run(preview(house, parse_settings(POLICIES).policies))
    assert answer["clients"] == 1
    assert answer["consumers"] == FILTERS + 1
    assert FILTERS - 1 <= answer["total"] <= FILTERS, "of one record some may have been taken"
    assert len(answer["hits"]) == EACH_MAX
    assert {hit["client"] for hit in answer["hits"]} == {"stuck"}
    assert asyncio.run(preview(house, ()))["hits"] == []


@pytest.mark.parametrize(("policies", "most"), [(0, CLOSE_SLICE), (1000, 1)], ids=["few policies", "many policies"])
def test_others_have_their_turn_in_between(
    house: House, monkeypatch: pytest.MonkeyPatch, policies: int, most: int
) -> None:
    more = "".join(f'[[policy]]\nname = "p{number}"\ntopics = ["a"]\n' for number in range(policies))
    asked, peek, sleep = [0], module.peek, asyncio.sleep

    def counted(*args: Any) -> Any:
        asked[-1] += 1
        return peek(*args)

    def slept(seconds: float) -> Any:
        asked.append(0)
        return sleep(seconds)

    monkeypatch.setattr(module, "peek", counted)
    monkeypatch.setattr(asyncio, "sleep", slept)
    asyncio.run(preview(house, parse_settings(more + POLICIES).policies))
    assert sum(asked) == FILTERS + 1
    assert max(asked) <= most


def test_it_names_who_would_have_no_policy(house: House) -> None:
    assert asyncio.run(preview(house, parse_settings(POLICIES).policies))["uncovered_total"] == 0
    other = Person(house, "other")
    other.send(encode_subscribe(1, [TopicRequest("u/1"), TopicRequest("$SYS/headway/#")]))
    house.run()
    answer = asyncio.run(preview(house, parse_settings(POLICIES).policies))
    assert (answer["uncovered"], answer["uncovered_total"]) == ([{"client": "other", "filter": "u/1"}], 1)
