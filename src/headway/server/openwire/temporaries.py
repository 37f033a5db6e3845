"""Temporary queues and topics of JMS. The client names them, below its connection's id; they end with the connection,
and only it may consume from them. Whoever knows the name may send to it, for only its owner told it.

Every client of JMS follows two advisory topics, by which it knows which temporary destinations there are: it sends to
no other. So it is told of those that there are when it begins to follow, and of changes from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

from headway.core.base import Reason, Refused
from headway.core.clients import queue_object
from headway.core.consumer import QueueTerms
from headway.core.message import Record, topic_of
from headway.core.permission import Operation
from headway.server.connections import SUBSCRIBE_WORK, Steps
from headway.server.engine import Engine
from headway.server.openwire.faults import JmsFault
from headway.server.openwire.ports import ClientSide
from headway.server.peers import PeerPart
from headway.server.protocols import QUEUES
from headway.wire.openwire.advisory import advisory_of, advisory_topic
from headway.wire.openwire.codes import Type
from headway.wire.openwire.commands import DestinationInfo
from headway.wire.openwire.marshalling import Destination
from headway.wire.openwire.replies import DESTINATION_ERROR

TELL_WORK = 8
TERMS = QueueTerms(exclusive=True)
OWN_IDS = "ID:"
"""Ids of connections that libraries make begin so. A client that chooses another id could take any queue's name."""
TEMPORARIES_MAX = 4096
"""Those of one connection."""
NAME_CHARS_MAX = 1255
"""A connection's id, and 255 more."""
TEMPORARIES = "temporaries"
TEMPORARY_BYTES = 1000
"""The memory of a temporary destination, besides its name and its queue."""
_ALL: WeakKeyDictionary[Engine, dict[Destination, None]] = WeakKeyDictionary()


class Temporaries(PeerPart[ClientSide]):
    """The temporary destinations of one connection, and a view of all there are."""

    __slots__ = ("_all", "_own")

    def __init__(self, peer: ClientSide) -> None:
        super().__init__(peer)
        self._all = _ALL.setdefault(peer.engine, {})
        self._own: dict[Destination, None] = {}

    def over(self) -> None:
        """Ends the temporary destinations, because the connection has ended. Others are told over the turns to come."""
        gone = [one for one in self._own if self._all.pop(one, self) is None]
        self._own.clear()
        engine = self._peer.engine
        super().over()
        if gone:
            engine.broker.registry.deferred.begin(_tell_all(engine, gone), engine.now())

    def carry_out(self, asked: DestinationInfo) -> None:
        """Makes or ends a destination. Raises :class:`JmsFault`, :class:`Refused`."""
        destination = asked.destination
        if not destination.is_temporary:
            if asked.removes:
                raise JmsFault("queues and topics are deleted by operators, not by clients of JMS")
            if not destination.is_topic:
                self._peer.queues.named(destination.name)
        elif asked.removes:
            self._remove(destination)
        else:
            self._add(destination)

    def _add(self, destination: Destination) -> None:
        peer = self._peer
        if len(self._own) >= TEMPORARIES_MAX:
            raise Refused(Reason.TOO_MANY_QUEUES, f"a connection may have {TEMPORARIES_MAX} temporary destinations")
        if len(destination.name) > NAME_CHARS_MAX:
            text = f"a name of {len(destination.name)} characters (at most {NAME_CHARS_MAX})"
            raise JmsFault(text, DESTINATION_ERROR)
        if not destination.name.startswith(f"{peer.connection_id}:"):
            raise JmsFault(f"{destination} is not named after its connection", DESTINATION_ERROR)
        if destination.kind is Type.TEMP_QUEUE and not destination.name.startswith(OWN_IDS):
            peer.granted.rights.check(Operation.DECLARE, queue_object(destination.name))
        peer.budget.left -= SUBSCRIBE_WORK
        session = peer.granted
        size = _bytes_of(destination)
        session.tab.check(size)
        if destination.kind is Type.TEMP_QUEUE:
            peer.queues.queues.declare(session, destination.name, TERMS, QUEUES.dialect, peer.engine.now())
        if destination not in self._own:
            session.tab.add(TEMPORARIES, size)
        self._own[destination] = self._all[destination] = None
        peer.budget.left -= _tell(peer.engine, destination, removed=False)

    def _remove(self, destination: Destination) -> None:
        if destination not in self._own:
            return
        peer = self._peer
        peer.granted.tab.add(TEMPORARIES, -_bytes_of(destination))
        del self._own[destination]
        if self._all.pop(destination, self) is None:
            peer.budget.left -= _tell(peer.engine, destination, removed=True)
        peer.budget.left -= SUBSCRIBE_WORK
        queue = peer.queues.found(destination.name)
        if destination.kind is Type.TEMP_QUEUE and queue is not None:
            peer.queues.queues.delete(queue, peer.engine.now(), by=peer.granted)

    def check_owner(self, destination: Destination) -> None:
        """Raises :class:`JmsFault` if the client may not consume from a temporary destination."""
        if destination.is_temporary and destination not in self._own:
            raise JmsFault(f"{destination} is of another connection, or has ended", DESTINATION_ERROR)

    def check_there(self, destination: Destination) -> None:
        """Raises :class:`JmsFault` if a temporary queue has ended."""
        if destination not in self._all:
            raise JmsFault(f"{destination} has ended", DESTINATION_ERROR)

    def known(self, topic: str) -> Iterator[Record]:
        """Yields what a client that begins to follow one of the advisory topics has to know."""
        for destination in list(self._all):
            if topic_of(advisory_topic(destination)) == topic and destination in self._all:
                yield advisory_of(destination, removed=False)


def _bytes_of(destination: Destination) -> int:
    return TEMPORARY_BYTES + 4 * len(destination.name)


def _tell(engine: Engine, destination: Destination, *, removed: bool) -> int:
    """Returns the work."""
    run = advisory_of(destination, removed=removed).run()
    return TELL_WORK + engine.broker.intake.publish_to(None, run, engine.now()).work


def _tell_all(engine: Engine, gone: list[Destination]) -> Steps:
    for destination in gone:
        yield _tell(engine, destination, removed=True)
