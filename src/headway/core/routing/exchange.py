"""Exchanges and bindings: which queues a message goes to (AMQP 0-9-1, 3.1.3).

Rules:
- A queue gets a message once, however many of its bindings match, and on however many ways it is reached.
- The default exchange has no bindings: every queue is bound to it by its own name.
- What finds no binding of an exchange goes to its alternate exchange, if it has one.
- What an exchange decides depends on routing key and headers alone, so it can be worked out once for each exchange, key
  and set of headers, and remembered until some binding changes (router.py).
- ``TOPICS`` (amq.topic) is the topics themselves: whatever reaches it, under its routing key, reaches MQTT subscribers
  too, and what is published to a topic is routed as if it had been published there.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.core.message import TOPICS
from headway.core.routing.bindings import KINDS, NO_HEADERS, Binding, ByHeaders, Destination, Headers, Topics

EXCHANGE_BYTES = 2500


class Exchange:
    """``bindings``: what leads from it elsewhere."""

    __slots__ = ("alternate", "arguments", "auto_delete", "bindings", "durable", "internal", "kind", "name")

    def __init__(
        self, name: str, kind: str, *, durable: bool = False, auto_delete: bool = False, internal: bool = False,
        alternate: str | None = None, arguments: tuple[tuple[str, object], ...] = (),
    ) -> None:  # fmt: skip
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        """It goes with the last binding that leads from it."""
        self.internal = internal
        """Nobody may publish to it but other exchanges."""
        self.alternate = alternate
        self.arguments = arguments
        self.bindings = Topics() if name == TOPICS else KINDS[kind]()

    def alike(self) -> Exchange:
        """Another one, on the same terms, without bindings."""
        return Exchange(self.name, self.kind, durable=self.durable, auto_delete=self.auto_delete,
                        internal=self.internal, alternate=self.alternate, arguments=self.arguments)  # fmt: skip

    def difference(self, other: Exchange) -> str:
        """The first thing in which another of this name differs; empty: declared once more, all the same."""
        fields = ("kind", "durable", "auto_delete", "internal", "alternate", "arguments")
        return next((field for field in fields if getattr(self, field) != getattr(other, field)), "")


class ExchangeRoute(NamedTuple):
    """Where a message goes. ``topics``: the keys under which it reached ``TOPICS``, at most one."""

    queues: tuple[str, ...]
    topics: bool
    by_name: bool = False
    """It reached the default exchange."""


PREDECLARED = (("", "direct"), ("amq.direct", "direct"), ("amq.fanout", "fanout"), (TOPICS, "topic"),
               ("amq.headers", "headers"), ("amq.match", "headers"))  # fmt: skip


class Exchanges:
    """All of them, and the names of the queues there are."""

    def __init__(self) -> None:
        self.by_name = {name: Exchange(name, kind, durable=True) for name, kind in PREDECLARED}
        self.queues: dict[str, None] = {}
        self._leading_to: dict[Destination, dict[Binding, None]] = {}
        self.bytes = 0
        """What all that was declared takes up."""
        self.visited = 0
        """Places that the last search for a route looked at."""
        self.ends_unused = True
        """Exchanges end with their last binding, if they are to. Not while the past is made again: it is known."""

    # -- changes ----------------------------------------------------------------------------------------------------

    def add(self, exchange: Exchange) -> None:
        self.by_name[exchange.name] = exchange
        self.bytes += EXCHANGE_BYTES

    def add_queue(self, name: str) -> None:
        self.queues[name] = None

    def bind(self, binding: Binding) -> bool:
        """Both ends are there. False: they were bound so already."""
        if not self.by_name[binding.source].bindings.add(binding):
            return False
        self._leading_to.setdefault(binding.destination, {})[binding] = None
        self.bytes += binding.size
        return True

    def unbind(self, binding: Binding) -> bool:
        """False: they were not bound so. An exchange that is to be deleted with its last binding is."""
        source = self.by_name.get(binding.source)
        if source is None or not source.bindings.remove(binding):
            return False
        leading = self._leading_to[binding.destination]
        del leading[binding]
        if not leading:
            del self._leading_to[binding.destination]
        self.bytes -= binding.size
        if source.auto_delete and self.ends_unused and not source.bindings.all:
            self.remove(source.name)
        return True

    def remove(self, name: str) -> None:
        """An exchange, with all that leads from and to it."""
        exchange = self.by_name.pop(name, None)
        if exchange is None:
            return
        self.bytes -= EXCHANGE_BYTES + sum(binding.size for binding in exchange.bindings.all)
        for binding in list(exchange.bindings.all):
            exchange.bindings.remove(binding)
            self._leading_to[binding.destination].pop(binding, None)
        self._forget(Destination("exchange", name))

    def remove_queue(self, name: str) -> None:
        self.queues.pop(name, None)
        self._forget(Destination("queue", name))

    def _forget(self, destination: Destination) -> None:
        for binding in list(self._leading_to.get(destination, ())):
            self.unbind(binding)

    def bound_to(self, destination: Destination) -> list[Binding]:
        return list(self._leading_to.get(destination, ()))

    def looks_at(self, first: str) -> frozenset[str]:
        """The names of the headers that decide where a message goes that is published to an exchange."""
        names: frozenset[str] = frozenset()
        visited: dict[str, None] = {}
        waiting = [first]
        while waiting:
            name = waiting.pop()
            exchange = self.by_name.get(name)
            if exchange is None or name in visited:
                continue
            visited[name] = None
            if isinstance(exchange.bindings, ByHeaders):
                names |= exchange.bindings.names
            leading = exchange.bindings.all
            waiting += {b.destination.name: None for b in leading if b.destination.kind == "exchange"}
            if exchange.alternate is not None:
                waiting.append(exchange.alternate)
        return names

    # -- routing ----------------------------------------------------------------------------------------------------

    def route(self, first: str, key: str, headers: Headers = NO_HEADERS) -> ExchangeRoute:
        """Where a message goes."""
        queues: dict[str, None] = {}
        visited: dict[str, None] = {}
        waiting = [first]
        places = 0
        while waiting:
            name = waiting.pop(0)
            exchange = self.by_name.get(name)
            if exchange is None or name in visited:
                continue
            visited[name] = None
            if not name:
                found = [Destination("queue", key)] if key in self.queues else []
            else:
                found = list(exchange.bindings.match(key, headers))
                places += exchange.bindings.visited
            places += 1 + len(found)
            queues |= dict.fromkeys(to.name for to in found if to.kind == "queue")
            waiting += [to.name for to in found if to.kind == "exchange"]
            if not found and name != TOPICS and exchange.alternate is not None:
                waiting.append(exchange.alternate)
        self.visited = places
        return ExchangeRoute(tuple(queues), TOPICS in visited, "" in visited)
