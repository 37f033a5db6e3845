"""Exchanges and bindings route a message to queues (AMQP 0-9-1, 3.1.3).

Rules:
- A queue gets a message once, even if several of its bindings match or several paths lead to it.
- The default exchange has no bindings: every queue is bound to it by its own name.
- A message that matches no binding of an exchange goes to its alternate exchange, if it has one.
- An exchange decides by routing key and headers alone. So its decision is computed once for each exchange, key and set
  of headers, and cached until some binding changes (router.py).
- ``TOPICS`` (amq.topic) stands for the topics themselves. A message that reaches it also reaches MQTT subscribers,
  under its routing key; a message that is published to a topic is routed as if it were published to this exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headway.core.base import Reason, Refused
from headway.core.message import TOPICS
from headway.core.routing.matching.bindings import (
    KINDS,
    NO_HEADERS,
    AmqTopic,
    Binding,
    Destination,
    Headers,
    HeadersBindings,
    counted,
    hashable,
)

EXCHANGE_BYTES = 2500
WALK_MAX = 16_384
"""The steps of all exchanges that one message may come to, bound one to another or as alternates: what
``Bindings.weight`` says. They are gone through at once, when a message has a new key."""
LOOKED_MAX = 4096
"""The exchanges that are looked at to tell whether a change keeps to that."""


class Exchange:
    """``bindings`` lead from it elsewhere."""

    __slots__ = ("alternate", "arguments", "auto_delete", "bindings", "durable", "internal", "kind", "name")

    def __init__(
        self, name: str, kind: str, *, durable: bool = False, auto_delete: bool = False, internal: bool = False,
        alternate: str | None = None, arguments: tuple[tuple[str, object], ...] = (),
    ) -> None:  # fmt: skip
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        """Set if the exchange is deleted with the last binding that leads from it."""
        self.internal = internal
        """Set if only other exchanges may publish to this one."""
        self.alternate = alternate
        self.arguments = arguments
        self.bindings = AmqTopic() if name == TOPICS else KINDS[kind]()

    def alike(self) -> Exchange:
        """Returns an exchange with the same terms and without bindings."""
        return Exchange(self.name, self.kind, durable=self.durable, auto_delete=self.auto_delete,
                        internal=self.internal, alternate=self.alternate, arguments=self.arguments)  # fmt: skip

    def difference(self, other: Exchange) -> str:
        """Returns the first field in which the other exchange differs; empty if it is declared the same."""
        fields = ("kind", "durable", "auto_delete", "internal", "alternate", "arguments")
        return next((field for field in fields if getattr(self, field) != getattr(other, field)), "")


class ExchangeRoute(NamedTuple):
    """The queues that a message goes to, and whether it reached ``TOPICS``."""

    queues: tuple[str, ...]
    topics: bool
    by_name: bool = False
    """Set if the message reached the default exchange, which leads to a queue by its name."""


PREDECLARED = (("", "direct"), ("amq.direct", "direct"), ("amq.fanout", "fanout"), (TOPICS, "topic"),
               ("amq.headers", "headers"), ("amq.match", "headers"))  # fmt: skip


class Exchanges:
    """All exchanges and bindings, and the names of all queues."""

    def __init__(self) -> None:
        self.by_name = {name: Exchange(name, kind, durable=True) for name, kind in PREDECLARED}
        self.queues: dict[str, None] = {}
        self.leading_to: dict[Destination, dict[Binding, None]] = {}
        self._before: dict[str, dict[str, int]] = {}
        """The exchanges that lead to each, by bindings or as their alternate, with the number of these."""
        self.bytes = 0
        """The bytes that all exchanges and bindings take up."""
        self.visited = 0
        """The number of entries that the last search for a route looked at."""
        self.looked = 0
        """The number of exchanges that were looked at to check changes, and are not counted as work yet."""
        self.ends_unused = True
        """Set if auto-delete exchanges end with their last binding. It is not set while a journal is restored, because
        the journal tells when they ended."""

    # -- changes ----------------------------------------------------------------------------------------------------

    def add(self, exchange: Exchange) -> None:
        self.by_name[exchange.name] = exchange
        self.bytes += EXCHANGE_BYTES
        if exchange.alternate is not None:
            self._leads(exchange.name, exchange.alternate, 1)

    def add_queue(self, name: str) -> None:
        self.queues[name] = None

    def bind(self, binding: Binding) -> bool:
        """Adds a binding, both ends of which must exist. Returns False if it was there already."""
        if not self.by_name[binding.source].bindings.add(binding):
            return False
        self.leading_to.setdefault(binding.destination, {})[binding] = None
        self.bytes += binding.size
        if binding.destination.kind == "exchange":
            self._leads(binding.source, binding.destination.name, 1)
        return True

    def unbind(self, binding: Binding) -> bool:
        """Removes a binding, and an auto-delete exchange with its last one. Returns False if there was no such
        binding."""
        if not self._unbind(binding):
            return False
        if self._is_unused(binding.source):
            self.remove(binding.source)
        return True

    def _unbind(self, binding: Binding) -> bool:
        source = self.by_name.get(binding.source)
        if source is None or not source.bindings.remove(binding):
            return False
        leading = self.leading_to[binding.destination]
        del leading[binding]
        if not leading:
            del self.leading_to[binding.destination]
        self.bytes -= binding.size
        if binding.destination.kind == "exchange":
            self._leads(binding.source, binding.destination.name, -1)
        return True

    def _is_unused(self, name: str) -> bool:
        """Tells whether an exchange has lost its last binding, and ends with it."""
        exchange = self.by_name.get(name)
        return exchange is not None and exchange.auto_delete and self.ends_unused and not exchange.bindings.all

    def remove(self, name: str) -> None:
        """Removes an exchange and all bindings from and to it, and what ends with these."""
        going = [name]
        for one in going:  # it grows; a chain may be longer than Python's stack
            if one in self.by_name:
                for binding in list(self.by_name[one].bindings.all):
                    self._unbind(binding)
                self._end(one)
                going += self._forget(Destination("exchange", one))

    def _end(self, name: str) -> None:
        """Removes an exchange from which no binding leads."""
        exchange = self.by_name.pop(name)
        self.bytes -= EXCHANGE_BYTES
        if exchange.alternate is not None:
            self._leads(name, exchange.alternate, -1)

    def remove_queue(self, name: str) -> None:
        self.queues.pop(name, None)
        for unused in self._forget(Destination("queue", name)):
            self.remove(unused)

    def _forget(self, destination: Destination) -> list[str]:
        """Removes all bindings to a destination. Returns the exchanges that end with it, which are still there."""
        bindings = list(self.leading_to.get(destination, ()))
        for binding in bindings:
            self._unbind(binding)
        return [binding.source for binding in bindings if self._is_unused(binding.source)]

    def _leads(self, name: str, to: str, by: int) -> None:
        before = self._before.setdefault(to, {})
        counted(before, name, by)
        if not before:
            del self._before[to]

    # -- limits -----------------------------------------------------------------------------------------------------

    def check_room(self, binding: Binding) -> None:
        """Raises :class:`Refused` if a search would take too long with one more binding: that of its exchange, or of
        all exchanges that some message comes to."""
        source, (kind, to) = self.by_name[binding.source].bindings, binding.destination
        if binding in source.all:
            return
        source.check_room(binding)
        more = source.weight(source.steps_more(binding)) - source.weight()
        if kind == "exchange" and to not in source.exchanges:
            self.check_walks(binding.source, more + 1, (to,))
        elif more:
            self.check_walks(binding.source, more)

    def check_walks(self, name: str, more: int = 0, to: tuple[str, ...] = ()) -> None:
        """Raises :class:`Refused` if some message would come to too much when the exchange ``name`` takes ``more``
        steps and also leads to ``to``. Such a message is published to this exchange, or to one that leads to it."""
        common, least = self._walk((name, *to), {})
        most, looked, before = least + more, len(common), {name: None}
        waiting = [name]
        for one in waiting:  # it grows
            further = [source for source in self._before.get(one, ()) if source not in before]
            before |= dict.fromkeys(further)
            waiting += further
            if len(waiting) > LOOKED_MAX:
                break
        self.looked += looked + len(waiting)
        covered = dict(common)
        for one in reversed(waiting):  # the farthest first: they lead to most of the others
            if most > WALK_MAX or looked + len(waiting) > LOOKED_MAX:
                text = f"a message to exchange '{name}', or to one that leads to it, would come to too many exchanges"
                advice = "unbind some of them from each other, or patterns with wildcards from them"
                raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, f"{text} and patterns: {advice}")
            if one not in covered:
                beside, weight = self._walk((one,), common)
                most, looked = max(most, least + more + weight), looked + len(beside)
                self.looked += len(beside)
                covered |= beside

    def _walk(self, first: tuple[str, ...], apart: Mapping[str, None]) -> tuple[dict[str, None], int]:
        """Returns the exchanges to which a message comes that is published to the first ones, as far as that is not too
        much, and their weight, without those in ``apart``."""
        found = {name: None for name in first if name in self.by_name and name not in apart}
        waiting, weight = list(found), 0
        for name in waiting:  # it grows
            exchange = self.by_name[name]
            weight += exchange.bindings.weight()
            if weight > WALK_MAX:
                break
            alternate = () if exchange.alternate is None else (exchange.alternate,)
            for to in (*exchange.bindings.exchanges, *alternate):
                if to in self.by_name and to not in found and to not in apart:
                    found[to] = None
                    waiting.append(to)
        return found, weight

    def looks_at(self, first: str) -> tuple[Mapping[str, int], ...]:
        """Returns the names of the headers that decide where a message goes that is published to an exchange: those of
        each headers exchange it may come to, which follow its bindings as long as none leads to another exchange."""
        names: list[Mapping[str, int]] = []
        visited: dict[str, None] = {}
        waiting = [first]
        while waiting:
            name = waiting.pop()
            exchange = self.by_name.get(name)
            if exchange is None or name in visited:
                continue
            visited[name] = None
            if isinstance(exchange.bindings, HeadersBindings):
                names.append(exchange.bindings.names)
            waiting += exchange.bindings.exchanges
            if exchange.alternate is not None:
                waiting.append(exchange.alternate)
        self.visited = len(visited)
        return tuple(names)

    # -- routing ----------------------------------------------------------------------------------------------------

    def route(self, first: str, key: str, headers: Headers = NO_HEADERS) -> ExchangeRoute:
        """Returns where a message goes that is published to the exchange ``first``."""
        queues: dict[str, None] = {}
        visited: dict[str, None] = {}
        waiting = [first]
        entries, hashed = 0, not headers
        for name in waiting:  # it grows
            exchange = self.by_name.get(name)
            if exchange is None or name in visited:
                continue
            visited[name] = None
            if not name:
                found = [Destination("queue", key)] if key in self.queues else []
            else:
                if not hashed and isinstance(exchange.bindings, HeadersBindings):  # once for all of them
                    headers, hashed = {name: hashable(value) for name, value in headers.items()}, True
                found = list(exchange.bindings.match(key, headers))
                entries += exchange.bindings.visited
            entries += 1 + len(found)
            queues |= dict.fromkeys(to.name for to in found if to.kind == "queue")
            waiting += [to.name for to in found if to.kind == "exchange"]
            if not found and name != TOPICS and exchange.alternate is not None:
                waiting.append(exchange.alternate)
        self.visited = entries
        return ExchangeRoute(tuple(queues), TOPICS in visited, "" in visited)
