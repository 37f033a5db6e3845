"""Publishing on one channel: checks before, returns after, and confirms."""

from __future__ import annotations

from collections.abc import Iterable

from pamqp import commands

from headway.core.base import Reason, Refused
from headway.core.clients import published_to, queue_object
from headway.core.consumer import Session
from headway.core.message import (
    JOB_PATIENCE,
    MERGE,
    TOPICS,
    Run,
    receipt_request,
    says_merge,
    topic_of,
)
from headway.core.permission import ALL_RIGHTS
from headway.core.routing import COPIES, SEARCHED_A_UNIT, part_of
from headway.server.amqp.ports import ChannelFault, ChannelSide
from headway.server.amqp.states import CONFIRMS, TRANSACTIONS
from headway.server.peers import NO_PATCHES, check_patience, check_topic, forget, merges, remember, take_merge_away
from headway.wire.amqp.codes import ReplyCode
from headway.wire.amqp.primitives import TooManyValues
from headway.wire.amqp.properties import Facts, read, with_reply_to, without_headers
from headway.wire.amqp.replies import write_ack, write_method, write_return
from headway.wire.amqp.scan import PublishedRun
from headway.wire.common import VALUES_MAX, Remembered

DEFAULT_EXCHANGE = ""
REPLY_TO = "amq.rabbitmq.reply-to"
RECEIPT = "x-headway-receipt"
"""The header that asks for a receipt."""
HIDDEN = "BCC"
HIDDEN_MARK = b"\x03BCC"
"""The header's name as it is encoded in properties."""
KEYS_MAX = 100
COPIES_MAX, SEARCHED_MAX = 4096, 65_536
"""Queues and subscriptions to which all keys of CC and BCC may lead, counted for each key, and entries looked at to
find them: a message gets to all of them at once."""
FACTS_BYTES_MAX = 512
"""Size up to which encoded properties are remembered."""
FACTS_BYTES, FACTS_TIMES, FACTS_BYTES_SUM = 1000, 12, 500_000
"""The memory of decoded properties, besides so many times their size; and that of all that are remembered."""
READ_WORK, READ_BYTES_A_UNIT = 8, 64
"""The work of decoding properties that are not remembered, and so many of their bytes for one unit more: with a header
of its own a message is ten times the work of one that is like the last."""


class Publisher:
    __slots__ = ("_channel", "_facts", "_number", "_session")

    def __init__(self, channel: ChannelSide, session: Session) -> None:
        self._channel = channel
        self._session = session
        self._facts = Remembered[bytes, Facts](FACTS_BYTES_SUM)
        self._number = 0
        """Number of the last message since confirm.select."""

    def over(self) -> None:
        """Drops the channel when it is closed."""
        forget(self._session.tab, self._facts)
        del self._channel

    def checked(self, item: PublishedRun) -> Run:
        """Completes a run from its properties. Raises :class:`ChannelFault`, :class:`Refused` if it may not be
        published."""
        run, address, peer = item.run, item.address, self._channel.peer
        exchange = peer.engine.broker.registry.router.exchanges.by_name.get(address.exchange)
        if exchange is None or exchange.internal:
            check_publish(self._session, run, ())  # who may not is not told whether it is there
        if exchange is None:
            raise ChannelFault(f"there is no exchange '{address.exchange}'", ReplyCode.NOT_FOUND)
        if exchange.internal:
            text = f"exchange '{exchange.name}' is internal: bind another one to it"
            raise ChannelFault(text, ReplyCode.ACCESS_REFUSED)
        if address.exchange == TOPICS:
            check_topic(topic_of(address.routing_key), self._session, peer.engine)
        facts = self._read(item.properties)
        if facts.reply_to == REPLY_TO:
            facts = self._with_own_reply_to(without_hidden(item.properties))
        copies = (*keys_of(facts, COPIES), *self._hidden(item))
        check_publish(self._session, run, copies)
        if address.exchange == TOPICS:
            for key in copies:
                check_topic(topic_of(key), self._session, peer.engine)
        if facts.user_id is not None and facts.user_id != peer.username:
            raise ChannelFault(f"user_id is '{facts.user_id}', and the connection is that of '{peer.username}'")
        run.properties, run.headers, run.qos = facts.properties, facts.headers or None, facts.qos
        if copies:
            self._check_reach(run, copies)
        if facts.expiration_ms is not None:
            run.expires_s = peer.engine.now() + facts.expiration_ms / 1000
        if JOB_PATIENCE in facts.headers:
            check_patience(facts.headers[JOB_PATIENCE])
        if says_merge(facts.properties) and merges(peer.engine, run):
            if self._channel.mode is TRANSACTIONS:
                raise ChannelFault(f"the header {MERGE}: {NO_PATCHES}")
            take_merge_away(run)
        if RECEIPT in facts.headers:
            reply_to = topic_of(facts.reply_to) if facts.reply_to else ""
            correlation = facts.properties.correlation_data
            run.receipt = receipt_request(
                facts.headers[RECEIPT], reply_to=reply_to, exchange=DEFAULT_EXCHANGE, correlation=correlation
            )
        return run

    def check_again(self, item: PublishedRun, run: Run) -> None:
        """Raises :class:`Refused` if a run that was checked may not be published any more."""
        copies = (run.headers or {}).get(COPIES)
        keys = map(str, copies) if isinstance(copies, list) else ()
        check_publish(self._session, run, (*keys, *self._hidden(item)))

    def _check_reach(self, run: Run, copies: Iterable[str]) -> None:
        """Raises :class:`Refused` if the keys of CC and BCC lead to too many queues and subscriptions."""
        router, reached = self._channel.peer.engine.broker.registry.router, 0
        headers = {name: value for name, value in (run.headers or {}).items() if name != COPIES}
        for key in copies:
            route = router.route_from(run.exchange, topic_of(key), headers)
            reached += len(route.feeds) + len(route.states)
            if reached > COPIES_MAX or router.searched > SEARCHED_MAX:
                self._channel.peer.budget.left -= router.searched // SEARCHED_A_UNIT
                router.searched = 0
                text = f"the keys in {COPIES} and {HIDDEN} lead to too many queues and subscriptions"
                advice = f"all together to {COPIES_MAX} at most, counted for each key: publish several messages"
                raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, f"{text}, {advice}")

    def _read(self, raw: bytes) -> Facts:
        facts = self._facts.get(raw)
        if facts is None:
            self._channel.peer.budget.left -= READ_WORK + len(raw) // READ_BYTES_A_UNIT
            try:
                facts = read(raw, VALUES_MAX)
            except TooManyValues as error:
                raise Refused(error.reason, f"a message that {error}") from error
            if HIDDEN_MARK in raw:
                facts = read(without_hidden(raw))
            if len(raw) <= FACTS_BYTES_MAX:
                remember(self._session.tab, self._facts, raw, facts, FACTS_BYTES + FACTS_TIMES * len(raw))
        return facts

    def _hidden(self, item: PublishedRun) -> list[str]:
        """Returns the routing keys of the BCC header. Raises :class:`ChannelFault`."""
        return keys_of(read(item.properties), HIDDEN) if HIDDEN_MARK in item.properties else []

    def _with_own_reply_to(self, raw: bytes) -> Facts:
        """Replaces the reply address, so that direct replies come to this channel. Raises :class:`ChannelFault`."""
        if not self._channel.reply_queue:
            raise ChannelFault("nobody consumes direct replies on this channel")
        return read(with_reply_to(raw, self._channel.reply_queue))

    def publish(self, item: PublishedRun, run: Run, start: int = 0) -> tuple[int, int]:
        """Publishes messages of a run from ``start`` on, as many as one step takes. Returns the index of the first one
        left, and the work."""
        peer, address, hidden = self._channel.peer, item.address, self._hidden(item)
        broker, now = peer.engine.broker, peer.engine.now()
        run.confirmed = confirms = self._channel.mode is CONFIRMS
        alone = address.immediate or hidden or run.receipt is not None or says_merge(run.properties)
        if alone and len(run) > 1:  # the fate of each depends on those before it, or it has a receipt of its own
            one = part_of(run, start, start + 1)
            one.receipt = run.receipt
            _, work = self.publish(item, one)
            return start + 1, work
        if address.immediate and not broker.intake.takes_at_once(run, now):
            self._return(item, run, ReplyCode.NO_CONSUMERS, "nobody takes it at once")
            if confirms:
                self._tell(1, 1, kept=False)
            return 1, 1
        part, taken, accepted, work, stop, refused, feeds = broker.intake.publish_slice(self._session, run, now, start)
        kept = part.journaled
        for key in hidden:
            other = under(run, key)
            published = broker.intake.publish_to(self._session, other, now)
            accepted, kept, taken = min(accepted, published.accepted), kept or other.journaled, taken + published.taken
            work += published.work
            refused = refused or published.refused
        if refused is not None and not confirms:
            if refused.reason is Reason.MEMORY_LIMIT:
                raise refused
            raise ChannelFault(f"the header {MERGE}: {refused}")
        if taken:
            peer.pace(taken, feeds)
        elif address.mandatory and refused is None:
            self._return(item, part, ReplyCode.NO_ROUTE, "NO_ROUTE")
        if confirms:
            self._tell(len(part), accepted, kept=kept)
        return stop, work

    def _tell(self, count: int, accepted: int, *, kept: bool) -> None:
        """Confirms the first ``accepted`` of the next ``count`` messages, and rejects the others. ``kept``: the confirm
        waits for the journal."""
        peer, number = self._channel.peer, self._channel.number
        if accepted:
            ack = write_ack(number, self._number + accepted, accepted > 1)
            peer.pending_replies.send(ack, kept=kept, channel=number)
        self._number += count
        if accepted < count:
            nack = commands.Basic.Nack(self._number, multiple=count - accepted > 1, requeue=False)
            peer.pending_replies.send(write_method(peer.version, number, nack), kept=False, channel=number)

    def _return(self, item: PublishedRun, run: Run, code: ReplyCode, text: str) -> None:
        """Returns messages to the publisher. Must come before their confirms."""
        peer, address = self._channel.peer, item.address
        if self._channel.gone:
            return
        for index in range(len(run)):
            peer.write(write_return(
                self._channel.number, code, text, address.exchange, address.routing_key, item.properties,
                run.payload(index), peer.frame_bytes_max,
            ))  # fmt: skip


# -- permissions -------------------------------------------------------------------------------------------------------


def check_publish(session: Session, run: Run, other_keys: Iterable[str]) -> None:
    """Checks a publish under its own routing key and others. Whoever knows the name of a direct reply's queue may
    publish to it: only its requester told it."""
    rights = session.rights
    if rights is ALL_RIGHTS:
        return
    for topic in (run.topic, *map(topic_of, other_keys)):
        name = published_to(run.exchange, topic)
        if not name.startswith(queue_object(f"{REPLY_TO}.")):
            rights.check_publish(name, len(run.ends))


# -- other keys --------------------------------------------------------------------------------------------------------


def keys_of(facts: Facts, header: str) -> list[str]:
    """Returns the routing keys in the header CC or BCC. Raises :class:`ChannelFault`."""
    keys = facts.headers.get(header)
    if keys is None:
        return []
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len(keys) > KEYS_MAX:
        raise ChannelFault(f"the header {header} is an array of routing keys, {KEYS_MAX} at most")
    return list(dict.fromkeys(map(str, keys)))


def without_hidden(raw: bytes) -> bytes:
    """Returns encoded properties without the BCC header."""
    if HIDDEN_MARK not in raw:
        return raw
    return without_headers(raw, {HIDDEN})


def under(run: Run, key: str) -> Run:
    """Returns the run under another key and without its CC header, so that it goes to that key alone, also after a
    restart."""
    properties, headers = run.properties, run.headers
    if headers and COPIES in headers and properties.native is not None:
        facts = read(without_headers(properties.native, {COPIES}))
        properties, headers = facts.properties, facts.headers or None
    return Run(
        topic_of(key), run.data, run.ends, run.bodies, run.form, run.qos, run.retain, properties, run.expires_s,
        run.exchange, headers,
    )  # fmt: skip
