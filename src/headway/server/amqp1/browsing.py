"""Links that browse a queue (distribution mode ``copy``): a client looks at the messages that wait, and takes none.

It sees those that wait when it begins, the first ``MESSAGES_MAX`` of them and ``BYTES_MAX`` bytes, as far as it gives
credit. It settles nothing: what it says of them is ignored.
"""

from __future__ import annotations

from headway.core.consumer import NO_LIMIT
from headway.core.queue import Queue, larger_than
from headway.server.amqp1.faults import LinkFault
from headway.server.amqp1.link import Link, credit_of
from headway.server.amqp1.ports import SessionSide
from headway.server.amqp1.terminus import Node, place_of, wishes_of
from headway.server.connections import SUBSCRIBE_WORK
from headway.server.protocols import QUEUES
from headway.wire.amqp1.codes import Condition
from headway.wire.amqp1.envelope import Amqp1Envelope
from headway.wire.amqp1.performatives import Attach, Flow, Source

MESSAGES_MAX = 400
BYTES_MAX = 4 * 1024 * 1024
COPIED_BYTES = 8192
"""So many bytes that are copied are one unit of work."""
BROWSED = "browsed"
BROWSED_BYTES = 150
"""The memory of a copy of a message, besides its bytes."""


class BrowsingLink(Link):
    __slots__ = ("_bytes", "_credit", "_envelope", "_sent", "_waiting")

    def __init__(self, session: SessionSide, attach: Attach) -> None:
        super().__init__(session, attach)
        self._envelope = Amqp1Envelope(
            session.number, attach.handle, session.peer.frame_bytes_max, settled=attach.snd_settle_mode == 1,
            decode=QUEUES.dialect.decode,
        )  # fmt: skip
        self._waiting: list[tuple[bytes, int]] = []
        self._credit = self._sent = self._bytes = 0

    def begin(self, queue: Queue, source: Source) -> Attach:
        """Looks at what waits. Returns the attach as it is in force. Raises LinkFault, Refused."""
        peer = self._session.peer
        if wishes_of(source, self.attach.properties).options:
            raise LinkFault(Condition.NOT_IMPLEMENTED, "a browser of a queue sees all of it: it takes no filter")
        peer.queues.check_read(queue)
        waiting = queue.waiting(MESSAGES_MAX, BYTES_MAX, self._session.now())[::-1]
        size = sum(BROWSED_BYTES + len(frame) for frame, _ in waiting)
        peer.budget.left -= SUBSCRIBE_WORK + len(waiting) + size // COPIED_BYTES
        self._session.session.tab.check(size)
        self._waiting = waiting
        self._count(size)
        return self.attach._replace(source=source._replace(filter=None), initial_delivery_count=0, properties=None)

    def flow(self, flow: Flow) -> None:
        if flow.link_credit is not None:
            self._credit = credit_of(flow, self._sent)
            if not self.let_on():
                return
            if flow.drain:
                self._sent, self._credit = self._sent + self._credit, 0
                self._session.say_flow(self.handle, self._sent & 0xFFFF_FFFF, 0, available=0, drain=True)
        if flow.echo:
            left = len(self._waiting)
            self._session.say_flow(self.handle, self._sent & 0xFFFF_FFFF, self._credit, available=left)

    def let_on(self) -> bool:
        """Sends as many messages as the client permits. Returns False if the link ends at one that is too large."""
        session, envelope, largest = self._session, self._envelope, self.attach.max_message_size or NO_LIMIT
        while self._waiting and self._credit > 0 and session.core.frames_left > 0:
            frame, returns = self._waiting.pop()
            self._count(-BROWSED_BYTES - len(frame))
            cut = envelope.cut(frame, [len(frame)], redelivered=returns)
            if not cut.count_within(1, largest):
                session.end_link(self.handle, Condition.MESSAGE_SIZE_EXCEEDED, larger_than(len(cut.pieces[0]), largest))
                return False
            session.peer.write(envelope.write(cut, 0, 1, session.core.take_ids(1)))
            session.frames_sent(envelope.frames_of(cut, 1))
            self._credit -= 1
            self._sent += 1
            session.peer.budget.left -= 1
        return True

    def _count(self, change: int) -> None:
        """Counts the copies of messages that the client has not taken."""
        self._bytes += change
        self._session.session.tab.add(BROWSED, change)

    def end(self, *, closed: bool) -> None:
        self.leave()
        super().end(closed=closed)

    def leave(self) -> None:
        """Drops what the client has not taken."""
        self._waiting.clear()
        self._count(-self._bytes)


def queue_to_browse(session: SessionSide, source: Source) -> Queue | None:
    """Returns the queue that a client wants to browse; None: it wants none, or means topics, of which each gets its own
    copy anyway. Raises LinkFault, Refused."""
    if source.distribution_mode != "copy" or source.dynamic:
        return None
    peer = session.peer
    place = place_of(peer.engine, peer.granted.rights, source.address, source.capabilities, filter=True)
    return peer.queues.named(place.name) if place.node is Node.QUEUE else None
