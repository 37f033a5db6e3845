"""Writers: publishers whose records come in numbered batches, each published exactly once. A Spark query is one.

Theory of operation. A batch is on disk, in parts, before it is begun. ``begin`` tells the journal which parts it has;
once that is on disk its rows are published, in order, whatever becomes of the writer. Every run says where it is from:
its *origin*, which the journal keeps beside it. A stream of the journal loses nothing but its tail, so after a crash it
has of a batch all that was for it, up to the last row with that origin; the others are published again, from the parts.

Rules:
- That a batch was begun is on disk before a row of it is published, and all its rows are before it is called done.
- A writer's batches are numbered upwards, and one is done before the next begins. One that is known is not begun again,
  whatever parts are said to belong to it now.
- While a batch is not done, nothing of what came since it began is freed.
- What the journal does not keep (topics that are not recorded, and for which nothing durable waits) is published again
  after a crash: whoever had it was cut off by that.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from headway.core.base import Reason
from headway.core.clients.admission import Admission
from headway.core.clients.durable_metadata import DurableMetadata, WriterBatch
from headway.core.consumer import ConnectionlessOutlet, ConnectRequest, Session
from headway.core.log import MAIN
from headway.core.message import Run
from headway.core.routing import Publishing, Registry, part_of

PROTOCOL = LISTENER = "http"
_MARK = "\0"
"""No client's name begins with it."""


class Origin(NamedTuple):
    """Where a run is from; its first record is this row of the batch."""

    writer: str
    batch: int
    row: int

    def __str__(self) -> str:
        return f"{_MARK}{self.row}{_MARK}{self.batch}{_MARK}{self.writer}"

    @classmethod
    def read(cls, text: str) -> Origin | None:
        """None: it is the name of a client."""
        if not text.startswith(_MARK):
            return None
        _, row, batch, writer = text.split(_MARK, 3)
        return cls(writer, int(batch), int(row))


class Handing(ConnectionlessOutlet):
    """The outlet of a writer: nothing is sent there, but it is told when it may go on after a pause, or is cut off."""

    __slots__ = ("resumed",)

    def __init__(self, now: float, resumed: Callable[[], None]) -> None:
        super().__init__(now)
        self.resumed = resumed


class Writers:
    def __init__(
        self, registry: Registry, publishing: Publishing, metadata: DurableMetadata, admission: Admission
    ) -> None:
        self._registry = registry
        self._publishing = publishing
        self._metadata = metadata
        self._admission = admission
        self._there: dict[tuple[str, int], dict[str, int]] = {}
        """Of a batch that was not done when the process began, by stream: the last row that the journal has."""

    # -- who is there -----------------------------------------------------------------------------------------------

    def attach(self, name: str, resumed: Callable[[], None], now: float) -> Session:
        """The writer's session; it is looked at, held up and disconnected as any publisher. Raises Refused."""
        session = self._registry.sessions.get(name)
        if session is not None and isinstance(session.outlet, Handing):
            session.outlet.resumed = resumed
            return session
        return self._admission.connect(ConnectRequest(name, LISTENER, protocol=PROTOCOL), Handing(now, resumed), now)

    def leave(self, session: Session, now: float) -> None:
        if session.connected:
            self._admission.disconnect(session, session.outlet, Reason.CLIENT_GONE, now, will=False)

    # -- batches ----------------------------------------------------------------------------------------------------

    def last(self, name: str) -> WriterBatch | None:
        """The batch that the writer began last."""
        return self._metadata.batches.get(name)

    def begin(self, name: str, number: int, parts: tuple[str, ...], now: float) -> None:
        self._metadata.batch(name, WriterBatch(number, parts, self._registry.sequence, now))

    def publish(self, session: Session, origin: Origin, run: Run, now: float) -> None:
        """Publish the rows of a run that the journal has not. Raises Refused where a queue will not have some of them;
        everybody else has them all the same."""
        there = self._there.get(origin[:2])
        if there is not None:
            route = self._registry.router.route(run.topic)
            skipped = there.get(route.stream or MAIN, -1) + 1 - origin.row
            if skipped >= len(run):
                return
            if skipped > 0:
                run, origin = part_of(run, skipped, len(run)), origin._replace(row=origin.row + skipped)
        run.origin = str(origin)
        self._publishing.publish(session, [run], now)

    def done(self, name: str, now: float) -> None:
        """All rows are on disk, as far as they are kept at all."""
        batch = self._metadata.batches[name]
        self._there.pop((name, batch.number), None)
        self._metadata.batch(name, WriterBatch(batch.number, (), 0, now))

    def forget(self, name: str) -> None:
        """It has no more batches, and will not ask for one again."""
        if name in self._metadata.batches:
            self._metadata.batch(name, None)

    def names(self) -> list[str]:
        """Of all that are not forgotten."""
        return list(self._metadata.batches)

    def unfinished(self) -> dict[str, WriterBatch]:
        """By writer."""
        return {name: batch for name, batch in self._metadata.batches.items() if batch.parts}

    def silent(self, since_s: float) -> list[str]:
        """Writers whose last batch was done before this moment."""
        return [name for name, batch in self._metadata.batches.items() if not batch.parts and batch.time_s < since_s]

    def needed_sequence(self) -> float:
        """Records from here on are not to be freed."""
        return min((batch.sequence + 1 for batch in self._metadata.batches.values() if batch.parts), default=inf)

    def found(self, stream: str, publisher: str, records: int) -> None:
        """At start: the stream has a run that was published under this name."""
        origin = Origin.read(publisher)
        if origin is not None:
            rows = self._there.setdefault(origin[:2], {})
            rows[stream] = max(rows.get(stream, -1), origin.row + records - 1)

    def restored(self) -> None:
        """All that the journal has was found."""
        unfinished = {(name, batch.number) for name, batch in self.unfinished().items()}
        self._there = {of: rows for of, rows in self._there.items() if of in unfinished}
