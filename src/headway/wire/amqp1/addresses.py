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


def _pair(rest: str, *, encoded: bool) -> Named:
    name, _, key = rest.partition("/")
    return Named(Kind.EXCHANGE, _decoded(name), _decoded(key)) if encoded else Named(Kind.EXCHANGE, name, key)


def read_address(text: str) -> Named:
    for scheme, kind in (("queue://", Kind.QUEUE), ("topic://", Kind.TOPIC)):
        if text.startswith(scheme):
            return Named(kind, text[len(scheme) :])
    if text.startswith("/queues/"):
        return Named(Kind.QUEUE, _decoded(text[8:]))
    if text.startswith("/topics/"):
        return Named(Kind.TOPIC, _decoded(text[8:]))
    if text.startswith("/exchanges/"):
        return _pair(text[11:], encoded=True)
    if text.startswith("/queue/"):
        return Named(Kind.QUEUE, text[7:])
    if text.startswith("/topic/"):
        return Named(Kind.TOPIC, text[7:])
    if text.startswith("/exchange/"):
        return _pair(text[10:], encoded=False)
    if text.startswith("/amq/queue/"):
        return Named(Kind.QUEUE, text[11:])
    if text.startswith("amq.") and "/" in text:
        return _pair(text, encoded=False)
    return Named(Kind.PLAIN, text)
