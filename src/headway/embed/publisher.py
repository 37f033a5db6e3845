"""The way in for records that the program publishes.

Theory of operation. A record is published by a call into the core, on the program's own task: nothing is queued here.
So who publishes waits itself, in three cases, which are those in which a connection is not read:

- its share of this turn is used up (``server/connections/turn_budget.py``): a loop that only publishes would otherwise
  never let the broker send;
- there is no room: a pool is full, or a consumer holds back publishers (``block_publishers``);
- the record is durable, and the journal does not have it yet. This is the confirm.

Those who wait for one of the first two are let on in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque

from headway.core.base import HeadwayError, Reason
from headway.core.clients import WriterOutlet
from headway.core.consumer import ConnectRequest, Session
from headway.core.message import Run
from headway.embed.subscription import PROTOCOL
from headway.server.config import PROGRAM_LISTENER
from headway.server.connections import BUDGET_WORK
from headway.server.engine import Engine

TURN_BYTES = 240 * 1024
"""Bytes that are published in one turn: as many as one read of a connection may bring."""


class PublisherOutlet(WriterOutlet):
    __slots__ = ()
    keeps_its_name = True


class Publisher:
    """One name under which the program publishes. ``client`` is what the broker knows it by."""

    def __init__(self, engine: Engine, client: str) -> None:
        self.client = client
        self._engine = engine
        self._session: Session | None = None
        self._turn = asyncio.Lock()
        self._go_on = asyncio.Event()
        self._turns = -1
        """The turn that ``_work_left`` and ``_bytes_left`` are of."""
        self._work_left = self._bytes_left = 0
        self._confirms = _Confirms(engine)

    async def publish(self, run: Run, *, confirm: bool) -> None:
        """Raises Refused, Stopped."""
        async with self._turn:
            while not self._may(run):
                await self._room()
            done = self._publish(run)
        if done is not None and confirm:
            await done

    def _may(self, run: Run) -> bool:
        """Tells whether a record may be published now. Raises Refused."""
        engine, session = self._engine, self._connected()
        if self._turns != engine.turns:
            self._turns, self._work_left, self._bytes_left = engine.turns, BUDGET_WORK, TURN_BYTES
        if session.paused_by or self._work_left <= 0 or self._bytes_left <= 0:
            return False
        return not engine.broker.intake.must_wait(session, run, engine.now())

    async def _room(self) -> None:
        """Returns after a turn in which there may be room; who is paused waits until the broker says so."""
        self._go_on.clear()
        self._engine.turn_soon()
        if self._session is not None and self._session.paused_by:
            await self._go_on.wait()
        else:
            await asyncio.sleep(0)

    def _publish(self, run: Run) -> asyncio.Future[None] | None:
        """Returns what is done when the journal has the record; None: it need not. Raises Refused."""
        engine, session = self._engine, self._connected()
        published = engine.broker.intake.publish_some(session, [run], engine.now(), 0)
        self._work_left -= published.work
        engine.work_left -= published.work
        self._bytes_left -= len(run.data)
        engine.turn_soon()
        if published.refused is not None:
            raise published.refused
        return self._confirms.next() if run.journaled or run.retain else None

    def _connected(self) -> Session:
        """Returns the session; a new one if the broker has ended the last one. Raises Refused, Stopped."""
        engine, session = self._engine, self._session
        if engine.stopped:
            raise Stopped
        if session is None or not session.connected:
            now = engine.now()
            request = ConnectRequest(self.client, PROGRAM_LISTENER, protocol=PROTOCOL)
            session = self._session = engine.broker.connect(request, PublisherOutlet(now, self._go_on.set), now)
        return session

    def stop(self) -> None:
        """The broker has stopped: who waits is told."""
        self._go_on.set()
        self._confirms.stop()


class Stopped(HeadwayError):
    """The broker has stopped."""

    def __init__(self) -> None:
        super().__init__("the broker has stopped")
        self.reason = Reason.SHUTDOWN


class _Confirms:
    """Those who wait for the journal, by commit."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def next(self) -> asyncio.Future[None] | None:
        """Returns what is done when all that was published so far is on disk; None: it is, or there is no journal."""
        journal = self._engine.journal
        number = 0 if journal is None else journal.wait(self)
        if not number:
            return None
        done = self._engine.loop.create_future()
        self._waiting.append((number, done))
        return done

    def on_commit(self, number: int) -> None:
        """The journal has all commits up to this one."""
        while self._waiting and self._waiting[0][0] <= number:
            done = self._waiting.popleft()[1]
            if not done.done():
                done.set_result(None)
        if self._waiting and self._engine.journal is not None:
            self._engine.journal.wait(self)

    def stop(self) -> None:
        while self._waiting:
            done = self._waiting.popleft()[1]
            if not done.done():
                done.set_exception(Stopped())
                done.exception()  # nobody may be waiting for it any more
