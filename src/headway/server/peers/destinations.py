"""Destinations as clients of message brokers name them: with dots between words, ActiveMQ's and RabbitMQ's wildcards.

A topic's dots are the slashes of the broker's topics. ``*`` stands for one word, ``>`` or ``#`` at the end for the
rest. Commas separate the parts of a composite name. Names of queues are plain; they have no wildcards.

Virtual topics are as ActiveMQ has them by default: the queue ``Consumer.NAME.VirtualTopic.X`` gets what is sent to the
topic ``VirtualTopic.X``, from the time on when somebody first consumes from it. So each NAME has all messages, and its
consumers share them. X may have wildcards: such a queue gets what is sent to all these topics.
"""

from __future__ import annotations

import re

from headway.core.base import Reason, Refused
from headway.core.message import routing_key_of, topic_of

REST = (">", "#")
_WILD = "*>#+"
_VIRTUAL = re.compile(r"Consumer\.[^.*>#]+\.(VirtualTopic\..+)", re.DOTALL)


def filter_of(name: str) -> str:
    """Returns the filter of a topic's name. Raises :class:`Refused`."""
    words = _words(name)
    return "/".join("+" if word == "*" else "#" if word in REST else topic_of(word) for word in words)


def binding_key_of(name: str) -> str:
    """Returns the key that binds a queue to the topics of this name. Raises :class:`Refused`."""
    return ".".join("#" if word in REST else word for word in _words(name))


def topic_named(name: str) -> str:
    """Returns the topic that records are published to. Raises :class:`Refused`."""
    if any(char in name for char in "#+") or any(word in ("*", ">") for word in name.split(".")):
        raise Refused(Reason.PROTOCOL_ERROR, f"topic {name[:100]!r}: wildcards are for subscribers")
    return topic_of(name)


def name_of_topic(topic: str) -> str:
    """Returns a topic's name, with dots."""
    return routing_key_of(topic)


def parts_of(name: str) -> list[str]:
    """Returns the names in a composite one."""
    return [part for part in (part.strip() for part in name.split(",")) if part]


def virtual_topic_of(queue: str) -> str | None:
    """Returns the name of the topic whose messages a queue of this name gets; None: of none."""
    found = _VIRTUAL.fullmatch(queue)
    return None if found is None else found[1]


def _words(name: str) -> list[str]:
    words = name.split(".")
    for number, word in enumerate(words, 1):
        if word in REST and number < len(words):
            raise Refused(Reason.PROTOCOL_ERROR, f"topic {name[:100]!r}: {word!r} stands at the end of the name")
        if len(word) > 1 and any(char in word for char in _WILD):
            text = f"topic {name[:100]!r}: a wildcard is a whole word between dots, as in flights.*.late"
            raise Refused(Reason.PROTOCOL_ERROR, text)
    return words
