"""Bindings lead from an exchange to queues and other exchanges. Each kind of exchange has a table of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, NamedTuple

from headway.core.base import Reason, Refused
from headway.core.message import TOPICS

# -- bindings ----------------------------------------------------------------------------------------------------------


Headers = Mapping[str, object]
NO_HEADERS: Headers = {}
BINDING_BYTES = 1000
WORDS_MAX = 128
"""The number of words of a routing key that are matched one by one. A key of AMQP has 255 bytes and so no more words.
In a topic with more words the rest counts as one word."""

STEPS_MAX = 8192
"""The steps of a search for the bindings of one exchange that a message with a new key matches, at most: it is not
divided among turns. A step is an entry looked at, about 0.1 µs."""

HEADERS_MAX = 128
"""The headers that one binding may look at."""
HEADERS_A_STEP = 4
"""So many headers, of a set, are one step."""


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

    RESERVED: ClassVar = 16
    full: ClassVar = ""
    """The error for a binding beyond ``STEPS_MAX``."""

    def __init__(self) -> None:
        self.all: dict[Binding, None] = {}
        self.exchanges: dict[str, int] = {}
        """The exchanges that bindings lead to, each with the number of these."""
        self.visited = 0
        """The number of entries that the last match looked at, besides those that it found."""
        self.steps = 0
        """The most steps of a search, besides those that are the same for any bindings of this kind."""

    def add(self, binding: Binding) -> bool:
        """Adds a binding. Returns False if it was there already."""
        if binding in self.all:
            return False
        self.all[binding] = None
        if binding.destination.kind == "exchange":
            counted(self.exchanges, binding.destination.name, 1)
        self._enter(binding)
        return True

    def remove(self, binding: Binding) -> bool:
        """Removes a binding. Returns False if there was no such binding."""
        if self.all.pop(binding, self) is self:
            return False
        if binding.destination.kind == "exchange":
            counted(self.exchanges, binding.destination.name, -1)
        self._leave(binding)
        return True

    def check_room(self, binding: Binding) -> None:
        """Raises :class:`Refused` if there is no room for one more binding like this."""
        more = self.steps_more(binding)
        if more and self.steps + more > STEPS_MAX:
            raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, self.full)

    def steps_more(self, binding: Binding) -> int:
        """Returns by how much one more binding like this may make a search longer."""
        return 0

    def weight(self, more: int = 0) -> int:
        """Returns the steps by which this exchange counts for those that lead to it. It may always have bindings for
        ``RESERVED`` steps, whoever leads to it."""
        return max(self.RESERVED, self.steps + more) + len(self.exchanges)

    @abstractmethod
    def seen(self, binding: Binding) -> Binding:
        """Returns the binding without the parts that this kind of exchange ignores. Bindings that are then equal let
        the same messages through."""

    @abstractmethod
    def match(self, key: str, headers: Headers) -> Iterator[Destination]:
        """Yields the destinations of a message, some more than once. The headers' values are ``hashable``."""

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

    Patterns with their wildcards in the same words (one *shape*) share the steps of a search: the words of the key
    decide which of these patterns it follows. It comes to each word of a pattern once, and to those behind a ``#``
    after each word of the key. Behind a second one it follows a pattern for each word that the key may have had between
    the two. At a ``#`` at the end it knows enough.
    """

    RESERVED = 512
    full = (
        f"the bindings of an exchange have too many patterns with wildcards in different places: a search takes "
        f"{STEPS_MAX:,} steps at most, one for each word of a pattern, and {WORDS_MAX} for each from the first # on, "
        "except for the last. Unbind some, or bind to another exchange"
    )

    def __init__(self) -> None:
        super().__init__()
        self._root = _Word()
        self._shapes: dict[tuple[str, ...], int] = {}
        """The number of patterns of each shape with wildcards."""
        self.steps = WORDS_MAX  # the plain patterns, whatever their number

    def steps_more(self, binding: Binding) -> int:
        shape = _shape(binding.key)
        count = self._shapes.get(shape, 0)
        return _steps(shape, count + 1) - _steps(shape, count) if shape else 0

    def _count(self, key: str, by: int) -> None:
        shape = _shape(key)
        if shape:
            count = self._shapes.pop(shape, 0)
            if count + by:
                self._shapes[shape] = count + by
            self.steps += _steps(shape, count + by) - _steps(shape, count)

    def seen(self, binding: Binding) -> Binding:
        return binding._replace(arguments=())

    def match(self, key: str, headers: Headers) -> Iterator[Destination]:
        nodes, found, wild, visited = {self._root: None}, dict[_Word, None](), not self.spares(key), 0
        words = key.split(".", WORDS_MAX - 1) if key else []
        for left, word in zip(range(len(words) - 1, -1, -1), words, strict=True):
            if wild:
                _or_none(nodes, found)
            visited += len(nodes)
            following: dict[_Word, None] = {}  # a dict: more than one "#" may lead to the same node
            for node in nodes:
                if node.many:
                    following[node] = None
                child = node.next.get(word)
                if child is not None and (child.next or not left):
                    following[child] = None
                child = node.next.get("*")
                if child is not None and wild and (child.next or not left):
                    following[child] = None
            nodes, wild = following, True
        if wild:
            _or_none(nodes, found)
        self.visited = visited + len(nodes) + len(found)
        return (binding.destination for node in (*nodes, *found) for binding in node.bindings)

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
    """The bindings of ``TOPICS``: the broker's own messages ("$SYS...") match no wildcard at the front, as in MQTT.
    Subscriptions of all protocols are among them, so no exchange that leads here may take their room."""

    RESERVED = STEPS_MAX

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


def _steps(shape: tuple[str, ...], count: int) -> int:
    """Returns the most steps of a search among ``count`` patterns of a shape."""
    steps, followed, times = 0, min(count, 1), 1
    for at, word in enumerate(shape):
        if word == "#":
            if times > 1:
                followed = min(count, followed * WORDS_MAX)
            if at == len(shape) - 1:
                return steps + followed
            times = WORDS_MAX
        steps += followed * (times if at < len(shape) - 1 else 1)
    return steps


def _or_none(nodes: dict[_Word, None], found: dict[_Word, None]) -> None:
    """Adds the "#" nodes behind these nodes, because a "#" also matches no word at all. Those at the end of patterns
    are found, whatever follows."""
    for node in list(nodes):
        many = node.next.get("#")
        if many is not None:
            (nodes if many.next else found)[many] = None


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
    all is found by the first, and its others are looked at as sets. All this is prepared with the binding.

    A message may be held against all bindings, which are sets of headers, with what is nested in values. That takes no
    steps for those by which they are found, so bindings by one header have no limit."""

    RESERVED = 512
    full = (
        f"the bindings of an exchange look at too many headers: a search takes {STEPS_MAX:,} steps at most, one for "
        f"each binding by several headers, one for {HEADERS_A_STEP} of these. Unbind some, or bind to another exchange"
    )

    def seen(self, binding: Binding) -> Binding:
        return binding._replace(key="")

    def __init__(self) -> None:
        super().__init__()
        self._by_header: dict[str, dict[object, dict[Binding, _Wanted]]] = {}
        """Bindings by the name and the value of a header that they need; None: they need it with any value."""
        self._always: dict[Binding, _Wanted] = {}
        self.names: dict[str, int] = {}
        """The names of the headers that bindings look at, each with the number of these."""

    def check_room(self, binding: Binding) -> None:
        """Raises :class:`Refused` if one binding, or all together, would look at too many headers."""
        wanted = _looked_at(binding)
        if len(wanted) > HEADERS_MAX:
            raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, f"a binding looks at {HEADERS_MAX} headers at most")
        super().check_room(binding)

    def steps_more(self, binding: Binding) -> int:
        return _held_against(_looked_at(binding))

    def match(self, key: str, headers: Headers) -> Iterator[Destination]:
        found, entries = dict(self._always), len(headers)
        for name, value in headers.items():
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
            if equal.items() <= headers.items() and there.keys() <= headers.keys()
        )

    def _enter(self, binding: Binding) -> None:
        wanted, any_fits = _looked_at(binding), _any(binding)
        self.steps += _held_against(wanted)
        rest = FOUND_IS_ENOUGH
        if not any_fits and len(wanted) > 1:
            _, *others = wanted.items()
            rest = _Wanted({name: value for name, value in others if value is not None},
                           {name: None for name, value in others if value is None})  # fmt: skip
        if not wanted and not any_fits:
            self._always[binding] = rest
        for place, (name, value) in enumerate(wanted.items()):
            counted(self.names, name, 1)
            if any_fits or not place:
                self._by_header.setdefault(name, {}).setdefault(value, {})[binding] = rest

    def _leave(self, binding: Binding) -> None:
        self._always.pop(binding, None)
        wanted, any_fits = _looked_at(binding), _any(binding)
        self.steps -= _held_against(wanted)
        for place, (name, value) in enumerate(wanted.items()):
            counted(self.names, name, -1)
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


def _held_against(wanted: Headers) -> int:
    """Returns the steps of holding a message against a binding that wants more than the header by which it is found."""
    further = max(0, len(wanted) - 1) + sum(_nested(value) for value in wanted.values())
    return further and 1 + further // HEADERS_A_STEP


def _nested(value: object) -> int:
    return len(value) + sum(map(_nested, value)) if isinstance(value, tuple) else 0


def counted(counts: dict[str, int], name: str, by: int) -> None:
    """Counts a name, and forgets it with the last."""
    count = counts.get(name, 0) + by
    if count:
        counts[name] = count
    else:
        del counts[name]


KINDS: dict[str, type[Bindings]] = {
    "direct": DirectBindings, "fanout": FanoutBindings, "topic": TopicBindings, "headers": HeadersBindings,
}  # fmt: skip


# -- exchange ----------------------------------------------------------------------------------------------------------
#
# Exchanges and bindings route a message to queues (AMQP 0-9-1, 3.1.3).
#
# Rules:
# - A queue gets a message once, even if several of its bindings match or several paths lead to it.
# - The default exchange has no bindings: every queue is bound to it by its own name.
# - A message that matches no binding of an exchange goes to its alternate exchange, if it has one.
# - An exchange decides by routing key and headers alone. So its decision is computed once for each exchange, key and
# set
#   of headers, and cached until some binding changes (router.py).
# - ``TOPICS`` (amq.topic) stands for the topics themselves. A message that reaches it also reaches MQTT subscribers,
#   under its routing key; a message that is published to a topic is routed as if it were published to this exchange.


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
