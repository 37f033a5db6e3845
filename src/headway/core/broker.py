"""The broker: all commands, and the turn of the loop that carries out their consequences.

A command (connect, publish, subscribe, acknowledge ...) comes in with ``now``. Bytes go out to outlets, and *effects*
to the caller. The caller runs commands as they come, ``flush`` at the end of each turn, and ``tick`` every
``Governor.tick_s`` seconds. After each of these it takes the effects and carries them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from headway.core.base import Reason
from headway.core.clients import (
    Admission,
    DurableMetadata,
    Ending,
    Intake,
    Odd,
    Polls,
    Queues,
    RecoveredPosition,
    Restoring,
    Revoking,
    RightsOf,
    Subscribing,
    Writers,
)
from headway.core.consumer import (
    BackfillSource,
    ConnectRequest,
    DeliveryFailed,
    Effect,
    Outlet,
    Session,
    Spill,
    SubscribeRequest,
    Subscription,
)
from headway.core.delivery import Fanout, last_of_half_sent, note_in_flight
from headway.core.governance import LATE_S, SWEEP_S, Governor, NewPolicies, Turn, spills
from headway.core.live import LiveQueries
from headway.core.log import DISK_RETRY_S, Chunk, Lane, Ledger, Pool, Retained, SpillHandle, StateTerms
from headway.core.message import Dialect, Run
from headway.core.operating import Operating
from headway.core.permission import Rights
from headway.core.policy import FlapControl, Policy, VerdictBook
from headway.core.query import KeptOrders
from headway.core.receipts import TraceSampling
from headway.core.routing import (
    Advisories,
    AllowanceOf,
    Expiring,
    Limits,
    Publishing,
    ReceiptReplies,
    Recharging,
    RecordedTopics,
    Registry,
)
from headway.core.telemetry import TracedPublishing

__all__ = ["SWEEP_S", "Broker"]

NO_PRIORITIES: Mapping[str, int] = {}


class Broker:
    def __init__(self, limits: dict[str, Limits], pools: dict[str, Pool], policies: tuple[Policy, ...] = (), *,
                 flap: FlapControl | None = None, retained: Retained | None = None, sessions_max: int = 100_000,
                 sweep_s: float = SWEEP_S, late_s: float = LATE_S, traces: TraceSampling | None = None,
                 priorities: Mapping[str, int] = NO_PRIORITIES) -> None:  # fmt: skip
        """``traces``: which records are followed for their traces; None: none, and nobody asks. ``priorities``: of
        topics and queues, by filter."""
        self.registry = Registry(limits, pools, policies, sessions_max, priorities)
        self.retained = retained or Retained()
        self.retained.pool = pools[""]
        self.flap = flap or FlapControl()
        self.fanout = Fanout(self._fell_behind, self.registry.lost, self._disk_failed, self._delivery_failed,
                             self.registry.cuts, self.registry.watched)  # fmt: skip
        self.traces = traces
        self._publishing = (
            Publishing(self.registry, self.retained) if traces is None
            else TracedPublishing(self.registry, self.retained, traces)
        )  # fmt: skip
        advisories = Advisories(self._publishing)
        self.intake = Intake(self.registry, self._publishing, self.fanout, advisories)
        metadata = self._metadata = DurableMetadata(self.registry)
        ending = self._ending = Ending(self.registry, metadata)
        self.orders = KeptOrders(self.registry)
        live = LiveQueries(self.registry, self.orders)
        self._subscribing = Subscribing(self.registry, self.retained, self.fanout, ending, metadata, self._fell_behind,
                                        live)
        self.queues = Queues(self.registry, self.fanout, ending, self._subscribing, metadata, self._fell_behind)
        self.admission = Admission(self.registry, self._publishing, ending, self.fanout, metadata, self.flap,
                                    self.queues.session_ended)
        self.polls = Polls(self.registry, self.admission, self._subscribing, ending)
        self.writers = Writers(self.registry, self._publishing, metadata, self.admission)
        self.governor = Governor(self.registry, ending, self.admission, self.queues, metadata, advisories,
                                 self.flap, sweep_s=sweep_s, late_s=late_s)
        self.operating = Operating(self.registry, self.governor)
        self._receipt_replies = ReceiptReplies(self.registry, self._publishing, advisories)
        self._turn = Turn(self.registry, self.fanout, self.queues, self.governor, self._receipt_replies,
                          Expiring(self.registry, self._publishing), live, self._subscribing.starts)
        self._revoking = Revoking(self.registry, self.admission, ending, self.queues, metadata)
        self._recharging = Recharging(self.registry)
        self._new_policies = NewPolicies(self.registry, self.governor, self._subscribing.starts)

    @property
    def verdicts(self) -> VerdictBook:
        return self.governor.book

    def take_effects(self) -> list[Effect]:
        """Returns the actions to carry out outside of the core. Each effect is returned once."""
        effects, self.registry.effects = self.registry.effects, []
        self.governor.cutter.begin_turn()
        return effects

    # -- sessions ---------------------------------------------------------------------------------------------------

    def connect(self, request: ConnectRequest, outlet: Outlet, now: float) -> Session:
        return self.admission.connect(request, outlet, now)

    def disconnect(self, session: Session, outlet: Outlet, reason: Reason, now: float, *, will: bool = True,
                   expiry_s: float | None = None) -> None:
        self.admission.disconnect(session, outlet, reason, now, will=will, expiry_s=expiry_s)

    def expel(self, session: Session, reason: Reason, text: str, now: float) -> None:
        """Ends a connection for another reason than slowness, such as an operator's wish."""
        self.admission.expel(session, reason, text, now)

    def is_kept(self, client: str) -> bool:
        """Tells whether the client's session outlives the process."""
        session = self.registry.sessions.get(client)
        return session is not None and session.durable

    def unfinished(self, session: Session) -> bytes | memoryview | None:
        """Returns the rest of a half-sent record, to be sent before the connection's last packet. Its cursor moves past
        the record. None if it cannot be read (failing disk)."""
        return last_of_half_sent(session)

    def deletion_notice(self, client: str) -> str | None:
        """Returns, once, the notice for a client that comes back and whose durable subscription was deleted."""
        notice = self._metadata.deletion_notice("client", client)
        return None if notice is None else notice[1]

    # -- publishers and consumers -----------------------------------------------------------------------------------

    def publish(self, session: Session | None, runs: list[Run], now: float) -> int:
        return self.intake.publish(session, runs, now)

    def subscribe(self, session: Session, request: SubscribeRequest, now: float) -> Subscription:
        return self._subscribing.subscribe(session, request, now)

    def answer(self, session: Session, request: SubscribeRequest, records: BackfillSource, since_s: float, now: float
               ) -> Subscription:  # fmt: skip
        """Has an answer seen that its client does not take, as a subscription of its session. Raises :class:`Refused`.
        """
        return self._subscribing.answer(session, request, records, since_s, now)

    def check_subscribe(self, session: Session, filter: str) -> None:
        """Raises :class:`Refused` unless a client may subscribe to a filter, which may be shared."""
        self._subscribing.check(session, filter)

    def unsubscribe(self, session: Session, filter: str, now: float) -> bool:
        """Ends a subscription. Returns False if there is none of this filter."""
        subscription = session.subscriptions.get(filter)
        if subscription is not None:
            self._ending.end(subscription, Reason.SUBSCRIPTION_ENDED, now)
        return subscription is not None

    def acknowledge(self, session: Session, delivery_id: int, now: float) -> bool:
        """Settles a delivery and frees its credit. Returns False for an id that is not in flight."""
        return self._settle(session, (delivery_id,))[0]

    def acknowledge_all(self, session: Session, delivery_ids: Sequence[int]) -> int:
        """Settles deliveries, as ``acknowledge`` does each. Returns the work: neighbours are one unit."""
        return self._settle(session, delivery_ids)[1]

    def _settle(self, session: Session, delivery_ids: Sequence[int]) -> tuple[bool, int]:
        """Returns whether there were any, and the work."""
        channel, seen, some, work = session.channel, 0, False, 0
        while seen < len(delivery_ids):
            work += 1
            row = channel.settle_row(delivery_ids, seen)
            if row is not None:
                seen, some = seen + row[1], True
                self._has_settled(row[0])
                continue
            done = channel.settle_run(delivery_ids, seen)
            for (subscription, _), count in done.items():
                seen, some, work = seen + count, True, work + count
                self._has_settled(subscription)
            seen += not done  # it is not in flight
        if some:
            self._credit_is_back(session)
        return some, work

    def _has_settled(self, subscription: Subscription) -> None:
        feed = subscription.feed
        if not feed.lane.cursors_awaiting_acks and not subscription.ended:
            self.registry.dirty[feed] = None

    def _credit_is_back(self, session: Session) -> None:
        session.channel.exhausted_since_s = None
        if session.lagging or session.channel.replay:
            self.fanout.again[session] = None
        self.registry.wake(session)

    def on_pubrec(self, session: Session, delivery_id: int) -> bool:
        """Notes that an exactly-once delivery has arrived. Returns False for an id that is not in flight."""
        if session.channel.release_row([delivery_id], 0):
            return True
        delivery = session.channel.get(delivery_id)
        if delivery is None:
            return False
        delivery.released = True
        note_in_flight(delivery_id, delivery)
        return True

    def on_pubrecs(self, session: Session, delivery_ids: Sequence[int]) -> tuple[list[bool], int]:
        """Does what ``on_pubrec`` does, for each. Returns the work, too: neighbours are one unit."""
        known: list[bool] = []
        work = 0
        while len(known) < len(delivery_ids):
            work += 1
            count = session.channel.release_row(delivery_ids, len(known))
            known += [True] * count if count else [self.on_pubrec(session, delivery_ids[len(known)])]
        return known, work

    def on_pubcomp(self, session: Session, delivery_id: int, now: float) -> bool:
        """Notes that the client no longer holds the id. Returns False for an id that is not in use."""
        if delivery_id in session.channel.orphaned_ids:
            del session.channel.orphaned_ids[delivery_id]
            self._credit_is_back(session)
            return True
        return self.acknowledge(session, delivery_id, now)

    def keep_packet_id(self, session: Session, packet_id: int) -> None:
        """Notes that an exactly-once publish has arrived. Its id stays in use until the client releases it. Called in
        the turn in which it is published, so that the journal has both or none."""
        self._metadata.note_incoming(session, packet_id, there=True)

    def free_packet_id(self, session: Session, packet_id: int) -> None:
        """Notes that the client has released the id of an exactly-once publish."""
        self._metadata.note_incoming(session, packet_id, there=False)

    def writable(self, session: Session, now: float) -> None:
        """Goes on sending to a session whose outlet was blocked and has room again."""
        if session.connected:
            session.outlet.blocked = False
            self.fanout.pump(session, now)
            self.registry.wake(session)

    def flush(self, now: float) -> None:
        """Ends a turn: sends new records to all consumers that can take them."""
        self._turn.flush(now)

    def tick(self, now: float, late_s: float = 0.0) -> None:
        """Ends a turn, runs timers, the governor's sweep and relief; see turn.py."""
        self._turn.tick(now, late_s)

    @property
    def has_work(self) -> bool:
        """Tells whether another flush is needed at once."""
        return self._turn.has_work

    # -- pressure ---------------------------------------------------------------------------------------------------

    def relieve(self, now: float) -> None:
        """Makes room in pools that are over their limits; see memory.py."""
        self.governor.relief.relieve(now)

    def went_to_disk(self, now: float) -> None:
        """Goes on after a write of the spill."""
        self.governor.relief.go_on(now)

    def spilled(self, lane: Lane, chunk: Chunk, size: int, handle: SpillHandle | None, error: str, now: float) -> None:
        """Notes that a chunk of ``size`` bytes is on disk; without a ``handle``, that it has to stay in memory."""
        lane.spilled(chunk, handle, size)
        if handle is None:
            lane.pool.disk_broken_until_s, lane.pool.disk_error = now + DISK_RETRY_S, error

    def _fell_behind(self, subscription: Subscription, now: float) -> None:
        self.governor.watchlist.add(subscription)

    def _disk_failed(self, subscription: Subscription, error: OSError) -> None:
        self.governor.relief.disk_failed(subscription, error)

    def _delivery_failed(self, session: Session, error: Exception) -> None:
        self.registry.effects.append(DeliveryFailed(session, session.outlet, error))

    # -- the journal ------------------------------------------------------------------------------------------------

    def keep(self, ledger: Ledger, archive: RecordedTopics) -> None:
        """Begins to journal durable metadata and records, and to record the archive's topics."""
        self._metadata.begin(ledger)
        self.registry.archive = archive
        self.registry.router.recorded_in = archive.stream_of
        self.registry.router.forget()

    def written(self, number: int) -> None:
        """Notes that all commits up to this one are on disk."""
        for session in self.registry.ledger.written(number):
            assert isinstance(session, Session)
            self.fanout.again[session] = None
            self.registry.wake(session)

    def restoring(self, dialect: Dialect, recovered_positions: dict[int, RecoveredPosition], odd: Odd) -> Restoring:
        """Returns the object that restores the journal's metadata and records. It is used before any client connects;
        then ``restored`` is called. ``odd`` sets aside what cannot be replayed."""
        return Restoring(self.registry, self._publishing, self._subscribing, self.queues, self.admission,
                         self._metadata, dialect, recovered_positions, odd)

    def restored(self, now: float) -> None:
        """Ends restoring. Timers that became due meanwhile run in the first turn, so that their changes are journaled.
        """
        self.writers.restored()
        self.admission.restored(now)

    def finish(self) -> None:
        """Does what others would see the half of, because there are no more turns."""
        self.registry.deferred.finish()
        self.admission.finish()

    def spill(self, now: float) -> list[Spill]:
        """Drops journaled records from memory, at the start, while a pool is over its limit. No verdicts follow."""
        pools = self.registry.distinct_pools()
        return [spill for pool in pools for spill in spills(pool, inf, now, lanes_max=inf)]

    # -- configuration ----------------------------------------------------------------------------------------------

    def declare_state(self, terms: StateTerms) -> None:
        """Begins a state, at the start: the latest record per key of these topics."""
        self._new_policies.declare(terms)

    def declare_states(self, states: Iterable[StateTerms], now: float) -> None:
        """Begins the states that a reload has added, and changes the terms of the others."""
        self._new_policies.declare_more(states, now)

    def set_policies(self, policies: tuple[Policy, ...], now: float, trials: tuple[Policy, ...] = ()) -> None:
        """Replaces all policies and trials (a reload). Rules that stay the same keep their state. A consumer is judged
        by its new policy from the next look at it on; policies that are as before change nothing."""
        self.set_trials(trials)
        if policies != self.registry.policies:
            self.registry.policies = policies
            self.registry.policies_version += 1
            self._new_policies.apply(now)

    def set_permissions(self, rights_of: RightsOf, now: float, over: Callable[[], None] = lambda: None) -> None:
        """Gives all sessions their rights (a reload), which hold for all that they ask for from now on. What stands and
        is not allowed any more ends over the turns to come; then ``over`` is called."""
        self._revoking.apply(rights_of, now, over)

    def set_rights(self, session: Session, rights: Rights, now: float) -> None:
        """Gives one session other rights, and ends what they do not allow, over the turns to come."""
        self._revoking.regrant(session, rights, now)

    def set_allowances(self, allowance_of: AllowanceOf, now: float) -> None:
        """Counts what each session takes up for its user, after the limits of users have changed (a reload)."""
        self._recharging.apply(allowance_of, now)

    def set_trials(self, trials: tuple[Policy, ...]) -> None:
        """Sets the policies that judge consumers beside those in force. Consumers get them at the next look at them.
        Verdicts of trials that are no more are forgotten."""
        if trials != self.registry.trials:
            self.registry.trials = trials
            self.registry.trials_mind_acks = any(trial.minds_acks for trial in trials)
            self.registry.trials_mind_silence = any(trial.minds_silence for trial in trials)
            self.governor.trials.keep_only(trials)
