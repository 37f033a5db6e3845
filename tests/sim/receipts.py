"""A world in which every record asks for a receipt, and a checker who compares them with what the clients were handed.

The checker knows what each subscription and group should have seen, and every frame that a pretended socket took. So it
knows for each record how many were owed it, and how many have it. Reasons it compares with the gaps that the broker
counts for its consumers.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.sim.client import Client
from tests.sim.model import Expectation
from tests.sim.world import World

from headway.core import receipts as table
from headway.core.base.errors import Reason
from headway.core.consumer.request import NO_WILL
from headway.core.message.record import ReceiptRequest, Run
from headway.core.receipts import Receipt
from headway.core.routing.matching.router import part_of

NEVER_S = 1e9
FATES = ("got", "conflated", "discarded", "dead_lettered", "lost", "waiting")
SENT_AND_GIVEN_UP = {
    Reason.UNACKNOWLEDGED, Reason.MEMORY_LIMIT, Reason.DISK_LIMIT, Reason.CLIENT_SHARE, Reason.CLIENT_MEMORY,
    Reason.SPILL_FAILED, Reason.SUBSCRIPTION_ENDED, Reason.TOO_LARGE_FOR_CLIENT,
}
"""The record may have been sent and not acknowledged."""


class ReceiptWorld(World):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        for client in self.clients:
            client._will = lambda: NO_WILL  # type: ignore[method-assign]  # wills ask for nothing
        self.told: dict[int, dict[str, Any]] = {}
        """What was told last about each record that asked, by its sequence."""
        self.why: Counter[str] = Counter()
        """Of complete receipts."""
        self.broker._receipt_replies._tell = self._tell  # type: ignore[method-assign]

    def publish(self, client: Client, runs: list[Run]) -> None:
        singles = [part_of(run, index, index + 1) for run in runs for index in range(len(run))]
        for run in singles:
            run.receipt = ReceiptRequest(NEVER_S if self.rng.random() < 0.9 else self.rng.choice((0.3, 2.0)))
        super().publish(client, singles)

    def _tell(self, receipt: Receipt, now: float) -> int:
        figures = receipt.figures(now)
        sequence, state = figures["sequence"], figures["state"]
        self.note("receipt", sequence, state, *(figures[fate] for fate in FATES))
        self.count(f"receipt {state}")
        for fate in FATES:
            if figures[fate]:
                self.count(f"receipt {fate}")
        assert sequence not in self.told, "told twice"
        assert figures["owed"] == sum(figures[fate] for fate in FATES), figures
        assert sum(figures["why"].values()) == figures["owed"] - figures["got"] - figures["waiting"], figures
        assert state in ("complete", "timed_out", "publisher_ended"), figures
        assert (state == "complete") <= (figures["waiting"] == 0), figures
        self.told[sequence] = figures
        self.why.update(figures["why"])
        owed = self._readers(sequence)
        assert figures["owed"] == len(owed), f"{figures}: owed to {[str(one) for one in owed]}"
        return 0

    def _readers(self, sequence: int) -> list[Expectation]:
        alone = [model for model in self.models if model.shared is None]
        everybody: list[Expectation] = [*alone, *self.groups.values()]
        return [one for one in everybody if one.expects(sequence)]

    def end(self) -> None:
        super().end()
        receipts = self.broker.registry.receipts
        assert not receipts.open
        assert not receipts.done
        assert not receipts._parked
        assert receipts.asked == len(self.told)
        assert sum(receipts.closed.values()) == len(self.told)
        for figures in self.told.values():
            self._check_who_has_it(figures)
        self._check_reasons()

    def _check_who_has_it(self, figures: dict[str, Any]) -> None:
        """When all is over, each frame was taken by a socket, or was on its way when its connection broke."""
        sequence = figures["sequence"]
        seen = sum(sequence in one.seen for one in self._readers(sequence))
        given_up = sum(count for reason, count in figures["why"].items() if reason in SENT_AND_GIVEN_UP)
        assert figures["got"] <= seen, f"{figures}: {seen} have it"
        assert seen <= figures["got"] + given_up + figures["waiting"], f"{figures}: {seen} have it"
        if figures["why"].get(Reason.UNACKNOWLEDGED, 0) == given_up and not figures["waiting"]:
            assert seen == figures["got"] + given_up, f"{figures}: {seen} have it"

    def _check_reasons(self) -> None:
        """What was conflated before a subscription ended counts as skipped by its end in the gaps; in receipts it was
        conflated. Otherwise the reasons are the same."""
        gaps: Counter[str] = Counter()
        for model in self.models:
            if model.filter[0] != "$":
                gaps.update({str(reason): count for reason, count in model.subscription.counters.gap_records.items()})
        skipped = {reason: count for reason, count in self.why.items() if reason != Reason.UNACKNOWLEDGED}
        assert sum(skipped.values()) <= gaps.total(), f"{skipped} in receipts, {gaps} in gaps"
        for reason, count in skipped.items():
            if reason not in (Reason.CONFLATED, Reason.DISCARDED):
                assert count <= gaps[reason], f"{reason}: {count} in receipts, {gaps[reason]} in gaps"


def no_limits(monkeypatch: Any) -> None:
    """Each record asks, so the limits would close nearly all receipts early."""
    for name in ("OPEN_MAX", "ALL_OPEN_MAX"):
        monkeypatch.setattr(table, name, 10**9)
    for name in ("RECEIPT_BYTES", "RECEIPT_READER_BYTES"):
        monkeypatch.setattr(table, name, 0)
