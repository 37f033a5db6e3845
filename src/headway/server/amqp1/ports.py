"""Ports: what the parts of AMQP 1.0's side of a connection know of each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial

from headway.core.base import HeadwayError, ProtocolError, Reason, Refused
from headway.core.consumer import GrantedChannel, Session, Subscription
from headway.server.connections import HoldingReplies
from headway.server.peers import BasePeer, NamedQueues, Transaction, settle_in_steps
from headway.wire.amqp1.items import Item, Transfers
from headway.wire.amqp1.performatives import Attach, Begin, Coordinator, Flow, Source, Target
from headway.wire.amqp1.replies import write, write_disposition
from headway.wire.amqp1.values import Condition

# -- ports -------------------------------------------------------------------------------------------------------------


MASK = 0xFFFF_FFFF
WINDOW = 0x7FFF_FFFF
"""Frames that the broker takes and sends: reading less is how it slows a client down."""


class ClientSide(BasePeer[Item], ABC):
    """The peer, as its greeting, its sessions and its links know it. ``pending_replies`` has settlements of what the
    client publishes."""

    __slots__ = (
        "closing", "container", "frame_bytes_max", "links", "message_bytes_max", "pending_links", "queues",
        "transactions",
    )  # fmt: skip

    container: str
    """The name that the client gave itself. With the name of a link it is the name of a durable subscription."""
    links: int
    """How many links there are, on all sessions."""
    frame_bytes_max: int
    """The largest frame that the client takes."""
    message_bytes_max: int
    queues: NamedQueues
    transactions: dict[bytes, Transaction]
    pending_links: HoldingReplies
    """Attaches and detaches: a durable subscription is confirmed, or is gone, once the journal has that."""
    closing: bool
    """Whether they have the detach of a durable subscription: its handle is free, but not known to be."""


class SessionSide(ABC):
    """A session, as its links know it."""

    __slots__ = ("_next_incoming", "core", "gone", "next_outgoing", "number", "peer", "session")

    def __init__(self, peer: ClientSide, session: Session, number: int, begin: Begin) -> None:
        self.peer = peer
        self.session = session
        self.number = number
        self.core = GrantedChannel(number, session.number, session.channel.in_flight_bytes)
        self.core.whole = session.channel
        self.core.frames_left = begin.incoming_window
        self.gone = False
        """Whether it has ended."""
        self._next_incoming = begin.next_outgoing_id
        self.next_outgoing = 0

    def now(self) -> float:
        return self.peer.engine.now()

    @abstractmethod
    def end_link(self, handle: int, condition: Condition, text: str) -> None: ...

    # -- windows ------------------------------------------------------------------------------------------------------

    def frames_sent(self, count: int) -> None:
        self.next_outgoing = self.next_outgoing + count & MASK
        self.core.frames_left = max(0, self.core.frames_left - count)

    def frames_came(self, count: int) -> None:
        self._next_incoming = self._next_incoming + count & MASK

    def say_flow(
        self, handle: int, count: int, credit: int, *, available: int | None = None, drain: bool = False,
        properties: dict[str, object] | None = None,
    ) -> None:  # fmt: skip
        """Says how a link and the session stand."""
        flow = self.flow_of_session()._replace(
            handle=handle, delivery_count=count, link_credit=credit, available=available, drain=drain,
            properties=properties,
        )  # fmt: skip
        self.peer.write(write(self.number, flow))

    def flow_of_session(self) -> Flow:
        return Flow(self._next_incoming, WINDOW, self.next_outgoing, WINDOW)

    # -- settling -----------------------------------------------------------------------------------------------------

    def settle(self, first: int, last: int, state: bytes, *, kept: bool = False) -> None:
        """Tells the client what became of its messages; if ``kept``, once the journal has them."""
        frame = write_disposition(self.number, True, first & MASK, last & MASK, state)
        self.peer.pending_replies.send(frame, kept=kept, channel=self.number)

    def requeue(self, consumer: Subscription) -> None:
        """Gives a consumer's unsettled deliveries back to its queue, over the turns to come (deferred.py). What the
        client settles meanwhile stays settled."""
        ids, engine = list(self.core.ids_of(consumer)), self.peer.engine
        if ids:
            refuse = partial(engine.broker.queues.refuse, self.core, requeue=True)
            steps = settle_in_steps(engine, self.core, ids, refuse)
            engine.broker.registry.deferred.begin(steps, engine.now(), client=self.session)


# -- faults ------------------------------------------------------------------------------------------------------------
#
# Faults of a client in the terms of AMQP 1.0: a condition and a text, for a link, for a session or for all.


_CONDITIONS = {
    Reason.NOT_FOUND: Condition.NOT_FOUND,
    Reason.RESOURCE_LOCKED: Condition.RESOURCE_LOCKED,
    Reason.PRECONDITION_FAILED: Condition.PRECONDITION_FAILED,
    Reason.NOT_AUTHORIZED: Condition.UNAUTHORIZED_ACCESS,
    Reason.NOT_ALLOWED: Condition.NOT_ALLOWED,
    Reason.PROTOCOL_ERROR: Condition.INVALID_FIELD,
    Reason.MALFORMED: Condition.DECODE_ERROR,
}
"""Conditions by reason of refusal. Every other reason means that a resource is short."""


class LinkFault(HeadwayError):
    """A fault that ends a link, but not its session."""

    def __init__(self, condition: Condition, text: str) -> None:
        super().__init__(text)
        self.condition = condition


class SessionFault(LinkFault):
    """A fault that ends a session, but not the connection."""


def link_fault(error: HeadwayError) -> LinkFault:
    if isinstance(error, LinkFault):
        return error
    reason = error.reason if isinstance(error, Refused | ProtocolError) else Reason.INTERNAL_ERROR
    return LinkFault(_CONDITIONS.get(reason, Condition.RESOURCE_LIMIT_EXCEEDED), str(error))


def end_condition(reason: Reason) -> Condition:
    """Returns the condition for the end of a connection that is not the client's fault, or is for its slowness."""
    match reason:
        case Reason.SHUTDOWN | Reason.ADMIN | Reason.TAKEN_OVER | Reason.CONNECT_TIMEOUT:
            return Condition.CONNECTION_FORCED
        case Reason.NOT_AUTHORIZED:
            return Condition.UNAUTHORIZED_ACCESS
        case Reason.INTERNAL_ERROR:
            return Condition.INTERNAL_ERROR
        case Reason.TOO_LARGE_FOR_CLIENT:
            return Condition.MESSAGE_SIZE_EXCEEDED
    return Condition.RESOURCE_LIMIT_EXCEEDED


def connection_fault(condition: Condition, text: str) -> ProtocolError:
    return ProtocolError(text, reason=Reason.PROTOCOL_ERROR, code=condition)


# -- link --------------------------------------------------------------------------------------------------------------
#
# The common part of the links of a session, whatever they are for.


class Link(ABC):
    __slots__ = ("_session", "attach", "handle")

    def __init__(self, session: SessionSide, attach: Attach) -> None:
        self._session = session
        self.attach = attach
        self.handle = attach.handle

    @property
    def name(self) -> str:
        return self.attach.name

    @abstractmethod
    def flow(self, flow: Flow) -> None: ...

    def end(self, *, closed: bool) -> None:
        """Ends the link. ``closed``: for good."""
        del self._session

    def publish(self, item: Transfers) -> None:
        raise LinkFault(Condition.NOT_ALLOWED, "messages came on a link on which the client receives")

    def lost(self, first_id: int, condition: Condition, text: str) -> None:
        """Settles a message that cannot be published."""
        raise LinkFault(Condition.NOT_ALLOWED, "messages came on a link on which the client receives")


def credit_of(flow: Flow, spent: int) -> int:
    """Returns how many more deliveries a client permits that has got ``spent`` (2.6.7). It counts in 32 bits, may have
    seen fewer of them, and may permit as many as there are numbers."""
    unseen = spent - (flow.delivery_count or 0) & 0xFFFF_FFFF
    return max(0, (flow.link_credit or 0) - (unseen if unseen < 1 << 31 else unseen - (1 << 32)))


def answered(attach: Attach) -> Attach:
    """Returns an attach as the broker answers it. A client that resumes a link says which deliveries it has not
    settled; the answer is that the broker knows none of them (2.6.13). What a client had received has gone back to its
    queue, and what it had sent was published or not: it may send that anew."""
    source, target = attach.source, attach.target
    if isinstance(target, Target):
        target = target._replace(dynamic_node_properties=None)
    return Attach(
        attach.name, attach.handle, not attach.role, attach.snd_settle_mode, attach.rcv_settle_mode,
        source._replace(dynamic_node_properties=None, default_outcome=None) if isinstance(source, Source) else None,
        target if isinstance(target, Target | Coordinator) else None, None if attach.unsettled is None else {},
        initial_delivery_count=attach.initial_delivery_count if attach.role else None,
        properties=attach.properties if attach.role else None,
    )  # fmt: skip
