"""The router finds the feeds and states for a record, by its topic or by its exchange and key. It caches each route
until a feed, a state or a binding changes.

Queues with equal bindings read one feed. So a record is written once for all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, TypeVar

import msgspec

from headway.core.consumer import Feed, FeedKey, Session
from headway.core.forms import merge_slice
from headway.core.log import Focus, Pool, State, StateTerms
from headway.core.message import (
    DELETE,
    EVENT,
    TOLD_KEY,
    TOPICS,
    FilterTrie,
    KeyExtractor,
    Record,
    Run,
    covers,
    may_delete,
    routing_key_of,
    says_delete,
    says_merge,
    topic_of,
)
from headway.core.routing.matching.bindings import NO_HEADERS, Exchanges, Headers, hashable
from headway.core.selector import Decoded

if TYPE_CHECKING:
    from headway.core.consumer import SharedReader


# -- router ------------------------------------------------------------------------------------------------------------


K = TypeVar("K")
COPIES = "CC"
"""The header with more routing keys for a message (sender-selected distribution)."""
SEARCHED_A_UNIT = 4
"""So many entries that a search for a route looks at are as much work as one more lane. Routes are cached."""
COPY_WORK = 8
"""The work of adding the route of one more key, in entries looked at."""
ROUTES_BYTES_MAX = 48_000_000
"""The limit of all cached routes, some 150,000 short topics. In a small pool it is less (``_room_bytes``). When it is
reached, all are forgotten."""
ASKED_BYTES_MAX = 4096
"""A route is not cached if what it is asked by, such as a long topic, takes more memory than this."""
ENTRY_BYTES, DISTINCT_BYTES, FEED_BYTES = 150, 700, 40
"""Measured sizes in memory: of an entry of the cache, of a route, and of a feed or state in it."""
KEEPING = 4
"""The work of keeping a record in a state by its key, in that of a selector with a few terms."""
WIDE_WORK = 512
"""A record is spread over turns if it is more work than that of so many lanes: a millisecond or two."""
NO_TOPIC = "+#\0"
"""Characters that no topic has. AMQP's routing keys may."""
_OTHER = "\uffff"
_ANY_OTHER = dict.fromkeys(map(ord, NO_TOPIC), _OTHER)
VALUE_MAX = 256
"""A route is not cached if a header's value is longer than this."""


def _bytes_of(asked: object) -> int:
    """Returns the memory of what a route is asked by: a topic, or a tuple with an exchange, a topic and headers."""
    return asked.__sizeof__() + (sum(map(_bytes_of, asked)) if isinstance(asked, tuple) else 0)


class Route:
    """The feeds and states that the records of one topic go to."""

    __slots__ = ("durable", "feeds", "keyed", "merges", "misses", "plain", "selecting", "states", "straight", "stream",
                 "wide", "worked_out")

    def __init__(self, feeds: list[Feed], states: list[State], stream: str = "", *, misses: bool = False) -> None:
        """``misses``: whether the routing key is no topic, and there are subscriptions, states or a recorded topic that
        would have the record if it were one."""
        self.misses = misses
        self.feeds = feeds
        self.states = states
        self.keyed = next((state for state in states if state.tombstones), None)
        """The first state from which records may delete their keys."""
        self.merges = next((state for state in states if state.declared), None)
        """The state whose records patches are merged onto; None: the topic has no key."""
        self.durable = any(feed.durable_readers for feed in feeds)
        """Set if a durable subscription or queue gets the records."""
        self.worked_out = [feed for feed in feeds if feed.worked_out]
        """The feeds that do not get records as they were published."""
        self.selecting = sum(feed.selector.cost for feed in feeds if feed.selector is not None) + len(self.worked_out)
        self.selecting += KEEPING * sum(not state.by_topic for state in states)
        """The work of the selectors of feeds, each of which looks at every record, and of states by keys, likewise."""
        self.wide = len(feeds) + self.selecting // 2 > WIDE_WORK
        """Set if a record is so much work that it is spread over turns (routing/publishing.py)."""
        self.stream = stream
        """The stream of the journal in which the topic is recorded; empty if it is not."""
        plain = not (self.states or self.selecting or self.durable or self.stream)
        self.plain = plain and all(feed.key.dialect.reads_own for feed in feeds)
        """Set if a run whose records have properties of their own need not be taken apart."""
        plain = plain and not (self.wide or misses)
        self.straight = plain and not any(feed.refuses or feed.key.exclude for feed in feeds)
        """Set if all there is to do with a run is to append it to the lane of each feed."""

    def receive(self) -> int:
        """Has runs that are on their way into these lanes appended at once. Returns into how many lanes."""
        behind = [feed.lane for feed in self.feeds if feed.lane.coming is not None]
        for lane in behind:
            lane.receive()
        return len(behind)


class Router:
    def __init__(self, pool: Pool) -> None:
        """``pool``: cached routes count to it."""
        self._pool = pool
        self.feeds: dict[FeedKey, Feed] = {}
        self.states: dict[State, None] = {}
        self._declared: dict[State, int] = {}
        """The states of the configuration, and the place of each in its order."""
        self.expiring: dict[State, None] = {}
        """The states whose keys expire."""
        self.ordered: dict[State, None] = {}
        """The states with orders that are always kept."""
        self._conflates = False
        """Set if a declared state may conflate those who ask for nothing else."""
        self._declared_trie: FilterTrie[State] = FilterTrie()
        self._by_filter: dict[str, dict[State, None]] = {}
        """The states by their filters."""
        self.exchanges = Exchanges()
        self.queues: dict[str, SharedReader] = {}
        self.recorded_in: Callable[[str], str] = lambda _: ""
        """Returns the stream in which a topic is recorded; empty if it is not."""
        self.called: Callable[[SharedReader], None] = lambda _: None
        """Called when a queue may be published to by its own name for the first time."""
        self._feed_trie: FilterTrie[Feed] = FilterTrie()
        self._state_trie: FilterTrie[State] = FilterTrie()
        self._routes: dict[str, Route] = {}
        self._bound: dict[tuple[object, ...], Route] = {}
        self._by_headers: dict[tuple[object, ...], Route] = {}
        """Routes that depend on headers. They have a cache of their own, because there may be as many as messages."""
        self._distinct: dict[tuple[object, ...], Route] = {}
        """The routes by what they lead to: topics without readers, or with the same, share one."""
        self._cached_bytes = 0
        self._looks_at: dict[str, tuple[Mapping[str, int], ...]] = {}
        """The names of the headers that each exchange's bindings look at, and those of exchanges behind it."""
        self.searched = 0
        """The number of entries that were looked at and are not counted as work yet. They count for the next publisher.
        """
        self._forgotten = 0
        """The number of times that all routes were forgotten."""

    def route(self, topic: str) -> Route:
        return self._routes.get(topic) or self._remember(self._routes, topic, TOPICS, topic, NO_HEADERS)

    def route_from(self, exchange: str, topic: str, headers: Headers | None) -> Route:
        """Returns the route of a record that is published to an exchange, also under the keys of its header CC."""
        forgotten = self._forgotten
        route = self._route_under(exchange, topic, headers)
        copies = headers.get(COPIES) if headers else None
        if not isinstance(copies, list | tuple):
            return route
        others = [self._route_under(exchange, topic_of(key), headers) for key in copies if isinstance(key, str)]
        if self._forgotten != forgotten:  # a queue was called by its name, and reads another feed than a moment ago
            return self.route_from(exchange, topic, headers)
        self.searched += sum(COPY_WORK + len(one.feeds) for one in others)
        all_of_them = dict.fromkeys((route, *others))  # keys that lead to the same share a route
        feeds = dict.fromkeys(feed for one in all_of_them for feed in one.feeds)
        states = dict.fromkeys(state for one in all_of_them for state in one.states)
        return Route(list(feeds), list(states), route.stream, misses=any(one.misses for one in all_of_them))

    def reach(self, exchange: str, topic: str, headers: Headers | None) -> int:
        """Returns the work of the lanes and states that would take a record published to an exchange. Changes nothing,
        not even the cached routes: it is asked while a queue drops records."""
        headers = headers or NO_HEADERS
        copies = headers.get(COPIES)
        keys = [topic_of(key) for key in copies if isinstance(key, str)] if isinstance(copies, list | tuple) else []
        return sum(self._reach_under(exchange, one, headers) for one in (topic, *keys))

    def _reach_under(self, exchange: str, topic: str, headers: Headers) -> int:
        if not exchange:
            return 1
        seen = self._seen(exchange, headers) if headers else ()
        route = self._routes.get(topic) if exchange == TOPICS and not seen else None
        route = route or (self._by_headers if seen else self._bound).get((exchange, topic, *seen))
        if route is not None:
            return len(route.feeds) + len(route.states) + route.selecting
        found = self.exchanges.route(exchange, routing_key_of(topic), headers)
        work = len(found.queues) + self.exchanges.visited // SEARCHED_A_UNIT
        if found.topics and topic and not any(char in topic for char in NO_TOPIC):
            work += len(self._feed_trie.match(topic)) + len(self._state_trie.match(topic))
        return work

    def _route_under(self, exchange: str, topic: str, headers: Headers | None) -> Route:
        headers = headers or NO_HEADERS
        seen = self._seen(exchange, headers) if headers else ()
        if not seen and exchange == TOPICS:
            return self.route(topic)
        if seen and any(len(value) > VALUE_MAX for _, value in seen if isinstance(value, str | bytes | tuple)):
            return self._work_out(exchange, topic, headers)
        routes, asked = self._by_headers if seen else self._bound, (exchange, topic, *seen)
        return routes.get(asked) or self._remember(routes, asked, exchange, topic, headers if seen else NO_HEADERS)

    def _seen(self, exchange: str, headers: Headers) -> tuple[tuple[str, object], ...]:
        """Returns the headers that the exchange, and the exchanges behind it, look at."""
        names = self._looks_at.get(exchange)
        if names is None:
            names = self._looks_at[exchange] = self.exchanges.looks_at(exchange)
            self.searched += self.exchanges.visited
        if not names:
            return ()
        seen = sorted(name for name in headers if any(name in some for some in names))
        return tuple((name, hashable(headers[name])) for name in seen)

    def _remember(self, routes: dict[K, Route], asked: K, exchange: str, topic: str, headers: Headers) -> Route:
        """Finds a route, and caches it, unless what it is asked by is large."""
        route = self._work_out(exchange, topic, headers)
        size = _bytes_of(asked)
        if size > ASKED_BYTES_MAX:
            return route
        leads_to = *route.feeds, None, *route.states, None, route.stream, route.misses
        most = size + ENTRY_BYTES + DISTINCT_BYTES + FEED_BYTES * len(leads_to)
        if self._cached_bytes + most > self._room_bytes:
            self._forget_routes()
            if most > self._room_bytes:
                return route
        size = most if leads_to not in self._distinct else size + ENTRY_BYTES
        routes[asked] = self._distinct.setdefault(leads_to, route)
        self._cached_bytes += size
        self._pool.add_tables(size)
        return routes[asked]

    @property
    def _room_bytes(self) -> int:
        """Half of the pool's room for tables at most: the rest is for retained records."""
        return min(ROUTES_BYTES_MAX, self._pool.tables_limit // 2)

    def _forget_routes(self) -> None:
        for table in (self._routes, self._bound, self._by_headers, self._distinct):
            table.clear()
        self._pool.add_tables(-self._cached_bytes)
        self._cached_bytes = 0

    def _work_out(self, exchange: str, topic: str, headers: Headers) -> Route:
        found = self.exchanges.route(exchange, routing_key_of(topic), headers)
        self.searched += self.exchanges.visited
        if found.by_name and (queue := self.queues.get(routing_key_of(topic))) is not None:
            self.called(queue)
        feeds = list(dict.fromkeys(self.queues[name].feed for name in found.queues))
        if not found.topics:
            return Route(feeds, [])
        if not topic or any(char in topic for char in NO_TOPIC):  # no subscriber has such a topic
            return Route(feeds, [], misses=self._misses(topic))
        route = Route(self._feed_trie.match(topic) + feeds, self._state_trie.match(topic), self.recorded_in(topic))
        self.searched += self._feed_trie.visited + self._state_trie.visited + len(route.feeds)
        return route

    def _misses(self, name: str) -> bool:
        """Returns whether a subscription, a state or a recorded topic would have what is published under a name that is
        no topic. Only wildcards match such a name, so any other character stands for those that it may not have."""
        like_it = name.translate(_ANY_OTHER) or _OTHER
        found = self._feed_trie.match(like_it) or self._state_trie.match(like_it)
        self.searched += self._feed_trie.visited + self._state_trie.visited
        return bool(found) or bool(self.recorded_in(like_it))

    def forget(self) -> None:
        """Forgets all routes, because a feed, a state or a binding has changed."""
        self._forgotten += 1
        self._forget_routes()
        self._looks_at.clear()

    def terms_changed(self, state: State) -> None:
        """Notes that the terms of a declared state have changed. Looks at no other: a reload may bring thousands."""
        for among, is_one in ((self.expiring, state.expire_s < inf), (self.ordered, bool(state.orders))):
            if is_one:
                among[state] = None
            else:
                among.pop(state, None)
        self._conflates |= state.conflate_s < inf
        self.forget()

    def put_in_order(self, declared: list[StateTerms]) -> bool:
        """Puts the states of the configuration in its order. Those that it has no more stay, behind the others, until
        the process ends, and conflate nobody. Returns whether this changes anything."""
        there = [self.declared_state(terms.filter, terms.key) for terms in declared]
        order = dict.fromkeys(state for state in there if state is not None)
        gone = [state for state in self._declared if state not in order]
        before = list(self._declared), [state.conflate_s for state in gone]
        self._declared = {state: place for place, state in enumerate((*order, *gone))}
        for state in gone:
            state.conflate_s = inf
        self._conflates = any(state.conflate_s < inf for state in order)
        return before != (list(self._declared), [inf] * len(gone))

    def add_feed(self, feed: Feed) -> None:
        self.feeds[feed.key] = feed
        if not feed.by_exchange:
            self._feed_trie.add(feed.key.filter, feed)
            self.forget()

    def remove_feed(self, feed: Feed) -> None:
        if self.feeds.get(feed.key) is not feed:  # that of a poll or a query: no records are routed to it
            return
        del self.feeds[feed.key]
        if not feed.by_exchange:
            self._feed_trie.remove(feed.key.filter, feed)
            self.forget()

    def declared_state(self, filter: str, key: str) -> State | None:
        """Returns the state of the configuration that has this filter and key."""
        return next((s for s in self._by_filter.get(filter, ()) if s.declared and s.key.text == key), None)

    def conflating_state(self, filter: str) -> State | None:
        """Returns the state from which subscribers of a filter are conflated who ask for nothing else: that of the
        first ``[[topic]]`` that covers the whole filter. None: they get every record."""
        if not self._conflates:
            return None
        first = self.states_for(filter)[:1]
        return next((state for state in first if state.conflate_s < inf), None)

    def states_for(self, filter: str) -> list[State]:
        """Returns the states that have all records of a filter: those of the configuration, in its order, and then
        those that were made for subscriptions of the same filter."""
        as_topic = "/".join("\0" if level in ("+", "#") else level for level in filter.split("/"))
        declared = [state for state in self._declared_trie.match(as_topic) if covers(state.filter, filter)]
        declared.sort(key=self._declared.__getitem__)
        return declared + [state for state in self._by_filter.get(filter, ()) if not state.declared]

    def keyed_state(self, filter: str, key: str | None) -> State | None:
        """Returns the state of the first keyed ``[[topic]]`` that has all records of a filter, by this key if one is
        said; None: no such topic is declared."""
        found = (one for one in self.states_for(filter) if one.declared and key in (None, one.key.text))
        return next(found, None)

    def add_state(self, state: State) -> None:
        self.states[state] = None
        self._by_filter.setdefault(state.filter, {})[state] = None
        if state.declared:
            self._declared[state] = len(self._declared)
            self._declared_trie.add(state.filter, state)
        self._state_trie.add(state.filter, state)
        self.forget()

    def remove_state(self, state: State) -> None:
        """Removes a state that was made for subscriptions."""
        del self.states[state]
        of_filter = self._by_filter[state.filter]
        del of_filter[state]
        if not of_filter:
            del self._by_filter[state.filter]
        self._state_trie.remove(state.filter, state)
        self.forget()


# -- parts -------------------------------------------------------------------------------------------------------------
#
# Parts of runs: of one that has deletes, and of one for a lane that does not have records as they were published: it
# tells what is out of focus (log/states.py), or has a shape (core/forms.py).
#
# A run with deletes on a keyed topic is published in parts, of which those with deletes are marked.
#
# A delete's subscribers are told with the user properties ``headway-event: delete`` and, where there is no payload to
# find it in, ``headway-key``. The marks are written once, before the run goes into the journal and the lanes. So
# whoever reads the record later, from wherever, reads it as a delete.
#
# AMQP properties that came from an AMQP publisher are passed on as they came, without the marks.


RECORDS_A_UNIT = 128
"""So many more records in one lane are as much work as one more lane."""
SELECTED_A_UNIT = 4
"""So many records that a selector looks at are as much work as one more lane."""
DECODED_A_UNIT = 4096
"""So many bytes of records that a selector looks at are as much work as one more lane: it may decode all of them."""
PAIRS_A_UNIT = 4
"""So many user properties of a record that is put into a state are as much work as one more lane: their size is found
out each time."""
SLICE_WORK = 1024
WIDE_RECORDS_MAX = 256
"""So many records go to very many lanes at a time: others who publish there wait for them."""
SLICES_PER_POOL = 32
Befores = dict[State, list[tuple[str | None, Record | None]]]
"""For each record of a run, its key in each state, and the record that the state has of this key before it."""


def part_of(run: Run, start: int, stop: int) -> Run:
    """Returns records ``start`` … ``stop - 1`` of a run as a run."""
    if start == 0 and stop == len(run):
        return run
    begin = run.ends[start - 1] if start else 0
    piece = Run(
        run.topic, run.data[begin : run.ends[stop - 1]],
        [end - begin for end in run.ends[start:stop]], [body - begin for body in run.bodies[start:stop]],
        run.form, run.qos, run.retain, run.properties, run.expires_s,
    )  # fmt: skip
    piece.publisher, piece.journaled, piece.confirmed = run.publisher, run.journaled, run.confirmed
    piece.exchange, piece.headers = run.exchange, run.headers
    if run.own is not None:
        piece.properties = run.own.of(start)
        piece.own = run.own.part(start, stop) if stop - start > 1 else None
    return piece


def marked_parts(run: Run, key: KeyExtractor) -> Iterator[tuple[Run, int]]:
    """Yields a run in parts, each with the index of its first record. Deletes are marked, and apart from the others."""
    if run.properties.user_value(EVENT) == DELETE:  # it was marked before
        yield run, 0
        return
    flagged, found = says_delete(run.properties), key.find(run.topic, run.properties, b"")
    if not flagged and found is None:  # records without payload and key are ordinary ones
        yield run, 0
        return
    empty = [body == end for body, end in zip(run.bodies, run.ends, strict=True)]
    start = 0
    for at in range(1, len(run) + 1):
        if at < len(run) and empty[at] == empty[start]:
            continue
        part = part_of(run, start, at)
        if flagged or empty[start]:
            part = _marked(part, found if empty[start] else None)
        yield part, start
        start = at


def _marked(run: Run, key: str | None) -> Run:
    """Returns the run with the marks of a delete. It has to be encoded anew, so it has no wire form."""
    marks = ((EVENT, DELETE),) if key is None else ((EVENT, DELETE), (TOLD_KEY, key))
    properties = msgspec.structs.replace(run.properties, user=run.properties.user + marks)
    marked = Run(run.topic, run.data, run.ends, run.bodies, None, run.qos, run.retain, properties, run.expires_s,
                 run.exchange, run.headers)  # fmt: skip
    marked.publisher, marked.journaled, marked.confirmed = run.publisher, run.journaled, run.confirmed
    marked.origin, marked.receipt = run.origin, run.receipt
    return marked


def _looks_back_at(feed: Feed) -> State | None:
    """Returns the state whose records before those of a run a feed needs; None: it needs none."""
    if feed.focus is not None:
        return feed.focus.state
    return None if feed.deltas is None else feed.deltas.state


def records_before(feeds: list[Feed], run: Run, first: int, now: float) -> Befores:
    """Looks up the records before those of a run, which is not in the states yet."""
    found: Befores = {}
    for feed in feeds:
        state, latest = _looks_back_at(feed), dict[str | None, Record]()
        if state is None or state in found:
            continue
        before = found[state] = []
        for index, key in enumerate(state.key.of_run(run)):
            before.append((key, latest.get(key) or state.get(run.topic, key)))
            latest[key] = run.record(index, first, now)
    return found


def worked_out_parts(
    feed: Feed, run: Run, first: int, before: Befores, decoded: Decoded, now: float
) -> list[tuple[Run, int]]:
    """Returns what a feed with a focus or a shape gets of a run, each with the index of its record."""
    if feed.focus is not None:
        parts = _focused_parts(feed, feed.focus, run, first, before, decoded, now)
    else:
        wanted = range(len(run)) if feed.selector is None else feed.selector.select(run, decoded)
        parts = [(part_of(run, index, index + 1), index) for index in wanted]
    shape = feed.shape
    if shape is None:
        return parts
    known = [] if shape.deltas is None else before[shape.deltas.state]
    return [
        (shape.part(part, first + index, known[index][1] if known else None, now), index) for part, index in parts
    ]


def _focused_parts(
    feed: Feed, focus: Focus, run: Run, first: int, before: Befores, decoded: Decoded, now: float
) -> list[tuple[Run, int]]:
    """Returns the records that the feed's selector accepts, and what is told of keys that it has accepted until then,
    each with the index of its record."""
    selector = feed.selector
    assert selector is not None
    selected, parts = set(selector.select(run, decoded)), list[tuple[Run, int]]()
    for index, (key, old) in enumerate(before[focus.state]):
        if index in selected:
            parts.append((part_of(run, index, index + 1), index))
        elif focus.loses(run.topic, key, old, first + index):
            told = focus.left(run.record(index, first, now))
            assert told is not None, "the route is that of the filter"
            part = told.run()
            part.publisher, part.confirmed = run.publisher, run.confirmed
            parts.append((part, index))
    return parts


def merges_of(run: Run, route: Route) -> State | None:
    """Returns the state whose records the records of a run are merged onto; None: they are no patches."""
    return route.merges if route.merges is not None and says_merge(run.properties) else None


def slice_of(run: Run, route: Route, session: Session, start: int = 0) -> int:
    """Returns how many records of the run, from record ``start`` on, are a slice."""
    count = len(run.ends)
    merges = merges_of(run, route)
    if count == 1 or (len(route.feeds) < 2 and not route.selecting and not route.states and merges is None):
        return count
    most = count if merges is None else merge_slice(merges, run)
    slice_bytes = session.pool.memory_limit // SLICES_PER_POOL
    if len(run.data) * len(route.feeds) > slice_bytes:  # the first may be by far the largest
        begin = run.ends[start - 1] if start else 0
        most = min(most, bisect_right(run.ends, begin + slice_bytes // len(route.feeds), start) - start)
    work = 0
    if route.wide:  # it is divided by lanes, and is less work for each record the more records it has
        most = min(most, WIDE_RECORDS_MAX)
    else:
        work = count * (len(route.feeds) // RECORDS_A_UNIT) + selecting_work(run, route.selecting)
    if route.keyed is not None and may_delete(run):  # each record may be a part of its own
        work += count * len(route.feeds)
    work += count * len(route.worked_out)
    work += count * put_work(run) * sum(not state.by_topic for state in route.states)
    if work > SLICE_WORK:
        most = min(most, count * SLICE_WORK // work)
    return max(1, most)


def work_of(run: Run, route: Route, taken: int) -> int:
    """Returns the work of publishing a run that ``taken`` lanes and states took. What is spread counts for itself."""
    if route.wide:
        return 1
    count, work = len(run.ends), 1 + taken
    if route.selecting:
        work += selecting_work(run, route.selecting)
    return work + taken * (count // RECORDS_A_UNIT)


def put_work(run: Run) -> int:
    """Returns the work of putting one record of a run into a state."""
    return 1 + len(run.properties.user) // PAIRS_A_UNIT


def selecting_work(run: Run, cost: int) -> int:
    """Returns the work of selectors of this cost. The begin of a run costs each as much as one record."""
    records = len(run.ends) + 1 + SELECTED_A_UNIT * (len(run.data) // DECODED_A_UNIT)
    return cost * records // SELECTED_A_UNIT
