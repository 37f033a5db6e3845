"""Cases: what the governor has on one consumer: the policy it is judged by, how it fares, and what was said of it."""

from __future__ import annotations

from collections.abc import Iterator

from headway.core.policy.action import Action
from headway.core.policy.decision import Decision
from headway.core.policy.meter import Meter, Sample
from headway.core.policy.policy import Policy, PolicyState, evaluate
from headway.core.policy.verdict import Verdict

IDLE = Sample()
GAP_TOLD_EVERY_S = 1.0


class Case:
    __slots__ = (
        "_gap_told", "_gap_told_s", "_offline_told", "blocked_publishers_s", "last_sample", "last_verdict", "meter",
        "policy", "state",
    )  # fmt: skip

    def __init__(self, policy: Policy, meter: Meter) -> None:
        self.policy = policy
        self.state = PolicyState(policy)
        self.meter = meter
        self.last_sample = IDLE
        """What the governor saw at its last look."""
        self.last_verdict: Verdict | None = None
        self.blocked_publishers_s = 0.0
        """Seconds for which publishers were not read on this consumer's account."""
        self._gap_told = 0
        self._gap_told_s = 0.0
        self._offline_told = False

    # -- its policy -------------------------------------------------------------------------------------------------

    def govern_by(self, policy: Policy, state: PolicyState | None = None) -> None:
        """From now on by this policy: from the start, or from where its rules stand."""
        self.policy = policy
        self.state = PolicyState(policy) if state is None else state

    def evaluate(self, sample: Sample, now: float) -> list[Decision]:
        """What the policy decides now."""
        return evaluate(self.policy, self.state, sample, now)

    def lasting(self) -> Iterator[Action]:
        """What is being done to the consumer."""
        return self.state.lasting(self.policy)

    # -- how it fares -----------------------------------------------------------------------------------------------

    @property
    def slow(self) -> bool:
        return self.meter.slow

    @property
    def slow_count(self) -> int:
        """How often it was marked slow."""
        return self.meter.slow_count

    @property
    def calm(self) -> bool:
        """Nothing is held against it, and no clock runs."""
        return not self.meter.slow and self.state.settled

    def recover(self, now: float) -> bool:
        """No longer slow, if no rule is active any more (one that acts once ends without saying so). True: it was."""
        if not self.meter.slow or any(True for _ in self.state.active()):
            return False
        self.meter.mark_recovered(now)
        return True

    # -- what was told of it ----------------------------------------------------------------------------------------

    def gap_to_tell(self, total: int, now: float) -> int:
        """How many more records it was not given than were told of, once a second at most; they are told of now."""
        if total == self._gap_told or now - self._gap_told_s < GAP_TOLD_EVERY_S:
            return 0
        fresh, self._gap_told, self._gap_told_s = total - self._gap_told, total, now
        return fresh

    def offline_to_tell(self, offline: bool) -> bool:
        """Whether its next record is on disk is another answer than was told last; it is told now."""
        before, self._offline_told = self._offline_told, offline
        return before != offline
