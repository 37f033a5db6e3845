"""Moves of cursors that a person asks for."""

from __future__ import annotations

from headway.core.base import Cause, Reason, Refused, format_duration
from headway.core.consumer import Subscription
from headway.core.delivery import conflate_once
from headway.core.governance import Governor, discard, peek
from headway.core.log import State
from headway.core.policy import Action, ActionKind, Amount, DecisionKind, Sample, Verdict, Which, waiting
from headway.core.queue import queue_behind
from headway.core.routing import Registry

SKIP = Action(ActionKind.DISCARD, which=Which.OLDEST, keep_records=Amount(0.0), name="skip")
CONFLATE = Action(ActionKind.CONFLATE)
PATIENCE = Action(ActionKind.NOTIFY, name="patience")
PATIENCE_MAX_S = 86_400.0


class Operating:
    """Every move returns its verdict, and raises Refused if it cannot be made."""

    def __init__(self, registry: Registry, governor: Governor) -> None:
        self._registry = registry
        self._governor = governor

    def skip(self, subscription: Subscription, who: str, now: float) -> Verdict:
        """Moves the consumer to the end of its lane. Raises OSError if a record that is half sent cannot be read."""
        self._check_own_position(subscription)
        if subscription.conflating:
            raise _not_possible("it is conflated, and gets the latest records already")
        sample = self._waiting_sample(subscription, now)
        discard(subscription, SKIP, self._registry, now)
        self._governor.watchlist.add(subscription)  # the next look tells it of the gap
        return self._record(subscription, SKIP, f"skipped to the end by {who}; {waiting(sample)} left out", sample, now)

    def conflate(self, subscription: Subscription, who: str, now: float) -> Verdict:
        """Sends the consumer the latest record per key of what waits now. Raises OSError, likewise."""
        self._check_own_position(subscription)
        state = self._state_for(subscription)
        if state is None:
            raise _not_possible("no latest record per key is kept for its topics; a [[topic]] with a key has one")
        if subscription.conflating:
            raise _not_possible("it is conflated already")
        if subscription.backfilling:
            raise _not_possible("it still gets a snapshot, or older records; try again when it has them")
        sample = self._waiting_sample(subscription, now)
        if state is not subscription.conflation.state:
            state.readers += 1
            subscription.conflation.state = state
        if not subscription.conflation.covers(subscription):
            raise _not_possible("some of what waits is older than its [[topic]], which does not have it")
        conflate_once(subscription)
        self._governor.watchlist.add(subscription)
        text = f"given the latest record per key, in the place of {waiting(sample)} that waited, by {who}"
        return self._record(subscription, CONFLATE, text, sample, now)

    def give_patience(self, subscription: Subscription, seconds: float, who: str, now: float) -> Verdict:
        """Has no rule judge the consumer for so long from now on. The clocks of its rules begin anew afterwards, and
        what a rule does already it goes on doing. 0 takes a patience back."""
        if not 0 <= seconds <= PATIENCE_MAX_S:
            raise _not_possible(f"patience is from 0 s to {format_duration(PATIENCE_MAX_S)}")
        subscription.case.give_patience(now + seconds)
        text = f"given {format_duration(seconds)} of patience by {who}: no rule judges it until then" if seconds else \
            f"judged by its policy again, by {who}"
        return self._record(subscription, PATIENCE, text, peek(self._registry, subscription, now, {}), now)

    def _state_for(self, subscription: Subscription) -> State | None:
        """Returns the state that the consumer reads, or else the declared one of its topics."""
        if subscription.conflation.state is not None:
            return subscription.conflation.state
        key = subscription.request.options.key
        those = self._registry.router.states_for(subscription.feed.key.filter)
        return next((state for state in those if state.declared and key in (None, state.key.text)), None)

    def _waiting_sample(self, subscription: Subscription, now: float) -> Sample:
        """Returns a sample of the consumer, for which something has to wait."""
        sample = peek(self._registry, subscription, now, {})
        if not sample.lag_records:
            raise _not_possible("nothing waits for it")
        return sample

    def _check_own_position(self, subscription: Subscription) -> None:
        if queue_behind(subscription) is not None:
            raise _not_possible("it shares its position with the other consumers of a queue")

    def _record(self, subscription: Subscription, action: Action, text: str, sample: Sample, now: float) -> Verdict:
        session = subscription.session
        verdict = Verdict(
            number=self._governor.book.next_number(), time_s=now, wall_s=now + self._registry.wall_offset_s,
            client=session.client, filter=subscription.filter, listener=session.listener, policy="", rule=0,
            kind=DecisionKind.FIRE, action=action, reason=Reason.ADMIN, cause=Cause.OPERATOR, enforced=True,
            readings=(), window_s=0.0, held_s=0.0, sample=sample,
            text=f"{session.client} on {subscription.filter}: {text}",
        )  # fmt: skip
        self._governor.record(subscription, verdict, now)
        return verdict


def _not_possible(why: str) -> Refused:
    return Refused(Reason.PRECONDITION_FAILED, why)
