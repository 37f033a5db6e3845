"""A stage for consumers of topics over AMQP: they read, and a client publishes to ``amq.topic``."""

from __future__ import annotations

from typing import Any

from pamqp.commands import Basic
from tests.server.amqp_stage import Client, Content, House

TOPICS = "amq.topic"


class Reader(Client):
    def consume(self, key: str, tag: str = "t", *, no_ack: bool = True, channel: int = 1, **options: Any) -> list[str]:
        arguments = {f"x-headway-{name}": value for name, value in {"topics": key, **options}.items()}
        asked = Basic.Consume(queue=TOPICS, consumer_tag=tag, no_ack=no_ack, arguments=arguments)
        return self.say(asked, channel=channel)

    @property
    def contents(self) -> list[Content]:
        return [item for _, item in self.heard if isinstance(item, Content)]

    @property
    def got(self) -> list[tuple[str, bytes]]:
        return [(content.method.routing_key, content.body) for content in self.contents]


def reader(house: House, name: str = "reader", **more: Any) -> Reader:
    return Reader(house, name, **more)


def publish(client: Client, **records: str | int) -> None:
    """``a_b=1`` goes to ``a.b``."""
    for key, text in records.items():
        client.put(key.replace("_", "."), str(text).encode(), exchange=TOPICS)
    client.house.run()
