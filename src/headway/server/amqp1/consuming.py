"""Links on which a client receives: consumers of queues and of topics.

Rules:
- Records are sent only as far as the client gives credit. How long it gives none while records wait is what shows that
  it is slow.
- A consumer of topics reads them for itself. It may settle what it gets, as its library does, but for the broker a
  record is settled once it is sent: its cursor is its position. A durable one has a queue of its own that is bound to
  the topics, and there settling counts.
- What is unsettled when a link ends goes back to its queue.
- ``drain``: what the client's credit allows is sent, and what is left of the credit is used up.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from headway.core.base import Refused
from headway.core.clients import check_known, queue_object
from headway.core.consumer import (
    NO_LIMIT,
    Grant,
    SubscribeRequest,
    Subscription,
    SubscriptionOptions,
    Use,
    parse_options,
)
from headway.core.message import TOPICS, routing_key_of
from headway.core.permission import Operation
from headway.core.queue import Queue, filter_of, queue_behind
from headway.core.selector import compile_work
from headway.server.amqp1.ports import Link, LinkFault, SessionSide, credit_of
from headway.server.amqp1.terminus import Node, Place, Wishes, filter_under, place_of, wishes_of
from headway.server.connections import SUBSCRIBE_WORK
from headway.server.peers import check_alone, durable_queue
from headway.server.protocols import QUEUES
from headway.wire.amqp1.envelope import Amqp1Dialect, Amqp1Envelope
from headway.wire.amqp1.performatives import Attach, Flow, Source, words
from headway.wire.amqp1.values import Condition
from headway.wire.dialect import Cut

SETTLED = 1
"""The mode of a sender that settles what it sends at once."""
DRAIN_WORK = 8
TURNS_MAX = 2
"""Rounds of one drain; a round sends all that one run of a queue may. What is left is sent in the next turns."""
HANDED_A_WORK = 4
"""Work of handing out (queue/dispatch.py) in a unit of a connection's budget."""


class ConsumingLink(Link):
    __slots__ = ("_envelope", "_grant", "consumer", "draining", "durable", "own", "settled")

    def __init__(self, session: SessionSide, attach: Attach) -> None:
        super().__init__(session, attach)
        self.settled = attach.snd_settle_mode == SETTLED
        self.draining = False
        self.durable = False
        """Whether it reads a durable subscription."""
        self._grant = Grant(self._sent, attach.max_message_size or NO_LIMIT)
        self._envelope: Amqp1Envelope
        self.own: Queue | None = None
        """The queue that ends with this link, if it is closed."""
        self.consumer: Subscription

    # -- the beginning ------------------------------------------------------------------------------------------------

    def begin(self) -> Attach:
        """Begins to consume. Returns the attach with the source as it is in force. Raises LinkFault, Refused."""
        peer, source = self._session.peer, self.attach.source
        if not isinstance(source, Source):
            source = self._known_source()
        wishes = wishes_of(source, self.attach.properties)
        peer.budget.left -= sum(compile_work(value) for _, value in wishes.options)
        if source.dynamic:
            return self._begin_dynamic(source, wishes)
        place = place_of(peer.engine, peer.granted.rights, source.address, source.capabilities, filter=True)
        if place.node is Node.QUEUE:
            peer.queues.check_consume(place.name)
            options = parse_options(wishes.options, Use.QUEUE, typed=True)
            self._consume(peer.queues.consumed(place.name), options)
            wishes = wishes.without_no_local()
        elif self._is_durable(source):
            self._consume_durably(place, source, wishes)
        elif place.node is Node.TOPIC:
            self._read(place.name, wishes)
        elif place.name == TOPICS:
            self._read(filter_under(place, wishes.binding or place.key), wishes)
        else:
            key = wishes.binding or place.key or ""
            peer.queues.check_subscription(None, key, place.name)
            options = parse_options(wishes.options, Use.QUEUE, typed=True)
            self.own = peer.queues.temporary(options.selector, no_local=wishes.no_local)
            peer.queues.bind(self.own, key, place.name)
            self._consume(self.own, _without_selector(options))
        return self._answer(source._replace(filter=wishes.known or None, default_outcome=None))

    def _known_source(self) -> Source:
        """Returns the source of a durable subscription whose client asks only for its name."""
        name = self._durable_name()
        check_known(self._session.session.rights, name)
        if self._session.peer.queues.of_subscriber(name, self._session.peer.container) is None:
            raise LinkFault(Condition.NOT_FOUND, f"there is no durable subscription '{self.name}' of this container")
        self.durable = True
        return Source(f"queue://{name}", durable=2, expiry_policy="never")

    def _answer(self, source: Source) -> Attach:
        consumer = self.consumer
        mode = SETTLED if self.settled else 0
        told = {"x-opt-headway-policy": consumer.case.policy.name}
        return self.attach._replace(
            snd_settle_mode=mode, source=source, initial_delivery_count=0, properties=told
        )

    @staticmethod
    def _is_durable(source: Source) -> bool:
        return bool(source.durable) or source.expiry_policy == "never"

    def _durable_name(self) -> str:
        """Returns the name of the queue of a durable subscription. Behind a ``|`` stands what tells the links of a
        shared one apart."""
        shared = "shared" in words(getattr(self.attach.source, "capabilities", None))
        name = self.name.partition("|")[0] if shared else self.name
        return durable_queue(self._session.peer.container, name)

    def _consume_durably(self, place: Place, source: Source, wishes: Wishes) -> None:
        shared = "shared" in words(source.capabilities)
        queues, name = self._session.peer.queues, self._durable_name()
        key = place.key if place.node is Node.EXCHANGE else binding_of(place.name)
        exchange = place.name if place.node is Node.EXCHANGE else TOPICS
        wanted = wishes.binding or key or "#"
        queues.check_subscription(name, wanted, exchange)
        check_alone(no_local=wishes.no_local, shared=shared)
        options = parse_options(wishes.options, Use.QUEUE, typed=True)
        filter = filter_of(wanted) if exchange == TOPICS else None
        subscriber = self._session.peer.container
        queue = queues.subscription(name, subscriber, options, no_local=wishes.no_local, filter=filter)
        queues.bind(queue, wanted, exchange)
        self.durable = True
        self._consume(queue, _without_selector(options), exclusive=not shared)

    def _begin_dynamic(self, source: Source, wishes: Wishes) -> Attach:
        """Begins to consume from a node that is made for this link: a temporary queue, or a topic."""
        peer = self._session.peer
        if "temporary-topic" in words(source.capabilities):
            topic = f"temporary/{peer.engine.broker.registry.sequence}-{peer.connection.address}-{self.handle}"
            self._read(topic, wishes)
            address = f"topic://{topic}"
        else:
            self.own = peer.queues.temporary()
            self._consume(self.own, parse_options(wishes.options, Use.QUEUE, typed=True))
            address = self.own.name
        return self._answer(source._replace(address=address, filter=wishes.known or None, default_outcome=None))

    def _request(
        self, filter: str, options: SubscriptionOptions, *, of_queue: bool, no_local: bool = False
    ) -> SubscribeRequest:
        session = self._session
        envelope = Amqp1Envelope(
            session.number, self.handle, session.peer.frame_bytes_max, settled=self.settled,
            decode=QUEUES.dialect.decode if of_queue else None,
        )  # fmt: skip
        self._envelope = envelope
        dialect = QUEUES.dialect if of_queue else Amqp1Dialect(offsets=options.offsets)
        return SubscribeRequest(
            filter, dialect, qos=int(of_queue and not self.settled), no_local=no_local, send_retained="never",
            options=options, name=(session.number, self.name), envelope=envelope,
        )  # fmt: skip

    def _consume(self, queue: Queue, options: SubscriptionOptions, *, exclusive: bool = False) -> None:
        peer = self._session.peer
        peer.queues.check_read(queue)
        request = self._request(f"$queue/{queue.name}", options, of_queue=True)
        self.consumer = peer.queues.queues.consume(
            self._session.session, self._session.core, queue, request, self._grant, self._session.now(),
            exclusive=exclusive,
        )
        peer.budget.left -= SUBSCRIBE_WORK

    def _read(self, filter: str, wishes: Wishes) -> None:
        """Reads topics."""
        peer = self._session.peer
        peer.engine.broker.check_subscribe(peer.granted, filter)
        options = parse_options(wishes.options, Use.SUBSCRIPTION, typed=True)
        request = self._request(filter, options, of_queue=False, no_local=wishes.no_local)
        self.consumer = peer.queues.queues.consume_topics(
            self._session.session, self._session.core, request, self._session.now(), self._grant
        )
        peer.budget.left -= SUBSCRIBE_WORK

    def _sent(self, cut: Cut, count: int) -> None:
        self._session.frames_sent(self._envelope.frames_of(cut, count))

    # -- credit -------------------------------------------------------------------------------------------------------

    def flow(self, flow: Flow) -> None:
        grant = self._grant
        if flow.link_credit is not None and not self.attach.incomplete_unsettled:  # nothing new comes then (2.7.3)
            grant.give(credit_of(flow, grant.spent))
            self.draining = bool(flow.drain)
            self.let_on()
        if self.draining:
            self._session.peer.budget.left -= DRAIN_WORK
        if self.draining and not self.drain():
            self._session.peer.engine.look_at(self._session.peer.connection)
        if flow.echo:
            self.tell()

    def let_on(self) -> None:
        """Sends more, because the client permits it."""
        consumer, registry = self.consumer, self._session.peer.engine.broker.registry
        if consumer.ended or self._grant.credit <= 0:
            return
        queue = queue_behind(consumer)
        if queue is not None:
            queue.look_again(consumer)
        else:
            consumer.session.let_on(consumer)
        registry.wake(consumer.session)
        self._session.peer.engine.broker.fanout.again[consumer.session] = None

    def tell(self) -> None:
        lag = 0 if self.consumer.ended else min(self.consumer.lag_records, 0xFFFF_FFFF)
        spent, credit = self._grant.spent & 0xFFFF_FFFF, max(0, self._grant.credit)
        self._session.say_flow(self.handle, spent, credit, available=lag)

    def drain(self) -> bool:
        """Sends what there is, and then uses up the credit. Returns False while the client has to read first."""
        consumer, grant, peer = self.consumer, self._grant, self._session.peer
        now, fanout, registry = self._session.now(), peer.engine.broker.fanout, peer.engine.broker.registry
        if not consumer.ended:
            queue, outlet = queue_behind(consumer), consumer.session.outlet
            for _ in range(TURNS_MAX):
                before, handed = grant.credit, registry.handed_work
                fanout.pump(consumer.session, now)
                if queue is not None and not queue.is_behind(now):
                    queue.dispatch(now)
                peer.budget.left -= (registry.handed_work - handed) // HANDED_A_WORK
                if peer.budget.left <= 0:
                    break
                if grant.credit <= 0 or outlet.blocked or (grant.credit == before and not outlet.out):
                    break
            if grant.credit > 0 and (outlet.blocked or outlet.out or self._has_more(queue, now)):
                return False
        self.draining = False
        grant.use_up()
        self._session.say_flow(self.handle, grant.spent & 0xFFFF_FFFF, 0, available=0, drain=True)
        return True

    def _has_more(self, queue: Queue | None, now: float) -> bool:
        """Tells whether a record is on its way to this consumer."""
        if queue is None:
            return self.consumer.has_more
        return queue.has_some_for(self.consumer, now)

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self, *, closed: bool) -> None:
        """Ends the link. ``closed``: for good, so its durable subscription and its temporary queue end, too."""
        session = self._session
        consumer, queues = self.consumer, session.peer.queues.queues
        queue = queue_behind(consumer)
        if not consumer.ended and not consumer.gone:
            if queue is not None:
                session.requeue(consumer)
            queues.cancel(consumer, session.now())
        if queue is not None and not queue.ended and ((closed and self.durable) or self.own is queue):
            with suppress(Refused):  # others may share the subscription, or this user may only read it
                if self.own is not queue:
                    session.session.rights.check(Operation.DECLARE, queue_object(queue.name))
                queues.delete(queue, session.now(), if_unused=self.durable, by=session.session)
        session.peer.budget.left -= SUBSCRIBE_WORK
        super().end(closed=closed)



def _without_selector(options: SubscriptionOptions) -> SubscriptionOptions:
    """Returns the options of a consumer of a queue that has the selector among its terms."""
    return msgspec.structs.replace(options, selector=None)


def binding_of(filter: str) -> str:
    """Returns the key that binds a queue to the topics of a filter."""
    return routing_key_of(filter).replace("+", "*")

