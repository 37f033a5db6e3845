"""Queue feeds: which feed each queue reads, by its bindings.

Rules:
- A queue reads the feed of its *set of bindings*, as the exchanges see them: a fanout exchange ignores the key. Queues
  with the same set share one lane, so a hundred subscribers with a queue each cost no more than a hundred subscribers
  to a topic. The queue's own name counts as a binding when it is the only one, or when it was published to.
- A change of a queue's bindings visits the names of all its bindings (``BindingSet.feed_name``). The client that asks
  for it pays for that, out of its budget for a turn. No member is visited.
- A queue with a selector (a subscription to topics) shares a lane with those of the same selector.
- A queue that refuses records when it is full has a lane of its own, because other queues may accept these records.
"""

from __future__ import annotations

from headway.core.base import Reason, Refused
from headway.core.consumer import Feed, FeedKey, QueueTerms, SharedReader, SubscriptionOptions
from headway.core.log import DECLARED, QUEUE_BYTES, Lane, Pool
from headway.core.message import TOPICS, Dialect, routing_key_of
from headway.core.queue import BindingSet, Queue, filter_of, queue_of
from headway.core.routing import AmqTopic, Binding, Registry, Replay, seen_before
from headway.core.selector import bytes_of, compile_selector

REBIND_WORK = 8
"""The work of a change of bindings, however few they are: a queue gets another feed with a lane of its own."""
NAMES_PER_WORK = 32
"""How many names of bindings are joined in the time of one unit of work."""
GATES_PER_WORK = 5
"""How many gates are looked at."""
REPLAYS_MAX = 64
"""A queue with so many replays that were not read to their end gets no further one."""


class QueueFeeds:
    """Lets queues read the feeds of their bindings, and counts the memory of all that is declared."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._router = registry.router
        self._exchanges = registry.router.exchanges
        self._replays = 0
        self._queues_bytes = 0
        self.homes: dict[Queue, tuple[Dialect, Pool]] = {}
        """The dialect of each queue's lanes, and the pool of those that have no topic's pool."""
        self._bound: dict[Queue, BindingSet] = {}
        self._router.called = self._called

    def first(self, name: str, terms: QueueTerms, dialect: Dialect, pool: Pool) -> Feed:
        """Returns the feed that a new queue reads, which has no binding but its name."""
        return self._feed(name, terms, dialect, pool, BindingSet(name), called=True)

    def add(self, queue: Queue, dialect: Dialect, pool: Pool) -> None:
        """Adds a new queue that reads its ``first`` feed."""
        self.homes[queue], self._bound[queue] = (dialect, pool), BindingSet(queue.name)
        queue.filters = self._bound[queue].filters()
        cost = queue_cost(queue.name, queue.terms)
        self._queues_bytes += cost
        self._charge(queue, cost)
        self.count_declared()

    def remove(self, queue: Queue) -> None:
        del self.homes[queue], self._bound[queue]
        self._queues_bytes -= queue_cost(queue.name, queue.terms)
        self._charge(queue, -queue.charged_bytes)
        self.count_declared()

    def _charge(self, queue: Queue, change: int) -> None:
        queue.charged_bytes += change
        self._registry.queue_owners.add(queue.charged_to, change)

    def bindings_of(self, queue: Queue) -> list[Binding]:
        return list(self._bound[queue].all) if queue in self._bound else []

    def named(self, name: str) -> Queue | None:
        found = self._router.queues.get(name)
        return None if found is None else queue_of(found)

    def count_declared(self) -> None:
        """Updates the memory of all declared objects."""
        self._registry.declared.put(DECLARED, self._exchanges.bytes + self._queues_bytes)

    def change(self, binding: Binding, *, there: bool) -> int:
        """Adds or removes a binding. Returns the work; 0 if it was there, or was not there, already."""
        if not self._change(binding, there=there):
            return 0
        self.count_declared()
        self._router.forget()
        queue = self.led_to(binding)
        return 1 if queue is None else self._rebind(queue)

    def rebind(self, bindings: list[Binding], *, there: bool) -> dict[Queue, None]:
        """Adds or removes bindings that the journal restores or that end with an exchange. Returns the queues that now
        read another feed."""
        queues: dict[Queue, None] = {}
        for binding in bindings:
            if self._change(binding, there=there) and (queue := self.led_to(binding)) is not None:
                queues[queue] = None
        self.count_declared()
        for queue in queues:
            self._rebind(queue)
        self._router.forget()
        return queues

    def replay_of(self, binding: Binding, options: SubscriptionOptions, now: float) -> Replay:
        archive, sequence = self._registry.archive, self._registry.sequence
        if binding.source != TOPICS or binding.destination.kind != "queue":
            raise Refused(Reason.PRECONDITION_FAILED, f"from: only what a queue gets of '{TOPICS}' is recorded")
        filter = filter_of(binding.key)
        if (earliest := archive.earliest(filter)) is None:
            raise Refused(Reason.PRECONDITION_FAILED, f"from: nothing of '{binding.key}' is recorded")
        queue = queue_of(self._router.queues[binding.destination.name])
        if sum(cursor.source is not None for cursor in queue.backlog.cursors) >= REPLAYS_MAX:
            text = f"from: queue '{queue.name}' has {REPLAYS_MAX} replays already that were not read to their end"
            raise Refused(Reason.PRECONDITION_FAILED, text)
        bindings = AmqTopic()
        bindings.add(binding)
        seen = seen_before(archive, filter, options, earliest, now)
        return Replay(archive.runs(filter, seen, sequence), seen, sequence,
                      lambda topic: any(bindings.match(routing_key_of(topic), {})))  # fmt: skip

    def read_first(self, name: str, replay: Replay) -> int:
        """Lets a queue read recorded records before those that are to come. Returns the work."""
        queue = queue_of(self._router.queues[name])
        dialect, pool = self.homes[queue][0], queue.feed.key.pool
        self._replays += 1
        key = FeedKey(f"$replay/{self._replays}", None, dialect, pool, 0, name)
        feed = Feed(key, Lane(dialect, pool, self._registry.sequence), lambda _: True, by_exchange=True)
        self._router.add_feed(feed)
        queue.read_between(feed, replay)
        return 1 + 2 * len(queue.feed.gates) // GATES_PER_WORK

    def _change(self, binding: Binding, *, there: bool) -> bool:
        """Adds or removes the binding. Returns False if it was there, or was not there, already."""
        source = self._exchanges.by_name.get(binding.source)
        if not (self._exchanges.bind(binding) if there else self._exchanges.unbind(binding)):
            return False
        queue = self.led_to(binding)
        if queue is not None:
            self._charge(queue, binding.size if there else -binding.size)
        if source is not None and queue is not None:
            self._bound[queue].change(binding, source.bindings.seen(binding), there=there)
        return True

    def led_to(self, binding: Binding) -> Queue | None:
        """Returns the queue that a binding leads to; None: it is none, or an exchange."""
        return self.named(binding.destination.name) if binding.destination.kind == "queue" else None

    def _called(self, reader: SharedReader) -> None:
        """Gives a queue that was published to by its name the feed with that binding."""
        queue = queue_of(reader)
        if not queue.called:
            queue.called = True
            self._rebind(queue)
            self._router.forget()

    def _rebind(self, queue: Queue) -> int:
        """Lets a queue read the feed of its present bindings. Returns the work."""
        bound = self._bound[queue]
        queue.filters = bound.filters()
        self._registry.renamed[queue] = None
        dialect, pool = self.homes[queue]
        feed = self._feed(queue.name, queue.terms, dialect, pool, bound, called=queue.called)
        work = REBIND_WORK + len(bound) // NAMES_PER_WORK
        if feed is not queue.feed:
            work += len(queue.feed.gates) // GATES_PER_WORK
            queue.read(feed)
        return work

    def _feed(
        self, name: str, terms: QueueTerms, dialect: Dialect, pool: Pool, bound: BindingSet, *, called: bool
    ) -> Feed:
        pool, names = self._registry.pool_for(bound.ways(called=called), pool), bound.feed_name(called=called)
        key = FeedKey(names, terms.selector, dialect, pool, terms.leaves_out or 0, name if terms.refuses else None)
        feed = self._router.feeds.get(key)
        if feed is None:
            feed = Feed(key, Lane(dialect, pool, self._registry.sequence), lambda _: True, by_exchange=True)
            feed.priority = self._registry.priority_for(bound.ways(called=called))
            if terms.selector is not None:
                feed.selector = compile_selector(terms.selector)
            self._router.add_feed(feed)
        return feed


def queue_cost(name: str, terms: QueueTerms) -> int:
    dead_letter_names = (terms.dead_letter_exchange or "") + (terms.dead_letter_key or "")
    selector_bytes = bytes_of(terms.selector) + len(terms.leaves_out or "")
    return QUEUE_BYTES + selector_bytes + 4 * len(name) + 2 * len(dead_letter_names)
