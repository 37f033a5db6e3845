"""Trials of all consumers: finds the trials that cover a consumer, lets them judge it, and keeps their verdicts.

A consumer gets its trials at the first look at it, and keeps them until the configuration is reloaded. A look costs one
evaluation more for each of them, and nothing if there are none.
"""

from __future__ import annotations

from headway.core.consumer import Subscription
from headway.core.governance.watching.sampling import with_peer
from headway.core.policy import DecisionKind, Policy, Sample, Verdict, VerdictBook, judge, policy_for_any, try_out
from headway.core.routing import Registry

NO_BOOK = VerdictBook()
"""The book of a trial without a verdict."""


class Trials:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._books: dict[str, VerdictBook] = {}
        """The verdicts of each trial by its name. Trials share the numbers of verdicts."""
        self.made = 0
        """Verdicts so far, including those that are no longer in a book."""

    def assign(self, subscription: Subscription, late_s: float) -> None:
        """Gives a consumer the trials that cover it. ``late_s``: the sum of the broker's lateness."""
        case = subscription.case
        trials = case.tried = self._registry.trials
        names = subscription.reader.names(subscription)
        durable, listener = subscription.durable, subscription.session.listener
        covering = (trial for trial in trials if policy_for_any((trial,), names, durable, listener) is trial)
        case.trials = try_out(covering, case.trials, late_s)

    def look(self, subscription: Subscription, sample: Sample, now: float, late_s: float) -> None:
        """Lets the consumer's trials judge the sample."""
        session = subscription.session
        for trial in subscription.case.trials:
            trial.state.keyed = subscription.keyed
            for decision in trial.evaluate(sample, now, late_s, connected=session.connected):
                self.made += 1
                verdict = judge(
                    decision, with_peer(sample, subscription), number=self.made, now=now,
                    wall_s=now + self._registry.wall_offset_s, client=session.client, filter=subscription.filter,
                    policy=trial.policy.name, listener=session.listener,
                )  # fmt: skip
                self._record(subscription, trial.policy, verdict)

    def _record(self, subscription: Subscription, policy: Policy, verdict: Verdict) -> None:
        book = self._books.setdefault(policy.name, VerdictBook())
        book.add(verdict)
        book.made += 1
        self._registry.observer.trial_verdict(verdict, subscription, policy)

    def keep_only(self, trials: tuple[Policy, ...]) -> None:
        """Forgets the verdicts of trials of other names."""
        names = {trial.name for trial in trials}
        self._books = {name: book for name, book in self._books.items() if name in names}

    # -- what they said ---------------------------------------------------------------------------------------------

    def made_by(self, trial: str) -> int:
        """Returns how many verdicts a trial has made."""
        return self._books.get(trial, NO_BOOK).made

    def of(self, client: str) -> list[Verdict]:
        """Returns the verdicts of all trials on one client, the newest first."""
        found = [verdict for book in self._books.values() for verdict in book.of(client)]
        return sorted(found, key=lambda verdict: -verdict.number)

    def after(self, number: int, count: int) -> list[Verdict]:
        """Returns the verdicts of all trials with higher numbers than this one, the oldest first."""
        found = [verdict for book in self._books.values() for verdict in book if verdict.number > number]
        return sorted(found, key=lambda verdict: verdict.number)[:count]

    def findings(self, trial: str) -> int:
        """Returns how many clients the kept verdicts of a trial are about."""
        return len({one.client for one in self._books.get(trial, NO_BOOK) if one.kind is DecisionKind.FIRE})
