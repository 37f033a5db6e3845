"""Queues and exchanges by name: the requests of clients that concern them (AMQP 0-9-1, 1.5 to 1.8).

A request that cannot be granted raises :class:`Refused` and changes nothing. Which feed a queue reads is decided in
queue_feeds.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from math import inf

from headway.core.base import END_WORK, Reason, Refused, WorkSteps
from headway.core.clients.durability import DurableMetadata
from headway.core.clients.queues.object_names import check_known
from headway.core.clients.queues.queue_feeds import QueueFeeds, queue_cost
from headway.core.clients.queues.terms import difference
from headway.core.clients.sessions import Ending
from headway.core.clients.subscriptions import Consuming, Subscribing
from headway.core.consumer import (
    NO_LIMIT,
    NO_OPTIONS,
    Cancelled,
    Channel,
    ConnectRequest,
    QueueTerms,
    Session,
    SubscribeRequest,
    Subscription,
    SubscriptionOptions,
    Window,
)
from headway.core.delivery import Fanout
from headway.core.log import Pool
from headway.core.message import Dialect
from headway.core.policy import Case, Meter
from headway.core.queue import Queue, queue_of, quote_name
from headway.core.routing import EXCHANGE_BYTES, PREDECLARED, SEARCHED_A_UNIT, Binding, Exchange, Registry

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
