"""Grants: the filters of all permissions that apply to one user, for each operation.

``%u`` is filled in once per user, ``%c`` once per client. A name that could be more than a part of one level widens no
filter: where it is empty, begins with "$", has a "/", "+", "#" or NUL in it, or brings a ``%c``, the filter is left
out. In filters of queues, where dots part words, a name with a dot is not filled in, either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from headway.core.message import FilterTrie, covers, overlaps, spellings
from headway.core.permission.rule import QUEUES, Operation, Permission

USER, CLIENT = "%u", "%c"
_UNSAFE = re.compile(r"^\$|[/+#\0]")


def fill(filter: str, placeholder: str, name: str) -> str | None:
    """Returns the filter with a name in the place of ``%u`` or ``%c``; None: this name may not stand there."""
    if placeholder not in filter:
        return filter
    if not name or _UNSAFE.search(name) or (filter.startswith(QUEUES) and "." in name):
        return None
    filled = filter.replace(placeholder, name)
    if placeholder == USER and filled.count(CLIENT) > filter.count(CLIENT):
        return None  # the client id would stand in the place of the user's name
    return filled


def fill_all(filters: Iterable[str], placeholder: str, name: str) -> Iterator[str]:
    """Yields those of the filters in which this name may stand, with it in the place of ``%u`` or ``%c``."""
    for filter in filters:
        filled = fill(filter, placeholder, name)
        if filled is not None:
            yield filled


class FilterSet:
    """Filters of which one has to cover what is asked for."""

    __slots__ = ("_trie", "filters")

    def __init__(self, filters: Iterable[str]) -> None:
        self.filters = tuple(dict.fromkeys(filters))
        self._trie: FilterTrie[None] = FilterTrie()
        for filter in self.filters:
            self._trie.add(filter, None)

    def allows(self, name: str) -> bool:
        """Tells whether some filter matches a name."""
        return bool(self.filters) and any(self._trie.match(one) for one in _spellings(name))

    def covers(self, filter: str) -> bool:
        """Tells whether one of the filters matches everything that ``filter`` matches."""
        return any(covers(wide, one) for one in _spellings(filter) for wide in self.filters)

    def touches(self, filter: str) -> bool:
        """Tells whether one of the filters matches something of ``filter``."""
        return any(self.parts_of(one) for one in _spellings(filter))

    def parts_of(self, filter: str) -> list[str]:
        """Returns the filters that match something of ``filter``."""
        return [one for one in self.filters if filter and overlaps(one, filter)]


def _spellings(name: str) -> tuple[str, ...]:
    """Returns the names that stand for this one. The empty topic, which AMQP has, is one level."""
    return spellings(name) if name else ("\0",)


NOTHING = FilterSet(())
ANYTHING = "\0"
"""Stands for all names, also those that begin with "$". No permission can have it."""


class Grants:
    """The filters that one user has. Those with ``%c`` in them wait for the client id."""

    __slots__ = ("_filters", "applies", "sets", "templates")

    def __init__(self, user: str, rules: Iterable[Permission]) -> None:
        found: dict[Operation, list[str]] = {operation: [] for operation in Operation}
        self.templates: dict[Operation, tuple[str, ...]] = {}
        self.applies = False
        """Whether there is a permission for this user at all."""
        for rule in rules:
            for operation in Operation:
                found[operation] += fill_all(rule.filters(operation), USER, user)
        self._filters = {operation: frozenset(filters) for operation, filters in found.items()}
        for operation, filters in found.items():
            self.applies = self.applies or bool(filters)
            if waiting := tuple(filter for filter in filters if CLIENT in filter):
                self.templates[operation] = waiting
        self.sets: Mapping[Operation, FilterSet] = {
            operation: FilterSet(filter for filter in filters if CLIENT not in filter)
            for operation, filters in found.items() if filters
        }  # fmt: skip

    def same_as(self, other: Grants) -> bool:
        return self is other or self._filters == other._filters

    def less_than(self, before: Grants) -> frozenset[Operation]:
        """Returns the operations for which something that ``before`` allowed may be denied now. Connecting is among
        them wherever it is another matter than before: there a filter more allows less."""
        less = {operation for operation in Operation if not before._filters[operation] <= self._filters[operation]}
        connect = Operation.CONNECT
        if before.applies != self.applies or before._filters[connect] != self._filters[connect]:
            less.add(connect)
        return frozenset(less)

    def of_client(self, client: str) -> dict[Operation, FilterSet]:
        """Returns the filters that only this client id brings."""
        return {operation: FilterSet(fill_all(templates, CLIENT, client))
                for operation, templates in self.templates.items()}  # fmt: skip


class AllGrants(Grants):
    """Those of everybody while there are no permissions: they allow everything."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("", ())
        self._filters = dict.fromkeys(Operation, frozenset({ANYTHING}))

    def less_than(self, before: Grants) -> frozenset[Operation]:
        return frozenset()
