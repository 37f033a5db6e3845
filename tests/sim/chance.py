"""What the dice decide: topics, filters, payloads, policies, and how a client behaves."""

from __future__ import annotations

from math import inf
from random import Random
from typing import NamedTuple

from headway.core.policy.rules.rule import Policy, parse_policy

TOPICS = ("a", "a/b", "a/c", "b/x/1", "b/x/2", "b/y/1", "b/y/2", "c/d", "c/d/e")
FILTERS = ("#", "a/#", "a/+", "a/b", "b/x/+", "b/x/1", "b/+/1", "+/x/#", "b/#", "c/d", "c/#", "+/d")
SELECTOR = "v > 50"
KEYS = ("topic", "/k")


class Manner(NamedTuple):
    """How a client treats its connection. Rates in bytes and times in seconds."""

    name: str
    reads: float = 1e12
    """Bytes a second; 0: never reads."""
    naps: float = 0.0
    """How often, per step, it stops reading for a while."""
    ack_delay_s: float = 0.0
    acks: bool = True
    disorder: bool = False
    vanishes: float = 0.0
    """How often, per step, its connection breaks."""
    healthy: bool = False


HEALTHY = Manner("healthy", healthy=True)
MANNERS = (
    HEALTHY, HEALTHY, HEALTHY,
    Manner("trickle", reads=3000.0),
    Manner("naps", naps=0.03),
    Manner("stuck", reads=0.0),
    Manner("late acks", ack_delay_s=0.7),
    Manner("no acks", acks=False),
    Manner("disorder", ack_delay_s=0.1, disorder=True),
    Manner("flaps", vanishes=0.02, naps=0.02),
    Manner("vanishes", reads=20_000.0, vanishes=0.01, disorder=True, ack_delay_s=0.05),
)  # fmt: skip


def payload(rng: Random, number: int, size_max: int) -> bytes:
    """JSON with a number of its own, a key and a value; sometimes padded, rarely huge."""
    pad = "x" * (rng.randint(0, size_max) if rng.random() < 0.1 else rng.randint(0, 40))
    return f'{{"n":{number},"k":"k{rng.randint(0, 4)}","v":{rng.randint(0, 100)},"p":"{pad}"}}'.encode()


_WHEN: tuple[dict[str, object], ...] = (
    {"lag_records": "> 20"}, {"lag_records": "> 2 x prefetch"}, {"lag_bytes": "4KB"}, {"lag_bytes": "30KB"},
    {"lag_age": "500ms"}, {"lag_age": "2s"}, {"blocked_time": "300ms"}, {"blocked_time": "2s"},
    {"credit_exhausted_time": "300ms"}, {"ack_age": "500ms"}, {"drain_rate": "< 5000B/s"}, {"pool_share": "10%"},
    {"any": [{"lag_bytes": "20KB"}, {"ack_age": "1s"}]}, {"lag_age": "300ms", "slow_fraction": "< 50%"},
    {"slow_count": ">= 2", "lag_records": "> 5"},
)  # fmt: skip
_THEN: tuple[object, ...] = (
    "notify", "conflate", "conflate", "offline", "block_publishers", "close_consumer", "disconnect",
    "delete_subscription", {"action": "delete_subscription", "durable": True},
    {"action": "discard", "which": "oldest", "keep_records": 10},
    {"action": "discard", "which": "oldest", "keep_bytes": "2KB"},
    {"action": "discard", "which": "newest", "keep_records": 10},
    {"action": "discard", "which": "newest", "keep_bytes": "3KB"},
    {"action": "discard", "which": "selector", "selector": SELECTOR},
    {"action": "discard", "which": "topics", "topics": ["+/x/#", "a/b"]},
    {"action": "discard", "which": "lowest_priority", "keep_records": 5},
    {"action": "discard", "which": "older_per_key"},
)  # fmt: skip


def interval_s(rng: Random) -> float:
    """Returns how often a topic is conflated; inf: it is not."""
    return rng.choice((inf, inf, 0.0, 0.3))


def rule(rng: Random) -> dict[str, object]:
    made: dict[str, object] = {"when": rng.choice(_WHEN), "then": rng.choice(_THEN)}
    if rng.random() < 0.5:
        made["for"] = rng.choice(("200ms", "500ms", "2s"))
        if rng.random() < 0.3:
            made["retries"] = 3
    if rng.random() < 0.2:
        made["times"] = 2
    if rng.random() < 0.1:
        made["enforce"] = False
    return made


def policies(rng: Random) -> tuple[Policy, ...]:
    """Up to three policies; the last one often is for everything."""
    made = []
    for number in range(rng.randint(0, 3)):
        kind = rng.choice(("all", "all", "transient", "durable"))
        rules = [rule(rng) for _ in range(rng.randint(1, 3))]
        for one in rules:
            if kind == "transient" and isinstance(one["then"], dict) and "durable" in one["then"]:
                one["then"] = "delete_subscription"
        topics = [rng.choice(("#", "a/#", "b/#", "b/x/#"))]
        made.append(parse_policy({"name": f"policy {number}", "topics": topics, "subscriptions": kind, "rule": rules}))
    return tuple(made)
