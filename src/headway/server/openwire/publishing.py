"""Publishing: a message of JMS becomes a record for each destination that it names.

Rules:
- A queue that is sent to is made if there is none. Topics are not made.
- The response to a message that the journal keeps is sent when the journal has it.
- A message in a transaction is published with its commit.
- Between the copies for the destinations of one message it looks for room. If the client leaves before there is any,
  the rest is lost, and the log says so.
- A producer with a window is told how many of its bytes were taken (ProducerAck), one message at a time.
"""

from __future__ import annotations

import msgspec

from headway.core.base import Reason, Refused
from headway.core.consumer import Session
from headway.core.message import TOPICS, Run
from headway.core.routing import is_out_of_room, part_of
from headway.server.connections import Steps
from headway.server.openwire.destinations import each_of
from headway.server.openwire.ports import ClientSide
from headway.server.peers import PeerPart, check_copies, check_topic, topic_named
from headway.wire.codecs import queue_form
from headway.wire.common import Address, CommonProperties, run_to
from headway.wire.openwire.alike import Series
from headway.wire.openwire.decoder import Sent
from headway.wire.openwire.marshalling import Destination, ProducerId
from headway.wire.openwire.messages import RECENT, Message
from headway.wire.openwire.replies import write_producer_ack, write_response

RETAIN = "ActiveMQ.Retain"
"""The property by which a publisher asks for its message to be retained."""
PRODUCERS_MAX = 65_536
PRODUCERS = "producers"
PRODUCER_BYTES = 400
"""The memory of a producer with a window, besides the text of its id."""
SERIES_SHARE = 4
"""So many messages that are alike are a unit of work, besides their way to their lanes."""
MESSAGE_WORK = 8
"""Work of reading a message and writing its properties, besides its way to its lanes."""
COPIED_BYTES = 8192
"""So many bytes that are copied are one unit of work."""


class Publishing(PeerPart[ClientSide]):
    __slots__ = ("_windows", "session")

    def __init__(self, peer: ClientSide) -> None:
        super().__init__(peer)
        self.session: Session
        """Set when the client is let in."""
        self._windows: dict[ProducerId, int] = {}
        """Producers that have windows, and the bytes of each."""

    def add_producer(self, producer: ProducerId, window_bytes: int) -> None:
        """Notes a producer. Raises :class:`Refused`."""
        if window_bytes <= 0:
            return
        if len(self._windows) >= PRODUCERS_MAX:
            raise Refused(Reason.CLIENT_MEMORY, f"a connection may have {PRODUCERS_MAX} producers with windows")
        size = 0 if producer in self._windows else _bytes_of(producer)
        self.session.tab.check(size)
        self.session.tab.add(PRODUCERS, size)
        self._windows[producer] = window_bytes

    def remove_producer(self, producer: ProducerId) -> None:
        if self._windows.pop(producer, None) is not None:
            self.session.tab.add(PRODUCERS, -_bytes_of(producer))

    def check_destination(self, destination: Destination) -> None:
        """Raises :class:`Refused` if a producer of a queue could not send to it."""
        for part in each_of(destination):
            if not part.is_topic:
                self._peer.make_queue(part)

    def runs_of(self, message: Message) -> list[Run]:
        """Returns a run for each destination. Makes queues that there are not. Raises :class:`Refused`."""
        peer = self._peer
        check_copies(message.common.headers)
        common = self._of_its_user(message.common)
        properties = queue_form().write_common(common)
        RECENT.remember(properties, common)
        runs = [self._run_to(part, message) for part in each_of(message.destination)]
        for run in runs:
            run.properties, run.qos = properties, int(message.common.persistent)
            run.headers = dict(message.common.headers) or None
            run.retain = message.common.headers.get(RETAIN) is True
            if message.expires_ms > 0:
                now = peer.engine.now()
                run.expires_s = message.expires_ms / 1000 - peer.engine.broker.registry.wall_offset_s
                run.expires_s = max(run.expires_s, now)
            if not (message.destination.is_temporary and message.destination.name.startswith("ID:")):
                peer.queues.check_publish(run)
        return runs

    def _of_its_user(self, common: CommonProperties) -> CommonProperties:
        """Returns the properties with the name by which the client has logged in, if the message has another: the
        provider sets it (JMS 1.1, 3.5.9), and who forwards a message sends that of its first sender."""
        user = self._peer.identity.user or self.session.username
        if common.user_id is None or user in (None, common.user_id):
            return common
        return msgspec.structs.replace(common, user_id=user)

    def _run_to(self, destination: Destination, message: Message) -> Run:
        self._check_address(destination)
        is_topic = destination.is_topic
        address = Address(topic_named(destination.name) if is_topic else destination.name, is_topic)
        payload = message.payload
        return run_to(address, payload, [len(payload)], [0])

    def publish(self, sent: Sent) -> None:
        """Publishes a message outside of a transaction, and responds. Raises :class:`Refused`."""
        self._peer.budget.left -= MESSAGE_WORK
        runs = self.runs_of(sent.message)
        for run in runs:
            run.confirmed = sent.wants_response
        if len(runs) == 1 and not self._peer.waits_with(runs[0]):
            self.answer(sent, kept=self.publish_run(runs[0]))
        else:
            self._peer.budget.begin(self._copies(sent, runs))

    def _copies(self, sent: Sent, runs: list[Run]) -> Steps:
        """Publishes a message to each of its destinations, and looks for room in between. A client that has left does
        not wait for that: what there is no room for is lost, as is all that it had not sent by then."""
        kept = False
        for number, run in enumerate(runs):
            waited = False
            while self._peer.waits_with(run, gone=self._peer.gone):
                waited = waited or is_out_of_room(self.session.paused_by)
                yield 0
            if self._peer.left_without_room(self.session, runs[number:], gone=self._peer.gone, waited=waited):
                raise Refused(Reason.MEMORY_LIMIT, "the client leaves, and there is no room for what it published")
            kept = self.publish_run(run) or kept
            yield 1 + len(run.data) // COPIED_BYTES
        self.answer(sent, kept=kept)

    def publish_run(self, run: Run) -> bool:
        """Publishes a run of one record. Returns whether the journal keeps it. Raises :class:`Refused`."""
        peer = self._peer
        broker, now = peer.engine.broker, peer.engine.now()
        if run.retain and run.exchange == TOPICS:
            _, taken, work, refused, *_ = broker.intake.publish_some(self.session, [run], now, 0)
            peer.budget.left -= work - 1
            if refused is not None:
                raise refused
            return True
        done, taken, accepted, work, _, refused, feeds = broker.intake.publish_slice(self.session, run, now)
        peer.budget.left -= work - 1
        if refused is not None:
            raise refused
        if not accepted:
            raise Refused(Reason.QUEUE_LENGTH, "the queue is full, and refuses what comes")
        if taken:
            peer.pace(taken, feeds)
        return done.journaled or run.retain

    def publish_series(self, series: Series) -> None:
        """Publishes messages of one producer that are alike, and responds. Raises :class:`Refused`."""
        peer, run, common = self._peer, series.run, series.common
        self._check_address(series.destination)
        RECENT.note(series.own.numbering)
        check_copies(common.headers)
        run.headers = dict(common.headers) or None
        if not (series.destination.is_temporary and series.destination.name.startswith("ID:")):
            peer.queues.check_publish(run)
        retain = common.headers.get(RETAIN) is True
        peer.budget.left -= len(run) // SERIES_SHARE
        peer.budget.begin(self._series_steps(series, run, retain=retain))

    def _series_steps(self, series: Series, run: Run, *, retain: bool) -> Steps:
        """Publishes a series in steps, and waits while the client has to. All that is not refused is published."""
        peer, intake = self._peer, self._peer.engine.broker.intake
        run.confirmed, kept, start, refused = series.wants_response, retain, 0, list[Refused]()
        while start < len(run):
            if peer.waits_with(run, start, gone=peer.gone):
                yield 0
                continue
            if retain:
                one = part_of(run, start, start + 1)
                one.retain, work = True, 1
                try:
                    self.publish_run(one)
                except Refused as error:
                    refused.append(error)
                start += 1
            else:
                done, taken, accepted, work, start, refusal, feeds = intake.publish_slice(
                    self.session, run, peer.engine.now(), start
                )
                kept = kept or done.journaled
                if refusal is not None:
                    refused.append(refusal)
                elif accepted < len(done):
                    refused.append(Refused(Reason.QUEUE_LENGTH, "the queue is full, and refuses what comes"))
                elif taken:
                    peer.pace(taken, feeds)
            if start < len(run):
                yield work
            else:
                peer.budget.left -= work
        if refused:
            raise refused[-1]
        self._answer(series, series.producer, series.size, kept=kept)

    def _check_address(self, destination: Destination) -> None:
        """Makes the queue of a destination that is not composite, if there is none. Raises :class:`Refused`."""
        if not destination.is_topic:
            self._peer.make_queue(destination)
        else:
            check_topic(topic_named(destination.name), self.session, self._peer.engine)

    def steps(self, runs: list[Run]) -> Steps:
        """Publishes the runs of a transaction's message, one in each step, and waits while the client has to."""
        for run in runs:
            while self._peer.waits_with(run, gone=self._peer.gone):
                yield 0
            self.publish_run(run)
            yield 1 + len(run.data) // COPIED_BYTES

    def answer(self, sent: Sent, *, kept: bool) -> None:
        self._answer(sent, sent.message.producer, sent.message.size, kept=kept)

    def _answer(self, item: Sent | Series, producer: ProducerId | None, size: int, *, kept: bool) -> None:
        replies = self._peer.pending_replies
        if item.wants_response:
            replies.send(write_response(item.number), kept=kept)
        elif producer is not None and producer in self._windows:
            replies.send(write_producer_ack(producer, size), kept=kept)


def _bytes_of(producer: ProducerId) -> int:
    return PRODUCER_BYTES + 4 * len(producer.connection)
