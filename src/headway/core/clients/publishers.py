"""Publishers: what they send, and writers whose batches are published exactly once."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from headway.core.allowance import UNLIMITED, Allowance
from headway.core.base import Reason, Refused
from headway.core.clients.durability import DurableMetadata, WriterBatch
from headway.core.clients.sessions import Admission
from headway.core.consumer import ConnectionlessOutlet, ConnectRequest, Session, SharedReader
from headway.core.delivery import Fanout
from headway.core.log import MAIN
from headway.core.message import Run, says_merge
from headway.core.permission import ALL_RIGHTS, Identity, Rights
from headway.core.policy import HTTP_LISTENER
from headway.core.routing import (
    Advisories,
    Published,
    PublishedRuns,
    PublishedSlice,
    Publishing,
    Registry,
    Route,
    part_of,
)

# -- intake ------------------------------------------------------------------------------------------------------------
#
# Intake: what publishers ask for. A publisher that has to wait from now on is told to the operator, as a fast one.


UNTOLD_MAX = 1024
"""Receipts that are closed and not told, from which on nobody may ask for more."""
ADVISORIES_WAITING_MAX = 1024


class Intake:
    """Publishes runs while there is room for them."""

    def __init__(self, registry: Registry, publishing: Publishing, fanout: Fanout, advisories: Advisories) -> None:
        self._registry = registry
        self._publishing = publishing
        self.check_room, self.takes_at_once = publishing.check_room, publishing.takes_at_once
        self.is_wide, self.has_its_turn = publishing.is_wide, publishing.has_its_turn
        self._fanout = fanout
        self.advisories = advisories
        self._pools = registry.distinct_pools()

    def publish(self, session: Session | None, runs: list[Run], now: float) -> int:
        taken = self._publishing.publish(session, runs, now)
        self._published(session, now)
        return taken

    @property
    def short_of_room(self) -> bool:
        """Tells whether there may be no room for more records; see ``must_wait``."""
        for pool in self._pools:
            if pool.closed or pool.crowded:
                break
        else:
            registry = self._registry
            return bool(self._fanout.unfinished or registry.overdue.queues or registry.put_off
                        or len(registry.receipts.done) >= UNTOLD_MAX)  # fmt: skip
        return True

    def must_wait(self, session: Session, run: Run, now: float) -> bool:
        """Tells whether a publisher has to wait before the first record of a read is published.

        It waits if there is no room for the record. It also waits if records before it are not yet offered to all
        consumers, or not yet dropped, which may take several turns, and if it asks for a receipt while very many are
        not told. Without this check a client that connects again and
        again would get in one read each time."""
        if self.lacks_room(session, run, now):
            return True
        if not self.short_of_room:
            return False
        if run.receipt is not None and len(self._registry.receipts.done) >= UNTOLD_MAX:
            return True
        route, looks = self._publishing.route(run), self._registry.looks_for_room
        if route not in looks:
            looks[route] = self._look(route)
        if (look := looks[route]) is not None:
            return look
        waits = self._publishing.must_wait(session, route, now)
        if waits and session.paused_since_s == now:
            self._tell_fast(session, now)
        return waits

    def lacks_room(self, session: Session, run: Run, now: float, start: int = 0) -> bool:
        """Tells whether the publisher has to wait because its next record takes up more than there is room for."""
        waits = self._publishing.lacks_room(session, run, now, start)
        if waits and session.paused_since_s == now:
            self._tell_fast(session, now)
        return waits

    def crowds(self, run: Run) -> bool:
        """True if the run would go to a topic's pool that is crowded, so that what a client that has left published is
        not taken any more."""
        return self.short_of_room and any(
            feed.key.pool.topic and feed.key.pool.crowded for feed in self._publishing.route(run).feeds
        )

    def _look(self, route: Route) -> bool | None:
        """Tells whether all publishers to this route wait, or whether there is room for all. None: that differs."""
        late = [some for some in (self._registry.overdue.queues, self._registry.put_off) if some]
        short = {pool for pool in self._pools if pool.hopeless or pool.full or pool.crowded}
        tight = False
        for feed in route.feeds:
            queues = feed.queues
            if feed.left or (late and queues and any(_share(some, queues) for some in late)):
                return True
            tight = tight or feed.lane.full
            if short and not tight and (pool := feed.key.pool) in short:
                tight = pool.hopeless or pool.full_for(feed.lane)
        return None if tight else False

    def _tell_fast(self, session: Session, now: float) -> None:
        """Tells operators. The advisories say how many pauses there were, so that those left out are told later. Who
        waits for a record of its own to reach very many consumers is not fast."""
        wide = self._registry.backpressure.wide
        if self.advisories.waiting < ADVISORIES_WAITING_MAX and wide not in session.paused_by:
            self.advisories.tell("fast_producer", session.client, now, pauses=session.pauses)

    def publish_some(self, session: Session, runs: list[Run], now: float, work_max: float) -> PublishedRuns:
        """Publishes these runs, from the first on, until ``work_max`` is used up."""
        some = self._publishing.publish_some(session, runs, now, work_max)
        if some.refused is None or session.allowance is not UNLIMITED:
            self._published(session, now)
        return some

    def publish_slice(self, session: Session, run: Run, now: float, start: int = 0) -> PublishedSlice:
        """Publishes a slice of a run to its exchange, from record ``start`` on."""
        done = self._publishing.publish_slice(session, run, now, start)
        self._published(session, now)
        return done

    def publish_to(self, session: Session | None, run: Run, now: float) -> Published:
        """Publishes a run to its exchange (``run.exchange``)."""
        published = self._publishing.publish_to(session, run, now)
        self._published(session, now)
        return published

    def _published(self, session: Session | None, now: float) -> None:
        """Tells operators if the publisher has to wait now, because others do not keep up. One that has published more
        than its user may a second waits, too. What the broker itself publishes has no session."""
        if session is None:
            return
        if session.paused_by and session.paused_since_s == now:
            self._tell_fast(session, now)
        if session.allowance is not UNLIMITED:
            self._registry.backpressure.spend(session, now)


def _share(some: dict[SharedReader, None], others: dict[SharedReader, None]) -> bool:
    """Tells whether a queue is in both. Looks through the smaller one."""
    if len(others) == 1:  # most feeds are read by one queue
        return next(iter(others)) in some
    few, many = (some, others) if len(some) < len(others) else (others, some)
    return any(queue in many for queue in few)


# -- writers -----------------------------------------------------------------------------------------------------------
#
# A writer is a publisher with numbered batches of records; each batch is published exactly once. A Spark query is one.
#
# Theory of operation. A batch is on disk, in parts, before it begins. ``begin`` journals the names of the parts. When
# that is on disk, the broker publishes the rows of the batch in order, even if the writer is gone. Each run has an
# *origin* (writer, batch and row), which the journal stores with the run. A crash can only cut off the end of a
# journal's stream. So the stream has all rows of the batch that belong to it, up to the last row with this origin.
# After a crash the broker publishes the other rows again, from the parts.
#
# Rules:
# - The begin of a batch is on disk before its first row is published. All rows are on disk before the batch is done.
# - A batch is published within the rights and limits of who asked for it, also by the process after this one.
# - A writer's batch numbers ascend, and a batch is done before the next one begins. A known batch does not begin again,
#   even if a request names other parts for it.
# - While a batch is not done, the journal frees no record that came after its begin.
# - The journal does not store records of topics that are not recorded and have no durable readers. After a crash these
#   rows are published again. All consumers that may have had them were disconnected by the crash.


PROTOCOL = "http"
_MARK = "\0"
"""A client's name never begins with this character."""


class Origin(NamedTuple):
    """The origin of a run: its first record is this row of the writer's batch."""

    writer: str
    batch: int
    row: int

    def __str__(self) -> str:
        return f"{_MARK}{self.row}{_MARK}{self.batch}{_MARK}{self.writer}"

    @classmethod
    def read(cls, text: str) -> Origin | None:
        """Parses an origin; None if the text is the name of a client."""
        if not text.startswith(_MARK):
            return None
        _, row, batch, writer = text.split(_MARK, 3)
        return cls(writer, int(batch), int(row))


class WriterOutlet(ConnectionlessOutlet):
    """The outlet of a writer. Nothing is sent to it. ``resumed`` is called when the writer may go on after a pause, and
    when it is cut off."""

    __slots__ = ("resumed",)

    def __init__(self, now: float, resumed: Callable[[], None]) -> None:
        super().__init__(now)
        self.resumed = resumed

    def ended(self, reason: Reason, text: str, rest: bytes | memoryview | None) -> None:
        super().ended(reason, text, rest)
        self.resumed()


class Writers:
    def __init__(
        self, registry: Registry, publishing: Publishing, metadata: DurableMetadata, admission: Admission
    ) -> None:
        self._registry = registry
        self._publishing = publishing
        self._metadata = metadata
        self._batches, self._unfinished = metadata.objects.batches, metadata.objects.unfinished
        self._admission = admission
        self.leave = admission.leave
        self._journaled_rows: dict[tuple[str, int], dict[str, int]] = {}
        """The batches that were unfinished at the start: for each stream the last row that the journal has."""
        self._found: dict[tuple[str, int], dict[str, tuple[int, int]]] = {}
        """The same of all batches while a journal is read, with the sequence of that row's run. Who was forgotten may
        have had batches of the same number."""

    # -- sessions ---------------------------------------------------------------------------------------------------

    def attach(
        self, name: str, resumed: Callable[[], None], now: float, rights: Rights = ALL_RIGHTS,
        allowance: Allowance = UNLIMITED,
    ) -> Session:  # fmt: skip
        """Returns the writer's session. Policies judge, pause and disconnect it like any publisher, and the limits of
        its user are those of any connection. Raises Refused."""
        session = self._registry.sessions.get(name)
        if session is not None and isinstance(session.outlet, WriterOutlet):
            session.outlet.resumed = resumed
            if session.rights is not rights:
                session.grant(rights)
            session.charge(allowance)
            return session
        outlet = WriterOutlet(now, resumed)
        request = ConnectRequest(name, HTTP_LISTENER, protocol=PROTOCOL, rights=rights, allowance=allowance)
        return self._admission.connect(request, outlet, now)

    # -- batches ----------------------------------------------------------------------------------------------------

    def last(self, name: str) -> WriterBatch | None:
        """Returns the batch that the writer began last."""
        return self._batches.get(name)

    def begin(self, name: str, number: int, parts: tuple[str, ...], now: float, user: Identity) -> WriterBatch:
        batch = WriterBatch(number, parts, self._registry.sequence, now, user)
        self._metadata.batch(name, batch)
        return batch

    def publish(self, session: Session, origin: Origin, run: Run, now: float) -> None:
        """Publishes the rows of a run that the journal does not have yet. Raises Refused if a queue refused some of
        them; all other consumers get them nevertheless. If the writer may not publish them, nobody gets them."""
        there = self._journaled_rows.get(origin[:2])
        if there is not None:
            route = self._registry.router.route(run.topic)
            skipped = there.get(route.stream or MAIN, -1) + 1 - origin.row
            if skipped >= len(run):
                return
            if skipped > 0:
                run, origin = part_of(run, skipped, len(run)), origin._replace(row=origin.row + skipped)
        session.rights.check_publish(run.topic, len(run.ends))
        if says_merge(run.properties) and self._registry.router.route(run.topic).merges is not None:
            raise Refused(Reason.PROTOCOL_ERROR, "a writer's batch has whole records: no patches (merge)")
        parts: list[Run] = []
        for part, start in self._publishing.parts(run):
            part.origin = str(origin._replace(row=origin.row + start))
            parts.append(part)
        try:
            self._publishing.publish(session, parts, now)
        finally:
            self._registry.backpressure.spend(session, now)

    def done(self, name: str, now: float) -> None:
        """Journals that the batch is done. All of its durable rows are on disk."""
        batch = self._batches[name]
        self._journaled_rows.pop((name, batch.number), None)
        self._metadata.batch(name, WriterBatch(batch.number, (), 0, now))

    def forget(self, name: str) -> None:
        """Deletes a writer, which has no more batches and will not ask for one again."""
        if name in self._batches:
            self._metadata.batch(name, None)

    def names(self) -> list[str]:
        """Returns the names of all known writers."""
        return list(self._batches)

    def unfinished(self) -> dict[str, WriterBatch]:
        """Returns the batches that are not done, by the writer's name."""
        return dict(self._unfinished)

    def silent(self, since_s: float) -> list[str]:
        """Returns the writers whose last batch was done before this moment."""
        return [name for name, batch in self._batches.items() if not batch.parts and batch.time_s < since_s]

    def needed_sequence(self) -> float:
        """Returns the first sequence that an unfinished batch needs; infinite if there is none."""
        return min((batch.sequence + 1 for batch in self._unfinished.values()), default=inf)

    def found(self, stream: str, publisher: str, records: int, sequence: int) -> None:
        """Notes, at the start, that a stream of the journal has a run with this publisher or origin. ``sequence`` is
        that of its first record; a later run of a batch has later rows."""
        origin = Origin.read(publisher)
        if origin is not None:
            self._found.setdefault(origin[:2], {})[stream] = origin.row + records - 1, sequence

    def restored(self) -> None:
        """Notes what the journal has of the batches that are not done, when all of its runs were found."""
        for name, batch in self.unfinished().items():
            found = self._found.get((name, batch.number), {})
            self._journaled_rows[name, batch.number] = {
                stream: row for stream, (row, sequence) in found.items() if sequence > batch.sequence
            }
        self._found.clear()
