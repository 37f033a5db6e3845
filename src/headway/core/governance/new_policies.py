"""New policies: after a reload every consumer gets the policy that covers it now, over the turns to come.

A consumer is judged by its new policy from the next look at it on, at the latest: the governor changes it before the
look. What is left for the round is everybody at whom nobody looks: those who have caught up. They get the states that
their new policies need, and are watched where a new rule minds what they have not acknowledged. Who is conflated by a
``[[topic]]``, or is so no more, learns of it in the round, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.base import WorkSteps
from headway.core.clients import Starts
from headway.core.consumer import Session
from headway.core.governance.governor import Governor
from headway.core.log import State, StateTerms
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

    def declare(self, terms: StateTerms) -> None:
        """Begins a state, or changes its terms."""
        registry = self._registry
        state = registry.router.declared_state(terms.filter, terms.key)
        if state is None:
            since = registry.sequence
            state = State(
                terms.filter, compile_key(terms.key), registry.pools[""], since_sequence=since, declared=True
            )  # fmt: skip
            registry.router.add_state(state)
        elif self._stands(terms):
            return
        state.agree(terms)
        registry.router.terms_changed(state)

    def declare_more(self, states: Iterable[StateTerms], now: float) -> None:
        """Begins the states that are not there yet, and changes the terms of the others. ``states`` are all that the
        configuration has now. Consumers get them in the round that follows."""
        states = list(states)
        changed = [terms for terms in states if not self._stands(terms)]
        if changed:
            self._registry.rounds.begin(self._declare(changed, states), now)
        elif self._registry.router.put_in_order(states):
            self.round.begin(now)

    def _stands(self, terms: StateTerms) -> bool:
        state = self._registry.router.declared_state(terms.filter, terms.key)
        return state is not None and state.terms == terms

    def _declare(self, changed: list[StateTerms], states: list[StateTerms]) -> WorkSteps:
        for terms in changed:
            self.declare(terms)
            yield DECLARE_WORK
        self._registry.router.put_in_order(states)
        self.round.begin(self._registry.rounds.now)

    def _visit(self, session: Session) -> WorkSteps:
        for subscription in list(session.subscriptions.values()):
            if not subscription.ended:
                yield 1 + len(subscription.reader.names(subscription)) // NAMES_PER_WORK
                before = subscription.case.policy
                self._governor.keep_policy_new(subscription, self._registry.rounds.now)
                if subscription.case.policy is not before:
                    yield CHANGE_WORK
                if not subscription.ended and self._starts.conflate_anew(subscription, self._registry.rounds.now):
                    yield CHANGE_WORK
            yield POLICY_WORK
