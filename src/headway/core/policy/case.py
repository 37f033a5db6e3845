"""A case is the governor's data on one consumer: policy, meter, last sample, last verdict, and last announcements."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from headway.core.policy.evaluation import PolicyState, evaluate
from headway.core.policy.meters import Holding, Meter, Sample
from headway.core.policy.rules import Action, Policy
from headway.core.policy.trial import Trial
from headway.core.policy.verdicts import Decision, Verdict

IDLE = Sample()
GAP_TOLD_EVERY_S = 1.0


class Case:
    __slots__ = (
        "_gap_told", "_gap_told_s", "_offline_told", "blocked_publishers_s", "holding", "last_sample", "last_verdict",
        "meter", "patient_until_s", "policies_version", "policy", "state", "trials", "tried",
    )  # fmt: skip

    def __init__(self, policy: Policy, meter: Meter) -> None:
        self.policy = policy
        self.policies_version = 0
        """The version of the broker's policies from which its own was chosen."""
        self.state = PolicyState()
        self.meter = meter
        self.last_sample = IDLE
        """The sample of the governor's last look."""
        self.holding: Holding | None = None
        """The holding of its unacknowledged deliveries; None: it was not looked at for that."""
        self.last_verdict: Verdict | None = None
        self.blocked_publishers_s = 0.0
        """The seconds for which publishers were not read because of this consumer."""
        self.trials: tuple[Trial, ...] = ()
        """The trials that judge it beside its policy (trial.py)."""
        self.tried: tuple[Policy, ...] | None = ()
        """The trials of the broker from which they were chosen; None: they are to be chosen anew."""
        self.patient_until_s = -inf
        """Until then no rule judges the consumer, because an operator has said so."""
        self._gap_told = 0
        self._gap_told_s = 0.0
        self._offline_told = False

    # -- its policy -------------------------------------------------------------------------------------------------

    def govern_by(self, policy: Policy) -> None:
        """Sets the policy. Its rules begin anew."""
        self.policy, self.state = policy, PolicyState()

    def evaluate(self, sample: Sample, now: float) -> list[Decision]:
        """Returns the policy's decisions now; none while an operator's patience lasts."""
        if now < self.patient_until_s:
            return []
        decisions = evaluate(self.policy, self.state, sample, now)
        if self.state.slow_anew:
            self.meter.slow_again()
        return decisions

    def give_patience(self, until_s: float) -> None:
        """Has no rule judge the consumer until then. Rules that have not fired begin anew."""
        self.patient_until_s = until_s
        self.state.calm_down()

    @property
    def plugged(self) -> tuple[str, ...]:
        """Returns the plugged-in meters that its policy and its trials compare."""
        named = dict.fromkeys(self.policy.plugged)
        for trial in self.trials:
            named |= dict.fromkeys(trial.policy.plugged)
        return tuple(named)

    def lasting(self) -> Iterator[Action]:
        """Yields the actions that are in force for the consumer."""
        return self.state.lasting(self.policy)

    # -- how it fares -----------------------------------------------------------------------------------------------

    @property
    def slow(self) -> bool:
        return self.meter.slow

    @property
    def slow_count(self) -> int:
        """Returns how often the consumer was slow, as a rule found."""
        return self.meter.slow_count

    @property
    def calm(self) -> bool:
        """Tells whether the consumer is not slow and no clock of its rules runs."""
        return not self.meter.slow and self.state.settled and all(trial.state.settled for trial in self.trials)

    def recover(self, now: float) -> bool:
        """Marks the consumer as recovered if no rule is active any more. Returns whether it was slow until now. A rule
        whose action is done once ends without a decision, so this is called at each look."""
        if not self.meter.slow or any(True for _ in self.state.active()):
            return False
        self.meter.mark_recovered(now)
        return True

    # -- what was announced -----------------------------------------------------------------------------------------

    def gap_to_tell(self, total: int, now: float) -> int:
        """Returns how many skipped records are to be announced now, which happens once a second at most."""
        if total == self._gap_told or now - self._gap_told_s < GAP_TOLD_EVERY_S:
            return 0
        fresh, self._gap_told, self._gap_told_s = total - self._gap_told, total, now
        return fresh

    def offline_to_tell(self, offline: bool) -> bool:
        """Returns whether it is to be announced that the consumer now reads from disk, or no longer does."""
        before, self._offline_told = self._offline_told, offline
        return before != offline
