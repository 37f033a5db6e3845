"""The receipts that are open on one lane, by sequence, and what is reported to them (open_receipts.py)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cache
from typing import Protocol

from headway.core.base import Reason
from headway.core.consumer import Delivery, SharedReader, Subscription
from headway.core.log import Lane, OpenReceipts
from headway.core.receipts.receipt import LANE, STATE, Receipt, Sent


class AllReceipts(Protocol):
    """The receipts of all lanes, as those of one lane know them (receipts.py)."""

    def on(self, lane: Lane) -> LaneReceipts: ...
    def park(self, receipt: Receipt, reader: Subscription, sent: Sent) -> None: ...
    def resolve(self, receipt: Receipt, reader: Subscription | SharedReader, reason: Reason | None) -> None: ...
    def unacknowledged(self, receipt: Receipt, reader: Subscription, delivery: Delivery) -> None: ...


class LaneReceipts(OpenReceipts):
    def __init__(self, receipts: AllReceipts) -> None:
        self._receipts = receipts
        self._sequences: list[int] = []
        self._by_sequence: dict[int, Receipt] = {}

    def add(self, receipt: Receipt) -> None:
        sequence = receipt.sequence
        if sequence not in self._by_sequence:
            self._by_sequence[sequence] = receipt
            at = bisect_left(self._sequences, sequence)  # the end, unless a subscription was replaced
            self._sequences.insert(at, sequence)

    def remove(self, receipt: Receipt) -> None:
        if self._by_sequence.pop(receipt.sequence, None) is not None:
            del self._sequences[bisect_left(self._sequences, receipt.sequence)]

    def __bool__(self) -> bool:
        return bool(self._sequences)

    def _between(self, first: int, last: int) -> list[Receipt]:
        sequences = self._sequences
        found = sequences[bisect_left(sequences, first) : bisect_right(sequences, last)]
        return [self._by_sequence[sequence] for sequence in found]

    def _pending(self, reader: Subscription) -> Iterator[Receipt]:
        """Yields the receipts that the subscription is pending in; they may be closed meanwhile."""
        for receipt in list(self._by_sequence.values()):
            if reader in receipt.pending:
                yield receipt

    # -- reports ----------------------------------------------------------------------------------------------------

    def lost(self, reader: object, first: int, last: int, reason: str) -> None:
        assert isinstance(reader, Subscription)
        for receipt in self._between(first, last):
            about = receipt.pending_reader(reader)
            if about is not None:
                self._receipts.resolve(receipt, about, Reason(reason))

    def sent(self, reader: object, sequence: int, delivery_id: int) -> None:
        assert isinstance(reader, Subscription)
        receipt = self._by_sequence.get(sequence)
        about = None if receipt is None else receipt.pending_reader(reader)
        if receipt is None or not isinstance(about, Subscription) or isinstance(receipt.pending[about], Sent):
            return  # a snapshot may repeat what a replaced subscription was owed
        if delivery_id:
            self._receipts.park(receipt, about, Sent(delivery_id, reader.channel.in_flight[delivery_id]))
        else:
            self._receipts.resolve(receipt, about, None)

    def conflating(self, reader: object) -> None:
        assert isinstance(reader, Subscription)
        cursor = reader.cursor
        for receipt in self._pending(reader):
            if receipt.pending[reader] is not LANE:
                continue
            if cursor.number <= receipt.numbers[cursor.lane]:
                receipt.pending[reader] = STATE

    def leaving(self, reader: object, reason: str) -> None:
        assert isinstance(reader, Subscription)
        in_flight = cache(lambda: _in_flight(reader))
        for receipt in self._pending(reader):
            way = receipt.pending[reader]
            if isinstance(way, Sent):
                if reader.session.ended and way.waits:
                    self._receipts.unacknowledged(receipt, reader, way.delivery)
                elif not way.waits:
                    self._receipts.resolve(receipt, reader, None)
                continue
            if way is STATE:
                self._receipts.resolve(receipt, reader, receipt.gone_from_state(reader) or Reason(reason))
                continue
            number = receipt.numbers[reader.cursor.lane]
            if reader.cursor.number <= number:
                self._receipts.resolve(receipt, reader, Reason(reason))
            elif not reader.cursor.owes(number):
                self._receipts.resolve(receipt, reader, None)
            else:
                self._left_in_flight(receipt, reader, in_flight()[number])

    def _left_in_flight(self, receipt: Receipt, reader: Subscription, sent: Sent) -> None:
        """The subscription ends, and its client may still acknowledge this delivery, unless its session ends too."""
        if reader.session.ended:
            self._receipts.unacknowledged(receipt, reader, sent.delivery)
        else:
            self._receipts.park(receipt, reader, sent)

    def replaced(self, reader: object, heir: object) -> None:
        assert isinstance(reader, Subscription)
        assert isinstance(heir, Subscription)
        in_flight = cache(lambda: _in_flight(reader))
        for receipt in list(self._by_sequence.values()):
            about = receipt.pending_reader(reader)
            if not isinstance(about, Subscription) or isinstance(receipt.pending[about], Sent):
                continue
            number, way = receipt.numbers[about.cursor.lane], receipt.pending[about]
            if about is reader and way is not STATE and reader.cursor.number > number:
                if reader.cursor.owes(number):
                    self._receipts.park(receipt, reader, in_flight()[number])
                else:
                    self._receipts.resolve(receipt, reader, None)
                continue
            receipt.heirs[heir] = about
            self._receipts.on(heir.feed.lane).add(receipt)
            receipt.numbers.setdefault(heir.feed.lane, -1)


def _in_flight(reader: Subscription) -> dict[int, Sent]:
    """Returns the deliveries of the subscription's own lane, by number."""
    return {
        delivery.number: Sent(delivery_id, delivery)
        for delivery_id, delivery in reader.channel.in_flight.items()
        if delivery.subscription is reader and delivery.chunk is not None
    }
