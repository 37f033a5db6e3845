"""The verdict log stores, reports and announces each verdict, and marks its consumer as slow or as recovered. What an
operator asked for is no sign of either."""

from __future__ import annotations

from headway.core.base import Cause
from headway.core.consumer import Subscription
from headway.core.governance.watching.watchlist import Watchlist
from headway.core.policy import DecisionKind, Verdict, VerdictBook
from headway.core.routing import Advisories, Registry


class VerdictLog:
    def __init__(self, registry: Registry, watchlist: Watchlist, advisories: Advisories) -> None:
        self._registry = registry
        self._watchlist = watchlist
        self._advisories = advisories
        self.book = VerdictBook()

    def record(self, subscription: Subscription, verdict: Verdict, now: float) -> None:
        self.book.add(verdict, subscription.session.username or "")
        subscription.case.last_verdict = verdict
        fires, asked = verdict.kind is DecisionKind.FIRE, verdict.cause is Cause.OPERATOR
        if not asked:  # the lake is about policies
            self._registry.observer.verdict(verdict, subscription)
        if fires and not asked and subscription.case.meter.mark_slow(now):
            self._registry.totals.count_slow(subscription, 1)
            self._watchlist.add(subscription)  # until it has recovered
        elif not fires:
            self.recover(subscription, now)
        told = {
            "filter": verdict.filter, "policy": verdict.policy, "rule": verdict.rule, "action": verdict.action.word,
            "reason": verdict.reason, "cause": verdict.cause, "enforced": verdict.enforced, "text": verdict.text,
        }  # fmt: skip
        if asked:
            self._advisories.tell("operator", verdict.client, now, **told)
        else:
            self._advisories.tell("slow" if fires else "recovered", verdict.client, now, **told)

    def recover(self, subscription: Subscription, now: float) -> None:
        """Stops counting the consumer as slow, if it has recovered."""
        if subscription.case.recover(now):
            self._registry.totals.count_slow(subscription, -1)
