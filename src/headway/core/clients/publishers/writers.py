"""A writer is a publisher with numbered batches of records; each batch is published exactly once. A Spark query is one.

Theory of operation. A batch is on disk, in parts, before it begins. ``begin`` journals the names of the parts. When
that is on disk, the broker publishes the rows of the batch in order, even if the writer is gone. Each run has an
*origin* (writer, batch and row), which the journal stores with the run. A crash can only cut off the end of a journal's
stream. So the stream has all rows of the batch that belong to it, up to the last row with this origin. After a crash
the broker publishes the other rows again, from the parts.

Rules:
- The begin of a batch is on disk before its first row is published. All rows are on disk before the batch is done.
- A batch is published within the rights and limits of who asked for it, also by the process after this one.
- A writer's batch numbers ascend, and a batch is done before the next one begins. A known batch does not begin again,
  even if a request names other parts for it.
- While a batch is not done, the journal frees no record that came after its begin.
- The journal does not store records of topics that are not recorded and have no durable readers. After a crash these
  rows are published again. All consumers that may have had them were disconnected by the crash.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from headway.core.allowance import UNLIMITED, Allowance
from headway.core.base import Reason, Refused
from headway.core.clients.durability import DurableMetadata, WriterBatch
from headway.core.clients.sessions import Admission
from headway.core.consumer import ConnectionlessOutlet, ConnectRequest, Session
from headway.core.log import MAIN
from headway.core.message import Run, says_merge
from headway.core.permission import ALL_RIGHTS, Identity, Rights
from headway.core.policy import HTTP_LISTENER
from headway.core.routing import Publishing, Registry, part_of

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
            self._registry.spend(session, now)

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
