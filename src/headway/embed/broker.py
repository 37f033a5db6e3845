"""The broker in a program: starts, stops, publishes and subscribes on the program's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from itertools import count
from math import inf
from types import TracebackType
from typing import Self

import msgspec

from headway.core.base import HeadwayError, Reason, Refused
from headway.core.consumer import SubscribeRequest, SubscriptionOptions, Use, read_options
from headway.core.message import NO_PROPERTIES, BadTopic, Record, Run, validate_topic
from headway.core.query import NoState, state_of
from headway.embed.asgi import Application
from headway.embed.config import Config, settings_of
from headway.embed.properties import check_expiry, check_qos, check_text, properties_of
from headway.embed.publisher import Publisher
from headway.embed.subscription import Subscription
from headway.server.config import PROGRAM_LISTENER
from headway.server.running import Running
from headway.wire.program import ProgramDialect


class NotRunning(HeadwayError):
    """The broker has not been started, or has stopped."""


class Broker:
    """A whole broker in an asyncio program::

        async with Broker() as broker:
            prices = broker.subscribe("prices/#", conflate="500ms")
            await broker.publish("prices/ACME", {"bid": 12.5})
            async for price in prices:
                print(price.topic, price.json())

    It is what ``headway serve`` runs: topics, state, queues, policies, journal, and, where the config has listeners,
    MQTT, AMQP, STOMP and the others on their ports. It runs on the program's own loop, asyncio's or uvloop's, and
    changes nothing of the process: no signals, no log format, no limits, no garbage collection. A process may have
    several.

    It stops at the end of its ``async with``, however that comes about: normally, by an exception, by Ctrl-C, or
    because its task was cancelled. The journal has everything then that was confirmed. A program without ``async with``
    calls :meth:`start` and :meth:`stop`; if it forgets the latter, the broker stops when ``asyncio.run`` ends its loop.

    :param config: a path, a TOML text, a dictionary with the same tables, or None for the defaults. It is the config of
        ``headway serve``, but no port is opened that it does not name: no listeners and no admin API unless they are
        there. ``[listeners.asgi]``, without a URL, has limits of the clients that come through :meth:`asgi`.
    :param name: what the broker calls the program in ``headway top`` and ``why``: it publishes as this, and its
        subscriptions are ``NAME/1``, ``NAME/2`` ...
    :param repair: continue with what can be read of a damaged journal.
    :raises ConfigError: the config is wrong, in plain words, or a port cannot be had (:meth:`start`).
    """

    def __init__(self, config: Config = None, *, name: str = "program", repair: bool = False) -> None:
        self.settings = settings_of(config)
        self.name = name
        self._repair = repair
        self._running: Running | None = None
        self._publishers: dict[str, Publisher] = {}
        self._numbers = count(1)
        self._starting: asyncio.Future[None] | None = None
        self._end: AsyncGenerator[None, None] | None = None
        self._stopping: asyncio.Future[None] | None = None

    # -- start and stop -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts on the running loop. Raises ConfigError, NotRunning if it was started before."""
        if self._running is not None or self._stopping is not None:
            raise NotRunning("a broker is started once; make another")
        loop = asyncio.get_running_loop()
        self._running = running = Running(self.settings, loop, repair=self._repair)
        self._starting = loop.create_future()
        try:
            await running.start()
            self._end = self._stop_with_the_loop()
            await anext(self._end)
        except BaseException:
            self._running = None
            raise
        finally:
            self._starting.set_result(None)

    async def _stop_with_the_loop(self) -> AsyncGenerator[None, None]:
        """Stands at its ``yield`` for as long as the broker runs. ``asyncio.run`` closes such generators before it
        closes their loop."""
        try:
            yield
        finally:
            await self._stop()

    async def stop(self) -> None:
        """Stops: clients are told, the journal is written, files, ports and threads are closed. Subscriptions and
        publishers in the program that wait are ended with an error. A start that is under way is waited for. Does
        nothing if the broker does not run."""
        if self._starting is not None:
            await asyncio.wait([self._starting])
        end, self._end = self._end, None
        if end is not None:
            await end.aclose()
        elif self._stopping is not None:
            await asyncio.wait([self._stopping])  # another task stops it

    async def _stop(self) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        self._stopping = asyncio.get_running_loop().create_future()
        try:
            for session in list(running.engine.broker.registry.sessions.values()):
                if session.listener == PROGRAM_LISTENER and session.connected:
                    running.engine.broker.expel(session, Reason.SHUTDOWN, "the broker stops", running.engine.now())
            await running.stop()
            await asyncio.sleep(0)  # what the journal's thread has told last
        finally:
            for publisher in self._publishers.values():
                publisher.stop()
            self._stopping.set_result(None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def running(self) -> Running:
        """The broker's inside. Raises NotRunning."""
        if self._running is None:
            raise NotRunning("the broker does not run: `async with broker:`, or `await broker.start()`")
        return self._running

    @property
    def urls(self) -> dict[str, str]:
        """The addresses of its listeners by name, and of its admin API as ``admin``, if the config has them."""
        running = self.running
        return running.urls | ({"admin": running.admin_url} if running.admin_url else {})

    # -- publish ------------------------------------------------------------------------------------------------------

    async def publish(
        self, topic: str, payload: bytes | str | object = b"", *, retain: bool = False, qos: int = 1,
        expiry: float | None = None, content_type: str | None = None, response_topic: str | None = None,
        correlation_data: bytes | None = None, user: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        confirm: bool = True, publisher: str | None = None,
    ) -> None:  # fmt: skip
        """Publishes a record to all who want it, in the program and elsewhere.

        It returns when the broker has the record, and mostly at once, without a step of the loop. Where it has to wait,
        that is real: nothing is queued on the program's side.

        - A policy may hold back publishers (``block_publishers``), a pool may be full, or the program has published as
          much as one client may in one turn of the loop: then it waits until there is room.
        - A record that is durable (its topic is recorded, a durable subscription or queue wants it, or it is retained,
          and there is a ``[journal]``) waits for the journal: what has returned is on disk. Records that are
          published at the same time (``asyncio.gather``, several tasks) share one sync. ``confirm=False`` does not
          wait.

        A task that publishes must not be the only one to read a subscription that holds back publishers to the same
        topic: it would wait for itself.

        :param payload: bytes, a text (UTF-8), or anything that JSON can say.
        :param retain: keep it as the topic's retained record, for subscribers to come.
        :param qos: 1: the record is kept until all durable consumers have it; 0: it may be dropped to make room.
        :param expiry: seconds after which it is not delivered any more.
        :param user: user properties, such as ``{"headway-event": "delete"}``.
        :param publisher: a name of its own for this publisher; without one, the broker's ``name``.
        :raises Refused: the topic is not for publishers, a queue is full, a patch fits no record, or an argument is
            nothing that every protocol can carry.
        :raises Stopped: the broker stopped before the record was confirmed.
        """
        check_qos(qos)
        check_expiry(expiry)
        run = self._run(topic, payload, retain, qos, expiry)
        run.properties = properties_of(content_type, response_topic, correlation_data, user, expiry)
        await self._publisher(publisher or self.name).publish(run, confirm=confirm)

    def _run(self, topic: str, payload: object, retain: bool, qos: int, expiry: float | None) -> Run:
        """Raises Refused, NotRunning."""
        try:
            validate_topic(topic)
        except BadTopic as error:
            raise Refused(Reason.PROTOCOL_ERROR, str(error)) from None
        if topic.startswith("$"):
            raise Refused(Reason.NOT_AUTHORIZED, "topics that start with $ are the broker's own")
        expires_s = inf if expiry is None else self.running.engine.now() + expiry
        return Record(topic, _bytes_of(payload), NO_PROPERTIES, qos, retain, expires_s=expires_s).run()

    def _publisher(self, name: str) -> Publisher:
        engine, found = self.running.engine, self._publishers.get(name)
        if found is None:
            check_text("publisher", name)
            found = self._publishers[name] = Publisher(engine, name)
        return found

    # -- subscribe ----------------------------------------------------------------------------------------------------

    def subscribe(
        self, filter: str, *, client: str | None = None, retained: bool = True, **options: object
    ) -> Subscription:
        """Subscribes to the topics that a filter matches, and returns an asynchronous iterator over
        :class:`Record`, :class:`Gap` and (option ``marks``) :class:`Mark`.

        The subscription stands when this returns. With ``snapshot=True`` the state comes first, then everything after
        it: nothing between the two is lost or comes twice.

        :param filter: as in MQTT: ``+`` is one level, ``#`` all that follow; ``$share/GROUP/FILTER`` shares its records
            among the program's own subscriptions of this group.
        :param client: the name by which ``headway why`` and policies know it; without one, ``NAME/1`` and so on.
        :param retained: whether retained records come first.
        :param options: those of a subscription over MQTT, STOMP or AMQP, by the same names and with the same values
            (docs/STATE.md): ``conflate="500ms"``, ``snapshot=True``, ``selector="price > 10"``, ``key="/symbol"``,
            ``delta``, ``order_by``, ``top``, ``policy``, ``lease``, ``patience`` ... ``from`` is written ``from_``.
        :raises Refused: a filter or an option is wrong, in plain words.
        """
        engine = self.running.engine
        check_text("client", client or "")
        said = read_options(map(_said, options.items()), Use.SUBSCRIPTION, strict=True)
        wanted = msgspec.convert(said, SubscriptionOptions)
        dialect = ProgramDialect(wanted.key or self._key_of(filter))
        request = SubscribeRequest(
            filter, dialect, dialect, options=wanted, send_retained="always" if retained else "never"
        )
        return Subscription(engine, client or self._free_name(), request)

    def _key_of(self, filter: str) -> str:
        """Returns the key of the topics of this filter, as the config has it; empty: they have none."""
        try:
            return state_of(self.running.engine.broker.registry, filter).key.text
        except (NoState, BadTopic):
            return ""

    def _free_name(self) -> str:
        """Returns a name for a subscription. Clients of other protocols choose theirs, and may have had it first."""
        sessions = self.running.engine.broker.registry.sessions
        names = (f"{self.name}/{number}" for number in self._numbers)
        return next(name for name in names if name not in sessions)

    # -- the web ------------------------------------------------------------------------------------------------------

    def asgi(self) -> Application:
        """Returns the broker as an ASGI application, for ``app.mount("/headway", broker.asgi())``. It may be made
        before the broker is started. See docs/EMBED.md for what it answers, and to whom."""
        return Application(self)


def _bytes_of(payload: object) -> bytes:
    """Raises TypeError for what JSON cannot say."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    return bytes(payload) if isinstance(payload, bytearray | memoryview) else msgspec.json.encode(payload)


def _said(option: tuple[str, object]) -> tuple[str, str]:
    """Returns an option as clients say it."""
    name, value = option
    return name.removesuffix("_"), str(value).lower() if isinstance(value, bool) else str(value)
