"""What the Celery worker of the tests runs: ``celery -A tests.interop.amqp_celery_app worker``."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from kombu import Queue

URL, QUEUE, PATIENCE = "HEADWAY_TEST_CELERY_URL", "HEADWAY_TEST_CELERY_QUEUE", "HEADWAY_TEST_CELERY_PATIENCE"
QUORUM = "HEADWAY_TEST_CELERY_QUORUM"


def add(one: int, other: int) -> int:
    return one + other


def length(text: str, number: int) -> list[int]:
    return [len(text), number]


def flaky(self: Any, failures: int, countdown: float = 0.1) -> int:
    """Fails so many times; how often it was retried."""
    if self.request.retries < failures:
        raise self.retry(countdown=countdown)
    return int(self.request.retries)


def broken() -> None:
    raise ValueError("as it should")


def make_app(url: str, queue: str, patience: str = "", *, quorum: bool = False) -> Any:
    """As most people have it: JSON, results by way of the broker, acks once a task is done. ``patience``: for how long
    its workers may hold a task. ``quorum``: with quorum queues, for which Celery delays tasks in queues of its own."""
    make: Any = Celery
    app: Any = make("headway-tests", broker=url, backend="rpc://", set_as_current=False)
    app.conf.update(
        task_default_queue=queue, task_acks_late=True, worker_prefetch_multiplier=2, result_expires=60,
        broker_connection_retry_on_startup=True,
    )  # fmt: skip
    if quorum:
        app.conf.update(
            task_default_queue_type="quorum", task_default_exchange=queue, task_default_exchange_type="topic",
            worker_detect_quorum_queues=True,
        )  # fmt: skip
    if patience:
        kombu_queue: Any = Queue
        arguments = {"x-headway-patience": patience}
        app.conf.task_queues = [kombu_queue(queue, routing_key=queue, consumer_arguments=arguments)]
    for task in (add, length, broken):
        app.task(name=task.__name__)(task)
    app.task(name="flaky", bind=True, max_retries=3)(flaky)
    return app


if URL in os.environ:
    app = make_app(os.environ[URL], os.environ[QUEUE], os.environ.get(PATIENCE, ""), quorum=QUORUM in os.environ)
