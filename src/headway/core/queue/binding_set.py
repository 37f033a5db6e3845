"""A binding set is all bindings of one queue. It gives the name of the feed that the queue reads, and the names by
which policies find the queue.

Queues with equal binding sets read one feed. So the feed's name is made of the names of all bindings, in a fixed order
and without the parts that their exchanges ignore. The names are kept sorted, so a change of one binding moves one
entry. Only the join of the names visits all of them, and that is one copy.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from headway.core.message import TOPICS, spellings, topic_of
from headway.core.routing import Binding

WAYS_BINDINGS_MAX = 64
"""A queue with more bindings than this is found by its name alone, because each change of a binding looks at all."""
_PLAIN = re.compile(r"""[^\s/,()'"]*""")


class BindingSet:
    __slots__ = ("_filters", "_names", "_own", "_texts", "all")

    def __init__(self, queue: str) -> None:
        self._own = queue
        self._names: list[str] = []
        """The names of the bindings, sorted, each once."""
        self._texts: Counter[str] = Counter()
        """The number of bindings with each name."""
        self._filters: Counter[str] = Counter()
        self.all: dict[Binding, None] = {}

    def __len__(self) -> int:
        """Returns the number of names."""
        return len(self._names)

    def change(self, binding: Binding, seen: Binding, *, there: bool) -> None:
        """Adds a binding (``there``) or removes it. ``seen`` is the binding without the parts its exchange ignores."""
        if there:
            self.all[binding] = None
        else:
            self.all.pop(binding, None)
        text, names = binding_name(seen), self._names
        if _count(self._texts, text, there=there):
            at = bisect_left(names, text)
            names[at : at + (not there)] = [text] if there else []
        filter = filter_of(binding.key)
        if binding.source == TOPICS:
            _count(self._filters, filter, there=there)
        _count(self._filters, f"$exchange/{binding.source}/{filter}", there=there)

    def feed_name(self, *, called: bool) -> str:
        """Returns the name of the feed. ``called`` says that the queue is also published to by its own name."""
        own = [f"$queue/{quote_name(self._own)}"] if called or not self._names else []
        return ", ".join(self._names + own)

    def filters(self) -> tuple[str, ...]:
        """Returns the names by which policies find the queue. "#" is for policies that cover everything."""
        return (*spellings(f"$queue/{self._own}"), *self._filters, "#")

    def ways(self, *, called: bool) -> Iterator[Sequence[str]]:
        """Yields the ways in which all that comes to the queue can be named by filters: by its own name, or by the
        bindings that it all comes from. "#" is for pools of everything."""
        yield from ((name,) for name in (*spellings(f"$queue/{self._own}"), "#"))
        if not called and 0 < len(self.all) <= WAYS_BINDINGS_MAX:
            filters = [(binding.source, filter_of(binding.key)) for binding in self.all]
            if all(source == TOPICS for source, _ in filters):
                yield [filter for _, filter in filters]
            yield [f"$exchange/{source}/{filter}" for source, filter in filters]


def _count(counts: Counter[str], text: str, *, there: bool) -> bool:
    """Counts a name up or down. Returns whether it was the first one that came, or the last one that went."""
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
    """Returns a name, quoted if it has special characters. Clients choose the names. Without quotes two different lists
    of names could join to one string, and their queues would share a lane."""
    return text if _PLAIN.fullmatch(text) else repr(text)


def filter_of(pattern: str) -> str:
    """Returns a topic filter that matches at least all topics that a binding's pattern matches."""
    levels: list[str] = []
    for word in topic_of(pattern).split("/"):
        levels.append("+" if word == "*" else word)
        if word == "#":
            break
    return "/".join(levels) or "#"
