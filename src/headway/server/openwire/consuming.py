"""Consumers: how they begin and end, and what they ask for.

A consumer of topics reads their lanes for itself, and loses what it was sent when it ends. A consumer of queues is a
member of each. A durable subscription is a queue of its own that is bound to its topic (``durable_queue``): so its
records are kept while its client is away, and are settled one by one. Its selector is one of the queue's terms: what
does not match never enters it.
"""

from __future__ import annotations

import logging
from asyncio import TimerHandle
from collections.abc import Callable, Generator
from contextlib import suppress
from weakref import WeakKeyDictionary

import msgspec

from headway.core.base import Reason, Refused, WorkSteps
from headway.core.clients import Queues, check_known, queue_object
from headway.core.consumer import (
    NO_LIMIT,
    Channel,
    CountedWindow,
    Session,
    SubscribeRequest,
    Subscription,
    SubscriptionOptions,
    Use,
)
from headway.core.permission import ALL_RIGHTS, Operation, Rights
from headway.core.queue import Queue, queue_behind, queue_of
from headway.core.selector import compile_selector, compile_work
from headway.server.connections import OUT_BYTES_MAX, SUBSCRIBE_WORK, Steps
from headway.server.engine import Engine
from headway.server.openwire.ports import (
    ClientSide,
    JmsFault,
    about_destination,
    each_of,
    has_wildcards,
    is_pattern,
    options_of,
    split,
)
from headway.server.peers import DURABLE_QUEUES, PeerPart, binding_key_of, durable_queue, filter_of
from headway.server.protocols import QUEUES
from headway.wire.openwire.commands import ConsumerInfo, MessagePull
from headway.wire.openwire.dialect import OpenWireDialect
from headway.wire.openwire.envelope import OpenWireEnvelope
from headway.wire.openwire.marshalling import (
    ConsumerId,
    Destination,
    SessionId,
    write_cached,
    write_number,
    write_numbered,
)
from headway.wire.openwire.replies import (
    FOLLOWED,
    STATE_ERROR,
    own_filter,
    write_close_consumer,
    write_nothing,
    write_numbering,
)

# -- consumer ----------------------------------------------------------------------------------------------------------
#
# One consumer of JMS, with its core channel and the subscriptions that it reads.
#
# Rules:
# - The prefetch is the credit. A consumer of queues settles deliveries by their numbers, which are those of its
# channel.
#   A consumer of topics settles records by how many they are (``CountedWindow``).
# - An acknowledgement of the type *delivered* settles nothing: it makes the window larger, until the same messages are
#   acknowledged for good. So a transaction may be larger than the prefetch.
# - A consumer with a prefetch of 0 asks for each message (MessagePull): its window is opened by one.


class Consumer:
    __slots__ = ("channel", "extra", "id", "info", "pull", "slot", "subscriptions", "windows", "wishes", "written")

    def __init__(self, info: ConsumerInfo, slot: int, written: bytes, session: Session) -> None:
        self.info = info
        self.id: ConsumerId = info.consumer
        self.slot = slot
        """The consumer's number on the connection, from 1 on; one that was free."""
        self.written = written
        """The consumer's id as it is written in deliveries."""
        self.channel = Channel(info.prefetch, NO_LIMIT, slot, session.number, session.channel.in_flight_bytes)
        self.channel.whole = session.channel
        self.subscriptions: list[Subscription] = []
        self.windows: list[CountedWindow] = []
        """Those of its subscriptions to topics."""
        self.wishes: tuple[list[tuple[str, str]], str | None] = [], None
        """The hints and the condition of its selector."""
        self.extra = 0
        """By how much the window is larger than the prefetch, for messages that are delivered and not settled."""
        self.pull: TimerHandle | None = None
        """Ends the wait for a message that was asked for."""

    @property
    def prefetch(self) -> int:
        return self.info.prefetch

    @property
    def limit(self) -> int:
        return self.info.prefetch + self.extra

    @property
    def in_flight(self) -> int:
        """Deliveries that are not settled."""
        for subscription in self.subscriptions:
            subscription.note_sent()
        return self.channel.used + sum(window.used for window in self.windows)

    def stop_waiting(self) -> None:
        if self.pull is not None:
            self.pull.cancel()
            self.pull = None


# -- browsing ----------------------------------------------------------------------------------------------------------
#
# Browsers: a client of JMS looks at the messages that wait in its queues, and takes none.
#
# It sees those that wait when it begins, the first ``MESSAGES_MAX`` of them and ``BYTES_MAX`` bytes, and then that
# there are no more. It settles nothing: what it acknowledges is nobody's. The copies count to the client until they are
# written, which happens as fast as the client reads; its other commands wait for that.


MESSAGES_MAX = 400
BYTES_MAX = 4 * 1024 * 1024
COPIED_BYTES = 8192
"""So many bytes that are copied are one unit of work."""
BROWSED = "browsed"
BROWSED_BYTES = 150
"""The memory of a copy of a message, besides its bytes."""


def browse(
    peer: ClientSide, consumer: Consumer, queues: list[Queue], condition: str | None, respond: Callable[[], None]
) -> Steps:
    """Copies what waits in queues, responds, and sends the copies, in steps. Raises :class:`Refused`, before that."""
    selector = None if condition is None else compile_selector(condition)
    envelope = OpenWireEnvelope(consumer.written, f"{peer.granted.number}-{consumer.slot}", peer.wire)
    now, tab, number, held_bytes, left_bytes = peer.engine.now(), peer.granted.tab, 0, 0, BYTES_MAX
    copies: list[tuple[Queue, bytes, int]] = []
    try:
        for queue in queues:
            some = queue.waiting(MESSAGES_MAX - len(copies), left_bytes, now)
            size = sum(len(frame) for frame, _ in some)
            counted = size + BROWSED_BYTES * len(some)
            tab.check(counted)
            tab.add(BROWSED, counted)
            held_bytes, left_bytes = held_bytes + counted, left_bytes - size
            copies += [(queue, *one) for one in some]
            yield 1 + len(some) + size // COPIED_BYTES
            if peer.gone:
                return
        respond()
        copies.reverse()
        while copies:
            while len(peer.connection.out) > OUT_BYTES_MAX and not peer.gone:
                yield 0
            if peer.gone:
                return
            queue, frame, returns = copies.pop()
            counted = len(frame) + BROWSED_BYTES
            tab.add(BROWSED, -counted)
            held_bytes -= counted
            if selector is None or selector.matches(queue.feed.lane.dialect.decode(frame)):
                number += 1
                peer.write(envelope.write(envelope.cut(frame, [len(frame)], redelivered=returns), 0, 1, number))
            yield 1 + len(frame) // COPIED_BYTES
        if not peer.gone:
            peer.write(write_nothing(consumer.written, peer.wire))
    finally:
        tab.add(BROWSED, -held_bytes)


# -- wildcards ---------------------------------------------------------------------------------------------------------
#
# Consumers of queues whose names have wildcards. Such a consumer is a member of each queue that matches, and becomes
# one of each that is made later.
#
# - Queues of one connection alone, and those of durable subscriptions, match no wildcard; the latter do where the
# pattern
#   begins with their prefix.
# - A queue that is made is offered to all such consumers over the turns to come. One whose client may not read it, or
#   that has ``MATCHED_MAX`` queues already, does not get it; the log says so of some.


log = logging.getLogger("headway")

MATCHED_MAX = 500
"""Queues of one consumer with wildcards."""
PATTERNS_MAX = 8
"""Names with wildcards in one destination."""
PORTION = 32
"""Queues that are looked at in one step."""
CHARS, MATCHED_CHARS = 16, 32
"""So many characters that are compared are one unit of work; a name counts as so many more."""
"""The prefix of the queues of durable subscriptions, of every protocol that has names for these."""
Join = Callable[["Consumer", Queue, str], int]
"""Makes a consumer a member of a queue, under a name for that. Returns the work."""


class Pattern:
    """One name with wildcards, of a consumer."""

    __slots__ = ("_words", "number", "text")

    def __init__(self, text: str, number: int = 0) -> None:
        self.text = text
        self._words = text.split(".")
        self.number = number
        """The place of the name in the consumer's destination."""

    def matches(self, queue: Queue) -> bool:
        name = queue.name
        if queue.owner is not None or (name.startswith(DURABLE_QUEUES) and not self.text.startswith(DURABLE_QUEUES)):
            return False
        words = name.split(".")
        for number, word in enumerate(self._words):
            if word == ">":
                return True
            if number >= len(words) or word not in ("*", words[number]):
                return False
        return len(self._words) == len(words)


Finding = Generator[int, None, list[tuple[Queue, Pattern]]]
"""Steps that end with the queues that were found, each with its pattern."""


class Wildcards:
    """The consumers with wildcards of all connections of a broker, each with how it joins a queue."""

    def __init__(self) -> None:
        self.consumers: dict[Consumer, tuple[list[Pattern], Join]] = {}

    def offer(self, queue: Queue) -> WorkSteps:
        """Offers a queue that was made to each of them, one per step."""
        for consumer, (patterns, join) in list(self.consumers.items()):
            if queue.ended:
                return
            pattern = next((one for one in patterns if one.matches(queue)), None)
            work = 0
            if pattern is not None and consumer in self.consumers:
                work = join(consumer, queue, f"{pattern.number}/{queue.name}")
            yield len(patterns) + work


_OF: WeakKeyDictionary[Engine, Wildcards] = WeakKeyDictionary()


def wildcards_of(engine: Engine) -> Wildcards:
    """Returns the consumers with wildcards of a broker."""
    found = _OF.get(engine)
    if found is None:
        found = _OF[engine] = Wildcards()
        registry = engine.broker.registry

        def made(queue: Queue) -> None:
            if found.consumers:
                registry.deferred.begin(found.offer(queue), registry.deferred.now)

        engine.broker.queues.made.append(made)
    return found


def queues_that_match(engine: Engine, patterns: list[Pattern], rights: Rights) -> Finding:
    """Finds the queues that match now and that may be consumed from, each with its first pattern, in steps."""
    found: list[tuple[Queue, Pattern]] = []
    queues = list(engine.broker.registry.router.queues.values())
    for at in range(0, len(queues), PORTION):
        some = list(map(queue_of, queues[at : at + PORTION]))
        for queue in some:
            pattern = next((one for one in patterns if one.matches(queue)), None)
            if pattern is not None and (
                rights is ALL_RIGHTS or rights.covers(Operation.SUBSCRIBE, queue_object(queue.name))
            ):
                found.append((queue, pattern))
        yield 1 + sum(CHARS + len(queue.name) for queue in some) * len(patterns) // MATCHED_CHARS
    return found


# -- consuming ---------------------------------------------------------------------------------------------------------


CONSUMERS_MAX = 16_000
MATCHED_SHARE = 16
"""So many names that are looked through are one unit of work."""
CONSUMERS = "consumers"
CONSUMER_BYTES = 2000
"""The memory of a consumer, besides its subscriptions and the text of its id."""
SHORTEST_WAIT_S = 0.02
"""A client that does not want to wait at all is told that there is nothing after this time: until then the turn is over
in which its queue would have given it a message."""


class Consuming(PeerPart[ClientSide]):
    __slots__ = ("_left_out", "_slots", "_top", "by_id", "by_slot", "closed")

    def __init__(self, peer: ClientSide) -> None:
        super().__init__(peer)
        self.by_id: dict[ConsumerId, Consumer] = {}
        self.by_slot: dict[int, Consumer] = {}
        self.closed: dict[ConsumerId, Consumer] = {}
        """Consumers that the broker has closed, and the client has not yet."""
        self._slots: list[int] = []
        """Numbers that are free again."""
        self._top = 0
        self._left_out = 0
        """How often a consumer with wildcards did not get a queue."""

    def over(self) -> None:
        following = wildcards_of(self._peer.engine).consumers
        for consumer in self.by_id.values():
            consumer.stop_waiting()
            following.pop(consumer, None)
        self.by_id.clear()
        self.by_slot.clear()
        self.closed.clear()
        super().over()

    @property
    def _queues(self) -> Queues:
        return self._peer.queues.queues

    # -- begin ------------------------------------------------------------------------------------------------------

    def add(self, info: ConsumerInfo, respond: Callable[[], None]) -> None:
        """Begins a consumer, in steps, and responds. Raises :class:`Refused`, :class:`JmsFault`; then there is none."""
        peer = self._peer
        if info.consumer in self.by_id:
            raise JmsFault(f"there is a consumer {info.consumer} already", STATE_ERROR)
        if len(self.by_id) + len(self.closed) >= CONSUMERS_MAX:
            raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, f"a connection may have {CONSUMERS_MAX} consumers")
        parts = each_of(info.destination)
        peer.granted.tab.check(_bytes_of(info))
        slot = self._take_slot()
        written = self._written(info.consumer, slot)
        consumer = Consumer(info, slot, written, peer.granted)
        peer.granted.tab.add(CONSUMERS, _bytes_of(info))
        self.by_id[info.consumer] = self.by_slot[slot] = consumer
        peer.budget.left -= compile_work(info.selector)
        peer.budget.begin(self._add(consumer, parts, respond))

    def _add(self, consumer: Consumer, parts: list[Destination], respond: Callable[[], None]) -> Steps:
        peer = self._peer
        try:
            self._check_rights(consumer.info, parts)
            consumer.wishes = split(consumer.info.selector or "")
            options = options_of(*consumer.wishes)
            if consumer.info.subscription is None and consumer.info.browses:
                yield from self._browse(consumer, parts, options, respond)
                return
            yield from self._begin(consumer, parts, options)
        except Exception:
            if not peer.gone:
                self._end(consumer)
            raise
        if not peer.gone:
            respond()

    def _take_slot(self) -> int:
        if self._slots:
            return self._slots.pop()
        self._top += 1
        return self._top

    def _written(self, consumer: ConsumerId, slot: int) -> bytes:
        """Returns the consumer's id as it is written from now on. A client that keeps objects is told its number, if it
        has room for that."""
        peer = self._peer
        if slot >= peer.objects:
            return write_cached(consumer, peer.wire)
        peer.write(write_numbering(write_numbered(consumer, slot)))
        return write_number(slot)

    def _begin(self, consumer: Consumer, parts: list[Destination], options: SubscriptionOptions) -> Steps:
        info, peer = consumer.info, self._peer
        if info.subscription is not None:
            self._begin_durable(consumer, parts, options)
            yield SUBSCRIBE_WORK
            return
        if all(part.name in FOLLOWED and part.is_topic for part in parts):
            yield from self._follow(consumer, parts)
            return
        patterns: list[Pattern] = []
        for number, part in enumerate(parts):
            if part.is_topic:
                self._begin_topic(consumer, part, number, options)
            elif is_pattern(part.name):
                patterns.append(Pattern(part.name, number))
            else:
                peer.temporaries.check_owner(part)
                self._consume(consumer, peer.queues.consumed(part.name), str(number))
        yield SUBSCRIBE_WORK * len(consumer.subscriptions)
        if not patterns or not self._has(peer, consumer):
            return
        _check_count(patterns)
        wildcards_of(peer.engine).consumers[consumer] = patterns, self._join_later  # also of what is made meanwhile
        for queue, pattern in (yield from self._matching(patterns)):
            if not self._has(peer, consumer):
                return
            if not queue.ended and not _is_member(consumer, queue):
                self._consume(consumer, queue, f"{pattern.number}/{queue.name}")
                yield SUBSCRIBE_WORK

    def _has(self, peer: ClientSide, consumer: Consumer) -> bool:
        """Tells whether there still is this consumer, after others had their turns."""
        return not peer.gone and self.by_id.get(consumer.id) is consumer

    def _check_rights(self, info: ConsumerInfo, parts: list[Destination]) -> None:
        """Raises :class:`Refused` unless the client may have such a consumer, whatever its selector says."""
        peer = self._peer
        if peer.granted.rights is ALL_RIGHTS or all(part.name in FOLLOWED and part.is_topic for part in parts):
            return
        for part in parts:
            if part.is_topic and info.subscription is not None:
                name = durable_queue(peer.client_id, info.subscription)
                peer.queues.check_subscription(name, binding_key_of(part.name))
            elif part.is_topic:
                filter, _ = own_filter(part.name) or (filter_of(part.name), ">")
                peer.engine.broker.check_subscribe(peer.granted, filter)
            elif is_pattern(part.name):
                self._check_pattern(part.name)
            else:
                peer.queues.check_consume(part.name)

    def _check_pattern(self, pattern: str) -> None:
        """Raises :class:`Refused` if the client may do nothing with any queue whose name matches."""
        rights, known = self._peer.granted.rights, queue_object(filter_of(pattern))
        if rights is not ALL_RIGHTS and not rights.touches(known):
            rights.check(Operation.SUBSCRIBE, known)

    def _browse(
        self, consumer: Consumer, parts: list[Destination], options: SubscriptionOptions, respond: Callable[[], None]
    ) -> Steps:
        peer, patterns = self._peer, list[Pattern]()
        queues: dict[Queue, None] = {}  # each once, however many names mean it
        for part in parts:
            if part.is_topic:
                raise JmsFault("a topic cannot be browsed")
            peer.temporaries.check_owner(part)
            if has_wildcards(part.name):
                self._check_pattern(part.name)
                patterns.append(Pattern(part.name))
            else:
                queues[peer.queues.named(part.name)] = None
        if patterns:
            _check_count(patterns)
            queues.update((queue, None) for queue, _ in (yield from self._matching(patterns)))
        if self._has(peer, consumer):
            for queue in queues:
                peer.queues.check_read(queue)
            yield from browse(peer, consumer, list(queues), options.selector, respond)

    def _follow(self, consumer: Consumer, parts: list[Destination]) -> Steps:
        """Subscribes a client's library to what temporary destinations there are. That is no consumer of the client's
        application: it has no window, and stands on no channel."""
        peer = self._peer
        dialect = OpenWireDialect(consumer.written, peer.wire)
        followed = list[str]()
        for filter in [filter_of(part.name) for part in parts]:
            request = SubscribeRequest(filter, dialect, send_retained="never", by_library=True)
            with suppress(Refused):  # then it sends to no temporary destination of others; else nobody was let in
                consumer.subscriptions.append(peer.engine.broker.subscribe(peer.granted, request, peer.engine.now()))
                followed.append(filter)
        for topic in followed:
            for record in [] if peer.gone else peer.temporaries.known(topic):
                if peer.gone:
                    return
                peer.write(dialect.encode_record(record, 0, now=0.0))
                yield 1

    def _matching(self, patterns: list[Pattern]) -> Finding:
        """Returns the queues whose names match, and that the client may read: it is not told of others."""
        found = yield from queues_that_match(self._peer.engine, patterns, self._peer.granted.rights)
        if len(found) > MATCHED_MAX:
            name = ",".join(pattern.text for pattern in patterns)
            raise JmsFault(f"{name} matches {len(found)} queues (at most {MATCHED_MAX} for one consumer)")
        return found

    def _join_later(self, consumer: Consumer, queue: Queue, name: str) -> int:
        """Makes a consumer with wildcards a member of a queue that was made after it began. Returns the work."""
        session, registry = self._peer.granted, self._peer.engine.broker.registry
        if _is_member(consumer, queue):
            return 1
        if len(consumer.subscriptions) >= MATCHED_MAX:
            self._left_out_of(consumer, queue, f"it has {MATCHED_MAX} queues already")
            return 1
        if len(session.subscriptions) >= registry.limits_of(session.listener).subscriptions_per_session_max:
            self._left_out_of(consumer, queue, f"its client has {len(session.subscriptions)} subscriptions already")
            return 1
        try:
            self._consume(consumer, queue, name)
        except (Refused, JmsFault) as error:
            self._left_out_of(consumer, queue, str(error))
        return SUBSCRIBE_WORK

    def _left_out_of(self, consumer: Consumer, queue: Queue, why: str) -> None:
        """Logs that a consumer does not get a queue: the first one, the second, the fourth, and so on. A client may
        have thousands of consumers that all are to have each queue."""
        self._left_out += 1
        if not self._left_out & self._left_out - 1:
            log.warning("%s: the consumer of %s does not get queue %r: %s (the %d. of its consumers and queues)",
                        self._peer.granted.client, consumer.info.destination, queue.name, why,
                        self._left_out)  # fmt: skip

    def _begin_topic(self, consumer: Consumer, part: Destination, number: int, options: SubscriptionOptions) -> None:
        info, peer = consumer.info, self._peer
        own = own_filter(part.name)
        filter, about = (filter_of(part.name), ">") if own is None else own
        if about != ">":
            options = msgspec.structs.replace(options, selector=about_destination(about))
        shown_as = "" if own is None else part.name.removesuffix(".>")
        dialect = OpenWireDialect(consumer.written, peer.wire, options.offsets, shown_as)
        request = SubscribeRequest(
            filter, dialect, no_local=info.no_local,
            send_retained="always" if info.retroactive else "never", options=options, name=(consumer.slot, str(number)),
        )  # fmt: skip
        window = CountedWindow(consumer.limit)
        subscription = self._queues.consume_topics(
            peer.granted, consumer.channel, request, peer.engine.now(), window
        )
        consumer.subscriptions.append(subscription)
        consumer.windows.append(window)

    def _consume(self, consumer: Consumer, queue: Queue, name: str) -> None:
        peer, info = self._peer, consumer.info
        peer.queues.check_read(queue)
        options = options_of(*consumer.wishes, Use.QUEUE)
        if info.subscription is not None:
            options = msgspec.structs.replace(options, selector=None)  # it is one of the queue's terms
        envelope = OpenWireEnvelope(consumer.written, f"{peer.granted.number}-{consumer.slot}", peer.wire)
        request = SubscribeRequest(
            f"$queue/{queue.name}", QUEUES.dialect, qos=1, name=(consumer.slot, name), envelope=envelope,
            options=options, alone=info.exclusive,
        )  # fmt: skip
        subscription = self._queues.consume(
            peer.granted, consumer.channel, queue, request, NO_LIMIT, peer.engine.now()
        )
        consumer.subscriptions.append(subscription)

    # -- durable subscriptions --------------------------------------------------------------------------------------

    def _begin_durable(self, consumer: Consumer, parts: list[Destination], options: SubscriptionOptions) -> None:
        peer, info = self._peer, consumer.info
        if len(parts) != 1 or not parts[0].is_topic:
            raise JmsFault("a durable subscription is to one topic")
        name = durable_queue(peer.client_id, info.subscription or "")
        key = binding_key_of(parts[0].name)
        check_known(peer.granted.rights, name)
        known = peer.queues.of_subscriber(name, peer.client_id)
        if known is not None and known.members.any_consumer:
            raise JmsFault(f"the durable subscription {info.subscription!r} is in use", STATE_ERROR)
        filter = filter_of(parts[0].name)
        queue = peer.queues.subscription(name, peer.client_id, options, no_local=info.no_local, filter=filter)
        peer.queues.bind(queue, key)
        self._consume(consumer, queue, "durable")

    def remove_subscription(self, name: str) -> None:
        """Ends a durable subscription. Raises :class:`JmsFault`."""
        peer, queue_name = self._peer, durable_queue(self._peer.client_id, name)
        peer.granted.rights.check(Operation.DECLARE, queue_object(queue_name))
        queue = peer.queues.of_subscriber(queue_name, peer.client_id)
        if queue is None:
            raise JmsFault(f"there is no durable subscription {name!r}", "javax.jms.InvalidDestinationException")
        if queue.members.any_consumer:
            raise JmsFault(f"the durable subscription {name!r} is in use")
        self._queues.delete(queue, peer.engine.now(), by=peer.granted)

    # -- end --------------------------------------------------------------------------------------------------------

    def remove(self, known: ConsumerId | SessionId | None, last_delivered: int) -> None:
        """Ends a consumer, or those of a session, or all. The application has seen their messages up to this one."""
        if isinstance(known, ConsumerId):
            some = [table[known] for table in (self.by_id, self.closed) if known in table]
        else:
            all_of_them = [*self.by_id.values(), *self.closed.values()]
            some = [one for one in all_of_them if known is None or _is_of(one.id, known)]
            self._peer.budget.left -= len(all_of_them) // MATCHED_SHARE
        self._peer.budget.begin(self._end_some(some, last_delivered))

    def _end_some(self, some: list[Consumer], last_delivered: int) -> Steps:
        for consumer in some:
            if self.by_id.get(consumer.id) is consumer:
                _never_seen(consumer, last_delivered)
                self._end(consumer)
            elif self.closed.pop(consumer.id, None) is not None:
                self._peer.granted.tab.add(CONSUMERS, -_bytes_of(consumer.info))
            yield SUBSCRIBE_WORK

    def _end(self, consumer: Consumer) -> None:
        consumer.stop_waiting()
        wildcards_of(self._peer.engine).consumers.pop(consumer, None)
        if self.by_id.pop(consumer.id, None) is not None:
            self._peer.granted.tab.add(CONSUMERS, -_bytes_of(consumer.info))
        if self.by_slot.pop(consumer.slot, None) is not None:
            self._slots.append(consumer.slot)
        peer = self._peer
        for subscription in consumer.subscriptions:
            if not subscription.has_channel and not subscription.ended:
                peer.engine.broker.unsubscribe(peer.granted, subscription.filter, peer.engine.now())
        self._queues.close_channel(peer.granted, consumer.channel, peer.engine.now())

    def lost(self, subscription: Subscription) -> Consumer | None:
        """Forgets a subscription that the broker has ended; returns its consumer, unless that has wildcards."""
        consumer = self.of(subscription.channel)
        if consumer is not None and subscription in consumer.subscriptions:
            consumer.subscriptions.remove(subscription)
            if consumer not in wildcards_of(self._peer.engine).consumers:
                return consumer
        return None

    def of(self, channel: Channel) -> Consumer | None:
        consumer = self.by_slot.get(channel.number)
        return consumer if consumer is not None and consumer.channel is channel else None

    def close(self, consumer: Consumer) -> None:
        """Ends a consumer, and asks the client to close it."""
        self._end(consumer)
        self.closed[consumer.id] = consumer
        self._peer.granted.tab.add(CONSUMERS, _bytes_of(consumer.info))
        self._peer.write(write_close_consumer(consumer.id))

    # -- credit -----------------------------------------------------------------------------------------------------

    def set_prefetch(self, known: ConsumerId, prefetch: int) -> None:
        consumer = self.by_id.get(known)
        if consumer is not None:
            consumer.info = consumer.info._replace(prefetch=max(0, prefetch))
            self.open_window(consumer, consumer.limit)

    def open_window(self, consumer: Consumer, limit: int) -> None:
        """Sets how many deliveries there may be, and goes on with what waited for that."""
        peer = self._peer
        consumer.channel.limit = limit
        for subscription in consumer.subscriptions:
            if subscription.window.counts:
                subscription.window.limit = limit
                peer.engine.broker.fanout.has_credit(subscription)
        consumer.channel.exhausted_since_s = None
        peer.engine.broker.registry.wake(peer.granted)

    def pull(self, asked: MessagePull) -> None:
        """Lets one message come, for as long as the client waits for it."""
        consumer = self.by_id.get(asked.consumer)
        if consumer is None or consumer.prefetch:
            return
        consumer.stop_waiting()
        self.open_window(consumer, consumer.in_flight + 1)
        if asked.timeout_ms:
            wait_s = max(SHORTEST_WAIT_S, asked.timeout_ms / 1000)
            consumer.pull = self._peer.engine.loop.call_later(wait_s, self._none_came, consumer)

    def _none_came(self, consumer: Consumer) -> None:
        """Tells the client that no message has come in time."""
        consumer.pull = None
        peer = self._peer
        if consumer.in_flight >= consumer.channel.limit or peer.gone:
            return
        behind = ((one, queue_behind(one)) for one in consumer.subscriptions)
        if any(queue is not None and queue.looks_on(one) for one, queue in behind):  # for what its selector wants
            consumer.pull = peer.engine.loop.call_later(SHORTEST_WAIT_S, self._none_came, consumer)
            return
        consumer.stop_waiting()
        self.open_window(consumer, consumer.in_flight)
        peer.write(write_nothing(consumer.written, peer.wire))
        peer.answer_now()


def _bytes_of(info: ConsumerInfo) -> int:
    """Returns the memory that a consumer takes up, about."""
    texts = len(info.consumer.connection) + len(info.subscription or "") + len(info.selector or "")
    return CONSUMER_BYTES + 4 * texts


def _check_count(patterns: list[Pattern]) -> None:
    """Raises :class:`JmsFault`. Each queue that is made is looked at with each of them."""
    if len(patterns) > PATTERNS_MAX:
        raise JmsFault(f"a destination with {len(patterns)} names with wildcards (at most {PATTERNS_MAX})")


def _is_member(consumer: Consumer, queue: Queue) -> bool:
    return any(queue_behind(one) is queue for one in consumer.subscriptions)


def _is_of(consumer: ConsumerId, session: SessionId) -> bool:
    return (consumer.connection, consumer.session) == (session.connection, session.value)


def _never_seen(consumer: Consumer, last_delivered: int) -> None:
    """Has messages that the application has not seen go back as if they were never sent."""
    for number in reversed(consumer.channel.in_flight):
        if number <= last_delivered:
            break
        consumer.channel.in_flight[number].returns -= 1
