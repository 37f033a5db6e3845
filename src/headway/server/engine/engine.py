"""The engine: the broker on the loop. It has the clock, carries out effects, and ends each turn with a flush.

A turn: the loop calls every connection that has something to read. The first of them schedules ``_turn``, which runs
after all of them. ``_turn`` sends everything that came to every consumer that can take it, and carries out the effects.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from math import inf
from typing import Any

from headway.core.allowance import UNLIMITED, Allowance
from headway.core.base import ProtocolError, Reason
from headway.core.clients import WriterOutlet
from headway.core.consumer import (
    Cancelled,
    CloseChannel,
    CloseConsumer,
    ConnectionlessOutlet,
    DeadLetter,
    DeliveryFailed,
    Disconnect,
    Effect,
    Pause,
    PluginFailed,
    Resume,
    Revoked,
    Session,
    Spill,
)
from headway.core.permission import ALL_RIGHTS, Identity
from headway.server.config import Settings, make_broker
from headway.server.connections import (
    GREETING_WORK,
    Connection,
    Connections,
    Endings,
    Ends,
    Floods,
    Hangups,
    Lingering,
    Reassembly,
    TurnWork,
)
from headway.server.engine.dead_letters import publish_dead_letter
from headway.server.engine.history import open_history
from headway.server.engine.permissions import PermissionsInForce
from headway.server.engine.supervision import SWEEP_S, Expiries, Spilling, Supervision
from headway.server.engine.telemetry import Readiness, Stage, Telemetry
from headway.server.journal import JournalWriter
from headway.server.journal import start as start_journal
from headway.server.logins import Logins
from headway.server.loop import Pulse, Repeating
from headway.server.progress import Glances, PeerSockets, PieceBudget, RoomLooks
from headway.server.traces import open_traces
from headway.server.transport import AcceptShare, Handshakes

log = logging.getLogger("headway")

RING_EVERY_S = 0.005
"""Least time between two rings (see ``_ring_in_time``)."""
LIMITED_EVERY_S = 1.0
CIRCLE_QUEUES_SHOWN = 8
WAITING_ASKED = 16
"""Connections that could do nothing, and are asked again in a turn. There may be thousands that wait for the same."""


class Engine:
    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop, *, repair: bool = False) -> None:
        """``repair``: continue with what can be read of a damaged journal. Raises ConfigError, OSError."""
        self.settings = settings
        self.loop = loop
        self.read_bytes = settings.server.read_bytes
        self.usual_read_bytes = settings.server.usual_read_bytes
        self.now: Callable[[], float] = time.monotonic
        self.started_s = self.now()
        self.life = secrets.token_hex(8)
        """A name for this start of the broker."""
        self.broker = make_broker(settings)
        self.broker.registry.wall_offset_s = time.time() - time.monotonic()
        self.logins = Logins(settings.auth, loop)
        self.connections = Connections()
        self.lingering = Lingering(loop)
        self.endings = Endings(loop)
        self.handshakes = Handshakes(loop)
        pools = self.broker.registry.distinct_pools()
        self.reassembly = {pool: Reassembly(pool) for pool in pools}
        self.strangers = Reassembly(self.broker.registry.pool_of(""), strangers=True)
        self.pulse = Pulse()
        self.accepting = AcceptShare(loop, lambda: self.waiting)
        """The share of all listeners of clients."""
        self.ends = Ends()
        self.permissions = PermissionsInForce(settings, self.broker)
        self.allowances = self.broker.registry.allowances
        self.connections_refused = self.protocol_errors = self.ahead_bytes = 0
        self._limited_s = self._circle_s = self._bug_s = self._unpublished_s = self._missed_s = -LIMITED_EVERY_S
        self._unpublished = self._missed = 0
        self._circles = 0
        """Records dropped because their dead letters went round, since that was logged."""
        self.turns, self.longest_turn_s = 0, 0.0
        self.telemetry = Telemetry(settings, self.broker, loop, self.now) if settings.telemetry.enabled else None
        self._open(settings, loop, repair=repair)
        self._supervision = Supervision(settings, self.connections,
                                        [*self.reassembly.values(), self.strangers], loop,
                                        lambda: self.now())
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: dict[Connection, None] = {}
        """Connections with more to do than one turn allows, in the order of their turns."""
        self._unserved: dict[Connection, None] = {}
        """Those that came when others had used up the turn. They go on before the busy ones, or in the next turn."""
        self._waiting: dict[Connection, None] = {}
        """Those that could do nothing when they were asked last."""
        self._greeting: dict[Connection, None] = {}
        """Newcomers: those whose clients have not logged in."""
        self.turn_work = TurnWork()
        self.work_left = self.turn_work.most
        """Work that all connections together may still ask for in this turn."""
        self.greeting_left = GREETING_WORK
        """As much of it as those may ask for whose clients have not logged in."""
        self._expiries = Expiries(loop)
        self._turn_due = self._tick_due = False
        self.stopped = False
        """Set at the end: there are no more turns, also where the loop goes on, which may be another program's."""
        self._read_s = inf
        """Time of the first read of this turn; ``inf``: nothing was read."""
        self.floods = Floods()
        self._ticks = Repeating(loop, self.broker.governor.tick_s, self._tick)
        self._sweeps = Repeating(loop, SWEEP_S, self._sweep)
        self._rings: asyncio.TimerHandle | None = None
        self._ring_s = inf  # the time of the next ring
        self.pieces = PieceBudget()
        self.glances = Glances()
        self.room_looks = RoomLooks()
        self.peer_sockets = PeerSockets(settings.server.peer_sockets)
        self.hangups = Hangups(loop)

    def _open(self, settings: Settings, loop: asyncio.AbstractEventLoop, *, repair: bool) -> None:
        """Opens the journal, the history and the disk. What is open already is closed if another cannot be had. Raises
        ConfigError, OSError."""
        self.journal: JournalWriter | None = None  # None: the broker has no journal
        with ExitStack() as opened:
            if settings.journal.enabled:
                self.journal = start_journal(settings.journal, settings.topics, self.broker, loop, self.now,
                                             self.turn_soon, lambda: time.time() - time.monotonic(), repair=repair)
                opened.callback(self.journal.close)
                self.journal.pulse = self.pulse
                self.permissions.begin(self.now())
            self.take_limits()
            self.history = open_history(settings.history, self.broker.verdicts, self.ends, loop, self.now)
            if self.history is not None:
                opened.callback(self.history.stop)
            self.traces = open_traces(settings, self.broker, loop, self.life, lambda: self.now())
            self._recorders = [one for one in (self.telemetry, self.history, self.traces) if one is not None]
            self.readiness = Readiness(self.broker, self.journal, lambda: self.now())
            self._spilling = Spilling(settings, self.broker, self.journal, loop, lambda: self.now(), self.pulse,
                                      self.turn_soon)
            opened.pop_all()

    # -- the turn ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for recorder in self._recorders:
            recorder.start(self.settings)
        self._ticks.start()
        self._tick()
        self._sweeps.start()
        self._sweep()
        self.readiness.stage = Stage.SERVING

    def turn_soon(self, read_s: float = inf) -> None:
        """Schedules a turn. ``read_s``: the time of the read that caused it; ``inf``: there was none."""
        if read_s < self._read_s:
            self._read_s = read_s
        if not self._turn_due and not self.stopped:
            self._turn_due = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        if self.stopped:
            return
        began = self.pulse.begin()
        self.turns += 1
        if self._busy or self._greeting or self._unserved or self._waiting:
            self._go_on()
        self.turn_work.end()
        ticks, self._tick_due = self._tick_due, False
        try:
            if ticks:
                self.broker.tick(began, self.pulse.held_s())
            else:
                self.broker.flush(began)
            self._carry_out(began)
        except Exception:  # a bug: what is for the journal is written all the same, or nobody would be confirmed again
            if began - self._bug_s >= LIMITED_EVERY_S:
                self._bug_s = began
                log.exception("a turn could not be ended; this is said once a second")
        if self.journal is not None:
            if ticks:
                self.journal.load(began, time.thread_time())
            self.journal.turn(began)
        ended = self.pulse.end("tick" if ticks else "turn", began)
        if ended - began > self.longest_turn_s:
            self.longest_turn_s = ended - began
        if self.telemetry is not None and self._read_s < inf:
            self.telemetry.observer.turned(ended - self._read_s)
        self._read_s = inf
        self._turn_over()

    def _turn_over(self) -> None:
        self.work_left, self.greeting_left = self.turn_work.most, self.turn_work.of_strangers
        self.turn_work.begin()
        self.floods.turn()
        self._ring_in_time()
        if (self._busy or self._greeting or self._unserved or self._waiting or self.broker.has_work
                or self.broker.registry.effects):  # fmt: skip
            self.turn_soon()

    def connection_budget(self, *, greeting: bool = False) -> int:
        """Returns the work that a connection may ask for now. ``greeting``: its client has not logged in."""
        left = min(self.work_left, self.greeting_left) if greeting else self.work_left
        return max(0, min(left, self.turn_work.of_one))

    async def take_work(self, work: int) -> None:
        """Waits until the turn has work left, and takes this much of it: for what clients of HTTP ask for."""
        while self.work_left <= 0 and not self.stopped:
            self.turn_soon()
            await asyncio.sleep(0)
        self.work_left -= work
        self.turn_soon()

    def go_on_later(self, connection: Connection, *, unserved: bool = False, waits: bool = False) -> None:
        if not connection.admitted:
            line = self._greeting
        else:
            line = self._unserved if unserved else self._waiting if waits else self._busy
        line[connection] = None
        self.turn_soon()

    def _go_on(self) -> None:
        """Continues connections that have more to do: at least one, and others while the turn has work left. In every
        other turn those that are busy go first, so that neither kind waits for the other for ever. Newcomers come last,
        with a share of their own: any number of them may come, and nobody who is here waits for them."""
        self.work_left = max(self.work_left, self.turn_work.of_one)
        lines = (self._unserved, self._busy) if self.turns % 2 else (self._busy, self._unserved)
        for line in (self._waiting, *lines):
            for _ in range(len(line) if line is not self._waiting else min(WAITING_ASKED, len(line))):
                if self.work_left <= 0:
                    break
                self._continue_first(line)
        self.greeting_left = self.turn_work.of_strangers
        self.work_left = max(self.work_left, self.greeting_left)
        for _ in range(len(self._greeting)):
            if self.greeting_left <= 0 or self.work_left <= 0:
                break
            self._continue_first(self._greeting)

    @property
    def waiting(self) -> int:
        """The number of connections that have more to do."""
        return len(self._busy) + len(self._greeting) + len(self._unserved) + len(self._waiting)

    def _continue_first(self, line: dict[Connection, None]) -> None:
        connection = next(iter(line))
        del line[connection]
        connection.go_on()

    def _tick(self) -> None:
        """Has the next turn look at consumers, too: it flushes first, and once is enough."""
        self._tick_due = True
        self._tell_unpublished(self.now())
        self.turn_soon()

    def _ring_in_time(self) -> None:
        """Schedules a ring for the core's next timer, if it is due before the next tick: records expire and wills are
        published on time."""
        when = self.broker.registry.timers.next_s
        if when >= self._ring_s or not self._ticks.running:
            return
        now = self.now()
        if when - now < self.broker.governor.tick_s:
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
        now = self.now()
        self.broker.writable(session, now)
        if self.broker.has_work or self.broker.registry.effects:
            self.turn_soon()

    def say_soon(self, session: Session) -> None:
        self.broker.fanout.again[session] = None
        self.turn_soon()

    # -- effects ----------------------------------------------------------------------------------------------------

    def _carry_out(self, now: float) -> None:
        """Carries out effects, and those that follow: a dead letter may cause another, which belongs to the same commit
        of the journal."""
        while effects := self.broker.take_effects():
            for effect in effects:
                self._carry_out_one(effect, now)
        if self.traces is not None:
            self.traces.take()

    def _carry_out_one(self, effect: Effect, now: float) -> None:
        match effect:
            case Disconnect(session, outlet, reason, text, rest):
                if isinstance(outlet, ConnectionlessOutlet):
                    log.info("disconnecting %s: %s", session.client, text, extra=_about(session, reason=reason))
                    outlet.ended(reason, text, rest)
                else:
                    assert isinstance(outlet, Connection)
                    outlet.close_gracefully(reason, text, rest)
            case Spill(lane, chunks):
                self._spilling.send_to_disk(lane, chunks, now)
            case Pause(session, Connection() as connection, why) if session.outlet is connection:
                connection.pause_reading("publisher")
                connection.peer_side.paused(why)
                self.look_at(connection)
            case Resume(session) if isinstance(session.outlet, Connection):
                session.outlet.resume_reading("publisher")
                session.outlet.peer_side.paused("")
            case Resume(session) if isinstance(session.outlet, WriterOutlet):
                session.outlet.resumed()
            case CloseConsumer(subscription, verdict, deletes):
                about = {"filter": verdict.filter, "reason": verdict.reason, "cause": verdict.cause}
                log.info("asked to close: %s", verdict.text, extra=_about(subscription.session, **about))
                if isinstance(subscription.session.outlet, Connection):
                    subscription.session.outlet.peer_side.close_consumer(subscription, verdict.text)
                if deletes:
                    self.broker.queues.cancel(subscription, now)
            case CloseChannel(session, channel, _, text) if isinstance(session.outlet, Connection):
                log.info("closing channel %d of %s: %s", channel.number, session.client, text,
                         extra=_about(session, channel=channel.number))  # fmt: skip
                session.outlet.peer_side.close_channel(effect)
            case Cancelled(subscription, reason) if isinstance(subscription.session.outlet, Connection):
                subscription.session.outlet.peer_side.cancelled(subscription, reason)
            case Cancelled(subscription, _) if isinstance(subscription.session.outlet, ConnectionlessOutlet):
                subscription.session.outlet.cancelled()
            case Revoked(subscription, text, reason) if isinstance(subscription.session.outlet, Connection):
                subscription.session.outlet.peer_side.revoked(subscription, reason, text)
            case DeliveryFailed(session, outlet, error):
                log.error("records could not be written for %s; its connection is closed", session.client,
                          exc_info=error, extra=_about(session))  # fmt: skip
                if isinstance(outlet, Connection):
                    outlet.close_gracefully(Reason.INTERNAL_ERROR, "internal error")
                elif isinstance(outlet, ConnectionlessOutlet):
                    outlet.ended(Reason.INTERNAL_ERROR, "internal error", None)
            case PluginFailed(name, error):
                log.error("the plug-in %s failed, and goes on being asked; this is said once", name, exc_info=error)
            case DeadLetter():
                circle = publish_dead_letter(self.broker, effect, now, now + self.broker.registry.wall_offset_s)
                if circle:
                    self._circle_found(circle, now)

    def _tell_unpublished(self, now: float) -> None:
        """Logs that records whose publishers do not wait for them did not go where they were to go. Limited, because
        there may be any number."""
        totals = self.broker.registry.totals
        missed, count = totals.missed_records, totals.roomless_records
        if missed != self._missed and now - self._missed_s >= LIMITED_EVERY_S:
            log.warning("subscribers and recorded topics do not get records whose routing keys are no topics (with +, "
                        "# or NUL, or empty), only queues do: %d; the last one: %s",
                        missed - self._missed, totals.missed)  # fmt: skip
            self._missed_s, self._missed = now, missed
        if count != self._unpublished and now - self._unpublished_s >= LIMITED_EVERY_S:
            log.warning("dropped for want of room: %d wills, advisories and receipts, the last one: %s",
                        count - self._unpublished, totals.unpublished,
                        extra={"fields": {"reason": Reason.MEMORY_LIMIT}})  # fmt: skip
            self._unpublished_s, self._unpublished = now, count

    def _circle_found(self, queues: list[str], now: float) -> None:
        """Logs that a record was dropped because these queues pass it round. Limited, because many may go round."""
        self._circles += 1
        if now - self._circle_s >= LIMITED_EVERY_S:
            shown = " < ".join(queues[:CIRCLE_QUEUES_SHOWN])
            log.warning(
                "records dropped because their dead letters go round: %d; the queues, the last first: %s%s; break the "
                "circle of x-dead-letter-exchange, or let a consumer reject the records in it", self._circles, shown,
                " < …" * (len(queues) > CIRCLE_QUEUES_SHOWN), extra={"fields": {"reason": Reason.DEAD_LETTER_CYCLE}},
            )  # fmt: skip
            self._circle_s, self._circles = now, 0

    # -- connections ------------------------------------------------------------------------------------------------

    def connected(self, connection: Connection) -> None:
        connection.let_in()
        self.connections.strangers[connection.listener].remove(connection)
        self.ends_with(connection, connection.peer_side.identity)
        self.look_at(connection)
        self.turn_soon()

    def speaks(self, connection: Connection) -> None:
        strangers = self.connections.strangers[connection.listener]
        strangers.move(connection, strangers.speaking)

    def has_left(self, connection: Connection) -> None:
        strangers = self.connections.strangers[connection.listener]
        strangers.move(connection, strangers.left)

    def closed(self, connection: Connection, reason: Reason, text: str) -> None:
        self.connections.remove(connection)
        self._busy.pop(connection, None)
        self._greeting.pop(connection, None)
        self._unserved.pop(connection, None)
        self._waiting.pop(connection, None)
        self._expiries.remove(connection)
        now = self.now()
        self.ends.put(connection, reason, text, now, now + self.broker.registry.wall_offset_s)
        self.turn_soon()

    def ends_with(self, connection: Connection, identity: Identity) -> None:
        """Ends the connection when its client's identity does."""
        self._expiries.put(connection, identity)

    def refused(self, connection: Connection, text: str) -> None:
        self.connections_refused += 1

    def limited(self, session: Session, text: str) -> None:
        """Logs that a client was refused something for want of memory. Limited, because it may ask very often."""
        now = self.now()
        if now - self._limited_s >= LIMITED_EVERY_S:
            self._limited_s = now
            log.warning("a request of %s was refused: %s", session.client, text, extra=_about(session))

    def protocol_error(self, connection: Connection, error: ProtocolError) -> None:
        self.protocol_errors += 1

    def look_at(self, connection: Connection) -> None:
        self._supervision.look_at(connection)

    def _sweep(self) -> None:
        began = self.pulse.begin()
        self._spilling.tidy()
        self._supervision.sweep()
        self.ends.tell()
        self.pulse.end("sweep", began)

    def take_limits(self) -> None:
        """Puts the limits of users that the settings have in force, also for who is connected."""
        if self.allowances.take(self.settings.limits, self.settings.auth.groups):
            self.broker.set_allowances(self._allowance_of, self.now())

    def _allowance_of(self, session: Session) -> Allowance:
        outlet = session.outlet
        if isinstance(outlet, Connection):
            return self.allowances.of(outlet.peer_side.identity)
        if session.rights is not ALL_RIGHTS:
            return self.allowances.of(session.rights.identity)
        if session.allowance is not UNLIMITED:
            return self.allowances.of(Identity(session.allowance.user))
        # It is away, and had no limits when it was here, or is from before this process. Names were checked, or not.
        return self.allowances.of(Identity(session.username or "")) if self.logins.ask else UNLIMITED

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine, and keeps a reference to its task until it is done."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Closes all connections, then the journal, telemetry and spill files."""
        self.readiness.stage = Stage.STOPPING
        self.pulse.stop()
        self._ticks.stop()
        self._sweeps.stop()
        self._supervision.stop()
        if self._rings is not None:
            self._rings.cancel()
        for connection in self.connections:
            connection.close_gracefully(Reason.SHUTDOWN, "the server is shutting down")
        self.broker.finish()
        self._carry_out(self.now())
        self._tell_unpublished(inf)
        if self.journal is not None:
            self.journal.close()
        for recorder in self._recorders:
            recorder.stop()
        self._spilling.close()
        self.logins.close()
        self.handshakes.close()
        self.hangups.close()
        self.peer_sockets.close()
        for task in self._tasks:
            task.cancel()
        self.stopped = True


def _about(session: Session, **more: object) -> dict[str, object]:
    """Returns the fields of a line in the log about a client."""
    outlet = session.outlet
    listener = outlet.listener if isinstance(outlet, Connection) else None
    return {"fields": {"client": session.client, "user": session.username, "listener": listener, **more}}
