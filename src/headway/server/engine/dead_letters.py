"""Dead letters: records that a queue gave up are published to its dead letter exchange, with headers that say why.

The headers are RabbitMQ's: ``x-death`` has one entry with a count for each queue and reason, the latest first; three
more headers repeat the first entry there was.

A record that comes back to a queue that gave it up before would go round for ever, unless a client takes part: sends
the record again, or rejects it. So each record carries the number of times that the broker alone moved it, where no
client can write it (``Properties.moves``). That many of the first entries of ``x-death`` are the broker's own. If the
queue is among them, the record is dropped, counted, and logged. To judge by the whole header would drop a record that a
consumer published again with the headers that it got.

Where the exchange leads to several queues that all give the record up in their turn, no copy passes a queue twice, and
still n queues make n! of them. So ``moves`` has, above the number of moves, as how many bits the broker alone has
multiplied the record; one of more than ``SPREAD_MAX`` is dropped where it would be multiplied again.

Each death writes ``x-death`` anew, so its entries end at ``DEATHS_MAX`` and ``DEATHS_BYTES_MAX``: otherwise a chain of
n queues would cost n² entries. A circle of more queues than that is found by the number of moves. Entries that stay are
not encoded again, and what was written is not read again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from headway.core.base import Reason
from headway.core.broker import Broker
from headway.core.consumer import DeadLetter
from headway.core.message import Run, routing_key_of, topic_of
from headway.core.queue import queue_of
from headway.core.routing import COPIES, Registry
from headway.wire.amqp.primitives import TableField, write_entries, write_long, write_value
from headway.wire.amqp.properties import header_fields, joined, property_values, read, user_texts
from headway.wire.amqp.properties import write as write_properties

DEATHS_MAX = 32
DEATHS_BYTES_MAX = 16 * 1024
MOVES_MAX = 1000
MOVES_BITS = 10
SPREAD_MAX = 16
"""In bits: the copies that one record may become while no client takes part, 65,536."""
_WORDS = {Reason.REJECTED: "rejected", Reason.EXPIRED: "expired", Reason.QUEUE_LENGTH: "maxlen"}
_BY_CLIENTS = (Reason.REJECTED, Reason.DELIVERY_LIMIT)
"""Reasons that say that a client had the record and gave it back."""
_DEATHS = "x-death"
_FIRST = ("x-first-death-reason", "x-first-death-queue", "x-first-death-exchange")
"""Headers that stay as they are, once they are there."""
ARRAY_LEAD_BYTES = 5
"""The type and the size of an array or a table."""


def publish_dead_letter(broker: Broker, letter: DeadLetter, now: float, wall_s: float) -> list[str]:
    """Publishes a dead letter. If its exchange does not exist, or leads to no queue, the record is lost; and if it goes
    round. Returns the queues of that circle."""
    record, terms, registry = letter.record, letter.terms, broker.registry
    exchange = terms.dead_letter_exchange
    known = registry.router.exchanges.by_name.get(exchange or "")
    reason = _WORDS.get(letter.reason, str(letter.reason))
    properties, raw = record.properties, record.properties.native
    if raw is None:
        raw = write_properties(properties, record.qos)
        properties = read(raw).properties
    values, fields = property_values(raw), header_fields(raw)
    past, alone = _past(fields.get(_DEATHS), raw), letter.reason not in _BY_CLIENTS
    moves, spread = record.properties.moves % (1 << MOVES_BITS), record.properties.moves >> MOVES_BITS
    if alone and (circle := _circle(past[:moves], letter.queue, moves)):
        return _dropped(registry, letter, circle)
    if exchange is None or known is None:
        registry.lost({record.publisher: 1}, letter.reason)
        return []
    expiration = values.pop("expiration", None)  # or it would expire again
    told = _account(past, letter, reason, "" if expiration is None else expiration[1:].decode(), wall_s)
    if terms.dead_letter_key is not None:
        fields.pop(COPIES, None)  # the other keys had their copies
    kept = {name: field for name, field in fields.items() if name not in told or name in _FIRST}
    headers = {name: value for name, (value, _) in told.items()} | {name: field.value for name, field in kept.items()}
    encoded = {name: raw for name, (_, raw) in told.items()}
    encoded |= {name: raw[field.start : field.end] for name, field in kept.items()}
    values["headers"] = write_entries(encoded)
    topic = record.topic if terms.dead_letter_key is None else topic_of(terms.dead_letter_key)
    if alone:
        copies = sum(len(feed.queues) for feed in registry.router.route_from(exchange, topic, headers).feeds)
        more = max(0, copies - 1).bit_length()
        if spread and more and spread + more > SPREAD_MAX:
            return _dropped(registry, letter, [letter.queue, *(str(death.said["queue"]) for death in past[:moves])])
        spread += more
    priority = values.get("priority")
    properties = msgspec.structs.replace(
        properties, native=joined(values), user=user_texts(headers, None if priority is None else priority[0]),
        moves=moves + 1 + (spread << MOVES_BITS) if alone else 0,
    )  # fmt: skip
    run = Run(
        topic, record.payload, [len(record.payload)], [0], None, record.qos, properties=properties,
        exchange=exchange, headers=headers,
    )  # fmt: skip
    run.publisher = record.publisher
    published = broker.intake.publish_to(None, run, now)
    if not published.taken or not published.accepted:
        registry.lost({record.publisher: 1}, letter.reason)
    return []


def _dropped(registry: Registry, letter: DeadLetter, passed: list[str]) -> list[str]:
    registry.lost({letter.record.publisher: 1}, Reason.DEAD_LETTER_CYCLE)
    queue = registry.router.queues.get(letter.queue)
    if queue is not None:
        queue_of(queue).drops.by_reason[Reason.DEAD_LETTER_CYCLE] += 1
    return passed


class _Death(NamedTuple):
    """An entry of ``x-death``, and how it was written."""

    said: dict[str, object]
    raw: bytes


def _past(deaths: TableField | None, raw: bytes) -> list[_Death]:
    """Returns the entries of ``x-death``, the latest first. Values of clients that are no such entries are left out."""
    if deaths is None or not isinstance(deaths.value, list):
        return []
    if not all(isinstance(said, dict) for said in deaths.value):  # a client's: each is encoded anew
        encoded = [(said, _encoded(said)) for said in deaths.value[:DEATHS_MAX] if _is_death(said)]
        return [_Death(said, raw) for said, raw in encoded if raw is not None]
    found: list[_Death] = []
    at = deaths.start + ARRAY_LEAD_BYTES
    for said in deaths.value:
        end = at + ARRAY_LEAD_BYTES + int.from_bytes(raw[at + 1 : at + ARRAY_LEAD_BYTES], "big")
        if _is_death(said):
            found.append(_Death(said, raw[at:end]))
        at = end
    return found


def _is_death(said: object) -> bool:
    return isinstance(said, dict) and all(isinstance(said.get(name), str) for name in ("queue", "reason", "exchange"))


def _circle(own: list[_Death], queue: str, moves: int) -> list[str]:
    """Returns the queues that a record passed since it was in this one, the latest first; empty if it was not in it.
    ``own``: the entries that the broker wrote since a client had the record."""
    passed = [str(death.said["queue"]) for death in own]
    if queue in passed:
        return [queue, *passed[: passed.index(queue) + 1]]
    return [queue, *passed] if moves >= MOVES_MAX else []


def _account(
    past: list[_Death], letter: DeadLetter, reason: str, expiration: str, wall_s: float
) -> dict[str, tuple[object, bytes]]:
    """Returns the headers of a dead letter, and how they are written."""
    same = next((one for one in past if (one.said["queue"], one.said["reason"]) == (letter.queue, reason)), None)
    latest: dict[str, object] = {
        "count": 1,
        "reason": reason,
        "queue": letter.queue,
        "time": datetime.fromtimestamp(int(wall_s), UTC),
        "exchange": letter.record.exchange,
        "routing-keys": [routing_key_of(letter.record.topic)],
    }
    if expiration:
        latest["original-expiration"] = expiration
    if same is not None:  # only the count changes for a known queue and reason
        count = same.said.get("count")
        latest = same.said | {"count": (count if isinstance(count, int) else 0) + 1}
    raw = _encoded(latest)
    if raw is None:
        return _account([], letter, reason, expiration, wall_s)
    deaths = [_Death(latest, raw), *(death for death in past if death is not same)]
    first = deaths[-1].said
    stay = _within_limits(deaths)
    told: dict[str, tuple[object, bytes]] = {
        _DEATHS: ([death.said for death in stay], b"A" + write_long(b"".join([death.raw for death in stay])))
    }
    for name, value in zip(_FIRST, (first["reason"], first["queue"], first["exchange"]), strict=True):
        told[name] = value, write_value(value)
    return told


def _encoded(said: dict[str, object]) -> bytes | None:
    """Returns an entry as it is written; None: a client sent numbers in it that cannot be written."""
    try:
        return write_value(said)
    except (OverflowError, ValueError, TypeError):
        return None


def _within_limits(deaths: list[_Death]) -> list[_Death]:
    """Returns the latest entries, as far as there is room. The first one always stays."""
    size = 0
    for count, death in enumerate(deaths[:DEATHS_MAX]):
        size += len(death.raw)
        if size > DEATHS_BYTES_MAX and count:
            return deaths[:count]
    return deaths[:DEATHS_MAX]
