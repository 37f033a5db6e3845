"""Patience over AMQP: long jobs, as RabbitMQ's consumer_timeout cuts them and Celery's ETA tasks hold them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kombu
import pytest
from pika.exceptions import ChannelClosedByBroker
from tests.interop import amqp_celery_app
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_pika import Pika, PikaFactory
from tests.interop.amqp_slow import numbered, row, start_amqp
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.waiting import PATIENCE_S, until

pytest_plugins = ("tests.interop.amqp_fixtures",)

ROOT = Path(__file__).parents[2]
ASKED = "x-headway-patience"
CONFIG = """
[[policy]]
name = "timeout"
topics = ["#"]
patience_max = "1m"

[[policy.rule]]
when = { any = [{ ack_age = "500ms" }, { credit_exhausted_time = "500ms" }, { drain_rate = "<5000B/s" }] }
for = "200ms"
then = "disconnect"
"""
"""As consumer_timeout, and stricter."""


@pytest.fixture(scope="module")
def amqp_broker(start: BrokerFactory) -> Iterator[AmqpBroker]:
    broker = start_amqp(start, CONFIG)
    yield broker
    assert broker.process
    broker.process.stop()


@pytest.mark.parametrize("prefetch", [1, 5])
def test_a_long_job_of_who_asked_for_patience_and_of_who_did_not(
    headway: BrokerProcess, named: Pika, connect: PikaFactory, name: str, prefetch: int
) -> None:
    """Others wait for the one, and its own queue grows meanwhile."""
    queue, impatient = named.queue(f"{name}-1"), f"{name}-impatient"
    other = connect(client_properties={"connection_name": impatient})
    others = other.queue(f"{name}-2")
    named.consume(queue, prefetch=prefetch, arguments={ASKED: "20s"})
    other.consume(others, prefetch=prefetch)
    named.put(queue, *numbered(20))
    other.put(others, *numbered(20))
    job = named.wait(prefetch)
    assert until(lambda: headway.verdicts(impatient))[0]["action"]["kind"] == "disconnect"
    held = until(lambda: (one := row(headway, name, queue))["ack_age_ms"] > 1500 and one)
    assert (held["patience_ms"], held["slow"], held["credit_exhausted_ms"]) == (20_000, False, 0)
    assert held["patience_left_ms"] == pytest.approx(20_000 - held["ack_age_ms"], abs=5)
    assert headway.verdicts(name) == []
    named.ack(*job)
    assert named.wait(1)[0].body == numbered(20)[prefetch]


def test_a_job_held_for_longer_goes_to_another(
    headway: BrokerProcess, named: Pika, connect: PikaFactory, name: str
) -> None:
    queue = named.queue(name, exclusive=False, auto_delete=True)
    named.consume(queue, prefetch=1, arguments={"patience": "1s"})
    named.put(queue, b"job")
    (job,) = named.wait(1)
    heir = connect()
    heir.consume(queue, auto_ack=True)
    (again,) = heir.wait(1)
    assert (again.body, again.redelivered) == (b"job", True)
    verdict = headway.verdicts(name)[0]
    assert (verdict["action"]["kind"], verdict["reason"], verdict["cause"]) == ("return", "ack_age", "application")
    assert "held beyond the 1 s of patience it asked for" in verdict["text"]
    named.ack(job)  # too late, and no fault
    heir.put(queue, b"next", b"and next")
    until(lambda: len(named.turn()) + len(heir.turn()) == 2)
    assert named.got, "its window is free again"
    named.ack(*named.got)


def test_a_message_says_for_how_long_its_job_may_take(
    headway: BrokerProcess, named: Pika, connect: PikaFactory, name: str
) -> None:
    queue = named.queue(name, exclusive=False, auto_delete=True)
    named.consume(queue, prefetch=1)
    named.put(queue, b"long", headers={ASKED: "3s"})
    named.put(queue, b"next", headers={ASKED: "20s"})
    (job,) = named.wait(1)
    held = until(lambda: (one := row(headway, name, queue))["ack_age_ms"] > 1500 and one)
    assert (held["patience_ms"], held["slow"], held["credit_exhausted_ms"]) == (0, False, 0)
    assert held["patience_left_ms"] == pytest.approx(3000 - held["ack_age_ms"], abs=5)
    heir = connect()
    heir.consume(queue, prefetch=2)
    late, again = sorted(heir.wait(2), key=lambda one: one.redelivered)
    assert (late.body, again.body, again.redelivered) == (b"next", b"long", True)
    verdict = headway.verdicts(name)[0]
    assert (verdict["action"]["kind"], verdict["reason"]) == ("return", "ack_age")
    assert "held beyond the 3 s of patience its message asked for" in verdict["text"]
    named.ack(job)
    heir.ack(late, again)


@pytest.mark.parametrize("value", ["soon", "20", 20, True])
def test_a_message_that_asks_in_another_way_is_refused(named: Pika, name: str, value: Any) -> None:
    queue = named.queue(name)
    with pytest.raises(ChannelClosedByBroker, match=f"header {ASKED}: ") as caught:
        named.put(queue, b"job", headers={ASKED: value})
    assert caught.value.reply_code == 406


def test_nobody_is_granted_more_than_the_policy_has(headway: BrokerProcess, named: Pika, name: str) -> None:
    queue = named.queue(name)
    named.consume(queue, arguments={ASKED: "2h"})
    assert row(headway, name, queue)["patience_ms"] == 60_000
    line = f"{name} on $queue/{name}: asked for patience of 2 h and was granted 60 s, by policy 'timeout'"
    until(lambda: line in headway.log.read_text(), what=line)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({ASKED: "soon"}, "option patience='soon': takes a duration"),
        ({ASKED: 20}, "option patience='20': takes a duration"),
        ({"patience": 1_200_000}, "option patience='1200000': takes a duration"),
        ({"x-headway-patiense": "20m"}, "there is no x-headway-patiense; did you mean x-headway-patience"),
    ],
)
def test_what_is_misspelt_is_refused(
    headway: BrokerProcess, named: Pika, name: str, arguments: Any, words: str
) -> None:
    queue = named.queue(name)
    with pytest.raises(ChannelClosedByBroker, match=words) as caught:
        named.consume(queue, arguments=arguments)
    assert caught.value.reply_code == 406
    assert headway.verdicts(name) == []


def test_what_is_other_brokers_is_ignored(named: Pika, headway: BrokerProcess, name: str) -> None:
    queue = named.queue(name)
    named.consume(queue, arguments={"x-priority": 5, "x-stream-offset": "first", "x-headway-policy": "patient"})
    assert row(headway, name, queue)["policy"] == "patient"


# -- Celery ---------------------------------------------------------------------------------------------------------


def test_a_celery_worker_holds_tasks_until_they_are_due(
    amqp_broker: AmqpBroker, headway: BrokerProcess, tmp_path: Path, name: str
) -> None:
    """Its tasks with an ETA stay unacknowledged: with acks_late nothing says that it is well."""
    log = tmp_path / "log"
    environment = os.environ | {
        amqp_celery_app.URL: amqp_broker.url, amqp_celery_app.QUEUE: name, amqp_celery_app.PATIENCE: "20s"
    }  # fmt: skip
    command = [sys.executable, "-m", "celery", "-A", "tests.interop.amqp_celery_app", "worker", "--pool=solo",
               "--without-mingle", "--without-gossip", "-n", f"{name}@here", "-l", "INFO"]  # fmt: skip
    with log.open("wb") as out:
        worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
    app = amqp_celery_app.make_app(amqp_broker.url, name, "20s")
    try:
        until(lambda: worker.poll() is not None or " ready." in log.read_text(), 30.0, "the worker is ready")
        results = [app.tasks["add"].apply_async((number, 1), countdown=3) for number in range(5)]

        def held() -> list[dict[str, Any]]:
            found = headway.get("/v1/consumers")["consumers"]
            return [one for one in found if one["filter"] == f"$queue/{name}" and one["ack_age_ms"] > 1000]

        (consumer,) = until(held, what="tasks held for a second")
        assert (consumer["patience_ms"], consumer["slow"], consumer["last_verdict"]) == (20_000, False, None)
        assert [result.get(timeout=PATIENCE_S) for result in results] == [1, 2, 3, 4, 5]
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(PATIENCE_S)
        with app.connection() as connection:
            connection.default_channel.queue_delete(name)
        app.backend.result_consumer.stop()
        app.close()
        pools: Any = kombu.pools
        pools.reset()
    said = log.read_text()
    assert said.count(" succeeded in ") == 5, f"not each once: {said}"
    assert "Connection to broker lost" not in said
