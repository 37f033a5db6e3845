"""Addresses, as their forms say what is meant. What a plain name means is found out by the broker's side.

| Form | Means |
|---|---|
| ``queue://NAME``, ``/queues/NAME``, ``/queue/NAME`` | the queue |
| ``topic://NAME``, ``/topics/NAME``, ``/topic/NAME`` | the topic; dots stand between words, or slashes |
| ``/exchanges/EXCHANGE/KEY``, ``/exchange/EXCHANGE/KEY`` | an exchange and a routing key |
| ``EXCHANGE/KEY``, where EXCHANGE begins with ``amq.`` | the same, as Qpid writes it |
| anything else | plain |

Behind ``/queues/``, ``/exchanges/`` and ``/topics/`` names are percent-encoded, as RabbitMQ 4 has them.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")


class Kind(Enum):
    QUEUE = "queue"
    TOPIC = "topic"
    EXCHANGE = "exchange"
    PLAIN = "plain"


class Named(NamedTuple):
    """``key``: the routing key, or binding key; of an exchange only."""

    kind: Kind
    name: str
    key: str = ""


def _decoded(text: str) -> str:
    if "%" not in text:
        return text
    raw = _PERCENT.sub(lambda found: bytes((int(found[1], 16),)), text.encode())
    return raw.decode(errors="replace")


_PREFIXES = {
    "queue://": (Kind.QUEUE, False), "topic://": (Kind.TOPIC, False),
    "/queues/": (Kind.QUEUE, True), "/topics/": (Kind.TOPIC, True), "/exchanges/": (Kind.EXCHANGE, True),
    "/queue/": (Kind.QUEUE, False), "/topic/": (Kind.TOPIC, False), "/exchange/": (Kind.EXCHANGE, False),
    "/amq/queue/": (Kind.QUEUE, False),
}  # fmt: skip
"""Kinds by prefixes, and whether what follows is percent-encoded."""


def read_address(text: str) -> Named:
    for prefix, (kind, encoded) in _PREFIXES.items():
        if text.startswith(prefix):
            return _named(kind, text[len(prefix) :], encoded=encoded)
    if text.startswith("amq.") and "/" in text:
        return _named(Kind.EXCHANGE, text)
    return Named(Kind.PLAIN, text)


def _named(kind: Kind, rest: str, *, encoded: bool = False) -> Named:
    name, _, key = rest.partition("/") if kind is Kind.EXCHANGE else (rest, "", "")
    return Named(kind, _decoded(name), _decoded(key)) if encoded else Named(kind, name, key)
