"""What the dice decide: names, terms, policies, and how a party behaves."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from headway.core.consumer.request import QueueTerms
from headway.core.policy.rules.rule import Policy, parse_policy

QUEUES = tuple(f"q{number}" for number in range(5))
DEAD = "the dead"
"""A queue without limits behind the exchange of this name; what others leave out goes there."""
EXCHANGES = {"e.direct": "direct", "e.fanout": "fanout", "e.topic": "topic", "e.headers": "headers", "e.rest": "fanout"}
KEYS = ("a", "a.b", "a.c", "b.x.1", "b.y.2", "c")
PATTERNS = ("#", "a.#", "a.*", "*.x.*", "b.#", "#.1", "c", "a.b")
HEADERS: tuple[dict[str, object], ...] = ({}, {"h": 1}, {"h": 2}, {"h": 1, "k": "v"})
WANTED: tuple[dict[str, object], ...] = ({"h": 1}, {"h": 1, "k": "v"}, {"x-match": "any", "h": 2, "k": "v"})


class Manner(NamedTuple):
    """How a party treats its connection. Rates in bytes and times in seconds."""

    name: str
    reads: float = 1e12
    """Bytes a second; 0: never reads."""
    naps: float = 0.0
    ack_delay_s: float = 0.0
    acks: bool = True
    multiple: bool = False
    """It settles everything up to what it is done with."""
    gives_back: float = 0.0
    """How often it gives a record back instead."""
    rejects: float = 0.0
    vanishes: float = 0.0
    healthy: bool = False


HEALTHY = Manner("healthy", healthy=True)
MANNERS = (
    HEALTHY, HEALTHY,
    Manner("multiple", multiple=True, ack_delay_s=0.1),
    Manner("trickle", reads=2000.0),
    Manner("naps", naps=0.03, gives_back=0.1),
    Manner("stuck", reads=0.0),
    Manner("late acks", ack_delay_s=0.7, gives_back=0.05),
    Manner("no acks", acks=False),
    Manner("choosy", rejects=0.2, gives_back=0.2, ack_delay_s=0.05),
    Manner("picky", rejects=0.5, gives_back=0.1, multiple=True),
    Manner("flaps", vanishes=0.02, ack_delay_s=0.2),
    Manner("vanishes", reads=20_000.0, vanishes=0.01, ack_delay_s=0.05, multiple=True),
)  # fmt: skip


def terms(rng: Random, *, may_refuse: bool) -> QueueTerms:
    """Half of all queues are plain."""
    if rng.random() < 0.4:
        return QueueTerms()
    refuses = may_refuse and rng.random() < 0.2
    limited = refuses or rng.random() < 0.25
    by_bytes = limited and rng.random() < 0.3 and not refuses
    return QueueTerms(
        durable=rng.random() < 0.3,
        exclusive=rng.random() < 0.1,
        auto_delete=rng.random() < 0.15,
        ttl_s=rng.choice((0.3, 1.0, 5.0)) if rng.random() < 0.25 else None,
        idle_s=rng.choice((0.5, 2.0)) if rng.random() < 0.1 else None,
        records_max=rng.choice((0, 1, 5, 20)) if limited and not by_bytes else None,
        bytes_max=rng.choice((100, 1000)) if by_bytes else None,
        refuses=refuses,
        dead_letter_exchange=DEAD if rng.random() < 0.5 else None,
        priorities=rng.choice((1, 3, 9)) if rng.random() < 0.2 else 0,
        single_active=rng.random() < 0.15,
    )


_WHEN: tuple[dict[str, object], ...] = (
    {"lag_records": "> 20"}, {"lag_records": "> 2 x prefetch"}, {"lag_bytes": "4KB"}, {"lag_age": "500ms"},
    {"blocked_time": "300ms"}, {"credit_exhausted_time": "300ms"}, {"credit_exhausted_time": "1s"},
    {"ack_age": "500ms"}, {"drain_rate": "< 5000B/s"}, {"pool_share": "10%"},
    {"lag_age": "300ms", "slow_fraction": "< 50%"},
)  # fmt: skip
_THEN: tuple[object, ...] = (
    "notify", "offline", "block_publishers", {"action": "discard", "which": "selector", "selector": "priority > 4"},
    "close_consumer", "disconnect", {"action": "discard", "which": "lowest_priority", "keep_records": 5},
    "delete_subscription", {"action": "return", "older": "300ms"}, {"action": "return", "older": "300ms"},
    {"action": "discard", "which": "oldest", "keep_records": 10},
    {"action": "discard", "which": "oldest", "keep_bytes": "2KB"},
    {"action": "discard", "which": "newest", "keep_records": 10},
    {"action": "discard", "which": "topics", "topics": ["a/b"]},
)  # fmt: skip


def policies(rng: Random) -> tuple[Policy, ...]:
    """One, for everything; often none."""
    if rng.random() < 0.4:
        return ()
    rules: list[dict[str, object]] = []
    if rng.random() < 0.25:
        rules.append({"when": {"ack_age": "400ms"}, "then": {"action": "return", "older": "300ms"}})
    for _ in range(rng.randint(1, 3)):
        rule: dict[str, object] = {"when": rng.choice(_WHEN), "then": rng.choice(_THEN)}
        if isinstance(rule["then"], dict) and rule["then"]["action"] == "return":
            rule["when"] = {"ack_age": "500ms"}
        if rng.random() < 0.4:
            rule["for"] = rng.choice(("200ms", "500ms"))
        rules.append(rule)
    return (parse_policy({"name": "p", "topics": [rng.choice(("#", "$queue/+", "$queue/q1"))], "rule": rules}),)
