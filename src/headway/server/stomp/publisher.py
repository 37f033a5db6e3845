"""Publishing: a SEND becomes a run for each part of its destination.

Rules:
- A receipt is a confirm: it is sent once the journal has what is to be kept; within a transaction, after its commit.
- A record that cannot be published ends the connection, for STOMP has no smaller answer.
"""

from __future__ import annotations

from functools import partial

from headway.core.base import Reason, Refused
from headway.core.consumer import Session
from headway.core.message import (
    JOB_PATIENCE,
    MERGE,
    TOPICS,
    Properties,
    Run,
    receipt_request,
    says_merge,
    topic_of,
)
from headway.core.routing import part_of
from headway.server.connections import Steps
from headway.server.peers import (
    NO_PATCHES,
    PeerPart,
    check_patience,
    check_topic,
    merges,
    remember,
    take_merge_away,
    topic_named,
)
from headway.server.stomp.ports import ClientSide
from headway.server.stomp.subscribing import Subscriber, terms_of
from headway.wire.codecs import queue_form
from headway.wire.common import Address, Remembered, run_to
from headway.wire.stomp.destinations import Destination, Kind, destinations_of
from headway.wire.stomp.envelope import OWN, common_of
from headway.wire.stomp.versions import Headers, Sent

SEND_WORK = 8
"""Work of reading a SEND, or neighbours with one head, besides the way of their records to their lanes."""
RECEIPT = "x-headway-receipt"
"""The header that asks what became of a record."""
ABOUT_BYTES, HEADER_BYTES = 1000, 300
"""The memory of what is remembered of a message, and of each of its headers, besides their texts."""
_TEMPORARY = (Kind.TEMP_QUEUE, Kind.TEMP_TOPIC)

About = tuple[Properties, dict[str, object] | None, int, int | None]
"""Properties, headers that an exchange may route by, QoS, lifetime in milliseconds."""


class Publisher(PeerPart[ClientSide]):
    __slots__ = ("_known", "_session", "_subscriber")

    def __init__(self, peer: ClientSide, session: Session, subscriber: Subscriber) -> None:
        super().__init__(peer)
        self._session = session
        self._subscriber = subscriber
        self._known = Remembered[tuple[tuple[str, str], ...], About]()
        """Messages' properties by their headers."""

    def over(self) -> None:
        del self._subscriber
        super().over()

    def send(self, item: Sent) -> None:
        """Publishes, or puts it off until the commit. Raises :class:`Refused`, ProtocolError."""
        peer, headers = self._peer, item.headers
        peer.budget.left -= SEND_WORK
        runs = self._runs(item)
        transaction = peer.transaction(headers)
        if transaction is not None:
            if any(says_merge(run.properties) for run in runs):
                raise Refused(Reason.PRECONDITION_FAILED, f"the header {MERGE}: {NO_PATCHES}")
            size = sum(len(run.data) + run.properties.size for run in runs)
            transaction.publish(self._publish(runs, headers), runs, size)
            for run in runs:
                transaction.check_at_commit(partial(peer.named.check_publish, run))
            return
        peer.budget.begin(self._publish(runs, headers))

    def _publish(self, runs: list[Run], headers: Headers) -> Steps:
        """Publishes runs in steps, and waits while the client has to. Those of a commit go on without the client."""
        peer, session = self._peer, self._session
        broker, kept = peer.engine.broker, False
        for run in runs:
            run.confirmed = "receipt" in headers
            start, alone = 0, len(run) > 1 and (run.receipt is not None or says_merge(run.properties))
            while start < len(run.ends):
                if peer.waits_with(run, start, gone=peer.gone):
                    yield 0
                    continue
                whole, at = run, start
                if alone:  # the fate of each depends on those before it, or it has a receipt of its own
                    whole, at = part_of(run, start, start + 1), 0
                    whole.receipt = run.receipt
                part, taken, accepted, work, stop, refused, feeds = broker.intake.publish_slice(
                    session, whole, peer.engine.now(), at
                )
                start += stop - at
                kept = kept or part.journaled
                if refused is not None:
                    if refused.reason is Reason.MEMORY_LIMIT:
                        raise refused
                    raise Refused(refused.reason, f"the header {MERGE}: {refused}")
                if accepted < len(part):
                    raise Refused(Reason.QUEUE_LENGTH, "a queue is full, and refuses what is sent to it")
                if taken:
                    peer.pace(taken, feeds)
                yield work
        peer.done(headers, kept=kept)

    # -- what is sent, and where to -----------------------------------------------------------------------------------

    def _runs(self, item: Sent) -> list[Run]:
        headers, first = item.headers, item.run
        about = self._about(headers)
        runs: list[Run] = []
        for destination in destinations_of(headers["destination"]):
            run = self._run(destination, first, headers)
            run.properties, run.headers, run.qos, lifetime_ms = about
            if lifetime_ms is not None:
                run.expires_s = self._peer.engine.now() + lifetime_ms / 1000
            self._peer.named.check_publish(run)
            if says_merge(run.properties) and merges(self._peer.engine, run):
                take_merge_away(run)
            if RECEIPT in headers:
                self._ask(run, headers)
            runs.append(run)
        return runs

    def _run(self, destination: Destination, first: Run, headers: Headers) -> Run:
        """Returns the run for a destination. Raises :class:`Refused`."""
        peer, (kind, name, key) = self._peer, destination
        data, ends, bodies = first.data, first.ends, first.bodies
        if kind in _TEMPORARY:
            return run_to(peer.temporaries.address(destination), data, ends, bodies)
        if kind is Kind.EXCHANGE:
            known = peer.engine.broker.registry.router.exchanges.by_name.get(name)
            if known is None or known.internal:  # who may not publish to it is not told whether it is there
                peer.named.check_publish(Run(topic_of(key), data, ends, bodies, exchange=name))
            exchange = peer.named.queues.exchange(name)
            if exchange.internal:
                raise Refused(Reason.NOT_AUTHORIZED, f"exchange '{name}' is internal: bind another one to it")
            if name == TOPICS:
                check_topic(topic_of(key), peer.granted, peer.engine)
            return Run(topic_of(key), data, ends, bodies, exchange=name)
        if kind in (Kind.TOPIC, Kind.REPLY_TOPIC):
            topic = check_topic(topic_named(name), peer.granted, peer.engine)
            return run_to(Address(topic, is_topic=True), data, ends, bodies)
        if kind is Kind.QUEUE and not peer.named.knows(name):
            peer.named.check_send(name)
            peer.named.named(name, terms_of(headers))
        return run_to(Address(name), data, ends, bodies)

    def _about(self, headers: Headers) -> About:
        """Returns what the broker knows of a message with these headers. Equal ones are read once."""
        key = tuple((name, value) for name, value in headers.items() if name not in OWN)
        known = self._known.get(key)
        if known is None:
            known = self._read(headers)
            if "expires" not in headers:  # that is another lifetime each time
                size = ABOUT_BYTES + sum(HEADER_BYTES + 4 * (len(name) + len(value)) for name, value in key)
                remember(self._peer.granted.tab, self._known, key, known, size)
        return known

    def _read(self, headers: Headers) -> About:
        user = headers.get("user-id")
        if user is not None and user != self._peer.username:
            text = f"user-id is '{user[:100]}', and the connection is that of '{self._peer.username}'"
            raise Refused(Reason.PRECONDITION_FAILED, text)
        if JOB_PATIENCE in headers:
            check_patience(headers[JOB_PATIENCE])
        wall_ms = int((self._peer.engine.now() + self._peer.engine.broker.registry.wall_offset_s) * 1000)
        common = common_of(headers, self._reply_to(headers.get("reply-to")), wall_ms)
        properties = queue_form().write_common(common)
        return properties, dict(common.headers) or None, int(common.persistent), common.expiration_ms

    def _reply_to(self, text: str | None) -> Address | None:
        """Returns a reply address; a temporary queue that nobody reads yet is subscribed to, as RabbitMQ does."""
        if text is None:
            return None
        if not text.startswith("/"):
            return Address(text)
        destination = destinations_of(text)[0]
        if destination.kind is Kind.TEMP_QUEUE:
            self._subscriber.await_replies(text, destination)
        if destination.kind in _TEMPORARY:
            return self._peer.temporaries.address(destination)
        if destination.kind in (Kind.TOPIC, Kind.REPLY_TOPIC):
            return Address(topic_of(destination.name), is_topic=True)
        return Address(destination.name)

    def _ask(self, run: Run, headers: Headers) -> None:
        """Asks for a receipt of the record: what became of it."""
        reply_to = self._reply_to(headers.get("reply-to"))
        correlation = headers.get("correlation-id")
        is_queue = reply_to is not None and not reply_to.is_topic
        topic = "" if reply_to is None else topic_of(reply_to.name) if is_queue else reply_to.name
        run.receipt = receipt_request(
            headers[RECEIPT], reply_to=topic, exchange="" if is_queue else None,
            correlation=None if correlation is None else correlation.encode(),
        )  # fmt: skip
