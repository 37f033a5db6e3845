"""Clients: all stays of one client, replayed together.

1. An ended stay is over until the recording shows the client with a new one. A stay that began while this one would
   still have been going on (the recorded broker had cut it off) is joined where this one ends.
2. Ending a client's connection ends all its transient stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.core.message import parse_share
from headway.core.policy import NO_POLICY, Policy, policy_for, policy_named
from headway.pipeline.lab.replays.base import Base
from headway.pipeline.lab.replays.history import Stay
from headway.pipeline.lab.replays.replay import Event, Passage, Recording, Replay


class Client:
    """All stays of one client in one run; replays any number of candidates."""

    def __init__(self, stays: Mapping[str, Sequence[Stay]], recording: Recording) -> None:
        self._chains = {filter: list(chain) for filter, chain in stays.items()}
        self._recording = recording
        self._bases: dict[tuple[int, float], Base] = {}

    def replay(self, policies: tuple[Policy, ...], memory_limit: int) -> dict[str, list[Passage]]:
        """How each of its subscriptions fares, by filter, under policies and a pool with so much memory."""
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
        self, chain: Sequence[Stay], policies: tuple[Policy, ...], memory_limit: int, cuts: Sequence[Event]
    ) -> list[Passage]:
        passages: list[Passage] = []
        free_from = float("-inf")
        for stay in chain:
            begin = max(stay.begin, free_from)
            if begin >= stay.recorded_end and begin > stay.begin:
                continue
            policy = choose(policies, stay)
            cut = min((event for event in cuts if event.time > begin and not stay.durable), default=None)
            replay = Replay(self._base(stay, begin), policy, self._recording, memory_limit, cut)
            passage = replay.run()
            passages.append(passage)
            free_from = passage.over_at
        return passages

    def _base(self, stay: Stay, begin: float) -> Base:
        key = stay.subscription, begin
        base = self._bases.get(key)
        if base is None:
            recording = self._recording
            base = self._bases[key] = Base(
                stay, begin, sweep_s=recording.sweep_s, memory_limit=recording.memory_limit, bucket_s=recording.bucket_s
            )
        return base


def choose(policies: tuple[Policy, ...], stay: Stay) -> Policy:
    """The policy that would govern it, chosen as the broker chooses."""
    if stay.policy_asked and (asked := policy_named(policies, stay.policy_asked)) is not None:
        return asked
    shared = parse_share(stay.filter)
    return policy_for(policies, shared[1] if shared else stay.filter, stay.durable) if policies else NO_POLICY
