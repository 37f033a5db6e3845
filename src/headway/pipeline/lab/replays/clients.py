"""Clients: all traces of one client, replayed together.

1. An ended trace is over until the recording shows the client with a new one. A trace that began while this one would
   still have been going on (the recorded broker had cut it off) is joined where this one ends.
2. Ending a client's connection ends all its transient traces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.core.policy import NO_POLICY, Policy, policy_for_any, policy_named
from headway.pipeline.lab.replays.base import Base, Recording
from headway.pipeline.lab.replays.candidate_replay import CandidateReplay, Event, Passage
from headway.pipeline.lab.replays.trace import ConsumerTrace


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
