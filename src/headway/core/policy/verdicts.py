"""Verdicts: what was decided about a consumer, and why."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from math import inf

import msgspec

from headway.core.base import (
    ENTRIES_MAX,
    NAMES_MAX,
    PER_NAME_MAX,
    Cause,
    History,
    Reason,
    format_duration,
    format_rate,
    format_share,
    format_size,
)
from headway.core.policy.meters import AHEAD, METERS, PAUSES, Sample, records, waiting
from headway.core.policy.rules import ACTIONS, Action, ActionKind, Move, Reading, Which

# -- decision ----------------------------------------------------------------------------------------------------------
#
# Decisions: what a policy decides about one consumer, and the readings behind it.


class DecisionKind(StrEnum):
    FIRE = "fire"
    CLEAR = "clear"


class Decision(msgspec.Struct, frozen=True):
    """One decision: a rule fires, or it clears."""

    rule: int
    """Index of the rule in its policy, from 0. People see numbers from 1."""
    kind: DecisionKind
    action: Action
    enforced: bool
    """The action is carried out: the rule is no dry run, and the consumer is not spared."""
    readings: tuple[Reading, ...]
    """All comparisons of the condition, including those in an ``any`` that did not hold."""
    window_s: float
    """The rule's ``for``, in seconds."""
    held_s: float
    """For a fire, how long the condition has held; for a clear, how long the rule was active."""
    tests: int = 0
    """The rule's ``retries``: how many tests found the condition true."""
    times: int = 1
    """The rule's ``times``: how many separate times the condition held."""
    rule_name: str = ""
    relapses: int = 0
    """How often the condition has held anew since the rule began to waver (rule.py)."""
    moves: tuple[Move, ...] | None = None
    """The answer of a plugged-in action. None: it was not called, or it failed."""
    undone: tuple[Action, ...] = ()
    """For a clear, what the rule did while it was active."""
    spared: bool = False
    """The action is not for durable consumers, and this is one."""
    failed: str = ""
    """How the plugged-in action failed; empty: it did not."""

    @property
    def leading(self) -> Reading | None:
        """Returns the most telling reading: the first that exceeds its threshold, the consumer's own before those about
        others."""
        return leading(self.readings)


def leading(readings: Sequence[Reading]) -> Reading | None:
    """Returns the most telling reading; None if there are none."""
    held = [reading for reading in readings if reading.held]
    ranked = [reading for reading in held if reading.exceeds] or held or readings
    return min(ranked, key=lambda reading: reading.meter in ("slow_fraction", "slow_count"), default=None)


# -- causes ------------------------------------------------------------------------------------------------------------
#
# Causes: the cause and the reason of a decision, and the sentence that explains it.
#
# The *reason* is the meter that led to the decision; the *cause* is where the trouble lies. A ``blocked`` consumer may
# have a dead network, or an application that does not read. The cause is the first of these that applies:
#
# 1. the broker's own loop was late                                         -> broker
# 2. bytes sent are lost, or their acknowledgements stay away               -> network
# 3. it is at a long job, and the patience that it asked for is not over;
#    others of its user use up that user's limit of bytes in flight; its
#    credit is used up, and has been for ``NO_CREDIT_S`` and
#    ``PAUSES`` of its usual pauses, or, where these are not known, most
#    of the time since records wait; or its acknowledgements are later
#    than ``LATE_ACK_S`` and its pace explain                               -> application
# 4. it drains steadily (it stands still no longer than usual, and takes a
#    twentieth of what is offered or more, now or over half a minute):
#    offered over three times the long run, or it drains a tenth more than
#    is offered now (the rates of a second or two are not exact) and so
#    will be current some day                                               -> producer_burst
#    otherwise it is offered more than it takes                             -> over_subscription
# 5. the peer's receive window is closed                                    -> application
# 6. its socket takes nothing though its window is not known to be closed   -> network
# 7. anything else (it takes a trickle)                                     -> application
#
# A closed window alone says little: that of every reader that is slower than its feed is closed most of the time. So a
# steady reader comes first.


NO_CREDIT_S = 1.0
LATE_ACK_S = 5.0
ON_ITS_WAY_BYTES = 1_000_000
"""Bytes that a record may have before it, in the buffers of both kernels."""
BURST_FACTOR = 3.0
STEADY_SHARE = 0.05
BLOCKED_S = 1.0
"""A socket that pauses for less than this still drains steadily."""


def find_cause(sample: Sample, *, broker_late: bool = False) -> Cause:
    """Returns the likely place of the trouble, by the meters. The rules are at the top of this file."""
    return _diagnose(sample, broker_late)[0]


def explain_cause(sample: Sample, *, broker_late: bool = False) -> str:
    """Returns the cause and the evidence for it: ``application, its receive window is closed``."""
    cause, why = _diagnose(sample, broker_late)
    return f"{cause.replace('_', '-')}, {why}"


def find_reason(decision: Decision) -> Reason:
    """Returns the reason that the meter of the leading reading stands for."""
    leading = decision.leading
    return METERS[leading.meter].reason if leading is not None else Reason.NORMAL


def explain(
    decision: Decision, sample: Sample, *, client: str, filter: str, policy: str, broker_late: bool = False
) -> str:
    """Returns one sentence: the consumer, its readings and their limits, the cause, the action, and the rule."""
    by = f"policy {policy!r}, rule {decision.rule + 1}" + (f" ({decision.rule_name})" if decision.rule_name else "")
    if decision.kind is DecisionKind.CLEAR:
        was = "" if decision.enforced else "would be "
        return (
            f"{_who(client, filter)}: back within limits after {format_duration(decision.held_s)}"
            f"{_times(', having relapsed', decision.relapses)}, {_state(sample)}; "
            f"{was}no longer {_undone(decision.action)} ({by}{_dry(decision)})"
        )
    plugged = decision.action.kind is ActionKind.PLUGIN
    deed = _plugged_deed(decision, sample) if plugged else _deed(decision.action, sample, decision.enforced)
    if decision.spared:
        deed = f"durable, so spared, and not {ACTIONS[decision.action.word].deed}"
    cause = explain_cause(sample, broker_late=broker_late)
    return f"{_who(client, filter)}: {_findings(decision, sample)}; cause: {cause}; {deed} by {by}{_dry(decision)}"


def explain_pressure(
    why: str, action: Action, sample: Sample, *, client: str, filter: str, kind: DecisionKind = DecisionKind.FIRE
) -> str:
    """Returns the sentence for a decision without a policy. ``why`` is its first half."""
    if kind is DecisionKind.CLEAR:
        return f"{_who(client, filter)}: {why}; no longer {_undone(action)}"
    meanwhile = f" while {waiting(sample)} waited" if sample.lag_records else ""
    cause = "" if sample.idle else f"; cause: {explain_cause(sample)}"
    return f"{_who(client, filter)}: {why}{meanwhile}{cause}; {_deed(action, sample, True)}"


def _diagnose(sample: Sample, broker_late: bool) -> tuple[Cause, str]:
    if broker_late:
        return Cause.BROKER, "its own loop was late"
    if sample.retransmitting:
        return Cause.NETWORK, "bytes sent to it are being retransmitted"
    if sample.patience_left and (sample.credit_exhausted or not sample.blocked_time):
        return Cause.APPLICATION, f"it is at a long job, with patience for {format_duration(sample.patience_left)} more"
    if sample.user_full and not sample.credit_exhausted:
        return Cause.APPLICATION, "others of its user have as many bytes in flight as the user's limit permits"
    if sample.credit_exhausted and sample.user_full and (_no_credit(sample) or not sample.drain_rate):
        limit = "its user has as many bytes in flight as its limit permits"
        return Cause.APPLICATION, f"{limit}, with {records(sample.in_flight)} of its own unacknowledged"
    if sample.credit_exhausted and (_no_credit(sample) or not sample.drain_rate):
        return Cause.APPLICATION, f"its window is full with {records(sample.in_flight)} unacknowledged"
    if sample.in_flight and (_late_ack(sample) or (sample.ack_age and not sample.lag_records)):
        late = format_duration(sample.ack_age)
        return Cause.APPLICATION, f"its acknowledgements are late, the oldest outstanding for {late}"
    if _steady(sample):
        takes = f"it takes {format_rate(sample.drain_rate)} of the {format_rate(sample.offered_rate)} offered"
        if sample.offered_burst > BURST_FACTOR:
            return Cause.PRODUCER_BURST, f"{takes}, {sample.offered_burst:.1f} times the usual"
        if sample.drain_rate > AHEAD * sample.offered_rate and sample.catching_up < inf:
            return Cause.PRODUCER_BURST, f"{takes} now and is working off what came before"
        if not 0 < sample.drain_rate <= AHEAD * sample.offered_rate:  # a record now and then: the rate tells little
            takes = f"it takes {format_share(sample.drain_share)} of what is offered"
        elif sample.drain_rate > sample.offered_rate:
            takes = f"it takes {format_rate(sample.drain_rate)}, hardly more than is offered now"
        return Cause.OVER_SUBSCRIPTION, takes
    if sample.peer_window_closed:
        return Cause.APPLICATION, "its receive window is closed"
    if sample.blocked_time > 0 and not sample.reads_itself:
        return Cause.NETWORK, "its socket takes no bytes though its receive window is not seen to be closed"
    if sample.drain_rate > 0:
        return Cause.APPLICATION, f"it reads only {format_rate(sample.drain_rate)}"
    return Cause.APPLICATION, "it reports no progress" if sample.reads_itself else "it does not read"


def _steady(sample: Sample) -> bool:
    """Tells whether it takes some of what it is offered, and stands still no longer than usual."""
    if sample.blocked_time >= max(BLOCKED_S, PAUSES * sample.usual_pause):
        return False
    if sample.drain_rate > 0:
        return sample.drain_rate >= STEADY_SHARE * sample.offered_rate
    return STEADY_SHARE <= sample.drain_share < 1 and not sample.overdue_unread_time


def _no_credit(sample: Sample) -> bool:
    """Tells whether the window has been full for too long for a worker that takes one record after another."""
    if sample.usual_pause:
        return sample.credit_exhausted_time >= max(NO_CREDIT_S, PAUSES * sample.usual_pause)
    since_lag = sample.waited is not None and 2 * sample.credit_exhausted_time >= sample.waited
    return since_lag or sample.credit_exhausted_time >= NO_CREDIT_S


def _late_ack(sample: Sample) -> bool:
    """Tells whether the oldest acknowledgement is late: later than if it did all its jobs one after the other at its
    pace, or read all that the kernels can hold of it at the rate at which it reads."""
    if sample.credit_exhausted:
        return sample.ack_age >= max(LATE_ACK_S, PAUSES * sample.usual_pause * sample.in_flight)
    return sample.ack_age >= max(LATE_ACK_S, ON_ITS_WAY_BYTES / sample.drain_rate if sample.drain_rate else 0.0)


def _findings(decision: Decision, sample: Sample) -> str:
    """Returns the readings that held, one of each meter and the leading one first, then for how long and how often, and
    what waited."""
    leading = decision.leading
    by_meter = {} if leading is None else {leading.meter: leading}
    for reading in decision.readings:
        if reading.held:
            by_meter.setdefault(reading.meter, reading)
    ordered = list(by_meter.values())
    text = " and ".join(_finding(reading, sample) for reading in ordered) or "its condition held"
    if decision.tests:
        text += f", found in each of {decision.tests} tests over {format_duration(decision.held_s)}"
    elif decision.window_s:
        text += ", for {} (limit {})".format(*_apart(format_duration, decision.held_s, decision.window_s))
    if decision.times > 1:
        text += f", for the {_ordinal(decision.times)} time"
    if decision.relapses:
        text += f", for the {_ordinal(decision.relapses + 1)} time of late"
    told = any(METERS[reading.meter].tells_lag for reading in ordered)
    return text if told or not sample.lag_records else f"{text} while {waiting(sample)} waited"


def _finding(reading: Reading, sample: Sample) -> str:
    """Returns one reading in words."""
    meter = METERS[reading.meter]
    value, limit = _apart(meter.unit.format, reading.value, reading.threshold)
    if not reading.exceeds:
        return f"{meter.meaning} {value} ({_OPS[reading.op]} {limit})"
    return meter.finding(value, limit, sample)


def _apart(form: Callable[[float], str], value: float, limit: float) -> tuple[str, str]:
    """Returns both in words. If only rounding makes them equal, the value is said to be just over or under."""
    said, bound = form(value), form(limit)
    if said == bound and value != limit:
        said = f"just {'over' if value > limit else 'under'} {bound}"
    return said, bound


_OPS = {">": "more than", ">=": "at least", "<": "less than", "<=": "at most"}


def _deed(action: Action, sample: Sample, enforced: bool) -> str:
    if action.kind is ActionKind.BLOCK_PUBLISHERS:
        return f"publishers {'held back' if enforced else 'would have been held back'}"
    if action.kind is ActionKind.DISCARD:
        what, left = _discarded(action, sample)
        return f"{what} {'discarded' if enforced else 'would have been discarded'}{left}"
    return ("" if enforced else "would have been ") + ACTIONS[action.word].deed


def _plugged_deed(decision: Decision, sample: Sample) -> str:
    """Returns the moves of a plugged-in action, in words."""
    name = decision.action.name
    if not decision.enforced:
        return f"{name} would have been asked what to do"
    if decision.failed:
        return f"{name} failed and did nothing ({decision.failed})"
    if decision.moves is None:
        return f"{name} asked what to do"
    deeds = []
    for move in decision.moves:
        deed = "told" if move.action is None else _deed(move.action, sample, True)
        deeds.append(f"{deed} ({move.text})" if move.text else deed)
    return f"{', '.join(deeds) or 'nothing done'}, as {name} has it,"


def _discarded(action: Action, sample: Sample) -> tuple[str, str]:
    """Returns, in words, which records are discarded, and how many are left."""
    what = {
        Which.OLDEST: "its oldest waiting records",
        Which.NEWEST: "its newest records",
        Which.LOWEST_PRIORITY: "its waiting records of lowest priority",
        Which.OLDER_PER_KEY: "all but its newest waiting record per key",
        Which.SELECTOR: f"its waiting records that match {action.selector!r}",
        Which.TOPICS: f"its waiting records on {', '.join(action.topics)}",
        None: "its waiting records",
    }[action.which]
    kept = action.records_kept(sample.prefetch)
    limits = [records(int(kept))] if kept < inf else []
    limits += [format_size(action.keep_bytes)] if action.keep_bytes is not None else []
    return what, f" down to {' and '.join(limits)}" if limits else ""


def _undone(action: Action) -> str:
    if action.kind is ActionKind.BLOCK_PUBLISHERS:
        return "holding its publishers back"
    if action.kind is ActionKind.DISCARD:
        return "having records discarded"
    if action.kind is ActionKind.PLUGIN:
        return f"as {action.name} has it"
    return ACTIONS[action.word].state or ACTIONS[action.word].deed


def _dry(decision: Decision) -> str:
    if decision.spared:
        return " (without durable = true)"
    if decision.enforced:
        return ""
    return " (dry run: enforce = false)" if decision.kind is DecisionKind.FIRE else ", dry run"


def _state(sample: Sample) -> str:
    """Returns, in words, the records that wait for the consumer now."""
    if not sample.lag_records:
        return "nothing waiting"
    taking = f", {format_rate(sample.drain_rate)} taken" if sample.drain_rate else ""
    return f"{waiting(sample)} waiting{taking}"


def _times(words: str, count: int) -> str:
    """Returns the words with the count; nothing for none."""
    return f"{words} {'once' if count == 1 else f'{count} times'}" if count else ""


def _who(client: str, filter: str) -> str:
    return f"{client} on {filter}" if filter else client


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


# -- verdict -----------------------------------------------------------------------------------------------------------
#
# A verdict is a decision about a consumer, with its reasons.
#
# Rules:
# - A verdict has every reading with its threshold, the window, the whole sample, and one sentence for people. It can be
#   understood without the broker that made it.
# - The reason is the word on the wire, in metrics and in columns. The cause says where the trouble lies.
# - Verdicts outlive the connection. Memory for them is bounded (history.py).


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
