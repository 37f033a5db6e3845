"""A program that does not keep up with its own broker is a slow consumer as any other: nothing queues for it, the
others do not notice, policies are for it, and `why` names it. A program that publishes too much waits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.embed.stage import config, get, play, turns
from tests.interop.waiting import holds

from headway.embed import Broker, Ended, Gap, Reason, Record, Subscription
from headway.embed.outlet import ROOM_BYTES

ADMIN = {"admin": "http://127.0.0.1:0"}
RECORDS = 4_000
PAYLOAD = b"x" * 1_000


def when(condition: dict[str, str], then: object) -> list[dict[str, Any]]:
    return [{"name": "p", "topics": ["#"], "listeners": ["program"], "rule": [{"when": condition, "then": then}]}]


async def count(records: Subscription, wanted: int) -> int:
    found = 0
    async for one in records:
        assert isinstance(one, Record)
        found += 1
        if found == wanted:
            break
    return found


async def publish(broker: Broker, records: int = RECORDS) -> None:
    for _ in range(records):
        await broker.publish("t", PAYLOAD)


def test_who_does_not_iterate_costs_nothing_here_and_nothing_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path, server=ADMIN)) as broker:
            stuck = [broker.subscribe("t", client=f"stuck-{number}") for number in range(20)]
            good = broker.subscribe("t")
            done, _ = await asyncio.gather(count(good, RECORDS), publish(broker))
            assert done == RECORDS
            assert {one.unread_bytes for one in stuck} == {ROOM_BYTES}
            lane = broker.running.engine.broker.registry.pools[""]
            assert lane.memory_bytes < 2 * RECORDS * len(PAYLOAD)  # one log for all of them
            listed = (await get(broker, "/v1/consumers?client=stuck-7"))["consumers"]
            assert [row["client"] for row in listed] == ["stuck-7"]
            assert listed[0]["lag_records"] > RECORDS * 0.9
            assert listed[0]["protocol"] == "program"
            assert await count(stuck[3], RECORDS) == RECORDS  # nothing was lost

    play(story())


def test_a_policy_ends_it_and_why_names_it(tmp_path: Path) -> None:
    async def story() -> None:
        policy = when({"lag_records": "1000"}, "disconnect")
        async with Broker(config(tmp_path, server=ADMIN, policy=policy)) as broker:
            stuck = broker.subscribe("t", client="stuck")
            await publish(broker)
            await holds(lambda: "stuck" not in broker.running.engine.broker.registry.sessions)
            with pytest.raises(Ended, match="records") as ended:
                await count(stuck, RECORDS)
            assert ended.value.reason is Reason.LAG_RECORDS
            with pytest.raises(StopAsyncIteration):
                await anext(stuck)
            told = await get(broker, "/v1/why/stuck")
            assert [one["reason"] for one in told["verdicts"]] == ["lag_records"]

    play(story())


def test_discarded_records_are_told_as_a_gap(tmp_path: Path) -> None:
    async def story() -> None:
        then = {"action": "discard", "which": "oldest", "keep_records": 100}
        async with Broker(config(tmp_path, policy=when({"lag_records": "1000"}, then))) as broker:
            slow = broker.subscribe("t", client="slow")
            await publish(broker)
            session = broker.running.engine.broker.registry.sessions["slow"]
            await holds(lambda: all(one.gap is not None for one in session.subscriptions.values()))
            gaps, records = list[Gap](), 0
            async for one in slow:
                if isinstance(one, Gap):
                    gaps.append(one)
                    assert (one.topic, one.reason) == ("t", "discarded")
                    continue
                records += 1
                if records + sum(gap.count for gap in gaps) == RECORDS:
                    break
            assert gaps
            assert records < RECORDS

    play(story())


def test_conflated_it_gets_the_latest_of_each_key(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path)) as broker:
            slow = broker.subscribe("k/#", conflate="0s")
            for number in range(20_000):
                await broker.publish(f"k/{number % 10}", {"number": number, "pad": "x" * 50})
            image: dict[str, int] = {}
            records = 0
            while len(image) < 10 or min(image.values()) < 19_990:
                one = await anext(slow)
                if isinstance(one, Record):
                    image[one.topic] = one.json()["number"]
                    records += 1
            assert records < 5_000

    play(story())


def test_a_policy_holds_back_who_publishes(tmp_path: Path) -> None:
    """`await publish` is where the program waits: for as long as the consumer stands still, and no longer."""

    async def story() -> None:
        async with Broker(config(tmp_path, policy=when({"lag_bytes": "500KB"}, "block_publishers"))) as broker:
            slow = broker.subscribe("t", client="slow")
            published = 0

            async def produce() -> None:
                nonlocal published
                for _ in range(RECORDS):
                    await broker.publish("t", PAYLOAD)
                    published += 1

            producer = asyncio.create_task(produce())
            engine = broker.running.engine
            await holds(lambda: engine.broker.registry.backpressure.waiting)
            at = published
            for _ in range(20):
                await broker.publish("elsewhere", b"x", publisher="another")  # it does not wait
                await turns()
            assert at == published < RECORDS
            assert await count(slow, RECORDS) == RECORDS
            await producer

    play(story())


def test_a_full_pool_holds_back_who_publishes(tmp_path: Path) -> None:
    async def story() -> None:
        pool = {"memory": "2MB", "disk": 0, "disk_path": str(tmp_path), "max_client_share": "100%"}
        async with Broker(config(tmp_path) | {"pool": pool, "policy": []}) as broker:
            slow = broker.subscribe("t", client="slow")
            producer = asyncio.create_task(publish(broker))
            engine = broker.running.engine
            await holds(lambda: engine.broker.registry.backpressure.waiting or producer.done())
            assert engine.broker.registry.pools[""].memory_bytes < 3_000_000
            found = 0
            while not producer.done() and found < RECORDS:
                one = await anext(slow)
                found += one.count if isinstance(one, Gap) else 1
            await producer

    play(story())


def test_a_program_that_only_publishes_lets_the_broker_send(tmp_path: Path) -> None:
    """A loop without any other await cannot keep the broker from its turns."""

    async def story() -> None:
        async with Broker(config(tmp_path)) as broker:
            turns_before = broker.running.engine.turns
            await publish(broker, 3_000)  # 3 MB
            assert broker.running.engine.turns - turns_before > 10

    play(story())


def test_a_subscription_ends_with_its_iterator(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path)) as broker:
            sessions = broker.running.engine.broker.registry.sessions
            await broker.publish("t", b"1", retain=True)
            async for _ in broker.subscribe("t", client="left"):
                break
            await turns()
            assert "left" not in sessions
            async with broker.subscribe("t", client="block") as block:
                assert "block" in sessions
                await anext(block)
            assert "block" not in sessions
            with pytest.raises(StopAsyncIteration):
                await anext(block)
            waiting = asyncio.create_task(anext(block := broker.subscribe("none", client="closed")))  # type: ignore[arg-type]
            await turns()
            block.close()
            with pytest.raises(StopAsyncIteration):
                await waiting
            leased = broker.subscribe("none", client="leased", lease="100ms")
            with pytest.raises(Ended) as ended:
                await anext(leased)
            assert ended.value.reason is Reason.SUBSCRIPTION_ENDED
            waiting = asyncio.create_task(anext(broker.subscribe("none", client="cut")))  # type: ignore[arg-type]
            await turns()
            engine = broker.running.engine
            engine.broker.expel(sessions["cut"], Reason.ADMIN, "disconnected by an operator", engine.now())
            engine.turn_soon()
            with pytest.raises(Ended, match="operator"):
                await waiting

    play(story())
