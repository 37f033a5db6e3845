"""The base of every protocol's side of a connection. The protocol's codec turns bytes into items; each is a command.

Rules:
- Items are handled in the order in which they came. Those beyond the connection's budget for this turn wait for the
  next one, in the same order (turn_budget.py). Neighbouring bare runs (records that need no reply) go to the broker as
  one command.
- A client that has to slow down, or for whose records there is no room, publishes nothing: its items wait until it is
  read again.
- While a peer is ``WAITING`` its client is neither handled nor read: its password is being checked (in a thread,
  because that is slow on purpose), or the reply to it has to wait for the journal.
- A client that breaks the protocol is told how. Everything before the fault still counts.
- A client whose session was taken from it (taken over, or disconnected by the broker) is not handled any more, although
  its connection is closed only at the end of the turn.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import islice
from math import inf
from typing import Any, ClassVar, Generic, TypeVar

from headway.core.base import HeadwayError, ProtocolError, Reason, Refused, moved
from headway.core.consumer import Feed, Session
from headway.core.delivery import FLUSH_BYTES
from headway.core.log import REMEMBERED
from headway.core.message import Run
from headway.core.permission import NOBODY
from headway.core.routing import is_out_of_room, pause_reason
from headway.server.config import ListenerTable
from headway.server.connections import (
    END_WORK,
    FLOOD_BYTES,
    LOGIN_WORK,
    Connection,
    PartialPacket,
    PendingReplies,
    TurnBudget,
)
from headway.server.engine import Engine
from headway.server.peers.login_side import CLOSED, CLOSING, GREETING, MOVES, OPEN, ClientState, LoginSide, QuietPeer
from headway.server.transport import Buffer
from headway.wire.decoder import Decoder

log = logging.getLogger("headway")

READS_PER_POOL = 4
READ_BYTES_MIN = 4096
LOOKS = 4
"""Looks at whether a heartbeat is due, in the time between two that the client was promised."""

Item = TypeVar("Item")


class BasePeer(QuietPeer, LoginSide, ABC, Generic[Item]):
    """One client's protocol state. ``session`` is None until the client is let in."""

    __slots__ = (
        "_final", "_held", "_lanes", "_noted_bytes", "_reads_much", "_remembered_bytes", "budget", "decoder", "handles",
        "heartbeat_s", "keep_alive_s", "pending_replies", "session", "state",
    )  # fmt: skip

    publishes: ClassVar[frozenset[type]] = frozenset({Run})
    """Types of items that bring records: runs, and items with a ``run``."""
    looked_at: ClassVar[frozenset[type]] = frozenset({Run})
    """Those of these items whose run is at hand: before each of them is asked whether it is wide."""
    settles: ClassVar[frozenset[type]] = frozenset()
    """Types of items that only settle deliveries. The core knows who is to be sent more for them."""
    faults: ClassVar[tuple[type[HeadwayError], ...]] = (ProtocolError,)
    """Types of errors that are the client's fault."""
    heartbeat_word: ClassVar[bytes] = b""
    """The word to a client to which nothing else is sent."""

    def __init__(
        self, engine: Engine, connection: Connection, listener: ListenerTable, decoder: Decoder[Item]
    ) -> None:
        self.engine = engine
        self.connection = connection
        self.listener = listener
        self.decoder = decoder
        self.session: Session | None = None
        self.identity = NOBODY
        self.username = ""
        self.keep_alive_s = inf
        self.heartbeat_s = 0.0
        """The longest time without a word that the client was promised; 0: it wants none."""
        self._noted_bytes = 0
        """Bytes that the client's socket had taken at the last look."""
        self.pending_replies = PendingReplies(connection, engine.journal)
        """Replies to what the client publishes."""
        self.budget = TurnBudget()
        self.state = GREETING
        """Set by ``become`` alone."""
        self.handles = True
        """Whether items are handled: in ``GREETING`` and ``OPEN``."""
        self._held: list[Item] = []
        """Items that are decoded and not handled yet."""
        self._final = b""
        """The last word to the client, once the connection is about to end."""
        self._lanes = -1
        """Lanes that the last publish went to; -1: nothing has been published."""
        self._remembered_bytes = 0
        """The memory of what the decoder keeps, as last counted."""
        self._reads_much = False
        """Whether reads are large because of who has its lane."""

    def become(self, state: ClientState) -> None:
        self.state = moved(MOVES, self.state, state)
        self.handles = state is GREETING or state is OPEN

    # -- for each protocol to implement -------------------------------------------------------------------------------

    @abstractmethod
    def one(self, item: Item) -> None:
        """Handles one item; begins what takes more than one step with ``budget``. Raises one of ``faults``."""

    @abstractmethod
    def last_word(self, reason: Reason, text: str) -> bytes:
        """Returns the packet that ends the connection from our side; empty if the protocol has none."""

    @abstractmethod
    def over(self) -> None:
        """Drops references to this peer when the connection has ended, so that no cycle is left."""

    def leave(self, session: Session, reason: Reason) -> None:
        """Ends the session of a client that had been let in."""
        self.engine.broker.disconnect(session, self.connection, reason, self.engine.now(), will=False)

    def is_goodbye(self, item: Item) -> bool:
        """Returns whether with this item the client ends its connection, or a channel or link of it."""
        return False

    def says_goodbye(self) -> bool:
        return any(map(self.is_goodbye, self._held))

    def holds_up(self, item: Item) -> bool:
        """Returns whether an item, and every item behind it, has to wait."""
        return False

    def blame(self, fault: HeadwayError) -> None:
        """Tells the client what went wrong."""
        assert isinstance(fault, ProtocolError)
        self.break_off(fault)

    def break_off(self, error: ProtocolError) -> None:
        """Tells a client that it broke the protocol, and ends the connection."""
        self.engine.protocol_error(self.connection, error)
        self.connection.close_gracefully(error.reason, str(error))

    def end_with(self, word: bytes, reason: Reason, text: str) -> None:
        """Ends the connection with this last word, which ``last_word`` has to return; ``text`` goes on record."""
        if self.connection.open:
            self.become(CLOSING)
            self._final = word
            self.connection.close_gracefully(reason, text)

    @property
    def broken(self) -> ProtocolError | None:
        """The first error in the bytes; None: there is none so far."""
        return self.decoder.error

    # -- in -----------------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> bool:
        """Handles new bytes and held items as far as the budget goes. Returns whether there is more to do."""
        if self.expelled:
            return False
        engine, budget, items, intake = self.engine, self.budget, self._held, self.engine.broker.intake
        if len(data) >= FLOOD_BYTES:
            engine.floods.note(self)
        greeting = self.session is None
        budget.left = granted = engine.connection_budget(greeting=greeting)
        if data or not items:
            decoder = self.decoder
            items += decoder.feed(data, granted)
            budget.left -= decoder.extra_work
            if decoder.remembered_bytes != self._remembered_bytes:
                self._count_remembered()
        asked = budget.running is not None  # something that may have to be answered
        at, count, room, lost, publishes, looked_at = 0, len(items), False, 0, self.publishes, self.looked_at
        why: Iterable[object] = ()
        while (at < count or budget.running is not None) and budget.left > 0 and self.handles:
            try:
                if budget.running is not None:
                    budget.go_on()
                    if budget.running is not None:
                        break
                    continue
                item = items[at]
                kind = type(item)
                if kind in publishes:
                    session = self.session
                    wide = kind in looked_at and intake.is_wide(_run_of(item))
                    if session is not None and (
                        session.paused_by
                        or ((wide or (not room and intake.short_of_room)) and self._no_room(session, item))
                    ):
                        if not (self.connection.leaving and intake.has_its_turn(_run_of(item))):
                            break
                        look = wide or intake.short_of_room
                        if look and self._no_room(session, item) and is_out_of_room(session.paused_by):
                            lost += self._give_up(session, item)
                            why = list(session.paused_by)  # until it says goodbye, which may come next
                            at += 1
                            budget.left -= 1
                            continue
                    room = True
                    if kind is Run:
                        at += self._publish_runs(session or self.granted, items, at)
                        continue
                if self.holds_up(item):
                    break
                at += 1
                budget.left -= 1
                asked = asked or kind not in self.settles
                self.one(item)
            except self.faults as fault:
                self.blame(fault)
        del items[:at]
        if greeting:
            budget.left -= LOGIN_WORK * at
            engine.greeting_left -= granted - budget.left
        engine.work_left -= granted - budget.left
        if lost:
            log.warning("%s leaves: %d records that it published before are lost (%s)", self.connection.address, lost,
                        "; ".join(map(pause_reason, why)))  # fmt: skip
        if self.connection.leaving and budget.running is None and not self.says_goodbye():
            self.connection.hold_back_again(held=self.session is not None and bool(self.session.paused_by))
        return self.after(asked)

    def _count_remembered(self) -> None:
        """Counts what the decoder keeps for later packets as memory of its client."""
        session, decoder = self.session, self.decoder
        if session is None:
            return  # counted with the next ones
        try:
            session.tab.check(max(0, decoder.remembered_bytes - self._remembered_bytes))
        except Refused as refusal:
            if not decoder.remember_less():
                self.note_limit(refusal)
                self.connection.end_soon(refusal.reason, str(refusal), told=True)
        self._remembered_bytes = decoder.remembered_bytes
        session.tab.put(REMEMBERED, decoder.remembered_bytes)

    def after(self, asked: bool = True) -> bool:
        """Has replies and deliveries sent after items were handled. Returns whether there is more to do."""
        connection = self.connection
        more = bool(self._held) or self.budget.running is not None or self.decoder.waits
        error = self.broken
        if error is not None and not more and connection.open:
            self.break_off(error)
        elif self.session is None:
            connection.send_out()
        elif asked or connection.out:
            self.engine.broker.fanout.again[self.session] = None
        return more and self.handles

    @property
    def granted(self) -> Session:
        if self.session is None:
            raise ProtocolError("the client has not logged in", reason=Reason.PROTOCOL_ERROR)
        return self.session

    @property
    def expelled(self) -> bool:
        """Whether the broker has taken the session from this connection. The turn closes the connection when it ends;
        until then nothing more may be done in the session's name, because it may have ended or be another's."""
        return self.session is not None and self.session.outlet is not self.connection

    @property
    def must_wait(self) -> bool:
        """The client has to slow down: it publishes nothing more for now."""
        return self.session is not None and bool(self.session.paused_by) and not self.connection.leaving

    def waits_with(self, run: Run, start: int = 0, *, gone: bool = False) -> bool:
        """Whether the client has to slow down, or the next record of a run has to wait for room. What a client that
        leaves, or is ``gone``, still publishes waits only for other records on their way to very many lanes."""
        session, intake = self.session, self.engine.broker.intake
        if gone or session is None or self.connection.leaving:
            return not intake.has_its_turn(run)
        return bool(session.paused_by) or intake.lacks_room(session, run, self.engine.now(), start)

    def _no_room(self, session: Session, item: Any) -> bool:
        """Returns whether records have to wait for room. Asked once per read, while room is short."""
        broker = self.engine.broker
        run = _run_of(item)
        if run.exchange not in broker.registry.router.exchanges.by_name:
            return False  # that is an error of its own, found later
        return broker.intake.must_wait(session, run, self.engine.now())

    def _give_up(self, session: Session, item: Any) -> int:
        """Counts what a client that leaves has published as lost, because there is no room for it. Otherwise clients
        that come and leave again and again would fill the broker. None of it was confirmed."""
        run = _run_of(item)
        self.engine.broker.registry.lost({session.number: len(run)}, Reason.MEMORY_LIMIT)
        return len(run)

    def left_without_room(self, session: Session, runs: Sequence[Run], *, gone: bool, waited: bool) -> bool:
        """Tells whether the client has left and there is no room for these records, which count as lost then. Otherwise
        clients that come and leave again and again would fill the broker. ``waited``: it has waited for that."""
        intake, connection = self.engine.broker.intake, self.connection
        if gone:
            lost = waited or session.pool.crowded or intake.crowds(runs[0])
        else:
            if connection.leaving and (intake.short_of_room or intake.is_wide(runs[0])):
                intake.must_wait(session, runs[0], self.engine.now())
            lost = connection.leaving and is_out_of_room(session.paused_by)
        if not lost:
            return False
        count = sum(map(len, runs))
        self.engine.broker.registry.lost({session.number: count}, Reason.MEMORY_LIMIT)
        log.warning("%s leaves: %d records are lost, because there is no room for them", session.client, count)
        return True

    def _publish_runs(self, session: Session, items: list[Any], at: int) -> int:
        """Publishes the neighbouring runs from ``at`` on, as far as the budget goes. Returns how many are done. The
        next one may have been published in part; its rest takes its place."""
        budget = self.budget
        runs: list[Run] = []
        for item in islice(items, at, None):
            if type(item) is not Run or item.topic[0] == "$":
                break
            runs.append(item)
        if not runs:  # topics that start with $ belong to the broker
            session.refused_records += len(items[at])
            budget.left -= 1
            return 1
        engine = self.engine
        published = engine.broker.intake.publish_some(session, runs, engine.now(), budget.left)
        count, taken, work, refused, rest, feeds = published
        budget.left -= work
        if refused is None:
            self.pace(taken // count, feeds)
        if rest is None:
            return count
        items[at + count - 1] = rest
        return count - 1

    def pace(self, lanes: int, feeds: Sequence[Feed]) -> None:
        """Adjusts the size of reads to the number of lanes that records go to, and to who reads the only one.

        Each lane keeps a copy, so one large read could take up more memory than there is before the client could be
        told to wait. A read is usually so small that a consumer's kernel has room for two: who has not read all of the
        last one can still take the next one whole. It is larger where that is not needed, because a small send costs as
        much as a large one: see ``_is_large_for``. But while several clients flood the broker, all others wait for all
        of these reads."""
        large = len(feeds) == 1 and not self.engine.floods.several and self._is_large_for(feeds[0])
        if self.session is None:
            return  # its last commit goes on without it
        if lanes != self._lanes or large is not self._reads_much:
            self._lanes, self._reads_much = lanes, large
            most = self.engine.read_bytes if large else self.engine.usual_read_bytes
            share = self.session.pool.memory_limit // READS_PER_POOL // max(1, lanes)
            if self.session.allowance.limits.of_rates:
                share = 0  # one read may not be worth minutes of waiting
            self.connection.read_bytes = max(READ_BYTES_MIN, min(most, share))

    def _is_large_for(self, feed: Feed) -> bool:
        """Tells whether a large read does well for who reads this lane: no consumer and no queue lags; or so many do
        not that it takes turns to send to all, so they have time."""
        caught_up = len(feed.waiting) + len(feed.listening)
        if caught_up == len(feed.subscriptions) + feed.reading:
            return True
        return caught_up * self.engine.usual_read_bytes > FLUSH_BYTES

    def go_on(self) -> None:
        """Handles items that came while the peer was waiting."""
        if self.handles:
            self.connection.go_on()
            self.engine.turn_soon()

    @property
    def buffered_bytes(self) -> int:
        return self.decoder.buffered_bytes + self.decoder.overhead_bytes

    @property
    def has_more(self) -> bool:
        return bool(self._held) or self.decoder.waits

    def partial_packet(self) -> PartialPacket:
        decoder = self.decoder
        if decoder.waits:
            return PartialPacket(0, 0, decoder.oldest)  # nothing more is read before these items are handled
        return PartialPacket(self.buffered_bytes, decoder.missing_bytes, decoder.oldest, decoder.unknown_bytes)

    # -- out ----------------------------------------------------------------------------------------------------------

    def write(self, frame: bytes | None) -> None:
        if frame is not None:
            self.connection.out += frame

    def note_limit(self, error: Refused) -> None:
        """Logs a refusal for want of memory."""
        if error.reason is Reason.CLIENT_MEMORY and self.session is not None:
            self.engine.limited(self.session, str(error))

    @property
    def message_bytes_allowed(self) -> int:
        """The largest message that a client may send: it has to fit into the client's share of memory."""
        tab = self.granted.tab
        return min(self.listener.packet_bytes_max, int(tab.pool.memory_limit * tab.shares.client))

    def heartbeat(self, now: float) -> float:
        """Sends a heartbeat if nothing was sent since the last look. Returns when to be called again.

        There are four looks in the time that was promised. What is sent right after a look is seen by the next one, and
        the one after that sends a heartbeat: so half the time passes without a word at most, and as much is left for
        a loop that is late."""
        if not self.heartbeat_s or self.state is not OPEN:
            return inf
        connection = self.connection
        if connection.taken_bytes != self._noted_bytes:
            self._noted_bytes = connection.taken_bytes
        elif not connection.out and not connection.blocked:
            self.write(self.heartbeat_word)
            self.answer_now()
        return now + self.heartbeat_s / LOOKS

    def answer_now(self) -> None:
        """Has replies sent that came up outside of the client's own commands."""
        self.after()
        self.engine.turn_soon()

    # -- the end ------------------------------------------------------------------------------------------------------

    def unfinished(self) -> Buffer | None:
        """Returns the rest of a record that is half sent on this connection; None: it cannot be read."""
        session = self.session
        if session is None or session.outlet is not self.connection:
            return b""
        return self.engine.broker.unfinished(session)

    def finish_without(self, session: Session) -> None:
        """Finishes the command that is running, although the client has left."""
        running, self.budget.running = self.budget.running, None
        if running is not None:
            self.engine.broker.registry.deferred.begin(running, self.engine.now(), client=session, whole=True)

    def connection_lost(self, reason: Reason) -> None:
        self.become(CLOSED)
        self.budget.left -= END_WORK  # if the client has asked for it
        self.over()
        self.pending_replies.over()
        session, self.session = self.session, None
        if session is not None:
            if self._remembered_bytes and session.outlet is self.connection:
                session.tab.put(REMEMBERED, 0)
            self.leave(session, reason)
        self.budget.running = None


def _run_of(item: Any) -> Run:
    run: Run = item if type(item) is Run else item.run
    return run
