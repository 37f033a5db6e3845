"""A verdict is a decision about a consumer, with its reasons.

Rules:
- A verdict has every reading with its threshold, the window, the whole sample, and one sentence for people. It can be
  understood without the broker that made it.
- The reason is the word on the wire, in metrics and in columns. The cause says where the trouble lies (causes.py).
- Verdicts outlive the connection. Memory for them is bounded (history.py).
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable

import msgspec

from headway.core.base import ENTRIES_MAX, NAMES_MAX, PER_NAME_MAX, Cause, History, Reason
from headway.core.policy.meters import Sample
from headway.core.policy.rules import Action, ActionKind, Reading
from headway.core.policy.verdicts.causes import explain, explain_cause, explain_pressure, find_cause, find_reason
from headway.core.policy.verdicts.decision import Decision, DecisionKind

__all__ = [
    "Verdict", "VerdictBook", "explain", "explain_cause", "explain_pressure", "find_cause", "find_reason", "judge",
    "judge_pressure",
]  # fmt: skip

LATEST_MAX = 32


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict about one consumer."""

    number: int
    time_s: float
    """Seconds on the broker's clock."""
    wall_s: float
    """Seconds since 1970."""
    client: str
    filter: str
    listener: str
    policy: str
    """The policy's name; empty where no policy decided (pressure on a pool)."""
    rule: int
    """The rule's number, from 1; 0 without a policy."""
    kind: DecisionKind
    action: Action
    reason: Reason
    cause: Cause | None
    """The likely place of the trouble; None for a clear, because the trouble has ended."""
    enforced: bool
    readings: tuple[Reading, ...]
    window_s: float
    held_s: float
    sample: Sample
    text: str
    """One sentence for people."""
    relapses: int = 0
    """How often the consumer has relapsed since it began to go to and fro, also where no verdict said so."""


def judge(
    decision: Decision,
    sample: Sample,
    *,
    number: int,
    now: float,
    wall_s: float,
    client: str,
    filter: str,
    policy: str,
    listener: str = "",
    broker_late: bool = False,
) -> Verdict:
    """Returns the verdict for a policy's decision."""
    return Verdict(
        number=number, time_s=now, wall_s=wall_s, client=client, filter=filter, listener=listener, policy=policy,
        rule=decision.rule + 1, kind=decision.kind, action=decision.action, reason=find_reason(decision),
        cause=find_cause(sample, broker_late=broker_late) if decision.kind is DecisionKind.FIRE else None,
        enforced=decision.enforced, readings=decision.readings, window_s=decision.window_s, held_s=decision.held_s,
        sample=sample, relapses=decision.relapses,
        text=explain(decision, sample, client=client, filter=filter, policy=policy, broker_late=broker_late),
    )  # fmt: skip


def judge_pressure(
    reason: Reason,
    action: ActionKind,
    why: str,
    sample: Sample,
    *,
    number: int,
    now: float,
    wall_s: float,
    client: str,
    filter: str,
    listener: str = "",
    readings: tuple[Reading, ...] = (),
    kind: DecisionKind = DecisionKind.FIRE,
) -> Verdict:
    """Returns the verdict where no policy decided: a pool is over its limit, or a client over its share.

    ``why`` is the first half of the sentence: ``memory is over its limit (130 MB of 128 MB) and it is furthest back``.
    What waits for the consumer, the cause and the action are added.
    """
    fires = kind is DecisionKind.FIRE
    done = Action(action)
    return Verdict(
        number=number, time_s=now, wall_s=wall_s, client=client, filter=filter, listener=listener, policy="", rule=0,
        kind=kind, action=done, reason=reason, cause=find_cause(sample) if fires and not sample.idle else None,
        enforced=True, readings=readings, window_s=0.0, held_s=0.0, sample=sample,
        text=explain_pressure(why, done, sample, client=client, filter=filter, kind=kind),
    )  # fmt: skip


class VerdictBook(History[Verdict]):
    """The last verdicts of each client, including clients that are gone."""

    def __init__(self, per_client: int = PER_NAME_MAX, clients_max: int = NAMES_MAX, verdicts_max: int = ENTRIES_MAX
                 ) -> None:
        super().__init__(per_client, clients_max, verdicts_max)
        self.made = 0
        """Verdicts so far, including those that are no longer in the book."""
        self.counts: Counter[tuple[Cause | None, ActionKind, bool]] = Counter()
        """How many fired, by cause, action, and whether they were enforced."""
        self.latest: deque[Verdict] = deque(maxlen=LATEST_MAX)
        """The newest verdicts of all clients, the newest last."""
        self.cuts: deque[Verdict] = deque(maxlen=LATEST_MAX)
        """The newest of those that ended a consumer."""
        self.keep: Callable[[Verdict, str], None] = lambda verdict, user: None
        """Called with each verdict and the name of its client's user, for the history, if there is one."""

    def next_number(self) -> int:
        """Returns the number for the next verdict. Numbers ascend and are never used twice."""
        self.made += 1
        return self.made

    def add(self, verdict: Verdict, user: str = "") -> None:
        self.put(verdict.client, verdict)
        self.latest.append(verdict)
        if verdict.kind is DecisionKind.FIRE:
            self.counts[verdict.cause, verdict.action.kind, verdict.enforced] += 1
            if verdict.enforced and verdict.action.kind.ends_subscription:
                self.cuts.append(verdict)
        self.keep(verdict, user)

    def recent(self, count: int) -> list[Verdict]:
        """Returns the newest verdicts of all clients, the newest first."""
        return heapq.nlargest(count, self, key=lambda verdict: verdict.number)
