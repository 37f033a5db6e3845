"""The open receipts of all publishers. It opens, looks at and closes them; ``done`` has those to be told.

The broker opens receipts of its own for records of sampled traces. ``traced`` has what became of these.

Rules:
- Nothing is done per record or consumer while no receipt is open, and nothing per record and consumer while one is.
- A turn looks at the readers of receipts that were opened in it, a tick at those that still wait, each up to a budget.
- A session has at most ``OPEN_MAX`` open receipts, and all sessions together ``ALL_OPEN_MAX``. The oldest gives way.
  The readers that a receipt has to remember are on its publisher's tab.
- Receipts of the broker's own are on nobody's tab, and displace no other. They have limits of their own:
  ``TRACES_MAX`` open ones, and ``TRACES_BYTES_MAX`` for what all of these together remember.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable

from headway.core.base import Reason, Refused, Timers
from headway.core.consumer import NO_LIMIT, Channel, Delivery, Feed, Session, SharedReader, Subscription
from headway.core.log import NO_RECEIPTS, RECEIPT_BYTES, RECEIPT_READER_BYTES, RECEIPTS, Lane, State
from headway.core.message import ReceiptRequest, Run
from headway.core.receipts.lane_receipts import LaneReceipts
from headway.core.receipts.receipt import Receipt, ReceiptState, Sent, way_of
from headway.core.receipts.trace import Trace

OPEN_MAX = 64
ALL_OPEN_MAX = 1024
TURN_LOOKS = 1024
TICK_LOOKS = 2048
TRACES_MAX = 1024
TRACES_BYTES_MAX = 10_000_000
ENDED_MAX = 4096
"""Ended traces that nobody has taken."""
ASK_WORK = 64
"""To open and to tell one receipt is as much work as a search of so many entries."""


class Receipts:
    def __init__(self, timers: Timers) -> None:
        self.asked = 0
        self.closed: Counter[ReceiptState] = Counter()
        self.open: dict[int, Receipt] = {}
        """By sequence, so the oldest comes first."""
        self.done: deque[Receipt] = deque()
        """Closed receipts that their publishers are not told yet."""
        self.traced: deque[Trace] = deque()
        """Ended traces. Whoever exports them takes them at the end of each turn."""
        self._lost = 0
        self._followed: dict[int, Receipt] = {}
        """Open receipts of the broker's own, by sequence."""
        self._followed_bytes = 0
        self._news: dict[Trace, None] = {}
        """Traces with something that has no time yet."""
        self._timers = timers
        self._of_session: dict[Session, dict[int, Receipt]] = {}
        self._parked: dict[Delivery, tuple[Receipt, Subscription]] = {}
        """Deliveries of pending subscriptions that no cursor knows."""
        self._fresh: deque[Receipt] = deque()
        """Receipts to be looked at in this turn: new ones, and those whose time is over."""
        self._old: dict[Receipt, None] = {}
        """Open receipts that were looked at, to be looked at again. The next one comes first."""

    @property
    def due(self) -> bool:
        """Tells whether there is something to look at, or to tell, in this turn."""
        return bool(self._fresh or self.done or self._news)

    @property
    def asked_open(self) -> int:
        """How many open receipts publishers have asked for."""
        return len(self.open) - len(self._followed)

    # -- opening ----------------------------------------------------------------------------------------------------

    def ask(
        self, session: Session, run: Run, sequence: int, feeds: Collection[Feed], states: Iterable[State], now: float
    ) -> int:
        """Opens a receipt for a record that was just published to these feeds. Returns the work, as that of a search
        of so many entries."""
        self.asked += 1
        assert run.receipt is not None
        receipt = Receipt(self.asked, session, run, run.receipt, sequence, now)
        if receipt.request.fault:
            self._refuse(receipt, receipt.request.fault)
            return ASK_WORK
        size = RECEIPT_BYTES + len(run.topic) + receipt.request.size
        most = _readers_of(feeds, sequence)
        try:
            if most:
                session.tab.check(size + RECEIPT_READER_BYTES * most)
        except Refused as error:
            self._refuse(receipt, str(error))
            return ASK_WORK
        self._find_readers(receipt, feeds)
        if not receipt.waiting:
            self._close(receipt, ReceiptState.COMPLETE)
            return ASK_WORK + receipt.owed
        self._make_room(session)
        self._open(receipt, run, states, size + RECEIPT_READER_BYTES * receipt.waiting)
        return ASK_WORK + receipt.owed

    def follow(
        self, session: Session, run: Run, feeds: Collection[Feed], states: Iterable[State], now: float, trace: Trace,
        wait_s: float,
    ) -> int:  # fmt: skip
        """Follows the last record of a run, which was just published to these feeds, for its trace. Returns the work,
        as ``ask`` does."""
        sequence = trace.sequence
        asked = self.open.get(sequence)
        if asked is not None:  # its publisher asked, too
            asked.traces = (trace,)
            return 0
        receipt = Receipt(0, session, run, ReceiptRequest(wait_s), sequence, now, (trace,))
        size = RECEIPT_BYTES + RECEIPT_READER_BYTES * _readers_of(feeds, sequence)
        if self._followed_bytes + size > TRACES_BYTES_MAX:
            self._close(receipt, ReceiptState.REFUSED)
            return ASK_WORK
        self._find_readers(receipt, feeds)
        if not receipt.waiting:
            self._close(receipt, ReceiptState.COMPLETE)
            return ASK_WORK + receipt.owed
        if len(self._followed) >= TRACES_MAX:
            self._close(next(iter(self._followed.values())), ReceiptState.DISPLACED)
        self._open(receipt, run, states, RECEIPT_BYTES + RECEIPT_READER_BYTES * receipt.waiting)
        return ASK_WORK + receipt.owed

    def _make_room(self, session: Session) -> None:
        """Closes the oldest receipt if there are too many, of this session or of all."""
        own = self._of_session.get(session, {})
        if len(own) >= OPEN_MAX:
            self._displace(next(iter(own.values())))
        elif self.asked_open >= ALL_OPEN_MAX:
            self._displace(next(one for one in self.open.values() if one.told))

    def _find_readers(self, receipt: Receipt, feeds: Iterable[Feed]) -> None:
        for feed in feeds:
            lane, queues = feed.lane, [queue for queue in feed.queues if queue.feed is feed]
            if lane.last_sequence != receipt.sequence:
                if feed.refuses:  # its queue was full
                    receipt.refused_by(queues)
                continue  # a selector, or No Local, kept it out
            receipt.numbers[lane] = lane.count - 1
            if queues or feed.by_exchange:
                receipt.queues.update((queue, queue.backlog.reading) for queue in queues)
            else:
                receipt.pending.update(
                    (one, way_of(one)) for one in feed.subscriptions
                    if one.stop_number == NO_LIMIT and not one.session.ended
                )  # fmt: skip
        receipt.owed += receipt.waiting

    def _open(self, receipt: Receipt, run: Run, states: Iterable[State], size: int) -> None:
        session, last = receipt.session, len(run) - 1
        self.open[receipt.sequence] = receipt
        receipt.bytes = size
        if receipt.told:
            self._of_session.setdefault(session, {})[receipt.sequence] = receipt
            session.tab.add(RECEIPTS, size)
        else:
            self._followed[receipt.sequence] = receipt
            self._followed_bytes += size
        record = run.record(last, receipt.sequence - last, receipt.opened_s)
        receipt.keys = {state: state.key_of(record) for state in states}
        for lane in receipt.numbers:
            self.on(lane).add(receipt)
        receipt.timer = self._timers.at(receipt.opened_s + receipt.request.wait_s, lambda _: self._time_out(receipt))
        self._fresh.append(receipt)

    def on(self, lane: Lane) -> LaneReceipts:
        """Returns the receipts that are open on a lane, to add one."""
        if not isinstance(lane.receipts, LaneReceipts):
            lane.receipts = LaneReceipts(self)
        return lane.receipts

    # -- closing ----------------------------------------------------------------------------------------------------

    def _refuse(self, receipt: Receipt, text: str) -> None:
        receipt.text = text
        self._close(receipt, ReceiptState.REFUSED)

    def _displace(self, receipt: Receipt) -> None:
        receipt.text = f"closed early: a client may have {OPEN_MAX} open receipts, and all together {ALL_OPEN_MAX}"
        self._close(receipt, ReceiptState.DISPLACED)

    def _time_out(self, receipt: Receipt) -> None:
        """Closes the receipt after one more look at its readers."""
        receipt.closing = True
        receipt.to_look = []
        self._old.pop(receipt, None)
        self._fresh.append(receipt)

    def _close(self, receipt: Receipt, state: ReceiptState) -> None:
        receipt.state = state
        if receipt.told:
            self.closed[state] += 1
            self.done.append(receipt)
            receipt.session.tab.add(RECEIPTS, -receipt.bytes)
        else:
            self._followed_bytes -= receipt.bytes
        receipt.timer.cancel()
        receipt.bytes = 0
        receipt.end_traces()
        self._news |= dict.fromkeys(receipt.traces)
        if self.open.pop(receipt.sequence, None) is not None:
            self._take_out(receipt)
        self._old.pop(receipt, None)
        receipt.forget_readers()  # it may stay in ``done`` for some turns, and is on no tab

    def _take_out(self, receipt: Receipt) -> None:
        """Takes an open receipt out of the tables of its session, of deliveries and of lanes."""
        if receipt.told:
            own = self._of_session[receipt.session]
            del own[receipt.sequence]
            if not own:
                del self._of_session[receipt.session]
        else:
            del self._followed[receipt.sequence]
        for way in receipt.pending.values():
            if isinstance(way, Sent):
                del self._parked[way.delivery]
        for lane in receipt.numbers:
            found = lane.receipts
            if isinstance(found, LaneReceipts):
                found.remove(receipt)
                if not found:
                    lane.receipts = NO_RECEIPTS

    def publisher_ended(self, session: Session) -> None:
        """Closes the receipts of a publisher whose session has ended."""
        for receipt in list(self._of_session.get(session, {}).values()):
            receipt.text = "closed early: the session of the publisher has ended"
            self._close(receipt, ReceiptState.PUBLISHER_ENDED)

    def end_traces(self, now: float) -> None:
        """Closes what is followed for traces as it stands, because the broker stops."""
        for receipt in list(self._followed.values()):
            self._close(receipt, ReceiptState.BROKER_STOPS)
        self._stamp(now)

    # -- reports ----------------------------------------------------------------------------------------------------

    def resolve(
        self, receipt: Receipt, reader: Subscription | SharedReader, reason: Reason | None, *, dead_letter: bool = False
    ) -> None:
        """Counts the fate of a pending reader. Closes the receipt if it was the last one."""
        if isinstance(reader, Subscription):
            way = receipt.pending[reader]
            if isinstance(way, Sent):
                del self._parked[way.delivery]
        receipt.resolve(reader, reason, dead_letter=dead_letter)
        self._news |= dict.fromkeys(receipt.traces)
        if not receipt.waiting and receipt.state is ReceiptState.OPEN:
            self._close(receipt, ReceiptState.COMPLETE)

    def park(self, receipt: Receipt, reader: Subscription, sent: Sent) -> None:
        """Notes that the record was sent to a pending subscription in a delivery that no cursor knows."""
        receipt.pending[reader] = sent
        self._parked[sent.delivery] = receipt, reader

    def unacknowledged(self, receipt: Receipt, reader: Subscription, delivery: Delivery) -> None:
        """Notes that a session has ended without an acknowledgement. At QoS 2 it may have confirmed the arrival."""
        self.resolve(receipt, reader, None if delivery.released else Reason.UNACKNOWLEDGED)

    def cleared(self, channel: Channel) -> None:
        """Notes that a session has ended, and its deliveries with it."""
        if self._parked:
            for delivery in channel.in_flight.values():
                found = self._parked.get(delivery)
                if found is not None:
                    self.unacknowledged(*found, delivery)

    def dropped(
        self, queue: SharedReader, first: int, last: int, reason: Reason, *, dead_letter: bool = False
    ) -> None:
        """Notes that a queue leaves out its records with these sequences."""
        for receipt in self._between(first, last):
            if queue in receipt.queues:
                self.resolve(receipt, queue, reason, dead_letter=dead_letter)

    def _between(self, first: int, last: int) -> list[Receipt]:
        if first == last:
            return [self.open[first]] if first in self.open else []
        return [receipt for sequence, receipt in self.open.items() if first <= sequence <= last]

    def queue_ended(self, queue: SharedReader, reason: Reason) -> None:
        for receipt in list(self.open.values()):
            if queue in receipt.queues:
                known, why = receipt.fate(queue)
                self.resolve(receipt, queue, why if known else reason)

    # -- looking ----------------------------------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """Looks at the readers of new receipts, as far as a turn's budget goes."""
        left = TURN_LOOKS
        while self._fresh and left > 0:
            receipt = self._fresh[0]
            left -= self._look(receipt, left)
            if not receipt.to_look:
                self._fresh.popleft()
                self._looked(receipt)
        self._stamp(now)

    def tick(self, now: float) -> None:
        """Looks at the readers of all open receipts in turn, as far as a tick's budget goes."""
        left, rounds = TICK_LOOKS, len(self._old)
        while rounds and self._old and left > 0:
            receipt = next(iter(self._old))
            left -= self._look(receipt, left)
            if not receipt.to_look:
                self._old.pop(receipt, None)
                rounds -= 1
                self._looked(receipt)
        self._stamp(now)

    def _stamp(self, now: float) -> None:
        """Gives what traces have noted since the last turn the time, and hands out those that have ended."""
        if self._news:
            news, self._news = self._news, {}
            for trace in news:
                trace.stamp(now)
                if trace.state:
                    self._hand_out(trace)

    def _hand_out(self, trace: Trace) -> None:
        if len(self.traced) < ENDED_MAX:
            self.traced.append(trace)
        else:
            self._lost += 1

    def take_lost(self) -> int:
        """Returns how many ended traces had no room in ``traced`` since the last call."""
        lost, self._lost = self._lost, 0
        return lost

    def _look(self, receipt: Receipt, most: int) -> int:
        """Looks at some readers of a receipt. Returns how many, and 1 more."""
        if receipt.state is not ReceiptState.OPEN:
            receipt.to_look = []
            return 1
        if not receipt.to_look:
            receipt.begin_round()
        looks = min(most, len(receipt.to_look))
        for _ in range(looks):
            self._look_at(receipt, receipt.to_look.pop())
            if receipt.state is not ReceiptState.OPEN:
                receipt.to_look = []
                break
        return looks + 1

    def _look_at(self, receipt: Receipt, reader: Subscription | SharedReader) -> None:
        known, reason = receipt.fate(reader)
        if known:
            self.resolve(receipt, reader, reason)

    def _looked(self, receipt: Receipt) -> None:
        if receipt.state is not ReceiptState.OPEN:
            return
        if receipt.closing:
            receipt.text = "closed after its time, while readers still wait"
            self._close(receipt, ReceiptState.TIMED_OUT)
        else:
            self._old[receipt] = None


def _readers_of(feeds: Iterable[Feed], sequence: int) -> int:
    """Returns how many readers a record may be owed to, at most."""
    return sum(len(feed.queues) or len(feed.subscriptions) for feed in feeds if feed.lane.last_sequence == sequence)
