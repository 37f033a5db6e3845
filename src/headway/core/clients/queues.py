"""Queues and exchanges, as clients declare, bind and delete them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import islice
from math import inf

from headway.core.base import END_WORK, Reason, Refused, WorkSteps
from headway.core.clients.durability import DurableMetadata
from headway.core.clients.requests import check_room, cost
from headway.core.clients.sessions import Ending
from headway.core.clients.subscriptions import Subscribing
from headway.core.consumer import (
    NO_LIMIT,
    NO_OPTIONS,
    Cancelled,
    Channel,
    ConnectRequest,
    CountedWindow,
    Feed,
    FeedKey,
    Grant,
    QueueTerms,
    Session,
    SharedReader,
    SubscribeRequest,
    Subscription,
    SubscriptionOptions,
    Window,
)
from headway.core.delivery import Fanout
from headway.core.log import DECLARED, QUEUE_BYTES, Lane, Pool
from headway.core.message import TOPICS, Dialect, routing_key_of, topic_of
from headway.core.permission import EXCHANGES, QUEUES, Operation, Rights
from headway.core.policy import Case, Meter
from headway.core.queue import Acks, BindingSet, FetchedRecord, Queue, filter_of, queue_behind, queue_of, quote_name
from headway.core.routing import (
    EXCHANGE_BYTES,
    PREDECLARED,
    SEARCHED_A_UNIT,
    AmqTopic,
    Binding,
    Exchange,
    Registry,
    Replay,
    seen_before,
)
from headway.core.selector import bytes_of, compile_selector

# -- consuming ---------------------------------------------------------------------------------------------------------
#
# Consumers of queues: members that records are pushed to, members that get one at a time, and closed channels.


class Consuming(Acks, ABC):
    """Adds consumers to queues, and ends them with their channels."""

    def __init__(self, registry: Registry, ending: Ending, subscribing: Subscribing) -> None:
        super().__init__(registry)
        self._ending = ending
        self._subscribing = subscribing

    @abstractmethod
    def tidy(self, now: float) -> None:
        """Deletes auto-delete queues whose last consumer has ended."""

    def consume(
        self, session: Session, channel: Channel, queue: Queue, request: SubscribeRequest, prefetch: int | Window,
        now: float, *, exclusive: bool = False,
    ) -> Subscription:  # fmt: skip
        """Adds a consumer to the queue. It may have ``prefetch`` deliveries in flight, or as its own window says."""
        if request.key in session.subscriptions:
            raise Refused(Reason.NOT_ALLOWED, "there is a consumer of that tag on this channel")
        self.check_consumer(session, request)
        if queue.members.exclusive or (exclusive and queue.members.any_consumer):
            raise Refused(Reason.NOT_AUTHORIZED, f"queue '{queue.name}' has a consumer, and one is to be the only one")
        queue.picking.admit(request.options.selector)
        subscription = self._join(session, channel, queue, request, prefetch, now)
        if exclusive:
            queue.members.exclusive[subscription] = None
        return subscription

    def check_consumer(self, session: Session, request: SubscribeRequest) -> None:
        """Raises :class:`Refused` unless the client may have one more consumer like this, whatever its queue says."""
        check_room(self._registry, session, request, "consumers")
        self._subscribing.asked_for(request)

    def _join(
        self, session: Session, channel: Channel, queue: Queue, request: SubscribeRequest, prefetch: int | Window,
        now: float,
    ) -> Subscription:
        policy = self._subscribing.asked_for(request)
        if policy is None:
            policy = self._registry.policy_for_queue(queue.filters, queue.terms.durable, session.listener)
        subscription = self._subscribing.enter(session, request, queue.feed, policy, now)
        _put_on(channel, subscription, prefetch)
        queue.join(subscription)
        self._registry.backpressure.gate_opened(queue.feed, now)
        queue.used_s = now
        return subscription

    def consume_topics(
        self, session: Session, channel: Channel, request: SubscribeRequest, now: float,
        window: int | CountedWindow | Grant = NO_LIMIT,
    ) -> Subscription:  # fmt: skip
        """Adds a consumer that reads topics for itself; the same request again renews it. It acknowledges nothing, or
        by their number the records that its ``window`` has room for, or its client grants so many."""
        known = session.subscriptions.get(request.key)
        if known is not None and (known.filter, known.request.options) != (request.filter, request.options):
            raise Refused(Reason.NOT_ALLOWED, "there is a consumer of that tag on this channel")
        subscription = self._subscribing.subscribe(session, request, now)
        if subscription is not known:
            _put_on(channel, subscription, window)
        return subscription

    def cancel(self, subscription: Subscription, now: float) -> None:
        self._ending.end(subscription, Reason.SUBSCRIPTION_ENDED, now)
        self.tidy(now)

    def get(
        self, session: Session, channel: Channel, queue: Queue, request: SubscribeRequest, prefetch: int, now: float
    ) -> FetchedRecord | None:
        """Returns the queue's next record to a client that asks for one. The client is a member of the queue from then
        on."""
        if queue.members.exclusive:
            raise Refused(Reason.NOT_AUTHORIZED, f"queue '{queue.name}' has a consumer that is to be the only one")
        member = session.subscriptions.get(request.key)
        if member is None:
            session.tab.check(cost(request))
            member = self._join(session, channel, queue, request, prefetch, now)
        return queue.get(member, now)

    def close_channel(self, session: Session, channel: Channel, now: float) -> None:
        """Closes a channel. At once its consumers get no more records and their tags are free. Over the turns to come
        (deferred.py) their unsettled records are requeued and the consumers end."""
        if channel.closed:
            return
        channel.close()
        for member in channel.members:
            member.let_flow(False)
            session.drop(member)
            queue = queue_behind(member)
            if queue is not None:
                queue.members.exclusive.pop(member, None)
                queue.expect_back(member, now)
        self._registry.deferred.begin(self._clear_up(channel), now, client=session)

    def _clear_up(self, channel: Channel) -> WorkSteps:
        """Requeues the unsettled records of a closed channel, and ends its consumers."""
        deferred = self._registry.deferred
        yield from self.recover(channel, deferred.now)
        for member in list(channel.members):
            yield self._ending.end_in_step(member, Reason.SUBSCRIPTION_ENDED, deferred.now)
        self.tidy(deferred.now)


def _put_on(channel: Channel, subscription: Subscription, prefetch: int | Window) -> None:
    subscription.channel = channel
    subscription.window = Window(prefetch) if isinstance(prefetch, int) else prefetch
    channel.members = channel.members or {}
    channel.members[subscription] = None


# -- object names ------------------------------------------------------------------------------------------------------
#
# Names of queues, exchanges and bindings in permissions, and what a client has to be allowed for each request.
#
# As in RabbitMQ, a binding reads its source and writes to its destination, and a queue with a dead letter exchange
# writes to that. What a pattern lets through is put as a topic filter that matches at least as much.


ALL = "#"
OWN_NAMES = "amq."
"""Prefix of queue names that only the broker may give."""
WORDS_MAX = 127
"""Patterns with more words are put as one that lets everything through behind these."""


def queue_object(name: str) -> str:
    return QUEUES + name


def exchange_object(name: str) -> str:
    """Returns the name of an exchange. It is one level: "/" is written as "%2F"."""
    return EXCHANGES + name.replace("/", "%2F")


def published_to(exchange: str, topic: str) -> str:
    """Returns the name of what is published to an exchange. ``topic``: the topic of its routing key."""
    if exchange == TOPICS:
        return topic
    if not exchange:
        return queue_object(topic_of(topic))
    return f"{exchange_object(exchange)}/{topic}"


def _everything(exchange: str) -> str:
    return ALL if exchange == TOPICS else f"{QUEUES}#" if not exchange else f"{exchange_object(exchange)}/#"


def check_known(rights: Rights, name: str) -> None:
    """Raises :class:`Refused` if the client may do nothing with the queue of this name. It has to be asked before the
    queue is looked up: the answer is the same whether there is one or not."""
    if not rights.touches(queue_object(name)):
        rights.check(Operation.SUBSCRIBE, queue_object(name))


def may_know_exchange(rights: Rights, name: str) -> bool:
    """Tells whether the client may do something with an exchange. Those of the broker are known to all."""
    return any(name == own for own, _ in PREDECLARED) or rights.touches(f"{exchange_object(name)}/#")


def check_known_exchange(rights: Rights, name: str) -> None:
    """Raises :class:`Refused` if the client may do nothing with the exchange of this name, as ``check_known``."""
    if not may_know_exchange(rights, name):
        rights.check(Operation.SUBSCRIBE, _everything(name))


def let_through(binding: Binding, kind: str) -> str:
    """Returns a filter for the topics that a binding of this kind of exchange lets through."""
    if kind == "direct":
        return topic_of(binding.key)
    if kind != "topic":
        return ALL
    levels = filter_of(binding.key).split("/")
    return "/".join([*levels[:WORDS_MAX], ALL] if len(levels) > WORDS_MAX else levels)


def check_binding(rights: Rights, binding: Binding, source: Exchange, *, own: bool) -> None:
    """Raises :class:`Refused` unless the client may read what the binding lets through and write it to its destination.
    ``own``: the destination is a queue of the client's own."""
    filter = let_through(binding, source.kind)
    rights.check(Operation.SUBSCRIBE, published_to(binding.source, filter))
    if binding.destination.kind == "exchange":
        to = binding.destination.name
        rights.check(Operation.PUBLISH, published_to(to, filter) if to else _everything(to))
    elif not own:
        rights.check(Operation.PUBLISH, queue_object(binding.destination.name))


def check_queue(rights: Rights, name: str, terms: QueueTerms, *, own: bool) -> None:
    """Raises :class:`Refused` unless the client may declare the queue, and write to its dead letter exchange."""
    if not own:
        rights.check(Operation.DECLARE, queue_object(name))
    exchange, key = terms.dead_letter_exchange, terms.dead_letter_key
    if exchange is None:
        return
    if not own:
        rights.check(Operation.SUBSCRIBE, queue_object(name))
    to = _everything(exchange) if key is None else published_to(exchange, topic_of(key))
    rights.check(Operation.PUBLISH, to)


def check_exchange(rights: Rights, exchange: Exchange) -> None:
    """Raises :class:`Refused` unless the client may declare the exchange, and write to its alternate exchange."""
    rights.check(Operation.DECLARE, exchange_object(exchange.name))
    if exchange.alternate is not None:
        rights.check(Operation.SUBSCRIBE, _everything(exchange.name))
        rights.check(Operation.PUBLISH, _everything(exchange.alternate))


def is_own(name: str, terms: QueueTerms) -> bool:
    """Tells whether a queue is its client's own: exclusive, and named by the broker. It needs no permission."""
    return terms.exclusive and name.startswith(OWN_NAMES)


def read_by(subscription: Subscription) -> str | None:
    """Returns what a subscription reads, as a filter; None: a queue of the client's own."""
    queue = queue_behind(subscription)
    if queue is None or queue.ends_with_members:
        return subscription.feed.key.filter
    return None if is_own(queue.name, queue.terms) else queue_object(queue.name)


# -- queue feeds -------------------------------------------------------------------------------------------------------
#
# Queue feeds: which feed each queue reads, by its bindings.
#
# Rules:
# - A queue reads the feed of its *set of bindings*, as the exchanges see them: a fanout exchange ignores the key.
# Queues
#   with the same set share one lane, so a hundred subscribers with a queue each cost no more than a hundred subscribers
#   to a topic. The queue's own name counts as a binding when it is the only one, or when it was published to.
# - A change of a queue's bindings visits the names of all its bindings (``BindingSet.feed_name``). The client that asks
#   for it pays for that, out of its budget for a turn. No member is visited.
# - A queue with a selector (a subscription to topics) shares a lane with those of the same selector.
# - A queue that refuses records when it is full has a lane of its own, because other queues may accept these records.


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
    selector_bytes = bytes_of(terms.selector) + len(terms.leaves_out or "") + len(terms.subscriber or "")
    return QUEUE_BYTES + selector_bytes + 4 * len(name) + 2 * len(dead_letter_names)


# -- terms -------------------------------------------------------------------------------------------------------------
#
# Compares the terms of two queues, in the words of AMQP's arguments.


def difference(there: QueueTerms, asked: QueueTerms) -> str:
    """Returns the first argument that differs; empty if none does."""
    for field, words in _WORDS.items():
        if getattr(there, field) != getattr(asked, field):
            return words
    return ""


_WORDS = {
    "durable": "durable", "auto_delete": "auto-delete", "ttl_s": "x-message-ttl",
    "idle_s": "x-expires", "records_max": "x-max-length", "bytes_max": "x-max-length-bytes", "refuses": "x-overflow",
    "dead_letter_refused": "x-overflow", "dead_letter_exchange": "x-dead-letter-exchange",
    "dead_letter_key": "x-dead-letter-routing-key", "priorities": "x-max-priority",
    "single_active": "x-single-active-consumer", "returns_max": "x-delivery-limit", "selector": "selector",
}  # fmt: skip


# -- queues ------------------------------------------------------------------------------------------------------------
#
# Queues and exchanges by name: the requests of clients that concern them (AMQP 0-9-1, 1.5 to 1.8).
#
# A request that cannot be granted raises :class:`Refused` and changes nothing. Which feed a queue reads is decided by
# ``QueueFeeds``.


QUEUES_MAX = 100_000
UNBIND_WORK = 4
UNBOUND_AT_ONCE = 256
"""The number of bindings that one step removes. A queue with many of them changes its feed once per step."""
RESERVED = "amq."


class Queues(Consuming):
    """Declares, binds and deletes queues and exchanges."""

    def __init__(self, registry: Registry, fanout: Fanout, ending: Ending, subscribing: Subscribing,
                 metadata: DurableMetadata, watch: Callable[[Subscription, float], None]) -> None:
        super().__init__(registry, ending, subscribing)
        self._metadata = metadata
        self._router = registry.router
        self._exchanges = registry.router.exchanges
        self._fanout = fanout
        self._watch = watch
        self.feeds = QueueFeeds(registry)
        self.rebind = self.feeds.rebind
        self.made: list[Callable[[Queue], None]] = []
        """These are told of each queue that a client declared anew."""

    # -- exchanges --------------------------------------------------------------------------------------------------

    def exchange(self, name: str) -> Exchange:
        found = self._exchanges.by_name.get(name)
        if found is None:
            raise Refused(Reason.NOT_FOUND, f"there is no exchange '{name}'")
        return found

    def is_durable(self, name: str) -> bool:
        """Tells whether the exchange is durable, or unknown because it was deleted."""
        found = self._exchanges.by_name.get(name)
        return found is None or found.durable

    def take_looked(self) -> int:
        """Returns the work of checking what exchanges lead to, since it was asked for last."""
        looked, self._exchanges.looked = self._exchanges.looked, 0
        return looked // SEARCHED_A_UNIT

    def declare_exchange(self, exchange: Exchange) -> None:
        known = self._exchanges.by_name.get(exchange.name)
        if known is None:
            if exchange.name.startswith(RESERVED):
                raise Refused(Reason.NOT_AUTHORIZED, f"names that begin with '{RESERVED}' are the broker's own")
            self._registry.declared.check(EXCHANGE_BYTES)
            self._exchanges.add(exchange)
            try:
                self._exchanges.check_walks(exchange.name)
            except Refused:
                self._exchanges.remove(exchange.name)
                raise
            self.feeds.count_declared()
            self._metadata.exchange(exchange, there=True)
            self._router.forget()
        elif difference := known.difference(exchange):
            raise Refused(Reason.PRECONDITION_FAILED, f"exchange '{exchange.name}' is there, with another {difference}")

    def delete_exchange(self, name: str, *, if_unused: bool) -> WorkSteps:
        """Removes all bindings of an exchange, a few in each step, and deletes it."""
        if any(name == own for own, _ in PREDECLARED):
            raise Refused(Reason.NOT_AUTHORIZED, f"exchange '{name}' is the broker's own")
        exchange = self._exchanges.by_name.get(name)
        if exchange is None:
            return  # it was deleted already, which is no error
        if if_unused and exchange.bindings.all:
            raise Refused(Reason.PRECONDITION_FAILED, f"exchange '{name}' is in use")
        while some := list(islice(exchange.bindings.all, UNBOUND_AT_ONCE)):
            for binding in some:
                self._metadata.binding(binding, there=False)
            self.rebind(some, there=False)
            yield UNBIND_WORK * len(some)
        if self._exchanges.by_name.get(name, exchange) is not exchange:
            return  # it was deleted with its last binding, and declared again
        self._metadata.exchange(exchange, there=False)
        self._exchanges.remove(name)
        self.feeds.count_declared()
        self._router.forget()

    # -- queues -----------------------------------------------------------------------------------------------------

    def queue(self, session: Session, name: str) -> Queue:
        found = self.feeds.named(name)
        if found is None or found.owner is not session:
            check_known(session.rights, name)
        if found is None or found.left_behind:
            self._refuse_deleted(name)
            raise Refused(Reason.NOT_FOUND, f"there is no queue '{name}'")
        if found.owner is not None and found.owner is not session:
            raise _locked(name, "another connection declared it for itself alone")
        return found

    def declare(self, session: Session, name: str, terms: QueueTerms, dialect: Dialect, now: float) -> Queue:
        """Returns the queue of this name, and makes it if there is none."""
        known = self.feeds.named(name)
        if known is not None and known.left_behind:
            self.delete(known, now)  # deferred work would delete it later
            known = None
        if known is not None:
            self.queue(session, name)
            if known.terms.exclusive != terms.exclusive:
                alone = "is" if known.terms.exclusive else "is not"
                raise _locked(name, f"it {alone} declared as exclusive, which is not to be changed")
            if what := difference(known.terms, terms):
                raise Refused(Reason.PRECONDITION_FAILED, f"queue '{name}' is there, with another {what}")
            known.used_s = now
            return known
        self._refuse_deleted(name)
        if len(self._router.queues) >= QUEUES_MAX:
            raise Refused(Reason.TOO_MANY_QUEUES, f"there are {QUEUES_MAX} queues already")
        self._check_declared(queue_cost(name, terms), session.owner)
        queue = self._make(name, terms, dialect, session.pool, now, session.owner)
        if terms.exclusive:
            queue.owner = session
            self._registry.owned.setdefault(session, {})[queue] = None
        self._metadata.queue(queue, session.listener)
        for tell in self.made:
            tell(queue)
        return queue

    def restore(
        self, name: str, terms: QueueTerms, dialect: Dialect, listener: str, position_number: int, now: float
    ) -> Queue:
        """Restores a queue from the journal."""
        queue = self._make(name, terms, dialect, self._registry.pool_of(listener), now)
        self._metadata.queue(queue, listener, position_number=position_number)
        return queue

    def _check_declared(self, size: int, charged_to: str) -> None:
        """Raises :class:`Refused` if there is no room for a declared object of this size."""
        registry = self._registry
        registry.queue_owners.check(charged_to, size, registry.declared.limit)
        registry.declared.check(size)

    def _make(
        self, name: str, terms: QueueTerms, dialect: Dialect, pool: Pool, now: float, charged_to: str = ""
    ) -> Queue:
        feed = self.feeds.first(name, terms, dialect, pool)
        queue = Queue(name, feed, terms, self._registry, self._fanout, self._watch)
        queue.charged_to = charged_to
        self._router.queues[name] = queue
        self._exchanges.add_queue(name)
        self.feeds.add(queue, dialect, pool)
        self._router.forget()
        queue.used_s = now
        if terms.durable and not terms.exclusive:
            queue.placeholder.make = partial(self._placeholder, queue)
        self._expire_later(queue, now)
        return queue

    def _placeholder(self, queue: Queue, now: float) -> Subscription:
        """Makes a placeholder for the members of a durable queue that has none."""
        dialect, pool = self.feeds.homes[queue]
        name = f"$queue/{quote_name(queue.name)}"
        session = Session(0, ConnectRequest(name, "", expiry_s=inf), pool, now)
        request = SubscribeRequest(name, dialect, qos=1, polling=True)
        policy = self._registry.policy_for_queue(queue.filters, durable=True, listener=session.listener)
        meter = Meter(now, queue.feed.lane.end, self._registry.lateness)
        subscription = Subscription(session, request, queue.feed, Case(policy, meter))
        subscription.cursor.close()
        subscription.channel, subscription.window = Channel(NO_LIMIT, NO_LIMIT), Window(NO_LIMIT)
        return subscription

    def _refuse_deleted(self, name: str) -> None:
        """Raises :class:`Refused`, once, if a policy deleted the queue while its owner was away."""
        notice = self._metadata.deletion_notice("queue", name)
        if notice is not None:
            raise Refused(*notice)

    def delete(self, queue: Queue, now: float, *, if_unused: bool = False, if_empty: bool = False,
               by: Session | None = None) -> int:
        """Deletes a queue, because the client ``by`` asked for it. Returns how many records waited in it."""
        if if_unused and queue.members.any_consumer:
            raise Refused(Reason.PRECONDITION_FAILED, f"queue '{queue.name}' has consumers")
        queue.feed.lane.receive()
        waiting = queue.backlog.lag_records
        if if_empty and waiting:
            raise Refused(Reason.PRECONDITION_FAILED, f"queue '{queue.name}' is not empty")
        if queue.ended:
            return 0
        del self._router.queues[queue.name]
        if queue.owner is not None:
            self._registry.owned.get(queue.owner, {}).pop(queue, None)
            queue.owner.let_go(queue, queue)
        self._exchanges.remove_queue(queue.name)
        self.feeds.remove(queue)
        self._metadata.queue_ended(queue)
        self._router.forget()
        queue.drops.forget()
        queue.close()
        self._registry.unused.pop(queue, None)
        members = list(reversed(list(queue.members)))
        for member in members:
            if not member.session.ended:  # an ended session ends its subscriptions itself
                member.session.drop(member)
        self._registry.deferred.begin(self._end_members(members), now, client=by)
        return waiting

    def _end_members(self, members: list[Subscription]) -> WorkSteps:
        """Ends the members of a deleted queue. Their tags are free already."""
        while members:  # an ended one is freed at once, not all of them after the last
            member = members.pop()
            if not member.ended:
                self._ending.end(member, Reason.SUBSCRIPTION_ENDED, self._registry.deferred.now)
                if not member.request.polling and not member.gone:
                    self._registry.effects.append(Cancelled(member))
            yield END_WORK

    def tidy(self, now: float) -> None:
        """Deletes auto-delete queues whose last consumer has ended."""
        unused, self._registry.unused = self._registry.unused, {}
        for queue in map(queue_of, unused):
            queue.used_s = now
            unwanted = queue.terms.auto_delete and not queue.ends_with_members and not queue.members.any_consumer
            if unwanted and not queue.ended:
                self.delete(queue, now)

    def session_ended(self, session: Session) -> WorkSteps:
        """Deletes the exclusive queues of a session that has ended."""
        deferred = self._registry.deferred
        owned = list(reversed(self._registry.owned.pop(session, {})))
        while owned:
            self.delete(queue_of(owned.pop()), deferred.now)
            yield END_WORK
        self.tidy(deferred.now)

    def _expire_later(self, queue: Queue, now: float) -> None:
        idle_s = queue.terms.idle_s
        if idle_s is not None:
            queue.expiry = self._registry.timers.at(now + idle_s, partial(self._expire, queue, idle_s))

    def _expire(self, queue: Queue, idle_s: float, now: float) -> None:
        if not queue.members.any_consumer and queue.used_s + idle_s <= now:
            self.delete(queue, now)
        else:
            self._expire_later(queue, now if queue.members.any_consumer else queue.used_s)

    # -- bindings ---------------------------------------------------------------------------------------------------

    def bind(self, session: Session, binding: Binding, now: float = 0.0, *,
             options: SubscriptionOptions = NO_OPTIONS) -> int:
        """Adds a binding. With ``options.start`` the queue first gets the recorded records of its topics from there.
        Returns the work."""
        self._check(session, binding)
        if not binding.source:
            raise Refused(Reason.NOT_AUTHORIZED, "every queue is bound to the default exchange, by its name alone")
        queue = self.feeds.led_to(binding)
        self._check_declared(binding.size, "" if queue is None else queue.charged_to)
        self._exchanges.check_room(binding)
        replay = None if options.start == "end" else self.feeds.replay_of(binding, options, now)
        work = self.feeds.change(binding, there=True)
        if work:
            self._metadata.binding(binding, there=True)
        if replay is not None:
            work += self.feeds.read_first(binding.destination.name, replay)
        return work

    def unbind(self, session: Session, binding: Binding) -> int:
        """Removes a binding. Returns the work."""
        if not binding.source:
            raise Refused(Reason.NOT_AUTHORIZED, "no queue can be unbound from the default exchange")
        if binding.destination.kind == "queue" and binding.destination.name in self._router.queues:
            self.queue(session, binding.destination.name)
        self._metadata.binding(binding, there=False)
        return self.feeds.change(binding, there=False)

    def outlives(self, binding: Binding) -> bool:
        """Tells whether the binding is durable."""
        return self._metadata.objects.outlives(binding)

    def _check(self, session: Session, binding: Binding) -> None:
        self.exchange(binding.source)
        kind, name = binding.destination
        if kind == "queue":
            self.queue(session, name)
        else:
            self.exchange(name)


def _locked(name: str, text: str) -> Refused:
    """Returns an error in RabbitMQ's words, which clients look for."""
    known = f"cannot obtain exclusive access to locked queue '{name}' in vhost '/'"
    return Refused(Reason.RESOURCE_LOCKED, f"{known}: {text}")
