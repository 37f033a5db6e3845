"""The open receipts of all publishers. It opens, looks at and closes them; ``done`` has those to be told.

Rules:
- Nothing is done per record or consumer while no receipt is open, and nothing per record and consumer while one is.
- A turn looks at the readers of receipts that were opened in it, a tick at those that still wait, each up to a budget.
- A session has at most ``OPEN_MAX`` open receipts, and all sessions together ``ALL_OPEN_MAX``. The oldest gives way.
  The readers that a receipt has to remember are on its publisher's tab.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable

from headway.core.base import Reason, Refused, Timers, stop
from headway.core.consumer import Channel, Delivery, Feed, Session, SharedReader, Subscription
from headway.core.log import RECEIPT_BYTES, RECEIPT_READER_BYTES, RECEIPTS, Lane, State
from headway.core.message import Run
from headway.core.receipts.lane_receipts import LaneReceipts
from headway.core.receipts.receipt import Receipt, ReceiptState, Sent, way_of

OPEN_MAX = 64
ALL_OPEN_MAX = 1024
TURN_LOOKS = 1024
TICK_LOOKS = 2048
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
        return bool(self._fresh or self.done)

    # -- opening ----------------------------------------------------------------------------------------------------

    def ask(
        self, session: Session, run: Run, sequence: int, feeds: Collection[Feed], states: Iterable[State], now: float
    ) -> int:
        """Opens a receipt for a record that was just published to these feeds. Returns the work, as that of a search
        of so many entries."""
        self.asked += 1
        receipt = Receipt(self.asked, session, run, sequence, now)
        if receipt.request.fault:
            self._refuse(receipt, receipt.request.fault)
            return ASK_WORK
        size = RECEIPT_BYTES + len(run.topic) + receipt.request.size
        most = sum(len(feed.queues) or len(feed.subscriptions) for feed in feeds if feed.lane.last_sequence == sequence)
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

    def _make_room(self, session: Session) -> None:
        """Closes the oldest receipt if there are too many, of this session or of all."""
        own = self._of_session.get(session, {})
        if len(own) >= OPEN_MAX:
            self._displace(next(iter(own.values())))
        elif len(self.open) >= ALL_OPEN_MAX:
            self._displace(next(iter(self.open.values())))

    def _find_readers(self, receipt: Receipt, feeds: Iterable[Feed]) -> None:
        for feed in feeds:
            lane, queues = feed.lane, [queue for queue in feed.queues if queue.feed is feed]
            if lane.last_sequence != receipt.sequence:
                if feed.by_exchange and feed.key.group is not None:  # a full queue refused it
                    receipt.refused_by(len(queues))
                continue  # a selector, or No Local, kept it out
            receipt.numbers[lane] = lane.count - 1
            if queues or feed.by_exchange:
                receipt.queues.update((queue, queue.backlog.reading) for queue in queues)
            else:
                receipt.pending.update(
                    (one, way_of(one)) for one in feed.subscriptions
                    if one.stop_number is None and not one.session.ended
                )  # fmt: skip
        receipt.owed += receipt.waiting

    def _open(self, receipt: Receipt, run: Run, states: Iterable[State], size: int) -> None:
        session = receipt.session
        self.open[receipt.sequence] = receipt
        self._of_session.setdefault(session, {})[receipt.sequence] = receipt
        receipt.bytes = size
        session.tab.add(RECEIPTS, size)
        record = run.record(0, receipt.sequence, receipt.opened_s)
        receipt.keys = {state: state.key_of(record) for state in states}
        for lane in receipt.numbers:
            self.on(lane).add(receipt)
        receipt.timer = self._timers.at(receipt.opened_s + receipt.request.wait_s, lambda _: self._time_out(receipt))
        self._fresh.append(receipt)

    def on(self, lane: Lane) -> LaneReceipts:
        """Returns the receipts that are open on a lane, to add one."""
        found = lane.receipts
        if found is None:
            found = lane.receipts = LaneReceipts(self)
        assert isinstance(found, LaneReceipts)
        return found

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
        self.closed[state] += 1
        self.done.append(receipt)
        stop(receipt.timer)
        session = receipt.session
        session.tab.add(RECEIPTS, -receipt.bytes)
        receipt.bytes = 0
        if self.open.pop(receipt.sequence, None) is not None:
            self._take_out(receipt)
        self._old.pop(receipt, None)
        receipt.forget_readers()  # it may stay in ``done`` for some turns, and is on no tab

    def _take_out(self, receipt: Receipt) -> None:
        """Takes an open receipt out of the tables of its session, of deliveries and of lanes."""
        own = self._of_session[receipt.session]
        del own[receipt.sequence]
        if not own:
            del self._of_session[receipt.session]
        for way in receipt.pending.values():
            if isinstance(way, Sent):
                del self._parked[way.delivery]
        for lane in receipt.numbers:
            found = lane.receipts
            if isinstance(found, LaneReceipts):
                found.remove(receipt)
                if not found:
                    lane.receipts = None

    def publisher_ended(self, session: Session) -> None:
        """Closes the receipts of a publisher whose session has ended."""
        for receipt in list(self._of_session.get(session, {}).values()):
            receipt.text = "closed early: the session of the publisher has ended"
            self._close(receipt, ReceiptState.PUBLISHER_ENDED)

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

    def turn(self) -> None:
        """Looks at the readers of new receipts, as far as a turn's budget goes."""
        left = TURN_LOOKS
        while self._fresh and left > 0:
            receipt = self._fresh[0]
            left -= self._look(receipt, left)
            if not receipt.to_look:
                self._fresh.popleft()
                self._looked(receipt)

    def tick(self) -> None:
        """Looks at the readers of all open receipts in turn, as far as a tick's budget goes."""
        left, rounds = TICK_LOOKS, len(self._old)
        while rounds and self._old and left > 0:
            receipt = next(iter(self._old))
            left -= self._look(receipt, left)
            if not receipt.to_look:
                self._old.pop(receipt, None)
                rounds -= 1
                self._looked(receipt)

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
