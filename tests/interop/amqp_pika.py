"""pika's blocking client as most people use it, with what arrived kept in the order it came."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import pika
import pytest
from pika.exceptions import AMQPError, ChannelClosedByBroker
from tests.interop.waiting import PATIENCE_S, until


class Delivery(NamedTuple):
    tag: int
    body: bytes
    redelivered: bool
    exchange: str
    key: str
    properties: Any
    consumer: str = ""

    @property
    def headers(self) -> dict[str, Any]:
        return self.properties.headers or {}


def properties(**values: Any) -> Any:
    make: Any = pika.BasicProperties
    return make(**values)


class Pika:
    """A connection with a channel to work on, and another, in confirm mode, to publish on."""

    def __init__(self, port: int, **more: Any) -> None:
        more.setdefault("heartbeat", 0)
        more.setdefault("credentials", pika.PlainCredentials("guest", "guest"))
        self.connection: Any = pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", port, socket_timeout=PATIENCE_S, stack_timeout=PATIENCE_S,
                blocked_connection_timeout=PATIENCE_S, connection_attempts=1, **more,
            )
        )  # fmt: skip
        self.channel: Any = self.connection.channel()
        self.out: Any = self.connection.channel()
        self.out.confirm_delivery()
        self.got: list[Delivery] = []
        self.queues: dict[str, str] = {}
        """Those consumed from, by consumer tag."""

    def close(self) -> None:
        """Also when the broker has done so already."""
        with suppress(AMQPError):
            self.connection.close()

    @contextmanager
    def refused(self, code: int) -> Iterator[None]:
        """The broker closes the channel for that; a new one takes its place."""
        with pytest.raises(ChannelClosedByBroker) as caught:
            yield
        assert caught.value.reply_code == code, caught.value
        self.channel = self.connection.channel()

    # -- queues and exchanges ---------------------------------------------------------------------------------------

    def queue(self, name: str = "", arguments: dict[str, Any] | None = None, **more: Any) -> str:
        """Declare one that goes with the connection unless told otherwise; its name."""
        more.setdefault("exclusive", True)
        found: str = self.channel.queue_declare(name, arguments=arguments, **more).method.queue
        return found

    def exchange(self, name: str, kind: str = "fanout", **more: Any) -> str:
        """Declare one that goes with its last binding unless told otherwise."""
        more.setdefault("auto_delete", True)
        self.channel.exchange_declare(name, kind, **more)
        return name

    def bound(self, exchange: str, *keys: str, **more: Any) -> str:
        """A queue of its own, bound with each key."""
        queue = self.queue()
        for key in keys:
            self.channel.queue_bind(queue, exchange, key, **more)
        return queue

    def count(self, queue: str) -> tuple[int, int]:
        """Records that wait, and consumers."""
        answer = self.channel.queue_declare(queue, passive=True).method
        return answer.message_count, answer.consumer_count

    def exists(self, queue: str = "", *, exchange: str = "") -> bool:
        channel = self.connection.channel()
        try:
            if exchange:
                channel.exchange_declare(exchange, passive=True)
            else:
                channel.queue_declare(queue, passive=True)
        except ChannelClosedByBroker as error:
            if error.reply_code != 404:
                raise
            return False
        channel.close()
        return True

    # -- messages ---------------------------------------------------------------------------------------------------

    def put(self, key: str, *bodies: bytes | str, exchange: str = "", mandatory: bool = False, **more: Any) -> None:
        """Publish, and see each confirmed; ``more`` are properties."""
        for body in bodies:
            self.out.basic_publish(exchange, key, body, properties(**more), mandatory)

    def get(self, queue: str, auto_ack: bool = False) -> Delivery | None:
        method, said, body = self.channel.basic_get(queue, auto_ack)
        if method is None:
            return None
        return Delivery(method.delivery_tag, body, method.redelivered, method.exchange, method.routing_key, said)

    def take(self, queue: str) -> Delivery:
        """Get and acknowledge the next one, waiting for it."""
        found = until(lambda: self.get(queue, auto_ack=True), what=f"a record in {queue}")
        assert found is not None
        return found

    def drain(self, queue: str) -> list[bytes]:
        """All that wait now."""
        found = []
        while (one := self.get(queue, auto_ack=True)) is not None:
            found.append(one.body)
        return found

    def consume(self, queue: str, *, auto_ack: bool = False, prefetch: int | None = None, **more: Any) -> str:
        """The consumer's tag. What comes is in ``got``."""
        if prefetch is not None:
            self.channel.basic_qos(prefetch_count=prefetch)

        def arrived(_channel: Any, method: Any, said: Any, body: bytes) -> None:
            self.got.append(
                Delivery(
                    method.delivery_tag, body, method.redelivered, method.exchange, method.routing_key, said,
                    method.consumer_tag,
                )
            )  # fmt: skip

        tag: str = self.channel.basic_consume(queue, arrived, auto_ack=auto_ack, **more)
        self.queues[tag] = queue
        return tag

    def cancel(self, tag: str) -> None:
        self.channel.basic_cancel(tag)
        del self.queues[tag]

    def wait(self, count: int, seconds: float = PATIENCE_S) -> list[Delivery]:
        """So many deliveries; they are taken out of ``got``."""
        until(lambda: len(self.turn()) >= count, seconds, f"{count} deliveries")
        found, self.got = self.got[:count], self.got[count:]
        return found

    def bodies(self, count: int) -> list[bytes]:
        return [one.body for one in self.wait(count)]

    def so_far(self) -> list[Delivery]:
        """All deliveries that are due now. Answers may overtake them, so each queue is asked twice."""
        for queue in 2 * list(self.queues.values()):
            self.count(queue)
        self.turn()
        found, self.got = self.got, []
        return found

    def turn(self) -> list[Delivery]:
        """Take in what has come; all that came so far."""
        self.connection.process_data_events(0)
        return self.got

    def ack(self, *deliveries: Delivery) -> None:
        for one in deliveries:
            self.channel.basic_ack(one.tag)


PikaFactory = Callable[..., Pika]
