"""What one queue is bound by: the name of the feed it reads, and the names it goes by for policies.

Queues with equal sets of bindings, as their exchanges look at them, read one feed; so its name is made of all of them,
in an order that does not depend on when they came. A binding more or less is one place in sorted names, however many
there are: only putting the names together goes through all of them, and that is one copy.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter

from headway.core.message import TOPICS, topic_of
from headway.core.routing import Binding

_PLAIN = re.compile(r"""[^\s/,()'"]*""")


class BindingSet:
    __slots__ = ("_filters", "_names", "_own", "_texts")

    def __init__(self, queue: str) -> None:
        self._own = queue
        self._names: list[str] = []
        """Of bindings as they are seen, in order, each once."""
        self._texts: Counter[str] = Counter()
        """How many bindings look so."""
        self._filters: Counter[str] = Counter()

    def change(self, binding: Binding, seen: Binding, *, there: bool) -> None:
        """A binding is there now, or is no more. ``seen``: without what its exchange does not look at."""
        text, names = binding_name(seen), self._names
        if _count(self._texts, text, there=there):
            at = bisect_left(names, text)
            names[at : at + (not there)] = [text] if there else []
        filter = filter_of(binding.key)
        if binding.source == TOPICS:
            _count(self._filters, filter, there=there)
        _count(self._filters, f"$exchange/{binding.source}/{filter}", there=there)

    def feed_name(self, *, called: bool) -> str:
        """``called``: what is published to the queue by its name counts, too."""
        own = [f"$queue/{quote_name(self._own)}"] if called or not self._names else []
        return ", ".join(self._names + own)

    def filters(self) -> tuple[str, ...]:
        """The names it goes by for policies; "#" is for those that are for everything."""
        return (f"$queue/{self._own}", *self._filters, "#")


def _count(counts: Counter[str], text: str, *, there: bool) -> bool:
    """Whether it was the first of its kind, or the last."""
    counts[text] += 1 if there else -1
    if not counts[text]:
        del counts[text]
        return True
    return there and counts[text] == 1


def binding_name(binding: Binding) -> str:
    arguments = ", ".join(f"{quote_name(name)}={value!r}" for name, value in binding.arguments)
    source, key = quote_name(binding.source), topic_of(quote_name(binding.key))
    return f"$exchange/{source}/{key}{f' ({arguments})' if arguments else ''}"


def quote_name(text: str) -> str:
    """Clients choose these: written so that no two lists of them look alike, or they would share a lane."""
    return text if _PLAIN.fullmatch(text) else repr(text)


def filter_of(pattern: str) -> str:
    """A topic filter that takes in all that a binding's pattern does."""
    levels: list[str] = []
    for word in topic_of(pattern).split("/"):
        levels.append("+" if word == "*" else word)
        if word == "#":
            break
    return "/".join(levels) or "#"
