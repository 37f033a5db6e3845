"""Arguments of queues, exchanges and bindings, as clients give them: in AMQP's tables, or as headers.

Names are RabbitMQ's. Unknown arguments are ignored, as RabbitMQ does. Known arguments with values that make no sense
are refused, so that nobody relies on a limit that is not in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from headway.core.base import Reason, Refused
from headway.core.consumer import QueueTerms

Table = Mapping[str, object]
T = TypeVar("T")

PRIORITY_MAX = 255
MATCHES = {"all", "any", "all-with-x", "any-with-x"}
"""Values of ``x-match`` in the binding of a headers exchange."""
_OVERFLOW = {"drop-head", "reject-publish", "reject-publish-dlx"}
_QUEUE_TYPES = {"classic", "quorum"}


def read_terms(arguments: Table, *, durable: bool, exclusive: bool, auto_delete: bool) -> QueueTerms:
    """Reads the terms of a queue. Raises :class:`Refused`."""
    _one_of(arguments, "x-queue-type", _QUEUE_TYPES)
    overflow = _one_of(arguments, "x-overflow", _OVERFLOW) or "drop-head"
    exchange = _read(arguments, "x-dead-letter-exchange", _text)
    key = _read(arguments, "x-dead-letter-routing-key", _text)
    if key is not None and exchange is None:
        raise _bad("x-dead-letter-routing-key", "there is no x-dead-letter-exchange")
    ttl_ms = _read(arguments, "x-message-ttl", _count)
    idle_ms = _read(arguments, "x-expires", _count)
    if idle_ms == 0:
        raise _bad("x-expires", "a queue that is to end at once")
    priorities = _read(arguments, "x-max-priority", _count) or 0
    if priorities > PRIORITY_MAX:
        raise _bad("x-max-priority", f"at most {PRIORITY_MAX}, not {priorities}")
    return QueueTerms(
        durable=durable,
        exclusive=exclusive,
        auto_delete=auto_delete,
        ttl_s=None if ttl_ms is None else ttl_ms / 1000,
        idle_s=None if idle_ms is None else idle_ms / 1000,
        records_max=_read(arguments, "x-max-length", _count),
        bytes_max=_read(arguments, "x-max-length-bytes", _count),
        refuses=overflow != "drop-head",
        dead_letter_exchange=exchange,
        dead_letter_key=key,
        dead_letter_refused=overflow == "reject-publish-dlx",
        priorities=priorities,
        single_active=_read(arguments, "x-single-active-consumer", _flag) or False,
        returns_max=_read(arguments, "x-delivery-limit", _limit),
    )


def read_alternate(arguments: Table) -> str | None:
    """Reads the name of an exchange's alternate exchange. Raises :class:`Refused`."""
    return _read(arguments, "alternate-exchange", _text)


def _read(arguments: Table, name: str, read: Callable[[str, object], T]) -> T | None:
    return read(name, arguments[name]) if name in arguments else None


def _count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _bad(name, f"a number from 0 on, not {value!r}")
    return value


def _limit(name: str, value: object) -> int | None:
    """Reads a limit; -1 means that there is none."""
    return None if value == -1 else _count(name, value)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _bad(name, f"a text, not {value!r}")
    return value


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _bad(name, f"true or false, not {value!r}")
    return value


def _one_of(arguments: Table, name: str, known: set[str]) -> str | None:
    value = _read(arguments, name, _text)
    if value is not None and value not in known:
        raise _bad(name, f"{' or '.join(sorted(known))}, not {value!r}")
    return value


def _bad(name: str, text: str) -> Refused:
    return Refused(Reason.PRECONDITION_FAILED, f"invalid arg '{name}': {text}")
