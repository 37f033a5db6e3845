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

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from headway.core.base import HeadwayError, ProtocolError, Reason, Refused, moved
from headway.core.message import Run
from headway.core.permission import NOBODY, Identity
from headway.server.connections import END_WORK, ITEMS_MAX, Connection, PartialPacket, PendingReplies, TurnBudget
from headway.server.logins import Attempt, Refusal
from headway.server.peers.states import CLOSED, CLOSING, GREETING, MOVES, OPEN, WAITING, ClientState
from headway.server.transport import Buffer

if TYPE_CHECKING:
    from headway.core.consumer import CloseChannel, Session, Subscription
    from headway.server.config import ListenerTable
    from headway.server.engine import Engine
    from headway.wire.decoder import Decoder

READS_PER_POOL = 4
READ_BYTES_MIN = 4096

Item = TypeVar("Item")
COUNTED = frozenset({Reason.NOT_AUTHORIZED, Reason.MALFORMED, Reason.NOT_FOUND})
"""The reasons of refusals that the core counts, one by one."""
T = TypeVar("T")


class BasePeer(ABC, Generic[Item]):
    """One client's protocol state. ``session`` is None until the client is let in."""

    __slots__ = (
        "_final", "_held", "_lanes", "budget", "connection", "decoder", "engine", "handles", "identity", "keep_alive_s",
        "listener", "pending_replies", "session", "state",
    )  # fmt: skip

    publishes: ClassVar[frozenset[type]] = frozenset({Run})
    """Types of items that bring records: runs, and items with a ``run``."""
    faults: ClassVar[tuple[type[HeadwayError], ...]] = (ProtocolError,)
    """Types of errors that are the client's fault."""

    def __init__(
        self, engine: Engine, connection: Connection, listener: ListenerTable, decoder: Decoder[Item]
    ) -> None:
        self.engine = engine
        self.connection = connection
        self.listener = listener
        self.decoder = decoder
        self.session: Session | None = None
        self.identity = NOBODY
        """The client's identity, as was checked; a name that is only a label is nobody's."""
        self.keep_alive_s = inf
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

    # If a protocol has no packet for one of these, an advisory says it.

    def heartbeat(self, now: float) -> float:
        return inf

    def paused(self, why: str) -> None: ...
    def close_channel(self, effect: CloseChannel) -> None: ...
    def close_consumer(self, subscription: Subscription, text: str) -> None: ...
    def cancelled(self, subscription: Subscription) -> None: ...
    def revoked(self, subscription: Subscription, text: str) -> None: ...

    # -- in -----------------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> bool:
        """Handles new bytes and held items as far as the budget goes. Returns whether there is more to do."""
        if self.expelled:
            return False
        engine, budget, items, intake = self.engine, self.budget, self._held, self.engine.broker.intake
        budget.left = granted = engine.connection_budget()
        if data or not items:
            items += self.decoder.feed(data, ITEMS_MAX if granted else 0)
            budget.left -= self.decoder.silent_frames
        asked = budget.running is not None  # any item but a bare run
        at, count, room, publishes = 0, len(items), False, self.publishes
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
                    if session is not None and (
                        session.paused_by or (not room and intake.short_of_room and self._no_room(session, item))
                    ):
                        break
                    room = True
                    if kind is Run:
                        at += self._publish_runs(session, items, at)
                        continue
                if self.holds_up(item):
                    break
                at += 1
                budget.left -= 1
                asked = True
                self.one(item)
            except self.faults as fault:
                self.blame(fault)
        del items[:at]
        engine.work_left -= granted - budget.left
        return self.after(asked)

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
        return self.session is not None and bool(self.session.paused_by)

    def _no_room(self, session: Session, item: Any) -> bool:
        """Returns whether records have to wait for room. Asked once per read, while room is short."""
        broker = self.engine.broker
        run: Run = item if isinstance(item, Run) else item.run
        if run.exchange not in broker.registry.router.exchanges.by_name:
            return False  # that is an error of its own, found later
        return broker.intake.must_wait(session, run, self.engine.now())

    def _publish_runs(self, session: Session | None, items: list[Any], at: int) -> int:
        """Publishes the neighbouring runs from ``at`` on, as far as the budget goes. Returns how many are done. The
        next one may have been published in part; its rest takes its place."""
        if session is None:
            raise ProtocolError("the client has not logged in", reason=Reason.PROTOCOL_ERROR)
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
        count, taken, work, refused, rest = engine.broker.intake.publish_some(session, runs, engine.now(), budget.left)
        budget.left -= work
        if refused is None:
            self.pace(taken // count)
        elif refused.reason not in COUNTED:
            session.refused_records += 1  # there is no reply; the client's counters show it
        if rest is None:
            return count
        items[at + count - 1] = rest
        return count - 1

    def pace(self, lanes: int) -> None:
        """Adjusts the size of reads to the number of lanes that records go to. Each lane keeps a copy, so one large
        read could take up more memory than there is before the client could be told to wait."""
        if lanes != self._lanes and self.session is not None:  # None: its last commit goes on without it
            self._lanes = lanes
            share = self.session.pool.memory_limit // READS_PER_POOL // max(1, lanes)
            allowance = self.session.allowance
            if allowance is not None and allowance.limits.of_rates:
                share = 0  # one read may not be worth minutes of waiting
            self.connection.read_bytes = max(READ_BYTES_MIN, min(self.engine.read_bytes, share))

    def go_on(self) -> None:
        """Handles items that came while the peer was waiting."""
        if self.handles:
            self.connection.go_on()
            self.engine.turn_soon()

    @property
    def buffered_bytes(self) -> int:
        return self.decoder.buffered_bytes + self.decoder.overhead_bytes

    def partial_packet(self) -> PartialPacket:
        decoder = self.decoder
        if decoder.waits:
            return PartialPacket(0, 0, decoder.oldest)  # nothing more is read before these items are handled
        return PartialPacket(self.buffered_bytes, decoder.missing_bytes, decoder.oldest, decoder.unknown_bytes)

    # -- out ----------------------------------------------------------------------------------------------------------

    def write(self, frame: bytes | None) -> None:
        if frame is not None:
            self.connection.out += frame

    def check_password(self, username: str, password: bytes, done: Callable[[Refusal | None], None]) -> None:
        """Calls ``done`` with why the client is refused, None if it is not: at once if this login is remembered, else
        after a check beside the loop. Items that came meanwhile are handled after that. If the connection ends first,
        nothing is called."""
        connection, logins = self.connection, self.engine.logins
        attempt = Attempt(username, password, self.host, connection.client, connection.listener)
        known = logins.known(attempt)
        if known is not None:
            self.take(known)
            done(None)
        else:
            self.wait_for(logins.check(attempt, lambda: connection.open), lambda found: done(self.take(found)))

    def wait_for(self, answer: Coroutine[Any, Any, T], done: Callable[[T], None]) -> None:
        """Calls ``done`` with the answer. Until then the client is neither handled nor read. If the connection ends
        first, nothing is called."""
        self.become(WAITING)
        self.connection.pause_reading("password")
        self.engine.spawn(self._wait_for(answer, done))

    async def _wait_for(self, answer: Coroutine[Any, Any, T], done: Callable[[T], None]) -> None:
        found = await answer
        if self.connection.open:
            self.become(GREETING)
            self.connection.resume_reading("password")
            done(found)
            self.go_on()

    async def answer(self, answer: Coroutine[Any, Any, T], done: Callable[[T], None]) -> None:
        """Calls ``done`` with the answer, while the client goes on. If the connection ends first, nothing is called."""
        found = await answer
        if self.connection.open:
            done(found)

    def take(self, found: Identity | Refusal) -> Refusal | None:
        """Takes the identity that was found. Returns why the client is refused; None: it is not."""
        if isinstance(found, Refusal):
            self.identity = NOBODY
            return found
        self.identity = found
        self.connection.username = found.user
        return None

    @property
    def host(self) -> str:
        """The client's address without its port."""
        return self.connection.address.rpartition(":")[0]

    def note_limit(self, error: Refused) -> None:
        """Logs a refusal for want of memory."""
        if error.reason is Reason.CLIENT_MEMORY and self.session is not None:
            self.engine.limited(self.session, str(error))

    # -- the end ------------------------------------------------------------------------------------------------------

    def unfinished(self) -> Buffer | None:
        """Returns the rest of a record that is half sent on this connection; None: it cannot be read."""
        session = self.session
        if session is None or session.outlet is not self.connection:
            return b""
        return self.engine.broker.unfinished(session)

    def connection_lost(self, reason: Reason) -> None:
        self.become(CLOSED)
        self.budget.left -= END_WORK  # if the client has asked for it
        self.over()
        session, self.session = self.session, None
        if session is not None:
            self.leave(session, reason)
        self.budget.running = None
