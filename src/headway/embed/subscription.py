"""A subscription in the program: an asynchronous iterator over what the broker delivers.

Theory of operation. Each is a session of its own with one subscription, as if the program were a client that reads its
socket when it asks for the next record. Its records come from a lane that it shares with all who want the same. It ends
with its iterator: when that is closed, or nothing refers to it any more.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from headway.core.base import HeadwayError, Reason
from headway.core.consumer import ConnectRequest, Session, SubscribeRequest
from headway.core.consumer import Subscription as Consumer
from headway.embed.outlet import ProgramOutlet
from headway.server.config import PROGRAM_LISTENER
from headway.server.engine import Engine
from headway.wire.program import Delivered

PROTOCOL = "program"


class Ended(HeadwayError):
    """The broker has ended the subscription: a policy, an operator, or its own end. ``reason`` is the word that
    ``headway why`` says."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text or str(reason))
        self.reason = reason


class Subscription:
    """A subscription, from :meth:`Broker.subscribe`. It stands from then on: no later record is missed.

    ::

        async for record in broker.subscribe("prices/#"):
            ...

        async with broker.subscribe("prices/#") as prices:      # ended at the end of the block
            first = await anext(prices)

    A program that does not iterate is a slow consumer. 64 KiB wait here for it; all else stays in the broker's log, at
    its cursor, and its policy decides what becomes of it: nothing is lost while there is memory or disk, unless a
    policy says so. ``headway why NAME`` knows it by ``client``.

    Iteration raises :class:`Ended` when a policy, an operator or the broker's stop ends the subscription, and stops
    without an error when it was closed, or is a query that is answered.
    """

    def __init__(self, engine: Engine, client: str, wanted: SubscribeRequest) -> None:
        """Raises Refused."""
        self.client = client
        """The name by which the broker knows it."""
        self.filter = wanted.filter
        self._engine = engine
        go_on = _GoOn(engine)
        self._outlet = ProgramOutlet(engine.now(), engine.loop, wanted.filter, go_on)
        request = ConnectRequest(client, PROGRAM_LISTENER, protocol=PROTOCOL)
        self._session: Session = engine.broker.connect(request, self._outlet, engine.now())
        go_on.session = self._session
        self._closed = False
        try:
            self._consumer: Consumer = engine.broker.subscribe(self._session, wanted, engine.now())
        except BaseException:
            self.close()
            raise
        engine.turn_soon()

    @property
    def unread_bytes(self) -> int:
        """Bytes that the subscription has taken from the broker and the program has not iterated over; some more than
        64 KiB at most, and one record."""
        return self._outlet.unread_bytes

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivered:
        outlet = self._outlet
        while not self._closed:
            found = outlet.next()
            if found is not None:
                return found
            self._check()
            if self._closed:
                break
            await self._wait(outlet)
        raise StopAsyncIteration

    def _check(self) -> None:
        """Raises Ended if nothing more can come."""
        word = self._outlet.last_word
        if word is not None:
            self._closed = True
            raise Ended(*word)
        if self._consumer.ended and not self._outlet.out:  # else there is more of it on the way
            self.close()
            if not self._consumer.request.options.query:
                raise Ended(Reason.SUBSCRIPTION_ENDED, f"the subscription to {self.filter} was ended")

    async def _wait(self, outlet: ProgramOutlet) -> None:
        """Waits until something comes. One task iterates over a subscription."""
        came = outlet.came
        if came is None or came.done():
            came = outlet.came = self._engine.loop.create_future()
        await came

    def close(self) -> None:
        """Ends the subscription. What was not iterated over is gone."""
        self._closed = True
        session, outlet, engine = self._session, self._outlet, self._engine
        if session.connected and session.outlet is outlet and not engine.stopped:
            engine.broker.disconnect(session, outlet, Reason.NORMAL, engine.now(), will=False)
            engine.turn_soon()
        outlet.wake()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            loop = self._engine.loop
            if not loop.is_closed():
                loop.call_soon_threadsafe(_left, self._engine, self._session, self._outlet)


class _GoOn:
    """Tells the broker that there is room again. It refers to the session, and not to the subscription, which nothing
    in the broker may keep alive."""

    __slots__ = ("engine", "session")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.session: Session | None = None

    def __call__(self) -> None:
        session = self.session
        if session is not None and session.connected and not self.engine.stopped:
            self.engine.writable(session)


def _left(engine: Engine, session: Session, outlet: ProgramOutlet) -> None:
    """Ends the session of a subscription that nothing refers to any more."""
    if session.connected and session.outlet is outlet and not engine.stopped:
        engine.broker.disconnect(session, outlet, Reason.CLIENT_GONE, engine.now(), will=False)
        engine.turn_soon()
