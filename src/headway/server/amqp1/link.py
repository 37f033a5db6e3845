"""The common part of the links of a session, whatever they are for."""

from __future__ import annotations

from abc import ABC, abstractmethod

from headway.server.amqp1.faults import LinkFault
from headway.server.amqp1.ports import SessionSide
from headway.wire.amqp1.codes import Condition
from headway.wire.amqp1.items import Transfers
from headway.wire.amqp1.performatives import Attach, Coordinator, Flow, Source, Target


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
