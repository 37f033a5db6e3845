"""The receipts that are open on one lane, as the rooms between the log and the receipts report to them.

While no receipt is open on a record of its own, a lane has ``NO_RECEIPTS``, which ignores all reports. The rooms of the
log know no subscriptions; ``reader`` is one.
"""

from __future__ import annotations

from typing import Final


class OpenReceipts:
    def lost(self, reader: object, first: int, last: int, reason: str) -> None:
        """Notes that a subscription does not get the lane's records with these sequences."""

    def sent(self, reader: object, sequence: int, delivery_id: int) -> None:
        """Notes that a record was sent to a subscription from elsewhere than its lane. ``delivery_id`` 0: nothing
        acknowledges it."""

    def conflating(self, reader: object) -> None:
        """Notes that a subscription will read what waits for it from a state. Called before its cursor moves."""

    def leaving(self, reader: object, reason: str) -> None:
        """Notes that a subscription ends. Called before its cursor moves."""

    def replaced(self, reader: object, heir: object) -> None:
        """Notes that another subscription will read what waits for this one. Called before its deliveries are detached
        from the lane."""


NO_RECEIPTS: Final = OpenReceipts()
