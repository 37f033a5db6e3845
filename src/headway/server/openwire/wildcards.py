"""Consumers of queues whose names have wildcards. Such a consumer is a member of each queue that matches, and becomes
one of each that is made later.

- Queues of one connection alone, and those of durable subscriptions, match no wildcard; the latter do where the pattern
  begins with their prefix.
- A queue that is made is offered to all such consumers over the turns to come. One whose client may not read it, or
  that has ``MATCHED_MAX`` queues already, does not get it; the log says so of some.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from weakref import WeakKeyDictionary

from headway.core.base import WorkSteps
from headway.core.clients import queue_object
from headway.core.permission import ALL_RIGHTS, Operation, Rights
from headway.core.queue import Queue, queue_of
from headway.server.engine import Engine
from headway.server.openwire.consumer import Consumer

log = logging.getLogger("headway")

MATCHED_MAX = 500
"""Queues of one consumer with wildcards."""
PATTERNS_MAX = 8
"""Names with wildcards in one destination."""
PORTION = 32
"""Queues that are looked at in one step."""
CHARS, MATCHED_CHARS = 16, 32
"""So many characters that are compared are one unit of work; a name counts as so many more."""
DURABLE_QUEUES = "durable."
"""The prefix of the queues of durable subscriptions, of every protocol that has names for these."""
Join = Callable[["Consumer", Queue, str], int]
"""Makes a consumer a member of a queue, under a name for that. Returns the work."""


class Pattern:
    """One name with wildcards, of a consumer."""

    __slots__ = ("_words", "number", "text")

    def __init__(self, text: str, number: int = 0) -> None:
        self.text = text
        self._words = text.split(".")
        self.number = number
        """The place of the name in the consumer's destination."""

    def matches(self, queue: Queue) -> bool:
        name = queue.name
        if queue.owner is not None or (name.startswith(DURABLE_QUEUES) and not self.text.startswith(DURABLE_QUEUES)):
            return False
        words = name.split(".")
        for number, word in enumerate(self._words):
            if word == ">":
                return True
            if number >= len(words) or word not in ("*", words[number]):
                return False
        return len(self._words) == len(words)


Finding = Generator[int, None, list[tuple[Queue, Pattern]]]
"""Steps that end with the queues that were found, each with its pattern."""


class Wildcards:
    """The consumers with wildcards of all connections of a broker, each with how it joins a queue."""

    def __init__(self) -> None:
        self.consumers: dict[Consumer, tuple[list[Pattern], Join]] = {}

    def offer(self, queue: Queue) -> WorkSteps:
        """Offers a queue that was made to each of them, one per step."""
        for consumer, (patterns, join) in list(self.consumers.items()):
            if queue.ended:
                return
            pattern = next((one for one in patterns if one.matches(queue)), None)
            work = 0
            if pattern is not None and consumer in self.consumers:
                work = join(consumer, queue, f"{pattern.number}/{queue.name}")
            yield len(patterns) + work


_OF: WeakKeyDictionary[Engine, Wildcards] = WeakKeyDictionary()


def wildcards_of(engine: Engine) -> Wildcards:
    """Returns the consumers with wildcards of a broker."""
    found = _OF.get(engine)
    if found is None:
        found = _OF[engine] = Wildcards()
        registry = engine.broker.registry

        def made(queue: Queue) -> None:
            if found.consumers:
                registry.deferred.begin(found.offer(queue), registry.deferred.now)

        engine.broker.queues.made.append(made)
    return found


def queues_that_match(engine: Engine, patterns: list[Pattern], rights: Rights) -> Finding:
    """Finds the queues that match now and that may be consumed from, each with its first pattern, in steps."""
    found: list[tuple[Queue, Pattern]] = []
    queues = list(engine.broker.registry.router.queues.values())
    for at in range(0, len(queues), PORTION):
        some = list(map(queue_of, queues[at : at + PORTION]))
        for queue in some:
            pattern = next((one for one in patterns if one.matches(queue)), None)
            if pattern is not None and (
                rights is ALL_RIGHTS or rights.covers(Operation.SUBSCRIBE, queue_object(queue.name))
            ):
                found.append((queue, pattern))
        yield 1 + sum(CHARS + len(queue.name) for queue in some) * len(patterns) // MATCHED_CHARS
    return found
