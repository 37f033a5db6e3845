"""Bindings lead from an exchange to queues and other exchanges. Each kind of exchange has a table of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from headway.core.base import Reason, Refused

Headers = Mapping[str, object]
NO_HEADERS: Headers = {}
BINDING_BYTES = 1000
WORDS_MAX = 128
"""The number of words of a routing key that are matched one by one. A key of AMQP has 255 bytes and so no more words.
In a topic with more words the rest counts as one word."""

PLACES_MAX = 1024
"""The places in the patterns of one exchange where a search for the bindings of a new key may be at once (``places``).
So it looks at this many entries for each word, and that is not divided among turns."""

HEADERS_MAX = 128
"""The headers that one binding may look at."""
FURTHER_HEADERS_MAX = 32_768
"""The headers that all bindings of one exchange may look at, without the first one of each. A message may be held
against all of them, and that is not divided among turns."""


class Destination(NamedTuple):
    kind: Literal["queue", "exchange"]
    name: str


class Binding(NamedTuple):
    source: str
    destination: Destination
    key: str
    arguments: tuple[tuple[str, object], ...] = ()
    """Sorted by name. For a headers exchange: the headers to match, and ``x-match``."""

    @property
    def size(self) -> int:
        """The approximate bytes that the binding takes up, with its entries in the tables."""
        return BINDING_BYTES + 4 * len(self.key) + (len(repr(self.arguments)) if self.arguments else 0)


class Bindings(ABC):
    """The bindings of one exchange."""

    def __init__(self) -> None:
        self.all: dict[Binding, None] = {}
        self.exchanges: dict[str, int] = {}
        """The exchanges that bindings lead to, each with the number of these."""
        self.visited = 0
        """The number of entries that the last match looked at, besides those that it found."""

    def add(self, binding: Binding) -> bool:
        """Adds a binding. Returns False if it was there already."""
        if binding in self.all:
            return False
        self.all[binding] = None
        if binding.destination.kind == "exchange":
            _count(self.exchanges, binding.destination.name, 1)
        self._enter(binding)
        return True

    def remove(self, binding: Binding) -> bool:
        """Removes a binding. Returns False if there was no such binding."""
        if self.all.pop(binding, self) is self:
            return False
        if binding.destination.kind == "exchange":
            _count(self.exchanges, binding.destination.name, -1)
        self._leave(binding)
        return True

    def check_room(self, binding: Binding) -> None:  # noqa: B027  some kinds have room for all
        """Raises :class:`Refused` if there is no room for one more binding like this."""

    @abstractmethod
    def seen(self, binding: Binding) -> Binding:
        """Returns the binding without the parts that this kind of exchange ignores. Bindings that are then equal let
        the same messages through."""

    @abstractmethod
    def match(self, key: str, headers: Headers) -> Iterator[Destination]:
        """Yields the destinations of a message, some more than once."""

    def _enter(self, binding: Binding) -> None:  # noqa: B027  some kinds need no index
        """Adds the binding to the index."""

    def _leave(self, binding: Binding) -> None:  # noqa: B027
        """Removes the binding from the index."""


class DirectBindings(Bindings):
    """Lets messages through whose routing key is the binding's."""

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


class FanoutBindings(Bindings):
    """Lets every message through."""

    def seen(self, binding: Binding) -> Binding:
        return binding._replace(key="", arguments=())

    def match(self, key: str, headers: Headers) -> Iterator[Destination]:
        return (binding.destination for binding in self.all)


class _Word:
    """A node of the tree of patterns. ``many``: the node is a "#", so another word leads back to it."""

    __slots__ = ("bindings", "many", "next")

    def __init__(self, *, many: bool = False) -> None:
        self.many = many
        self.next: dict[str, _Word] = {}
        self.bindings: dict[Binding, None] = {}


class TopicBindings(Bindings):
    """Lets messages through whose key matches a pattern: words with dots between, where ``*`` is any one word and ``#``
    any number of words, also none.

    The *places* of a search are the entries where it may be after one word. Patterns with their wildcards in the same
    words (one *shape*) share them: the words of the key decide which of these patterns it follows. Behind a ``#`` it
    may be at each word of the pattern. Behind a second one it follows a pattern for each word that the key may have had
    between the two.
    """

    def __init__(self) -> None:
        super().__init__()
        self._root = _Word()
        self._shapes: dict[tuple[str, ...], int] = {}
        """The number of patterns of each shape with wildcards."""
        self.places = 0
        """The most places of a search."""

    def check_room(self, binding: Binding) -> None:
        """Raises :class:`Refused` if there would be too many places with one more pattern."""
        shape = _shape(binding.key)
        count = self._shapes.get(shape, 0)
        if shape and self.places + _places(shape, count + 1) - _places(shape, count) > PLACES_MAX:
            text = f"the bindings of an exchange have wildcards in too many different places: {PLACES_MAX} are allowed"
            raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, f"{text}, and each word behind a # counts")

    def _count(self, key: str, by: int) -> None:
        shape = _shape(key)
        if shape:
            count = self._shapes.pop(shape, 0)
            if count + by:
                self._shapes[shape] = count + by
            self.places += _places(shape, count + by) - _places(shape, count)

    def seen(self, binding: Binding) -> Binding:
        return binding._replace(arguments=())

    def match(self, key: str, headers: Headers) -> Iterator[Destination]:
        nodes, wild, visited = {self._root: None}, not self.spares(key), 0
        for word in key.split(".", WORDS_MAX - 1) if key else ():
            if wild:
                _or_none(nodes)
            visited += len(nodes)
            following: dict[_Word, None] = {}  # a dict: more than one "#" may lead to the same node
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
        """Tells whether patterns that begin with a wildcard do not match this key."""
        return False

    def _enter(self, binding: Binding) -> None:
        node = self._root
        for word in _words(binding.key):
            if word not in node.next:
                node.next[word] = _Word(many=word == "#")
            node = node.next[word]
        node.bindings[binding] = None
        self._count(binding.key, 1)

    def _leave(self, binding: Binding) -> None:
        self._count(binding.key, -1)
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


class AmqTopic(TopicBindings):
    """The bindings of ``TOPICS``: the broker's own messages ("$SYS...") match no wildcard at the front, as in MQTT."""

    def spares(self, key: str) -> bool:
        return key.startswith("$")


def _words(pattern: str) -> list[str]:
    """Returns the words of a pattern. Neighbouring "#" become one, which means the same."""
    words = pattern.split(".") if pattern else []
    return [word for at, word in enumerate(words) if not at or word != "#" or words[at - 1] != "#"]


def _shape(pattern: str) -> tuple[str, ...]:
    """Returns where a pattern has its wildcards; empty: nowhere."""
    if "*" not in pattern and "#" not in pattern:
        return ()
    shape = tuple(word if word in ("*", "#") else "" for word in _words(pattern))
    return shape if any(shape) else ()


def _places(shape: tuple[str, ...], count: int) -> int:
    """Returns how many places ``count`` patterns of a shape have."""
    if not count or "#" not in shape:
        return min(count, 1)
    followed = min(count, int(WORDS_MAX ** (shape.count("#") - 1)))
    return followed * max(1, len(shape) - 1 - shape.index("#"))


def _or_none(nodes: dict[_Word, None]) -> None:
    """Adds the "#" nodes behind these nodes, because a "#" also matches no word at all."""
    for node in list(nodes):
        if "#" in node.next:
            nodes[node.next["#"]] = None


class _Wanted(NamedTuple):
    """The headers that a binding wants besides those by which it is found."""

    equal: dict[str, object]
    """Headers with their values."""
    there: dict[str, None]
    """Headers with any value."""


FOUND_IS_ENOUGH = _Wanted({}, {})


class HeadersBindings(Bindings):
    """Lets messages through that have all, or any, of the binding's headers with equal values. A header without a value
    in the binding need only be there.

    A binding that wants any of its headers is found by each of them, and then lets the message through. One that wants
    all is found by the first, and its others are looked at as sets. All this is prepared with the binding."""

    def seen(self, binding: Binding) -> Binding:
        return binding._replace(key="")

    def __init__(self) -> None:
        super().__init__()
        self._by_header: dict[str, dict[object, dict[Binding, _Wanted]]] = {}
        """Bindings by the name and the value of a header that they need; None: they need it with any value."""
        self._always: dict[Binding, _Wanted] = {}
        self.names: dict[str, int] = {}
        """The names of the headers that bindings look at, each with the number of these."""
        self.further = 0
        """The headers that bindings look at, without the first one of each, and with what is nested in values."""

    def check_room(self, binding: Binding) -> None:
        """Raises :class:`Refused` if one binding, or all together, would look at too many headers."""
        wanted = _looked_at(binding)
        if len(wanted) > HEADERS_MAX:
            raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, f"a binding looks at {HEADERS_MAX} headers at most")
        if (more := _further(wanted)) and self.further + more > FURTHER_HEADERS_MAX:
            text = f"the bindings of an exchange look at {FURTHER_HEADERS_MAX} headers at most"
            raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, f"{text}, not counting the first of each binding")

    def match(self, key: str, headers: Headers) -> Iterator[Destination]:
        values = {name: hashable(value) for name, value in headers.items()}
        found, entries = dict(self._always), len(values)
        for name, value in values.items():
            by_value = self._by_header.get(name)
            if by_value is not None:
                for some in (by_value.get(value), None if value is None else by_value.get(None)):
                    if some is not None:
                        found |= some
                        entries += len(some)
        self.visited = entries
        return (
            binding.destination
            for binding, (equal, there) in found.items()
            if equal.items() <= values.items() and there.keys() <= values.keys()
        )

    def _enter(self, binding: Binding) -> None:
        wanted, any_fits = _looked_at(binding), _any(binding)
        self.further += _further(wanted)
        rest = FOUND_IS_ENOUGH
        if not any_fits and len(wanted) > 1:
            _, *others = wanted.items()
            rest = _Wanted({name: value for name, value in others if value is not None},
                           {name: None for name, value in others if value is None})  # fmt: skip
        if not wanted and not any_fits:
            self._always[binding] = rest
        for place, (name, value) in enumerate(wanted.items()):
            _count(self.names, name, 1)
            if any_fits or not place:
                self._by_header.setdefault(name, {}).setdefault(value, {})[binding] = rest

    def _leave(self, binding: Binding) -> None:
        self._always.pop(binding, None)
        wanted, any_fits = _looked_at(binding), _any(binding)
        self.further -= _further(wanted)
        for place, (name, value) in enumerate(wanted.items()):
            _count(self.names, name, -1)
            if any_fits or not place:
                by_value = self._by_header[name]
                del by_value[value][binding]
                if not by_value[value]:
                    del by_value[value]
                if not by_value:
                    del self._by_header[name]


def frozen(arguments: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    """Returns a binding's arguments sorted by name, and hashable."""
    return tuple(sorted((name, hashable(value)) for name, value in arguments.items()))


def hashable(value: object) -> object:
    """Returns a header's value with tables and arrays as tuples."""
    if isinstance(value, dict):
        return tuple(sorted((name, hashable(inner)) for name, inner in value.items()))
    if isinstance(value, list):
        return tuple(map(hashable, value))
    return bytes(value) if isinstance(value, bytearray) else value


def _x_match(binding: Binding) -> str:
    return next((str(value) for name, value in binding.arguments if name == "x-match"), "all")


def _looked_at(binding: Binding) -> dict[str, object]:
    """Returns the headers that a binding looks at, with their values."""
    with_x = _x_match(binding).endswith("-with-x")
    return {
        name: value
        for name, value in binding.arguments
        if name != "x-match" and (with_x or not name.startswith("x-"))
    }


def _any(binding: Binding) -> bool:
    return _x_match(binding).startswith("any")


def _further(wanted: Headers) -> int:
    """Returns how much a binding looks at that wants these headers, besides the first."""
    return max(0, len(wanted) - 1) + sum(_nested(value) for value in wanted.values())


def _nested(value: object) -> int:
    return len(value) + sum(map(_nested, value)) if isinstance(value, tuple) else 0


def _count(counts: dict[str, int], name: str, by: int) -> None:
    """Counts a name, and forgets it with the last."""
    count = counts.get(name, 0) + by
    if count:
        counts[name] = count
    else:
        del counts[name]


KINDS: dict[str, type[Bindings]] = {
    "direct": DirectBindings, "fanout": FanoutBindings, "topic": TopicBindings, "headers": HeadersBindings,
}  # fmt: skip
