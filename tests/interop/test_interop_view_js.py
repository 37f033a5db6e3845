"""Views in JavaScript beside real brokers, in a page in Chromium and in node: never wrong, always saying how old they
are, and current again by themselves."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import paho
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.view_stage import Stage, Truth, need
from tests.interop.view_stories import SLOW, TOPIC, story
from tests.interop.waiting import holds
from tests.interop.wire_between import WireBetween
from tests.passwords import cheap_hash

WEB = LISTENER + '[listeners.web]\nurl = "ws://127.0.0.1:0"\n'
VIEWS, LOAD = 20, 10
"""So many views are opened one after the other while each time so many records come."""
QUICK = {"key": "/tailnum", "staleAfter": "400ms"}
PATIENT = QUICK | {"staleAfter": "10s"}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("stage"))
    yield made
    made.close()


@pytest.fixture(params=["chromium", "node"])
def where(request: pytest.FixtureRequest) -> str:
    place: str = request.param
    need(place)
    return place


@pytest.fixture(scope="module")
def keyed(start: BrokerFactory) -> BrokerProcess:
    return start(WEB + TOPIC + SLOW, server={"send_buffer": "16KiB"})


@story
async def test_it_opens_with_all_there_is_and_follows(
    keyed: BrokerProcess, stage: Stage, where: str, name: str
) -> None:
    truth = Truth(f"flights/{name}")
    with paho(keyed.port, name) as publisher:
        await asyncio.to_thread(truth.publish, publisher, *range(20), 7)
        with stage.view(where, keyed.ports["web"], truth.topic, truth, **PATIENT) as view:
            await holds(lambda: view.true)
            await asyncio.to_thread(truth.publish, publisher, 8, 30)
            await holds(lambda: view.true)
            await asyncio.to_thread(truth.delete, publisher, 8)
            await holds(lambda: view.true)
            assert view.kinds == []
            await holds(lambda: view.stale < 0.4)
            await holds(lambda: keyed.consumer(view.clientId)["filter"] == truth.topic)


@story
async def test_through_a_broker_that_stands_still(
    keyed: BrokerProcess, stage: Stage, where: str, name: str
) -> None:
    truth = Truth(f"flights/{name}")
    with paho(keyed.port, name) as publisher:
        await asyncio.to_thread(truth.publish, publisher, 1, 2)
        with stage.view(where, keyed.ports["web"], truth.topic, truth, **QUICK) as view:
            await holds(lambda: view.true)
            keyed.signal(signal.SIGSTOP)
            try:
                await holds(lambda: view.stale_told and not view.current)
                assert (view.current, view.size) == (False, 2)
                assert view.stale > 0.4
            finally:
                keyed.signal(signal.SIGCONT)
            await asyncio.to_thread(truth.publish, publisher, 1, 3)
            await holds(lambda: view.true)
            assert view.kinds[:2] == ["stale", "current"]


@story
async def test_through_a_network_that_stalls_and_one_that_is_cut(
    keyed: BrokerProcess, stage: Stage, where: str, name: str
) -> None:
    truth = Truth(f"flights/{name}")
    with paho(keyed.port, name) as publisher:
        await asyncio.to_thread(truth.publish, publisher, 1, 2)
        async with WireBetween(keyed.ports["web"]) as wire:
            with stage.view(where, wire.port, truth.topic, truth, **QUICK) as view:
                await holds(lambda: view.true)
                wire.flows.clear()
                await asyncio.to_thread(truth.publish, publisher, 2)
                await holds(lambda: view.stale_told)
                await holds(lambda: wire.accepted > 1)  # it gives the connection up
                wire.flows.set()
                await holds(lambda: view.true)
                accepted = wire.accepted
                wire.cut()
                await asyncio.to_thread(truth.publish, publisher, 4)
                await holds(lambda: wire.accepted > accepted and view.true)
                assert "gap" not in view.kinds, "it has told that it is stale, and then what has changed"


@story
async def test_after_a_cut_it_takes_the_changes_and_after_the_death_of_the_broker_all(
    start: BrokerFactory, stage: Stage, tmp_path: Path, where: str, name: str
) -> None:
    """A broker that was killed may have lost what it had sent, so offsets of before count no more."""
    config = f'{WEB}[journal]\npath = "{tmp_path}"\n{TOPIC}keep = "1d"\n'
    broker, truth = start(config), Truth(f"flights/{name}")
    async with WireBetween(broker.ports["web"]) as wire:
        with stage.view(where, wire.port, truth.topic, truth, **QUICK) as view:
            with paho(broker.port, name) as publisher:
                await asyncio.to_thread(truth.publish, publisher, *range(50))
                await holds(lambda: view.true)
                broker.signal(signal.SIGSTOP)
                wire.cut()
                await holds(lambda: view.stale_told)
                broker.signal(signal.SIGCONT)
                await asyncio.to_thread(truth.publish, publisher, 3, 51, 3)
                await asyncio.to_thread(truth.delete, publisher, 4)
                await holds(lambda: view.true)
                # four changes for each connection; on a slow machine it gives up one or two before it has read them
                assert broker.consumer(view.clientId)["delivered_records"] < 50
            broker.kill()
            await holds(lambda: not view.current)
            assert view.size == 50
            after = await asyncio.to_thread(start, config)
            with paho(after.port, name) as publisher:
                await asyncio.to_thread(truth.publish, publisher, 3, 11)
                wire.target_port = after.ports["web"]
                await holds(lambda: view.true)
                assert after.consumer(view.clientId)["delivered_records"] >= 50


@story
async def test_a_broker_that_has_forgotten_all_is_believed(
    start: BrokerFactory, stage: Stage, where: str, name: str
) -> None:
    broker, truth = start(WEB + TOPIC), Truth(f"flights/{name}")
    async with WireBetween(broker.ports["web"]) as wire:
        with stage.view(where, wire.port, truth.topic, **QUICK) as view:
            with paho(broker.port, name) as publisher:
                await asyncio.to_thread(truth.publish, publisher, 1, 2, 3)
                await holds(lambda: view.current and view.image == truth.latest)
            broker.kill()
            after = await asyncio.to_thread(start, WEB + TOPIC)
            wire.target_port = after.ports["web"]
            await holds(lambda: view.current and view.size == 0 and view.adds)


@pytest.mark.parametrize("policy", ["cut", "discard"])
@story
async def test_through_what_a_policy_does_to_a_slow_page(
    keyed: BrokerProcess, stage: Stage, where: str, name: str, policy: str
) -> None:
    truth = Truth(f"flights/{policy}/{name}")
    with paho(keyed.port, name) as publisher:
        await asyncio.to_thread(truth.publish, publisher, 1, 2)
        with stage.view(where, keyed.ports["web"], truth.topic, truth, **QUICK) as view:
            await holds(lambda: view.true)
            client, stop = view.clientId, asyncio.Event()

            async def flood() -> None:
                text = json.dumps({"tailnum": "N9", "version": 0, "fill": "." * 4000})
                while not stop.is_set():
                    await asyncio.to_thread(publisher.publish, truth.topic, text, 1)

            view.signal(signal.SIGSTOP)
            flooding = asyncio.create_task(flood())
            try:
                await holds(lambda: keyed.verdicts(client))
            finally:
                stop.set()
                await flooding
                view.signal(signal.SIGCONT)
            await asyncio.to_thread(truth.publish, publisher, 9)
            await holds(lambda: view.true)
            assert "stale" in view.kinds
            assert policy == "cut" or "gap" in view.kinds


@story
async def test_with_a_selector_it_has_what_matches(
    keyed: BrokerProcess, stage: Stage, where: str, name: str
) -> None:
    topic = f"flights/{name}"
    with paho(keyed.port, name) as publisher:

        def put(number: int, version: int) -> None:
            publisher.publish(topic, json.dumps({"tailnum": f"N{number}", "version": version}), 1)

        for number in range(8):
            put(number, 10 * number)
        async with WireBetween(keyed.ports["web"]) as wire:
            with stage.view(where, wire.port, topic, selector="version > 30", **QUICK) as view:
                await holds(lambda: view.image == {"N4": 40, "N5": 50, "N6": 60, "N7": 70})
                for number, version in ((4, 5), (1, 90), (2, 20), (7, 71)):
                    put(number, version)
                await holds(lambda: view.image == {"N1": 90, "N5": 50, "N6": 60, "N7": 71})
                await holds(lambda: view.gone == [["N4", "changed"]] and view.adds)
                wire.cut()
                put(1, 7)
                put(4, 400)
                await holds(lambda: view.current and view.image == {"N4": 400, "N5": 50, "N6": 60, "N7": 71})
                assert view.adds


@story
async def test_under_load_nothing_is_lost_or_doubled_between_snapshot_and_live(
    keyed: BrokerProcess, stage: Stage, where: str, name: str
) -> None:
    truth, rng = Truth(f"flights/{name}"), Random(1)
    with paho(keyed.port, name) as publisher:
        await asyncio.to_thread(truth.publish, publisher, *range(200))
        with stage.view(where, keyed.ports["web"], truth.topic, count=VIEWS, **QUICK) as views:
            heard = 0
            while views.opened != VIEWS:
                await holds(lambda heard=heard: (views.reports or 0) > heard)  # so that they can take the load
                heard = views.reports
                await asyncio.to_thread(truth.publish, publisher, *(rng.randrange(250) for _ in range(LOAD)))
            await holds(lambda: views.images == 1 and views.image == truth.latest)
            assert views.wrong == []


@story
async def test_the_page_in_the_documentation_shows_what_there_is(keyed: BrokerProcess, stage: Stage) -> None:
    """It loads the module from the admin port."""
    need("chromium")
    text = (Path(__file__).parents[2] / "docs" / "CLIENT.md").read_text()
    page = re.search(r"^```html\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert page is not None
    addresses = {"http://127.0.0.1:9883": keyed.admin, "ws://127.0.0.1:8083": f"ws://127.0.0.1:{keyed.ports['web']}"}
    html = page[1]
    for written, here in addresses.items():
        assert html.count(written) == 1
        html = html.replace(written, here)
    with paho(keyed.port, "airports") as publisher, stage.page(html) as shown:
        for number in range(20):
            flight = json.dumps({"tailnum": f"D{number}", "delay": 2 * number})
            await asyncio.to_thread(publisher.publish, "flights/doc", flight, 1)
        lines = ["current", *(f"D{number} {2 * number}" for number in range(19, 9, -1))]
        await holds(lambda: (shown.text or "").splitlines() == lines)


@story
async def test_it_logs_in_with_what_stands_in_its_address(
    start: BrokerFactory, stage: Stage, where: str, name: str
) -> None:
    users = f'[auth.users]\nann = "{cheap_hash("p@ss w:rd")}"\n'
    broker, truth = start(WEB + TOPIC + users), Truth(f"flights/{name}")
    with paho(broker.port, name, user=("ann", "p@ss w:rd")) as publisher:
        await asyncio.to_thread(truth.publish, publisher, 1, 2)
    with stage.view(where, broker.ports["web"], truth.topic, truth, "ann:p%40ss%20w%3Ard@", **QUICK) as view:
        await holds(lambda: view.true)
    for login in ("ann:wrong@", ""):
        with stage.view(where, broker.ports["web"], truth.topic, login=login, **QUICK) as view:
            await holds(lambda view=view: vars(view)["error"])
            assert vars(view)["error"].startswith(f"ViewError: the broker refuses a view of {truth.topic}: refused: ")
    broker.kill()


@story
async def test_what_cannot_be_is_refused(keyed: BrokerProcess, stage: Stage, where: str) -> None:
    for filter, options, words in [
        ("other/#", {}, 'ViewError: the broker refuses a view of other/#: no [[topic]] with key "/tailnum" covers'),
        ("flights/#", {"selector": "delay >"}, "ViewError: the broker refuses"),
        ("flights/#", {"lease": "1s"}, 'TypeError: staleAfter "5s" has to be less than lease "1s"'),
        ("flights/#", {"stale_after": "1s"}, "TypeError: there is no option stale_after"),
        ("flights/#", {"conflate": "often"}, 'TypeError: conflate "often" is not a duration'),
    ]:
        with stage.view(where, keyed.ports["web"], filter, **{"key": "/tailnum"} | options) as view:
            await holds(lambda view=view: vars(view)["error"])
            assert words in vars(view)["error"]
