"""What is to be done at some time is done then: without any tick, here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interop.waiting import holds

from headway.core.consumer.poll import ConnectionlessOutlet
from headway.core.consumer.request import ConnectRequest, QueueTerms
from headway.core.message.record import Run, topic_of
from headway.core.routing.matching.bindings import Binding, Destination
from headway.server.config.reading import parse_settings
from headway.server.engine.engine import Engine
from headway.wire.amqp.dialect import AmqpDialect

FAR_S = 0.1


def play(folder: Path, scene: Callable[[Engine], Callable[[], bool]]) -> None:
    """``scene`` returns what is to come true."""

    async def whole() -> None:
        engine = Engine(parse_settings(f'[pool]\ndisk_path = "{folder}"\n'), asyncio.get_running_loop())
        engine.start()
        assert engine._ticks._timer is not None
        engine._ticks._timer.cancel()
        condition = scene(engine)
        engine.turn_soon()
        try:
            await holds(condition)
        finally:
            engine.stop()

    asyncio.run(whole())


def test_timers_ring_at_their_time(tmp_path: Path) -> None:
    def scene(engine: Engine) -> Callable[[], bool]:
        rung: list[float] = []
        timers, began = engine.broker.registry.timers, engine.now()
        for number in range(20):
            timers.at(began + FAR_S * (20 - number) / 20, rung.append)
        return lambda: len(rung) == 20 and rung == sorted(rung) and rung[0] >= began + FAR_S / 20

    play(tmp_path, scene)


@pytest.mark.parametrize("how", ["x-message-ttl", "expiration"])
def test_dead_letters_leave_when_their_time_is_over(tmp_path: Path, how: str) -> None:
    def scene(engine: Engine) -> Callable[[], bool]:
        broker, now, dialect = engine.broker, engine.now(), AmqpDialect()
        session = broker.connect(ConnectRequest("ann", "mqtt"), ConnectionlessOutlet(now), now)
        terms = QueueTerms(ttl_s=FAR_S if how == "x-message-ttl" else None, dead_letter_exchange="amq.fanout")
        broker.queues.declare(session, "work", terms, dialect, now)
        grave = broker.queues.declare(session, "grave", QueueTerms(), dialect, now)
        broker.queues.bind(session, Binding("amq.fanout", Destination("queue", "grave"), ""))
        run = Run(topic_of("work"), b"x", [1], [0], None, 0, False, exchange="")
        run.expires_s = now + FAR_S if how == "expiration" else run.expires_s
        broker.intake.publish_to(session, run, now)
        return lambda: grave.backlog.lag_records == 1

    play(tmp_path, scene)
