"""The links of one session, by the client's handles, which are the broker's, too. They have a limit on each connection,
and are counted to their client."""

from __future__ import annotations

from headway.core.consumer import Session, Subscription
from headway.core.queue import Queue
from headway.server.amqp1.browsing import BrowsingLink
from headway.server.amqp1.consuming import ConsumingLink
from headway.server.amqp1.coordinator import CoordinatorLink
from headway.server.amqp1.faults import LinkFault
from headway.server.amqp1.link import Link
from headway.server.amqp1.ports import ClientSide
from headway.server.connections import Steps
from headway.wire.amqp1.codes import Condition
from headway.wire.amqp1.performatives import Attach

LINKS_MAX = 4096
"""Links of a connection, on all of its sessions."""
LINKS = "links"
END_WORK = 16
LINK_BYTES = 3000
"""The memory of a link, besides its name and its consumer."""


class Links(dict[int, Link]):
    __slots__ = ("_by_name", "_peer", "_session")

    def __init__(self, peer: ClientSide, session: Session) -> None:
        super().__init__()
        self._peer = peer
        self._session = session
        self._by_name: dict[tuple[object, bool], Link] = {}
        """The same links, by their names and the client's roles."""

    def check_room(self, attach: Attach) -> None:
        """Raises LinkFault, Refused if the client may not have one more."""
        if self._peer.links >= LINKS_MAX:
            raise LinkFault(Condition.RESOURCE_LIMIT_EXCEEDED, f"a connection may have {LINKS_MAX} links")
        self._session.tab.check(_bytes_of(attach))

    def keep(self, link: Link) -> None:
        """Remembers a link, and of what its client said of it only what is still needed."""
        attach = link.attach
        link.attach = attach._replace(
            source=None, target=None, unsettled=None, offered_capabilities=None, desired_capabilities=None,
            properties=None,
        )  # fmt: skip
        self[link.handle] = self._by_name[(attach.name, attach.role)] = link
        self._peer.links += 1
        self._session.tab.add(LINKS, _bytes_of(attach))

    def forget(self, link: Link) -> None:
        del self[link.handle], self._by_name[(link.name, link.attach.role)]
        self._peer.links -= 1
        self._session.tab.add(LINKS, -_bytes_of(link.attach))

    def named(self, attach: Attach) -> Link | None:
        """Returns the link of this name and role; None: there is none."""
        return self._by_name.get((attach.name, attach.role))

    def of(self, consumer: Subscription) -> ConsumingLink | None:
        label = consumer.request.name
        link = self._by_name.get((label[1], True)) if isinstance(label, tuple) else None
        return link if isinstance(link, ConsumingLink) and link.consumer is consumer else None

    def leave(self) -> None:
        """Forgets all, because their session ends, which requeues what is unsettled. Queues that end with their links
        are deleted over the turns to come."""
        own = []
        for link in list(self.values()):
            if isinstance(link, BrowsingLink | CoordinatorLink):
                link.leave()
            elif isinstance(link, ConsumingLink) and link.own is not None:
                own.append(link.own)
            self.forget(link)
        if own:
            engine = self._peer.engine
            engine.broker.registry.deferred.begin(self._delete(own), engine.now(), client=self._session)

    def _delete(self, own: list[Queue]) -> Steps:
        engine = self._peer.engine
        for queue in own:
            if not queue.ended:
                engine.broker.queues.delete(queue, engine.now(), by=self._session)
            yield END_WORK


def _bytes_of(attach: Attach) -> int:
    """Returns the memory that a link takes up, about."""
    return LINK_BYTES + 4 * len(attach.name)
