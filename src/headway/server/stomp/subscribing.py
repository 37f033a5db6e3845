"""Subscriptions of one connection.

Rules:
- A subscription to topics with ``ack:auto`` reads their lane, and has all options. With acknowledgements it is a queue
  of its own that is bound to the topics, and a durable one is such a queue that stays.
- A durable subscription is known by ``client-id`` and its name (ActiveMQ's ``activemq.subscriptionName``), or, where
  ``durable:true`` or ``persistent:true`` asks for one, by its id and destination (RabbitMQ). The first has one consumer
  at a time. Unsubscribing with the same header ends it; without, or by leaving, it stays.
- Headway's options are headers of SUBSCRIBE; ``x-headway-`` may stand before their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from headway.core.base import Reason, Refused
from headway.core.consumer import (
    NO_LIMIT,
    PREFIX,
    QueueTerms,
    SubscribeRequest,
    Subscription,
    SubscriptionOptions,
    Use,
    parse_options,
)
from headway.core.message import TOPICS
from headway.core.queue import Queue
from headway.core.selector import compile_work
from headway.server.connections import SUBSCRIBE_WORK
from headway.server.peers import (
    DURABLE,
    PeerPart,
    binding_key_of,
    check_alone,
    durable_queue,
    filter_of,
    is_temporary,
    log_patience,
    name_of_topic,
    read_terms,
    virtual_topic_of,
)
from headway.server.protocols import QUEUES
from headway.server.stomp.ports import ClientSide
from headway.wire.stomp.destinations import NAME_BYTES_MAX, Destination, Kind, destinations_of
from headway.wire.stomp.envelope import StompEnvelope
from headway.wire.stomp.versions import BAD_HEADER, NO_DESTINATION, NO_HEADER, V1_2, Headers, StompFault

RENEWED = f"{PREFIX}renewed"
"""The header of a receipt that tells whether a lease was renewed; if not, the subscription is a new one."""
LOOK_SHARE = 16
"""So many deliveries, or subscriptions, that are looked through are one unit of work."""
ID_CHARS_MAX = 255
ID_DIGITS_MAX = 18
ACKS = ("auto", "client", "client-individual")
PREFETCHES = ("activemq.prefetchSize", "prefetch-count")
NAMES = ("activemq.subscriptionName", "durable-subscription-name")
_OWN = frozenset({
    "id", "ack", "destination", "receipt", "transaction", "durable", "auto-delete", "exclusive", "prefetch-count",
    "content-length", "content-type", "no-local", "persistent", "browser",
}) | frozenset(NAMES)  # fmt: skip
"""Headers of SUBSCRIBE that are not options."""


_TERMS = ("durable", "auto-delete")
_TRUTHS = {"true": True, "false": False}


class Held(NamedTuple):
    """One SUBSCRIBE: a subscription for each part of its destination."""

    ack: str
    subscriptions: list[Subscription]
    implicit: bool = False
    """The broker began it, for replies."""


class Subscriber(PeerPart[ClientSide]):
    __slots__ = ("_cumulative", "_held", "_of", "_temporary")

    def __init__(self, peer: ClientSide) -> None:
        super().__init__(peer)
        self._held: dict[str, Held] = {}
        self._of: dict[Subscription, Held] = {}
        """The SUBSCRIBE of each subscription."""
        self._cumulative = 0
        """How many have ``ack:client``."""
        self._temporary: Counter[str] = Counter()
        """How often each temporary queue is subscribed to."""

    def over(self) -> None:
        self._held.clear()
        self._of.clear()
        super().over()

    def subscribe(self, headers: Headers) -> tuple[bool, Headers]:
        """Returns whether the journal keeps it, and what the receipt says of it. Raises :class:`Refused`,
        ProtocolError."""
        peer, text = self._peer, headers.get("destination")
        if not text:
            raise StompFault(NO_DESTINATION, "SUBSCRIBE has no destination")
        if peer.version and "id" not in headers:
            raise StompFault(NO_HEADER, "SUBSCRIBE has no id")
        name, ack = headers.get("id", text), headers.get("ack", "auto")
        if len(name) > ID_CHARS_MAX and "id" in headers:
            raise StompFault(BAD_HEADER, f"the id of a subscription has {ID_CHARS_MAX} characters at most")
        if ack not in ACKS:
            raise StompFault(BAD_HEADER, f"ack:{ack[:40]} (known: {', '.join(ACKS)})")
        found = destinations_of(text)
        known = self._held.get(text)
        if known is not None and known.implicit:
            self._end(text)
        if name in self._held and not self._renews(name, ack, found):
            text = f"A subscription identified by '{name[:100]}' already exists."
            raise StompFault("Duplicated subscription identifier", text)
        if name in self._held and self._held[name].subscriptions[0].ended:  # its lease is over, or it is answered
            self._end(name)
        kept, begun = False, Held(ack, [])
        for number, destination in enumerate(found):
            envelope = StompEnvelope(headers.get("id"), peer.version, acks=ack != "auto")
            tag = (peer.channel.number, name) if len(found) == 1 else (peer.channel.number, name, number)
            try:
                subscription = self._begin(destination, headers, ack, envelope, tag)
            except Exception:
                for one in begun.subscriptions:
                    peer.named.queues.cancel(one, peer.engine.now())
                raise
            begun.subscriptions.append(subscription)
            kept = kept or subscription.durable
            peer.budget.left -= SUBSCRIBE_WORK
        self._hold(name, begun)
        first = begun.subscriptions[0]
        leased = first.request.options.lease_s is not None
        return kept, {RENEWED: "true" if first.renewals else "false"} if leased else {}

    def _hold(self, name: str, begun: Held) -> None:
        self._held[name] = begun
        self._of |= dict.fromkeys(begun.subscriptions, begun)
        self._cumulative += begun.ack == "client"
        self._temporary.update(_temporaries(begun))

    def _renews(self, name: str, ack: str, found: tuple[Destination, ...]) -> bool:
        """Returns whether this may be a subscription to topics again, on the same terms, which renews it."""
        held = self._held[name]
        return ack == held.ack == "auto" and len(found) == 1 and held.subscriptions[0].reader.queue is None

    def await_replies(self, text: str, destination: Destination) -> None:
        """Subscribes to a temporary queue that is a reply address, unless the client has done so."""
        if text in self._held or self._temporary[self._peer.temporaries.address(destination).name]:
            return
        self._peer.budget.left -= SUBSCRIBE_WORK
        envelope = StompEnvelope(text, self._peer.version, acks=False)
        tag = (self._peer.channel.number, text)
        self._hold(text, Held("auto", [self._begin(destination, {}, "auto", envelope, tag)], implicit=True))

    # -- to begin -----------------------------------------------------------------------------------------------------

    def _begin(
        self, destination: Destination, headers: Headers, ack: str, envelope: StompEnvelope, tag: tuple[object, ...]
    ) -> Subscription:
        peer, (kind, name, key) = self._peer, destination
        named = peer.named
        if kind is Kind.TEMP_TOPIC:
            kind, name = Kind.TOPIC, name_of_topic(peer.temporaries.address(destination).name)
        durable, subscriber = self._durable_name(headers, destination)
        exclusive = any(name in headers for name in NAMES) or flag(headers, "exclusive")
        match kind:
            case Kind.TOPIC | Kind.REPLY_TOPIC if durable is None and ack == "auto":
                return self._topics(name, headers, tag)
            case Kind.TOPIC | Kind.REPLY_TOPIC | Kind.EXCHANGE:
                exchange = TOPICS if kind is not Kind.EXCHANGE else name
                bound = key if kind is Kind.EXCHANGE else binding_key_of(name)
                named.check_subscription(durable, bound, exchange)
                asked = self._options(headers, Use.QUEUE)
                options = msgspec.structs.replace(asked, selector=None)
                if durable is None:
                    queue = named.subscribed(bound, exchange, asked.selector, no_local=_no_local(headers))
                else:
                    check_alone(no_local=_no_local(headers), shared=not exclusive)
                    if len(durable.encode()) > NAME_BYTES_MAX:
                        raise Refused(Reason.PRECONDITION_FAILED, f"the name {durable[:60]!r}... is too long")
                    terms, no_local = _kept_terms(headers), _no_local(headers)
                    kept = named.subscription(durable, subscriber, asked, terms, no_local=no_local)
                    queue = self._bound(kept, bound, exchange)
            case Kind.TEMP_QUEUE:
                options = self._options(headers, Use.QUEUE)
                queue = named.queues.queue(peer.granted, peer.temporaries.address(destination).name)
            case Kind.QUEUE:
                named.check_consume(_plain(name))
                options = self._options(headers, Use.QUEUE)
                queue = named.consumed(_plain(name), terms_of(headers))
            case _:
                queue = named.queues.queue(peer.granted, name)
                named.check_read(queue)
                options = self._options(headers, Use.QUEUE)
        named.check_read(queue)
        request = SubscribeRequest(
            f"$queue/{queue.name}", QUEUES.dialect, qos=int(ack != "auto"), name=tag, envelope=envelope,
            options=options, alone=flag(headers, "activemq.exclusive"),
        )  # fmt: skip
        prefetch = NO_LIMIT if ack == "auto" else _prefetch(headers)
        subscription = named.queues.consume(
            peer.granted, peer.channel, queue, request, prefetch, peer.engine.now(), exclusive=exclusive
        )
        log_patience(subscription)
        return subscription

    def _topics(self, name: str, headers: Headers, tag: tuple[object, ...]) -> Subscription:
        peer = self._peer
        peer.engine.broker.check_subscribe(peer.granted, filter_of(name))
        options = self._options(headers, Use.SUBSCRIPTION)
        envelope = StompEnvelope(headers.get("id"), peer.version, acks=False, queue=False)
        request = SubscribeRequest(
            filter_of(name), QUEUES.topics(options.offsets), no_local=_no_local(headers), send_retained="never",
            options=options, name=tag, envelope=envelope,
        )  # fmt: skip
        return peer.named.queues.consume_topics(peer.granted, peer.channel, request, peer.engine.now())

    def _options(self, headers: Headers, use: Use) -> SubscriptionOptions:
        """Reads a subscription's options. Raises :class:`Refused`."""
        pairs = [
            (name, value) for name, value in headers.items()
            if name not in _OWN and not name.startswith("activemq.")
            and (name.startswith(PREFIX) or not name.startswith("x-"))
        ]  # fmt: skip
        options = parse_options(pairs, use)
        self._peer.budget.left -= compile_work(options.selector)
        return options

    def _durable_name(self, headers: Headers, destination: Destination) -> tuple[str | None, str | None]:
        """Returns the name of a durable subscription's queue, and the client whose it is (``QueueTerms.subscriber``;
        None: of whoever names the queue itself). No name: the subscription is not durable."""
        if destination.kind not in (Kind.TOPIC, Kind.EXCHANGE):
            return None, None
        client = self._peer.client_id
        name = next((headers[one] for one in NAMES if headers.get(one)), None)
        if name is not None:
            if not client:
                text = "a durable subscription needs a client-id in CONNECT, by which it is found again"
                raise Refused(Reason.PRECONDITION_FAILED, text)
            return durable_queue(client, name), client
        if not _is_durable(headers):
            return headers.get("x-queue-name"), None
        if "id" not in headers:
            raise StompFault(NO_HEADER, "a durable subscription has no id, by which it is found again")
        if headers.get("x-queue-name"):
            return headers["x-queue-name"], None
        of = destination.name if destination.kind is Kind.TOPIC else f"{destination.name}/{destination.key}"
        return durable_queue(f"{client}.{headers['id']}" if client else headers["id"], of), client or ""

    def _bound(self, queue: Queue, key: str, exchange: str) -> Queue:
        """Binds a durable subscription's queue to its topics, and to no others."""
        peer, queues = self._peer, self._peer.named.queues
        for binding in queues.feeds.bindings_of(queue):
            if binding.source and (binding.source, binding.key) != (exchange, key):
                peer.budget.left -= queues.unbind(peer.granted, binding)
        peer.named.bind(queue, key, exchange)
        return queue

    # -- to end -------------------------------------------------------------------------------------------------------

    def unsubscribe(self, headers: Headers) -> bool:
        """Returns whether the journal has to keep that. Raises :class:`Refused`, ProtocolError."""
        peer, queues = self._peer, self._peer.named.queues
        named = next((headers[one] for one in NAMES if headers.get(one)), None)
        ends = named is not None or _is_durable(headers)
        name = headers.get("id", headers.get("destination", ""))
        held = self._end(name) if name in self._held else None
        if held is None and named is None:
            raise StompFault("Subscription not found", f"there is no subscription {name[:60]!r}")
        if not ends:
            return False
        found = [one.reader.queue.name for one in held.subscriptions if one.reader.queue is not None] if held else []
        if named is not None and not found:
            found = [durable_queue(peer.client_id, named)]
            peer.named.of_subscriber(found[0], peer.client_id)
        for queue_name in found:
            peer.named.delete(queue_name)
            peer.budget.left -= SUBSCRIBE_WORK
        return bool(found and queues)

    def _end(self, name: str) -> Held:
        peer, held = self._peer, self._held.pop(name)
        self._cumulative -= held.ack == "client"
        self._temporary -= Counter(_temporaries(held))
        for subscription in held.subscriptions:
            self._of.pop(subscription, None)
            if not subscription.ended:
                peer.named.queues.cancel(subscription, peer.engine.now())
                peer.budget.left -= SUBSCRIBE_WORK
        return held

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    def acknowledged(self, headers: Headers, command: str) -> list[int]:
        """Returns the deliveries that an ACK or NACK is about: all up to it, where the subscription is ``client``.
        Raises ProtocolError."""
        header = "id" if self._peer.version is V1_2 else "message-id"
        text = headers.get(header)
        if text is None:
            raise StompFault(NO_HEADER, f"{command} has no {header}")
        if not (text.isascii() and text.isdecimal()) or len(text) > ID_DIGITS_MAX:
            raise _unknown(text, command)
        return self.up_to(int(text), command)

    def up_to(self, delivery_id: int, command: str = "ACK") -> list[int]:
        """Returns the deliveries that are settled with this one."""
        channel = self._peer.channel
        delivery = channel.in_flight.get(delivery_id) or channel.timed_out.get(delivery_id)
        if delivery is None:
            raise _unknown(str(delivery_id), command)
        held = self._of.get(delivery.subscription)
        if held is None or held.ack != "client":
            return [delivery_id]
        self._peer.budget.left -= len(channel.in_flight) // LOOK_SHARE
        ids = sorted({one for member in held.subscriptions for one in channel.ids_of(member)} | {delivery_id})
        return [one for one in ids if one <= delivery_id]

    def settled_by(self, ids: Sequence[int]) -> list[int]:
        """Returns the deliveries that ACKs in a row settle. One of ``client`` settles those before it, so of a row only
        the last one of each subscription matters."""
        if not self._cumulative:
            in_flight, timed_out = self._peer.channel.in_flight, self._peer.channel.timed_out
            for one in ids:
                if one not in in_flight and one not in timed_out:
                    raise _unknown(str(one), "ACK")
            return list(dict.fromkeys(ids))
        found: dict[int, None] = {}
        for one in sorted(ids, reverse=True):
            if one not in found:
                found.update(dict.fromkeys(self.up_to(one)))
        return sorted(found)


def _temporaries(held: Held) -> list[str]:
    """Returns the names of the temporary queues that are read."""
    queues = (one.reader.queue for one in held.subscriptions)
    return [queue.name for queue in queues if queue is not None and is_temporary(queue.name)]


def _unknown(text: str, command: str) -> StompFault:
    return StompFault("Unknown delivery", f"{command} of {text[:40]!r}, which is no delivery that waits for it")


def flag(headers: Headers, name: str, default: bool = False) -> bool:
    """Returns the value of a header that is true or false, however its client writes that: stomp.py says ``True`` where
    its program does. Raises :class:`Refused`."""
    text = headers.get(name)
    if text is None:
        return default
    value = _TRUTHS.get(text.strip().lower())
    if value is None:
        raise Refused(Reason.PRECONDITION_FAILED, f"the header {name}: true or false, not {text[:40]!r}")
    return value


def _is_durable(headers: Headers) -> bool:
    return flag(headers, "durable") or flag(headers, "persistent")


def terms_of(headers: Headers) -> QueueTerms:
    """Returns the terms of a queue that a frame makes: durable and staying, unless it says something else. RabbitMQ's
    arguments of queues are headers. Raises :class:`Refused`."""
    if not any(name in _TERMS or name.startswith("x-") for name in headers):
        return DURABLE
    arguments = {name: _value(text) for name, text in headers.items() if name.startswith("x-")}
    durable, auto_delete = flag(headers, "durable", default=True), flag(headers, "auto-delete")
    return read_terms(arguments, durable=durable, exclusive=False, auto_delete=auto_delete)


def _kept_terms(headers: Headers) -> QueueTerms:
    """Returns the terms of a named subscription to topics: one that is not durable ends with its last consumer, unless
    it says something else."""
    if _is_durable(headers) or any(name in headers for name in NAMES):
        return terms_of(headers)
    auto_delete = flag(headers, "auto-delete", default=True)
    return msgspec.structs.replace(terms_of(headers), durable=False, auto_delete=auto_delete)


def _value(text: str) -> object:
    truth = _TRUTHS.get(text.lower())
    if truth is not None:
        return truth
    return int(text) if text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 18 else text


def _plain(name: str) -> str:
    if virtual_topic_of(name) is None and (name.endswith((".>", ".*")) or ".*." in name or name == ">"):
        raise Refused(Reason.PROTOCOL_ERROR, f"queue {name[:100]!r}: wildcards are for topics")
    return name


def _no_local(headers: Headers) -> bool:
    return flag(headers, "no-local") or flag(headers, "activemq.noLocal")


def _prefetch(headers: Headers) -> int:
    for name in PREFETCHES:
        text = headers.get(name, "")
        if text.isascii() and text.isdecimal() and len(text) < 10 and int(text):
            return int(text)
    return NO_LIMIT
