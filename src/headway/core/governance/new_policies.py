"""New policies: after a reload every consumer gets the policy that covers it now, over the turns to come.

A consumer is judged by its new policy from the next look at it on, at the latest: the governor changes it before the
look. What is left for the round is everybody at whom nobody looks: those who have caught up. They get the states that
their new policies need, and are watched where a new rule minds what they have not acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.base import WorkSteps
from headway.core.clients import Starts
from headway.core.consumer import Session
from headway.core.governance.governor import Governor
from headway.core.log import State
from headway.core.message import compile_key
from headway.core.routing import Registry, SessionRound

POLICY_WORK = 4
"""Work of choosing the policy of a consumer anew, and of finding its state."""
CHANGE_WORK = 20
"""Work of giving it another policy: rules of the old one step back, by a sample."""
DECLARE_WORK = 8
NAMES_PER_WORK = 4
"""How many of a queue's names are compared with policies in the time of one unit of work."""


class NewPolicies:
    def __init__(self, registry: Registry, governor: Governor, starts: Starts) -> None:
        self._registry = registry
        self._governor = governor
        self._starts = starts
        self.round = SessionRound(registry, self._visit)

    def apply(self, now: float) -> None:
        """Gives every consumer the policy and the state that it has now."""
        self.round.begin(now)

    def declare(self, filter: str, key: str) -> None:
        """Begins a state: the latest record per key of these topics."""
        registry = self._registry
        if registry.router.declared_state(filter, key) is None:
            registry.router.add_state(State(filter, compile_key(key), registry.pools[""], declared=True))

    def declare_more(self, states: Iterable[tuple[str, str]], now: float) -> None:
        """Begins the states that are not there yet. Consumers get them in the round that follows."""
        fresh = [one for one in states if self._registry.router.declared_state(*one) is None]
        if fresh:
            self._registry.rounds.begin(self._declare(fresh), now)

    def _declare(self, fresh: list[tuple[str, str]]) -> WorkSteps:
        for filter, key in fresh:
            self.declare(filter, key)
            yield DECLARE_WORK
        self.round.begin(self._registry.rounds.now)

    def _visit(self, session: Session) -> WorkSteps:
        for subscription in list(session.subscriptions.values()):
            if not subscription.ended:
                yield len(subscription.reader.names(subscription)) // NAMES_PER_WORK
                before = subscription.case.policy
                self._governor.keep_policy_new(subscription, self._registry.rounds.now)
                if subscription.case.policy is not before:
                    yield CHANGE_WORK
                if not subscription.ended:
                    self._starts.give_state(subscription)
            yield POLICY_WORK
