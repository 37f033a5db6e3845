"""Supervision of connections: those that are silent, do not log in, or do not read their replies are closed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import inf
from typing import Any

from headway.core.base import Reason
from headway.core.broker import Broker
from headway.core.log import Chunk, Lane
from headway.core.permission import Identity
from headway.server.config import Settings
from headway.server.connections import Connection, Connections, Reassembly
from headway.server.journal import JournalWriter
from headway.server.loop import Pulse
from headway.store.spill import Slot, SpilledChunk, SpillStore

# -- supervision -------------------------------------------------------------------------------------------------------


SWEEP_S = 1.0
"""Time between two sweeps. A connection that is due earlier has a timer: a sweep a second is too coarse for a client
that was promised a heartbeat every second."""
ON_S = 0.02
"""Least time between two passes, so that many clients with heartbeats cost 50 timers a second at most."""
AGAIN_S = 0.5
"""Least time between two looks at one connection, unless it wants heartbeats more often."""
PAUSED_AGAIN_S = 5.0
"""Time between two looks at a connection that is not read."""
HELD_BACK_AGAIN_S = 1.0
"""Time between two looks at a publisher that is held back: it may leave, or want to."""
QUIET_S = 60.0
"""Time between two looks at a connection of which nothing need be heard for longer."""
REPLIES_UNREAD_S = 30.0


class Supervision:
    def __init__(self, settings: Settings, connections: Connections, reassembly: list[Reassembly],
                 loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._settings = settings
        self._connections = connections
        self._reassembly = reassembly
        self._loop = loop
        self._now = now
        self._timer: asyncio.TimerHandle | None = None
        self._next_pass_s = inf
        """Time of the next pass; ``inf``: the next sweep decides."""

    def sweep(self) -> None:
        """Ends those whose partial packets make others wait, and sees to it that connections are looked at in time."""
        for reassembly in self._reassembly:
            for connection, text in reassembly.overdue(self._now()):
                connection.end_soon(Reason.CLIENT_MEMORY, text, told=True)
        self._look_in_time()

    def _look_in_time(self) -> None:
        """Schedules a pass for the connection that is due next, if that is before the next sweep."""
        now = self._now()
        when = max(self._connections.next_s, now + ON_S)
        if when < self._next_pass_s and when < now + SWEEP_S:
            self.stop()
            self._next_pass_s = when
            self._timer = self._loop.call_later(when - now, self._pass)

    def _pass(self) -> None:
        self._timer, self._next_pass_s = None, inf
        self._connections.look(self._now(), self._look)
        self._look_in_time()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._next_pass_s = None, inf

    def look_at(self, connection: Connection) -> None:
        """Looks at a connection soon, because the time of its next look may have changed."""
        self._connections.look_at(connection, self._now())
        self._look_in_time()

    def _look(self, connection: Connection, now: float) -> float:
        """Closes a connection that has not logged in, was silent for one and a half times its keep-alive, or does not
        read its replies. Returns when to look again."""
        peer, reading_paused_by = connection.peer_side, connection.reading_paused_by
        heartbeat_s = peer.heartbeat(now)
        if peer.session is None:
            limit_s = self._settings.listeners[connection.listener].connect_timeout_s
            due_s = connection.opened_s + limit_s
            if due_s < now:
                stage = connection.stream.stage
                what = f"finish {stage}" if stage else "log in"
                text = f"the client did not {what} within {limit_s:.0f} s"
                connection.end_soon(Reason.CONNECT_TIMEOUT, text, told=True)
        elif not reading_paused_by:
            due_s = connection.heard_s + 1.5 * peer.keep_alive_s
            if due_s < now:  # if the loop was late, what the client said may still wait in the socket
                connection.read_now()
                due_s = connection.heard_s + 1.5 * peer.keep_alive_s
            if due_s < now:
                silent_s = now - connection.heard_s
                connection.end_soon(Reason.KEEP_ALIVE, f"nothing was heard for {silent_s:.0f} s", told=True)
            elif due_s > now + QUIET_S:
                connection.read_now()
                due_s = now + QUIET_S
        else:
            due_s = now + PAUSED_AGAIN_S
            blocked_s = connection.blocked_s(now)
            if "replies" in reading_paused_by and blocked_s > REPLIES_UNREAD_S:
                connection.end_soon(Reason.BLOCKED, f"replies were not read for {blocked_s:.0f} s", told=True)
            elif "publisher" in reading_paused_by:
                due_s = now + HELD_BACK_AGAIN_S
                connection.look_ahead()
        return min(max(due_s, now + AGAIN_S), heartbeat_s)


# -- spilling ----------------------------------------------------------------------------------------------------------
#
# Spilling: chunks that the core sends to disk are written in a thread of its own.


log = logging.getLogger("headway")


class Spilling:
    def __init__(self, settings: Settings, broker: Broker, journal: JournalWriter | None,
                 loop: asyncio.AbstractEventLoop, now: Callable[[], float], pulse: Pulse,
                 turn_soon: Callable[[], None]) -> None:
        self._broker = broker
        self._journal = journal
        self._loop = loop
        self._now = now
        self._pulse = pulse
        self._turn_soon = turn_soon
        self._disk_path = settings.pools[""].disk_path
        self._stores = {
            pool.name: SpillStore(settings.pools[name].disk_path)
            for name, pool in broker.registry.pools.items() if pool.disk_limit
        }  # fmt: skip
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headway-spill")

    def send_to_disk(self, lane: Lane, chunks: list[Chunk], now: float) -> None:
        """Writes chunks to disk, except those that the journal has, and those that every consumer has passed."""
        left = []
        for chunk in [chunk for chunk in chunks if chunk.spilling]:
            handle = self._journal.chunk(lane, chunk) if self._journal is not None else None
            if handle is None:
                if chunk.journaled and chunk.last_sequence <= self._broker.registry.journaled:
                    chunk.journaled = False  # the journal has dropped it: no durable consumer needs it
                left.append(chunk)
            else:
                self._broker.spilled(lane, chunk, chunk.size, handle, "", now)
        # Sizes are taken now, because every consumer may have passed a chunk by the time it is written.
        sized = [(chunk, chunk.size, chunk.data) for chunk in left]
        if sized:
            self._thread.submit(self._write, self._stores[lane.pool.name], lane, sized)

    def _write(self, store: SpillStore, lane: Lane, chunks: list[tuple[Chunk, int, Any]]) -> None:
        """Writes chunks. Runs in the writer's thread."""
        answers = store.write(lane, [data for _, _, data in chunks])
        self._loop.call_soon_threadsafe(self._written, lane, chunks, answers)

    def _written(
        self, lane: Lane, chunks: list[tuple[Chunk, int, Any]], answers: list[SpilledChunk | Slot | OSError]
    ) -> None:
        now = self._now()
        began = self._pulse.begin()
        for (chunk, size, _), answer in zip(chunks, answers, strict=True):
            if isinstance(answer, OSError):
                self._broker.spilled(lane, chunk, size, None, answer.strerror or str(answer), now)
                fields = {"path": str(self._disk_path), "cause": answer.strerror}
                log.error("cannot write to %s: %s", self._disk_path, answer, extra={"fields": fields})
            else:
                self._broker.spilled(lane, chunk, size, answer, "", now)
        self._broker.went_to_disk(now)
        self._turn_soon()
        self._pulse.end("spill", began)

    def tidy(self) -> None:
        """Removes files, or parts of files, that nobody reads any more."""
        for store in self._stores.values():
            self._thread.submit(store.tidy)

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        for store in self._stores.values():
            store.close()


# -- expiries ----------------------------------------------------------------------------------------------------------
#
# Expiries: connections end with the tokens by which their clients came in.


class Expiries:
    __slots__ = ("_loop", "_timers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[Connection, asyncio.TimerHandle] = {}

    def put(self, connection: Connection, identity: Identity) -> None:
        """Ends the connection when its client's identity does, in the place of the identity it had before."""
        self.remove(connection)
        if identity.until_s is not None:
            text = "the token by which the client came in has expired"
            end = partial(connection.end_soon, Reason.NOT_AUTHORIZED, text, told=True)
            self._timers[connection] = self._loop.call_later(max(0.0, identity.until_s - time.time()), end)

    def remove(self, connection: Connection) -> None:
        """Forgets a connection that has ended."""
        if (timer := self._timers.pop(connection, None)) is not None:
            timer.cancel()
