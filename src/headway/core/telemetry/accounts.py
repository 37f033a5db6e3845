"""Accounts: what became of everything that was ever meant for a consumer.

It was *drained* (its outlet took it), it was *skipped* (a policy, its age or its size left it out), or it still waits:

    offered = drained + skipped + lag

Offered, drained and skipped only ever grow, in records and in bytes. Where the books of the core are less simple:

- *Conflating*: records that passed in the lane are owed until the state was read. Each one that is then sent is
  drained, the others are skipped when the pass ends. Bytes owed are settled with those that are sent in their place.
  Who is given by the clock what has changed is offered it when the clock says so.
- *Retained records and snapshots*, and what a subscription this one replaced had left, are offered when they are sent.
- *A record half sent when its connection broke* is sent again, whole, to a session that lives on: that part of it is
  offered and drained twice.
- *What was sent and then given up* without an acknowledgement is drained, and skipped as well: offered twice.
- *Members of a shared subscription* have the same lag, the group's. What went to another member is skipped here.
- Of who *reads by himself* bytes are known to within what was written together: they move late, and all at once.
- A consumer that *discards the newest* is owed what it discards until its cursor has passed it: it is held for so long.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.core.consumer import Subscription


class Account(NamedTuple):
    drained_records: int
    drained_bytes: int
    skipped_records: int
    skipped_bytes: int
    lag_records: int
    lag_bytes: int

    @property
    def offered_records(self) -> int:
        return self.drained_records + self.skipped_records + self.lag_records

    @property
    def offered_bytes(self) -> int:
        return self.drained_bytes + self.skipped_bytes + self.lag_bytes


def account(subscription: Subscription) -> Account:
    """Of a subscription that has not ended."""
    reader = subscription.reader
    return Account(*reader.drained(subscription), *reader.skipped(subscription), *reader.owed(subscription))
