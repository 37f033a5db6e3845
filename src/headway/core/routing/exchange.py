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

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from headway.core.message import TOPICS

Headers = Mapping[str, object]
NO_HEADERS: Headers = {}
EXCHANGE_BYTES = 2500
BINDING_BYTES = 1000
WORDS_MAX = 128
"""A routing key has 255 bytes at most, and so no more words. Of a topic that has more, the rest is one word."""
Match = Literal["all", "any", "all-with-x", "any-with-x"]


class Destination(NamedTuple):
    kind: Literal["queue", "exchange"]
    name: str


class Binding(NamedTuple):
    source: str
    destination: Destination
    key: str
    arguments: tuple[tuple[str, object], ...] = ()
    """Sorted by name; of a headers exchange what to look for, and ``x-match``."""

    @property
    def size(self) -> int:
        """About what it takes up, with its place in the tables."""
        return BINDING_BYTES + 4 * len(self.key) + (len(repr(self.arguments)) if self.arguments else 0)


class Bindings(ABC):
    """Those of one exchange."""

    def __init__(self) -> None:
        self.all: dict[Binding, None] = {}
        self.visited = 0
        """Places that the last match looked at, besides those that it found."""

    def add(self, binding: Binding) -> bool:
        """False: it was there already."""
        if binding in self.all:
            return False
        self.all[binding] = None
        self._enter(binding)
        return True

    def remove(self, binding: Binding) -> bool:
        """False: it was not there."""
        if self.all.pop(binding, self) is self:
            return False
        self._leave(binding)
        return True

    @abstractmethod
    def seen(self, binding: Binding) -> Binding:
        """Without what is not looked at: bindings that are then equal let the same messages through."""

    @abstractmethod
    def match(self, key: str, headers: Headers) -> Iterator[Destination]:
        """Where a message goes; some more than once."""

    def _enter(self, binding: Binding) -> None:  # noqa: B027  some need no index
        """Index it."""

    def _leave(self, binding: Binding) -> None:  # noqa: B027
        """Take it out of the index."""


class Direct(Bindings):
    """The routing key is the binding's."""

    def __init__(self) -> None:
        super().__init__()
        self._by_key: dict[str, dict[Binding, None]] = {}

    def seen(self, binding: Binding) -> Binding:
        return binding._replace(arguments=())

    def match(self, key: str, headers: Headers) -> Iterator[Destination]:
        return (binding.destination for binding in self._by_key.get(key, ()))

    def _enter(self, binding: Binding) -> None:
        self._by_key.setdefault(binding.key, {})[binding] = None

    def _leave(self, binding: Binding) -> None:
        del self._by_key[binding.key][binding]
        if not self._by_key[binding.key]:
            del self._by_key[binding.key]


class Fanout(Bindings):
    """Everything, whatever its key."""

    def seen(self, binding: Binding) -> Binding:
        return binding._replace(key="", arguments=())

    def match(self, key: str, headers: Headers) -> Iterator[Destination]:
        return (binding.destination for binding in self.all)


class _Word:
    """``many``: it is a "#", from which one more word leads back to it."""

    __slots__ = ("bindings", "many", "next")

    def __init__(self, *, many: bool = False) -> None:
        self.many = many
        self.next: dict[str, _Word] = {}
        self.bindings: dict[Binding, None] = {}


class Topic(Bindings):
    """Patterns of words with dots between: ``*`` is one word, ``#`` any number of them, none included; anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self._root = _Word()

    def seen(self, binding: Binding) -> Binding:
        return binding._replace(arguments=())

    def match(self, key: str, headers: Headers) -> Iterator[Destination]:
        nodes, wild, visited = {self._root: None}, not self.spares(key), 0
        for word in key.split(".", WORDS_MAX - 1) if key else ():
            if wild:
                _or_none(nodes)
            visited += len(nodes)
            following: dict[_Word, None] = {}  # each once, however many "#" of a pattern may stand for the words so far
            for node in nodes:
                if node.many:
                    following[node] = None
                child = node.next.get(word)
                if child is not None:
                    following[child] = None
                child = node.next.get("*")
                if child is not None and wild:
                    following[child] = None
            nodes, wild = following, True
        if wild:
            _or_none(nodes)
        self.visited = visited + len(nodes)
        return (binding.destination for node in nodes for binding in node.bindings)

    def spares(self, key: str) -> bool:
        """No pattern that begins with a wildcard matches the key."""
        return False

    def _enter(self, binding: Binding) -> None:
        node = self._root
        for word in _words(binding.key):
            if word not in node.next:
                node.next[word] = _Word(many=word == "#")
            node = node.next[word]
        node.bindings[binding] = None

    def _leave(self, binding: Binding) -> None:
        node, path = self._root, []
        for word in _words(binding.key):
            path.append((node, word))
            node = node.next[word]
        del node.bindings[binding]
        for parent, word in reversed(path):
            child = parent.next[word]
            if child.bindings or child.next:
                break
            del parent.next[word]


class Topics(Topic):
    """Those of ``TOPICS``: what the broker says itself ("$SYS...") goes to who asks for it by name, as in MQTT."""

    def spares(self, key: str) -> bool:
        return key.startswith("$")


def _words(pattern: str) -> list[str]:
    """Of "#" that are neighbours the first says it all."""
    words = pattern.split(".") if pattern else []
    return [word for at, word in enumerate(words) if not at or word != "#" or words[at - 1] != "#"]


def _or_none(nodes: dict[_Word, None]) -> None:
    """Beside these, the "#" behind them that stand for no word."""
    for node in list(nodes):
        if "#" in node.next:
            nodes[node.next["#"]] = None


class ByHeaders(Bindings):
    """All, or any, of the binding's headers are there and equal; one without a value need only be there."""

    def seen(self, binding: Binding) -> Binding:
        return binding._replace(key="")

    def __init__(self) -> None:
        super().__init__()
        self._by_header: dict[str, dict[object, dict[Binding, None]]] = {}
        """By the name and the value of a header without which none of these fits; None: whatever its value."""
        self._always: dict[Binding, None] = {}

    @property
    def names(self) -> frozenset[str]:
        """Of the headers that are looked at."""
        return frozenset(name for binding in self.all for name in _looked_at(dict(binding.arguments)))

    def match(self, key: str, headers: Headers) -> Iterator[Destination]:
        found = dict(self._always)
        for name, value in headers.items():
            by_value = self._by_header.get(name)
            if by_value is not None:
                found |= by_value.get(hashable(value), {}) | by_value.get(None, {})
        self.visited = len(found)
        return (binding.destination for binding in found if _fits(dict(binding.arguments), headers))

    def _enter(self, binding: Binding) -> None:
        wanted = dict(binding.arguments)
        names = _looked_at(wanted)
        if not names:
            self._always[binding] = None
        for name in names if _any(wanted) else names[:1]:
            self._by_header.setdefault(name, {}).setdefault(wanted[name], {})[binding] = None

    def _leave(self, binding: Binding) -> None:
        self._always.pop(binding, None)
        wanted = dict(binding.arguments)
        names = _looked_at(wanted)
        for name in names if _any(wanted) else names[:1]:
            by_value = self._by_header[name]
            del by_value[wanted[name]][binding]
            if not by_value[wanted[name]]:
                del by_value[wanted[name]]
            if not by_value:
                del self._by_header[name]


def frozen(arguments: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    """A binding's arguments, in one order whatever order they came in."""
    return tuple(sorted((name, hashable(value)) for name, value in arguments.items()))


def hashable(value: object) -> object:
    """Tables and arrays as they are kept in bindings."""
    if isinstance(value, dict):
        return tuple(sorted((name, hashable(inner)) for name, inner in value.items()))
    if isinstance(value, list):
        return tuple(map(hashable, value))
    return bytes(value) if isinstance(value, bytearray) else value


def _fits(wanted: Headers, headers: Headers) -> bool:
    names = _looked_at(wanted)
    found = (name in headers and wanted[name] in (None, hashable(headers[name])) for name in names)
    return any(found) if _any(wanted) else all(found)


def _looked_at(wanted: Headers) -> list[str]:
    with_x = str(wanted.get("x-match", "all")).endswith("-with-x")
    return [name for name in wanted if name != "x-match" and (with_x or not name.startswith("x-"))]


def _any(wanted: Headers) -> bool:
    return str(wanted.get("x-match", "all")).startswith("any")


KINDS: dict[str, type[Bindings]] = {"direct": Direct, "fanout": Fanout, "topic": Topic, "headers": ByHeaders}


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


class Route(NamedTuple):
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
        self.by_headers = 0
        """Bindings that look at headers."""
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
        self.by_headers += self.by_name[binding.source].kind == "headers"
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
        self.by_headers -= source.kind == "headers"
        self.bytes -= binding.size
        if source.auto_delete and self.ends_unused and not source.bindings.all:
            self.remove(source.name)
        return True

    def remove(self, name: str) -> None:
        """An exchange, with all that leads from and to it."""
        exchange = self.by_name.pop(name)
        self.bytes -= EXCHANGE_BYTES + sum(binding.size for binding in exchange.bindings.all)
        if exchange.kind == "headers":
            self.by_headers -= len(exchange.bindings.all)
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

    def route(self, first: str, key: str, headers: Headers = NO_HEADERS) -> Route:
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
        return Route(tuple(queues), TOPICS in visited, "" in visited)
