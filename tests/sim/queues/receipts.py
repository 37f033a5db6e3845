"""A world with queues in which every record asks for a receipt, and a checker who compares them with what became of the
record in each queue that it was put into."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.sim.queues.model import QueueModel, State
from tests.sim.queues.party import Party
from tests.sim.queues.world import World

from headway.core.base.errors import Reason
from headway.core.consumer.session import Session
from headway.core.message.record import ReceiptRequest, Run
from headway.core.receipts import Receipt
from headway.core.routing.publishing import Published

NEVER_S = 1e9
FATES = ("got", "dead_lettered", "discarded", "lost", "waiting")



class QueueReceiptWorld(World):
    def __init__(self, seed: int) -> None:
        self.all_models: list[QueueModel] = []
        """Those of deleted queues, too."""
        self.told: dict[int, dict[str, Any]] = {}
        """What was told about each record that asked, by the number in its payload."""
        self._asked: dict[int, int] = {}
        """Their numbers, by sequence."""
        self._refused: Counter[int] = Counter()
        super().__init__(seed)
        broker = self.broker
        broker._receipt_replies._tell = self._tell  # type: ignore[method-assign]
        publish, publish_to = broker.publish, broker.intake.publish_to

        def asks(session: Session | None, runs: list[Run], now: float) -> int:
            for run in runs:
                self._ask(session, run)
            return publish(session, runs, now)

        def asks_to(session: Session | None, run: Run, now: float) -> Published:
            self._ask(session, run)
            published = publish_to(session, run, now)
            self._refused[int(run.payload(0).split()[0])] += len(run) - published.accepted
            return published

        broker.publish, broker.intake.publish_to = asks, asks_to  # type: ignore[method-assign]

    def publish(self, party: Party | None, exchange: str, key: str, headers: dict[str, object], sizes: list[int],
                priority: int | None, lifetime_s: float | None, *, as_topic: bool = False) -> None:  # fmt: skip
        for size in sizes:
            super().publish(party, exchange, key, headers, [size], priority, lifetime_s, as_topic=as_topic)

    def _ask(self, session: Session | None, run: Run) -> None:
        assert len(run) == 1
        if session is not None:
            self._asked[self.broker.registry.sequence + 1] = int(run.payload(0).split()[0])
            run.receipt = ReceiptRequest(NEVER_S)

    def add(self, model: QueueModel) -> None:
        super().add(model)
        self.all_models.append(model)

    def _tell(self, receipt: Receipt, now: float) -> int:
        figures = receipt.figures(now)
        number = self._asked[figures["sequence"]]
        self.note("receipt", number, figures["state"], *(figures[fate] for fate in FATES))
        for fate in FATES:
            if figures[fate]:
                self.count(f"receipt {fate}")
        assert number not in self.told, "told twice"
        assert figures["owed"] == sum(figures[fate] for fate in FATES), figures
        assert figures["state"] in ("complete", "publisher_ended"), figures
        self.told[number] = figures
        return 0

    def end(self) -> None:
        super().end()
        receipts = self.broker.registry.receipts
        assert not receipts.open
        assert not receipts.done
        assert len(self.told) == receipts.asked == len(self._asked)
        for number, figures in self.told.items():
            self._check(number, figures)

    def _check(self, number: int, figures: dict[str, Any]) -> None:
        queues = [model for model in self.all_models if number in model.entries]
        states = Counter(model.entries[number].state for model in queues)
        why = Counter(figures["why"])
        known = f"{number}: {figures}, and {dict(states)} in {[str(model) for model in queues]}"
        assert figures["owed"] == len(queues) + self._refused[number], known
        assert why[Reason.QUEUE_LENGTH] >= self._refused[number], known
        if figures["state"] == "complete":
            gone = sum(model.gone for model in queues)  # nobody knows what their consumers do with what they have
            assert states[State.REJECTED] - gone <= why[Reason.REJECTED] <= states[State.REJECTED], known
            assert states[State.DONE] - gone <= figures["got"] <= states[State.DONE] + gone, known
        letters = sum(model.terms.dead_letter_exchange is not None for model in queues)
        assert figures["dead_lettered"] <= letters, known
