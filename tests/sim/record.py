"""What is put on record must add up: after every turn for every consumer, and in every row that was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.model import SubModel

from headway.core.base.errors import Reason
from headway.core.consumer.subscription import Subscription
from headway.core.telemetry.observer import ROWS_PER_TICK, LakeObserver, Recorder, RowBatch, TextColumn
from headway.core.telemetry.stats import TABLES, Account, account

if TYPE_CHECKING:
    from tests.sim.world import World

GROWS = ("offered_records", "offered_bytes", "drained_records", "drained_bytes", "skipped_records", "skipped_bytes")
SAMPLE_S, IDLE_S = 0.5, 2.0
ROWS_PER_TURN_MAX = 3 * ROWS_PER_TICK


def rows_of(batch: RowBatch) -> list[dict[str, Any]]:
    """The rows of a batch by the names of their columns."""
    columns = [
        [values.texts[index] for index in values.indexes] if isinstance(values, TextColumn) else list(values)
        for values in batch.columns
    ]
    return [dict(zip(TABLES[batch.table].names, row, strict=True)) for row in zip(*columns, strict=True)]


class Records:
    """An observer of the world's broker, and a reader who believes nothing."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.recorder = Recorder()
        registry = world.broker.registry
        registry.observer = LakeObserver(
            registry, self.recorder, run="sim", broker="sim", sample_s=SAMPLE_S, idle_s=IDLE_S
        )
        self._before: dict[Subscription, Account] = {}
        self._rows: dict[tuple[str, object], dict[str, Any]] = {}
        """The last row of each thing that has rows."""
        self.verdicts = 0

    def audit(self, *, full: bool) -> None:
        """After every turn; ``full``: every consumer, too."""
        if full:
            self._consumers()
        assert self.recorder.rows <= ROWS_PER_TURN_MAX
        for batch in self.recorder.take():
            for row in rows_of(batch):
                getattr(self, f"_{batch.table}")(row)

    def _consumers(self) -> None:
        seen: dict[Subscription, Account] = {}
        for model in self.world.active:
            if model.live and model.replaced_by is None:
                seen[model.subscription] = books = account(model.subscription)
                self._grown(model.subscription.filter, self._before.get(model.subscription), books)
                self._as_published(model, books)
        self._before = seen

    def _grown(self, who: str, before: Account | None, now: Account) -> None:
        assert min(now) >= 0, f"{who}: {now}"
        for name in GROWS:
            then = getattr(before, name) if before is not None else 0
            assert getattr(now, name) >= then, f"{who}: {name} fell: {before}, {now}"

    def _as_published(self, model: SubModel, books: Account) -> None:
        """Offered is what was published for it, where nothing else is offered, or twice, and nothing rests."""
        subscription, request = model.subscription, model.subscription.request
        plain = model.shared is None and request.options.start == "end" and model.filter[0] != "$"
        if not plain or subscription.conflation.by_clock:
            return
        assert books.offered_records >= len(model.expected), f"{model}: {books}, {len(model.expected)} published"
        more = request.send_retained != "never" or request.options.snapshot or model.replaced or model.renewed
        twice = model.excess or subscription.counters.gap_records[Reason.SPILL_FAILED]
        if not more and not twice:
            assert books.offered_records == len(model.expected), f"{model}: {books}, {len(model.expected)} published"

    # -- rows -------------------------------------------------------------------------------------------------------

    def _next(self, table: str, thing: object, row: dict[str, Any], number: str = "seq") -> dict[str, Any] | None:
        """The row before of the same thing; its number is one less."""
        before = self._rows.get((table, thing))
        self._rows[table, thing] = row
        assert row[number] == (before[number] + 1 if before is not None else 0), f"{table}: {before}, {row}"
        assert before is None or row["time"] >= before["time"]
        return before

    def _consumer_samples(self, row: dict[str, Any]) -> None:
        before = self._next("consumer_samples", row["subscription"], row)
        for unit in ("records", "bytes"):
            given = row[f"drained_{unit}"] + row[f"skipped_{unit}"]
            assert row[f"offered_{unit}"] - given == row[f"lag_{unit}"] >= 0, row
        assert before is None or not before["ended"], f"a row after the last: {row}"
        for name in (*GROWS, "slow_count", "producer_stall_ms"):
            assert before is None or row[name] >= before[name] - 1e-6, f"{name} fell: {before}, {row}"
        assert row["connected"] == (row["state"] != "away"), row

    def _topic_samples(self, row: dict[str, Any]) -> None:
        before = self._next("topic_samples", row["lane"], row)
        assert row["lane"].startswith((row["filter"] + "|", "$share/"))
        assert 0 <= row["slow"] <= row["consumers"], row
        assert row["gating"] <= row["consumers"], row
        for name in ("offered_records", "offered_bytes", "stalled_ms"):
            assert before is None or row[name] >= before[name] - 1e-6, f"{name} fell: {before}, {row}"

    def _verdicts(self, row: dict[str, Any]) -> None:
        assert row["number"] == self.verdicts + 1, "every verdict, in its order"
        assert row["subscription"], f"about whom? {row}"
        self.verdicts += 1

    def ended(self) -> None:
        """When all is over: everybody had a last row, every verdict is there."""
        open_rows = [row for (table, _), row in self._rows.items() if table == "consumer_samples" and not row["ended"]]
        assert not open_rows, f"without a last row: {open_rows[:3]}"
        assert self.verdicts == self.world.broker.verdicts.made
        assert self.recorder.dropped_rows == 0
