"""Preview: the consumers that other policies would hit now, if every window were over.

All consumers are checked, a slice at a time, as in listings.py. The first ``EACH_MAX`` hits are listed one by one, and
so are the first consumers that none of the policies covers.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from headway.core.governance import peek, with_peer
from headway.core.policy import NO_POLICY, Policy, PolicyState, evaluate, explain
from headway.core.telemetry import stats
from headway.server.admin.listings import EACH_MAX
from headway.server.engine import Engine
from headway.server.http import work_of_choosing

COMPARISONS_A_LOOK = 64
"""So many topics that are compared with those of policies are as much work as a look at one consumer."""
CHARS_MAX = 2_000_000
"""Characters of clients' names in the rows. Each may have 64 KiB, and the rest of a row is about as long."""
OWN_TOPICS = "$SYS/"
"""Topics of the broker itself: no policy has to cover who watches them."""


def at_once(policy: Policy) -> Policy:
    """Returns the policy without windows: every rule fires at once."""
    rules = tuple(msgspec.structs.replace(rule, for_s=0.0, retries=0, times=1) for rule in policy.rules)
    return msgspec.structs.replace(policy, rules=rules)


async def preview(engine: Engine, policies: tuple[Policy, ...]) -> dict[str, Any]:
    registry = engine.broker.registry
    instant: dict[int, Policy] = {}
    """Policies without windows, by the identity of the original."""
    hits: list[dict[str, Any]] = []
    uncovered: list[dict[str, Any]] = []
    clients: set[str] = set()
    looked = total = without = work = chars = 0
    choosing = 1 + work_of_choosing(policies) // COMPARISONS_A_LOOK
    for session in list(registry.sessions.values()):
        for subscription in list(session.subscriptions.values()):
            looked += 1
            work += choosing
            if work >= stats.CLOSE_SLICE:
                work = 0
                await asyncio.sleep(0)
            if subscription.ended:
                continue
            now = engine.now()
            policy = registry.policy_of(subscription, policies)
            if policy is NO_POLICY and not subscription.filter.startswith(OWN_TOPICS):
                without += 1
                if len(uncovered) < EACH_MAX and (chars := chars + len(session.client)) < CHARS_MAX:
                    uncovered.append({"client": session.client, "filter": subscription.filter})
            if id(policy) not in instant:
                instant[id(policy)] = at_once(policy)
            sample = peek(registry, subscription, now, {})
            state = PolicyState()
            state.keyed = subscription.keyed
            if policy.plugged:
                governor = engine.broker.governor
                wall_s = now + registry.wall_offset_s
                sample = governor.plugged.measure(subscription, sample, policy.plugged, now, wall_s)
            for decision in evaluate(instant[id(policy)], state, sample, now):
                total += 1
                clients.add(session.client)
                if len(hits) < EACH_MAX and (chars := chars + len(session.client)) < CHARS_MAX:
                    filter = subscription.feed.key.filter
                    sample = with_peer(sample, subscription)
                    text = explain(decision, sample, client=session.client, filter=filter, policy=policy.name)
                    hits.append({"client": session.client, "filter": subscription.filter, "policy": policy.name,
                                 "rule": decision.rule + 1, "text": text})  # fmt: skip
    return {"hits": hits, "total": total, "clients": len(clients), "consumers": looked, "uncovered": uncovered,
            "uncovered_total": without}  # fmt: skip
