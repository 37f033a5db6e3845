"""Actors: one consumer (or a few that belong together) of the set, with its connections, feeds and labels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import NamedTuple, TypeVar

import aiohttp

from bench.behaviours.consumers import connect
from bench.behaviours.consumers.feeds import Feed, Publisher
from bench.behaviours.consumers.labels import Label
from bench.behaviours.consumers.links import AmqpLink, Job, Link, MqttLink
from bench.peers.peer import Instance

AnyLink = TypeVar("AnyLink", bound=Link)
RECORD_BYTES = (200, 500, 1000, 2000)


class Stage:
    """The common ground of all actors: the broker, the publisher, and when the run ends, on the loop's clock."""

    def __init__(self, instance: Instance, publisher: Publisher, http: aiohttp.ClientSession, end: float) -> None:
        self.instance, self.publisher, self.http, self.end = instance, publisher, http, end
        self.labels: list[Label] = []


class Actor:
    def __init__(self, stage: Stage, kind: Kind, name: str, random: Random) -> None:
        self.stage, self.kind, self.name, self.random = stage, kind, name, random
        self._opened: list[Link] = []
        self.receive_buffer: int | None = None
        """The size for the next connections; None: the default of the kernel, or now and then 64 KiB."""
        self.label = self.labelled(name)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def end(self) -> float:
        return self.stage.end

    def labelled(self, client: str, filter: str = "", *, kind: str = "", stuck: bool | None = None) -> Label:
        label = Label(kind or self.kind.title, client, self.kind.protocol, filter,
                      self.kind.stuck if stuck is None else stuck)  # fmt: skip
        self.stage.labels.append(label)
        return label

    def between(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)

    async def sleep(self, seconds: float) -> None:
        """Sleeps so long, or to the end of the run."""
        await asyncio.sleep(max(0.0, min(seconds, self.end - self.now)))

    @property
    def topic(self) -> str:
        return f"set/{self.name}"

    @property
    def key(self) -> str:
        """The topic as a routing key."""
        return self.topic.replace("/", ".")

    def feed(self, rate: float, size_bytes: int | None = None, *, qos: int = 0, topic: str | None = None) -> Feed:
        size_bytes = self.random.choice(RECORD_BYTES) if size_bytes is None else size_bytes
        return self.stage.publisher.feed(topic or self.topic, rate, size_bytes, qos)

    async def mqtt(
        self, *, version: int = 5, qos: int = 0, window: int = 65_535, expiry_s: int = 0, fresh: bool = True,
        subscribe: bool = True, conflate: str | None = None, client: str = "", filters: Sequence[str] = (),
    ) -> MqttLink:  # fmt: skip
        """Connects, and subscribes to the actor's topic or to these filters."""
        buffer = self.receive_buffer or self.random.choice((None, None, 65_536))

        def work() -> MqttLink:
            sock = connect.connect_mqtt(self.stage.instance.port, client or self.name, version=version, window=window,
                                        expiry_s=expiry_s, fresh=fresh, receive_buffer=buffer)  # fmt: skip
            for filter in (filters or (self.topic,)) if subscribe else ():
                connect.subscribe_mqtt(sock, filter, version=version, qos=qos, conflate=conflate)
            return MqttLink(sock, version)

        return self.opened(await asyncio.to_thread(work))

    def opened(self, link: AnyLink) -> AnyLink:
        """Notes a link that is to be closed at the end."""
        link.end = self.end
        self._opened.append(link)
        return link

    async def workers(self, works: list[connect.Work], jobs: list[Job], client: str = "") -> AmqpLink:
        """One connection with a consumer for each of ``works``."""
        port = self.stage.instance.third_port
        sock = await asyncio.to_thread(connect.connect_workers, port, client or self.name, works)
        return self.opened(AmqpLink(sock, dict(enumerate(jobs, 1))))

    async def worker(self, prefetch: int, job: Job, *, no_ack: bool = False) -> AmqpLink:
        """A connection with one consumer of the actor's queue."""
        return await self.workers([connect.Work(self.name, self.key, prefetch, no_ack)], [job])

    def close(self) -> None:
        for link in self._opened:
            link.close()


Script = Callable[[Actor], Awaitable[None]]


class Kind(NamedTuple):
    """A kind of consumer: how it lives, and how many of it are in the set."""

    title: str
    live: Script
    members: int
    protocol: str
    stuck: bool


KINDS: dict[str, Kind] = {}


def kind(title: str, *, count: int = 1, protocol: str = "mqtt", stuck: bool = False) -> Callable[[Script], Script]:
    """Enters a kind in the set."""

    def enter(live: Script) -> Script:
        assert title not in KINDS
        KINDS[title] = Kind(title, live, count, protocol, stuck)
        return live

    return enter
