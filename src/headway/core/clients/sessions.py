"""Sessions of clients: how they begin and end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import NamedTuple

import msgspec

from headway.core.allowance import UNLIMITED
from headway.core.base import END_WORK, NO_TIMER, Reason, Refused, WorkSteps
from headway.core.clients.durability import DurableMetadata, SessionTerms
from headway.core.consumer import (
    ENDED,
    GIVEN_UP,
    NO_WILL,
    Cancelled,
    ConnectRequest,
    Disconnect,
    Outlet,
    Session,
    SessionLife,
    Subscription,
    Will,
)
from headway.core.delivery import Fanout, finish_half_sent, go_back, last_of_half_sent, set_free
from headway.core.log import CHUNK_BYTES, SUBSCRIPTIONS, WILL, Tab
from headway.core.message import Gap, Run
from headway.core.permission import ALL_RIGHTS, Operation, Rights
from headway.core.policy import FlapControl
from headway.core.queue import queue_behind
from headway.core.routing import Publishing, Registry

# -- ending ------------------------------------------------------------------------------------------------------------
#
# Ending a subscription: its records, deliveries, state and gates.
#
# All records that the subscription did not get are counted as skipped. Its unacknowledged deliveries stay in the
# session, which can still settle them.


class Ending:
    """Takes subscriptions out of all tables, and opens gates."""

    def __init__(self, registry: Registry, metadata: DurableMetadata) -> None:
        self._registry = registry
        self._metadata = metadata

    def end(self, subscription: Subscription, reason: Reason, now: float) -> Gap | None:
        """Ends a subscription. Counts the records that it did not get, and returns them as a gap."""
        session, feed, registry = subscription.session, subscription.feed, self._registry
        if subscription.ended:
            return None
        feed.lane.receive()
        subscription.become(ENDED)
        session.tab.add(SUBSCRIPTIONS, -subscription.tab_bytes)
        subscription.stop_timers()
        self._metadata.subscription_ended(subscription)
        registry.observer.ended(subscription, reason, now)
        if session.half_sent is subscription:
            self.finish_half_sent(session)
        session.caught_up(subscription)
        for table in (feed.waiting, feed.resting, feed.subscriptions):
            table.pop(subscription, None)
        session.drop(subscription)
        if subscription.channel.members:
            subscription.channel.members.pop(subscription, None)
        registry.watched.pop(subscription, None)
        registry.totals.count_consumers(feed.key.filter, -1)
        if subscription.case.slow:
            registry.totals.count_slow(subscription, -1)
        queue = queue_behind(subscription)
        if queue is not None:
            queue.leave(subscription)
        else:
            feed.lane.receipts.leaving(subscription, reason)
            self._write_off(subscription, reason)
        registry.totals.count(subscription)
        if queue is None:
            if not session.ended:  # else its deliveries are never settled
                set_free(subscription)
            subscription.cursor.close()
            feed.settle_down()  # the lane's records may have been held for this subscription only
        self.release_state(subscription, now)
        if subscription in feed.gates:
            self.open_gate(subscription, now)
        if queue is not None and queue.ends_with_members and not queue.members:
            self._metadata.queue_ended(queue)
            queue.close()
        registry.close_if_unread(feed)
        if session.outlet.told_of_ends:
            registry.effects.append(Cancelled(subscription))
        return subscription.gap

    def end_in_step(self, subscription: Subscription, reason: Reason, now: float) -> int:
        """Ends a subscription as a step of deferred work. Returns the work: each chunk that it did not read is visited.
        """
        of_lane = not subscription.ended and queue_behind(subscription) is None
        chunks = subscription.gating_bytes // CHUNK_BYTES if of_lane else 0
        self.end(subscription, reason, now)
        return END_WORK + chunks

    def end_by_itself(self, subscription: Subscription, reason: Reason, now: float) -> None:
        """Ends a subscription because its lease is over, or it is a query that is answered. A client with channels is
        told."""
        self.end(subscription, reason, now)
        if subscription.has_channel:
            told = reason if reason is Reason.LEASE_EXPIRED else Reason.NORMAL
            self._registry.effects.append(Cancelled(subscription, told))

    def finish_half_sent(self, session: Session) -> None:
        """Sends the rest of a half-sent record, although its subscription ends. Ends the connection if that fails."""
        try:
            finish_half_sent(session)
        except OSError as error:
            session.half_sent = None
            session.give_up()
            text = f"a record half sent could not be read back from disk ({error.strerror or error})"
            self._registry.effects.append(Disconnect(session, session.outlet, Reason.SPILL_FAILED, text, None))

    def _write_off(self, subscription: Subscription, reason: Reason) -> None:
        """Counts the records that the consumer will not get any more, delivered or conflated."""
        if not subscription.conflating:
            self._registry.lost(subscription.skip_to(subscription.stop, reason), reason)
        subscription.conflation.write_off(subscription, reason)

    def release_state(self, subscription: Subscription, now: float) -> None:
        """Takes its state, and what it reads of it, from a subscription."""
        subscription.close_backfills()
        conflation = subscription.conflation
        state, conflation.state = conflation.state, None
        if state is None:
            return
        state.readers -= 1
        if state.readers == 0 and not state.declared:
            self._registry.router.remove_state(state)
            self._registry.deferred.begin(state.close(), now, client=subscription.session)

    def open_gate(self, subscription: Subscription, now: float) -> None:
        """Opens the consumer's gate: it no longer holds back publishers."""
        feed = subscription.feed
        since = feed.gates.pop(subscription, None)
        subscription.session.gates.pop(subscription, None)
        if since is not None:
            subscription.case.blocked_publishers_s += now - since
            self._registry.backpressure.gate_opened(feed, now)


# -- admission ---------------------------------------------------------------------------------------------------------
#
# Admission lets sessions connect, disconnect, resume and expire, and publishes their wills.
#
# A session with ``expiry_s`` 0 ends with its connection. Any other session stays for that time without a connection,
# and its cursors stay at their positions. An absent session costs only the bytes in its lanes, which are spilled like
# others.


CLEARED_SOON_S = 1.0
WILL_WAITS_S, WILL_LOOK_S = 60.0, 0.25
"""A will waits so long for room in its pools, which is looked for so often."""
WILLS_LOOKED_AT = 64


class WaitingWill(NamedTuple):
    run: Run
    client: str
    tab: Tab
    until_s: float


class Admission:
    """Moves sessions through their lives."""

    def __init__(self, registry: Registry, publishing: Publishing, ending: Ending, fanout: Fanout,
                 metadata: DurableMetadata, flap: FlapControl, on_end: Callable[[Session], WorkSteps]) -> None:
        self._registry = registry
        self._metadata = metadata
        self._publishing = publishing
        self._ending = ending
        self._fanout = fanout
        self._flap = flap
        self._on_end = on_end
        self.waiting_wills: deque[WaitingWill] = deque()
        self._look_due = NO_TIMER

    # -- in ---------------------------------------------------------------------------------------------------------

    def connect(self, request: ConnectRequest, outlet: Outlet, now: float) -> Session:
        """Admits a client; ``session.present`` tells whether it resumed its earlier session. Where there are
        permissions, a session is not resumed by another user than its own. Raises Refused."""
        registry = self._registry
        request.rights.check_connect()
        if not request.will.permitted(request.rights):
            raise request.rights.refusal(Operation.PUBLISH, request.will.record.topic)
        old = registry.sessions.get(request.client)
        useless = old is not None and (_is_of_another(old, request.rights) or old.protocol != request.protocol)
        wait_s = self._flap.wait_s(request.client, now)
        if wait_s > 0:
            text = (f"disconnected for slowness {self._flap.strikes(request.client)} times of late; "
                    f"readmitted in {wait_s:.1f} s")  # fmt: skip
            raise Refused(Reason.FLAPPING, text, retry_after_s=wait_s)
        limits = registry.limits_of(request.listener)
        request = msgspec.structs.replace(
            request, expiry_s=min(request.expiry_s, limits.session_expiry_max_s),
            credit=min(request.credit, limits.in_flight_max),
        )  # fmt: skip
        if old is not None and old.outlet.keeps_its_name and old.protocol != request.protocol:
            raise Refused(Reason.NOT_ALLOWED, f"{request.client} is the name of a client that keeps it")
        replaced = old is not None and old.connected and old.allowance is request.allowance
        request.allowance.check_connection(leaving=replaced)
        if old is None and len(registry.sessions) >= registry.sessions_max:
            raise Refused(Reason.TOO_MANY_CONNECTIONS, f"there are {registry.sessions_max} sessions already")
        if old is not None:
            if old.held.being_cleared and not request.clean_start:
                text = "subscriptions that it may not have any more are being ended; come back in a moment"
                raise Refused(Reason.TOO_MANY_CONNECTIONS, text, retry_after_s=CLEARED_SOON_S)
            self._take_over(old, request, now)
            # A client may always resume its own session, whose memory is counted already.
            if request.clean_start or useless or old.life is GIVEN_UP or old.expires_at() <= now:
                self.end(old, Reason.TAKEN_OVER, now)
                old = None
        if old is None:
            leaves_nothing = request.expiry_s <= 0 and request.will is NO_WILL
            owner = "" if leaves_nothing else request.owner
            tab = Tab(registry.pool_of(request.listener), owner, limits.shares)
            tab.check(Session.cost(request), login=True)
            session = self._make(request, now)
            session.connect(outlet)
            session.settle_tab()
        else:
            session = old
            self._resume(old, request, outlet, now)
        self._metadata.session(session)
        registry.backpressure.keep_to_rate(session, now)
        return session

    def restore(self, client: str, terms: SessionTerms, now: float) -> Session:
        """Restores a session from the journal, or updates it if it is there already."""
        owner = f"user {terms.username}" if terms.username else ""  # whose address that was is not known
        request = ConnectRequest(client, terms.listener, False, terms.expiry_s, terms.credit, username=terms.username,
                                 protocol=terms.protocol, owner=owner)  # fmt: skip
        session = self._registry.sessions.get(client) or self._make(request, now)
        session.adopt(request, now)
        session.gone_since_s = now if terms.gone_s is None else terms.gone_s
        session.settle_tab()
        self._metadata.session(session)
        return session

    def _make(self, request: ConnectRequest, now: float) -> Session:
        registry = self._registry
        registry.session_number += 1
        pool = registry.pool_of(request.listener)
        session = Session(registry.session_number, request, pool, now, registry.rights)
        session.tab.other_shares = registry.limits_of(request.listener).shares
        registry.sessions[request.client] = registry.numbers[session.number] = session
        return session

    def restored(self, now: float) -> None:
        """Starts the expiry of all sessions, when recovery is done and no client is connected yet."""
        for session in list(self._registry.sessions.values()):
            self._expire_later(session, now)

    def _take_over(self, session: Session, request: ConnectRequest, now: float) -> None:
        """Ends the client's earlier connection. Its will is published if MQTT 5 (3.1.2.5) says so."""
        outlet = session.outlet
        if not session.connected:
            return
        text = "the same client id connected again"
        rest = self.detach(session, now, last_word=True)
        self._registry.effects.append(Disconnect(session, outlet, Reason.TAKEN_OVER, text, rest))
        will, session.will = session.will, NO_WILL
        if will.delay_s <= 0:
            self._publish_will(session, will, now)
        else:
            session.pending_will = will  # published if the session ends now, forgotten if the client resumes it

    def _resume(self, session: Session, request: ConnectRequest, outlet: Outlet, now: float) -> None:
        durable = session.expiry_s > 0
        if session.listener != request.listener or durable != (request.expiry_s > 0):
            self._registry.came_elsewhere[session] = None
        if session.max_packet_bytes != request.max_packet_bytes:
            for queue in session.queues:
                queue.packet_limit_changed()
        session.adopt(request, now)
        session.tab.other_shares = self._registry.limits_of(request.listener).shares
        session.settle_tab()
        session.present = True
        session.connect(outlet)
        session.channel.replay = list(reversed(session.channel.in_flight))
        session.channel.exhausted_since_s = None
        self._fanout.again[session] = None
        self._registry.wake(session)

    # -- out --------------------------------------------------------------------------------------------------------

    def detach(self, session: Session, now: float, *, last_word: bool) -> bytes | memoryview | None:
        """Takes the outlet from a session.

        With ``last_word`` the broker still sends a packet on the connection. Then this returns the rest of a half-sent
        record, which goes before that packet; None if the disk fails to give it. Without ``last_word`` the half-sent
        record is sent again whole, on the next connection."""
        rest: bytes | memoryview | None = b""
        if session.half_sent is not None and not last_word:
            go_back(session.half_sent)
        elif last_word:
            rest = last_of_half_sent(session)
        session.half_sent = None
        session.rest = b""
        session.held_back.clear()
        session.disconnect(now)
        session.count_unsent()
        self._registry.backpressure.leaves(session, now)
        if session.gates:
            self._registry.deferred.begin(self._open_gates(session), now, client=session)
        self._registry.wake(session)
        return rest

    def _open_gates(self, session: Session) -> WorkSteps:
        """Opens the gates of an absent client, so that publishers do not wait for it. Stops if it comes back."""
        while session.gates and not session.connected:
            self._ending.open_gate(next(iter(session.gates)), self._registry.deferred.now)
            yield END_WORK

    def disconnect(self, session: Session, outlet: Outlet, reason: Reason, now: float, *, will: bool,
                   expiry_s: float | None = None) -> None:
        """Handles the end of a connection. ``expiry_s`` is the session's expiry if the client changed it at the end."""
        if session.outlet is not outlet:
            return  # the session has moved to another connection
        self.detach(session, now, last_word=False)
        if expiry_s is not None:
            session.expiry_s = min(expiry_s, self._registry.limits_of(session.listener).session_expiry_max_s)
        self._stay_or_end(session, reason, now, will=will)

    def leave(self, session: Session, now: float) -> None:
        """Disconnects a client without a connection, whose reader or writer is silent. What it has stays."""
        if session.connected:
            self.disconnect(session, session.outlet, Reason.CLIENT_GONE, now, will=False)

    def _stay_or_end(self, session: Session, reason: Reason, now: float, *, will: bool) -> None:
        """Keeps a session whose connection is gone until it expires, or ends it now."""
        session.last_reason = reason
        last_will, session.will = session.will, NO_WILL
        if session.expiry_s <= 0 or session.life is GIVEN_UP:
            self.end(session, Reason.SUBSCRIPTION_ENDED, now)
        else:
            self._metadata.session(session)
            self._expire_later(session, now)
        if will:
            self._leave_will(session, last_will, now)
        session.settle_tab()

    def expel(self, session: Session, reason: Reason, text: str, now: float) -> None:
        """Ends the connection from the broker's side, with a packet that gives the reason."""
        outlet = session.outlet
        if not session.connected:
            return
        rest = self.detach(session, now, last_word=True)
        self._registry.effects.append(Disconnect(session, outlet, reason, text, rest))
        self._stay_or_end(session, reason, now, will=True)

    def _expire_later(self, session: Session, now: float) -> None:
        if session.expires_at() == inf:
            return

        expire = partial(self.end, session, Reason.SUBSCRIPTION_ENDED)
        session.expiry = self._registry.timers.move(session.expiry, session.expires_at(), expire)

    def end(self, session: Session, reason: Reason, now: float) -> None:
        """Ends a session. Its name is free at once. Its subscriptions end over the turns to come (deferred.py). The
        journal gets one change, which ends the session with all of its subscriptions."""
        registry = self._registry
        if session.ended:
            return
        session.become(SessionLife.ENDED)
        session.stop_timers()
        self._metadata.session_ended(session)
        session.charge(UNLIMITED)
        for subscription in session.subscriptions.values() if session.queues else ():
            queue = queue_behind(subscription)
            if queue is not None:
                queue.expect_back(subscription, now)
        registry.deferred.begin(self._clear_up(session, reason), now, client=session)
        if registry.sessions.get(session.client) is session:
            del registry.sessions[session.client]
        registry.numbers.pop(session.number, None)
        registry.receipts.publisher_ended(session)
        if session.published_records:
            registry.ended_publishers.add(session)
        will, session.pending_will = session.pending_will, NO_WILL
        self._publish_will(session, will, now)

    def _clear_up(self, session: Session, reason: Reason) -> WorkSteps:
        """Ends the subscriptions and the channel of a session that has ended."""
        registry, deferred = self._registry, self._registry.deferred
        # Each is taken out of the list, and so is freed in the turn in which it ends, not all of them after the last.
        to_end = list(reversed(session.subscriptions.values()))
        while to_end:
            subscription = to_end.pop()
            queue = queue_behind(subscription)
            if queue is not None and not queue.ended:
                yield from queue.unsettled.requeue_in_steps(subscription, Reason.SUBSCRIPTION_ENDED)
            yield self._ending.end_in_step(subscription, reason, deferred.now)
        for member in session.departed:
            queue = queue_behind(member)
            if queue is not None and not queue.ended:
                yield from queue.unsettled.requeue_in_steps(member, Reason.SUBSCRIPTION_ENDED)
        registry.receipts.cleared(session.channel)
        session.channel.clear()
        yield from self._on_end(session)
        session.tab.close()

    # -- wills ------------------------------------------------------------------------------------------------------

    def _leave_will(self, session: Session, will: Will, now: float) -> None:
        """Publishes the will now, or after its delay. It is forgotten if the client comes back before, and published
        early if the session ends before."""
        if will.delay_s <= 0 or session.ended:
            self._publish_will(session, will, now)
            return
        session.pending_will = will

        def publish(when: float) -> None:
            session.pending_will = NO_WILL
            session.settle_tab()
            self._publish_will(session, will, when)

        session.will_due = self._registry.timers.move(session.will_due, now + will.delay_s, publish)

    def _publish_will(self, session: Session, will: Will, now: float) -> None:
        """Publishes a will, unless its client may not publish there any more."""
        if will is NO_WILL or not will.permitted(session.rights):
            return
        record = msgspec.structs.replace(will.record, expires_s=now + will.lifetime_s)
        tab = Tab(session.pool)  # the session may be gone before the turn has work left for the will
        tab.put(WILL, will.size)
        self._publish_soon(WaitingWill(record.run(), session.client, tab, now + WILL_WAITS_S), now)

    def _publish_soon(self, will: WaitingWill, now: float) -> None:
        self._registry.deferred.begin(self._publish_in_step(will), now, client=will.client, whole=True)

    def _publish_in_step(self, will: WaitingWill) -> WorkSteps:
        """Publishes a will, if there is room; without room it waits. So clients that leave cannot fill a pool. Wills to
        very many lanes wait for each other."""
        now, work, publishing = self._registry.deferred.now, 1, self._publishing
        if publishing.has_its_turn(will.run) and publishing.has_room(will.run):
            will.tab.close()
            work = publishing.announce(will.run, now)
        elif now < will.until_s and publishing.may_wait(will.run, now):
            self.waiting_wills.append(will)
            if not self._look_due.waits:
                self._look_due = self._registry.timers.at(now + WILL_LOOK_S, self._look_at_wills)
        else:
            self._drop(will)
        yield work

    def _look_at_wills(self, now: float) -> None:
        """Publishes wills for which there is room now, and drops those that have waited for too long, or for which
        there will be none."""
        waiting = self.waiting_wills
        for _ in range(min(WILLS_LOOKED_AT, len(waiting))):
            will = waiting.popleft()
            if self._publishing.has_its_turn(will.run) and self._publishing.has_room(will.run):
                self._publish_soon(will, now)
            elif now < will.until_s and self._publishing.may_wait(will.run, now):
                waiting.append(will)
            else:
                self._drop(will)
        if waiting and not self._look_due.waits:
            self._look_due = self._registry.timers.at(now + WILL_LOOK_S, self._look_at_wills)

    def _drop(self, will: WaitingWill) -> None:
        will.tab.close()
        self._publishing.drop("will", will.run)

    def finish(self) -> None:
        """Drops the wills for which there was no room, because there are no more turns."""
        while self.waiting_wills:
            self._drop(self.waiting_wills.popleft())


def _is_of_another(session: Session, rights: Rights) -> bool:
    """Tells whether a session belongs to another user, so that its records are not for this one. Raises
    :class:`Refused` if that user may still come back for it."""
    if rights is ALL_RIGHTS or (session.rights is not ALL_RIGHTS and session.rights.user == rights.user):
        return False
    if session.rights.applies:
        raise Refused(Reason.NOT_AUTHORIZED, f"client id {session.client!r} has a session of another user")
    return True
