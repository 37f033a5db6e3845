"""Ports: what the parts of AMQP 1.0's side of a connection know of each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial

from headway.core.consumer import GrantedChannel, Session, Subscription
from headway.server.connections import HoldingReplies
from headway.server.peers import BasePeer, NamedQueues, Transaction, settle_in_steps
from headway.wire.amqp1.codes import Condition
from headway.wire.amqp1.items import Item
from headway.wire.amqp1.performatives import Begin, Flow
from headway.wire.amqp1.replies import write, write_disposition

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
