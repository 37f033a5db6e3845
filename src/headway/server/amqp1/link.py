"""The common part of the links of a session, whatever they are for."""

from __future__ import annotations

from abc import ABC, abstractmethod

from headway.server.amqp1.faults import LinkFault
from headway.server.amqp1.ports import SessionSide
from headway.wire.amqp1.codes import Condition
from headway.wire.amqp1.items import Transfers
from headway.wire.amqp1.performatives import Attach, Flow


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
