"""Views beside real brokers: never wrong, always saying how old they are, and current again by themselves."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho, paho
from tests.interop.process import BrokerProcess
from tests.interop.view_stories import PATIENT, QUICK, SLOW, TOPIC, Truth, kinds, publish, story, url
from tests.interop.waiting import holds, until
from tests.interop.wire_between import WireBetween
from tests.passwords import cheap_hash

from headway.client import Current, Gap, OutOfFocus, Put, Stale, View, ViewError
from headway.core.base import ConfigError


@pytest.fixture(scope="module")
def keyed(start: BrokerFactory) -> BrokerProcess:
    return start(TOPIC)


@story
async def test_it_opens_with_all_there_is_and_follows(keyed: BrokerProcess, name: str) -> None:
    truth = Truth(f"flights/{name}")
    with paho(keyed.port, name) as publisher:
        await publish(truth, publisher, *range(20), 7)
        async with View(url(keyed.port), truth.topic, **PATIENT) as view:
            assert len(view) == 20
            assert view["N7"].json()["version"] == 21
            assert view[truth.topic, "N7"] is view["N7"]
            assert view.as_of.offset >= view["N7"].offset
            async with truth.holds_for(view) as told:
                await publish(truth, publisher, 8, 30)
                client = until(lambda: keyed.consumer(view.client_id))
                assert client["filter"] == truth.topic
            assert view.to_arrow().column("key").to_pylist() == [key.key for key in view]
            assert kinds(told) == []
            truth.delete(publisher, 8)
            await holds(lambda: truth.is_shown(view))
            with pytest.raises(KeyError):
                view["N8"]
        assert (len(view), view.current, view.why_stale) == (20, False, "the view is closed")


@story
async def test_through_a_broker_that_stands_still(keyed: BrokerProcess, name: str) -> None:
    truth = Truth(f"flights/{name}")
    with paho(keyed.port, name) as publisher:
        await publish(truth, publisher, 1, 2)
        async with View(url(keyed.port), truth.topic, **QUICK) as view, truth.holds_for(view) as told:
            keyed.signal(signal.SIGSTOP)
            try:
                await holds(lambda: Stale in kinds(told))
                assert not view.current
                assert len(view) == 2
                assert view.stale_s > 0.4
            finally:
                keyed.signal(signal.SIGCONT)
            await publish(truth, publisher, 1, 3)
        assert kinds(told)[:2] == [Stale, Current]


@story
async def test_through_a_network_that_stalls_and_one_that_is_cut(keyed: BrokerProcess, name: str) -> None:
    truth = Truth(f"flights/{name}")
    with paho(keyed.port, name) as publisher:
        await publish(truth, publisher, 1, 2)
        async with (
            WireBetween(keyed.port) as wire,
            View(url(wire.port), truth.topic, **QUICK) as view,
            truth.holds_for(view) as told,
        ):
            wire.flows.clear()
            await publish(truth, publisher, 1, 3)
            await holds(lambda: Stale in kinds(told))
            wire.flows.set()
            await holds(lambda: truth.is_shown(view))
            assert wire.accepted == 1
            wire.flows.clear()
            await publish(truth, publisher, 2)
            await holds(lambda: wire.accepted > 1)  # it gives the connection up
            wire.flows.set()
            await holds(lambda: truth.is_shown(view))
            accepted = wire.accepted
            wire.cut()
            await publish(truth, publisher, 4)
            await holds(lambda: wire.accepted > accepted)
            await holds(lambda: truth.is_shown(view))
        assert Gap not in kinds(told), "it has told that it is stale, and then what has changed"


@story
async def test_after_a_cut_it_takes_the_changes_and_after_the_death_of_the_broker_all(
    start: BrokerFactory, tmp_path: Path, name: str
) -> None:
    """A broker that was killed may have lost what it had sent, so offsets of before count no more."""
    config = f'[journal]\npath = "{tmp_path}"\n{TOPIC}keep = "1d"\n'
    broker, truth = start(config), Truth(f"flights/{name}")
    async with WireBetween(broker.port) as wire:
        with paho(broker.port, name) as publisher:
            await publish(truth, publisher, *range(50))
            view = await View(url(wire.port), truth.topic, **QUICK).__aenter__()
            async with truth.holds_for(view) as told:
                broker.signal(signal.SIGSTOP)
                wire.cut()
                await holds(lambda: Stale in kinds(told))
                broker.signal(signal.SIGCONT)
                await publish(truth, publisher, 3, 51, 3)
                await asyncio.to_thread(truth.delete, publisher, 4)
                await holds(lambda: truth.is_shown(view))
                assert broker.consumer(view.client_id)["delivered_records"] <= 4
        async with truth.holds_for(view) as told:
            broker.kill()
            await holds(lambda: Stale in kinds(told))
            assert len(view) == 50
            after = await asyncio.to_thread(start, config)
            with paho(after.port, name) as publisher:
                await publish(truth, publisher, 3, 11)
                wire.target_port = after.port
                await holds(lambda: truth.is_shown(view))
                assert after.consumer(view.client_id)["delivered_records"] >= 50
        assert kinds(told) == [Stale, Current]
        await view.close()


@story
async def test_a_broker_that_has_forgotten_all_is_believed(start: BrokerFactory, name: str) -> None:
    broker, truth = start(TOPIC), Truth(f"flights/{name}")
    async with WireBetween(broker.port) as wire:
        with paho(broker.port, name) as publisher:
            await publish(truth, publisher, *range(3))
            view = await View(url(wire.port), truth.topic, **QUICK).__aenter__()
        broker.kill()
        after = await asyncio.to_thread(start, TOPIC)
        wire.target_port = after.port
        await holds(lambda: view.current and not len(view))
        await view.close()


@pytest.fixture(scope="module")
def strict(start: BrokerFactory) -> BrokerProcess:
    return start(TOPIC + SLOW, server={"send_buffer": "16KiB"})


@pytest.mark.parametrize(("policy", "rounds"), [("cut", 2), ("discard", 1)])
@story
async def test_through_what_a_policy_does_to_a_slow_reader(
    strict: BrokerProcess, name: str, policy: str, rounds: int
) -> None:
    """A reader that is cut a second time is shut out for a while."""
    topic = f"flights/{policy}/{name}"

    def busy(publisher: Paho, round: int) -> int:
        for number in range(4000):
            text = json.dumps({"tailnum": f"N{number % 20}", "x": 4000 * round + number, "fill": "." * 2000})
            publisher.publish(topic, text, int(number == 3999))
        return 4000 * round + 3999

    with paho(strict.port, name) as publisher:
        async with View(url(strict.port), topic, max_queued=10, **QUICK) as view:
            for round in range(rounds):
                changes, told, before = view.changes(), [], len(strict.verdicts(view.client_id))
                last = await asyncio.to_thread(busy, publisher, round)
                await holds(lambda before=before: len(strict.verdicts(view.client_id)) > before)
                await holds(lambda: not view.current)

                async def read(changes: Any = changes, told: Any = told) -> None:
                    async for change in changes:
                        told.append(change)

                reading = asyncio.create_task(read())
                await holds(lambda last=last: view.current and view["N19"].json()["x"] == last)
                reading.cancel()
                assert kinds(told)[0] in (Gap, Stale)
                assert Stale in kinds(told)


@story
async def test_a_slow_reader_gets_all_changes_or_the_latest_of_each_key(keyed: BrokerProcess, name: str) -> None:
    truth = Truth(f"flights/{name}")
    with paho(keyed.port, name) as publisher:
        async with (
            View(url(keyed.port), truth.topic, max_queued=5, **QUICK) as waits,
            View(url(keyed.port), truth.topic, max_queued=5, when_full="conflate", **QUICK) as conflates,
        ):
            every, latest = waits.changes(), conflates.changes()
            await publish(truth, publisher, *[number % 3 for number in range(30)])
            await holds(lambda: truth.is_shown(conflates))
            assert len(waits) == 3
            assert not truth.is_shown(waits)
            assert [type(await anext(latest)) for _ in range(4)] == [Current, Put, Put, Put]
            puts: list[Put] = []
            while len(puts) < 30:
                change = await anext(every)
                if isinstance(change, Put):
                    puts.append(change)
            assert [put.entry.json()["version"] for put in puts] == list(range(1, 31))
            await holds(lambda: truth.is_shown(waits))


@story
async def test_with_a_selector_it_has_what_matches(keyed: BrokerProcess, name: str) -> None:
    topic, delays = f"flights/{name}", {number: 10 * number for number in range(8)}

    def put(publisher: Paho, number: int, delay: int) -> None:
        publisher.publish(topic, json.dumps({"tailnum": f"N{number}", "delay": delay}), 1)
        delays[number] = delay

    def shown(view: View) -> dict[str | None, int]:
        return {key.key: entry.json()["delay"] for key, entry in view.copy().items()}

    def matching() -> dict[str | None, int]:
        return {f"N{number}": delay for number, delay in delays.items() if delay > 30}

    with paho(keyed.port, name) as publisher:
        for number, delay in delays.items():
            put(publisher, number, delay)
        async with WireBetween(keyed.port) as wire, View(url(wire.port), topic, selector="delay > 30", **QUICK) as view:
            changes = view.changes()
            assert shown(view) == matching()
            for number, delay in ((4, 5), (1, 90), (2, 20), (7, 71)):
                await asyncio.to_thread(put, publisher, number, delay)
            await holds(lambda: shown(view) == matching())
            told = await changes.some(1)
            while len(told) < 4:
                told += await changes.some(9)
            assert isinstance(told[0], Current)
            gone = [(change.key.key, change.why) for change in told if isinstance(change, OutOfFocus)]
            assert gone == [("N4", "changed")]
            wire.cut()
            for number, delay in ((1, 7), (4, 400)):
                await asyncio.to_thread(put, publisher, number, delay)
            await holds(lambda: view.current and shown(view) == matching())


@story
async def test_a_lease_that_ran_out_is_found(keyed: BrokerProcess, name: str) -> None:
    truth = Truth(f"flights/{name}")
    with paho(keyed.port, name) as publisher:
        await publish(truth, publisher, 1, 5)
        async with WireBetween(keyed.port) as wire, View(url(wire.port), truth.topic, lease="500ms", **QUICK) as view:
            async with truth.holds_for(view):
                await holds(lambda: keyed.consumer(view.client_id))
                wire.flows.clear()
                await holds(lambda: not keyed.consumer(view.client_id))
                await publish(truth, publisher, 1, 2)
                await asyncio.to_thread(truth.delete, publisher, 5)
                wire.flows.set()
            assert wire.accepted == 1


@pytest.fixture(scope="module")
def guarded(start: BrokerFactory, certificates: Path) -> BrokerProcess:
    """A broker with users, TLS and WebSocket."""
    files = f'certificate = "{certificates}/server.pem"\nkey = "{certificates}/server-key.pem"\n'
    tls = "".join(f"[listeners.{scheme}.tls]\n{files}" for scheme in ("mqtts", "wss"))
    schemes = ("mqtt", "mqtts", "ws", "wss")
    listeners = "".join(f'[listeners.{scheme}]\nurl = "{scheme}://127.0.0.1:0"\n' for scheme in schemes)
    users = f'[auth.users]\nalice = "{cheap_hash("s:ecret")}"\n'
    return start(listeners + tls + users + TOPIC)


@pytest.mark.parametrize("scheme", ["mqtt", "mqtts", "ws", "wss"])
@story
async def test_over_each_transport(guarded: BrokerProcess, certificates: Path, name: str, scheme: str) -> None:
    truth = Truth(f"flights/{name}")
    ca = f"?ca={certificates}/ca.pem" if scheme in ("mqtts", "wss") else ""
    address = f"{scheme}://alice:s%3Aecret@localhost:{guarded.ports[scheme]}{ca}"
    with paho(guarded.ports["mqtt"], name, user=("alice", "s:ecret")) as publisher:
        await publish(truth, publisher, *range(300))
        async with View(address, truth.topic, patience="1m", **QUICK) as view, truth.holds_for(view):
            await publish(truth, publisher, *range(100))
        with pytest.raises(ViewError, match="refuse"):
            await View(address.replace("ecret", "x"), truth.topic, **QUICK).__aenter__()


def test_in_threads(keyed: BrokerProcess, name: str) -> None:
    truth = Truth(f"flights/{name}")
    with paho(keyed.port, name) as publisher:
        truth.publish(publisher, 1)
        with View.open(url(keyed.port), truth.topic, **QUICK) as view:
            assert view["N1"].json()["version"] == 1
            changes = view.changes()
            truth.publish(publisher, 2)
            first, then = next(changes), next(changes)
            assert isinstance(first, Current)
            assert isinstance(then, Put)
            assert then.entry == view["N2"]
            assert view.current
        assert list(changes) == []
        assert len(view) == 2
        view.close()


@pytest.mark.parametrize(
    ("filter", "terms", "error", "words"),
    [
        ("flights/x", {"key": "/other"}, ViewError, r"no \[\[topic\]\] with key '/other' covers flights/x"),
        ("trains/x", {}, ViewError, r"no \[\[topic\]\] with key '/tailnum' covers trains/x"),
        ("flights/x", {"selector": "delay = ;"}, ViewError, "selector, character 9"),
        ("flights/x", {"policy": "none"}, ViewError, "there is no policy 'none'"),
        ("flights/#/x", {}, ConfigError, "'#' must be the whole of the last level"),
        ("flights/x", {"key": "tailnum"}, ConfigError, "is none of: a JSON pointer"),
        ("flights/x", {"lease": "1x"}, ConfigError, "lease='1x'"),
        ("flights/x", {"lease": "1s"}, ConfigError, "stale_after='5s' has to be less than lease='1s'"),
        ("flights/x", {"conflate": "1m"}, ConfigError, "conflate='1m' has to be less than stale_after"),
        ("flights/x", {"max_queued": 0}, ConfigError, "at least 1"),
        ("flights/x", {"when_full": "drop"}, ConfigError, "'wait' or 'conflate'"),
    ],
)
def test_what_cannot_be_is_refused(
    keyed: BrokerProcess, filter: str, terms: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        View.open(url(keyed.port), filter, **{"key": "/tailnum"} | terms)
