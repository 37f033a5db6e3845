"""Dead letters: records that a queue gave up are published to its dead letter exchange, with headers that say why.

The headers are RabbitMQ's: ``x-death`` has one entry with a count for each queue and reason, the latest first; three
more headers repeat the first entry there was. If a record comes back to a queue that gave it up before, and no client
has rejected it since, it would go round for ever. It is dropped.
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
    """Publishes a dead letter. If its exchange does not exist, or leads to no queue, the record is lost."""
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
    gone = (_DEATHS,) if terms.dead_letter_key is None else (_DEATHS, COPIES)  # the other keys had their copies
    others = {name: value for name, value in headers.items() if name not in gone}
    raw = without_expiration(raw)
    try:
        raw = with_headers(raw, _account(past, letter, reason, key, facts.expiration_ms, wall_s) | others)
    except (OverflowError, ValueError, TypeError):  # a client sent numbers that cannot be encoded
        raw = with_headers(raw, _account([], letter, reason, key, facts.expiration_ms, wall_s) | others)
    facts = read(raw)
    topic = record.topic if terms.dead_letter_key is None else topic_of(terms.dead_letter_key)
    run = Run(
        topic, record.payload, [len(record.payload)], [0], None, record.qos, properties=facts.properties,
        exchange=exchange, headers=facts.headers,
    )  # fmt: skip
    run.publisher = record.publisher
    published = broker.intake.publish_to(None, run, now)
    if not published.taken or not published.accepted:
        broker.registry.lost({record.publisher: 1}, letter.reason)


def _past(deaths: object) -> list[dict[str, object]]:
    """Returns the entries of ``x-death``, the latest first. Values of clients that are no such entries are left out."""
    entries = deaths if isinstance(deaths, list) else []
    return [
        entry for entry in entries
        if isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in ("queue", "reason", "exchange"))
    ]  # fmt: skip


def _goes_round(past: list[dict[str, object]], queue: str, reason: str) -> bool:
    """Returns whether a record goes round without being rejected. ``past``: its entries, the latest first."""
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
    """Returns the headers of a dead letter."""
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
        latest["original-expiration"] = str(expiration_ms)  # the record loses its expiration, or it would expire again
    if same is not None:  # only the count changes for a known queue and reason
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
