"""Dead letters: records that a queue gave up are published anew, to its dead letter exchange, and say what became of
them.

What is said is what RabbitMQ says: a header ``x-death``, the latest first, one entry for each queue and reason with a
count, and the first of them once more in three headers of their own. A record that comes back to a queue that gave it
up before, without a client having rejected it since, would go round for ever: it is dropped.
"""

from __future__ import annotations

from datetime import UTC, datetime

from headway.core.base import Reason
from headway.core.broker import Broker
from headway.core.consumer import DeadLetter
from headway.core.message import Run, routing_key_of, topic_of
from headway.core.routing import COPIES
from headway.wire.amqp.properties import read, with_headers, without_expiration
from headway.wire.amqp.properties import write as write_properties

_WORDS = {Reason.REJECTED: "rejected", Reason.EXPIRED: "expired", Reason.QUEUE_LENGTH: "maxlen"}
_DEATHS = "x-death"


def publish_dead_letter(broker: Broker, letter: DeadLetter, now: float, wall_s: float) -> None:
    """Publish a dead letter. Where there is no such exchange, or no queue behind it, it is gone."""
    record, terms = letter.record, letter.terms
    exchange = terms.dead_letter_exchange
    known = broker.registry.router.exchanges.by_name.get(exchange or "")
    reason = _WORDS.get(letter.reason, str(letter.reason))
    raw = record.properties.native
    if raw is None:
        raw = write_properties(record.properties, record.qos)
    facts = read(raw)
    headers = dict(facts.headers)
    past = _past(headers.get(_DEATHS))
    if exchange is None or known is None or _goes_round(past, letter.queue, reason):
        broker.registry.lost({record.publisher: 1}, letter.reason)
        return
    key = routing_key_of(record.topic)
    gone = (_DEATHS,) if terms.dead_letter_key is None else (_DEATHS, COPIES)  # who it was copied to had it
    others = {name: value for name, value in headers.items() if name not in gone}
    raw = without_expiration(raw)
    try:
        raw = with_headers(raw, _account(past, letter, reason, key, facts.expiration_ms, wall_s) | others)
    except (OverflowError, ValueError, TypeError):  # a client made up numbers that cannot be written again
        raw = with_headers(raw, _account([], letter, reason, key, facts.expiration_ms, wall_s) | others)
    facts = read(raw)
    topic = record.topic if terms.dead_letter_key is None else topic_of(terms.dead_letter_key)
    run = Run(
        topic, record.payload, [len(record.payload)], [0], None, record.qos, False, facts.properties, None, exchange,
        facts.headers,
    )  # fmt: skip
    run.publisher = record.publisher
    published = broker.publish_to(None, run, now)
    if not published.taken or not published.accepted:
        broker.registry.lost({record.publisher: 1}, letter.reason)


def _past(deaths: object) -> list[dict[str, object]]:
    """The latest first. What a client made up and is no such entry is left out."""
    entries = deaths if isinstance(deaths, list) else []
    return [
        entry for entry in entries
        if isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in ("queue", "reason", "exchange"))
    ]  # fmt: skip


def _goes_round(past: list[dict[str, object]], queue: str, reason: str) -> bool:
    """``past``: the latest first."""
    if reason == "rejected":
        return False
    for death in past:
        if death.get("reason") == "rejected":
            return False
        if death.get("queue") == queue:
            return True
    return False


def _account(
    past: list[dict[str, object]], letter: DeadLetter, reason: str, key: str, expiration_ms: int | None, wall_s: float
) -> dict[str, object]:
    """The headers that say so."""
    same = next((d for d in past if d.get("queue") == letter.queue and d.get("reason") == reason), None)
    latest: dict[str, object] = {
        "count": 1,
        "reason": reason,
        "queue": letter.queue,
        "time": datetime.fromtimestamp(int(wall_s), UTC),
        "exchange": letter.record.exchange,
        "routing-keys": [key],
    }
    if expiration_ms is not None:
        latest["original-expiration"] = str(expiration_ms)  # the lifetime itself is taken away, or it would die again
    if same is not None:  # of what is said about a queue and a reason only the count changes
        count = same.get("count")
        latest = same | {"count": (count if isinstance(count, int) else 0) + 1}
    deaths = [latest, *(death for death in past if death is not same)]
    first = deaths[-1]
    return {
        _DEATHS: deaths,
        "x-first-death-reason": first["reason"],
        "x-first-death-queue": first["queue"],
        "x-first-death-exchange": first["exchange"],
    }
