"""Replays one consumer under one candidate policy, judged by the broker's own ``evaluate``.

Theory of operation. As long as nothing a candidate does changes what the consumer gets, the candidate is judged on the
samples of the base (base.py), which all candidates share; blocks of looks that can change nothing are passed over. From
the first action that does change something the consumer goes its own way: a replay from the block before, looked at at
every sweep. What an action does stands in consumer_replay.py; when the governor does it, here as in
core/governance/governor.py:

1. Rules are judged at each look, in order. ``discard``, ``offline`` and ``block_publishers`` are applied at the look
   that fires them and at each look while their rule is active; ``conflate`` until it steps back.
2. Who is not connected cannot be disconnected. ``delete_subscription`` spares durable ones unless told.
3. AMQP and OpenWire close a consumer. Other clients are only asked, which no library hears: they are disconnected when
   the time for that is over.

Judged as recorded, because they depend on everybody: ``slow_fraction``, and what other subscriptions of the same
client hold of ``pool_share``. Not replayed: flap control (how soon a client may come back), and that with over 256
lagging consumers each is looked at less often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from headway.core.base import Reason
from headway.core.policy import (
    NO_POLICY,
    Action,
    ActionKind,
    Decision,
    DecisionKind,
    Meter,
    Policy,
    PolicyState,
    Sample,
    evaluate,
    find_reason,
    policy_for_any,
    policy_named,
)
from headway.pipeline.lab.replays.base import (
    GATES,
    OFFLINE,
    TELL_S,
    Answer,
    Base,
    Bucket,
    Buckets,
    MeterRange,
    Recording,
    changes,
)
from headway.pipeline.lab.replays.consumer_replay import NOTHING, STEP_S, ConsumerReplay
from headway.pipeline.lab.replays.trace import ConsumerTrace

# -- candidate replay --------------------------------------------------------------------------------------------------


HITS = frozenset(
    {
        ActionKind.CONFLATE, ActionKind.DISCARD, ActionKind.CLOSE_CONSUMER, ActionKind.DISCONNECT,
        ActionKind.DELETE_SUBSCRIPTION,
    }
)  # fmt: skip
"""Actions that change what the consumer gets; enforced, they make it one that was hit."""
CLOSES = ("amqp", "openwire")
"""How the protocols begin that can close one consumer of a client."""
SWEPT_MAX_S = 8.0
"""The longest time that is replayed in sweeps before another long step is tried."""


class Event(NamedTuple):
    """A verdict that the candidate would have given. Time in seconds since the recording began."""

    time: float
    kind: DecisionKind
    action: ActionKind
    reason: Reason
    rule: int
    """The rule's number, from 1 on."""
    enforced: bool
    lag_records: int
    lag_bytes: int

    @property
    def hits(self) -> bool:
        return self.enforced and self.kind is DecisionKind.FIRE and self.action in HITS


@dataclass(slots=True)
class Passage:
    """The outcome of one trace under one candidate."""

    trace: ConsumerTrace
    policy: str
    events: list[Event] = field(default_factory=list)
    buckets: list[Bucket] = field(default_factory=list)
    records_lost: int = 0
    records_conflated: int = 0
    stall_ms: float = 0.0
    lag_bytes_peak: int = 0
    over_at: float = 0.0
    """The time when it was over: ended by the candidate, or by itself."""
    cut: bool = False
    """Whether the candidate ended it."""
    cut_client: bool = False
    """Whether its client's connection ended with it."""
    behind_at_end: bool = False
    would_catch_up: Answer | None = None
    """Whether it would have caught up without a policy; None: it was not hit."""
    begin: float = 0.0
    """The time from which on it was replayed."""
    cut_s: float | None = None
    """When the candidate cut it off, or its client."""
    found_would_catch_up: Answer | None = None
    """Whether it would have caught up without a policy after the first verdict about it; None: there was none."""
    soon_over: bool = False
    """Whether it had caught up without a policy within ``TELL_S`` of that verdict."""
    behind_since_s: float = 0.0
    """Since when records had waited at that verdict; without a verdict, at the end of its recording."""
    stuck_s: float | None = None
    """The time since which it took nothing any more; None: it took something to the end."""
    caught_up_s: float | None = None
    """The time when, without a policy, it was caught up last."""

    @property
    def hit(self) -> Event | None:
        return next((event for event in self.events if event.hits), None)

    @property
    def found(self) -> Event | None:
        """The first verdict against it; telling is enough."""
        return next((event for event in self.events if event.kind is DecisionKind.FIRE), None)


class CandidateReplay:
    """One trace under one policy, from its base's begin, up to ``until`` at most."""

    def __init__(self, base: Base, policy: Policy, recording: Recording, memory_limit: int, cut: Event | None) -> None:
        """``cut``: when and why the client's connection is ended on account of another subscription."""
        self._base = base
        self._trace = base.trace
        self._policy = policy
        self._state = PolicyState()
        self._state.keyed = base.trace.keyed
        self._recording = recording
        self._pool_scale = recording.memory_limit / max(1, memory_limit)
        self._cut = cut
        self._until = self._trace.end if cut is None else min(cut.time, self._trace.end)
        self._marks = Meter()
        meters = {leaf.meter for rule in policy.rules for leaf in rule.leaves()}
        self._adapts = "slow_count" in meters or ("pool_share" in meters and self._pool_scale != 1.0)
        self._replay: ConsumerReplay | None = None
        self._own_from = 0
        """The bucket from which on it went its own way."""
        self._buckets = Buckets(recording.bucket_s)
        self._offline = False
        self.passage = Passage(
            self._trace, policy.name, over_at=self._until, begin=base.begin, caught_up_s=base.caught_up_s
        )

    def run(self) -> Passage:
        passage = self.passage
        self._along_the_base()
        if self._replay is not None and not passage.cut:
            self._alone(self._replay)
        self._finish()
        return passage

    def _along_the_base(self) -> None:
        """Follows the base until the end, or until the consumer goes its own way."""
        if not self._policy.rules:
            return
        for block in self._base.blocks:
            if block.before.time > self._until:
                return
            state = self._state
            if state.steady and not changes(block.range, self._policy, set(state.active())):
                continue
            for time, sample in block.looks():
                if time > self._until:
                    return
                state.keep_up(self._trace.lateness.total(time))
                for decision in self._judge(self._adapted(sample), time):
                    if self._replay is None and self._changes_course(decision):
                        self._replay = block.replay_to(time)
                        self._own_from = int(time // self._recording.bucket_s)
                        self._note(self._replay)
                    self._decide(decision, sample, time)
                    if self.passage.cut:
                        return
                self._recover(time)
                if self._replay is not None:
                    self._keep_at_it(self._replay)
                    return

    def _alone(self, replay: ConsumerReplay) -> None:
        """Goes on alone: in long steps, too, as long as they can change nothing. Where one could, some time is
        replayed in sweeps before another is tried."""
        last, paces, fine_until, pause_s = Sample(), [0.0], replay.time, STEP_S
        while True:
            if self._state.steady and replay.time >= fine_until and replay.waiting_bytes >= NOTHING:
                ahead = replay.fork()
                ahead.advance(replay.next_corner())
                sample = self._adapted(ahead.sample())
                paces = [*paces[-1:], (ahead.reached - replay.reached) / (ahead.time - replay.time)]
                active = set(self._state.active())
                if ahead.time <= self._until and not changes(MeterRange((last, sample), paces), self._policy, active):
                    self._replay = replay = ahead
                    last, pause_s = sample, STEP_S
                    self._keep_at_it(replay)
                    self._note(replay)
                    continue
                fine_until = replay.time + pause_s
                pause_s = min(2 * pause_s, SWEPT_MAX_S)
            time = replay.next_look(self._recording.sweep_s)
            if time is None or time > self._until:
                return
            replay.advance(time)
            last = self._adapted(replay.sample())
            self._note(replay)
            self._state.keep_up(self._trace.lateness.total(time))
            for decision in self._judge(last, time):
                self._decide(decision, last, time)
                if self.passage.cut:
                    return
            self._recover(time)
            self._keep_at_it(replay)

    def _adapted(self, sample: Sample) -> Sample:
        """Returns the look with the two meters that depend on the candidate."""
        if not self._adapts:
            return sample
        return msgspec.structs.replace(
            sample, slow_count=self._marks.slow_count, pool_share=sample.pool_share * self._pool_scale
        )

    # -- deciding ---------------------------------------------------------------------------------------------------

    def _judge(self, sample: Sample, time: float) -> list[Decision]:
        decisions = evaluate(self._policy, self._state, sample, time)
        if self._state.slow_anew:
            self._marks.slow_again()
        return decisions

    def _enforced(self, decision: Decision) -> bool:
        action = decision.action
        spared = action.kind is ActionKind.DELETE_SUBSCRIPTION and self._trace.durable and not action.durable
        return decision.enforced and not spared

    def _connected(self, time: float) -> bool:
        if self._replay is not None:
            return self._replay.connected
        return self._trace.connected[self._trace.sample_at(time)]

    def _changes_course(self, decision: Decision) -> bool:
        if decision.kind is not DecisionKind.FIRE or not self._enforced(decision):
            return False
        return decision.action.kind not in (ActionKind.NOTIFY, ActionKind.RETURN) and not self._asks(decision.action)

    def _asks(self, action: Action) -> bool:
        """Tells whether the action changes nothing yet, because it only asks."""
        return action.kind is ActionKind.CLOSE_CONSUMER and not self._trace.protocol.startswith(CLOSES)

    def _decide(self, decision: Decision, sample: Sample, time: float) -> None:
        action = decision.action
        if action.kind.needs_connection and not self._connected(time):
            return
        enforced = self._enforced(decision)
        reason, rule = find_reason(decision), decision.rule + 1
        event = Event(time, decision.kind, action.kind, reason, rule, enforced, sample.lag_records, sample.lag_bytes)
        self.passage.events.append(event)
        if decision.kind is DecisionKind.FIRE:
            self._marks.mark_slow(time)
            if enforced:
                self._act(action, sample, time)
                if self._asks(action) and time + action.within_s < self._until:
                    self._until = self.passage.over_at = time + action.within_s
                    self._cut = event._replace(time=self._until, action=ActionKind.DISCONNECT)
                    self.passage.cut_client = True
        else:
            self._recover(time)
            if enforced:
                self._undo(action)

    def _recover(self, time: float) -> None:
        if self._marks.slow and not any(True for _ in self._state.active()):
            self._marks.mark_recovered(time)

    def _act(self, action: Action, sample: Sample, time: float) -> None:
        replay = self._replay
        if replay is None:
            return  # nothing is done but telling, or asking
        match action.kind:
            case ActionKind.CONFLATE:
                replay.conflating = True
            case ActionKind.DISCARD:
                replay.discard(action)
            case ActionKind.OFFLINE:
                self._offline = True
            case ActionKind.BLOCK_PUBLISHERS:
                self._gate(replay)
            case ActionKind.CLOSE_CONSUMER:
                if not self._asks(action):
                    self._end(sample, time)
            case ActionKind.DELETE_SUBSCRIPTION:
                self._end(sample, time)
            case ActionKind.DISCONNECT:
                if self._trace.durable:
                    replay.open_gate()
                    replay.go_away()
                else:
                    self._end(sample, time)
                self.passage.cut_client = True
                self.passage.cut_s = time

    def _undo(self, action: Action) -> None:
        replay = self._replay
        if replay is None:
            return  # nothing was done but telling
        match action.kind:
            case ActionKind.CONFLATE:
                replay.stop_conflating()
            case ActionKind.DISCARD:
                replay.stop_discarding()
            case ActionKind.BLOCK_PUBLISHERS:
                replay.open_gate()
            case _:
                return

    def _keep_at_it(self, replay: ConsumerReplay) -> None:
        """Applies the active rules at each look."""
        self._offline = False
        for index in self._state.active():
            rule = self._policy.rules[index]
            if not rule.enforce:
                continue
            if rule.then.kind is ActionKind.DISCARD:
                replay.discard(rule.then)
            elif rule.then.kind is ActionKind.OFFLINE:
                self._offline = True
            elif rule.then.kind is ActionKind.BLOCK_PUBLISHERS:
                self._gate(replay)

    def _gate(self, replay: ConsumerReplay) -> None:
        if replay.connected:
            replay.gate()

    # -- ending -----------------------------------------------------------------------------------------------------

    def _end(self, sample: Sample, time: float) -> None:
        """Ends the trace; the records that wait are lost."""
        self.passage.cut, self.passage.over_at, self.passage.cut_s = True, time, time
        self.passage.records_lost += sample.lag_records

    def _records_waiting(self) -> int:
        """Counts the records that wait when its connection is ended on account of another subscription."""
        if self._replay is not None:
            return round(self._replay.waiting_records)
        offered, records, _ = self._trace.at(self._until)
        return round(records - self._trace.standing(offered - self._base.lag_at(self._until))[0])

    def _note(self, replay: ConsumerReplay) -> None:
        self._buckets.note(replay, OFFLINE * self._offline | GATES * replay.gated)

    def _finish(self) -> None:
        passage, replay, base = self.passage, self._replay, self._base
        shared_upto = int(passage.over_at // self._recording.bucket_s) + 1 if replay is None else self._own_from
        passage.buckets = [bucket for bucket in base.buckets if bucket.number < shared_upto]
        passage.lag_bytes_peak = max((b.lag_bytes for b in passage.buckets), default=0)
        if replay is not None:
            passage.buckets += self._buckets.rows()
            passage.records_lost += round(replay.lost + replay.left_out_ahead())
            passage.records_conflated += round(replay.conflated)
            passage.stall_ms += replay.stalled_s * 1000
            passage.lag_bytes_peak = max(passage.lag_bytes_peak, self._buckets.peak_bytes)
        elif passage.over_at >= self._trace.end:
            passage.lag_bytes_peak = base.peak_bytes
        if not passage.cut:
            if self._cut is not None and self._cut.time < self._trace.end:
                passage.cut, passage.cut_s = True, self._cut.time
                passage.events.append(self._cut)
                passage.records_lost += self._records_waiting()
            lag = replay.waiting_bytes if replay is not None else base.lag_at(passage.over_at)
            passage.behind_at_end = not passage.cut and not base.kept_up(passage.over_at, lag)
        hit, found = passage.hit, passage.found
        if hit is not None:
            passage.would_catch_up = base.catches_up(hit.time)
        if found is not None:
            passage.found_would_catch_up = base.catches_up(found.time)
            caught_up_s = base.caught_up_after(found.time)
            passage.soon_over = caught_up_s is not None and caught_up_s - found.time <= TELL_S
        passage.behind_since_s = base.behind_since(self._trace.recorded_end if found is None else found.time)
        passage.stuck_s = base.stuck_s


# -- clients -----------------------------------------------------------------------------------------------------------
#
# Clients: all traces of one client, replayed together.
#
# 1. An ended trace is over until the recording shows the client with a new one. A trace that began while this one would
#    still have been going on (the recorded broker had cut it off) is joined where this one ends.
# 2. Ending a client's connection ends all its transient traces.


class Client:
    """All traces of one client in one run; replays any number of candidates."""

    def __init__(self, traces: Mapping[str, Sequence[ConsumerTrace]], recording: Recording) -> None:
        self._chains = {filter: list(chain) for filter, chain in traces.items()}
        self._recording = recording
        self._bases: dict[tuple[int, float, float], Base] = {}

    def replay(self, policies: tuple[Policy, ...], memory_limit: int) -> dict[str, list[Passage]]:
        """Returns how each of its subscriptions fares, by filter, under policies and a pool with so much memory."""
        cuts: list[Event] = []
        while True:
            found = {filter: self._chain(chain, policies, memory_limit, cuts) for filter, chain in self._chains.items()}
            if len(found) == 1:
                return found
            fresh = [
                passage.events[-1]
                for passages in found.values()
                for passage in passages
                if passage.cut and passage.cut_client and passage.events[-1] not in cuts
            ]
            if not fresh:
                return found
            cuts.append(min(fresh))  # it takes the client's other subscriptions with it (rule 2)

    def _chain(
        self, chain: Sequence[ConsumerTrace], policies: tuple[Policy, ...], memory_limit: int, cuts: Sequence[Event]
    ) -> list[Passage]:
        passages: list[Passage] = []
        free_from = float("-inf")
        for trace in chain:
            begin = max(trace.begin, free_from)
            if begin >= trace.recorded_end and begin > trace.begin:
                continue
            policy = choose(policies, trace)
            cut = min((event for event in cuts if event.time > begin and not trace.durable), default=None)
            base = self._base(trace, begin, min(trace.patience_asked_s, policy.patience_max_s))
            replay = CandidateReplay(base, policy, self._recording, memory_limit, cut)
            passage = replay.run()
            passages.append(passage)
            free_from = passage.over_at
        return passages

    def _base(self, trace: ConsumerTrace, begin: float, patience_s: float = 0.0) -> Base:
        key = trace.subscription, begin, patience_s
        if key not in self._bases:
            self._bases[key] = Base(trace, begin, self._recording, patience_s)
        return self._bases[key]


def choose(policies: tuple[Policy, ...], trace: ConsumerTrace) -> Policy:
    """Returns the policy that would govern it, chosen as the broker chooses."""
    if trace.policy_asked and (asked := policy_named(policies, trace.policy_asked)) is not None:
        return asked
    return policy_for_any(policies, trace.topics, trace.durable, trace.listener) if policies else NO_POLICY
