"""The engine: the broker on the loop. It has the clock, carries out effects, and ends each turn with a flush.

A turn: the loop calls whoever has something to read; the first of them asks for ``_turn`` to be called once all of them
are done; there everything that came goes to everyone who can take it, and the effects are carried out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import Any

from headway.core.base import ProtocolError, Reason
from headway.core.clients import Handing
from headway.core.consumer import (
    Cancelled,
    CloseChannel,
    CloseConsumer,
    ConnectionlessOutlet,
    DeadLetter,
    Disconnect,
    Effect,
    Pause,
    PluginFailed,
    Resume,
    Session,
    Spill,
)
from headway.core.log import Chunk, Lane
from headway.server.config import Settings, Users, make_broker
from headway.server.connections import (
    BUDGET_WORK,
    TURN_WORK,
    Connection,
    Connections,
    Ends,
    Lingering,
    Logins,
    Reassembly,
)
from headway.server.engine.dead_letters import publish_dead_letter
from headway.server.engine.telemetry import Telemetry
from headway.server.journal import JournalWriter
from headway.server.journal import start as start_journal
from headway.server.loop import Pulse, Repeating
from headway.store.slots import Slot
from headway.store.spill import SpilledChunk, SpillStore

log = logging.getLogger("headway")

SWEEP_CONNECTIONS_S = 1.0
SWEEP_ON_S = 0.02
"""Where more were due than are looked at in one go."""
AGAIN_S = 0.5
"""Nobody is looked at sooner than this after the last time."""
PAUSED_AGAIN_S = 5.0
"""Who is not read, for whatever reason, is looked at again so much later."""
REPLIES_UNREAD_S = 30.0
RING_EVERY_S = 0.005
"""More often than this nothing is done at its very time."""
LIMITED_EVERY_S = 1.0


class Engine:
    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop, *, repair: bool = False) -> None:
        """``repair``: go on with what can be read of a damaged journal. Raises ConfigError, OSError."""
        self.settings = settings
        self.loop = loop
        self.read_bytes = settings.server.read_bytes
        self.started_s = time.monotonic()
        self.broker = make_broker(settings)
        self.broker.registry.wall_offset_s = time.time() - time.monotonic()
        self.logins = Logins(Users(settings.auth.users), loop)
        self.connections = Connections()
        self.lingering = Lingering(loop)
        self.reassembly = {pool: Reassembly(pool) for pool in self.broker.registry.distinct_pools()}
        self.now: Callable[[], float] = time.monotonic
        self.pulse = Pulse()
        self.ends = Ends()
        self.connections_refused = 0
        self.protocol_errors = 0
        self._limited_s = -LIMITED_EVERY_S
        self.turns = 0
        self.longest_turn_s = 0.0
        self._stores = {
            pool.name: SpillStore(Path(settings.pools[name].disk_path))
            for name, pool in self.broker.registry.pools.items() if pool.disk_limit
        }  # fmt: skip
        self.telemetry: Telemetry | None = None
        if settings.telemetry.enabled:
            self.telemetry = Telemetry(settings, self.broker, loop, self.now)
        self.journal: JournalWriter | None = None
        """Writes the journal; None: there is none."""
        if settings.journal.enabled:
            self.journal = start_journal(settings.journal, settings.topics, self.broker, loop, self.now, self.turn_soon,
                                       lambda: time.time() - time.monotonic(), repair=repair)  # fmt: skip
            self.journal.pulse = self.pulse
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="headway-spill")
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: dict[Connection, None] = {}
        """Those with more to do than one turn allows, in turn."""
        self.work_left = TURN_WORK
        """Of what all connections together may ask for in this turn."""
        self._turn_due = False
        self._read_s: float | None = None
        """When the first bytes were read that this turn is about."""
        self._ticks = Repeating(loop, settings.server.sweep_s, self._tick)
        self._sweeps = Repeating(loop, SWEEP_CONNECTIONS_S, self._sweep_connections)
        self._rings: asyncio.TimerHandle | None = None
        self._ring_s = inf
        """When the core is rung, because something is to be done then."""

    # -- the turn ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.telemetry is not None:
            self.telemetry.start(self.settings)
        self._ticks.start()
        self._tick()
        self._sweeps.start()
        self._sweep_connections()

    def turn_soon(self, read_s: float | None = None) -> None:
        """A turn is due; on account of what was read at ``read_s``, if something was."""
        if self._read_s is None:
            self._read_s = read_s
        if not self._turn_due:
            self._turn_due = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        began = self.pulse.begin()
        self.turns += 1
        if self._busy:
            self._go_on()
        self.broker.flush(began)
        self._carry_out(began)
        if self.journal is not None:
            self.journal.turn(began)
        ended = self.pulse.end("turn", began)
        if ended - began > self.longest_turn_s:
            self.longest_turn_s = ended - began
        if self.telemetry is not None and self._read_s is not None:
            self.telemetry.observer.turned(ended - self._read_s)
        self._read_s = None
        self._turn_over()

    def _turn_over(self) -> None:
        self.work_left = TURN_WORK
        self._ring_in_time()
        if self._busy or self.broker.has_work or self.broker.registry.effects:
            self.turn_soon()

    def connection_budget(self) -> int:
        """How much work a connection may ask for now."""
        left = self.work_left
        return BUDGET_WORK if left >= BUDGET_WORK else max(0, left)

    def go_on_later(self, connection: Connection) -> None:
        self._busy[connection] = None
        self.turn_soon()

    def _go_on(self) -> None:
        """With the connections that have more to do: one of them in any case, in turn, as far as there is time."""
        self.work_left = max(self.work_left, BUDGET_WORK)
        for _ in range(len(self._busy)):
            if self.work_left <= 0:
                return
            connection = next(iter(self._busy))
            del self._busy[connection]
            connection.go_on()

    def _tick(self) -> None:
        now = self.pulse.begin()
        self.broker.tick(now, self.pulse.held_s())
        self._carry_out(now)
        if self.journal is not None:
            self.journal.load(now, time.thread_time())
            self.journal.turn(now)
        self._ring_in_time()
        self.pulse.end("tick", now)
        if self.broker.has_work or self.broker.registry.effects:
            self.turn_soon()

    def _ring_in_time(self) -> None:
        """What the core is to do at some time it does then, not at the tick after: records expire, wills are due."""
        when = self.broker.registry.timers.next_s
        if when >= self._ring_s or not self._ticks.running:
            return
        now = time.monotonic()
        if when - now < self.settings.server.sweep_s:
            if self._rings is not None:
                self._rings.cancel()
            self._ring_s = max(when, now + RING_EVERY_S)
            self._rings = self.loop.call_later(self._ring_s - now, self._ring)

    def _ring(self) -> None:
        began = self.pulse.begin()
        self._ring_s = inf
        self.broker.registry.timers.run(began)
        self.turn_soon()
        self.pulse.end("tick", began)

    def writable(self, session: Session) -> None:
        now = time.monotonic()
        self.broker.writable(session, now)
        if self.broker.has_work or self.broker.registry.effects:
            self.turn_soon()

    def say_soon(self, session: Session) -> None:
        self.broker.fanout.again[session] = None
        self.turn_soon()

    # -- effects ----------------------------------------------------------------------------------------------------

    def _carry_out(self, now: float) -> None:
        """Also what comes of it: a dead letter that is refused is another, and the same commit is to have it."""
        while effects := self.broker.take_effects():
            for effect in effects:
                self._carry_out_one(effect, now)

    def _carry_out_one(self, effect: Effect, now: float) -> None:
        match effect:
            case Disconnect(session, outlet, reason, text, rest):
                if isinstance(outlet, ConnectionlessOutlet):
                    log.info("disconnecting %s: %s", session.client, text)
                    outlet.last_word = reason, text
                    if isinstance(outlet, Handing):
                        outlet.resumed()
                else:
                    assert isinstance(outlet, Connection)
                    outlet.close_gracefully(reason, text, rest)
            case Spill(lane, chunks):
                self._send_to_disk(lane, chunks, now)
            case Pause(session, why) if isinstance(session.outlet, Connection):
                session.outlet.pause_reading("publisher")
                session.outlet.peer_side.paused(why)
            case Resume(session) if isinstance(session.outlet, Connection):
                session.outlet.resume_reading("publisher")
                session.outlet.peer_side.paused("")
            case Resume(session) if isinstance(session.outlet, Handing):
                session.outlet.resumed()
            case CloseConsumer(subscription, verdict):
                log.info("asked to close: %s", verdict.text)
                if isinstance(subscription.session.outlet, Connection):
                    subscription.session.outlet.peer_side.close_consumer(subscription, verdict.text)
            case CloseChannel(session, channel, _, text) if isinstance(session.outlet, Connection):
                log.info("closing channel %d of %s: %s", channel.number, session.client, text)
                session.outlet.peer_side.close_channel(effect)
            case Cancelled(subscription) if isinstance(subscription.session.outlet, Connection):
                subscription.session.outlet.peer_side.cancelled(subscription)
            case PluginFailed(name, error):
                log.error("the plug-in %s failed, and goes on being asked; this is said once", name, exc_info=error)
            case DeadLetter():
                publish_dead_letter(self.broker, effect, now, now + self.broker.registry.wall_offset_s)

    def _send_to_disk(self, lane: Lane, chunks: list[Chunk], now: float) -> None:
        """What the journal has is there already; what everybody has passed meanwhile nobody wants there."""
        left = []
        for chunk in [chunk for chunk in chunks if chunk.spilling]:
            handle = self.journal.chunk(lane, chunk) if self.journal is not None else None
            if handle is None:
                if chunk.kept and chunk.last_sequence <= self.broker.registry.journaled:
                    chunk.kept = False  # it has been let go of there: who wants it is not durable
                left.append(chunk)
            else:
                self.broker.spilled(lane, chunk, chunk.size, handle, "", now)
        # The sizes are taken now: by the time it is written a chunk may have been passed by everyone.
        sized = [(chunk, chunk.size, chunk.data) for chunk in left]
        if sized:
            self._writer.submit(self._spill, self._stores[lane.pool.name], lane, sized)

    def _spill(self, store: SpillStore, lane: Lane, chunks: list[tuple[Chunk, int, Any]]) -> None:
        """In the writer's thread."""
        answers = store.write(lane, [data for _, _, data in chunks])
        self.loop.call_soon_threadsafe(self._spilled, lane, chunks, answers)

    def _spilled(
        self, lane: Lane, chunks: list[tuple[Chunk, int, Any]], answers: list[SpilledChunk | Slot | OSError]
    ) -> None:
        now = self.now()
        began = self.pulse.begin()
        for (chunk, size, _), answer in zip(chunks, answers, strict=True):
            if isinstance(answer, OSError):
                self.broker.spilled(lane, chunk, size, None, answer.strerror or str(answer), now)
                log.error("cannot write to %s: %s", self.settings.pools[""].disk_path, answer)
            else:
                self.broker.spilled(lane, chunk, size, answer, "", now)
        self.broker.relieve(now)
        self.turn_soon()
        self.pulse.end("spill", began)

    # -- connections ------------------------------------------------------------------------------------------------

    def connected(self, connection: Connection) -> None:
        connection.admitted = True
        self.look_at(connection)
        self.turn_soon()

    def closed(self, connection: Connection, reason: Reason, text: str) -> None:
        self.connections.remove(connection)
        self._busy.pop(connection, None)
        now = self.now()
        self.ends.put(connection, reason, text, now, now + self.broker.registry.wall_offset_s)
        self.turn_soon()

    def refused(self, connection: Connection, text: str) -> None:
        self.connections_refused += 1

    def limited(self, session: Session, text: str) -> None:
        """A client was refused what there is no memory for. It may ask for it a thousand times a second."""
        now = self.now()
        if now - self._limited_s >= LIMITED_EVERY_S:
            self._limited_s = now
            log.warning("%s is refused what it asks for: %s", session.client, text)

    def protocol_error(self, connection: Connection, error: ProtocolError) -> None:
        self.protocol_errors += 1

    def _sweep_connections(self) -> None:
        """Who has not said who it is, or has not been heard of for one and a half times its keep-alive?"""
        began, now = self.pulse.begin(), self.now()
        for store in self._stores.values():
            self._writer.submit(store.tidy)
        for reassembly in self.reassembly.values():
            for connection, text in reassembly.overdue(now):
                connection.close_gracefully(Reason.CLIENT_MEMORY, text)
        self._look_on()
        self.pulse.end("sweep", began)

    def _look_on(self) -> None:
        if self.connections.look(self.now(), self._look):
            self.loop.call_later(SWEEP_ON_S, self._look_on)

    def look_at(self, connection: Connection) -> None:
        """At the next sweep: what it was waited for has changed."""
        self.connections.look_at(connection, self.now())

    def _look(self, connection: Connection, now: float) -> float:
        """Has it not said who it is, or not been heard of for one and a half times its keep-alive, or not read what it
        was answered? Returns when to look again."""
        peer, reading_paused_by = connection.peer_side, connection.reading_paused_by
        heartbeat_s = peer.heartbeat(now)
        if peer.session is None:
            limit_s = self.settings.listeners[connection.listener].connect_timeout_s
            due_s = connection.opened_s + limit_s
            if "memory" in reading_paused_by:
                due_s = max(due_s, now + PAUSED_AGAIN_S)
            elif due_s < now:
                connection.close_gracefully(Reason.CONNECT_TIMEOUT, f"it did not say who it is for {limit_s:.0f} s")
        elif not reading_paused_by:
            due_s = connection.heard_s + 1.5 * peer.keep_alive_s
            if due_s < now:
                silent_s = now - connection.heard_s
                connection.close_gracefully(Reason.KEEP_ALIVE, f"nothing was heard for {silent_s:.0f} s")
        else:
            due_s = now + PAUSED_AGAIN_S
            blocked_s = connection.blocked_s(now)
            if "replies" in reading_paused_by and blocked_s > REPLIES_UNREAD_S:
                connection.close_gracefully(Reason.BLOCKED, f"answers were not read for {blocked_s:.0f} s")
        return max(min(due_s, heartbeat_s), now + AGAIN_S)

    async def check_password(self, username: str, password: bytes, connection: Connection) -> bool:
        """It takes a while, on purpose."""
        host = connection.address.rpartition(":")[0]
        return await self.logins.check(username, password, host, lambda: connection.open)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine and see to it that it is not forgotten before it is done."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Say goodbye to everyone and let go of the disk."""
        self.pulse.stop()
        self._ticks.stop()
        self._sweeps.stop()
        if self._rings is not None:
            self._rings.cancel()
        for connection in self.connections:
            connection.close_gracefully(Reason.SHUTDOWN, "the server is shutting down")
        self._carry_out(self.now())
        if self.journal is not None:
            self.journal.close()
        if self.telemetry is not None:
            self.telemetry.stop()
        self._writer.shutdown(wait=True)
        self.logins.close()
        for store in self._stores.values():
            store.close()
